"""READ FIRST. What Paperboy does, stage by stage; every door (web, CLI, scheduler) calls these.

refresh()        sources → records → the archive
send_due()       who is due → match → compose → the ledger → mails
send_pending()   the ledger → HTML, text → bytes → the relay → the ledger, what was put off or cut off too
preview()        the digest that somebody with these interests would get; foresee(), what readers would
send_test()      a digest to any address, outside of the ledger
prune()          what is past its retention
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from time import monotonic

import structlog
from sqlmodel import Session, col, delete

from app import (
    catalogue,
    compose,
    deliver,
    ingest,
    leases,
    message,
    planning,
    render,
    runs,
    smtp,
    sources,
    subscribers,
)
from app.db import Database
from app.desk import Desk
from app.errors import DeliveryError, SourceError
from app.lexicon import Lexicon
from app.models import Delivery, Event, Run, Source, SourceKind, Subscriber
from app.records import Answer, Digest, Outgoing, Rejection, Skip, Verdict, Wish
from app.settings import Settings
from app.sources import client
from app.tokens import Signer

REFRESH_LEASE = timedelta(minutes=30)
RUNS_KEPT = timedelta(days=90)
UNCONFIRMED_KEPT = timedelta(days=30)
UNREADABLE = "the file cannot be read"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class App:
    """Everything the pipeline works with, made once by `main.build`."""

    settings: Settings
    db: Database
    signer: Signer
    renderer: render.Renderer
    lexicon: Lexicon = field(default_factory=Lexicon)
    wire: client.Wire = field(default_factory=client.Wire)  # how sources are reached


@dataclass(frozen=True)
class Refreshed:
    """What asking the sources brought. One that failed is named with the reason; the others went on."""

    summary: ingest.Summary = field(default_factory=ingest.Summary)
    polled: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    busy: bool = False  # another process is at it


def refresh(app: App, now: datetime, *, source_id: int | None = None) -> Refreshed:
    """Ask every source that is due, or one of them now, and put what is new into the archive.

    Only one process does so at a time. Not to be called within a running event loop.
    """
    with app.db.write() as session:
        catalogue.seed(session, app.settings.arxiv_categories, now)
        due = [catalogue.get(session, source_id)] if source_id else catalogue.due(session, now)
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
            run.reject("", refreshed.summary.rejections)
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
    holder: str = field(
        default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
    )
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
    app: App,
    paths: Iterable[Path],
    now: datetime,
    *,
    kind: SourceKind | None = None,
    day: date | None = None,
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
        run.reject("", summary.rejections)
    return FilesRead(files, summary, tuple(unreadable))


def _store_file(
    app: App, path: Path, read: sources.Reading, now: datetime, titles: ingest.Titles
) -> ingest.Summary:
    with app.db.write() as session:
        source = catalogue.of_files(session, read.kind, now)
        return ingest.store(session, source, read.parsed, now, titles=titles, origin=str(path))


def send_due(app: App, now: datetime) -> Counter[str]:
    """Plan every digest that is due and send whatever may leave.

    Safe to run twice, and in several processes at once: the ledger decides. Nothing is recorded of a
    moment at which there was nothing to do.
    """
    with app.db.write() as session:
        subscribers.wake(session, now)
        if not (planning.anyone_due(session, now) or deliver.anything_to_do(session, now)):
            return Counter()
    with runs.recorded(app.db, "send", now) as run:
        run.add(planning.plan(app.db, app.settings, app.lexicon, now))
        run.add(send_pending(app, now))
    return run.counts


def preview(
    app: App, wishes: Sequence[Wish], now: datetime, *, day: date | None = None, max_papers: int = 10
) -> Digest | Skip:
    """The digest that a new reader with these interests would get on a day; nothing is written."""
    with app.db.read() as session:
        desk = Desk(app.settings, app.lexicon, session, now, day)
    asked = compose.Reader(tuple(wishes), max_papers=max_papers)
    shelf = desk.shelf(wishes, app.settings.candidate_days)
    return compose.compose((day or now.date()).isoformat(), asked, shelf, frozenset())


def foresee(app: App, now: datetime, ids: Collection[int] | None = None) -> list[planning.Foreseen]:
    """What everyone who is due, or each of these readers, would get now; nothing is written."""
    return planning.foresee(app.db, app.settings, app.lexicon, now, ids)


def specimen(digest: Digest, to: str, domain: str, now: datetime) -> tuple[Delivery, Subscriber]:
    """A mail outside of the ledger. Its links grant nothing, for nobody is reader 0."""
    delivery = Delivery(
        id=0,
        subscriber_id=0,
        edition=digest.edition,
        digest=asdict(digest),
        message_id=f"<test-{uuid.uuid4().hex}@{domain}>",
        due_at=now,
        created_at=now,
    )
    return delivery, Subscriber(id=0, email=to, created_at=now)


def send_test(app: App, digest: Digest, to: str, now: datetime) -> Answer:
    """Send a digest to any address, once, and say what the relay answered."""
    content = _write_letter(app, *specimen(digest, to, app.settings.mail_domain, now)).content
    return content if isinstance(content, Answer) else asyncio.run(_send_unbooked(app, content))


async def _send_unbooked(app: App, mail: Outgoing) -> Answer:
    async def commit(_mail: Outgoing) -> bool:
        return True  # there is no row in the ledger to mark

    async with smtp.Relay(app.settings) as relay:
        return await relay.send(mail, commit)


def prune(app: App, now: datetime) -> Counter[str]:
    """Delete what is past its retention. A paper that old is no candidate: never twice still holds."""
    old = now - timedelta(days=app.settings.retention_days)
    with runs.recorded(app.db, "prune", now) as run, app.db.write() as session:
        run.counts["unconfirmed"] += subscribers.expire_pending(session, now - UNCONFIRMED_KEPT, now)
        for name, statement in {
            "events": delete(Event).where(col(Event.at) < old),
            "deliveries": delete(Delivery).where(col(Delivery.created_at) < old),
            "runs": delete(Run).where(col(Run.started_at) < now - RUNS_KEPT),
        }.items():
            run.counts[name] += session.execute(statement).rowcount  # type: ignore[attr-defined]
    return run.counts


def send_pending(app: App, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Hand every mail that may leave now to the relay; how many ended in which state.

    `ids` narrows it to some deliveries. Not to be called within a running event loop.
    """
    with app.db.write() as session:
        deliver.recover(session, now, app.settings.uncertain)
    return asyncio.run(_send_pending(app, now, ids))


