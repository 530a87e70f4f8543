"""PURE. Decide whether two records are the same paper.

If both records have arXiv ids, the ids decide. If not, records with the same DOI are the same paper.
Otherwise, the titles decide, including the numbers in them. Records with the same title and the same link
are the same paper, unless their authors or DOIs differ. For all others, the authors or the abstracts must
agree if both records have them. Records that have nothing but the same title are the same paper.

"Part I" and "Part II", or "v1.5" and "v1", are different papers, however similar their titles are. "Editing
Everything" and "Pruning Everything" are different papers unless their abstracts are nearly equal.
"Correction: X" is not the paper X.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from rapidfuzz import fuzz, process

from app.papers.title_differences import differ_harmlessly
from app.papers.title_normalization import PLUS, Title, normalize

# Ratios are computed by rapidfuzz and range from 0 to 100.
TITLE_RATIO = 86.0  # at or above this, two titles are nearly the same
TITLE_RATIO_NAME_MISSING = 90.0  # used if only one title has a name before a colon
TITLE_RATIO_NAME_DIFFERS = 94.0  # used if both titles have a name before a colon
ABSTRACT_RATIO = 60.0  # at or above this, two abstracts count as versions of one abstract
# If two abstracts reach this ratio, their titles may be worded differently. Copies of an abstract have a
# ratio of at least 94, and abstracts of different papers with similar titles a ratio of at most 63.
EQUAL_ABSTRACT_RATIO = 80.0
MIN_RATIO = 50.0  # titles below this are not compared further
SHORT_KEY = 16  # characters: a shorter title, such as "Introduction", does not identify a paper by itself
SHORT_SUBTITLE = 24  # characters: a shorter subtitle, such as "a survey", does not identify a paper
LONG_SUBTITLE = 40  # characters: used instead of SHORT_SUBTITLE if both titles have a name before a colon
MIN_CUT_SPACES = 5  # spaces in a title that was cut off; a title with fewer may be complete
# Two similar titles of one paper share at least this fraction of their letters at the beginning or the end,
# because they differ by at most 14 % and usually in one place.
BLOCK_SHARE = 0.4
BLOCK_CHARS = (8, 32)  # minimum and maximum number of these letters

_LINK_START = re.compile(r"https?://(?:www\.)?", re.IGNORECASE)
_PERSON_WORD = re.compile(r"[^\W\d_]+")


def same_title(a: Title, b: Title) -> bool:
    """Return whether two titles belong to the same paper, judging by the titles alone."""
    return _has_same_letters(a, b) or any(
        _is_cut_off(part, other) or differ_harmlessly(part.expanded, other.expanded, part.names | other.names)
        for part, other in _near_parts(a, b)
    )


def _has_same_letters(a: Title, b: Title) -> bool:
    """Return whether two titles have the same letters and as many plus signs: "X++" differs from "X".

    Unlike a key, the letters include vowel signs: Hindi titles that differ only in these are different.
    """
    return a.letters == b.letters and a.marks.count(PLUS) == b.marks.count(PLUS)


def _is_cut_off(a: Title, b: Title) -> bool:
    """Return whether one title seems to be the other title without its last word."""
    shorter, longer = sorted((a, b), key=lambda title: len(title.normalized))
    if not longer.normalized.startswith(shorter.normalized) or shorter.normalized.count(" ") < MIN_CUT_SPACES:
        return False
    return normalize(longer.text.rpartition(" ")[0]) == shorter.normalized


def _is_near_title(a: Title, b: Title) -> bool:
    """Return whether two titles are similar enough to belong to one paper if the abstracts agree."""
    return _has_same_letters(a, b) or any(True for _ in _near_parts(a, b))


def _near_parts(a: Title, b: Title) -> Iterator[tuple[Title, Title]]:
    """Yield the parts in which two titles are nearly the same: the whole titles, or the parts after a colon.

    One title may lack the name before the colon, or the names in the two titles may differ. "Correction: X"
    and "X" are different papers.
    """
    if _is_similar(a, b, TITLE_RATIO):
        yield a, b
    if a.subtitle and b.subtitle:
        if _is_renamed(a, b):
            yield a.subtitle, b.subtitle
        return
    subtitle, other = (a.subtitle, b) if a.subtitle else (b.subtitle, a)
    if (
        subtitle is not None
        and _both_have(SHORT_SUBTITLE, subtitle, other)
        and _is_similar(subtitle, other, TITLE_RATIO_NAME_MISSING)
        and a.response_words == b.response_words
    ):
        yield subtitle, other


def _is_renamed(a: Title, b: Title) -> bool:
    """Return whether two titles differ only in the name before the colon, and one name is a single word.

    If both have several words before the colon, their papers are different, such as two surveys of one topic.
    """
    if not (a.subtitle and b.subtitle and _both_have(LONG_SUBTITLE, a.subtitle, b.subtitle)):
        return False
    if a.marks != b.marks or a.subtitle.marks != b.subtitle.marks or (a.has_headline and b.has_headline):
        return False
    return fuzz.ratio(a.subtitle.expanded, b.subtitle.expanded, score_cutoff=TITLE_RATIO_NAME_DIFFERS) > 0


def _is_similar(a: Title, b: Title, ratio: float) -> bool:
    return (
        fuzz.ratio(a.normalized, b.normalized, score_cutoff=ratio) > 0
        or fuzz.ratio(a.expanded, b.expanded, score_cutoff=ratio) > 0
    ) and a.marks == b.marks


def _both_have(chars: int, a: Title, b: Title) -> bool:
    return min(len(a.text), len(b.text)) >= chars


@dataclass(frozen=True, slots=True)
class PaperIdentity:
    """The fields that identify a paper."""

    title: str
    arxiv_id: str = ""
    doi: str = ""
    abstract: str = ""
    authors: tuple[str, ...] = ()
    url: str = ""


def same_paper_reason(a: PaperIdentity, b: PaperIdentity) -> str:
    """Return the reason why two records are the same paper, such as "same DOI", or "" if there is none."""
    if a.arxiv_id and b.arxiv_id:
        return "same arXiv ID" if a.arxiv_id == b.arxiv_id else ""
    if a.doi and a.doi == b.doi:
        return "same DOI"
    return _same_title_reason(a, b)


def _same_title_reason(a: PaperIdentity, b: PaperIdentity) -> str:
    title, other = Title(a.title), Title(b.title)
    has_same_letters = bool(title.key) and _has_same_letters(title, other)
    agreements = []  # whether the authors and the abstracts agree, if both records have them
    abstract_ratio = 0.0
    if a.authors and b.authors:
        agreements.append(bool(_surnames(a.authors) & _surnames(b.authors)))
    if has_same_letters and _has_same_link(a, b) and all(agreements) and not (a.doi and b.doi):
        return "same title"  # even if the abstracts differ
    if a.abstract and b.abstract:
        abstract_ratio = fuzz.ratio(a.abstract[:600], b.abstract[:600])
        agreements.append(abstract_ratio >= ABSTRACT_RATIO)
    if agreements and not any(agreements):
        return ""
    if has_same_letters:
        is_certain = any(agreements) or len(title.key) >= SHORT_KEY
        return "same title" if is_certain or (_has_only_title(a) and _has_only_title(b)) else ""
    if min(len(title.key), len(other.key)) < SHORT_KEY:
        return ""
    if same_title(title, other):
        return "nearly the same title"
    if abstract_ratio >= EQUAL_ABSTRACT_RATIO and _is_near_title(title, other):
        return "similar title and same abstract"
    return ""


def _has_same_link(a: PaperIdentity, b: PaperIdentity) -> bool:
    """Return whether two records have the same link, ignoring "https://www." and a slash at the end."""
    links = [_LINK_START.sub("", record.url, count=1).rstrip("/") for record in (a, b)]
    return bool(links[0]) and links[0] == links[1]


def _has_only_title(record: PaperIdentity) -> bool:
    return not (record.arxiv_id or record.doi or record.abstract or record.authors or record.url)


def _surnames(authors: Iterable[str]) -> set[str]:
    """Return the longest and the last word of each name.

    Sources differ in word order, initials and accents. The last word is needed because another source may
    abbreviate the longest: "Yousef Kotp" and "Y. Kotp".
    """
    plain = (unicodedata.normalize("NFKD", name).casefold() for name in authors)
    words = (_PERSON_WORD.findall("".join(c for c in name if not unicodedata.combining(c))) for name in plain)
    return {word for name in words if name for word in (max(name, key=len), name[-1]) if len(word) > 1}


def block_ranges(title: Title) -> tuple[list[str], list[str]]:
    """Return the prefixes that the keys of similar titles may have, and those of their reversed keys.

    The part after the colon gets its own prefixes, because other sources may omit the name before the colon.
    """
    parts = [title]
    if title.subtitle and len(title.subtitle.key) >= SHORT_KEY:
        parts.append(title.subtitle)
    starts, ends = dict[str, None](), dict[str, None]()
    for key in (part.key for part in parts if len(part.key) >= BLOCK_CHARS[0]):
        length = min(max(int(len(key) * BLOCK_SHARE), BLOCK_CHARS[0]), BLOCK_CHARS[1])
        starts[key[:length]] = None
        ends[key[: -length - 1 : -1]] = None
    return [*starts], [*ends]


def nearest(title: Title, others: Mapping[int, Title], limit: int) -> list[int]:
    """Return the ids of at most `limit` titles that are the same as `title` or similar, nearest first.

    `others` maps ids to titles.
    """
    texts = {other_id: other.normalized for other_id, other in others.items()}
    scored = process.extract(title.normalized, texts, scorer=fuzz.ratio, score_cutoff=MIN_RATIO, limit=None)
    ranked = sorted((-score, other_id) for _, score, other_id in scored)
    near = (other_id for _, other_id in ranked if _is_near_title(title, others[other_id]))
    return list(islice(near, limit))
