"""Strangers and keys ask for as much as they can. Pages, signing up and sending go on."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from app import clock, main, pipeline
from app.errors import TooManyRequests
from app.pipeline import App
from app.settings import Settings
from app.web import capacity, connections, papers, preview, public
from app.web.capacity import Capacity, WorkSlots
from tests import shelves
from tests.api.conftest import call, client, key_of, site  # noqa: F401 - fixtures
from tests.api.conftest import Call
from tests.conftest import SECRET
from tests.mailserver import MailServer

ROOT = Path(__file__).resolve().parent.parent.parent
DESCRIPTORS = 256
SERVE = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}));from app.cli import main; main()"
).format(DESCRIPTORS)


@contextmanager
def served(settings: Settings, folder: Path) -> Iterator[str]:
    """Serve the application in a process that may open few descriptors. Yields its URL."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": os.environ["PATH"],
        "PAPERBOY_DATABASE_URL": settings.database_url,
        "PAPERBOY_SECRET_KEYS": SECRET,
        "PAPERBOY_FROM_ADDRESS": settings.from_address,
        "PAPERBOY_SMTP_PORT": str(settings.smtp_port),
        "PAPERBOY_SMTP_SECURITY": "none",
        "PAPERBOY_SCHEDULER": "false",
    }
    command = [sys.executable, "-c", SERVE, "serve", "--port", "0"]
    with subprocess.Popen(  # noqa: S603 - it is our own command
        command, env=environment, cwd=folder, text=True, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr
        line = next(line for line in process.stderr if "running on" in line)
        url = re.search(r"http://[\d.:]+", line)
        assert url, line
        reader = threading.Thread(target=process.stderr.read)  # or its pipe fills up
        reader.start()
        try:
            yield url[0]
        finally:
            process.kill()
            reader.join()


@pytest.mark.once
def test_unfinished_connections_keep_nobody_out(
    settings: Settings, mail_server: MailServer, tmp_path: Path
) -> None:
    """1,005 unfinished requests took all descriptors: pages were away for a minute, and sending failed."""
    with served(settings, tmp_path) as url, ExitStack() as stack:
        address = httpx.URL(url)
        for _ in range(DESCRIPTORS + 50):
            unfinished = stack.enter_context(socket.create_connection((address.host, address.port or 0), 20))
            unfinished.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        for _ in range(3):
            assert httpx.get(url, timeout=20).status_code == 200
        form = {"email": "alice@example.org", "interest": "language agents", "cadence": "daily", "hour": "8"}
        joined = httpx.post(f"{url}/subscribe", data=form | {"zone": "UTC"}, timeout=20)
        assert joined.status_code == 200
        assert mail_server.wait_for(1)
