"""Render mail requests as subject, text and HTML, with the only Jinja environment for mail.

Each mail kind has a folder in `templates/email/`. MJML is compiled to a Jinja template once per
process. The same request always produces the same message.

A digest consists of fragments: a shell that contains a heading for each section and a card for each paper.
This module joins them as text; `composer` joins the same fragments as encoded bytes, which is faster.
"""

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import mjml
from jinja2 import FunctionLoader, StrictUndefined, TemplateNotFound
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup

from app.errors import DeliveryError
from app.links import DIGEST_ACTIONS, LinkSigner, Purpose, lifetime_in_words
from app.mail import (
    bulk_headers,
    card_facts,
    marked_words,
    section_headings,
    subject_and_preview,
    template_folders,
)
from app.mail.subject_and_preview import in_preview, preview_reason, preview_title
from app.mail.text_limits import (
    LIMIT_STEPS,
    MAX_HTML_BYTES,
    UPDATE_TITLE_CHARS,
    TextLimits,
    fit_to_limits,
    truncated_line,
    web_link,
)
from app.relevance.query_rewriting import describe
from app.settings import Settings
from app.text.characters import safe_line
from app.text.direction import is_rtl
from app.text.domains import readable_address
from app.text.in_words import count_of, count_of_recent, short_count
from app.text.wrapping import wrap
from app.types import Digest, DigestItem, MailKind, MailRequest, OperatorReport, PaperUpdate, RenderedMail

