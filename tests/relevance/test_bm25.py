"""Test that impacts follow BM25F."""

import itertools

import numpy as np
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


def test_terms_of_documents_are_in_the_order_in_which_they_occur() -> None:
    """The terms and counts equal those of the names, and only pairs within a text are terms."""
    expansions = {"llm": ("languag model", "languag", "model")}
    documents = [(["llm", "cat"], ["cat", "llm", "cat", "llm"]), ([], ["model", "cat"]), (["dog"], [])]
    texts = itertools.chain(*documents)
    names = [*dict.fromkeys(term for text in texts for term in with_expansions(text, expansions))]
    expected = Terms.from_names(names, lambda term: float(len(term)), expansions)

    terms, counts = Terms.of_documents(documents, lambda own: np.array([*map(len, own)], float), expansions)

    assert terms.names == names
    assert dict(terms.columns) == expected.columns
    assert [name for name, is_pair in zip(names, terms.is_pair, strict=True) if is_pair] == [
        "llm cat", "languag model", "cat llm", "model cat",
    ]  # fmt: skip
    assert "cat model" not in terms.columns
    assert "bird" not in terms.columns
    assert (terms.idf == expected.idf).all()
    lengths = 2.0, 3.0
    impacts = expected.impacts(expected.field_counts(documents), lengths)
    assert (terms.impacts(counts, lengths) != impacts).nnz == 0


def test_no_documents_have_no_terms() -> None:
    terms, counts = Terms.of_documents([], lambda own: np.array([*map(len, own)], float), {})

    assert terms.names == []
    assert [own.shape for own in counts.counts] == [(0, 0), (0, 0)]
