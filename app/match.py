"""PURE. Interests × papers → relevance, with a reason that is literally true.

A keyword's score of a paper is BM25F over title and abstract (Robertson, Zaragoza, Taylor 2004:
title ×2, k1 1.2, b 0.6, stemmed) + 0.7 × BM25 over stemmed bigrams (k1 0.8). A logistic calibration
turns it into a relevance in 0…1 that one cut-off serves for every interest.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from app.corpus import Statistics
from app.errors import InvalidInterest
from app.records import Match, PaperView
from app.words import WORD, Token, pairs, plain, telling, tokenise

MAX_INTEREST_CHARS = 300

TITLE_WEIGHT = 2.0
K1, B = 1.2, 0.6
BIGRAM_WEIGHT, BIGRAM_K1 = 0.7, 0.8
# Log-odds = BM25·x + SHARE·(share of the query's idf in the title) + ALL·(every word occurs) + OFFSET,
# fitted by benchmarks/relevance.py on folds of real interests.
FIT_BM25, FIT_SHARE, FIT_ALL, FIT_OFFSET = 0.226, 0.904, 1.135, -6.865
# However common the words: a paper with all of an interest in its title is worth showing, and so is one
# that has a phrase which the reader put in quotes.
TITLE_RELEVANCE, PHRASE_RELEVANCE = 0.05, 0.03
# An interest of filters alone ("author:…") asks for all that passes them.
FILTER_RELEVANCE = 0.8

_PART = re.compile(r'(-)?(?:(author|cat):\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "−": "-", "–": "-"})


@dataclass(frozen=True)
class Query:
    """An interest, understood. Words are stems; a phrase is a run of stems."""

    text: str
    words: tuple[str, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()
    without: tuple[tuple[str, ...], ...] = ()  # one-word exclusions are phrases of one
    authors: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    without_authors: tuple[str, ...] = ()
    without_categories: tuple[str, ...] = ()

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """Every stem that counts towards the score, once, in order."""
        return tuple(dict.fromkeys(telling([*self.words, *itertools.chain(*self.phrases)])))

    @cached_property
    def pairs(self) -> tuple[str, ...]:
        """Neighbouring terms, as `Statistics` and the index write them."""
        runs = (telling(run) for run in (self.words, *self.phrases))
        return tuple(dict.fromkeys(pair for run in runs for pair in pairs(run)))


def normalise(text: str) -> str:
    """The text of an interest as it is stored: one spelling of spaces and quotes."""
    cleaned = unicodedata.normalize("NFC", text).translate(_QUOTES)
    return " ".join(cleaned.split())


def parse(text: str) -> Query:
    """Understand an interest, or raise InvalidInterest with what to change.

    `"a phrase"` must occur, `-word` and `-"a phrase"` must not; `author:name` and `cat:cs.CL` are
    filters, and may be excluded with `-` too. Everything else is words to look for.
    """
    text = normalise(text)
    if len(text) > MAX_INTEREST_CHARS:
        raise InvalidInterest(f"An interest has at most {MAX_INTEREST_CHARS} characters.", "interests")
    if not text.isprintable():
        raise InvalidInterest("An interest is plain text, without control characters.", "interests")
    parts: dict[str, list[object]] = defaultdict(list)
    for minus, field, quoted, bare in _PART.findall(text):
        _file_part(parts, bool(minus), field.lower(), quoted, bare)
    query = Query(text, **{name: tuple(values) for name, values in parts.items()})  # type: ignore[arg-type]
    if not (query.terms or query.authors or query.categories):
        raise InvalidInterest("An interest needs at least one word to look for.", "interests")
    return query


def _file_part(parts: dict[str, list[object]], minus: bool, field: str, quoted: str, bare: str) -> None:
    """Put one part of an interest where it belongs; one without any letter or digit says nothing."""
    if field:
        value = " ".join((quoted or bare).casefold().split())
        name = ("without_" if minus else "") + {"author": "authors", "cat": "categories"}[field]
        if WORD.search(value):
            parts[name].append(plain(value))
        return
    stems = tuple(token.stem for token in tokenise(quoted or bare))
    if not stems or bare.casefold() in ("author:", "cat:"):
        return
    if minus:
        parts["without"].append(stems)
    elif quoted:
        parts["phrases"].append(stems)
    else:
        parts["words"].extend(stems)


@dataclass(frozen=True)
class _Entry:
    """A paper, indexed: its text in two fields, the weighted frequency of each stem and pair."""

    paper: PaperView
    title: tuple[Token, ...]
    abstract: tuple[Token, ...]
    weights: Mapping[str, float]
    authors: str
    categories: frozenset[str]

    @cached_property
    def title_stems(self) -> frozenset[str]:
        return frozenset(token.stem for token in self.title)


class Index:
    """The candidates of a digest, ready to be asked for any number of interests."""

    def __init__(self, papers: Iterable[PaperView], statistics: Statistics) -> None:
        self._statistics = statistics
        self._entries = [self._entry(paper) for paper in papers]
        self._postings: dict[str, list[int]] = defaultdict(list)
        for number, entry in enumerate(self._entries):
            for term in entry.weights:
                if " " not in term:
                    self._postings[term].append(number)

    def match(self, query: Query) -> dict[int, Match]:
        """The papers that fit an interest at all, by id, with their relevance and its reason."""
        found = {}
        for number in self._possible(query):
            entry = self._entries[number]
            if not _passes(entry, query):
                continue
            relevance = self._relevance(entry, query)
            found[entry.paper.id] = Match(relevance, _reason(entry, query, self._statistics))
        return found

    def excluded(self, query: Query) -> frozenset[int]:
        """The papers that the exclusions of an interest forbid, by id."""
        if not (query.without or query.without_authors or query.without_categories):
            return frozenset()
        return frozenset(entry.paper.id for entry in self._entries if _excluded(entry, query))

    def _possible(self, query: Query) -> Iterable[int]:
        if not query.terms:
            return range(len(self._entries))
        if query.phrases:
            required = telling(itertools.chain(*query.phrases))
            return set.intersection(*(set(self._postings.get(stem, ())) for stem in required))
        return set().union(*(self._postings.get(term, ()) for term in query.terms))

    def _relevance(self, entry: _Entry, query: Query) -> float:
        if not query.terms:
            return FILTER_RELEVANCE
        score, share, everything = self.features(entry, query)
        log_odds = FIT_BM25 * score + FIT_SHARE * share + FIT_ALL * everything + FIT_OFFSET
        fitted = 1 / (1 + math.exp(-log_odds))
        literal = TITLE_RELEVANCE if share == 1.0 else PHRASE_RELEVANCE if query.phrases else 0.0
        return 1 - (1 - fitted) * (1 - literal)

    def features(self, entry: _Entry, query: Query) -> tuple[float, float, float]:
        """What the calibration weighs: B, the share of the query's idf in the title, all words there."""
        idf = self._statistics.idf
        total = sum(idf(term) for term in query.terms)
        in_title = sum(idf(term) for term in query.terms if term in entry.title_stems)
        everything = all(term in entry.weights for term in query.terms)
        return self.score(entry, query), in_title / total if total else 0.0, float(everything)

    def score(self, entry: _Entry, query: Query) -> float:
        """B of the module's formula."""
        words = sum(self._saturated(entry, term, K1) for term in query.terms)
        pairs = sum(self._saturated(entry, pair, BIGRAM_K1) for pair in query.pairs)
        return words + BIGRAM_WEIGHT * pairs

    def _saturated(self, entry: _Entry, term: str, k1: float) -> float:
        weight = entry.weights.get(term, 0.0)
        return self._statistics.idf(term) * weight * (k1 + 1) / (weight + k1) if weight else 0.0

    def _entry(self, paper: PaperView) -> _Entry:
        title, abstract = tuple(tokenise(paper.title)), tuple(tokenise(paper.abstract))
        weights: dict[str, float] = defaultdict(float)
        for tokens, gain, mean in (
            (title, TITLE_WEIGHT, self._statistics.title_length),
            (abstract, 1.0, self._statistics.abstract_length),
        ):
            stems = telling(token.stem for token in tokens)
            per_word = gain / (1 - B + B * len(stems) / mean)
            for term in (*stems, *pairs(stems)):
                weights[term] += per_word
        authors = f" {plain(' ; '.join(paper.authors).casefold())} "
        return _Entry(
            paper, title, abstract, weights, authors, frozenset(c.casefold() for c in paper.categories)
        )


