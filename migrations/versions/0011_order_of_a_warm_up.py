"""order of a warm-up: readers who have waited longest for a digest come first"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0011'
down_revision = '0010'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('delivery', sa.Column('waiting_since', sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column('delivery', 'waiting_since')
