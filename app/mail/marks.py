"""PURE. Mark the words of a title and a summary that are the reason for a paper, and word the rest of it.

A reason consists of clauses: “retrieval”, “long context” in the title; close to your interest through “RAG”;
by Ines Duarte. If the heaviest words, which come first, are marked, nothing else about words is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup, escape

from app.relevance.reasons import WELL_VOTED
from app.types import DigestItem

_QUOTES = re.compile(r"((?:“[^“”]+”(?:, )?)+) in the (title|abstract)")
_QUOTE = re.compile(r"“([^“”]+)”")
_CLOSE = "close to your interest through "
_BEGIN, _END = Markup('<span class="m" style="background-color:#e3eff4;">'), Markup("</span>")


class MarkedTexts(NamedTuple):
    """A paper's title and summary as HTML with marks, and the part of the reason that they do not show."""

    title: Markup
    summary: Markup
    reason: str


def mark(item: DigestItem) -> MarkedTexts:
    """Mark each quoted word of an item's reason where it first occurs, in the title if it is there."""
    title, summary, reason = item.title, item.summary, item.reason
    if reason == WELL_VOTED and item.votes:  # the votes show it
        return MarkedTexts(escape(title), escape(summary), "")
    clauses = reason.split("; ")
    about_words = {clause: _QUOTE.findall(clause) for clause in clauses if _QUOTES.fullmatch(clause)}
    in_title, in_summary = list[tuple[int, int]](), list[tuple[int, int]]()
    invisible: list[str] = []
    for quotes in about_words.values():
        missing = [quote for quote in quotes if not _note(quote, title, in_title, summary, in_summary)]
        invisible.append(", ".join(f"“{quote}”" for quote in missing))
    if not about_words:
        return MarkedTexts(escape(title), escape(summary), reason)
    said = []
    if invisible[0]:
        field = _QUOTES.fullmatch(next(iter(about_words)))
        said.append(f"{invisible[0]} in the {field[2] if field else ''}")
    said += [clause for clause in clauses if clause not in about_words and not clause.startswith(_CLOSE)]
    return MarkedTexts(_marked(title, in_title), _marked(summary, in_summary), "; ".join(said))


def _note(
    quote: str, title: str, in_title: list[tuple[int, int]], summary: str, in_summary: list[tuple[int, int]]
) -> bool:
    """Add the first place of a quote to its list. Return False if it is in neither text."""
    pattern = re.compile(rf"(?<!\w){re.escape(quote)}(?!\w)", re.IGNORECASE)
    for text, places in ((title, in_title), (summary, in_summary)):
        if found := pattern.search(text):
            places.append(found.span())
            return True
    return False


def _marked(text: str, places: Iterable[tuple[int, int]]) -> Markup:
    """Return a text as HTML with these places marked. Overlapping places are marked once."""
    html, done = Markup(), 0
    for start, end in sorted(places):
        if start >= done:
            html += escape(text[done:start]) + _BEGIN + escape(text[start:end]) + _END
            done = end
    return html + escape(text[done:])
