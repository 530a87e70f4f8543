"""Try a source before it is added: fetch its newest papers, and compare them with the archive.

Nothing is stored. The fetch has the same limits as a poll, but a shorter deadline. Like a poll, the trial of
an arXiv source needs arXiv's lease, because arXiv allows only one connection.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from time import monotonic
from typing import Any

from app import clock
from app.errors import Conflict, SourceError
from app.papers import ingest, poll_schedule, source_registry
from app.papers.polling import PollContext, client_of
from app.papers.sources import deadlines, host_rate_limits, source_types
from app.papers.sources.state import SourceState
from app.storage import locks
from app.storage.models import Source
from app.types import PaperRecord, ParseResult, Rejection, SourceKind

MIN_SECONDS = 30  # for a whole trial, unless a single response may take longer
DAYS = 3  # days before today that are read, so that a trial on a Sunday finds papers
PAPERS_RETURNED = 20
REJECTIONS_RETURNED = 20
TOO_SLOW = "the source was not read completely within {} seconds"
NO_PAPERS = "the source was read, but has no papers from the last few days"


@dataclass(frozen=True, slots=True)
class TrialPaper:
    """A paper that a source lists, and the same paper in the archive, if any."""

    record: PaperRecord
    paper_id: int | None


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The outcome of a trial: the newest papers, the numbers of new and existing papers, and rejections."""

    rows: int  # including the rejected ones
    new: int
    existing: int
    papers: tuple[TrialPaper, ...]  # the newest PAPERS_RETURNED
    rejected: int
    rejections: tuple[Rejection, ...]  # the first REJECTIONS_RETURNED
    warning: str = ""  # the reason why papers of the source may be missing
    error: str = ""  # the reason why the source could not be read


def try_source(
    context: PollContext, kind: SourceKind, config: Mapping[str, Any], now: datetime
) -> TrialResult:
    """Fetch the newest papers of a source, and compare them with the archive.

    Raise InvalidInput if the configuration is invalid, and Conflict if the source is on arXiv and arXiv is
    being polled. If the source cannot be read, the result contains the error.
    """
    source = Source(
        name="trial", kind=kind, config=source_registry.check_config(kind, config), created_at=now
    )
    on_arxiv = poll_schedule.lease_of(source) == host_rate_limits.ARXIV
    seconds = max(MIN_SECONDS, context.settings.source_timeout_seconds)
    lasting = timedelta(seconds=2 * seconds)
    lease = locks.hold(context.db, host_rate_limits.ARXIV, now, lasting) if on_arxiv else nullcontext(True)
    with lease as acquired:
        if not acquired:
            raise Conflict("arXiv is being polled, and allows only one connection: try again in a minute")
        now = clock.Timeline(now, context.db.skew).start
        parsed, warning, error = deadlines.run(_fetch(context, source, now, seconds))
    return _compare(context, source, parsed, now, warning, error)


async def _fetch(
    context: PollContext, source: Source, now: datetime, seconds: int
) -> tuple[ParseResult, str, str]:
    """Return the records that were read within this many seconds, a warning and an error."""
    yesterday = now.date() - timedelta(days=1)
    state = SourceState(source.kind, DAYS, source.config)
    # Read only the newest announcement from arXiv's feed, without the slow query API, and only the newest
    # records of the back catalog.
    if source.kind in (SourceKind.ARXIV_FEED, SourceKind.ARXIV_OAI):
        state = replace(state, watermark=yesterday)
    parsed, deadline = ParseResult(), monotonic() + seconds
    async with client_of(context, now) as client:
        pages = source_types.fetch(client, state, now)
        try:
            while page := await deadlines.wait_for(
                anext(pages, None), deadline - monotonic(), context.stopping
            ):
                parsed += page.parsed
        except TimeoutError:
            too_slow = TOO_SLOW.format(seconds)
            return (parsed, too_slow, "") if parsed.rows else (parsed, "", too_slow)
        except SourceError as fault:
            return parsed, "", str(fault)
    return parsed, "" if parsed.records else NO_PAPERS, ""


def _compare(
    context: PollContext, source: Source, parsed: ParseResult, now: datetime, warning: str, error: str
) -> TrialResult:
    with context.db.read() as session:
        matches = ingest.find_existing(session, source, parsed, now)
    papers = sorted((TrialPaper(record, paper_id) for record, paper_id in matches), key=_day, reverse=True)
    existing = sum(paper.paper_id is not None for paper in papers)
    return TrialResult(
        parsed.rows, len(papers) - existing, existing, tuple(papers[:PAPERS_RETURNED]),
        len(parsed.rejections), parsed.rejections[:REJECTIONS_RETURNED], warning, error,
    )  # fmt: skip


def _day(paper: TrialPaper) -> date:
    return paper.record.listed_on or paper.record.published_on or date.min
