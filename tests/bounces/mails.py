"""Build notices as mail servers write them."""


def dsn(
    to: str,
    recipient: str = "alice@example.org",
    status: str = "5.1.1",
    diagnostic: str = "smtp; 550 5.1.1 <alice@example.org>... User unknown",
    action: str = "failed",
) -> bytes:
    """Build a delivery status notice (RFC 3464) to a return path."""
    return (
        f"Return-Path: <>\r\nFrom: MAILER-DAEMON@mx.example.org\r\nTo: <{to}>\r\n"
        "Subject: Undelivered Mail Returned to Sender\r\nAuto-Submitted: auto-replied\r\n"
        'Content-Type: multipart/report; report-type=delivery-status; boundary="=_b"\r\n\r\n'
        "--=_b\r\nContent-Type: text/plain\r\n\r\nI'm sorry, your message could not be delivered.\r\n"
        "--=_b\r\nContent-Type: message/delivery-status\r\n\r\n"
        "Reporting-MTA: dns; mx.example.org\r\n\r\n"
        f"Final-Recipient: rfc822; {recipient}\r\nAction: {action}\r\nStatus: {status}\r\n"
        f"Diagnostic-Code: {diagnostic}\r\n\r\n--=_b--\r\n"
    ).encode()


def complaint(to: str, kind: str = "abuse", returned: str = "") -> bytes:
    """Build a feedback report (RFC 5965)."""
    return (
        f"From: fbl@example.net\r\nTo: <{to}>\r\nSubject: FW: your digest\r\n"
        'Content-Type: multipart/report; report-type=feedback-report; boundary="=_b"\r\n\r\n'
        "--=_b\r\nContent-Type: text/plain\r\n\r\nThis is an email abuse report.\r\n"
        "--=_b\r\nContent-Type: message/feedback-report\r\n\r\n"
        f"Feedback-Type: {kind}\r\nUser-Agent: Test/1\r\nVersion: 1\r\n"
        f"Original-Mail-From: <{returned}>\r\nOriginal-Rcpt-To: <alice@example.org>\r\n\r\n--=_b--\r\n"
    ).encode()


def vacation(to: str) -> bytes:
    """Build an automatic reply (RFC 3834)."""
    return (
        f"From: alice@example.org\r\nTo: <{to}>\r\nSubject: Out of office: Your papers\r\n"
        "Auto-Submitted: auto-replied\r\n\r\nI am away. Mail to unknown users could not be delivered.\r\n"
    ).encode()


PERSONAL_MAIL = (
    b"From: bob@example.org\r\nTo: bounce@paperboy.test\r\nSubject: Hello\r\n\r\nIs anybody there?\r\n"
)
