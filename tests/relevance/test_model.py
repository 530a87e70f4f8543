"""Test the model: its statistics and its serialisation. Invalid bytes are rejected."""

import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import CorruptModel
from app.relevance import model
from app.relevance.model import RelevanceModel

PAPERS = [("Cats cats", "Cats purr and purr."), ("Dogs", "and a cat"), ("Birds of José", "")]
WHOLE = RelevanceModel.train(PAPERS).encode()


def test_statistics_count_papers() -> None:
    """A word that a paper repeats counts once."""
    statistics = RelevanceModel.train(PAPERS).statistics
    assert (statistics.papers, statistics.frequencies["cat"], statistics.frequencies["dog"]) == (3, 2, 1)
    assert statistics.idf("cat") < statistics.idf("dog") < statistics.idf("never seen")


def test_bundled_model() -> None:
    """It counts thousands of papers, in which "model" is common and "zebrafish" is not."""
    statistics = RelevanceModel.bundled().statistics
    assert statistics.papers > 5_000
    assert statistics.idf("model") < statistics.idf("zebrafish")


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=200)), max_size=8))
def test_serialization_round_trip(papers: list[tuple[str, str]]) -> None:
    """Test papers in any script, and an archive without any word."""
    trained = RelevanceModel.train(papers)
    loaded = RelevanceModel.decode(trained.encode())
    assert (loaded.statistics, loaded.encode()) == (trained.statistics, trained.encode())


def test_serialization_is_deterministic() -> None:
    """In another process strings hash differently."""
    code = (
        "import sys; from app.relevance.model import RelevanceModel; "
        f"sys.stdout.buffer.write(RelevanceModel.train({PAPERS!r}).encode())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)  # noqa: S603
    assert other.stdout == WHOLE


@pytest.mark.parametrize("length", range(0, len(WHOLE), 7))
def test_truncated_bytes_are_refused(length: int) -> None:
    """A full disk may leave only a part of a model."""
    with pytest.raises(CorruptModel):
        RelevanceModel.decode(WHOLE[:length])


def test_shorter_readings_are_stored() -> None:
    """A model that was stored before they were learned still loads, and has none."""
    text = (
        "Video diffusion models (VDMs) are video models. Diffusion language models (DLMs) are diffusion "
        "models. Diffusion models (DMs) and language models (LMs) are no longer new."
    )
    trained = RelevanceModel.train([("", text)] * 3)
    readings = {reading for _, reading in trained.abbreviations.readings}
    assert readings == {("video", "model"), ("diffus", "model")}
    assert RelevanceModel.decode(trained.encode()).abbreviations == trained.abbreviations
    assert RelevanceModel.decode(with_arrays(readings=None)).abbreviations.readings == frozenset()


@given(st.binary(max_size=300))
def test_invalid_bytes_are_refused(data: bytes) -> None:
    """Reject any bytes, alone and in place of the second half of a model."""
    for invalid in (data, WHOLE[: len(WHOLE) // 2] + data):
        with pytest.raises(CorruptModel):
            RelevanceModel.decode(invalid)


def with_arrays(**arrays: object) -> bytes:
    """Return the bytes of a model with some arrays replaced; None removes one."""
    with np.load(io.BytesIO(WHOLE)) as own:
        merged = {**own, **arrays}
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(array) for name, array in merged.items() if array is not None})
    return buffer.getvalue()


@pytest.mark.parametrize(
    "invalid",
    [
        with_arrays(format=model.FORMAT + 1),
        with_arrays(format=None),
        with_arrays(counts=np.array([1], np.int32)),
        with_arrays(terms=np.array([255], np.uint8)),
        with_arrays(lengths=[10.0]),
        with_arrays(papers=None),
        with_arrays(papers=np.array(RelevanceModel, dtype=object)),
        pickle.dumps(PAPERS),
    ],
    ids=["newer", "no format", "few counts", "no text", "one length", "no papers", "pickled", "a pickle"],
)
def test_model_with_other_arrays_is_refused(invalid: bytes) -> None:
    """It comes from another version of Paperboy, or from an attacker who wants code to be run."""
    with pytest.raises(CorruptModel):
        RelevanceModel.decode(invalid)
