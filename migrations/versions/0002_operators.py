"""removed sources, alerts, updates on earlier papers"""

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
    op.add_column('paper', sa.Column('code_found_at', sa.DateTime(timezone=True), nullable=True))
    for name in ('withdrawn_at', 'code_found_at'):
        condition = sa.text(f'{name} IS NOT NULL')
        op.create_index(f'ix_paper_{name}', 'paper', [name], sqlite_where=condition, postgresql_where=condition)
    op.create_index('ix_paper_snapshot_paper_id', 'paper_snapshot', ['paper_id'])
    op.add_column('subscriber', sa.Column('paper_updates', sa.Boolean(), server_default=sa.true(), nullable=False))
    op.add_column('digest_content', sa.Column('has_updates', sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column('delivery', sa.Column('receiver', sqlmodel.sql.sqltypes.AutoString(length=255), nullable=True))
    condition = sa.text('receiver IS NOT NULL')
    op.create_index('ix_delivery_receiver', 'delivery', ['receiver', 'sent_at'], sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    op.drop_index('ix_delivery_receiver', 'delivery')
    op.drop_column('delivery', 'receiver')
    op.drop_column('digest_content', 'has_updates')
    op.drop_column('subscriber', 'paper_updates')
    op.drop_index('ix_paper_snapshot_paper_id', 'paper_snapshot')
    for name in ('code_found_at', 'withdrawn_at'):
        op.drop_index(f'ix_paper_{name}', 'paper')
    op.drop_column('paper', 'code_found_at')
    op.drop_table('operator_alert')
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.drop_column('removed_at')
