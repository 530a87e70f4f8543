"""Test the fast composer: it gives the same emails as the templates, in bytes that no relay changes."""

import email
import email.policy
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from app import main
from app.errors import DeliveryError, InvalidSettings
from app.links import LinkSigner
from app.mail import fragments, text_limits
from app.mail.composer import Composer
from app.mail.message import OutgoingMail
from app.mail.render import Renderer, describe_error
from app.settings import Settings
from app.types import (
    Digest,
    DigestItem,
    MailKind,
    MailRequest,
    Marks,
    PaperUpdate,
    RenderedMail,
    Section,
    UpdateKind,
)
from tests.support import sample_digest

pytestmark = pytest.mark.once

NEVER_SENT = re.compile(rb"\A[.]|\AFrom |[ \t]\Z|  |\t")


@pytest.fixture
def signer(settings: Settings) -> LinkSigner:
    return main.build_signer(settings)


@pytest.fixture
def renderer(settings: Settings, signer: LinkSigner) -> Renderer:
    return Renderer(settings, signer)


@pytest.fixture
def composer(settings: Settings, signer: LinkSigner, renderer: Renderer) -> Composer:
    return Composer(settings, signer, renderer)


def request_of(now: datetime, digest: Digest | None = None, **fields: Any) -> MailRequest:
    usual = MailRequest(
        delivery_id=42,
        kind=MailKind.DIGEST,
        edition="2026-11-20",
        subscriber_id=7,
        email="alice@example.org",
        link_epoch=1,
        issued_at=now,
        digest=digest or sample_digest.digest(),
    )
    return usual._replace(**fields)


def digest_of(*picks: DigestItem, **fields: Any) -> Digest:
    return Digest("2026-11-20", (Section("retrieval", picks),), **fields)


def compose(composer: Composer, request: MailRequest) -> OutgoingMail:
    return composer.sign_and_serialize(composer.draft(request))


def check(composer: Composer, renderer: Renderer, request: MailRequest) -> RenderedMail:
    """Check that `render` and `composer` give the same email, and check its bytes."""
    rendered, draft = renderer.render(request), composer.draft(request)
    mail = composer.sign_and_serialize(draft)
    parsed = email.message_from_bytes(mail.data, policy=email.policy.default)
    text, html = (part.get_content().replace("\r\n", "\n") for part in parsed.iter_parts())  # type: ignore[attr-defined]
    assert text == rendered.text
    assert html.removesuffix("\n") == rendered.html.removesuffix("\n")
    assert parsed["Subject"] == mail.subject == rendered.subject
    assert draft.left_out == rendered.left_out
    for name, value in rendered.headers.items():
        assert parsed[name] == value
    check_bytes(mail)
    return rendered


def check_bytes(mail: OutgoingMail) -> None:
    """Check that no relay, mailbox or canonicalisation has a reason to change the bytes."""
    head, _, body = mail.data.partition(b"\r\n\r\n")
    assert body.endswith(b"\r\n")
    assert not re.search(rb"[^\r]\n|\r[^\n]", mail.data)
    assert not re.search(rb"[^\r\n -~]", body)
    for line in body.split(b"\r\n"):
        assert len(line) <= 76
        assert not NEVER_SENT.search(line), line
    assert all(len(line) <= 998 for line in head.split(b"\r\n"))
    assert mail.no_leading_dots


# --- the same email, both ways


def test_digest_equals_the_rendered_templates(composer: Composer, renderer: Renderer, now: datetime) -> None:
    """It has sections, trending papers, a note, and papers without summary, authors or date."""
    check(composer, renderer, request_of(now))
    check(composer, renderer, request_of(now, replace(sample_digest.digest(), note="", considered=0)))


