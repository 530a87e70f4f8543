"""PURE. Score new papers by a subscriber's likes and dislikes, with a reason that names the rated paper.

The closeness of a paper to a direction is its z-score: the number of standard deviations by which it is
closer than the archive's average paper (Rocchio 1971, standardized). There is one direction in the space of
terms and pairs (BM25 impacts, unit rows, minus the archive's mean) and one in the LSA space.

- Likes: the closeness to their centroid. Most people like several subjects, so a paper that is much closer
  to some likes than to others gains the difference between the soft maximum and the mean of its closeness
  to the likes. The sum counts less if few papers were liked.
- Authors of liked papers are scored separately. A name is weighted by its share of the likes on the same
  subject, and counts less if several people probably share it.
- Dislikes: each lowers the scores of the papers close to it by as much as a single like raises them, but only
  to the extent that a paper is closer to the dislike than to the nearest like (times LIKES_AGAINST_DISLIKE).
  So a dislike does not lower the scores of whole subjects that the subscriber likes.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType

import numpy as np
from cachetools import FIFOCache
from scipy import sparse

from app.relevance import reasons
from app.relevance.bm25 import PAIR_WEIGHT, Document, Matrix, sparse_unit_rows
from app.relevance.highlights import PaperText
from app.relevance.matching import Content, content_of
from app.relevance.model import RelevanceModel
from app.relevance.vector_space import VectorSpace
from app.text.names import normalized_name
from app.text.tokenizer import content_stems
from app.types import Feedback, PaperView

# Measured by `benchmarks/likes.py`; docs/benchmarks.md lists the alternatives that were tried.
TERM_WEIGHT, LSA_WEIGHT = 1.6, 0.8  # agreement per standard deviation in each space, with many likes
SHARPNESS = 0.03  # of the soft maximum over likes: 0 gives the mean, infinity the nearest like
AUTHOR_WEIGHT = 8.0  # × ln(1 + the share of liked papers by an author, summed over the paper's authors)
SAME_SUBJECT = 0.15  # LSA cosine at which two likes are fully on the same subject; lower values count in part
NAMESAKES = 0.2  # expected namesakes among the candidates that halve the evidence from an author's name
PAPERS_PER_AUTHOR = 3  # candidates; a name on more of them counts less: several people may have it
CERTAIN_NAME = 0.75  # minimum weight at which a reason says that two papers have the same author
LIKES_AGAINST_DISLIKE = 0.75  # share of the closeness to the nearest like that a dislike must exceed
# Evidence is softplus(agreement − EVIDENCE_OFFSET) minus its value at an agreement of 0. Unlike in
# `cut_offs`, it is divided by EVIDENCE_SCALE only where it is converted to relevance.
EVIDENCE_OFFSET, EVIDENCE_SCALE = 4.0, 8.0
SAMPLE_SIZE = 500  # newest examples in the archive, used to estimate mean and deviation
MIN_RELEVANCE = 0.02  # for or against a paper; smaller values are dropped
MAX_SHARED_TERMS = 40  # the most terms that are considered for a reason
MAX_CACHED_PAPERS = 5_000  # rated papers; each takes 8 bytes per candidate
MAX_CACHED_NAMES = 50_000  # of liked authors


@dataclass(frozen=True, slots=True)
class _RatedPaper:
    """A paper with feedback, represented by numbers."""

    columns: Matrix  # of the non-zero entries in its unit row of terms; empty if it has no known terms
    terms: Matrix  # their values
    lsa: Matrix  # the paper's vector in the LSA space
    term_products: Matrix  # of its row of terms with the rows of the candidates, then of the sample
    closeness: Matrix  # of each candidate to this paper: a weighted sum of z-scores


class Candidates:
    """The candidate papers for a digest as vectors, computed once for all subscribers.

    The vectors of a paper with feedback are also computed only once, even if several subscribers rated it.
    """

    def __init__(
        self,
        papers: Sequence[PaperView],
        model: RelevanceModel,
        space: VectorSpace,
        texts: Mapping[Content, PaperText] = MappingProxyType({}),
    ) -> None:
        """Compute the vectors. `texts` contains papers already split into words by the same model."""
        self._model, self.space = model, space
        # Expansions help interests find papers. Between two papers they would only add common words.
        self._columns = replace(space.terms, expansions={})
        self.texts = [
            texts.get(content_of(paper)) or PaperText(paper, model.abbreviations) for paper in papers
        ]
        self.row_of = {paper.id: row for row, paper in enumerate(papers)}
        self.terms, self.vectors = self._vectorize([text.document for text in self.texts])
        sample = _unit_rows_without_pair_weight(
            sparse.csr_matrix(space.impacts.T)[:SAMPLE_SIZE], space.terms.is_pair
        )
        sample_mean = np.asarray(sample.mean(0)).ravel()
        self._by_term = sparse.csr_matrix(sparse.vstack([self.terms, sample]).T)
        self._mean_products = sample_mean @ self._by_term
        self._papers_by_name = FIFOCache[str, tuple[Matrix, Matrix]](MAX_CACHED_NAMES)
        self._rated_papers = FIFOCache[tuple[str, str], _RatedPaper](MAX_CACHED_PAPERS)

    def rated_papers(self, feedback: Sequence[Feedback]) -> list[_RatedPaper]:
        """Return the rated papers, in the order of `feedback`. Compute those that are not cached."""
        texts = [(entry.title, entry.abstract) for entry in feedback]
        papers = {text: self._rated_papers[text] for text in texts if text in self._rated_papers}
        if missing := {
            text: entry for text, entry in zip(texts, feedback, strict=True) if text not in papers
        }:
            for text, paper in zip(missing, self._rate([*missing.values()]), strict=True):
                papers[text] = self._rated_papers[text] = paper
        return [papers[text] for text in texts]

    def _rate(self, feedback: Sequence[Feedback]) -> Iterator[_RatedPaper]:
        rows, vectors = self._vectorize(
            [self._model.document(entry.title, entry.abstract) for entry in feedback]
        )
        products = (rows @ self._by_term).toarray()
        closeness = self._closeness(products, vectors)
        for number, (start, end) in enumerate(itertools.pairwise(rows.indptr.tolist())):
            terms = rows.indices[start:end], rows.data[start:end]
            yield _RatedPaper(*terms, vectors[number], products[number], closeness[number])

    def closeness_to_centroid(self, papers: Sequence[_RatedPaper]) -> Matrix:
        """Return how close each candidate is to the centroid of these papers."""
        products = np.mean([paper.term_products for paper in papers], axis=0)
        centre = np.mean([paper.lsa for paper in papers], axis=0)
        centre /= max(float(np.linalg.norm(centre)), 1e-9)
        return np.asarray(self._closeness(products[None], centre[None])[0])

    def _closeness(self, term_products: Matrix, vectors: Matrix) -> Matrix:
        """Return a (directions, candidates) matrix: the weighted sums of z-scores by terms and in LSA space.

        `term_products` are the products of each direction with the candidates and the sample. `vectors` are
        unit rows.
        """
        own, sample = np.split(term_products - self._mean_products, [len(self.texts)], axis=1)
        deviation = np.maximum(sample.std(1, keepdims=True), 1e-6)
        by_terms = (own - sample.mean(1, keepdims=True)) / deviation
        return np.asarray(TERM_WEIGHT * by_terms + LSA_WEIGHT * self.space.z_scores(vectors, self.vectors))

    def _vectorize(self, documents: Sequence[Document]) -> tuple[sparse.csr_matrix, Matrix]:
        """Return two matrices of unit rows, one row per paper: its terms, and its vector in the LSA space."""
        impacts = self._columns.impacts(self._columns.field_counts(documents), self._model.statistics.lengths)
        terms = _unit_rows_without_pair_weight(impacts, self.space.terms.is_pair)
        return terms, self.space.vectors(documents)

    @cached_property
    def papers_by_author(self) -> Mapping[str, Set[int]]:
        """Return the rows of each author's candidates, by normalized name."""
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

    def papers_by_name(self, name: str) -> tuple[Matrix, Matrix]:
        """Return the rows of candidates by authors to whom a name may refer, and its weight for each row."""
        if name not in self._papers_by_name:
            weights = defaultdict[int, float](float)
            for author in (authors := self.authors_named(name)):
                weight = min(self.name_weight(name), self.name_weight(author)) / len(authors)
                for row in self.papers_by_author[author]:
                    weights[row] += weight
            self._papers_by_name[name] = np.array([*weights], np.intp), np.array([*weights.values()])
        return self._papers_by_name[name]

    @cached_property
    def _name_parts(self) -> Counter[str]:
        """Count the authors of the candidates by first name, by initial and by last name."""
        parts = Counter[str]()
        for name in self.papers_by_author:
            first, *_, last = [*name.split(" "), name.rsplit(" ", 1)[-1]]
            parts.update({f"{first} ", f"{first[:1]}. ", f" {last}"})
        return parts

    def name_weight(self, name: str) -> float:
        """Return the weight of a name as evidence, in 0…1: about 1 if only one person is likely to have it.

        The expected number of namesakes among n authors, if first and last names are independent, is n times
        the share of the first name times that of the last name, not counting the author.
        """
        words = name.split(" ")
        first = f"{words[0]}. " if len(words[0]) == 1 else f"{words[0]} "
        others = [max(0, self._name_parts[part] - 1) for part in (first, f" {words[-1]}")]
        namesakes = others[0] * others[1] / max(1, len(self.papers_by_author))
        papers = len(self.papers_by_author.get(name, ()))
        return min(1.0, PAPERS_PER_AUTHOR / max(1, papers)) / (1 + namesakes / NAMESAKES)


