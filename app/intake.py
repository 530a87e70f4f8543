"""The intake: sources are asked in turn, saved answers are read, and what is new goes into the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from time import monotonic

import structlog
from sqlmodel import Session

from app import catalogue, ingest, leases, runs, sources
from app.errors import SourceError
from app.models import Source, SourceKind
from app.parts import App
from app.records import Rejection
from app.sources import client

REFRESH_LEASE = timedelta(minutes=30)
UNREADABLE = "the file cannot be read"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Refreshed:
    """What asking the sources brought. One that failed is named with the reason; the others went on."""

    summary: ingest.Summary = field(default_factory=ingest.Summary)
    polled: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False  # another process is at it


def poll(app: App, now: datetime, source_id: int | None) -> Refreshed:
    """Ask the sources that are due, or one, if no other process is at it."""
    with app.db.write() as session:
        catalogue.seed(session, app.settings.arxiv_categories, now)
        due = catalogue.wanted(session, now, source_id)
        turn = _Turn(app, now)
        if due and not turn.taken(session):
            for source in due:
                source.next_poll_at = now  # whoever is at it comes to it soon
            return Refreshed(busy=True)
    if not due:
        return Refreshed()
    try:
        with runs.recorded(app.db, "refresh", now) as run:
            refreshed = asyncio.run(_ask_all(turn, due))
            run.add(refreshed.summary.counts())
            run.reject(refreshed.summary.rejections)
            for name, error in refreshed.failed.items():
                run.fail(name, error)
        return refreshed
    finally:
        with app.db.write() as session:
            leases.give_back(session, "refresh", turn.holder)


@dataclass(frozen=True)
class _Turn:
    """This process's turn at asking the sources. It is prolonged with each piece that is stored."""

    app: App
    now: datetime
    holder: str = field(default_factory=leases.new_holder)
    started: float = field(default_factory=monotonic)

    def taken(self, session: Session) -> bool:
        moment = self.now + timedelta(seconds=monotonic() - self.started)
        return leases.take(session, "refresh", self.holder, moment, REFRESH_LEASE)


async def _ask_all(turn: _Turn, due: Sequence[Source]) -> Refreshed:
    settings = turn.app.settings
    contact = settings.user_agent_contact or settings.contact_address or settings.base_url
    async with client.opened(contact, turn.now, turn.app.wire) as polite:
        asked = await asyncio.gather(*(_ask(turn, polite, source) for source in due))
    return Refreshed(
        summary=sum((summary for summary, _ in asked), ingest.Summary()),
        polled=tuple(source.name for source in due),
        failed={source.name: error for source, (_, error) in zip(due, asked, strict=True) if error},
    )


async def _ask(turn: _Turn, polite: client.Client, source: Source) -> tuple[ingest.Summary, str]:
    """One source, piece by piece; whatever goes wrong with it is its own affair."""
    summary, error, retry_at = ingest.Summary(), "", None
    state = catalogue.state(source, turn.app.settings.backfill_days)
    try:
        async for piece in sources.fetch(polite, state, turn.now):
            summary += await asyncio.to_thread(_store_piece, turn, source, piece)
    except SourceError as fault:
        error, retry_at = str(fault), fault.retry_at
    except Exception as fault:
        log.exception("source not read", source=source.name)
        error = f"{type(fault).__name__}: {fault}"
    await asyncio.to_thread(_close_poll, turn, source, error, retry_at)
    return summary, error


def _store_piece(turn: _Turn, source: Source, piece: sources.Piece) -> ingest.Summary:
    with turn.app.db.write() as session:
        if not turn.taken(session):
            raise SourceError("Another process has taken over.")
        row = session.get_one(Source, source.id)
        summary = ingest.store(session, row, piece.parsed, turn.now, polled=True, origin=row.name)
        catalogue.advance(row, piece)
        return summary


def _close_poll(turn: _Turn, source: Source, error: str, retry_at: datetime | None) -> None:
    with turn.app.db.write() as session:
        row = session.get_one(Source, source.id)
        if error:
            catalogue.failed(session, row, error, turn.now, retry_at)
        else:
            catalogue.succeeded(row, turn.now)


@dataclass(frozen=True)
class FilesRead:
    """What reading files brought. `unreadable` ones are among the rejections, too, with the reason."""

    files: int = 0
    summary: ingest.Summary = field(default_factory=ingest.Summary)
    unreadable: tuple[str, ...] = ()


def read_files(
    app: App, paths: Iterable[Path], now: datetime, kind: SourceKind | None, day: date | None
) -> FilesRead:
    """Put saved answers into the archive; a file that cannot be read is told, and the rest goes on."""
    with app.db.write() as session:
        catalogue.seed(session, app.settings.arxiv_categories, now)
    titles = ingest.Titles()
    files, unreadable, summary = 0, [], ingest.Summary()
    with runs.recorded(app.db, "ingest", now) as run:
        for path in paths:
            files += 1
            try:
                read = sources.read(path.name, path.read_bytes(), now.date(), kind=kind, day=day)
                summary += _store_file(app, path, read, now, titles)
            except (SourceError, OSError) as fault:
                unreadable.append(str(path))
                told = Rejection(UNREADABLE, None, str(fault), str(path))
                summary += ingest.Summary(rejections=(told,))
        run.add({"files": files} | summary.counts())
        run.reject(summary.rejections)
    return FilesRead(files, summary, tuple(unreadable))


def _store_file(
    app: App, path: Path, read: sources.Reading, now: datetime, titles: ingest.Titles
) -> ingest.Summary:
    with app.db.write() as session:
        source = catalogue.of_files(session, read.kind, now)
        return ingest.store(session, source, read.parsed, now, titles=titles, origin=str(path))
