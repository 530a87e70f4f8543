"""Digest → subject, text and HTML: the only Jinja environment for mail.

A mail kind is one function here and one folder in `templates/email/`. MJML becomes a Jinja template
once in a process. The same delivery always gives the same mail.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import mjml
from jinja2 import FunctionLoader, StrictUndefined, TemplateNotFound
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup

from app.db import ROOT
from app.errors import DeliveryError
from app.models import Delivery, MailKind, Subscriber
from app.records import Pick, RenderedMail
from app.settings import Settings
from app.tokens import Purpose, Signer

FOLDER = ROOT / "templates" / "email"
TEXT_WIDTH = 76
_INCLUDE = re.compile(r'<mj-include path="([a-z_]+\.mjml)" />')
SUBJECT_CHARS, TITLE_CHARS, NAME_CHARS = 110, 300, 60
# Gmail clips what is above some 102 kB. A digest that would be gets shorter summaries.
MAX_HTML_BYTES = 98_000
SUMMARY_CHARS = (600, 450, 300, 120)


@dataclass(frozen=True, slots=True)
class Card:
    """One pick, rendered for both parts: a fragment that stands by itself."""

    pick: Pick
    html: Markup
    text: str


@dataclass(frozen=True, slots=True)
class CardSection:
    interest: str
    heading: str  # of cards under no interest
    cards: tuple[Card, ...]


class Renderer:
    """Renders any delivery of any kind. Made once: it keeps the compiled templates."""

    def __init__(self, settings: Settings, signer: Signer) -> None:
        self._settings = settings
        self._signer = signer
        self._templates = environment(FOLDER)
        self._kinds: dict[MailKind, Callable[[Delivery, Subscriber], RenderedMail]] = {
            MailKind.DIGEST: self._digest,
            MailKind.CONFIRM: self._confirm,
            MailKind.MANAGE: self._manage,
            MailKind.ERASE: self._erase,
        }

    def render(self, delivery: Delivery, subscriber: Subscriber) -> RenderedMail:
        """The mail of a delivery; DeliveryError when there is nothing of it that can be shown."""
        return self._kinds[delivery.kind](delivery, subscriber)

    def _digest(self, delivery: Delivery, subscriber: Subscriber) -> RenderedMail:
        for summary_chars in SUMMARY_CHARS:
            mail = self._digest_of(delivery, subscriber, summary_chars)
            if len(mail.html.encode()) <= MAX_HTML_BYTES:
                break
        return mail

    def _digest_of(self, delivery: Delivery, subscriber: Subscriber, summary_chars: int) -> RenderedMail:
        sections, left_out = self._sections(delivery, subscriber, summary_chars)
        if not sections:
            raise DeliveryError("no paper of this digest could be rendered", permanent=True)
        links = self._links(
            delivery, subscriber, Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE, Purpose.VIEW
        )
        cards = [card for section in sections for card in section.cards]
        best = max(cards, key=lambda card: card.pick.score)
        return self._mail(
            delivery.kind,
            self._list_headers(delivery, links["unsubscribe"]),
            left_out,
            edition=edition_words(delivery.edition),
            best=best.pick,
            others=[card.pick for card in cards if card is not best],
            sections=sections,
            note=plain(str(delivery.digest.get("note", ""))),
            considered=int(delivery.digest.get("considered", 0)),
            reader=subscriber.email,
            links=links,
        )

    def _confirm(self, delivery: Delivery, subscriber: Subscriber) -> RenderedMail:
        links = self._links(delivery, subscriber, Purpose.CONFIRM, Purpose.DECLINE)
        return self._mail(delivery.kind, self._service_headers(), reader=subscriber.email, links=links)

    def _manage(self, delivery: Delivery, subscriber: Subscriber) -> RenderedMail:
        links = self._links(
            delivery, subscriber, Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE, Purpose.EXPORT
        )
        return self._mail(delivery.kind, self._service_headers(), reader=subscriber.email, links=links)

    def _erase(self, delivery: Delivery, subscriber: Subscriber) -> RenderedMail:
        links = self._links(delivery, subscriber, Purpose.ERASE, Purpose.UNSUBSCRIBE)
        return self._mail(delivery.kind, self._service_headers(), reader=subscriber.email, links=links)

    def _mail(
        self, kind: MailKind, headers: dict[str, str], left_out: int = 0, /, **context: object
    ) -> RenderedMail:
        values = {"site": self._site(), **context}
        subject = plain(self._render(f"{kind}/subject.txt", values))
        values["subject"] = subject
        return RenderedMail(
            subject=shorten(subject, SUBJECT_CHARS + 10),
            text=self._render(f"{kind}/body.txt", values).strip() + "\n",
            html=self._render(f"{kind}/body.mjml", values),
            headers=headers,
            left_out=left_out,
        )

    def _render(self, name: str, values: Mapping[str, object]) -> str:
        return self._templates.get_template(name).render(values)

    def _sections(
        self, delivery: Delivery, subscriber: Subscriber, summary_chars: int
    ) -> tuple[list[CardSection], int]:
        """The sections with every card that can be rendered, and how many could not."""
        sections, left_out = [], 0
        for section in delivery.digest.get("sections", ()):
            picks = section["picks"]
            cards = [self._card(delivery, subscriber, stored, summary_chars) for stored in picks]
            good = tuple(card for card in cards if card)
            left_out += len(cards) - len(good)
            if good:
                sections.append(CardSection(plain(section["interest"]), section.get("heading", ""), good))
        return sections, left_out

    def _card(
        self, delivery: Delivery, subscriber: Subscriber, stored: Mapping[str, Any], summary_chars: int
    ) -> Card | None:
        """One paper that cannot be shown must not cost the reader the others."""
        try:
            pick = _presentable(Pick(**stored), summary_chars)
            values = {
                "pick": pick,
                "links": _pick_links(pick),
                "date": _day_words(pick.published_on),
                "more": self._link(delivery, subscriber, Purpose.LIKE, pick.paper_id),
                "less": self._link(delivery, subscriber, Purpose.DISLIKE, pick.paper_id),
            }
            html, text = self._render("digest/card.html", values), self._render("digest/card.txt", values)
            (html + text).encode()  # a lone surrogate would only be found when the mail is written
        except Exception:
            return None
        return Card(pick, Markup(html), text.strip("\n"))  # noqa: S704 - it is a template's own output

    def _links(self, delivery: Delivery, subscriber: Subscriber, *purposes: Purpose) -> dict[str, str]:
        ids = {Purpose.VIEW: delivery.id or 0}
        return {each.value: self._link(delivery, subscriber, each, ids.get(each, 0)) for each in purposes}

    def _link(self, delivery: Delivery, subscriber: Subscriber, purpose: Purpose, argument: int) -> str:
        reader, issued, epoch = subscriber.id or 0, delivery.created_at, subscriber.link_epoch
        return self._signer.url(purpose, reader, issued, epoch=epoch, argument=argument)

    def _site(self) -> dict[str, str]:
        settings = self._settings
        return {
            "name": settings.site_name,
            "url": settings.base_url,
            "contact": settings.contact_address or settings.from_address,
            "postal": settings.postal_address,
        }

    def _list_headers(self, delivery: Delivery, unsubscribe: str) -> dict[str, str]:
        """What mailbox providers ask of anybody who writes to many (RFC 2369, 2919, 8058)."""
        domain, contact = self._settings.mail_domain, self._site()["contact"]
        token = unsubscribe.rpartition("/")[2]
        return {
            "List-Unsubscribe": f"<{unsubscribe}>, <mailto:{contact}?subject=unsubscribe%20{token}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            "List-Id": f"<digest.{domain}>",
            "List-Help": f"<{self._settings.base_url}/>, <mailto:{contact}?subject=help>",
            "Feedback-ID": f"{delivery.edition}:digest:paperboy:{domain.replace('.', '-')}",
            "Precedence": "bulk",
        }

    def _service_headers(self) -> dict[str, str]:
        return {"Auto-Submitted": "auto-generated"}


def environment(folder: Path) -> SandboxedEnvironment:
    """Sandboxed, escaping what becomes HTML, and strict: a name that is not there is an error."""

    def load(name: str) -> str:
        path = folder / name
        if not path.is_file():
            raise TemplateNotFound(name)
        source = path.read_text("utf-8")
        return _compile_mjml(source, folder) if path.suffix == ".mjml" else source

    templates = SandboxedEnvironment(
        loader=FunctionLoader(load),
        autoescape=lambda name: name is not None and name.endswith((".html", ".mjml")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(wrapped=wrapped, shorten=shorten)
    return templates


def _compile_mjml(source: str, folder: Path) -> str:
    # Included as text: the compiler's own mj-include loses the width of the body around it.
    whole = _INCLUDE.sub(lambda match: (folder / match[1]).read_text("utf-8"), source)
    # No font is ever fetched: `fonts` is the list of remote ones.
    return mjml.mjml2html(whole, disable_comments=True, fonts={})


def plain(text: str) -> str:
    """One line of foreign text, without controls, nor marks that turn the direction of what follows."""
    kept = (char if unicodedata.category(char) != "Cc" else " " for char in text)
    return " ".join("".join(kept).translate(_DIRECTION_MARKS).split())


_DIRECTION_MARKS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def shorten(text: str, chars: int) -> str:
    """At most so many characters, cut between words where that loses little."""
    if len(text) <= chars:
        return text
    at = text.rfind(" ", 0, chars)
    return (text[:at] if at > chars * 0.6 else text[: chars - 1]).rstrip(" ,;:.–—-") + "…"


def wrapped(text: str, indent: str = "") -> str:
    """Text as lines of a letter; a link is never broken."""
    return textwrap.fill(
        text,
        TEXT_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def edition_words(edition: str) -> str:
    """2026-11-21 → Saturday, 21 November 2026; 2026-W47 → Week 47 of 2026."""
    if match := re.fullmatch(r"(\d{4})-W(\d{2})", edition):
        return f"Week {int(match[2])} of {match[1]}"
    try:
        day = date.fromisoformat(edition)
    except ValueError:
        return edition
    return f"{day:%A}, {day.day} {day:%B %Y}"


def _day_words(iso: str) -> str:
    if not iso:
        return ""
    day = date.fromisoformat(iso)
    return f"{day.day} {day:%b %Y}"


def _presentable(pick: Pick, summary_chars: int) -> Pick:
    """The pick with its texts made fit to be shown; whatever is no text raises here."""
    return Pick(
        paper_id=pick.paper_id,
        title=shorten(plain(pick.title), TITLE_CHARS),
        authors=shorten(plain(pick.authors), TITLE_CHARS),
        summary=shorten(plain(pick.summary), summary_chars),
        reason=shorten(plain(pick.reason), TITLE_CHARS),
        trend=shorten(plain(pick.trend), TITLE_CHARS),
        url=_web_link(pick.url),
        pdf_url=_web_link(pick.pdf_url),
        code_url=_web_link(pick.code_url),
        project_url=_web_link(pick.project_url),
        published_on=pick.published_on,
        comments=int(pick.comments),
        score=float(pick.score),
        summary_by=shorten(plain(pick.summary_by), NAME_CHARS),
    )


def _web_link(url: str) -> str:
    """A link that a mail may hold, or nothing."""
    if not url.startswith(("https://", "http://")) or len(url) > 1000 or plain(url) != url or " " in url:
        return ""
    return url


def _pick_links(pick: Pick) -> Sequence[tuple[str, str]]:
    named = (
        ("Abstract", pick.url),
        ("PDF", pick.pdf_url),
        ("Code", pick.code_url),
        ("Project", pick.project_url),
    )
    return [(name, url) for name, url in named if url]
