"""Test the values that are cached for all requests."""

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event, Lock
from typing import Any

import pytest
from sqlmodel import Session
from starlette.requests import Request

from app import clock, main
from app.application import Application
from app.web.site_state import cached

pytestmark = pytest.mark.once


def test_values_are_read_again_when_they_are_old(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value from the future, which a clock that was set back leaves, counts as old. None is not stored."""
    request = Request({"type": "http", "app": main.create_app(app)})
    start, results = clock.utcnow(), iter([None, 1, 2, 3])

    def read(_session: Session, _now: datetime) -> Any:
        return next(results)

    values = []
    for minutes in (0, 0, 9, 10, 0):
        monkeypatch.setattr(clock, "utcnow", lambda minutes=minutes: start + timedelta(minutes=minutes))
        values.append(cached(request, "a value", timedelta(minutes=10), read))
    assert values == [None, 1, 1, 2, 3]


def test_threads_that_waited_for_a_value_use_it(app: Application) -> None:
    """They do not read it again, although they began to wait before it was read."""
    request = Request({"type": "http", "app": main.create_app(app)})
    waits, may_continue = Event(), Event()
    results = iter([1, 2])

    @contextmanager
    def wait_for_the_other_thread() -> Iterator[None]:
        waits.set()
        assert may_continue.wait(10)
        yield

    request.app.state.cache_locks = defaultdict(wait_for_the_other_thread)

    def get() -> int:
        return cached(request, "a value", timedelta(minutes=10), lambda *_: next(results))

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(get)
        assert waits.wait(10)
        request.app.state.cache_locks = defaultdict(Lock)
        second = get()
        may_continue.set()
        assert (first.result(), second) == (1, 1)
