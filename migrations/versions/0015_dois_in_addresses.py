"""DOIs in addresses: without versions and suffixes, as records now have them"""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

from app.text import identifiers

revision = '0015'
down_revision = '0014'
branch_labels = None
depends_on = None

BATCH = 1000
_FORMER_DOI = re.compile(r'\b(10\.\d{4,9}/[^\s"<>?#]+)', re.IGNORECASE)
_PAPER = sa.table('paper', sa.column('id'), sa.column('doi'), sa.column('url'))


def upgrade() -> None:
    """Replace the DOIs that are now read differently, unless another paper already has the new DOI.

    Otherwise, the next poll would add these papers again.
    """
    connection = op.get_bind()
    has_new_doi = sa.select(_PAPER.c.id).where(_PAPER.c.doi == sa.bindparam('new'))
    replace_doi = sa.update(_PAPER).where(_PAPER.c.id == sa.bindparam('paper')).values(doi=sa.bindparam('new'))
    for paper_id, new in _new_dois(connection):
        if connection.scalar(has_new_doi, {'new': new}) is None:
            connection.execute(replace_doi, {'paper': paper_id, 'new': new})


def downgrade() -> None:
    """Keep the new DOIs. The former release recognizes these papers by their titles."""


def _new_dois(connection: sa.Connection) -> Iterator[tuple[int, str]]:
    """Yield the id of each paper whose DOI is now read differently, with its new DOI."""
    last = 0
    following = sa.select(_PAPER).where(_PAPER.c.id > sa.bindparam('last'), _PAPER.c.doi.is_not(None))
    batch = following.order_by(_PAPER.c.id).limit(BATCH)
    while rows := connection.execute(batch, {'last': last}).all():
        for paper_id, doi, url in rows:
            match = _FORMER_DOI.search(url)
            is_from_url = match is not None and match.group(1).rstrip('.,;)').lower() == doi
            new = identifiers.doi(url if is_from_url else doi)
            if new and new != doi:
                yield paper_id, new
        last = rows[-1].id
