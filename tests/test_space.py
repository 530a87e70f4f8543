"""Papers as numbers: impacts add up to BM25F, and near is what says the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance import vector_space
from app.relevance.model import RelevanceModel
from app.relevance.vector_space import Terms, VectorSpace, count_matrix, fingerprint, with_expansions
from tests import corpora

CORPUS = corpora.corpus()
SPACE = CORPUS.space
assert SPACE is not None


def test_terms_and_pairs_are_counted() -> None:
    """What has no column is left out."""
    found = count_matrix(
        [with_expansions(text, {}) for text in (["a", "b", "a", "b"], [], ["c"])], {"a": 0, "a b": 1}
    )
    assert found.toarray().tolist() == [[2, 2], [0, 0], [0, 0]]


def test_an_impact_is_what_the_formula_says() -> None:
    """BM25F, worked out by hand: a word once in a title of one word, means of two words a field."""
    terms = Terms.of(["cat", "cat cat"], lambda _: 3.0)
    (impacts,) = terms.impacts([(["cat"], ["cat", "cat"])], (2.0, 2.0)).toarray().tolist()
    weight = vector_space.TITLE_WEIGHT / (1 - vector_space.B + vector_space.B / 2) + 2.0
    assert impacts[0] == pytest.approx(
        3.0 * weight * (vector_space.K1 + 1) / (weight + vector_space.K1), rel=1e-5
    )
    pair = 3.0 * vector_space.PAIR_WEIGHT * (vector_space.PAIR_K1 + 1) / (1 + vector_space.PAIR_K1)
    assert impacts[1] == pytest.approx(pair, rel=1e-5)


@pytest.mark.parametrize(
    "papers", [corpora.papers()[: vector_space.LEAST_PAPERS - 1], corpora.papers()[:1] * 400]
)
def test_a_small_archive_spans_no_space(papers: list[corpora.PaperView]) -> None:
    """Too few papers, or too few words, say nothing of what is near."""
    assert RelevanceModel.of([(paper.title, paper.abstract) for paper in papers]).space is None


def test_papers_on_one_subject_are_near() -> None:
    """Unit rows: on average nearer to their own subject than to any other, for every subject."""
    rows = SPACE.vectors([CORPUS.document(p.title, p.abstract) for p in corpora.papers()])
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-3)
    size = len(corpora.SUBJECTS)
    near = (rows @ rows.T).reshape(size, corpora.EACH, size, corpora.EACH).mean(axis=(1, 3))
    assert np.argmax(near, axis=1).tolist() == list(range(size))


def test_a_paper_without_a_known_word_is_nowhere() -> None:
    """A row of zeros, and no warning."""
    assert not SPACE.vectors([(["zebrafish"], []), ([], [])]).any()


def test_closeness_is_counted_in_deviations_of_the_archive() -> None:
    """Over the archive's own papers it has mean 0 and deviation 1, in every direction."""
    away = SPACE.standardised(SPACE.examples[:20], SPACE.examples)
    assert away.mean(axis=1) == pytest.approx(0, abs=0.02)
    assert away.std(axis=1) == pytest.approx(1, abs=0.05)


def test_a_space_comes_back_from_its_arrays() -> None:
    """The same numbers before and after: what was kept in 16 bits was used in 16 bits."""
    read = VectorSpace.of_arrays(SPACE.arrays(), CORPUS.statistics.frequencies, CORPUS.statistics.idf)
    for name, array in SPACE.arrays().items():
        assert np.array_equal(read.arrays()[name], array), name
    document = [CORPUS.document("Policy and Reward", "Reinforcement learning.")]
    assert np.array_equal(read.vectors(document), SPACE.vectors(document))


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("projection", np.s_[:-5]),
        ("projection", np.s_[:, :-5]),
        ("mean", np.s_[:-1]),
        ("covariance", np.s_[:-1]),
        ("examples", np.s_[:, :-2]),
        ("fingerprints", np.s_[:-3]),
    ],
)
def test_parts_of_two_models_are_refused(name: str, cut: object) -> None:
    """Otherwise the first digest would fail, and every one after it, with a good model at hand."""
    arrays = SPACE.arrays()
    arrays[name] = arrays[name][cut]
    with pytest.raises(ValueError, match="instead of"):
        VectorSpace.of_arrays(arrays, CORPUS.statistics.frequencies, CORPUS.statistics.idf)


def test_a_model_with_numbers_that_are_none_is_refused() -> None:
    """They would spread over everything that is computed with them."""
    arrays = SPACE.arrays()
    arrays["projection"][3, 1] = np.nan
    with pytest.raises(ValueError, match="projection"):
        VectorSpace.of_arrays(arrays, CORPUS.statistics.frequencies, CORPUS.statistics.idf)


def test_the_same_archive_gives_the_same_space() -> None:
    """Chance plays no part."""
    again = RelevanceModel.of([(paper.title, paper.abstract) for paper in corpora.papers()])
    assert again.encode() == CORPUS.encode()


@given(st.text(max_size=50))
def test_a_fingerprint_fits_a_signed_integer(title: str) -> None:
    """Of 64 bits, as arrays have them."""
    assert 0 <= fingerprint(title) < 2**63
    assert math.isfinite(np.int64(fingerprint(title)))
