"""PURE. Learn abbreviations and compound words from the texts that use them.

Once three abstracts contain "reinforcement learning (RL)", an interest in "RL" matches papers on
reinforcement learning, and vice versa. In the same way, "fine-tuning" and "finetuning" become one word.
In a paper that itself defines "RL" as "ruin likelihood", "RL" is another word, and matches neither.
"CLIP" in capitals has a stem of its own, which implies that of "clip": see `acronyms`.
"""

import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from app.text.acronyms import NO_ACRONYMS, TERM, Acronyms, stem_of
from app.text.definitions import HYPHENATED, PLAIN_WORD, SMALL_WORDS, find_definitions, letter_counts
from app.text.shorter_readings import Readings
from app.text.tokenizer import STOP_STEMS, Tokens, bigrams
from app.text.word_forms import stem

MIN_PAPERS = 3  # papers that must define a short form in the same way, or use a compound word
# Of the papers that define a short form, at least this share must define it in the same way. "SLM" and "ASR"
# have two meanings, so they are not learned.
MIN_AGREEMENT = 0.75
_OTHER = "≠"  # marks a short form to which its paper gives another meaning; no word contains it
_SAME_BEGINNING = 3  # letters with which "vision" and "visual" begin, so that both may be in one long form
_LONG_SHORT_FORM = 4  # letters; such a short form seldom has two meanings that share half of their words

_MAX_CUT_OFF, _MIN_KEPT = 4, 3  # letters of a compound's second word that the compound's stem lacks or has

MAX_REORDERED = 5  # stems; longer interests have too many permutations

Part = TypeVar("Part")
Table = Mapping[tuple[str, ...], str]  # a run of at least two stems → the stem that replaces it
Starts = Mapping[tuple[str, ...], Sequence[tuple[str, ...]]]  # first two stems → runs beginning with them


def learn(
    texts: Iterable[str], compounds: Table, acronyms: Acronyms = NO_ACRONYMS
) -> tuple[dict[tuple[str, ...], str], frozenset[str]]:
    """Return a table from the stems of each long form to the stem of its short form, and hyphenated pairs.

    Learn a definition only if it occurs in at least MIN_PAPERS texts and in the share MIN_AGREEMENT of the
    texts that define the short form. `compounds` is the table that `find_compounds` returns. The pairs are
    the neighbors that definitions join with a hyphen at least as often as not: "vision languag". Small words
    do not count: "text-to-image" joins "text imag".
    """
    with_compounds = Abbreviations(compounds, {})
    neighbors, hyphenated = Counter[str](), Counter[str]()
    counts: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for text in texts:
        definitions = set()
        for short, long in find_definitions(text):
            short_stems, long_stems = acronyms.stems(short), acronyms.stems(long)
            run = tuple(with_compounds.fold(long_stems))
            neighbors.update(bigrams(run))
            for words in HYPHENATED.findall(long):
                hyphenated.update(bigrams(with_compounds.fold(acronyms.stems(words))))
            words = [word for word in PLAIN_WORD.findall(long.lower()) if word not in SMALL_WORDS]
            # A long form that contains a stop word, such as "computer use agent", is not learned.
            if len(short_stems) == 1 and len(long_stems) == len(words):
                definitions.add((short_stems[0], run))
        for short_stem, run in sorted(definitions):
            if len(run) > 1:
                counts[short_stem][run] += 1

    # If a long form has several short forms, use the one that most papers define.
    best: dict[tuple[str, ...], tuple[int, str]] = {}
    for short, longs in counts.items():
        run, papers = longs.most_common(1)[0]
        if papers >= MIN_PAPERS and papers >= MIN_AGREEMENT * longs.total():
            best[run] = max(best.get(run, (0, "")), (papers, short))
    agreed = {run: short for run, (_, short) in sorted(best.items())}

    # Add each long form with its parts abbreviated: "multimodal LLM".
    nested = dict(agreed)
    for run, short in agreed.items():
        parts = {other: name for other, name in agreed.items() if len(other) < len(run)}
        nested.setdefault(tuple(Abbreviations({}, parts).fold(run)), short)
    table = {run: short for run, short in sorted(nested.items()) if len(run) > 1}
    return table, frozenset(pair for pair, papers in hyphenated.items() if 2 * papers >= neighbors[pair])


