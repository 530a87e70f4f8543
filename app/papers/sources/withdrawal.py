"""PURE. Recognise the comments in which authors withdraw an arXiv paper."""

from __future__ import annotations

import re

_WITHDRAWN = re.compile(
    r"\bwithdrawn\b|\b(?:paper|article|submission|manuscript) (?:has been|was) (?:retracted|removed)\b",
    re.IGNORECASE,
)


def is_stated_in(comment: str) -> bool:
    """Return whether an arXiv comment says that the paper was withdrawn."""
    return bool(_WITHDRAWN.search(comment))
