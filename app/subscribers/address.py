"""PURE. Normalise email addresses, and find the mailbox that an address belongs to.

Every address that someone enters is normalised here: in sign-ups, changes of address, imports, the admin
pages, the API and commands. Rules for sign-ups alone are in `signup.py`.
"""

from __future__ import annotations

from email_validator import EmailNotValidError, validate_email

from app.errors import InvalidAddress

MAX_LOCAL_OCTETS = 64  # RFC 5321, section 4.5.3.1.1; the library does not check this by default
_GMAIL = ("gmail.com", "googlemail.com")


def normalise_address(text: str) -> str:
    """Return the normalised spelling of an address. Raise InvalidAddress if it is not valid.

    The whole address is converted to lower case: providers treat Alice@ and alice@ as one mailbox, so both
    must be the same subscriber.
    """
    if not text.strip():
        raise InvalidAddress("Please enter your email address.", "email")
    try:
        address = validate_email(text.strip(" "), check_deliverability=False)
    except EmailNotValidError as error:
        raise InvalidAddress(f"This is not a valid email address. {error}", "email") from None
    if len(address.local_part.encode()) > MAX_LOCAL_OCTETS:
        raise InvalidAddress("This is not a valid email address. The part before the @ is too long.", "email")
    return f"{address.local_part}@{address.ascii_domain}".lower()


def unicode_domain(email: str) -> str:
    """Return the domain of a normalised address in Unicode, or "" if it is ASCII or has unsafe characters."""
    try:
        address = validate_email(email, check_deliverability=False)
    except EmailNotValidError:
        return ""
    return "" if address.domain.isascii() else address.domain


def fold_address(email: str) -> str:
    """Return the mailbox that a normalised address most likely belongs to.

    Drop a `+tag` and, for Gmail, dots. Use the mailbox for limits only, because two subscribers may share it.
    """
    local, _, domain = email.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@{_GMAIL[0]}"
    return f"{local}@{domain}"
