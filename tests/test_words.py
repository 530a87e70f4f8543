"""A text's words are the same words however they are written."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text import tokenizer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Diffusion Models", "diffusion model"),
        ("José García", "jose garcia"),
        ("LLMs", "LLM"),
        ("VLMs and GPTs", "VLM and GPT"),
        ("VLAs and mRNAs", "VLA and mRNA"),
        ("text-to-image", "Text to image"),
        ("quantization", "quantized"),
        ("Quantisation", "quantized"),
        ("optimising behaviours", "optimize behavior"),
        ("ＬＬＭ", "llm"),  # full-width letters, as Japanese keyboards write them
    ],
)
def test_one_word_has_one_stem(one: str, other: str) -> None:
    """Case, accents, endings, hyphens and spelling do not matter, nor the plural of a short form."""
    assert tokenizer.stems(one) == tokenizer.stems(other)


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
def test_other_words_stay_others(one: str, other: str) -> None:
    """What only looks like a plural is none."""
    assert tokenizer.stems(one) != tokenizer.stems(other)


@given(st.text(max_size=200))
def test_words_know_where_they_stand(text: str) -> None:
    """One character for one character, in any script; the quick way finds the same words."""
    assert len(tokenizer.fold_accents(text)) == len(text)
    found = tokenizer.tokenise(text)
    assert all(0 <= token.start < token.end <= len(text) for token in found)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))
    assert tokenizer.stems(text) == tokenizer.telling(token.stem for token in found)


def test_pairs_are_neighbours() -> None:
    """In the order of the text."""
    assert list(tokenizer.bigrams(["a", "b", "c"])) == ["a b", "b c"]
