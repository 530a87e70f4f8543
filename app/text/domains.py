"""PURE. Write international domains in ASCII or in Unicode, also those of addresses."""

import re

import idna
from email_validator import EmailNotValidError, validate_email


def to_ascii(domain: str) -> str:
    """Return a domain in ASCII. Raise UnicodeError if it is invalid.

    Python's own codec implements IDNA 2003, where straße.de becomes strasse.de, which is another domain.
    """
    if domain.isascii():
        return domain.encode("idna").decode()  # checks the lengths
    return idna.encode(domain, uts46=True).decode()


def encode_address(address: str, requirement: str) -> str:
    """Return an address with its domain encoded as IDNA, because few relays accept non-ASCII addresses.

    Raise ValueError with the `requirement` if it is not an address.
    """
    if not re.fullmatch(r"[^@\s<>,;]+@[^@\s<>,;]+", address):
        raise ValueError(requirement)
    local, _, domain = address.rpartition("@")
    if not local.isascii():
        raise ValueError("has non-ASCII letters before the @, which few relays accept: use an ASCII address")
    try:
        return f"{local}@{to_ascii(domain)}"
    except UnicodeError:
        raise ValueError("has an invalid domain") from None


def readable_address(address: str) -> str:
    """Return an address with its domain in Unicode, as its owner knows it.

    Return it unchanged if the domain is invalid, or would contain invisible or unassigned characters.
    """
    if "xn--" not in address:
        return address
    local, at, domain = address.rpartition("@")
    try:
        checked = validate_email(f"x@{domain}", check_deliverability=False, globally_deliverable=False)
    except EmailNotValidError:
        return address
    return f"{local}{at}{checked.domain}"
