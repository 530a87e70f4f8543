"""Run docs/api.md from top to bottom against a real server. A local server stands in for the source in it."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from app import clock
from app.settings import Settings
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.database import ROOT
from tests.papers.sources.responses import RSS
from tests.support.running_app import Live

FEED_URL = "https://example.org/papers.xml"
GUIDE = (ROOT / "docs" / "api.md").read_text()


class Feed(BaseHTTPRequestHandler):
    """Answers with a feed."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/rss+xml")
        self.end_headers()
        self.wfile.write(RSS.encode())

    def log_message(self, *_: object) -> None:
        """Keep the test output quiet."""


@pytest.fixture
def guide() -> Iterator[str]:
    """Return the guide, with the address of a local server instead of that of the source."""
    with HTTPServer(("127.0.0.1", 0), Feed) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        assert FEED_URL in GUIDE
        yield GUIDE.replace(FEED_URL, f"http://127.0.0.1:{server.server_port}/papers.xml")
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Let sources have an address of this machine."""
    return settings.model_copy(update={"allow_private_sources": ("127.0.0.1",)})


def run_commands(block: str) -> dict[str, object]:
    """Run the commands of a block, whose `export` the test has done, and return what curl printed."""
    script = "".join(line for line in block.splitlines(keepends=True) if not line.startswith("export "))
    answer = subprocess.run(["sh", "-ec", script], capture_output=True, check=True)  # noqa: S603, S607
    return dict(json.loads(answer.stdout))


@pytest.mark.once
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_guide_runs_as_written(live_server: Live, guide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_server.app.db.write() as session:
        key = api_keys.create(session, "script", [Scope.READ, Scope.WRITE, Scope.SEND], clock.utcnow())[1]
    monkeypatch.setenv("PAPERBOY_KEY", key)
    monkeypatch.setenv("PAPERBOY_URL", live_server.url)
    blocks = re.findall(r"```(sh|python)\n(.*?)```", guide, re.DOTALL)
    assert guide.count("```") == 2 * len(blocks), "a block in another language is not run"
    names: dict[str, object] = {}
    printed: list[dict[str, object]] = []
    try:
        for language, block in blocks:
            if language == "sh":
                printed.append(run_commands(block))
            else:
                exec(block, names)  # noqa: S102
    finally:
        names["api"].close()  # type: ignore[attr-defined]
    statistics, trial = printed
    assert statistics["papers"] == 0
    assert (trial["error"], trial["new"], trial["skipped"]) == ("", 2, 1)
