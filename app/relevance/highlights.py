"""PURE. What literally stands in a paper: the words to quote, and whom and where a reason names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from app.text.abbreviations import Abbreviations
from app.text.tokenizer import WORD, Token, fold_accents, tokenise
from app.types import PaperView

Idf = Callable[[str], float]
Parts = Mapping[str, Sequence[str]]
Weight = Callable[[Sequence[Token]], float]
_END = re.compile(r"[.;!?()\[\]]")
QUOTED = 3  # stretches of a field that a reason quotes


@dataclass(frozen=True)
class PaperText:
    """A paper, read word by word."""

    paper: PaperView
    folding: Abbreviations

    @cached_property
    def fields(self) -> tuple[tuple[str, str, list[Token]], ...]:
        """Each field's name, text and words."""
        texts = (("title", self.paper.title), ("abstract", self.paper.abstract))
        return tuple((name, text, tokenise(text)) for name, text in texts)

    @cached_property
    def _folded(self) -> tuple[tuple[str, str, list[Token]], ...]:
        """The same, long forms folded into their short ones."""
        return tuple((name, text, self.folding.fold_tokens(tokens)) for name, text, tokens in self.fields)

    @cached_property
    def _authors(self) -> list[tuple[str, list[str]]]:
        return [(name, words_of_name(name)) for name in self.paper.authors]

    def writers(self, names: Sequence[str]) -> list[str]:
        """The authors who have one of these names, or last names: whole words, any accents."""
        wanted = [words_of_name(name) for name in names]
        return [author for author, words in self._authors if any(_stands(name, words) for name in wanted)]

    def filings(self, names: Sequence[str]) -> list[str]:
        """The paper's categories that are asked for: `cs.CL` means itself, `cs` the whole archive."""
        return [own for own in self.paper.categories if belongs(own, names)]

    def quotes(self, wanted: set[str], idf: Idf) -> list[str]:
        """The wanted terms as the paper spells them, and where: `“speculative decoding” in the title`.

        The field that says more of them at a stretch comes first; the other adds what it lacks.
        """

        def weight(run: Sequence[Token]) -> float:
            return sum(idf(token.stem) for token in run)

        fields = self._saying(wanted)
        fields.sort(key=lambda field: -max(map(weight, _runs(field[1], field[2], wanted)), default=0.0))
        said, parts = set[str](), []
        for name, text, tokens in fields:
            runs = _best_runs(text, tokens, wanted - said, weight)
            said.update(token.stem for run in runs for token in run)
            quoted = [f"“{text[run[0].start : run[-1].end]}”" for run in runs]
            if quoted:
                parts.append(f"{', '.join(quoted)} in the {name}")
        return parts

    @cached_property
    def _says_more(self) -> bool:
        """Whether a word of it, folded, says others besides."""
        return any(token.stem in self.folding.parts for _, _, tokens in self._folded for token in tokens)

    def _saying(self, wanted: Set[str]) -> list[tuple[str, str, list[Token]]]:
        """Each field with its folded words; one that only says a wanted term besides stands for that term.

        Where the paper writes such a term out, that is what stands for it; else a short form does.
        """
        if not self._says_more:
            return list(self._folded)
        parts_of = self.folding.parts
        fields = [
            (name, text, [one for token in folded for one in _opened(token, tokens, wanted, parts_of)])
            for (name, text, tokens), (_, _, folded) in zip(self.fields, self._folded, strict=True)
        ]
        lacking = wanted - {token.stem for _, _, tokens in fields for token in tokens}
        return [
            (name, text, [_standing_in(token, lacking, parts_of) for token in tokens])
            for name, text, tokens in fields
        ]

    def spelled(self, term: str) -> str:
        """A term as the paper spells it first, or nothing."""
        parts_of = self.folding.parts
        for _, text, tokens in self._folded:
            for token in tokens:
                if token.stem == term or term in parts_of.get(token.stem, ()):
                    return text[token.start : token.end]
        return ""


def belongs(category: str, names: Sequence[str]) -> bool:
    """Whether a category is one of these, or of one of these archives."""
    own = category.casefold()
    return any(own == name or own.startswith(f"{name}.") for name in names)


def words_of_name(name: str) -> list[str]:
    """The words of a name, the last one last: "García, José" is José García."""
    last, _, first = name.partition(",")
    return WORD.findall(fold_accents(f"{first} {last}"))


def _stands(phrase: Sequence[str], stems: Sequence[str]) -> bool:
    """Whether the stems of a phrase stand next to each other, in this order; no stems stand nowhere."""
    size, wanted = len(phrase), list(phrase)
    if not wanted or wanted[0] not in stems:  # most do not have it: many times faster told than looked for
        return False
    return any(
        stems[place] == wanted[0] and stems[place : place + size] == wanted
        for place in range(len(stems) - size + 1)
    )


def _opened(token: Token, text: Sequence[Token], wanted: Set[str], parts_of: Parts) -> list[Token]:
    """A folded word as it is, or the words in it that are wanted by themselves."""
    if token.stem in wanted or token.stem not in parts_of:
        return [token]
    inside = [one for one in text if token.start <= one.start and one.end <= token.end]
    return [one for one in inside if one.stem in wanted] or [token]


def _standing_in(token: Token, lacking: Set[str], parts_of: Parts) -> Token:
    """A short form stands for a term that it says besides, if no word does."""
    says = lacking & set(parts_of.get(token.stem, ()))
    return replace(token, stem=min(says)) if says else token


def _best_runs(text: str, tokens: Sequence[Token], wanted: set[str], weight: Weight) -> list[list[Token]]:
    """The stretches of neighbouring wanted words that together say most of the query, best first."""
    chosen: list[list[Token]] = []
    said = set[str]()
    for run in sorted(_runs(text, tokens, wanted), key=lambda run: (-weight(run), run[0].start)):
        stems = {token.stem for token in run}
        if not stems & said and len(chosen) < QUOTED:
            chosen.append(run)
            said |= stems
    return chosen


def _runs(text: str, tokens: Sequence[Token], wanted: set[str]) -> list[list[Token]]:
    """The stretches of neighbouring wanted words; none goes over the end of a sentence or over a bracket."""
    runs: list[list[Token]] = []
    for before, token in itertools.pairwise([None, *tokens]):
        if token is None or token.stem not in wanted:
            continue
        near = before and runs and before is runs[-1][-1] and not _END.search(text, before.end, token.start)
        if near and token.stem not in {t.stem for t in runs[-1]}:
            runs[-1].append(token)
        else:
            runs.append([token])
    return runs
