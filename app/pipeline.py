"""READ FIRST. What Paperboy does, stage by stage; every door (web, CLI, scheduler) calls these.

refresh()       sources → records → the archive; read_files() does the same for saved answers
summarise()     papers that no source sums up → a language model's sentence, where settings name one
learn()         the archive → a new model of it, at night and whenever the archive has outgrown the old one
answer_requests() what the public forms ask for → a confirmation, a link, or nothing → mails
plan()          who is due → match → compose → the ledger
sign_ahead()    the ledger → signatures of what waits for its hour
send()          the ledger → mails, whenever something may leave
send_due()      these three, one after the other, for whoever does not have the schedule do it
send_pending()  the ledger → HTML, text → bytes → the relay → the ledger, what was put off or cut off too
preview()       the digest that somebody with these interests would get; foresee(), what readers would
backtest()      the digests that somebody with these interests would have got over the last days
explain()       why a reader was sent a paper, or why not
show()          a digest as the mail that it would be; send_test(), the same to any address, off the ledger
read_bounces()  the mailbox and the folder of what comes back → events, scores, suppression; take_bounces()
prune()         what is past its retention
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import structlog
from sqlmodel import Session, col, delete

from app import bounces, subscribers
from app.application import Application
from app.bounces import Notice, processing
from app.clock import Timeline
from app.delivery import ledger, presigning, sender
from app.digests import backtesting, explanation, planning
from app.digests.builder import DigestBuilder
from app.errors import ClockError, InvalidInput
from app.papers import llm_summaries, polling
from app.papers.polling import FileImportResult, PollResult
from app.papers.sources import deadlines
from app.relevance.model_store import TrainingResult
from app.storage import job_runs, locks, rate_limits
from app.storage.models import JobRun
from app.types import Digest, Interest, RenderedMail, SendResult, Skip, SourceKind

log = structlog.get_logger(__name__)

LEARNING = SUMMARISING = timedelta(minutes=30)  # much longer than it takes
RUNS_KEPT = timedelta(days=90)
UNCONFIRMED_KEPT = timedelta(days=30)
FIRST_DAY, LAST_DAY = date(1991, 8, 14), date(2199, 12, 31)  # arXiv's first; what anybody may look at


def refresh(app: Application, now: datetime, *, source_id: int | None = None) -> PollResult:
    """Ask every source that is due, or one of them now, and put what is new into the archive.

    Only one process asks a source at a time. Not to be called within a running event loop.
    """
    refreshed = polling.poll(app.poll_context, now, source_id)
    if refreshed.polled and not app.stopping.is_set():
        _keep_up(app, now)
    return refreshed


def read_files(
    app: Application,
    paths: Iterable[Path],
    now: datetime,
    *,
    kind: SourceKind | None = None,
    day: date | None = None,
) -> FileImportResult:
    """Put saved answers into the archive; a file that cannot be read is told, and the rest goes on."""
    read = polling.read_files(app.poll_context, paths, now, kind, day)
    _keep_up(app, now)
    return read


def _keep_up(app: Application, now: datetime) -> None:
    """Learn from an archive that has outgrown its model. What fails here is no fault of the intake."""
    try:
        with app.db.read() as session:
            outgrown = app.models.needs_training(session)
        if outgrown:
            learn(app, now)
    except Exception:
        log.exception("no model was learned; the one before it serves on")


def summarise(app: Application, now: datetime) -> Counter[str]:
    """Have a language model sum up papers that no source does; nothing where the settings name none.

    Only one process does so at a time. Not to be called within a running event loop.
    """
    if not app.settings.summary_url:
        return Counter()
    with locks.turn(app.db, llm_summaries.JOB, now, SUMMARISING) as mine:
        with app.db.read() as session:
            papers = llm_summaries.wanted(session, now, app.settings.candidate_days) if mine else []
        if not papers:
            return Counter()
        with job_runs.recorded(app.db, llm_summaries.JOB, now) as run:
            outcome = deadlines.run(
                llm_summaries.write(app.db, app.http, app.settings, papers, now, app.stopping)
            )
            run.add(outcome.counts())
            run.reject(outcome.refused)
            if outcome.fault:
                run.fail("the endpoint", outcome.fault)
    return run.counts


def learn(app: Application, now: datetime) -> TrainingResult:
    """Learn from the archive how its papers write, if it has changed. The old model serves meanwhile.

    Only one process does so at a time.
    """
    with locks.turn(app.db, "learn", now, LEARNING) as mine:
        if not mine:
            return TrainingResult(None, 0, "another process is learning at this moment")
        with job_runs.recorded(app.db, "learn", now) as run:
            lesson = app.models.train(app.db, now)
            run.add({"papers": lesson.papers, "models": lesson.model_id is not None})
    return lesson


def plan(app: Application, now: datetime) -> Counter[str]:
    """Compose the digests that are due, or will be soon, into the ledger.

    Each shard can leave as soon as it is planned: see `send`. Safe to run twice, and in several processes at
    once. Nothing is recorded of a moment at which nobody was due.
    """
    time = app.timeline(now)
    if not _wake_who_is_due(app, time.start):
        return Counter()
    with job_runs.recorded(app.db, "plan", time.start) as run:
        _plan(app, time, run)
    return run.counts


def _wake_who_is_due(app: Application, now: datetime) -> bool:
    with app.db.write() as session:
        subscribers.end_expired_pauses(session, now)
        return planning.anyone_due(app.digest_context, session, now)


def _plan(app: Application, time: Timeline, run: job_runs.Recording) -> None:
    """What is in the ledger already may leave whatever the clocks say: it goes by the database's."""
    _recover(app, time.start)  # first, so that the papers of a digest given up come with the next
    try:
        run.add(planning.plan(app.digest_context, time.start))
    except ClockError as error:
        run.fail("planning", error)


