"""PURE. Write the subject of a digest and the preview text that mail programs show beside it.

The subject names the first papers and counts the others; the preview continues with the next titles. If the
subject names all papers, the preview says why the first one was sent.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from app.text.direction import ltr_mark_after
from app.text.shortening import short_title, shorten

SUBJECT_CHARS = 70  # desktop mail clients show about this many
PREVIEW_TITLES = 2  # number of titles in the preview, after those in the subject
PREVIEW_TITLE_CHARS, PREVIEW_REASON_CHARS = 70, 120
_INNER_QUOTES = str.maketrans('“”„"', "‘’‚'")  # within quotes

T = TypeVar("T")


class SubjectLine(NamedTuple):
    """A subject, and the number of papers that it names."""

    text: str
    named: int


def write(titles: Sequence[str], count: int) -> SubjectLine:
    """Return the subject of a digest of `count` papers. `titles` begins with the titles of the first two.

    The subject names the first paper in the digest, and the second one if there is room.
    If a title begins with a name and a colon, the name alone is enough: "VideoRAE, Agon + 8 more". If a name
    has a comma, a semicolon separates the names. If both names are the same, only the first title is given.
    """
    if count == 1:
        return SubjectLine(shorten(titles[0], SUBJECT_CHARS), 1)
    names = [short_title(title) for title in titles[:2]]
    others = f" {ltr_mark_after(titles[0])}+ {count - 1} more"
    separator = ";" if any("," in name for name in names) else ","
    both = f"{separator} {ltr_mark_after(names[0])}".join(names)
    if count > 2:
        both += f" {ltr_mark_after(names[1])}+ {count - 2} more"
    is_repeated = bool(names[0]) and names[0].casefold() == names[1].casefold()
    if len(both) <= SUBJECT_CHARS and not is_repeated:
        return SubjectLine(both, 2)
    whole = titles[0] + others
    if len(whole) <= SUBJECT_CHARS:
        return SubjectLine(whole, 1)
    return SubjectLine(shorten(names[0], SUBJECT_CHARS - len(others)) + others, 1)


def in_preview(papers: Sequence[T], named: int) -> Sequence[T]:
    """Return the papers whose titles the preview names: those after the `named` papers in the subject."""
    return papers[named:][:PREVIEW_TITLES]


def preview_title(title: str) -> str:
    """Return a title shortened for the preview."""
    return shorten(title, PREVIEW_TITLE_CHARS)


def preview_reason(reason: str, title: str = "") -> str:
    """Return the preview text if the subject names all papers: why the first one was sent.

    `title` is the first paper's title if the digest has others.
    """
    name = short_title(title).translate(_INNER_QUOTES)
    subject = f"Why “{name}”{ltr_mark_after(name)}" if name else "Why"
    return f"{subject}: {shorten(reason, PREVIEW_REASON_CHARS)}" if reason else ""
