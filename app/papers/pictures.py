"""The pictures of papers, as pages show them: small copies that `picture_fetching` has stored.

A copy is shown only while its URL is the paper's current picture URL. A new record, a merge or an undone
merge may change the current URL.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from sqlalchemy import delete, exists, select
from sqlmodel import Session, col

from app.papers import canonical_rows
from app.papers.paper_views import PUBLIC
from app.papers.sources import huggingface
from app.storage.database import execute_and_count, in_array
from app.storage.models import Paper, PaperPicture

_IS_CURRENT = (col(PaperPicture.version) != "", col(PaperPicture.url) == col(Paper.thumbnail_url))


@dataclass(frozen=True, slots=True)
class Picture:
    """The version and size of a stored picture.

    `repeats_title` is true for a card that shows only the title.
    """

    version: str
    width: int
    height: int
    repeats_title: bool


class StoredPicture(NamedTuple):
    """The bytes of a stored picture, with their media type and version."""

    data: bytes
    media_type: str
    version: str


def of_papers(session: Session, ids: Collection[int]) -> dict[int, Picture]:
    """Return the pictures of papers, keyed by paper id. Papers without a picture are left out."""
    names = ("paper_id", "version", "width", "height", "url")
    rows = (
        select(*(col(getattr(PaperPicture, name)) for name in names))
        .join(Paper, col(Paper.id) == col(PaperPicture.paper_id))
        .where(in_array(session, col(PaperPicture.paper_id), ids), *_IS_CURRENT)
    )
    return {
        row.paper_id: Picture(row.version, row.width, row.height, huggingface.is_title_card(row.url))
        for row in session.execute(rows)
    }


def of_public_paper(session: Session, paper_id: int) -> StoredPicture | None:
    """Return the stored picture of a paper, following merges, unless the paper is withdrawn or hidden."""
    canonical_id = canonical_rows.canonical_ids(session, [paper_id]).get(paper_id)
    columns = select(*(col(getattr(PaperPicture, name)) for name in StoredPicture._fields))
    current = columns.join(Paper, col(Paper.id) == col(PaperPicture.paper_id)).where(*_IS_CURRENT, *PUBLIC)
    row = session.execute(current.where(col(Paper.id) == canonical_id)).first()
    return StoredPicture(*row) if row else None


def take_over(session: Session, survivor: Paper, absorbed: Paper) -> None:
    """Copy the absorbed row's picture to the survivor if its URL is now the survivor's picture URL."""
    row = session.get(PaperPicture, absorbed.id)
    if row and row.version and row.url == survivor.thumbnail_url:
        session.merge(PaperPicture(**{**row.model_dump(), "paper_id": survivor.id}))


def prune(session: Session, listed_before: date | None) -> int:
    """Delete the pictures of papers last listed before a day, or all pictures if `listed_before` is None.

    Return the number of deleted pictures.
    """
    deleting = delete(PaperPicture)
    if listed_before:
        paper = col(Paper.id) == col(PaperPicture.paper_id)
        deleting = deleting.where(exists().where(paper, col(Paper.last_listed_on) < listed_before))
    return execute_and_count(session, deleting)
