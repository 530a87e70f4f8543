"""PURE. Train and serialize the model of the archive: terms, words, abbreviations and LSA space."""

import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from app.errors import CorruptModel
from app.relevance.bm25 import Document, Expansions, FieldCounts, Matrix, count_terms
from app.relevance.vector_space import MAX_EXAMPLES, VectorSpace
from app.relevance.vocabulary import Vocabulary
from app.text import abbreviations, acronyms, preposition_compounds, shorter_readings
from app.text.abbreviations import Abbreviations
from app.text.acronyms import Acronyms
from app.text.shortening import FUNCTION_WORDS
from app.text.shorter_readings import Readings
from app.text.tokenizer import content_stems, distinct_words

# Increase this when an array is added or its meaning changes, or when `text.tokenizer` stems differently.
FORMAT = 2
MIN_PAPERS_OF_WORD = 2  # words in fewer papers are not in the vocabulary
MIN_INFORMATION = 3.0  # nats; a title with less names no subject. A word that one paper in 20 contains has 3.
MIN_KNOWN_SHARE = 0.5  # of a title's words must occur in the archive, or the title names no subject
_FUNCTION_STEMS = frozenset(stem for word in FUNCTION_WORDS for stem in content_stems(word))
BUNDLED_MODEL = Path(__file__).with_name("bundled_model.npz")

Arrays = Mapping[str, Any]  # numpy arrays by name


