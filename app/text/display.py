"""PURE. Prepare untrusted texts for display in a mail or a feed: one safe line, wrapping, text direction."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Mapping

TEXT_WIDTH = 72  # of the text part of a mail
# Of the words in the names of counts. All others lose their "s".
_SINGULAR = {"addresses": "address", "deliveries": "delivery", "processes": "process", "queries": "query"}
_RTL = ("R", "AL")
_STRONG = ("L", *_RTL)
_DIRECTION_MARKS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: "1 paper", "2,000 papers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_counts(counts: Mapping[str, int]) -> str:
    """Return the counts of a job run in words, without zeros: "1 paper new, 12 listings"."""
    names = {name: name.replace("_", " ") for name in counts}
    return ", ".join(
        f"{number:,} {_singular(names[name]) if number == 1 else names[name]}"
        for name, number in counts.items()
        if number
    )


def _singular(words: str) -> str:
    return " ".join(_SINGULAR.get(word) or re.sub(r"(?<!s)s$", "", word) for word in words.split())


def safe_line(text: str) -> str:
    """Return untrusted text as one line, without control characters or marks that change text direction."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    encodable = text.encode("utf-8", "replace").decode()  # without lone surrogates
    printable = (char if unicodedata.category(char) != "Cc" else " " for char in encodable)
    return " ".join("".join(printable).translate(_DIRECTION_MARKS).split())


def sentence(text: str) -> str:
    """Return a message as a sentence: with a capital, unless it begins with a name, and with a period."""
    text = text.strip()
    first = text.partition(" ")[0]
    if first.isalpha() and first.islower():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) or not text else f"{text}."


def is_rtl(text: str) -> bool:
    """Return whether the first character with a strong direction is right-to-left (UAX 9, P2).

    This is needed because several mail programs ignore `dir="auto"` and `text-align:start`.
    """
    return next(
        (kind in _RTL for char in text if (kind := unicodedata.bidirectional(char)) in _STRONG), False
    )


def with_ltr_mark(text: str) -> str:
    """Add a mark to a text with right-to-left letters, so that a date after it is not displayed inside it."""
    return text + "\u200e" if any(unicodedata.bidirectional(char) in _RTL for char in text) else text


def wrap(text: str, indent: str = "") -> str:
    """Wrap text to TEXT_WIDTH characters a line, without breaking links."""
    return textwrap.fill(
        text,
        TEXT_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
