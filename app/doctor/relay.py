"""Check the relay: connect as a sender does, and read its announced extensions. No mail is sent."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import cast

import aiosmtplib
from cryptography import x509

from app.delivery import ledger
from app.delivery.smtp import handshake
from app.delivery.smtp.timeouts import Timeouts
from app.doctor.findings import Finding, Level, error, ok, warning
from app.errors import Conflict
from app.links import LinkSigner
from app.settings import Settings, SmtpSecurity
from app.storage.database import Database

TIMEOUT = 8.0  # seconds; a sender waits longer
LARGE_MAIL = 250_000  # octets: a digest with the largest HTML (encoded), a text part and signatures
CERTIFICATE_EXPIRES_SOON = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class RelayConnection:
    peer: str  # IP address
    extensions: Mapping[str, str] = field(default_factory=dict)  # parameters, keyed by upper-case keyword
    tls: str = ""  # TLS version; empty if TLS is not used
    certificate: x509.Certificate | None = None
    sender_rejection: str = ""  # the relay's reply if it refused our return path

    @property
    def is_local(self) -> bool:
        return ip_address(self.peer).is_loopback


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Connect, log in, send MAIL FROM with one of our return paths, and quit."""
    address = f"{settings.smtp_host}:{settings.smtp_port}"
    try:
        connection = asyncio.run(_connect(settings))
    except aiosmtplib.SMTPAuthenticationError as fault:
        message = f"{address} refused the password ({fault.code})"
        yield error("relay", message, "check PAPERBOY_SMTP_USERNAME and PAPERBOY_SMTP_PASSWORD")
    except (OSError, ValueError, aiosmtplib.SMTPException) as fault:
        timed_out = isinstance(fault, TimeoutError)
        text = " ".join(str(fault).split()) or type(fault).__name__
        reason = f"no reply within {TIMEOUT:g} seconds" if timed_out else text
        fix = "check PAPERBOY_SMTP_HOST, PAPERBOY_SMTP_PORT, PAPERBOY_SMTP_SECURITY, and the relay itself"
        if timed_out and settings.relay_security is not SmtpSecurity.TLS:
            fix += "; if it expects TLS from the first byte, as on port 465, set PAPERBOY_SMTP_SECURITY=tls"
        elif "CERTIFICATE_VERIFY_FAILED" in reason:
            fix = (
                f"give the relay a certificate for {settings.smtp_host} from an authority that this machine "
                "trusts, or set PAPERBOY_SMTP_HOST to the name in its certificate"
            )
        elif "STARTTLS extension not supported" in reason:
            is_chosen = settings.smtp_security is SmtpSecurity.STARTTLS
            reason = "it does not offer STARTTLS, which " + (
                "PAPERBOY_SMTP_SECURITY requires" if is_chosen else "is required because a password is set"
            )
            fix = (
                "set PAPERBOY_SMTP_SECURITY to tls if it expects TLS from the first byte, as on port 465, or "
                "to none if it is on this machine; otherwise, let the relay offer STARTTLS"
            )
        yield error("relay", f"{address} cannot be used: {reason}", fix)
    else:
        extensions = ", ".join(f"{name} {value}".strip() for name, value in connection.extensions.items())
        yield ok("relay", f"{address} answers; it announces {extensions or 'no extensions'}")
        yield from check_connection(connection, settings, now)


def require_sending(db: Database, settings: Settings, now: datetime) -> None:
    """Raise Conflict if no mail can be sent now, because sending is paused or the relay cannot be used."""
    with db.read() as session:
        everything = (each for each in ledger.pauses(session) if each.edition == ledger.ALL_EDITIONS)
        reasons = [f"all sending is paused: {each.reason}" for each in everything]
    # Other errors, such as a size limit that is too low for a full digest, do not prevent sending.
    reasons = reasons or [
        each.message
        for each in check(settings, now)
        if each.level is Level.ERROR and each.check in ("relay", "relay sender")
    ]
    if reasons:
        raise Conflict(f"nothing was changed, because no mail can be sent now: {reasons[0]}")


