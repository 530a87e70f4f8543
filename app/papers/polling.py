"""The intake: sources are asked, saved answers are read, and what is new goes into the archive.

Sources are asked in parallel, each under a lease of its own; those of arXiv share one. A source has a
deadline in each run, and its turn moves on before it is asked: one that takes the process down with it is
asked less and less often. After such a death the sources that were under way are asked one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from threading import Event
from time import monotonic

import structlog
from sqlmodel import Session

from app import clock
from app.errors import SourceError, Stopping
from app.papers import duplicate_candidates, ingest, source_registry, sources
from app.papers.sources import deadlines, http_client
from app.papers.sources.allowed_addresses import Allowed
from app.papers.sources.state import FetchedPage
from app.settings import Settings
from app.storage import job_runs, live_processes, locks
from app.storage.database import Database
from app.storage.models import Source
from app.types import IngestSummary, Rejection, SourceKind

POLL = timedelta(minutes=10)  # for one source in one run; what was read by then is stored
REFRESH_LEASE = POLL + timedelta(minutes=5)
UNENDED = f"it was not read to its end within {POLL.seconds // 60} minutes; the next poll goes on from there"
UNREADABLE = "the file cannot be read"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class PollResult:
    """What asking the sources brought. One that failed is named with the reason; the others went on."""

    summary: IngestSummary = field(default_factory=IngestSummary)
    polled: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False  # another process is at it


@dataclass(frozen=True)
class PollContext:
    """What asking sources and reading files uses."""

    db: Database
    settings: Settings
    http: http_client.HttpTransport
    stopping: Event  # set when the process is to end: nothing new is begun


def poll(context: PollContext, now: datetime, source_id: int | None) -> PollResult:
    """Ask the sources that are due, or one, unless another process is at them."""
    if context.stopping.is_set():
        return PollResult()
    now = clock.Timeline(now, context.db.skew).start
    with context.db.write() as session:
        source_registry.seed(session, context.settings.arxiv_categories, now)
        due = source_registry.sources_to_poll(session, now, source_id)
        turns = [turn for turn in _turns(context, now, due) if turn.claim(session)]
        if source_id and not turns:
            due[0].next_poll_at = now  # whoever has its lease ends soon
    if not turns:
        return PollResult(busy=bool(due))
    try:
        with job_runs.record(context.db, "refresh", now) as run:
            refreshed = deadlines.run(_ask_all(context, now, turns))
            run.add(refreshed.summary.counts())
            run.reject(refreshed.summary.rejections)
            for name, error in refreshed.failed.items():
                run.fail(name, error)
        return refreshed
    finally:
        for turn in turns:
            turn.end()


@dataclass(frozen=True)
class _Turn:
    """The right to ask some sources: one lease. It is prolonged with each piece that is stored."""

    context: PollContext
    now: datetime
    lease: str
    holder: str
    sources: Sequence[Source]
    alone: bool  # the process may have died of this source: nothing else is asked meanwhile
    started: float = field(default_factory=monotonic)

    def taken(self, session: Session) -> bool:
        return locks.acquire(session, self.lease, self.holder, self._moment(), REFRESH_LEASE)

    def claim(self, session: Session) -> bool:
        """Take the lease. Sources that are asked alone begin when everything else has ended."""
        return self.taken(session) if self.alone else self.begin(session)

    def begin(self, session: Session) -> bool:
        """Take the lease and move the sources' turns on, to be committed before they are asked."""
        if not self.taken(session):
            return False
        for source in self.sources:
            source_registry.begin(session.get_one(Source, source.id), self._moment())
        return True

    def end(self) -> None:
        with self.context.db.write() as session:
            locks.release(session, self.lease, self.holder)

    def _moment(self) -> datetime:
        return self.now + timedelta(seconds=monotonic() - self.started)


@dataclass
class _Poll:
    """What asking one source brought so far."""

    source: Source
    summary: IngestSummary = field(default_factory=IngestSummary)
    pieces: int = 0
    error: str = ""
    retry_at: datetime | None = None
    timed_out: bool = False
    interrupted: bool = False


def _turns(context: PollContext, now: datetime, due: Sequence[Source]) -> list[_Turn]:
    """Group the sources that share a lease; those that may have killed the process are asked one by one."""
    holder = live_processes.new_holder()
    shared: dict[str, list[Source]] = {}
    for source in due:
        if not source_registry.is_doubtful(source):
            shared.setdefault(source_registry.lease_of(source), []).append(source)
    together = [_Turn(context, now, lease, holder, group, alone=False) for lease, group in shared.items()]
    doubtful = filter(source_registry.is_doubtful, due)
    return together + [
        _Turn(context, now, source_registry.lease_of(source), holder, [source], alone=True)
        for source in doubtful
    ]


