"""PURE. Shorten texts to a number of characters, and titles to the name that comes before a colon."""

from __future__ import annotations

import re

# English words that lead to the next word. A text that is cut after one of them reads as a mistake.
_FUNCTION_WORDS = """
    a about across after against all along amid among an and any are as at based be because been before
    being between beyond both but by can cannot could do does during each either every for from had has
    have how if in inside into is its it's may might more most must my neither no nor not of off on onto
    or our out outside over per rather should so some such than that the their them then there these they
    this those through throughout to toward towards under unless until up upon us using versus very via vs
    was we were what when where whether which while who whom whose why will with within without would you
    your & +
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_MARKS = " ,;:.–—-([{“‘"
# Kinds of papers. "Position: …" names the kind of the paper instead of the paper.
_KINDS = re.compile(
    r"(?:a )?(?:\w+ )?(?:position|perspective|viewpoint|opinion|survey|review|tutorial|report|editorial"
    r"|correction|erratum|reply|comment|abstract|study)(?: paper)?",
    re.IGNORECASE,
)


def shorten(text: str, chars: int) -> str:
    """Shorten a text to at most `chars` characters, between words if that loses little, and add "…".

    The result does not end with a function word such as "the" or "of".
    """
    if len(text) <= chars:
        return text
    at = text.rfind(" ", 0, chars)
    return (end_with_content(text[:at]) if at > chars * 0.6 else text[: chars - 1].rstrip(_MARKS)) + "…"


def shorten_at_clause(text: str, chars: int) -> str:
    """Shorten a text to at most `chars` characters, after a clause if that loses little, and add "…"."""
    if len(text) <= chars:
        return text
    at = max(text.rfind(mark, 0, chars) for mark in (", ", "; ", " – ", " — "))
    return end_with_content(text[:at]) + "…" if at > chars * 0.6 else shorten(text, chars)


def end_with_content(text: str) -> str:
    """Remove marks and function words from the end of a text. Return it unchanged if nothing would remain."""
    rest = text.rstrip(_MARKS)
    while (start := rest.rfind(" ") + 1) and rest[start:].lower().strip(_MARKS) in FUNCTION_WORDS:
        rest = rest[:start].rstrip(_MARKS)
    return rest or text


def short_title(title: str) -> str:
    """Return the part of a title before its colon, such as a method's name, or the title if it has none."""
    name, colon, _ = title.partition(": ")
    return name if colon and name.strip(_MARKS) and not _KINDS.fullmatch(name) else title
