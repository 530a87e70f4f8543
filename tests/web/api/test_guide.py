"""Run docs/api.md from top to bottom against a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from app import clock
from app.storage import api_keys
from app.storage.database import ROOT
from app.storage.models import Scope
from tests.support.running_app import Live

GUIDE = (ROOT / "docs" / "api.md").read_text()


@pytest.mark.once
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_guide_runs_as_written(live_server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_server.app.db.write() as session:
        key = api_keys.create(session, "script", [Scope.READ, Scope.WRITE, Scope.SEND], clock.utcnow())[1]
    monkeypatch.setenv("PAPERBOY_KEY", key)
    monkeypatch.setenv("PAPERBOY_URL", live_server.url)
    (command,) = re.findall(r"^curl .*/statistics$", GUIDE, re.MULTILINE)
    answer = subprocess.run(["sh", "-ec", command], capture_output=True, check=True)  # noqa: S603, S607
    assert json.loads(answer.stdout)["papers"] == 0
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 14
    names: dict[str, object] = {}
    try:
        for block in blocks:
            exec(block, names)  # noqa: S102
    finally:
        names["api"].close()  # type: ignore[attr-defined]
