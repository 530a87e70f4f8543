"""Test signed links: one purpose, one reader, a limited time."""

import base64
from datetime import datetime, timedelta
from itertools import combinations

import pytest

from app.errors import LinkExpired, LinkForged
from app.links import LIFETIMES, TOKEN_CHARS, LinkSigner, Purpose

OLD, NEW = "an old key that signed before the rotation", "a new key that signs after the rotation"


@pytest.fixture
def signer() -> LinkSigner:
    return LinkSigner([OLD], "https://paperboy.test", LIFETIMES)


def test_valid_token(signer: LinkSigner, now: datetime) -> None:
    """The grant has the reader, the argument and the epoch."""
    token = signer.token(Purpose.VIEW, 7, now, epoch=2, argument=99)
    grant = signer.verify(Purpose.VIEW, token, now)
    assert (grant.subscriber_id, grant.argument, grant.epoch) == (7, 99, 2)
    assert len(token) == TOKEN_CHARS


@pytest.mark.parametrize("other", [purpose for purpose in Purpose if purpose is not Purpose.UNSUBSCRIBE])
def test_token_is_refused_for_another_purpose(signer: LinkSigner, now: datetime, other: Purpose) -> None:
    """A forwarded unsubscribe link cannot be used to read, change or erase data."""
    token = signer.token(Purpose.UNSUBSCRIBE, 7, now)
    with pytest.raises(LinkForged):
        signer.verify(other, token, now)


def test_changed_character_invalidates_a_token(signer: LinkSigner, now: datetime) -> None:
    token = signer.token(Purpose.CONFIRM, 7, now)
    for place, char in enumerate(token):
        forged = token[:place] + ("A" if char != "A" else "B") + token[place + 1 :]
        with pytest.raises(LinkForged):
            signer.verify(Purpose.CONFIRM, forged, now)


def test_tokens_equals_single_tokens(signer: LinkSigner, now: datetime) -> None:
    """`tokens` returns what `token` returns for each purpose, in order."""
    links = [(Purpose.VIEW, 99), (Purpose.FEEDBACK, 0), (Purpose.PAUSE, 2**64 - 1)]
    tokens = [token.decode() for token in signer.tokens(7, now, 2, links)]
    assert tokens == [signer.token(purpose, 7, now, epoch=2, argument=number) for purpose, number in links]
    for token, (purpose, number) in zip(tokens, links, strict=True):
        assert signer.verify(purpose, token, now).argument == number
        for other in set(Purpose) - {purpose}:
            with pytest.raises(LinkForged):
                signer.verify(other, token, now)


@pytest.mark.parametrize("rubbish", ["", "x", "é" * TOKEN_CHARS, "=" * TOKEN_CHARS, "A" * 5000, " " * 51])
def test_malformed_tokens(signer: LinkSigner, now: datetime, rubbish: str) -> None:
    """Malformed tokens raise LinkForged."""
    with pytest.raises(LinkForged):
        signer.verify(Purpose.CONFIRM, rubbish, now)


def test_expiry(signer: LinkSigner, now: datetime) -> None:
    """A link to the export expires, but unsubscribing works from an email of any age."""
    later = now + timedelta(days=3650)
    with pytest.raises(LinkExpired):
        signer.verify(Purpose.EXPORT, signer.token(Purpose.EXPORT, 7, now), later)
    signer.verify(Purpose.UNSUBSCRIBE, signer.token(Purpose.UNSUBSCRIBE, 7, now), later)


def test_key_rotation(signer: LinkSigner, now: datetime) -> None:
    """The first key signs. Links of an old key work until it is removed."""
    token = signer.token(Purpose.UNSUBSCRIBE, 7, now)
    assert LinkSigner([NEW, OLD], "", LIFETIMES).verify(Purpose.UNSUBSCRIBE, token, now).subscriber_id == 7
    with pytest.raises(LinkForged):
        LinkSigner([NEW], "", LIFETIMES).verify(Purpose.UNSUBSCRIBE, token, now)


def test_return_path_must_be_signed(signer: LinkSigner) -> None:
    """Anybody can write to the bounce address, but only a signed return path identifies a delivery."""
    path = signer.return_path(1234, "paperboy.test")
    assert signer.delivery_of(path.upper()) == 1234
    digits = path.partition("@")[0].removeprefix("bounce+")
    for forged in (
        path.replace(digits, digits[::-1]),
        path.replace(digits, digits[:-2]),
        path.replace(digits, f"{digits[:-1]} "),
        "bounce+1234-@x",
        "someone@x",
        "",
        f"bounce+{'²' * len(digits)}@x",
        f"bounce+{'9' * 5000}@x",
    ):
        with pytest.raises(LinkForged):
            signer.delivery_of(forged)


# --- what a token hides


