"""PURE. The delays after which an email or an event is sent again, and when we give up on an event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class RetryDelays:
    """Delays that grow by `factor` from attempt to attempt, up to `longest`, and vary to spread the load."""

    first: timedelta
    longest: timedelta
    factor: int

    def after(self, attempts: int, number: int) -> timedelta:
        """Return the delay after `attempts` attempts. `number`, the row's id, varies it by up to 25 %."""
        spread: float = 0.75 + 0.5 * (number * 2654435761 % 2**32) / 2**32
        growth: int = self.factor ** min(attempts - 1, 16)
        return min(self.first * growth, self.longest) * spread


# Emails that the relay may accept later, for example after a temporary refusal.
EMAILS = RetryDelays(first=timedelta(minutes=5), longest=timedelta(hours=4), factor=2)
# Events that a webhook's endpoint did not accept.
EVENTS = RetryDelays(first=timedelta(minutes=1), longest=timedelta(hours=6), factor=4)
GIVE_UP_EVENTS_AFTER = timedelta(days=3)
