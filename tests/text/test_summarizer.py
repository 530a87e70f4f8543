"""Test summaries: the most informative sentence of an abstract."""

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
def test_sentence_boundaries(marked: str) -> None:
    """Full stops in abbreviations, numbers and initials end no sentence."""
    assert summarizer.sentences(marked.replace("|", " ")) == marked.split("|")


def test_missing_space_after_a_sentence() -> None:
    """It occurs in 1 % of abstracts. Test also an empty abstract."""
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


def test_contribution_is_preferred_to_background() -> None:
    """The chosen sentence is not the opening, a detail or the link to the code. It stands by itself."""
    assert summarizer.summarize("Bookmark: Reading Long Documents Page by Page", ABSTRACT) == (
        "We introduce Bookmark, a reader that keeps an index of all the pages it ever saw. "
        "Specifically, it stores one vector a page."
    )


def test_sentence_that_refers_back_is_avoided() -> None:
    """Another one is chosen, even if it has a word of the title less. The first one refers to nothing."""
    refers = (
        "This forgetful reader of books keeps a paper index with every word and every page of all of them."
    )
    alone = (
        "One kind of forgetful reader keeps a paper index with every word and every page that was ever read."
    )
    text = f"Many prefer films. {refers} {alone} The index grows. The shelf is full. The lamp is on."
    title = "A Paper Index for the Forgetful Reader of Books"
    assert summarizer.summarize(title, text).startswith(alone)
    assert summarizer.summarize(title, text[len("Many prefer films. ") :]).startswith(refers)


def test_finding_is_preferred_without_a_contribution() -> None:
    """In a study that introduces nothing, a sentence with "we" is chosen."""
    text = (
        "Larger models are said to forget less. The claim is often repeated without evidence. "
        "Over two years and nine model families, we show that forgetting depends on the data order alone. "
        "Further work is needed."
    )
    assert summarizer.summarize("What Models Forget, and in Which Order", text).startswith("Over two years")


def test_brief_sentence_is_joined_with_the_next() -> None:
    """A brief sentence is joined with the next one, unless that is about the code."""
    text = "We introduce Bookmark. It keeps an index of the pages it has seen. Others do not."
    assert (
        summarizer.summarize("Bookmark", text)
        == "We introduce Bookmark. It keeps an index of the pages it has seen."
    )
    text = "We introduce Bookmark. Our code is available online. Others do not."
    assert summarizer.summarize("Bookmark", text) == "We introduce Bookmark."


def test_long_sentence_is_cut_between_clauses() -> None:
    """A cut summary ends in an ellipsis."""
    clause = "which keeps an index of all the pages that it has seen so far, "
    summary = summarizer.summarize("Bookmark", "We introduce Bookmark, " + clause * 9 + "and more.")
    assert summary.endswith("it has seen so far…")
    assert 200 < len(summary) <= summarizer.LIMIT
    assert len(summarizer.summarize("Bookmark", "a" * 2_000)) <= summarizer.LIMIT


@pytest.mark.parametrize("aside", ["(e.g., all kinds of pages)", "(pages, notes, and what stands between)"])
def test_cut_leaves_no_open_bracket(aside: str) -> None:
    """The cut is before a bracket, and the comma of "e.g.," separates no clauses."""
    text = (
        f"We introduce Bookmark, {'which keeps an index of all that it has seen ' * 6}{aside}, page by page."
    )
    assert summarizer.summarize("Bookmark", text).endswith("it has seen…")


def test_empty_abstract() -> None:
    assert summarizer.summarize("Bookmark", "") == ""


def test_sentence_about_the_code_is_the_last_choice() -> None:
    """An abstract with nothing else gives the sentence about the code."""
    assert summarizer.summarize("Bookmark", "Code is available online.") == "Code is available online."


@given(title=st.text(max_size=80), abstract=st.text(alphabet="ab. W!?()\n…,", max_size=900))
def test_summary_is_part_of_the_abstract(title: str, abstract: str) -> None:
    """A summary is a part of the abstract, except for one capital letter, and not longer than LIMIT."""
    summary = summarizer.summarize(title, abstract)
    assert len(summary) <= summarizer.LIMIT
    assert "".join(summary.removesuffix("…").split()).lower() in "".join(abstract.split()).lower()


@pytest.mark.parametrize("unit", [".", "a. ", "(. ", "e.g. ", 'x." ', "Ab.Cd "])
def test_hostile_abstract_is_fast(unit: str) -> None:
    """The longest accepted abstract, of patterns that are slow to match, takes under 3 seconds."""
    began = time.process_time()
    summarizer.summarize("Bookmark", (unit * 20_000)[:20_000])
    assert time.process_time() - began < 3


def test_summary_comes_from_the_source_or_the_abstract() -> None:
    """A long summary of a source is shortened to its most informative sentences."""
    abstract = (
        "Readers lose the middle of long documents. We introduce Bookmark, a reader with an index. " * 2
    )
    extract = "We introduce Bookmark, a reader with an index. Readers lose the middle of long documents."
    assert summarizer.summary("Bookmark", "Short.", abstract) == "Short."
    assert summarizer.summary("Bookmark", "", abstract) == extract
    assert summarizer.summary("Bookmark", abstract * 2, "Other.") == extract
    assert summarizer.summary("Bookmark", "", "") == ""


SENTENCES = (
    "We propose a model of birds.",
    "Birds often fail to sing.",
    "However, we present songs.",
    "This work introduces the songs of birds and of whales.",
    "The code is available.",
    "To address this, we sing.",
    "It works.",
)


@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=8))
def test_flaws_are_computed_only_where_they_matter(parts: list[str]) -> None:
    """The summary is that of the sentence with the most points for all features."""
    title = "Songs of birds"
    best = summarizer.best_sentence(parts, summarizer.features(title, parts))
    assert summarizer.summarize(title, " ".join(parts)) == summarizer.extract(parts, best)
