"""Query the sources again about papers that were sent or liked, to find withdrawals and new code.

arXiv is queried about all recently sent or liked papers, a hundred per request. Hugging Face is queried only
for the code of liked papers, because it needs a request for each paper. Each source is queried at its usual
pace, and is not polled in the meantime. If a source refuses a paper, the others are still queried.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from sqlmodel import Session, col, select

from app import clock
from app.errors import SourceError, Stopping, UnreadableResponse
from app.papers import canonical_rows, ingest, poll_schedule, polling
from app.papers.polling import PollContext
from app.papers.sources import arxiv, deadlines, http_client, huggingface
from app.papers.sources.host_rate_limits import TOO_MANY
from app.storage import job_runs, locks
from app.storage.models import FeedbackRow, JobRun, Paper, PaperSnapshot, Source
from app.types import IngestSummary, ParseResult, Rejection, SourceKind

JOB = "recheck"
MAX_ARXIV_PAPERS = 10_000  # a hundred requests, which take about six minutes
MAX_LIKED_PAPERS = 200  # well below Hugging Face's limit of 500 requests in five minutes
WINDOW = timedelta(days=60)  # papers that were sent or liked earlier get no updates
DEADLINE = timedelta(minutes=20)  # for one source
LEASE = DEADLINE + timedelta(minutes=5)
MAX_REFUSED = 10  # refused papers in a row, after which the source counts as failed
REFUSED = "the source does not return this paper"
PAPER_ERRORS = (500, 501)  # probably of a single paper; 502 to 504 are outages
BUSY = "another process is polling this source"


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A query to a source about the papers with these arXiv ids."""

    source: Source
    ids: Sequence[str]


def recheck(context: PollContext, now: datetime) -> IngestSummary:
    """Query one arXiv and one Hugging Face source again, and store the changes.

    After a failed run on the same day, query only the sources that failed. Raise SourceError at the end if a
    source could not be queried. Do not call this from a running event loop.
    """
    with context.db.read() as session:
        lookups = _lookups(session, now - WINDOW)
        if failed := _failed_sources(session, now):
            lookups = [lookup for lookup in lookups if lookup.source.name in failed]
    if not lookups:
        return IngestSummary()
    summary, time = IngestSummary(), clock.Timeline(now, context.db.skew)
    with job_runs.record(context.db, JOB, now) as run:
        for number, lookup in enumerate(lookups):
            try:
                summary += _query(context, lookup, time, run)
            except (SourceError, TimeoutError) as error:
                run.fail(lookup.source.name, str(error) or "no response in time")
            except Stopping:
                for waiting in lookups[number:]:
                    run.fail(waiting.source.name, "the service was stopped")
                break
    if run.failures:
        raise SourceError(run.error)
    return summary


def _failed_sources(session: Session, now: datetime) -> set[str]:
    """Return the names of the sources that failed in the last run today. Return none to query all."""
    newest = select(JobRun).where(JobRun.job == JOB).order_by(col(JobRun.id).desc()).limit(1)
    run = session.exec(newest).first()
    if run is None or run.started_at.date() != now.date() or "" in run.failed_parts:
        return set()
    return set(run.failed_parts)


def _lookups(session: Session, since: datetime) -> list[_Lookup]:
    """Return at most one lookup for an active arXiv source and one for an active Hugging Face source."""
    sources: dict[bool, Source] = {}
    active = select(Source).where(col(Source.paused).is_(False), col(Source.removed_at).is_(None))
    for source in session.exec(active.order_by(col(Source.id))):
        if source.kind in (SourceKind.ARXIV, SourceKind.ARXIV_FEED):
            sources.setdefault(True, source)
        elif source.kind is SourceKind.HUGGINGFACE:
            sources.setdefault(False, source)
    ids_of = {True: _sent_or_liked, False: _liked_without_code}
    lookups = (_Lookup(source, ids_of[is_arxiv](session, since)) for is_arxiv, source in sources.items())
    return [lookup for lookup in lookups if lookup.ids]


def _sent_or_liked(session: Session, since: datetime) -> list[str]:
    """Return the arXiv ids of papers in recent digests and of recently liked papers, newest first."""
    sent = select(PaperSnapshot.paper_id).where(PaperSnapshot.created_at >= since).distinct()
    papers = canonical_rows.papers(session, [*session.exec(sent), *_recently_liked(session, since)])
    unique = {paper.arxiv_id: paper for paper in papers.values() if paper.arxiv_id}
    return _newest(unique, MAX_ARXIV_PAPERS)


