"""Interests find the papers they ask for, exactly as they ask, with reasons that are true."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import corpus, match
from app.errors import InvalidInterest
from app.records import PaperView

STATISTICS = corpus.Corpus.shipped().statistics
PAPERS = [
    PaperView(
        1,
        "Speculative Decoding with Tree Attention",
        "We speed up large language models by drafting tokens with a small model and verifying them.",
        ("Ada Lovelace", "Grace Hopper"),
        categories=("cs.CL", "cs.LG"),
    ),
    PaperView(
        2,
        "Quantized Diffusion Transformers for Video",
        "Low-bit quantization of video diffusion models keeps quality at four bits.",
        ("José García", "Alan Turing"),
        categories=("cs.CV",),
    ),
    PaperView(
        3,
        "A Survey of Text-to-Image Generation",
        "Diffusion models dominate image generation from text; this survey covers decoding and safety.",
        ("Barbara Liskov",),
        categories=("cs.CV", "eess.IV"),
    ),
    PaperView(4, "Trading Cryptocurrency with Agents", "LLM agents trade crypto assets.", ("Ken Li",)),
]
INDEX = match.Index(PAPERS, STATISTICS)


def found(text: str) -> set[int]:
    return set(INDEX.match(match.parse(text)))


@pytest.mark.parametrize(
    ("interest", "papers"),
    [
        ("speculative decoding", {1, 3}),
        ('"speculative decoding"', {1}),
        ("decode", {1, 3}),  # stems
        ('"diffusion models"', {2, 3}),
        ('"models diffusion"', set()),
        ("diffusion -video", {3}),
        ('diffusion -"text to image"', {2}),
        ("text-to-image", {3}),
        ("TEXT TO IMAGE", {3}),
        ("author:turing", {2}),
        ("author:garcia", {2}),  # accents do not matter
        ('author:"Ada Lovelace"', {1}),
        ("author:love", set()),  # whole names only
        ("author: turing", {2}),
        ("cat:cs.CV", {2, 3}),
        ("cat:cs", {1, 2, 3}),
        ("cat:cs.CV cat:cs.CL", {1, 2, 3}),  # any of several categories
        ("diffusion cat:cs.CL", set()),
        ("agents -cat:cs -crypto", set()),
        ("“diffusion models” −video", {3}),  # as typed on a phone
        ("diffusion -author:liskov", {2}),
        ("nothing about astronomy", set()),
    ],
)
def test_the_syntax_is_honoured_exactly(interest: str, papers: set[int]) -> None:
    """Words are looked for, phrases required, exclusions and filters obeyed."""
    assert found(interest) == papers


def test_a_better_match_is_more_relevant() -> None:
    """Both words in the title outweigh one in the abstract."""
    hits = INDEX.match(match.parse("speculative decoding"))
    assert hits[1].relevance > 10 * hits[3].relevance


def test_an_interest_that_is_the_title_is_relevant_however_common_its_words() -> None:
    """ "diffusion" is in a third of all papers; in a title it still counts."""
    assert INDEX.match(match.parse("diffusion"))[2].relevance >= match.TITLE_RELEVANCE


@pytest.mark.parametrize(
    ("interest", "paper", "reason"),
    [
        ("speculative decoding", 1, "“Speculative Decoding” in the title"),
        ("quantization", 2, "“Quantized” in the title"),
        ("low-bit video quantization", 2, "“Quantized”, “Video” in the title; “Low-bit” in the abstract"),
        ("author:turing", 2, "by Turing"),
        ("image cat:cs.CV", 3, "“Image” in the title; filed under cs.CV, eess.IV"),
    ],
)
def test_the_reason_names_what_matched(interest: str, paper: int, reason: str) -> None:
    """The words as the paper spells them, and where they stand."""
    assert INDEX.match(match.parse(interest))[paper].reason == reason


@given(
    st.lists(
        st.sampled_from(["diffusion", "video", "decoding", "image", "agents", "bit"]), min_size=1, max_size=20
    )
)
def test_a_quoted_word_does_occur_in_the_paper(words: list[str]) -> None:
    """Whatever is asked, the words in quotes stand in the field that the reason names."""
    for number, hit in INDEX.match(match.parse(" ".join(words))).items():
        paper = PAPERS[number - 1]
        for part in hit.reason.split("; "):
            text = paper.title if part.endswith("title") else paper.abstract
            assert all(quoted in text for quoted in re.findall("“(.*?)”", part))


@given(st.text(max_size=80))
def test_no_interest_breaks_the_matching(text: str) -> None:
    """Any text is either refused with a reason or searched for, and an exclusion never leaks."""
    try:
        query = match.parse(text)
    except InvalidInterest:
        return
    INDEX.match(query)
    stricter = match.parse(f"{query.text[:200]} -diffusion") if len(query.text) < 200 else query
    if stricter is not query and '"' not in text:
        assert not {2, 3} & set(INDEX.match(stricter))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x" * 10_000, "300 characters"),
        ("!!! ... ???", "at least one word"),
        ("", "at least one word"),
        ("-crypto", "at least one word"),
        ("the of and", "at least one word"),
        ('""', "at least one word"),
        ("author:", "at least one word"),
        ("diffusion\x00models", "plain text"),
        ("diffusion\u202emodels", "plain text"),
    ],
)
def test_an_interest_that_cannot_be_searched_for_says_why(text: str, word: str) -> None:
    """The message tells what to change."""
    with pytest.raises(InvalidInterest, match=word):
        match.parse(text)


def test_spelling_is_unified_before_it_is_stored() -> None:
    """Two readers with the same interest share one row."""
    assert match.normalise("  “world  models” ") == match.normalise('"world models"')


def test_excluded_papers_are_known_by_themselves() -> None:
    """So that an exclusion holds beyond its own interest, too."""
    assert INDEX.excluded(match.parse("anything -crypto -author:liskov")) == {3, 4}
