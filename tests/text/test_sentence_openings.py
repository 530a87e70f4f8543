"""Test sentences without the words that refer to the sentence before."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text import sentence_openings


@pytest.mark.parametrize(
    ("sentence", "alone"),
    [
        ("To close this gap, we introduce Bookmark.", "We introduce Bookmark."),
        ("However, long documents remain hard.", "Long documents remain hard."),
        ("In this work, we introduce Bookmark.", "We introduce Bookmark."),
        ("In this technical report we introduce Bookmark.", "We introduce Bookmark."),
        (
            "In this paper, inspired by readers, we introduce Bookmark.",
            "Inspired by readers, we introduce Bookmark.",
        ),
        ("Therefore, to close these gaps, this paper introduces it.", "This paper introduces it."),
        ("Motivated by these findings, the authors add pages.", "The authors add pages."),
        ("Based on our findings, we add pages.", "We add pages."),
        ("To address them, Bookmark stores one page.", "To address them, Bookmark stores one page."),
        ("To address them, we store one page.", "We store one page."),
        ("To resolve this, Bookmark (BM) stores one page.", "Bookmark (BM) stores one page."),
        ("To close this gap, inspired by readers, we add pages.", "Inspired by readers, we add pages."),
        ("To close such gaps, pages and books, we add words.", "We add words."),
        ("Thus we introduce Bookmark.", "We introduce Bookmark."),
        ("We therefore introduce Bookmark.", "We introduce Bookmark."),
        ("But readers forget.", "Readers forget."),
        ("However, vLLM forgets.", "vLLM forgets."),
        ("Specifically, e-readers forget.", "E-readers forget."),
    ],
)
def test_openings_that_refer_back_are_removed(sentence: str, alone: str) -> None:
    """The rest begins with a capital letter, unless its first word is a name."""
    assert sentence_openings.without_opening(sentence) == alone


@pytest.mark.parametrize(
    "sentence",
    [
        "To read long documents, we introduce Bookmark.",
        "Inspired by readers, we introduce Bookmark.",
        "Despite its size, the model forgets.",
        "With methods such as Bookmark, we read pages.",
        "This gap is large.",
        "To close this gap.",
        "In this case, words, pages and books are lost.",
        "To resolve this, vLLM stores a page, and we read it.",
        "In contrast to others, we read pages.",
        "So far, nobody reads.",
        "Yet another reader is here.",
        "First results are good.",
        "However,",
        "",
    ],
)
def test_other_openings_are_kept(sentence: str) -> None:
    """They say something by themselves, or what follows would not be a sentence."""
    assert sentence_openings.without_opening(sentence) == sentence


@pytest.mark.parametrize(
    ("sentence", "refers"),
    [
        ("This gap is large.", True),
        ("It stores one page.", True),
        ("They forget.", True),
        ("The former is better.", True),
        ("We close this gap with pages.", True),
        ("It is hard to read pages.", False),
        ("This paper introduces Bookmark.", False),
        ("This technical report introduces Bookmark.", False),
        ("We introduce Bookmark.", False),
    ],
)
def test_refers_back(sentence: str, refers: bool) -> None:
    """A sentence that begins with "this" or "it" refers back, unless "this" is the paper."""
    assert sentence_openings.refers_back(sentence) == refers


@given(
    st.lists(
        st.sampled_from(["To address", "this", ",", "we", "However,", "and", "it", "the page"]), max_size=30
    )
)
def test_the_rest_is_the_end_of_the_sentence(words: list[str]) -> None:
    """Nothing is changed but the opening and one letter. Removing it again changes nothing."""
    sentence = " ".join(words)
    alone = sentence_openings.without_opening(sentence)
    assert sentence.lower().endswith(alone.lower().removeprefix("we "))
    assert sentence_openings.without_opening(alone) == alone
    assert alone or not sentence


@pytest.mark.parametrize("unit", ["and ", "so, ", "this, ", "to this, ", "a", "more a", "in this a "])
def test_hostile_sentence_is_fast(unit: str) -> None:
    """The longest accepted abstract, of patterns that are slow to match, takes under 2 seconds."""
    began = time.process_time()
    sentence = (unit * 20_000)[:20_000]
    sentence_openings.refers_back(sentence_openings.without_opening(sentence))
    assert time.process_time() - began < 2