@dataclass(frozen=True)
class TermStatistics:
    """Document frequencies: the number of papers in the archive that contain each stem or pair of stems."""

    papers: int
    frequencies: Mapping[str, int]  # "stem" or "stem stem"
    title_length: float  # mean, in terms
    abstract_length: float

    @classmethod
    def count(
        cls, documents: Sequence[Document], expansions: Expansions, min_frequency: int = 1
    ) -> tuple[Self, FieldCounts]:
        """Count the terms of (title, abstract) pairs. Return the statistics, and the counts in each document.

        Drop terms in fewer papers than `min_frequency`, and pairs of stems that occur in only one paper. The
        columns of the counts are in the order of `frequencies`, which is alphabetical.
        """
        columns, is_pair, fields = count_terms(documents, expansions)
        titles, abstracts = fields.counts
        papers = np.bincount((titles + abstracts).indices, minlength=len(columns))
        is_frequent = papers >= np.maximum(min_frequency, 1 + is_pair)
        (numbers,) = is_frequent.nonzero()
        frequent = dict(sorted(zip(itertools.compress(columns, is_frequent), numbers.tolist(), strict=True)))
        order = np.array([*frequent.values()], np.int64)
        frequencies = dict(zip(frequent, papers[order].tolist(), strict=True))
        title_length, abstract_length = (
            float(sizes.sum()) / max(1, len(documents)) for sizes in fields.sizes
        )
        statistics = cls(len(documents), frequencies, title_length or 10.0, abstract_length or 150.0)
        return statistics, fields.select(order)

    @property
    def lengths(self) -> tuple[float, float]:
        """Return the mean lengths of a title and of an abstract, in terms."""
        return self.title_length, self.abstract_length

    def idf(self, term: str) -> float:
        """Return Robertson's idf of a term in n of N papers, never below 0: ln(1 + (N − n + ½) / (n + ½))."""
        return self._idf_of(self.frequencies.get(term, 0))

    def idfs(self, terms: Iterable[str]) -> Matrix:
        """Return the idf of each term, in the order of `terms`."""
        frequencies = [self.frequencies.get(term, 0) for term in terms]
        by_frequency = {frequency: self._idf_of(frequency) for frequency in {*frequencies}}
        return np.array([by_frequency[frequency] for frequency in frequencies])

    def _idf_of(self, frequency: int) -> float:
        frequency = min(frequency, self.papers)
        return math.log(1 + (self.papers - frequency + 0.5) / (frequency + 0.5))

    def to_arrays(self) -> Arrays:
        """Return the statistics as arrays, with the terms in alphabetical order."""
        terms = sorted(self.frequencies)
        return {
            "papers": np.array(self.papers, np.int64),
            "lengths": np.array([self.title_length, self.abstract_length], np.float64),
            "terms": _encode_lines(terms),
            "counts": np.array([self.frequencies[term] for term in terms], np.int32),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the statistics in these arrays. Raise KeyError or ValueError if the arrays are invalid."""
        title_length, abstract_length = arrays["lengths"].tolist()
        frequencies = zip(_decode_lines(arrays["terms"]), arrays["counts"].tolist(), strict=True)
        return cls(arrays["papers"].item(), dict(frequencies), title_length, abstract_length)


@dataclass(frozen=True)
class RelevanceModel:
    """Everything learned from the archive. Immutable: training again creates a new model."""

    statistics: TermStatistics
    abbreviations: Abbreviations
    space: VectorSpace | None = None  # None if the archive is too small
    vocabulary: Vocabulary = field(default_factory=Vocabulary)  # without the bundled words

    @cached_property
    def all_words(self) -> Vocabulary:
        """Return the archive's vocabulary together with the bundled one."""
        return self.vocabulary.with_bundled()

    @classmethod
    def train(
        cls, papers: Sequence[tuple[str, str]], min_frequency: int = 1, max_examples: int = MAX_EXAMPLES
    ) -> Self:
        """Train a model on (title, abstract) pairs, newest first.

        Drop terms in fewer papers than `min_frequency`. Keep the newest `max_examples` papers as examples.
        """
        texts = [f"{title} {abstract}" for title, abstract in papers]
        words = [*map(distinct_words, texts)]
        vocabulary = Vocabulary.count(words, MIN_PAPERS_OF_WORD)
        learned_acronyms = acronyms.learn(papers, words)
        hyphenated = preposition_compounds.learn(texts)
        del texts, words
        unfolded = [(content_stems(title), content_stems(abstract)) for title, abstract in papers]
        compounds, apart = abbreviations.find_compounds(unfolded)
        abstracts = (abstract for _, abstract in papers)
        shorts, hyphenated_pairs = abbreviations.learn(abstracts, compounds, learned_acronyms)
        folding = Abbreviations(compounds, shorts, apart, learned_acronyms, hyphenated)
        documents = [folding.document(*paper, stems) for paper, stems in zip(papers, unfolded, strict=True)]
        terms = (itertools.chain(*document) for document in documents)
        readings = shorter_readings.learn(shorts, hyphenated_pairs, zip(terms, unfolded, strict=True))
        folding = replace(folding, readings=readings)
        statistics, fields = TermStatistics.count(documents, folding.expansions, min_frequency)
        titled = [(title, document) for (title, _), document in zip(papers, documents, strict=True)]
        space = VectorSpace.fit(
            titled,
            fields,
            statistics.frequencies,
            statistics.idf,
            statistics.lengths,
            folding.expansions,
            max_examples,
        )
        return cls(statistics, folding, space, vocabulary)

    @classmethod
    @cache
    def bundled(cls) -> Self:
        """Return the model that ships with Paperboy, for archives with too few papers to train one.

        Raise CorruptModel if its file is missing or damaged.
        """
        try:
            return cls.decode(BUNDLED_MODEL.read_bytes())
        except (CorruptModel, OSError) as error:
            raise CorruptModel(f"{BUNDLED_MODEL} is missing or damaged: reinstall Paperboy") from error

    def document(self, title: str, abstract: str) -> Document:
        """Return the terms of a paper, with long forms folded into short forms."""
        return self.abbreviations.document(title, abstract)

    def names_subject(self, title: str) -> bool:
        """Return True if a title says what its paper is about.

        Most of its words must occur in the archive and be rare enough. "No Such Paper" names no subject.
        """
        words = {*self.abbreviations.terms(title)} - _FUNCTION_STEMS
        archive_words = words & self.statistics.frequencies.keys()
        information = sum(map(self.statistics.idf, archive_words))
        return len(archive_words) >= MIN_KNOWN_SHARE * len(words) and information >= MIN_INFORMATION

    def encode(self, *, compressed: bool = True) -> bytes:
        """Serialize the model as an .npz without pickles. Equal models produce equal bytes.

        Compressing takes ten times as long, and saves a fifth of the bytes.
        """
        folding, buffer = self.abbreviations, io.BytesIO()
        arrays: dict[str, Any] = {"format": np.array(FORMAT), **self.statistics.to_arrays()}
        for name, table in {"compounds": folding.compounds, "shorts": folding.shorts}.items():
            arrays[name] = _encode_lines(f"{' '.join(run)}\t{short}" for run, short in sorted(table.items()))
        arrays["words"] = _encode_lines(self.vocabulary.to_lines())
        arrays["apart"] = _encode_lines(sorted(folding.split_compounds))
        arrays["acronyms"] = _encode_lines(sorted(folding.acronyms.words))
        arrays["hyphenated"] = _encode_lines(sorted(folding.hyphenated))
        arrays["readings"] = _encode_lines(
            f"{' '.join(long)}\t{' '.join(reading)}" for long, reading in sorted(folding.readings)
        )
        arrays |= self.space.to_arrays() if self.space else {}
        (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
        return buffer.getvalue()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the model that `encode` serialized. Raise CorruptModel if `data` is not a valid model."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                if (number := arrays["format"].item()) != FORMAT:
                    raise CorruptModel(
                        f"The model has format {number!r:.20}, but this release reads format {FORMAT}."
                    )
                statistics = TermStatistics.from_arrays(arrays)
                compounds, shorts = (
                    _table(line.split("\t") for line in _decode_lines(arrays[name]))
                    for name in ("compounds", "shorts")
                )
                apart, learned_acronyms, hyphenated, readings = (
                    frozenset(_decode_lines(arrays[name]) if name in arrays else ())  # 0.1 has only "apart"
                    for name in ("apart", "acronyms", "hyphenated", "readings")
                )
                folding = Abbreviations(
                    compounds, shorts, apart, Acronyms(learned_acronyms), hyphenated, _readings(readings)
                )
                space = None
                if "projection" in arrays:
                    space = VectorSpace.from_arrays(arrays, statistics.frequencies, statistics.idf)
                vocabulary = Vocabulary.from_lines(_decode_lines(arrays["words"]))
                return cls(statistics, folding, space, vocabulary)
        except CorruptModel:
            raise
        except Exception as error:  # a broken .npz fails in more ways than can be listed
            raise CorruptModel from error


def _table(lines: Iterable[Sequence[str]]) -> dict[tuple[str, ...], str]:
    return {tuple(run.split(" ")): short for run, short in lines}


def _readings(lines: Iterable[str]) -> Readings:
    pairs = (line.split("\t") for line in lines)
    return frozenset((tuple(long.split(" ")), tuple(reading.split(" "))) for long, reading in pairs)


def _encode_lines(lines: Iterable[str]) -> np.ndarray[Any, Any]:
    return np.frombuffer("\n".join(lines).encode(), np.uint8)


def _decode_lines(joined: np.ndarray[Any, Any]) -> list[str]:
    return joined.tobytes().decode().split("\n") if joined.size else []
