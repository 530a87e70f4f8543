"""Test the doctor's check of the relay. It connects as a sender does and sends no mail."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from app.application import Application
from app.doctor import relay
from app.doctor.findings import Finding, Level
from app.doctor.relay import RelayConnection
from app.doctor.smtp_sink import Sink
from app.errors import Conflict
from app.settings import Settings, SmtpSecurity
from tests.support.mail_server import MailServer

pytestmark = pytest.mark.once

LATER = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


def run_check(settings: Settings, now: datetime = LATER, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    findings = relay.check(settings.model_copy(update=changed), now)
    return {finding.check: finding for finding in findings}


def test_relay_capabilities(settings: Settings) -> None:
    """They decide how emails are sent."""
    with Sink() as sink:
        findings = run_check(settings, smtp_port=sink.port)
    assert {finding.level for finding in findings.values()} == {Level.OK}
    for keyword in ("8BITMIME", "PIPELINING", "SIZE 10240000", "SMTPUTF8"):
        assert keyword in findings["relay"].message
    assert sink.received == []


def test_unreachable_relay(settings: Settings) -> None:
    """The finding names the settings."""
    findings = run_check(settings, smtp_port=1)
    assert [*findings] == ["relay"]
    assert (findings["relay"].level, "PAPERBOY_SMTP_PORT" in findings["relay"].fix) == (Level.ERROR, True)


def test_relay_that_expects_tls_from_the_first_byte(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a TLS handshake, and the doctor for its greeting."""
    monkeypatch.setattr(relay, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert run_check(settings, smtp_port=port)["relay"].fix.endswith("set PAPERBOY_SMTP_SECURITY=tls")
        with_tls = run_check(settings, smtp_port=port, smtp_security=SmtpSecurity.TLS)["relay"]
        assert with_tls.fix.endswith("and the relay itself")


def test_relay_without_pipelining(settings: Settings, mail_server: MailServer) -> None:
    """It is a warning, because sending works."""
    mail_server.offers_pipelining = False
    finding = run_check(settings)["relay speed"]
    assert (finding.level, "PIPELINING" in finding.message) == (Level.WARNING, True)


def test_relay_without_smtputf8(settings: Settings, mail_server: MailServer) -> None:
    """It cannot send to some addresses, which few readers have."""
    mail_server.offers_smtputf8 = False
    finding = run_check(settings)["relay addresses"]
    assert (finding.level, "SMTPUTF8" in finding.message) == (Level.OK, True)


@pytest.mark.parametrize(("size", "level"), [("1000", Level.ERROR), ("0", Level.OK), ("", Level.OK)])
def test_relay_with_a_small_size_limit(size: str, level: Level, settings: Settings) -> None:
    """It would refuse a full digest. A SIZE of 0 or without a value is no limit."""
    with Sink() as sink:
        sink.extensions = ("PIPELINING", f"SIZE {size}".strip())
        assert run_check(settings, smtp_port=sink.port)["relay size"].level is level


def test_small_size_limit_does_not_stop_service_mails(app: Application, settings: Settings) -> None:
    """An email with new links is small."""
    with Sink() as sink:
        sink.extensions = ("PIPELINING", "SIZE 1000")
        relay.require_sending(app.db, settings.model_copy(update={"smtp_port": sink.port}), LATER)
    with pytest.raises(Conflict, match="cannot be used"):
        relay.require_sending(app.db, settings.model_copy(update={"smtp_port": 1}), LATER)


def test_relay_that_refuses_the_sender(settings: Settings, mail_server: MailServer) -> None:
    mail_server.reply("mail", "553 5.7.1 that is not your domain")
    finding = run_check(settings)["relay sender"]
    assert (finding.level, "not your domain" in finding.message) == (Level.ERROR, True)


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
def test_refused_password(settings: Settings) -> None:
    """The finding names the setting and not its value."""
    with MailServer(password="right") as server:
        findings = run_check(settings, smtp_port=server.port, smtp_username="me", smtp_password="hunter2")
    assert (findings["relay"].level, "PAPERBOY_SMTP_PASSWORD" in findings["relay"].fix) == (Level.ERROR, True)
    assert "hunter2" not in str(findings)


# --- TLS


Serve = Callable[..., AbstractContextManager[int]]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trust_authority(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the system trust the authority."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


@pytest.fixture
def start_relay(authority: trustme.CA) -> Serve:
    """Return a function that runs a relay with a certificate and returns its port."""

    @contextmanager
    def served(
        name: str = "127.0.0.1", *, at_once: bool = False, ends: datetime | None = None
    ) -> Iterator[int]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(name, not_after=ends).configure_cert(context)
        with MailServer(tls=context, tls_at_once=at_once) as server:
            yield server.port

    return served


def test_verified_certificate(settings: Settings, start_relay: Serve, trust_authority: None) -> None:
    """Test STARTTLS and TLS from the first byte."""
    for security in (SmtpSecurity.STARTTLS, SmtpSecurity.TLS):
        with start_relay(at_once=security is SmtpSecurity.TLS) as port:
            finding = run_check(settings, smtp_port=port, smtp_security=security)["relay TLS"]
        assert finding.level is Level.OK
        assert "TLSv1.3; the relay's certificate is verified; it is valid until" in finding.message


@pytest.mark.parametrize("security", [SmtpSecurity.STARTTLS, SmtpSecurity.TLS])
def test_untrusted_certificate(security: SmtpSecurity, settings: Settings, start_relay: Serve) -> None:
    """It is an error if the settings require verification, because nothing would be sent."""
    with start_relay(at_once=security is SmtpSecurity.TLS) as port:
        finding = run_check(settings, smtp_port=port, smtp_security=security)["relay"]
    assert (finding.level, "certificate" in finding.fix) == (Level.ERROR, True)


def test_certificate_for_another_name(settings: Settings, start_relay: Serve, trust_authority: None) -> None:
    with start_relay("mail.example.org") as port:
        finding = run_check(settings, smtp_port=port, smtp_security=SmtpSecurity.STARTTLS)["relay"]
    assert (finding.level, "127.0.0.1" in finding.message, "PAPERBOY_SMTP_HOST" in finding.fix) == (
        Level.ERROR,
        True,
        True,
    )


def test_opportunistic_tls_is_reported_as_unverified(settings: Settings, start_relay: Serve) -> None:
    with start_relay("mail.example.org") as port:
        finding = run_check(settings, smtp_port=port, smtp_security=SmtpSecurity.OPPORTUNISTIC)["relay TLS"]
    assert (finding.level, "is not verified" in finding.message) == (Level.OK, True)


def test_certificate_that_expires_soon(settings: Settings, start_relay: Serve) -> None:
    """It is reported two weeks ahead, and without verification after its end."""
    ends = LATER + timedelta(days=5)
    with start_relay(ends=ends) as port:
        opportunistic = {"smtp_port": port, "smtp_security": SmtpSecurity.OPPORTUNISTIC}
        soon = run_check(settings, LATER, **opportunistic)["relay TLS"]
        over = run_check(settings, ends + timedelta(days=1), **opportunistic)["relay TLS"]
    assert (soon.level, over.level) == (Level.WARNING, Level.WARNING)
    assert "expires on 2026-11-25" in soon.message
    assert "expired on" in over.message


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"smtp_security": SmtpSecurity.STARTTLS}, "which PAPERBOY_SMTP_SECURITY requires"),
        (
            {"smtp_security": SmtpSecurity.OPPORTUNISTIC, "smtp_username": "me", "smtp_password": "secret"},
            "which is required because a password is set",
        ),
    ],
)
def test_missing_starttls(settings: Settings, changed: dict[str, object], why: str) -> None:
    """With these settings nothing would be sent. The finding says what to set."""
    with Sink() as sink:
        finding = run_check(settings, smtp_port=sink.port, **changed)["relay"]
    assert finding.level is Level.ERROR
    assert finding.message.endswith(f"cannot be used: it does not offer STARTTLS, {why}")
    assert "set PAPERBOY_SMTP_SECURITY to tls" in finding.fix
    assert " or to none if it is on this machine" in finding.fix


def test_unencrypted_password(settings: Settings) -> None:
    """It is safe only on the same machine."""
    elsewhere = RelayConnection(peer="192.0.2.25", extensions={"PIPELINING": "", "SMTPUTF8": ""})
    new_settings = settings.model_copy(update={"smtp_username": "me", "smtp_password": "secret"})

    def levels(connection: RelayConnection) -> dict[str, Level]:
        return {
            finding.check: finding.level
            for finding in relay.check_connection(connection, new_settings, LATER)
        }

    assert levels(elsewhere)["relay password"] is Level.WARNING
    assert levels(elsewhere)["relay TLS"] is Level.WARNING
    assert "relay password" not in levels(replace(elsewhere, tls="TLSv1.3"))
    assert levels(replace(elsewhere, peer="127.0.0.1")) == {"relay TLS": Level.OK, "relay size": Level.OK}
