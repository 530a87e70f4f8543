"""PURE. Determine the direction of texts, because some mail clients do not."""

from __future__ import annotations

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


def with_ltr_mark(text: str) -> str:
    """Append a mark to a text with right-to-left letters, so that a following date does not move into it."""
    return text + "\u200e" if any(unicodedata.bidirectional(char) in _RTL for char in text) else text
