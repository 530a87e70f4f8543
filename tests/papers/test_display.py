"""Test how the authors of a paper are shown."""

from __future__ import annotations

import pytest

from app.papers import display


@pytest.mark.parametrize(
    ("authors", "count", "short"),
    [
        ((), 0, ""),
        ((), 3, "3 authors"),
        (("Ana Lima",), 1, "Ana Lima"),
        (("Ana Lima", "Jonas Weber"), 2, "Ana Lima, Jonas Weber"),
        (("Ana Lima", "Jonas Weber"), 9, "Ana Lima +8"),
        (("Ana Lima", "Jonas Weber", "Wei Zhang"), 0, "Ana Lima +2"),
    ],
)
def test_short_byline(authors: tuple[str, ...], count: int, short: str) -> None:
    """Two authors are named. Of more, the first one is."""
    assert display.short_byline(authors, count) == short