def find_compounds(documents: Sequence[Sequence[Sequence[str]]]) -> tuple[Table, frozenset[str]]:
    """Return a table from pairs of stems to the stems of compounds, and the compounds that are usually split.

    Each document is a list of texts, and each text is a list of stems. For example, the table maps
    ("fine", "tune") to "finetun". A compound is usually split if at least as many papers write it as two
    words as write it as one: "long video" is usually split, "data set" is not.
    """
    stem_papers = Counter[str]()
    for document in documents:
        stem_papers.update({*itertools.chain.from_iterable(document)})
    words = {stem for stem, papers in stem_papers.items() if papers >= MIN_PAPERS and stem.isalpha()}
    beginnings = {word[:size] for word in words for size in range(3, len(word) + 1)}
    pair_papers = Counter[tuple[str, str]]()
    for document in documents:
        pair_papers.update(
            {
                (first, second)
                for text in document
                for first, second in itertools.pairwise(text)
                # Each word that `_joined` returns begins like this, so few pairs remain to be joined.
                if first + second[:_MIN_KEPT].removesuffix("e") in beginnings
                and len(first) > 1
                and len(second) > 1
                and _joined(first, second, words)
            }
        )
    pairs = [pair for pair, papers in sorted(pair_papers.items()) if papers >= MIN_PAPERS]
    table: Table = {pair: _joined(*pair, words) for pair in pairs}
    return table, frozenset(table[pair] for pair in pairs if pair_papers[pair] >= stem_papers[table[pair]])


def _joined(first: str, second: str, words: Set[str]) -> str:
    """Return the stem of a pair written as one word, or "" if it is not in `words`."""
    joined = first + second
    # The stem keeps its final e only in short words: "tuning" becomes "tune", "finetuning" becomes "finetun".
    for own in (joined, joined.removesuffix("e")):
        if own in words:
            return own
    # Other endings may be missing too: "multimod", but "multi" and "modal". If little is left of the second
    # word, the stem may be that of another word: "scaler" for "scale rate".
    longest = min(_MAX_CUT_OFF, len(second) - _MIN_KEPT)
    stems = (joined[:-cut] for cut in range(1, longest + 1))
    return next((own for own in stems if own in words and stem(joined) == own), "")


