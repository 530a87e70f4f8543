"""Test how texts are prepared for display."""

from __future__ import annotations

import pytest

from app.text import display

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 papers"), (1, "1 paper"), (2, "2 papers"), (12345, "12,345 papers")]
)
def test_count_of(number: int, words: str) -> None:
    assert display.count_of(number, "paper") == words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("the paper is not hidden", "The paper is not hidden."),
        ("Digests are paused.", "Digests are paused."),
        ("arXiv is being polled", "arXiv is being polled."),
        ("consent_at is in the future", "consent_at is in the future."),
        ("alice@example.org is suppressed", "alice@example.org is suppressed."),
        ("“x” is read from files, not polled", "“x” is read from files, not polled."),
    ],
)
def test_sentence(error: str, words: str) -> None:
    assert display.sentence(error) == words
