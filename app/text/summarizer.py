"""PURE. Extractive summaries: choose the most informative sentence of an abstract.

A sentence gains points for saying "we", for introducing something, and for words from the title. It loses
points for a late position, for describing other work or its limits, and for referring to the previous
sentence. The weights (POINTS) were fitted to summaries of real papers by benchmarks/summaries.py.

An opening that refers to the previous sentence is removed. A brief sentence is joined with the next one, and
a long sentence is shortened.
"""

import math
import re
from collections.abc import Sequence
from functools import lru_cache

from app.text import sentence_openings
from app.text.tokenizer import content_stems, stem_all

LIMIT = 320  # characters of a summary
BRIEF = 100  # characters; a shorter sentence is joined with the next one if both fit into LIMIT

# --- where a sentence ends; not every period ends one

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
LONGEST_ASIDE = 300  # characters; a bracket that stays open for longer is treated as unmatched
LONGEST_WORD = 40
ENDING = 16  # characters that are searched; the abbreviations, numbers and initials above have at most 8

# --- features of a sentence

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
# Weights of `features`: proposes, says "we", share of the title's words, position (0…1), describes others,
# continues the previous sentence, refers back even without its opening.
POINTS = (3.3, 2.4, 5.4, -3.5, -1.4, -1.2, -2.0)


@lru_cache(maxsize=4_096)
def summary(title: str, own: str, abstract: str) -> str:
    """Return the source's summary of a paper, or one sentence of it if it is longer than LIMIT.

    `own` is the source's summary. If it is "", return a sentence of the abstract.
    """
    return own if 0 < len(own) <= LIMIT else summarize(title, own or abstract)


def summarize(title: str, abstract: str) -> str:
    """Return the most informative sentence of an abstract, or "" if the abstract is empty.

    A brief sentence is joined with the next one. A summary longer than LIMIT is shortened.
    """
    parts = sentences(abstract)
    return extract(parts, _most_informative(title, parts)) if parts else ""


def _most_informative(title: str, parts: Sequence[str]) -> int:
    """Return `best_sentence` for all features, but compute the flaws only of sentences that may be the best.

    A flaw costs points, so the points for the merits are the most that a sentence can have.
    """
    merits = _merits(title, parts)
    most = [_points(POINTS, row) for row in merits]
    best, points = -1, -math.inf
    for place in sorted(range(len(parts)), key=most.__getitem__, reverse=True):
        if most[place] < points:
            break
        if not _WHERE_TO_FIND_IT.search(parts[place]):
            own = _points(POINTS, (*merits[place], *_flaws(parts[place], place)))
            if own > points or (own == points and place < best):
                best, points = place, own
    return best if best >= 0 else best_sentence(parts, features(title, parts))


def extract(parts: Sequence[str], best: int) -> str:
    """Return the sentence at index `best` without its opening.

    Join a brief sentence with the next one. Shorten a sentence that is longer than LIMIT.
    """
    sentence = sentence_openings.without_opening(parts[best])
    following = parts[best + 1 : best + 2]
    together = " ".join([sentence, *following])
    if len(sentence) < BRIEF and len(together) <= LIMIT and not any(map(_WHERE_TO_FIND_IT.search, following)):
        return together
    return shorten(sentence)


def best_sentence(
    parts: Sequence[str], rows: Sequence[Sequence[float]], points: Sequence[float] = POINTS
) -> int:
    """Return the index of the sentence with the most points. Avoid sentences about where to find the code."""
    candidates = [n for n, part in enumerate(parts) if not _WHERE_TO_FIND_IT.search(part)]
    scores = [_points(points, row) for row in rows]
    return max(candidates or range(len(parts)), key=lambda n: (scores[n], -n))


def _points(weights: Sequence[float], row: Sequence[float]) -> float:
    """Return the points for the features in a row, which may lack the last ones."""
    return sum(weight * value for weight, value in zip(weights, row, strict=False))


def features(title: str, parts: Sequence[str]) -> list[tuple[float, ...]]:
    """Return the features of each sentence, in the order of POINTS."""
    merits = _merits(title, parts)
    return [(*row, *_flaws(part, place)) for place, (row, part) in enumerate(zip(merits, parts, strict=True))]


def _merits(title: str, parts: Sequence[str]) -> list[tuple[float, ...]]:
    """Return the features of each sentence that are quick to compute: the first four of POINTS."""
    title_stems = frozenset(content_stems(title))
    last = max(1, len(parts) - 1)
    return [
        (
            bool(_PROPOSES.search(part)),
            bool(_WE.search(part)),
            len(title_stems.intersection(stem_all(part))) / max(1, len(title_stems)),
            place / last,
        )
        for place, part in enumerate(parts)
    ]


def _flaws(part: str, place: int) -> tuple[float, ...]:
    """Return the remaining features of a sentence. All their weights are negative."""
    return (
        bool(_OTHERS.search(part)),
        bool(_LEANS.search(part)),
        place > 0 and sentence_openings.refers_back(sentence_openings.without_opening(part)),
    )


def sentences(text: str) -> list[str]:
    """Split a text into sentences. Do not split inside brackets or after abbreviations and initials."""
    complete, start = [], 0
    for match in _END.finditer(text):
        before = text[max(start, match.end() - LONGEST_ASIDE) : match.end()].rstrip()
        if _ends(before, text[match.end() : match.end() + LONGEST_WORD].split(None, 1)[0]):
            complete.append(text[start : match.end()].strip())
            start = match.end()
    return [part for part in (*complete, text[start:].strip()) if part]


def _ends(before: str, word: str) -> bool:
    """Return whether a sentence ends between `before` and the next `word`."""
    if before.count("(") > before.count(")"):
        return False
    tail = before[-ENDING:]  # searching all of it would take far longer
    if _ABBREVIATION.search(tail) or _ENUMERATION.search(tail):
        return False
    if _INITIAL.search(tail):
        return bool(_OPENER.match(word))
    if before.endswith(("..", "…")):
        return not word[0].islower()
    plain = word.rstrip(".,;:?!")
    # Names such as vLLM, 3D and π0 may begin a sentence. Lower-case words may do so only after a long word.
    if plain.isascii() and plain.isalpha() and plain.islower():
        return bool(_WORD_ENDS.search(before))
    return True


def shorten(text: str) -> str:
    """Shorten a text to at most LIMIT characters, and append "…".

    Cut between clauses, before a bracket or between words.
    """
    if len(text) <= LIMIT:
        return text
    cut = text[: LIMIT - 1]
    clause = max(cut.rfind(mark) for mark in (", ", "; ", ": ", " – ", " — "))
    at = clause if clause > LIMIT // 2 else cut.rfind(" ")
    aside = cut.rfind(" (", 0, at)
    if aside > LIMIT // 2 and ")" not in cut[aside:at]:
        at = aside
    return cut[: at if at > 0 else LIMIT - 1].rstrip(" ,;:–—") + "…"
