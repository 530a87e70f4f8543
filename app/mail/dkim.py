"""The signatures of mails (DKIM: RFC 6376, Ed25519: RFC 8463), and the keys they are made with.

Headers and body are canonicalised "relaxed". A body as `message` writes it is in that form, so here it
is only hashed. No signature has a length (`l=`): nothing can be added to a signed mail.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from app.errors import Conflict, InvalidSettings

LEAST_BITS = 1024  # verifiers need not accept less (RFC 8301)
GOOD_BITS = 2048
NEW_BITS = 2048  # more does not fit into a DNS answer everywhere
# Named once more than they occur, so that nobody can add another one to a signed mail (RFC 6376, 8.15).
OVERSIGNED_HEADERS = ("From", "To", "Subject", "Date", "Reply-To", "Content-Type", "List-Unsubscribe")
_FOLD = "\r\n "
_LINE_CHARS = 72
_TXT_CHARS = 255


class Algorithm(StrEnum):
    """How a key signs."""

    RSA = "rsa"
    ED25519 = "ed25519"


@dataclass(frozen=True, slots=True)
class Key:
    """A private key, ready to sign, and what is published of it."""

    selector: str
    algorithm: Algorithm
    bits: int
    public: bytes  # as `p=` of its DNS record holds it, before base64
    sign: Callable[[bytes], bytes]  # of a SHA-256 digest

    def record(self, domain: str) -> tuple[str, str]:
        """The name and the text of the DNS record that lets others verify."""
        published = base64.b64encode(self.public).decode()
        return f"{self.selector}._domainkey.{domain}", f"v=DKIM1; k={self.algorithm}; p={published}"


def load(named: Iterable[str]) -> tuple[Key, ...]:
    """The keys of `settings.dkim_keys`; InvalidSettings says which file cannot be used, and why."""
    return tuple(_load(*each.split(":", 1)) for each in named)


def _load(selector: str, path: str) -> Key:
    try:
        return read(selector, Path(path).read_bytes())
    except OSError as error:
        why = error.strerror or "it cannot be read"
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        why = str(error)
    raise InvalidSettings(f"PAPERBOY_DKIM_KEYS: the key of {selector} in {path} cannot be used: {why}")


def read(selector: str, pem: bytes) -> Key:
    """A private key in PEM without a password; ValueError says what is wrong with it."""
    try:
        private = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("it is no private key in PEM without a password") from None
    if isinstance(private, Ed25519PrivateKey):
        raw = private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )  # RFC 8463, 4.2: the bare 32 bytes
        return Key(selector, Algorithm.ED25519, 256, raw, private.sign)
    if not isinstance(private, rsa.RSAPrivateKey):
        raise ValueError("DKIM knows RSA and Ed25519 keys only")
    if private.key_size < LEAST_BITS:
        raise ValueError(f"{private.key_size} bits are too few: verifiers refuse less than {LEAST_BITS}")
    return Key(selector, Algorithm.RSA, private.key_size, _spki(private), _rsa_signer(private))


def _spki(private: rsa.RSAPrivateKey) -> bytes:
    return private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _rsa_signer(private: rsa.RSAPrivateKey) -> Callable[[bytes], bytes]:
    scheme, hashed = padding.PKCS1v15(), Prehashed(hashes.SHA256())
    return lambda digest: private.sign(digest, scheme, hashed)


def signature(keys: Sequence[Key], domain: str, head: bytes, body: Iterable[bytes], at: datetime) -> bytes:
    """A DKIM-Signature header for each key, over all of a head and a body in canonical form.

    The signatures are RSA with PKCS #1 v1.5, or Ed25519: the same input gives the same bytes.
    """
    hashed = hashlib.sha256()
    for piece in body:
        hashed.update(piece)
    names, signed = canonical(head)
    stated = f"t={int(at.timestamp())};{_FOLD}h={_folded(names)};{_FOLD}bh={_base64(hashed.digest())};"
    return b"".join(_field(key, domain, stated, signed) for key in keys)


def _field(key: Key, domain: str, stated: str, signed: bytes) -> bytes:
    named = f"v=1; a={key.algorithm}-sha256; c=relaxed/relaxed; d={domain};{_FOLD}s={key.selector};"
    value = f"{named} {stated}{_FOLD}b="
    own = "dkim-signature:" + value.replace(_FOLD, " ")
    proof = key.sign(hashlib.sha256(signed + own.encode()).digest())
    return f"DKIM-Signature: {value}{_in_lines(_base64(proof))}\r\n".encode()


def canonical(head: bytes) -> tuple[list[str], bytes]:
    """The names that `h=` lists, and the headers in the order of these names, relaxed (RFC 6376, 3.4.2)."""
    names, lines = [], []
    for line in head.replace(b"\r\n ", b" ").split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        names.append(name.decode())
        lines.append(name.lower() + b":" + _WHITE.sub(b" ", value).strip(b" ") + b"\r\n")
    return [*names, *OVERSIGNED_HEADERS], b"".join(lines)


_WHITE = re.compile(rb"[ \t]+")


def _folded(names: Sequence[str]) -> str:
    """Names with colons between them, in lines that are not too long."""
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > _LINE_CHARS:
            lines.append("")
        lines[-1] += f"{name}:"
    return _FOLD.join(lines)[:-1]


def _in_lines(text: str) -> str:
    return _FOLD.join(text[at : at + _LINE_CHARS] for at in range(0, len(text), _LINE_CHARS))


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# --- new keys


def create(algorithm: Algorithm, path: Path) -> None:
    """Write a new private key for its owner's eyes only; Conflict where there is a file already."""
    pem = _generated(algorithm).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} is there already: a key is never overwritten") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)


def _generated(algorithm: Algorithm) -> rsa.RSAPrivateKey | Ed25519PrivateKey:
    if algorithm is Algorithm.ED25519:
        return Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=NEW_BITS)


def strings(text: str) -> list[str]:
    """The text of a TXT record, split as DNS wants it: strings of at most 255 characters."""
    return [text[at : at + _TXT_CHARS] for at in range(0, len(text), _TXT_CHARS)]
