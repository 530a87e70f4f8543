"""Refuse to plan while this machine's clock contradicts the database's, or the times in the ledger."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from app.errors import ClockError
from app.storage.database import skew
from app.storage.models import Delivery

CLOCKS_MAY_DIFFER = timedelta(minutes=1)
CLOCK_MAY_GO_BACK = timedelta(days=1)
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
    if newest - now > CLOCK_MAY_GO_BACK:
        raise ClockError(
            f"the clock shows {now:%Y-%m-%d %H:%M} UTC, but the ledger has an email composed at "
            f"{newest:%Y-%m-%d %H:%M}: correct the clock; nothing is planned until it is right or has caught "
            "up"
        )
