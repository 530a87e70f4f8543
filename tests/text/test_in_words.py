"""Test counts and messages in words."""

from __future__ import annotations

import pytest

from app.text import in_words

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 papers"), (1, "1 paper"), (2, "2 papers"), (12345, "12,345 papers")]
)
def test_count_of(number: int, words: str) -> None:
    assert in_words.count_of(number, "paper") == words


@pytest.mark.parametrize(
    ("count", "considered", "trending", "words"),
    [
        (7, 40, 2, "7 of 40 recent papers (5 matching, 2 trending)"),
        (5, 40, 0, "5 of 40 recent papers"),
        (2, 40, 2, "2 of 40 recent papers (none matching, 2 trending)"),
        (3, 3, 1, "3 papers (2 matching, 1 trending)"),
        (1, 0, 0, "1 paper"),
    ],
)
def test_count_of_recent(count: int, considered: int, trending: int, words: str) -> None:
    """Trending papers, which match no interest, are counted separately."""
    assert in_words.count_of_recent(count, considered, trending) == words


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"rows": 1, "papers_new": 1, "rejected": 0}, "1 row, 1 paper new"),
        ({"deliveries": 1, "cards_left_out": 1}, "1 delivery, 1 card left out"),
        ({"listings": 2, "deliveries": 1234, "sent": 1}, "2 listings, 1,234 deliveries, 1 sent"),
        ({"addresses": 1, "processes": 1}, "1 address, 1 process"),
        ({"unread_addresses": 2, "queries": 1}, "2 unread addresses, 1 query"),
        ({"address": 1, "process": 1}, "1 address, 1 process"),
        ({}, ""),
    ],
)
def test_format_counts(counts: dict[str, int], words: str) -> None:
    assert in_words.format_counts(counts) == words


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
    assert in_words.sentence(error) == words


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Value error, must begin with http://", "must begin with http://"),
        ("Value error, “Input should rest” is not a name", "“Input should rest” is not a name"),
        ("Input should be less than or equal to 23", "must be less than or equal to 23"),
        ("String should have at least 1 character", "must have at least 1 character"),
        ("Field required", "Field required"),
    ],
)
def test_describe_invalid(message: str, words: str) -> None:
    assert in_words.describe_invalid(message) == words
