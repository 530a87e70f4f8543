"""Test rendered emails: both parts are complete, safe for any paper, and deterministic."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError
from jinja2.exceptions import SecurityError

from app import main
from app.errors import DeliveryError, InvalidSettings
from app.links import DIGEST_ACTIONS, LinkSigner, Purpose
from app.mail import render, section_headings, template_folders, text_limits
from app.mail.bulk_headers import sender_id
from app.mail.render import Renderer
from app.settings import Settings
from app.text.shortening import shorten_at_clause
from app.types import (
    Digest,
    DigestItem,
    MailKind,
    MailRequest,
    Marks,
    RenderedMail,
    Section,
)
from tests.support import sample_digest

pytestmark = pytest.mark.once

LINK = re.compile(r"https://paperboy\.test/(\w+)/([\w-]{51})(?![\w-])(?:/(\w+)/(\d+))?")


@pytest.fixture
def signer(settings: Settings) -> LinkSigner:
    return main.build_signer(settings)


@pytest.fixture
def renderer(settings: Settings, signer: LinkSigner) -> Renderer:
    return Renderer(settings, signer)


def mail_request(
    now: datetime, digest: Digest | None = None, kind: MailKind = MailKind.DIGEST, **fields: Any
) -> MailRequest:
    usual = MailRequest(
        delivery_id=42,
        kind=kind,
        edition="2026-11-20",
        subscriber_id=7,
        email="alice@example.org",
        link_epoch=0,
        issued_at=now,
        digest=digest,
    )
    return usual._replace(**fields)


def render_digest(renderer: Renderer, now: datetime, *picks: DigestItem) -> RenderedMail:
    return renderer.render(mail_request(now, Digest("2026-11-20", (Section("retrieval", picks),))))


class HtmlOutline(HTMLParser):
    """The elements, attributes and text that a mail program sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def links(self) -> Iterator[str]:
        return (attrs["href"] or "" for tag, attrs in self.elements if tag == "a" and "href" in attrs)


def test_both_parts_contain_every_field(renderer: Renderer, now: datetime) -> None:
    """Check the texts, counts and links of each paper, its interest, and the note."""
    mail = renderer.render(mail_request(now, sample_digest.digest()))
    outline = HtmlOutline(mail.html)
    text = " ".join(mail.text.split())
    lead = sample_digest.digest().picks[0]
    for section in sample_digest.digest().sections:
        assert section.interest in outline.words
        assert section.interest.upper() in mail.text.splitlines() or not section.interest
        for pick in section.picks:
            summary = shorten_at_clause(pick.summary, 320 if pick is lead else 180)
            comments = f"{pick.comments} comments" if pick.comments > 1 else ""
            facts = (pick.short_authors, pick.organization, pick.trend_note, comments)
            for words in (pick.title, summary, pick.reason, *facts):
                assert words in outline.words
                assert words in text
            assert f"{pick.votes} votes" in text or not pick.votes
            assert f"{pick.votes}" in outline.words or not pick.votes
            for url in filter(None, (pick.url, pick.pdf_url, pick.code_url or pick.project_url)):
                assert url in list(outline.links())
            assert mail.text.splitlines().count(f"    {pick.url}") == 1
    assert f"submitted by {lead.submitted_by}" in outline.words
    assert f"submitted by {lead.submitted_by}" in text
    assert mail.html.count("submitted by") == 1  # a row has less room than the lead
    assert "Code ★ 2.2k" in outline.words
    assert "code ★\N{NO-BREAK SPACE}2.2k" in mail.text  # on one line
    for words in (
        sample_digest.digest().note,
        "8 of 214 recent papers (5 matching, 3 trending)",
        "Friday, 20 November 2026",
    ):
        assert words in outline.words
        assert words in text
    assert mail.left_out == 0


