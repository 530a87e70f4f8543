"""Test emails that ask to unsubscribe: by the address with a token, and by readers' own words."""

import pytest

from app.bounces import unsubscribe_mails
from app.bounces.unsubscribe_mails import UnsubscribeMail
from tests.bounces.mails import PERSONAL_MAIL, dsn, vacation

TOKEN = "Ab-_" * 12 + "xyz"
ADDRESS = f"unsubscribe+{TOKEN}@paperboy.test"
ALICE = "alice@example.org"


def mail(to: str = "digest@paperboy.test", subject: str = "", text: str = "", headers: str = "") -> bytes:
    return f"From: Alice <{ALICE}>\r\nTo: <{to}>\r\nSubject: {subject}\r\n{headers}\r\n{text}".encode()


@pytest.mark.parametrize(
    "raw",
    [
        mail(ADDRESS, "unsubscribe"),
        mail(ADDRESS),
        mail(subject=f"unsubscribe {TOKEN}"),
        mail(headers=f"Delivered-To: {ADDRESS}\r\n"),
    ],
)
def test_token_is_found(raw: bytes) -> None:
    """Apple Mail writes to the address; other programs copy the subject."""
    assert unsubscribe_mails.parse(raw) == UnsubscribeMail((TOKEN,), ALICE if b"nsubscribe" in raw else "")


def test_token_of_an_automatic_mail() -> None:
    """A mail program may mark its request as automatic."""
    raw = mail(ADDRESS, "unsubscribe", headers="Auto-Submitted: auto-generated\r\n")
    assert unsubscribe_mails.parse(raw) == UnsubscribeMail((TOKEN,), "")


@pytest.mark.parametrize(
    "raw",
    [
        mail(subject="Unsubscribe"),
        mail(subject="Re: UNSUBSCRIBE."),
        mail(subject="hello", text="\r\nunsubscribe\r\n\r\nbest, Alice"),
        mail("unsubscribe@paperboy.test", "please"),
    ],
)
def test_plain_request(raw: bytes) -> None:
    assert unsubscribe_mails.parse(raw) == UnsubscribeMail((), ALICE)


def test_sender_with_an_international_domain() -> None:
    """Some programs write the domain in Unicode, but addresses are stored with their domain in ASCII."""
    raw = mail(subject="unsubscribe").replace(ALICE.encode(), "用户@例え.भारत".encode())
    assert unsubscribe_mails.parse(raw) == UnsubscribeMail((), "用户@xn--r8jz45g.xn--h2brj9c")


@pytest.mark.parametrize(
    "raw",
    [
        mail(subject=f"\u200funsubscribe {TOKEN}\u200f"),
        mail(subject="Hello", text=f"\u202bunsubscribe {TOKEN}\u202c"),
    ],
)
def test_direction_marks(raw: bytes) -> None:
    """Mail programs in Hebrew or Arabic write them into a subject or a first line."""
    assert unsubscribe_mails.parse(raw) == UnsubscribeMail((TOKEN,), ALICE)


@pytest.mark.parametrize(
    "sender",
    [
        f'"{ALICE}，Alice" <{ALICE}>',
        f"{ALICE}…<{ALICE}>",
        f"{ALICE}（Alice）<{ALICE}>",
        f"{ALICE}さん <{ALICE}>",
        f"{ALICE}’s phone <{ALICE}>",
        f'"{ALICE}, Alice" <{ALICE}>',
        f"Example, Alice <{ALICE}>",
        f'"\u202a{ALICE}\u202c" <{ALICE}>',
        f"\u202a{ALICE}\u202c",
    ],
)
def test_name_of_the_sender(sender: str) -> None:
    """It may contain the address again. With the characters after it, it would look like another one."""
    raw = mail(subject="unsubscribe").replace(f"Alice <{ALICE}>".encode(), sender.encode())
    assert unsubscribe_mails.parse(raw) == UnsubscribeMail((), ALICE)


def test_sender_with_an_apostrophe() -> None:
    """The rest of the address, brien@example.org, is another person's."""
    raw = mail(subject="unsubscribe").replace(ALICE.encode(), b"o'brien@example.org")
    assert unsubscribe_mails.parse(raw) == UnsubscribeMail((), "o'brien@example.org")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        PERSONAL_MAIL,
        dsn("bounce+00@paperboy.test"),
        vacation("bounce+00@paperboy.test"),
        mail(subject="how do I unsubscribe my colleague?", text="I do not want to unsubscribe"),
        mail(subject="unsubscribe", headers="Auto-Submitted: auto-replied\r\n"),
        mail(subject="unsubscribe", headers="List-Id: <x.example.org>\r\n"),
        mail(subject="unsubscribe").replace(b"From: ", b"From: bob@example.org, "),
        mail(subject="unsubscribe").replace(b"From: ", b"From: bob@example.org; "),
        mail(subject="unsubscribe").replace(b"From: ", b"From: Bob <bob@example.org> "),
    ],
)
def test_other_mail_is_no_request(raw: bytes) -> None:
    """Automatic emails and emails with several senders are not requests."""
    assert unsubscribe_mails.parse(raw) is None
