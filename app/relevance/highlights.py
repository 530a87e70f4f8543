"""PURE. The parts of a paper that match, as the paper spells them: words, authors and categories."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from app.relevance.vector_space import Expansions, Idf
from app.text.abbreviations import Abbreviations
from app.text.tokenizer import WORD, Token, fold_accents, tokenise
from app.types import PaperView

MAX_HIGHLIGHTS = 3  # of a field

Field = tuple[str, str, list[Token]]  # its name, its text and the words of the text
Weight = Callable[[Sequence[Token]], float]
_BOUNDARY = re.compile(r"[.;!?()\[\]]")  # no highlight crosses it


@dataclass(frozen=True)
class PaperText:
    """A paper, split into words."""

    paper: PaperView
    abbreviations: Abbreviations

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Return the title and the abstract with their words."""
        texts = (("title", self.paper.title), ("abstract", self.paper.abstract))
        return tuple((name, text, tokenise(text)) for name, text in texts)

    @cached_property
    def _folded_fields(self) -> tuple[Field, ...]:
        """Return the fields with long forms folded into their short ones."""
        fold = self.abbreviations.fold_tokens
        return tuple((name, text, fold(tokens)) for name, text, tokens in self.fields)

    @cached_property
    def _author_words(self) -> list[tuple[str, list[str]]]:
        return [(name, words_of_name(name)) for name in self.paper.authors]

    def matching_authors(self, names: Sequence[str]) -> list[str]:
        """Return the authors with one of these full or last names: by whole words, without accents."""
        phrases = [words_of_name(name) for name in names]
        return [
            author
            for author, words in self._author_words
            if any(_contains(words, phrase) for phrase in phrases)
        ]

    def matching_categories(self, names: Sequence[str]) -> list[str]:
        """Return the paper's categories that match: `cs.CL` matches itself, `cs` the whole archive."""
        return [own for own in self.paper.categories if in_categories(own, names)]

    def highlights(self, terms: set[str], idf: Idf) -> list[str]:
        """Return the terms as the paper spells them, and where: `“speculative decoding” in the title`.

        The field with the heaviest stretch of terms comes first; the other one adds the terms it lacks.
        """

        def weight(run: Sequence[Token]) -> float:
            return sum(idf(token.stem) for token in run)

        fields = self._fields_with(terms)
        fields.sort(key=lambda field: -max(map(weight, _runs(field[1], field[2], terms)), default=0.0))
        quoted, parts = set[str](), []
        for name, text, tokens in fields:
            runs = _best_runs(text, tokens, terms - quoted, weight)
            quoted.update(token.stem for run in runs for token in run)
            quotes = [f"“{text[run[0].start : run[-1].end]}”" for run in runs]
            if quotes:
                parts.append(f"{', '.join(quotes)} in the {name}")
        return parts

    @cached_property
    def _has_expansions(self) -> bool:
        """Return True if a folded word implies other terms."""
        expansions = self.abbreviations.expansions
        return any(token.stem in expansions for _, _, tokens in self._folded_fields for token in tokens)

    def _fields_with(self, terms: Set[str]) -> list[Field]:
        """Return the folded fields, with words that only imply one of the terms relabelled as that term.

        Prefer the words of the long form where the paper writes it out; otherwise relabel the short form.
        """
        if not self._has_expansions:
            return list(self._folded_fields)
        expansions = self.abbreviations.expansions
        fields = [
            (name, text, [part for token in folded for part in _unfold(token, tokens, terms, expansions)])
            for (name, text, tokens), (_, _, folded) in zip(self.fields, self._folded_fields, strict=True)
        ]
        missing = terms - {token.stem for _, _, tokens in fields for token in tokens}
        return [
            (name, text, [_relabel(token, missing, expansions) for token in tokens])
            for name, text, tokens in fields
        ]

    def surface_form(self, term: str) -> str:
        """Return a term as the paper spells it first, or "" if it lacks the term."""
        expansions = self.abbreviations.expansions
        for _, text, tokens in self._folded_fields:
            for token in tokens:
                if token.stem == term or term in expansions.get(token.stem, ()):
                    return text[token.start : token.end]
        return ""


def in_categories(category: str, names: Sequence[str]) -> bool:
    """Return True if a category is one of these categories, or belongs to one of these archives."""
    own = category.casefold()
    return any(own == name or own.startswith(f"{name}.") for name in names)


def words_of_name(name: str) -> list[str]:
    """Return the words of a name, the last name last: "García, José" is José García."""
    last, _, first = name.partition(",")
    return WORD.findall(fold_accents(f"{first} {last}"))


def _contains(words: Sequence[str], phrase: Sequence[str]) -> bool:
    """Return True if the phrase is in `words`: next to each other, in this order. An empty one never is."""
    size, first_to_last = len(phrase), list(phrase)
    if not first_to_last or first_to_last[0] not in words:  # the usual case, and many times faster
        return False
    return any(
        words[start] == first_to_last[0] and words[start : start + size] == first_to_last
        for start in range(len(words) - size + 1)
    )


def _unfold(token: Token, text: Sequence[Token], terms: Set[str], expansions: Expansions) -> list[Token]:
    """Return a folded word as it is, or the words within it that are among the terms by themselves."""
    if token.stem in terms or token.stem not in expansions:
        return [token]
    inside = [word for word in text if token.start <= word.start and word.end <= token.end]
    return [word for word in inside if word.stem in terms] or [token]


def _relabel(token: Token, missing: Set[str], expansions: Expansions) -> Token:
    """Return a short form with the stem of a missing term that it implies, or as it is."""
    implied = missing & set(expansions.get(token.stem, ()))
    return replace(token, stem=min(implied)) if implied else token


def _best_runs(text: str, tokens: Sequence[Token], terms: set[str], weight: Weight) -> list[list[Token]]:
    """Return at most `MAX_HIGHLIGHTS` runs without common stems, the heaviest first."""
    chosen: list[list[Token]] = []
    quoted = set[str]()
    for run in sorted(_runs(text, tokens, terms), key=lambda run: (-weight(run), run[0].start)):
        stems = {token.stem for token in run}
        if not stems & quoted and len(chosen) < MAX_HIGHLIGHTS:
            chosen.append(run)
            quoted |= stems
    return chosen


def _runs(text: str, tokens: Sequence[Token], terms: set[str]) -> list[list[Token]]:
    """Return the runs of neighbouring terms. A run crosses no bracket and no end of a sentence."""
    runs: list[list[Token]] = []
    for before, token in itertools.pairwise([None, *tokens]):
        if token is None or token.stem not in terms:
            continue
        is_next = (
            before and runs and before is runs[-1][-1] and not _BOUNDARY.search(text, before.end, token.start)
        )
        if is_next and token.stem not in {t.stem for t in runs[-1]}:
            runs[-1].append(token)
        else:
            runs.append([token])
    return runs
