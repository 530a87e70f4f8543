"""PURE. One entry of a bibliography in any format → a record, or a rejection with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from app.text import characters, sanitize
from app.types import PaperRecord, Rejection

ABSTRACT_CHARS = 2_000  # arXiv allows 1,920; reading LaTeX takes most of the time of the request
AUTHORS_READ = 30
SHOWN_CHARS = 80  # of an entry that was not understood

_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
# Markup that reference managers keep in titles and abstracts. Other tags may be part of the text.
_INLINE = re.compile(r"</?(?:i|b|em|strong|su[bp]|sc|span)(?:\s[^<>]{0,80})?>", re.IGNORECASE)
_BLOCK = re.compile(r"</?(?:p|jats:[a-z-]{1,20})(?:\s[^<>]{0,80})?>", re.IGNORECASE)

Item = PaperRecord | Rejection


@dataclass(frozen=True, slots=True)
class EntryLocation:
    """The location of an entry, for messages."""

    kind: str
    row: int | None = None
    name: str = ""


def checked_item(location: EntryLocation, record: PaperRecord) -> Item:
    """Return the record if it has a title, an arXiv id or a DOI, or else a rejection."""
    if record.title or record.arxiv_id or record.doi:
        return record
    reason = f"{location.kind} without title, DOI or arXiv id"
    return Rejection(reason, location.row, sanitize.one_line(location.name, SHOWN_CHARS))


def prose(value: object, limit: int) -> str:
    """Return a title or an abstract without the markup of reference managers."""
    if not isinstance(value, str):
        return ""
    return sanitize.clean_text(
        characters.unescape_html(_BLOCK.sub(" ", _INLINE.sub("", value[: limit * 4]))), limit
    )


def names(values: Iterable[str]) -> tuple[str, ...]:
    """Return names with the given name first: “Knuth, Donald E.” becomes Donald E. Knuth."""
    authors = (
        sanitize.one_line(_given_name_first(value[: sanitize.NAME_CHARS]))
        for value in [*values][:AUTHORS_READ]
    )
    return tuple(name for name in authors if name)


def _given_name_first(name: str) -> str:
    last, *given = (part.strip() for part in name.split(","))
    return " ".join([*given[:1], last, *given[1:]])


def find_ids(doi: str, texts: Iterable[str]) -> tuple[str, str]:
    """Return the arXiv id and the DOI of an entry.

    `texts` are the other fields in which exporters put ids, the likeliest first.
    """
    texts = [text for text in texts if text]
    clean_doi = sanitize.doi(doi.replace("\\", "")) or next(filter(None, map(sanitize.doi, texts)), "")
    return sanitize.arxiv_id_of_doi(clean_doi) or next(filter(None, map(arxiv_id, texts)), ""), clean_doi


def arxiv_id(text: str) -> str:
    """Return the arXiv id in a text or at the end of any link, such as huggingface.co/papers/2603.25746."""
    if (named := sanitize.arxiv_id(text)[0]) or not _LINK.match(text):
        return named
    return sanitize.arxiv_id(re.split(r"[?#]", text)[0].rstrip("/").rpartition("/")[2])[0]


def is_link(text: str) -> bool:
    """Return whether a text begins with a web address."""
    return bool(_LINK.match(text))


def arxiv_note(note: str) -> str:
    """Return a note that begins with "arXiv:", or "". Ids elsewhere in a note may be of other papers."""
    return note if note.lower().startswith("arxiv:") else ""
