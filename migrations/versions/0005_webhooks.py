"""webhooks: events for the URLs that operators registered"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = '0005'
down_revision = '0004'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('webhook_endpoint',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('url', sqlmodel.sql.sqltypes.AutoString(length=2000), nullable=False),
    sa.Column('events', sa.JSON(), nullable=False),
    sa.Column('include_addresses', sa.Boolean(), nullable=False),
    sa.Column('secret', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('previous_secret', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('previous_until', sa.DateTime(timezone=True), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('accepted_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('disabled_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('error', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_webhook_endpoint')),
    sa.UniqueConstraint('url', name=op.f('uq_webhook_endpoint_url'))
    )
    big_id = sa.BigInteger().with_variant(sa.Integer(), 'sqlite')
    states = sa.Enum('pending', 'accepted', 'failed', name='webhookstate', native_enum=False, create_constraint=True, length=20)
    op.create_table('webhook_message',
    sa.Column('id', big_id, nullable=False),
    sa.Column('endpoint_id', sa.Integer(), nullable=False),
    sa.Column('message_id', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=False),
    sa.Column('event', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('data', sa.JSON(), nullable=False),
    sa.Column('key', sqlmodel.sql.sqltypes.AutoString(length=60), nullable=True),
    sa.Column('state', states, nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('attempted_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('next_attempt_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('give_up_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('status', sa.Integer(), nullable=True),
    sa.Column('error', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['endpoint_id'], ['webhook_endpoint.id'], name=op.f('fk_webhook_message_endpoint_id_webhook_endpoint'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_webhook_message')),
    sa.UniqueConstraint('endpoint_id', 'key', name=op.f('uq_webhook_message_endpoint_id_key'))
    )
    op.create_index('ix_webhook_message_at', 'webhook_message', ['at'])
    op.create_index('ix_webhook_message_endpoint_id', 'webhook_message', ['endpoint_id', 'id'])
    condition = sa.text('next_attempt_at IS NOT NULL')
    op.create_index('ix_webhook_message_due', 'webhook_message', ['next_attempt_at'], sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    op.drop_table('webhook_message')
    op.drop_table('webhook_endpoint')
