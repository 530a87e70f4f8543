"""PURE. Parse the texts that subscribers mute: words, phrases and filters."""

import re
from collections.abc import Iterable

from app.errors import InvalidInterest
from app.relevance.query_language import (
    FILTER_PATTERN,
    GENERAL_STEMS,
    FilterField,
    Query,
    normalize,
    normalize_filter_value,
    require_well_formed,
    split_into_parts,
)
from app.relevance.query_rewriting import split_suggestion
from app.text import acronyms, characters
from app.text.tokenizer import WORD, folded_words, without_stopwords
from app.text.word_forms import stem

MAX_MUTED_CHARS = 100
_FILTER = re.compile(rf"{FILTER_PATTERN}\s*(.*)", re.IGNORECASE)


def parse_muted(text: str) -> Query:
    """Parse a muted text into exclusions. If it is invalid, raise InvalidInterest, which says what to change.

    Several words form one phrase. A filter mutes all papers with its value.
    """
    text = normalize(text)
    if len(text) > MAX_MUTED_CHARS or characters.has_controls(text):
        raise InvalidInterest(
            f"A muted word must be plain text of at most {MAX_MUTED_CHARS} characters.", "muted"
        )
    if match := _FILTER.fullmatch(text.lstrip("-")):
        value = normalize_filter_value(match[2].replace('"', " "))
        if not WORD.search(value):
            raise _too_general(text)
        return Query(text, excluded={FilterField(match[1].lower()): (value,)})
    phrase = tuple(folded_words(text))
    if not _content_stems(phrase):
        raise _too_general(text)
    capitals = frozenset[str]() if acronyms.is_emphasis(text) else acronyms.find_typed([text])
    return Query(text, excluded_phrases=(phrase,), excluded_capitals=capitals)


def parse_typed_muted(text: str) -> Query:
    """Parse a muted text that is about to be stored. Raise InvalidInterest like `parse_muted`.

    Also reject lists, unclosed quotes, unsupported filters, and words that occur in papers on any subject.
    `parse_muted` accepts them, because stored texts may contain them.
    """
    query = parse_muted(text)
    for part in split_into_parts(query.text):
        require_well_formed(part, "muted", "mute")
    for phrase in query.excluded_phrases:
        if GENERAL_STEMS.issuperset(_content_stems(phrase)):
            raise _too_general(query.text)
    if split_suggestion(query.text):
        raise InvalidInterest(
            f"“{query.text}” looks like several muted words. Enter each one separately, or put the text in "
            "quotes to mute it as one phrase.",
            "muted",
        )
    return query


def _content_stems(phrase: Iterable[str]) -> list[str]:
    return without_stopwords(map(stem, phrase))


def _too_general(text: str) -> InvalidInterest:
    return InvalidInterest(f"“{text}” cannot be muted. Choose a more specific word.", "muted")
