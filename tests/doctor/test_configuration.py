"""Test the doctor's checks of the settings."""

from pathlib import Path

import pytest

from app.doctor import configuration
from app.doctor.findings import Finding, Level
from app.mail import dkim
from app.settings import Settings


def run_check(settings: Settings, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    return {finding.check: finding for finding in configuration.check(settings.model_copy(update=changed))}


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"base_url": "http://paperboy.test"}, "base_url"),
        ({"from_address": "paperboy@localhost.localdomain"}, "from_address"),
        ({"from_address": "paperboy@intranet"}, "from_address"),
        ({"postal_address": ""}, "postal_address"),
        ({"contact_address": ""}, "contact_address"),
    ],
)
def test_invalid_settings(changed: dict[str, object], check: str, settings: Settings) -> None:
    """Each has a fix."""
    finding = run_check(settings, **changed)[check]
    assert finding.level is Level.WARNING
    assert f"PAPERBOY_{check.upper()}" in finding.fix


def test_base_url_with_a_path(settings: Settings) -> None:
    """Emails link below the path, but pages link to the root of the host."""
    finding = run_check(settings, base_url="https://lab.example.org/papers")["base_url"]
    assert (finding.level, "the path /papers" in finding.message) == (Level.ERROR, True)
    assert "PAPERBOY_BASE_URL" in finding.fix


# --- names


def test_misspelt_setting_has_a_suggestion(tmp_path: Path) -> None:
    """Unknown names are ignored otherwise. Test the environment and `.env` in any case."""
    env = tmp_path / ".env"
    env.write_text("# PAPERBOY_COMMENT=1\nPAPERBOY_FROM_ADRESS=a@b.c\npaperboy_site_name=Ours\nOTHER=1\n")
    environ = {"PAPERBOY_SMPT_HOST": "mail", "paperboy_smtp_prot": "25", "PAPERBOY_SMTP_USERNAME": "me"}
    findings = {finding.check: finding for finding in configuration.unknown_settings(environ, env)}
    assert {check: finding.fix for check, finding in findings.items()} == {
        "setting PAPERBOY_SMPT_HOST": "did you mean PAPERBOY_SMTP_HOST?",
        "setting paperboy_smtp_prot": "did you mean PAPERBOY_SMTP_PORT?",
        "setting PAPERBOY_FROM_ADRESS": "did you mean PAPERBOY_FROM_ADDRESS?",
    }
    assert "the environment" in findings["setting PAPERBOY_SMPT_HOST"].message
    assert str(env) in findings["setting PAPERBOY_FROM_ADRESS"].message


def test_unknown_setting_is_shown_without_its_value(tmp_path: Path) -> None:
    """It may be a secret."""
    (finding,) = configuration.unknown_settings({"PAPERBOY_FOO": "hunter2"}, tmp_path / "none")
    assert (finding.level, ".env.example" in finding.fix) == (Level.WARNING, True)
    assert "hunter2" not in str(finding)


# --- folders and presigning


@pytest.mark.parametrize("name", ["journal_dir", "search_dir"])
def test_unwritable_folder(settings: Settings, tmp_path: Path, name: str) -> None:
    """A folder that does not exist yet is fine, and the doctor does not create it."""
    (tmp_path / "file").write_text("")
    blocked = run_check(settings, **{name: str(tmp_path / "file" / "journal")})[name]
    assert (blocked.level, f"PAPERBOY_{name.upper()}" in blocked.fix) == (Level.ERROR, True)
    (tmp_path / "other").write_text("")
    assert run_check(settings, **{name: str(tmp_path / "other")})[name].level is Level.ERROR
    assert run_check(settings, **{name: str(tmp_path / "new" / "journal")})[name].level is Level.OK
    assert not (tmp_path / "new").exists()


def test_disabled_presigning(settings: Settings, tmp_path: Path) -> None:
    """It is reported only if there is a key."""
    dkim.create(dkim.Algorithm.ED25519, tmp_path / "key")
    keys = (f"s1:{tmp_path / 'key'}",)
    check = "compose_ahead_minutes"
    assert run_check(settings, compose_ahead_minutes=0)[check].level is Level.OK
    assert run_check(settings, compose_ahead_minutes=0, dkim_keys=keys)[check].level is Level.WARNING
    assert run_check(settings, compose_ahead_minutes=20, dkim_keys=keys)[check].level is Level.OK
