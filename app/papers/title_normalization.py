"""PURE. Normalize titles for comparison: plain words, written-out abbreviations, numbers and names."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from app.text.characters import is_accent

KEY_CHARS = 1_000
KEY_BYTES = 2_600  # a row of a PostgreSQL index has at most 2,704 bytes
PLUS = "+"
END_CHARS = 40  # length of the title end that is indexed to find similar titles

_FORMATTING = re.compile(
    r"\\?(?:text(?:tt|bf|it|sc|rm|sf)|math(?:bf|rm|cal|bb|it|sf|tt)|operatorname|underline|emph|boldsymbol)\s*\{"
    r"|\\text\{"
)
_LATEX_NAMES = {
    "ϕ": "phi",
    "ϵ": "epsilon",
    "ϑ": "theta",
    "ς": "sigma",
    "×": "times",
    "∞": "infty",
    "→": "rightarrow",
}
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_WORD = re.compile(r"[^\W_]+")
_CAPITALS = re.compile(r"[A-Z].*[A-Z]")
# Plus signs that belong to a name, as in "X+", "X2++" and "X$^+$". Those in "text + image" and in
# "25+ languages" do not.
_PLUS = re.compile(r"\+\+|\^\{?\+|[^\W\d_]\+(?![\w+])")
_ROMAN = re.compile(r"(?:x{0,3})(?:ix|iv|v?i{0,3})")
# Words that mark a paper about another paper, as in "Reply to: X".
_RESPONSE = re.compile(r"\b(?:reply|comment|rebuttal|erratum|corrigendum|addendum|correction)\b")
# A part before a colon is no name if it has only these words, as in "Letter to the Editor: X", or ends with a
# preposition. "Retracted" is not one of them: "Retracted article: X" is the paper X itself.
_KIND_OF_TEXT = re.compile(
    r"(?:(?:addend(?:um|a)|comments?|commentar(?:y|ies)|corrections?|corrigend(?:um|a)|discussion|editorial|"
    r"errat(?:um|a)|expressions? of concern|letter|not(?:e|ice)|re|rebuttal|rejoinder|removal|reply|replies|"
    r"responses?|retractions?|withdrawal|invited|(?:author|editor|publisher)s?|of|s|the|to)(?: |$))+|"
    r".+ (?:for|of|on|to)"
)
_ABBREVIATIONS = {
    "rl": "reinforcement learning",
    "llm": "large language model",
    "llms": "large language models",
    "vlm": "vision language model",
    "vlms": "vision language models",
}


def title_key(title: str) -> str:
    """Return the letters and digits of a title in lower case, without TeX commands, accents and vowel signs.

    A long title is cut to KEY_CHARS and KEY_BYTES.
    """
    key = normalize(title).replace(" ", "")
    if key.isascii():
        return key[:KEY_CHARS]
    key = "".join(filter(str.isalnum, key))[:KEY_CHARS]
    return key.encode(errors="replace")[:KEY_BYTES].decode(errors="ignore")


def title_end(key: str) -> str:
    """Return the end of a title key, reversed."""
    return key[: -END_CHARS - 1 : -1]


@lru_cache(maxsize=2_000)  # each title of a batch is needed several times
def normalize(title: str) -> str:
    """Return a title as plain lower-case words, for comparison."""
    text = unicodedata.normalize("NFKD", _FORMATTING.sub("", title))
    if not text.isascii():
        text = "".join(map(_latex_name, text))
        # Remove combining accents. Other marks, such as the vowel signs of Hindi, belong to words. Any other
        # character that is not a letter or digit separates two words.
        text = "".join(char for char in text if not (_is_mark(char) and is_accent(char)))
    text = text.casefold()
    if not text.isascii():
        return " ".join("".join(char if char.isalnum() or _is_mark(char) else " " for char in text).split())
    return _NOT_WORD.sub(" ", text).strip()


def _is_mark(char: str) -> bool:
    return unicodedata.category(char).startswith("M")


def _latex_name(char: str) -> str:
    """Return the LaTeX name of a Greek letter or sign, or `char` if it has none.

    This is needed because some sources write the sign, and others write its name.
    """
    name = unicodedata.name(char, "")
    if name.startswith("GREEK") and " LETTER " in name:
        return name.rpartition(" LETTER ")[2].partition(" ")[0].lower().replace("lamda", "lambda")
    return _LATEX_NAMES.get(char, char)


def expand_abbreviations(title: str) -> str:
    """Return a normalized title with the most frequent abbreviations of the field written out."""
    return " ".join(_ABBREVIATIONS.get(word, word) for word in title.split())


class Title:
    """A title with the normalized forms that comparisons use, each computed once."""

    __slots__ = ("_expanded", "_marks", "_subtitle", "key", "letters", "normalized", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.normalized = normalize(text)
        self.letters = self.normalized.replace(" ", "")
        self.key = title_key(text)
        self._expanded = ""
        self._marks: tuple[str, ...] | None = None
        self._subtitle: Title | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """The numbers, the `response_words`, and one "+" for each word that ends in a plus sign.

        These must be equal in two titles of the same paper.
        """
        if self._marks is None:
            text = unicodedata.normalize("NFKD", self.text).casefold()
            numbers = _NUMBER.findall(text)
            pluses = [PLUS for _ in _PLUS.findall(text)]
            words = self.normalized.split()
            romans = [word for word in words if word != "i" and _ROMAN.fullmatch(word)]
            self._marks = tuple(sorted(numbers + romans + self.response_words + pluses))
        return self._marks

    @property
    def response_words(self) -> list[str]:
        """The words that mark a paper about another paper, such as "erratum"."""
        headline = normalize(self.text.partition(": ")[0]) if self.subtitle else ""
        if _KIND_OF_TEXT.fullmatch(headline):
            return [headline]
        return _RESPONSE.findall(self.normalized)

    @property
    def expanded(self) -> str:
        """The normalized title with abbreviations written out."""
        self._expanded = self._expanded or expand_abbreviations(self.normalized)
        return self._expanded

    @property
    def names(self) -> frozenset[str]:
        """The words with several capital letters, such as "MLLM" and "LoRA", in lower case."""
        return frozenset(word.casefold() for word in _WORD.findall(self.text) if _CAPITALS.search(word))

    @property
    def has_headline(self) -> bool:
        """True if the part before the first colon has several words. A hyphenated word counts as one."""
        return len(self.text.partition(": ")[0].split()) > 1

    @property
    def subtitle(self) -> Title | None:
        """The part after the first colon, or None."""
        if self._subtitle is None and (subtitle := self.text.partition(": ")[2]):
            self._subtitle = Title(subtitle)
        return self._subtitle