def equal_bits(one: bytes, other: bytes) -> float:
    """Return the share of bits that two texts of one length have in common."""
    different = int.from_bytes(one) ^ int.from_bytes(other)
    return 1 - different.bit_count() / (8 * len(one))


def raw(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=")


def test_similar_tokens_share_no_visible_part(signer: LinkSigner, now: datetime) -> None:
    """Tokens of neighbouring ids, or of one reader, share no visible part."""
    purposes = (Purpose.VIEW, Purpose.PREFERENCES, Purpose.UNSUBSCRIBE)
    tokens = {
        raw(signer.token(purpose, reader, now + timedelta(seconds=later), epoch=epoch, argument=delivery))
        for purpose in purposes for reader in (7, 8) for delivery in (1000, 1001)
        for epoch in (0, 1) for later in (0, 1)
    }  # fmt: skip
    assert len(tokens) == 48
    alike = [equal_bits(one, other) for one, other in combinations(tokens, 2)]
    assert min(alike) > 0.3
    assert max(alike) < 0.7
    for one, other in combinations(tokens, 2):
        assert not any(one[at : at + 4] == other[at : at + 4] for at in range(len(one) - 3))


def test_tokens_contain_no_numbers(signer: LinkSigner, now: datetime) -> None:
    """A token contains neither reader, delivery, epoch nor time, in any byte order."""
    numbers = (0x0A0B0C0D, 0x10_2030_4050, int(now.timestamp()), 0x01020304)
    token = raw(signer.token(Purpose.VIEW, numbers[0], now, epoch=numbers[3], argument=numbers[1]))
    for number in numbers:
        for order in ("big", "little"):
            assert number.to_bytes(5, order).strip(b"\0") not in token  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [[OLD], [OLD, NEW], [NEW, OLD]], ids=["one key", "a second", "rotated"])
def test_flipped_bit_invalidates_a_token(now: datetime, keys: list[str]) -> None:
    """Flipping any bit invalidates the token, with any set of keys."""
    token = raw(LinkSigner([OLD], "", LIFETIMES).token(Purpose.CONFIRM, 7, now))
    reads = LinkSigner(keys, "", LIFETIMES)
    for bit in range(8 * len(token)):
        changed = (int.from_bytes(token) ^ 1 << bit).to_bytes(len(token))
        with pytest.raises(LinkForged):
            reads.verify(Purpose.CONFIRM, base64.urlsafe_b64encode(changed).decode().rstrip("="), now)


def test_unused_bits_must_be_zero(signer: LinkSigner, now: datetime) -> None:
    """The last character has unused bits. A token with any of them set is refused."""
    token = signer.token(Purpose.CONFIRM, 7, now)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for char in set(alphabet) - {token[-1]}:
        with pytest.raises(LinkForged):
            signer.verify(Purpose.CONFIRM, token[:-1] + char, now)


def test_largest_numbers(signer: LinkSigner, now: datetime) -> None:
    """Each field is as wide as its column, so an epoch never wraps around."""
    token = signer.token(Purpose.VIEW, 2**31 - 1, now, epoch=2**31 - 1, argument=2**63 - 1)
    grant = signer.verify(Purpose.VIEW, token, now)
    assert (grant.subscriber_id, grant.epoch, grant.argument) == (2**31 - 1, 2**31 - 1, 2**63 - 1)


def test_return_paths_reveal_no_order(signer: LinkSigner) -> None:
    """Return paths of consecutive deliveries share no visible part."""
    paths = [signer.return_path(number, "paperboy.test") for number in range(1000, 1100)]
    local = [path.partition("@")[0] for path in paths]
    assert {len(each) for each in local} == {47}
    assert [signer.delivery_of(path) for path in paths] == list(range(1000, 1100))
    hidden = [bytes.fromhex(each.removeprefix("bounce+")) for each in local]
    assert hidden != sorted(hidden)
    assert all(0.25 < equal_bits(one, other) < 0.75 for one, other in combinations(hidden, 2))
    assert not any(str(number) in each for number, each in zip(range(1000, 1003), local, strict=False))


def test_changed_digit_invalidates_a_return_path(signer: LinkSigner) -> None:
    path = signer.return_path(1234, "paperboy.test")
    for place in range(len("bounce+"), path.index("@")):
        forged = path[:place] + ("0" if path[place] != "0" else "1") + path[place + 1 :]
        with pytest.raises(LinkForged):
            signer.delivery_of(forged)


def test_return_paths_survive_key_rotation() -> None:
    """Return paths of an old key work until it is removed."""
    path = LinkSigner([OLD], "", LIFETIMES).return_path(1234, "paperboy.test")
    assert LinkSigner([NEW, OLD], "", LIFETIMES).delivery_of(path) == 1234
    with pytest.raises(LinkForged):
        LinkSigner([NEW], "", LIFETIMES).delivery_of(path)
