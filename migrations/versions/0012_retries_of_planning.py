"""retries of planning: their time is no longer stored as the due time"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0012'
down_revision = '0011'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('subscriber', sa.Column('plan_after', sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column('subscriber', 'plan_after')
