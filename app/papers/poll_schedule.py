"""Decide when each source is polled: intervals, back-off after failures, and leases.

A poll is recorded as unfinished when it begins, so that a poll that kills the process is not repeated soon.
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from sqlmodel import Session, col, or_, select

from app.errors import Conflict
from app.papers import source_registry
from app.papers.sources import host_rate_limits, source_types
from app.papers.sources.state import FetchedPage, SourceState
from app.storage.models import Source
from app.types import SourceKind

CONTINUE_AFTER = timedelta(minutes=1)  # between polls of a long list, so that other arXiv sources get a turn
MAX_DELAY = timedelta(days=2)  # longer than every interval and every wait that a server may ask for
MISSED_AFTER = timedelta(minutes=15)  # longer than the interval between runs plus the duration of most polls
POLL_DEADLINE = timedelta(minutes=10)  # per source and run; pages that were read before it are stored
TIMED_OUT = (
    f"the source was not read completely within {POLL_DEADLINE.seconds // 60} minutes; "
    "the next poll continues where it stopped"
)
FAILING_AFTER = 3  # failed polls in a row: the doctor reports an error, and a webhook gets an event
BACK_OFF = tuple(timedelta(minutes=minutes) for minutes in (5, 15, 60, 240))


def sources_to_poll(session: Session, now: datetime, source_id: int | None = None) -> Sequence[Source]:
    """Return the sources that are due, or only the given source, even if it is not due.

    Raise Conflict if the given source is read from files.
    """
    if source_id is not None:
        source = source_registry.get(session, source_id)
        if source.kind not in source_types.POLLED:
            raise Conflict(f"“{source.name}” is read from files, not polled: use `paperboy ingest FILE`")
        return [source]
    return [source for source in _active_sources(session) if is_due(source, now)]


def missed_sources(session: Session, now: datetime) -> Sequence[Source]:
    """Return the sources whose regular poll is more than MISSED_AFTER late, for example after a downtime.

    Leave out sources for which planning would wait too long: those never polled, those that failed twice in
    a row, those too large for one poll, and those not due within MISSED_AFTER. After one failure, a source is
    not left out, because the network may not have been ready.
    """
    return [source for source in _active_sources(session) if _is_missed(source, now)]


def _active_sources(session: Session) -> Sequence[Source]:
    active = select(Source).where(
        col(Source.paused).is_(False),
        col(Source.removed_at).is_(None),
        col(Source.kind).in_([*source_types.POLLED]),
    )
    return session.exec(active.order_by(col(Source.id))).all()


def _is_missed(source: Source, now: datetime) -> bool:
    if source.polled_at is None or source.failures > 1 or source.last_error == TIMED_OUT:
        return False
    is_late = now - source.polled_at > source_types.POLLED[source.kind].every + MISSED_AFTER
    return is_late and is_due(source, now + MISSED_AFTER)


def is_due(source: Source, now: datetime) -> bool:
    """PURE. Return whether an active source should be polled now.

    It is also due if its next poll lies more than MAX_DELAY in the future, because the clock was wrong when
    it was scheduled.
    """
    return source.next_poll_at is None or not now < source.next_poll_at <= now + MAX_DELAY


def state_of(source: Source, backfill_days: int, today: date) -> SourceState:
    """Return the configuration and progress of a source for `source_types.fetch`.

    Ignore a watermark in the future, which a wrong clock or a wrong date in a feed has set: start
    `backfill_days` days ago.
    """
    watermark = source.watermark
    if watermark:
        watermark = valid_watermark(source, today) or today - timedelta(days=backfill_days + 1)
    progress = (source.etag, source.last_modified, watermark, source.resumption_token)
    return SourceState(source.kind, backfill_days, source.config, *progress)


def valid_watermark(source: Source, today: date) -> date | None:
    """PURE. Return the watermark of a source, unless it is in the future."""
    return source.watermark if source.watermark and source.watermark <= today else None


def lease_of(source: Source) -> str:
    """Return the name of the lease for polling a source. All arXiv sources share one lease."""
    return host_rate_limits.ARXIV if _is_arxiv(source) else f"source:{source.id}"


def _is_arxiv(source: Source) -> bool:
    if source.kind is SourceKind.FEED:
        return host_rate_limits.service_of(str(source.config.get("url", ""))) == host_rate_limits.ARXIV
    return source.kind in source_registry.OF_ARXIV


def begin(source: Source, now: datetime) -> None:
    """Postpone the next poll before this one starts. The delay grows with each poll that did not finish."""
    source.failures += source_registry.is_unfinished(source)
    source.next_poll_at, source.last_error = now + _delay(source), source_registry.UNFINISHED


def record_interruption(source: Source, now: datetime) -> None:
    """Record that the service stopped during a poll, and make the source due at once."""
    source.next_poll_at, source.last_error = now, "the poll was interrupted: the service was stopped"


def record_change(source: Source, due_at: datetime) -> None:
    """Record that a source was changed during a poll. Set when it is due, and forget the poll's errors."""
    source.failures, source.last_error, source.next_poll_at = 0, None, due_at


def _delay(source: Source) -> timedelta:
    return BACK_OFF[min(source.failures, len(BACK_OFF) - 1)]


def record_progress(source: Source, page: FetchedPage, today: date) -> None:
    """Record how far a source was read, so that the next poll continues from there."""
    if page.watermark and page.watermark > (valid_watermark(source, today) or date.min):
        source.watermark = page.watermark
    source.etag = page.etag or source.etag
    source.last_modified = page.last_modified or source.last_modified
    if page.resumption_token is not None:
        source.resumption_token = page.resumption_token or None


def record_success(source: Source, now: datetime) -> None:
    """Record a successful poll. If the source has more pages, the next poll follows soon."""
    source.failures, source.last_error = 0, None
    pause = CONTINUE_AFTER if source.resumption_token else source_types.POLLED[source.kind].every
    source.polled_at, source.next_poll_at = now, now + pause


def record_failure(
    session: Session, source: Source, error: str, now: datetime, retry_at: datetime | None
) -> None:
    """Record a failed poll. The delay grows with each failure, and lasts at least until `retry_at`.

    If arXiv asked for the wait, all arXiv sources wait until `retry_at`.
    """
    delay = _delay(source)
    source.failures, source.last_error = source.failures + 1, error
    source.next_poll_at = max(now + delay, retry_at or now)
    if retry_at and _is_arxiv(source):  # arXiv's rate limit applies to all of its interfaces
        waiting = or_(col(Source.next_poll_at).is_(None), col(Source.next_poll_at) < retry_at)
        for other in filter(_is_arxiv, session.exec(select(Source).where(waiting))):
            other.next_poll_at = retry_at