@pytest.mark.parametrize(
    "title",
    [
        ".",
        "... and a dot. " * 12,
        "From here on " * 8,
        "a=b=3D=20 " * 15,
        "x" * 500,
        "two  blanks\tand\ta tab  ",
        "Grüße — ≤ 5 % 日本語 🧪👩‍🔬",
        "שיטה חדשה לחיזוי מבנה חלבונים",
        "\u202eturned\u2066 around",
        "<script>alert('&')</script>",
        "{{ 7 * 7 }} {% raw %} %s %(x)s",
        "\x01more\x02 \x01sections\x02 \x01unsubscribe\x02",
        "--=_paperboy",
        "a\r\nBcc: mallory@example.org\r\n\r\n",
        "half a \ud83e letter",
        "",
    ],
)
def test_unusual_paper_texts(composer: Composer, renderer: Renderer, now: datetime, title: str) -> None:
    """Test titles, summaries, reasons, authors, trends, interests, headings and notes."""
    fields = {"authors": title, "summary": title * 3, "trend": title, "summary_by": title, "reason": title}
    first = sample_digest.pick(1, title, **fields)
    sections = (Section(title, (first, sample_digest.pick(2, "Another"))), Section("", (first,), title))
    check(composer, renderer, request_of(now, Digest("2026-11-20", sections, title, 3)))
    check(composer, renderer, request_of(now, digest_of(first)))


@pytest.mark.parametrize("count", [1, 2, 3, 15, 30])
def test_any_number_of_papers(composer: Composer, renderer: Renderer, now: datetime, count: int) -> None:
    """The subject counts those that it does not name, and the preview text names two of them."""
    picks = [sample_digest.pick(n, f"Paper {n}") for n in range(count)]
    check(composer, renderer, request_of(now, digest_of(*picks, considered=20)))
    long = [replace(pick, title=f"{pick.title} {'of many words ' * 5}") for pick in picks]
    check(composer, renderer, request_of(now, digest_of(*long, considered=20)))


@pytest.mark.parametrize(
    ("summary", "characters"), [(sample_digest.LONG * 3, 600), ("我们重新审视长上下文" * 80, 120)]
)
def test_large_digest_is_shortened_by_the_same_rule(
    composer: Composer, renderer: Renderer, now: datetime, summary: str, characters: int
) -> None:
    """Summaries are shortened below the Gmail limit."""
    picks = [sample_digest.pick(n, f"{n} 用于检索的语言模型" * 5, summary=summary) for n in range(30)]
    rendered = check(composer, renderer, request_of(now, digest_of(*picks)))
    assert len(rendered.html.encode()) <= text_limits.MAX_HTML_BYTES


@pytest.mark.parametrize(
    "text", ["A Title of Considerable Length ", "我们重新审视长上下文", "שיטה חדשה לחיזוי "]
)
def test_longest_possible_digest_is_below_the_gmail_limit(
    composer: Composer, renderer: Renderer, now: datetime, text: str
) -> None:
    """Thirty papers have the longest texts and every line of a card."""
    longest = dict.fromkeys(
        ("authors", "summary", "reason", "trend", "summary_by", "submitted_by"), text * 90
    )
    links = {"code_url": f"https://github.com/{'x' * 60}", "project_url": f"https://x.org/{'y' * 60}"}
    picks = [sample_digest.pick(n, f"{n} {text * 40}", comments=999, **longest, **links) for n in range(30)]
    rendered = check(composer, renderer, request_of(now, digest_of(*picks)))
    assert len(rendered.html.encode()) <= text_limits.MAX_HTML_BYTES
    assert rendered.left_out == 0


@pytest.mark.parametrize("text", ['" & ', "我们重新审视长上下文", "a b "])
@pytest.mark.parametrize("link_chars", [60, 100, 120, 800])
def test_no_digest_is_clipped(
    composer: Composer, renderer: Renderer, now: datetime, text: str, link_chars: int
) -> None:
    """Everything is as long as possible: texts, links, headings, updates. Every other letter is marked."""
    line = text * 300
    texts = dict.fromkeys(
        ("authors", "short_authors", "organization", "trend_note", "summary_by", "submitted_by"), line
    )
    links = {
        name: f"https://{name[:3]}.example.org/".ljust(min(chars, link_chars), "x")
        for name, chars in {"url": 800, "pdf_url": 800, "code_url": 800, "project_url": 800}.items()
    }
    facts = {"votes": 123_456, "comments": 999, "stars": 123_456, "published_on": "2026-11-20"}
    marks = Marks(*[tuple((at, at + 1) for at in range(0, 400, 2))] * 2, line)
    picks = [
        sample_digest.pick(
            n, f"{n} {line}", summary=line, reason=line, marks=marks, **texts, **links, **facts
        )
        for n in range(30)
    ]
    digest = Digest(
        "2026-11-20",
        tuple(Section(line[: 290 + n], (pick,)) for n, pick in enumerate(picks, 1)),
        line[:300],
        999,
        updates=tuple(PaperUpdate(kind, n, line, links["url"]) for n in range(5) for kind in UpdateKind),
    )
    rendered = check(composer, renderer, request_of(now, digest))
    assert len(rendered.html.encode()) <= text_limits.MAX_HTML_BYTES
    assert rendered.left_out == 0


