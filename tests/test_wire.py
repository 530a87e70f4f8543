"""What is said of a mail, and how a relay's bytes become replies."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.smtp.protocol import (
    Reply,
    ReplyParser,
    ServerCapabilities,
    Unsendable,
    clean,
    dot_stuffed,
    envelope,
)
from app.types import OutgoingMail


def mail(recipient: str = "alice@example.org", **fields: Any) -> OutgoingMail:
    return OutgoingMail(
        1, "<1@paperboy.test>", "x", "b@paperboy.test", recipient, **{"data": b"x\r\n", **fields}
    )


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        (b"a\r\nb\r\n", b"a\r\nb\r\n"),
        (b"a\r\nb", b"a\r\nb\r\n"),
        (b".a\r\n", b"..a\r\n"),
        (b"a\r\n.\r\n..\r\nb.\r\n", b"a\r\n..\r\n...\r\nb.\r\n"),
        (b"", b"\r\n"),
    ],
)
def test_dots_are_stuffed(data: bytes, sent: bytes) -> None:
    """A line that begins with a dot gets another; the last line is ended."""
    assert dot_stuffed(mail(data=data)) == sent


def test_a_body_without_dots_is_not_looked_at() -> None:
    """Whoever wrote it knows: the bytes are the very same object."""
    data = b"a\r\n"
    assert dot_stuffed(mail(data=data, no_leading_dots=True)) is data


def test_an_envelope() -> None:
    """The size is told where the relay wants to know it."""
    assert envelope(mail(), ServerCapabilities()) == (
        b"MAIL FROM:<b@paperboy.test>\r\n",
        b"RCPT TO:<alice@example.org>\r\n",
    )
    assert envelope(mail(), ServerCapabilities(size=0))[0] == b"MAIL FROM:<b@paperboy.test> SIZE=3\r\n"


def test_an_envelope_outside_ascii() -> None:
    """SMTPUTF8 is asked for by the mails that need it, where it is offered."""
    wide = mail("jürgen@example.org", needs_smtputf8=True)
    assert envelope(wide, ServerCapabilities(smtputf8=True)) == (
        b"MAIL FROM:<b@paperboy.test> SMTPUTF8\r\n",
        "RCPT TO:<jürgen@example.org>\r\n".encode(),
    )


@pytest.mark.parametrize(
    ("outgoing", "why"),
    [
        (mail(data=b"x" * 101), "has 101 bytes, and the relay takes 100"),
        (mail("jürgen@example.org", needs_smtputf8=True), "outside ASCII"),
        (mail("jürgen@example.org"), "outside ASCII"),
        (mail("alice@example.org>\r\nRCPT TO:<bob@example.org"), "cannot be said"),
        (mail("alice example@example.org"), "cannot be said"),
        (mail("alice"), "cannot be said"),
    ],
)
def test_what_a_relay_cannot_carry(outgoing: OutgoingMail, why: str) -> None:
    """It is refused before a word is said, with the reason."""
    with pytest.raises(Unsendable, match=why):
        envelope(outgoing, ServerCapabilities(size=100))


def test_a_quoted_address() -> None:
    """Rare, and allowed."""
    assert (
        envelope(mail('"alice b"@example.org'), ServerCapabilities())[1]
        == b'RCPT TO:<"alice b"@example.org>\r\n'
    )


def fed(*pieces: bytes) -> tuple[list[Reply], ReplyParser]:
    replies = ReplyParser()
    return [reply for piece in pieces for reply in replies.feed(piece)], replies


def test_replies_of_several_lines() -> None:
    """Their lines are joined, and the last line's code counts."""
    found, replies = fed(b"250-first\r\n250-\r\n250 last\r\n354\r\n")
    assert found == [Reply(250, b"first  last"), Reply(354, b"")]
    assert not replies.has_more


@given(st.lists(st.integers(0, 60), max_size=6))
def test_replies_in_any_pieces(cuts: list[int]) -> None:
    """Where a network cuts its packets makes no difference."""
    whole = b"250 2.0.0 taken as 4711\r\n250-a\r\n250 b\r\n354 go\r\n"
    places = [0, *sorted(cuts), len(whole)]
    found, replies = fed(*(whole[a:b] for a, b in itertools.pairwise(places)))
    assert found == [Reply(250, b"2.0.0 taken as 4711"), Reply(250, b"a b"), Reply(354, b"go")]
    assert not replies.has_more


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b"99 x\r\n",
        b"600 x\r\n",
        b"25x y\r\n",
        b"2500 x\r\n",
        b"\0" * 9000,
    ],
)
def test_garbage_is_known(garbage: bytes) -> None:
    """What came before it counts still."""
    found, replies = fed(b"250 ok\r\n" + garbage)
    assert found == [Reply(250, b"ok")]
    assert replies.garbled
    assert replies.has_more


@pytest.mark.parametrize("line", [b"250-" + b"x" * 1000, b"250-", b"250-" + b" " * 1000])
def test_an_endless_reply_is_garbage(line: bytes) -> None:
    """A relay cannot fill the memory with lines that never end their reply, be they empty."""
    found, replies = fed(*[(line + b"\r\n") * 10] * 1000)
    assert found == []
    assert replies.garbled


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_hostile_bytes(pieces: list[bytes]) -> None:
    """Whatever comes, nothing is raised."""
    fed(*pieces)


def test_words_are_cleaned() -> None:
    """One line of a bounded length, nothing that a terminal obeys, no half characters."""
    assert clean("a\r\n b\0\ud800" + "x" * 900) == "a b ?" + "x" * 495
    assert (
        clean("5.1.1\x1b[2J\x9b31m gr\u00fc\u00dfe \u202etxt\u00a0x") == "5.1.1 [2J 31m gr\u00fc\u00dfe txt x"
    )
