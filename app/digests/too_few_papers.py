"""PURE. Decide whether a digest with too few papers is held back or sent anyway."""

from __future__ import annotations

from collections.abc import Sequence

from app.digests.ranking import Ranked
from app.digests.selection import SelectedPaper


def must_wait(ranked: Ranked, selected: Sequence[SelectedPaper]) -> bool:
    """Return True if a digest must wait because it has fewer papers than the subscriber's minimum.

    A small digest is sent anyway if one of its papers will be too old for the next digest.
    """
    request, today = ranked.request, ranked.pool.today
    if len(selected) >= request.min_papers:
        return False
    return all((each.paper.last_listed_on or today) >= request.expires_on for each in selected)