@pytest.mark.parametrize(("chars", "has_extra_links"), [(120, True), (400, False), (800, False)])
def test_longest_links_are_below_the_gmail_limit(
    composer: Composer, renderer: Renderer, now: datetime, chars: int, has_extra_links: bool
) -> None:
    """If nothing else helps, links longer than 120 characters are left out, except those of the titles."""
    text = "A Title of Considerable Length " * 40
    longest = dict.fromkeys(("authors", "summary", "reason", "trend", "summary_by", "submitted_by"), text)
    links = {
        name: f"https://{name[:3]}.example.org/".ljust(chars, "x")
        for name in ("url", "pdf_url", "code_url", "project_url")
    }
    picks = [sample_digest.pick(n, f"{n} {text}", comments=999, **longest, **links) for n in range(30)]
    sections = tuple(Section(text[:200], (pick,)) for pick in picks)
    rendered = check(composer, renderer, request_of(now, replace(digest_of(*picks), sections=sections)))
    assert len(rendered.html.encode()) <= text_limits.MAX_HTML_BYTES
    assert rendered.left_out == 0
    assert links["url"] in rendered.html
    assert (links["pdf_url"] in rendered.html) is has_extra_links


@pytest.mark.parametrize(
    "address",
    [
        "alice@example.org",
        "a.b+c_d@mail.example.org",
        "alice&bob's@example.org",
        "jürgen@bücher.example",
        "x" * 64 + "@" + "y" * 60 + ".example.org",
        "from.x@example.org",
    ],
)
def test_unusual_addresses(composer: Composer, renderer: Renderer, now: datetime, address: str) -> None:
    """Addresses of any length or script are shown unchanged in the footer."""
    rendered = check(composer, renderer, request_of(now, email=address))
    assert address in rendered.text


def test_unusable_address_is_refused_permanently(composer: Composer, now: datetime) -> None:
    with pytest.raises(DeliveryError) as refused:
        composer.draft(request_of(now, email="alice@example.org\r\nBcc: mallory@example.org"))
    assert refused.value.permanent


