"""failed parts of runs: where each error of a run occurred"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0008'
down_revision = '0007'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('job_run', sa.Column('failed_parts', sa.JSON(), server_default='[]', nullable=False))


def downgrade() -> None:
    op.drop_column('job_run', 'failed_parts')
