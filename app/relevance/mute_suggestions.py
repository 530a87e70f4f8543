"""PURE. Suggest the words of a paper that its reader may want to mute."""

import itertools
import re
from collections.abc import Iterable
from contextlib import suppress

from app.errors import InvalidInterest
from app.relevance.model import RelevanceModel
from app.relevance.muted_texts import parse_muted, parse_typed_muted
from app.relevance.query_language import GENERAL_STEMS, normalize
from app.text.acronyms import stem_of
from app.text.characters import MARK
from app.text.tokenizer import WORD, compound_span, stem_all, without_stopwords
from app.types import Interest

MAX_SUGGESTIONS = 8
MAX_SHARE = 0.5  # of papers that mention a suggestion; "model" is in nine of ten
# Besides GENERAL_STEMS, words that are common in titles on any subject.
_GENERAL = GENERAL_STEMS.union(
    stem_all("bridging can enabling enhancing exploring harnessing improving introducing investigating "
             "leveraging rethinking revisiting unlocking")
)  # fmt: skip

_LONG_WORD = rf"[^\W_](?:[^\W_]|{MARK}){{2,}}+"
_WORD_PAIRS = re.compile(rf"{_LONG_WORD}(?=([ -]{_LONG_WORD}))")


def suggest(
    title: str, abstract: str, keywords: Iterable[str], interests: Iterable[Interest], model: RelevanceModel
) -> list[str]:
    """Return at most MAX_SUGGESTIONS words and phrases in a paper that a subscriber may want to mute.

    Keywords come first, then pairs of neighboring title words, then single title words, hyphenated ones as
    a whole. A keyword must occur in the title or the abstract, and a pair in the abstract. Suggestions that
    contain only general words and words from the subscriber's interests are left out, those that most papers
    mention, and those that cannot be muted.
    """
    title_stems, abstract_stems = _padded_stems(title), _padded_stems(abstract)
    pairs = (match.group() + match[1] for match in _WORD_PAIRS.finditer(title))
    words = (match for match in WORD.finditer(title) if len(match.group()) > 2)
    whole_words = (title[slice(*compound_span(title, *match.span()))] for match in words)  # not "End" alone
    occurring = (
        text for text in keywords if (stems := _padded_stems(text)) in title_stems or stems in abstract_stems
    )
    in_abstract = (text for text in pairs if _padded_stems(text) in abstract_stems)
    of_two_words = (text for text in in_abstract if len(_content_stems(text)) == 2)
    suggestions = itertools.chain(occurring, of_two_words, whole_words)
    interest_stems = {stem for interest in interests for stem in stem_all(interest.text)}
    distinct: dict[str, str] = {}
    for text in map(normalize, suggestions):
        with suppress(InvalidInterest):
            parse_typed_muted(text)
            own_words = interest_stems.issuperset(_content_stems(text))
            if not own_words and share_of_papers(text, model) < MAX_SHARE:
                distinct.setdefault(_padded_stems(text), text)
    return [*distinct.values()][:MAX_SUGGESTIONS]


def share_of_papers(text: str, model: RelevanceModel) -> float:
    """Estimate the share of papers that a muted text leaves out, in 0…1, from those that the model has seen.

    A phrase is in at most as many papers as each of its words and pairs of words. Return 0 for a filter.
    """
    query, acronyms = parse_muted(text), model.abbreviations.acronyms
    words = acronyms.words_of_phrase(itertools.chain(*query.excluded_phrases), query.excluded_capitals)
    terms = model.abbreviations.fold(without_stopwords(map(stem_of, words)))
    parts = [*terms, *map(" ".join, itertools.pairwise(terms))]
    statistics = model.statistics
    return min((statistics.frequencies.get(part, 0) for part in parts), default=0) / max(1, statistics.papers)


def _content_stems(text: str) -> list[str]:
    return [stem for stem in without_stopwords(stem_all(text)) if stem not in _GENERAL]


def _padded_stems(text: str) -> str:
    """Return the stems of a text, each surrounded by spaces, so that `in` finds only whole words."""
    return f" {' '.join(stem_all(text))} "
