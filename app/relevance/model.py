"""PURE. The archive as numbers: what it says of words, learned from its papers, and as bytes that keep."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.errors import CorruptModel
from app.relevance.vector_space import Document, Parts, VectorSpace, with_expansions
from app.text import abbreviations
from app.text.abbreviations import Abbreviations
from app.text.tokenizer import stems

# Raised when an array is added or means something else, or when `words` stems differently.
FORMAT = 1
SHIPPED = Path(__file__).with_name("frequencies.json")

Arrays = Mapping[str, Any]  # numpy arrays by name


@dataclass(frozen=True)
class Statistics:
    """What an archive says of words: in how many papers each stem, or pair of stems, occurs."""

    papers: int
    frequencies: Mapping[str, int]  # "stem" or "stem stem"
    title_length: float  # mean, in words
    abstract_length: float

    @classmethod
    def of(cls, documents: Iterable[Document], parts: Parts) -> Statistics:
        """Count what (title, abstract) say. Pairs of stems that occur once are left out."""
        frequencies: Counter[str] = Counter()
        count = titles = abstracts = 0
        for title, abstract in documents:
            frequencies.update({*with_expansions(title, parts), *with_expansions(abstract, parts)})
            count, titles, abstracts = count + 1, titles + len(title), abstracts + len(abstract)
        kept = {term: n for term, n in frequencies.items() if n > 1 or " " not in term}
        return cls(count, kept, titles / max(1, count) or 10.0, abstracts / max(1, count) or 150.0)

    @property
    def lengths(self) -> tuple[float, float]:
        """Means of a title's and of an abstract's length."""
        return self.title_length, self.abstract_length

    def idf(self, term: str) -> float:
        """Robertson's idf, never negative: ln(1 + (N − n + ½) / (n + ½))."""
        seen = min(self.frequencies.get(term, 0), self.papers)
        return math.log(1 + (self.papers - seen + 0.5) / (seen + 0.5))

    def arrays(self) -> Arrays:
        """The same as arrays, terms in the order of their letters."""
        terms = sorted(self.frequencies)
        return {
            "papers": np.array(self.papers, np.int64),
            "lengths": np.array([self.title_length, self.abstract_length], np.float64),
            "terms": _bytes_of(terms),
            "counts": np.array([self.frequencies[term] for term in terms], np.int32),
        }

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Statistics:
        """What `arrays` gave; KeyError or ValueError where that is not what it is."""
        title_length, abstract_length = arrays["lengths"].tolist()
        counted = zip(_terms_of(arrays["terms"]), arrays["counts"].tolist(), strict=True)
        return cls(arrays["papers"].item(), dict(counted), title_length, abstract_length)


@dataclass(frozen=True)
class RelevanceModel:
    """All that an archive says. It never changes: a newer one is another one."""

    statistics: Statistics
    abbreviations: Abbreviations
    space: VectorSpace | None = None  # of an archive that is large enough

    @classmethod
    def of(cls, papers: Sequence[tuple[str, str]]) -> RelevanceModel:
        """Learn from (title, abstract) pairs, the newest first."""
        bare = [(stems(title), stems(abstract)) for title, abstract in papers]
        compounds, apart = abbreviations.compounds(bare)
        shorts = abbreviations.learn((abstract for _, abstract in papers), compounds)
        learned = Abbreviations(compounds, shorts, apart)
        documents = [(learned.fold(title), learned.fold(abstract)) for title, abstract in bare]
        counted = Statistics.of(documents, learned.parts)
        titled = [(title, document) for (title, _), document in zip(papers, documents, strict=True)]
        space = VectorSpace.fit(titled, counted.frequencies, counted.idf, counted.lengths, learned.parts)
        return cls(counted, learned, space)

    @classmethod
    def shipped(cls) -> RelevanceModel:
        """What came with this version, for an archive too young to say what is common."""
        kept = json.loads(SHIPPED.read_text(encoding="utf-8"))
        compounds, shorts = (_table(kept.pop(name).items()) for name in ("compounds", "shorts"))
        folding = Abbreviations(compounds, shorts, frozenset(kept.pop("apart")))
        return cls(Statistics(**kept), folding)

    def document(self, title: str, abstract: str) -> Document:
        """The terms of a paper, as the archive counts them."""
        return self.abbreviations.terms(title), self.abbreviations.terms(abstract)

    def encode(self) -> bytes:
        """As bytes: a compressed .npz without pickles. The same corpus gives the same bytes."""
        written = io.BytesIO()
        arrays: dict[str, Any] = {"format": np.array(FORMAT), **self.statistics.arrays()}
        arrays |= _folding(self.abbreviations) | (self.space.arrays() if self.space else {})
        np.savez_compressed(written, **arrays)
        return written.getvalue()

    @classmethod
    def decode(cls, data: bytes) -> RelevanceModel:
        """What `encode` gave, or CorruptModel: a broken archive fails in more ways than can be listed."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                if (found := arrays["format"].item()) != FORMAT:
                    raise CorruptModel(f"This model has format {found!r:.20}, and {FORMAT} is read here.")
                return cls._of_arrays(arrays)
        except CorruptModel:
            raise
        except Exception as error:
            raise CorruptModel from error

    @classmethod
    def _of_arrays(cls, arrays: Arrays) -> RelevanceModel:
        counted = Statistics.of_arrays(arrays)
        compounds, shorts = (
            _table(line.split("\t") for line in _terms_of(arrays[name])) for name in ("compounds", "shorts")
        )
        folding = Abbreviations(compounds, shorts, frozenset(_terms_of(arrays["apart"])))
        space = None
        if "projection" in arrays:
            space = VectorSpace.of_arrays(arrays, counted.frequencies, counted.idf)
        return cls(counted, folding, space)


def _folding(learned: Abbreviations) -> dict[str, Any]:
    tables = {"compounds": learned.compounds, "shorts": learned.shorts}
    return {
        name: _bytes_of(f"{' '.join(run)}\t{short}" for run, short in sorted(table.items()))
        for name, table in tables.items()
    } | {"apart": _bytes_of(sorted(learned.apart))}


def _table(lines: Iterable[Sequence[str]]) -> dict[tuple[str, ...], str]:
    return {tuple(run.split(" ")): short for run, short in lines}


def _bytes_of(terms: Iterable[str]) -> np.ndarray[Any, Any]:
    return np.frombuffer("\n".join(terms).encode(), np.uint8)


def _terms_of(joined: np.ndarray[Any, Any]) -> list[str]:
    return joined.tobytes().decode().split("\n") if joined.size else []
