"""READ FIRST. The functions of the service, stage by stage. The web, the CLI and the scheduler call them.

refresh()          poll sources → records → the archive
try_source()       a source that is not added yet → its newest papers; nothing is stored
recheck()          papers that subscribers were sent or liked → withdrawn since, or with code now
read_files()       the same for saved responses
summarise()        papers without a summary → one sentence from a language model, if one is configured
train()            the archive → a new model, at night and when the archive has outgrown the old one
answer_requests()  submitted forms → a confirmation, a link or nothing → mail
plan()             due subscribers → match → compose → the ledger
plan_first()       the first digest of one subscriber, at once → the ledger
sign_ahead()       digests in the ledger that are not yet due → signatures
send()             the ledger → mail, whenever something is sendable
send_due()         plan(), send() and sign_ahead() in one run, for use without the scheduler
send_pending()     sendable deliveries → HTML and text → bytes → the relay → the ledger
preview()          the digest that a subscriber with these preferences would get
interest_hint()    is an interest misspelt, does it match anything?
preview_due()      the digests that subscribers would get now
backtest()         the digests that interests would have produced over recent days
explain()          why a subscriber was sent a paper, or why not
render_digest()    a digest → the rendered mail
send_test()        a digest → a test mail to any address, without the ledger
read_bounces()     notices in the bounce mailbox and folder → events, scores, suppressions
apply_bounces()    the same for notices from a webhook
import_subscribers() a CSV file → subscribers
prune()            delete rows whose retention has passed
back_up()          the database and the journals → a file
restore()          a backup → an empty database, with all sending paused
move()             the database → another one, of any kind
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import structlog
from sqlmodel import Session, col, delete

from app import bounces, subscribers
from app.application import Application
from app.bounces import Notice, processing
from app.clock import Timeline
from app.delivery import ledger, presigning, sender
from app.digests import backtesting, explanation, planning, restoring
from app.digests.builder import DigestBuilder
from app.digests.explanation_types import Explanation
from app.errors import ClockError, Conflict, InvalidInput
from app.papers import llm_summaries, polling, rechecking, source_history, trial
from app.papers.polling import FileImportResult, PollResult
from app.papers.sources import deadlines
from app.papers.trial import TrialResult
from app.relevance import query_language
from app.relevance.model_store import TrainingResult
from app.relevance.suggestions import InterestHint
from app.settings import Settings
from app.storage import (
    admin_sessions,
    audit_log,
    backup,
    hit_counters,
    idempotency_keys,
    job_runs,
    live_processes,
    locks,
    schema,
    uploads,
)
from app.storage.backup import Manifest
from app.storage.database import BUSY_TIMEOUT_MS, Database, wait_for_locks
from app.storage.models import Delivery, JobRun
from app.types import (
    Digest,
    IngestSummary,
    Interest,
    Rejection,
    RenderedMail,
    SendResult,
    Skip,
    SourceKind,
)

log = structlog.get_logger(__name__)

TRAINING_LEASE = SUMMARY_LEASE = timedelta(minutes=30)  # much longer than training or summarising takes
MOVING = "the database is being moved, or the move was interrupted: then repeat it"
SIGNATURES_SINCE = timedelta(days=3)  # pruning runs every night
RESTORING = "a restore is under way, or was interrupted: then empty the database and repeat it"
FIRST_DAY, LAST_DAY = date(1991, 8, 14), date(2199, 12, 31)  # limits for previews; arXiv began on FIRST_DAY


def refresh(app: Application, now: datetime, *, source_id: int | None = None) -> PollResult:
    """Poll the sources that are due, or only the one with `source_id`, and store their papers.

    Only one process polls a source at a time. Must not be called from a running event loop.
    """
    result = polling.poll(app.poll_context, now, source_id)
    if result.polled and not app.stopping.is_set():
        _train_if_outgrown(app, now)
    return result


def recheck(app: Application, now: datetime) -> IngestSummary:
    """Ask the sources again about papers that subscribers were sent or liked, and store what changed.

    Digests then have news of them. Raise SourceError if a source could not be asked. Must not be called from
    a running event loop.
    """
    app.schema.require()
    return rechecking.recheck(app.poll_context, now)


def read_files(
    app: Application,
    paths: Iterable[Path],
    now: datetime,
    *,
    kind: SourceKind | None = None,
    day: date | None = None,
) -> FileImportResult:
    """Store the papers in saved responses. Report unreadable files and still read the others."""
    result = polling.read_files(app.poll_context, paths, now, kind, day)
    _train_if_outgrown(app, now)
    return result


def _train_if_outgrown(app: Application, now: datetime) -> None:
    """Train a model if the archive has outgrown the current one. A failure is logged, not raised."""
    try:
        with app.db.read() as session:
            outgrown = app.models.needs_training(session)
        if outgrown:
            train(app, now)
    except Exception:
        log.exception("training the model failed; the previous model remains in use")


def summarise(app: Application, now: datetime) -> Counter[str]:
    """Have a language model summarise papers without a summary, if the settings name a model.

    Only one process does so at a time. Must not be called from a running event loop.
    """
    if not app.settings.summary_url:
        return Counter()
    with locks.hold(app.db, llm_summaries.JOB, now, SUMMARY_LEASE) as acquired:
        with app.db.read() as session:
            papers = (
                llm_summaries.papers_to_summarize(session, now, app.settings.candidate_days)
                if acquired
                else []
            )
        if not papers:
            return Counter()
        with job_runs.record(app.db, llm_summaries.JOB, now) as run:
            outcome = deadlines.run(
                llm_summaries.write(app.db, app.http, app.settings, papers, now, app.stopping)
            )
            run.add(outcome.counts())
            run.reject(outcome.rejections)
            if outcome.endpoint_error:
                run.fail("the endpoint", outcome.endpoint_error)
    return run.counts


def try_source(app: Application, kind: SourceKind, config: Mapping[str, Any], now: datetime) -> TrialResult:
    """Fetch the newest papers of a source that is not added yet. Nothing is stored."""
    return trial.try_source(app.poll_context, kind, config, app.timeline(now).start)


def train(app: Application, now: datetime) -> TrainingResult:
    """Train a model on the archive if the archive has changed. Until it is ready, the old model is used.

    Only one process does so at a time.
    """
    with locks.hold(app.db, "train", now, TRAINING_LEASE) as acquired:
        if not acquired:
            return TrainingResult(None, 0, "another process is training a model now")
        with job_runs.record(app.db, "train", now) as run:
            result = app.models.train(app.db, now)
            run.add({"papers": result.papers, "models": result.model_id is not None})
    return result


def plan(app: Application, now: datetime) -> Counter[str]:
    """Compose the digests that are due now or soon, and store them in the ledger.

    `send` can send each shard as soon as it is planned. Safe to run repeatedly and in several processes at
    once. No job run is recorded if nobody is due.
    """
    time = app.timeline(now)
    if not _end_pauses_and_check_due(app, time.start):
        return Counter()
    with job_runs.record(app.db, "plan", time.start) as run:
        _plan(app, time, run)
    return run.counts


def plan_first(app: Application, subscriber_id: int, now: datetime) -> Delivery | None:
    """Compose a subscriber's first digest now, unless there is one, and return its row in the ledger.

    Return None if it could not be planned, for example because another process is planning it. The scheduler
    plans it then. Raise Conflict if the subscription is not active.
    """
    app.schema.require()
    now = app.timeline(now).start
    with app.db.write() as session:
        is_due = subscribers.request_first_digest(session, subscriber_id, now)
    if is_due:
        try:
            planning.plan(app.digest_context, now, [subscriber_id])
        except ClockError as error:
            log.warning("the first digest is left to the scheduler", reason=str(error))
    with app.db.read() as session:
        return subscribers.first_digest(session, subscribers.get(session, subscriber_id), now)


def _end_pauses_and_check_due(app: Application, now: datetime) -> bool:
    app.schema.require()
    with app.db.write() as session:
        subscribers.end_expired_pauses(session, now)
        return planning.anyone_due(app.digest_context, session, now)


def _plan(app: Application, time: Timeline, run: job_runs.JobRunRecorder) -> None:
    """Recover, then plan. If the clocks disagree, only planning fails: sending uses the database's clock."""
    _recover(app, time.start)  # first, so that the papers from an abandoned digest go into the next one
    try:
        run.add(planning.plan(app.digest_context, time.start))
    except ClockError as error:
        run.fail("planning", error)


