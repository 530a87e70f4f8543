"""`make test` goes on without programs that it cannot install; where they are required, it does not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

SCRIPT = Path(__file__).parent.parent / "scripts" / "ensure-tools"
OFFLINE = "echo offline >&2; exit 100"


def ensure(folder: Path, **said: str) -> subprocess.CompletedProcess[str]:
    """Run it as root, in a world where apt-get reaches nobody and nothing is installed."""
    for name, does in {"id": "echo 0", "apt-get": OFFLINE}.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    bash = shutil.which("bash") or "bash"
    alone = {"PATH": str(folder), **{f"PAPERBOY_{name}": value for name, value in said.items()}}
    return subprocess.run([bash, SCRIPT], env=alone, capture_output=True, text=True, check=False)  # noqa: S603


def test_offline_the_tests_are_skipped(tmp_path: Path) -> None:
    """It says of each program that it is missing, and that is all."""
    done = ensure(tmp_path, REQUIRE_BROWSER="", REQUIRE_SPAMASSASSIN="0")
    assert done.returncode == 0
    assert done.stderr.count("the tests that ask it will be skipped") == 2


def test_what_is_required_must_be_there(tmp_path: Path) -> None:
    """Where the tests would fail without it, it fails before them."""
    done = ensure(tmp_path, REQUIRE_BROWSER="1")
    assert done.returncode == 1
    assert "PAPERBOY_REQUIRE_BROWSER is 1" in done.stderr


def test_a_browser_that_is_named_is_enough(tmp_path: Path) -> None:
    """Nothing is installed beside it: the tests take that one."""
    done = ensure(tmp_path, CHROMIUM="/opt/chrome", REQUIRE_BROWSER="1")
    assert done.returncode == 0
    assert "chromium" not in done.stdout + done.stderr
