"""PURE. The authors of a paper in one line, for emails and pages."""

from collections.abc import Sequence

from app.text.direction import ltr_mark_after

SHOWN_AUTHORS = 3


def byline(authors: Sequence[str], count: int) -> str:
    """Return a byline, such as "A, B, C and 4 more".

    `count` is the number of all authors, of which `authors` may contain only the first.
    """
    first = list(authors[:SHOWN_AUTHORS])
    more = max(count, len(authors)) - len(first)
    if more > 0:
        return f"{', '.join(first)} and {more} more" if first else f"{more} author{'s' if more > 1 else ''}"
    return " and ".join(filter(None, [", ".join(first[:-1]), *first[-1:]]))


def short_byline(authors: Sequence[str], count: int) -> str:
    """Return a short byline, such as "A", "A, B" or "A +4". The parameters are those of `byline`."""
    total = max(count, len(authors))
    if not authors or total <= len(authors) <= 2:
        return ", ".join(authors) or byline(authors, count)
    return f"{authors[0]} {ltr_mark_after(authors[0])}+{total - 1}"
