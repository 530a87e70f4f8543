"""PURE. Signed links and return paths: each can do one thing, for one reader, and needs no login.

A token is 22 bytes of who, what and when, and 16 bytes of keyed hash (BLAKE2s, RFC 7693) over them and
the purpose, so a token made for one purpose never passes for another. All tokens are 51 characters.

Every digest holds several. So the hashes are prepared with key and purpose once, and `tokens` encodes all
that it makes in one go; and what a reader says of papers is one purpose, whose token stands in the links of
all cards.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from app.errors import LinkExpired, LinkForged

TOKEN_CHARS = 51
_PAYLOAD = struct.Struct(">QQIH")  # subscriber, argument, issued (s), epoch
_MAC_BYTES = 16
_VERP_MAC_BYTES = 10
_VERP, _MESSAGE_ID = "verp", "message-id"  # purposes that no link has
# A token's 38 bytes are encoded as 39, so that base64 ends where the token does. What is too long is cut.
_RAW = struct.Struct(f"{_PAYLOAD.size}s{_MAC_BYTES}sx")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Purpose(StrEnum):
    """What a link may do. It is the first part of the link's path, too."""

    CONFIRM = "confirm"
    DECLINE = "decline"  # "I did not ask for this"
    PREFERENCES = "preferences"
    UNSUBSCRIBE = "unsubscribe"
    PAUSE = "pause"
    VIEW = "view"  # one digest in the browser; the argument is the delivery's id
    OPINION = "opinion"  # tell what one thinks of papers; the rest of the path says of which, and what
    FEED = "feed"  # read the papers of one's digests with a feed reader
    EXPORT = "export"
    ERASE = "erase"


OPINIONS = ("like", "dislike", "mute", "follow")  # what the links of a card say
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
        self._keys = [_Key(key) for key in keys]
        self._base_url = base_url

    def token(
        self, purpose: Purpose, subscriber_id: int, issued: datetime, *, epoch: int = 0, argument: int = 0
    ) -> str:
        (token,) = self.tokens(subscriber_id, issued, epoch, [(purpose, argument)])
        return token.decode()

    def tokens(
        self, subscriber_id: int, issued: datetime, epoch: int, links: Iterable[tuple[Purpose, int]]
    ) -> tuple[bytes, ...]:
        """A token for each purpose and argument."""
        second, key = int(issued.timestamp()), self._keys[0]
        raw = []
        for purpose, argument in links:
            payload = _PAYLOAD.pack(subscriber_id, argument, second, epoch)
            raw.append(_RAW.pack(payload, key.mac(purpose, payload)))
        encoded = binascii.b2a_base64(b"".join(raw), newline=False).translate(_URL_SAFE)
        return _cut(len(raw)).unpack(encoded)

    def link(self, purpose: Purpose, token: str) -> str:
        """The absolute link that a token makes."""
        return f"{self._base_url}/{purpose}/{token}"

    def opinion_links(self, paper_id: int, token: str) -> dict[str, str]:
        """What a card lets its reader say of a paper, with a token for OPINION: the link of each word."""
        start = self.link(Purpose.OPINION, token)
        return {word: f"{start}/{word}/{paper_id}" for word in OPINIONS}

    def verify(self, purpose: Purpose, token: str, now: datetime) -> Grant:
        """Raise LinkForged or LinkExpired, or say what the token grants."""
        raw = _decode(token)
        payload, mac = raw[: _PAYLOAD.size], raw[_PAYLOAD.size :]
        if not any(hmac.compare_digest(mac, key.mac(purpose, payload)) for key in self._keys):
            raise LinkForged
        subscriber_id, argument, issued, epoch = _PAYLOAD.unpack(payload)
        lifetime = LIFETIMES.get(purpose)
        if lifetime and datetime.fromtimestamp(issued, UTC) + lifetime < now:
            raise LinkExpired
        return Grant(purpose, subscriber_id, argument, epoch)

    def return_path(self, delivery_id: int, domain: str) -> str:
        """The VERP envelope sender of a delivery: only we can have made it."""
        return f"bounce+{delivery_id}-{_verp_mac(self._keys[0], delivery_id)}@{domain}"

    def message_id(self, delivery_id: int, domain: str) -> str:
        """The Message-ID of a delivery: the same at each attempt, and of no meaning to anybody else."""
        return f"<{self._keys[0].mac(_MESSAGE_ID, str(delivery_id).encode()).hex()}@{domain}>"

    def delivery_of(self, return_path: str) -> int:
        """The delivery that one of our return paths names, or LinkForged."""
        local = return_path.rpartition("@")[0].lower()
        number, _, mac = local.removeprefix("bounce+").partition("-")
        if not (number.isascii() and number.isdigit() and len(number) < 20 and mac.isascii()):
            raise LinkForged
        for key in self._keys:
            if hmac.compare_digest(mac, _verp_mac(key, int(number))):
                return int(number)
        raise LinkForged


class _Key:
    """One secret, ready to hash for any purpose."""

    def __init__(self, secret: str) -> None:
        self._key = hashlib.blake2b(secret.encode(), digest_size=32).digest()
        self._prepared = {purpose: self._hash(purpose) for purpose in (*Purpose, _VERP, _MESSAGE_ID)}

    def _hash(self, purpose: str) -> hashlib.blake2s:
        # Half the time of BLAKE2b for so few bytes. Its personalisation alone is too short for our names.
        name = purpose.encode()
        return hashlib.blake2s(digest_size=_MAC_BYTES, key=self._key, person=name[:8], salt=name[8:])

    def mac(self, purpose: str, payload: bytes) -> bytes:
        state = self._prepared[purpose].copy()
        state.update(payload)
        return state.digest()


def _verp_mac(key: _Key, delivery_id: int) -> str:
    # Digits and letters of one case: relays may change the case of a local part.
    return key.mac(_VERP, str(delivery_id).encode())[:_VERP_MAC_BYTES].hex()


@lru_cache
def _cut(count: int) -> struct.Struct:
    """Cuts tokens that were encoded together; the last character of each is the filler's."""
    return struct.Struct(f"{TOKEN_CHARS}sx" * count)


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
