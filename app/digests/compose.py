"""PURE. Pick, section, never repeat → a Digest, or the reason why there is none today.

Of the papers that `ranking` finds relevant enough, each interest's own best comes first. Papers are taken one
by one, each time the one with the best score less its likeness to those taken before (maximal marginal
relevance: Carbonell and Goldstein 1998).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Any

import numpy as np

from app.digests.ranking import (
    ENOUGH,
    FLOOR,
    CandidatePool,
    Matrix,
    Ranked,
    RankingRequest,
    Vector,
    relevance_of,
)
from app.text import summarizer
from app.types import Digest, DigestItem, EmptyDigestPolicy, Interest, PaperView, Section, Skip, Trend

DIVERSITY = 0.3  # λ of MMR
CONSIDERED = 4  # times as many papers as there is room for: enough, where no quota turns any away
SHOWN_AUTHORS = 3
WORDS_NAMED = 3  # of those that no paper has

WELL_VOTED = "more votes than most papers of its day"

BY_PROFILE = Interest("")  # the place of what fits by taste alone


@dataclass(frozen=True)
class _Choice:
    """A paper, the interest that it fits best, and its place."""

    paper: PaperView
    wish: Interest
    score: float


def compose(edition: str, ranked: Ranked) -> Digest | Skip:
    """The digest of one reader."""
    reader, considered = ranked.reader, int(ranked.open.sum())
    chosen = choose(ranked).chosen
    if not chosen:
        if reader.wishes and reader.when_empty is EmptyDigestPolicy.SKIP:
            return Skip(_silence(ranked, considered))
        return _trending(edition, ranked, considered)
    if len(chosen) < reader.min_papers and not _any_leaves(chosen, ranked):
        found = f"{len(chosen)} of at least {reader.min_papers} papers"
        return Skip(f"{found}: kept for the next digest")
    sections = [
        Section(wish.text, picks, "" if wish.text else "Close to what you liked")
        for wish in (*reader.wishes, BY_PROFILE)
        if (picks := tuple(_pick(c, ranked.shelf, _reason(c, ranked)) for c in chosen if c.wish == wish))
    ]
    if beyond := _beyond(ranked, chosen):
        sections.append(Section("", beyond))
    return Digest(edition, tuple(sections), _joined(_silent_before(reader), _unread(reader)), considered)


class SelectionOutcome(StrEnum):
    """What becomes of a paper that is relevant enough."""

    PICKED = "picked"
    QUOTA = "quota"  # its interests have as many papers already as their quotas allow
    FULL = "full"  # the digest has as many as the reader wants


@dataclass(frozen=True)
class Selection:
    """What is picked, best first, and what becomes of every paper that is relevant enough, by score."""

    chosen: list[_Choice]
    fates: dict[int, SelectionOutcome]
    first: frozenset[int]  # each interest's own best, whatever their scores


def choose(ranked: Ranked) -> Selection:
    """Pick among the papers that are relevant enough.

    Every interest's own best paper comes before any other, so a loud interest drowns no quiet one.
    """
    parts = ranked.parts()
    champions = _best_per_interest(ranked, parts)
    first = [number for number in ranked.papers if number in champions.values()]
    rest = [number for number in ranked.papers if number not in champions.values()]
    if all(wish.quota is None for wish in ranked.reader.wishes):
        rest = rest[: CONSIDERED * ranked.reader.max_papers]
    picking = _Selector(ranked, parts, champions, [*first, *rest])
    picking.take_of(first)
    picking.take_of(rest)
    fates = dict.fromkeys(ranked.papers, SelectionOutcome.FULL) | dict.fromkeys(
        picking.without_room, SelectionOutcome.QUOTA
    )
    fates |= dict.fromkeys(picking.chosen, SelectionOutcome.PICKED)
    by_score = sorted(picking.chosen.values(), key=lambda choice: (-choice.score, choice.paper.id))
    return Selection(by_score, fates, frozenset(first))


class _Selector:
    """Papers being picked, each for one of the places that its reader has."""

    def __init__(
        self, ranked: Ranked, parts: Matrix, champions: Mapping[str, int], considered: Sequence[int]
    ) -> None:
        self._ranked, self._champions = ranked, champions
        self._scores = dict(zip(ranked.papers, ranked.scores.tolist(), strict=True))
        self._evidence = dict(zip(ranked.papers, parts.T.tolist(), strict=True))
        self._line = _MmrQueue(considered, ranked.shelf.vectors)
        self.chosen: dict[int, _Choice] = {}
        self.without_room = set[int]()

    def take_of(self, numbers: Sequence[int]) -> None:
        """Pick among these, the best first, while there is room."""
        for number in self._line.up(numbers, [self._scores[number] for number in numbers]):
            if len(self.chosen) == self._ranked.reader.max_papers:
                return
            if home := self._home(number):
                paper = self._ranked.shelf.papers[number]
                self.chosen[number] = _Choice(paper, home, self._scores[number])
                self._line.take(number)
            else:
                self.without_room.add(number)

    def _home(self, number: int) -> Interest | None:
        """The interest under which a paper stands best, of those that have room."""
        homes = _eligible_interests(self._ranked.reader, self._evidence[number])
        return next((wish for wish in homes if self._has_room(wish, number)), None)

    def _has_room(self, wish: Interest, number: int) -> bool:
        """Whether the interest's quota has a place; one is kept for the interest's own best paper."""
        if wish.quota is None:
            return True
        champion = self._champions.get(wish.text, number)
        kept = champion not in self.chosen and champion != number
        return sum(choice.wish == wish for choice in self.chosen.values()) + kept < wish.quota


class _MmrQueue:
    """Papers waiting their turn: the best score first, less the likeness to what was taken already."""

    def __init__(self, numbers: Sequence[int], vectors: Mapping[int, Vector]) -> None:
        known = bool(numbers) and all(number in vectors for number in numbers)
        rows = np.stack([vectors[number] for number in numbers]) if known else np.zeros((len(numbers), 0))
        self._places = {number: place for place, number in enumerate(numbers)}
        self._likeness = rows @ rows.T
        self._nearest = np.zeros(len(numbers))  # likeness to that of the taken which is most like it

    def take(self, number: int) -> None:
        self._nearest = np.maximum(self._nearest, self._likeness[self._places[number]])

    def up(self, numbers: Sequence[int], scores: Sequence[float]) -> Iterator[int]:
        """Some of the papers, one after the other; `scores` are theirs, in the same order, the best first."""
        places = np.array([self._places[number] for number in numbers], np.intp)
        worth = np.array(scores) / max(scores, default=1) * (1 - DIVERSITY)
        for _ in numbers:
            best = int((worth - DIVERSITY * self._nearest[places]).argmax())
            worth[best] = -np.inf
            yield numbers[best]


def _best_per_interest(ranked: Ranked, parts: Matrix) -> dict[str, int]:
    """By the text of the interest, the paper that would come first if it were the only one."""
    if not ranked.papers:
        return {}
    by_id = np.argsort(ranked.columns)  # of equal scores the first counts
    own, columns = parts[:-1, by_id], ranked.columns[by_id]
    scores = np.where(own >= ENOUGH, relevance_of(own) * ranked.shelf.worth[columns], 0)
    best = zip(ranked.reader.wishes, scores.argmax(1).tolist(), scores.max(1).tolist(), strict=True)
    return {wish.text: ranked.papers[by_id[place]] for wish, place, score in best if score}


def _eligible_interests(reader: RankingRequest, evidence: Sequence[float]) -> list[Interest]:
    """The interests that a paper may stand under, the best first, by what each says of it, and the taste."""
    # A second interest may take it only where it is nearly as much at home, or would bring it by itself.
    least = min(max(evidence) / 2, ENOUGH)
    said = zip(evidence, (*reader.wishes, BY_PROFILE), strict=True)
    # A weight says how much an interest counts, not that what fits another better is about it.
    homes = [(each / wish.weight, wish) for each, wish in said if each >= least]
    return [wish for _, wish in sorted(homes, key=lambda home: (-home[0], home[1].text))]


def _reason(choice: _Choice, ranked: Ranked) -> str:
    """Why it fits the interest it stands under, and the reader's taste where that agrees."""
    number, taste = choice.paper.id, ranked.taste
    said = [ranked.shelf.reason(choice.wish.text, number)] if choice.wish.text else []
    if number in taste and (not said or taste[number] >= FLOOR):
        said.append(ranked.reader.why_liked(number))
    return "; ".join(filter(None, said))


