"""Test the doctor's checks of DKIM keys. test_dns_records.py tests the check of their DNS records."""

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from app.doctor import configuration
from app.doctor.findings import Finding, Level
from app.mail import dkim
from app.settings import Settings


def run_check(settings: Settings, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    return {finding.check: finding for finding in configuration.check(settings.model_copy(update=changed))}


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
