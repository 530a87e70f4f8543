"""PURE. Create and verify return paths and signed links. The links do not need a login.

Each link serves one purpose for one subscriber.

A token is encrypted with a synthetic initialization vector (the construction of RFC 5297, with keyed BLAKE2s,
RFC 7693, for both steps):

    payload    20 bytes: the subscriber, the argument, when the token was issued, the subscriber's link epoch
    mac        18 bytes: keyed hash of the purpose (padded to 16 bytes) and the payload
    hidden     20 bytes: payload XOR keystream, where the keystream is a keyed hash of the mac
    token      hidden and mac in base64url: always 51 characters

The mac covers the purpose, so a token made for one purpose is not valid for another. The keystream depends on
the purpose and on every bit of the payload, so two tokens have no visible part in common. Without the key,
they do not reveal the subscriber, the argument or the time. The same input gives the same token.

A return path is made in the same way from a delivery's id: 8 hidden bytes and 12 bytes of mac. It is
hexadecimal, because relays may change the case of a local part.

A digest contains several tokens. For speed, the hashes are initialized once with the key and the purpose, and
`tokens` encodes all tokens together. All feedback on papers has one purpose, so the links on all cards share
one token.
"""

import base64
import binascii
import hashlib
import hmac
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from app.errors import LinkExpired, LinkForged
from app.text.in_words import count_of

TOKEN_CHARS = 51
RETURN_PATH_DIGITS = 40
_PAYLOAD = struct.Struct(">IQII")  # subscriber, argument, issued (s), epoch: as wide as in the tables
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
}  # hash sizes in bytes; for links, _MAC_BYTES
# A token has 38 bytes. This filler makes 39, a multiple of three, so that the base64 of each token ends
# before the next one begins. The extra character is cut off.
_FILLER = b"\0"
_BETWEEN_STREAMS = bytes(_MAC_BYTES + len(_FILLER))
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_RETURN_PATH = re.compile(rf"bounce\+([0-9a-f]{{{RETURN_PATH_DIGITS}}})", re.IGNORECASE | re.ASCII)


class Purpose(StrEnum):
    """The purpose of a link. Its value is also the first segment of the link's path."""

    CONFIRM = "confirm"
    DECLINE = "decline"  # "I did not ask for this"
    SUBSCRIPTION = "subscription"  # in digests, which get forwarded; its page can pause, or send PREFERENCES
    PREFERENCES = "preferences"
    UNSUBSCRIBE = "unsubscribe"
    PAUSE = "pause"
    VIEW = "view"  # one digest in the browser; the argument is the delivery's id
    FEEDBACK = "feedback"  # like, dislike, mute or follow; the rest of the path names the action and paper
    FEED = "feed"  # the papers in the digests, for a feed reader
    ADDRESS = "address"  # confirm a change of address, with the old address and then with the new one
    EXPORT = "export"
    ERASE = "erase"


DIGEST_ACTIONS = ("like", "dislike")  # the feedback links of a card; their pages link to the other actions
FEEDBACK_ACTIONS = (*DIGEST_ACTIONS, "mute", "follow")
# Settings define the lifetimes of CONFIRM and PREFERENCES links. Purposes without a lifetime work until the
# subscriber's link epoch is incremented; UNSUBSCRIBE links always work.
LIFETIMES = {
    Purpose.DECLINE: timedelta(days=30),
    Purpose.ADDRESS: timedelta(days=2),
    Purpose.EXPORT: timedelta(hours=2),
    Purpose.ERASE: timedelta(hours=2),
}


