"""PURE. Mark the words of a title and a summary that are the reason for sending the paper.

`Marks` contains the positions of these words, and the part of the reason that they do not show. If a
shortened text lacks some of the words, the card shows the full reason instead, so that nothing is lost.
"""

from typing import NamedTuple, TypeVar

from markupsafe import Markup

from app.text.wrapping import wrap
from app.types import DigestItem, Marks, Spans

INDENT = "    "
Text = TypeVar("Text", str, Markup)
BEGIN, END = Markup('<span class="m" style="background-color:#d3e7f0;">'), Markup("</span>")


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


def mark(item: DigestItem, shortened: DigestItem, begin: Markup = BEGIN, end: Markup = END) -> MarkedTexts:
    """Mark the matching words of an item in `shortened`, the same item shortened for its card.

    `begin` and `end` are the HTML before and after marked words.
    """
    marks = _visible(item, shortened)
    title = _marked(shortened.title, marks.title, begin, end)
    summary = _marked(shortened.summary, marks.summary, begin, end)
    return MarkedTexts(title, summary, marks.rest, bool(marks.title or marks.summary))


def mark_lines(item: DigestItem, shortened: DigestItem) -> MarkedLines:
    """Return the lines of the text part, with the same marks as in HTML."""
    marks = _visible(item, shortened)
    title, summary = (
        _marked(shortened.title, marks.title, "*", "*"),
        _marked(shortened.summary, marks.summary, "*", "*"),
    )
    writer = f" (Summary by {shortened.summary_by})" if shortened.summary_by else ""
    return MarkedLines(wrap(title, INDENT).strip(), wrap(summary + writer, INDENT))


def _visible(item: DigestItem, shortened: DigestItem) -> Marks:
    """Return the marks for `shortened`. Their `rest` is the whole reason if it lacks a marked word."""
    if item.marks is None:
        return Marks(rest=item.reason)
    title = _unchanged(item.marks.title, item.title, shortened.title)
    summary = _unchanged(item.marks.summary, item.summary, shortened.summary)
    is_complete = (title, summary) == (item.marks.title, item.marks.summary)
    return Marks(title, summary, item.marks.rest if is_complete else item.reason)


def _unchanged(spans: Spans, text: str, shortened: str) -> Spans:
    """Return the spans at which both texts are the same."""
    return tuple((start, end) for start, end in spans if text[start:end] == shortened[start:end])


def _marked(text: str, spans: Spans, begin: Text, end: Text) -> Text:
    """Return a text with marks around the spans, which must be in order. With HTML marks, return HTML."""
    parts: list[str] = []
    done = 0
    for start, stop in spans:
        parts += (text[done:start], begin, text[start:stop], end)
        done = stop
    return type(begin)().join([*parts, text[done:]])  # Markup escapes the plain texts that it joins
