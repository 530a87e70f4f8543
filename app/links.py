"""PURE. Signed links and return paths. Each serves one purpose for one reader and needs no login.

A token is made with a synthetic initialisation vector (the construction of RFC 5297, with BLAKE2s of RFC 7693
in its keyed mode for both steps):

    payload    20 bytes: the reader, the argument, when the token was issued, the reader's link epoch
    mac        18 bytes: keyed hash of the purpose, in a field of 16 bytes, and the payload
    hidden     20 bytes: payload XOR keystream, and the keystream is a keyed hash of the mac
    token      hidden and mac in base64url: always 51 characters

The purpose is part of the mac: a token made for one purpose never passes for another. The keystream depends
on every bit of the payload and on the purpose: two tokens share no part that can be seen, and nobody without
the key learns who, what or when from them. The same input gives the same token.

A return path is made in the same way from the id of a delivery: 12 bytes of mac and 8 hidden, as hexadecimal
digits, because relays may change the case of a local part.

A digest contains several tokens. For speed, the hashes are prepared with key and purpose once, and `tokens`
encodes all its tokens together. Feedback on papers is one purpose, so that the links of all cards share one
token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from app.errors import LinkExpired, LinkForged

TOKEN_CHARS = 51
RETURN_PATH_DIGITS = 40
_PAYLOAD = struct.Struct(">IQII")  # subscriber, argument, issued (s), epoch: as wide as their columns
_DELIVERY = struct.Struct(">Q")
_MAC_BYTES, _VERP_MAC_BYTES = 18, 12
_PURPOSE_BYTES = 16
_VERP, _MESSAGE_ID = "verp", "message-id"  # purposes that are not for links
_LINK_STREAM, _VERP_STREAM = "link-stream", "verp-stream"
_SIZES = {
    _VERP: _VERP_MAC_BYTES,
    _MESSAGE_ID: 16,
    _LINK_STREAM: _PAYLOAD.size,
    _VERP_STREAM: _DELIVERY.size,
}  # of a hash in bytes; for links, _MAC_BYTES
# A token has 38 bytes. With this one they are 39, a multiple of three, so that the base64 of one token ends
# before the next begins. The extra character is cut off.
_FILLER = b"\0"
_BETWEEN_STREAMS = bytes(_MAC_BYTES + len(_FILLER))
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_RETURN_PATH = re.compile(rf"bounce\+([0-9a-f]{{{RETURN_PATH_DIGITS}}})", re.IGNORECASE | re.ASCII)


class Purpose(StrEnum):
    """The purpose of a link. Its value is also the first part of the link's path."""

    CONFIRM = "confirm"
    DECLINE = "decline"  # "I did not ask for this"
    PREFERENCES = "preferences"
    UNSUBSCRIBE = "unsubscribe"
    PAUSE = "pause"
    VIEW = "view"  # one digest in the browser; the argument is the delivery's id
    FEEDBACK = "feedback"  # like, dislike, mute or follow; the rest of the path says what, and which paper
    FEED = "feed"  # read the papers of the digests in a feed reader
    EXPORT = "export"
    ERASE = "erase"


FEEDBACK_ACTIONS = ("like", "dislike", "mute", "follow")  # the feedback links of a card
LIFETIMES = {
    Purpose.CONFIRM: timedelta(days=7),
    Purpose.DECLINE: timedelta(days=30),
    Purpose.EXPORT: timedelta(hours=2),
    Purpose.ERASE: timedelta(hours=2),
}  # other links work until the reader's link epoch is incremented


