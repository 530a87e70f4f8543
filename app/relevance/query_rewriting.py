"""PURE. Split, correct and describe the texts of interests, and write filters."""

import itertools
import re
from collections.abc import Mapping, Sequence

from app.errors import InvalidInterest
from app.relevance.query_language import (
    FILTER_PATTERN,
    GENERAL_STEMS,
    OPERATORS,
    FilterField,
    list_texts,
    normalize,
    parse,
    parse_typed,
    split_into_parts,
)
from app.text.tokenizer import WORD, content_stems, stem_all, without_stopwords

_LIST_SEPARATORS = (";", "•", "▪", " · ", " / ", " | ", ",")  # the first one in a text separates its parts
_NEGATIONS = frozenset(("NOT", "-"))
# Not "without": it usually belongs to the subject, as in "learning without forgetting".
_NEGATION_IN_WORDS = re.compile(
    r"(?:^| )(?:(?:and |but )?(?:not|except|excluding)|but no|other than)(?!\S) ?(?:(?:any|for|the) )*",
    re.IGNORECASE,
)
MAX_EXCLUDED_WORDS = 2  # after a negation in words; more are probably a clause: "not used for labels"
_ANYTHING = frozenset(stem_all("anything everything papers articles research work"))  # not a subject
_CONJUNCTIONS = {"and", "but"}
_SYNTAX = re.compile(rf'"|(?:^|\s)-\S|\b{FILTER_PATTERN}', re.IGNORECASE)  # more than plain words
_DESCRIPTIONS = {
    FilterField.AUTHOR: "Papers by",
    FilterField.ORGANIZATION: "Papers from",
    FilterField.CATEGORY: "Papers in",
}


def query_for(field_name: str, value: str) -> str:
    """Return an interest with one filter, such as 'author:"Jane Doe"', or "" if the value is unsuitable."""
    bare = " ".join(normalize(value).replace('"', " ").split())
    text = f'{field_name}:"{bare}"' if " " in bare else f"{field_name}:{bare}"
    try:
        query = parse(text)
    except InvalidInterest:
        return ""
    return text if query.required else ""


def typed_values(text: str, name: FilterField) -> dict[str, str]:
    """Return the values of a filter as they are typed in an interest, keyed by those in its `Query`."""
    parts = split_into_parts(normalize(text))
    return {part.value: part.typed_value for part in parts if part.field.lower() == name}


def replace_values(text: str, name: FilterField, replacements: Mapping[str, str]) -> str:
    """Return an interest with some values of a filter replaced, given as they are in its `Query`."""
    text = normalize(text)
    for part in reversed(split_into_parts(text)):
        new = replacements.get(part.value) if part.field.lower() == name else None
        if new:
            text = f"{text[: part.start]}{part.minus}{query_for(name, new)}{text[part.end :]}"
    return text


def describe(text: str) -> str:
    """Return an interest as shown to subscribers: "Papers by J Doe" if it has only filters of one kind."""
    parts = [part for part in split_into_parts(normalize(text)) if WORD.search(part.text)]
    names = {"" if part.minus else part.field.lower() for part in parts}
    if len(names) != 1 or not (name := names.pop()):
        return text
    values = dict.fromkeys(part.typed_value for part in parts)
    return f"{_DESCRIPTIONS[FilterField(name)]} {list_texts(values, 'or')}"


def plain_runs(text: str) -> list[tuple[int, int]]:
    """Return the spans of the runs of plain words in a normalized text.

    Phrases in quotes, exclusions and filters are not part of any run.
    """
    runs, continues = list[tuple[int, int]](), False
    for part in split_into_parts(text):
        is_plain = bool(part.bare and not part.minus and not part.field)
        if is_plain:
            runs.append((runs.pop()[0] if continues else part.start, part.end))
        continues = is_plain
    return runs


