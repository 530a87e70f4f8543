"""PURE. Short forms and what they stand for, learned from the texts that explain them.

"reinforcement learning (RL)" in three abstracts is enough: from then on an interest in "RL" finds papers
on reinforcement learning and the other way round. So are "fine-tuning" and "finetuning" one word.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from app.text.tokenizer import Token, bigrams, stems, telling, tokenise

LEAST = 3  # papers that must agree
UNANIMITY = 0.75  # of all that explain it; "SLM" and "ASR" mean two things, so they stay themselves

_SHORT = re.compile(r"\(([A-Za-z0-9][A-Za-z0-9-]{1,11})\)")
_CLAUSE = re.compile(r"[.;:!?,]\s|[()]")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9]+")
_LINKS = {"a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "into", "is", "it", "of", "on"}
_LINKS |= {"or", "the", "that", "to", "via", "with"}
_LOOK_BACK = 120  # characters

Part = TypeVar("Part")
Table = Mapping[tuple[str, ...], str]  # a run of stems, two at least → the stem that stands for it
Starts = Mapping[tuple[str, ...], Sequence[tuple[str, ...]]]  # the first two stems of runs → these runs


def find_definitions(text: str) -> Iterator[tuple[str, str]]:
    """The (short, long) forms that a text explains, such as ("LLM", "large language model").

    After Schwartz and Hearst (2003), stricter: each word of the long form gives its first letter, and
    maybe more, in order; only small words may give none.
    """
    for found in _SHORT.finditer(text):
        short = found.group(1)
        if sum(char.isupper() for char in short) < 2:
            continue
        short = short[:-1] if short.endswith("s") and short[:-1].isupper() else short
        clause = _CLAUSE.split(text[max(0, found.start() - _LOOK_BACK) : found.start()])[-1]
        long = _long_form(short, _PLAIN_WORD.findall(clause))
        if long:
            yield short, " ".join(long)


def _long_form(short: str, before: Sequence[str]) -> Sequence[str]:
    """The longest run of words right before the bracket that spells the short form."""
    letters = "".join(char for char in short.lower() if char.isalnum())
    for size in range(min(len(before), len(letters) + 3), 1, -1):
        words = [word.lower() for word in before[-size:]]
        if words[0] not in _LINKS and _spells(letters, words):
            return before[-size:]
    return ()


def _spells(letters: str, words: Sequence[str]) -> bool:
    """Whether the words give these letters, each its share of them, in order."""
    given = {0}  # how many letters the words so far may have given
    for word in words:
        given = {used + more for used in given for more in _shares(word, letters[used:])}
    return len(letters) in given


def _shares(word: str, letters: str) -> Iterator[int]:
    """How many of these letters a word may give: its first one, then those that come later in it."""
    if word in _LINKS:
        yield 0
    place = 0
    for number, letter in enumerate(letters, start=1):
        place = word.find(letter, place) + 1
        if not place or (number == 1 and place > 1):
            return
        yield number


def learn(texts: Iterable[str], compounds: Table) -> dict[tuple[str, ...], str]:
    """Long form → short form, both as stems, from texts of which each counts once."""
    joined = Abbreviations(compounds, {})
    counted: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for text in texts:
        for short, long in sorted(
            {(_one(short), tuple(joined.fold(_run(long)))) for short, long in find_definitions(text)}
        ):
            if short and len(long) > 1:
                counted[short][long] += 1
    return _nested(_agreed(counted))


def _nested(table: Table) -> dict[tuple[str, ...], str]:
    """With every long form also as it is read where a part of it is written short: "multimodal LLM"."""
    found = dict(table)
    for long, short in table.items():
        parts = {run: name for run, name in table.items() if len(run) < len(long)}
        found.setdefault(tuple(Abbreviations({}, parts).fold(long)), short)
    return {long: short for long, short in sorted(found.items()) if len(long) > 1}


def _run(long: str) -> tuple[str, ...]:
    """The stems of a long form; none where one of its words is left out of texts: "computer use agent"."""
    found = stems(long)
    return tuple(found) if len(found) == sum(word not in _LINKS for word in long.lower().split()) else ()


def _one(short: str) -> str:
    found = stems(short)
    return found[0] if len(found) == 1 else ""


def _agreed(counted: Mapping[str, Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], str]:
    """What enough papers agree on; a long form goes to the short form that most papers give it."""
    best: dict[tuple[str, ...], tuple[int, str]] = {}
    for short, longs in counted.items():
        long, papers = longs.most_common(1)[0]
        if papers >= LEAST and papers >= UNANIMITY * longs.total():
            best[long] = max(best.get(long, (0, "")), (papers, short))
    return {long: short for long, (_, short) in sorted(best.items())}


def compounds(documents: Sequence[Sequence[Sequence[str]]]) -> tuple[Table, frozenset[str]]:
    """Pairs of stems that are written as one word, too: ("fine", "tune") and "finetun".

    And which of these words are written as a pair in no fewer papers: "long video" is, "data set" is not.
    """
    single = Counter(stem for document in documents for stem in {stem for text in document for stem in text})
    whole = {stem for stem, papers in single.items() if papers >= LEAST and stem.isalpha()}
    paired = Counter(pair for document in documents for pair in _joinable(document, whole))
    usual = [pair for pair, papers in sorted(paired.items()) if papers >= LEAST]
    table: Table = {pair: _joined(*pair, whole) for pair in usual}
    return table, frozenset(table[pair] for pair in usual if paired[pair] >= single[table[pair]])


def _joinable(document: Sequence[Sequence[str]], whole: Set[str]) -> set[tuple[str, str]]:
    return {
        (first, second)
        for text in document
        for first, second in itertools.pairwise(text)
        if len(first) > 1 and len(second) > 1 and _joined(first, second, whole)
    }


def _joined(first: str, second: str, whole: Set[str]) -> str:
    """The stem of a pair written as one word, or nothing where nobody writes it so."""
    joined = first + second
    if joined in whole:
        return joined
    # Only a short word keeps its last e: "tuning" is "tune", and "finetuning" is "finetun".
    bare = joined.removesuffix("e")
    return bare if bare in whole else ""


@dataclass(frozen=True)
class Abbreviations:
    """Folds long forms into the short ones that stand for them."""

    compounds: Table
    shorts: Table
    apart: Set[str] = frozenset()  # the compounds that most papers write as two words

    @cached_property
    def parts(self) -> Mapping[str, tuple[str, ...]]:
        """What a folded term says besides: a short form the stems, pairs and shorter forms that all its
        long forms hold, a compound its two words, where most papers write it so.

        A paper on "video diffusion models" is one on diffusion and on diffusion models, though both are
        folded away; and three papers on "LongVideo" do not make one on "long videos" no paper on videos.
        """
        shorts, found = set(self.shorts.values()), dict[str, set[str]]()
        for long, short in self.shorts.items():
            if shorts.isdisjoint(long):  # written out in full
                spans = itertools.combinations(range(len(long) + 1), 2)
                inner = {self.shorts.get(long[start:end], "") for start, end in spans}
                said = {*long, *bigrams(long), *inner} - {short, ""}
                found[short] = found.get(short, said) & said
        pairs_of = {word: pair for pair, word in self.compounds.items() if word in self.apart}
        return pairs_of | {short: tuple(sorted(said)) for short, said in found.items()}

    @cached_property
    def _passes(self) -> tuple[Starts, ...]:
        # The second pass over `shorts` finds long forms that hold a short one: "multimodal LLM".
        return tuple(_by_start(table) for table in (self.compounds, self.shorts, self.shorts))

    @cached_property
    def _tables(self) -> tuple[Table, ...]:
        return self.compounds, self.shorts, self.shorts

    def fold(self, text: Sequence[str]) -> list[str]:
        """Stems, with every long form folded into its short one."""
        folded = list(text)
        for table, starts in zip(self._tables, self._passes, strict=True):
            if spans := _spans(folded, starts):
                folded = _spliced(folded, spans, [table[tuple(folded[a:b])] for a, b in spans])
        return folded

    def fold_tokens(self, tokens: Sequence[Token]) -> list[Token]:
        """The same with words that know their place: a folded one stretches over all of its long form."""
        folded = [token for token in tokens if telling([token.stem])]
        for table, starts in zip(self._tables, self._passes, strict=True):
            run = [token.stem for token in folded]
            spans = _spans(run, starts)
            whole = [Token(table[tuple(run[a:b])], folded[a].start, folded[b - 1].end) for a, b in spans]
            folded = _spliced(folded, spans, whole)
        return folded

    def terms(self, text: str) -> list[str]:
        """The telling stems of a text, folded."""
        return self.fold(stems(text))

    def tokens(self, text: str) -> list[Token]:
        """The telling words of a text, folded, with their places in it."""
        return self.fold_tokens(tokenise(text))


def _by_start(table: Table) -> Starts:
    """The runs by their first two stems, the longest first."""
    starts: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for run in sorted(table, key=lambda run: (-len(run), run)):
        starts[run[:2]].append(run)
    return dict(starts)


def _spans(text: Sequence[str], starts: Starts) -> list[tuple[int, int]]:
    """Where runs that a table knows stand, as (start, end): from the left, the longest first."""
    spans, past = list[tuple[int, int]](), 0
    for at, start in [found for found in enumerate(itertools.pairwise(text)) if found[1] in starts]:
        if at >= past and (size := _longest(text, at, starts[start])):
            past = at + size
            spans.append((at, past))
    return spans


def _longest(text: Sequence[str], at: int, runs: Sequence[tuple[str, ...]]) -> int:
    return next((len(run) for run in runs if tuple(text[at : at + len(run)]) == run), 0)


def _spliced(parts: Sequence[Part], spans: Sequence[tuple[int, int]], whole: Sequence[Part]) -> list[Part]:
    """Parts of a text, one in place of each span of them."""
    spliced, past = list[Part](), 0
    for (start, end), one in zip(spans, whole, strict=True):
        spliced += [*parts[past:start], one]
        past = end
    return [*spliced, *parts[past:]]
