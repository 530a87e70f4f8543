"""partial indexes of papers: of hidden and merged papers only"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '0013'
down_revision = '0012'
branch_labels = None
depends_on = None

COLUMNS = ('hidden_at', 'merged_into_id')


def upgrade() -> None:
    for column in COLUMNS:
        op.drop_index(f'ix_paper_{column}', table_name='paper')
        condition = sa.text(f'{column} IS NOT NULL')
        op.create_index(
            f'ix_paper_{column}', 'paper', [column], sqlite_where=condition, postgresql_where=condition
        )


def downgrade() -> None:
    for column in COLUMNS:
        op.drop_index(f'ix_paper_{column}', table_name='paper')
        op.create_index(f'ix_paper_{column}', 'paper', [column])