@pytest.mark.parametrize(
    ("interest", "heading", "words", "in_text"),
    [
        ("retrieval", "", "retrieval", "RETRIEVAL"),
        ('author:"Hongtao Wu"', "", "Papers by Hongtao Wu", "PAPERS BY HONGTAO WU"),
        ("cat:cs.CL", "", "Papers in cs.CL", "PAPERS IN CS.CL"),
        ("", "", section_headings.BEYOND_INTERESTS, section_headings.BEYOND_INTERESTS.upper()),
        ("", "Trending now", "Trending now", "TRENDING NOW"),
        ("“Émile Zola…”", "", "“Émile Zola…”", "“ÉMILE ZOLA…”"),
        ("Weiß", "", "Weiß", "Weiß"),
        ("მანქანური სწავლება", "", "მანქანური სწავლება", "მანქანური სწავლება"),
    ],
)
def test_section_heading_is_the_same_in_both_parts(
    renderer: Renderer, interest: str, heading: str, words: str, in_text: str
) -> None:
    """The text part has it in capitals if these are the same letters. Templates don't repeat the default."""
    rendered = renderer.heading(interest, heading, 300)
    assert re.findall(r">([^<]+)<", rendered.html) == [words]
    assert rendered.text.split("\n") == ["", "", in_text, ""]
    templates = (path for path in template_folders.SHIPPED.rglob("*.*") if path.suffix != ".md")
    assert not [path for path in templates if section_headings.BEYOND_INTERESTS in path.read_text()]


def test_rendering_is_deterministic(settings: Settings, signer: LinkSigner, now: datetime) -> None:
    """A retry sends identical bytes, also from another process."""
    mails = [Renderer(settings, signer).render(mail_request(now, sample_digest.digest())) for _ in range(2)]
    assert mails[0] == mails[1]


def test_the_subject_names_the_first_papers(renderer: Renderer, now: datetime) -> None:
    """They come first in both parts. The preview text names the next two."""
    mail = renderer.render(mail_request(now, sample_digest.digest()))
    assert mail.subject == "Read or Retrieve? When Long Context Beats a Small Retriever + 7 more"
    picks = [sample_digest.pick(n, f"Paper {n}: A Title") for n in range(1, 6)]
    mail = render_digest(renderer, now, *picks)
    assert mail.subject == "Paper 1, Paper 2 + 3 more"
    assert "Also in this digest: Paper 3: A Title · Paper 4: A Title<" in mail.html
    for part in (mail.html[mail.html.index("5 papers<") :], mail.text):
        places = [part.index(pick.title) for pick in picks]
        assert places == sorted(places)


def test_the_subject_names_the_first_paper_that_is_shown(renderer: Renderer, now: datetime) -> None:
    """The best paper of the digest may be unreadable."""
    picks = (
        sample_digest.pick(-1, "Unreadable"),
        sample_digest.pick(2, "Shown"),
        sample_digest.pick(3, "Also"),
    )
    assert render_digest(renderer, now, *picks).subject == "Shown, Also"


@pytest.mark.parametrize(
    "title", ["word " * 60, "x" * 400, "a\r\nBcc: mallory@example.org\r\n\r\n", "日本語の論文" * 40]
)
def test_subject_is_one_short_line(renderer: Renderer, now: datetime, title: str) -> None:
    """Test long titles and control characters."""
    for picks in (
        (sample_digest.pick(1, title),),
        (sample_digest.pick(1, title), sample_digest.pick(2, "Another")),
    ):
        subject = render_digest(renderer, now, *picks).subject
        assert 0 < len(subject) <= 70
        assert not re.search(r"[\x00-\x1f]", subject)


