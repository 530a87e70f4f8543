"""The votes for a paper as one source counted them: a row wherever the figures change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from app.storage.models import VoteCount

Figures = tuple[int, int, int]  # upvotes, comments, stars


class Change(NamedTuple):
    """The rows to add and to delete. `changed` is also true where a row has new figures."""

    changed: bool
    added: tuple[VoteCount, ...] = ()
    removed: tuple[VoteCount, ...] = ()


def observe(series: list[VoteCount], at: datetime, counted: Figures, new: Callable[..., VoteCount]) -> Change:
    """Enter what was counted at a moment into a series, which is in the order of time.

    Votes only grow: a row holds the largest figures until then. `new` creates a row from `at` and figures.
    """
    earlier = [row for row in series if row.at <= at]
    last = _figures(earlier[-1]) if earlier else None
    reached = _largest(counted, last or (0, 0, 0))
    if reached == last:
        return Change(changed=False)
    added: tuple[VoteCount, ...] = ()
    if earlier and earlier[-1].at == at:
        _set_figures(earlier[-1], reached)
    else:
        added = (new(at=at, upvotes=reached[0], comments=reached[1], stars=reached[2]),)
        series.insert(len(earlier), added[0])
    return Change(True, added, _raise_later(series, at, reached))


def _raise_later(series: list[VoteCount], at: datetime, reached: Figures) -> tuple[VoteCount, ...]:
    """Raise the figures of later rows, and return the rows that say nothing new by now."""
    removed = []
    for row in [row for row in series if row.at > at]:
        raised = _largest(_figures(row), reached)
        if raised == reached:
            series.remove(row)
            removed.append(row)
        _set_figures(row, raised)
        reached = raised
    return tuple(removed)


def _figures(row: VoteCount) -> Figures:
    return row.upvotes, row.comments, row.stars


def _set_figures(row: VoteCount, figures: Figures) -> None:
    row.upvotes, row.comments, row.stars = figures


def _largest(a: Figures, b: Figures) -> Figures:
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])
