"""Test which words of a title and a summary are marked, and what is said in words instead."""

import re
from dataclasses import replace

import pytest

from app.mail import marked_words, text_limits
from app.mail.text_limits import LIMIT_STEPS
from app.types import DigestItem, Marks
from tests.support import sample_digest

pytestmark = pytest.mark.once

TITLE = "Learning to Stop: Multi-Hop Retrieval & RAG"
SUMMARY = "A dense retriever stops after <think> tokens, so retrieval is cheap."


def spans(text: str, *words: str) -> tuple[tuple[int, int], ...]:
    return tuple((text.index(word), text.index(word) + len(word)) for word in words)


def item(own: Marks | None, summary: str = SUMMARY) -> DigestItem:
    return sample_digest.pick(1, TITLE, summary=summary, reason="the whole reason", marks=own)


def mark(
    own: DigestItem, limits: text_limits.TextLimits = text_limits.LIMIT_STEPS[0]
) -> tuple[str, str, str]:
    """Return the title and the summary with marks in brackets, and the reason."""
    marked = marked_words.mark(own, text_limits.fit_to_limits(own, limits, is_lead=False))
    title, summary = (re.sub(r"<span[^>]*>(.*?)</span>", r"[\1]", str(text)) for text in marked[:2])
    return title, summary, marked.reason


def test_words_are_marked_and_the_rest_is_said() -> None:
    own = item(Marks(spans(TITLE, "Multi-Hop", "Retrieval & RAG"), spans(SUMMARY, "<think>"), "by Ana"))
    assert mark(own) == (
        "Learning to Stop: [Multi-Hop] [Retrieval &amp; RAG]",
        "A dense retriever stops after [&lt;think&gt;] tokens, so retrieval is cheap.",
        "by Ana",
    )


def test_words_are_marked_in_the_text_part() -> None:
    """A mark may be wrapped. The summary names its writer."""
    own = replace(item(Marks(spans(TITLE, "Retrieval & RAG"), spans(SUMMARY, "dense"))), summary_by="a model")
    lines = marked_words.mark_lines(own, text_limits.fit_to_limits(own, LIMIT_STEPS[0], is_lead=False))
    assert lines.title == "Learning to Stop: Multi-Hop *Retrieval & RAG*"
    assert lines.summary == (
        "    A *dense* retriever stops after <think> tokens, so retrieval is\n    cheap. (Summary by a model)"
    )


def test_an_item_without_marks_says_its_reason() -> None:
    assert mark(item(None))[2] == "the whole reason"
    assert mark(item(Marks()))[2] == ""  # the card shows it in another way


@pytest.mark.parametrize("limits", LIMIT_STEPS)
def test_the_whole_reason_is_said_if_a_marked_word_is_cut_off(limits: text_limits.TextLimits) -> None:
    summary = f"Retrieval is cheap. {sample_digest.LONG} It ends with RAG."
    own = item(Marks((), spans(summary, "Retrieval", "RAG")), summary)
    _, shown, reason = mark(own, limits)
    assert shown.startswith("[Retrieval] is")
    assert shown.count("[") == 1
    assert reason == "the whole reason"


def test_a_text_that_must_be_cleaned_is_not_marked() -> None:
    """Its words would be at other places."""
    own = item(Marks((), spans("A  dense retriever", "dense")), "A  dense retriever")
    assert mark(own)[1:] == ("A dense retriever", "the whole reason")