def lifetime_in_words(purpose: Purpose) -> str:
    """Return how long a link works, as pages and mails say it: "7 days", "2 hours"."""
    lifetime = LIFETIMES[purpose]
    count, unit = (lifetime.days, "day") if lifetime.days else (lifetime.seconds // 3600, "hour")
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


LIFETIMES_IN_WORDS = {purpose.value: lifetime_in_words(purpose) for purpose in LIFETIMES}


@dataclass(frozen=True, slots=True)
class Grant:
    """The content of a valid token. The caller must still compare `epoch` with the reader's."""

    purpose: Purpose
    subscriber_id: int
    argument: int
    epoch: int


class LinkSigner:
    """Signs and verifies tokens. The first key signs, all keys verify."""

    def __init__(self, keys: Sequence[str], base_url: str) -> None:
        self._keys = [_Key(key) for key in keys]
        self._base_url = base_url

    def token(
        self, purpose: Purpose, subscriber_id: int, issued: datetime, *, epoch: int = 0, argument: int = 0
    ) -> str:
        """Return one token."""
        (token,) = self.tokens(subscriber_id, issued, epoch, [(purpose, argument)])
        return token.decode()

    def tokens(
        self, subscriber_id: int, issued: datetime, epoch: int, links: Iterable[tuple[Purpose, int]]
    ) -> tuple[bytes, ...]:
        """Return a token for each purpose and argument."""
        second, begin = int(issued.timestamp()), self._keys[0].begin
        begin_stream = begin[_LINK_STREAM]
        plain, streams = [], []
        for purpose, argument in links:
            payload = _PAYLOAD.pack(subscriber_id, argument, second, epoch)
            state = begin[purpose]()
            state.update(payload)
            mac = state.digest()
            state = begin_stream()
            state.update(mac)
            plain.append(payload + mac)
            streams.append(state.digest())
        raw = _xor(_FILLER.join(plain), _BETWEEN_STREAMS.join(streams))
        encoded = binascii.b2a_base64(raw, newline=False).translate(_URL_SAFE)
        return _splitter(len(plain)).unpack(encoded)

    def link(self, purpose: Purpose, token: str) -> str:
        """Return the absolute URL with a token."""
        return f"{self._base_url}/{purpose}/{token}"

    def feedback_links(self, paper_id: int, token: str) -> dict[str, str]:
        """Return the URL of each feedback action on a paper, with a token for FEEDBACK."""
        start = self.link(Purpose.FEEDBACK, token)
        return {action: f"{start}/{action}/{paper_id}" for action in FEEDBACK_ACTIONS}

    def verify(self, purpose: Purpose, token: str, now: datetime) -> Grant:
        """Return what the token grants. Raise LinkForged or LinkExpired."""
        payload = self._decrypt(purpose, _LINK_STREAM, _decode(token))
        subscriber_id, argument, issued, epoch = _PAYLOAD.unpack(payload)
        lifetime = LIFETIMES.get(purpose)
        if lifetime and datetime.fromtimestamp(issued, UTC) + lifetime < now:
            raise LinkExpired
        return Grant(purpose, subscriber_id, argument, epoch)

    def _decrypt(self, purpose: str, stream: str, raw: bytes) -> bytes:
        """Return the payload. Raise LinkForged unless one of our keys signed it for this purpose."""
        hidden, mac = raw[: _SIZES[stream]], raw[_SIZES[stream] :]
        for key in self._keys:
            payload = _xor(hidden, key.hash(stream, mac))
            if hmac.compare_digest(mac, key.hash(purpose, payload)):
                return payload
        raise LinkForged

    def return_path(self, delivery_id: int, domain: str) -> str:
        """Return the VERP envelope sender of a delivery. Only this installation can make or read it."""
        key, payload = self._keys[0], _DELIVERY.pack(delivery_id)
        mac = key.hash(_VERP, payload)
        return f"bounce+{(_xor(payload, key.hash(_VERP_STREAM, mac)) + mac).hex()}@{domain}"

    def message_id(self, delivery_id: int, domain: str) -> str:
        """Return the Message-ID of a delivery. It is the same at each attempt and reveals nothing."""
        return f"<{self._keys[0].hash(_MESSAGE_ID, _DELIVERY.pack(delivery_id)).hex()}@{domain}>"

    def delivery_of(self, return_path: str) -> int:
        """Return the id of the delivery with this return path. Raise LinkForged if it is not one of ours."""
        match = _RETURN_PATH.fullmatch(return_path.rpartition("@")[0])
        if not match:
            raise LinkForged
        payload = self._decrypt(_VERP, _VERP_STREAM, bytes.fromhex(match[1]))
        return int(_DELIVERY.unpack(payload)[0])


class _Key:
    """A secret key with a prepared hash for each purpose."""

    def __init__(self, secret: str) -> None:
        key = hashlib.blake2b(secret.encode(), digest_size=32).digest()
        self.begin = dict[str, Callable[[], hashlib.blake2s]]()
        for purpose in (*Purpose, *_SIZES):
            # BLAKE2s takes half the time of BLAKE2b for so few bytes. Hashing the field now also hashes the
            # key's block now, and not once for each token.
            field, size = purpose.encode().ljust(_PURPOSE_BYTES, b"\0"), _SIZES.get(purpose, _MAC_BYTES)
            self.begin[purpose] = hashlib.blake2s(field, digest_size=size, key=key).copy

    def hash(self, purpose: str, payload: bytes) -> bytes:
        """Return the keyed hash of a purpose and a payload."""
        state = self.begin[purpose]()
        state.update(payload)
        return state.digest()


def _xor(data: bytes, keystream: bytes) -> bytes:
    """Return `data` XOR `keystream`. If the keystream is shorter, the rest of the data is not changed."""
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(keystream, "little")
    return mixed.to_bytes(len(data), "little")


@lru_cache
def _splitter(count: int) -> struct.Struct:
    """Return a struct that splits `count` tokens encoded together and drops the filler after each."""
    return struct.Struct(f"{TOKEN_CHARS}sx" * count)


def _decode(token: str) -> bytes:
    if len(token) != TOKEN_CHARS or not token.isascii():
        raise LinkForged
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise LinkForged from None
    if (
        base64.urlsafe_b64encode(raw).decode().rstrip("=") != token
    ):  # the last character has spare bits: one token, one spelling
        raise LinkForged
    return raw
