"""removed sources, alerts"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.add_column(sa.Column('removed_at', sa.DateTime(timezone=True), nullable=True))
    op.create_table('operator_alert',
    sa.Column('cause', sqlmodel.sql.sqltypes.AutoString(length=200), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('since', sa.DateTime(timezone=True), nullable=False),
    sa.Column('seen_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('mailed_at', sa.DateTime(timezone=True), nullable=True),
    sa.PrimaryKeyConstraint('cause', name=op.f('pk_operator_alert'))
    )


def downgrade() -> None:
    op.drop_table('operator_alert')
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.drop_column('removed_at')
