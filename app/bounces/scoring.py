"""PURE. When a reader's soft bounces are enough: a score that fades, and that success clears."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

# A mailbox that was full in spring says little in summer: a soft bounce counts half after a month.
HALF_LIFE = timedelta(days=30)
# By these, a daily reader has to bounce for a week, a weekly one for six. Nobody is given up for one bad
# day: whatever the cadence, the first and the last bounce must lie a week apart.
ENOUGH, LEAST_SPAN = 4.0, timedelta(days=7)
# Relays try for up to five days (RFC 5321, 4.5.4.1) and then need to say so: silence after this is success.
SILENCE_IS_SUCCESS = timedelta(days=6)


def score(bounces: Iterable[datetime], now: datetime) -> float:
    """The sum over soft bounces of 2^(-age / HALF_LIFE)."""
    return sum(math.pow(0.5, max(now - at, timedelta()) / HALF_LIFE) for at in bounces)


def exceeds_threshold(bounces: Sequence[datetime], now: datetime) -> bool:
    """Whether the soft bounces since the last success, at these moments, mean that no mail gets there."""
    if not bounces or max(bounces) - min(bounces) < LEAST_SPAN:
        return False
    return score(bounces, now) >= ENOUGH
