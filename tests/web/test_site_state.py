"""Test the values that are cached for all requests."""

from __future__ import annotations

from datetime import datetime, timedelta
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