def sign_ahead(app: Application, now: datetime) -> Counter[str]:
    """Sign the digests that are not yet due. No job run is recorded if there are none."""
    time = app.timeline(now)
    with app.db.read() as session:
        if not presigning.has_unsigned(app.sender, session, time.start):
            return Counter()
    with job_runs.record(app.db, "sign", time.start) as run:
        _sign_ahead(app, time.start, run)
    return run.counts


def send(app: Application, now: datetime) -> Counter[str]:
    """Send the mails that are sendable now, and recover those that dead senders had claimed.

    Safe in several processes at once, because they claim mails in the ledger. If this process is already
    sending, return at once: the running call continues until nothing is left. No job run is recorded if there
    is nothing to do.
    """
    time, counts = app.timeline(now), Counter[str]()
    while app.sending.acquire(blocking=False):
        try:
            app.more_to_send.clear()
            began = time()
            if _anything_to_send(app, began):
                with job_runs.record(app.db, "send", began) as run:
                    run.add(_send(app, time))
                counts += run.counts
        finally:
            app.sending.release()
        if not app.more_to_send.is_set():
            break
    return counts


def _anything_to_send(app: Application, now: datetime) -> bool:
    app.schema.require()
    with app.db.read() as session:
        return ledger.has_work(session, now, Path(app.settings.journal_dir))


