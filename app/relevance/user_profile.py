"""PURE. A reader's likes and dislikes → relevance of new papers, with a reason that quotes both papers.

A profile is a direction, the centroid of the liked papers: one in the space of terms and pairs (BM25 impacts,
unit rows, minus the archive's mean) and one in the LSA space. The agreement of a paper is its z-score: the
number of standard deviations by which it is closer to the direction than the archive's average paper
(Rocchio 1971, standardised). It counts less if few papers were liked. The authors of liked papers are scored
separately. Each disliked paper counts against the papers close to it, but less than a like counts in favour:
disliked papers do not share a direction, and the papers that a reader sees are close to their likes anyway.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy import sparse

from app.relevance import reasons
from app.relevance.highlights import PaperText, distinct_words
from app.relevance.model import RelevanceModel
from app.relevance.vector_space import PAIR_WEIGHT, Matrix, VectorSpace, sparse_unit_rows
from app.text.tokenizer import content_stems, normalized_name
from app.types import Feedback, PaperView

# Measured by `benchmarks/likes.py`; docs/benchmarks.md lists the alternatives that were tried.
TERM_WEIGHT, LSA_WEIGHT = 1.6, 0.8  # agreement per standard deviation in each space, with many likes
AUTHOR_WEIGHT = 8.0  # × ln(1 + the share of liked papers by an author, summed over the paper's authors)
DISLIKE_WEIGHT = 0.5  # relative to the agreement with a single like
# As in `matching`: evidence is softplus(agreement − EVIDENCE_OFFSET) minus its value at an agreement of 0.
EVIDENCE_OFFSET, EVIDENCE_SCALE = 4.0, 8.0
SAMPLE_SIZE = 500  # newest examples in the archive, used to estimate mean and deviation
MIN_RELEVANCE = 0.02  # for or against a paper; smaller values are dropped


@dataclass(frozen=True, slots=True)
class _PaperVectors:
    """A paper as numbers: the non-zero entries of its unit row of terms, and its vector in the LSA space."""

    columns: Matrix
    terms: Matrix
    lsa: Matrix


class Candidates:
    """The candidate papers for a digest as vectors, computed once for all readers.

    The vectors of a paper with feedback are also computed only once, even if several readers rated it.
    """

    def __init__(self, papers: Sequence[PaperView], model: RelevanceModel, space: VectorSpace) -> None:
        self._model, self.space = model, space
        # Expansions help interests find papers. Between two papers they would only add common words.
        self._columns = replace(space.terms, expansions={})
        self.texts = [PaperText(paper, model.abbreviations) for paper in papers]
        self.row_of = {paper.id: row for row, paper in enumerate(papers)}
        self.terms, self.vectors = self._vectorize(papers)
        sample = _unit_rows_without_pair_weight(
            sparse.csr_matrix(space.impacts.T)[:SAMPLE_SIZE], space.terms.is_pair
        )
        self._sample_mean = np.asarray(sample.mean(0)).ravel()
        self._terms_and_sample = sparse.csr_matrix(sparse.vstack([self.terms, sample]))
        self._feedback_vectors: dict[tuple[str, str], _PaperVectors] = {}
        self._similarities: dict[tuple[str, str], Matrix] = {}

    def vectors_of(self, feedback: Sequence[Feedback]) -> list[_PaperVectors]:
        """Return the vectors of the papers with this feedback."""
        texts = [(entry.title, entry.abstract) for entry in feedback]
        cached = self._feedback_vectors
        if missing := [entry for entry in feedback if (entry.title, entry.abstract) not in cached]:
            rows, vectors = self._vectorize(missing)
            for number, entry in enumerate(missing):
                span = slice(*rows.indptr[number : number + 2])
                row = _PaperVectors(rows.indices[span], rows.data[span], vectors[number])
                cached[entry.title, entry.abstract] = row
        return [cached[text] for text in texts]

    def _vectorize(self, papers: Sequence[PaperView | Feedback]) -> tuple[sparse.csr_matrix, Matrix]:
        """Return papers × terms and papers × LSA dimensions, both as unit rows."""
        documents = [self._model.document(paper.title, paper.abstract) for paper in papers]
        impacts = self._columns.impacts(documents, self._model.statistics.lengths)
        terms = _unit_rows_without_pair_weight(impacts, self.space.terms.is_pair)
        return terms, self.space.vectors(documents)

    def similarity_to(self, feedback: Feedback) -> Matrix:
        """Return the similarity of each candidate to the paper that was rated."""
        text = (feedback.title, feedback.abstract)
        if text not in self._similarities:
            self._similarities[text] = _agreement([feedback], self)
        return self._similarities[text]

    def term_z_scores(self, papers: Sequence[_PaperVectors]) -> Matrix:
        """Return each candidate's closeness to these papers by terms, as a z-score within the archive."""
        direction = -self._sample_mean
        for paper in papers:
            direction[paper.columns] += paper.terms / len(papers)
        products = self._terms_and_sample @ direction
        own, sample = products[: len(self.texts)], products[len(self.texts) :]
        return np.asarray((own - sample.mean()) / max(float(sample.std()), 1e-6))

    def lsa_z_scores(self, papers: Sequence[_PaperVectors]) -> Matrix:
        """Return each candidate's closeness to these papers in the LSA space, as `term_z_scores` does."""
        centre = np.mean([paper.lsa for paper in papers], axis=0, keepdims=True)
        centre /= max(float(np.linalg.norm(centre)), 1e-9)
        return np.asarray(self.space.z_scores(centre, self.vectors)[0])

    @cached_property
    def papers_by_author(self) -> Mapping[str, Set[int]]:
        """Return the rows of each author's candidates, by normalised name."""
        rows = defaultdict(set)
        for row, text in enumerate(self.texts):
            for name in author_names(text.paper.authors):
                rows[name].add(row)
        return rows

    @cached_property
    def _authors_by_short_name(self) -> Mapping[str, Sequence[str]]:
        names = defaultdict(list)
        for name in self.papers_by_author:
            names[_short_name(name)].append(name)
        return names

    def authors_named(self, name: str) -> Sequence[str]:
        """Return the candidates' authors to whom a name may refer. "j doe" may refer to several."""
        short = _short_name(name)
        if name == short:
            return self._authors_by_short_name.get(short, ())
        return [other for other in (name, short) if other in self.papers_by_author]


