"""PURE. Find the matching words, authors, organization and categories of a paper, in the paper's spelling."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from app.relevance import word_runs
from app.relevance.bm25 import Document, Idf
from app.relevance.filters import in_categories
from app.relevance.word_runs import Field
from app.text import summarizer
from app.text.abbreviations import Abbreviations
from app.text.names import forms_of_name, words_of_organization
from app.text.tokenizer import (
    STOP_STEMS,
    WORD,
    Token,
    Tokens,
    compound_span,
    tokenize,
    without_stopwords,
)
from app.text.word_forms import is_same_word
from app.types import PaperView, Spans

MAX_HIGHLIGHTS = 3  # per field

Typed = Mapping[str, str]  # stems → the words of an interest, as typed
Highlights = list[tuple[str, list[str]]]  # the name of a field, and excerpts from it
_ANY_FORM: Typed = MappingProxyType({})


@dataclass(frozen=True)
class PaperText:
    """A paper, split into words."""

    paper: PaperView
    abbreviations: Abbreviations

    @cached_property
    def card(self) -> PaperText:
        """Return the text of the paper's card: the title, and the summary in place of the abstract."""
        own = self.paper
        summary = summarizer.summary(own.title, own.tldr, own.abstract)
        titles = self.fields[0], self.folded_fields[0]
        return _CardText(replace(own, abstract=summary), self.abbreviations, *titles, self.redefined)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Return the title and the abstract, each with its words."""
        return _field("title", self.paper.title), _field("abstract", self.paper.abstract)

    @property
    def document(self) -> Document:
        """Return the terms of the paper, as `RelevanceModel.document` does, without copying them."""
        title, abstract = self.folded_fields
        return title.tokens.stems, abstract.tokens.stems

    @cached_property
    def folded_fields(self) -> tuple[Field, ...]:
        """Return the fields with long forms folded into short forms."""
        return tuple(map(self._folded, self.fields))

    def _folded(self, field: Field) -> Field:
        expansions = self.abbreviations.expansions
        tokens = self.abbreviations.acronyms.mark(field.tokens, field.text)
        tokens = self.abbreviations.fold_tokens(tokens, self.redefined)
        implied = defaultdict[str, list[int]](list)
        for position, stem in enumerate(tokens.stems):
            for term in expansions.get(stem, ()):
                implied[term].append(position)
        return replace(field, tokens=tokens, implied=dict(implied))

    @cached_property
    def redefined(self) -> frozenset[str]:
        """Return the short forms to which the paper gives another meaning."""
        return self.abbreviations.redefined_short_forms(self.paper.title, self.paper.abstract)

    def matching_authors(self, names: Sequence[str]) -> list[str]:
        """Return the authors whose names contain one of `names` as whole words.

        Accents and middle initials are ignored.
        """
        phrases = [_padded(form) for name in names for form in forms_of_name(name) if form]
        return [
            author
            for author in (self.paper.authors if phrases else ())
            if any(phrase in _padded(form) for form in forms_of_name(author) for phrase in phrases)
        ]

    def matching_organization(self, names: Sequence[str]) -> str:
        """Return the paper's organization, or "" if none of its names contains one of `names` as whole words.

        If only its short name matches, add that in brackets: "AI at Meta (facebook)".
        """
        phrases = [phrase for name in names if (phrase := _padded(words_of_organization(name))).strip()]
        matching = (
            own
            for own in self.paper.organization_names
            if any(phrase in _padded(words_of_organization(own)) for phrase in phrases)
        )
        organization, matched = self.paper.organization, next(matching, "")
        return f"{organization} ({matched})" if matched not in ("", organization) else matched

    def matching_categories(self, names: Sequence[str]) -> list[str]:
        """Return the paper's categories that match `names`. "cs" also matches its subcategories."""
        return [own for own in self.paper.categories if in_categories(own, names)]

    def highlights(self, terms: Set[str], idf: Idf, typed: Typed = _ANY_FORM) -> Highlights:
        """Return the runs of neighboring terms with the highest idf, as the paper spells them, by field.

        The field with the heaviest run of several words comes first, or the title if there is no such run.
        The other field adds only terms that the first one lacks. Words that merely share a stem with a typed
        word do not count. A term that is a stop word counts only beside another term. A term may be a phrase,
        as stems joined by spaces. It is heavier than all other terms.
        """

        fields, idf = self._fields_with(terms, typed), word_runs.weights(terms, idf)
        runs_by_field = {field.name: word_runs.distinct_runs(field, terms, idf) for field in fields}

        def heaviest(field: Field) -> float:
            runs = runs_by_field[field.name]
            return max((word_runs.weight(run, idf) for run in runs if len(run.stems) > 1), default=0.0)

        used, highlights = set[str](), []
        for field in sorted(fields, key=heaviest, reverse=True):
            if used.issuperset(terms):
                break
            runs = word_runs.distinct_runs(field, terms - used, idf) if used else runs_by_field[field.name]
            used.update(*(run.stems for run in runs[:MAX_HIGHLIGHTS]))
            if runs:
                excerpts = [field.text[run.start : run.end] for run in runs[:MAX_HIGHLIGHTS]]
                highlights.append((field.name, excerpts))
        return highlights

    def marks(self, terms: Set[str], idf: Idf, typed: Typed = _ANY_FORM) -> tuple[Spans, Spans, Set[str]]:
        """Return the spans to mark in the title and in the abstract, and the marked terms.

        Heavier runs take precedence. Skip a run if all its terms are already marked in the same text. Also
        skip a run of the abstract if all its terms are marked in the title.
        """
        idf = word_runs.weights(terms, idf)
        title, abstract = (
            word_runs.distinct_runs(field, terms, idf) for field in self._fields_with(terms, typed)
        )
        in_title = set[str]().union(*(run.stems for run in title))
        abstract = [run for run in abstract if not in_title.issuperset(run.stems)]
        marked = in_title.union(*(run.stems for run in abstract))
        return word_runs.spans(title), word_runs.spans(abstract), marked

    def has_other_form(self, stem: str, word: str) -> bool:
        """Return True if the paper or its card has a word with this stem that is not a form of `word`.

        Such words are rare. A typed word without another form does not change highlights or marks.
        """
        typed = {stem: word}
        return not all(
            _is_form(field.tokens[position], field.text, typed)
            for field in (*self.fields, self.card.fields[1])
            for position in field.positions(stem)
        )

    def are_together(self, terms: Set[str], others: Set[str]) -> bool:
        """Return True if each of `others` stands beside one of `terms` in the title or the abstract."""
        runs = [
            run.stems
            for field in self._fields_with(terms | others, _ANY_FORM)
            for run in word_runs.find_runs(field, terms | others)
        ]
        return all(any(other in run for run in runs) for other in others)

    @cached_property
    def _stems_in_folded_words(self) -> Set[str]:
        """Return the terms that folded tokens imply, and the stems of the words that these tokens span."""
        expansions, stems = self.abbreviations.expansions, set[str]()
        for field in self.folded_fields:
            for position, stem in enumerate(field.tokens.stems):
                if stem in expansions:
                    within = self._words_within(field.tokens[position], field.name)
                    stems.update(expansions[stem], (word.stem for word in within))
        return stems

    def _fields_with(self, terms: Set[str], typed: Typed) -> list[Field]:
        """Return the folded fields. Relabel tokens that imply one of `terms` with that term.

        If the paper writes out a long form with words among `terms`, replace its token with these words. If
        the paper contains a phrase among `terms`, replace its words with one token.
        """
        if phrases := {term for term in terms if " " in term}:
            fields = self._fields_with(terms - phrases, typed)
            return [self._with_phrases(field, phrases, typed) for field in fields]
        fields = self._fields_with_forms(terms, typed)
        if self._stems_in_folded_words.isdisjoint(terms):
            return fields
        expansions = self.abbreviations.expansions
        unfolded = list[Field]()
        for field in fields:
            tokens = list[Token]()
            for token in field.tokens:
                if token.stem in terms or token.stem not in expansions:
                    tokens.append(token)
                    continue
                within = [word for word in self._words_within(token, field.name) if word.stem in terms]
                tokens += [word for word in within if _is_form(word, field.text, typed)] or [token]
            unfolded.append(Field(field.name, field.text, Tokens.of(tokens), {}))
        missing = terms - {stem for field in unfolded for stem in field.tokens.stems}
        return [self._relabelled(field, missing, typed) for field in unfolded] if missing else unfolded

    def contains_phrase(self, phrase: str, typed: Typed) -> bool:
        """Return True if a field contains forms of these words, which are stems joined by spaces."""
        return any(next(self._phrases_in(field, phrase, typed), None) for field in self.fields)

    def _phrases_in(self, field: Field, phrase: str, typed: Typed) -> Iterator[Token]:
        """Yield the places of a phrase in an unfolded field as tokens, if no punctuation divides them."""
        stems, tokens = phrase.split(" "), field.tokens
        for first in field.positions(stems[0]):
            past = first + len(stems)
            if tokens.stems[first:past] != stems or not all(
                _is_form(tokens[position], field.text, typed) for position in range(first, past)
            ):
                continue
            gaps = zip(tokens.ends[first : past - 1], tokens.starts[first + 1 : past], strict=True)
            if not any(word_runs.is_divided(field.text, *gap) for gap in gaps):
                yield Token(phrase, tokens.starts[first], tokens.ends[past - 1])

    def _with_phrases(self, field: Field, phrases: Set[str], typed: Typed) -> Field:
        """Return a folded field in which each of these phrases, and each of its short forms, is one token."""
        unfolded = next(own for own in self.fields if own.name == field.name)
        tokens = [*field.tokens]
        for phrase in sorted(phrases):
            places = [*self._phrases_in(unfolded, phrase, typed)]
            short = self.abbreviations.fold(without_stopwords(phrase.split(" ")))
            for token in tokens:
                contained = self.abbreviations.contained.get(token.stem, ())
                is_contained = phrase in contained and phrase in self._implied(
                    token, field.name, field.text, typed
                )
                if is_contained or ([token.stem] == short and token.stem not in typed):
                    places.append(token)
            for place in places:
                within = [token for token in tokens if token.start < place.end and place.start < token.end]
                start = min(token.start for token in (place, *within))
                end = max(token.end for token in (place, *within))
                others = [token for token in tokens if token not in within]
                tokens = sorted([*others, Token(phrase, start, end)], key=lambda token: token.start)
        return Field(field.name, field.text, Tokens.of(tokens), {})

    def _relabelled(self, field: Field, terms: Set[str], typed: Typed) -> Field:
        """Return a folded field in which each token that implies one of these terms is that term."""
        stems = {
            position: min(implied)
            for position, stem in enumerate(field.tokens.stems)
            if stem in self.abbreviations.expansions
            and (implied := terms & self._implied(field.tokens[position], field.name, field.text, typed))
        }
        return replace(field, tokens=field.tokens.with_stems(stems))

    def _words_within(self, token: Token, field: str) -> list[Token]:
        tokens = next(each.tokens for each in self.fields if each.name == field)
        first, past = bisect_left(tokens.starts, token.start), bisect_right(tokens.ends, token.end)
        return [*map(tokens.__getitem__, range(first, past))]

    def _implied(self, token: Token, field: str, text: str, typed: Typed) -> Set[str]:
        """Return the terms that a folded token implies.

        A word in lower case is not a short form: "clip" does not imply "image", but "CLIP" does.
        """
        implied = self.abbreviations.expansions.get(token.stem, ())
        if not implied:
            return frozenset()
        words = self._words_within(token, field)
        if len(words) == 1 and token.stem not in self.abbreviations.split_compounds:
            return frozenset() if text[token.start : token.end].islower() else {*implied}
        return {*implied} - {word.stem for word in words if not _is_form(word, text, typed)}

    def _fields_with_forms(self, terms: Set[str], typed: Typed) -> list[Field]:
        """Return the folded fields, with the stop words among `terms` added.

        If a word merely shares a stem with a typed word, remove its stem, so that it matches no term.
        """
        little, fields = terms & STOP_STEMS, list[Field]()
        if not (little or typed):
            return [*self.folded_fields]
        for unfolded, folded in zip(self.fields, self.folded_fields, strict=True):
            tokens, text = folded.tokens, folded.text
            others = {
                position: ""
                for position in folded.positions_of_any(typed.keys())
                if not _is_form(tokens[position], text, typed)
            }
            if others:
                tokens = tokens.with_stems(others)
            if little:
                stop_words = (token for token in unfolded.tokens if token.stem in little)
                tokens = Tokens.of(sorted((*tokens, *stop_words), key=lambda token: token.start))
            fields.append(folded if tokens is folded.tokens else Field(folded.name, text, tokens, {}))
        return fields

    def surface_form(self, term: str, typed: Typed = _ANY_FORM) -> str:
        """Return the paper's first spelling of a term or a pair of stems, or "" if the paper lacks it.

        Words that merely share a stem with a typed word do not count.
        """
        if typed:
            return self._find_surface_form(term, typed)
        if (form := self._surface_forms.get(term)) is None:
            form = self._find_surface_form(term, typed)
            if form:  # anyone can type any number of words that the paper lacks
                self._surface_forms[term] = form
        return form

    @cached_property
    def _surface_forms(self) -> dict[str, str]:
        return {}

    def _find_surface_form(self, term: str, typed: Typed) -> str:
        return self._spelling(term, "title", typed) or self._spelling(term, "abstract", typed)

    def whole_word(self, stem: str) -> str:
        """Return the first spelling of a stem that is not part of a hyphenated word.

        If there is none, return the first hyphenated word: "Long-Horizon", not "Horizon".
        """
        if stem not in self._whole_words:
            self._whole_words[stem] = self._find_whole_word(stem)
        return self._whole_words[stem]

    @cached_property
    def _whole_words(self) -> dict[str, str]:
        return {}

    def _find_whole_word(self, stem: str) -> str:
        first = ""
        for field in self.fields:
            for token in self._occurrences(stem, field.name, _ANY_FORM):
                span = token.start, token.end
                start, end = compound_span(field.text, *span)
                if span == (start, end):
                    return field.text[start:end]
                first = first or field.text[start:end]
        return first

    def _spelling(self, term: str, field: str, typed: Typed) -> str:
        own = self.fields[field != "title"]
        text = own.text
        if " " in term:
            for first, second in itertools.pairwise(own.tokens):
                if f"{first.stem} {second.stem}" == term and text[first.end : second.start] in (" ", "-"):
                    return text[first.start : second.end]
            return ""
        token = next(self._occurrences(term, field, typed), None)
        return text[token.start : token.end] if token else ""

    def _occurrences(self, term: str, field: str, typed: Typed) -> Iterator[Token]:
        """Yield the words of a field that match or imply a term."""
        own = self.folded_fields[field != "title"]
        for position in own.positions(term):
            token = own.tokens[position]
            is_term = token.stem == term and _is_form(token, own.text, typed)
            if is_term or term in self._implied(token, field, own.text, typed):
                yield token


@dataclass(frozen=True)
class _CardText(PaperText):
    """The text of a card. The title is the paper's, so it is not split into words again.

    The summary may lack the definitions that the abstract contains.
    """

    title: Field
    folded_title: Field
    redefined: frozenset[str]  # by the abstract

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.title, _field("abstract", self.paper.abstract)

    @cached_property
    def folded_fields(self) -> tuple[Field, ...]:
        return self.folded_title, self._folded(self.fields[1])


def _field(name: str, text: str) -> Field:
    return Field(name, text, tokenize(text), {})


def _is_form(token: Token, text: str, typed: Typed) -> bool:
    """Return False if a single word is not a form of the typed word with the same stem."""
    word = typed.get(token.stem)
    if word is None or word == (spelling := text[token.start : token.end]):
        return True
    return not WORD.fullmatch(spelling) or is_same_word(word, spelling)


def _padded(words: Sequence[str]) -> str:
    """Join words, each surrounded by spaces, so that `in` finds only whole words."""
    return f" {' '.join(words)} "
