"""PURE. Pick, section, never repeat → a Digest, or the reason why there is none today.

A paper's relevance to a reader is 1 − Π (1 − r)^w over their interests and what they liked: it fits well
when it fits one of them well. It is sent from FLOOR on. Its score is relevance × (1 + TREND·trend) ×
FRESH^days since it was listed. Papers are then taken one by one, each time the one with the best score less
its likeness to those taken before (maximal marginal relevance: Carbonell and Goldstein 1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any

import numpy as np

from app import gist
from app.records import Digest, PaperView, Pick, Section, Skip, Trend, WhenEmpty, Wish

Vector = np.ndarray[Any, Any]

FLOOR = 0.33
TREND = 0.3
FRESH = 0.9
DIVERSITY = 0.3  # λ of MMR
CONSIDERED = 4  # times as many papers as there is room for: what comes later is never taken
SHOWN_AUTHORS = 3


@dataclass(frozen=True)
class Reader:
    """What a reader asked for."""

    wishes: tuple[Wish, ...]
    min_papers: int = 1
    max_papers: int = 10
    when_empty: WhenEmpty = WhenEmpty.SKIP
    taste: Mapping[int, float] = field(default_factory=dict)  # relevance by paper; under 0: rather not
    why_liked: Callable[[int], str] = str  # the reason why a paper is to their taste


@dataclass(frozen=True)
class Shelf:
    """What there is to pick from: the candidates, how they trend, and which fit which interest."""

    papers: Mapping[int, PaperView]
    trends: Mapping[int, Trend]
    matches: Mapping[str, Mapping[int, float]]  # relevance by the text of the interest, then by paper
    excluded: Mapping[str, frozenset[int]]  # by the text of the interest: papers its exclusions forbid
    reason: Callable[[str, int], str]  # why a paper fits an interest
    vectors: Mapping[int, Vector]  # unit rows by paper, whose products are likenesses
    today: date
    leaving: date  # what was last listed before this day is too old when the next digest is made
    quiet: str = ""  # why the sources are silent today, if they are


LIKED = Wish("")  # the place of what fits by taste alone


@dataclass(frozen=True)
class _Choice:
    """A paper, the interest that it fits best, and its place."""

    paper: PaperView
    wish: Wish
    score: float


def compose(edition: str, reader: Reader, shelf: Shelf, already: frozenset[int]) -> Digest | Skip:
    """The digest of one reader, without any paper of `already`."""
    fresh = {number: paper for number, paper in shelf.papers.items() if number not in already}
    chosen = choose(reader, shelf, fresh).chosen
    if not chosen:
        if reader.wishes and reader.when_empty is WhenEmpty.SKIP:
            return Skip(_silence(shelf, len(fresh)))
        return _trending(edition, reader, shelf, fresh)
    if len(chosen) < reader.min_papers and not _any_leaves(chosen, shelf):
        found = f"{len(chosen)} of at least {reader.min_papers} papers"
        return Skip(f"{found}: kept for the next digest")
    sections = tuple(
        Section(wish.text, picks, "" if wish.text else "Close to what you liked")
        for wish in (*reader.wishes, LIKED)
        if (picks := tuple(_pick(c, shelf, _reason(c, reader, shelf)) for c in chosen if c.wish == wish))
    )
    return Digest(edition, sections, considered=len(fresh))


class Fate(StrEnum):
    """What becomes of a paper that is relevant enough."""

    PICKED = "picked"
    QUOTA = "quota"  # its interests have as many papers already as their quotas allow
    FULL = "full"  # the digest has as many as the reader wants
    BEHIND = "behind"  # so many have better scores that it is not looked at


@dataclass(frozen=True)
class Selection:
    """What is picked, best first, and what becomes of every paper that is relevant enough, by score."""

    chosen: list[_Choice]
    fates: dict[int, Fate]


def choose(reader: Reader, shelf: Shelf, fresh: Mapping[int, PaperView]) -> Selection:
    """Pick among the papers that are relevant enough.

    Every interest's own best paper comes before any other, so a loud interest drowns no quiet one.
    """
    muted = _muted(reader, shelf)
    likely = _likely(reader, shelf, muted)
    fits = {n: options for n in likely if n in fresh and (options := _fits(reader, shelf, fresh[n], muted))}
    champions = {wish.text: _champion(wish, shelf, fits) for wish in reader.wishes}
    first = {number for number in champions.values() if number is not None}
    ranked = sorted(fits, key=lambda number: (-fits[number][0].score, number))
    rest = [number for number in ranked if number not in first][: CONSIDERED * reader.max_papers]
    chosen: dict[int, _Choice] = {}
    without_room = set[int]()
    line = _Line(shelf.vectors)
    for group in ([number for number in ranked if number in first], rest):
        for number in line.up(group, [fits[number][0].score for number in group]):
            if len(chosen) == reader.max_papers:
                break
            choice = next((option for option in fits[number] if _has_room(option, chosen, champions)), None)
            if choice:
                chosen[number] = choice
                line.take(number)
            else:
                without_room.add(number)
    passed = Fate.FULL if len(chosen) == reader.max_papers else Fate.BEHIND
    fates = {n: Fate.PICKED if n in chosen else Fate.QUOTA if n in without_room else passed for n in ranked}
    return Selection(sorted(chosen.values(), key=lambda choice: (-choice.score, choice.paper.id)), fates)


class _Line:
    """Papers waiting their turn: the best score first, less the likeness to what was taken already."""

    def __init__(self, vectors: Mapping[int, Vector]) -> None:
        self._vectors = vectors
        self._taken: list[Vector] = []

    def take(self, number: int) -> None:
        if number in self._vectors:
            self._taken.append(self._vectors[number])

    def up(self, numbers: Sequence[int], scores: Sequence[float]) -> Iterator[int]:
        """These papers, one after the other; `scores` are theirs, in the same order, the best first."""
        if not numbers or any(number not in self._vectors for number in numbers):
            yield from numbers
            return
        rows = np.stack([self._vectors[number] for number in numbers])
        worth = np.array(scores) / scores[0] * (1 - DIVERSITY)
        likeness = np.zeros(len(numbers))
        seen = 0
        for _ in numbers:
            for taken in self._taken[seen:]:
                likeness = np.maximum(likeness, rows @ taken)
            seen = len(self._taken)
            best = int(np.argmax(worth - DIVERSITY * likeness))
            worth[best] = -np.inf
            yield numbers[best]


def _champion(wish: Wish, shelf: Shelf, fits: Mapping[int, list[_Choice]]) -> int | None:
    """The paper that would come first if this were the only interest."""
    hits = shelf.matches.get(wish.text, {})
    own = {
        number: _score(relevance, shelf, options[0].paper)
        for number, options in fits.items()
        if number in hits and (relevance := combined([(hits[number], wish.weight)])) >= FLOOR
    }
    return min(own, key=lambda number: (-own[number], number), default=None)


def combined(relevances: Iterable[tuple[float, float]]) -> float:
    """The relevance of a paper to a reader, from (relevance, weight) of each interest, in any order."""
    return 1.0 - math.prod(sorted(math.pow(1 - relevance, weight) for relevance, weight in relevances))


def _has_room(option: _Choice, chosen: Mapping[int, _Choice], champions: Mapping[str, int | None]) -> bool:
    """Whether the interest's quota has a place; one is kept for the interest's own best paper."""
    wish = option.wish
    if wish.quota is None:
        return True
    champion = champions[wish.text]
    kept = champion is not None and champion not in chosen and champion != option.paper.id
    return sum(choice.wish == wish for choice in chosen.values()) + kept < wish.quota


def _likely(reader: Reader, shelf: Shelf, muted: Set[int]) -> list[int]:
    """The papers that may be relevant enough: a quick look, so that few need a closer one."""
    lacking = {number: 1 - liked for number, liked in reader.taste.items() if number not in muted}
    for wish in reader.wishes:
        for number, hit in shelf.matches.get(wish.text, {}).items():
            lacking[number] = lacking.get(number, 1.0) * (1 - hit) ** wish.weight
    most = 1 - FLOOR + 1e-9  # a product in another order differs in its last digits
    return [number for number, lack in lacking.items() if lack <= most]


def _fits(reader: Reader, shelf: Shelf, paper: PaperView, muted: Set[int]) -> list[_Choice]:
    """The interests that a relevant paper may stand under, the best first; none if it is not relevant."""
    found = _hits(reader, shelf, paper, muted)
    relevance = combined((hit, wish.weight) for wish, hit in found)
    if relevance < FLOOR:
        return []
    score = _score(relevance, shelf, paper)
    found.sort(key=lambda pair: (-pair[1] * pair[0].weight, pair[0].text))
    best = found[0][1]
    # A second interest may take it only where it is nearly as much at home, or would bring it by itself.
    return [
        _Choice(paper, wish, score)
        for wish, hit in found
        if hit >= best / 2 or combined([(hit, wish.weight)]) >= FLOOR
    ]


def _hits(reader: Reader, shelf: Shelf, paper: PaperView, muted: Set[int]) -> list[tuple[Wish, float]]:
    """The relevance of a paper to each interest that it fits at all, and to the reader's taste."""
    found = [
        (wish, hit)
        for wish in reader.wishes
        if (hit := shelf.matches.get(wish.text, {}).get(paper.id)) is not None
    ]
    if paper.id in reader.taste and paper.id not in muted:
        found.append((LIKED, reader.taste[paper.id]))
    return found


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a paper is to a reader."""

    relevance: float
    trend: Trend
    freshness: float
    score: float


def weigh(reader: Reader, shelf: Shelf, paper: PaperView) -> Weighed:
    """Every number of a paper, whether or not it is relevant enough."""
    hits = _hits(reader, shelf, paper, _muted(reader, shelf))
    relevance = combined((hit, wish.weight) for wish, hit in hits)
    freshness, score = _freshness(shelf, paper), _score(relevance, shelf, paper)
    return Weighed(relevance, _trend(shelf, paper), freshness, score)


def _muted(reader: Reader, shelf: Shelf) -> frozenset[int]:
    """What an exclusion of any interest speaks against: only an interest of its own may bring it."""
    return frozenset[int]().union(*(shelf.excluded.get(wish.text, ()) for wish in reader.wishes))


def _reason(choice: _Choice, reader: Reader, shelf: Shelf) -> str:
    """Why it fits the interest it stands under, and the reader's taste where that agrees."""
    number = choice.paper.id
    said = [shelf.reason(choice.wish.text, number)] if choice.wish.text else []
    if number in reader.taste and (not said or reader.taste[number] >= FLOOR):
        said.append(reader.why_liked(number))
    return "; ".join(filter(None, said))


