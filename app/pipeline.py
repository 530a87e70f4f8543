"""READ FIRST. The functions of the service, stage by stage. The web, the CLI and the scheduler call them.

refresh()           poll sources → records → the archive
is_source_due()     whether any source should be polled now
recheck()           papers that subscribers were sent or liked → withdrawals and new code
read_files()        saved responses → records → the archive
summarise()         papers without a summary → one sentence from a language model, if one is configured
fetch_pictures()    recently listed papers with the URL of a picture → small copies of the pictures
try_source()        a source that has not been added yet → its newest papers; nothing is stored
train()             the archive → a new model, at night and when the archive has outgrown the old model
plan()              due subscribers → match → compose → the ledger
plan_first()        the first digest of one subscriber, at once → the ledger
sign_ahead()        digests in the ledger that are not yet due → signatures
send()              the ledger → mail, whenever something is sendable
has_more_to_send()  whether the ledger has enough sendable emails for another process
has_more_to_plan()  whether enough digests are due for another process
has_more_to_sign()  whether the ledger has enough unsigned digests for another process
plan_and_send()     plan(), send() and sign_ahead() in one run, for use without the scheduler
answer_requests()   submitted forms → a confirmation, a link or nothing → mail
send_now()          sendable deliveries, or some of them → HTML and text → bytes → the relay → the ledger
preview()           preferences → a new subscriber's digest, and a hint for each interest that needs one
interest_hint()     an interest → a hint, if it seems to be misspelled or matches nothing
backtest()          the digests that interests would have produced over recent days
preview_due()       the digests that subscribers would get now
explain()           why a subscriber was sent a paper, or why not
render_digest()     a digest → the rendered email
latest_digest()     the digest that a subscriber would get now, or else their last one
send_test()         a digest → a test email to any address, which is not recorded in the ledger
read_bounces()      notices in the bounce mailbox and folder → events, scores, suppressions
apply_bounces()     notices from a webhook → events, scores, suppressions
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from app import bounces, subscribers
from app.application import Application
from app.bounces import Notice, processing
from app.clock import Timeline
from app.delivery import ledger, presigning, sender
from app.delivery.send_result import SendResult
from app.digests import backtesting, explanation, planning
from app.digests.builder import DigestBuilder
from app.digests.explanation_types import Explanation
from app.digests.latest_digest import LatestDigest, find_latest
from app.errors import ClockError, InvalidInput
from app.links import Purpose
from app.papers import llm_summaries, picture_fetching, poll_schedule, polling, rechecking, source_trial
from app.papers.polling import FileImportResult, PollResult
from app.papers.source_trial import TrialResult
from app.papers.sources import deadlines
from app.relevance import model_store, query_language
from app.relevance.model_store import TrainingResult
from app.relevance.suggestions import InterestHint
from app.storage import job_runs, locks
from app.storage.models import Delivery
from app.text.in_words import count_of
from app.types import DEFAULT_MAX_PAPERS, Digest, IngestSummary, Interest, RenderedMail, Skip, SourceKind

log = structlog.get_logger(__name__)

JOB_LEASE = timedelta(minutes=30)  # much longer than any job that uses it takes
FIRST_DAY, LAST_DAY = date(1991, 8, 14), date(2199, 12, 31)  # limits for previews; arXiv began on FIRST_DAY


def refresh(app: Application, now: datetime, *, source_id: int | None = None) -> PollResult:
    """Poll the sources that are due, or only the source with `source_id`, and store their papers.

    Only one process polls a source at a time. Must not be called from a running event loop.
    """
    result = polling.poll(app.poll_context, now, source_id)
    if result.polled and not app.stopping.is_set():
        _train_if_outgrown(app, now)
    return result


def is_source_due(app: Application, now: datetime) -> bool:
    """Return whether any source should be polled now."""
    with app.db.read() as session:
        return bool(poll_schedule.sources_to_poll(session, app.timeline(now).start))


def recheck(app: Application, now: datetime) -> IngestSummary:
    """Query the sources again for papers that subscribers were sent or liked, and store the changes.

    The next digests report these changes. Raise SourceError if a source cannot be queried. Must not be
    called from a running event loop.
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
    """Store the papers in saved responses. Report unreadable files and still read the other files."""
    result = polling.read_files(app.poll_context, paths, now, kind, day)
    _train_if_outgrown(app, now)
    return result


