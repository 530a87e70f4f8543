"""PURE. Clean and shorten a paper's texts, so that they fit on its card and the digest is not clipped."""

from dataclasses import replace
from typing import Any, NamedTuple

from app.text.characters import safe_line
from app.text.shortening import shorten, shorten_at_clause
from app.types import DigestItem

LINE_CHARS, UPDATE_TITLE_CHARS, MAX_LINK_CHARS = 300, 160, 800
# Gmail clips messages over about 102 kB, so the texts of larger digests are shortened.
MAX_HTML_BYTES = 98_000


class TextLimits(NamedTuple):
    """The maximum number of characters in each text of a paper, in each link and in the headings of sections.

    `has_marks` tells whether words are marked. Without marks, the reason names the words.
    """

    summary: int
    lead_summary: int = 320
    title: int = LINE_CHARS
    organization: int = 60
    reason: int = LINE_CHARS
    trend_note: int = 80
    summary_by: int = 60
    short_authors: int = 60
    submitted_by: int = 60
    extra_link: int = MAX_LINK_CHARS
    title_link: int = MAX_LINK_CHARS
    heading: int = LINE_CHARS
    has_marks: bool = True


_SMALL_LIMITS = TextLimits(
    40,
    lead_summary=40,
    title=90,
    organization=30,
    reason=80,
    trend_note=40,
    summary_by=20,
    short_authors=30,
    submitted_by=30,
    extra_link=120,
)
# With these, the largest possible digest is below MAX_HTML_BYTES, even with three bytes per character.
_SMALLEST_LIMITS = _SMALL_LIMITS._replace(
    title=60, reason=60, heading=60, title_link=120, extra_link=60, has_marks=False
)
LIMIT_STEPS = (TextLimits(180), TextLimits(120), _SMALL_LIMITS, _SMALLEST_LIMITS)
_LINES = ("title", "organization", "reason", "trend_note", "summary_by", "short_authors", "submitted_by")


def fit_to_limits(item: DigestItem, limits: TextLimits, *, is_lead: bool) -> DigestItem:
    """Return an item with cleaned and shortened texts. Raise an exception if a value is invalid."""
    if not 0 <= int(item.paper_id) < 1 << 64:  # it must fit in a link
        raise ValueError(item.paper_id)
    texts: dict[str, Any] = {
        name: truncated_line(getattr(item, name), getattr(limits, name)) for name in _LINES
    }
    summary = shorten_at_clause(safe_line(item.summary), limits.lead_summary if is_lead else limits.summary)
    return replace(
        item,
        **texts,
        summary=summary,
        paper_id=int(item.paper_id),
        url=web_link(item.url, limits.title_link),
        pdf_url=web_link(item.pdf_url, limits.extra_link),
        code_url=web_link(item.code_url, limits.extra_link),
        project_url=web_link(item.project_url, limits.extra_link),
        comments=int(item.comments),
        votes=int(item.votes),
        stars=int(item.stars),
    )


def web_link(url: str, chars: int = MAX_LINK_CHARS) -> str:
    """Return `url` if it is safe to use in a message and not too long, otherwise an empty string."""
    if not url.startswith(("https://", "http://")) or len(url) > chars or safe_line(url) != url or " " in url:
        return ""
    return url


def truncated_line(text: str, chars: int = LINE_CHARS) -> str:
    """Return untrusted text as one shortened line. Raise AttributeError if it is not a string."""
    return shorten(safe_line(text), chars)
