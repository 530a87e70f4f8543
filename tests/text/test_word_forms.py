"""Test which forms and spellings count as the same word."""

import re

import pytest

from app.text import tokenizer, word_forms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gas", "ga"),
        ("expertise", "expert"),
        ("C", "C3"),
        ("bias", "bia"),
        ("GPT", "GPT4"),
        ("GPS", "GP"),
        ("SDS", "SD"),
        ("RVOS", "RVO"),
        ("TTS", "TT"),
    ],
)
def test_words_that_only_look_like_plurals(one: str, other: str) -> None:
    """They keep their s."""
    assert tokenizer.content_stems(one) != tokenizer.content_stems(other)


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("detected", "Detection", True),
        ("planning", "plans", True),
        ("memories", "memory", True),
        ("quantisation", "quantized", True),
        ("interpretable", "interpretability", True),
        ("tokenizer", "tokenization", True),
        ("verified", "verifies", True),
        ("verify", "verifying", True),
        ("aligned", "alignments", True),
        ("efficiently", "efficient", True),
        ("capabilities", "capable", True),
        ("rank", "rankings", True),
        ("dynamic", "dynamically", True),
        ("classifier", "classify", True),
        ("classifiers", "classified", True),
        ("verifiable", "verify", True),
        ("improvement", "improving", True),
        ("refinements", "refined", True),
        ("reinforcement", "reinforcing", True),
        ("retrieval", "retrieved", True),
        ("robust", "robustness", True),
        ("token", "tokenization", False),
        ("experience", "experiments", False),
        ("relativity", "relative", False),
        ("object", "objective", False),
        ("digits", "digital", False),
        ("medication", "medical", False),
        ("proposal", "proposed", False),
        ("HAR", "harness", False),
        ("interpreter", "interpretability", False),
    ],
)
def test_forms_of_a_word(first: str, second: str, is_same: bool) -> None:
    """Forms of a noun or verb are the same word. Others with the same stem are not."""
    assert tokenizer.stem_all(first) == tokenizer.stem_all(second)
    assert word_forms.is_same_word(first, second) is is_same
    for word, other in ((first, second), (second, first)):
        american = word_forms.americanize(other.lower())
        assert bool(re.fullmatch(word_forms.forms_pattern(word), american)) is is_same
