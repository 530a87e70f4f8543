"""PURE. Mark the words of a title and a summary that are the reason for sending the paper.

`Marks` contains the positions of these words, and the part of the reason that they do not show. If a
shortened text lacks some of the words, the card shows the full reason instead, so that nothing is lost.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from markupsafe import Markup

from app.text.wrapping import wrap
from app.types import DigestItem, Marks, Spans

INDENT = "    "
Text = TypeVar("Text", str, Markup)
_BEGIN, _END = Markup('<span class="m" style="background-color:#d3e7f0;">'), Markup("</span>")


class MarkedTexts(NamedTuple):
    """A paper's title and summary as HTML with marks, and the part of the reason that they do not show."""

    title: Markup
    summary: Markup
    reason: str
    has_marks: bool


class MarkedLines(NamedTuple):
    """A title and a summary in the text part: wrapped, with *marks*. The title has no indent."""

    title: str
    summary: str


def mark(item: DigestItem, shown: DigestItem) -> MarkedTexts:
    """Mark the matching words of an item in `shown`, the same item shortened for its card."""
    marks = _visible(item, shown)
    title = _marked(shown.title, marks.title, _BEGIN, _END)
    summary = _marked(shown.summary, marks.summary, _BEGIN, _END)
    return MarkedTexts(title, summary, marks.rest, bool(marks.title or marks.summary))


def mark_lines(item: DigestItem, shown: DigestItem) -> MarkedLines:
    """Return the lines of the text part, with the same marks as in HTML."""
    marks = _visible(item, shown)
    title, summary = (
        _marked(shown.title, marks.title, "*", "*"),
        _marked(shown.summary, marks.summary, "*", "*"),
    )
    writer = f" (Summary by {shown.summary_by})" if shown.summary_by else ""
    return MarkedLines(wrap(title, INDENT).strip(), wrap(summary + writer, INDENT))


def _visible(item: DigestItem, shown: DigestItem) -> Marks:
    """Return the marks for `shown`. Their `rest` is the whole reason if `shown` lacks a marked word."""
    if item.marks is None:
        return Marks(rest=item.reason)
    title = _unchanged(item.marks.title, item.title, shown.title)
    summary = _unchanged(item.marks.summary, item.summary, shown.summary)
    is_complete = (title, summary) == (item.marks.title, item.marks.summary)
    return Marks(title, summary, item.marks.rest if is_complete else item.reason)


def _unchanged(spans: Spans, text: str, shown: str) -> Spans:
    """Return the spans at which both texts are the same."""
    return tuple((start, end) for start, end in spans if text[start:end] == shown[start:end])


def _marked(text: str, spans: Spans, begin: Text, end: Text) -> Text:
    """Return a text with marks around the spans, which must be in order. With HTML marks, return HTML."""
    parts: list[str] = []
    done = 0
    for start, stop in spans:
        parts += (text[done:start], begin, text[start:stop], end)
        done = stop
    return type(begin)().join([*parts, text[done:]])  # Markup escapes the plain texts that it joins
