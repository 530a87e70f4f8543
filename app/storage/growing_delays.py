"""PURE. Delays between attempts that grow with each attempt."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class GrowingDelays:
    """Delays that grow by `factor` from attempt to attempt, up to `longest`, and vary to spread the load."""

    first: timedelta
    longest: timedelta
    factor: int

    def after(self, attempts: int, number: int) -> timedelta:
        """Return the delay after `attempts` attempts. `number`, the row's id, varies it by up to 25 %."""
        spread: float = 0.75 + 0.5 * (number * 2654435761 % 2**32) / 2**32
        growth: int = self.factor ** min(attempts - 1, 16)
        return min(self.first * growth, self.longest) * spread
