"""Test hostile text: no parser hangs, raises or fills the memory, and only that text is lost."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

import pytest

from app.bounces import mime_parser, parse_mail, parse_webhook
from app.errors import InvalidInput, InvalidInterest, UnreadableResponse
from app.papers import bibliography
from app.papers.sources import arxiv, feed, json_rows
from app.relevance import query_language
from app.runtime import sandbox
from app.text import latex, sanitize
from app.web import pasted_papers

pytestmark = pytest.mark.once


@contextmanager
def cpu_time_limit(seconds: float) -> Iterator[None]:
    """Fail if the block takes more CPU time than this in this process."""
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds


@pytest.mark.parametrize(
    "text",
    [
        r"\sqrt[" * 16,
        r"\frac{" * 16,
        r"\sqrt[" * 3_000,
        r"$\frac{" * 1_000,
        r"\H{" * 19 + "x" + "}" * 19,
        r"\cite[" * 3_000,
        "http://" * 2_500,
        "{" * 20_000,
        "\\" * 20_000,
    ],
    ids=["roots", "fractions", "many roots", "mathematics", "accents", "cites", "links", "braces", "slashes"],
)
def test_unclosed_latex_is_kept_as_text(text: str) -> None:
    """Each level doubled the work: one abstract stopped ingesting, four pastes blocked the web server."""
    with cpu_time_limit(1):
        assert latex.latex_to_unicode(text) == text


@pytest.mark.parametrize("token", ["@a{", "@a{\n", "@a(", "@a{b}", "@string{a=b}", "@a{b,c={d},"])
def test_bibtex_with_many_unclosed_entries(token: str) -> None:
    """590 kB took 3.5 s, although only the first 200 entries are used."""
    with cpu_time_limit(2):
        parsed = bibliography.parse_file((token * 200_000)[:590_000].encode())
    assert len(parsed.records) + len(parsed.rejections) <= 401


RSS = '<?xml version="1.0"?><rss version="2.0"><channel><title>Pigeons</title>'
DAY = date(2026, 11, 20)


def test_tag_with_40_000_attributes_makes_a_feed_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """428 kB took 20 s, because the time grows with the square of their number."""
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    monkeypatch.setattr(sandbox, "WALL_SECONDS_PER_CPU_SECOND", 60)
    attributes = " ".join(f'a{number}="b"' for number in range(40_000))
    with cpu_time_limit(1), pytest.raises(UnreadableResponse, match="more time or memory"):
        feed.parse(f"{RSS}<item><title>a</title><link {attributes}/></item></channel></rss>", DAY)


@pytest.mark.parametrize("start", ["<!--", "<![CDATA[", "<?"])
def test_unclosed_sections_in_a_feed(start: str) -> None:
    """80 kB took 17 s, because each section was searched for its end."""
    with cpu_time_limit(1), pytest.raises(UnreadableResponse):
        feed.parse(f'<!DOCTYPE r [<!ENTITY a "ha">]>{RSS}{start * 20_000}', DAY)


def test_invalid_feed_entry_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutated feed made feedparser raise KeyError, and the whole feed was lost."""
    parse = feed.feedparser.parse

    def fragile(text: bytes, **options: bool) -> object:
        if b"<broken" in text:
            raise KeyError("broken")
        return parse(text, **options)

    monkeypatch.setattr(feed.feedparser, "parse", fragile)
    items = "".join(f"<item><title>{title}</title></item>" for title in ("Owls", "<broken/>", "Herons"))
    parsed = feed.parse(f"{RSS}{items}</channel></rss>", DAY)
    assert [record.title for record in parsed.records] == ["Owls", "Herons"]
    assert [(rejection.row, rejection.reason) for rejection in parsed.rejections] == [(2, feed.BROKEN_ENTRY)]


def test_invalid_feed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """If entries cannot be separated, the whole response is unreadable."""
    monkeypatch.setattr(feed.feedparser, "parse", lambda *_, **__: {}["broken"])
    with pytest.raises(UnreadableResponse, match="KeyError"):
        feed.parse(f"{RSS}</channel></rss>", DAY)


def test_feed_entries_are_limited() -> None:
    """378 kB of similar titles locked the database for a minute."""
    parsed = feed.parse(f"{RSS}{'<item><title>Pigeons</title></item>' * 2_345}</channel></rss>", DAY)
    assert len(parsed.records) == json_rows.MAX_ENTRIES
    assert [(rejection.reason, rejection.detail) for rejection in parsed.rejections] == [
        (json_rows.TOO_MANY, "the first 2,000 of 2,345 were read")
    ]