def _trend(shelf: Shelf, paper: PaperView) -> Trend:
    return shelf.trends.get(paper.id, Trend(0.0, ""))


def _any_leaves(chosen: Sequence[_Choice], shelf: Shelf) -> bool:
    """Whether waiting longer would lose a paper that was found: then a thin digest goes out."""
    return any((choice.paper.last_listed_on or shelf.today) < shelf.leaving for choice in chosen)


def _silence(shelf: Shelf, considered: int) -> str:
    if not considered:
        return f"no new papers. {shelf.quiet}".strip()
    papers = "1 new paper" if considered == 1 else f"{considered} new papers"
    return f"none of the {papers} matched your interests. {shelf.quiet}".strip()


def _trending(edition: str, reader: Reader, shelf: Shelf, fresh: Mapping[int, PaperView]) -> Digest | Skip:
    """What trends most among the papers that no exclusion of the reader speaks against."""
    muted = _muted(reader, shelf)
    allowed = [paper for paper in fresh.values() if paper.id not in muted]
    places = {paper.id: _trend(shelf, paper).score * _freshness(shelf, paper) for paper in allowed}
    ranked = sorted(allowed, key=lambda paper: (-places[paper.id], paper.id))
    if not ranked:
        return Skip(_silence(shelf, 0))
    picks = [
        _pick(_Choice(paper, LIKED, places[paper.id]), shelf, "trending now")
        for paper in ranked[: reader.max_papers]
    ]
    note = "Nothing new matched your interests, so here is what is trending." if reader.wishes else ""
    return Digest(edition, (Section("", tuple(picks)),), note, considered=len(fresh))


