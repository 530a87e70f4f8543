"""PURE. Find the short forms that a text defines: "reinforcement learning (RL)"."""

import re
from collections.abc import Iterator, Sequence

from app.text.characters import HYPHENS

_SHORT = re.compile(r"\(([A-Za-z0-9][A-Za-z0-9-]{1,11})\)")
_CLAUSE = re.compile(r"[.;:!?,]\s|[()]")
PLAIN_WORD = re.compile(r"[A-Za-z0-9]+")
HYPHENATED = re.compile(rf"[A-Za-z0-9]+(?:[{HYPHENS}][A-Za-z0-9]+)+")
SMALL_WORDS = {
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "into", "is", "it", "of", "on", "or",
    "the", "that", "to", "via", "with",
}  # fmt: skip
_LOOK_BACK = 120  # characters before the bracket that are searched for the long form


def find_definitions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the (short, long) forms that a text defines, such as ("LLM", "large language model").

    This is a stricter version of the algorithm by Schwartz and Hearst (2003): each word of the long form must
    contribute its first letter and may contribute later ones, in order. Only small words may contribute none.
    """
    for bracket in _SHORT.finditer(text):
        short = bracket.group(1)
        if sum(char.isupper() for char in short) < 2:
            continue
        short = short[:-1] if short.endswith("s") and short[:-1].isupper() else short
        clause = _CLAUSE.split(text[max(0, bracket.start() - _LOOK_BACK) : bracket.start()])[-1]
        words = [*PLAIN_WORD.finditer(clause)]
        if size := _size_of_long_form(short, [word.group() for word in words]):
            yield short, clause[words[-size].start() : words[-1].end()]


def _size_of_long_form(short: str, before: Sequence[str]) -> int:
    """Return the largest number of words at the end of `before` that spell the short form, or 0."""
    letters = "".join(char for char in short.lower() if char.isalnum())
    for size in range(min(len(before), len(letters) + 3), 1, -1):
        words = [word.lower() for word in before[-size:]]
        if words[0] in SMALL_WORDS or words[0][0] != letters[0]:
            continue
        spelled = {0}  # possible numbers of letters contributed by the words so far
        for word in words:
            spelled = {used + more for used in spelled for more in letter_counts(word, letters[used:])}
        if len(letters) in spelled:
            return size
    return 0


def letter_counts(word: str, letters: str) -> Iterator[int]:
    """Yield the numbers of leading `letters` that a word may contribute.

    The word must begin with the first of these letters and contain the others in order. A small word may also
    contribute none.
    """
    if word in SMALL_WORDS:
        yield 0
    place = 0
    for number, letter in enumerate(letters, start=1):
        place = word.find(letter, place) + 1
        if not place or (number == 1 and place > 1):
            return
        yield number