def _train_if_outgrown(app: Application, now: datetime) -> None:
    """Train a model if the archive has outgrown the current model. A failure is logged, not raised."""
    try:
        with app.db.read() as session:
            outgrown = app.models.needs_training(session)
        if outgrown:
            train(app, now)
    except Exception:
        log.exception("training the model failed; the previous model remains in use")


def summarise(app: Application, now: datetime) -> Counter[str]:
    """Have the configured language model summarize papers that have no summary. Return the run's counts.

    Do nothing if no model is configured. Only one process does so at a time. No job run is recorded if there
    is nothing to summarize. Must not be called from a running event loop.
    """
    if not app.settings.summary_url:
        return Counter()
    with locks.hold(app.db, llm_summaries.JOB, now, JOB_LEASE) as acquired:
        if not acquired:
            return Counter()
        with app.db.read() as session:
            papers = llm_summaries.papers_to_summarize(session, now, app.settings.candidate_days)
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


def fetch_pictures(app: Application, now: datetime) -> Counter[str]:
    """Fetch the pictures of recently listed papers that have none yet, unless the settings disable pictures.

    Only one process does so at a time. No job run is recorded if there is nothing to fetch. Must not be
    called from a running event loop.
    """
    if not app.settings.pictures:
        return Counter()
    with locks.hold(app.db, picture_fetching.JOB, now, JOB_LEASE) as acquired:
        if not acquired:
            return Counter()
        with app.db.read() as session:
            missing = picture_fetching.pictures_to_fetch(session, now)
        if not missing:
            return Counter()
        with job_runs.record(app.db, picture_fetching.JOB, now) as run:
            outcome = deadlines.run(picture_fetching.fetch(app.poll_context, missing, now))
            run.add(outcome.counts())
            run.reject(outcome.rejections)
            for host, error in outcome.host_errors.items():
                run.fail(host, error)
    return run.counts


def try_source(app: Application, kind: SourceKind, config: Mapping[str, Any], now: datetime) -> TrialResult:
    """Fetch the newest papers of a source that has not been added yet. Nothing is stored."""
    return source_trial.try_source(app.poll_context, kind, config, now)


def train(app: Application, now: datetime) -> TrainingResult:
    """Train a model on the archive if it has changed. The old model is used until the new one is ready.

    Only one process trains a model at a time.
    """
    with locks.hold(app.db, model_store.JOB, now, JOB_LEASE) as acquired:
        if not acquired:
            return TrainingResult(None, 0, "another process is training a model now")
        with job_runs.record(app.db, model_store.JOB, now) as run:
            result = app.models.train(app.db, now)
            run.add({"papers": result.papers, "models": result.model_id is not None})
    return result


def plan(app: Application, now: datetime) -> Counter[str]:
    """Compose the digests that are due now or soon, and store them in the ledger.

    `send` can send each batch as soon as it is planned. Safe to call repeatedly and in several processes at
    once. No job run is recorded if nobody is due.

    After a downtime, poll the sources first, so that the digests contain the papers listed in the meantime.
    A later run then plans the digests.
    """
    time = app.timeline(now)
    _end_pauses(app, time.start)
    if not _anything_to_plan(app, time.start) or polling.poll_missed(app.poll_context, now):
        return Counter()
    with job_runs.record(app.db, planning.JOB, time.start) as run:
        _plan(app, time, run)
    return run.counts


def plan_first(app: Application, subscriber_id: int, now: datetime) -> Delivery | None:
    """Compose a subscriber's first digest now, unless it exists, and return its row in the ledger.

    Return None if the digest could not be planned, for example because another process is planning it. In
    that case, the scheduler plans it later. Raise Conflict if the subscription is not active.
    """
    app.schema.require()
    now = app.timeline(now).start
    with app.db.write() as session:
        is_due = subscribers.request_first_digest(session, subscriber_id, now)
    if is_due:
        try:
            planning.plan(app.digest_context, now, [subscriber_id])
        except ClockError as error:
            log.warning(
                "the first digest could not be composed now; the scheduler will retry", reason=str(error)
            )
    with app.db.read() as session:
        return subscribers.first_digest(session, subscribers.get(session, subscriber_id), now)


