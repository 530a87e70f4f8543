"""What an archive says of words is counted rightly, and kept as bytes that are whole or refused."""

from __future__ import annotations

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
WHOLE = RelevanceModel.of(PAPERS).encode()


def test_statistics_count_papers_not_words() -> None:
    """A word that one paper repeats is in one paper."""
    counted = RelevanceModel.of(PAPERS).statistics
    assert (counted.papers, counted.frequencies["cat"], counted.frequencies["dog"]) == (3, 2, 1)
    assert counted.idf("cat") < counted.idf("dog") < counted.idf("never seen")


def test_what_is_shipped_knows_the_field() -> None:
    """For a young archive: thousands of papers, in which "model" is common and "zebrafish" is not."""
    shipped = RelevanceModel.shipped().statistics
    assert shipped.papers > 5_000
    assert shipped.idf("model") < shipped.idf("zebrafish")


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=200)), max_size=8))
def test_a_corpus_comes_back_from_its_bytes(papers: list[tuple[str, str]]) -> None:
    """Whatever the papers say, in whatever script; an archive without a word, too."""
    learned = RelevanceModel.of(papers)
    read = RelevanceModel.decode(learned.encode())
    assert (read.statistics, read.encode()) == (learned.statistics, learned.encode())


def test_the_same_papers_give_the_same_bytes() -> None:
    """In another process, where strings hash differently, too."""
    said = (
        f"from app.corpus import Corpus; import sys; sys.stdout.buffer.write(Corpus.of({PAPERS!r}).encode())"
    )
    other = subprocess.run([sys.executable, "-c", said], capture_output=True, check=True)  # noqa: S603
    assert other.stdout == WHOLE


@pytest.mark.parametrize("length", range(0, len(WHOLE), 7))
def test_truncated_bytes_are_refused(length: int) -> None:
    """A disk that was full left a part of it."""
    with pytest.raises(CorruptModel):
        RelevanceModel.decode(WHOLE[:length])


@given(st.binary(max_size=300))
def test_what_is_no_model_is_refused(data: bytes) -> None:
    """Any bytes, alone and where the end of a model should be."""
    for broken in (data, WHOLE[: len(WHOLE) // 2] + data):
        with pytest.raises(CorruptModel):
            RelevanceModel.decode(broken)


def changed(**arrays: object) -> bytes:
    """A model with some arrays put in place of its own; None leaves one out."""
    with np.load(io.BytesIO(WHOLE)) as own:
        wanted = {**own, **arrays}
    written = io.BytesIO()
    np.savez(written, **{name: np.asarray(array) for name, array in wanted.items() if array is not None})
    return written.getvalue()


@pytest.mark.parametrize(
    "broken",
    [
        changed(format=model.FORMAT + 1),
        changed(format=None),
        changed(counts=np.array([1], np.int32)),
        changed(terms=np.array([255], np.uint8)),
        changed(lengths=[10.0]),
        changed(papers=None),
        changed(papers=np.array(RelevanceModel, dtype=object)),
        pickle.dumps(PAPERS),
    ],
    ids=["newer", "no format", "few counts", "no text", "one length", "no papers", "pickled", "a pickle"],
)
def test_a_model_of_another_shape_is_refused(broken: bytes) -> None:
    """Made by another version of Paperboy, or by somebody who wants their code to be run."""
    with pytest.raises(CorruptModel):
        RelevanceModel.decode(broken)
