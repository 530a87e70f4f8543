"""PURE. Is this the same paper? And what is known of it, when several records say different things.

Ids decide where there are any: one arXiv id is one paper, two are two. Without them titles do, with the
numbers in them, and the authors and abstracts where both have them: "Part I" and "Part II", or "v1.5"
and "v1", are different papers however alike their titles are.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from heapq import nsmallest
from itertools import chain, islice
from typing import Any

from rapidfuzz import fuzz, process

from app.types import PaperRecord, SourceKind

NEAR = 86.0  # of 100: rapidfuzz's ratio of two titles
VERY_NEAR = 60.0  # of 100: abstracts of one paper, however edited
KEY_CHARS = 1_000
SHORT_KEY = 16  # "introduction" is the title of many papers: it takes more than a title to recognise one
UNNAMED = 90.0  # the same, where one title lacks the name that the other has before its colon
RENAMED = 94.0  # the same, where both have a name and the names differ
SHORT_REST = 24  # "a survey" after a colon tells nothing
LONG_REST = 40
RARE = 400  # a word in more titles than this finds nothing by itself
BLOCK_WORDS = 6
MOST_COMPARED = 300  # titles
WORTH_A_LOOK = 50.0

_FORMATTING = re.compile(
    r"\\?(?:text(?:tt|bf|it|sc|rm|sf)|math(?:bf|rm|cal|bb|it|sf|tt)|operatorname|underline|emph|boldsymbol)\s*\{"
    r"|\\text\{"
)
_SPOKEN = {
    "ϕ": "phi",
    "ϵ": "epsilon",
    "ϑ": "theta",
    "ς": "sigma",
    "×": "times",
    "∞": "infty",
    "→": "rightarrow",
}


def _spoken(char: str) -> str:
    """A Greek letter or sign by its name in LaTeX: sources show the one or the other."""
    name = unicodedata.name(char, "")
    if name.startswith("GREEK") and " LETTER " in name:
        return name.rpartition(" LETTER ")[2].partition(" ")[0].lower().replace("lamda", "lambda")
    return _SPOKEN.get(char, char)


_NOT_WORD = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_ROMAN = re.compile(r"(?:x{0,3})(?:ix|iv|v?i{0,3})")
_ABOUT_ANOTHER = {"reply", "comment", "erratum", "corrigendum", "addendum", "correction", "rebuttal"}
_SHORT_FOR = {
    "rl": "reinforcement learning",
    "llm": "large language model",
    "llms": "large language models",
    "vlm": "vision language model",
    "vlms": "vision language models",
}
_PERSON_WORD = re.compile(r"[^\W\d_]+")


def title_key(title: str) -> str:
    """A title's letters and digits alone, without TeX, case and accents."""
    return _flat(title).replace(" ", "")[:KEY_CHARS]


def _flat(title: str) -> str:
    """A title as plain words, for comparing."""
    text = unicodedata.normalize("NFKD", _FORMATTING.sub("", title))
    if not text.isascii():
        text = "".join(map(_spoken, text))
    # Combining accents vanish without a trace; everything else that is no letter parts two words.
    text = "".join(char for char in text if not unicodedata.combining(char)).casefold()
    if not text.isascii():
        return " ".join("".join(char if char.isalnum() else " " for char in text).split())
    return _NOT_WORD.sub(" ", text).strip()


def version_marks(title: str) -> tuple[str, ...]:
    """The numbers and version words of a title: they must be the same in two titles of one paper."""
    text = unicodedata.normalize("NFKD", title).casefold()
    numbers = _NUMBER.findall(text)
    romans = [word for word in _flat(title).split() if word != "i" and word and _ROMAN.fullmatch(word)]
    return tuple(sorted(numbers + romans + [word for word in _flat(title).split() if word in _ABOUT_ANOTHER]))


def same_title(a: str, b: str) -> bool:
    """Whether two titles are one paper's, when nothing else is known."""
    return _same(Title(a), Title(b))


