"""Test the doctor's check of the operator's own templates."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from app.doctor import configuration
from app.doctor.findings import Finding, Level
from app.settings import Settings


def check(settings: Settings, folder: Path, files: Mapping[str, str]) -> list[Finding]:
    """Write files to a folder, and check them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    own = settings.model_copy(update={"templates_dir": str(folder)})
    return [finding for finding in configuration.check(own) if finding.check == "templates_dir"]


def test_own_templates_are_counted(settings: Settings, tmp_path: Path) -> None:
    """Files of Git and editors are no templates. Without the setting, nothing is reported."""
    files = {"email/confirm/body.txt": "Hello", "web/.home.html.swp": "", ".git/config": ""}
    (finding,) = check(settings, tmp_path, files)
    assert (finding.level, finding.message) == (Level.OK, f"1 template of your own in {tmp_path}")
    assert "templates_dir" not in {finding.check for finding in configuration.check(settings)}


@pytest.mark.parametrize(
    ("file", "similar"),
    [
        ("email/confirm/boddy.txt", "email/confirm/body.txt"),
        ("confirm/body.txt", "email/confirm/body.txt"),
        ("web/home.htm", "web/home.html"),
    ],
)
def test_file_that_replaces_nothing(settings: Settings, tmp_path: Path, file: str, similar: str) -> None:
    """A misspelt name, or one in the wrong folder, has a suggestion."""
    finding, _ = check(settings, tmp_path, {file: "Hello"})
    assert (finding.level, finding.fix) == (Level.WARNING, f"did you mean {similar}?")
    assert finding.message.startswith(f"{file} replaces no template")


def test_included_file_is_used(settings: Settings, tmp_path: Path) -> None:
    """Own templates may share a part that the release does not have."""
    files = {"web/home.html": '{% include "logo.html" %}', "web/logo.html": "<p>Logo</p>"}
    (finding,) = check(settings, tmp_path, files)
    assert (finding.level, "2 templates" in finding.message) == (Level.OK, True)


def test_unreadable_templates(settings: Settings, tmp_path: Path) -> None:
    """A missing folder and a file in another encoding are errors."""
    (finding,) = check(settings, tmp_path / "missing", {})
    assert (finding.level, "there is no folder" in finding.message) == (Level.ERROR, True)
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "home.html").write_bytes("Zürich".encode("latin-1"))
    (finding,) = check(settings, tmp_path, {})
    assert (finding.level, "web/home.html" in finding.message) == (Level.ERROR, True)
