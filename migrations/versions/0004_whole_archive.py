"""all of arXiv: its back catalogue as a source, and an index of titles by their beginning and end"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KINDS = ('huggingface', 'arxiv', 'arxiv_feed', 'feed', 'page', 'jsonl')
ROWS = 5000


def upgrade() -> None:
    _replace_kinds((*KINDS[:3], 'arxiv_oai', *KINDS[3:]))
    op.add_column('source', sa.Column('resumption_token', sa.Text(), nullable=True))
    op.create_index('ix_listing_source_id', 'listing', ['source_id', 'listed_on'])
    bytewise = sa.String(40).with_variant(sa.String(40, collation='C'), 'postgresql')
    op.add_column('paper', sa.Column('title_end', bytewise, nullable=False, server_default=''))
    if op.get_bind().dialect.name == 'postgresql':
        op.alter_column('paper', 'title_end', server_default=None)
        op.alter_column('paper', 'title_key', type_=sa.String(1000, collation='C'))
    _fill_title_ends()
    op.create_index('ix_paper_title_end', 'paper', ['title_end'])
    condition = sa.text('arxiv_id IS NULL')
    for name in ('title_key', 'title_end'):
        op.create_index(f'ix_paper_{name}_without_id', 'paper', [name], sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    for name in ('title_end_without_id', 'title_key_without_id', 'title_end'):
        op.drop_index(f'ix_paper_{name}', 'paper')
    op.drop_column('paper', 'title_end')
    if op.get_bind().dialect.name == 'postgresql':
        op.execute('ALTER TABLE paper ALTER COLUMN title_key TYPE VARCHAR(1000) COLLATE "default"')
    op.drop_index('ix_listing_source_id', 'listing')
    op.drop_column('source', 'resumption_token')
    # 0.1.0 does not know this kind. Make such a source a paused one of another kind, so that its papers remain.
    op.execute("UPDATE source SET kind = 'arxiv', paused = true WHERE kind = 'arxiv_oai'")
    _replace_kinds(KINDS)


def _replace_kinds(kinds: tuple[str, ...]) -> None:
    listed = ', '.join(f"'{name}'" for name in kinds)
    with op.batch_alter_table('source') as batch_op:
        batch_op.drop_constraint(op.f('ck_source_sourcekind'), type_='check')
        batch_op.create_check_constraint(op.f('ck_source_sourcekind'), f'kind IN ({listed})')


def _fill_title_ends() -> None:
    connection = op.get_bind()
    papers = sa.table('paper', sa.column('id'), sa.column('title_key'), sa.column('title_end'))
    last = 0
    while batch := connection.execute(
        sa.select(papers.c.id, papers.c.title_key).where(papers.c.id > last).order_by(papers.c.id).limit(ROWS)
    ).all():
        ends = [{'number': number, 'end': key[:-41:-1]} for number, key in batch]
        change = sa.update(papers).where(papers.c.id == sa.bindparam('number'))
        connection.execute(change.values(title_end=sa.bindparam('end')), ends)
        last = batch[-1].id