WORDS = some.text(some.characters(codec=None), max_size=200)
LINKS = some.one_of(some.just(""), WORDS, some.just("https://example.org/a?b=1&c=2"))
PICKS = some.builds(
    DigestItem,
    marks=some.sampled_from([None, Marks(((0, 2),), ((0, 3), (4, 6)), "by Ana")]),
    paper_id=some.integers(0, 2**64 - 1),
    title=WORDS,
    authors=WORDS,
    summary=some.text(max_size=900),
    reason=WORDS,
    trend=WORDS,
    url=LINKS,
    pdf_url=LINKS,
    code_url=LINKS,
    published_on=some.one_of(some.just(""), some.dates().map(str)),
    comments=some.integers(0, 10**6),
    summary_by=WORDS,
)
DIGESTS = some.builds(
    Digest,
    edition=some.just("2026-W47"),
    sections=some.lists(
        some.builds(
            Section, interest=WORDS, picks=some.lists(PICKS, min_size=1, max_size=3).map(tuple), heading=WORDS
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    note=WORDS,
    considered=some.integers(0, 500),
    updates=some.lists(
        some.builds(
            PaperUpdate,
            kind=some.sampled_from(UpdateKind),
            paper_id=some.integers(1, 9),
            title=WORDS,
            url=LINKS,
        ),
        max_size=3,
    ).map(tuple),
)


@given(digest=DIGESTS)
@hypothesis_settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(digest=sample_digest.digest("2026-W47"))
def test_any_digest_equals_the_rendered_templates(
    composer: Composer, renderer: Renderer, now: datetime, digest: Digest
) -> None:
    check(composer, renderer, request_of(now, digest, edition="2026-W47"))


# --- what is the same each time


def test_composing_is_deterministic(
    settings: Settings, signer: LinkSigner, renderer: Renderer, composer: Composer, now: datetime
) -> None:
    """Test another process and a composer after many other requests."""
    first = compose(composer, request_of(now))
    for number in range(20):
        compose(
            composer,
            request_of(now, digest_of(sample_digest.pick(number, f"Paper {number}")), subscriber_id=number),
        )
    assert compose(composer, request_of(now)) == first
    assert compose(Composer(settings, signer, Renderer(settings, signer)), request_of(now)) == first


def test_cached_fragments_contain_no_personal_links(composer: Composer, now: datetime) -> None:
    requests = [request_of(now), request_of(now, email="bob@example.org", subscriber_id=8, delivery_id=43)]
    alices, bobs = (compose(composer, request).data.replace(b"=\r\n", b"") for request in requests)
    token = re.compile(rb"/\w+/([\w-]{51})")
    assert len(set(token.findall(alices))) == 3 + 1  # that of the cards
    assert not set(token.findall(alices)) & set(token.findall(bobs))
    assert b"bob" not in alices
    assert b"alice" not in bobs


@pytest.mark.parametrize(
    "change",
    [{"title": "A Papers"}, {"reason": "of old"}, {"summary": "Less."}, {"trend": "up", "comments": 2}, {}],
)
def test_cache_compares_picks_by_value(
    composer: Composer, renderer: Renderer, now: datetime, change: dict[str, Any]
) -> None:
    """Equal picks give equal emails, and a changed one gives another email."""
    usual = sample_digest.pick(1, "A Paper")
    first = compose(composer, request_of(now, digest_of(usual)))
    other = request_of(now, digest_of(replace(usual, **change)))
    assert (compose(composer, other) == first) is (not change)
    check(composer, renderer, other)


def test_cache_is_bounded(
    settings: Settings, signer: LinkSigner, renderer: Renderer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicted fragments are rebuilt identically."""
    monkeypatch.setattr(fragments, "MAX_CACHED_ITEMS", 5)
    composer = Composer(settings, signer, renderer)
    first = compose(composer, request_of(now))
    for number in range(30):
        compose(composer, request_of(now, digest_of(sample_digest.pick(number, f"Paper {number}"))))
    assert all(len(cache) <= 5 for cache in composer._fragments._cards_by_item)
    assert compose(composer, request_of(now)) == first


def test_composer_is_thread_safe(
    settings: Settings, signer: LinkSigner, renderer: Renderer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is evicted and refilled concurrently."""
    for kind in ("ITEMS", "CARDS", "PAPERS", "LINES", "SHELLS"):
        monkeypatch.setattr(fragments, f"MAX_CACHED_{kind}", 3)
    picks = [sample_digest.pick(n, f"Paper {n}", reason=f"Reason {n % 7}") for n in range(20)]
    requests = [
        request_of(now, digest_of(*picks[n % 15 : n % 15 + 4], note=f"Note {n % 5}"), subscriber_id=n)
        for n in range(200)
    ]
    expected = [compose(Composer(settings, signer, renderer), request) for request in requests[:20]]
    composer = Composer(settings, signer, renderer)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            composed = list(pool.map(partial(compose, composer), requests))
    finally:
        sys.setswitchinterval(usual)
    assert composed[:20] == expected
    assert composed == [compose(composer, request) for request in requests]


# --- what goes wrong


@pytest.mark.parametrize(
    "invalid",
    [
        {"title": None},
        {"title": ["a", "list"]},
        {"reason": None},
        {"reason": {}},
        {"published_on": "yesterday"},
        {"comments": {}},
        {"paper_id": -1},
        {"paper_id": "x"},
        {"url": 7},
    ],
)
def test_unrenderable_paper_is_left_out(
    composer: Composer, renderer: Renderer, now: datetime, invalid: dict[str, Any]
) -> None:
    """It is counted with the unreadable ones."""
    bad = replace(sample_digest.pick(2, "Broken"), **invalid)
    digest = Digest("2026-11-20", (Section("a", (sample_digest.pick(1, "Good"), bad)), Section("b", (bad,))))
    for _ in range(2):
        assert check(composer, renderer, request_of(now, digest, unreadable=1)).left_out == 3


def test_digest_without_papers_raises_an_error(composer: Composer, now: datetime) -> None:
    for digest in (Digest("2026-11-20", ()), digest_of(sample_digest.pick(1, None))):  # type: ignore[arg-type]
        with pytest.raises(DeliveryError) as refused:
            composer.draft(request_of(now, digest))
        assert refused.value.permanent


def test_error_names_a_card_of_the_same_digest(composer: Composer, now: datetime) -> None:
    """Cards of other digests that failed in the meantime are not named."""
    pick = sample_digest.pick(1, "A title")
    undated = digest_of(replace(pick, published_on="yesterday"))  # type: ignore[arg-type]
    uncounted = digest_of(replace(pick, comments={}))  # type: ignore[arg-type]
    errors = []
    for digest in (undated, uncounted, undated, Digest("2026-11-20", ())):
        with pytest.raises(DeliveryError) as refused:
            composer.draft(request_of(now, digest))
        errors.append(describe_error(refused.value))
    assert errors[0] == errors[2]
    assert len(set(errors)) == 3
    assert refused.value.__cause__ is None


# --- other emails


@pytest.mark.parametrize("kind", [kind for kind in MailKind if kind is not MailKind.DIGEST])
def test_service_mails(composer: Composer, renderer: Renderer, now: datetime, kind: MailKind) -> None:
    """They are rendered by their templates under the same rules."""
    request = request_of(now)._replace(kind=kind, digest=None)
    check(composer, renderer, request)


@pytest.mark.parametrize("kind", MailKind)
def test_international_domain_of_the_reader(
    composer: Composer, renderer: Renderer, now: datetime, kind: MailKind
) -> None:
    """Emails name the address as its owner knows it. Its domain is in ASCII in the envelope."""
    request = request_of(now, email="alice@xn--r8jz45g.jp")._replace(kind=kind)
    check(composer, renderer, request)
    assert compose(composer, request).recipient == "alice@xn--r8jz45g.jp"
    assert "xn--r8jz45g.jp" not in renderer.render(request).html


def test_envelope(composer: Composer, signer: LinkSigner, now: datetime) -> None:
    """The return path contains the delivery, and the Message-ID is that of the delivery or the given one."""
    mail = compose(composer, request_of(now))
    assert signer.delivery_of(mail.sender) == mail.delivery_id == 42
    assert mail.recipient == "alice@example.org"
    assert mail.message_id == signer.message_id(42, "paperboy.test")
    explicit = compose(composer, request_of(now, message_id="<given@paperboy.test>"))
    assert b"\r\nMessage-ID: <given@paperboy.test>\r\n" in explicit.data
    assert compose(composer, request_of(now, email="jürgen@example.org")).needs_smtputf8


def test_date_header_is_the_time_of_the_request(composer: Composer, now: datetime) -> None:
    """It is in UTC and independent of the sending time."""
    later = now.astimezone() + timedelta(days=1)
    assert (
        b"\r\nDate: Sat, 21 Nov 2026 09:30:00 +0000\r\n"
        in compose(composer, request_of(now, issued_at=later)).data
    )


def test_invalid_sender_name_is_refused_at_start(
    settings: Settings, signer: LinkSigner, renderer: Renderer
) -> None:
    with pytest.raises(InvalidSettings, match="PAPERBOY_SITE_NAME"):
        Composer(settings.model_copy(update={"site_name": "Paper\r\nboy"}), signer, renderer)