@pytest.mark.parametrize(
    "title",
    [
        "Learning to Stop with <think> and </think> Tokens & “Quotes”",
        "<script>alert(1)</script> Considered Harmful",
        "{{ 7 * 7 }} {% raw %} Templates ${x} #{y}",
        "O(n²) ≤ ‖x‖₂ ∈ ℝᵈ: λ-Bounds",
        "שיטה חדשה לחיזוי מבנה חלבונים",
        "A " + "Very " * 40 + "Long Title",
        "'\"><img src=x onerror=alert(1)>",
    ],
)
def test_titles_are_escaped(renderer: Renderer, now: datetime, title: str) -> None:
    """No title becomes markup, and none is changed."""
    mail = render_digest(renderer, now, sample_digest.pick(1, title), sample_digest.pick(2, "Another"))
    outline = HtmlOutline(mail.html)
    assert title in outline.words
    assert title in " ".join(mail.text.split())
    assert {"script", "img", "think"}.isdisjoint(tag for tag, _ in outline.elements)


def test_mails_load_no_external_resources(renderer: Renderer, now: datetime) -> None:
    """No image, tracking pixel, font, style sheet or script is loaded."""
    mails = [renderer.render(mail_request(now, sample_digest.digest()))]
    mails += [renderer.render(mail_request(now, kind=kind)) for kind in MailKind if kind != "digest"]
    for mail in mails:
        outline = HtmlOutline(mail.html)
        assert {"img", "link", "script", "iframe"}.isdisjoint(tag for tag, _ in outline.elements)
        assert not re.search(r"url\(|@import|src=|background=", mail.html)


def test_large_digest_is_below_the_gmail_limit(renderer: Renderer, now: datetime) -> None:
    """Twenty-five papers with long abstracts and all links are under 100 kB."""
    picks = [
        sample_digest.pick(
            n,
            f"{n} " + "A Title of Considerable Length with ℝ³ " * 4,
            authors="Ines Duarte, Tomás Novák, Wei Zhang, Priya Raman and 211 more",
            summary=sample_digest.LONG * 3,
            votes=140,
            trend_note="+137 since yesterday",
            code_url=f"https://github.com/example-organisation/a-repository-{n}",
            project_url=f"https://example-organisation.github.io/a-project-{n}",
        )
        for n in range(25)
    ]
    mail = render_digest(renderer, now, *picks)
    assert len(HtmlOutline(mail.html).words) > 25 * 300
    assert len(mail.html.encode()) <= text_limits.MAX_HTML_BYTES


def test_the_largest_digest_keeps_most_of_each_summary(renderer: Renderer, now: datetime) -> None:
    """Thirty papers with every line of a card are under 100 kB, without shorter summaries."""
    usual = {
        "votes": 140,
        "trend_note": "+137 since yesterday",
        "code_url": "https://github.com/example/repository",
    }
    picks = [sample_digest.pick(n, f"{n} " + "A Title of Usual Length " * 3, **usual) for n in range(30)]
    mail = render_digest(renderer, now, *(replace(pick, summary=sample_digest.LONG * 2) for pick in picks))
    assert len(mail.html.encode()) <= text_limits.MAX_HTML_BYTES
    summary = shorten_at_clause(sample_digest.LONG * 2, 180)
    assert HtmlOutline(mail.html).words.count(summary) == 29  # the lead has more of it


def test_a_digest_in_a_wide_script_gets_shorter_summaries(renderer: Renderer, now: datetime) -> None:
    """Chinese takes three bytes a character, so summaries are shortened to avoid clipping."""
    picks = [
        sample_digest.pick(n, f"{n} 用于检索的语言模型" * 5, summary="我们重新审视长上下文" * 80)
        for n in range(30)
    ]
    mail = render_digest(renderer, now, *picks)
    assert len(mail.html.encode()) <= text_limits.MAX_HTML_BYTES
    assert mail.left_out == 0
    assert "我们重新审视长上下文" * 10 in mail.html


def test_right_to_left_text(renderer: Renderer, now: datetime) -> None:
    """The direction is set in markup that old mail programs support, and a count stays behind a name."""
    mail = renderer.render(mail_request(now, sample_digest.digest()))
    assert mail.html.count('dir="rtl"') == mail.html.count("text-align:right") == 2
    for part in (HtmlOutline(mail.html).words, mail.text):
        assert "נועה כהן\u200e · 19 Nov 2026 · 5 comments" in part
        assert "Priya Raman\u200e" not in part