def _end_pauses(app: Application, now: datetime) -> None:
    app.schema.require()
    app.db.write_in_batches(partial(subscribers.end_expired_pauses, now=now), app.stopping)


def _anything_to_plan(app: Application, now: datetime) -> bool:
    with app.db.read() as session:
        return planning.has_work(app.digest_context, session, now)


def _plan(app: Application, time: Timeline, run: job_runs.JobRunRecorder) -> None:
    """Recover emails, then plan. If the clocks disagree, only record a failure: emails are still sent."""
    _recover(app, time.start)  # first, so that the papers from an abandoned digest go into the next one
    try:
        counts = planning.plan(app.digest_context, time.start)
        run.add(counts)
        if failed := counts["not_planned"]:
            run.fail(planning.FAILED_PART, f"{count_of(failed, 'digest')} could not be composed: see the log")
    except ClockError as error:
        run.fail("planning", error)


def sign_ahead(app: Application, now: datetime) -> Counter[str]:
    """Sign the digests that are not yet due. No job run is recorded if there are none."""
    time = app.timeline(now)
    with app.db.read() as session:
        if not presigning.has_unsigned(app.sender, session, time.start):
            return Counter()
    with job_runs.record(app.db, presigning.JOB, time.start) as run:
        _sign_ahead(app, time.start, run)
    return run.counts


def send(app: Application, now: datetime) -> Counter[str]:
    """Send the emails that are sendable now, and recover the emails that dead senders had claimed.

    Several processes may send at once, because they claim emails in the ledger. If this process is already
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


def has_more_to_send(app: Application, now: datetime) -> bool:
    """Return whether more emails can be sent now than one process claims at a time."""
    with app.db.read() as session:
        return ledger.exceeds_a_batch(session, app.timeline(now).start)


def has_more_to_plan(app: Application, now: datetime) -> bool:
    """Return whether so many digests are due that it is worth loading the papers in another process."""
    with app.db.read() as session:
        return planning.are_many_due(app.digest_context, session, app.timeline(now).start)


def has_more_to_sign(app: Application, now: datetime) -> bool:
    """Return whether more digests are unsigned than one process signs at a time."""
    with app.db.read() as session:
        return presigning.has_unsigned(
            app.sender, session, app.timeline(now).start, besides=presigning.BATCH_SIZE
        )


def plan_and_send(app: Application, now: datetime) -> Counter[str]:
    """Plan the digests that are due, send sendable emails and sign digests ahead, as one job run."""
    time = app.timeline(now)
    _end_pauses(app, time.start)
    if not (_anything_to_plan(app, time.start) or _anything_to_send(app, time.start)):
        return Counter()
    with job_runs.record(app.db, "send", time.start) as run:
        _plan(app, time, run)
        run.add(_send(app, time))
        _sign_ahead(app, time(), run)
    return run.counts


def answer_requests(app: Application, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Process forms that request emails. Send the emails and return their number by final state.

    If `ids` is None, process the forms that an exited process left behind. Must not be called from a running
    event loop.
    """
    if ids is None:
        with app.db.read() as session:
            ids = subscribers.unprocessed_form_submissions(session, now)
    if not ids:
        return Counter()
    with job_runs.record(app.db, "requests", now) as run:
        run.add({"requests": len(ids)})
        deliveries = [each for number in ids if (each := _answer(app, number, now, run)) is not None]
        counts = send_now(app, now, deliveries) if deliveries else Counter[str]()
        run.add(counts)
    return counts


def _answer(app: Application, request_id: int, now: datetime, run: job_runs.JobRunRecorder) -> int | None:
    """Process a form, and return the id of the email that it requests, if any. A failure is recorded."""
    try:
        with app.db.write() as session:
            return subscribers.process(session, request_id, now, app.signer.lifetimes[Purpose.CONFIRM])
    except Exception as error:  # still process the other forms
        log.exception("processing a form failed; it will be retried within a minute", request=request_id)
        run.fail(f"request {request_id}", type(error).__name__)  # the message may contain an address
        return None


