"""PURE. Text as people read it, and values of the type they should be, out of whatever a source sent.

Every function takes any value at all and answers with "" or None where there is nothing usable in it:
a wrong type in one field costs that field, never the row.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from app.text import characters, latex

TITLE_CHARS = 1_000
ABSTRACT_CHARS = 20_000  # the longest real ones have about 4,000
NAME_CHARS = 200
URL_CHARS = 2_000
AUTHORS_KEPT = 100  # names; the true count is kept beside them
WORDS_KEPT = 40  # keywords, categories
LARGEST = 2_000_000_000  # what an INTEGER column holds

LOCAL_PART = r"(?:\"[^\"\s]{1,64}\"|[^\s<>()\[\],;:\\\"@|=']{1,64})"  # of an e-mail address, as text
EMAIL_ADDRESS = re.compile(LOCAL_PART + r"@[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.){1,9}[A-Za-z0-9-]{1,62}")
_SPACE = re.compile(r"\s+")

_ARXIV_NEW = r"\d{4}\.\d{4,5}"
_ARXIV_OLD = r"[a-z][a-z-]*(?:\.[A-Za-z]{2})?/\d{7}"
_ARXIV_ID = re.compile(rf"(?:^|[/:.\s])({_ARXIV_NEW}|{_ARXIV_OLD})(?:v(\d{{1,3}}))?(?=$|[\s?#.,;)]|\.pdf)")
_BARE_ARXIV_ID = re.compile(rf"({_ARXIV_NEW}|{_ARXIV_OLD})(?:v(\d{{1,3}}))?")
_ARXIV_PLACE = re.compile(r"arxiv", re.IGNORECASE)
_DOI = re.compile(r"\b(10\.\d{4,9}/[^\s\"<>?#]+)", re.IGNORECASE)
_ARXIV_DOI = re.compile(r"10\.48550/arxiv\.(.+)", re.IGNORECASE)
_DAY = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_WITHDRAWN = re.compile(
    r"\bwithdrawn\b|\b(?:paper|article|submission|manuscript) (?:has been|was) (?:retracted|removed)\b",
    re.IGNORECASE,
)


def one_line(value: object, limit: int = NAME_CHARS) -> str:
    """Any text as one line: only what can be seen, single spaces, at most `limit` characters."""
    if not isinstance(value, str):
        return ""
    # Cut before the work, too: ten megabytes of spaces are not worth reading to their end.
    # An accent beside its letter would part a word in two for whoever looks for it.
    text = characters.visible(characters.composed(value[: limit * 4]))
    return _SPACE.sub(" ", text).strip()[:limit].rstrip()


def clean_text(value: object, limit: int = ABSTRACT_CHARS) -> str:
    """A title or abstract, its LaTeX shown as Unicode."""
    return latex_to_text(one_line(value, limit))[:limit]


def title(value: object) -> str:
    return clean_text(value, TITLE_CHARS)


def latex_to_text(text: str) -> str:
    """The same, its LaTeX shown as Unicode: a little longer at most."""
    return one_line(latex.latex_to_unicode(text), len(text) * 4 + 100)


def names(value: object) -> tuple[str, ...]:
    """A list of names, or of anything with a name in it, without the empty ones."""
    if not isinstance(value, list | tuple):
        return ()
    found = (one_line(item.get("name") if isinstance(item, dict) else item) for item in value[:5_000])
    return tuple(latex_to_text(name) for name in found if name)


def words(value: object) -> tuple[str, ...]:
    """Keywords or categories, each once."""
    return tuple(dict.fromkeys(names(value)))[:WORDS_KEPT]


def url(value: object) -> str:
    """An http(s) address, or nothing: it will stand in a mail as a link."""
    if not isinstance(value, str) or len(value) > URL_CHARS:
        return ""
    text = value.strip()
    printable = text.isprintable() and not re.search(r"[\s<>\"\\]", text)
    return text if printable and re.match(r"https?://[^/]", text, re.IGNORECASE) else ""


def non_negative_int(value: object) -> int | None:
    """A figure such as votes: a whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= LARGEST else None


def day(value: object) -> date | None:
    """The day that an ISO date or time begins with. It is never moved to another zone."""
    found = re.match(r"\s*(\d{4}-\d{2}-\d{2})(?:$|[T\s])", value) if isinstance(value, str) else None
    return _date(found.group(1)) if found else None


def utc_day(value: object) -> date | None:
    """The day in UTC of an ISO time with a zone."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        return (moment.astimezone(UTC) if moment.tzinfo else moment).date()
    except (ValueError, OverflowError):
        return None


def day_in(text: str) -> date | None:
    """The first day written as 2026-11-20 anywhere in a text, such as a file's name."""
    found = _DAY.search(text)
    return _date(found.group(0)) if found else None


def _date(text: str) -> date | None:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return None
    return found if 1900 <= found.year <= 2200 else None


def arxiv_id(value: object) -> tuple[str, int]:
    """An arXiv id without its version, and the version (0: not said), out of an id or a URL of one."""
    text = one_line(value, 300)
    whole = _BARE_ARXIV_ID.fullmatch(text)
    if whole is None and _ARXIV_PLACE.search(text):
        whole = _ARXIV_ID.search(text)
    return (whole.group(1), int(whole.group(2) or 0)) if whole else ("", 0)


def doi(value: object) -> str:
    """A DOI in lower case, without its resolver."""
    found = _DOI.search(one_line(value, 300))
    return found.group(1).rstrip(".,;)").lower() if found else ""


def arxiv_id_of_doi(value: str) -> str:
    """The arXiv id that arXiv's own DOIs carry."""
    found = _ARXIV_DOI.fullmatch(value)
    return arxiv_id(found.group(1))[0] if found else ""


def says_withdrawn(comment: str) -> bool:
    """Whether an arXiv comment says that the paper was taken back."""
    return bool(_WITHDRAWN.search(comment))


def redact_addresses(text: str) -> str:
    """Replace each e-mail address by an ellipsis."""
    return EMAIL_ADDRESS.sub("…", text)
