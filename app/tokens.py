"""PURE. Signed links and return paths: each can do one thing, for one reader, and needs no login.

A token is 22 bytes of who, what and when, and 16 bytes of keyed hash (BLAKE2b, RFC 7693) over them and
the purpose, so a token made for one purpose never passes for another. All tokens are 51 characters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from app.errors import LinkExpired, LinkForged

TOKEN_CHARS = 51
_PAYLOAD = struct.Struct(">QQIH")  # subscriber, argument, issued (s), epoch
_MAC_BYTES = 16
_VERP_MAC_CHARS = 16


class Purpose(StrEnum):
    """What a link may do. It is the first part of the link's path, too."""

    CONFIRM = "confirm"
    DECLINE = "decline"  # "I did not ask for this"
    PREFERENCES = "preferences"
    UNSUBSCRIBE = "unsubscribe"
    PAUSE = "pause"
    VIEW = "view"  # one digest in the browser; the argument is the delivery's id
    LIKE = "like"  # more like this paper; the argument is the paper's id
    DISLIKE = "dislike"
    EXPORT = "export"
    ERASE = "erase"


LIFETIMES = {
    Purpose.CONFIRM: timedelta(days=7),
    Purpose.DECLINE: timedelta(days=30),
    Purpose.EXPORT: timedelta(days=7),
    Purpose.ERASE: timedelta(hours=2),
}  # the others live until the reader's link epoch is raised


@dataclass(frozen=True, slots=True)
class Grant:
    """What a valid token allows. The caller still compares `epoch` with the reader's."""

    purpose: Purpose
    subscriber_id: int
    argument: int
    epoch: int


class Signer:
    """Makes and checks tokens. The first key signs, every key verifies."""

    def __init__(self, keys: Sequence[str], base_url: str) -> None:
        self._keys = [hashlib.blake2b(key.encode(), digest_size=32).digest() for key in keys]
        self._base_url = base_url

    def token(
        self, purpose: Purpose, subscriber_id: int, issued: datetime, *, epoch: int = 0, argument: int = 0
    ) -> str:
        payload = _PAYLOAD.pack(subscriber_id, argument, int(issued.timestamp()), epoch)
        return _encode(payload + _mac(self._keys[0], purpose, payload))

    def url(
        self, purpose: Purpose, subscriber_id: int, issued: datetime, *, epoch: int = 0, argument: int = 0
    ) -> str:
        """The absolute link. The same arguments always give the same link."""
        return f"{self._base_url}/{purpose}/" + self.token(
            purpose, subscriber_id, issued, epoch=epoch, argument=argument
        )

    def verify(self, purpose: Purpose, token: str, now: datetime) -> Grant:
        """Raise LinkForged or LinkExpired, or say what the token grants."""
        raw = _decode(token)
        payload, mac = raw[: _PAYLOAD.size], raw[_PAYLOAD.size :]
        if not any(hmac.compare_digest(mac, _mac(key, purpose, payload)) for key in self._keys):
            raise LinkForged
        subscriber_id, argument, issued, epoch = _PAYLOAD.unpack(payload)
        lifetime = LIFETIMES.get(purpose)
        if lifetime and datetime.fromtimestamp(issued, UTC) + lifetime < now:
            raise LinkExpired
        return Grant(purpose, subscriber_id, argument, epoch)

    def return_path(self, delivery_id: int, domain: str) -> str:
        """The VERP envelope sender of a delivery: only we can have made it."""
        return f"bounce+{delivery_id}-{self._verp_mac(self._keys[0], delivery_id)}@{domain}"

    def message_id(self, delivery_id: int, domain: str) -> str:
        """The Message-ID of a delivery: the same at each attempt, and of no meaning to anybody else."""
        mac = _mac(self._keys[0], "message-id", str(delivery_id).encode())
        return f"<{base64.b32encode(mac).decode().lower().rstrip('=')}@{domain}>"

    def delivery_of(self, return_path: str) -> int:
        """The delivery that one of our return paths names, or LinkForged."""
        local = return_path.rpartition("@")[0].lower()
        number, _, mac = local.removeprefix("bounce+").partition("-")
        if not (number.isascii() and number.isdigit() and mac.isascii()):
            raise LinkForged
        for key in self._keys:
            if hmac.compare_digest(mac, self._verp_mac(key, int(number))):
                return int(number)
        raise LinkForged

    @staticmethod
    def _verp_mac(key: bytes, delivery_id: int) -> str:
        # Base 32 in lower case: relays may change the case of a local part.
        mac = _mac(key, "verp", str(delivery_id).encode())
        return base64.b32encode(mac).decode().lower()[:_VERP_MAC_CHARS]


def _mac(key: bytes, purpose: str, payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_MAC_BYTES, key=key, person=purpose.encode()).digest()


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(token: str) -> bytes:
    if len(token) != TOKEN_CHARS or not token.isascii():
        raise LinkForged
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise LinkForged from None
    if _encode(raw) != token:  # the last character has spare bits: one token, one spelling
        raise LinkForged
    return raw
