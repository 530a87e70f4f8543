"""PURE. The ramp of a new sending domain: the number of emails that each receiver may get per day.

Receivers do not trust a domain that suddenly sends a lot of mail. Amazon SES, SendGrid and Microsoft
recommend starting with about 50 emails per day and receiver, and doubling the number every day or every few
days.
"""

from dataclasses import dataclass
from datetime import date, timedelta

NAMED = 5  # receivers listed in `describe`
UNLIMITED_FROM = 100_000  # emails per day and receiver; once the ramp reaches this number, there is no limit


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A ramp: `mails` per UTC day and receiver from `start` on, and twice as many after every `days` days."""

    start: date
    mails: int
    days: int

    def limit_on(self, day: date) -> int | None:
        """Return the limit per receiver on a day, or None if there is none."""
        if day < self.start:
            return None
        doublings = (day - self.start).days // self.days
        limit = self.mails << min(doublings, 40)
        return limit if limit < UNLIMITED_FROM else None

    @property
    def unlimited_from(self) -> date:
        """The first day without a limit."""
        doublings = 0
        while self.mails << doublings < UNLIMITED_FROM:
            doublings += 1
        return self.start + timedelta(days=doublings * self.days)


@dataclass(frozen=True, slots=True)
class ReceiverUse:
    """The number of emails sent to a receiver today, and the number waiting because of its limit."""

    receiver: str
    sent: int
    waiting: int


@dataclass(frozen=True, slots=True)
class WarmUpStatus:
    """The warm-up on a UTC day. `limit` is None before it begins and after it has ended."""

    day: date
    start: date
    unlimited_from: date
    limit: int | None
    receivers: tuple[ReceiverUse, ...]  # most emails first

    @property
    def waiting(self) -> int:
        return sum(use.waiting for use in self.receivers)

    def describe(self) -> str:
        """Describe the warm-up for operators. The text has no initial capital and no final period."""
        if self.day < self.start:
            return f"it begins on {self.start}; until then, there is no limit"
        if self.limit is None:
            return f"it ended on {self.unlimited_from}"
        full = [f"{use.receiver} ({use.waiting})" for use in self.receivers if use.waiting]
        named = ", ".join(full[:NAMED]) + (f" and {len(full) - NAMED} more" if len(full) > NAMED else "")
        mails = "1 email is waiting" if self.waiting == 1 else f"{self.waiting} emails are waiting"
        waiting = f"{mails} until tomorrow: {named}" if full else "no emails are waiting"
        ends = f"there is no limit from {self.unlimited_from} on"
        limit = f"each receiver gets at most {self.limit} emails today"
        return f"it began on {self.start}; {limit}, and {ends}; {waiting}"
