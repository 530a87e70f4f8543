"""Summaries: the most informative sentence of an abstract, word for word."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text import summarizer


@pytest.mark.parametrize(
    "marked",
    [
        "One.|Two.",
        "We use tools, e.g. search, i.e. the web.|It helps.",
        "As Ada et al. Showed, it works.|Fig. 2 agrees.",
        "We train v1.5 on 3.2 million texts.|It is fast.",
        "See arXiv:2501.00001.|We go on.",
        "It drifts ... slowly.|Why?|We ask!",
        "Models forget.|vLLM does not.|3D ones do.|π0 too.",
        "The order is $\\mathcal{O}(n. m)$ here.|Good.",
        "It holds (as A. Turing said. Twice.) and stays.|Yes.",
        "We do two things: 1. Read.|2. Write.",
        'They ask "why?" and go on.|Then stop.',
        "It is plan B.|We have no plan C.",
        "no capital, no stop",
    ],
)
def test_sentences_end_where_a_reader_says_that_they_end(marked: str) -> None:
    """Full stops in abbreviations, numbers and initials end no sentence."""
    assert summarizer.sentences(marked.replace("|", " ")) == marked.split("|")


def test_a_space_that_was_forgotten() -> None:
    """A missing space after a sentence (1 % of abstracts) and an empty abstract are handled."""
    assert summarizer.sentences("It lacks a space.We add one.") == ["It lacks a space.", "We add one."]
    assert summarizer.sentences("") == []
    assert summarizer.sentences(" . ") == ["."]


ABSTRACT = (
    "Recent advances in retrieval have changed how questions are answered. However, long documents remain "
    "challenging for small readers, which often lose what stands in the middle. "
    "To close this gap, we introduce Bookmark, a reader that keeps an index of all the pages it ever saw. "
    "Specifically, it stores one vector a page. Experiments on four benchmarks show gains of 12.3 %. "
    "Code is available at https://example.org/bookmark."
)


def test_what_is_introduced_tells_more_than_how_it_was_before() -> None:
    """The chosen sentence is not the opening, a detail or the link to the code."""
    assert summarizer.summarize("Bookmark: Reading Long Documents Page by Page", ABSTRACT) == (
        "To close this gap, we introduce Bookmark, a reader that keeps an index of all the pages it ever saw."
    )


def test_without_an_introduction_the_finding_tells() -> None:
    """In a study that introduces nothing, a sentence with "we" is chosen."""
    text = (
        "Larger models are said to forget less. The claim is often repeated without evidence. "
        "Over two years and nine model families, we show that forgetting depends on the data order alone. "
        "Further work is needed."
    )
    assert summarizer.summarize("What Models Forget, and in Which Order", text).startswith("Over two years")


def test_a_brief_sentence_brings_the_next() -> None:
    """A brief sentence is joined with the next one, unless that is about the code."""
    text = "We introduce Bookmark. It keeps an index of the pages it has seen. Others do not."
    assert (
        summarizer.summarize("Bookmark", text)
        == "We introduce Bookmark. It keeps an index of the pages it has seen."
    )
    text = "We introduce Bookmark. Our code is available online. Others do not."
    assert summarizer.summarize("Bookmark", text) == "We introduce Bookmark."


def test_a_long_sentence_is_cut_between_clauses() -> None:
    """A cut summary ends in an ellipsis."""
    clause = "which keeps an index of all the pages that it has seen so far, "
    summary = summarizer.summarize("Bookmark", "We introduce Bookmark, " + clause * 9 + "and more.")
    assert summary.endswith("it has seen so far …")
    assert 200 < len(summary) <= summarizer.LIMIT
    assert len(summarizer.summarize("Bookmark", "a" * 2_000)) <= summarizer.LIMIT


@pytest.mark.parametrize("aside", ["(e.g., all kinds of pages)", "(pages, notes, and what stands between)"])
def test_a_cut_leaves_no_bracket_open(aside: str) -> None:
    """The cut is before a bracket, and the comma of "e.g.," separates no clauses."""
    text = (
        f"We introduce Bookmark, {'which keeps an index of all that it has seen ' * 6}{aside}, page by page."
    )
    assert summarizer.summarize("Bookmark", text).endswith("it has seen …")


def test_no_abstract_no_summary() -> None:
    """Without an abstract the summary is empty."""
    assert summarizer.summarize("Bookmark", "") == ""


def test_only_the_way_to_the_code_is_better_than_nothing() -> None:
    """An abstract with nothing else gives the sentence about the code."""
    assert summarizer.summarize("Bookmark", "Code is available online.") == "Code is available online."


@given(title=st.text(max_size=80), abstract=st.text(alphabet="ab. W!?()\n…,", max_size=900))
def test_whatever_it_says_stands_in_the_abstract(title: str, abstract: str) -> None:
    """A summary is a part of the abstract and not longer than LIMIT."""
    summary = summarizer.summarize(title, abstract)
    assert len(summary) <= summarizer.LIMIT
    assert "".join(summary.removesuffix(" …").split()) in "".join(abstract.split())


@pytest.mark.parametrize("unit", [".", "a. ", "(. ", "e.g. ", 'x." ', "Ab.Cd "])
def test_a_hostile_abstract_takes_no_time(unit: str) -> None:
    """The longest accepted abstract, of patterns that are slow to match, takes under 3 seconds."""
    began = time.process_time()
    summarizer.summarize("Bookmark", (unit * 20_000)[:20_000])
    assert time.process_time() - began < 3
