"""Refuse to plan while this machine's clock contradicts the database's, or the times in the ledger."""

from datetime import datetime, timedelta

from sqlmodel import Session, col, func, select

from app import clock
from app.errors import ClockError
from app.storage.database import skew
from app.storage.models import Delivery, JobRun

CLOCKS_MAY_DIFFER = timedelta(minutes=1)
STEADY_AFTER = timedelta(days=1)  # a clock that has not been set back for so long is trusted
LAST_MAILS = 100  # the number of newest rows in the ledger whose times are compared with the clock


def check_clock(session: Session, now: datetime) -> None:
    """Raise ClockError if the database's clock or the times in the ledger contradict this machine's clock.

    Planning on the wrong day is hard to undo: it sends tomorrow's digests and gives up on today's.
    """
    ahead = skew(session)
    if abs(ahead) > CLOCKS_MAY_DIFFER:
        raise ClockError(
            f"this machine's clock and the database's differ by {abs(ahead).total_seconds():.0f} seconds: "
            "correct them (is NTP running?); nothing is planned until then"
        )
    last = session.exec(select(Delivery.created_at).order_by(col(Delivery.id).desc()).limit(LAST_MAILS)).all()
    newest = max(last, default=now)
    if newest > now + clock.MAX_AHEAD and not _is_steady(session, now):
        raise ClockError(
            f"the clock shows {now:%Y-%m-%d %H:%M} UTC, but the ledger has an email composed at "
            f"{newest:%Y-%m-%d %H:%M}: correct the clock. Nothing is planned until it is right or has caught "
            "up. If it is correct and was ahead then, planning continues when the jobs have run for a day"
        )


def _is_steady(session: Session, now: datetime) -> bool:
    """Return whether jobs have run for STEADY_AFTER since the last one that ran by a clock that was ahead.

    In that case, the clock was ahead when the newest emails were composed, and has been corrected.
    """
    last_ahead = select(func.max(JobRun.id)).where(JobRun.started_at > now + clock.MAX_AHEAD)
    later = col(JobRun.id) > func.coalesce(last_ahead.scalar_subquery(), 0)
    began = session.exec(select(func.min(JobRun.started_at)).where(later)).one()
    return began is not None and now - began >= STEADY_AFTER
