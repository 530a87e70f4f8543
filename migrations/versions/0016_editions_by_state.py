"""editions by state: indexes to count the digests of an edition, and to find subscribers whose digest could
not be composed
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0016'
down_revision = '0015'
branch_labels = None
depends_on = None

FAILED = sa.text('plan_after IS NOT NULL')


def upgrade() -> None:
    op.drop_index('ix_delivery_due', table_name='delivery')
    op.create_index('ix_delivery_due', 'delivery', ['state', 'next_attempt_at', 'edition'])
    op.create_index(
        'ix_subscriber_plan_after', 'subscriber', ['plan_after'], sqlite_where=FAILED, postgresql_where=FAILED
    )


def downgrade() -> None:
    op.drop_index('ix_subscriber_plan_after', table_name='subscriber')
    op.drop_index('ix_delivery_due', table_name='delivery')
    op.create_index('ix_delivery_due', 'delivery', ['state', 'next_attempt_at'])