@dataclass(frozen=True)
class UserProfile:
    """The relevance of candidates according to one subscriber's feedback."""

    liked: tuple[Feedback, ...]
    disliked: tuple[Feedback, ...]
    candidates: Candidates

    @cached_property
    def agreement(self) -> Matrix:
        """Return how much closer each candidate is to the likes than to the dislikes, ignoring authors."""
        return self._agreement_with_likes - self._agreement_with_dislikes

    @cached_property
    def author_evidence(self) -> Matrix:
        """Return the evidence from authors for each candidate. Namesakes share the evidence for a name."""
        candidates, shares = self.candidates, np.zeros(len(self.candidates.texts))
        for name, share in self._author_shares.items():
            rows, weights = candidates.papers_by_name(name)
            if len(rows):
                shares[rows] += share * weights
        return np.asarray(AUTHOR_WEIGHT * _trust(len(self.liked)) * np.log1p(shares))

    @cached_property
    def _author_shares(self) -> dict[str, float]:
        """Return each liked author's share of the liked papers on the same subjects, by normalized name."""
        shares = defaultdict[str, float](float)
        if self.liked:
            vectors = np.array([paper.lsa for paper in self.candidates.rated_papers(self.liked)])
            same_subject = np.clip(vectors @ vectors.T / SAME_SUBJECT, 0, 1)
            np.fill_diagonal(same_subject, 1)
            for like, papers in zip(self.liked, same_subject.sum(1).tolist(), strict=True):
                for name in author_names(like.authors):
                    shares[name] += 1 / papers
        return shares

    @cached_property
    def relevance(self) -> dict[int, float]:
        """Return relevance by paper id: in 0…1 if a candidate suits the subscriber, below 0 if it does not.

        Relevance is 1 − exp(−evidence / EVIDENCE_SCALE), even if the evidence is negative. Candidates whose
        relevance is within ±MIN_RELEVANCE are left out.
        """
        evidence = (
            _evidence(self._agreement_with_likes)
            + self.author_evidence
            - _evidence(self._agreement_with_dislikes)
        )
        relevance = -np.expm1(-evidence / EVIDENCE_SCALE)
        rows = np.flatnonzero(np.abs(relevance) > MIN_RELEVANCE).tolist()
        return {self.candidates.texts[row].paper.id: float(relevance[row]) for row in rows}

    @cached_property
    def _closeness_to_likes(self) -> Matrix:
        """Return a (likes, candidates) matrix of closeness. Likes that have no known terms are left out."""
        return np.array([paper.closeness for paper in self._known_likes])

    @cached_property
    def _known_likes(self) -> list[_RatedPaper]:
        return [paper for paper in self.candidates.rated_papers(self.liked) if paper.columns.size]

    @cached_property
    def _agreement_with_likes(self) -> Matrix:
        if not self._known_likes:
            return np.zeros(len(self.candidates.texts))
        closeness = self._closeness_to_likes
        highest = closeness.max(0)
        soft_maximum = highest + np.log(np.exp(SHARPNESS * (closeness - highest)).mean(0)) / SHARPNESS
        several_tastes = soft_maximum - closeness.mean(0)
        centroid = self.candidates.closeness_to_centroid(self._known_likes)
        return np.asarray(_trust(len(closeness)) * (centroid + several_tastes))

    @cached_property
    def _agreement_with_dislikes(self) -> Matrix:
        zeros = np.zeros(len(self.candidates.texts))
        rated = self.candidates.rated_papers(self.disliked)
        # A paper without known terms would count as close to those that are least like the archive's average.
        disliked = [paper.closeness for paper in rated if paper.columns.size]
        nearest_like = np.max([zeros, *self._closeness_to_likes], axis=0)
        excess = np.max([zeros, *disliked], axis=0) - LIKES_AGAINST_DISLIKE * nearest_like
        return np.asarray(_trust(1) * np.maximum(excess, 0))

    def reason(self, paper_id: int) -> str:
        """Return the reason for a candidate: the paper it is close to, shared words, and liked authors."""
        row = self.candidates.row_of[paper_id]
        if self.relevance.get(paper_id, 0.0) < 0:
            return reasons.feedback_reason(*self._nearest(row, self.disliked), liked=False)
        text_evidence = float(_evidence(self._agreement_with_likes[row]))
        authors, work, is_certain = self._liked_authors_of(row)
        by_author = reasons.author_reason(authors, work, is_certain=is_certain) if authors else ""
        if text_evidence <= EVIDENCE_SCALE * MIN_RELEVANCE:
            return by_author
        title, shared_words = self._nearest(row, self.liked)
        if is_certain and title == work:
            return reasons.author_and_like_reason(authors, title, shared_words)
        parts = [reasons.feedback_reason(title, shared_words, liked=True), by_author]
        return reasons.combine(parts if text_evidence >= self.author_evidence[row] else reversed(parts))

    def _nearest(self, row: int, feedback: Sequence[Feedback]) -> tuple[str, list[str]]:
        """Return the title of the nearest of these papers, and the words it shares with the candidate.

        The words are the terms that make the two papers similar, strongest first, as the candidate spells
        them. A pair of words that both papers contain comes before the single words. Terms that say little
        about the rated paper are left out: see `VectorSpace.is_close`.
        """
        terms = self.candidates.terms[row].toarray().ravel()
        papers = self.candidates.rated_papers(feedback)
        nearest = int(np.argmax([p.closeness[row] if p.columns.size else -np.inf for p in papers]))
        names, columns = self.candidates.space.terms.names, papers[nearest].columns
        products = zip(columns.tolist(), (papers[nearest].terms * terms[columns]).tolist(), strict=True)
        shared: dict[str, float] = {names[column]: product for column, product in products if product}

        def weight(term: str) -> float:
            return sum(shared.get(part, 0.0) for part in dict.fromkeys([term, *term.split(" ")]))

        text, other = self.candidates.texts[row], feedback[nearest]
        ordered = sorted(shared, key=lambda term: (-weight(term), term))
        stems = set(content_stems(f"{other.title} {other.abstract}"))
        space = self.candidates.space
        direction = space.direction(papers[nearest].lsa)
        words = (term for term in ordered if len(term) > 1)  # single letters are variables
        strongest = itertools.islice(words, MAX_SHARED_TERMS)
        close = (term for term in strongest if space.is_close(term, direction))
        return other.title, reasons.distinct_words(map(text.surface_form, close), set(), stems)

    @cached_property
    def _works_by_short_name(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return (author, title) for the liked papers, oldest feedback first, by initial and last name."""
        works = defaultdict(list)
        for like in self.liked:
            for name in author_names(like.authors):
                works[_short_name(name)].append((name, like.title))
        return works

    def _liked_authors_of(self, row: int) -> tuple[list[str], str, bool]:
        """Return a candidate's authors who wrote a liked paper, and the title of that paper.

        Also return True if the match is certain. If there are no such authors, return ([], "", False). If an
        author wrote several liked papers, the one liked last counts. Two names may refer to the same person
        if they are equal, or if one is only the initial and last name of the other. The match is certain if
        only one person is likely to have the name. Uncertain matches are returned only if no match
        is certain.
        """
        works = []
        for author in self.candidates.texts[row].paper.authors:
            name = normalized_name(author)
            short = _short_name(name)
            matches = [
                (other, title)
                for other, title in self._works_by_short_name.get(short, ())
                if name == other or short in (name, other)
            ]
            if matches:
                other, title = matches[-1]
                weight = min(self.candidates.name_weight(name), self.candidates.name_weight(other))
                works.append((weight >= CERTAIN_NAME, author, title))
        works.sort(key=lambda work: not work[0])  # certain matches first, then by author order
        is_certain, _, liked_title = works[0] if works else (False, "", "")
        authors = [author for *facts, author, title in works if (*facts, title) == (is_certain, liked_title)]
        return authors, liked_title, is_certain


def build_profile(feedback: Sequence[Feedback], candidates: Candidates) -> UserProfile | None:
    """Return a subscriber's profile, or None if there is no feedback."""
    ordered = sorted(feedback, key=lambda entry: (entry.at, entry.title))
    liked = tuple(entry for entry in ordered if entry.liked)
    disliked = tuple(entry for entry in ordered if not entry.liked)
    return UserProfile(liked, disliked, candidates) if ordered else None


def liked_authors(feedback: Iterable[Feedback]) -> list[tuple[str, int]]:
    """Return the authors of liked papers, as the first such paper spells them, and their paper counts.

    The highest counts come first. On ties, authors from earlier entries of `feedback` come first.
    """
    spellings: dict[str, str] = {}
    papers = Counter[str]()
    for entry in feedback:
        if entry.liked:
            names = {name: author for author in reversed(entry.authors) if (name := normalized_name(author))}
            spellings = names | spellings
            papers.update(reversed(names))
    return [(spellings[name], count) for name, count in papers.most_common()]


def _trust(papers: int) -> float:
    """Return the weight of the evidence from `papers` papers: ½ for one, near 1 for many."""
    return papers / (papers + 1)


def _evidence(agreement: Matrix) -> Matrix:
    return np.asarray(
        np.maximum(np.logaddexp(0, agreement - EVIDENCE_OFFSET) - np.logaddexp(0, -EVIDENCE_OFFSET), 0)
    )


def _unit_rows_without_pair_weight(impacts: sparse.csr_matrix, is_pair: Matrix) -> sparse.csr_matrix:
    """Return unit rows in which pairs count as much as words. PAIR_WEIGHT is only for typed interests."""
    rows = sparse.csr_matrix(impacts, copy=True)
    rows.data /= np.where(is_pair[rows.indices], PAIR_WEIGHT, 1.0)
    return sparse_unit_rows(rows)


@lru_cache(maxsize=20_000)
def author_names(authors: tuple[str, ...]) -> tuple[str, ...]:
    """Return the normalized names of a paper's authors, sorted and without duplicates."""
    return tuple(sorted({name for author in authors if (name := normalized_name(author))}))


@lru_cache(maxsize=100_000)
def _short_name(name: str) -> str:
    """Return the initial and the last name of a normalized name: "j doe"."""
    words = name.split(" ")
    return f"{words[0][:1]} {words[-1]}"
