"""PURE. Decide when soft bounces suppress an address.

The score of an address decays over time, and a delivered message resets it.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

# After 30 days, a soft bounce counts half, because a mailbox that was full in spring may be empty in summer.
HALF_LIFE = timedelta(days=30)
# A daily subscriber is suppressed after a week of bounces, a weekly one after six bounces. The first and the
# last bounce must be at least a week apart, so that a single bad day does not suppress anybody.
THRESHOLD, MIN_SPAN = 4.0, timedelta(days=7)
# Relays retry for up to five days (RFC 5321, 4.5.4.1). One day later, a message without a notice counts as
# delivered.
ASSUME_DELIVERED_AFTER = timedelta(days=6)


def score(bounces: Iterable[datetime], now: datetime) -> float:
    """Return the sum of 2^(-age / HALF_LIFE) over the soft bounces."""
    return sum(math.pow(0.5, max(now - at, timedelta()) / HALF_LIFE) for at in bounces)


def exceeds_threshold(bounces: Sequence[datetime], now: datetime) -> bool:
    """Return whether soft bounces since the last delivered message are enough to suppress the address."""
    if not bounces or max(bounces) - min(bounces) < MIN_SPAN:
        return False
    return score(bounces, now) >= THRESHOLD
