"""Metrics of what is sent, and other wordings of an interest."""

import math

import numpy as np
import pytest

from app.relevance import cut_offs
from benchmarks.sent import (
    Metrics,
    cut_off_weight,
    jaccard,
    mean,
    metrics,
    order_quality,
    paraphrases,
    permutations,
)

RELEVANT, BORDERLINE = frozenset({"a", "b"}), frozenset({"c"})


@pytest.mark.parametrize(
    ("sent", "precision", "recall", "f1"),
    [
        ("ab", 1, 1, 1),
        ("abc", 1, 1, 1),
        ("ad", 0.5, 0.5, 0.5),
        ("acde", 0.5, 0.5, 0.4),
        ("c", 1, 0, 0),
        ("d", 0, 0, 0),
        ("", None, 0, 0),
    ],
)
def test_borderline_papers_are_not_wrong(sent: str, precision: float, recall: float, f1: float) -> None:
    expected = Metrics(len(sent), 2, precision, recall, f1)
    assert metrics(frozenset(sent), RELEVANT, BORDERLINE) == expected


@pytest.mark.parametrize(("sent", "f1"), [("", 1), ("c", 1), ("d", 0)])
def test_f1_without_relevant_papers(sent: str, f1: float) -> None:
    """Nothing irrelevant may be sent, and there is no recall."""
    found = metrics(frozenset(sent), frozenset(), BORDERLINE)
    assert (found.recall, found.f1) == (None, f1)


FIRST, SECOND, THIRD, FOURTH = (1 / math.log2(place) for place in range(2, 6))  # the discounts
BEST = FIRST + SECOND + THIRD / 2


@pytest.mark.parametrize(
    ("scores", "precision", "quality"),
    [
        ([3, 2, 1, 0], 1, BEST),
        ([2, 3, 1, 0], 1, BEST),  # both are relevant
        ([0, 1, 2, 3], (1 / 3 + 2 / 4) / 2, SECOND / 2 + THIRD + FOURTH),
        ([3, 1, 2, 0], (1 + 2 / 3) / 2, FIRST + SECOND / 2 + THIRD),  # a borderline paper comes second
    ],
)
def test_quality_of_an_order(scores: list[int], precision: float, quality: float) -> None:
    """Relevant papers gain twice as much as borderline ones, and less further down."""
    labels = {"relevant": ["a", "b"], "borderline": ["c"]}
    papers = [{"id": name} for name in "abcd"]
    assert order_quality(papers, labels, np.array(scores)) == pytest.approx((precision, quality / BEST))


def test_undefined_values_are_left_out_of_the_mean() -> None:
    assert mean(iter([1.0, None, 0.0])) == 0.5


def test_overlap_of_empty_selections_is_undefined() -> None:
    assert jaccard(frozenset(), frozenset()) is None
    assert jaccard(frozenset("ab"), frozenset("bc")) == pytest.approx(1 / 3)


def test_permutations_leave_out_little_words() -> None:
    assert permutations("mixture of experts") == ["mixture experts", "experts mixture"]


def test_paraphrases() -> None:
    assert paraphrases("LLM agents") == [
        "using LLM agents",
        "for LLM agents",
        "LLM agent",
        "agents for LLM",
        "agents in LLM",
        "agents using LLM",
        "large language model agents",
        "large language models agents",
        "agents in large language models",
    ]


def test_cut_off_weight_is_restored() -> None:
    before = cut_offs.CUT_OFF_WEIGHT
    with cut_off_weight(0):
        assert cut_offs.CUT_OFF_WEIGHT == 0
    assert before == cut_offs.CUT_OFF_WEIGHT > 0
