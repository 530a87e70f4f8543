"""Fixtures for a relay process that misbehaves and sender processes that crash on request."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.application import Application
from app.settings import Settings
from tests.faults import checks, relay_process, sender_process
from tests.support.fork_server import ForkServer

CONNECTIONS = 3


@pytest.fixture
def relay(processes: ForkServer, tmp_path: Path) -> Iterator[relay_process.RelayProcess]:
    """Run the relay process that receives the emails."""
    folder = tmp_path / "relay"
    folder.mkdir()
    with relay_process.run_relay(folder) as running:
        yield running


@pytest.fixture
def settings(settings: Settings, relay: relay_process.RelayProcess) -> Settings:
    """Return settings that send to the relay process over three connections."""
    return settings.model_copy(update={"smtp_port": relay.port, "smtp_connections": CONNECTIONS})


@pytest.fixture
def start_sender(settings: Settings) -> Iterator[sender_process.Starter]:
    """Return a function that starts a sender process."""
    with sender_process.starter(settings) as starter:
        yield starter


@pytest.fixture(autouse=True)
def check_conservation(app: Application) -> Iterator[None]:
    """After each test, check that every digest is in exactly one state and no sender left a claim behind."""
    yield
    checks.check_conservation(app)
