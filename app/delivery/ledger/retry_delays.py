"""PURE. The delays after which a mail is sent again."""

from __future__ import annotations

from datetime import timedelta

FIRST_DELAY, LONGEST_DELAY = timedelta(minutes=5), timedelta(hours=4)


def retry_delay(attempts: int, delivery_id: int) -> timedelta:
    """Return the delay after the n-th attempt. It doubles each time and varies by id to spread the load."""
    spread: float = 0.75 + 0.5 * (delivery_id * 2654435761 % 2**32) / 2**32
    return min(FIRST_DELAY * (1 << min(attempts - 1, 16)), LONGEST_DELAY) * spread
