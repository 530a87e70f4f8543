"""What is said to stand in a paper does literally stand there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance.highlights import QUOTED, PaperText
from app.text.abbreviations import Abbreviations
from app.types import PaperView

FOLDING = Abbreviations({}, {("larg", "languag", "model"): "llm"})
PASSAGE = PaperText(
    PaperView(
        1,
        "Drafting for Large Language Models",
        "Speculative decoding of LLMs, by José. Decoding twice: drafts, and models.",
        ("Grace Hopper", "José García"),
        categories=("cs.CL", "stat.ML"),
    ),
    FOLDING,
)


def quotes(*wanted: str) -> list[str]:
    return PASSAGE.quotes(set(wanted), lambda _: 1.0)


def test_neighbours_are_quoted_as_one() -> None:
    """As the paper spells them; first the field that says most of them at a stretch."""
    assert quotes("specul", "decod") == ["“Speculative decoding” in the abstract"]
    assert quotes("draft", "jose") == ["“Drafting” in the title", "“José” in the abstract"]


def test_a_short_form_is_quoted_as_it_is_written() -> None:
    """The long form in the title is the first place."""
    assert quotes("llm") == ["“Large Language Models” in the title"]
    assert PASSAGE.spelled("llm") == "Large Language Models"
    assert PASSAGE.spelled("tree") == ""


def test_what_a_short_form_says_besides_is_quoted_where_it_is_written_out() -> None:
    """A card need not make its reader guess what a short form has to do with their interest."""
    paper = PaperView(1, "LLMs at work", "Large language models (LLMs) are used.")
    assert PaperText(paper, FOLDING).quotes({"languag"}, lambda _: 1.0) == ["“language” in the abstract"]
    paper = replace(paper, abstract="They are used.")
    assert PaperText(paper, FOLDING).quotes({"languag"}, lambda _: 1.0) == ["“LLMs” in the title"]


@pytest.mark.parametrize(
    ("abstract", "quoted"),
    [
        ("A mixture of experts (MoE) model.", "“experts”, “model” in the abstract"),
        ("It has many experts. Models differ.", "“experts”, “Models” in the abstract"),
        ("They are expert-models.", "“expert-models” in the abstract"),
    ],
)
def test_a_quote_is_of_one_piece(abstract: str, quoted: str) -> None:
    """It goes over no end of a sentence, and over no bracket."""
    assert PaperText(PaperView(1, "", abstract), FOLDING).quotes({"expert", "model"}, lambda _: 1.0) == [
        quoted
    ]


@pytest.mark.parametrize(
    ("author", "name", "wrote"),
    [
        ("Ronan O’Neil", "o'neil", True),
        ("Jean\u2010Luc Picard", "jean-luc picard", True),
        ("José García", "jose-garcia", True),
        ("Lovelace, Ada", "ada lovelace", True),
        ("Ada Lovelace", "lovelace, ada", True),
        ("Ada Lovelace", "love", False),
        ("Ada Lovelace", "lovelace ada", False),
    ],
)
def test_a_name_is_known_by_its_words(author: str, name: str, wrote: bool) -> None:
    """However its apostrophes, hyphens and accents are typed."""
    paper = PaperText(PaperView(1, "", authors=("Grace Hopper", author)), FOLDING)
    assert paper.writers([name]) == ([author] if wrote else [])


def test_few_stretches_are_quoted() -> None:
    """A long interest's reason stays short: the most telling stretches are chosen."""
    passage = PaperText(PaperView(1, "One, with two; by three, as four, or five."), Abbreviations({}, {}))
    telling = {"one": 1.0, "two": 2.0, "three": 3.0, "five": 5.0}
    (said,) = passage.quotes({*telling}, telling.__getitem__)
    assert said.count("“") == QUOTED
    assert "five" in said


@given(st.sets(st.sampled_from(["llm", "decod", "specul", "model", "draft", "jose", "twice", "tree"])))
def test_whatever_is_quoted_is_in_its_field(wanted: set[str]) -> None:
    """Each stretch once, and never a word that is not there."""
    for part in PASSAGE.quotes(wanted, lambda _: 1.0):
        quoted, field = part.rsplit(" in the ", 1)
        text = {"title": PASSAGE.paper.title, "abstract": PASSAGE.paper.abstract}[field]
        assert all(stretch.strip("“”") in text for stretch in quoted.split(", “"))
