"""Test the MIME message: it follows the standards, and no text can inject a header."""

import email
import email.policy
from dataclasses import replace
from datetime import datetime
from email.message import EmailMessage

import pytest

from app.errors import DeliveryError
from app.mail import message
from app.mail.message import Envelope, OutgoingMail
from app.types import RenderedMail

MAIL = RenderedMail(subject="Two papers", text="Hello,\n.\n..dots\n", html="<p>Hello</p>", headers={})


@pytest.fixture
def envelope(now: datetime) -> Envelope:
    return Envelope(
        delivery_id=7,
        message_id="<abc@paperboy.test>",
        return_path="bounce+7-x@paperboy.test",
        from_name="Paperboy",
        from_address="digest@paperboy.test",
        to_address="alice@example.org",
        date=now,
    )


def parsed(outgoing: OutgoingMail) -> EmailMessage:
    return email.message_from_bytes(outgoing.data, policy=email.policy.default)  # type: ignore[return-value]


def test_both_parts_round_trip(envelope: Envelope) -> None:
    """Plain text comes first, HTML second; no character is changed."""
    text = "Grüße — ≤ 5 % 日本語\n.\n.leading dots\nFrom here  \n" + "a long line " * 200 + "\nx=3D?=\n"
    html = "<p>" + "שלום €  " * 300 + "</p>\n"
    whole = parsed(message.compose(replace(MAIL, text=text, html=html), envelope))
    assert whole.get_content_type() == "multipart/alternative"
    plain, rich = whole.iter_parts()
    assert (plain.get_content_type(), rich.get_content_type()) == ("text/plain", "text/html")
    for part, expected in ((plain, text), (rich, html)):
        assert part.get_content().replace("\r\n", "\n") == expected  # type: ignore[attr-defined]


def test_message_bytes_are_ascii_with_crlf(envelope: Envelope) -> None:
    """Lines have at most 998 octets, and the bytes are deterministic."""
    mail = replace(
        MAIL, subject="Über " * 20, text="x" * 5000 + "\r\nlone\rCR and lone\nLF\r\n", html="é" * 5000
    )
    data = message.compose(mail, envelope).data
    assert data.isascii()
    assert b"\r" not in data.replace(b"\r\n", b"")
    assert b"\n" not in data.replace(b"\r\n", b"")
    assert max(map(len, data.split(b"\r\n"))) <= 998
    assert data == message.compose(mail, envelope).data


def test_common_headers(envelope: Envelope) -> None:
    """From, To, Date and Message-ID are the delivery's; the envelope sender is the signed return path."""
    outgoing = message.compose(replace(MAIL, headers={"Precedence": "bulk"}), envelope)
    whole = parsed(outgoing)
    assert whole["From"] == "Paperboy <digest@paperboy.test>"
    assert whole["To"] == "alice@example.org"
    assert whole["Date"] == "Fri, 20 Nov 2026 09:30:00 +0000"
    assert whole["Message-ID"] == outgoing.message_id == "<abc@paperboy.test>"
    assert whole["Precedence"] == "bulk"
    assert (outgoing.sender, outgoing.recipient) == ("bounce+7-x@paperboy.test", "alice@example.org")
    assert not outgoing.needs_smtputf8


@pytest.mark.parametrize(
    "text",
    [
        "Grüße aus ℝ³: eine Reise, die viel länger ist als eine einzelne Zeile von achtundsiebzig Zeichen",
        "=?utf-8?q?an_encoded_word_in_a_title?=",
        "plain",
        "日本語" * 30,
        "x" * 120,
    ],
)
def test_subject_round_trips(envelope: Envelope, text: str) -> None:
    """Other scripts are encoded, and text that looks encoded is unchanged."""
    assert parsed(message.compose(replace(MAIL, subject=text), envelope))["Subject"] == text


@pytest.mark.parametrize("name", ["Paperboy", "Zeitungsträger", 'Lab 4, "the quiet one"', "a.b@c <x@y>"])
def test_sender_name_is_quoted(envelope: Envelope, name: str) -> None:
    """A name with commas, quotes or an address stays a name."""
    sender = parsed(message.compose(MAIL, replace(envelope, from_name=name)))["From"]
    (address,) = sender.addresses
    assert (address.display_name, address.addr_spec) == (name, "digest@paperboy.test")


def test_list_unsubscribe_is_not_folded_or_encoded(envelope: Envelope) -> None:
    """Providers parse it literally."""
    value = (
        f"<https://paperboy.test/unsubscribe/{'x' * 120}>, <mailto:help@paperboy.test?subject=unsubscribe>"
    )
    data = message.compose(replace(MAIL, headers={"List-Unsubscribe": value}), envelope).data
    assert f"\r\nList-Unsubscribe: {value}\r\n".encode() in data


@pytest.mark.parametrize(
    "evil", ["a\r\nBcc: mallory@example.org", "a\nb", "a\rb", "a\0b", "a\r\n b\r\n\r\nbody"]
)
def test_header_injection_is_refused(envelope: Envelope, evil: str) -> None:
    """Line breaks in a subject, a name or an address are errors."""
    for mail, to in (
        (replace(MAIL, subject=evil), envelope),
        (replace(MAIL, headers={"X-Note": evil}), envelope),
        (MAIL, replace(envelope, from_name=evil)),
        (MAIL, replace(envelope, to_address=f"alice@example.org{evil}")),
    ):
        with pytest.raises(DeliveryError) as refused:
            message.compose(mail, to)
        assert refused.value.permanent


@pytest.mark.parametrize(
    "address",
    [
        "",
        "alice",
        "@example.org",
        "alice@",
        "a b@example.org",
        "a@b@c",
        "<a@b>",
        "a,b@example.org",
        "a@ex ample",
        "x" * 400 + "@y.org",
        "a@" + "ü" * 80 + ".org",
    ],
)
def test_unusable_address_is_refused(envelope: Envelope, address: str) -> None:
    """The error is raised before connecting."""
    with pytest.raises(DeliveryError):
        message.compose(MAIL, replace(envelope, to_address=address))


def test_international_address(envelope: Envelope) -> None:
    """The domain becomes ASCII; a non-ASCII local part needs SMTPUTF8."""
    domain = message.compose(MAIL, replace(envelope, to_address="alice@bücher.example"))
    assert (domain.recipient, domain.needs_smtputf8) == ("alice@xn--bcher-kva.example", False)
    eszett = message.compose(MAIL, replace(envelope, to_address="alice@straße.example"))
    assert eszett.recipient == "alice@xn--strae-oqa.example"
    local = message.compose(MAIL, replace(envelope, to_address="jürgen@bücher.example"))
    assert local.needs_smtputf8
    assert "To: jürgen@xn--bcher-kva.example\r\n".encode() in local.data
