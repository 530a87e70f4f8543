"""PURE. Find out what has changed since a form was shown, so that operators overwrite no unseen changes.

A form contains the version of each value that its page showed.
"""

from __future__ import annotations

from hashlib import blake2b


def version_of(value: str) -> str:
    """Return a digest of a value, ignoring line endings, because browsers change them."""
    plain = "\n".join(value.strip().splitlines())
    return blake2b(plain.encode(errors="replace"), digest_size=12).hexdigest()
