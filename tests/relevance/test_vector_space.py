"""Test the vector space: papers on one subject are similar."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance import vector_space
from app.relevance.model import RelevanceModel
from app.relevance.vector_space import VectorSpace, title_fingerprint
from app.types import PaperView
from tests.support import sample_archive

MODEL = sample_archive.trained_model()
SPACE = MODEL.space
assert SPACE is not None


@pytest.mark.parametrize(
    "papers", [sample_archive.papers()[: vector_space.MIN_PAPERS - 1], sample_archive.papers()[:1] * 400]
)
def test_small_archive_has_no_space(papers: list[PaperView]) -> None:
    """No space is fitted to too few papers, or to too few words."""
    assert RelevanceModel.train([(paper.title, paper.abstract) for paper in papers]).space is None


def test_papers_on_one_subject_are_similar() -> None:
    """Vectors are unit rows, on average most similar to those of their own subject."""
    rows = SPACE.vectors([MODEL.document(p.title, p.abstract) for p in sample_archive.papers()])
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-3)
    size = len(sample_archive.SUBJECTS)
    near = (rows @ rows.T).reshape(size, sample_archive.EACH, size, sample_archive.EACH).mean(axis=(1, 3))
    assert np.argmax(near, axis=1).tolist() == list(range(size))


def test_paper_without_known_words_is_a_zero_vector() -> None:
    """Its vector is a row of zeros, and numpy does not warn."""
    assert not SPACE.vectors([(["zebrafish"], []), ([], [])]).any()


def test_similarity_is_a_z_score() -> None:
    """Over the archive's own papers z-scores have mean 0 and deviation 1, in every direction."""
    z_scores = SPACE.z_scores(SPACE.examples[:20], SPACE.examples)
    assert z_scores.mean(axis=1) == pytest.approx(0, abs=0.02)
    assert z_scores.std(axis=1) == pytest.approx(1, abs=0.05)


def test_serialization_round_trip() -> None:
    """Numbers stored in 16 bits are used in 16 bits, before and after."""
    loaded = VectorSpace.from_arrays(SPACE.to_arrays(), MODEL.statistics.frequencies, MODEL.statistics.idf)
    for name, array in SPACE.to_arrays().items():
        assert np.array_equal(loaded.to_arrays()[name], array), name
    document = [MODEL.document("Policy and Reward", "Reinforcement learning.")]
    assert np.array_equal(loaded.vectors(document), SPACE.vectors(document))


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
def test_mixed_models_are_refused(name: str, cut: object) -> None:
    """Otherwise every digest would fail, although an older model is valid."""
    arrays = SPACE.to_arrays()
    arrays[name] = arrays[name][cut]
    with pytest.raises(ValueError, match="instead of"):
        VectorSpace.from_arrays(arrays, MODEL.statistics.frequencies, MODEL.statistics.idf)


@pytest.mark.parametrize("name", ["projection", "impacts"])
def test_a_model_with_nan_is_refused(name: str) -> None:
    """NaN would spread to every score."""
    arrays = SPACE.to_arrays()
    arrays[name].flat[3] = np.nan
    with pytest.raises(ValueError, match=f"{name} contains NaN"):
        VectorSpace.from_arrays(arrays, MODEL.statistics.frequencies, MODEL.statistics.idf)


def test_training_is_deterministic() -> None:
    again = RelevanceModel.train([(paper.title, paper.abstract) for paper in sample_archive.papers()])
    assert again.encode() == MODEL.encode()


@given(st.text(max_size=50))
def test_fingerprint_fits_a_signed_integer(title: str) -> None:
    """It fits the 64 bits of the stored array."""
    assert 0 <= title_fingerprint(title) < 2**63
    assert math.isfinite(np.int64(title_fingerprint(title)))


@pytest.mark.parametrize(
    ("term", "is_close"),
    [
        ("astronomi", True),
        ("studi astronomi", False),  # "studi" says nothing
        ("speech recognit", False),
        ("method", False),
        ("zebra", False),
    ],
)
def test_a_word_explains_closeness_if_its_papers_are_close(term: str, is_close: bool) -> None:
    """For a paper on astronomy, its subject does, but neither words of all papers nor unknown words."""
    assert SPACE is not None
    direction = SPACE.vectors([MODEL.document("A galaxy", "We study astronomy: the orbit of a comet.")])[0]
    assert SPACE.is_close(term, SPACE.direction(direction)) is is_close
