"""PURE. What a reader liked and disliked → how close new papers are to it, with a reason that is true.

A taste is a direction: the centroid of the liked papers, once in the space of terms and pairs (BM25 impacts,
unit rows, less the archive's mean) and once in the LSA space. How near a paper is to it is told in standard
deviations above the archive's papers (Rocchio 1971, standardised), and what few papers show counts for less.
Who wrote what was liked is a term of its own. What was disliked counts against papers near to it, each by
itself and by less than a like: they share no direction, and what a reader is shown lies near to their likes.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy import sparse

from app.relevance.highlights import PaperText
from app.relevance.model import RelevanceModel
from app.relevance.vector_space import PAIR_WEIGHT, Matrix, VectorSpace
from app.text.tokenizer import normalized_name, stems
from app.types import Feedback, PaperView

# `benchmarks/likes.py` measures these; docs/benchmarks.md says what else was tried.
TERMS, MEANING = 1.6, 0.8  # evidence for a standard deviation in either space, when many papers were liked
AUTHORS = 8.0  # evidence for ln(1 + the share of the liked papers that an author wrote), of all authors
DISLIKED = 0.5  # as much as a single like says
# As in `match`: evidence is softplus(agreement − ODDS) above that of nothing shared.
ODDS, SCALE = 4.0, 8.0
SAMPLE = 500  # newest examples of the archive that say what is usual
CLOSE_WORDS = 3  # that a reason names
LEAST = 0.02  # relevance: what says less, for or against, is not kept


@dataclass(frozen=True, slots=True)
class _Read:
    """A paper as numbers: its unit row of terms, zeros left out, and its vector in the LSA space."""

    columns: Matrix
    terms: Matrix
    vector: Matrix


class Candidates:
    """The papers of a digest as tastes see them: made once for all readers.

    What readers spoke of is read once, too, however many spoke of it.
    """

    def __init__(self, papers: Sequence[PaperView], corpus: RelevanceModel, space: VectorSpace) -> None:
        self._corpus, self.space = corpus, space
        # What a folded term says besides helps an interest find papers; here it likens them by common words.
        self._terms = replace(space.terms, parts={})
        self.passages = [PaperText(paper, corpus.abbreviations) for paper in papers]
        self.places = {paper.id: place for place, paper in enumerate(papers)}
        self.terms, self.vectors = self._rows(papers)
        usual = _evened(sparse.csr_matrix(space.impacts.T)[:SAMPLE], space)
        self._mean = np.asarray(usual.mean(0)).ravel()
        self._measured = sparse.csr_matrix(sparse.vstack([self.terms, usual]))
        self._spoken_of: dict[tuple[str, str], _Read] = {}
        self._alone: dict[tuple[str, str], Matrix] = {}

    def read(self, opinions: Sequence[Feedback]) -> list[_Read]:
        """The papers that these opinions are of."""
        texts = [(one.title, one.abstract) for one in opinions]
        known = self._spoken_of
        if unread := [one for one in opinions if (one.title, one.abstract) not in known]:
            rows, vectors = self._rows(unread)
            for place, one in enumerate(unread):
                inside = slice(*rows.indptr[place : place + 2])
                row = _Read(rows.indices[inside], rows.data[inside], vectors[place])
                known[one.title, one.abstract] = row
        return [known[text] for text in texts]

    def _rows(self, papers: Sequence[PaperView | Feedback]) -> tuple[sparse.csr_matrix, Matrix]:
        documents = [self._corpus.document(paper.title, paper.abstract) for paper in papers]
        impacts = self._terms.impacts(documents, self._corpus.statistics.lengths)
        return _evened(impacts, self.space), self.space.vectors(documents)

    def alone(self, opinion: Feedback) -> Matrix:
        """The agreement of each candidate with one paper."""
        text = (opinion.title, opinion.abstract)
        if text not in self._alone:
            self._alone[text] = _agreement([opinion], self)
        return self._alone[text]

    def by_terms(self, read: Sequence[_Read]) -> Matrix:
        """How near each candidate is to what was read, in standard deviations of what is usual."""
        direction = -self._mean
        for one in read:
            direction[one.columns] += one.terms / len(read)
        near = self._measured @ direction
        own, usual = near[: len(self.passages)], near[len(self.passages) :]
        return np.asarray((own - usual.mean()) / max(float(usual.std()), 1e-6))

    def by_meaning(self, read: Sequence[_Read]) -> Matrix:
        """The same in the LSA space."""
        centre = np.mean([one.vector for one in read], axis=0, keepdims=True)
        centre /= max(float(np.linalg.norm(centre)), 1e-9)
        return np.asarray(self.space.standardised(centre, self.vectors)[0])

    @cached_property
    def wrote(self) -> Mapping[str, Set[int]]:
        """The places of each author's papers."""
        places = defaultdict(set)
        for place, passage in enumerate(self.passages):
            for name in people(passage.paper.authors):
                places[name].add(place)
        return places

    @cached_property
    def _namesakes(self) -> Mapping[str, Sequence[str]]:
        """The authors by their initial and last name."""
        names = defaultdict(list)
        for name in self.wrote:
            names[_short(name)].append(name)
        return names

    def bearers(self, name: str) -> Sequence[str]:
        """The authors of candidates who may be meant by a name: initials may stand for several."""
        short = _short(name)
        if name == short:
            return self._namesakes.get(short, ())
        return [other for other in (name, short) if other in self.wrote]


