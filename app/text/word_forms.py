"""PURE. Recognize the forms of a word: British spellings, plurals, the endings of verbs and nouns."""

import re
from functools import lru_cache

import Stemmer

from app.text.characters import remove_accents

# Abbreviations whose singular ends in s: "GPS" is not the plural of "GP".
_SINGULAR = "bfs cls css dfs dns fps gnss gps mcts mvs nms nvs rts rvos sds sms sts tls tts"
# British spellings, such as "quantisation" and "behaviour". Other words that match, such as "noise",
# are rewritten in every text, so they still match each other.
_BRITISH = re.compile(
    r"(?<=..)(?<!expert)is(?=(?:ed?|es|ers?|ing|able|ations?)$)|(?<=...)our(?=(?:s|ed|ing|al)?$)"
)
# Plurals that Snowball does not stem, such as "llms" and "vlas". Only the letter before the s may be a vowel.
_SHORT_FORMS = re.compile(r"[^\W\d_aeiouy]{2,}[ao]?s")
# Endings of plurals, adverbs, the forms of a verb and the nouns made from it: "detects", "detection".
_ENDINGS = (
    "s es ies ied ying y e ed ing ings ion ions ation ations ment ments ement ements er ers ier iers or ors "
    "ic ics ically le able iable ility ilities ly"
)
# Endings that are safe only after some bases: "retrieval" is a form of "retrieve" and "robustness" one of
# "robust", but "proposal" is no form of "proposed" and "harness" none of "HAR".
_AFTER_V = "al als"
_AFTER_LONG_BASES, _MIN_LONG_BASE = "ness", 4
_AMERICAN = {"is": "iz", "our": "or"}
_stemmer = Stemmer.Stemmer("english")


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Return the stem of a word without accents, in lower case. Most forms and spellings share their stem."""
    stemmed = str(_stemmer.stemWord(_americanize(word)))
    is_plural = _SHORT_FORMS.fullmatch(stemmed) and stemmed not in _SINGULAR.split()
    return stemmed[:-1] if is_plural else stemmed


@lru_cache(maxsize=20_000)
def _bases(word: str) -> frozenset[str]:
    """Return the possible base forms of a word, such as "plan" for "planning"."""
    american = _americanize(remove_accents(word))
    bases = {american.removesuffix(ending) for ending in ("", *_ENDINGS.split())}
    bases |= {base for ending in _AFTER_V.split() if (base := american.removesuffix(ending))[-1:] == "v"}
    bases |= {base for base in [american.removesuffix(_AFTER_LONG_BASES)] if len(base) >= _MIN_LONG_BASE}
    return frozenset(bases | {base[:-1] for base in bases if base[-2:-1] == base[-1:]})  # "planning"


@lru_cache(maxsize=50_000)
def is_same_word(first: str, second: str) -> bool:
    """Return True if two words with the same stem also share a base form, and so mean the same.

    This is true of "detected" and "detection", but not of "token" and "tokenization".
    """
    return not _bases(first).isdisjoint(_bases(second))


def forms_pattern(word: str) -> str:
    """Return a regular expression for the American spellings of the words that `is_same_word` accepts."""
    bases = sorted(filter(None, _bases(word)))
    before_v = [base for base in bases if base[-1] == "v"]
    long_bases = [base for base in bases if len(base) >= _MIN_LONG_BASE]
    parts = ((bases, f" {_ENDINGS}"), (before_v, _AFTER_V), (long_bases, _AFTER_LONG_BASES))
    return "|".join(
        f"({'|'.join(f'{base}{base[-1]}?' for base in own)})({endings.replace(' ', '|')})"
        for own, endings in parts
        if own
    )


def _americanize(word: str) -> str:
    """Return a word without accents, in lower case, with British spellings replaced."""
    return _BRITISH.sub(lambda match: _AMERICAN[match.group()], word)


# For callers that do not cache their results, as `stem` and `_bases` do.
americanize = lru_cache(maxsize=50_000)(_americanize)
