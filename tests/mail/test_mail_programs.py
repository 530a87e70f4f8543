"""Mails in programs that do not show all of them: what is missing where stands in docs/mail.md."""

from __future__ import annotations

import re
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.links import LinkSigner
from app.mail import render
from app.mail.render import Renderer
from app.settings import Settings
from app.types import Digest, MailKind, MailRequest, Section
from tests.support import html_features, sample_digest

pytestmark = pytest.mark.once

TABLE = Path(__file__).parents[2] / "docs" / "mail.md"
ROW = re.compile(
    r"^\| \[.+\]\(https://www\.caniemail\.com/features/([\w-]+)/\) \| (.*) \| (.*) \| (.+) \|$", re.MULTILINE
)
# What there always was and every program shows (color, font-family, a, br …), what only one program reads and
# all others pass over (-ms-…, mso-…, xmlns), and what is there for machines (meta, class, type).
UNTOLD = {
    "css -ms-interpolation-mode", "css -ms-text-size-adjust", "css -webkit-text-size-adjust", "css color",
    "css font-family", "css mso-padding-alt", "css mso-table-lspace", "css mso-table-rspace",
    "css pseudo-class-root", "css supported-color-schemes", "html a", "html aria-roledescription",
    "html bgcolor", "html border", "html br", "html class", "html content", "html head", "html html",
    "html http-equiv", "html meta", "html meta-format-detection", "html meta-supported-color-schemes",
    "html meta-viewport", "html title", "html type", "html vertical-align", "html xmlns", "html xmlns:o",
    "html xmlns:v",
}  # fmt: skip


@pytest.fixture
def mails(settings: Settings, now: datetime) -> dict[str, str]:
    """The HTML of every kind of mail, and of digests with every sort of card."""
    signer = LinkSigner(settings.secret_keys, settings.base_url)
    letter = MailRequest(
        42, MailKind.DIGEST, "2026-11-20", 7, "alice@example.org", 0, now, sample_digest.digest()
    )
    bare = sample_digest.pick(
        1, "Alone", url="", pdf_url="", authors="", published_on="", reason="", summary=""
    )
    told = sample_digest.pick(2, "Told by a model", summary_by="a model")
    letters = {kind.value: letter._replace(kind=kind) for kind in MailKind} | {
        "a week": letter._replace(edition="2026-W47", digest=Digest("2026-W47", (Section("a", (told,)),))),
        "alone": letter._replace(digest=Digest("2026-11-20", (Section("", (bare,), "שיטה"),))),
    }
    renderer = Renderer(settings, signer)
    return {name: renderer.render(each).html for name, each in letters.items()}


def test_what_is_missing_where_is_in_the_table(mails: dict[str, str]) -> None:
    """A feature that a program shows in part or not at all has its row, and each row a feature in use."""
    used = set[str]().union(*(html_features.used(html)[0] for html in mails.values()))
    less = {name: html_features.known()[name]["less"] for name in used}
    wanted = {
        name: tuple(", ".join(client for client in where if where[client] == how) for how in ("no", "partly"))
        for name, where in less.items()
        if where
    }
    assert {name: (none, part) for name, none, part, _ in ROW.findall(TABLE.read_text("utf-8"))} == wanted


def test_nothing_is_used_that_nobody_knows(mails: dict[str, str]) -> None:
    """What caniemail does not tell of is named above, so that something new is looked at by somebody."""
    assert set[str]().union(*(html_features.used(html)[1] for html in mails.values())) == UNTOLD


@pytest.mark.parametrize(
    ("html", "found"),
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
def test_features_are_found(html: str, found: set[str]) -> None:
    """Elements, attributes, properties, values, units, selectors and at-rules."""
    assert found <= html_features.used(html)[0]


class Bare(HTMLParser):
    """What is left of a mail without style sheets and attributes: its lines, and in them «links»."""

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


def test_without_styles_a_mail_reads_on(mails: dict[str, str]) -> None:
    """Each thing stands on a line of its own, in the order of reading, and no two links touch."""
    for html in mails.values():
        assert not any(re.search(r"»\s*«", line) for line in Bare(html).lines)
    lines, first = Bare(mails["digest"]).lines, sample_digest.digest().sections[0].picks[0]
    trend = f"▲ {first.trend} · 12 comments"
    assert lines[(start := lines.index(trend)) : start + 7] == [
        trend,
        f"«{first.title}»",
        f"{first.authors} · 19 Nov 2026",
        first.summary,
        f"Why: {first.reason}",
        "«Abstract» · «PDF» · «Code»",
        "«More like this» · «Less like this» · «Mute a word» · «Follow an author»",
    ]


def test_without_styles_a_mail_begins_well(mails: dict[str, str]) -> None:
    """What the list of mails shows of it stands above its name, and says what it is."""
    best, first, second, *_ = sample_digest.digest().picks
    also = f"{render.preview_title(first.title)} · {render.preview_title(second.title)}"
    assert {name: Bare(html).lines[:3] for name, html in mails.items()} == {
        "digest": [f"Also in this digest: {also}", "«Paperboy»", "Friday, 20 November 2026"],
        "a week": [f"Why: {best.reason}", "«Paperboy»", "Week 47 of 2026"],
        "alone": ["«Paperboy»", "Friday, 20 November 2026", "1 paper for you."],
        "confirm": ["Confirm your address to get your digests.", "«Paperboy»", "Hello,"],
        "manage": ["Change your interests, your schedule and the number of papers.", "«Paperboy»", "Hello,"],
        "erase": ["This cannot be undone.", "«Paperboy»", "Hello,"],
        "export": ["Everything that is stored about you, as one file.", "«Paperboy»", "Hello,"],
        "new_links": ["Links in earlier e-mails no longer work.", "«Paperboy»", "Hello,"],
    }
