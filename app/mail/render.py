"""Digest → subject, text and HTML: the only Jinja environment for mail.

A mail kind is one folder in `templates/email/`. MJML becomes a Jinja template once in a process. The same
letter always gives the same mail.

A digest is made of fragments: a shell, and in it a heading for each section and a card for each paper. Here
they are put together as text, which is what a mail is; `letters` puts the same fragments together as bytes.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

import mjml
from jinja2 import FunctionLoader, StrictUndefined, TemplateNotFound
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup, escape

from app.errors import DeliveryError
from app.links import LIFETIMES_IN_WORDS, LinkSigner, Purpose
from app.relevance.query_language import describe
from app.settings import Settings
from app.storage.database import ROOT
from app.types import Digest, DigestItem, MailKind, MailRequest, RenderedMail

FOLDER = ROOT / "templates" / "email"
TEXT_WIDTH = 76
_INCLUDE = re.compile(r'<mj-include path="([a-z_]+\.mjml)" />')
LINE_CHARS, ALSO_CHARS, WHY_CHARS = 300, 70, 120
ALSO = 2  # so many other titles stand in the preview
# Gmail clips what is above some 102 kB. A digest that would be gets shorter texts.
MAX_HTML_BYTES = 98_000
LINKS = {
    MailKind.DIGEST: (Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE, Purpose.VIEW),
    MailKind.CONFIRM: (Purpose.CONFIRM, Purpose.DECLINE),
    MailKind.MANAGE: (Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE),
    MailKind.EXPORT: (Purpose.EXPORT,),
    MailKind.ERASE: (Purpose.ERASE, Purpose.UNSUBSCRIBE),
    MailKind.NEW_LINKS: (Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE),
}


class TextLimits(NamedTuple):
    """How many letters of a paper's texts there is room for."""

    summary: int
    title: int = LINE_CHARS
    authors: int = 120
    reason: int = LINE_CHARS
    trend: int = 80
    summary_by: int = 60