def test_dark_mode_and_phone_layout(renderer: Renderer, now: datetime) -> None:
    """The email declares both colour schemes, and its layout uses tables."""
    mail = renderer.render(mail_request(now, sample_digest.digest()))
    assert '<meta name="color-scheme" content="light dark">' in mail.html
    assert "prefers-color-scheme: dark" in mail.html
    assert "max-width: 479px" in mail.html
    assert mail.html.count("<table") == mail.html.count('role="presentation"') == 3


@pytest.mark.parametrize("kind", MailKind)
def test_text_part_is_wrapped(settings: Settings, signer: LinkSigner, now: datetime, kind: MailKind) -> None:
    """Lines are at most 72 characters, except for links, without markup or blank gaps."""
    long = {
        "site_name": "The Paperboy of " + "All the Libraries " * 2,
        "postal_address": "1 Long Street, " * 9,
    }
    new_settings = settings.model_copy(update=long)
    text = Renderer(new_settings, signer).render(mail_request(now, sample_digest.digest(), kind)).text
    assert all(len(line) <= 72 for line in text.splitlines() if "https://" not in line)
    assert "1 Long Street, " * 4 in text
    assert "\n\n\n\n" not in text
    assert "&amp;" not in text
    assert "<td" not in text


def test_links_have_the_purpose_of_their_path(renderer: Renderer, signer: LinkSigner, now: datetime) -> None:
    """They belong to this reader."""
    mail = renderer.render(mail_request(now, sample_digest.digest()))
    for part in (mail.text, mail.html):
        links = {name: token for name, token, action, _ in LINK.findall(part) if not action}
        assert set(links) == {"subscription", "unsubscribe", "view"}
        grants = {name: signer.verify(Purpose(name), token, now) for name, token in links.items()}
        assert {grant.subscriber_id for grant in grants.values()} == {7}
        assert grants["view"].argument == 42


def test_each_paper_has_feedback_links(renderer: Renderer, signer: LinkSigner, now: datetime) -> None:
    """The HTML part has them, in the order of the papers. The text part has one link for each paper."""
    mail = renderer.render(mail_request(now, sample_digest.digest()))
    links = [each for each in LINK.findall(mail.html) if each[2]]
    assert [(action, int(paper)) for _, _, action, paper in links] == [
        (action, pick.paper_id) for pick in sample_digest.digest().picks for action in DIGEST_ACTIONS
    ]
    assert {name for name, *_ in links} == {Purpose.FEEDBACK}
    (token,) = {token for _, token, *_ in links}
    assert signer.verify(Purpose.FEEDBACK, token, now).subscriber_id == 7
    assert not any(action for _, _, action, _ in LINK.findall(mail.text))


@pytest.mark.parametrize("code", ["", "https://github.com/example/code"])
def test_the_number_of_links_is_even(renderer: Renderer, now: datetime, code: str) -> None:
    """rspamd scores an odd number in both parts together, so the site's name is a link if needed."""
    linked = 0
    for count in (1, 2, 3):
        picks = [sample_digest.pick(n, f"Paper {n}", code_url=code) for n in range(count)]
        mail = render_digest(renderer, now, *picks)
        links = [link for link in HtmlOutline(mail.html).links() if link.startswith("http")]
        assert (len(links) + mail.text.count("https://")) % 2 == 0
        linked += "https://paperboy.test/" in links
    assert linked == (0 if code else 2)


def test_the_footer_explains_the_marks_if_there_are_any(renderer: Renderer, now: datetime) -> None:
    """A digest of trending papers may have none."""
    pick = sample_digest.pick(1, "Reading Pages")
    for marks, count in (Marks(((0, 7),)), 1), (Marks(), 0), (None, 0):
        mail = render_digest(renderer, now, replace(pick, marks=marks), sample_digest.pick(2, "Pages"))
        assert mail.html.count("Highlighted words match your interests.") == count
        assert mail.text.count("Words between *asterisks* match your interests.") == count


