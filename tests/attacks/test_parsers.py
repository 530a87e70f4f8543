"""Text that strangers write costs itself alone: no parser hangs, raises or fills the memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app import bibliography
from app.sources import latex

pytestmark = pytest.mark.once


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail when the block takes more CPU time than this, in this process."""
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds


@pytest.mark.parametrize(
    "text",
    [
        r"\sqrt[" * 16,
        r"\frac{" * 16,
        r"\sqrt[" * 3_000,
        r"$\frac{" * 1_000,
        r"\H{" * 19 + "x" + "}" * 19,
        r"\cite[" * 3_000,
        "http://" * 2_500,
        "{" * 20_000,
        "\\" * 20_000,
    ],
    ids=["roots", "fractions", "many roots", "mathematics", "accents", "cites", "links", "braces", "slashes"],
)
def test_latex_that_is_left_open_stays_as_it_is(text: str) -> None:
    """Each level doubled the work: one abstract stopped the intake, and four pastes all visitors."""
    with at_most(1):
        assert latex.shown(text) == text


@pytest.mark.parametrize("token", ["@a{", "@a{\n", "@a(", "@a{b}", "@string{a=b}", "@a{b,c={d},"])
def test_bibtex_of_nothing_but_beginnings_is_read_as_far_as_it_counts(token: str) -> None:
    """590 kB of them took 3.5 s, though only the first 200 are ever shown."""
    with at_most(2):
        parsed = bibliography.parse_file((token * 200_000)[:590_000].encode())
    assert len(parsed.records) + len(parsed.rejections) <= 401
