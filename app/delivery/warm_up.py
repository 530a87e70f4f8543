"""PURE. The ramp of a new sending domain: how many mails each receiver gets per day.

Receivers do not trust a domain that suddenly sends a lot of mail. Amazon SES, SendGrid and Microsoft
recommend starting with about 50 mails per day and receiver, and doubling the number every day or every few
days.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

UNLIMITED_FROM = 100_000  # mails per day and receiver: then a domain is known, and the ramp is off


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A ramp that allows `mails` per UTC day and receiver from `start`, and twice as many every `days`."""

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
