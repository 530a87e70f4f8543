"""Withdraw papers, and reinstate them if their source no longer says that they were withdrawn.

`Paper.versions` holds the day and the origin of the newest statement on a paper's withdrawal. Only a newer
record of the same origin reinstates the paper, because a source does not know of withdrawals elsewhere. A
paper that an operator has reinstated is never withdrawn again.
"""

from datetime import datetime

from app.errors import Conflict
from app.papers.field_precedence import WITHDRAWAL, day_of
from app.storage.models import Paper
from app.types import PaperRecord, SourceKind

ARXIV, HUGGINGFACE = "arxiv", "huggingface"
_BY_OPERATOR = "9999-12-31 operator"  # later than any record


def initial_version(record: PaperRecord, kind: SourceKind) -> dict[str, str]:
    """Return the entry in `versions` of a new row, or no entry if the paper is not withdrawn."""
    return {WITHDRAWAL: " ".join(_day_and_origin(record, kind))} if record.withdrawn else {}


def update(paper: Paper, record: PaperRecord, kind: SourceKind, now: datetime) -> bool:
    """Withdraw or reinstate a paper if a record says so. Return whether the paper changed."""
    if record.withdrawn is None:
        return False
    day, origin = _day_and_origin(record, kind)
    # A row that an earlier release stored as withdrawn has no entry. It was most likely withdrawn on arXiv.
    newest_day, newest_origin = paper.versions.get(WITHDRAWAL, f" {ARXIV}").split(" ")
    was_withdrawn = paper.withdrawn_at is not None
    if record.withdrawn:
        if day < newest_day:
            return False
        paper.withdrawn_at = paper.withdrawn_at or now
    else:
        if not was_withdrawn or origin != newest_origin or day <= newest_day:
            return False
        paper.withdrawn_at = None
    if (day, origin) != (newest_day, newest_origin):
        paper.versions = {**paper.versions, WITHDRAWAL: f"{day} {origin}"}
    return was_withdrawn != (paper.withdrawn_at is not None)


def _day_and_origin(record: PaperRecord, kind: SourceKind) -> tuple[str, str]:
    return day_of(record).isoformat(), HUGGINGFACE if kind is SourceKind.HUGGINGFACE else ARXIV


def reinstate(paper: Paper, now: datetime) -> None:
    """Reinstate a paper for an operator. Raise Conflict if it is not withdrawn."""
    if paper.withdrawn_at is None:
        raise Conflict("the paper is not withdrawn")
    paper.withdrawn_at, paper.updated_at = None, now
    paper.versions = {**paper.versions, WITHDRAWAL: _BY_OPERATOR}
