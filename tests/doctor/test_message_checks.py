"""Test the doctor's checks of a received email: each kind of fault is found."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

import dkim as verifier
import pytest
from cryptography.hazmat.primitives import serialization

from app import main
from app.cli.doctor import temporary_service
from app.doctor import message_checks, test_mail
from app.doctor.findings import Finding, Level
from app.doctor.message_checks import Mail
from app.doctor.smtp_sink import CapturedMail, Sink
from app.mail import dkim
from app.settings import Settings
from tests.conftest import SECRET

Change = Callable[[bytes], bytes]
CHECKS = (
    "mail headers",
    "mail unsubscribe",
    "mail signatures",
    "mail return path",
    "mail parts",
    "mail lines",
    "mail size",
    "mail content",
)


class TamperingSink(Sink):
    """A sink that changes the emails it receives."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change

    def receive(self, mail: CapturedMail) -> None:
        changed = self.change(mail.raw)
        assert changed != mail.raw, "nothing was changed"
        super().receive(replace(mail, raw=changed))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings with two signing keys."""
    folder = tmp_path_factory.mktemp("keys")
    for algorithm in dkim.Algorithm:
        dkim.create(algorithm, folder / algorithm)
    return Settings(
        _env_file=None,
        secret_keys=(SECRET,),
        base_url="https://paperboy.test",
        from_address="digest@paperboy.test",
        site_name="Zeitung für „Papiere“",
        dkim_keys=tuple(f"{algorithm}1:{folder / algorithm}" for algorithm in dkim.Algorithm),
    )


@pytest.fixture(scope="module")
def mail(settings: Settings) -> Mail:
    """Send a digest as in production, and return it as received."""
    sink = Sink()
    findings = {
        finding.check: finding.level for finding in test_mail.check(settings, temporary_service(), sink)
    }
    assert {level for check, level in findings.items()} == {Level.OK}
    raw = sink.received[0].raw
    assert b"</body>" in raw, "the tests replace this text, so it must not be wrapped"
    signer = main.build_signer(settings)
    return Mail(
        CapturedMail(signer.return_path(1, "paperboy.test"), sink.received[0].recipient, raw),
        settings,
        signer,
    )


def run_check(mail: Mail) -> dict[str, list[Finding]]:
    """Return the findings by check."""
    findings: dict[str, list[Finding]] = {}
    for finding in message_checks.check(mail):
        assert finding.fix or finding.level is Level.OK
        findings.setdefault(finding.check, []).append(finding)
    return findings


def problems_in(mail: Mail, change: Change = lambda raw: raw) -> dict[str, str]:
    """Return the messages of each check that fails after a change of the email."""
    by_check = run_check(replace(mail, received=replace(mail.received, raw=change(mail.received.raw))))
    return {
        check: "; ".join(each.message for each in findings)
        for check, findings in by_check.items()
        if any(each.level is not Level.OK for each in findings)
    }


def replace_text(old: str, new: str) -> Change:
    """Return a change that replaces text everywhere."""
    return lambda raw: raw.replace(old.encode(), new.encode())


def set_header(name: str, value: str | None) -> Change:
    """Return a change that replaces or removes all lines of a header."""
    pattern = re.compile(rb"(?m)^" + name.encode() + rb":.*\r\n(?:[ \t].*\r\n)*")
    line = f"{name}: {value}\r\n".encode() if value is not None else b""
    return lambda raw: pattern.sub(lambda _: line, raw, count=1)


def test_unchanged_mail_has_only_good_findings(mail: Mail) -> None:
    """All checks run."""
    findings = run_check(mail)
    assert problems_in(mail) == {}
    assert [*findings] == [*CHECKS]
    assert findings["mail signatures"][0].message == "signed by rsa1, ed255191, verified by dkimpy"


def test_unsigned_mail_without_keys(mail: Mail, settings: Settings) -> None:
    """There is nothing to verify."""
    unsigned = replace(mail, settings=settings.model_copy(update={"dkim_keys": ()}))
    assert "mail signatures" not in problems_in(unsigned, set_header("DKIM-Signature", None))


def test_received_bytes_are_checked(settings: Settings) -> None:
    """Changes by the relay are found."""
    findings = test_mail.check(
        settings, temporary_service(), TamperingSink(set_header("Subject", "Another one"))
    )
    assert {each.check for each in findings if each.level is not Level.OK} == {"mail signatures"}


# --- headers


@pytest.mark.parametrize("name", message_checks.REQUIRED_HEADERS)
def test_missing_header(name: str, mail: Mail) -> None:
    assert f"no {name} header" in problems_in(mail, set_header(name, None))["mail headers"]


def test_duplicate_header(mail: Mail) -> None:
    """Receivers use either one, and the signatures fail."""
    problems = problems_in(mail, lambda raw: b"Subject: Another\r\n" + raw)
    assert "2 Subject headers" in problems["mail headers"]
    assert "an invalid signature" in problems["mail signatures"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("From", "Somebody <else@paperboy.test>", "instead of digest@paperboy.test"),
        ("Message-ID", "<1@elsewhere.example>", "not on paperboy.test"),
        ("Date", "soon", "invalid Date"),
    ],
)
def test_wrong_header_value(name: str, value: str, expected: str, mail: Mail) -> None:
    assert expected in problems_in(mail, set_header(name, value))["mail headers"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("List-Unsubscribe", "<mailto:a@paperboy.test>", "no http link"),
        ("List-Unsubscribe", "<http://paperboy.test/u>, <mailto:a@b.c>", "no https link"),
        ("List-Unsubscribe", "<https://elsewhere.example/u>, <mailto:a@b.c>", "does not link to"),
        ("List-Unsubscribe", "<https://paperboy.test/unsubscribe/x>", "no mailto link"),
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Klick", "not “List-Unsubscribe=One-Klick”"),
    ],
)
def test_invalid_unsubscribe_headers(name: str, value: str, expected: str, mail: Mail) -> None:
    """They must follow RFC 8058 exactly."""
    assert expected in problems_in(mail, set_header(name, value))["mail unsubscribe"]


def test_unsubscribe_url_without_https_is_a_warning(mail: Mail) -> None:
    """It is sufficient for trying the service; the fix names the setting."""
    settings = mail.settings.model_copy(update={"base_url": "http://127.0.0.1:8000"})
    change = set_header("List-Unsubscribe", "<http://127.0.0.1:8000/unsubscribe/x>, <mailto:a@b.c>")
    changed = replace(mail, settings=settings, received=replace(mail.received, raw=change(mail.received.raw)))
    (finding,) = run_check(changed)["mail unsubscribe"]
    assert (finding.level, "PAPERBOY_BASE_URL" in finding.fix) == (Level.WARNING, True)


# --- signatures


@pytest.mark.parametrize(
    "change",
    [
        set_header("Subject", "Another one"),
        set_header("To", "mallory@example.org"),
        set_header("List-Unsubscribe-Post", None),
        replace_text("</html>", "<b>more</b></html>"),
    ],
)
def test_broken_signatures(change: Change, mail: Mail) -> None:
    """They are reported for each key."""
    problems = problems_in(mail, change)["mail signatures"]
    assert "invalid signature by key rsa1" in problems
    assert "invalid signature by key ed255191" in problems


def test_missing_signature(mail: Mail) -> None:
    """The other one is valid."""
    problems = problems_in(
        mail, lambda raw: re.sub(rb"DKIM-Signature:.*\r\n(?:[ \t].*\r\n)*", b"", raw, count=1)
    )
    assert problems["mail signatures"].startswith("the email is not signed by key")
    assert ";" not in problems["mail signatures"]


def test_signature_by_another_key(mail: Mail, tmp_path: Path) -> None:
    """It verifies, but the key is not that of the settings."""
    dkim.create(dkim.Algorithm.RSA, tmp_path / "other")
    other = mail.settings.model_copy(update={"dkim_keys": (f"rsa1:{tmp_path / 'other'}",)})
    assert "an invalid signature" in problems_in(replace(mail, settings=other))["mail signatures"]


def test_incomplete_signature(mail: Mail) -> None:
    """It verifies, but allows changing the unsubscribe link or adding to the email."""
    problems = problems_in(mail, add_signature(mail, (b"From", b"To", b"Subject", b"Date"), length=True))[
        "mail signatures"
    ]
    assert "invalid signature" not in problems
    assert "does not cover list-unsubscribe, list-unsubscribe-post, message-id" in problems
    assert "(l=)" in problems


def test_signature_for_another_domain(mail: Mail) -> None:
    """DMARC does not count it."""
    problems = problems_in(
        mail, add_signature(mail, message_checks.MUST_BE_SIGNED, domain="news.paperboy.test")
    )["mail signatures"]
    assert "for news.paperboy.test, which is not the From domain" in problems


def add_signature(
    mail: Mail, names: Iterable[bytes | str], *, domain: str = "paperboy.test", length: bool = False
) -> Change:
    """Return a change that adds another signature by our RSA key before all others."""
    private = serialization.load_pem_private_key(
        Path(mail.settings.dkim_keys[0].partition(":")[2]).read_bytes(), password=None
    )
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    covered = [name if isinstance(name, bytes) else name.encode() for name in names]

    def change(raw: bytes) -> bytes:
        bare = raw[re.match(rb"(?:DKIM-Signature:.*\r\n(?:[ \t].*\r\n)*)*", raw).end() :]  # type: ignore[union-attr]
        return cast("bytes", verifier.sign(
            bare, b"rsa1", domain.encode(), pem, include_headers=covered, length=length,
            canonicalize=(b"relaxed", b"relaxed"),
        )) + bare  # fmt: skip

    return change


# --- envelope and body


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        ("bounce+aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@paperboy.test", "we did not sign"),
        ("", "we did not sign"),
        ("{ours}@elsewhere.example", "not on paperboy.test"),
    ],
)
def test_wrong_return_path(sender: str, expected: str, mail: Mail) -> None:
    """Bounces would be lost, or assigned to another email."""
    local_part = mail.signer.return_path(1, "paperboy.test").partition("@")[0]
    changed = replace(mail, received=replace(mail.received, sender=sender.format(ours=local_part)))
    assert expected in problems_in(changed)["mail return path"]


PLAIN = re.compile(rb"(?s)(Content-Type: text/plain.*?\r\n\r\n)(.*?)(\r\n--=_)")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            replace_text("Content-Type: text/plain", "Content-Type: text/html"),
            "has the parts text/html, text/html",
        ),
        (replace_text("multipart/alternative", "multipart/mixed"), "instead of text/plain and text/html"),
        (lambda raw: PLAIN.sub(rb"\1 \3", raw), "an empty text part"),
        (lambda raw: PLAIN.sub(rb"\1Papers.\3", raw), "a text part without the unsubscribe link"),
    ],
)
def test_missing_or_empty_part(change: Change, expected: str, mail: Mail) -> None:
    """Some readers see only the text part."""
    assert expected in problems_in(mail, change)["mail parts"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda raw: raw.replace(b"\r\n", b"\n", 1), "bare CR or LF"),
        (lambda raw: raw.replace(b"\r\n\r\n", b"\r\n\r\n\r", 1), "bare CR or LF"),
        (
            lambda raw: raw.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"x" * 1000 + b"\r\n\r\n", 1),
            "1,008 octets",
        ),
        (lambda raw: raw.replace(b"\r\n\r\n", b"\r\nX-Umlaut: \xc3\xa4\r\n\r\n", 1), "non-ASCII"),
    ],
)
def test_invalid_lines(change: Change, expected: str, mail: Mail) -> None:
    """Servers refuse such lines."""
    assert expected in problems_in(mail, change)["mail lines"]


def test_mail_above_size_limits(mail: Mail) -> None:
    """Check the limits of Gmail and of the relay."""
    problems = problems_in(mail, replace_text("</body>", "<p>much more</p>\r\n" * 20_000 + "</body>"))[
        "mail size"
    ]
    assert "Gmail clips" in problems
    assert "octets; relays" in problems


@pytest.mark.parametrize(
    "loaded",
    [
        '<img src="https://track.example/1.gif">',
        '<img srcset="//track.example/1.gif 2x">',
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<table background="http://track.example/1.png">',
        '<td style="background: url(https://track.example/1.png)">',
        '<style>@import "https://fonts.example/css";</style>',
        "<script>alert(1)</script>",
        '<!--[if mso]><img src="http://track.example/1.gif"><![endif]-->',
    ],
)
def test_external_resources(loaded: str, mail: Mail) -> None:
    """Their server would learn who reads an email, and when."""
    encoded = loaded.replace("=", "=3D")
    assert "loads" in problems_in(mail, replace_text("</body>", f"\r\n{encoded}\r\n</body>"))["mail content"]


def test_embedded_resources(mail: Mail) -> None:
    """An attached image loads nothing."""
    inside = '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><a href="https://arxiv.org/">x</a>'
    assert "mail content" not in problems_in(
        mail, replace_text("</body>", inside.replace("=", "=3D") + "</body>")
    )
