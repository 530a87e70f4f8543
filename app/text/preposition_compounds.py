"""PURE. Compounds of a preposition and a word, such as "in-context" and "on-policy".

Without the hyphen, such words usually mean something else: "an increase in context length".
"""

import re
from collections import Counter
from collections.abc import Iterable

from app.text.characters import HYPHENS, fold_accents
from app.text.tokenizer import STOP_STEMS
from app.text.word_forms import stem

MIN_PAPERS = 3  # papers that must write a compound with its hyphen
# Papers with the hyphen for each paper without it. "On-demand" and "on demand" are equally frequent, and mean
# the same.
MIN_RATIO = 2.0
# "In domain-specific" is not the pair "in domain".
_PAIR = re.compile(
    rf"(?<![{HYPHENS}\w])(at|by|for|from|in|into|of|on|to|with)(?:([{HYPHENS}])| )([^\W_]+)"
    rf"(?(2)(?!\w)|(?![{HYPHENS}\w]))"
)


def compounds_in(text: str) -> set[str]:
    """Return the compounds in a text, as `stemmed` returns them."""
    return {stemmed(compound) for compound, has_hyphen in _pairs(text) if has_hyphen}


def stemmed(compound: str) -> str:
    """Return a compound with the stem of its second word, because "by-product" also means "by-products"."""
    first, _, second = compound.partition("-")
    return f"{first}-{stem(second)}"


def learn(texts: Iterable[str]) -> frozenset[str]:
    """Return the compounds that papers seldom write without the hyphen, in lower case and without accents.

    `texts` has one text per paper.
    """
    with_hyphen, without = Counter[str](), Counter[str]()
    for text in texts:
        for pair, has_hyphen in {*_pairs(text)}:
            (with_hyphen if has_hyphen else without)[pair] += 1
    return frozenset(
        pair for pair, papers in with_hyphen.items() if papers >= max(MIN_PAPERS, MIN_RATIO * without[pair])
    )


def _pairs(text: str) -> Iterable[tuple[str, bool]]:
    for first, mark, second in _PAIR.findall(fold_accents(text)):
        if second not in STOP_STEMS:
            yield f"{first}-{second}", bool(mark)
