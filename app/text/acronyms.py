"""PURE. Acronyms that are spelled like ordinary words: "CLIP" and "clip", "AIME" and "aims".

In capitals, such a word is the acronym, and has a stem of its own: "CLIP". This stem implies that of the
word, as `abbreviations` explains. So an interest in "CLIP" matches only the acronym; "clip" matches both.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from app.text.characters import ACCENT, fold_accents
from app.text.tokenizer import STOP_STEMS, Tokens, tokenize, without_stopwords
from app.text.word_forms import stem

MIN_PAPERS = 3  # papers that must contain the acronym, and those that must inflect the ordinary word
# Papers that must inflect the word in lower case, per paper with the acronym. Some authors write "llms", but
# few. "Clips", "clipped" and "clipping" together are as frequent as "CLIP".
MIN_INFLECTED = 0.2
TERM = "*"  # marks an acronym, or a term that stands for several words; no word contains it
# "CLIP", also in "CLIPs" and "CLIP-based", but not in "OpenCLIP". Beginning with a letter makes it faster.
_IN_CAPITALS = re.compile(r"([A-Z](?<![^\W_][A-Z])[A-Z]+)s?(?![^\W_])")


def find(text: str) -> Mapping[int, str]:
    """Return the words in capitals, without the s of a plural, by position."""
    return {match.start(): match[1] for match in _IN_CAPITALS.finditer(text)}


def is_emphasis(text: str) -> bool:
    """Return True if a text has several words and all are in capitals, which are then only emphasis.

    Letters without case, such as those of Chinese, are not in capitals.
    """
    return all(letter.isupper() for letter in text if letter.isalpha()) and len(find(text)) > 1


def find_typed(texts: Sequence[str]) -> frozenset[str]:
    """Return the words in capitals in the parts of a query, in lower case. They may be acronyms.

    Leave out those that share a stem with a differently typed word, because a query is matched by stems:
    "CLIP on video clips" and "AIM or AIME" match as in lower case.
    """
    spellings = defaultdict[str, set[str]](set)
    for text in texts:
        capitals = find(text)
        for token in tokenize(text):
            word = capitals.get(token.start) or text[token.start : token.end].lower()
            spellings[stem(word.lower())].add(word)
    distinct = (word for word, *others in spellings.values() if not others)
    return frozenset(word.lower() for word in distinct if word.isupper())


@dataclass(frozen=True)
class Acronyms:
    """The acronyms of an archive that are spelled like ordinary words."""

    words: Set[str]  # in lower case

    @cached_property
    def _by_stem(self) -> Mapping[str, Sequence[str]]:
        by_stem = defaultdict[str, list[str]](list)
        for word in sorted(self.words):
            by_stem[stem(word)].append(word.upper())
        return dict(by_stem)

    def find(self, text: str) -> Mapping[int, str]:
        """Return the stems of the acronyms in a paper's text, such as "CLIP", by position.

        In a title in capitals, any word may be one. This loses nothing, as the acronym implies the word.
        """
        words = find(text) if self.words else {}
        return {start: word for start, word in words.items() if word.lower() in self.words}

    def mark(self, tokens: Tokens, text: str) -> Tokens:
        """Return the tokens of a text, with the stems of acronyms."""
        if not (words := self.find(text)):
            return tokens
        stems = enumerate(map(words.get, tokens.starts))
        return tokens.with_stems({position: word for position, word in stems if word})

    def stems(self, text: str, unmarked: Sequence[str] | None = None) -> list[str]:
        """Return the stems of a text without stop words, with those of acronyms.

        If the text's stems without those of acronyms are known, as `unmarked`, few texts are split again.
        """
        if unmarked is not None and not self.find(text):
            return [*unmarked]
        return without_stopwords(self.mark(tokenize(text), text).stems)

    def words_of(self, text: str) -> list[str]:
        """Return the words of a text, in lower case and without accents. Acronyms are terms: "*CLIP"."""
        tokens, folded, acronyms = tokenize(text), fold_accents(text), self.find(text)
        spans = zip(tokens.starts, tokens.ends, strict=True)
        return [
            f"{TERM}{acronyms[start]}" if start in acronyms else folded[start:end].replace(ACCENT, "")
            for start, end in spans
        ]

    def words_of_phrase(self, phrase: Iterable[str], capitals: Set[str]) -> list[str]:
        """Return the words of a query's phrase as `words_of` does.

        `capitals` is `query.capitals` or `query.excluded_capitals`.
        """
        acronyms = self.words & capitals
        return [f"{TERM}{word.upper()}" if word in acronyms else word for word in phrase]

    def stems_of_query(self, stems: Iterable[str], capitals: Set[str]) -> list[str]:
        """Return stems of a query, with those of acronyms.

        `capitals` is `query.capitals` or `query.excluded_capitals`.
        """
        acronyms = {stem(word): word.upper() for word in sorted(self.words & capitals)}
        return [acronyms.get(own, own) for own in stems]

    def readings(self, pair: tuple[str, str]) -> Iterable[tuple[str, str]]:
        """Return a pair of stems, and the same with acronyms: ("clip", "model"), ("CLIP", "model")."""
        if self._by_stem.keys().isdisjoint(pair):
            return (pair,)
        first, second = ((own, *self._by_stem.get(own, ())) for own in pair)
        return itertools.product(first, second)


NO_ACRONYMS = Acronyms(frozenset())


def stem_of(word: str) -> str:
    """Return the stem of a word, or of a term that begins with TERM."""
    return word[1:] if word.startswith(TERM) else stem(word)


def learn(papers: Iterable[tuple[str, str]], words: Sequence[Iterable[str]]) -> Acronyms:
    """Return the acronyms in (title, abstract) pairs whose stem is also that of an ordinary word.

    A word is ordinary if papers inflect it in lower case, as acronyms seldom are. `words` has the distinct
    words of each paper.
    """
    in_capitals = Counter[str]()
    for texts in papers:
        plain = (text for text in texts if not is_emphasis(text))
        in_capitals.update({word.lower() for text in plain for word in _IN_CAPITALS.findall(text)})
    acronyms = {word: count for word, count in in_capitals.items() if count >= MIN_PAPERS}
    stems = {*map(stem, acronyms)} - STOP_STEMS
    forms = {form: own for form in set().union(*words) if form.islower() and (own := stem(form)) in stems}
    papers_with = defaultdict[str, dict[str, set[int]]](lambda: defaultdict(set))  # by stem, then by form
    for number, words_of_paper in enumerate(words):
        for form in forms.keys() & words_of_paper:
            papers_with[forms[form]][form].add(number)

    def count_inflected(word: str) -> int:
        return len(set().union(*(own for form, own in papers_with[stem(word)].items() if form != word)))

    return Acronyms(
        frozenset(
            word
            for word, count in acronyms.items()
            if count_inflected(word) >= max(MIN_PAPERS, MIN_INFLECTED * count)
        )
    )
