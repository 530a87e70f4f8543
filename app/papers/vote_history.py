"""The votes for a paper over time, as counted by one source: one row per change of the figures."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from app.storage.models import VoteCount

Figures = tuple[int, ...]  # upvotes, comments, stars


class Change(NamedTuple):
    """The rows to add and to delete. `changed` is also True if only figures of existing rows changed."""

    changed: bool
    added: tuple[VoteCount, ...] = ()
    removed: tuple[VoteCount, ...] = ()


def observe(
    series: list[VoteCount], at: datetime, figures: Figures, new_row: Callable[..., VoteCount]
) -> Change:
    """Add the figures observed at `at` to a series, which must be ordered by time.

    Figures never decrease: each row contains the largest figures up to its time. `new_row` creates a row from
    keyword arguments.
    """
    earlier = [row for row in series if row.at <= at]
    last = _figures(earlier[-1]) if earlier else None
    largest = tuple(map(max, figures, last or (0, 0, 0)))
    if largest == last:
        return Change(changed=False)
    added: tuple[VoteCount, ...] = ()
    if earlier and earlier[-1].at == at:
        _set_figures(earlier[-1], largest)
    else:
        added = (new_row(at=at, upvotes=largest[0], comments=largest[1], stars=largest[2]),)
        series.insert(len(earlier), added[0])
    removed = []  # later rows that no longer change any figure
    for row in [row for row in series if row.at > at]:
        raised = tuple(map(max, _figures(row), largest))
        if raised == largest:
            series.remove(row)
            removed.append(row)
        _set_figures(row, raised)
        largest = raised
    return Change(True, added, tuple(removed))


def _figures(row: VoteCount) -> Figures:
    return row.upvotes, row.comments, row.stars


def _set_figures(row: VoteCount, figures: Figures) -> None:
    row.upvotes, row.comments, row.stars = figures