def test_the_day_of_publication_is_before_the_submitter(renderer: Renderer, now: datetime) -> None:
    """After it, it would seem to be the day of the submission."""
    pick = sample_digest.pick(1, "Reading Pages", published_on="2026-11-18", submitted_by="Noor Haddad")
    mail = render_digest(renderer, now, pick)
    for part in (mail.html, mail.text):
        assert "18 Nov 2026 · submitted by Noor Haddad" in " ".join(part.split())


def test_the_first_paper_is_the_lead(renderer: Renderer, now: datetime) -> None:
    """It is larger, has more of its summary, and has its votes in the line below. The others are rows."""
    picks = [sample_digest.pick(n, f"Paper {n}", votes=28) for n in (1, 2)]
    mail = render_digest(renderer, now, *picks)
    lead, row = mail.html.index("Paper 1</a>"), mail.html.index("Paper 2</a>")
    assert 'class="L"' in mail.html[:lead]
    assert 'class="L"' not in mail.html[lead:]
    assert shorten_at_clause(sample_digest.LONG, 320) in mail.html[lead:row]
    assert "28 votes · Mei Tanaka +5" in mail.html[lead:row]
    assert "28<br>" in mail.html[lead:row]
    assert shorten_at_clause(sample_digest.LONG, 180) in mail.html[row:]


def test_large_counts_are_short(renderer: Renderer, now: datetime) -> None:
    """The column of the votes is narrow. Sentences have the exact number."""
    counts = {"votes": 6050, "stars": 123_456, "code_url": "https://github.com/example/code"}
    picks = [sample_digest.pick(n, f"Paper {n}", **counts) for n in (1, 2)]
    mail = render_digest(renderer, now, *picks)
    assert mail.html.count(">6.0k<br>") == 1
    assert mail.html.count("Code ★ 123k</a>") == 2
    assert mail.html.count("6,050 votes") == 1  # the lead
    assert mail.text.count("6,050 votes") == mail.text.count("code ★\N{NO-BREAK SPACE}123k") == 2


def test_a_paper_without_votes_has_its_day(renderer: Renderer, now: datetime) -> None:
    """It is below the paper: in the column of the votes, it would look like a number of votes."""
    picks = [sample_digest.pick(n, f"Paper {n}") for n in (1, 2)]
    mail = render_digest(renderer, now, *picks)
    assert mail.html.count("19 Nov 2026") == mail.text.count("19 Nov 2026") == 2
    assert not re.search(r">19<br>", mail.html)


def test_list_and_auto_headers(renderer: Renderer, signer: LinkSigner, now: datetime) -> None:
    """A digest has one-click unsubscribe headers; a service email is marked as automatic."""
    headers = renderer.render(mail_request(now, sample_digest.digest())).headers
    web, post = re.fullmatch(r"<(\S+)>, <(mailto:\S+)>", headers["List-Unsubscribe"]).groups()  # type: ignore[union-attr]
    token = web.removeprefix("https://paperboy.test/unsubscribe/")
    assert signer.verify(Purpose.UNSUBSCRIBE, token, now).subscriber_id == 7
    assert post == f"mailto:help@paperboy.test?subject=unsubscribe%20{token}"
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert headers["List-Id"] == "<digest.paperboy.test>"
    assert headers["Feedback-ID"] == "2026-11-20:digest:paperboy:paperboy-test"
    assert headers["Precedence"] == "bulk"
    assert headers["Reply-To"] == "help@paperboy.test"
    assert "List-Help" in headers
    assert renderer.render(mail_request(now, kind=MailKind.CONFIRM)).headers == {
        "Auto-Submitted": "auto-generated",
        "Reply-To": "help@paperboy.test",
    }


