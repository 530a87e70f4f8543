"""PURE. An abstract → the sentence of it that tells most of what the paper does, word for word.

A sentence gets points for saying "we", for introducing something, and for the words of the title; it
loses some for standing late, for telling what others did or lack, and for leaning on the sentence before
it. The points (POINTS) are fitted on summaries of real papers by benchmarks/summaries.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from app.text.tokenizer import telling, tokenise

LIMIT = 320  # characters
BRIEF = 100  # a sentence under so many takes the next one with it, where both fit

# --- sentences: parted where one ends, which a full stop alone does not say

_END = re.compile(r"(?<![.!?…])[.!?…]++[)\]}”\"'’]*+(?:\s+(?=\S)|(?<=[a-z]{3}[.!?])(?=[A-Z][a-z]*[ ,]))")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[“\"'/-])(?:e\.?g|i\.?e|et al|v\.?s|cf|ca|resp|approx|incl|esp|avg|res|viz|a\.k\.a|aka"
    r"|w\.r\.t|s\.t|p\.p|figs?|eqs?|eqns?|secs?|sects?|tab|refs?|chap|nos?|vol|pp|def|thm|prop"
    r"|dr|prof|mr|mrs|ms|st)\.$",
    re.IGNORECASE,
)
_ENUMERATION = re.compile(r"(?:^|[:;,.!?]\s|\band\s)\(?\d{1,2}\.$")
_INITIAL = re.compile(r"(?:^|[\s(.])[A-Z]\.$")
_WORD_ENDS = re.compile(r"\w{4}\.$")
_OPENER = re.compile(r"(?:We|The|This|These|Our|In|It|To|Here|However|Their|They|By|On|For|With|As|An?)\b")
LONGEST_ASIDE = 300  # a bracket open for longer was never meant to close
LONGEST_WORD = 40

# --- what a sentence says of itself

_WHO = r"\b(?:we|(?:this|our) (?:\w+ )?(?:paper|work|study|report|survey|article)|paper)\b"
_PROPOSES = re.compile(
    rf"{_WHO}(?:,? \w+ly| also| then| further| thus| first)?"
    r" (?:introduc|propos|present|develop|formulat|devis)|\b(?:is|are) (?:introduced|proposed|presented)\b",
    re.IGNORECASE,
)
_WE = re.compile(r"\bwe\b", re.IGNORECASE)
_OTHERS = re.compile(
    r"^(?:recent|despite|although|existing|current|traditional|while|however|prior|previous|most|many|modern"
    r"|conventional|but|yet|unfortunately|background|motivation)\b"
    r"|\b(?:remains?|often|typically|suffers?|struggles?|challenging|limited|fails?|lacks?)\b"
    r"|\bha(?:s|ve) (?:become|emerged)\b",
    re.IGNORECASE,
)
_LEANS = re.compile(
    r"^(?:moreover|furthermore|additionally|in addition|finally|also|second|third|then|next|consequently|thus"
    r"|therefore|meanwhile|together|notably|specifically|in particular|first|it|they|these|such|extensive"
    r"|experiment\w*|results|evaluations?|empirically)\b",
    re.IGNORECASE,
)
_WHERE_TO_FIND_IT = re.compile(
    r"https?://|\b(?:code|models?|data|datasets?|weights|page|demo|benchmark)\b.{0,80}"
    r"\b(?:available|released?|open-sourced?|public(?:ly)?)\b",
    re.IGNORECASE,
)
# Proposes, says we, share of the title's words, how late (0…1), tells of others, leans on what was before.
POINTS = (3.3, 2.4, 5.4, -3.5, -1.4, -1.2)


@lru_cache(maxsize=4_096)
def summarize(title: str, abstract: str) -> str:
    """The most telling sentence, with the next one where it is brief; "" where there is no abstract.

    What is longer than LIMIT is cut between clauses.
    """
    parts = sentences(abstract)
    return extract(parts, best_sentence(parts, features(title, parts))) if parts else ""


def extract(parts: Sequence[str], best: int) -> str:
    """The sentence at a place as it is shown: a brief one with the next, a long one cut."""
    following = parts[best + 1 : best + 2]
    together = " ".join([parts[best], *following])
    if (
        len(parts[best]) < BRIEF
        and len(together) <= LIMIT
        and not any(map(_WHERE_TO_FIND_IT.search, following))
    ):
        return together
    return shorten(parts[best])


def best_sentence(
    parts: Sequence[str], rows: Sequence[Sequence[float]], points: Sequence[float] = POINTS
) -> int:
    """The place of the sentence with most points; where to find the code is never what tells most."""
    telling_ones = [n for n, part in enumerate(parts) if not _WHERE_TO_FIND_IT.search(part)]
    worth = [sum(weight * value for weight, value in zip(points, row, strict=True)) for row in rows]
    return max(telling_ones or range(len(parts)), key=lambda n: (worth[n], -n))


def features(title: str, parts: Sequence[str]) -> list[tuple[float, ...]]:
    """What POINTS are given for, sentence by sentence."""
    named = _stems(title)
    last = max(1, len(parts) - 1)
    return [
        (
            bool(_PROPOSES.search(part)),
            bool(_WE.search(part)),
            len(named & _stems(part)) / max(1, len(named)),
            place / last,
            bool(_OTHERS.search(part)),
            bool(_LEANS.search(part)),
        )
        for place, part in enumerate(parts)
    ]


def _stems(text: str) -> frozenset[str]:
    return frozenset(telling(token.stem for token in tokenise(text)))


def sentences(text: str) -> list[str]:
    """A text in sentences. Abbreviations, initials, numbers and what stands in brackets end none."""
    found, start = [], 0
    for match in _END.finditer(text):
        before = text[max(start, match.end() - LONGEST_ASIDE) : match.end()].rstrip()
        if _ends(before, text[match.end() : match.end() + LONGEST_WORD].split(None, 1)[0]):
            found.append(text[start : match.end()].strip())
            start = match.end()
    return [part for part in (*found, text[start:].strip()) if part]


def _ends(before: str, word: str) -> bool:
    """Whether a sentence ends after `before`, where `word` comes next."""
    if before.count("(") > before.count(")"):
        return False
    if _ABBREVIATION.search(before) or _ENUMERATION.search(before):
        return False
    if _INITIAL.search(before):
        return bool(_OPENER.match(word))
    if before.endswith(("..", "…")):
        return not word[0].islower()
    plain = word.rstrip(".,;:?!")
    if plain.isascii() and plain.isalpha() and plain.islower():  # not vLLM, 3D, π0: those may begin one
        return bool(_WORD_ENDS.search(before))
    return True


def shorten(text: str) -> str:
    """At most LIMIT characters, cut between clauses, before a bracket, or else between words; marked."""
    if len(text) <= LIMIT:
        return text
    cut = text[: LIMIT - 1]
    clause = max(cut.rfind(mark) for mark in (", ", "; ", ": ", " – ", " — "))
    at = clause if clause > LIMIT // 2 else cut.rfind(" ")
    aside = cut.rfind(" (", 0, at)
    if aside > LIMIT // 2 and ")" not in cut[aside:at]:
        at = aside
    return cut[: at if at > 0 else LIMIT - 2].rstrip(" ,;:–—") + " …"
