"""Test the list of settings that operators read."""

import re
from pathlib import Path

import pytest

from app import settings
from app.effective_settings import HIDDEN, list_effective
from app.settings import Settings

SECRET = "f4b1c79ad0e34e0b8a6d2a5c9b7e8f10"


@pytest.fixture(autouse=True)
def _clear_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove this machine's environment variables and `.env`."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PAPERBOY_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


def test_every_setting_that_may_be_secret_is_hidden() -> None:
    """A new setting with such a name is hidden, or listed here because it is public."""
    public = {"dkim_keys"}  # names of files
    names = [
        name
        for name in Settings.model_fields
        if re.search("secret|password|username|token|key|mailbox", name) and name not in public
    ]
    public_names = {each.name for each in list_effective(Settings(_env_file=None)) if not each.secret}
    assert not public_names.intersection(f"PAPERBOY_{name.upper()}" for name in names)


def test_effective_settings_say_what_differs() -> None:
    """Lists are lists, and choices are their names."""
    loaded = settings.load(secret_keys=(SECRET,), smtp_port=587, smtp_security="tls", arxiv_categories=())
    listed = {each.name: each for each in list_effective(loaded)}
    port, secret = listed["PAPERBOY_SMTP_PORT"], listed["PAPERBOY_SECRET_KEYS"]
    assert (port.value, port.default, port.changed) == (587, 25, True)
    assert (secret.value, secret.default, secret.changed) == (HIDDEN, [], True)
    assert listed["PAPERBOY_SMTP_SECURITY"].value == "tls"
    assert listed["PAPERBOY_ARXIV_CATEGORIES"].value == []
    assert listed["PAPERBOY_SMTP_PASSWORD"].value == ""
    changed = {name for name, each in listed.items() if each.changed}
    assert changed == {
        "PAPERBOY_SECRET_KEYS", "PAPERBOY_SMTP_PORT", "PAPERBOY_SMTP_SECURITY", "PAPERBOY_ARXIV_CATEGORIES",
    }  # fmt: skip