class Title:
    """A title, and what comparing it takes, each computed once."""

    __slots__ = ("_marks", "_rest", "flat", "key", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.flat = _flat(text)
        self.key = self.flat.replace(" ", "")[:KEY_CHARS]
        self._marks: tuple[str, ...] | None = None
        self._rest: Title | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        if self._marks is None:
            self._marks = version_marks(self.text)
        return self._marks

    @property
    def rest(self) -> Title | None:
        """What stands behind the name and its colon, if anything does."""
        if self._rest is None and (rest := self.text.partition(": ")[2]):
            self._rest = Title(rest)
        return self._rest


def _same(a: Title, b: Title) -> bool:
    return a.key == b.key or _near(a, b)


def _near(a: Title, b: Title) -> bool:
    """Alike as a whole; or where one lost the name before its colon; or where only that name differs."""
    if _alike(a, b, NEAR):
        return True
    if a.rest and b.rest:
        return _renamed(a.rest, b.rest)
    shorter, other = (a.rest, b) if a.rest else (b.rest, a)
    return shorter is not None and _telling(shorter, other, SHORT_REST) and _alike(shorter, other, UNNAMED)


def _alike(a: Title, b: Title, ratio: float) -> bool:
    return fuzz.ratio(a.flat, b.flat, score_cutoff=ratio) > 0 and a.marks == b.marks


def _renamed(a: Title, b: Title) -> bool:
    if not _telling(a, b, LONG_REST) or a.marks != b.marks:
        return False
    return fuzz.ratio(_spell_out(a.flat), _spell_out(b.flat), score_cutoff=RENAMED) > 0


def _telling(a: Title, b: Title, chars: int) -> bool:
    return min(len(a.text), len(b.text)) >= chars


def _spell_out(flat: str) -> str:
    return " ".join(_SHORT_FOR.get(word, word) for word in flat.split())


@dataclass(frozen=True, slots=True)
class PaperIdentity:
    """What recognising a paper needs to know of it."""

    title: str
    arxiv_id: str = ""
    doi: str = ""
    abstract: str = ""
    authors: tuple[str, ...] = ()


def same_paper_reason(a: PaperIdentity, b: PaperIdentity) -> str:
    """Why these two are one paper, in a few words; "" when they are not, as far as one can tell."""
    if a.arxiv_id and b.arxiv_id:
        return "same arXiv id" if a.arxiv_id == b.arxiv_id else ""
    if a.doi and a.doi == b.doi:
        return "same DOI"
    agreed = _agreement(a, b)
    if agreed is False:
        return ""
    title, other = Title(a.title), Title(b.title)
    if title.key and title.key == other.key:
        return "same title" if agreed or len(title.key) >= SHORT_KEY else ""
    if min(len(title.key), len(other.key)) >= SHORT_KEY and _near(title, other):
        return "nearly the same title"
    return ""


def _agreement(a: PaperIdentity, b: PaperIdentity) -> bool | None:
    """Whether authors or abstracts agree; None where the two have neither in common to compare."""
    votes = []
    if a.authors and b.authors:
        votes.append(bool(_surnames(a.authors) & _surnames(b.authors)))
    if a.abstract and b.abstract:
        votes.append(fuzz.ratio(a.abstract[:600], b.abstract[:600]) >= VERY_NEAR)
    return any(votes) if votes else None


def _surnames(authors: Iterable[str]) -> set[str]:
    """The longest word of each name: order, initials and accents differ from source to source."""
    plain = (unicodedata.normalize("NFKD", name).casefold() for name in authors)
    words = (_PERSON_WORD.findall("".join(c for c in name if not unicodedata.combining(c))) for name in plain)
    return {max(found, key=len) for found in words if found}


class TitleIndex:
    """Which known titles may be near a new one: those that share some of its rarest words.

    A search compares at most MOST_COMPARED titles, those that share the most of these words, so that an
    archive full of similar titles costs no more than any other.
    """

    def __init__(self) -> None:
        self._titles: dict[int, Title] = {}
        self._by_word: defaultdict[str, set[int]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._titles)

    def add(self, key: int, title: str) -> None:
        if key in self._titles:
            self.remove(key)
        self._titles[key] = added = Title(title)
        for word in set(added.flat.split()):
            self._by_word[word].add(key)

    def remove(self, key: int) -> None:
        for word in set(self._titles.pop(key).flat.split()):
            self._by_word[word].discard(key)

    def near(self, title: str, limit: int | None = None) -> list[int]:
        """The keys of titles that are the same or nearly so, nearest first."""
        wanted = Title(title)
        flats = {key: self._titles[key].flat for key in self._sharing(wanted)}
        scored = process.extract(wanted.flat, flats, scorer=fuzz.ratio, score_cutoff=WORTH_A_LOOK, limit=None)
        likely = sorted((-score, key) for _, score, key in scored)
        return list(islice((key for _, key in likely if _same(wanted, self._titles[key])), limit))

    def _sharing(self, title: Title) -> list[int]:
        """The titles that share enough of the rarest words."""
        by_word = [self._by_word[word] for word in set(title.flat.split()) if word in self._by_word]
        rarest = sorted((keys for keys in by_word if 0 < len(keys) <= RARE), key=len)[:BLOCK_WORDS]
        shared = Counter(chain.from_iterable(rarest))
        least = (min(len(rarest), 3) + 1) // 2
        enough = [key for key, count in shared.items() if count >= least]
        if len(enough) <= MOST_COMPARED:
            return enough
        return nsmallest(MOST_COMPARED, enough, key=lambda key: (-shared[key], key))


# --- what is known of a paper -------------------------------------------------------------------------

FIELDS = (
    "title",
    "abstract",
    "authors",
    "categories",
    "keywords",
    "tldr",
    "url",
    "pdf_url",
    "code_url",
    "project_url",
    "thumbnail_url",
)
SECOND_HAND = (SourceKind.PAGE, SourceKind.FEED)  # they garble formulas: they only fill what is empty
_RANK = {
    SourceKind.PAGE: 0,
    SourceKind.FEED: 1,
    SourceKind.JSONL: 2,
    SourceKind.HUGGINGFACE: 3,
    SourceKind.ARXIV_FEED: 4,
    SourceKind.ARXIV: 5,
}


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a paper that records may change, and as of when each one is."""

    values: Mapping[str, Any]
    versions: Mapping[str, str]
    author_count: int = 0
    published_on: date | None = None


def fields_of(record: PaperRecord, kind: SourceKind) -> Fields:
    """A record as fields, each as of the day of the record."""
    values = {name: getattr(record, name) for name in FIELDS}
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    as_of = record.as_of or record.listed_on or record.published_on or date.min
    version = f"{0 if kind in SECOND_HAND else 1}.{as_of.isoformat()}.{_RANK[kind]}"
    versions = {name: version for name, value in values.items() if value}
    return Fields(values, versions, max(record.author_count, len(record.authors)), record.published_on)


def combine(a: Fields, b: Fields) -> Fields:
    """What two say together. The order of the two, and of any number of folds, does not matter.

    Field by field the newer one wins and an empty one never does; what is as old is decided by the
    values themselves. The count of authors is the largest, the day of publication the earliest.
    """
    values, versions = {}, {}
    for name in FIELDS:
        newer = max((a, b), key=lambda side: _weight(side, name))
        values[name] = newer.values[name]
        if name in newer.versions:
            versions[name] = newer.versions[name]
    days = [day for day in (a.published_on, b.published_on) if day]
    return Fields(values, versions, max(a.author_count, b.author_count), min(days, default=None))


def _weight(side: Fields, name: str) -> tuple[str, str]:
    value = side.values[name]
    return side.versions.get(name, ""), json.dumps(value) if value else ""


def content_hash(fields: Fields) -> str:
    """Changes when what people read changes. Empty fields are left out, so a new one re-hashes nothing."""
    filled = {name: value for name, value in fields.values.items() if value}
    filled |= {"author_count": fields.author_count, "published_on": str(fields.published_on)}
    return hashlib.sha256(json.dumps(filled, sort_keys=True).encode()).hexdigest()
