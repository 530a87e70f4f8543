"""PURE. The tags of DKIM signatures, DKIM records and DMARC records (RFC 6376, 3.2)."""

from __future__ import annotations


def read(text: str) -> dict[str, str]:
    """Names and values, the values without white space."""
    parts = (part.partition("=") for part in text.split(";"))
    return {name.strip(): "".join(value.split()) for name, _, value in parts if name.strip()}
