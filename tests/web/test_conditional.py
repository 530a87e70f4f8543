"""What was made for one is there for all for some minutes, and in so many places only."""

from __future__ import annotations

import pytest

from app.web import conditional
from app.web.conditional import KEEP, Kept, Made
from tests.conftest import NOW

ONE, OTHER = Made(b"one", "text/plain"), Made(b"other", "text/plain")


def test_what_was_made_serves_for_some_minutes() -> None:
    """Then it is made anew."""
    kept = Kept()
    assert kept.of(("a",), NOW, lambda: ONE) is ONE
    assert kept.of(("a",), NOW + KEEP / 2, lambda: OTHER) is ONE
    assert kept.of(("b",), NOW + KEEP / 2, lambda: OTHER) is OTHER
    assert kept.of(("a",), NOW + KEEP, lambda: OTHER) is OTHER


def test_what_was_made_first_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever anybody thinks of asking for, no more than so much is kept."""
    monkeypatch.setattr(conditional, "ROOM", 2)
    kept = Kept()
    for name in "abc":
        kept.of((name,), NOW, lambda: ONE)
    assert [kept.of((name,), NOW, lambda: OTHER) for name in "cba"] == [ONE, ONE, OTHER]


def test_what_cannot_be_made_is_not_kept() -> None:
    """The next who asks has it tried again."""
    kept = Kept()
    with pytest.raises(ZeroDivisionError):
        kept.of(("a",), NOW, lambda: Made(bytes(1 // 0), ""))
    assert kept.of(("a",), NOW, lambda: ONE) is ONE