def _score(relevance: float, shelf: Shelf, paper: PaperView) -> float:
    return relevance * (1 + TREND * _trend(shelf, paper).score) * _freshness(shelf, paper)


def _freshness(shelf: Shelf, paper: PaperView) -> float:
    return math.pow(FRESH, max(0, (shelf.today - (paper.last_listed_on or shelf.today)).days))


def _pick(choice: _Choice, shelf: Shelf, reason: str) -> Pick:
    paper = choice.paper
    return Pick(
        paper_id=paper.id,
        title=paper.title,
        authors=byline(paper.authors, paper.author_count),
        summary=summary(paper),
        reason=reason,
        trend=_trend(shelf, paper).words,
        url=paper.url,
        pdf_url=paper.pdf_url,
        code_url=paper.code_url,
        project_url=paper.project_url,
        published_on=paper.published_on.isoformat() if paper.published_on else "",
        comments=paper.comments,
        score=round(choice.score, 4),
        summary_by=paper.tldr_by,
    )


def byline(authors: Sequence[str], count: int) -> str:
    """The first authors, and how many more there are."""
    shown = list(authors[:SHOWN_AUTHORS])
    more = max(count, len(authors)) - len(shown)
    if more > 0:
        return f"{', '.join(shown)} and {more} more" if shown else f"{more} authors"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def summary(paper: PaperView) -> str:
    """The source's own summary, or a written one; else the abstract's most telling sentence; else nothing."""
    if 0 < len(paper.tldr) <= gist.LIMIT:
        return paper.tldr
    return gist.summary(paper.title, paper.tldr or paper.abstract)
