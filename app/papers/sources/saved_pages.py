"""PURE. Hugging Face search pages saved as text: no ids, so papers are known by their titles alone.

Paragraphs stand between blank lines: a header with a day, then for each paper its title, its abstract
and, on some pages, "• 4 authors · Apr 13 2" (a day, perhaps a year, perhaps a count of comments).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date

from app.errors import UnreadableAnswer
from app.papers.sources import json_rows
from app.text import sanitize
from app.types import PaperRecord, ParseResult, Rejection

NO_ABSTRACT = "the title has no abstract"
SIGN = "Get trending papers in your email inbox"
LONGEST_TITLE = 300
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_HEADER = re.compile(
    rf"new|{SIGN}!?|Subscribe|Daily Papers|Trending Papers|by ?AK and the research community", re.IGNORECASE
)
_DAY = re.compile(rf"({'|'.join(_MONTHS)})[a-z]*\.? (\d{{1,2}})(?:, (\d{{4}}))?(?: +(\d{{1,6}}))?")
_AUTHORS = re.compile(r"^\s*•?\s*(\d{1,5}) authors?\b", re.IGNORECASE)


@dataclass
class _Found:
    """A paper while its paragraphs are read."""

    title: str
    abstract: list[str] = field(default_factory=list)
    author_count: int = 0
    dated: re.Match[str] | None = None


def looks_like_one(text: str) -> bool:
    return SIGN in text[:2_000]


def parse(data: bytes | str, day: date | None = None, *, today: date) -> ParseResult:
    """The papers of a page. `day` overrides the one in its header, whose year must be inferred."""
    text = json_rows.text_of(data)
    json_rows.refuse_markup(text, "a search page saved as text")
    if not looks_like_one(text):
        raise UnreadableAnswer("The text is not a saved search page: its header is missing.")
    paragraphs = [part.strip() for part in re.split(r"\n[ \t\r]*\n", text) if part.strip()]
    header, body = _split(paragraphs)
    listed_on = day or _listing_day(header, body, today)
    records: list[PaperRecord] = []
    rejections: list[Rejection] = []
    for number, found in enumerate(_papers(body), 1):
        if found.abstract or found.author_count:
            records.append(_record(found, listed_on, len(records) + 1))
        else:
            rejections.append(Rejection(NO_ABSTRACT, number, found.title[:100]))
    return ParseResult(len(records) + len(rejections), tuple(records), tuple(rejections))


def _split(paragraphs: list[str]) -> tuple[list[str], list[str]]:
    for place, part in enumerate(paragraphs):
        if not _HEADER.fullmatch(part) and not _DAY.fullmatch(part):
            return paragraphs[:place], paragraphs[place:]
    return paragraphs, []


def _papers(body: list[str]) -> Iterator[_Found]:
    """Titles with what belongs to them. A paper may lack its last lines, or have its abstract in pieces."""
    current: _Found | None = None
    for place, part in enumerate(body):
        authors = _AUTHORS.match(part)
        if authors and current:
            current.author_count = int(authors.group(1))
            current.dated = _DAY.search(part)
            yield current
            current = None
        elif current is None:
            current = _Found(sanitize.title(part))
        elif current.abstract and _is_title(part, body[place + 1 : place + 2]):
            yield current
            current = _Found(sanitize.title(part))
        else:
            current.abstract.append(part)
    if current:
        yield current


def _is_title(part: str, following: list[str]) -> bool:
    """Whether a paragraph after an abstract begins a new paper: short, and an abstract follows it."""
    if "\n" in part or len(part) > LONGEST_TITLE or not following or _AUTHORS.match(following[0]):
        return False
    return len(following[0]) > len(part) and not part.endswith((".", ":", ";", ","))


def _record(found: _Found, listed_on: date | None, rank: int) -> PaperRecord:
    comments = found.dated.group(4) if found.dated else None
    return PaperRecord(
        title=found.title,
        abstract=sanitize.clean_text(" ".join(found.abstract)),
        author_count=found.author_count,
        published_on=_dated(found.dated, listed_on) if found.dated else None,
        listed_on=listed_on,
        rank=rank if listed_on else None,
        comments=int(comments) if comments else None,
    )


def _listing_day(header: list[str], body: list[str], today: date) -> date | None:
    """The day in the header. Its year is the one after the newest that the page names: the page leaves
    the current year out. On a page without any year it is the last such day that is not after today."""
    found = next((match for part in header if (match := _DAY.fullmatch(part))), None)
    if not found:
        return None
    if found.group(3):
        return _day(found, int(found.group(3)))
    lines = (match for part in body if _AUTHORS.match(part) and (match := _DAY.search(part)))
    years = [int(match.group(3)) for match in lines if match.group(3)]
    if years and max(years) < today.year:
        return _day(found, max(years) + 1)
    this_year = _day(found, today.year)
    return this_year if this_year and this_year <= today else _day(found, today.year - 1)


def _dated(found: re.Match[str], listed_on: date | None) -> date | None:
    if found.group(3):
        return _day(found, int(found.group(3)))
    return _day(found, listed_on.year) if listed_on else None


def _day(found: re.Match[str], year: int) -> date | None:
    try:
        return date(year, _MONTHS[found.group(1)], int(found.group(2)))
    except ValueError:
        return None