def _liked_without_code(session: Session, since: datetime) -> list[str]:
    papers = canonical_rows.papers(session, _recently_liked(session, since))
    unique = {
        paper.arxiv_id: paper
        for paper in papers.values()
        if paper.arxiv_id and not paper.code_url and paper.withdrawn_at is None
    }
    return _newest(unique, MAX_LIKED_PAPERS)


def _recently_liked(session: Session, since: datetime) -> Sequence[int]:
    liked = select(FeedbackRow.paper_id).where(col(FeedbackRow.liked), FeedbackRow.at >= since)
    return session.exec(liked.distinct()).all()


def _newest(papers: dict[str, Paper], limit: int) -> list[str]:
    return sorted(papers, key=lambda arxiv_id: -(papers[arxiv_id].id or 0))[:limit]


def _query(
    context: PollContext, lookup: _Lookup, time: clock.Timeline, run: job_runs.JobRunRecorder
) -> IngestSummary:
    """Query a source about papers, store the returned records, and add their counts to the run.

    Raise SourceError if the source fails, or if another process holds its polling lease.
    """
    with locks.hold(context.db, poll_schedule.lease_of(lookup.source), time(), LEASE) as acquired:
        if not acquired:
            raise SourceError(BUSY)
        return deadlines.run(_query_and_store(context, lookup, time, run))


async def _query_and_store(
    context: PollContext, lookup: _Lookup, time: clock.Timeline, run: job_runs.JobRunRecorder
) -> IngestSummary:
    source = lookup.source
    summary, deadline = IngestSummary(), monotonic() + DEADLINE.total_seconds()
    async with polling.client_of(context, time()) as client:
        batches = _fetch(client, lookup)
        while batch := await deadlines.wait_for(
            anext(batches, None), deadline - monotonic(), context.stopping
        ):
            papers, parsed = batch
            stored = ingest.store_in_batches(
                context.db,
                parsed,
                time(),
                lambda session: session.get_one(Source, source.id),
                on_merges=context.on_merges,
                polled=True,
                origin=source.name,
            )
            run.add({"asked": papers} | stored.counts())
            run.reject(stored.rejections)
            summary += stored
    return summary


async def _fetch(client: http_client.Client, lookup: _Lookup) -> AsyncIterator[tuple[int, ParseResult]]:
    """Yield, for each request, the number of papers and their records, or the rejection of a refused paper.

    If a request for several papers is refused, split it in half and repeat. Raise SourceError if the source
    does not respond, asks us to wait, refuses MAX_REFUSED papers in a row, or refuses several and returns
    none.
    """
    is_arxiv = lookup.source.kind is not SourceKind.HUGGINGFACE
    size = arxiv.IDS_PER_REQUEST if is_arxiv else 1
    batches = [lookup.ids[start : start + size] for start in range(0, len(lookup.ids), size)][::-1]
    refused, has_succeeded = list[str](), False  # `refused` has the ids since the last success
    while batches:
        ids = batches.pop()
        try:
            if is_arxiv:
                parsed = await arxiv.fetch_papers(client, ids)
            else:
                parsed = await huggingface.fetch_paper(client, *ids)
        except SourceError as error:
            if not _may_concern_paper(error, len(ids)):
                raise
            if len(ids) > 1:
                batches += [ids[len(ids) // 2 :], ids[: len(ids) // 2]]
                continue
            refused.append(ids[0])
            yield 1, ParseResult(rejections=(Rejection(REFUSED, None, f"{ids[0]}: {error}"),))
            fails = len(refused) > 1 and not (batches or has_succeeded)
            if fails or len(refused) == MAX_REFUSED:
                raise SourceError(f"it refused {', '.join(refused)}: {error}") from error
        else:
            refused, has_succeeded = [], True
            yield len(ids), parsed


def _may_concern_paper(error: SourceError, papers: int) -> bool:
    """PURE. Return whether a request for this number of papers may have failed because of one of them.

    A request for several papers is split only after an error 400. After an error 500 or 501 for a single
    paper, the paper is probably the cause.
    """
    if error.retry_at:
        return False
    if papers > 1:
        return error.status == arxiv.BAD_REQUEST
    if error.status is None:
        return isinstance(error, UnreadableResponse)
    return error.status in PAPER_ERRORS or (error.status < min(PAPER_ERRORS) and error.status != TOO_MANY)
