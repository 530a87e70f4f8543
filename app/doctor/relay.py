"""The relay: reached as a sender reaches it, and asked what it can do. No mail is sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import cast

import aiosmtplib
from cryptography import x509

from app.delivery.smtp import connection_pool
from app.delivery.smtp.connection import Timeouts
from app.doctor.findings import Finding, error, warning, well
from app.links import LinkSigner
from app.settings import Settings, SmtpSecurity

PATIENCE = 8.0  # seconds; a sender waits longer
LARGE_MAIL = 250_000  # octets: a digest of the largest HTML, encoded, with its text part and signatures
SOON = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a connection showed."""

    peer: str  # the address at the other end
    announced: Mapping[str, str] = field(default_factory=dict)  # by keyword in upper case: its parameters
    tls: str = ""  # its version, empty without
    certificate: x509.Certificate | None = None
    refused_sender: str = ""  # what was answered to a return path of ours, where it was not taken

    @property
    def is_here(self) -> bool:
        """Nobody listens between us and this very machine."""
        return ip_address(self.peer).is_loopback


def look(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Connect, log in, name a sender, and leave."""
    where = f"{settings.smtp_host}:{settings.smtp_port}"
    try:
        seen = asyncio.run(_visit(settings))
    except (OSError, ValueError, aiosmtplib.SMTPException) as fault:
        yield _unusable(where, settings, fault)
    else:
        announced = ", ".join(f"{name} {said}".strip() for name, said in seen.announced.items())
        yield well("relay", f"{where} answers; it announces {announced or 'nothing'}")
        yield from judge(seen, settings, now)


async def _visit(settings: Settings) -> Seen:
    security = settings.relay_security
    tls = None if security is SmtpSecurity.NONE else connection_pool.tls_context(security)
    async with asyncio.timeout(PATIENCE):
        client = await connection_pool.open_client(settings, Timeouts(), tls)
        try:
            return await _see(client, settings)
        finally:
            if client.transport:  # closing it in good form, by TLS, would outlive this loop
                cast("asyncio.Transport", client.transport).abort()


async def _see(client: aiosmtplib.SMTP, settings: Settings) -> Seen:
    session = client.get_transport_info("ssl_object")
    return Seen(
        peer=client.get_transport_info("peername")[0],
        announced={name.upper(): said for name, said in sorted(client.esmtp_extensions.items())},
        tls=session.version() if session else "",
        certificate=_certificate(session) if session else None,
        refused_sender=await _name_sender(client, settings),
    )


def _certificate(session: ssl.SSLObject) -> x509.Certificate | None:
    shown = session.getpeercert(binary_form=True)  # there whether or not it was verified
    return x509.load_der_x509_certificate(shown) if shown else None


async def _name_sender(client: aiosmtplib.SMTP, settings: Settings) -> str:
    """Begin a mail from a return path of ours, and let it be."""
    domain = settings.mail_domain
    try:
        await client.mail(LinkSigner(settings.secret_keys, settings.base_url).return_path(0, domain))
        await client.execute_command(b"QUIT")
    except aiosmtplib.SMTPResponseException as refusal:
        return f"{refusal.code} {refusal.message}"
    return ""


def _unusable(where: str, settings: Settings, fault: Exception) -> Finding:
    said = f"{where} cannot be used: {_words(fault)}"
    if isinstance(fault, aiosmtplib.SMTPAuthenticationError):
        said = f"{where} refused the password ({fault.code})"
        return error("relay", said, "check PAPERBOY_SMTP_USERNAME and PAPERBOY_SMTP_PASSWORD")
    if "CERTIFICATE_VERIFY_FAILED" in said:
        fix = (
            f"give the relay a certificate for {settings.smtp_host} by an authority that this machine trusts"
        )
        return error("relay", said, f"{fix}, or set PAPERBOY_SMTP_HOST to the name that its certificate has")
    fix = "check PAPERBOY_SMTP_HOST, PAPERBOY_SMTP_PORT, PAPERBOY_SMTP_SECURITY, and that the relay runs"
    return error("relay", said, fix)


def _words(fault: Exception) -> str:
    if isinstance(fault, TimeoutError):
        return f"no answer within {PATIENCE:g} seconds"
    return " ".join(str(fault).split()) or type(fault).__name__


def judge(seen: Seen, settings: Settings, now: datetime) -> Iterator[Finding]:
    """What there is to say of what a connection showed."""
    if seen.refused_sender:
        yield error(
            "relay sender",
            f"a mail of ours would be refused: {seen.refused_sender}",
            "let the relay accept this machine and return paths on the domain of PAPERBOY_FROM_ADDRESS, or "
            "log in by PAPERBOY_SMTP_USERNAME and PAPERBOY_SMTP_PASSWORD",
        )
    yield from _judge_tls(seen, settings, now)
    yield _judge_size(seen)
    if "PIPELINING" not in seen.announced:
        yield warning(
            "relay speed",
            "does not announce PIPELINING: every mail costs four round trips instead of one",
            "use a relay that does (Postfix and Exim do), without a firewall that filters its commands",
        )


def _judge_tls(seen: Seen, settings: Settings, now: datetime) -> Iterator[Finding]:
    if seen.tls:
        yield _judge_certificate(seen, settings, now)
    elif seen.is_here:
        yield well("relay TLS", "none, and none is needed: the relay is on this machine")
    else:
        yield warning(
            "relay TLS",
            "none: whoever is on the way reads the mails, and may use the links in them",
            "let the relay offer STARTTLS, and set PAPERBOY_SMTP_SECURITY to starttls (tls on port 465)",
        )
    if settings.smtp_username and not seen.tls and not seen.is_here:
        yield warning(
            "relay password",
            "is sent in clear: whoever is on the way can send in your name",
            "set PAPERBOY_SMTP_SECURITY to starttls or tls, and then choose a new password",
        )


def _judge_certificate(seen: Seen, settings: Settings, now: datetime) -> Finding:
    verified = settings.relay_security is not SmtpSecurity.OPPORTUNISTIC
    said = f"{seen.tls}, " + (
        "and the relay's certificate is verified" if verified else "with whoever answers"
    )
    ends = seen.certificate.not_valid_after_utc if seen.certificate else None
    until = f"{ends:%Y-%m-%d}" if ends else ""
    if ends and ends < now + SOON:
        passed = "ended" if ends < now else "ends"
        return warning(
            "relay TLS", f"{said}; the certificate {passed} on {until}", "renew the relay's certificate"
        )
    said += f", valid until {until}" if until and verified else ""
    if verified or seen.is_here:
        return well("relay TLS", said)
    advice = "PAPERBOY_SMTP_SECURITY=starttls verifies the relay's certificate, too"
    return well("relay TLS", f"{said}: its certificate, until {until}, is not verified", advice)


def _judge_size(seen: Seen) -> Finding:
    """RFC 1870: no number, or 0, says nothing of a limit."""
    size = seen.announced.get("SIZE", "").strip()
    most = int(size) if size.isascii() and size.isdigit() else 0
    if 0 < most < LARGE_MAIL:
        said = f"takes mails up to {most:,} octets; a full digest may have {LARGE_MAIL:,}"
        return error("relay size", said, "raise the relay's limit (Postfix: message_size_limit)")
    return well(
        "relay size", f"takes mails up to {most:,} octets" if most else "names no limit to a mail's size"
    )
