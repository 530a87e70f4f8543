"""PURE. Hugging Face search pages saved as text. They contain titles but no ids.

Paragraphs are separated by blank lines. A header with a day is followed by the title and abstract of each
paper. On some pages, a line such as "• 4 authors · Apr 13 2" follows each abstract. It contains a day, and
may contain a year and a number of comments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date

from app.errors import UnreadableResponse
from app.papers.sources import json_rows
from app.text import sanitize
from app.types import PaperRecord, ParseResult, Rejection

NO_ABSTRACT = "the title has no abstract"
MARKER = "Get trending papers in your email inbox"
LONGEST_TITLE = 300
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_HEADER = re.compile(
    rf"new|{MARKER}!?|Subscribe|Daily Papers|Trending Papers|by ?AK and the research community", re.IGNORECASE
)
_DAY = re.compile(rf"({'|'.join(_MONTHS)})[a-z]*\.? (\d{{1,2}})(?:, (\d{{4}}))?(?: +(\d{{1,6}}))?")
_AUTHORS = re.compile(r"^\s*•?\s*(\d{1,5}) authors?\b", re.IGNORECASE)


@dataclass
class _PartialPaper:
    """A paper whose paragraphs are being read."""

    title: str
    abstract: list[str] = field(default_factory=list)
    author_count: int = 0
    date_match: re.Match[str] | None = None


def looks_like(text: str) -> bool:
    """Return whether a text looks like a saved search page."""
    return MARKER in text[:2_000]


def parse(data: bytes | str, day: date | None = None, *, today: date) -> ParseResult:
    """Return the papers on a page. Raise UnreadableResponse if the text is not a saved search page.

    `day` overrides the day in its header. If that day has no year, `today` is used to find it.
    """
    text = json_rows.text_of(data)
    json_rows.refuse_markup(text, "a search page saved as text")
    if not looks_like(text):
        raise UnreadableResponse("This is not a saved search page: its header is missing.")
    paragraphs = [part.strip() for part in re.split(r"\n[ \t\r]*\n", text) if part.strip()]
    is_header = (_HEADER.fullmatch(part) or _DAY.fullmatch(part) for part in paragraphs)
    header_length = next((n for n, matches in enumerate(is_header) if not matches), len(paragraphs))
    header, body = paragraphs[:header_length], paragraphs[header_length:]
    listed_on = day or _listing_day(header, body, today)
    rows: list[PaperRecord | Rejection] = []
    rank = 0
    for number, paper in enumerate(_papers(body), 1):
        if not (paper.abstract or paper.author_count):
            rows.append(Rejection(NO_ABSTRACT, number, paper.title[:100]))
            continue
        rank += 1
        published_on = comments = None
        if match := paper.date_match:
            year, comments = match.group(3) or (listed_on.year if listed_on else None), match.group(4)
            published_on = _day(match, int(year)) if year else None
        record = PaperRecord(
            title=paper.title,
            abstract=sanitize.clean_text(" ".join(paper.abstract)),
            author_count=paper.author_count,
            published_on=published_on,
            listed_on=listed_on,
            rank=rank if listed_on else None,
            comments=int(comments) if comments else None,
        )
        rows.append(record)
    return json_rows.collect(rows)


def _papers(body: list[str]) -> Iterator[_PartialPaper]:
    """Yield the papers. A paper may lack its last line or have an abstract of several paragraphs."""
    current: _PartialPaper | None = None
    for index, part in enumerate(body):
        authors = _AUTHORS.match(part)
        if authors and current:
            current.author_count = int(authors.group(1))
            current.date_match = _DAY.search(part)
            yield current
            current = None
        elif current is None:
            current = _PartialPaper(sanitize.title(part))
        elif current.abstract and _is_title(part, body[index + 1 : index + 2]):
            yield current
            current = _PartialPaper(sanitize.title(part))
        else:
            current.abstract.append(part)
    if current:
        yield current


def _is_title(part: str, following: list[str]) -> bool:
    """Return whether a paragraph after an abstract is a title: a short one that an abstract follows."""
    if "\n" in part or len(part) > LONGEST_TITLE or not following or _AUTHORS.match(following[0]):
        return False
    return len(following[0]) > len(part) and not part.endswith((".", ":", ";", ","))


def _listing_day(header: list[str], body: list[str], today: date) -> date | None:
    """Return the day in the header, or None.

    A page omits the year in which it was saved. If the header has no year, assume the year after the newest
    year on the page. If the page has no year, or its newest year is the current one, return the latest date
    up to `today` with the header's month and day.
    """
    day = next((match for part in header if (match := _DAY.fullmatch(part))), None)
    if not day:
        return None
    if day.group(3):
        return _day(day, int(day.group(3)))
    lines = (match for part in body if _AUTHORS.match(part) and (match := _DAY.search(part)))
    years = [int(match.group(3)) for match in lines if match.group(3)]
    if years and max(years) < today.year:
        return _day(day, max(years) + 1)
    this_year = _day(day, today.year)
    return this_year if this_year and this_year <= today else _day(day, today.year - 1)


def _day(match: re.Match[str], year: int) -> date | None:
    try:
        return date(year, _MONTHS[match.group(1)], int(match.group(2)))
    except ValueError:
        return None