async def _connect(settings: Settings) -> RelayConnection:
    """Connect, send MAIL FROM with one of our return paths, and quit. Return the connection's properties."""
    security = settings.relay_security
    context = None if security is SmtpSecurity.NONE else handshake.tls_context(security)
    async with asyncio.timeout(TIMEOUT):
        client = await handshake.open_client(settings, Timeouts(), context)
        try:
            tls = client.get_transport_info("ssl_object")
            # The certificate is available even if it was not verified.
            certificate = tls.getpeercert(binary_form=True) if tls else None
            connection = RelayConnection(
                peer=client.get_transport_info("peername")[0],
                extensions={name.upper(): value for name, value in sorted(client.esmtp_extensions.items())},
                tls=tls.version() if tls else "",
                certificate=x509.load_der_x509_certificate(certificate) if certificate else None,
            )
            signer = LinkSigner(settings.secret_keys, settings.base_url, lifetimes={})
            try:
                await client.mail(signer.return_path(0, settings.mail_domain))
                await client.execute_command(b"QUIT")
            except aiosmtplib.SMTPResponseException as refusal:
                return replace(connection, sender_rejection=f"{refusal.code} {refusal.message}")
            return connection
        finally:
            if client.transport:  # a clean TLS shutdown would outlive this event loop
                cast("asyncio.Transport", client.transport).abort()


def check_connection(connection: RelayConnection, settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check that the relay accepts our return path. Check its TLS, size limit, PIPELINING and SMTPUTF8."""
    if connection.sender_rejection:
        yield error(
            "relay sender",
            f"the relay refuses our return path: {connection.sender_rejection}",
            "let the relay accept this machine and return paths on the domain of PAPERBOY_FROM_ADDRESS, or "
            "set PAPERBOY_SMTP_USERNAME and PAPERBOY_SMTP_PASSWORD",
        )
    yield from _check_tls(connection, settings, now)
    # A missing number or 0 means that no limit is announced (RFC 1870).
    size = connection.extensions.get("SIZE", "").strip()
    limit = int(size) if size.isascii() and size.isdigit() else 0
    if 0 < limit < LARGE_MAIL:
        message = f"it accepts emails up to {limit:,} octets; a full digest may have {LARGE_MAIL:,}"
        yield error("relay size", message, "raise the relay's limit (Postfix: message_size_limit)")
    else:
        yield ok(
            "relay size", f"it accepts emails up to {limit:,} octets" if limit else "it announces no limit"
        )
    if "PIPELINING" not in connection.extensions:
        yield warning(
            "relay speed",
            "it does not announce PIPELINING: each email takes four round trips instead of one",
            "use a relay with PIPELINING, such as Postfix, without a firewall that filters SMTP commands",
        )
    if "SMTPUTF8" not in connection.extensions:
        yield ok(
            "relay addresses",
            "it does not announce SMTPUTF8: addresses with letters outside ASCII before the @ get no email",
            "if your readers have such addresses, use a relay with SMTPUTF8",
        )


def _check_tls(connection: RelayConnection, settings: Settings, now: datetime) -> Iterator[Finding]:
    if connection.tls:
        verified = settings.relay_security is not SmtpSecurity.OPPORTUNISTIC
        certificate = connection.certificate
        expiry = certificate.not_valid_after_utc if certificate else None
        message = f"{connection.tls}; the relay's certificate is {'verified' if verified else 'not verified'}"
        if expiry and expiry < now + CERTIFICATE_EXPIRES_SOON:
            verb = "expired" if expiry < now else "expires"
            yield warning("relay TLS", f"{message}; it {verb} on {expiry:%Y-%m-%d}", "renew the certificate")
        else:
            message += f"; it is valid until {expiry:%Y-%m-%d}" if expiry else ""
            needs_advice = not (verified or connection.is_local)
            advice = "set PAPERBOY_SMTP_SECURITY to starttls to verify certificates" if needs_advice else ""
            yield ok("relay TLS", message, advice)
    elif connection.is_local:
        yield ok("relay TLS", "it is not used, and not needed: the relay is on this machine")
    else:
        yield warning(
            "relay TLS",
            "it is not used: others on the network can read emails and use the links in them",
            "let the relay offer STARTTLS, and set PAPERBOY_SMTP_SECURITY to starttls (tls on port 465)",
        )
    if settings.smtp_username and not connection.tls and not connection.is_local:
        yield warning(
            "relay password",
            "it is sent unencrypted: others on the network can send mail in your name",
            "set PAPERBOY_SMTP_SECURITY to starttls or tls, and then choose a new password",
        )
