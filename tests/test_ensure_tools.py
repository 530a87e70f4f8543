"""Test scripts/ensure-tools: missing programs are skipped, unless they are required."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

SCRIPT = Path(__file__).parent.parent / "scripts" / "ensure-tools"
OFFLINE = "echo offline >&2; exit 100"


def run_ensure_tools(
    folder: Path, apt_get: str = OFFLINE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the script as root with nothing installed. By default, apt-get reaches no server."""
    for name, does in {"id": "echo 0", "apt-get": apt_get}.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    bash = shutil.which("bash") or "bash"
    alone = {"PATH": str(folder), **{f"PAPERBOY_{name}": value for name, value in environment.items()}}
    return subprocess.run([bash, SCRIPT], env=alone, capture_output=True, text=True, check=False)  # noqa: S603


def test_offline_reports_missing_programs(tmp_path: Path) -> None:
    result = run_ensure_tools(tmp_path, REQUIRE_BROWSER="", REQUIRE_SPAMASSASSIN="0")
    assert result.returncode == 0
    assert result.stderr.count("the tests that need it will be skipped") == 2


def test_other_package_is_installed_if_the_first_cannot(tmp_path: Path) -> None:
    """Not every system has Chromium's headless shell."""
    apt_get = 'case "$*" in *-shell*) echo unknown >&2; exit 100;; esac'
    result = run_ensure_tools(tmp_path, apt_get, REQUIRE_BROWSER="1")
    assert result.returncode == 0
    assert "Installing chromium-headless-shell" in result.stdout
    assert "Installing chromium for the tests" in result.stdout


def test_missing_required_program_fails(tmp_path: Path) -> None:
    """It fails before the tests would."""
    result = run_ensure_tools(tmp_path, REQUIRE_BROWSER="1")
    assert result.returncode == 1
    assert "PAPERBOY_REQUIRE_BROWSER is 1" in result.stderr


def test_configured_browser_is_used(tmp_path: Path) -> None:
    """No other browser is installed."""
    result = run_ensure_tools(tmp_path, CHROMIUM="/opt/chrome", REQUIRE_BROWSER="1")
    assert result.returncode == 0
    assert "chromium" not in result.stdout + result.stderr
