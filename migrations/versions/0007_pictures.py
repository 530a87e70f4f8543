"""pictures: small copies of the pictures of papers"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = '0007'
down_revision = '0006'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('paper_picture',
    sa.Column('paper_id', sa.Integer(), nullable=False),
    sa.Column('url', sa.Text(), nullable=False),
    sa.Column('media_type', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=False),
    sa.Column('version', sqlmodel.sql.sqltypes.AutoString(length=16), nullable=False),
    sa.Column('width', sa.Integer(), nullable=False),
    sa.Column('height', sa.Integer(), nullable=False),
    sa.Column('failures', sa.Integer(), nullable=False),
    sa.Column('next_attempt_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('fetched_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('data', sa.LargeBinary(), nullable=False),
    sa.ForeignKeyConstraint(['paper_id'], ['paper.id'], name=op.f('fk_paper_picture_paper_id_paper')),
    sa.PrimaryKeyConstraint('paper_id', name=op.f('pk_paper_picture'))
    )


def downgrade() -> None:
    op.drop_table('paper_picture')