async def _ask_all(context: PollContext, now: datetime, turns: Sequence[_Turn]) -> PollResult:
    settings = context.settings
    contact = settings.user_agent_contact or settings.contact_address or settings.base_url
    allowed = Allowed.parse(settings.allow_private_sources)
    async with http_client.open_client(contact, now, context.http, allowed) as polite:
        together = await asyncio.gather(*(_ask_turn(turn, polite) for turn in turns if not turn.alone))
        polls = [poll for polls in together for poll in polls]
        for turn in turns:
            if turn.alone and await asyncio.to_thread(_begin_alone, turn):
                polls += await _ask_turn(turn, polite)
    polls.sort(key=lambda poll: poll.source.id or 0)
    return PollResult(
        summary=sum((poll.summary for poll in polls), IngestSummary()),
        polled=tuple(poll.source.name for poll in polls),
        failed={poll.source.name: poll.error for poll in polls if poll.error},
        busy=not polls,
    )


def _begin_alone(turn: _Turn) -> bool:
    """Begin the turn of a doubtful source, unless it is too late for this run."""
    if turn.context.stopping.is_set() or monotonic() - turn.started > POLL.total_seconds():
        return False
    with turn.context.db.write() as session:
        return turn.begin(session)


async def _ask_turn(turn: _Turn, polite: http_client.Client) -> list[_Poll]:
    try:
        return await asyncio.gather(*(_ask(turn, polite, source) for source in turn.sources))
    finally:
        await asyncio.to_thread(turn.end)


async def _ask(turn: _Turn, polite: http_client.Client, source: Source) -> _Poll:
    """Ask one source, piece by piece. Whatever goes wrong with it stops no other."""
    poll = _Poll(source)
    try:
        await _read(turn, polite, poll)
    except Stopping:
        poll.interrupted = True
    except TimeoutError:
        poll.error, poll.timed_out = UNENDED, True
    except SourceError as fault:
        poll.error, poll.retry_at = str(fault), fault.retry_at
    except Exception as fault:
        log.exception("source not read", source=source.name)
        poll.error = f"{type(fault).__name__}: {fault}"
    await asyncio.to_thread(_close_poll, turn, poll)
    return poll


async def _read(turn: _Turn, polite: http_client.Client, poll: _Poll) -> None:
    """Store what the source has, until its end, its deadline, or the end of the service."""
    ends = monotonic() + POLL.total_seconds()
    state = source_registry.state(poll.source, turn.context.settings.backfill_days)
    pieces = sources.fetch(polite, state, turn.now)
    while True:
        left = ends - monotonic()
        piece = await deadlines.wait_for(anext(pieces, None), left, turn.context.stopping)
        if piece is None:
            return
        poll.summary += await asyncio.to_thread(_store_piece, turn, poll.source, piece)
        poll.pieces += 1


def _store_piece(turn: _Turn, source: Source, piece: FetchedPage) -> IngestSummary:
    """Store what one answer held. The source's state moves on with the last batch of it."""

    def row_of(session: Session) -> Source:
        if not turn.taken(session):
            raise SourceError("Another process has taken over.")
        return session.get_one(Source, source.id)

    def advance(row: Source) -> None:
        source_registry.advance(row, piece)

    return ingest.store_in_batches(
        turn.context.db, piece.parsed, turn.now, row_of, advance, polled=True, origin=source.name
    )


def _close_poll(turn: _Turn, poll: _Poll) -> None:
    with turn.context.db.write() as session:
        row = session.get_one(Source, poll.source.id)
        if poll.interrupted:
            source_registry.interrupted(row, turn.now)
        elif poll.error:
            if poll.timed_out and poll.pieces:  # it has much to tell, and goes on from there
                row.failures = 0
            source_registry.failed(session, row, poll.error, turn.now, poll.retry_at)
        else:
            source_registry.succeeded(row, turn.now)


@dataclass(frozen=True)
class FileImportResult:
    """What reading files brought. `unreadable` ones are among the rejections, too, with the reason."""

    files: int = 0
    summary: IngestSummary = field(default_factory=IngestSummary)
    unreadable: tuple[str, ...] = ()


def read_files(
    context: PollContext, paths: Iterable[Path], now: datetime, kind: SourceKind | None, day: date | None
) -> FileImportResult:
    """Put saved answers into the archive; a file that cannot be read is told, and the rest goes on."""
    with context.db.write() as session:
        source_registry.seed(session, context.settings.arxiv_categories, now)
    titles = duplicate_candidates.TitleCache()
    files, unreadable, summary = 0, [], IngestSummary()
    with job_runs.record(context.db, "ingest", now) as run:
        for path in paths:
            files += 1
            try:
                read = sources.read(path.name, path.read_bytes(), now.date(), kind=kind, day=day)
                summary += _store_file(context, path, read, now, titles)
            except (SourceError, OSError) as fault:
                unreadable.append(str(path))
                told = Rejection(UNREADABLE, None, str(fault), str(path))
                summary += IngestSummary(rejections=(told,))
        run.add({"files": files} | summary.counts())
        run.reject(summary.rejections)
    return FileImportResult(files, summary, tuple(unreadable))


def _store_file(
    context: PollContext,
    path: Path,
    read: sources.ParsedFile,
    now: datetime,
    titles: duplicate_candidates.TitleCache,
) -> IngestSummary:
    def source_of(session: Session) -> Source:
        return source_registry.source_for_files(session, read.kind, now)

    return ingest.store_in_batches(context.db, read.parsed, now, source_of, titles=titles, origin=str(path))
