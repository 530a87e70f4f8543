"""Find updates on papers that subscribers received or liked: withdrawals and added code.

Updates are part of a digest's content. They are therefore stored in the same transaction, and earlier
digests show which updates a subscriber has already received.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlmodel import Session

from app.delivery import ledger
from app.digests.digest_requests import DigestRequest
from app.papers import updated_papers
from app.papers.rechecking import WINDOW
from app.papers.updated_papers import UpdatedPaper
from app.types import PaperUpdate, UpdateKind

MARGIN = timedelta(days=1)  # a digest may be dated slightly before the updates in it
MAX_UPDATES = 10  # per digest; others follow in the next digest


@dataclass(frozen=True)
class RecentUpdates:
    """The papers that were withdrawn, or for which code was found, in the last WINDOW."""

    since: datetime
    papers: Sequence[UpdatedPaper]

    @cached_property
    def withdrawn(self) -> Mapping[int, UpdatedPaper]:
        return {paper.id: paper for paper in self.papers if paper.withdrawn_at}

    @cached_property
    def with_code(self) -> Mapping[int, UpdatedPaper]:
        """The papers for which code was found, by id. Withdrawn papers are left out."""
        return {paper.id: paper for paper in self.papers if paper.code_found_at and not paper.withdrawn_at}

    @cached_property
    def current_id(self) -> Mapping[int, int]:
        """The id of each paper, by its own id and the ids of the rows that were merged into it."""
        return {number: paper.id for paper in self.papers for number in paper.merged_ids}


def load(session: Session, now: datetime) -> RecentUpdates:
    """Load the recent updates. Call this once per run."""
    papers = updated_papers.changed_since(session, now - WINDOW)
    return RecentUpdates(now - WINDOW, papers)


def for_digests(
    session: Session, recent: RecentUpdates, requests: Iterable[DigestRequest]
) -> dict[int, tuple[PaperUpdate, ...]]:
    """Return the updates for each subscriber's next digest, by subscriber id.

    One query searches the earlier digests of all these subscribers.
    """
    requests = [request for request in requests if request.subscriber.paper_updates]
    if not recent.papers or not requests:
        return {}
    days = {day for paper in recent.withdrawn.values() for day in paper.days}
    ids = [request.subscriber.id or 0 for request in requests]
    withdrawn = {number for paper in recent.withdrawn.values() for number in paper.merged_ids}
    contents = ledger.promised_content(session, ids, recent.since - MARGIN, withdrawn, days)
    nothing = ledger.PromisedContent(set(), set())
    updates = {
        number: _updates(recent, request, contents.get(number, nothing))
        for number, request in zip(ids, requests, strict=True)
    }
    return {number: items for number, items in updates.items() if items}


def _updates(
    recent: RecentUpdates, request: DigestRequest, content: ledger.PromisedContent
) -> tuple[PaperUpdate, ...]:
    current_id = recent.current_id
    liked_at = {item.paper_id: item.at for item in request.feedback if item.liked and item.paper_id}
    received = {current_id.get(number) for number in content.papers} | {
        number
        for number, at in liked_at.items()
        if (paper := recent.withdrawn.get(number)) and paper.withdrawn_at and at < paper.withdrawn_at
    }
    updates = [
        PaperUpdate(UpdateKind.WITHDRAWN, number, paper.title, paper.url)
        for number, paper in recent.withdrawn.items()
        if number in received
    ]
    updates += [
        PaperUpdate(UpdateKind.CODE, number, paper.title, paper.code_url)
        for number, paper in recent.with_code.items()
        if number in liked_at and paper.code_found_at and liked_at[number] < paper.code_found_at
    ]
    reported = {(kind, current_id.get(number)) for kind, number in content.updates}
    return tuple(item for item in updates if (item.kind, item.paper_id) not in reported)[:MAX_UPDATES]