def _any_leaves(chosen: Sequence[_Choice], ranked: Ranked) -> bool:
    """Whether waiting longer would lose a paper that was found: then a thin digest goes out."""
    today, leaving = ranked.shelf.today, ranked.reader.leaving
    return any((choice.paper.last_listed_on or today) < leaving for choice in chosen)


def _silence(ranked: Ranked, considered: int) -> str:
    """Why there is no digest: how many papers there were, which words none has, what the calendar says."""
    muted = _kept_out(ranked.kept_out)
    if not considered:
        return _joined(f"no new papers{muted}.", ranked.shelf.quiet)
    found = f"none of the {considered} new papers matched your interests"
    if considered == 1:
        found = "the one new paper did not match your interests"
    words = dict.fromkeys(word for wish in ranked.reader.wishes for word in ranked.shelf.missing(wish.text))
    nowhere = ", ".join(f"“{word}”" for word in [*words][:WORDS_NAMED])
    said = f"{found}{nowhere and f': no paper says {nowhere}'}{muted}."
    return _joined(said, ranked.shelf.quiet, _unread(ranked.reader))


def _silent_before(reader: RankingRequest) -> str:
    """Why no digest came of late: a reader who waited is told when one comes again."""
    if not reader.silences:
        return ""
    edition, reason = reader.silences[-1]
    when = (
        f"on {_day(edition)}" if len(reader.silences) == 1 else f"several times, the last on {_day(edition)}"
    )
    return f"No digest came {when}: {reason.rstrip('.')}."


