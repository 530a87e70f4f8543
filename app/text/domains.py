"""PURE. Write international domains in ASCII."""

from __future__ import annotations

import idna


def to_ascii(domain: str) -> str:
    """Return a domain in ASCII. Raise UnicodeError if it is invalid.

    Python's own codec implements IDNA 2003, where straße.de becomes strasse.de, which is another domain.
    """
    if domain.isascii():
        return domain.encode("idna").decode()  # checks the lengths
    return idna.encode(domain, uts46=True).decode()
