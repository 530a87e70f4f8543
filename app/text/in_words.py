"""PURE. Write counts, such as "2,000 papers" or "2.2k", and validation errors in plain words."""

import re
from collections.abc import Mapping
from typing import Any

# Singulars of words in the names of counts. All other words lose their final "s".
_SINGULAR = {"addresses": "address", "deliveries": "delivery", "processes": "process", "queries": "query"}

# Messages about invalid values, and the types of the pydantic errors that they replace.
_TYPES_OF_MESSAGES = {
    "is required": "missing",
    "is not a known field": "extra_forbidden",
    "is not valid JSON": "json_invalid",
    "must be a whole number": "int_parsing int_type int_from_float",
    "has too many digits": "int_parsing_size",
    "must be a number": "float_parsing float_type",
    "must be a finite number": "finite_number",
    "must be true or false": "bool_parsing bool_type",
    "must be text": "string_type",
    "must be a list": "list_type tuple_type set_type frozen_set_type",
    "must be an object": "dict_type model_type model_attributes_type",
    "must be a day such as 2026-11-20": (
        "date_type date_parsing date_from_datetime_parsing date_from_datetime_inexact"
    ),
    "must be a time such as 2026-11-20T08:00:00Z": (
        "datetime_type datetime_parsing datetime_from_date_parsing timezone_aware"
    ),
    "must be at least {ge}": "greater_than_equal",
    "must be at most {le}": "less_than_equal",
    "has too few items: the minimum is {min_length}": "too_short",
    "has too many items: the maximum is {max_length}": "too_long",
    "must match the regular expression {pattern}": "string_pattern_mismatch",
}
_INVALID = {kind: message for message, kinds in _TYPES_OF_MESSAGES.items() for kind in kinds.split()}


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: "1 paper", "2,000 papers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short_count(number: int) -> str:
    """Return a number in at most four characters, for narrow columns: 999, "2.2k", "12k", "1.2M"."""
    if number < 1000:
        return str(number)
    amount, unit = (number / 1000, "k") if number < 999_500 else (number / 1_000_000, "M")
    return f"{amount:.{int(amount < 9.95)}f}{unit}"


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


def describe_invalid(error: Mapping[str, Any], subject: str = "") -> str:
    """Return the message of a pydantic error in plain words: "must be less than 24".

    If the message has no subject, put `subject` before it: "this must be less than 24".
    """
    if error["type"] in _INVALID:
        text = _INVALID[error["type"]].format(**error.get("ctx", {}))
    else:
        text = re.sub(r"^(?:Value error, |[A-Z]\w+ should (?=\w))", _without_subject, error["msg"])
    return f"{subject} {text}".lstrip() if text.startswith(("must ", "is ", "has ")) else text


def _without_subject(match: re.Match[str]) -> str:
    return "" if match[0].startswith("Value") else "must "


def sentence(text: str) -> str:
    """Return a message as a sentence. Capitalize a lower-case first word, and add a missing period."""
    text = text.strip()
    first = text.partition(" ")[0]
    if first.isalpha() and first.islower():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) or not text else f"{text}."