_LEAST = TextLimits(40, title=90, authors=40, reason=80, trend=40, summary_by=20)
LIMIT_STEPS = (TextLimits(600), TextLimits(450), TextLimits(300), TextLimits(120), _LEAST)


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one thing looks like in each part of a mail."""

    html: Markup
    text: str


class Renderer:
    """Renders any letter. Made once: it keeps the compiled templates."""

    def __init__(self, settings: Settings, signer: LinkSigner) -> None:
        self._settings = settings
        self._signer = signer
        self._templates = environment(FOLDER)
        contact = settings.contact_address or settings.from_address
        self._site = {
            "name": settings.site_name,
            "url": settings.base_url,
            "contact": contact,
            "postal": settings.postal_address,
        }

    def render(self, letter: MailRequest) -> RenderedMail:
        """The mail that a letter becomes; DeliveryError when there is nothing of it that can be shown."""
        if letter.kind is MailKind.DIGEST:
            return self._digest(letter, letter.digest or Digest(letter.edition, ()))
        return self._service(letter)

    def _service(self, letter: MailRequest) -> RenderedMail:
        values = {
            "site": self._site, "reader": letter.email, "links": self._links(letter),
            "works_for": LIFETIMES_IN_WORDS,
        }  # fmt: skip
        subject = one_line(self._render(f"{letter.kind}/subject.txt", values))
        return RenderedMail(
            subject=subject,
            text=self._render(f"{letter.kind}/body.txt", values).strip() + "\n",
            html=self._render(f"{letter.kind}/body.mjml", {**values, "subject": subject}),
            headers={"Auto-Submitted": "auto-generated"},
        )

    # --- a digest

    def _digest(self, letter: MailRequest, digest: Digest) -> RenderedMail:
        for room in LIMIT_STEPS:
            mail = self._digest_of(letter, digest, room)
            if len(mail.html.encode()) <= MAX_HTML_BYTES:
                break
        return mail

    def _digest_of(self, letter: MailRequest, digest: Digest, room: TextLimits) -> RenderedMail:
        picks: list[DigestItem] = []
        sections: list[Fragment] = []
        for section in digest.sections:
            cards = [self._card(letter, pick, room) for pick in section.picks]
            good = [card for card in cards if card]
            if good:
                sections.append(self.heading(section.interest, section.heading))
                sections += [fragment for _, fragment in good]
                picks += [pick for pick, _ in good]
        if not picks:
            raise DeliveryError("no paper of this digest can be shown", permanent=not letter.unreadable)
        best, others = best_of(picks)
        subject = self.subject(best.title, len(others))
        links = self._links(letter)
        whole = self.shell(
            letter.edition,
            subject=subject,
            also=[preview_title(pick.title) for pick in others[:ALSO]],
            why=preview_reason(best.reason),
            intro=self.intro(len(picks), digest.considered),
            note=note(digest.note),
            sections=concatenate(sections),
            reader=letter.email,
            links=links,
        )
        left_out = letter.unreadable + len(digest.picks) - len(picks)
        headers = self.list_headers(letter.edition, links["unsubscribe"])
        return RenderedMail(subject, whole.text, str(whole.html), headers, left_out)

    def _card(
        self, letter: MailRequest, pick: DigestItem, room: TextLimits
    ) -> tuple[DigestItem, Fragment] | None:
        """One paper that cannot be shown must not cost the reader the others."""
        try:
            shown = fit_to_limits(pick, room)
            links = self._signer.feedback_links(shown.paper_id, self._token(letter, Purpose.FEEDBACK, 0))
            return shown, self.card(shown, self.reason(shown.reason), links)
        except Exception:
            return None

    # --- its fragments

    def subject(self, best: str, others: int) -> str:
        """The subject of a digest: the title of its best paper, and how many others there are."""
        return one_line(self._render("digest/subject.txt", {"best": best, "others": others}))

    def intro(self, count: int, considered: int) -> str:
        """How many papers there are."""
        return self._render("digest/intro.txt", {"count": count, "considered": considered}).strip()

    def heading(self, interest: str, heading: str) -> Fragment:
        """What stands over the papers of a section."""
        values = {"interest": describe(one_line(interest)), "heading": one_line(heading)}
        html, text = self._both("digest/section", values)
        return Fragment(Markup(html), f"\n\n{text}\n")  # noqa: S704 - it is a template's own output

    def card(self, pick: DigestItem, reason: Fragment, opinions: Mapping[str, str]) -> Fragment:
        """A presentable pick; `opinions` are the links of `Signer.feedback_links`."""
        day = _day_words(pick.published_on)
        values = {"pick": pick, "links": _pick_links(pick), "date": day, "opinions": opinions}
        html = self._render("digest/card.html", {**values, "reason": reason.html})
        text = self._render("digest/card.txt", {**values, "reason": reason.text})
        return Fragment(Markup(html), f"\n{text}\n")  # noqa: S704

    def reason(self, reason: str) -> Fragment:
        """Why a paper was picked, as it stands in its card."""
        if not reason:
            return Fragment(Markup(), "")
        html, text = self._both("digest/reason", {"reason": reason})
        return Fragment(Markup(html), f"\n{text}\n")  # noqa: S704

    def shell(
        self,
        edition: str,
        *,
        subject: str,
        also: Sequence[str],
        why: str,
        intro: str,
        note: Fragment,
        sections: Fragment,
        reader: str,
        links: Mapping[str, str],
    ) -> Fragment:
        """All of a digest around its sections, and the sections in it."""
        values = {
            "site": self._site, "edition": edition_words(edition), "subject": subject, "also": also,
            "why": why, "intro": intro, "reader": reader, "links": links,
        }  # fmt: skip
        html = self._render("digest/body.mjml", {**values, "note": note.html, "sections": sections.html})
        text = self._render("digest/body.txt", {**values, "note": note.text, "sections": sections.text})
        return Fragment(Markup(html), text.strip() + "\n")  # noqa: S704

    def list_headers(self, edition: str, unsubscribe: str) -> dict[str, str]:
        """What mailbox providers ask of anybody who writes to many (RFC 2369, 2919, 8058)."""
        domain, contact = self._settings.mail_domain, self._site["contact"]
        token = unsubscribe.rpartition("/")[2]
        return {
            "List-Unsubscribe": f"<{unsubscribe}>, <mailto:{contact}?subject=unsubscribe%20{token}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            "List-Id": f"<digest.{domain}>",
            "List-Help": f"<{self._settings.base_url}/>, <mailto:{contact}?subject=help>",
            "Feedback-ID": f"{edition}:digest:paperboy:{domain.replace('.', '-')}",
            "Precedence": "bulk",
        }

    # --- what they stand on

    def _both(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        html, text = self._render(f"{name}.html", values), self._render(f"{name}.txt", values)
        return html.strip("\n"), text.strip("\n")

    def _render(self, name: str, values: Mapping[str, object]) -> str:
        return self._templates.get_template(name).render(values)

    def _links(self, letter: MailRequest) -> dict[str, str]:
        # A confirmation's links name its mail, and by that the sign-up that it answers.
        ids = dict.fromkeys((Purpose.VIEW, Purpose.CONFIRM, Purpose.DECLINE), letter.delivery_id)
        return {
            each.value: self._signer.link(each, self._token(letter, each, ids.get(each, 0)))
            for each in LINKS[letter.kind]
        }

    def _token(self, letter: MailRequest, purpose: Purpose, argument: int) -> str:
        return self._signer.token(
            purpose, letter.subscriber_id, letter.issued_at, epoch=letter.link_epoch, argument=argument
        )


def best_of(picks: Sequence[DigestItem]) -> tuple[DigestItem, list[DigestItem]]:
    """The pick with the highest score, the first of several; and the others."""
    scores = [pick.score for pick in picks]
    at = scores.index(max(scores))
    return picks[at], [*picks[:at], *picks[at + 1 :]]


def truncated_line(text: str, chars: int = LINE_CHARS) -> str:
    """Foreign text as one line that is not too long; whatever is no text raises."""
    return shorten(one_line(text), chars)


def preview_title(title: str) -> str:
    """A title as it stands in the preview."""
    return shorten(title, ALSO_CHARS)


def preview_reason(reason: str) -> str:
    """What the preview says of the only paper."""
    return f"Why: {shorten(reason, WHY_CHARS)}" if reason else ""


def note(text: str) -> Fragment:
    """A note, as it stands above the sections."""
    return Fragment(escape(one_line(text)), wrapped(one_line(text)))


def concatenate(fragments: Iterable[Fragment]) -> Fragment:
    """Fragments one after the other."""
    parts = list(fragments)
    return Fragment(Markup().join(part.html for part in parts), "".join(part.text for part in parts))


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
    templates.filters.update(wrapped=wrapped, shorten=shorten, closed=with_ltr_mark)
    templates.tests.update(rtl=is_rtl)
    return templates


def _compile_mjml(source: str, folder: Path) -> str:
    # Included as text: the compiler's own mj-include loses the width of the body around it.
    whole = _INCLUDE.sub(lambda match: (folder / match[1]).read_text("utf-8"), source)
    # No font is ever fetched: `fonts` is the list of remote ones.
    made = mjml.mjml2html(whole, disable_comments=True, fonts={})
    # MJML knows no landmarks. Opened on its own, or in a browser, all of a mail is the page's main part.
    return made.replace("<div aria-label=", "<main><div aria-label=", 1).replace("</body>", "</main></body>")


def one_line(text: str) -> str:
    """One line of foreign text, without controls, nor marks that turn the direction of what follows."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    encodable = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no letter
    kept = (char if unicodedata.category(char) != "Cc" else " " for char in encodable)
    return " ".join("".join(kept).translate(_DIRECTION_MARKS).split())


