"""removed sources, alerts, idempotency keys"""

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
    op.create_table('idempotency_key',
    sa.Column('name', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('fingerprint', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('holder', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('until', sa.DateTime(timezone=True), nullable=False),
    sa.Column('changed', sa.Boolean(), nullable=False),
    sa.Column('subject', sa.Text(), nullable=False),
    sa.Column('status', sa.Integer(), nullable=True),
    sa.Column('answer', sa.Text(), nullable=True),
    sa.Column('expires_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_idempotency_key'))
    )
    with op.batch_alter_table('idempotency_key', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_idempotency_key_expires_at'), ['expires_at'], unique=False)


def downgrade() -> None:
    with op.batch_alter_table('idempotency_key', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_idempotency_key_expires_at'))
    op.drop_table('idempotency_key')
    op.drop_table('operator_alert')
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.drop_column('removed_at')
