"""PURE. Choose the searches that the first page of results offers: corrected words, or an author's papers."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from app.relevance import query_language, query_rewriting, suggestions
from app.relevance.query_language import Query
from app.relevance.suggestions import InterestHint, InterestReader
from app.text.tokenizer import WORD

MAX_NAME_WORDS = 5  # a search for more words is not one for an author


class SearchOffers(NamedTuple):
    """Other searches that the visitor may have meant. At most one of the two is set."""

    hint: InterestHint | None = None
    by_author: str = ""  # a query with the filter `author:`


def choose(
    query: Query, total: int, reader: InterestReader, has_papers: Callable[[Query], bool]
) -> SearchOffers:
    """Return the offers for a query that `total` papers match.

    A query that names an author gets no correction, because most names are not in the vocabulary and would be
    corrected wrongly.
    """
    author = author_query(query, total)
    if author and has_papers(query_language.parse(author)):
        return SearchOffers(by_author=author)
    versions = suggestions.filter_suggestions(query.text) if not total else []
    if better := next((text for text in versions if has_papers(query_language.parse(text))), ""):
        return SearchOffers(InterestHint(query.text, with_filters=better))
    hint = reader.hint(query.text)
    if hint.with_filters and not has_papers(query_language.parse(hint.with_filters)):
        hint = replace(hint, with_filters="")
    # Visitors paste titles, in which a dash is not a negation.
    return SearchOffers(hint if "NOT" in query.text.split() else replace(hint, with_exclusion=""))


def author_query(query: Query, total: int) -> str:
    """Return a query for papers by the author whom plain words may name, or "" if they cannot be a name.

    A single word that papers contain is not treated as a name.
    """
    has_name = any(len(word) > 1 for word in WORD.findall(query.text))  # "C++" is not a name
    is_plain = query_rewriting.plain_runs(query.text) == [(0, len(query.text))]
    words = len(query.text.split())
    if not is_plain or not has_name or words > MAX_NAME_WORDS or (total and words == 1):
        return ""
    return query_rewriting.query_for("author", query.text)
