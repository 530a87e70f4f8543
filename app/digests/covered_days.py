"""Decide which listing days a digest covers: more than usual after one that is late or was not delivered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from sqlmodel import Session

from app.delivery import ledger
from app.digests.digest_requests import DueSubscriber
from app.storage.models import Subscriber
from app.types import Cadence

WEEKLY_DAYS = 8  # days that a weekly digest covers: one more than a week, for papers listed late
CATCH_UP_DAYS = 7  # how many days more than usual a digest may cover


@dataclass(frozen=True, slots=True)
class CoveredDays:
    """The listing days that digests cover, for one day on which they are composed.

    If a subscriber's last digest was not delivered, a daily or weekday digest also covers the usual days of
    the undelivered ones, but at most CATCH_UP_DAYS days more than usual. A weekly digest covers `extra_days`
    more: see `needing_extra_days`.
    """

    today: date
    usual_days: int  # days that a daily or weekday digest usually covers
    extra_days: int = 0

    @property
    def max_days(self) -> int:
        """The largest number of days that any digest usually covers, plus `extra_days`."""
        return max(self.usual_days, WEEKLY_DAYS) + self.extra_days

    def window(
        self, cadence: Cadence, following_due: datetime, lost_since: date | None = None
    ) -> tuple[date, date]:
        """Return the first listing day of a digest (`since`), and of the following one (`expires_on`).

        `lost_since` is the day on which the first undelivered digest was composed, if the last one was not
        delivered.
        """
        if cadence is Cadence.WEEKLY:
            since = _first_day(WEEKLY_DAYS + self.extra_days, self.today)
            return since, _first_day(WEEKLY_DAYS, following_due.date())
        return self.first_of_daily(lost_since), _first_day(self.usual_days, following_due.date())

    def first_of_daily(self, lost_since: date | None) -> date:
        """Return the first listing day of a daily or weekday digest."""
        composed_on = min(lost_since or self.today, self.today)
        earliest = _first_day(self.usual_days + CATCH_UP_DAYS, self.today)
        return max(_first_day(self.usual_days, composed_on), earliest)


def first_undelivered(
    session: Session, ids: Sequence[int], today: date, until: datetime | None = None
) -> dict[int, date]:
    """Return, by subscriber whose last digest was not delivered, when the first undelivered one was composed.

    Digests that were due at or after `until`, or too long ago to affect today's, do not count.
    """
    undelivered = ledger.first_undelivered(session, ids, _earliest_due(today), until)
    return {number: digest.created_at.date() for number, digest in undelivered.items()}


def needing_extra_days(
    session: Session,
    rows: Sequence[Subscriber | DueSubscriber],
    lost_since: Mapping[int, date],
    days: CoveredDays,
    loaded_since: date,
    until: datetime | None = None,
) -> set[int]:
    """Return the subscribers whose digests cover days before the usual ones.

    These are weekly subscribers whose digest is late, or whose last one (due before `until`) was not
    delivered or was due before the days that a digest usually covers, for example because they paused. Others
    are included if their digest covers days before `loaded_since`.
    """
    weekly = [row for row in rows if row.cadence is Cadence.WEEKLY]
    return _late(session, weekly, days.today, until) | {
        row.id or 0
        for row in rows
        if (day := lost_since.get(row.id or 0))
        and (row.cadence is Cadence.WEEKLY or days.first_of_daily(day) < loaded_since)
    }


def _late(
    session: Session, weekly: Sequence[Subscriber | DueSubscriber], today: date, until: datetime | None
) -> set[int]:
    """Return the weekly subscribers whose digest is late or whose last one was due too long ago."""
    if not weekly:
        return set()
    late = {row.id or 0 for row in weekly if row.next_due_at and row.next_due_at.date() < today}
    ids = [row.id or 0 for row in weekly]
    last_due = ledger.last_due_times(session, ids, _earliest_due(today), until)
    others = [number for number in ids if number not in last_due]  # new, or after a long pause
    last_due |= ledger.last_due_times(session, others, until=until)
    covered_from = _first_day(WEEKLY_DAYS, today)
    return late | {number for number, due_at in last_due.items() if due_at.date() < covered_from}


def _earliest_due(today: date) -> datetime:
    return datetime.combine(_first_day(WEEKLY_DAYS + CATCH_UP_DAYS, today), time(), UTC)


def _first_day(days: int, last: date) -> date:
    """Return the first day of a window of `days` days that ends on `last`."""
    return last - timedelta(days=days - 1)
