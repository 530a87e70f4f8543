"""PURE. Mark the words of a title and a summary that are the reason for a paper.

`Marks` contains these words and the rest of the reason. If a shortened text lacks some of the words, the card
shows the full reason instead, so that nothing is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup, escape

from app.types import DigestItem, Marks, Spans

_BEGIN, _END = Markup('<span class="m" style="background-color:#e3eff4;">'), Markup("</span>")


class MarkedTexts(NamedTuple):
    """A paper's title and summary as HTML with marks, and the part of the reason that they do not show."""

    title: Markup
    summary: Markup
    reason: str


def mark(item: DigestItem, shown: DigestItem) -> MarkedTexts:
    """Mark the matching words of an item where `shown`, the item as it fits on a card, contains them."""
    if item.marks is None:
        return MarkedTexts(escape(shown.title), escape(shown.summary), item.reason)
    marks = Marks(
        _unchanged(item.marks.title, item.title, shown.title),
        _unchanged(item.marks.summary, item.summary, shown.summary),
        item.marks.rest,
    )
    reason = marks.rest if marks == item.marks else item.reason
    return MarkedTexts(_marked(shown.title, marks.title), _marked(shown.summary, marks.summary), reason)


def _unchanged(spans: Spans, text: str, shown: str) -> Spans:
    """Return the spans of the words that are at the same place in both texts."""
    return tuple((start, end) for start, end in spans if text[start:end] == shown[start:end])


def _marked(text: str, spans: Spans) -> Markup:
    """Return a text as HTML with these spans marked. They are in order."""
    html, done = Markup(), 0
    for start, end in spans:
        html += escape(text[done:start]) + _BEGIN + escape(text[start:end]) + _END
        done = end
    return html + escape(text[done:])