@dataclass(frozen=True)
class UserProfile:
    """The relevance of candidates according to one reader's feedback."""

    liked: tuple[Feedback, ...]
    disliked: tuple[Feedback, ...]
    candidates: Candidates

    @cached_property
    def authors(self) -> dict[str, int]:
        """Return the number of liked papers by each author, by normalised name, highest number first."""
        return dict(Counter(name for like in self.liked for name in author_names(like.authors)).most_common())

    @cached_property
    def agreement(self) -> Matrix:
        """Return how much closer each candidate is to the likes than to the dislikes, ignoring authors."""
        return self._agreement_with_likes - self._agreement_with_dislikes

    @cached_property
    def author_evidence(self) -> Matrix:
        """Return the evidence from authors for each candidate. Namesakes share the evidence for a name."""
        shares = np.zeros(len(self.candidates.texts))
        for name, papers in self.authors.items():
            namesakes = self.candidates.authors_named(name)
            for author in namesakes:
                rows = list(self.candidates.papers_by_author[author])
                shares[rows] += papers / len(self.liked) / len(namesakes)
        return np.asarray(AUTHOR_WEIGHT * _trust(len(self.liked)) * np.log1p(shares))

    @cached_property
    def relevance(self) -> dict[int, float]:
        """Return relevance by paper id: in 0…1 if a candidate suits the reader, in −1…0 if it does not."""
        evidence = (
            _evidence(self._agreement_with_likes)
            + self.author_evidence
            - _evidence(self._agreement_with_dislikes)
        )
        relevance = np.sign(evidence) * -np.expm1(-np.abs(evidence) / EVIDENCE_SCALE)
        rows = np.flatnonzero(np.abs(relevance) > MIN_RELEVANCE).tolist()
        return {self.candidates.texts[row].paper.id: float(relevance[row]) for row in rows}

    @cached_property
    def _agreement_with_likes(self) -> Matrix:
        return _agreement(self.liked, self.candidates)

    @cached_property
    def _agreement_with_dislikes(self) -> Matrix:
        zeros = np.zeros(len(self.candidates.texts))
        highest = np.max([zeros, *map(self.candidates.similarity_to, self.disliked)], axis=0)
        return np.asarray(DISLIKE_WEIGHT * highest)

    def reason(self, paper_id: int) -> str:
        """Return the reason for a candidate: the paper it is close to, shared words, and liked authors."""
        row = self.candidates.row_of[paper_id]
        if self.relevance.get(paper_id, 0.0) < 0:
            return reasons.feedback_reason(*self._nearest(row, self.disliked), liked=False)
        text_evidence = float(_evidence(self._agreement_with_likes[row]))
        authors, work = self._liked_authors_of(row)
        by_author = reasons.author_reason(authors, work) if authors else ""
        if text_evidence <= EVIDENCE_SCALE * MIN_RELEVANCE:
            return by_author
        title, shared_words = self._nearest(row, self.liked)
        if authors and title == work:
            return reasons.author_and_like_reason(authors, title, shared_words)
        parts = [reasons.feedback_reason(title, shared_words, liked=True), by_author]
        return reasons.combine(parts if text_evidence >= self.author_evidence[row] else reversed(parts))

    def _nearest(self, row: int, feedback: Sequence[Feedback]) -> tuple[str, list[str]]:
        """Return the title of the nearest of these papers, and the words it shares with the candidate.

        The words are the terms that make the two papers similar, strongest first, as the candidate spells
        them. A pair of words that both papers contain comes before the single words.
        """
        terms, vector = self.candidates.terms[row].toarray().ravel(), self.candidates.vectors[row]
        papers = self.candidates.vectors_of(feedback)
        similarities = [
            (float(paper.terms @ terms[paper.columns]), float(paper.lsa @ vector)) for paper in papers
        ]
        nearest = similarities.index(max(similarities))
        names, columns = self.candidates.space.terms.names, papers[nearest].columns
        products = zip(columns.tolist(), (papers[nearest].terms * terms[columns]).tolist(), strict=True)
        shared: dict[str, float] = {names[column]: product for column, product in products if product}

        def weight(term: str) -> float:
            return sum(shared.get(part, 0.0) for part in dict.fromkeys([term, *term.split(" ")]))

        text, other = self.candidates.texts[row], feedback[nearest]
        strongest = sorted(shared, key=lambda term: (-weight(term), term))
        stems = set(content_stems(f"{other.title} {other.abstract}"))
        return other.title, distinct_words(map(text.surface_form, strongest), set(), stems)

    @cached_property
    def _works_by_short_name(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return (author, title) for the liked papers, oldest feedback first, by initial and last name."""
        works = defaultdict(list)
        for like in self.liked:
            for name in author_names(like.authors):
                works[_short_name(name)].append((name, like.title))
        return works

    def _liked_authors_of(self, row: int) -> tuple[list[str], str]:
        """Return the authors of a candidate who wrote a liked paper and that paper's title, or ([], "").

        If an author wrote several liked papers, the last one liked counts. Two names may refer to the same
        person if they are equal, or if one is only the initial and last name of the other.
        """
        works = []
        for author in self.candidates.texts[row].paper.authors:
            name = normalized_name(author)
            short = _short_name(name)
            titles = [
                title
                for other, title in self._works_by_short_name.get(short, ())
                if name == other or short in (name, other)
            ]
            if titles:
                works.append((author, titles[-1]))
        work = works[0][1] if works else ""
        return [author for author, title in works if title == work], work


def build_profile(feedback: Sequence[Feedback], candidates: Candidates) -> UserProfile | None:
    """Return a reader's profile, or None if there is no feedback."""
    ordered = sorted(feedback, key=lambda entry: (entry.at, entry.title))
    liked = tuple(entry for entry in ordered if entry.liked)
    disliked = tuple(entry for entry in ordered if not entry.liked)
    return UserProfile(liked, disliked, candidates) if ordered else None


def liked_authors(feedback: Iterable[Feedback]) -> list[tuple[str, int]]:
    """Return the authors of liked papers, each spelled as in the first of them, with their paper counts.

    The highest counts come first. On ties, authors of earlier papers come first.
    """
    spellings: dict[str, str] = {}
    papers = Counter[str]()
    for entry in feedback:
        if entry.liked:
            names = {name: author for author in reversed(entry.authors) if (name := normalized_name(author))}
            spellings = names | spellings
            papers.update(reversed(names))
    return [(spellings[name], count) for name, count in papers.most_common()]


def _agreement(feedback: Sequence[Feedback], candidates: Candidates) -> Matrix:
    """Return the agreement of each candidate with these papers as a group."""
    papers = [paper for paper in candidates.vectors_of(feedback) if paper.columns.size]  # with known terms
    if not papers:
        return np.zeros(len(candidates.texts))
    z_scores = TERM_WEIGHT * candidates.term_z_scores(papers) + LSA_WEIGHT * candidates.lsa_z_scores(papers)
    return np.asarray(_trust(len(papers)) * z_scores)


def _trust(papers: int) -> float:
    """Return the weight of the evidence from `papers` papers: ½ for one, near 1 for many."""
    return papers / (papers + 1)


def _evidence(agreement: Matrix) -> Matrix:
    return np.asarray(
        np.maximum(np.logaddexp(0, agreement - EVIDENCE_OFFSET) - np.logaddexp(0, -EVIDENCE_OFFSET), 0)
    )


def _unit_rows_without_pair_weight(impacts: sparse.csr_matrix, is_pair: Matrix) -> sparse.csr_matrix:
    """Return unit rows in which pairs count as much as words: likes, unlike interests, are not typed."""
    rows = sparse.csr_matrix(impacts, copy=True)
    rows.data /= np.where(is_pair[rows.indices], PAIR_WEIGHT, 1.0)
    return sparse_unit_rows(rows)


@lru_cache(maxsize=20_000)
def author_names(authors: tuple[str, ...]) -> tuple[str, ...]:
    """Return the normalised names of a paper's authors, sorted and without duplicates."""
    return tuple(sorted({name for author in authors if (name := normalized_name(author))}))


@lru_cache(maxsize=100_000)
def _short_name(name: str) -> str:
    """Return the initial and the last name of a normalised name: "j doe"."""
    words = name.split(" ")
    return f"{words[0][:1]} {words[-1]}"