_INCLUDE = re.compile(r'<mj-include path="([a-z_]+\.mjml)" />')
LINKS = {
    MailKind.DIGEST: (Purpose.SUBSCRIPTION, Purpose.UNSUBSCRIBE, Purpose.VIEW),
    MailKind.CONFIRM: (Purpose.CONFIRM, Purpose.DECLINE),
    MailKind.MANAGE: (Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE),
    MailKind.EXPORT: (Purpose.EXPORT,),
    MailKind.ERASE: (Purpose.ERASE, Purpose.UNSUBSCRIBE),
    MailKind.NEW_LINKS: (Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE),
    MailKind.ADDRESS: (Purpose.ADDRESS,),
}


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a message, as HTML and as text."""

    html: Markup
    text: str
    link_count: int = 0  # in both parts together


@dataclass(frozen=True, slots=True)
class DigestCard:
    """A paper in a digest: its title and summary with the matching words marked, and its reason.

    The reason leaves out what the marks show.
    """

    item: DigestItem
    title: Markup
    summary: Markup
    reason: Fragment
    lines: marked_words.MarkedLines  # the title and the summary in the text part
    is_lead: bool  # the digest's first paper, which is larger


class Renderer:
    """A renderer for all kinds of mail. Share one per process: it caches the compiled templates."""

    def __init__(self, settings: Settings, signer: LinkSigner) -> None:
        self.settings = settings
        self._signer = signer
        self._lifetimes = {
            purpose.value: lifetime_in_words(lifetime) for purpose, lifetime in signer.lifetimes.items()
        }
        self._templates = template_environment(template_folders.search_path(settings, "email"))
        self._site = {
            "name": settings.site_name,
            "url": settings.base_url,
            "contact": settings.contact_address or settings.from_address,
            "postal": settings.postal_address,
        }

    def render(self, request: MailRequest) -> RenderedMail:
        """Render a message. Raise DeliveryError if none of a digest's papers can be shown."""
        if request.kind is MailKind.DIGEST:
            for limits in LIMIT_STEPS:
                mail = self._digest(request, request.digest or Digest(request.edition, ()), limits)
                if len(mail.html.encode()) <= MAX_HTML_BYTES:
                    break
            return mail
        values = {
            "site": self._site, "reader": readable_address(request.email), "links": self._links(request),
            "works_for": self._lifetimes,
        }  # fmt: skip
        subject = safe_line(self._render(f"{request.kind}/subject.txt", values))
        return RenderedMail(
            subject=subject,
            text=self._render(f"{request.kind}/body.txt", values).strip() + "\n",
            html=self._render(f"{request.kind}/body.mjml", {**values, "subject": subject}),
            headers={**bulk_headers.reply_to(self.settings), "Auto-Submitted": "auto-generated"},
        )

    def report(self, report: OperatorReport) -> RenderedMail:
        subject = safe_line(report.subject)
        values = {"site": self._site, "report": report, "subject": subject}
        return RenderedMail(
            subject=subject,
            text=self._render("report/body.txt", values).strip() + "\n",
            html=self._render("report/body.mjml", values),
            headers={"Auto-Submitted": "auto-generated"},
        )

    def _digest(self, request: MailRequest, digest: Digest, limits: TextLimits) -> RenderedMail:
        items: list[DigestItem] = []
        sections: list[Fragment] = []
        left_out, has_marks, trending = request.unreadable, False, 0
        for section in digest.sections:
            cards = []
            for pick in section.picks:
                try:
                    item = pick if limits.has_marks else replace(pick, marks=None)
                    fitted = fit_to_limits(item, limits, is_lead=not items)
                    token = self._token(request, Purpose.FEEDBACK, 0)
                    links = self._signer.feedback_links(fitted.paper_id, token)
                    marked = marked_words.mark(item, fitted)
                    reason = self.reason(truncated_line(marked.reason, limits.reason))
                    lines = marked_words.mark_lines(item, fitted)
                    card = DigestCard(fitted, marked.title, marked.summary, reason, lines, is_lead=not items)
                    cards.append(numbered(self.card(card, links), len(items) + 1))
                except Exception:  # the message is sent without this paper
                    left_out += 1
                else:
                    items.append(fitted)
                    has_marks |= marked.has_marks
            trending += len(cards) if section.is_beyond_interests else 0
            if cards:
                sections += [self.heading(section.interest, section.heading, limits.heading), *cards]
        if not items:
            raise DeliveryError("no paper in this digest can be shown", permanent=not request.unreadable)
        subject = subject_and_preview.write([item.title for item in items[:2]], len(items))
        links = self._links(request)
        shell = self.shell(
            request.edition,
            subject=subject.text,
            preview_titles=[preview_title(item.title) for item in in_preview(items, subject.named)],
            preview_reason=preview_reason(items[0].reason, items[0].title if len(items) > 1 else ""),
            intro=count_of_recent(len(items), digest.considered, trending),
            note=note_fragment(digest.note),
            updates=self.updates(digest.updates, limits),
            sections=Fragment(
                Markup().join(part.html for part in sections), "".join(part.text for part in sections)
            ),
            reader=readable_address(request.email),
            links=links,
            has_marks=has_marks,
            is_odd=sum(part.link_count for part in sections) % 2 == 1,
        )
        for_lists = bulk_headers.bulk_headers(self.settings, request.edition, links["unsubscribe"])
        return RenderedMail(subject.text, shell.text, str(shell.html), for_lists, left_out)

    # --- fragments of digests

    def heading(self, interest: str, heading: str, chars: int) -> Fragment:
        words = describe(safe_line(interest)) or safe_line(heading) or section_headings.BEYOND_INTERESTS
        html, text = self._both("digest/section", {"heading": truncated_line(words, chars)})
        return Fragment(Markup(html + "\n"), f"\n\n{text}\n")  # noqa: S704 - the output of a template

    def card(self, card: DigestCard, feedback_links: Mapping[str, str]) -> Fragment:
        """Return a card whose item is from `fit_to_limits`, with links from `LinkSigner.feedback_links`."""
        item = card.item
        links = card_facts.links(item)
        values: dict[str, Any] = {
            "item": item,
            "lead": card.is_lead,
            "facts": card_facts.below_title(item, card.is_lead),
            "links": links,
            "feedback_links": feedback_links,
        }
        html = self._render(
            "digest/card.html",
            {**values, "title": card.title, "summary": card.summary, "reason": card.reason.html},
        )
        with_code = f"code ★\N{NO-BREAK SPACE}{short_count(item.stars)}" if item.stars else "code"
        votes = "" if card.is_lead or not item.votes else count_of(item.votes, "vote")
        facts = " · ".join(filter(None, (votes, values["facts"], with_code if item.code_url else "")))
        link = item.url or item.pdf_url or item.code_url or item.project_url
        text = self._render(
            "digest/card.txt",
            {"lines": card.lines, "item": item, "facts": facts, "reason": card.reason.text, "link": link},
        )
        count = bool(item.url) + len(links) + len(DIGEST_ACTIONS) + bool(link)
        return Fragment(Markup(html), text, count)  # noqa: S704

    def reason(self, reason: str) -> Fragment:
        if not reason:
            return Fragment(Markup(), "")
        html, text = self._both("digest/reason", {"reason": reason})
        return Fragment(Markup(html), f"{text}\n")  # noqa: S704

    def updates(self, updates: Sequence[PaperUpdate], limits: TextLimits) -> Fragment:
        """Return the updates on earlier papers. Both parts have the same number of links."""
        if not updates:
            return Fragment(Markup(), "")
        items = [
            item._replace(
                title=truncated_line(item.title, min(limits.title, UPDATE_TITLE_CHARS)),
                url=web_link(item.url, limits.title_link),
            )
            for item in updates
        ]
        html, text = self._both("digest/updates", {"updates": items})
        return Fragment(Markup(html), text)  # noqa: S704 - the output of a template

    def shell(
        self,
        edition: str,
        *,
        subject: str,
        preview_titles: Sequence[str],
        preview_reason: str,
        intro: str,
        note: Fragment,
        updates: Fragment,
        sections: Fragment,
        reader: str,
        links: Mapping[str, str],
        has_marks: bool,
        is_odd: bool,
    ) -> Fragment:
        """Return the whole digest: the shell and the sections in it.

        Spam filters distrust an odd number of links in both parts together (URI_COUNT_ODD of rspamd). So if
        the sections contain an odd number of links (`is_odd`), the site's name becomes one more link.
        """
        values = {
            "site": self._site, "edition": edition_title(edition), "subject": subject,
            "preview_titles": preview_titles, "preview_reason": preview_reason, "intro": intro,
            "reader": reader, "links": links, "has_marks": has_marks, "linked_name": is_odd,
        }  # fmt: skip
        fragments = {"note": note, "updates": updates, "sections": sections}
        in_html = {name: fragment.html for name, fragment in fragments.items()}
        in_text = {name: fragment.text for name, fragment in fragments.items()}
        html = self._render("digest/body.html", {**values, **in_html})
        text = self._render("digest/body.txt", {**values, **in_text})
        return Fragment(Markup(html), text.strip() + "\n")  # noqa: S704

    # --- templates and links

    def _both(self, name: str, values: Mapping[str, object]) -> tuple[str, str]:
        html, text = self._render(f"{name}.html", values), self._render(f"{name}.txt", values)
        return html.strip("\n"), text.strip("\n")

    def _render(self, name: str, values: Mapping[str, object]) -> str:
        return self._templates.get_template(name).render(values)

    def _links(self, request: MailRequest) -> dict[str, str]:
        # Confirmation links identify their delivery, and thereby the sign-up or the change that they confirm.
        of_delivery = (Purpose.VIEW, Purpose.CONFIRM, Purpose.DECLINE, Purpose.ADDRESS)
        ids = dict.fromkeys(of_delivery, request.delivery_id)
        return {
            purpose.value: self._signer.link(purpose, self._token(request, purpose, ids.get(purpose, 0)))
            for purpose in LINKS[request.kind]
        }

    def _token(self, request: MailRequest, purpose: Purpose, argument: int) -> str:
        return self._signer.token(
            purpose, request.subscriber_id, request.issued_at, epoch=request.link_epoch, argument=argument
        )


