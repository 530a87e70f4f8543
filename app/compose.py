"""PURE. Pick, section, never repeat → a Digest, or the reason why there is none today.

A paper's relevance to a reader is 1 − Π (1 − r)^w over their interests: it fits well when it fits one of
them well. It is sent from FLOOR on, the cut-off with about the best F1 over real interests. Its place is
relevance × (1 + TREND·trend) × FRESH^days since it was listed: interests decide, votes and freshness
break ties.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from app import gist
from app.records import Digest, Match, PaperView, Pick, Section, Skip, Trend, WhenEmpty, Wish

FLOOR = 0.025
TREND = 0.3
FRESH = 0.9
SHOWN_AUTHORS = 3


@dataclass(frozen=True)
class Reader:
    """What a reader asked for."""

    wishes: tuple[Wish, ...]
    min_papers: int = 1
    max_papers: int = 10
    when_empty: WhenEmpty = WhenEmpty.SKIP


@dataclass(frozen=True)
class Shelf:
    """What there is to pick from: the candidates, how they trend, and which fit which interest."""

    papers: Mapping[int, PaperView]
    trends: Mapping[int, Trend]
    matches: Mapping[str, Mapping[int, Match]]  # by the text of the interest, then by paper
    excluded: Mapping[str, frozenset[int]]  # by the text of the interest: papers its exclusions forbid
    today: date
    leaving: date  # what was last listed before this day is too old when the next digest is made
    quiet: str = ""  # why the sources are silent today, if they are


@dataclass(frozen=True)
class _Choice:
    """A paper, the interest that it fits best, and its place."""

    paper: PaperView
    wish: Wish
    reason: str
    score: float


def compose(edition: str, reader: Reader, shelf: Shelf, already: frozenset[int]) -> Digest | Skip:
    """The digest of one reader, without any paper of `already`."""
    fresh = {number: paper for number, paper in shelf.papers.items() if number not in already}
    chosen = choose(reader, shelf, fresh) if reader.wishes else []
    if not chosen:
        if reader.wishes and reader.when_empty is WhenEmpty.SKIP:
            return Skip(_silence(shelf, len(fresh)))
        return _trending(edition, reader, shelf, fresh)
    if len(chosen) < reader.min_papers and not _any_leaves(chosen, shelf):
        found = f"{len(chosen)} of at least {reader.min_papers} papers"
        return Skip(f"{found}: kept for the next digest")
    sections = tuple(
        Section(wish.text, picks)
        for wish in reader.wishes
        if (picks := tuple(_pick(choice, shelf) for choice in chosen if choice.wish == wish))
    )
    return Digest(edition, sections, considered=len(fresh))


def choose(reader: Reader, shelf: Shelf, fresh: Mapping[int, PaperView]) -> list[_Choice]:
    """The papers that are relevant enough, best first.

    Every interest's own best paper comes before any other, so a loud interest drowns no quiet one.
    """
    fits = {number: options for number, paper in fresh.items() if (options := _fits(reader, shelf, paper))}
    champions = {wish.text: _champion(wish, shelf, fits) for wish in reader.wishes}
    first = set(champions.values())
    order = sorted(fits, key=lambda number: (number not in first, -fits[number][0].score, number))
    chosen: dict[int, _Choice] = {}
    for number in order:
        choice = next((option for option in fits[number] if _has_room(option, chosen, champions)), None)
        if choice and len(chosen) < reader.max_papers:
            chosen[number] = choice
    return sorted(chosen.values(), key=lambda choice: (-choice.score, choice.paper.id))


def _champion(wish: Wish, shelf: Shelf, fits: Mapping[int, list[_Choice]]) -> int | None:
    """The paper that would come first if this were the only interest."""
    hits = shelf.matches.get(wish.text, {})
    own = {
        number: _score(relevance, shelf, options[0].paper)
        for number, options in fits.items()
        if number in hits and (relevance := combined([(hits[number].relevance, wish.weight)])) >= FLOOR
    }
    return min(own, key=lambda number: (-own[number], number), default=None)


def combined(relevances: Iterable[tuple[float, float]]) -> float:
    """The relevance of a paper to a reader, from (relevance, weight) of each interest."""
    return 1.0 - math.prod(math.pow(1 - relevance, weight) for relevance, weight in relevances)


def _has_room(option: _Choice, chosen: Mapping[int, _Choice], champions: Mapping[str, int | None]) -> bool:
    """Whether the interest's quota has a place; one is kept for the interest's own best paper."""
    wish = option.wish
    if wish.quota is None:
        return True
    champion = champions[wish.text]
    kept = champion is not None and champion not in chosen and champion != option.paper.id
    return sum(choice.wish == wish for choice in chosen.values()) + kept < wish.quota


def _fits(reader: Reader, shelf: Shelf, paper: PaperView) -> list[_Choice]:
    """The interests that a relevant paper may stand under, the best first; none if it is not relevant."""
    found = [
        (wish, hit)
        for wish in reader.wishes
        if (hit := shelf.matches.get(wish.text, {}).get(paper.id)) is not None
    ]
    relevance = combined((hit.relevance, wish.weight) for wish, hit in found)
    if relevance < FLOOR:
        return []
    score = _score(relevance, shelf, paper)
    found.sort(key=lambda pair: (-pair[1].relevance * pair[0].weight, pair[0].text))
    best = found[0][1].relevance
    # A second interest may take it only where it is nearly as much at home.
    return [_Choice(paper, wish, hit.reason, score) for wish, hit in found if hit.relevance >= best / 2]


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
    muted = frozenset[int]().union(*(shelf.excluded.get(wish.text, ()) for wish in reader.wishes))
    allowed = [paper for paper in fresh.values() if paper.id not in muted]
    places = {paper.id: _trend(shelf, paper).score * _freshness(shelf, paper) for paper in allowed}
    ranked = sorted(allowed, key=lambda paper: (-places[paper.id], paper.id))
    if not ranked:
        return Skip(_silence(shelf, 0))
    nobody = Wish("")
    picks = [
        _pick(_Choice(paper, nobody, "trending now", places[paper.id]), shelf)
        for paper in ranked[: reader.max_papers]
    ]
    note = "Nothing new matched your interests, so here is what is trending." if reader.wishes else ""
    return Digest(edition, (Section("", tuple(picks)),), note, considered=len(fresh))


def _score(relevance: float, shelf: Shelf, paper: PaperView) -> float:
    return relevance * (1 + TREND * _trend(shelf, paper).score) * _freshness(shelf, paper)


def _freshness(shelf: Shelf, paper: PaperView) -> float:
    return math.pow(FRESH, max(0, (shelf.today - (paper.last_listed_on or shelf.today)).days))


def _pick(choice: _Choice, shelf: Shelf) -> Pick:
    paper = choice.paper
    return Pick(
        paper_id=paper.id,
        title=paper.title,
        authors=byline(paper.authors, paper.author_count),
        summary=summary(paper),
        reason=choice.reason,
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
