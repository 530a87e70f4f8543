"""Test SMTP commands and bodies as bytes, and the parser of replies."""

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
    dot_stuffed,
    envelope_commands,
    printable_line,
)
from app.mail.message import OutgoingMail


def mail(recipient: str = "alice@example.org", **fields: Any) -> OutgoingMail:
    return OutgoingMail(
        1, "<1@paperboy.test>", "x", "b@paperboy.test", recipient, **{"data": b"x\r\n", **fields}
    )


@pytest.mark.parametrize(
    ("data", "encoded"),
    [
        (b"a\r\nb\r\n", b"a\r\nb\r\n"),
        (b"a\r\nb", b"a\r\nb\r\n"),
        (b".a\r\n", b"..a\r\n"),
        (b"a\r\n.\r\n..\r\nb.\r\n", b"a\r\n..\r\n...\r\nb.\r\n"),
        (b"", b"\r\n"),
    ],
)
def test_dot_stuffing(data: bytes, encoded: bytes) -> None:
    """A leading dot is doubled, and the last line is terminated."""
    assert dot_stuffed(mail(data=data)) == encoded


def test_a_body_without_leading_dots_is_not_copied() -> None:
    """The result is the same object."""
    data = b"a\r\n"
    assert dot_stuffed(mail(data=data, no_leading_dots=True)) is data


def test_envelope_commands() -> None:
    """SIZE is sent if the relay supports it."""
    assert envelope_commands(mail(), ServerCapabilities()) == (
        b"MAIL FROM:<b@paperboy.test>\r\n",
        b"RCPT TO:<alice@example.org>\r\n",
    )
    assert (
        envelope_commands(mail(), ServerCapabilities(size=0))[0] == b"MAIL FROM:<b@paperboy.test> SIZE=3\r\n"
    )


def test_envelope_with_smtputf8() -> None:
    """It is requested for emails that need it, if the relay offers it."""
    wide = mail("jürgen@example.org", needs_smtputf8=True)
    assert envelope_commands(wide, ServerCapabilities(smtputf8=True)) == (
        b"MAIL FROM:<b@paperboy.test> SMTPUTF8\r\n",
        "RCPT TO:<jürgen@example.org>\r\n".encode(),
    )


@pytest.mark.parametrize(
    ("outgoing", "why"),
    [
        (mail(data=b"x" * 101), "has 101 bytes, but the relay accepts at most 100"),
        (mail("jürgen@example.org", needs_smtputf8=True), "outside ASCII"),
        (mail("jürgen@example.org"), "outside ASCII"),
        (mail("alice@example.org>\r\nRCPT TO:<bob@example.org"), "not valid in SMTP"),
        (mail("alice example@example.org"), "not valid in SMTP"),
        (mail("alice"), "not valid in SMTP"),
    ],
)
def test_unsupported_mails_are_refused_locally(outgoing: OutgoingMail, why: str) -> None:
    """The reason is given before any command is sent."""
    with pytest.raises(Unsendable, match=why):
        envelope_commands(outgoing, ServerCapabilities(size=100))


def test_quoted_address() -> None:
    """It is rare but valid."""
    assert (
        envelope_commands(mail('"alice b"@example.org'), ServerCapabilities())[1]
        == b'RCPT TO:<"alice b"@example.org>\r\n'
    )


def parse(*pieces: bytes) -> tuple[list[Reply], ReplyParser]:
    parser = ReplyParser()
    return [reply for piece in pieces for reply in parser.feed(piece)], parser


def test_multiline_replies() -> None:
    """Lines are joined, and the last line's code counts."""
    replies, parser = parse(b"250-first\r\n250-\r\n250 last\r\n354\r\n")
    assert replies == [Reply(250, b"first  last"), Reply(354, b"")]
    assert not parser.has_more


@given(st.lists(st.integers(0, 60), max_size=6))
def test_replies_split_at_any_byte(cuts: list[int]) -> None:
    whole = b"250 2.0.0 taken as 4711\r\n250-a\r\n250 b\r\n354 go\r\n"
    places = [0, *sorted(cuts), len(whole)]
    replies, parser = parse(*(whole[a:b] for a, b in itertools.pairwise(places)))
    assert replies == [Reply(250, b"2.0.0 taken as 4711"), Reply(250, b"a b"), Reply(354, b"go")]
    assert not parser.has_more


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
def test_invalid_bytes(garbage: bytes) -> None:
    """Replies before them still count."""
    replies, parser = parse(b"250 ok\r\n" + garbage)
    assert replies == [Reply(250, b"ok")]
    assert parser.is_invalid
    assert parser.has_more


@pytest.mark.parametrize("line", [b"250-" + b"x" * 1000, b"250-", b"250-" + b" " * 1000])
def test_endless_reply_is_invalid(line: bytes) -> None:
    """It cannot fill the memory, not even with empty lines."""
    replies, parser = parse(*[(line + b"\r\n") * 10] * 1000)
    assert replies == []
    assert parser.is_invalid


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_random_bytes_do_not_raise(pieces: list[bytes]) -> None:
    parse(*pieces)


def test_reply_text_is_one_printable_line() -> None:
    """It has a limited length, without control characters and lone surrogates."""
    assert printable_line("a\r\n b\0\ud800" + "x" * 900) == "a b ?" + "x" * 495
    assert (
        printable_line("5.1.1\x1b[2J\x9b31m gr\u00fc\u00dfe \u202etxt\u00a0x")
        == "5.1.1 [2J 31m gr\u00fc\u00dfe txt x"
    )
