"""Test compounds that need their hyphen."""

import pytest

from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.text import preposition_compounds
from app.types import PaperView

MODEL = RelevanceModel.train(
    [
        *[("In\u2010Context Learning", "Agents run on-demand and learn in-domain and at-scale.")] * 4,
        *[("Agents", "They run on demand, at scale, in domain-specific tasks, and in the wild.")] * 4,
        ("Length", "An increase in context length."),
    ]
)


def test_learned_compounds_are_seldom_written_without_the_hyphen() -> None:
    assert MODEL.abbreviations.hyphenated == {"in-context", "in-domain"}
    assert RelevanceModel.decode(MODEL.encode()).abbreviations == MODEL.abbreviations
    assert {"in-context", "on-policy"} < RelevanceModel.bundled().abbreviations.hyphenated


@pytest.mark.parametrize(
    ("text", "compounds"),
    [
        ("An In-Context learner, on-policy-based", {"in-context", "on-polici"}),
        ("in\u2010context, by\u2011products, on–policy-based", {"in-context", "by-product", "on-polici"}),
        ("built\u2010in-context, in-the-wild, in context, end-to-end", set()),
    ],
)
def test_compounds_in(text: str, compounds: set[str]) -> None:
    assert preposition_compounds.compounds_in(text) == compounds


@pytest.mark.parametrize(
    ("interest", "papers"),
    [
        ("in-context learning", {1, 3, 5, 6}),
        ("agents -in-context", {4}),
        ('agents -"in context"', {4}),
        ('"in context"', {1, 2, 5, 6}),
        ("on-demand agents", {4}),  # papers write it in both ways
    ],
)
def test_compound_needs_its_hyphen(interest: str, papers: set[int]) -> None:
    """It may also be one word. In quotes or excluded, it may be written in both ways."""
    index = MatchIndex(
        [
            PaperView(1, "In-Context Learning", "Agents learn."),
            PaperView(2, "Learning by Agents", "An increase in context length."),
            PaperView(3, "Incontext Learning", "Agents learn."),
            PaperView(4, "Agents on Demand", "Agents learn."),
            PaperView(5, "In\u2011Context Learning", "Agents learn."),
            PaperView(6, "Learning In-Contexts", "Agents learn."),
        ],
        MODEL,
    )
    query = parse(interest)
    reasons = {paper: index.filters.rejection_reason(query, paper - 1) for paper in range(1, 7)}
    assert {paper for paper, reason in reasons.items() if not reason} == papers
