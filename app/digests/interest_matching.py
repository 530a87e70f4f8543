"""Match the interests and the muted words of subscribers with the candidate papers, each distinct text once.

An interest that is misspelled or in another language is matched both as typed and as read, which means as
corrected or translated.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import numpy as np
from cachetools import FIFOCache, LRUCache

from app.digests import ranking, skip_reasons
from app.errors import InvalidInterest
from app.relevance import (
    matching,
    muted_texts,
    query_language,
    query_rewriting,
    reasons,
    search_offers,
    suggestions,
    translations,
)
from app.relevance.highlights import PaperText
from app.relevance.match_index_cache import IndexCache
from app.relevance.model import RelevanceModel
from app.relevance.query_language import GENERAL_STEMS, FilterField
from app.relevance.suggestions import InterestHint
from app.text.names import normalized_name, words_of_name
from app.text.tokenizer import content_stems
from app.types import CardReason, Interest, PaperView

MAX_CACHED_MUTED = 5_000  # muted texts, shared by all subscribers who mute them; four bytes per paper
MAX_READ_AS = 20_000  # interests whose corrections are cached, and those whose authors are counted
MAX_FREQUENT_CATEGORIES = 4  # in a hint
MAX_UNHINTED_AUTHORS = 3  # that match a filter without a hint; one author may write the name in several ways
IDF_OF_COMMON_NOUNS = math.log(4 / 3)  # of a word that three quarters of the papers contain
MAX_MATCHED_BYTES = 20_000_000  # for matched interests, besides those of a batch
_NO_PAPERS = np.array([], np.int32)


class InterestMatcher:
    """The matches of one run. `evidence` has a row for each matched interest and a column for each paper."""

    def __init__(self, papers: Mapping[int, PaperView], model: RelevanceModel, indexes: IndexCache) -> None:
        self._papers, self._model, self._indexes = papers, model, indexes
        self.evidence = ranking.EvidenceMatrix(papers)
        self._read_as = LRUCache[str, str](MAX_READ_AS)  # an interest → its correction or translation, or ""
        self._author_counts = LRUCache[str, int](MAX_READ_AS)  # see `_count_authors`
        # By the text of an interest: the papers that match it better as read than as typed.
        self._matched_as_read: dict[str, set[int]] = {}
        self._muted = FIFOCache[query_language.Query, ranking.Vector](MAX_CACHED_MUTED)

    def clear_if_full(self) -> None:
        """Clear all matches if they exceed MAX_MATCHED_BYTES."""
        if self.evidence.nbytes > MAX_MATCHED_BYTES:
            self.evidence.rows.clear()
            self._matched_as_read.clear()

    def release(self) -> None:
        """Clear all matches, to release their memory."""
        self.evidence = ranking.EvidenceMatrix(())

    @property
    def texts(self) -> Mapping[matching.Content, PaperText]:
        """The papers, split into words, by content."""
        return self._index.texts

    @property
    def vectors(self) -> Mapping[int, ranking.Matrix]:
        """The vectors of the papers, for computing similarities."""
        return self._index.vectors

    def missing_words(self, text: str) -> Sequence[str]:
        """Return the words of an interest, or of its correction if it has one, that no paper contains."""
        query = query_language.parse(self.read_as(text) or text)
        return suggestions.whole_names(query.text, self._index.missing_words(query))

    def papers_above_floor(self, text: str, weight: float = 1.0) -> list[PaperView]:
        """Return the papers from all loaded days that are relevant enough to this matched interest alone."""
        row = self.evidence.rows[text]
        columns = row.columns[row.enough(weight)]
        return [self._papers[number] for number in self.evidence.ids[columns].tolist()]

    def absent_fields_note(self, text: str) -> str:
        """Return a note if an interest requires a category or an organization and no paper has any, or ""."""
        fields = self._index.filters.absent_fields(query_language.parse(text))
        return skip_reasons.absent_fields_note(fields, self._source_names)

    @cached_property
    def _source_names(self) -> set[str]:
        return {name for paper in self._papers.values() for name in paper.sources}

    @cached_property
    def _index(self) -> matching.MatchIndex:
        return self._indexes.get([*self._papers.values()], self._model)

    def match(self, interests: Iterable[Interest]) -> dict[str, InvalidInterest]:
        """Match the interests that have not been matched yet, each distinct text once.

        Return the errors by text for interests that cannot be parsed.
        """
        queries: dict[str, query_language.Query] = {}
        errors: dict[str, InvalidInterest] = {}
        new_texts = [interest.text for interest in interests if interest.text not in self.evidence.rows]
        if not new_texts:
            return errors
        for text in dict.fromkeys(new_texts):
            try:
                queries[text] = query_language.parse(text)
            except InvalidInterest as error:
                errors[text] = error
        read_as = {text: read for text in queries if (read := self.read_as(text))}
        matches = iter(self._index.matches([*queries.values(), *map(query_language.parse, read_as.values())]))
        own = dict(zip(queries, matches, strict=False))
        as_read = dict(zip(read_as, matches, strict=True))
        for text, hits in own.items():
            rows, relevance, strength = hits.rows, hits.relevance, hits.strength
            if text in as_read:
                rows, relevance, strength, better = self._merge_matches(hits, as_read[text])
                self._matched_as_read[text] = {*self.evidence.ids[better].tolist()}
            # The index and the matrix have the same papers in the same order.
            self.evidence.add_columns(text, rows, relevance, strength, hits.excluded)
        return errors

    def _merge_matches(
        self, hits: matching.InterestMatches, as_read: matching.InterestMatches
    ) -> tuple[ranking.Vector, ranking.Vector, ranking.Vector, ranking.Vector]:
        """Merge the matches of an interest as typed (`hits`) with those of the interest as read.

        Return four arrays: the papers that match either, their relevance and strength (each the higher of the
        two), and the papers that match better as read. Papers are given as rows of the index.
        """
        typed, read = np.zeros((2, len(self.evidence.ids))), np.zeros((2, len(self.evidence.ids)))
        typed[:, hits.rows] = hits.relevance, hits.strength
        read[:, as_read.rows] = as_read.relevance, as_read.strength
        rows = np.union1d(hits.rows, as_read.rows)
        relevance, strength = np.maximum(typed, read)[:, rows]
        return rows, relevance, strength, np.flatnonzero(read[0] > typed[0])

    def read_as(self, text: str) -> str:
        """Return the correction or translation of an interest, or "" if it needs none.

        Papers are matched with both texts. Raise InvalidInterest if the interest cannot be parsed.
        """
        if (cached := self._read_as.get(text)) is not None:
            return cached
        query, self._read_as[text] = query_language.parse(text), ""
        if self._interest_reader.may_need_correction(text):
            read = self._interest_reader.read(text, self._index.missing_words(query))
            with suppress(InvalidInterest):
                self._read_as[text] = query_language.parse(read).text if read else ""
        return self._read_as[text]

    def hints(self, texts: Iterable[str]) -> list[InterestHint]:
        """Return a hint about each of a subscriber's interests.

        Only the first hint that would offer the most frequent topics keeps them.
        """
        hints = [self.hint(text) for text in texts]
        first = next((hint for hint in hints if hint.topics and not hint.topics_are_near), None)
        return [hint if hint is first or hint.topics_are_near else replace(hint, topics=()) for hint in hints]

    def hint(self, text: str) -> InterestHint:
        """Return a hint about a valid interest, to show to the subscriber."""
        self.match([Interest(text)])
        read = self.read_as(text)
        filters, has_no_field = self._index.filters, self.absent_fields_note(text)
        hint = suggestions.hint_from_text(text, read, filters.categories)
        query = query_language.parse(read or text)
        with_exclusion = hint.with_exclusion
        if with_exclusion and not self._is_useful_exclusion(with_exclusion):
            hint = replace(hint, with_exclusion="")
        papers = self.papers_above_floor(text)
        hint, matched = replace(hint, matching_authors=self._count_authors(query, papers)), len(papers)
        if not matched and (better := self._with_filters(text)):
            return replace(hint, with_filters=better)
        if missing_categories := filters.missing_categories(query):
            typed = query_rewriting.typed_values(query.text, FilterField.CATEGORY)
            missing_as_typed = tuple(typed.get(name, name) for name in missing_categories)
            frequent = tuple(filters.categories[:MAX_FREQUENT_CATEGORIES])
            return replace(hint, missing_categories=missing_as_typed, categories=frequent)
        if (read or not matched) and (author := self._author_query(text, matched)):
            return replace(hint, by_author=author)
        if hint.with_exclusion or hint.with_filters or has_no_field or matched or not query.terms:
            return hint
        # A word is not missing if it names an organization by itself, or is corrected by itself.
        missing = tuple(
            word
            for word in self.missing_words(text)
            if self.missing_words(word) and {*content_stems(word)} - GENERAL_STEMS
        )
        shorter = self._best_shorter_interest(query.text) if not with_exclusion else ""
        positive = query_rewriting.without_exclusions(with_exclusion or query.text)
        near = [] if shorter else self._topics.nearest(positive)
        return replace(
            hint,
            missing_words=missing if self._papers else (),  # in an empty archive, every word is missing
            is_foreign=bool(missing) and translations.is_foreign_script(query.text),
            shorter=shorter,
            topics=tuple(near or ([] if shorter else self._topics.commonest())),
            topics_are_near=bool(near),
        )

    def _is_useful_exclusion(self, text: str) -> bool:
        """Return True if an interest matches papers and its exclusion matches others."""
        return self._has_papers(text) and bool(self.evidence.rows[text].excluded)

    def _with_filters(self, text: str) -> str:
        """Return an interest with the value of its filter completed or split, or "" if that has no papers."""
        versions = suggestions.filter_suggestions(text)
        passing = self._index.filters.passing_mask
        return next((other for other in versions if passing(query_language.parse(other)).any()), "")

    def _count_authors(self, query: query_language.Query, papers: Iterable[PaperView]) -> int:
        """Return how many authors of papers match the one-word filters `author:` of a query.

        Return 0 if there are at most MAX_UNHINTED_AUTHORS.
        """
        names = map(words_of_name, query.required.get(FilterField.AUTHOR, ()))
        typed = {words[0] for words in names if len(words) == 1}
        if not typed:
            return 0
        if (cached := self._author_counts.get(query.text)) is not None:
            return cached
        authors = {author for paper in papers for author in paper.authors}
        matching = {normalized_name(name) for name in authors if not typed.isdisjoint(words_of_name(name))}
        count = len(matching) if len(matching) > MAX_UNHINTED_AUTHORS else 0
        self._author_counts[query.text] = count
        return count

    def _author_query(self, text: str, matched: int) -> str:
        """Return a query for papers by the author whom an interest names, or "" if it names none of them."""
        author = search_offers.author_query(query_language.parse(text), matched)
        has_papers = author and self._index.filters.passing_mask(query_language.parse(author)).any()
        return author if has_papers else ""

    def _best_shorter_interest(self, text: str) -> str:
        """Return the part of an interest with the most terms that matches papers, as read, or "".

        On ties, prefer rarer terms. A single term must have at least half of the idf of the subject.
        """
        parts = suggestions.subject_parts(text)  # the first one is the subject
        if parts and (rest := self._without_common_noun(parts[0])):
            parts.append(rest)
        terms = {part: len(query_language.parse(part).terms) for part in parts}
        best = max(
            (
                part
                for part in parts
                if (terms[part] > 1 or 2 * self._idf_sum(part) >= self._idf_sum(parts[0]))
                and self._has_papers(part)
                and not self.missing_words(part)
            ),
            key=lambda part: (terms[part], self._idf_sum(part)),
            default="",
        )
        return (best and self.read_as(best)) or best

    def _without_common_noun(self, text: str) -> str:
        """Return a text without its last word if most papers contain it: “diffusion” for “diffusion models”.

        Otherwise, or if there is no other word, return "".
        """
        rest, _, last = text.rpartition(" ")
        idf = self._model.statistics.idf
        return rest if all(idf(stem) <= IDF_OF_COMMON_NOUNS for stem in content_stems(last)) else ""

    def _idf_sum(self, text: str) -> float:
        """Return the sum of the idf of an interest's specific words."""
        terms = (term for term in query_language.parse(text).terms if term not in GENERAL_STEMS)
        return sum(map(self._model.statistics.idf, terms))

    def _has_papers(self, text: str) -> bool:
        """Return True if an interest matches papers. A text that is not a valid interest matches none."""
        return not self.match([Interest(text)]) and bool(self.papers_above_floor(text))

    @cached_property
    def _interest_reader(self) -> suggestions.InterestReader:
        return suggestions.InterestReader(self._model)

    @cached_property
    def _topics(self) -> suggestions.TopicIndex:
        return suggestions.TopicIndex(paper.title for paper in self._papers.values())

    def muted_papers(self, texts: Iterable[str]) -> frozenset[int]:
        """Return the papers that match any of these muted texts. No section of a digest includes them."""
        return frozenset[int]().union(*(self.papers_muted_by(text).tolist() for text in texts))

    def papers_muted_by(self, text: str) -> ranking.Vector:
        """Return the papers that match a muted text. Texts that form the same query are searched once."""
        try:
            query = muted_texts.parse_muted(text)
        except InvalidInterest:  # it was valid when stored, so the subscriber still gets a digest
            return _NO_PAPERS
        acronyms = query.excluded_capitals & self._model.abbreviations.acronyms.words
        query = replace(query, text="", excluded_capitals=acronyms)
        if query not in self._muted:
            self._muted[query] = np.array(sorted(self._index.excluded_papers(query)), np.int32)
        return self._muted[query]

    def details(self, text: str, paper: PaperView) -> matching.MatchDetails:
        """Return the details of a paper's best match with an interest, as typed or as corrected.

        The paper need not be a candidate.
        """
        index = self._index if paper.id in self._papers else matching.MatchIndex([paper], self._model)
        texts = filter(None, (text, self.read_as(text)))
        return max(
            (index.details(query_language.parse(each), paper.id) for each in texts),
            key=lambda details: details.relevance,
        )

    def reason(self, text: str, paper_id: int) -> CardReason:
        if paper_id not in self._matched_as_read.get(text, ()):
            return self._index.reason(query_language.parse(text), paper_id)
        read = self.read_as(text)
        return reasons.with_addition(
            self._index.reason(query_language.parse(read), paper_id), reasons.reading_note(read)
        )
