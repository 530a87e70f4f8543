"""order of planning: subscribers with an interest in common follow one another"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0009'
down_revision = '0008'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('subscriber', sa.Column('newest_interest', sa.Integer(), server_default='0', nullable=False))
    op.execute(
        'UPDATE subscriber SET newest_interest = COALESCE('
        '(SELECT MAX(query_id) FROM interest WHERE subscriber_id = subscriber.id), 0)'
    )
    op.drop_index('ix_subscriber_due', table_name='subscriber')
    op.create_index('ix_subscriber_due', 'subscriber', ['state', 'next_due_at', 'newest_interest', 'id'])


def downgrade() -> None:
    op.drop_index('ix_subscriber_due', table_name='subscriber')
    op.create_index('ix_subscriber_due', 'subscriber', ['state', 'next_due_at', 'id'])
    op.drop_column('subscriber', 'newest_interest')
