"""Test that impacts follow BM25F."""

from __future__ import annotations

import pytest

from app.relevance import bm25
from app.relevance.bm25 import Terms, count_matrix, with_expansions


def test_term_and_bigram_counts() -> None:
    """Terms without a column are left out."""
    counts = count_matrix(
        [with_expansions(text, {}) for text in (["a", "b", "a", "b"], [], ["c"])], {"a": 0, "a b": 1}
    )
    assert counts.toarray().tolist() == [[2, 2], [0, 0], [0, 0]]


def test_impacts_follow_bm25f() -> None:
    """They are computed by hand: a title of one word, with a mean length of two words in both fields."""
    terms = Terms.from_names(["cat", "cat cat"], lambda _: 3.0)
    (impacts,) = terms.impacts(terms.field_counts([(["cat"], ["cat", "cat"])]), (2.0, 2.0)).toarray().tolist()
    weight = bm25.TITLE_WEIGHT / (1 - bm25.B + bm25.B / 2) + 2.0
    assert impacts[0] == pytest.approx(3.0 * weight * (bm25.K1 + 1) / (weight + bm25.K1), rel=1e-5)
    pair = 3.0 * bm25.PAIR_WEIGHT * (bm25.PAIR_K1 + 1) / (1 + bm25.PAIR_K1)
    assert impacts[1] == pytest.approx(pair, rel=1e-5)
