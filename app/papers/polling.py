"""Poll the sources that are due, read saved responses from files, and store the new papers.

Sources are polled in parallel, each under its own lease, except that arXiv sources share one. Each poll has a
deadline. The next poll is scheduled before a poll starts, so that a source that kills the process is polled
less and less often. After such a crash, the sources whose polls did not finish are polled one at a time.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic

import structlog
from sqlmodel import Session

from app import clock
from app.errors import SourceError, Stopping
from app.papers import ingest, poll_history, poll_schedule, source_registry
from app.papers.poll_schedule import POLL_DEADLINE, TIMED_OUT
from app.papers.sources import deadlines, files, http_client, source_types
from app.papers.sources.allowed_addresses import Allowed
from app.papers.sources.state import FetchedPage
from app.settings import Settings
from app.storage import job_runs, live_processes, locks, webhook_outbox
from app.storage.database import Database
from app.storage.models import Source, WebhookEvent
from app.types import IngestSummary, Rejection, SourceKind

JOB = "refresh"
REFRESH_LEASE = POLL_DEADLINE + timedelta(minutes=5)
CHANGED = "The source was changed during the poll."
UNREADABLE = "the file cannot be read"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class PollResult:
    """The result of polling the sources. `failed` maps the names of failed sources to their errors."""

    summary: IngestSummary = field(default_factory=IngestSummary)
    polled: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False  # another process is polling


@dataclass(frozen=True)
class PollContext:
    """The dependencies for polling sources and reading files."""

    db: Database
    settings: Settings
    http: http_client.HttpTransport
    stopping: Event  # set when the process should stop: no new poll starts
    on_merges: ingest.OnMerges


def poll(context: PollContext, now: datetime, source_id: int | None) -> PollResult:
    """Poll the sources that are due, or only the given source, unless another process is polling them.

    Raise NotFound if the given source does not exist, and Conflict if it is read from files.
    """
    if context.stopping.is_set():
        return PollResult()
    now = clock.Timeline(now, context.db.skew).start
    with context.db.write() as session:
        source_registry.seed(session, context.settings.arxiv_categories, now)
        due = poll_schedule.sources_to_poll(session, now, source_id)
        # Sources that are polled alone begin later, in `_poll_all`, when all others have finished.
        groups = [
            group for group in _groups(context, now, due) if group.claim(session, begin=not group.alone)
        ]
        if source_id and not groups:
            due[0].next_poll_at = now  # so that the next run polls it, after the lease is released
    if not groups:
        return PollResult(busy=bool(due))
    log.info("polling sources", sources=[source.name for group in groups for source in group.sources])
    try:
        with job_runs.record(context.db, JOB, now) as run:
            result = deadlines.run(_poll_all(context, now, groups))
            run.add(result.summary.counts())
            run.reject(result.summary.rejections)
            for name, error in result.failed.items():
                run.fail(name, error)
        return result
    finally:
        for group in groups:
            group.end()


def poll_missed(context: PollContext, now: datetime) -> bool:
    """Poll the sources whose regular poll is late. Return whether planning should wait for a later run.

    Planning waits if this call polled one of them (`now` is then out of date), if a first retry is due soon,
    or if another process is polling one.
    """
    time = clock.Timeline(now, context.db.skew).start
    with context.db.read() as session:
        missed = poll_schedule.missed_sources(session, time)
    if not any(poll_schedule.is_due(source, time) for source in missed):
        return bool(missed)  # they are being polled, or are retried soon
    names = [source.name for source in missed]
    log.info("polling sources that were not polled for some time before digests are planned", sources=names)
    try:
        return not set(names).isdisjoint(poll(context, now, None).polled)
    except Exception:
        log.exception("polling failed; digests are planned without new papers")
        return False


@dataclass(frozen=True)
class _LeaseGroup:
    """Sources that are polled under one lease, which is renewed whenever a batch is stored."""

    context: PollContext
    now: datetime
    lease: str
    holder: str
    sources: Sequence[Source]
    alone: bool  # no other source is polled at the same time, because this one may have killed the process
    started: float = field(default_factory=monotonic)

    def renew_lease(self, session: Session) -> bool:
        """Acquire or renew the lease. Return False if another process holds it."""
        return locks.acquire(session, self.lease, self.holder, self.moment(), REFRESH_LEASE)

    def claim(self, session: Session, *, begin: bool) -> bool:
        """Acquire the lease. Return False if another process holds it.

        If `begin`, also postpone the next polls. The caller must commit before it polls the sources.
        """
        if not self.renew_lease(session):
            return False
        if begin:
            for source in self.sources:
                poll_schedule.begin(session.get_one(Source, source.id), self.moment())
        return True

    def end(self) -> None:
        """Release the lease."""
        with self.context.db.write() as session:
            locks.release(session, self.lease, self.holder)

    def moment(self) -> datetime:
        """Return the current time: the start of the run plus the time that has passed."""
        return self.now + timedelta(seconds=monotonic() - self.started)


@dataclass
class _Poll:
    """The state of polling one source."""

    source: Source
    began: datetime
    summary: IngestSummary = field(default_factory=IngestSummary)
    pages: int = 0
    error: str = ""
    retry_at: datetime | None = None
    timed_out: bool = False
    interrupted: bool = False


def client_of(context: PollContext, now: datetime) -> AbstractAsyncContextManager[http_client.Client]:
    """Open the client for fetching from sources, with the contact and allowed addresses from the settings."""
    settings = context.settings
    contact = settings.user_agent_contact or settings.contact_address or settings.base_url
    allowed = Allowed.parse(settings.allow_private_sources)
    return http_client.open_client(contact, now, context.http, allowed)


def _groups(context: PollContext, now: datetime, due: Sequence[Source]) -> list[_LeaseGroup]:
    """Group the sources that share a lease. A source whose last poll did not finish is polled alone."""
    holder = live_processes.new_holder()
    grouped: dict[tuple[str, int | None], list[Source]] = {}
    for source in due:
        alone = source.id if source_registry.is_unfinished(source) else None
        grouped.setdefault((poll_schedule.lease_of(source), alone), []).append(source)
    return [
        _LeaseGroup(context, now, lease, holder, group, alone=alone is not None)
        for (lease, alone), group in grouped.items()
    ]


async def _poll_all(context: PollContext, now: datetime, groups: Sequence[_LeaseGroup]) -> PollResult:
    async with client_of(context, now) as client:
        together = await asyncio.gather(*(_poll_group(group, client) for group in groups if not group.alone))
        polls = [poll for polls in together for poll in polls]
        for group in groups:
            if group.alone and await asyncio.to_thread(_begin_alone, group):
                polls += await _poll_group(group, client)
    polls.sort(key=lambda poll: poll.source.id or 0)
    return PollResult(
        summary=sum((poll.summary for poll in polls), IngestSummary()),
        polled=tuple(poll.source.name for poll in polls),
        failed={poll.source.name: poll.error for poll in polls if poll.error},
        busy=not polls,
    )


def _begin_alone(group: _LeaseGroup) -> bool:
    """Claim the lease for polling a source alone. Return True if polling may begin.

    Return False if another process holds the lease, if the service is stopping, or if the run has already
    lasted for POLL_DEADLINE.
    """
    if group.context.stopping.is_set() or monotonic() - group.started > POLL_DEADLINE.total_seconds():
        return False
    with group.context.db.write() as session:
        return group.claim(session, begin=True)


async def _poll_group(group: _LeaseGroup, client: http_client.Client) -> list[_Poll]:
    try:
        return await asyncio.gather(*(_poll_source(group, client, source) for source in group.sources))
    finally:
        await asyncio.to_thread(group.end)


async def _poll_source(group: _LeaseGroup, client: http_client.Client, source: Source) -> _Poll:
    """Poll one source page by page until it has no more pages, the deadline passes or the service stops.

    A failure does not affect other sources.
    """
    poll = _Poll(source, group.moment())
    deadline = monotonic() + POLL_DEADLINE.total_seconds()
    stopping = group.context.stopping
    try:
        state = poll_schedule.state_of(source, group.context.settings.backfill_days, group.now.date())
        pages = source_types.fetch(client, state, group.now)
        while page := await deadlines.wait_for(anext(pages, None), deadline - monotonic(), stopping):
            poll.summary += await asyncio.to_thread(_store_page, group, source, page)
            poll.pages += 1
    except Stopping:
        poll.interrupted = True
    except TimeoutError:
        poll.error, poll.timed_out = TIMED_OUT, True
    except SourceError as fault:
        poll.error, poll.retry_at = str(fault), fault.retry_at
    except Exception as fault:
        log.exception("polling a source failed", source=source.name)
        poll.error = f"{type(fault).__name__}: {fault}"
    try:
        await asyncio.to_thread(_record_poll, group, poll)
    except Exception as fault:  # the source stays postponed, and counts as unfinished
        log.exception("recording a poll failed", source=source.name)
        poll.error = f"{type(fault).__name__}: {fault}"
    return poll


def _store_page(group: _LeaseGroup, source: Source, page: FetchedPage) -> IngestSummary:
    """Store the records of one page. The last transaction also records the progress of the source."""

    def load_source(session: Session) -> Source:
        if not group.renew_lease(session):
            raise SourceError("Another process is now polling this source.")
        # With `key_share`, other transactions may still store listings that refer to this row.
        row = session.get_one(Source, source.id, with_for_update={"key_share": True})
        if row.config != source.config:
            raise SourceError(CHANGED)
        return row

    return ingest.store_in_batches(
        group.context.db,
        page.parsed,
        group.moment(),
        load_source,
        partial(poll_schedule.record_progress, page=page, today=group.now.date()),
        on_merges=group.context.on_merges,
        polled=True,
        origin=source.name,
    )


def _record_poll(group: _LeaseGroup, poll: _Poll) -> None:
    with group.context.db.write() as session:
        row = session.get_one(Source, poll.source.id)
        error = "the service was stopped" if poll.interrupted else poll.error
        poll_history.record(session, row, poll.began, group.moment(), poll.summary, error)
        if poll.interrupted:
            poll_schedule.record_interruption(row, group.now)
        elif poll.error:
            if poll.timed_out and poll.pages:  # a large source that made progress
                row.failures = 0
            record_failure(session, row, poll.error, group.now, poll.retry_at)
        else:
            poll_schedule.record_success(row, group.now)
        session.flush()  # locks the row, so that its configuration can no longer change
        session.refresh(row, ["config"])
        if row.config != poll.source.config:
            poll_schedule.record_change(row, poll.retry_at or group.now)


def record_failure(
    session: Session, source: Source, error: str, now: datetime, retry_at: datetime | None
) -> None:
    """Record a failed poll. Notify operators by webhook after FAILING_AFTER in a row."""
    poll_schedule.record_failure(session, source, error, now, retry_at)
    if source.failures == poll_schedule.FAILING_AFTER:
        facts = {"source_id": source.id, "name": source.name, "failures": source.failures, "error": error}
        webhook_outbox.emit(session, WebhookEvent.SOURCE_FAILED, facts, now)


@dataclass(frozen=True)
class FileImportResult:
    """The result of reading files.

    The rejections in `summary` say why a file is listed in `unreadable` or `incomplete`.
    """

    files: int = 0
    summary: IngestSummary = field(default_factory=IngestSummary)
    unreadable: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()  # only the beginning was read: the rest is missing, broken or too long


def read_files(
    context: PollContext, paths: Iterable[Path], now: datetime, kind: SourceKind | None, day: date | None
) -> FileImportResult:
    """Store the records in saved responses. Report files that cannot be read or are read only in part.

    If `kind` is None, detect it from the content of each file. If `day` is None, use the day in its name.
    """
    with context.db.write() as session:
        source_registry.seed(session, context.settings.arxiv_categories, now)
    time = clock.Timeline(now, context.db.skew)
    files, summary = 0, IngestSummary()
    unreadable, incomplete = list[str](), list[str]()
    with job_runs.record(context.db, "ingest", now) as run:
        for path in paths:
            files += 1
            try:
                for part in _store_file(context, path, time, kind, day):
                    run.add(part.counts())
                    run.reject(part.rejections)
                    job_runs.store_counts(context.db, run)
                    summary += part
                    if any(rejection.row is None for rejection in part.rejections):
                        incomplete.append(str(path))
            except (SourceError, OSError) as fault:
                unreadable.append(str(path))
                rejection = Rejection(UNREADABLE, None, str(fault), str(path))
                run.add({"rejected": 1})
                run.reject([rejection])
                summary += IngestSummary(rejections=(rejection,))
        run.add({"files": files})
    return FileImportResult(files, summary, tuple(unreadable), tuple(incomplete))


def _store_file(
    context: PollContext, path: Path, time: clock.Timeline, kind: SourceKind | None, day: date | None
) -> Iterator[IngestSummary]:
    """Store the records of a file, and yield the summary of each part.

    Each part is dated when it is stored, because the search index looks only for recent changes.
    """
    first_row = 1
    for part in files.read_file(path, time().date(), kind=kind, day=day):
        now = time()
        source_of = partial(source_registry.source_for_files, kind=part.kind, now=now)
        yield ingest.store_in_batches(
            context.db,
            part.parsed,
            now,
            source_of,
            on_merges=context.on_merges,
            origin=str(path),
            first_row=first_row,
        )
        first_row += part.parsed.rows
