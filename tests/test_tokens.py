"""Links do one thing, for one reader, for a while."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from app.errors import LinkExpired, LinkForged
from app.tokens import TOKEN_CHARS, Purpose, Signer

OLD, NEW = "an old key that signed before the rotation", "a new key that signs after the rotation"


@pytest.fixture
def signer() -> Signer:
    return Signer([OLD], "https://paperboy.test")


def test_a_token_grants_what_it_was_made_for(signer: Signer, now: datetime) -> None:
    """Who, what and which epoch come back out of it."""
    token = signer.token(Purpose.VIEW, 7, now, epoch=2, argument=99)
    grant = signer.verify(Purpose.VIEW, token, now)
    assert (grant.subscriber_id, grant.argument, grant.epoch) == (7, 99, 2)
    assert len(token) == TOKEN_CHARS


@pytest.mark.parametrize("other", [purpose for purpose in Purpose if purpose is not Purpose.UNSUBSCRIBE])
def test_a_token_never_passes_for_another_purpose(signer: Signer, now: datetime, other: Purpose) -> None:
    """A forwarded unsubscribe link cannot read, change or erase anything."""
    token = signer.token(Purpose.UNSUBSCRIBE, 7, now)
    with pytest.raises(LinkForged):
        signer.verify(other, token, now)


def test_every_single_character_matters(signer: Signer, now: datetime) -> None:
    """Changing any one character makes the token worthless."""
    token = signer.token(Purpose.CONFIRM, 7, now)
    for place, char in enumerate(token):
        forged = token[:place] + ("A" if char != "A" else "B") + token[place + 1 :]
        with pytest.raises(LinkForged):
            signer.verify(Purpose.CONFIRM, forged, now)


def test_tokens_made_together_are_those_made_alone(signer: Signer, now: datetime) -> None:
    """Each of its own purpose, and of no other, in the order in which they were asked for."""
    links = [(Purpose.VIEW, 99), (Purpose.OPINION, 0), (Purpose.PAUSE, 2**64 - 1)]
    made = [token.decode() for token in signer.tokens(7, now, 2, links)]
    assert made == [signer.token(purpose, 7, now, epoch=2, argument=number) for purpose, number in links]
    for token, (purpose, number) in zip(made, links, strict=True):
        assert signer.verify(purpose, token, now).argument == number
        for other in set(Purpose) - {purpose}:
            with pytest.raises(LinkForged):
                signer.verify(other, token, now)


@pytest.mark.parametrize("rubbish", ["", "x", "é" * TOKEN_CHARS, "=" * TOKEN_CHARS, "A" * 5000, " " * 51])
def test_rubbish_is_forged(signer: Signer, now: datetime, rubbish: str) -> None:
    """Whatever is in the URL, the answer is the same."""
    with pytest.raises(LinkForged):
        signer.verify(Purpose.CONFIRM, rubbish, now)


def test_a_confirmation_expires_and_unsubscribing_never_does(signer: Signer, now: datetime) -> None:
    """Leaving must work from a mail of any age."""
    later = now + timedelta(days=3650)
    with pytest.raises(LinkExpired):
        signer.verify(Purpose.CONFIRM, signer.token(Purpose.CONFIRM, 7, now), later)
    signer.verify(Purpose.UNSUBSCRIBE, signer.token(Purpose.UNSUBSCRIBE, 7, now), later)


def test_keys_rotate(signer: Signer, now: datetime) -> None:
    """A new first key signs; links of the old one still work until it is removed."""
    token = signer.token(Purpose.UNSUBSCRIBE, 7, now)
    assert Signer([NEW, OLD], "").verify(Purpose.UNSUBSCRIBE, token, now).subscriber_id == 7
    with pytest.raises(LinkForged):
        Signer([NEW], "").verify(Purpose.UNSUBSCRIBE, token, now)


def test_a_return_path_names_its_delivery_only_when_we_made_it(signer: Signer) -> None:
    """Anybody can write to the bounce address; only a signed one says whose mail it was."""
    path = signer.return_path(1234, "paperboy.test")
    assert signer.delivery_of(path.upper()) == 1234
    for forged in (
        path.replace("1234", "1235"),
        "bounce+1234-@x",
        "someone@x",
        "",
        "bounce+²-a@x",
        f"bounce+{'9' * 5000}-a@x",
    ):
        with pytest.raises(LinkForged):
            signer.delivery_of(forged)
