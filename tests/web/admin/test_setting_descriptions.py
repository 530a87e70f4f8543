"""Test that the settings page explains each setting."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from app.settings import Settings
from app.web.admin import setting_descriptions
from app.web.admin.setting_descriptions import DescribedSettings, SettingGroup
from tests.web.admin.conftest import Desk

EXAMPLE = """\
# All settings. Copy those that you change.

# ── The relay ──────
# The server that
# accepts emails.
A_HOST=127.0.0.1
A_PORT=25
# A password.
A_PASSWORD=

# ── Limits ──────
# The most.
A_MOST=3
"""


def test_comments_are_parsed() -> None:
    """A comment of several lines explains the settings after it, up to the next one."""
    assert setting_descriptions.parse(EXAMPLE) == [
        SettingGroup(
            "The relay",
            [
                DescribedSettings("The server that accepts emails.", ["A_HOST", "A_PORT"]),
                DescribedSettings("A password.", ["A_PASSWORD"]),
            ],
        ),
        SettingGroup("Limits", [DescribedSettings("The most.", ["A_MOST"])]),
    ]


def test_every_setting_is_explained(sign_in: Callable[..., Desk]) -> None:
    """Each is listed once, in its group, and the overview can link to it."""
    page = sign_in().get("/admin/settings").text
    assert re.findall(r'<tr id="PAPERBOY_(\w+)">', page) == [name.upper() for name in Settings.model_fields]
    assert re.findall(r'<h2 id="group\d+">([^<]+)</h2>', page)[:3] == ["The sender", "Secrets", "Storage"]
    assert "The address at which subscribers reach the web app." in page
    assert "Create a key with <code>paperboy key secret</code>." in page


@pytest.mark.parametrize(
    ("example", "headings"),
    [
        (None, ["All settings"]),
        ("", ["All settings"]),
        (
            "# ── The sender ──\n# The address.\nPAPERBOY_BASE_URL=\nPAPERBOY_REMOVED=1\n",
            ["The sender", "Other settings"],
        ),
        ("# ── The sender ──\nPAPERBOY_BASE_URL=\nPAPERBOY_BASE_URL=x\n", ["The sender", "Other settings"]),
        ("# ── Removed ──\n# The number.\nPAPERBOY_REMOVED=1\n", ["All settings"]),
    ],
)
def test_example_of_another_release(
    sign_in: Callable[..., Desk],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    example: str | None,
    headings: list[str],
) -> None:
    """Each setting in effect is listed once, also if the file is missing or names other settings."""
    if example is not None:
        (tmp_path / ".env.example").write_text(example, "utf-8")
    monkeypatch.setattr(setting_descriptions, "ROOT", tmp_path)
    setting_descriptions.described_groups.cache_clear()
    page = sign_in().get("/admin/settings").text
    setting_descriptions.described_groups.cache_clear()
    listed = re.findall(r'<tr id="PAPERBOY_(\w+)">', page)
    assert sorted(listed) == sorted(name.upper() for name in Settings.model_fields)
    assert re.findall(r'<h2 id="group\d+">([^<]+)</h2>', page) == headings
