"""PURE. Shorten texts to a number of characters, and titles to the name that comes before a colon."""

import re
import unicodedata

from app.text.characters import JOINERS

# English words that need a word after them. A text that is cut after one of them looks like a mistake.
_FUNCTION_WORDS = """
    a about across after against all along amid among an and any are as at based be because been before
    being between beyond both but by can cannot could do does during each either every for from had has
    have how if in inside into is its it's may might more most must my neither no nor not of off on onto
    or our out outside over per rather should so some such than that the their them then there these they
    this those through throughout to toward toward under unless until up upon us using versus very via vs
    was we were what when where whether which while who whom whose why will with within without would you
    your & +
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_SENTENCE_END = re.compile(r"(?<=[a-z)]{3}[.!?])(?<!et al\.) (?=[A-Z])")
_CLAUSE_END = re.compile(
    r"[,;] | [–—] | (?=\()| (?=(?:while|whereas|which|where|when|because|although|without) )"
    r"|(?<!ed) (?=(?:by|through|via|using) )"
)
_PHRASE_END = re.compile(r"(?<!ed) (?=(?:and|to|that|with|for|in|into|from|across) )")
_MARKS = " ,;:.–—-([{“‘"
_SKIN_TONES = "".join(map(chr, range(0x1F3FB, 0x1F400)))  # of the emoji before them
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))  # two of them form a flag
_VIRAMA = 9  # the combining class of signs that join two letters, as in Hindi क्ष
# Kinds of papers: a title such as "Position: …" begins with the kind of paper, not with a name.
_KINDS = re.compile(
    r"(?:a )?(?:\w+ )?(?:position|perspective|viewpoint|opinion|survey|review|tutorial|report|editorial"
    r"|correction|erratum|reply|comment|abstract|study)(?: paper)?",
    re.IGNORECASE,
)


def shorten(text: str, chars: int) -> str:
    """Shorten a text to at most `chars` characters, and append "…". Cut between words if little is lost.

    The result does not end with a function word such as "the" or "of".
    """
    if len(text) <= chars:
        return text
    at = text.rfind(" ", 0, chars)
    if at > chars * 0.6:
        return end_with_content(text[:at]) + "…"
    end = chars - 1
    while end and _is_within_grapheme(text, end):
        end -= 1
    return text[:end].rstrip(_MARKS) + "…"


def _is_within_grapheme(text: str, end: int) -> bool:
    """Return True if a cut here would separate a letter from its marks, or the parts of a joined emoji."""
    before, after = text[:end], text[end]
    flag_letters = end - len(before.rstrip(_FLAG_LETTERS))
    return (
        unicodedata.category(after).startswith("M")
        or after in f"{JOINERS}{_SKIN_TONES}"
        or before[-1] in JOINERS
        or (after in _FLAG_LETTERS and flag_letters % 2 == 1)
        or (after.isalpha() and unicodedata.combining(before[-1]) == _VIRAMA)
    )


def shorten_at_clause(text: str, chars: int) -> str:
    """Shorten a text to at most `chars` characters. Cut after a sentence, a clause or a phrase if possible.

    Append "…", except after a sentence.
    """
    if len(text) <= chars:
        return text
    for pattern in (_SENTENCE_END, _CLAUSE_END, _PHRASE_END):
        ends = (match.start() for match in pattern.finditer(text, int(chars * 0.6), chars))
        # Not within parentheses: "(i.e., pages)" would end as "(i.e…".
        if outside := [text[:end] for end in ends if text.count("(", 0, end) == text.count(")", 0, end)]:
            shortened = outside[-1]
            return shortened if pattern is _SENTENCE_END else end_with_content(shortened) + "…"
    return shorten(text, chars)


def end_with_content(text: str) -> str:
    """Remove marks and function words from the end of a text, unless nothing would remain."""
    rest = text.rstrip(_MARKS)
    while (start := rest.rfind(" ") + 1) and rest[start:].lower().strip(_MARKS) in FUNCTION_WORDS:
        rest = rest[:start].rstrip(_MARKS)
    return rest or text


def short_title(title: str) -> str:
    """Return the part of a title before its colon if it is a name, or else the whole title."""
    name, colon, _ = title.partition(": ")
    return name if colon and name.strip(_MARKS) and not _KINDS.fullmatch(name) else title
