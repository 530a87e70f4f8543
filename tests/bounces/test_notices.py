"""Test the parser of bounce and complaint notices: recipient, reason and permanence."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bounces import Kind, Notice, notices, parse_mail
from app.delivery.smtp.responses import Action, Reason
from tests.bounces.mails import PERSONAL_MAIL, complaint, dsn, vacation
from tests.support.mutations import mutate

US = "bounce+00112233445566778899aabbccddeeff01234567@paperboy.test"
HEAD = f"From: Mail Delivery System <MAILER-DAEMON@mx.example.org>\nTo: <{US}>\nSubject: {{}}\n\n"


def parse_one(mail: bytes) -> Notice:
    """Parse an email with exactly one notice."""
    (notice,) = notices.parse(mail)
    return notice


def plain_notice(text: str, subject: str = "Undelivered Mail Returned to Sender") -> bytes:
    return (HEAD.format(subject) + text).encode()


def test_delivery_status_notice() -> None:
    """Check every field (RFC 3464) and the return path."""
    assert parse_one(dsn(US)) == Notice(
        Kind.BOUNCE, "alice@example.org", "5.1.1", Reason.USER_UNKNOWN, True,
        "550 5.1.1 <alice@example.org>... User unknown", "failed", (US,), action=Action.SUPPRESS,
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
def test_delayed_and_delivered_notices_are_not_bounces(
    action: str, status: str, kind: Kind, hard: bool | None
) -> None:
    """A delayed mail may still arrive, and a delivery report was requested by somebody."""
    notice = parse_one(dsn(US, action=action, status=status))
    assert (notice.kind, notice.hard) == (kind, hard)


def test_each_recipient_gets_a_notice() -> None:
    """Notices are in the order of the report."""
    mail = dsn(US).replace(
        b"\r\n\r\n--=_b--",
        b"\r\n\r\nFinal-Recipient: rfc822; bob@example.org\r\nAction: failed\r\nStatus: 5.2.2\r\n\r\n--=_b--",
    )
    results = [(each.recipient, each.reason) for each in notices.parse(mail)]
    assert results == [("alice@example.org", Reason.USER_UNKNOWN), ("bob@example.org", Reason.MAILBOX_FULL)]


def test_report_without_mime_structure() -> None:
    """The fields are found in any text."""
    torn = plain_notice(
        "Sorry.\n\nFinal-Recipient: rfc822; alice@example.org\nAction: failed\nStatus: 5.2.2\n\n"
    )
    assert parse_one(torn).reason is Reason.MAILBOX_FULL


def test_forwarded_notice() -> None:
    """Somebody forwarded it as an attachment."""
    mail = b"From: bob@example.org\nSubject: Fwd\nContent-Type: message/rfc822\n\n" + dsn(US)
    assert parse_one(mail).reason is Reason.USER_UNKNOWN


def test_feedback_report_is_a_complaint() -> None:
    """A feedback report (RFC 5965) is not a bounce."""
    notice = parse_one(complaint("fbl@paperboy.test", returned=US))
    assert (notice.kind, notice.hard, notice.reason) == (Kind.COMPLAINT, None, Reason.FEEDBACK)
    assert (notice.recipient, notice.reported, notice.return_paths) == ("alice@example.org", "abuse", (US,))


@pytest.mark.parametrize(
    ("kind", "read_as"),
    [("opt-out", Kind.OPT_OUT), ("auth-failure", Kind.REPORT), ("not-spam", Kind.REPORT), ("x", Kind.REPORT)],
)
def test_only_abuse_reports_are_complaints(kind: str, read_as: Kind) -> None:
    assert parse_one(complaint("fbl@paperboy.test", kind)).kind is read_as


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
def test_automatic_reply_is_not_a_bounce(mail: bytes) -> None:
    """Test replies with and without the headers of RFC 3834."""
    notice = parse_one(mail)
    assert (notice.kind, notice.hard, notice.recipient) == (Kind.VACATION, None, "alice@example.org")


@pytest.mark.parametrize(
    "mail", [PERSONAL_MAIL, b"", b"\0" * 100, b"From: bob@example.org\n\nmy mailbox is full of joy"]
)
def test_personal_mail_is_not_a_notice(mail: bytes) -> None:
    """It is for a person to read."""
    notice = parse_one(mail)
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
def test_plain_text_notices(text: str, reason: Reason, hard: bool) -> None:
    """The returned mail below the notice is ignored."""
    notice = parse_one(plain_notice(text))
    assert (notice.recipient, notice.reason, notice.hard) == ("alice@example.org", reason, hard)


def test_warning_is_not_a_bounce() -> None:
    """The server will try again."""
    text = "THIS IS A WARNING MESSAGE ONLY\n\n<alice@example.org>\n451 4.4.1 Connection timed out\n"
    assert parse_one(plain_notice(text)).kind is Kind.DELAYED


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ("Undeliverable: Sensor Scheduling for Delay-Aware Control", "User unknown"),
        (
            "Delivery Status Notification (Failure): Delay-Aware Control",
            "Sorry, no mailbox here.",
        ),
        ("Your digest: Sensor Scheduling for Delay-Aware Control", "550 5.1.1 User unknown"),
    ],
)
def test_title_in_the_subject_is_not_a_warning(subject: str, text: str) -> None:
    """The subject quotes that of the digest."""
    text = f"Your message could not be delivered.\n\n<alice@example.org>: {text}\n"
    notice = parse_one(plain_notice(text, subject))
    assert (notice.kind, notice.action) == (Kind.BOUNCE, Action.SUPPRESS)


@pytest.mark.parametrize(
    "subject", ["Delivery delayed", "Delivery Status Notification (Delay)", "Undelivered mail: delayed"]
)
def test_warning_in_the_subject(subject: str) -> None:
    """The final notice will follow."""
    text = "Your message could not be delivered.\n\n<alice@example.org>: 451 4.4.1 Connection timed out\n"
    assert parse_one(plain_notice(text, subject)).kind is Kind.DELAYED


def test_several_recipients_in_plain_text() -> None:
    """Each has the text up to the next one."""
    text = "<alice@example.org>:\nUser unknown\n\n<bob@example.org>:\nMailbox is full\n"
    results = [(each.recipient, each.reason) for each in notices.parse(plain_notice(text))]
    assert results == [("alice@example.org", Reason.USER_UNKNOWN), ("bob@example.org", Reason.MAILBOX_FULL)]


@pytest.mark.parametrize("header", ["Delivered-To", "X-Original-To", "Envelope-To", "Cc"])
def test_return_path_is_found_in_several_headers(header: str) -> None:
    """A mailbox for many addresses has it in one of these headers."""
    mail = dsn("postmaster@paperboy.test").replace(b"From:", f"{header}: <{US}>\r\nFrom:".encode(), 1)
    assert parse_one(mail).return_paths == (US,)


def test_message_id_of_the_returned_mail() -> None:
    returned = (
        b"--=_b\r\nContent-Type: text/rfc822-headers\r\n\r\nMessage-ID: <x@paperboy.test>\r\n\r\n--=_b--"
    )
    assert parse_one(dsn(US).replace(b"--=_b--", returned)).message_id == "<x@paperboy.test>"


def test_diagnostic_text_is_cleaned() -> None:
    """It becomes one line of limited length without control characters."""
    notice = parse_one(dsn(US, diagnostic="smtp; 550 5.1.1 \x1b[31mred\x07\u202e " + "x" * 5000))
    assert len(notice.diagnostic) == notices.MAX_DIAGNOSTIC
    assert notice.diagnostic.isprintable()


def test_sns_notice_by_mail() -> None:
    """SNS can send its JSON to an address."""
    event = '{"notificationType":"Delivery","mail":{},"delivery":{"recipients":["a@example.org"]}}'
    mail = (
        b"From: no-reply@sns.example\nSubject: AWS Notification Message\n\n" + event.encode() + b"\n--\nbye\n"
    )
    (notice,) = parse_mail(mail)
    assert (notice.kind, notice.recipient, notice.hard) == (Kind.DELIVERED, "a@example.org", None)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000))
def test_random_bytes_do_not_raise(raw: bytes) -> None:
    assert parse_mail(raw)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([dsn, vacation, complaint]), st.integers(), st.binary(max_size=300))
def test_mutated_notices_do_not_raise(make: Callable[[str], bytes], seed: int, other: bytes) -> None:
    """Their diagnostic text is clean."""
    mail = mutate(make(US), other or b"x", random.Random(seed))  # noqa: S311
    for notice in parse_mail(mail):
        assert (notice.diagnostic + notice.recipient + notice.action).isprintable()


@settings(max_examples=150, deadline=None)
@given(st.integers(), st.binary(min_size=1, max_size=300))
def test_mutated_automatic_reply_is_never_a_hard_bounce(seed: int, other: bytes) -> None:
    """The headers that identify it are not mutated."""
    head, _, body = vacation(US).partition(b"\r\n\r\n")
    mail = head + b"\r\n\r\n" + mutate(body, other, random.Random(seed))  # noqa: S311
    assert not any(notice.hard for notice in parse_mail(mail))
