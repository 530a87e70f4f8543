"""Test the tolerant MIME parser: it parses malformed emails as far as possible in limited time."""

import time

import pytest

from app.bounces import mime_parser

REPORT = (
    b"From: a@example.org\r\nSubject: =?utf-8?q?Caf=C3=A9?= =?utf-8?b?IQ==?=\r\n"
    b'Content-Type: multipart/mixed;\r\n boundary="=_b"\r\n\r\npreamble\r\n'
    b"--=_b\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"
    b"Content-Transfer-Encoding: quoted-printable\r\n\r\nCaf=E9\r\n"
    b"--=_b\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    b"PHA+Mm5kPC9wPjxwPjMmbHQ7cmQ8L3A+\r\n--=_b--\r\nepilogue\r\n"
)


def test_mail_is_decoded() -> None:
    """Folded headers, encoded words, transfer encodings and charsets are decoded."""
    mail = mime_parser.parse(REPORT)
    assert mail.header("subject") == "Café!"
    assert [part.kind for part in mail.walk()] == ["multipart/mixed", "text/plain", "text/html"]
    assert [part.text.strip() for part in mail.parts] == ["Café", "2nd\n 3<rd"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b"no header at all\n", "no header at all\n\n"),
        (b"From x Thu Apr 29\nA: b\n\nbody", "body"),
        (b"A: b\nstray\n\nbody", "stray\n\nbody"),
        (b"Content-Type: text/plain; charset=klingon\n\n\xc3\xa9", "é"),
        (b"Content-Type: text/plain; charset=punycode\n\nabc", "abc"),
        (b'Content-Type: text/plain; charset=us-ascii\n\n\x1b$B$"\x1b(B', "あ"),
        (b"Content-Transfer-Encoding: base64\n\nQUJD*REV", "ABCDE"),
        (b"Content-Transfer-Encoding: base64\n\nQ", ""),
        (b"Content-Type: multipart/mixed; boundary=never\n\nplain", "plain"),
        (b"Content-Type: multipart/mixed\n\nplain", "plain"),
    ],
)
def test_malformed_parts_are_parsed_as_text(raw: bytes, text: str) -> None:
    assert mime_parser.parse(raw).text.strip() == text.strip()


def test_missing_boundary_is_recovered() -> None:
    """A relay damaged the folded header, but the parts are there."""
    parts = b"----__part\n\none\n----__part\n\ntwo\n----__part--"
    torn = b"Content-Type: multipart/mixed;\nboundary=--__part\n\n" + parts
    assert [part.text for part in mime_parser.parse(torn).parts] == ["one", "two"]


def test_attached_mail_is_not_parsed() -> None:
    """Its text is not part of the notice, but it is available on request."""
    mail = mime_parser.parse(b"Content-Type: message/rfc822\n\nSubject: inner\n\nwords")
    assert [part.kind for part in mail.walk()] == ["message/rfc822"]
    assert mail.parts[0].header("subject") == "inner"


def depth(part: mime_parser.Part) -> int:
    return 1 + max((depth(inner) for inner in part.parts), default=0)


@pytest.mark.parametrize(
    "raw",
    [
        b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(3000)),
        b"Content-Type: message/rfc822\n\n" * 20_000,
        b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 100_000,
        b"A: b\n" * 200_000,
        b"A: " + b"b" * 2_000_000,
        b"A: b\n" + b" c\n" * 400_000,
        b"Subject: " + b"=?utf-8?q?" * 100_000,
        b"Content-Type: text/html\n\n" + b"<style>" * 200_000,
        b"\n" + b"x" * 5_000_000,
    ],
    ids=["multiparts", "mails", "parts", "headers", "line", "folds", "words", "tags", "body"],
)
def test_depth_and_size_limits(raw: bytes) -> None:
    """Parts beyond the limits are ignored."""
    began = time.process_time()
    mail = mime_parser.parse(raw)
    assert depth(mail) <= mime_parser.MAX_DEPTH + 1
    assert len(mail.text) <= mime_parser.MAX_TEXT
    assert time.process_time() - began < 2
