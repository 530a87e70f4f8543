"""What was made for one is there for all for some minutes, and in so many places only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from app.errors import TooManyRequests
from app.web import http_cache
from app.web.http_cache import KEEP, CachedResponse, ResponseCache
from tests.conftest import NOW

ONE, OTHER = CachedResponse(b"one", "text/plain"), CachedResponse(b"other", "text/plain")


def test_what_was_made_serves_for_some_minutes() -> None:
    """Then it is made anew."""
    cache = ResponseCache()
    assert cache.get_or_build(("a",), NOW, lambda: ONE) is ONE
    assert cache.get_or_build(("a",), NOW + KEEP / 2, lambda: OTHER) is ONE
    assert cache.get_or_build(("b",), NOW + KEEP / 2, lambda: OTHER) is OTHER
    assert cache.get_or_build(("a",), NOW + KEEP, lambda: OTHER) is OTHER


def test_what_was_made_first_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever anybody thinks of asking for, the cache holds a limited number of responses."""
    monkeypatch.setattr(http_cache, "MAX_RESPONSES", 2)
    cache = ResponseCache()
    for name in "abc":
        cache.get_or_build((name,), NOW, lambda: ONE)
    assert [cache.get_or_build((name,), NOW, lambda: OTHER) for name in "cba"] == [ONE, ONE, OTHER]


def test_what_cannot_be_made_is_not_kept() -> None:
    """The next who asks has it tried again."""
    cache = ResponseCache()
    with pytest.raises(ZeroDivisionError):
        cache.get_or_build(("a",), NOW, lambda: CachedResponse(bytes(1 // 0), ""))
    assert cache.get_or_build(("a",), NOW, lambda: ONE) is ONE


def test_it_is_made_once_for_all_who_want_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes meanwhile waits for it, a few at most; who wants something else does not."""
    monkeypatch.setattr(http_cache, "AT_ONCE", 3)
    cache, begun, go_on, made = ResponseCache(), Event(), Event(), list[int]()
    together = Barrier(3)

    def slowly() -> CachedResponse:
        begun.set()
        assert go_on.wait(10)
        made.append(1)
        return ONE

    def ask() -> CachedResponse | None:
        together.wait(10)
        try:
            return cache.get_or_build(("a",), NOW, slowly)
        except TooManyRequests:
            go_on.set()
            return None

    with ThreadPoolExecutor(4) as visitors:
        first = visitors.submit(cache.get_or_build, ("a",), NOW, slowly)
        assert begun.wait(10)
        assert cache.get_or_build(("b",), NOW, lambda: OTHER) is OTHER
        others = [visitors.submit(ask) for _ in range(3)]
    assert [first.result(), *sorted((each.result() for each in others), key=bool)] == [ONE, None, ONE, ONE]
    assert made == [1]