def lifetime_in_words(lifetime: timedelta) -> str:
    """Return a lifetime of links in words, such as "7 days" or "2 hours", for pages and emails."""
    count, unit = (lifetime.days, "day") if lifetime.days else (lifetime.seconds // 3600, "hour")
    return count_of(count, unit)


@dataclass(frozen=True, slots=True)
class Grant:
    """The content of a valid token. The caller must compare `epoch` with the subscriber's link epoch."""

    subscriber_id: int
    argument: int
    epoch: int
    issued: datetime  # to the second

    def is_older_than(self, created_at: datetime) -> bool:
        """Return whether the link was issued before its subscriber was created.

        Such a link was issued for another subscriber: after a restore, the database may reuse an id.
        """
        return self.issued < created_at.replace(microsecond=0)


class LinkSigner:
    """A signer and verifier of tokens. The first key signs; all keys verify."""

    def __init__(self, keys: Sequence[str], base_url: str, lifetimes: Mapping[Purpose, timedelta]) -> None:
        self._keys = [_Key(key) for key in keys]
        self._base_url = base_url
        self.lifetimes = lifetimes

    def token(
        self, purpose: Purpose, subscriber_id: int, issued: datetime, *, epoch: int = 0, argument: int = 0
    ) -> str:
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
        """Return the absolute URL that contains a token."""
        return f"{self._base_url}/{purpose}/{token}"

    def feedback_links(self, paper_id: int, token: str) -> dict[str, str]:
        """Return the URL of each feedback action on a paper. `token` must be for FEEDBACK."""
        start = self.link(Purpose.FEEDBACK, token)
        return {action: f"{start}/{action}/{paper_id}" for action in FEEDBACK_ACTIONS}

    def verify(self, purpose: Purpose, token: str, now: datetime) -> Grant:
        """Return the content of a token. Raise LinkForged or LinkExpired if it is not valid."""
        payload = self._decrypt(purpose, _LINK_STREAM, _decode(token))
        subscriber_id, argument, second, epoch = _PAYLOAD.unpack(payload)
        issued, lifetime = datetime.fromtimestamp(second, UTC), self.lifetimes.get(purpose)
        if lifetime and issued + lifetime < now:
            raise LinkExpired
        return Grant(subscriber_id, argument, epoch, issued)

    def _decrypt(self, purpose: str, stream: str, raw: bytes) -> bytes:
        """Return the payload. Raise LinkForged unless one of our keys signed it for this purpose."""
        hidden, mac = raw[: _SIZES[stream]], raw[_SIZES[stream] :]
        for key in self._keys:
            payload = _xor(hidden, key.hash(stream, mac))
            if hmac.compare_digest(mac, key.hash(purpose, payload)):
                return payload
        raise LinkForged

    def return_path(self, delivery_id: int, domain: str) -> str:
        """Return the VERP envelope sender for a delivery. Only this installation can create or decode it."""
        key, payload = self._keys[0], _DELIVERY.pack(delivery_id)
        mac = key.hash(_VERP, payload)
        return f"bounce+{(_xor(payload, key.hash(_VERP_STREAM, mac)) + mac).hex()}@{domain}"

    def message_id(self, delivery_id: int, domain: str) -> str:
        """Return a delivery's Message-ID. It is the same for each attempt and does not reveal the id."""
        return f"<{self._keys[0].hash(_MESSAGE_ID, _DELIVERY.pack(delivery_id)).hex()}@{domain}>"

    def delivery_of(self, return_path: str) -> int:
        """Return the id of the delivery with this return path. Raise LinkForged if we did not create it."""
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
            # BLAKE2s takes half the time of BLAKE2b for so few bytes. Hashing the field here also hashes the
            # key block only once, instead of once for each token.
            field, size = purpose.encode().ljust(_PURPOSE_BYTES, b"\0"), _SIZES.get(purpose, _MAC_BYTES)
            self.begin[purpose] = hashlib.blake2s(field, digest_size=size, key=key).copy

    def hash(self, purpose: str, payload: bytes) -> bytes:
        state = self.begin[purpose]()
        state.update(payload)
        return state.digest()


def _xor(data: bytes, keystream: bytes) -> bytes:
    """Return `data` XOR `keystream`. If the keystream is shorter, the rest of the data is unchanged."""
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(keystream, "little")
    return mixed.to_bytes(len(data), "little")


@lru_cache
def _splitter(count: int) -> struct.Struct:
    """Return a struct that splits `count` tokens that were encoded together, and drops their fillers."""
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
    ):  # the last character has spare bits, but each token must have only one spelling
        raise LinkForged
    return raw