async def _send_pending(app: App, now: datetime, ids: Collection[int] | None) -> Counter[str]:
    started = monotonic()
    ledger = deliver.Ledger(
        app.db,
        owner=f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}",
        policy=app.settings.uncertain,
        clock=lambda: now + timedelta(seconds=monotonic() - started),
    )
    counts: Counter[str] = Counter()
    async with smtp.Relay(app.settings) as relay:
        while not relay.stopped and (shard := await ledger.claim(ids)):
            counts.update(shard.ended)
            letters = await asyncio.to_thread(_write_letters, app, shard)
            counts.update(cards_left_out=sum(letter.cards_left_out for letter in letters))
            sending = [_hand_over(relay, ledger, letter) for letter in letters]
            # All are waited for, whatever one of them raises: a mail in flight wants its answer.
            states = await asyncio.gather(*sending, return_exceptions=True)
            for state in states:
                if isinstance(state, BaseException):
                    raise state
                counts[state] += 1
    return +counts


@dataclass(frozen=True)
class _Letter:
    """A claimed delivery, written out, or the answer why it could not be."""

    delivery_id: int
    content: Outgoing | Answer
    cards_left_out: int = 0


def _write_letters(app: App, shard: deliver.Shard) -> list[_Letter]:
    return [_write_letter(app, delivery, reader) for delivery, reader in shard.letters]


def _write_letter(app: App, delivery: Delivery, reader: Subscriber) -> _Letter:
    """One broken mail must not stop the others: it waits for the fault to be mended, while there is time."""
    assert delivery.id is not None  # noqa: S101 - it comes from the ledger
    domain = app.settings.mail_domain
    envelope = message.Envelope(
        delivery_id=delivery.id,
        message_id=delivery.message_id or app.signer.message_id(delivery.id, domain),
        return_path=app.signer.return_path(delivery.id, domain),
        from_name=app.settings.site_name,
        from_address=app.settings.from_address,
        to_address=reader.email,
        date=delivery.created_at,
    )
    try:
        mail = app.renderer.render(delivery, reader)
        return _Letter(delivery.id, message.compose(mail, envelope), mail.left_out)
    except Exception as error:
        lasting = isinstance(error, DeliveryError) and error.permanent
        verdict = Verdict.UNSENDABLE if lasting else Verdict.DEFERRED
        return _Letter(delivery.id, Answer(verdict, None, f"this mail cannot be made: {error!s:.300}"))


async def _hand_over(relay: smtp.Relay, ledger: deliver.Ledger, letter: _Letter) -> str:
    answer = letter.content
    if isinstance(answer, Outgoing):
        answer = await relay.send(answer, ledger.commit)
    return await ledger.record(letter.delivery_id, answer) or "taken over"
