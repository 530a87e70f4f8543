"""Test the response cache: lifetime, size limit, and one computation for concurrent requests."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from app.errors import TooManyRequests
from app.web import http_cache
from app.web.http_cache import KEEP, CachedResponse, ResponseCache
from tests.conftest import NOW

FIRST, SECOND = CachedResponse(b"one", "text/plain"), CachedResponse(b"other", "text/plain")


def test_cached_response_expires_after_some_minutes() -> None:
    cache = ResponseCache()
    assert cache.get_or_build(("a",), NOW, lambda: FIRST) is FIRST
    assert cache.get_or_build(("a",), NOW + KEEP / 2, lambda: SECOND) is FIRST
    assert cache.get_or_build(("b",), NOW + KEEP / 2, lambda: SECOND) is SECOND
    assert cache.get_or_build(("a",), NOW + KEEP, lambda: SECOND) is SECOND


def test_oldest_response_is_evicted_when_the_cache_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_cache, "MAX_RESPONSES", 2)
    cache = ResponseCache()
    for name in "abc":
        cache.get_or_build((name,), NOW, lambda: FIRST)
    assert [cache.get_or_build((name,), NOW, lambda: SECOND) for name in "cba"] == [FIRST, FIRST, SECOND]


def test_cleared_cache_does_not_store_a_response_that_was_being_built() -> None:
    """It may contain the paper that has just been hidden."""
    cache = ResponseCache()

    def build() -> CachedResponse:
        cache.clear()
        return FIRST

    assert cache.get_or_build(("a",), NOW, build) is FIRST
    assert cache.get_or_build(("a",), NOW, lambda: SECOND) is SECOND
    cache.clear()
    assert cache.get_or_build(("a",), NOW, lambda: FIRST) is FIRST


def test_failures_are_not_cached() -> None:
    """The next request tries again."""
    cache = ResponseCache()
    with pytest.raises(ZeroDivisionError):
        cache.get_or_build(("a",), NOW, lambda: CachedResponse(bytes(1 // 0), ""))
    assert cache.get_or_build(("a",), NOW, lambda: FIRST) is FIRST


def test_concurrent_requests_share_one_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number of requests wait for it. Requests for another key do not wait."""
    monkeypatch.setattr(http_cache, "AT_ONCE", 3)
    cache, started, go_on, calls = ResponseCache(), Event(), Event(), list[int]()
    together = Barrier(3)

    def slowly() -> CachedResponse:
        started.set()
        assert go_on.wait(10)
        calls.append(1)
        return FIRST

    def ask() -> CachedResponse | None:
        together.wait(10)
        try:
            return cache.get_or_build(("a",), NOW, slowly)
        except TooManyRequests:
            go_on.set()
            return None

    with ThreadPoolExecutor(4) as visitors:
        first = visitors.submit(cache.get_or_build, ("a",), NOW, slowly)
        assert started.wait(10)
        assert cache.get_or_build(("b",), NOW, lambda: SECOND) is SECOND
        others = [visitors.submit(ask) for _ in range(3)]
    assert [first.result(), *sorted((each.result() for each in others), key=bool)] == [
        FIRST,
        None,
        FIRST,
        FIRST,
    ]
    assert calls == [1]
