"""PURE. Decide whether a digest with too few papers is held back or sent anyway."""

from collections.abc import Sequence

from app.digests.ranking import Ranked
from app.digests.selection import SelectedPaper


def is_small(ranked: Ranked, selected: Sequence[SelectedPaper]) -> bool:
    """Return True if fewer papers match a subscriber's interests than the subscriber's minimum."""
    return bool(ranked.request.interests) and len(selected) < ranked.request.min_papers


def count_expiring(ranked: Ranked, selected: Sequence[SelectedPaper]) -> int:
    """Return how many papers will be too old for the next digest, so that a small digest is sent anyway."""
    today, expires_on = ranked.pool.today, ranked.request.expires_on
    return sum((each.paper.last_listed_on or today) < expires_on for each in selected)