@dataclass(frozen=True)
class UserProfile:
    """What one reader's opinions say of the candidates."""

    liked: tuple[Feedback, ...]
    disliked: tuple[Feedback, ...]
    candidates: Candidates

    @cached_property
    def authors(self) -> dict[str, int]:
        """Who wrote what was liked, by `person` → how many of those papers, the most first."""
        return dict(Counter(name for one in self.liked for name in people(one.authors)).most_common())

    @cached_property
    def agreement(self) -> Matrix:
        """How near each candidate is to what was liked rather than disliked, authors left out."""
        return _agreement(self.liked, self.candidates) - self._against

    @cached_property
    def by_authors(self) -> Matrix:
        """Evidence for each candidate from who wrote it. A name that several may bear counts by parts."""
        shares = np.zeros(len(self.candidates.passages))
        for name, papers in self.authors.items():
            bearers = self.candidates.bearers(name)
            for other in bearers:
                shares[list(self.candidates.wrote[other])] += papers / len(self.liked) / len(bearers)
        return np.asarray(AUTHORS * _trust(len(self.liked)) * np.log1p(shares))

    @cached_property
    def relevance(self) -> dict[int, float]:
        """The candidates that the taste speaks for, in 0…1, or against, in −1…0, by id."""
        evidence = _evidence(self._for) + self.by_authors - _evidence(self._against)
        relevance = np.sign(evidence) * -np.expm1(-np.abs(evidence) / SCALE)
        telling = np.flatnonzero(np.abs(relevance) > LEAST).tolist()
        return {self.candidates.passages[place].paper.id: float(relevance[place]) for place in telling}

    @cached_property
    def _for(self) -> Matrix:
        return _agreement(self.liked, self.candidates)

    @cached_property
    def _against(self) -> Matrix:
        nothing = np.zeros(len(self.candidates.passages))
        nearest = np.max([nothing, *map(self.candidates.alone, self.disliked)], axis=0)
        return np.asarray(DISLIKED * nearest)

    def reason(self, paper_id: int) -> str:
        """Which paper a candidate is close to, by which words of both, and whose work was liked."""
        place = self.candidates.places[paper_id]
        if self.relevance.get(paper_id, 0.0) < 0:
            title, through = self._nearest(place, self.disliked)
            return f"close to “{title}” that you asked less of{through}"
        text = float(_evidence(self._for[place]))
        who, work = self._by(place)
        by = f"by {who}, whose “{work}” you liked" if who else ""
        if text <= SCALE * LEAST:
            return by
        title, through = self._nearest(place, self.liked)
        if who and title == work:
            return f"{by}, and close to it{through}"
        parts = [f"close to “{title}” that you liked{through}", by]
        return "; ".join(filter(None, parts if text >= self.by_authors[place] else reversed(parts)))

    def _nearest(self, place: int, opinions: Sequence[Feedback]) -> tuple[str, str]:
        """The title of the nearest of these papers, and the words that it shares with the candidate."""
        row, vector = self.candidates.terms[place].toarray().ravel(), self.candidates.vectors[place]
        read = self.candidates.read(opinions)
        likeness = [(float(one.terms @ row[one.columns]), float(one.vector @ vector)) for one in read]
        nearest = likeness.index(max(likeness))
        names, columns = self.candidates.space.terms.names, read[nearest].columns
        products = zip(columns.tolist(), (read[nearest].terms * row[columns]).tolist(), strict=True)
        shared = {names[column]: product for column, product in products if product}
        words = self._spelled(place, shared, opinions[nearest])
        through = ", through " + ", ".join(f"“{word}”" for word in words) if words else ""
        return opinions[nearest].title, through

    def _spelled(self, place: int, shared: Mapping[str, float], opinion: Feedback) -> list[str]:
        """The weightiest of these terms as the candidate spells them, where the other paper says them so.

        Two words that stand together in both come before either of them.
        """
        theirs = set(stems(f"{opinion.title} {opinion.abstract}"))
        passage = self.candidates.passages[place]

        def weight(term: str) -> float:
            return sum(shared.get(part, 0.0) for part in dict.fromkeys([term, *term.split(" ")]))

        found, said = list[str](), set[str]()
        for term in sorted(shared, key=lambda term: (-weight(term), term)):
            spelled = _pair(passage, term) if " " in term else passage.spelled(term)
            words = set(stems(spelled))
            if words and words <= theirs and not words & said:
                found.append(spelled)
                said |= words
            if len(found) == CLOSE_WORDS:
                break
        return found

    @cached_property
    def _works(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Who wrote which liked paper, oldest opinion first, by initial and last name."""
        works = defaultdict(list)
        for one in self.liked:
            for name in people(one.authors):
                works[_short(name)].append((name, one.title))
        return works

    def _by(self, place: int) -> tuple[str, str]:
        """The authors of a candidate whose work was liked, and the title of that; or nothing."""
        authors = self.candidates.passages[place].paper.authors
        said = [(author, title) for author in authors if (title := self._wrote(normalized_name(author)))]
        if not said:
            return "", ""
        names = [author for author, title in said if title == said[0][1]]
        return " and ".join(names[:2]), said[0][1]

    def _wrote(self, name: str) -> str:
        """The paper by this author that was liked last, or nothing."""
        titles = [title for other, title in self._works.get(_short(name), ()) if _same(name, other)]
        return titles[-1] if titles else ""


def build_profile(opinions: Sequence[Feedback], candidates: Candidates) -> UserProfile | None:
    """What a reader's opinions say of the candidates, or None where they said nothing yet."""
    ordered = sorted(opinions, key=lambda one: (one.at, one.title))
    liked = tuple(one for one in ordered if one.liked)
    disliked = tuple(one for one in ordered if not one.liked)
    return UserProfile(liked, disliked, candidates) if ordered else None


def authors_liked(opinions: Iterable[Feedback]) -> list[tuple[str, int]]:
    """Who wrote what a reader likes, as the first of these papers spells them, and how many of the papers.

    Those of most papers come first, then those of the first papers.
    """
    spelled: dict[str, str] = {}
    papers = Counter[str]()
    for one in opinions:
        if one.liked:
            names = {name: author for author in reversed(one.authors) if (name := normalized_name(author))}
            spelled = names | spelled
            papers.update(reversed(names))
    return [(spelled[name], count) for name, count in papers.most_common()]


def _agreement(opinions: Sequence[Feedback], candidates: Candidates) -> Matrix:
    """Evidence for and against each candidate that it is of the kind of these papers."""
    read = [one for one in candidates.read(opinions) if one.columns.size]  # the rest has no known word
    if not read:
        return np.zeros(len(candidates.passages))
    near = TERMS * candidates.by_terms(read) + MEANING * candidates.by_meaning(read)
    return np.asarray(_trust(len(read)) * near)


def _trust(papers: int) -> float:
    """One paper says half of what many do."""
    return papers / (papers + 1)


def _pair(passage: PaperText, term: str) -> str:
    """Two stems as a paper spells them, or nothing where it says them apart."""
    for _, text, tokens in passage.fields:
        for first, second in itertools.pairwise(tokens):
            if f"{first.stem} {second.stem}" == term and text[first.end : second.start] in (" ", "-"):
                return text[first.start : second.end]
    return ""


def _evidence(agreement: Matrix) -> Matrix:
    return np.asarray(np.maximum(np.logaddexp(0, agreement - ODDS) - np.logaddexp(0, -ODDS), 0))


def _evened(impacts: sparse.csr_matrix, space: VectorSpace) -> sparse.csr_matrix:
    """Unit rows in which a pair counts as much as a word: whoever likes a paper typed neither."""
    rows = sparse.csr_matrix(impacts, copy=True)
    rows.data /= np.where(space.terms.is_pair[rows.indices], PAIR_WEIGHT, 1.0)
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(norms, 1e-9)) @ rows, dtype=np.float32)


@lru_cache(maxsize=20_000)
def people(authors: tuple[str, ...]) -> tuple[str, ...]:
    """The authors of a paper by one spelling each, every one once."""
    return tuple(sorted({name for author in authors if (name := normalized_name(author))}))


@lru_cache(maxsize=100_000)
def _short(name: str) -> str:
    words = name.split(" ")
    return f"{words[0][:1]} {words[-1]}"


def _same(name: str, other: str) -> bool:
    """Whether two names may be one person's: they are the same, or one has an initial for the first name."""
    return name == other or (_short(name) == _short(other) and _short(name) in (name, other))
