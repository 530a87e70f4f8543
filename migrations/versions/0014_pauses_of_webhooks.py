"""pauses of webhooks: the time until which an endpoint wants no requests"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhook_endpoint", sa.Column("paused_until", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("webhook_endpoint", "paused_until")
