"""Count emails, bounces and complaints by day and receiver. Pause sending after too many complaints."""

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import case, func
from sqlmodel import Session, col, select

from app.bounces.recording import COMPLAINT, HARD, SOFT
from app.delivery import ledger
from app.delivery.receivers import LARGE_RECEIVERS, receiver_of
from app.storage import audit_log
from app.storage.database import utc_day
from app.storage.models import Delivery, Event, Subscriber, SubscriberState
from app.text.in_words import count_of

WINDOW = timedelta(days=7)  # for pausing and warnings
MIN_COMPLAINTS = 3  # so that one or two subscribers on a short list cannot stop all mail
WARN_PERCENT = 0.1  # Gmail and Yahoo ask senders to stay below this, and refuse mail at 0.3% or more
OTHERS = "others"
_MAX_QUEUED = timedelta(days=7)  # longest time between the creation and the sending of an email


@dataclass(frozen=True, slots=True)
class ReceiverRate:
    """The numbers of emails, bounces and complaints of a receiver, such as `google`, on or since `day`.

    All complaints of one subscriber count as one: a single person must not be able to pause sending by
    reporting several old digests. Subscribers who have been erased are left out, because their receiver is no
    longer stored.
    """

    day: date
    receiver: str
    sent: int
    bounces: int
    complaints: int

    @property
    def complaint_percent(self) -> float:
        return 100 * self.complaints / max(self.sent, self.complaints, 1)

    def is_excessive(self, percent: float) -> bool:
        """Return whether there are MIN_COMPLAINTS or more, and complaints reach `percent` % of the emails."""
        return self.complaints >= MIN_COMPLAINTS and self.complaint_percent >= percent

    def counts(self) -> str:
        """Return a text such as "200 sent, 1 bounce, 0 complaints"."""
        notices = f"{count_of(self.bounces, 'bounce')}, {count_of(self.complaints, 'complaint')}"
        return f"{self.sent:,} sent, {notices}"

    def describe(self) -> str:
        """Return a text such as "3 complaints about 200 emails to google (1.50%) since 2026-11-20"."""
        percent = f"{self.complaint_percent:.2f}%"
        since = f"since {self.day:%Y-%m-%d}"
        complaints, mails = count_of(self.complaints, "complaint"), count_of(self.sent, "email")
        return f"{complaints} about {mails} to {self.receiver} ({percent}) {since}"


@dataclass(frozen=True, slots=True)
class RecordedNotice:
    """A recorded complaint or bounce, with the address of its subscriber."""

    at: datetime
    kind: str
    detail: str
    subscriber_id: int
    email: str  # empty after an erasure


def by_day(session: Session, now: datetime, days: int) -> list[ReceiverRate]:
    """Return a row per day and receiver with emails or notices for the last `days` UTC days, newest first."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since, until = midnight - timedelta(days=days - 1), midnight + timedelta(days=1)
    rates = _count(session, since, until, since, per_day=True)
    return sorted(rates, key=lambda rate: rate.day, reverse=True)


def between(
    session: Session, since: datetime, until: datetime, complaints_since: datetime | None = None
) -> list[ReceiverRate]:
    """Return a row for each receiver with emails or notices in [since, until).

    Leave out complaints before `complaints_since`.
    """
    return _count(session, since, until, complaints_since or since, per_day=False)


def _count(
    session: Session, since: datetime, until: datetime, complaints_since: datetime, *, per_day: bool
) -> list[ReceiverRate]:
    """Return a row per receiver with emails or notices, and per UTC day if `per_day`, sorted by receiver."""
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    email = col(Subscriber.email)
    start = (func.instr if is_sqlite else func.strpos)(email, "@") + 1
    domain: Any = func.substr(email, start)

    def grouped(number: Any, model: type[Delivery | Event], at: Any) -> Any:
        keys = [domain, utc_day(session, at)] if per_day else [domain]
        counts = select(number, *keys).select_from(Subscriber)
        counts = counts.join(model, col(model.subscriber_id) == Subscriber.id)
        counts = counts.where(at >= since, at < until, col(Subscriber.state) != SubscriberState.ERASED)
        return counts.group_by(*keys)

    kind, at = col(Event.kind), col(Event.at)
    # The condition on `created_at` makes the query fast, because that column is indexed.
    sent = grouped(func.count(), Delivery, col(Delivery.sent_at))
    sent = sent.where(col(Delivery.created_at) >= since - _MAX_QUEUED)
    bounces = grouped(func.count(func.distinct(Event.delivery_id)), Event, at).where(kind.in_((HARD, SOFT)))
    complaints = grouped(func.count(func.distinct(Event.subscriber_id)), Event, at)
    complaints = complaints.where(kind == COMPLAINT, at >= complaints_since)
    columns = []
    for statement in (sent, bounces, complaints):
        counts: Counter[tuple[str, date]] = Counter()
        for number, name, *days in session.execute(statement):
            receiver = receiver_of(f"@{name}")
            day = date.fromisoformat(str(days[0])) if days else since.date()
            counts[receiver if receiver in LARGE_RECEIVERS else OTHERS, day] += number
        columns.append(counts)
    keys = sorted(set().union(*columns))
    return [ReceiverRate(day, name, *(counts[name, day] for counts in columns)) for name, day in keys]


def newest_notices(session: Session, now: datetime, days: int, limit: int) -> list[RecordedNotice]:
    """Return up to `limit` notices of the last `days` days: complaints, then bounces, each newest first."""
    is_erased = col(Subscriber.state) == SubscriberState.ERASED
    email = case((is_erased, ""), else_=col(Subscriber.email))
    columns = Event.at, Event.kind, Event.detail, Event.subscriber_id, email
    notices = select(*columns).join(Subscriber, col(Event.subscriber_id) == Subscriber.id)  # type: ignore[call-overload]
    notices = notices.where(
        col(Event.kind).in_((COMPLAINT, HARD, SOFT)), col(Event.at) >= now - timedelta(days=days)
    )
    notices = notices.order_by(col(Event.kind) != COMPLAINT, col(Event.id).desc()).limit(limit)
    return [RecordedNotice(*row) for row in session.exec(notices)]


def of_last_week(
    session: Session, now: datetime, complaints_since: datetime | None = None
) -> list[ReceiverRate]:
    """Return a row per receiver for the last seven days. Leave out complaints before `complaints_since`."""
    return between(session, now - WINDOW, now + timedelta(seconds=1), complaints_since)


def pause_if_excessive(session: Session, now: datetime, percent: float) -> None:
    """Pause all sending if the complaints from any receiver are excessive (see `ReceiverRate`).

    Count the complaints of the last week that came after sending was last resumed. If `percent` is 0, never
    pause.
    """
    if percent:
        resumed_at = audit_log.last_time(session, audit_log.SENDING_RESUMED, ledger.ALL_EDITIONS)
        for rate in of_last_week(session, now, resumed_at):
            if rate.is_excessive(percent):
                ledger.pause_automatically(session, rate.describe(), now)
