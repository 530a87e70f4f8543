"""Check the HTML and CSS features of emails against docs/mail.md, and how emails read without styles."""

import re
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app import main
from app.mail.render import Renderer
from app.mail.subject_and_preview import preview_title
from app.settings import Settings
from app.text.shortening import shorten_at_clause
from app.types import Digest, MailKind, MailRequest, Section
from tests.support import html_features, sample_digest

pytestmark = pytest.mark.once

TABLE = Path(__file__).parents[2] / "docs" / "mail.md"
ROW = re.compile(
    r"^\| \[.+\]\(https://www\.caniemail\.com/features/([\w-]+)/\) \| (.*) \| (.*) \| (.+) \|$", re.MULTILINE
)
# Features that every program supports (color, font-family, a, br …), that only one program reads (-ms-…,
# mso-…, xmlns), or that are for machines (meta, class, type).
UNTOLD = {
    "css at-media-forced-colors", "css forced-color-adjust",
    "css -ms-interpolation-mode", "css -ms-text-size-adjust", "css -webkit-text-size-adjust", "css color",
    "css font-family", "css font-style",
    "css mso-padding-alt", "css mso-table-lspace", "css mso-table-rspace",
    "css pseudo-class-root", "css supported-color-schemes", "html a", "html aria-roledescription",
    "html bgcolor", "html border", "html br", "html class", "html colspan",
    "html content", "html head", "html html",
    "html http-equiv", "html meta", "html meta-format-detection", "html meta-supported-color-schemes",
    "html meta-viewport", "html title", "html type", "html vertical-align", "html xmlns", "html xmlns:o",
    "html xmlns:v",
}  # fmt: skip


@pytest.fixture
def mails(settings: Settings, now: datetime) -> dict[str, str]:
    """Return the HTML of every kind of mail, and of digests with every kind of card."""
    signer = main.build_signer(settings)
    request = MailRequest(
        42, MailKind.DIGEST, "2026-11-20", 7, "alice@example.org", 0, now, sample_digest.digest()
    )
    bare = sample_digest.pick(
        1, "Alone", url="", pdf_url="", authors="", published_on="", reason="", summary=""
    )
    generated = sample_digest.pick(2, "Told by a model", summary_by="a model")
    requests = {kind.value: request._replace(kind=kind) for kind in MailKind} | {
        "a week": request._replace(
            edition="2026-W47", digest=Digest("2026-W47", (Section("a", (generated,)),))
        ),
        "alone": request._replace(digest=Digest("2026-11-20", (Section("", (bare,), "שיטה"),))),
    }
    renderer = Renderer(settings, signer)
    return {name: renderer.render(each).html for name, each in requests.items()}


def test_table_lists_partially_supported_features(mails: dict[str, str]) -> None:
    """Each feature that a program lacks has a row, and each row is a feature in use."""
    used = set[str]().union(*(html_features.used_features(html)[0] for html in mails.values()))
    less = {name: html_features.load_features()[name]["less"] for name in used}
    expected = {
        name: tuple(", ".join(client for client in where if where[client] == how) for how in ("no", "partly"))
        for name, where in less.items()
        if where
    }
    assert {name: (none, part) for name, none, part, _ in ROW.findall(TABLE.read_text("utf-8"))} == expected


def test_features_unknown_to_caniemail_are_listed(mails: dict[str, str]) -> None:
    """A new feature must be checked by a person."""
    assert set[str]().union(*(html_features.used_features(html)[1] for html in mails.values())) == UNTOLD


@pytest.mark.parametrize(
    ("html", "features"),
    [
        ('<p style="display:flex; gap: 2rem">', {"html-p", "css-display-flex", "css-gap", "css-unit-rem"}),
        ("<style>@media (hover) { a > b:focus { width: calc(1px + 2vw) !important } }</style>",
         {"css-at-media-hover", "css-selector-child", "css-pseudo-class-focus", "css-unit-calc",
          "css-important"}),
        ("<style>.a.b, #c *, [d] + e::before { border-top-color: rgb(1, 2, 3) }</style>",
         {"css-selector-chaining", "css-selector-universal", "css-selector-attribute", "css-border",
          "css-selector-adjacent-sibling", "css-pseudo-element-before", "css-rgb"}),
        ('<!doctype html><!-- x --><ol><li><a href="#x" target="_blank"><h2 lang="he">',
         {"html-doctype", "html-comments", "html-lists", "html-anchor-links", "html-target", "html-h1-h6"}),
    ],
)  # fmt: skip
def test_used_features(html: str, features: set[str]) -> None:
    """Test elements, attributes, properties, values, units, selectors and at-rules."""
    assert features <= html_features.used_features(html)[0]


class UnstyledText(HTMLParser):
    """The lines of an email without style sheets and attributes. Links are in «»."""

    BREAKS = frozenset({"p", "div", "h1", "h2", "h3", "td", "br", "table"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.whole = ""
        self.feed(re.sub(r"<style.*?</style>|<head.*?</head>", "", html, flags=re.DOTALL))
        self.lines = [line for each in self.whole.splitlines() if (line := " ".join(each.split()))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.whole += "«" if tag == "a" else "\n" if tag in self.BREAKS else ""

    def handle_endtag(self, tag: str) -> None:
        self.whole += "»" if tag == "a" else "\n" if tag in self.BREAKS else ""

    def handle_data(self, data: str) -> None:
        self.whole += data.replace("\n", " ")


def test_unstyled_mail_is_readable(mails: dict[str, str]) -> None:
    """Each item is on its own line in reading order, and no two links are adjacent."""
    for html in mails.values():
        assert not any(re.search(r"»\s*«", line) for line in UnstyledText(html).lines)
    lines, first = UnstyledText(mails["digest"]).lines, sample_digest.digest().sections[0].picks[0]
    facts = "140 votes · Mei Tanaka +5 · submitted by Noor Haddad · +137 since yesterday · 12 comments"
    second = sample_digest.digest().sections[0].picks[1]
    assert lines[(start := lines.index(f"«{first.title}»")) : start + 9] == [
        f"«{first.title}»",
        shorten_at_clause(first.summary, 320),
        first.reason,
        f"{facts} «PDF» · «Code ★ 2.2k» · «More» · «Less»",
        "38",
        "votes",
        f"«{second.title}»",
        second.summary,
        second.reason,
    ]


def test_unstyled_mail_starts_with_the_preview_text(mails: dict[str, str]) -> None:
    """The preview text comes first and describes the email."""
    best, first, second, *_ = sample_digest.digest().picks
    also = " · ".join(preview_title(item.title) for item in (first, second))
    assert {name: UnstyledText(html).lines[:3] for name, html in mails.items()} == {
        "digest": [
            f"Also in this digest: {also}",
            "Paperboy",
            "Friday, 20 November 2026 · 8 of 214 recent papers (5 matching, 3 trending)",
        ],
        "a week": [f"Why: {best.reason}", "«Paperboy»", "Week 47 of 2026 · 1 paper"],
        "alone": ["Paperboy", "Friday, 20 November 2026 · 1 paper", "שיטה"],
        "confirm": ["Confirm your address to get your digests.", "«Paperboy»", "Hello,"],
        "manage": ["Change your interests, your schedule and the number of papers.", "«Paperboy»", "Hello,"],
        "erase": ["This cannot be undone.", "«Paperboy»", "Hello,"],
        "export": ["Everything that is stored about you, as one file.", "«Paperboy»", "Hello,"],
        "address": ["Confirm where your digests go.", "«Paperboy»", "Hello,"],
        "new_links": ["Here is the new link to your preferences.", "«Paperboy»", "Hello,"],
    }
