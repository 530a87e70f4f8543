"""PURE. What a reader liked and disliked → how close new papers are to it, with a reason that is true.

A taste is a direction: the centroid of the liked papers less the mean of the archive, once in the space of
terms and pairs (BM25 impacts, unit rows) and once in the LSA space. Its agreement with a paper is the
weighted mean of both in standard deviations above the archive's papers (Rocchio 1971, standardised). Who
wrote what was liked is a term of its own; what was disliked is a taste that counts against.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from app.corpus import Corpus
from app.passages import Passage
from app.records import Opinion, PaperView
from app.space import Matrix, Space
from app.words import plain

TERMS, MEANING = 2.0, 1.0  # how much either space counts
# A taste shown by three papers or fewer counts once, by five or more twice (DESIGN §5).
FEW, MANY = 3, 5
ODDS, SCALE = 4.0, 8.0  # as in `match`: evidence is softplus(agreement − ODDS) above that of nothing shared
AUTHOR, MOST_BY_AUTHORS = 4.0, 12.0  # evidence for ln(1 + liked papers) of each author, and at most
SAMPLE = 2_000  # newest examples of the archive that say what is usual
CLOSE_WORDS = 3
LEAST = 0.02  # relevance: what says less, for or against, is not kept


class Candidates:
    """The papers of a digest as tastes see them: made once for all readers."""

    def __init__(self, papers: Sequence[PaperView], corpus: Corpus, space: Space) -> None:
        self.corpus, self.space = corpus, space
        self.passages = [Passage(paper, corpus.abbreviations) for paper in papers]
        self.places = {paper.id: place for place, paper in enumerate(papers)}
        self.terms = self.rows(papers)
        self.vectors = space.vectors([corpus.document(paper.title, paper.abstract) for paper in papers])
        self.authors = [frozenset(map(author_key, paper.authors)) for paper in papers]

    def rows(self, papers: Sequence[PaperView | Opinion]) -> sparse.csr_matrix:
        """Papers × terms and pairs: unit rows of BM25 impacts."""
        documents = [self.corpus.document(paper.title, paper.abstract) for paper in papers]
        return _unit_rows(self.space.terms.impacts(documents, self.corpus.statistics.lengths))

    @cached_property
    def usual(self) -> tuple[sparse.csr_matrix, Matrix]:
        """Rows of what is usual in the archive, and their mean."""
        newest = _unit_rows(sparse.csr_matrix(self.space.impacts.T)[:SAMPLE])
        return newest, np.asarray(newest.mean(0)).ravel()


@dataclass(frozen=True)
class Taste:
    """What one reader's opinions say of the candidates."""

    liked: tuple[Opinion, ...]
    disliked: tuple[Opinion, ...]
    candidates: Candidates

    @cached_property
    def authors(self) -> dict[str, int]:
        """Who wrote what was liked, by the key of the name → how many of those papers, the most first."""
        keys = Counter(key for one in self.liked for key in sorted({author_key(n) for n in one.authors}))
        return dict(keys.most_common())

    @property
    def agreement(self) -> Matrix:
        """How near each candidate is to what was liked rather than disliked, authors left out."""
        return _agreement(self.liked, self.candidates) - _agreement(self.disliked, self.candidates)

    @property
    def by_authors(self) -> Matrix:
        """Evidence for each candidate from who wrote it."""
        shared = [sum(np.log1p(self.authors.get(key, 0)) for key in keys) for keys in self.candidates.authors]
        return np.minimum(AUTHOR * np.array(shared, float), MOST_BY_AUTHORS)

    @cached_property
    def relevance(self) -> dict[int, float]:
        """The candidates that the taste speaks for, in 0…1, or against, in −1…0, by id."""
        evidence = _evidence(_agreement(self.liked, self.candidates)) + self.by_authors
        evidence -= _evidence(_agreement(self.disliked, self.candidates))
        relevance = np.where(evidence > 0, -np.expm1(-evidence / SCALE), np.expm1(evidence / SCALE))
        telling = np.flatnonzero(np.abs(relevance) > LEAST).tolist()
        return {self.candidates.passages[place].paper.id: float(relevance[place]) for place in telling}

    def reason(self, paper_id: int) -> str:
        """Which liked paper a candidate is close to, by which words of both; which authors were liked."""
        place = self.candidates.places[paper_id]
        parts = []
        if (near := self._nearest(place)) and near[1]:
            through = ", ".join(f"“{word}”" for word in near[1])
            parts.append(f"close to “{near[0].title}” that you liked, through {through}")
        authors = self.candidates.passages[place].paper.authors
        if names := [name for name in authors if author_key(name) in self.authors]:
            parts.append(f"by {' and '.join(names[:2])}, whom you liked before")
        return "; ".join(parts)

    def _nearest(self, place: int) -> tuple[Opinion, list[str]] | None:
        """The liked paper that shares most with a candidate, and the words that they share."""
        if not self.liked:
            return None
        row, passage = self.candidates.terms[place], self.candidates.passages[place]
        nearest = int(np.argmax(np.asarray((self._rows @ row.T).toarray()).ravel()))
        shared = sparse.csr_matrix(self._rows[nearest].multiply(row))
        names = self.candidates.space.terms.names
        terms = [names[number] for number in shared.indices[np.argsort(-shared.data, kind="stable")]]
        spelled = (passage.spelled(term) for term in terms if " " not in term)
        return self.liked[nearest], list(itertools.islice(filter(None, spelled), CLOSE_WORDS))

    @cached_property
    def _rows(self) -> sparse.csr_matrix:
        return self.candidates.rows(self.liked)


def learn(opinions: Sequence[Opinion], candidates: Candidates) -> Taste | None:
    """What a reader's opinions say of the candidates, or None where they said nothing yet."""
    ordered = sorted(opinions, key=lambda one: (one.at, one.title))
    liked = tuple(one for one in ordered if one.liked)
    disliked = tuple(one for one in ordered if not one.liked)
    return Taste(liked, disliked, candidates) if ordered else None


def _agreement(opinions: Sequence[Opinion], candidates: Candidates) -> Matrix:
    """In standard deviations, doubled as the opinions become many."""
    if not opinions:
        return np.zeros(len(candidates.passages))
    usual, mean = candidates.usual
    direction = np.asarray(candidates.rows(opinions).mean(0)).ravel() - mean
    known = usual @ direction
    by_terms = (candidates.terms @ direction - known.mean()) / max(float(known.std()), 1e-6)
    space = candidates.space
    documents = [candidates.corpus.document(one.title, one.abstract) for one in opinions]
    centre = space.vectors(documents).mean(0, keepdims=True)
    centre /= max(float(np.linalg.norm(centre)), 1e-9)
    by_meaning = space.standardised(centre, candidates.vectors)[0]
    weight = 1 + np.clip((len(opinions) - FEW) / (MANY - FEW), 0, 1)
    return np.asarray(weight * (TERMS * by_terms + MEANING * by_meaning) / (TERMS + MEANING))


def _evidence(agreement: Matrix) -> Matrix:
    return np.asarray(np.maximum(np.logaddexp(0, agreement - ODDS) - np.logaddexp(0, -ODDS), 0))


def _unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(norms, 1e-9)) @ rows)


def author_key(name: str) -> str:
    """One spelling of a name: "J. Doe", "Jané Doe" and "Doe, Jane" are one person here."""
    last, comma, first = plain(name).partition(",")
    words = (f"{first} {last}" if comma else last).replace(".", " ").split()
    return f"{words[-1]} {words[0][0]}" if len(words) > 1 else "".join(words)