def numbered(card: Fragment, number: int) -> Fragment:
    """Return a card with its number before its text."""
    return replace(card, text=number_text(number) + card.text)


def number_text(number: int) -> str:
    """Return the beginning of a card's text: its number, as wide as the indent of the other lines."""
    return f"\n{number:>2}. "


def note_fragment(text: str) -> Fragment:
    """Return a note. Each line of it is a paragraph."""
    paragraphs = [safe_line(line) for line in text.split("\n")]
    return Fragment(Markup("<br><br>").join(paragraphs), "\n\n".join(map(wrap, paragraphs)))


def template_environment(folders: tuple[Path, ...]) -> SandboxedEnvironment:
    """Return a sandboxed Jinja environment that escapes HTML and refuses undefined names.

    A template is loaded from the first of the folders that has it.
    """

    def find(name: str) -> Path:
        if path := template_folders.find(folders, name):
            return path
        raise TemplateNotFound(name)

    def load(name: str) -> tuple[str, str, Callable[[], bool]]:
        """Return a template's source, its path, which is then in tracebacks, and whether it is current."""
        path = find(name)
        source = path.read_text("utf-8")
        if path.suffix != ".mjml":
            return source, str(path), lambda: True
        # Include files as text, because the compiler's mj-include loses the width of the body around it.
        complete = _INCLUDE.sub(lambda match: find(match[1]).read_text("utf-8"), source)
        # `fonts` lists remote fonts. It is empty, so that messages do not load any.
        html = mjml.mjml2html(complete, disable_comments=True, fonts={})
        # MJML does not support landmarks. In a browser, the whole message is the main content.
        html = html.replace("<div aria-label=", "<main><div aria-label=", 1)
        return html.replace("</body>", "</main></body>"), str(path), lambda: True

    templates = SandboxedEnvironment(
        loader=FunctionLoader(load),
        autoescape=lambda name: name is not None and name.endswith((".html", ".mjml")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(wrapped=wrap, in_capitals=section_headings.in_capitals, short_count=short_count)
    templates.tests.update(rtl=is_rtl)
    return templates


def describe_error(error: Exception) -> str:
    """Return the message of an error, with that of its cause. If a template is wrong, name it and the line.

    The lines of compiled MJML are not those of its file, so they are left out.
    """
    if isinstance(error.__cause__, Exception):
        return f"{error}: {describe_error(error.__cause__)}"
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        path = Path(frame.f_code.co_filename)
        if path.suffix in (".html", ".mjml", ".txt"):
            is_ours = path.is_relative_to(template_folders.SHIPPED)
            name = path.relative_to(template_folders.SHIPPED.parent) if is_ours else path
            place = "" if path.suffix == ".mjml" else f", line {line}"
            return f"{name}{place}: {error}"
    return str(error) or type(error).__name__


def edition_title(edition: str) -> str:
    """Return 2026-11-21 as Saturday, 21 November 2026, and 2026-W47 as Week 47 of 2026."""
    if match := re.fullmatch(r"(\d{4})-W(\d{2})", edition):
        return f"Week {int(match[2])} of {match[1]}"
    try:
        day = date.fromisoformat(edition)
    except ValueError:
        return edition
    return f"{day:%A}, {day.day} {day:%B %Y}"
