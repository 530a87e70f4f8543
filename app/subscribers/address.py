"""PURE. Normalize email addresses, suggest corrections, and find the mailbox that an address belongs to.

Every address that someone enters is normalized here: in sign-ups, changes of address, imports, the admin
pages, the API and commands.
"""

from contextlib import suppress

from email_validator import EmailNotValidError, validate_email
from rapidfuzz.distance import OSA

from app.errors import InvalidAddress

MAX_LOCAL_OCTETS = 64  # RFC 5321, section 4.5.3.1.1; the library does not check this by default
# Large providers whose names are often mistyped, and other domains within one edit of them.
_PROVIDERS = (
    "fastmail.com", "gmail.com", "googlemail.com", "hotmail.com", "icloud.com", "outlook.com", "proton.me",
    "protonmail.com", "yahoo.com",
)  # fmt: skip
_SIMILAR = ("cloud.com", "email.com", "mail.com", "ymail.com")
_GMAIL = ("gmail.com", "googlemail.com")


def normalize_address(text: str) -> str:
    """Return the normalized spelling of an address. Raise InvalidAddress if it is not valid.

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


def ascii_domain(part: str) -> str:
    """Return part of an address with its domain in ASCII, as in normalized addresses.

    A part without @ is taken as a domain. Labels that are not valid in a domain stay as they are.
    """
    before, at, domain = part.rpartition("@")
    labels = domain.split(".")
    for place, label in enumerate(labels):
        if not label.isascii():
            with suppress(EmailNotValidError):
                checked = validate_email(f"x@{label}", check_deliverability=False, globally_deliverable=False)
                labels[place] = checked.ascii_domain
    return f"{before}{at}{'.'.join(labels)}"


def fold_address(email: str) -> str:
    """Return the mailbox that a normalized address most likely belongs to.

    Drop a `+tag` and, for Gmail, dots. Use the mailbox for limits only, because two subscribers may share it.
    """
    local, _, domain = email.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@{_GMAIL[0]}"
    return f"{local}@{domain}"


def suggest_correction(text: str) -> str:
    """Return a valid address with its mistyped provider corrected. Return "" if it looks right or is invalid.

    A correction is at most one edit away, such as gmail.com for gmial.com. The address may still be right, so
    ask before you use the correction.
    """
    try:
        local, _, domain = normalize_address(text).rpartition("@")
    except InvalidAddress:
        return ""
    if domain in (*_PROVIDERS, *_SIMILAR):
        return ""
    near = (name for name in _PROVIDERS if OSA.distance(domain, name, score_cutoff=1) == 1)
    return next((f"{local}@{name}" for name in near), "")