def test_arxiv_feed_entries_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is above any day of all categories."""
    monkeypatch.setattr(arxiv, "MAX_ENTRIES", 2)
    entry = "<entry><id>http://arxiv.org/abs/2611.0000{}v1</id><title>Pigeons</title></entry>"
    entries = "".join(entry.format(number) for number in range(5))
    parsed = arxiv.parse(f'<feed xmlns="http://www.w3.org/2005/Atom">{entries}</feed>', DAY)
    assert len(parsed.records) == parsed.rows == 2
    assert [rejection.detail for rejection in parsed.rejections] == ["the first 2 of 5 were read"]


HEAD = (
    "From: MAILER-DAEMON@x.test\r\nTo: bounce+1-abcdefgh@paperboy.test\r\n"
    'Subject: Undelivered Mail Returned to Sender\r\nContent-Type: multipart/report; boundary="b"\r\n\r\n'
)


def build_report(kind: str, words: str, fields: str) -> bytes:
    """Return a report with a human-readable part, and fields."""
    return f"{HEAD}--b\r\nContent-Type: {kind}\r\n\r\n{words}\r\n--b\r\n{fields}\r\n--b--\r\n".encode()


def recipient_fields(diagnostic: str, count: int) -> str:
    """Return the fields of a delivery status notice."""
    field = "Final-Recipient: rfc822; u{}@x.test\r\nAction: failed\r\nDiagnostic-Code: smtp; {}\r\n\r\n"
    fields = "".join(field.format(number, diagnostic) for number in range(count))
    return f"Content-Type: message/delivery-status\r\n\r\n{fields}"


COMPLAINT = "Content-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\n"


@pytest.mark.parametrize(
    "mail",
    [
        build_report("text/plain", "no", recipient_fields("550 user " * 440, 60)),
        build_report("text/plain", "a\r\n" * 40_000, recipient_fields("550", 1_500)),
        build_report(
            "text/html", "<p>a&amp;b</p>" * 5_000, COMPLAINT + "Original-Rcpt-To: u@x.test\r\n" * 5_000
        ),
    ],
    ids=["long answers", "short lines", "a complaint"],
)
def test_notice_with_many_recipients_is_parsed_in_linear_time(mail: bytes) -> None:
    """The text was parsed again for each recipient: 250 kB took 4 to 28 s."""
    with cpu_time_limit(2):
        assert 10 < len(parse_mail(mail)) <= 50


def test_long_diagnostics_in_webhooks_are_truncated() -> None:
    """SMTP replies have a few lines; 50 replies of 20 kB took 7 s."""
    event = {"kind": "bounce", "recipient": "a@x.test", "message_id": "<1@x.test>"}
    events = [event | {"diagnostic": "550 user " * 2_000}] * 20
    with cpu_time_limit(2):
        assert len(parse_webhook("generic", json.dumps(events).encode())) == 20


def test_combining_marks_are_limited() -> None:
    """Python sorts them in quadratic time: one abstract of 160 kB took half a minute."""
    marks = "\u0301\u0316" * 80_000
    with cpu_time_limit(1):
        assert len(sanitize.clean_text("e" + marks)) < 100
        with pytest.raises(InvalidInterest):
            query_language.parse("e" * 400 + marks)


def test_huge_numeric_entity_is_kept_as_text() -> None:
    """Python raises an error for it, and the paste got a 500."""
    number = "&#" + "1" * 5_000 + ";"
    parsed = bibliography.parse(f"@article{{a, title={{Pigeons {number[:900]}}}, abstract={{{number}}}}}")
    assert len(parsed.records) == 1
    assert b"&#1" in parse_mail_text(f"Content-Type: text/html\n\n{number}".encode())


def parse_mail_text(mail: bytes) -> bytes:
    """Parse an email and return its text."""
    return mime_parser.parse(mail).text.encode()


def test_slow_paste_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 kB of well-formed text within the limits kept a web worker busy for 6 s."""
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    monkeypatch.setattr(sandbox, "WALL_SECONDS_PER_CPU_SECOND", 60)
    entry = "@a{b, title={%s}, abstract={%s}}\n"
    hostile = (entry % (rf"{n}$\alpha$" * 80, rf"\'{{e}}{n}" * 300) for n in range(180))
    with cpu_time_limit(1), pytest.raises(InvalidInput, match="too long to process"):
        pasted_papers.parse_file("".join(hostile).encode())


@pytest.mark.parametrize(
    "mark", [*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c", "\u200b"]
)
def test_bidi_controls_are_removed_from_titles(mark: str) -> None:
    """U+202E in a title reversed the text after it on a page."""
    assert sanitize.title(f"Pigeons {mark}exe.sluop") == "Pigeons exe.sluop"


def test_required_joiners_are_kept() -> None:
    """Arabic and Hebrew need no controls; Persian and emoji need joiners."""
    for title in ("مدل‌های زبانی بزرگ", "מודלים של שפה", "क्‍ष", "👩‍🔬 at work"):
        assert sanitize.title(title) == title