def _passes(entry: _Entry, query: Query) -> bool:
    """Filters, required phrases and exclusions: no score outweighs any of them."""
    return (
        not _excluded(entry, query)
        and all(_contains(entry, phrase) for phrase in query.phrases)
        and all(_wrote(entry, name) for name in query.authors)
        and (not query.categories or any(_filed(entry, name) for name in query.categories))
    )


def _excluded(entry: _Entry, query: Query) -> bool:
    return (
        any(_contains(entry, phrase) for phrase in query.without)
        or any(_wrote(entry, name) for name in query.without_authors)
        or any(_filed(entry, name) for name in query.without_categories)
    )


def _contains(entry: _Entry, phrase: tuple[str, ...]) -> bool:
    """Whether these stems stand next to each other, in this order, in the title or in the abstract."""
    if not all(stem in entry.weights for stem in telling(phrase)):
        return False
    return any(
        _run_at(tokens, place, phrase)
        for tokens in (entry.title, entry.abstract)
        for place in range(len(tokens) - len(phrase) + 1)
    )


def _run_at(tokens: Sequence[Token], place: int, phrase: tuple[str, ...]) -> bool:
    return all(tokens[place + step].stem == stem for step, stem in enumerate(phrase))


def _wrote(entry: _Entry, name: str) -> bool:
    """Whether a name, or a last name alone, is an author's: whole words, any accents."""
    return re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", entry.authors) is not None


