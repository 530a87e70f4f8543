"""PURE. Format the authors and the summary of a paper, in mails and pages alike."""

from __future__ import annotations

from collections.abc import Sequence

from app.text import summarizer
from app.types import PaperView

SHOWN_AUTHORS = 3


def byline(authors: Sequence[str], count: int) -> str:
    """Return the first authors, and how many more there are."""
    first = list(authors[:SHOWN_AUTHORS])
    more = max(count, len(authors)) - len(first)
    if more > 0:
        return f"{', '.join(first)} and {more} more" if first else f"{more} author{'s' if more > 1 else ''}"
    return " and ".join(filter(None, [", ".join(first[:-1]), *first[-1:]]))


def summary(paper: PaperView) -> str:
    """Return the paper's summary, if it is short enough, or else the most informative sentence it has."""
    if 0 < len(paper.tldr) <= summarizer.LIMIT:
        return paper.tldr
    return summarizer.summarize(paper.title, paper.tldr or paper.abstract)
