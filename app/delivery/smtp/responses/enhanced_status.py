"""PURE. Enhanced status codes (RFC 3463, its IANA registry, Microsoft's own list) → reasons."""

import re

from app.delivery.smtp.responses.refusal_reasons import Reason

# Codes without the first digit (permanent or temporary). They outweigh the text, with the exceptions in
# `diagnosis._reason`.
SPECIFIC_CODES = {
    **dict.fromkeys(("1.1", "1.3"), Reason.USER_UNKNOWN),
    "1.2": Reason.HOST_UNKNOWN,
    "1.6": Reason.HAS_MOVED,
    **dict.fromkeys(("1.7", "1.8"), Reason.REJECTED),
    "2.2": Reason.MAILBOX_FULL,
    "2.3": Reason.EXCEED_LIMIT,
    "3.1": Reason.SYSTEM_FULL,
    "3.4": Reason.MESSAGE_TOO_BIG,
    "4.7": Reason.EXPIRED,
    **dict.fromkeys(("5.2", "5.4"), Reason.SYNTAX_ERROR),
    "5.3": Reason.TOO_MANY_CONNECTIONS,
    # 7.27 means the sender's null MX (RFC 7505) or, at Google, the sender's SPF: never the recipient's fault.
    **dict.fromkeys(("7.20", "7.21", "7.22", "7.23", "7.24", "7.26", "7.27"), Reason.AUTH_FAILURE),
    "7.25": Reason.REQUIRE_PTR,
    "7.28": Reason.SPEEDING,
    # Additional codes from Exchange Online and Outlook.com, from Microsoft's own list.
    **dict.fromkeys(("1.20", "7.512"), Reason.NOT_COMPLIANT),
    "1.351": Reason.USER_UNKNOWN,
    **dict.fromkeys(("1.90", "2.121", "2.122", "7.508", "7.705"), Reason.SPEEDING),
    **dict.fromkeys(("4.300", "4.316"), Reason.EXPIRED),
    "4.310": Reason.HOST_UNKNOWN,
    "4.312": Reason.NETWORK_ERROR,
    **dict.fromkeys(("7.12", "7.124", "7.133", "7.134", "7.136"), Reason.REJECTED),
    **dict.fromkeys(("7.501", "7.502", "7.503", "7.703", "7.750"), Reason.SPAM_DETECTED),
    **dict.fromkeys(("7.509", "7.515"), Reason.AUTH_FAILURE),
    **dict.fromkeys(("7.511", "7.513", "7.708"), Reason.BLOCKED),
    **{f"7.{n}": Reason.BLOCKED for n in range(606, 650)},
    "7.507": Reason.FILTERED,
    "7.64": Reason.NO_RELAYING,
}
# These codes are used for many purposes, so the text takes precedence.
GENERIC_CODES = {
    **dict.fromkeys(("1.0", "1.10"), Reason.USER_UNKNOWN),
    **dict.fromkeys(("1.4", "2.0", "2.4", "7.2"), Reason.FILTERED),
    **dict.fromkeys(("1.9", "3.0", "3.3", "3.5", "4.3", "4.5"), Reason.SYSTEM_ERROR),
    **dict.fromkeys(("2.1", "7.13"), Reason.SUSPEND),
    "3.2": Reason.NOT_ACCEPT,
    **dict.fromkeys(("4.0", "4.2", "4.6"), Reason.NETWORK_ERROR),
    "4.1": Reason.EXPIRED,
    "4.4": Reason.HOST_UNKNOWN,
    **dict.fromkeys(("5.0", "5.1", "5.5", "5.6"), Reason.SYNTAX_ERROR),
    **{f"6.{n}": Reason.CONTENT_ERROR for n in range(11)},
    **dict.fromkeys(("7.0", "7.1", *(f"7.{n}" for n in range(3, 10)), "7.14"), Reason.SECURITY_ERROR),
    "7.10": Reason.FAILED_STARTTLS,
    **dict.fromkeys(("7.17", "7.18"), Reason.HAS_MOVED),
}

_STATUS = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.]\d)")


def status_in(text: str) -> str:
    """Return the first enhanced status in a text, or an empty string."""
    match = _STATUS.search(text)
    return match[0] if match else ""


def more_specific(field: str, in_text: str) -> str:
    """Return the more specific status. 5.0.0, 5.1.0 or 5.7.1 in a field is often a gateway's guess."""
    return in_text if in_text and (not field or field.endswith((".0", ".7.1"))) else field
