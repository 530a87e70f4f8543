"""PURE. Translate German, French, Spanish, Portuguese, Chinese and Japanese technical terms into English.

Papers are in English. `translations.tsv` has a line for each English term and a column for each language;
`|` separates alternatives. Terms in Latin letters are compared by their stems, without accents and function
words, so that "großer Sprachmodelle" is found as well. Chinese and Japanese terms are found as substrings.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import Stemmer

from app.text.characters import remove_accents
from app.text.tokenizer import WORD

_TABLE = Path(__file__).with_name("translations.tsv")
_FUNCTION_WORDS = {
    "german": "der die das des dem den ein eine einer eines fur mit von vom zum zur im in und oder auf bei "
    "uber durch ohne",
    "french": "le la les l un une des de du d et ou pour par sur dans avec en a au aux sans",
    "spanish": "el la los las un una de del y o para por con en sobre sin a al",
    "portuguese": "o a os as um uma de do da dos das e ou para por com em no na nos nas sobre sem ao",
}
MIN_STEM = 4  # letters
_KANA = re.compile("[\u3040-\u30ff]")
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_LATIN_END = "\u0250"  # the letters before it are Latin
_VIETNAMESE = ("\u1e00", "\u1eff")  # more Latin letters with accents


@dataclass(frozen=True)
class _LatinTerms:
    """The terms of one language in Latin letters."""

    stemmer: Stemmer.Stemmer
    function_words: frozenset[str]
    english: dict[tuple[str, ...], str] = field(default_factory=dict)  # a term's stems → the English term

    def add(self, term: str, english: str) -> None:
        self.english.setdefault(tuple(stem for _, stem in self._content_words(term)), english)

    def translate(self, text: str, is_english: Callable[[str], bool]) -> tuple[int, str]:
        """Return the number of translated words, and the text with its known terms in English.

        A term that consists of English words, such as "segmentation" in French, is not translated. If
        fewer than half of the words are translated, the text counts as English and the number is 0.
        """
        words = self._content_words(text)
        count, translated = self._translate(words, is_english)
        if count:
            # Beside a translated term, look up words in capitals too: English papers contain "KI" and "IA".
            count, translated = self._translate(words, lambda word: not word.isupper() and is_english(word))
        return (count if 2 * count >= len(words) else 0), translated

    def _translate(
        self, words: Sequence[tuple[str, str]], is_english: Callable[[str], bool]
    ) -> tuple[int, str]:
        """Return the number of translated words, and the text. `words` are as typed, each with its stem."""
        parts, count, at = list[str](), 0, 0
        while at < len(words):
            for end in range(len(words), at, -1):
                english = self.english.get(tuple(stem for _, stem in words[at:end]))
                if english and not all(is_english(word) for word, _ in words[at:end]):
                    parts.append(english)
                    count += end - at
                    at = end
                    break
            else:
                parts.append(words[at][0])
                at += 1
        return count, " ".join(parts)

    def _content_words(self, text: str) -> list[tuple[str, str]]:
        """Return the words of a text as typed, each with its stem, without function words."""
        words = [(word, remove_accents(word)) for word in WORD.findall(text)]
        return [(word, self._stem(folded)) for word, folded in words if folded not in self.function_words]

    def _stem(self, word: str) -> str:
        """Return the stem of a word, or the word itself if the stem is too short to be distinctive."""
        stem: str = self.stemmer.stemWord(word)
        return stem if len(stem) >= MIN_STEM else word


def translate(text: str, is_english: Callable[[str], bool]) -> str:
    """Return a text with its known foreign terms in English, or "" if it has none.

    If the text is in Latin letters, also return "" if these terms are fewer than half of its words. Function
    words and other Chinese and Japanese characters are dropped; all other words are kept. `is_english`
    returns True for a word that English papers use.
    """
    if _EAST_ASIAN.search(text):
        return _translate_east_asian(text)
    count, translated = max(
        (terms.translate(text, is_english) for terms in _latin_tables()), key=lambda result: result[0]
    )
    return translated if count else ""


def is_foreign_script(text: str) -> bool:
    """Return True if a text has a word in a script other than Latin."""
    words = (word for word in _LETTERS.findall(text) if word.isalpha())  # not "π₀"
    return any(
        all(letter >= _LATIN_END and not _VIETNAMESE[0] <= letter <= _VIETNAMESE[1] for letter in word)
        for word in words
    )


def _translate_east_asian(text: str) -> str:
    """Translate the longest known terms from left to right. Drop other Chinese and Japanese characters."""
    tables = _east_asian_tables()
    results = []
    for terms in tables[1:] if _KANA.search(text) else tables:
        parts, count, at = [""], 0, 0
        longest = max(map(len, terms))
        while at < len(text):
            term = next(
                (part for end in range(longest, 0, -1) if (part := text[at : at + end]) in terms), None
            )
            if term:
                parts += [terms[term], ""]
                count += len(term)
            elif not _EAST_ASIAN.match(text[at]):
                parts[-1] += text[at]
            at += len(term or " ")
        results.append((count, " ".join(" ".join(parts).split())))
    count, translated = max(results, key=lambda result: result[0])
    return translated if count else ""


@cache
def _rows() -> list[dict[str, str]]:
    lines = [line.split("\t") for line in _TABLE.read_text(encoding="utf-8").splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


@cache
def _latin_tables() -> list[_LatinTerms]:
    tables = []
    for language, function_words in _FUNCTION_WORDS.items():
        terms = _LatinTerms(Stemmer.Stemmer(language), frozenset(function_words.split()))
        for row in _rows():
            for term in row[language].split("|"):
                terms.add(term, row["english"])
        tables.append(terms)
    return tables


@cache
def _east_asian_tables() -> list[Mapping[str, str]]:
    """Return the translation tables for Chinese and Japanese."""
    return [
        {term: row["english"] for row in reversed(_rows()) for term in row[language].split("|")}
        for language in ("chinese", "japanese")
    ]
