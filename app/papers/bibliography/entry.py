"""PURE. One entry of a bibliography, whatever its format → a record, or why it is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from app.text import characters, sanitize
from app.types import PaperRecord, Rejection

ABSTRACT_CHARS = 2_000  # arXiv takes 1,920; to read LaTeX is most of the work, while somebody waits
AUTHORS_READ = 30
SHOWN_CHARS = 80  # of what was not understood

_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
# What reference managers keep in titles and abstracts. Any other tag may be what a paper is about.
_INLINE = re.compile(r"</?(?:i|b|em|strong|su[bp]|sc|span)(?:\s[^<>]{0,80})?>", re.IGNORECASE)
_BLOCK = re.compile(r"</?(?:p|jats:[a-z-]{1,20})(?:\s[^<>]{0,80})?>", re.IGNORECASE)

Item = PaperRecord | Rejection


@dataclass(frozen=True, slots=True)
class EntryLocation:
    """Which entry it is, for whoever has to look for it."""

    kind: str
    row: int | None = None
    name: str = ""


def item(where: EntryLocation, record: PaperRecord) -> Item:
    """The record, if it names a paper."""
    if record.title or record.arxiv_id or record.doi:
        return record
    reason = f"{where.kind} without title, DOI or arXiv id"
    return Rejection(reason, where.row, sanitize.one_line(where.name, SHOWN_CHARS))


def prose(value: object, limit: int) -> str:
    """A title or an abstract without the markup of reference managers."""
    if not isinstance(value, str):
        return ""
    return sanitize.clean_text(
        characters.unescape_html(_BLOCK.sub(" ", _INLINE.sub("", value[: limit * 4]))), limit
    )


def names(values: Iterable[str]) -> tuple[str, ...]:
    """Names as people say them: “Knuth, Donald E.” is Donald E. Knuth."""
    shown = (sanitize.one_line(_said(value[: sanitize.NAME_CHARS])) for value in [*values][:AUTHORS_READ])
    return tuple(name for name in shown if name)


def _said(name: str) -> str:
    last, *given = (part.strip() for part in name.split(","))
    return " ".join([*given[:1], last, *given[1:]])


def ids(doi: str, places: Iterable[str]) -> tuple[str, str]:
    """The arXiv id and the DOI, from wherever exporters put them: the likeliest place first."""
    places = [place for place in places if place]
    found = sanitize.doi(doi.replace("\\", "")) or next(filter(None, map(sanitize.doi, places)), "")
    return sanitize.arxiv_id_of_doi(found) or next(filter(None, map(arxiv_id, places)), ""), found


def arxiv_id(text: str) -> str:
    """The arXiv id that a text says, or a link: other sites name papers by them, too."""
    found = sanitize.arxiv_id(text)[0]
    if not found and _LINK.match(text):
        found = sanitize.arxiv_id(re.split(r"[?#]", text)[0].rstrip("/").rpartition("/")[2])[0]
    return found


def is_link(text: str) -> bool:
    return bool(_LINK.match(text))


def of_arxiv(note: str) -> str:
    """A remark that is an arXiv id: what else is said there may be of other papers."""
    return note if note.lower().startswith("arxiv:") else ""