def _sign_ahead(app: Application, now: datetime, run: job_runs.JobRunRecorder) -> None:
    """Sign digests ahead. A failure is only logged: unsigned emails are signed when they are sent."""
    try:
        run.add({"signed_ahead": signed} if (signed := presigning.sign_ahead(app.sender, now)) else {})
    except Exception:
        log.exception("signing ahead failed; emails will be signed when they are sent")


def send_now(app: Application, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Send the emails that are sendable now, and return their number by final state. No job run is recorded.

    If `ids` is given, send only these deliveries. Must not be called from a running event loop.
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
) -> tuple[Digest | Skip, list[InterestHint]]:
    """Return the digest of these preferences on `day`, and a hint for each interest that needs one.

    The digest is the one that a new subscriber would get. Nothing is stored.
    """
    builder = _builder(app, now, day)
    digest = builder.preview((day or now.date()).isoformat(), preferences)
    texts = [interest.text for interest in subscribers.deduplicate(preferences.interests)]
    return digest, [hint for hint in builder.interests.hints(texts) if hint]


def interest_hint(app: Application, text: str, now: datetime) -> InterestHint:
    """Return a hint about an interest. The hint is false if the interest needs none.

    Raise InvalidInterest if the interest cannot be parsed.
    """
    normal_form = query_language.parse(text).text  # raises InvalidInterest
    return _builder(app, now).interests.hint(normal_form)


def _builder(app: Application, now: datetime, day: date | None = None) -> DigestBuilder:
    _check_day(day or now.date(), "day")
    with app.db.read() as session:
        return DigestBuilder(app.digest_context, session, now, day)


def backtest(
    app: Application,
    now: datetime,
    interests: Sequence[Interest],
    days: int = 14,
    *,
    max_papers: int = DEFAULT_MAX_PAPERS,
    first_day: date | None = None,
) -> list[backtesting.BacktestedEdition]:
    """Return the digests that these interests would have produced, oldest first. Nothing is stored.

    Papers first listed before `first_day` are left out. `first_day` defaults to the day of the first digest.
    """
    _check_day(now.date(), "at")
    return backtesting.run(app.digest_context, now.astimezone(UTC), interests, days, max_papers, first_day)


def preview_due(
    app: Application, now: datetime, ids: Iterable[int] | None = None
) -> Iterator[planning.DigestPreview]:
    """Yield the digests that the due subscribers, or those in `ids`, would get now. Nothing is stored."""
    return planning.preview_due(app.digest_context, now, ids)


def explain(
    app: Application, now: datetime, subscriber: str, paper: str, at: datetime | None = None
) -> Explanation:
    """Explain why a subscriber was or was not sent a paper, as of `at` (default: now). Nothing is stored."""
    _check_day((at or now).date(), "at")
    return explanation.explain(app.digest_context, now, subscriber, paper, at.astimezone(UTC) if at else None)


def _check_day(day: date, field: str) -> None:
    if not FIRST_DAY <= day <= LAST_DAY:
        raise InvalidInput(f"the day must be between {FIRST_DAY} and {LAST_DAY}", field)


def render_digest(app: Application, digest: Digest, to: str, now: datetime) -> RenderedMail:
    """Return a digest rendered as an email. Its links do not work."""
    return app.renderer.render(sender.preview_request(digest, to, app.settings.mail_domain, now))


def latest_digest(app: Application, now: datetime, subscriber_id: int) -> LatestDigest:
    """Return the digest that a subscriber would get now, or else their last one, to send as a test."""
    return find_latest(app.digest_context, now, subscriber_id)


def send_test(app: Application, digest: Digest, to: str, now: datetime) -> SendResult:
    """Send a digest once to any address, without recording it in the ledger. Return the relay's reply."""
    return asyncio.run(app.sender.send_test(digest, to, now))


def read_bounces(app: Application, now: datetime) -> Counter[str]:
    """Apply the notices in the bounce mailbox and folder. Return the number of notices by outcome.

    Only one process does so at a time.
    """
    return processing.read(app.bounce_context, now)


def apply_bounces(app: Application, notices: Sequence[Notice], now: datetime) -> Counter[str]:
    """Apply notices from a webhook. Return their number by outcome. A repeated notice has no effect."""
    counts, unknown = processing.apply(app.bounce_context, notices, now)
    for rejection in unknown:
        log.info("webhook notice for an unknown email", detail=rejection.detail)
    return counts
