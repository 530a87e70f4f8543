"""Test emails in a browser: light and dark, on a phone and on a desktop."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from playwright.sync_api import Page

from app import main
from app.mail.render import Renderer
from app.settings import Settings
from app.types import MailKind, MailRequest, Marks, Section
from tests.browser import axe
from tests.support import sample_digest

pytestmark = [pytest.mark.browser, pytest.mark.once]

LATEX = (
    r"$\mathcal{O}(n\log n)$ Attention via $\widehat{\mathbf{S}}_{\theta}(\mathbf{x},t)$: <think> Tokens, "
    r"$\|\nabla_{\mathbf{x}}f(\mathbf{x})\|_2\leq\epsilon$ Guarantees and a Proof"
)
LONG_ADDRESS = "a" * 64 + "@" + "b" * 60 + ".example.org"

BREAKS = "word-break:break-word;"
# Whether each number of votes, the first text of its cell, is on one line.
ONE_LINE_EACH = """cells => cells.every(cell => {
  const number = document.createRange();
  number.selectNodeContents(cell.firstChild);
  return number.getClientRects().length < 2 && cell.scrollWidth <= cell.clientWidth;
})"""


@pytest.fixture
def mails(settings: Settings, now: datetime) -> dict[str, str]:
    """Return the HTML of every kind of mail, with long addresses and a difficult title."""
    long = {"postal_address": "1 " + "Example" * 12 + " Street, " * 9, "contact_address": LONG_ADDRESS}
    settings = settings.model_copy(update=long)
    signer = main.build_signer(settings)
    renderer, usual = Renderer(settings, signer), sample_digest.digest()
    hard = sample_digest.pick(9, LATEX, authors="y" * 90, reason="z" * 90)
    marked = sample_digest.pick(1, "Dense retrieval", marks=Marks(((0, 5),)))
    popular = replace(hard, votes=6050, stars=123_456, code_url="https://github.com/example/code")
    digest = replace(usual, sections=(*usual.sections, Section("x" * 90, (hard, popular, marked))))
    letter = MailRequest(42, MailKind.DIGEST, "2026-11-20", 7, LONG_ADDRESS, 0, now, digest)
    return {kind: renderer.render(letter._replace(kind=kind)).html for kind in MailKind}


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 320), ("dark", 320), ("light", 1280), ("dark", 1280)]
)
def test_mails_are_accessible(page: Page, mails: dict[str, str], scheme: str, width: int) -> None:
    """axe-core finds no problem, nothing scrolls sideways, and nothing is loaded."""
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 800})
    for kind, html in mails.items():
        page.set_content(html)
        assert axe.violations(page) == [], kind
        assert page.evaluate("document.documentElement.scrollWidth") <= width, kind
        assert page.locator(".pair").evaluate_all(
            "all => all.every(a => a.getBoundingClientRect().height < 30)"
        )
        assert page.locator("td.v").evaluate_all(ONE_LINE_EACH), kind
        assert BREAKS in html
        page.set_content(html.replace(BREAKS, ""))  # Yahoo does not support it
        assert page.evaluate("document.documentElement.scrollWidth") <= width, kind
    assert requested == []


@pytest.mark.parametrize("media", [{"forced_colors": "active"}, {"media": "print"}])
def test_marked_words_without_background_colors(
    page: Page, mails: dict[str, str], media: dict[str, Any]
) -> None:
    """Marked words are the reason for a paper, also with a contrast theme and on paper."""
    page.emulate_media(**media)
    page.set_content(mails[MailKind.DIGEST])
    word, others = (
        page.locator(place).first.evaluate(
            "e => { const s = getComputedStyle(e); return [s.backgroundColor, s.textDecorationLine] }"
        )
        for place in (".m", ".bg")
    )
    assert word[1] == "underline" if "media" in media else word[0] != others[0]