def _day(edition: str) -> str:
    """2026-03-28 → Saturday, 28 March."""
    day = date.fromisoformat(edition)
    return f"{day:%A}, {day.day} {day:%B}"


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _kept_out(count: int) -> str:
    """How many papers are not there because of words that the reader muted."""
    if not count:
        return ""
    return "; one says what you muted" if count == 1 else f"; {count} say what you muted"


def _trending(edition: str, ranked: Ranked, considered: int) -> Digest | Skip:
    """What trends most, for a reader without interests, or where nothing fits them."""
    reader, shelf = ranked.reader, ranked.shelf
    picks = tuple(
        _pick(choice, shelf, _why_shown(shelf.trend(choice.paper)))
        for choice in itertools.islice(_by_trend(ranked), reader.max_papers)
    )
    if not picks:
        return Skip(_silence(ranked, considered))
    note = "Nothing new matched your interests, so here is what is trending." if reader.wishes else ""
    heading = "" if reader.wishes else "Trending now"
    note = _joined(note, _silent_before(reader), _unread(reader))
    return Digest(edition, (Section("", picks, heading),), note, considered)


def _beyond(ranked: Ranked, chosen: Sequence[_Choice]) -> tuple[DigestItem, ...]:
    """What others vote for, in the places that the interests leave free.

    What fits an interest is not beyond it, even where its quota has no place left. These picks are scored 0:
    the best paper of a digest is one that fits its reader.
    """
    room = min(ranked.reader.beyond, ranked.reader.max_papers - len(chosen))
    fitting = set(ranked.papers)
    voted = (
        _pick(replace(choice, score=0.0), ranked.shelf, WELL_VOTED)
        for choice in _by_trend(ranked)
        if choice.paper.id not in fitting and _is_well_voted(ranked.shelf.trend(choice.paper))
    )
    return tuple(itertools.islice(voted, room))


def _is_well_voted(trend: Trend) -> bool:
    return bool(trend.words) and trend.score > 0.5


def _by_trend(ranked: Ranked) -> Iterator[_Choice]:
    """What trends most among the papers that nothing the reader said speaks against."""
    shelf = ranked.shelf
    excluded = shelf.matches.excluded(ranked.reader.wishes)
    for number, score in shelf.trending:
        fine = number not in excluded and ranked.taste.get(number, 0) >= 0
        if fine and ranked.open[shelf.matches.columns[number]]:
            yield _Choice(shelf.papers[number], BY_PROFILE, score)


def _unread(reader: RankingRequest) -> str:
    """What a reader should know of interests that are left out."""
    if not reader.unread:
        return ""
    texts = ", ".join(reader.unread)
    return (
        f"This could not be understood and was left out: {texts}. Please write it anew in your preferences."
    )


def _why_shown(trend: Trend) -> str:
    """The few votes of others, or none at all, are no reason."""
    return WELL_VOTED if _is_well_voted(trend) else "newly listed"


def _pick(choice: _Choice, shelf: CandidatePool, reason: str) -> DigestItem:
    number = choice.paper.id
    if number not in shelf.shown:
        shelf.shown[number] = _shown(choice.paper, shelf.trend(choice.paper))
    return DigestItem(reason=reason, score=round(choice.score, 4), **shelf.shown[number])


def _shown(paper: PaperView, trend: Trend) -> dict[str, Any]:
    """What every reader's card shows of a paper."""
    return {
        "paper_id": paper.id,
        "title": paper.title,
        "authors": byline(paper.authors, paper.author_count),
        "summary": summary(paper),
        "trend": trend.words,
        "url": paper.url,
        "pdf_url": paper.pdf_url,
        "code_url": paper.code_url,
        "project_url": paper.project_url,
        "published_on": paper.published_on.isoformat() if paper.published_on else "",
        "comments": paper.comments,
        "summary_by": paper.tldr_by,
    }


def byline(authors: Sequence[str], count: int) -> str:
    """The first authors, and how many more there are."""
    shown = list(authors[:SHOWN_AUTHORS])
    more = max(count, len(authors)) - len(shown)
    if more > 0:
        return f"{', '.join(shown)} and {more} more" if shown else f"{more} author{'s' if more > 1 else ''}"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def summary(paper: PaperView) -> str:
    """The source's own summary, or a written one; else the abstract's most telling sentence; else nothing."""
    if 0 < len(paper.tldr) <= summarizer.LIMIT:
        return paper.tldr
    return summarizer.summarize(paper.title, paper.tldr or paper.abstract)
