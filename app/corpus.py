"""PURE. The archive as numbers: what it says of words, learned from its papers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.words import pairs, telling, tokenise


@dataclass(frozen=True)
class Statistics:
    """What an archive says of words: in how many papers each stem, or pair of stems, occurs."""

    papers: int
    frequencies: Mapping[str, int]  # "stem" or "stem stem"
    title_length: float  # mean, in words
    abstract_length: float

    @classmethod
    def of(cls, papers: Iterable[tuple[str, str]]) -> Statistics:
        """Count (title, abstract) pairs. Pairs of stems that occur once are left out."""
        frequencies: Counter[str] = Counter()
        count = titles = abstracts = 0
        for title, abstract in papers:
            stems = [telling(token.stem for token in tokenise(text)) for text in (title, abstract)]
            frequencies.update({*stems[0], *stems[1], *pairs(stems[0]), *pairs(stems[1])})
            count, titles, abstracts = count + 1, titles + len(stems[0]), abstracts + len(stems[1])
        kept = {term: n for term, n in frequencies.items() if n > 1 or " " not in term}
        return cls(count, kept, titles / max(1, count) or 10.0, abstracts / max(1, count) or 150.0)

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Read counts written as JSON by benchmarks/make_frequencies.py."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def idf(self, term: str) -> float:
        """Robertson's idf, never negative: ln(1 + (N − n + ½) / (n + ½))."""
        seen = min(self.frequencies.get(term, 0), self.papers)
        return math.log(1 + (self.papers - seen + 0.5) / (seen + 0.5))
