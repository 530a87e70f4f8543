"""PURE. The runs of neighboring words in a title or abstract that are terms of an interest."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from app.relevance.bm25 import Idf
from app.text.tokenizer import STOP_STEMS, Tokens, without_stopwords
from app.types import Spans

PHRASE_WEIGHT = 1_000.0  # more than the idf of any number of terms
_BOUNDARY = re.compile(r"[.,:;!?()\[\]]")  # runs do not cross these marks


@dataclass(frozen=True, slots=True)
class Field:
    """A paper's title or abstract, split into words."""

    name: str
    text: str
    tokens: Tokens
    implied: Mapping[str, Sequence[int]]  # terms → the positions of the tokens that may imply them

    def positions(self, term: str) -> list[int]:
        """Return the positions, in order, of the tokens that are the term or may imply it."""
        stems, positions, position = self.tokens.stems, list[int](), -1
        for _ in range(stems.count(term)):
            position = stems.index(term, position + 1)
            positions.append(position)
        implied = self.implied.get(term)
        return sorted([*positions, *implied]) if implied else positions

    def positions_of_any(self, terms: Set[str]) -> list[int]:
        """Return the positions, in order, of the tokens that are one of these terms or may imply one."""
        positions = [position for position, stem in enumerate(self.tokens.stems) if stem in terms]
        if not self.implied:
            return positions
        implied = (position for term in self.implied.keys() & terms for position in self.implied[term])
        return sorted([*positions, *implied])


class Run(NamedTuple):
    """Neighboring tokens that are terms of an interest."""

    start: int  # in the text
    end: int
    stems: tuple[str, ...]


def distinct_runs(field: Field, terms: Set[str], idf: Idf) -> list[Run]:
    """Return runs that together contain all matching terms of the field, heaviest first, then by position."""
    runs = find_runs(field, terms)
    if len(runs) < 2:
        return runs
    first_runs = {run.stems: run for run in reversed(runs)}.values()
    used, distinct = set[str](), list[Run]()
    for run in sorted(first_runs, key=lambda run: (-weight(run, idf), run.start)):
        if not used.issuperset(run.stems):
            distinct.append(run)
            used.update(run.stems)
    return distinct


def weights(terms: Set[str], idf: Idf) -> Idf:
    """Compute the idf of these terms once, instead of for each run. Return a function that looks it up."""
    return {term: PHRASE_WEIGHT if " " in term else idf(term) for term in terms}.__getitem__


def spans(runs: Iterable[Run]) -> Spans:
    return tuple(sorted((run.start, run.end) for run in runs))


def weight(run: Run, idf: Idf) -> float:
    return sum(map(idf, run.stems))


def find_runs(field: Field, terms: Set[str]) -> list[Run]:
    """Return the runs of neighboring terms. Runs do not cross brackets or punctuation, such as commas."""
    stems, starts, ends = field.tokens.stems, field.tokens.starts, field.tokens.ends
    runs: list[tuple[int, list[str]]] = []  # the position of the first token, and all stems
    last, own = -2, list[str]()
    for position in field.positions_of_any(terms):
        is_next = position == last + 1 and not is_divided(field.text, ends[last], starts[position])
        if is_next and stems[position] not in own:
            own.append(stems[position])
        else:
            own = [stems[position]]
            runs.append((position, own))
        last = position
    if not STOP_STEMS.isdisjoint(terms) or 1 in map(len, terms):
        runs = [run for run in runs if not all(map(is_digit, run[1])) and without_stopwords(run[1])]
    return [Run(starts[first], ends[first + len(own) - 1], tuple(own)) for first, own in runs]


def is_divided(text: str, end: int, start: int) -> bool:
    """Return True if punctuation divides two words. A point within a number such as "3.5" does not."""
    gap = text[end:start]
    return gap not in (" ", "-", ".") and bool(_BOUNDARY.search(gap))


def is_digit(term: str) -> bool:
    """Return True for a single digit. A digit without a name is not worth highlighting."""
    return len(term) == 1 and term.isdigit()
