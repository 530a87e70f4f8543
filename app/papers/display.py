"""PURE. Format the authors and the summary of a paper for e-mails and pages."""

from __future__ import annotations

from collections.abc import Sequence

from app.text import summarizer
from app.types import PaperView

SHOWN_AUTHORS = 3


def byline(authors: Sequence[str], count: int) -> str:
    """Return the names of the first authors and the number of the others."""
    first = list(authors[:SHOWN_AUTHORS])
    more = max(count, len(authors)) - len(first)
    if more > 0:
        return f"{', '.join(first)} and {more} more" if first else f"{more} author{'s' if more > 1 else ''}"
    return " and ".join(filter(None, [", ".join(first[:-1]), *first[-1:]]))


def short_byline(authors: Sequence[str], count: int) -> str:
    """Return the names of one or two authors, or the first one and the number of the others."""
    total = max(count, len(authors))
    if not authors or total <= len(authors) <= 2:
        return ", ".join(authors) or byline(authors, count)
    return f"{authors[0]} +{total - 1}"


def summary(paper: PaperView) -> str:
    """Return the paper's summary if it is short enough, otherwise its most informative sentence."""
    if 0 < len(paper.tldr) <= summarizer.LIMIT:
        return paper.tldr
    return summarizer.summarize(paper.title, paper.tldr or paper.abstract)
