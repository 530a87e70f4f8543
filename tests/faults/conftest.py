"""Fixtures: a relay process that misbehaves on request, and sender processes that die on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.application import Application
from app.settings import Settings
from tests.faults import checks, relay_process, sender_process

CONNECTIONS = 3


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[relay_process.Sink]:
    """The relay process that receives the mails."""
    folder = tmp_path / "relay"
    folder.mkdir()
    with relay_process.running(folder) as running:
        yield running


@pytest.fixture
def settings(settings: Settings, relay: relay_process.Sink) -> Settings:
    """Settings that send to it over three connections."""
    return settings.model_copy(update={"smtp_port": relay.port, "smtp_connections": CONNECTIONS})


@pytest.fixture
def start(settings: Settings) -> Iterator[sender_process.Starter]:
    """Return a function that starts a sender."""
    with sender_process.starter(settings) as starter:
        yield starter


@pytest.fixture(autouse=True)
def conservation(app: Application) -> Iterator[None]:
    """Check after each test that every digest is in exactly one state and no sender left anything."""
    yield
    checks.check_conservation(app)