def split_suggestion(text: str) -> tuple[str, ...]:
    """Return the parts of a text that looks like several interests, otherwise ().

    Plain words are split at the separator of a list: semicolons, bullets, slashes between spaces, or commas.
    Any text without brackets is split at the operator OR. Each part is a valid interest.
    """
    text = normalize(text)
    pieces = _split_at_or(text)
    if len(pieces) == 1 and not _SYNTAX.search(text):
        pieces = text.split(next((each for each in _LIST_SEPARATORS if each in text), ","))
    parts = [*dict.fromkeys(piece.strip() for piece in pieces if WORD.search(piece))]
    if any(part[0] == "-" or _NEGATION_IN_WORDS.match(part) for part in parts[1:]):
        return ()  # an exclusion belongs to the part before it
    return tuple(parts) if len(parts) > 1 and all(map(_is_valid, parts)) else ()


def _is_valid(text: str) -> bool:
    try:
        return bool(parse_typed(text))
    except InvalidInterest:
        return False


def _split_at_or(text: str) -> list[str]:
    """Split a normalized text at each OR outside quotes. Do not split a text with brackets."""
    pieces, past = list[str](), 0
    for part in split_into_parts(text) if "(" not in text else ():
        if part.source == "OR":
            pieces.append(text[past : part.start])
            past = part.end
    return [*pieces, text[past:]]


def exclusion_suggestion(text: str) -> str:
    """Return an interest with each negation written as an exclusion, or "" if it has none.

    In other search engines, AND, OR and NOT are operators. Here, they are words like any other, because they
    may be meant as such: “quantum NOT gates”. Texts with brackets or OR have no obvious equivalent. The words
    after a dash may be the subtitle of a paper. A word such as "not" is a negation if the text ends after it
    with one or two plain words.
    """
    text = normalize(text)
    with_operators = [part.source for part in split_into_parts(_negation_as_operator(text))]
    if "OR" in with_operators or "(" in text:
        return ""
    parts, written = [*with_operators], list[str]()
    while parts:
        part = parts.pop(0)
        excluded = _negated_parts(parts) if part in _NEGATIONS else []
        is_subtitle = part == "-" and _is_like_a_subtitle(excluded)
        if is_subtitle or not without_stopwords(stem_all(" ".join(excluded))):
            written.append(part)
            continue
        while written and (written[-1] in _NEGATIONS or written[-1].lower() in _CONJUNCTIONS):
            written.pop()
        del parts[: len(excluded)]
        written.append(f'-"{" ".join(excluded)}"' if len(excluded) > 1 else f"-{excluded[0].lstrip('-')}")
    try:
        query = parse(" ".join(written))
    except InvalidInterest:
        return ""
    return query.text if written != with_operators and query.has_filters else ""


def without_exclusions(text: str) -> str:
    """Return a normalized text without its exclusions."""
    return " ".join(part.source for part in split_into_parts(text) if not part.minus)


def _negation_as_operator(text: str) -> str:
    """Return a text with a negation in words near its end as NOT: "agents not robots" as "agents NOT robots".

    "not" after a word such as "is", "do" or "or" belongs to that word.
    """
    if not (match := _NEGATION_IN_WORDS.search(text, 1)):
        return text
    before, excluded = text[: match.start()], text[match.end() :]
    has_subject = {*content_stems(before)} - GENERAL_STEMS - _ANYTHING
    is_verbal = not {*content_stems(before.rpartition(" ")[2])} - GENERAL_STEMS
    stems = stem_all(excluded)
    is_plain = without_stopwords(stems) == stems and GENERAL_STEMS.isdisjoint(stems)
    if (
        not has_subject
        or is_verbal
        or not (is_plain and 0 < len(excluded.split()) <= MAX_EXCLUDED_WORDS)
        or _SYNTAX.search(excluded)
    ):
        return text
    return f"{before} NOT {excluded}"


def _negated_parts(parts: Sequence[str]) -> list[str]:
    """Return the parts that a negation before them applies to: plain words, or one phrase or filter."""
    own = [*itertools.takewhile(lambda part: part not in OPERATORS, parts)]
    return [*itertools.takewhile(lambda part: not _SYNTAX.search(part), own)] or own[:1]


def _is_like_a_subtitle(parts: Sequence[str]) -> bool:
    """Return True for more than two words, for function words, and for capitalized words."""
    stems = stem_all(" ".join(parts))
    return (
        len(parts) > 2
        or without_stopwords(stems) != stems
        or not GENERAL_STEMS.isdisjoint(stems)
        or any(part[0].isupper() and not part.isupper() for part in parts)
    )
