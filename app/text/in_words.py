"""PURE. Write counts with their nouns, such as "2,000 papers", and messages as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Singulars of words in the names of counts. All other words lose their final "s".
_SINGULAR = {"addresses": "address", "deliveries": "delivery", "processes": "process", "queries": "query"}


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: "1 paper", "2,000 papers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def count_of_recent(count: int, considered: int, trending: int) -> str:
    """Return how many of the recent papers are in a digest: "7 of 40 recent papers (5 matching, 2 trending)".

    `trending` is the number of papers that match neither an interest nor what the subscriber liked.
    """
    words = count_of(count, "paper")
    if considered > count:
        words = f"{count} of {count_of(considered, 'recent paper')}"
    return f"{words} ({count - trending or 'none'} matching, {trending} trending)" if trending else words


def format_counts(counts: Mapping[str, int]) -> str:
    """Return the counts of a job run that are not 0, such as "1 paper new, 12 listings"."""
    names = {name: name.replace("_", " ") for name in counts}
    return ", ".join(
        f"{number:,} {_singular(names[name]) if number == 1 else names[name]}"
        for name, number in counts.items()
        if number
    )


def _singular(words: str) -> str:
    return " ".join(_SINGULAR.get(word) or re.sub(r"(?<!s)s$", "", word) for word in words.split())


def describe_invalid(message: str) -> str:
    """Return pydantic's message about an invalid value without its terms: "must be less than 24"."""
    return re.sub(r"^(?:Value error, |[A-Z]\w+ should (?=\w))", _without_subject, message)


def _without_subject(match: re.Match[str]) -> str:
    return "" if match[0].startswith("Value") else "must "


def sentence(text: str) -> str:
    """Return a message as a sentence. Capitalise a lower-case first word, and add a missing full stop."""
    text = text.strip()
    first = text.partition(" ")[0]
    if first.isalpha() and first.islower():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) or not text else f"{text}."