@pytest.mark.parametrize("setting", ["bounce_mailbox", "bounce_folder"])
def test_mail_to_unsubscribe_goes_to_the_mailbox_that_is_read(
    settings: Settings, signer: LinkSigner, now: datetime, setting: str
) -> None:
    """The address contains the token and is short enough for a local part (RFC 5321)."""
    renderer = Renderer(settings.model_copy(update={setting: "imaps://mail.paperboy.test"}), signer)
    value = renderer.render(mail_request(now, sample_digest.digest())).headers["List-Unsubscribe"]
    match = re.fullmatch(r"<\S+/(\S+)>, <mailto:(unsubscribe\+(\S+))@paperboy.test\?subject=\w+>", value)
    assert match
    assert match[1] == match[3]
    assert len(match[2]) <= 64


def test_note_of_a_test_mail_is_a_paragraph_of_its_own() -> None:
    """It does not run into the note of the digest, such as “Welcome”."""
    note = render.note_fragment("This is a test email.\nWelcome & hello.")
    assert note.html == "This is a test email.<br><br>Welcome &amp; hello."
    assert note.text == "This is a test email.\n\nWelcome & hello."


@pytest.mark.parametrize(
    "domain", ["a.io", "example.com", "papers.mail.example.ac.uk", "papers.mail.example.ac.at"]
)
def test_sender_id_follows_the_rule_of_gmail(domain: str) -> None:
    """It has 5 to 15 characters."""
    assert re.fullmatch(r"[a-z0-9-]{5,15}", sender_id(domain))
    assert sender_id(domain) != sender_id(f"other.{domain}")


def test_link_to_preferences_suits_all_who_get_it(renderer: Renderer, now: datetime) -> None:
    """It answers a request for the link, a sign-up with a registered address, and mail to unsubscribe."""
    mail = renderer.render(mail_request(now, kind=MailKind.MANAGE))
    for part in (mail.text, mail.html):
        words = " ".join(part.split())
        assert (
            "Nothing about your subscription has changed. If you tried to sign up again, you do not" in words
        )
        assert "sign-up form" not in words


@pytest.mark.parametrize(
    ("kind", "purposes"),
    [
        (MailKind.CONFIRM, {"confirm", "decline"}),
        (MailKind.MANAGE, {"preferences", "pause", "unsubscribe"}),
        (MailKind.EXPORT, {"export"}),
        (MailKind.ERASE, {"erase", "unsubscribe"}),
        (MailKind.NEW_LINKS, {"preferences", "pause", "unsubscribe"}),
        (MailKind.ADDRESS, {"address"}),
    ],
)
def test_service_mails(
    renderer: Renderer, signer: LinkSigner, now: datetime, kind: MailKind, purposes: set[str]
) -> None:
    """They are short, and have only their own links and the sender in both parts."""
    mail = renderer.render(mail_request(now, kind=kind))
    for part in (mail.text, mail.html):
        links = {name: token for name, token, *_ in LINK.findall(part)}
        assert set(links) == purposes
        assert all(signer.verify(Purpose(name), token, now) for name, token in links.items())
        assert "1 Example Street, Springfield" in part
        assert "Paperboy" in mail.subject
    assert all(len(line) <= 76 for line in mail.text.splitlines() if "https://" not in line)


@pytest.mark.parametrize(
    "invalid",
    [
        {"title": None},
        {"title": ["a", "list"]},
        {"published_on": "yesterday"},
        {"comments": {}},
        {"paper_id": -1},
        {"paper_id": 1 << 64},
    ],
)
def test_unrenderable_paper_is_left_out(renderer: Renderer, now: datetime, invalid: dict[str, Any]) -> None:
    """The note counts it with the unreadable ones."""
    whole = sample_digest.digest()
    first, *others = whole.sections
    picks = (first.picks[0], replace(first.picks[1], **invalid), *first.picks[2:])
    digest = replace(whole, sections=(replace(first, picks=picks), *others))
    mail = renderer.render(mail_request(now, digest, unreadable=2))
    assert mail.left_out == 3
    assert "7 of 214 recent papers (4 matching, 3 trending)\n" in mail.text
    assert "Learning Where to Stop" not in mail.html
    assert "FoldLight" in mail.html