@dataclass(frozen=True)
class Abbreviations:
    """The tables that replace long forms with short forms, and pairs of words with compounds."""

    compounds: Table
    shorts: Table
    split_compounds: Set[str] = frozenset()  # compounds that are usually written as two words
    acronyms: Acronyms = NO_ACRONYMS  # those that are spelled like ordinary words
    hyphenated: Set[str] = frozenset()  # compounds that need their hyphen: `preposition_compounds.learn`
    readings: Readings = frozenset()  # of long forms, without some words: `shorter_readings.learn`

    @cached_property
    def expansions(self) -> Mapping[str, tuple[str, ...]]:
        """Map each folded term to the terms that it implies.

        A short form implies what it contains (see `contained`). It also implies the terms of its shorter
        readings (see `_readings`): "diffusion language models" are diffusion models.
        """
        return self._implied(self._readings)

    @cached_property
    def contained(self) -> Mapping[str, tuple[str, ...]]:
        """Map each folded term to the terms that it contains.

        A short form contains the stems, pairs and other short forms that all its long forms contain. A
        compound that is usually split contains its two words. So a paper on "video diffusion models" still
        matches "diffusion" and "diffusion models", and one on "long videos" still matches "videos", even if
        other papers write "LongVideo". An acronym contains the ordinary word that is spelled like it.
        """
        return self._implied(lambda long: [long])

    def _readings(self, long: Sequence[str]) -> list[Sequence[str]]:
        """Return a long form and its shorter readings.

        If it ends with another long form, a reading leaves out leading words of that one.
        """
        ends = ((at, tuple(long[at:])) for at in range(len(long) - 1))
        shorter = [(*long[:at], *reading) for at, end in ends for own, reading in self.readings if own == end]
        return [long, *itertools.chain.from_iterable(map(self._readings, shorter))]

    def _implied(
        self, readings: Callable[[Sequence[str]], Sequence[Sequence[str]]]
    ) -> Mapping[str, tuple[str, ...]]:
        """Map each folded term to the terms that occur in the readings of its long forms."""
        shorts, implied = set(self.shorts.values()), dict[str, set[str]]()
        for long, short in self.shorts.items():
            if shorts.isdisjoint(long):  # the long form contains no short form
                terms = set[str]()
                for words in readings(long):
                    spans = itertools.combinations(range(len(words) + 1), 2)
                    terms |= {self.shorts.get(tuple(words[start:end]), "") for start, end in spans}
                    terms |= {*words, *bigrams(words)}
                terms -= {short, ""}
                implied[short] = implied.get(short, terms) & terms
        for word in self.acronyms.words:
            implied[word.upper()] = {*implied.get(word.upper(), ()), stem(word)}
        pairs_of = {word: pair for pair, word in self.compounds.items() if word in self.split_compounds}
        return pairs_of | {short: tuple(sorted(terms)) for short, terms in implied.items()}

    @cached_property
    def _long_forms(self) -> Mapping[str, Sequence[tuple[str, ...]]]:
        long_forms = defaultdict[str, list[tuple[str, ...]]](list)
        for run, short in self.shorts.items():
            long_forms[short].append(run)
        return dict(long_forms)

    def redefined_short_forms(self, title: str, abstract: str) -> frozenset[str]:
        """Return the short forms that a paper defines, but only with another meaning.

        In a paper that contains "flow matching (FM)", "FM" does not mean "foundation model".
        """
        means_the_same = dict[str, bool]()
        for text in (title, abstract):
            for short, long in find_definitions(text):
                short_stem, *others = self.acronyms.stems(short) or [""]
                if others or short_stem not in self._long_forms:
                    continue
                long_stems = self.acronyms.stems(long)
                spellings = long_stems, self.fold(long_stems)
                share = 0.5 if len(short_stem) >= _LONG_SHORT_FORM else 1.0
                means_the_same[short_stem] = means_the_same.get(short_stem, False) or any(
                    own == [short_stem]
                    or any(_are_similar(own, run, share) for run in self._long_forms[short_stem])
                    for own in spellings
                )
        return frozenset(short for short, is_same in means_the_same.items() if not is_same)

    @cached_property
    def implied_by(self) -> Mapping[str, Sequence[str]]:
        """Map each implied term to the folded terms that imply it."""
        return _inverted(self.expansions)

    @cached_property
    def contained_in(self) -> Mapping[str, Sequence[str]]:
        """Map each contained term to the folded terms that contain it."""
        return _inverted(self.contained)

    @cached_property
    def folded_terms(self) -> Set[str]:
        """Return the short forms and the compounds, which may stand for several words."""
        return frozenset((*self.shorts.values(), *self.compounds.values()))

    @cached_property
    def _passes(self) -> Sequence[tuple[Table, Starts]]:
        """Return the replacement tables in order of use, each with its runs grouped by their first two stems.

        In each group, the longest runs come first.
        """
        passes = list[tuple[Table, Starts]]()
        for table in (self.compounds, self.shorts):
            starts: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
            for run in sorted(table, key=lambda run: (-len(run), run)):
                starts[run[:2]].append(run)
            passes.append((table, dict(starts)))
        # The second pass with `shorts` replaces long forms that contain a short form: "multimodal LLM".
        return (*passes, passes[-1])

    @cached_property
    def _words_of_runs(self) -> Set[str]:
        return {word for run in (*self.shorts, *self.compounds) for word in run}

    def fold(self, text: Sequence[str], redefined: Set[str] = frozenset()) -> list[str]:
        """Return the stems with pairs replaced by compounds and long forms by short forms.

        The short forms in `redefined` become words that no interest contains.
        """
        folded = _mark_redefined(text, redefined)
        for table, starts in self._passes:
            if spans := _spans(folded, starts):
                folded = _replace_spans(folded, spans, [table[tuple(folded[a:b])] for a, b in spans])
        return folded

    def fold_words(self, words: Sequence[str], redefined: Set[str] = frozenset()) -> list[str]:
        """Return words, which must be as `Acronyms.words_of` returns them, folded but as spelled.

        Stop words are left out. A term that stands for several words begins with TERM: "*llm". `redefined` is
        the same as for `fold`.
        """
        if redefined:
            words = [f"{_OTHER}{word}" if stem_of(word) in redefined else word for word in words]
        all_stems = [*map(stem_of, words)]
        is_content = [own not in STOP_STEMS for own in all_stems]
        stems, words = [*itertools.compress(all_stems, is_content)], [*itertools.compress(words, is_content)]
        for table, starts in self._passes:
            if spans := _spans(stems, starts):
                terms = [table[tuple(stems[a:b])] for a, b in spans]
                stems = _replace_spans(stems, spans, terms)
                words = _replace_spans(words, spans, [f"{TERM}{term}" for term in terms])
        return words

    def fold_any_order(self, words: Sequence[str]) -> list[str]:
        """Fold the stems of an interest in any order: "networks neural graph" also becomes "GNN".

        Interests of more than MAX_REORDERED stems are not reordered. The longest known run is used. Among
        runs of equal length, adjacent stems are preferred, because "reasoning in large language models" is
        about LLMs, not about large reasoning models.
        """
        if len(words) <= MAX_REORDERED:
            foldable = [word for word in words if word in self._words_of_runs]
            orders = (
                order
                for size in range(len(foldable), 1, -1)
                for order in itertools.chain(
                    (tuple(words[at : at + size]) for at in range(len(words) - size + 1)),
                    itertools.permutations(foldable, size),
                )
            )
            run = next((order for order in orders if order in self.shorts or order in self.compounds), ())
            words = [*run, *(word for word in words if word not in run)]
        return self.fold(words)

    def fold_tokens(self, tokens: Tokens, redefined: Set[str] = frozenset()) -> Tokens:
        """Return the folded tokens, without stop words. A short form's token spans the whole long form.

        `redefined` is the same as for `fold`.
        """
        content = [position for position, stem in enumerate(tokens.stems) if stem not in STOP_STEMS]
        stems = _mark_redefined([*map(tokens.stems.__getitem__, content)], redefined)
        starts, ends = ([*map(column.__getitem__, content)] for column in (tokens.starts, tokens.ends))
        for table, runs in self._passes:
            if spans := _spans(stems, runs):
                starts = _replace_spans(starts, spans, [starts[first] for first, _ in spans])
                ends = _replace_spans(ends, spans, [ends[past - 1] for _, past in spans])
                stems = _replace_spans(stems, spans, [table[tuple(stems[a:b])] for a, b in spans])
        return Tokens(stems, array("I", starts), array("I", ends))

    def document(
        self, title: str, abstract: str, unmarked: tuple[Sequence[str], Sequence[str]] | None = None
    ) -> tuple[list[str], list[str]]:
        """Return the terms of a paper's title and of its abstract. `unmarked` is as for `Acronyms.stems`."""
        redefined = self.redefined_short_forms(title, abstract)
        of_title, of_abstract = unmarked or (None, None)
        return self.terms(title, redefined, of_title), self.terms(abstract, redefined, of_abstract)

    def terms(
        self, text: str, redefined: Set[str] = frozenset(), unmarked: Sequence[str] | None = None
    ) -> list[str]:
        """Return the folded stems of a text, without stop words.

        `redefined` is as for `fold`, and `unmarked` as for `Acronyms.stems`.
        """
        return self.fold(self.acronyms.stems(text, unmarked), redefined)


