"""Test which words of a title and a summary are marked, and what is said in words instead."""

from __future__ import annotations

import re

import pytest

from app.mail import marks
from app.relevance.reasons import WELL_VOTED
from tests.support import sample_digest

pytestmark = pytest.mark.once

TITLE = "Learning to Stop: Multi-Hop Retrieval & RAG"
SUMMARY = "A dense retriever stops after <think> tokens, so retrieval is cheap."


def shown(html: str) -> str:
    """Return HTML with marks in brackets."""
    return re.sub(r"<span[^>]*>(.*?)</span>", r"[\1]", str(html))


@pytest.mark.parametrize(
    ("reason", "title", "summary", "words"),
    [
        ("“Multi-Hop Retrieval” in the title", "Learning to Stop: [Multi-Hop Retrieval] &amp; RAG", "", ""),
        ("“retrieval”, “RAG” in the title", "Learning to Stop: Multi-Hop [Retrieval] &amp; [RAG]", "", ""),
        # The abstract may say what neither the title nor the summary says.
        ("“dense retriever” in the abstract", "", "A [dense retriever] stops after &lt;think&gt;", ""),
        ("“late interaction” in the abstract", "", "", "“late interaction” in the abstract"),
        ("“retriever”, “ColBERT” in the abstract", "", "dense [retriever]", "“ColBERT” in the abstract"),
        # If the heaviest words are marked, lighter ones need no words.
        ("“RAG” in the title; “late interaction” in the abstract", "&amp; [RAG]", "", ""),
        ("“RAG” in the title; close to your interest through “reader”", "&amp; [RAG]", "", ""),
        ("“RAG” in the title; by Ana, whose “A; B” you liked", "[RAG]", "", "by Ana, whose “A; B” you liked"),
        ("close to your interest through “stops”", "", "", "close to your interest through “stops”"),
        # Overlapping words are marked once, and only whole words are marked.
        ("“Retrieval & RAG”, “RAG” in the title", "Multi-Hop [Retrieval &amp; RAG]", "", ""),
        ("“retriev” in the abstract", "", "", "“retriev” in the abstract"),
        ("", "", "", ""),
    ],
)  # fmt: skip
def test_marks(reason: str, title: str, summary: str, words: str) -> None:
    """The parts that are given must be there, and nothing else is marked."""
    marked = marks.mark(sample_digest.pick(1, TITLE, summary=SUMMARY, reason=reason))
    assert title in shown(marked.title)
    assert summary in shown(marked.summary)
    expected = title.count("[") + summary.count("[")
    assert (shown(marked.title) + shown(marked.summary)).count("[") == expected
    assert marked.reason == words
    assert re.sub(r"</?span[^>]*>", "", marked.title) == TITLE.replace("&", "&amp;")


@pytest.mark.parametrize(("votes", "words"), [(12, ""), (0, WELL_VOTED)])
def test_votes_show_that_a_paper_has_many_votes(votes: int, words: str) -> None:
    item = sample_digest.pick(1, TITLE, reason=WELL_VOTED, votes=votes)
    assert marks.mark(item).reason == words
