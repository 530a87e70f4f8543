"""Open a connection to the relay: greeting, EHLO, TLS and login, until it is ready for emails."""

import asyncio
import ssl
from typing import cast

import aiosmtplib

from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.smtp.protocol import ServerCapabilities, printable_line
from app.delivery.smtp.timeouts import Timeouts
from app.settings import Settings, SmtpSecurity

_SIZE_DIGITS = 20  # RFC 1870; Python refuses to parse numbers with thousands of digits


def tls_context(security: SmtpSecurity) -> ssl.SSLContext:
    """Return the TLS context. This is slow, because it loads the system's certificate authorities."""
    context = ssl.create_default_context()
    if security == SmtpSecurity.OPPORTUNISTIC:
        # Encryption to an unverified server is better than no encryption (RFC 7435).
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def connect(
    settings: Settings, timeouts: Timeouts, tls: ssl.SSLContext | None
) -> tuple[asyncio.Transport, ServerCapabilities]:
    """Connect and log in as `open_client` does. Return the transport and the relay's capabilities."""
    client = await open_client(settings, timeouts, tls)
    # A cast, because uvloop's transports do not derive from asyncio.Transport.
    transport = cast("asyncio.Transport | None", client.transport)
    if transport is None or transport.is_closing():
        client.close()
        raise aiosmtplib.SMTPServerDisconnected("the relay closed the connection")
    size = client.esmtp_extensions.get("size")
    return transport, ServerCapabilities(
        pipelining=client.supports_extension("pipelining"),
        smtputf8=client.supports_extension("smtputf8"),
        size=None if size is None else int(size) if size.isdecimal() and len(size) <= _SIZE_DIGITS else 0,
    )


async def open_client(settings: Settings, timeouts: Timeouts, tls: ssl.SSLContext | None) -> aiosmtplib.SMTP:
    """Connect to the relay, with TLS and login as configured. Raise SMTPException or OSError."""
    security = settings.relay_security
    start_tls = {SmtpSecurity.STARTTLS: True, SmtpSecurity.OPPORTUNISTIC: None}.get(security, False)
    client = aiosmtplib.SMTP(
        hostname=settings.smtp_host,
        port=settings.smtp_port,
        username=settings.smtp_username or None,
        password=settings.smtp_password or None,
        local_hostname=settings.mail_domain,
        timeout=timeouts.mail,
        use_tls=security == SmtpSecurity.TLS,
        start_tls=start_tls,
        tls_context=tls,
    )
    try:
        await client.connect(timeout=timeouts.connect)
        if client.is_ehlo_or_helo_needed:
            try:
                await client.ehlo()
            except aiosmtplib.SMTPHeloError:
                if not client.is_connected:
                    raise
                await client.helo()
    except BaseException:
        client.close()
        raise
    return client


def connect_error_result(error: BaseException) -> SendResult:
    """Return the result to record for an email when connecting failed.

    The email does not bounce, because an error before MAIL has nothing to do with its recipient.
    """
    message = error.message if isinstance(error, aiosmtplib.SMTPException) else str(error)
    text = printable_line(message) or repr(error)
    if isinstance(error, aiosmtplib.SMTPResponseException):
        verdict = SendOutcome.SENDER_REJECTED if error.code >= 500 else SendOutcome.UNREACHABLE
        return SendResult(verdict, error.code, text)
    return SendResult(SendOutcome.UNREACHABLE, None, f"no connection: {text}")
