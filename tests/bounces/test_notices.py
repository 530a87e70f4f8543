"""The bytes of a mail that came back → who, why, and whether for good."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bounces import Kind, Notice, notices, parse_mail
from app.delivery.smtp.responses import Reason
from tests.bounces.mails import PERSONAL_MAIL, complaint, dsn, vacation
from tests.support.mutations import mutated

US = "bounce+00112233445566778899aabbccddeeff01234567@paperboy.test"
HEAD = f"From: Mail Delivery System <MAILER-DAEMON@mx.example.org>\nTo: <{US}>\nSubject: {{}}\n\n"


def read(mail: bytes) -> Notice:
    """The only notice in a mail."""
    (notice,) = notices.parse(mail)
    return notice


def words(text: str, subject: str = "Undelivered Mail Returned to Sender") -> bytes:
    return (HEAD.format(subject) + text).encode()


def test_a_status_notice_is_read() -> None:
    """Every field of it (RFC 3464), and the path by which it came."""
    assert read(dsn(US)) == Notice(
        Kind.BOUNCE, "alice@example.org", "5.1.1", Reason.USER_UNKNOWN, True,
        "550 5.1.1 <alice@example.org>... User unknown", "failed", (US,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("action", "status", "kind", "hard"),
    [
        ("failed", "5.1.1", Kind.BOUNCE, True),
        ("delayed", "4.1.1", Kind.DELAYED, False),
        ("delivered", "2.1.5", Kind.DELIVERED, None),
        ("relayed", "2.1.5", Kind.DELIVERED, None),
        ("expanded", "2.1.5", Kind.DELIVERED, None),
    ],
)
def test_only_what_failed_is_a_bounce(action: str, status: str, kind: Kind, hard: bool | None) -> None:
    """What is delayed may still arrive; what arrived was asked for by somebody."""
    notice = read(dsn(US, action=action, status=status))
    assert (notice.kind, notice.hard) == (kind, hard)


def test_each_recipient_gets_a_notice() -> None:
    """In the order in which the report names them."""
    mail = dsn(US).replace(
        b"\r\n\r\n--=_b--",
        b"\r\n\r\nFinal-Recipient: rfc822; bob@example.org\r\nAction: failed\r\nStatus: 5.2.2\r\n\r\n--=_b--",
    )
    found = [(each.recipient, each.reason) for each in notices.parse(mail)]
    assert found == [("alice@example.org", Reason.USER_UNKNOWN), ("bob@example.org", Reason.MAILBOX_FULL)]


def test_a_report_without_its_mime_is_read() -> None:
    """Fields are fields, in whatever text they stand."""
    torn = words("Sorry.\n\nFinal-Recipient: rfc822; alice@example.org\nAction: failed\nStatus: 5.2.2\n\n")
    assert read(torn).reason is Reason.MAILBOX_FULL


def test_a_notice_that_was_forwarded_is_read() -> None:
    """Somebody's assistant sent it on as an attachment."""
    mail = b"From: bob@example.org\nSubject: Fwd\nContent-Type: message/rfc822\n\n" + dsn(US)
    assert read(mail).reason is Reason.USER_UNKNOWN


def test_a_complaint_is_none_of_the_readers_fault() -> None:
    """A feedback report (RFC 5965) is no bounce."""
    notice = read(complaint("fbl@paperboy.test", returned=US))
    assert (notice.kind, notice.hard, notice.reason) == (Kind.COMPLAINT, None, Reason.FEEDBACK)
    assert (notice.recipient, notice.action, notice.return_paths) == ("alice@example.org", "abuse", (US,))


@pytest.mark.parametrize(
    ("kind", "read_as"),
    [("opt-out", Kind.OPT_OUT), ("auth-failure", Kind.REPORT), ("not-spam", Kind.REPORT), ("x", Kind.REPORT)],
)
def test_a_feedback_report_may_tell_of_something_else(kind: str, read_as: Kind) -> None:
    """Only abuse is a complaint."""
    assert read(complaint("fbl@paperboy.test", kind)).kind is read_as


@pytest.mark.parametrize(
    "mail",
    [
        vacation(US),
        b"From: alice@example.org\nSubject: Automatic reply: digest\n\nI am away.",
        b"From: alice@example.org\nSubject: Re: out of office\n\nuser unknown, mailbox full",
        b"From: alice@example.org\nSubject: x\nX-Autoreply: yes\n\nBack on Monday.",
        b"From: alice@example.org\nSubject: Automatische Antwort: digest\n\nmailbox full",
        b"From: alice@example.org\nSubject: AUTO: Alice is out of the office\n\nuser unknown",
        "From: alice@example.org\nSubject: 自動返信\n\n不在".encode(),
    ],
)
def test_an_absence_is_no_bounce(mail: bytes) -> None:
    """RFC 3834, and those who never read it."""
    notice = read(mail)
    assert (notice.kind, notice.hard, notice.recipient) == (Kind.VACATION, None, "alice@example.org")


@pytest.mark.parametrize(
    "mail", [PERSONAL_MAIL, b"", b"\0" * 100, b"From: bob@example.org\n\nmy mailbox is full of joy"]
)
def test_a_letter_is_no_notice(mail: bytes) -> None:
    """It is for a person to read."""
    notice = read(mail)
    assert (notice.kind, notice.hard) == (Kind.UNKNOWN, None)