def sign_ahead(app: Application, now: datetime) -> Counter[str]:
    """Sign the digests that wait for their hour. Nothing is recorded where there are none."""
    time = app.timeline(now)
    with app.db.read() as session:
        if not presigning.anything_unsigned(app.sender, session, time.start):
            return Counter()
    with job_runs.recorded(app.db, "sign", time.start) as run:
        _sign_ahead(app, time.start, run)
    return run.counts


def send(app: Application, now: datetime) -> Counter[str]:
    """Send whatever may leave now, and settle what dead senders left.

    Safe in several processes at once: the ledger decides. Where this process is sending already, that goes
    on until nothing is left, and this returns at once. Nothing is recorded of a moment at which there was
    nothing to do.
    """
    time, counts = app.timeline(now), Counter[str]()
    while app.sending.acquire(blocking=False):
        try:
            app.more_to_send.clear()
            counts += _send_recorded(app, time)
        finally:
            app.sending.release()
        if not app.more_to_send.is_set():
            break
    return counts


def _send_recorded(app: Application, time: Timeline) -> Counter[str]:
    now = time()
    if not _anything_to_send(app, now):
        return Counter()
    with job_runs.recorded(app.db, "send", now) as run:
        run.add(_send(app, time))
    return run.counts


def _anything_to_send(app: Application, now: datetime) -> bool:
    with app.db.read() as session:
        return ledger.has_work(session, now, Path(app.settings.journal_dir))


def send_due(app: Application, now: datetime) -> Counter[str]:
    """Plan every digest that is due, send whatever may leave, and sign what waits: one run."""
    time = app.timeline(now)
    if not (_wake_who_is_due(app, time.start) or _anything_to_send(app, time.start)):
        return Counter()
    with job_runs.recorded(app.db, "send", time.start) as run:
        _plan(app, time, run)
        run.add(_send(app, time))
        _sign_ahead(app, time(), run)
    return run.counts