_DIRECTION_MARKS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def is_rtl(text: str) -> bool:
    """Whether it runs from right to left: its first letter that has a direction says so (UAX 9, P2).

    Asked here, as `dir="auto"` and `text-align:start` mean nothing to several mail programs.
    """
    return next(
        (kind in _RTL for char in text if (kind := unicodedata.bidirectional(char)) in _STRONG), False
    )


def with_ltr_mark(text: str) -> str:
    """With a mark after letters from right to left, without which a date after them stands among them."""
    return text + "\u200e" if any(unicodedata.bidirectional(char) in _RTL for char in text) else text


_RTL = ("R", "AL")
_STRONG = ("L", *_RTL)


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


def fit_to_limits(pick: DigestItem, room: TextLimits) -> DigestItem:
    """The pick with its texts made fit to be shown; whatever is no text raises."""
    return DigestItem(
        paper_id=_number(pick.paper_id),
        title=truncated_line(pick.title, room.title),
        authors=truncated_line(pick.authors, room.authors),
        summary=truncated_line(pick.summary, room.summary),
        reason=truncated_line(pick.reason, room.reason),
        trend=truncated_line(pick.trend, room.trend),
        url=_web_link(pick.url),
        pdf_url=_web_link(pick.pdf_url),
        code_url=_web_link(pick.code_url),
        project_url=_web_link(pick.project_url),
        published_on=pick.published_on,
        comments=int(pick.comments),
        score=float(pick.score),
        summary_by=truncated_line(pick.summary_by, room.summary_by),
    )


def _number(paper_id: int) -> int:
    """An id that a link can carry."""
    if not 0 <= int(paper_id) < 1 << 64:
        raise ValueError(paper_id)
    return int(paper_id)


def _web_link(url: str) -> str:
    """A link that a mail may hold, or nothing."""
    if not url.startswith(("https://", "http://")) or len(url) > 1000 or one_line(url) != url or " " in url:
        return ""
    return url


def _pick_links(pick: DigestItem) -> Sequence[tuple[str, str]]:
    named = (
        ("Abstract", pick.url),
        ("PDF", pick.pdf_url),
        ("Code", pick.code_url),
        ("Project", pick.project_url),
    )
    return [(name, url) for name, url in named if url]