def send_due(app: Application, now: datetime) -> Counter[str]:
    """Plan the digests that are due, send sendable mails and sign digests ahead, as one job run."""
    time = app.timeline(now)
    if not (_end_pauses_and_check_due(app, time.start) or _anything_to_send(app, time.start)):
        return Counter()
    with job_runs.record(app.db, "send", time.start) as run:
        _plan(app, time, run)
        run.add(_send(app, time))
        _sign_ahead(app, time(), run)
    return run.counts


def answer_requests(app: Application, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Process forms that request e-mails, and send these. Return the number of mails by final state.

    Without `ids`, process the forms that an exited process left behind. Must not be called from a running
    event loop.
    """
    if ids is None:
        with app.db.read() as session:
            ids = subscribers.unprocessed_form_submissions(session, now)
    deliveries = []
    for request_id in ids:
        try:
            with app.db.write() as session:
                delivery_id = subscribers.process(session, request_id, now)
        except Exception:  # still process the other forms
            log.exception("processing a form failed; it will be retried within a minute", request=request_id)
            continue
        if delivery_id is not None:
            deliveries.append(delivery_id)
    return send_pending(app, now, deliveries) if deliveries else Counter()


def _sign_ahead(app: Application, now: datetime, run: job_runs.JobRunRecorder) -> None:
    """Sign digests ahead. A failure is only logged: unsigned mails are signed when they are sent."""
    try:
        run.add({"signed_ahead": signed} if (signed := presigning.sign_ahead(app.sender, now)) else {})
    except Exception:
        log.exception("signing ahead failed; mails will be signed when they are sent")


def send_pending(app: Application, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Send all sendable mails to the relay. Return the number of mails by final state.

    With `ids`, send only these deliveries. Must not be called from a running event loop.
    """
    return _send(app, app.timeline(now), ids)


def _send(app: Application, time: Timeline, ids: Collection[int] | None = None) -> Counter[str]:
    app.schema.require()
    _recover(app, time())
    return app.sender.send(time, ids)


def _recover(app: Application, now: datetime) -> None:
    ledger.recover(
        app.db, Path(app.settings.journal_dir), now, app.settings.when_uncertain, bounces.record_refusal
    )


def preview(
    app: Application, preferences: subscribers.Preferences, now: datetime, *, day: date | None = None
) -> Digest | Skip:
    """Return the digest that these preferences would give a new subscriber on `day`. Nothing is stored."""
    return preview_with_hints(app, preferences, now, day=day)[0]


def preview_with_hints(
    app: Application, preferences: subscribers.Preferences, now: datetime, *, day: date | None = None
) -> tuple[Digest | Skip, list[InterestHint]]:
    """Return the digest of `preview`, and a hint for each interest about which there is something to tell."""
    builder = _builder(app, now, day)
    digest = builder.preview((day or now.date()).isoformat(), preferences)
    texts = [interest.text for interest in subscribers.deduplicate(preferences.interests)]
    return digest, [hint for hint in map(builder.hint, texts) if hint]


def interest_hint(app: Application, text: str, now: datetime) -> InterestHint:
    """Return what to tell a subscriber about an interest. Raise InvalidInterest if it cannot be parsed."""
    return _builder(app, now).hint(query_language.parse(text).text)


def _builder(app: Application, now: datetime, day: date | None = None) -> DigestBuilder:
    _check_day(day or now.date(), "day")
    with app.db.read() as session:
        return DigestBuilder(app.digest_context, session, now, day)


def backtest(
    app: Application, now: datetime, interests: Sequence[Interest], days: int = 14, *, max_papers: int = 10
) -> list[backtesting.BacktestedEdition]:
    """Return the digests that these interests would have produced, oldest first. Nothing is stored."""
    _check_day(now.date(), "at")
    return backtesting.run(app.digest_context, now.astimezone(UTC), interests, days, max_papers)


def preview_due(
    app: Application, now: datetime, ids: Iterable[int] | None = None
) -> Iterator[planning.DigestPreview]:
    """Yield the digests that the due subscribers, or those in `ids`, would get now. Nothing is stored."""
    return planning.preview_due(app.digest_context, now, ids)


def explain(
    app: Application, now: datetime, subscriber: str, paper: str, at: datetime | None = None
) -> Explanation:
    """Explain why a subscriber was sent a paper or not, as of `at` (default: now). Nothing is stored."""
    _check_day((at or now).date(), "at")
    return explanation.explain(app.digest_context, now, subscriber, paper, at.astimezone(UTC) if at else None)


def _check_day(day: date, field: str) -> None:
    if not FIRST_DAY <= day <= LAST_DAY:
        raise InvalidInput(f"the day must be between {FIRST_DAY} and {LAST_DAY}", field)


def render_digest(app: Application, digest: Digest, to: str, now: datetime) -> RenderedMail:
    """Return a digest rendered as a mail. Its links do not work."""
    return app.renderer.render(sender.preview_request(digest, to, app.settings.mail_domain, now))


def send_test(app: Application, digest: Digest, to: str, now: datetime) -> SendResult:
    """Send a digest to any address, once and without the ledger. Return the relay's reply."""
    return asyncio.run(app.sender.send_test(digest, to, now))


def read_bounces(app: Application, now: datetime) -> Counter[str]:
    """Apply the notices in the bounce mailbox and folder. Return the number of notices by kind.

    Only one process does so at a time.
    """
    return processing.read(app.bounce_context, now)


def apply_bounces(app: Application, notices: Sequence[Notice], now: datetime) -> Counter[str]:
    """Apply notices from a webhook. Return their number by kind. A repeated notice has no effect."""
    counts, unknown = processing.apply(app.bounce_context, notices, now)
    for rejection in unknown:
        log.info("webhook notice for an unknown mail", detail=rejection.detail)
    return counts


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import, and the id of its job run."""

    report: subscribers.ImportReport
    held: bool  # all sending is paused
    run_id: int


def import_subscribers(
    app: Application,
    file: BinaryIO,
    actor: str,
    now: datetime,
    *,
    hold: bool | None = None,
    name: str = "the file",
    run_id: int | None = None,
    after_batch: Callable[[subscribers.ImportReport], None] = lambda _: None,
) -> ImportResult:
    """Add the subscribers in a CSV file, who must have consented elsewhere. Skip invalid rows.

    With `hold`, pause all sending first (None: if no digest was ever sent). If nobody is added, sending
    resumes. Raise InvalidInput, and change nothing, if the file is not a table of subscribers. If this is
    interrupted, it can be repeated. `run_id` is a run that has begun already.
    """
    wait_for_locks(BUSY_TIMEOUT_MS)
    contents = subscribers.survey(file, name)  # before the run begins: an unreadable file is no failed job
    with job_runs.record(app.db, "import", now, run_id) as run:
        with app.db.write() as session:  # first, so that nobody gets a digest during a long import
            hold = not ledger.any_sent(session) if hold is None else hold
            rows = f"{contents.rows} rows"
            audit_log.record(session, actor, "subscriber.import", rows, now, run=run.id)
            paused_here = hold and _pause_for_import(session, actor, now)

        def record_batch(report: subscribers.ImportReport) -> bool:
            run.counts = Counter(
                rows=report.rows, added=report.added, rejected=report.rejected, total=report.total
            )
            job_runs.store_counts(app.db, run)
            after_batch(report)
            return not app.stopping.is_set()

        defaults = subscribers.default_preferences(app.settings)
        report = subscribers.import_file(app.db, file, defaults, now, name=name, after_batch=record_batch)
        run.reject(Rejection(item.without_address, item.row) for item in report.rejections)
        if not report.is_complete:
            run.fail(name, f"stopped after {report.rows} of {report.total} rows: import it again")
        with app.db.write() as session:
            added, skipped = f"{report.added} subscribers", report.rejected
            audit_log.record(session, actor, "subscriber.import", added, now, run=run.id, skipped=skipped)
            if paused_here and not report.added and ledger.end_import_pause(session, now):
                audit_log.record(session, actor, audit_log.PAUSE_ENDED, ledger.ALL_EDITIONS, now)
            held = hold and bool(report.added)
    return ImportResult(report, held, run.id)


def _pause_for_import(session: Session, actor: str, now: datetime) -> bool:
    """Pause all sending, and return whether it was not paused before."""
    paused_before = ledger.is_paused(session)
    ledger.pause(session, ledger.IMPORTED, now)
    if not paused_before:
        reason, every = ledger.IMPORTED, ledger.ALL_EDITIONS
        audit_log.record(session, actor, audit_log.SENDING_PAUSED, every, now, reason=reason)
    return not paused_before


def prune(app: Application, now: datetime) -> Counter[str]:
    """Delete rows whose retention has passed. Papers that old are not candidates, so none is sent twice.

    Deliveries and events are deleted a few thousand per transaction, so that others do not wait long. If the
    service stops, this returns between two transactions, and the next nightly run continues.
    """
    now = app.timeline(now).start
    days = app.settings.retention_days, app.settings.unconfirmed_days, app.settings.run_retention_days
    old, unconfirmed, old_run = (now - timedelta(days=each) for each in days)
    with job_runs.record(app.db, "prune", now) as run:
        with app.db.write() as session:
            run.counts["unconfirmed"] += subscribers.expire_pending(session, unconfirmed, now)
            deleted = session.execute(delete(JobRun).where(col(JobRun.started_at) < old_run))
            run.counts["runs"] += deleted.rowcount  # type: ignore[attr-defined]
            run.counts["polls"] += source_history.prune(session, old_run)
            run.counts["cards"] += ledger.prune_snapshots(session, old)
            subscribers.expire_changes(session, now)
            run.counts["requests"] += subscribers.prune_form_submissions(session, now)
            run.counts["queries"] += subscribers.forget_unused_queries(session)
            hit_counters.prune(session, now)
            admin_sessions.prune(session, now)
            idempotency_keys.prune(session, now)
        uploads.delete_expired(uploads.folder(app.settings.journal_dir), now)
        run.counts.update(events=0, deliveries=0)
        for prune_batch in (ledger.prune_deliveries, ledger.prune_events):
            left = True
            while left and not app.stopping.is_set():
                with app.db.write() as session:
                    batch = prune_batch(session, old)
                run.counts.update(batch)
                left = bool(batch.total())
        run.counts["signatures"] = _drop_signatures(app, now - SIGNATURES_SINCE)
    return run.counts


def _drop_signatures(app: Application, since: datetime) -> int:
    """Drop the signatures of digests that were created since then and have been sent. Return their number."""
    count = 0
    with app.db.read() as session:
        first_id = ledger.first_id_since(session, since)
    while first_id and not app.stopping.is_set():
        with app.db.write() as session:
            dropped, first_id = ledger.drop_signatures(session, first_id)
        count += dropped
    return count


def back_up(app: Application, target: Path, now: datetime) -> Manifest:
    """Write a backup while the service runs. Raise InvalidInput if the file exists."""
    with job_runs.record(app.db, "backup", now) as run:
        manifest = backup.write(app.db, target, Path(app.settings.journal_dir), now, version("paperboy"))
        run.add({"rows": manifest.rows})
    return manifest


def restore(
    db: Database,
    settings: Settings,
    source: Path,
    manifest: Manifest,
    now: datetime,
    previous: Database | None = None,
) -> restoring.RestoreReport:
    """Load a backup into an empty database, with all sending paused, and migrate it.

    If this is interrupted, the database is empty, or paused with the reason RESTORING: empty it and repeat.
    """
    if not backup.is_empty(db):
        raise Conflict(
            "the database of the settings is not empty: move it away, or set PAPERBOY_DATABASE_URL to a "
            "new one; then name the old one with --previous"
        )
    if previous and (fault := schema.revision_fault(previous) or schema.table_fault(previous)):
        raise InvalidInput(f"the previous database cannot be used: {fault}")
    journals = Path(settings.journal_dir)
    if journals.exists() and any(journals.glob("*.journal")):
        raise Conflict(f"{journals} has journals of another database: move them away first")
    backup.load(settings.database_url, source, manifest, RESTORING, now)
    schema.migrate(settings.database_url)
    backup.restore_journals(source, manifest, journals)
    with db.write() as session:  # the run that made the backup had not ended
        session.execute(delete(JobRun).where(col(JobRun.job) == "backup", col(JobRun.ended_at).is_(None)))
    return restoring.settle(db, journals, manifest.created_at, now, bounces.record_refusal, previous)


def move(app: Application, target_url: str, file: Path, now: datetime) -> Move:
    """Copy everything into another, empty database, compare all tables, and pause the old one for good.

    `file` is the backup from which the copy is made. Nothing may send meanwhile. An interrupted move can be
    repeated. Raise Conflict if a process still sends, if the target has other rows, or if the copy differs.
    """
    target = Database(target_url)
    try:
        if others := live_processes.count_others(app.db.engine):
            raise Conflict(
                f"the database is in use by {others} other process{'es' * (others > 1)}: stop all of them"
            )
        with app.db.write() as session:
            pauses = (each for each in ledger.pauses(session) if each.edition == ledger.ALL_EDITIONS)
            reason = next((each.reason for each in pauses), MOVING)
            ledger.pause(session, reason, now)  # again, so that an import does not end a pause that it began
        paused_before = "" if reason == MOVING else reason
        manifest = backup.write(app.db, file, Path(app.settings.journal_dir), now, version("paperboy"))
        if backup.is_empty(target):
            backup.load(target_url, file, manifest, MOVING, now)
        if differing := backup.differing_tables(target, file, manifest):
            raise Conflict(
                f"the target differs from this database in {', '.join(differing)}: empty it, then repeat"
            )
        _finish_move(app.db, target, paused_before, now)
    finally:
        target.dispose()
    return Move(manifest, paused_before)


@dataclass(frozen=True, slots=True)
class Move:
    """A completed move: what was copied, and why sending is paused in the new database, or ""."""

    manifest: Manifest
    pause_reason: str


def _finish_move(old: Database, new: Database, paused_before: str, now: datetime) -> None:
    """Give the new database the operator's pause, if there was one. Then the old one is paused for good."""
    moved = f"{ledger.MOVED} to {new.url.render_as_string(hide_password=True)}"
    for db, reason in ((new, paused_before), (old, moved)):
        with db.write() as session:
            ledger.resume(session, force=True)
            if reason:
                ledger.pause(session, reason, now)