def test_lone_surrogate_becomes_a_question_mark(renderer: Renderer, now: datetime) -> None:
    """JSON may contain it, and an email may not."""
    mail = render_digest(renderer, now, sample_digest.pick(1, "A lone \ud800 surrogate"))
    assert "A lone ? surrogate" in mail.html
    assert "A lone ? surrogate" in mail.text


def test_digest_without_papers_raises_an_error(renderer: Renderer, now: datetime) -> None:
    with pytest.raises(DeliveryError) as refused:
        renderer.render(mail_request(now, Digest("2026-11-20", ())))
    assert refused.value.permanent


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "ftp://x", "https://a b", "https://x/" + "y" * 2000, "//x"]
)
def test_only_http_links_are_linked(renderer: Renderer, now: datetime, url: str) -> None:
    """The paper is shown without other links."""
    mail = render_digest(renderer, now, replace(sample_digest.pick(1, "A Paper"), url=url, code_url=url))
    assert url not in mail.html
    assert url not in mail.text
    assert "A Paper" in mail.html
    assert "https://arxiv.org/pdf/" in mail.html


@pytest.mark.parametrize(
    ("edition", "words"),
    [
        ("2026-11-20", "Friday, 20 November 2026"),
        ("2026-W07", "Week 7 of 2026"),
        ("preview", "preview"),
        ("2026-13-45", "2026-13-45"),
    ],
)
def test_edition_names(edition: str, words: str) -> None:
    """Test a day, a week and any other edition."""
    assert render.edition_title(edition) == words


def test_templates_are_strict_and_sandboxed(tmp_path: Path) -> None:
    """An undefined name is an error, and templates cannot access internals of values."""
    (tmp_path / "strict.txt").write_text("{{ nobody }}")
    (tmp_path / "escape.txt").write_text("{{ ''.__class__.__mro__ }}")
    templates = render.template_environment((tmp_path,))
    with pytest.raises(UndefinedError):
        templates.get_template("strict.txt").render()
    with pytest.raises(SecurityError):
        templates.get_template("escape.txt").render()


def test_own_templates_take_precedence(
    settings: Settings, signer: LinkSigner, now: datetime, tmp_path: Path
) -> None:
    """A file replaces the template or included part of the same name. All others are unchanged."""
    folder = tmp_path / "email"
    (folder / "confirm").mkdir(parents=True)
    (folder / "confirm" / "body.txt").write_text("Welcome to {{ site.name }}!\n{{ links.confirm }}\n")
    footer = "<mj-section><mj-column><mj-text>Ours, {{ reader }}</mj-text></mj-column></mj-section>"
    (folder / "service_footer.mjml").write_text(footer)
    own = Renderer(settings.model_copy(update={"templates_dir": str(tmp_path)}), signer)
    usual = Renderer(settings, signer).render(mail_request(now, kind=MailKind.CONFIRM))
    mail = own.render(mail_request(now, kind=MailKind.CONFIRM))
    assert mail.text.startswith("Welcome to Paperboy!\nhttp")
    assert mail.subject == usual.subject
    assert ("Ours, alice@example.org" in mail.html, "Ours" in usual.html) == (True, False)


def test_folder_of_own_templates_must_exist(settings: Settings, signer: LinkSigner, tmp_path: Path) -> None:
    """Otherwise, a misspelt folder would silently restore the wording of the release."""
    misspelt = settings.model_copy(update={"templates_dir": str(tmp_path / "tempaltes")})
    with pytest.raises(InvalidSettings, match=r"PAPERBOY_TEMPLATES_DIR: there is no folder /.*tempaltes"):
        Renderer(misspelt, signer)
