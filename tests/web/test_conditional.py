"""What was made for one is there for all for some minutes, and in so many places only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from app.errors import TooManyRequests
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


def test_it_is_made_once_for_all_who_want_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes meanwhile waits for it, a few at most; who wants something else does not."""
    monkeypatch.setattr(conditional, "AT_ONCE", 3)
    kept, begun, go_on, made = Kept(), Event(), Event(), list[int]()
    together = Barrier(3)

    def slowly() -> Made:
        begun.set()
        assert go_on.wait(10)
        made.append(1)
        return ONE

    def ask() -> Made | None:
        together.wait(10)
        try:
            return kept.of(("a",), NOW, slowly)
        except TooManyRequests:
            go_on.set()
            return None

    with ThreadPoolExecutor(4) as visitors:
        first = visitors.submit(kept.of, ("a",), NOW, slowly)
        assert begun.wait(10)
        assert kept.of(("b",), NOW, lambda: OTHER) is OTHER
        others = [visitors.submit(ask) for _ in range(3)]
    assert [first.result(), *sorted((each.result() for each in others), key=bool)] == [ONE, None, ONE, ONE]
    assert made == [1]
