"""Process bounce and complaint notices from IMAP, a folder or webhooks, in one transaction per message."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from app import bounces, subscribers
from app.bounces import BouncedDelivery, Kind, Notice, rates, unsubscribe_mails
from app.delivery import ledger
from app.delivery.smtp.responses import Action
from app.errors import InvalidInput, LinkForged, MailboxError, NotFound, UnreadableMail
from app.links import LinkSigner, Purpose
from app.settings import Settings
from app.storage import job_runs, locks
from app.storage.database import Database
from app.storage.models import SubscriberState
from app.text import sanitize
from app.types import MailKind, Rejection

JOB = "bounces"
LEASE = timedelta(minutes=30)  # much longer than it takes to process MAX_MAILS
MAX_MAILS, BATCH_SIZE = 1000, 50  # messages per run and per batch
MAX_UNREADABLE = 10  # emails that the server cannot return, before the mailbox counts as unreadable
# Messages with these outcomes are set aside for an operator.
UNCLAIMED, UNKNOWN, BROKEN = "unclaimed", "unknown", "broken"
UNANSWERED = "unsubscribe_unanswered"  # the links may not be sent
_WITHOUT_CONSEQUENCES = {
    Kind.DELAYED: "delayed",
    Kind.DELIVERED: "delivered",
    Kind.VACATION: "automatic_answers",
    Kind.REPORT: "reports",
    Kind.UNKNOWN: UNKNOWN,
}
# A suppression of a subscriber in one of these states can be lifted, and the subscription then continues.
_SUBSCRIBED = (SubscriberState.ACTIVE, SubscriberState.PAUSED, SubscriberState.BOUNCING)

log = structlog.get_logger(__name__)


class NoticeSource(Protocol):
    """An open mailbox or folder with messages to read."""

    name: str

    def pending(self, limit: int) -> Sequence[str]: ...
    def fetch(self, name: str) -> bytes | None: ...
    def remove(self, names: Sequence[str]) -> None: ...
    def set_aside(self, names: Sequence[str]) -> None: ...


@dataclass(frozen=True)
class BounceContext:
    """The dependencies of this module."""

    db: Database
    settings: Settings
    signer: LinkSigner
    stopping: Event  # set when the process should stop


def read(context: BounceContext, now: datetime) -> Counter[str]:
    """Process the messages in the configured mailbox and folder. Return the counts of messages and outcomes.

    Remove a message after committing its notices. Only one process at a time reads messages. Record the run
    only if messages were waiting, a source could not be opened, or the last run failed.
    """
    if not (context.settings.bounce_mailbox or context.settings.bounce_folder):
        return Counter()
    with locks.hold(context.db, JOB, now, LEASE) as has_lock, ExitStack() as stack:
        if not has_lock:
            return Counter()
        errors: list[tuple[str, Exception]] = []
        sources = list(_open_sources(context, now, stack, errors))
        with context.db.read() as session:
            last_run_failed = JOB in job_runs.failed_jobs(session, now)
        must_record = errors or last_run_failed or any(names for _, names in sources)
        if context.stopping.is_set() or not must_record:
            return Counter()
        with job_runs.record(context.db, JOB, now) as run:
            for name, error in errors:
                run.fail(name, error)
            for source, names in sources:
                _process_source(context, now, source, names, run)
    return run.counts


def _open_sources(
    context: BounceContext, now: datetime, stack: ExitStack, errors: list[tuple[str, Exception]]
) -> Iterator[tuple[NoticeSource, Sequence[str]]]:
    """Yield each source with its pending messages. Add failures to open a source to `errors`."""
    sources: list[AbstractContextManager[NoticeSource]] = []
    if context.settings.bounce_mailbox:
        sources.append(bounces.Mailbox(context.settings.bounce_mailbox, stopping=context.stopping))
    if context.settings.bounce_folder:
        sources.append(bounces.Folder(context.settings.bounce_folder, now))
    for source in sources:
        try:
            opened = stack.enter_context(source)
            yield opened, opened.pending(MAX_MAILS)
        except (MailboxError, OSError) as error:
            if not context.stopping.is_set():  # stopping closes the connection
                errors.append((getattr(source, "name", ""), error))


def _process_source(
    context: BounceContext,
    now: datetime,
    source: NoticeSource,
    names: Sequence[str],
    run: job_runs.JobRunRecorder,
) -> None:
    """Process messages in batches. After each batch, remove recognized messages and set the others aside.

    The run fails if a file cannot be read, or more than MAX_UNREADABLE emails in the mailbox. In the latter
    case, leave the other emails for the next run.
    """
    errors: list[Exception] = []
    try:
        for start in range(0, len(names), BATCH_SIZE):
            if context.stopping.is_set() or _are_too_many(errors):
                break
            errors += _process_batch(context, now, source, names[start : start + BATCH_SIZE], run)
        if _are_too_many(errors) or any(isinstance(error, OSError) for error in errors):
            count = f"{len(errors)} of the waiting emails could not be fetched"
            run.fail(source.name, f"{count}. Last error: {errors[-1]}")
    except (MailboxError, OSError) as error:
        if not context.stopping.is_set():
            run.fail(source.name, error)


def _process_batch(
    context: BounceContext,
    now: datetime,
    source: NoticeSource,
    names: Sequence[str],
    run: job_runs.JobRunRecorder,
) -> list[Exception]:
    """Process a batch of messages. Return the errors of those that could not be fetched.

    Set aside an email that the server cannot return, because it would fail again in each run. Leave an
    unreadable file in the folder, where the operator can change its permissions.
    """
    processed: list[str] = []
    unprocessed: list[str] = []
    errors: list[Exception] = []
    for name in names:
        try:
            raw = source.fetch(name)
        except (UnreadableMail, OSError) as error:
            run.add({"unread": 1})
            run.reject([Rejection("the email could not be fetched", detail=f"{source.name}: {name}")])
            errors.append(error)
            if isinstance(error, UnreadableMail):
                unprocessed.append(name)
            if _are_too_many(errors):
                break
            continue
        if raw is None:  # another client has removed it
            continue
        counts = _process_mail(context, raw, now, run)
        recognized = not counts.keys() & {UNKNOWN, UNCLAIMED, BROKEN, UNANSWERED}
        (processed if recognized else unprocessed).append(name)
        run.add({"mails": 1, **counts})
    source.remove(processed)
    source.set_aside(unprocessed)
    return errors


def _are_too_many(errors: Sequence[Exception]) -> bool:
    return sum(isinstance(error, UnreadableMail) for error in errors) > MAX_UNREADABLE


def _process_mail(
    context: BounceContext, raw: bytes, now: datetime, run: job_runs.JobRunRecorder
) -> Counter[str]:
    """Carry out the unsubscribe request or the notices in a message, and record rejections in the run.

    Return the number of notices by outcome, or {"broken": 1} if processing fails.
    """
    try:
        request = unsubscribe_mails.parse(raw)
        outcome = _unsubscribe(context, request, raw, now) if request else None
        if outcome:
            counts, rejections = Counter([outcome]), list[Rejection]()
        else:
            counts, rejections = apply(context, bounces.parse_mail(raw), now)
    except SQLAlchemyError:
        raise  # the database failed, not the message
    except Exception as error:
        log.exception("a bounce notice could not be processed")
        detail = sanitize.redact_addresses(f"{error!r:.300}")
        counts, rejections = Counter([BROKEN]), [Rejection("the email could not be processed", detail=detail)]
    run.reject(rejections)
    return counts


def _unsubscribe(
    context: BounceContext, request: unsubscribe_mails.UnsubscribeMail, raw: bytes, now: datetime
) -> str | None:
    """Unsubscribe the subscriber to whom the first valid token belongs.

    If no token is valid but the sender is a subscriber, send them the email with their preferences and
    unsubscribe links, unless they got one less than an hour ago. Do nothing if they have no subscription, or
    if this email was already processed but could not be deleted.

    Return the outcome, or None if neither a token nor the sender belongs to a subscriber.
    """
    with context.db.write() as session:
        if bounces.is_request_recorded(session, raw):
            return "known"
        for token in request.tokens:
            with suppress(LinkForged, NotFound):
                grant = context.signer.verify(Purpose.UNSUBSCRIBE, token, now)
                if grant.is_older_than(subscribers.get(session, grant.subscriber_id).created_at):
                    continue
                subscribers.unsubscribe(session, grant.subscriber_id, now)
                bounces.record_request(session, raw, grant.subscriber_id, now)
                return "unsubscribed"
        with suppress(NotFound, InvalidInput):
            subscriber = subscribers.find(session, request.sender)
            if subscriber.state not in _SUBSCRIBED:
                return "not_subscribed"
            confirmable = context.signer.lifetimes[Purpose.CONFIRM]
            sent = subscribers.send_link(session, subscriber.email, "", now, confirmable)
            has_links = sent or subscribers.was_mailed_recently(session, subscriber, MailKind.MANAGE, now)
            if not has_links:
                return UNANSWERED
            bounces.record_request(session, raw, subscriber.id or 0, now)
            return "unsubscribe_links"
    return None


def apply(
    context: BounceContext, notices: Sequence[Notice], now: datetime
) -> tuple[Counter[str], list[Rejection]]:
    """Apply notices in one transaction.

    Return the number of notices by outcome, and a rejection for each notice that matches no delivery.
    """
    counts: Counter[str] = Counter()
    rejections = []
    with context.db.write() as session:
        matched = list(_one_notice_per_delivery(session, context.signer, notices))
        ledger.lock_subscribers(session, [delivery.delivery_id for _, delivery in matched if delivery])
        if context.db.locks_rows:
            # Match again under the locks: an address may have changed while this transaction waited.
            matched = list(_one_notice_per_delivery(session, context.signer, notices))
        for notice, delivery in matched:
            outcome = _apply_notice(session, notice, delivery, now)
            counts[outcome] += 1
            if delivery is not None:
                log.info(
                    "bounce notice", outcome=outcome, delivery=delivery.delivery_id, edition=delivery.edition
                )
            if outcome == UNCLAIMED:
                diagnostic = sanitize.redact_addresses(f"{notice.diagnostic:.300}")
                # Omit the local part, because the record of a run outlives a subscriber's erasure.
                _, at, domain = notice.recipient.rpartition("@")
                detail = f"{f'…@{domain}' if at else '…'}: {diagnostic}"
                rejections.append(Rejection("no delivery matches the notice", detail=detail))
        if counts["complaints"]:
            rates.pause_if_excessive(session, now, context.settings.pause_at_complaints)
    return counts, rejections


def _one_notice_per_delivery(
    session: Session, signer: LinkSigner, notices: Sequence[Notice]
) -> Iterator[tuple[Notice, BouncedDelivery | None]]:
    """Yield all notices that match no delivery, then one notice of each kind for each delivery.

    A subscriber's address that forwards to several others can cause several bounces of one message. Prefer
    a notice about the subscriber's own address, and then a notice that does not suppress the address.
    """
    preferred: dict[tuple[int, Kind], tuple[tuple[bool, bool], Notice, BouncedDelivery]] = {}
    for notice in notices:
        has_consequences = notice.kind not in _WITHOUT_CONSEQUENCES
        delivery = bounces.find_delivery(session, signer, notice) if has_consequences else None
        if delivery is None:
            yield notice, None
            continue
        order = (notice.recipient.lower() != delivery.email.lower(), notice.action is Action.SUPPRESS)
        key = (delivery.delivery_id, notice.kind)
        other = preferred.get(key)
        if other is None or order < other[0]:
            preferred[key] = (order, notice, delivery)
    for _, notice, delivery in preferred.values():
        yield notice, delivery


def _apply_notice(session: Session, notice: Notice, delivery: BouncedDelivery | None, now: datetime) -> str:
    """Record a notice and apply its consequences. Return the outcome, such as "hard" or "complaints"."""
    if notice.kind in _WITHOUT_CONSEQUENCES:
        return _WITHOUT_CONSEQUENCES[notice.kind]
    if delivery is None:
        return UNCLAIMED
    if delivery.to_earlier_address and notice.kind is not Kind.OPT_OUT:
        return "earlier_address"
    diagnostic = notice.diagnostic or notice.reason.value
    event = (session, delivery.delivery_id, delivery.subscriber_id, diagnostic, now)
    if notice.kind in (Kind.COMPLAINT, Kind.OPT_OUT):
        opts_out = notice.kind is Kind.OPT_OUT
        if not (bounces.record_opt_out if opts_out else bounces.record_complaint)(*event):
            return "known"  # do not unsubscribe, because the subscriber may have resubscribed since
        subscribers.unsubscribe(session, delivery.subscriber_id, now)
        return "opt_outs" if opts_out else "complaints"
    if notice.action is Action.SUPPRESS:
        return "hard" if bounces.record_hard(*event) else "known"
    if notice.action is Action.OURS:
        return "sender_rejections" if bounces.record_sender_rejection(*event) else "known"
    return "soft" if bounces.record_soft(*event) else "known"