def _inverted(terms_of: Mapping[str, Iterable[str]]) -> Mapping[str, Sequence[str]]:
    """Map each of the values to its keys."""
    keys = defaultdict[str, list[str]](list)
    for key, terms in terms_of.items():
        for term in terms:
            keys[term].append(key)
    return dict(keys)


def _mark_redefined(stems: Sequence[str], redefined: Set[str]) -> list[str]:
    return [f"{_OTHER}{stem}" if stem in redefined else stem for stem in stems] if redefined else [*stems]


def _are_similar(one: Sequence[str], other: Sequence[str], share: float) -> bool:
    """Return True if two long forms may mean the same: "visual language model" and "vision-language model".

    This share of the words of the shorter one must have a similar word in the other one, in the same order.
    Repeated words count once.
    """
    shorter, longer = sorted((list(dict.fromkeys(words)) for words in (one, other)), key=len)
    similar, start = 0, 0
    for word in shorter:
        place = next((at for at in range(start, len(longer)) if _is_similar_word(word, longer[at])), None)
        if place is not None:
            similar, start = similar + 1, place + 1
    return similar >= share * len(shorter)


def _is_similar_word(one: str, other: str) -> bool:
    """Return True if a word may replace another one in a long form: "visual", or "AR" for "autoregressive".

    The beginning of one word may be inside the other, because the first word may be cut off: "modal LLM" for
    "multi-modal LLM".
    """
    short, long = sorted((one, other), key=len)
    return (
        one[:_SAME_BEGINNING] in other
        or other[:_SAME_BEGINNING] in one
        or (len(short) == 2 and 2 in letter_counts(long, short))
    )


def _spans(text: Sequence[str], starts: Starts) -> list[tuple[int, int]]:
    """Return the (start, end) of known runs without overlaps. Prefer the leftmost run, then the longest."""
    spans, past = list[tuple[int, int]](), 0
    candidates = [(at, pair) for at, pair in enumerate(itertools.pairwise(text)) if pair in starts]
    for at, pair in candidates:
        if at < past:
            continue
        for run in starts[pair]:
            if tuple(text[at : at + len(run)]) == run:
                past = at + len(run)
                spans.append((at, past))
                break
    return spans


def _replace_spans(
    parts: Sequence[Part], spans: Sequence[tuple[int, int]], replacements: Sequence[Part]
) -> list[Part]:
    """Return the parts with each span replaced by a single part."""
    replaced, past = list[Part](), 0
    for (start, end), replacement in zip(spans, replacements, strict=True):
        replaced += [*parts[past:start], replacement]
        past = end
    return [*replaced, *parts[past:]]
