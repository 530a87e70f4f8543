"""Change papers for an operator, and record the old and the new values in the audit log.

The API, the admin pages and the commands call these functions. They accept any of a paper's row ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from app.digests import hiding
from app.errors import InvalidInput, NotFound
from app.papers import canonical_rows, editing, merging, pinning, splitting, withdrawals
from app.storage import audit_log
from app.storage.database import advisory_lock
from app.storage.models import Paper


@dataclass(frozen=True, slots=True)
class Editor:
    """An operator who changes papers. `actor` is the name in the audit log, `now` the time of the change.

    All methods raise NotFound if there is no such paper.
    """

    session: Session
    actor: str
    now: datetime

    def edit(self, paper_id: int, changes: Mapping[str, Any]) -> Paper:
        """Set fields of a paper, or revert edits with None. Raise InvalidInput if a value is invalid."""
        paper = self.lock(paper_id)
        old_values = editing.edit(self.session, paper, changes, self.now)
        if old_values:
            new_values = editing.shown_values(paper, old_values)
            self._record("edit", paper, old=old_values, new=new_values)
        return paper

    def hide(self, paper_id: int, reason: str = "") -> Paper:
        """Hide a paper, and take it out of unsent digests. Raise Conflict if it is already hidden."""
        paper = self.lock(paper_id)
        digests = hiding.hide(self.session, paper, self.now)
        self._record("hide", paper, title=paper.title, reason=reason, left_out_of_digests=digests)
        return paper

    def show(self, paper_id: int) -> Paper:
        """Show a hidden paper again. Raise Conflict if it is not hidden."""
        paper = self.lock(paper_id)
        hidden_at = paper.hidden_at
        hiding.show(self.session, paper, self.now)
        self._record("show", paper, title=paper.title, hidden_since=_text(hidden_at))
        return paper

    def reinstate(self, paper_id: int) -> Paper:
        """Reinstate a withdrawn paper. Raise Conflict if it is not withdrawn."""
        paper = self.lock(paper_id)
        withdrawn_at = paper.withdrawn_at
        withdrawals.reinstate(paper, self.now)
        self._record("reinstate", paper, title=paper.title, withdrawn_since=_text(withdrawn_at))
        return paper

    def pin(self, paper_id: int, days: int = pinning.PIN_DAYS) -> Paper:
        """Put a paper first in digests for `days` days. Raise InvalidInput if `days` is out of range.

        Raise Conflict if the paper cannot be pinned.
        """
        paper = self.lock(paper_id)
        before = paper.pinned_until
        pinning.pin(self.session, paper, days, self.now)
        self._record("pin", paper, pinned_until=_text(paper.pinned_until), previously=_text(before))
        return paper

    def unpin(self, paper_id: int) -> Paper:
        """Unpin a paper. Raise Conflict if the paper is not pinned."""
        paper = self.lock(paper_id)
        before = paper.pinned_until
        pinning.unpin(self.session, paper)
        self._record("unpin", paper, pinned_until=_text(before))
        return paper

    def merge(self, paper_id: int, other_id: int) -> Paper:
        """Merge two papers, change unsent digests (see `leave_out_merged`), and return the surviving paper.

        Raise Conflict if they are already one paper.
        """
        pair = self.lock(paper_id), self.lock(other_id)
        survivor = merging.merge_by_hand(self.session, *pair, self.now)
        [absorbed] = [paper for paper in pair if paper is not survivor]
        digests = hiding.leave_out_merged(self.session, [survivor])
        names = {"absorbed": absorbed.id, "absorbed_title": absorbed.title}
        self._record("merge", survivor, **names, left_out_of_digests=digests)
        return survivor

    def split(
        self, paper_id: int, *, row_id: int | None = None, doi: bool = False, source_id: int | None = None
    ) -> Paper:
        """Split off a merged row, the DOI or a source's listings, and return the new paper.

        Raise InvalidInput unless exactly one part is named; NotFound or Conflict if it cannot be split off.
        """
        if [row_id is not None, doi, source_id is not None].count(True) != 1:
            raise InvalidInput("name exactly one part to split off: a row, the DOI or a source")
        paper = self.lock(paper_id)
        if row_id is not None:
            part = splitting.split_row(self.session, paper, row_id, self.now)
        elif source_id is not None:
            part = splitting.split_source(self.session, paper, source_id, self.now)
        else:
            part = splitting.split_doi(self.session, paper, self.now)
        values = {"row": row_id, "doi": part.doi, "source": source_id}
        self._record("split", paper, split_off=part.id, **values)
        return part

    def lock(self, paper_id: int) -> Paper:
        """Return a paper as it is now, and lock the archive until the transaction ends."""
        advisory_lock(self.session, "archive")
        paper = get(self.session, paper_id)
        self.session.refresh(paper)
        return paper

    def _record(self, action: str, paper: Paper, **detail: Any) -> None:
        audit_log.record(self.session, self.actor, f"paper.{action}", paper.id, self.now, **detail)


def get(session: Session, paper_id: int) -> Paper:
    """Return a paper by the id of any of its rows. Raise NotFound if there is none."""
    paper = canonical_rows.papers(session, [paper_id]).get(paper_id)
    if paper is None:
        raise NotFound(f"there is no paper {paper_id}")
    return paper


def find(session: Session, reference: str, base_url: str) -> Paper:
    """Return the paper with this id, arXiv id, DOI or URL. Raise NotFound if there is none."""
    reference = reference.strip()
    if reference.isascii() and reference.isdigit() and len(reference) < 10:
        return get(session, int(reference))
    paper_id = canonical_rows.find_by_reference(session, reference, base_url)
    if paper_id is None:
        raise NotFound(f"“{reference[:100]}” is not the ID, arXiv ID, DOI or URL of a paper")
    return get(session, paper_id)


def rows_of(session: Session, ids: Sequence[int]) -> dict[int, Paper]:
    """Return the rows with these ids, including merged rows, by id and in the given order."""
    rows = {row.id: row for row in session.exec(select(Paper).where(col(Paper.id).in_(ids)))}
    return {number: rows[number] for number in ids if number in rows}


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
