"""Logs tell what happened, and no secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from app import keys, logs
from app.settings import Settings
from app.tokens import Purpose, Signer
from tests.conftest import SECRET


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Other tests have logs of their own."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = before, level
    structlog.reset_defaults()


def test_neither_links_nor_keys_are_written(
    settings: Settings, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in a message, a field, an exception, nor a line of the web server's."""
    logs.configure(settings)
    token = Signer([SECRET], "").token(Purpose.UNSUBSCRIBE, 7, now)
    key = keys.PREFIX + keys.secret()
    structlog.get_logger("app").info("called", path=f"/unsubscribe/{token}", headers={"Authorization": [key]})
    logging.getLogger("uvicorn.access").info(
        '%s - "%s %s HTTP/%s" %d', "127.0.0.1", "GET", f"/view/{token}?x=1", "1.1", 200
    )
    try:
        raise ValueError(f"no such token {token}")
    except ValueError:
        structlog.get_logger("app").exception("failed", key=key)
    written = capsys.readouterr().err
    assert token not in written
    assert key not in written
    assert token[:7] + "…" in written
    assert "ValueError" in written


def test_logs_are_for_machines_where_the_settings_say_so(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """One JSON object a line, ours and the libraries' alike."""
    logs.configure(settings.model_copy(update={"log_json": True}))
    structlog.get_logger("app.runs").info("run ended", job="refresh")
    twice = {"color_message": "Started \x1b[36m%s\x1b[0m"}
    logging.getLogger("uvicorn.error").warning("Started %s", "server", extra=twice)
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["job"], ours["level"], ours["logger"]) == (
        "run ended",
        "refresh",
        "info",
        "app.runs",
    )
    assert ours["timestamp"].endswith("Z")
    assert (theirs["event"], theirs["level"]) == ("Started server", "warning")
    assert "color_message" not in theirs


def test_the_level_is_kept(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that says itself what it did wants less."""
    logs.configure(settings, level="WARNING")
    structlog.get_logger("app").info("quiet")
    structlog.get_logger("app").warning("loud")
    written = capsys.readouterr().err
    assert "quiet" not in written
    assert "loud" in written
