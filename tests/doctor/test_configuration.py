"""Test the doctor's checks of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

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
    (finding,) = configuration.unknown_settings({"PAPERBOY_XYZZY": "hunter2"}, tmp_path / "none")
    assert (finding.level, ".env.example" in finding.fix) == (Level.WARNING, True)
    assert "hunter2" not in str(finding)


# --- folders and keys


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


def test_valid_keys(settings: Settings, tmp_path: Path) -> None:
    """Test both algorithms."""
    for algorithm in dkim.Algorithm:
        dkim.create(algorithm, tmp_path / algorithm)
        findings = run_check(settings, dkim_keys=(f"s1:{tmp_path / algorithm}",))["dkim key s1"]
        assert (findings.level, algorithm in findings.message) == (Level.OK, True)


def test_unusable_key(settings: Settings, tmp_path: Path) -> None:
    """The file is missing or not a key; the others are checked nevertheless."""
    (tmp_path / "text").write_text("no key")
    findings = run_check(settings, dkim_keys=(f"gone:{tmp_path}/gone", f"text:{tmp_path}/text"))
    assert findings["dkim key gone"].level is findings["dkim key text"].level is Level.ERROR
    assert "paperboy key dkim" in findings["dkim key gone"].fix


def test_key_readable_by_others(settings: Settings, tmp_path: Path) -> None:
    """Anyone with the key can sign as this domain."""
    path = tmp_path / "a key"
    dkim.create(dkim.Algorithm.ED25519, path)
    path.chmod(0o640)
    findings = run_check(settings, dkim_keys=(f"s1:{path}",))["dkim key s1"]
    assert (findings.level, f"chmod 600 '{path}'" in findings.fix) == (Level.WARNING, True)


def test_unusable_key_readable_by_others(settings: Settings, tmp_path: Path) -> None:
    """Both faults are reported: a key that is repaired in place stays readable."""
    path = tmp_path / "broken"
    path.write_text("no key")
    path.chmod(0o644)
    changed = settings.model_copy(update={"dkim_keys": (f"s1:{path}",)})
    findings = [finding for finding in configuration.check(changed) if finding.check == "dkim key s1"]
    assert [finding.level for finding in findings] == [Level.WARNING, Level.ERROR]
    assert f"chmod 600 {path}" in findings[0].fix


def test_short_key(settings: Settings, tmp_path: Path) -> None:
    """1024 bits still sign, and not every provider counts it."""
    path = tmp_path / "short"
    path.touch(mode=0o600)
    path.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=1024).private_bytes(  # noqa: S505
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    findings = run_check(settings, dkim_keys=(f"s1:{path}",))["dkim key s1"]
    assert (findings.level, "1024 bits" in findings.message) == (Level.WARNING, True)


def test_disabled_presigning(settings: Settings, tmp_path: Path) -> None:
    """It is reported only if there is a key."""
    dkim.create(dkim.Algorithm.ED25519, tmp_path / "key")
    keys = (f"s1:{tmp_path / 'key'}",)
    check = "compose_ahead_minutes"
    assert run_check(settings, compose_ahead_minutes=0)[check].level is Level.OK
    assert run_check(settings, compose_ahead_minutes=0, dkim_keys=keys)[check].level is Level.WARNING
    assert run_check(settings, compose_ahead_minutes=20, dkim_keys=keys)[check].level is Level.OK