QMAIL = """\
<alice@example.org>:
192.0.2.1 does not like recipient.
Remote host said: 550 5.1.1 no such user
Giving up on 192.0.2.1.

--- Below this line is a copy of the message.

Return-Path: <x@y.example>
Received: from z

mailbox full
"""
EXIM = """\
The following address(es) failed:

  alice@example.org
    SMTP error from remote mail server after end of data:
    host mx [192.0.2.1]: 550 user unknown

------ This is a copy of the message, including all the headers. ------
"""
EXCHANGE = """\
Your message
  To: alice@example.org
did not reach the following recipient(s):

alice@example.org on Thu, 29 Apr 2010
    The recipient name is not recognized
"""


@pytest.mark.parametrize(
    ("text", "reason", "hard"),
    [
        (QMAIL, Reason.USER_UNKNOWN, True),
        (EXIM, Reason.FILTERED, False),
        (EXCHANGE, Reason.USER_UNKNOWN, True),
        ("This is the daemon.\n\nalice@example.org: 452 4.2.2 Over quota\n", Reason.MAILBOX_FULL, False),
        ("<alice@example.org>: Host or domain name not found\n", Reason.HOST_UNKNOWN, True),
        ("alice@example.org\nНе удалось доставить: ящик переполнен\n", Reason.MAILBOX_FULL, False),
        ("次の宛先に配送できません。\n\nalice@example.org\n\n宛先不明です。\n", Reason.USER_UNKNOWN, True),
        ("It could not be delivered to alice@example.org.\n", Reason.ON_HOLD, False),
    ],
    ids=["qmail", "exim", "exchange", "opensmtpd", "postfix", "russian", "japanese", "nothing"],
)
def test_what_servers_write_in_words_is_read(text: str, reason: Reason, hard: bool) -> None:
    """And nothing of the mail that they return behind it."""
    notice = read(words(text))
    assert (notice.recipient, notice.reason, notice.hard) == ("alice@example.org", reason, hard)


def test_a_warning_is_no_end() -> None:
    """It says that it will be tried again."""
    text = "THIS IS A WARNING MESSAGE ONLY\n\n<alice@example.org>\n451 4.4.1 Connection timed out\n"
    assert read(words(text)).kind is Kind.DELAYED


def test_several_recipients_in_words() -> None:
    """Each with the words up to the next one."""
    text = "<alice@example.org>:\nUser unknown\n\n<bob@example.org>:\nMailbox is full\n"
    found = [(each.recipient, each.reason) for each in notices.parse(words(text))]
    assert found == [("alice@example.org", Reason.USER_UNKNOWN), ("bob@example.org", Reason.MAILBOX_FULL)]


@pytest.mark.parametrize("header", ["Delivered-To", "X-Original-To", "Envelope-To", "Cc"])
def test_the_path_is_found_where_servers_write_it(header: str) -> None:
    """A mailbox that collects many addresses has it in one of these."""
    mail = dsn("postmaster@paperboy.test").replace(b"From:", f"{header}: <{US}>\r\nFrom:".encode(), 1)
    assert read(mail).return_paths == (US,)


def test_the_mail_that_came_back_is_named() -> None:
    """Its Message-ID, from its headers."""
    returned = (
        b"--=_b\r\nContent-Type: text/rfc822-headers\r\n\r\nMessage-ID: <x@paperboy.test>\r\n\r\n--=_b--"
    )
    assert read(dsn(US).replace(b"--=_b--", returned)).message_id == "<x@paperboy.test>"


def test_foreign_words_are_tamed() -> None:
    """One line, of a length, without what would steer a terminal or break a log."""
    notice = read(dsn(US, diagnostic="smtp; 550 5.1.1 \x1b[31mred\x07\u202e " + "x" * 5000))
    assert len(notice.diagnostic) == notices.MAX_DIAGNOSTIC
    assert notice.diagnostic.isprintable()


def test_a_notice_of_amazons_by_mail() -> None:
    """SNS sends its JSON to an address as well."""
    told = '{"notificationType":"Delivery","mail":{},"delivery":{"recipients":["a@example.org"]}}'
    mail = (
        b"From: no-reply@sns.example\nSubject: AWS Notification Message\n\n" + told.encode() + b"\n--\nbye\n"
    )
    (notice,) = parse_mail(mail)
    assert (notice.kind, notice.recipient, notice.hard) == (Kind.DELIVERED, "a@example.org", None)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000))
def test_random_bytes_break_nothing(raw: bytes) -> None:
    """Whatever arrives, there is an answer."""
    assert parse_mail(raw)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([dsn, vacation, complaint]), st.integers(), st.binary(max_size=300))
def test_mutations_break_nothing(make: Callable[[str], bytes], seed: int, other: bytes) -> None:
    """Cut, doubled, mixed with anything: it is read, and its words are tame."""
    mail = mutated(make(US), other or b"x", random.Random(seed))  # noqa: S311
    for notice in parse_mail(mail):
        assert (notice.diagnostic + notice.recipient + notice.action).isprintable()


@settings(max_examples=150, deadline=None)
@given(st.integers(), st.binary(min_size=1, max_size=300))
def test_no_mutation_makes_an_absence_hard(seed: int, other: bytes) -> None:
    """As long as its first lines say what it is."""
    head, _, body = vacation(US).partition(b"\r\n\r\n")
    mail = head + b"\r\n\r\n" + mutated(body, other, random.Random(seed))  # noqa: S311
    assert not any(notice.hard for notice in parse_mail(mail))
