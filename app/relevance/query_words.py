"""PURE. Prepare the words of an interest for comparison with papers."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from app.relevance import scoring
from app.relevance.highlights import Typed
from app.relevance.query_language import OPERATORS, Query
from app.text.abbreviations import Abbreviations
from app.text.shortening import FUNCTION_WORDS
from app.text.tokenizer import Token, compound_span, stem_all, tokenize


@dataclass(frozen=True, slots=True)
class QueryWords:
    """The words of an interest, prepared for comparison with papers."""

    typed: Typed
    terms: Sequence[str]  # folded
    tokens_by_term: Sequence[tuple[str, Sequence[Token]]]  # the words that each folded term stands for
    stop_words: frozenset[str]  # those that may matter beside another word, such as "use"
    searched_text: str  # the interest from the first to the last word that is searched for


def prepare(query: Query, abbreviations: Abbreviations) -> QueryWords:
    tokens = tokenize(query.text)
    tokens = replace(tokens, stems=abbreviations.acronyms.stems_of_query(tokens.stems, query.capitals))
    typed = {token.stem: query.text[token.start : token.end] for token in reversed(tokens)}
    terms = {*abbreviations.acronyms.stems_of_query(query.terms, query.capitals)}
    tokens_by_term = [
        (term.stem, [t for t in tokens if term.start <= t.start and t.end <= term.end and t.stem in terms])
        for term in abbreviations.fold_tokens(tokens)
    ]
    stems = {*abbreviations.acronyms.stems_of_query(query.stems, query.capitals)}
    ends = [token for token in tokens if token.stem in stems]
    function_words = {token.stem for token in ends if _is_function_word(query.text, token)}
    return QueryWords(
        typed,
        scoring.terms_and_pairs(query, abbreviations)[0],
        tokens_by_term,
        frozenset(stems - terms - function_words),
        query.text[ends[0].start : ends[-1].end] if ends else "",
    )


def without_phrases(query: Query, phrases: Collection[Sequence[str]]) -> Query:
    """Return a query without these phrases and names."""
    words = f" {' '.join(query.words)} "
    for name in query.names:
        if name in phrases:
            words = words.replace(f" {' '.join(stem_all(' '.join(name)))} ", " ", 1)
    others = tuple(phrase for phrase in query.phrases if phrase not in phrases)
    return replace(query, words=tuple(words.split()), phrases=others)


def joined(text: str, tokens: Iterable[Token]) -> list[str]:
    """Return the words at these tokens: "long-horizon" for "horizon". Join neighbors into phrases."""
    spans = list[tuple[int, int]]()
    for token in tokens:
        start, end = compound_span(text, token.start, token.end)
        if spans and text[spans[-1][1] : start] in ("", " "):
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return [text[start:end] for start, end in spans]


def as_typed(text: str, token: Token) -> str:
    """Return the word of a token with the signs after it that are part of a name, as in "C++" and "C#"."""
    return text[token.start : len(text) - len(text[token.end :].lstrip("+#"))]


def _is_function_word(text: str, token: Token) -> bool:
    """Return True for a function word or an operator. A word in capitals may be a name: "IT", "A*"."""
    word = text[token.start : token.end]
    is_article = word == "A" and text[token.end : token.end + 1] == " "
    is_name = word.isupper() and not (text.isupper() or is_article or word in OPERATORS)
    return word.lower() in FUNCTION_WORDS and not is_name