def _filed(entry: _Entry, category: str) -> bool:
    """`cs.CL` means itself; `cs` means the whole archive."""
    return any(own == category or own.startswith(f"{category}.") for own in entry.categories)


def _reason(entry: _Entry, query: Query, statistics: Statistics) -> str:
    """The words that matched, as the paper spells them, and where; then the filters that it passed."""
    said, parts = set[str](), []
    for where, tokens, text in (
        ("title", entry.title, entry.paper.title),
        ("abstract", entry.abstract, entry.paper.abstract),
    ):
        runs = _best_runs(tokens, set(query.terms) - said, statistics.idf)
        said.update(stem for run in runs for stem in (token.stem for token in run))
        quoted = [f"“{text[run[0].start : run[-1].end]}”" for run in runs]
        if quoted:
            parts.append(f"{', '.join(quoted)} in the {where}")
    parts += [f"by {name.title()}" for name in query.authors]
    if query.categories:
        parts.append("filed under " + ", ".join(entry.paper.categories[:3]))
    return "; ".join(parts)


def _best_runs(
    tokens: Sequence[Token], wanted: set[str], idf: Callable[[str], float], most: int = 3
) -> list[list[Token]]:
    """The stretches of neighbouring wanted words that together say most of the query, longest first."""
    runs: list[list[Token]] = []
    for before, token in itertools.pairwise([None, *tokens]):
        if token is None or token.stem not in wanted:
            continue
        if runs and before is runs[-1][-1] and token.stem not in {t.stem for t in runs[-1]}:
            runs[-1].append(token)
        else:
            runs.append([token])
    chosen: list[list[Token]] = []
    said = set[str]()
    for run in sorted(runs, key=lambda run: (-sum(idf(t.stem) for t in run), run[0].start)):
        stems = {token.stem for token in run}
        if not stems & said and len(chosen) < most:
            chosen.append(run)
            said |= stems
    return chosen
