"""PURE. Interests × papers → relevance, with a reason that is literally true.

A keyword's score of a paper is BM25F over title and abstract (Robertson, Zaragoza, Taylor 2004:
title ×2, k1 1.2, b 0.6, stemmed) + 0.7 × BM25 over stemmed bigrams (k1 0.8). A logistic calibration
turns it into a relevance in 0…1 that one cut-off serves for every interest.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

import Stemmer

from app.errors import InvalidInterest
from app.records import Match, PaperView

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

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r'(-)?(?:(author|cat):\s*)?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "−": "-", "–": "-"})
_STOPWORDS = (
    "a an and are as at be by can for from has have how in into is it its of on or our that the their there "
    "these this those to towards via was we were what when where which while who with using"
)
_stemmer = Stemmer.Stemmer("english")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a text: its stem, and where it stands."""

    stem: str
    start: int
    end: int


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
        return tuple(dict.fromkeys(_telling([*self.words, *itertools.chain(*self.phrases)])))

    @cached_property
    def pairs(self) -> tuple[str, ...]:
        """Neighbouring terms, as `Statistics` and the index write them."""
        runs = (_telling(run) for run in (self.words, *self.phrases))
        return tuple(dict.fromkeys(pair for run in runs for pair in _pairs(run)))


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
        if _WORD.search(value):
            parts[name].append(_plain(value))
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


def tokenise(text: str) -> list[Token]:
    """The words of a text: letters and digits, without case or accents, stemmed."""
    plain = _plain(text)
    if len(plain) != len(text):  # offsets must stay those of the text
        plain = text.casefold() if len(text.casefold()) == len(text) else text
    return [Token(_stem(m.group()), m.start(), m.end()) for m in _WORD.finditer(plain)]


def _plain(text: str) -> str:
    """Lower case without accents; one character for one character wherever Unicode allows it."""
    return "".join(_plain_char(char) for char in text)


@lru_cache(maxsize=10_000)
def _plain_char(char: str) -> str:
    base = unicodedata.normalize("NFKD", char)[:1] or char
    return base.lower() if len(base.lower()) == 1 else base


@lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


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
            stems = [_telling(token.stem for token in tokenise(text)) for text in (title, abstract)]
            frequencies.update({*stems[0], *stems[1], *_pairs(stems[0]), *_pairs(stems[1])})
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


def _telling(stems: Iterable[str]) -> list[str]:
    """Without the words that are in every text: "text to image" and "text-image" are one pair."""
    return [stem for stem in stems if stem not in _stop_stems()]


@cache
def _stop_stems() -> frozenset[str]:
    return frozenset(_stem(word) for word in _STOPWORDS.split())


def _pairs(stems: Sequence[str]) -> Iterator[str]:
    return (f"{first} {second}" for first, second in itertools.pairwise(stems))


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
            required = _telling(itertools.chain(*query.phrases))
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
            stems = _telling(token.stem for token in tokens)
            per_word = gain / (1 - B + B * len(stems) / mean)
            for term in (*stems, *_pairs(stems)):
                weights[term] += per_word
        authors = f" {_plain(' ; '.join(paper.authors).casefold())} "
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
    if not all(stem in entry.weights for stem in _telling(phrase)):
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
