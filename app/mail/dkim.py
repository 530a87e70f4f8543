"""DKIM signatures (RFC 6376; Ed25519: RFC 8463) and their keys.

Headers and body use "relaxed" canonicalization. A body from `message` is already in that form, so it is only
hashed here. Signatures contain no body length (`l=`), so nothing can be appended to a signed message.
"""

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from app.errors import Conflict, InvalidSettings

MIN_BITS = 1024  # verifiers need not accept shorter keys (RFC 8301)
GOOD_BITS = 2048
NEW_BITS = 2048  # longer keys do not fit into every DNS response
# `h=` lists these once more than they occur, so that nobody can add another to a signed message (RFC 6376,
# 8.15).
OVERSIGNED_HEADERS = ("From", "To", "Subject", "Date", "Reply-To", "Content-Type", "List-Unsubscribe")
_FOLD = "\r\n "
_LINE_CHARS = 72
_TXT_CHARS = 255


class Algorithm(StrEnum):
    RSA = "rsa"
    ED25519 = "ed25519"


@dataclass(frozen=True, slots=True)
class Key:
    """A private key, and the public key that is published in DNS."""

    selector: str
    algorithm: Algorithm
    bits: int
    public: bytes  # the `p=` value of its DNS record, before base64
    sign: Callable[[bytes], bytes]  # signs a SHA-256 digest

    def record(self, domain: str) -> tuple[str, str]:
        """Return the name and the text of the DNS record that contains the public key."""
        published = f"v=DKIM1; k={self.algorithm}; p={_base64(self.public)}"
        return f"{self.selector}._domainkey.{domain}", published


def load(entries: Iterable[str]) -> tuple[Key, ...]:
    """Load `settings.dkim_keys`. Raise InvalidSettings with the file and the cause if a key is unusable."""
    keys = []
    for entry in entries:
        selector, path = entry.split(":", 1)
        try:
            keys.append(parse_key(selector, Path(path).read_bytes()))
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            cause = (error.strerror or "it cannot be read") if isinstance(error, OSError) else str(error)
            problem = f"the key for selector {selector} in {path} cannot be used: {cause}"
            raise InvalidSettings(f"PAPERBOY_DKIM_KEYS: {problem}") from None
    return tuple(keys)


def parse_key(selector: str, pem: bytes) -> Key:
    """Parse an unencrypted PEM private key. Raise ValueError with the cause if it cannot be used."""
    try:
        private = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            "it is not an unencrypted private key in PEM format: create one with `paperboy key dkim`"
        ) from None
    if isinstance(private, Ed25519PrivateKey):
        raw = private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )  # RFC 8463, 4.2: the bare 32 bytes
        return Key(selector, Algorithm.ED25519, 256, raw, private.sign)
    if not isinstance(private, rsa.RSAPrivateKey):
        raise ValueError("DKIM supports only RSA and Ed25519 keys: create one with `paperboy key dkim`")
    if private.key_size < MIN_BITS:
        raise ValueError(
            f"it has only {private.key_size} bits, and verifiers reject fewer than {MIN_BITS}: "
            "create a new one with `paperboy key dkim`"
        )
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    sign = partial(private.sign, padding=padding.PKCS1v15(), algorithm=Prehashed(hashes.SHA256()))
    return Key(selector, Algorithm.RSA, private.key_size, public, sign)


def signature(keys: Sequence[Key], domain: str, head: bytes, body: Iterable[bytes], at: datetime) -> bytes:
    """Return a DKIM-Signature header for each key. Each covers all headers and the canonical body.

    RSA with PKCS #1 v1.5 and Ed25519 are deterministic: the same input always produces the same bytes.
    """
    body_hash = hashlib.sha256()
    for piece in body:
        body_hash.update(piece)
    names, signed_headers = canonical_headers(head)
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > _LINE_CHARS:
            lines.append("")
        lines[-1] += f"{name}:"
    covered = _FOLD.join(lines)[:-1]
    tags = f"t={int(at.timestamp())};{_FOLD}h={covered};{_FOLD}bh={_base64(body_hash.digest())};"
    signatures = []
    for key in keys:
        key_tags = f"v=1; a={key.algorithm}-sha256; c=relaxed/relaxed; d={domain};{_FOLD}s={key.selector};"
        value = f"{key_tags} {tags}{_FOLD}b="
        own_header = "dkim-signature:" + value.replace(_FOLD, " ")
        proof = _base64(key.sign(hashlib.sha256(signed_headers + own_header.encode()).digest()))
        folded = _FOLD.join(proof[n : n + _LINE_CHARS] for n in range(0, len(proof), _LINE_CHARS))
        signatures.append(f"DKIM-Signature: {value}{folded}\r\n")
    return "".join(signatures).encode()


def canonical_headers(head: bytes) -> tuple[list[str], bytes]:
    """Return the names for `h=`, and the headers in that order and in relaxed form (RFC 6376, 3.4.2)."""
    names, lines = [], []
    for line in head.replace(b"\r\n ", b" ").split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        names.append(name.decode())
        lines.append(name.lower() + b":" + _WHITE.sub(b" ", value).strip(b" ") + b"\r\n")
    return [*names, *OVERSIGNED_HEADERS], b"".join(lines)


_WHITE = re.compile(rb"[ \t]+")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# --- new keys


def create(algorithm: Algorithm, path: Path) -> None:
    """Write a new private key, readable only by its owner. Raise Conflict if the file exists."""
    private = (
        Ed25519PrivateKey.generate()
        if algorithm is Algorithm.ED25519
        else rsa.generate_private_key(public_exponent=65537, key_size=NEW_BITS)
    )
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(
            f"{path} already exists, and keys are never overwritten: choose another file"
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
    except OSError:  # without space on the disk, for example
        path.unlink()
        raise


def txt_strings(text: str) -> list[str]:
    """Split the text of a TXT record into strings of at most 255 characters, as DNS requires."""
    return [text[at : at + _TXT_CHARS] for at in range(0, len(text), _TXT_CHARS)]
