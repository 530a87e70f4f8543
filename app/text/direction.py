"""PURE. Determine the direction of texts, because some mail clients do not."""

import unicodedata

_RTL = ("R", "AL")
_STRONG = ("L", *_RTL)


def is_rtl(text: str) -> bool:
    """Return whether the first character with a strong direction is right-to-left (UAX 9, P2).

    This is needed because several mail clients ignore `dir="auto"` and `text-align:start`.
    """
    return next(
        (kind in _RTL for char in text if (kind := unicodedata.bidirectional(char)) in _STRONG), False
    )


def ltr_mark_after(text: str) -> str:
    """Return a left-to-right mark if a text has right-to-left letters, otherwise an empty string.

    A number or date that follows the text would move into it without the mark. Put the mark after the space
    between them: on a right-to-left line, which begins with the text, the space would move with the mark.
    """
    return "\u200e" if any(unicodedata.bidirectional(char) in _RTL for char in text) else ""


def with_ltr_mark(text: str) -> str:
    """Append a left-to-right mark to a text with right-to-left letters."""
    return text + ltr_mark_after(text)