def answer_requests(app: Application, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Process the forms that asked for mail and send what follows; how many mails ended in which state.

    Without `ids`, those that a process left behind when it ended. Not to be called within a running event
    loop.
    """
    if ids is None:
        with app.db.read() as session:
            ids = subscribers.unprocessed_requests(session, now)
    deliveries = [delivery for each in ids if (delivery := _answer_request(app, each, now)) is not None]
    return send_pending(app, now, deliveries) if deliveries else Counter()


def _answer_request(app: Application, request_id: int, now: datetime) -> int | None:
    """One form that cannot be processed must not hold up the others."""
    try:
        with app.db.write() as session:
            return subscribers.process(session, request_id, now)
    except Exception:
        log.exception("form not processed; the next minute tries again", request=request_id)
        return None


def _sign_ahead(app: Application, now: datetime, run: job_runs.Recording) -> None:
    """What fails here costs nothing but time: what has no signature yet is signed as it leaves."""
    try:
        run.add({"signed_ahead": signed} if (signed := presigning.sign_ahead(app.sender, now)) else {})
    except Exception:
        log.exception("signing ahead failed; mails are signed as they leave")


def send_pending(app: Application, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Hand every mail that may leave now to the relay; how many ended in which state.

    `ids` narrows it to some deliveries. Not to be called within a running event loop.
    """
    return _send(app, app.timeline(now), ids)


def _send(app: Application, time: Timeline, ids: Collection[int] | None = None) -> Counter[str]:
    _recover(app, time())
    return app.sender.send(time, ids)


def _recover(app: Application, now: datetime) -> None:
    ledger.recover(
        app.db, Path(app.settings.journal_dir), now, app.settings.uncertain, bounces.record_refusal
    )


def preview(
    app: Application, wanted: subscribers.Preferences, now: datetime, *, day: date | None = None
) -> Digest | Skip:
    """The digest that a new reader who wants this would get on a day; nothing is written."""
    _check_day(day or now.date(), "day")
    with app.db.read() as session:
        desk = DigestBuilder(app.digest_context, session, now, day)
    return desk.preview((day or now.date()).isoformat(), wanted)


def backtest(
    app: Application, now: datetime, wishes: Sequence[Interest], days: int = 14, *, max_papers: int = 10
) -> list[backtesting.Edition]:
    """What these interests would have brought, day by day, the oldest first; nothing is written."""
    _check_day(now.date(), "at")
    return backtesting.run(app.digest_context, now.astimezone(UTC), wishes, days, max_papers)


def foresee(
    app: Application, now: datetime, ids: Collection[int] | None = None
) -> list[planning.DigestPreview]:
    """What everyone who is due, or each of these readers, would get now; nothing is written."""
    return planning.preview_due(app.digest_context, now, ids)


def explain(
    app: Application, now: datetime, subscriber: str, paper: str, at: datetime | None = None
) -> explanation.Explanation:
    """Why a reader was sent a paper, or why not, now or as of `at`, of any zone; nothing is written."""
    _check_day((at or now).date(), "at")
    return explanation.explain(app.digest_context, now, subscriber, paper, at.astimezone(UTC) if at else None)


def _check_day(day: date, field: str) -> None:
    if not FIRST_DAY <= day <= LAST_DAY:
        raise InvalidInput(f"the day must be from {FIRST_DAY} to {LAST_DAY}", field)


def show(app: Application, digest: Digest, to: str, now: datetime) -> RenderedMail:
    """A digest as the mail that it would be. Its links grant nothing."""
    return app.renderer.render(sender.preview_request(digest, to, app.settings.mail_domain, now))


def send_test(app: Application, digest: Digest, to: str, now: datetime) -> SendResult:
    """Send a digest to any address, once, outside of the ledger, and say what the relay answered."""
    return asyncio.run(app.sender.send_test(digest, to, now))


def read_bounces(app: Application, now: datetime) -> Counter[str]:
    """Settle the notices that wait in the mailbox and the folder of the settings; how many of what.

    Only one process does so at a time.
    """
    return processing.read(app.bounce_context, now)


def take_bounces(app: Application, notices: Sequence[Notice], now: datetime) -> Counter[str]:
    """Settle what a relay's webhook told; how many of what. Told twice is told once."""
    counts, nobodys = processing.apply(app.bounce_context, notices, now)
    for rejection in nobodys:
        log.info("a webhook told of a mail that is none of ours", told=rejection.detail)
    return counts


def prune(app: Application, now: datetime) -> Counter[str]:
    """Delete what is past its retention. A paper that old is no candidate: never twice still holds.

    Mails and events go some thousands a transaction, so that nobody waits long; a stop ends it in between,
    and the next night goes on.
    """
    now = app.timeline(now).start
    old = now - timedelta(days=app.settings.retention_days)
    with job_runs.recorded(app.db, "prune", now) as run:
        with app.db.write() as session:
            run.counts["unconfirmed"] += subscribers.expire_pending(session, now - UNCONFIRMED_KEPT, now)
            gone = session.execute(delete(JobRun).where(col(JobRun.started_at) < now - RUNS_KEPT))
            run.counts["runs"] += gone.rowcount  # type: ignore[attr-defined]
            run.counts["cards"] += ledger.prune_cards(session, old)
            run.counts["requests"] += subscribers.prune_requests(session, now)
            run.counts["queries"] += subscribers.forget_unused_queries(session)
            rate_limits.prune(session, now)
        run.counts.update(events=0, deliveries=0)
        _prune_in_parts(app, ledger.prune_deliveries, old, run)
        _prune_in_parts(app, ledger.prune_events, old, run)
    return run.counts


def _prune_in_parts(
    app: Application,
    prune_some: Callable[[Session, datetime], Counter[str]],
    old: datetime,
    run: job_runs.Recording,
) -> None:
    """Delete in one transaction after another, until none is left."""
    while not app.stopping.is_set():
        with app.db.write() as session:
            deleted = prune_some(session, old)
        run.counts.update(deleted)
        if not deleted.total():
            return
