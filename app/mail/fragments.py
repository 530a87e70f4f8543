"""The parts of digests that many messages share, rendered and encoded once: cards, headings, the shell.

A fragment consists of whole lines of quoted-printable, with placeholders for each subscriber's values. A
message is composed by concatenating fragments and values. When decoded, the message equals the output of
`Renderer.render`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from app.links import TOKEN_CHARS, LinkSigner, Purpose
from app.mail import bulk_headers, marked_words, message, render, subject_and_preview, text_limits
from app.mail.render import DigestCard, Fragment, Renderer
from app.mail.text_limits import LIMIT_STEPS, TextLimits
from app.text.in_words import count_of_recent
from app.types import DigestItem, MailKind, PaperUpdate, Section

# Together, the caches of a day use at most a few hundred megabytes, regardless of the number of subscribers.
MAX_CACHED_ITEMS, MAX_CACHED_CARDS, MAX_CACHED_PAPERS = 20_000, 25_000, 8_000
MAX_CACHED_LINES, MAX_CACHED_SHELLS = 8_000, 64
_SHARED_FIELDS = tuple(
    field.name for field in fields(DigestItem) if field.name not in ("reason", "marks", "score")
)
_cache_key = attrgetter("reason", "marks", *_SHARED_FIELDS)
_TOKENS = {purpose.value for purpose in Purpose}
_PLACEHOLDER = re.compile("\x01(\\w+)\x02")  # texts contain no control characters: see characters.safe_line
_ANY_TOKEN = "T" * TOKEN_CHARS


TemplatePieces = tuple[Any, ...]  # encoded text (bytes), alternating with placeholder names (str)


class Line(NamedTuple):
    """A short text, encoded for the HTML and the text part."""

    html: bytes
    text: bytes


class Subject(NamedTuple):
    """A subject as text, as a header, and as HTML, and the number of papers that it names."""

    text: str
    named: int
    header: bytes
    html: bytes


class EncodedPaper(NamedTuple):
    """A card without the marked title, the marked summary and the reason, which depend on the interest."""

    item: DigestItem
    preview_title: bytes
    html: TemplatePieces
    text: TemplatePieces
    link_count: int


class EncodedCard(NamedTuple):
    """A card: its HTML before, between and after the tokens in its links, and its text after the number."""

    title: str
    preview_title: bytes
    reason: str  # the full reason
    html: tuple[bytes, bytes, bytes]
    text: bytes
    link_count: int
    has_marks: bool


class EncodedSection(NamedTuple):
    """The heading of a section, and its cards."""

    heading: Line
    cards: list[EncodedCard]
    is_beyond_interests: bool


class Shell(NamedTuple):
    """Everything in a digest except its sections."""

    headers: tuple[bytes, bytes, bytes]  # around the unsubscribe token, which occurs twice
    html: tuple[TemplatePieces, TemplatePieces]  # before the sections, and after them
    text: tuple[TemplatePieces, TemplatePieces]


class Fragments:
    """A thread-safe encoder and cache of digest fragments."""

    def __init__(self, renderer: Renderer, signer: LinkSigner) -> None:
        self._renderer = renderer
        self._signer = signer
        self._day: date | None = None
        self._cards_by_item: list[dict[int, tuple[DigestItem, EncodedCard | None]]] = [
            {}
            for _ in range(2 * len(LIMIT_STEPS))  # two for each step: one for ordinary cards, one for leads
        ]
        # Decorators would keep every instance alive, and share one cache among all instances.
        sizes = {"_card": MAX_CACHED_CARDS, "_paper": MAX_CACHED_PAPERS, "shell": MAX_CACHED_SHELLS}
        sizes |= dict.fromkeys(
            ("_reason", "_heading", "subject", "intro", "note", "updates"), MAX_CACHED_LINES
        )
        self._caches = {name: lru_cache(size)(getattr(self, name)) for name, size in sizes.items()}
        for name, cached in self._caches.items():
            setattr(self, name, cached)

    def start_day(self, day: date) -> None:
        """Drop everything that was cached on another day.

        A card states recent votes, so each day has its own cards, and hardly needs those of other days.
        """
        if day != self._day:
            self._day = day
            for by_item in self._cards_by_item:
                by_item.clear()
            for cached in self._caches.values():
                cached.cache_clear()

    def layout(self, sections: Sequence[Section], step: int) -> list[EncodedSection]:
        """Return the sections with their displayable cards, using the text limits in LIMIT_STEPS[step]."""
        layout, cached_by_id = list[EncodedSection](), self._cards_by_item[2 * step].get
        for section in sections:
            cards = [
                # Look up by identity, because the ledger restores the same object for many subscribers.
                cached[1]
                if (cached := cached_by_id(id(item))) and cached[0] is item
                else self._cached_card(item, step)
                for item in section.picks
            ]
            if usable := [card for card in cards if card]:
                if not layout and (lead := self._lead(section, cards, step)):
                    usable[0] = lead
                heading = self._heading(section.interest, section.heading, LIMIT_STEPS[step].heading)
                layout.append(EncodedSection(heading, usable, section.is_beyond_interests))
        return layout

    def _lead(self, section: Section, cards: Sequence[EncodedCard | None], step: int) -> EncodedCard | None:
        """Return the first displayable card of the first section, encoded as the lead."""
        item = next(item for item, card in zip(section.picks, cards, strict=True) if card)
        cached = self._cards_by_item[2 * step + 1].get(id(item))
        return cached[1] if cached and cached[0] is item else self._cached_card(item, step, is_lead=True)

    def _cached_card(self, item: DigestItem, step: int, *, is_lead: bool = False) -> EncodedCard | None:
        """Encode and cache a card. If this fails, return None, and the message is sent without the card."""
        try:
            card = self._card(_cache_key(item), LIMIT_STEPS[step], is_lead)
        except Exception:
            card = None
        cache = self._cards_by_item[2 * step + is_lead]
        if len(cache) >= MAX_CACHED_ITEMS:
            cache.clear()
        cache[id(item)] = item, card
        return card

    def card_error(self, sections: Sequence[Section], step: int) -> Exception | None:
        """Encode the cards again until one fails, and return its error."""
        for item in (item for section in sections for item in section.picks):
            try:
                self._card(_cache_key(item), LIMIT_STEPS[step], is_lead=False)
            except Exception as error:
                return error
        return None

    def _card(self, key: tuple[Any, ...], limits: TextLimits, is_lead: bool) -> EncodedCard:
        reason, item_marks, *shared = key
        paper = self._paper(tuple(shared), limits, is_lead)
        fields_of_paper = dict(zip(_SHARED_FIELDS, shared, strict=True))
        item = DigestItem(**fields_of_paper, reason=reason, marks=item_marks if limits.has_marks else None)
        marked = marked_words.mark(item, paper.item)
        line = self._reason(text_limits.truncated_line(marked.reason, limits.reason))
        values = {
            "title": message.quoted_printable_lines(marked.title), "reason": line.html,
            "summary": message.quoted_printable_lines(marked.summary),
        }  # fmt: skip
        before, between, after = _fill(paper.html, values)
        lines = marked_words.mark_lines(item, paper.item)
        (text,) = _fill(
            paper.text,
            {
                "title": message.quoted_printable_lines(lines.title),
                "summary": message.quoted_printable_lines(lines.summary),
                "reason": line.text,
            },
        )
        return EncodedCard(
            paper.item.title,
            paper.preview_title,
            text_limits.truncated_line(reason, limits.reason),
            (before, between, after),
            text,
            paper.link_count,
            marked.has_marks,
        )

    def _paper(self, shared: tuple[Any, ...], limits: TextLimits, is_lead: bool) -> EncodedPaper:
        without_reason = DigestItem(**dict(zip(_SHARED_FIELDS, shared, strict=True)), reason="")
        item = text_limits.fit_to_limits(without_reason, limits, is_lead=is_lead)
        links = self._signer.feedback_links(item.paper_id, _placeholder(Purpose.FEEDBACK))
        title, summary, reason = map(_placeholders, ("title", "summary", "reason"))
        lines = marked_words.MarkedLines(title.text, summary.text)
        card = self._renderer.card(DigestCard(item, title.html, summary.html, reason, lines, is_lead), links)
        preview_title = _encode_html(subject_and_preview.preview_title(item.title))
        return EncodedPaper(item, preview_title, _split(str(card.html)), _split(card.text), card.link_count)

    def _reason(self, reason: str) -> Line:
        return _encode_line(self._renderer.reason(reason))

    def _heading(self, interest: str, heading: str, chars: int) -> Line:
        return _encode_line(self._renderer.heading(interest, heading, chars))

    def subject(self, titles: tuple[str, ...], count: int) -> Subject:
        """Encode the subject of a digest of `count` papers. `titles` are the titles of the first two."""
        text, named = subject_and_preview.write(titles, count)
        return Subject(text, named, message.subject(text).encode(), _encode_html(text))

    @staticmethod
    def preview_reason(reason: str, title: str) -> bytes:
        """Encode the reason in the preview of a digest whose subject names all papers."""
        return _encode_html(subject_and_preview.preview_reason(reason, title))

    @staticmethod
    def intro(count: int, considered: int, trending: int) -> Line:
        """Encode the line that states the number of papers."""
        text = count_of_recent(count, considered, trending)
        return Line(_encode_html(text), message.quoted_printable_lines(text))

    def note(self, note: str) -> Line:
        """Encode the note above the sections."""
        return _encode_line(render.note_fragment(note))

    def updates(self, updates: tuple[PaperUpdate, ...], step: int) -> Line:
        """Encode the updates on earlier papers, which are shown below the sections."""
        return _encode_line(self._renderer.updates(updates, LIMIT_STEPS[step]))

    def shell(
        self,
        edition: str,
        preview_title_count: int,
        has_note: bool,
        has_updates: bool,
        has_marks: bool,
        is_odd: bool,
    ) -> Shell:
        """Encode everything except the sections, with `preview_title_count` titles in the preview."""
        shell = self._renderer.shell(
            edition,
            subject=_placeholder("subject"),
            preview_titles=[_placeholder(f"preview_title{number}") for number in range(preview_title_count)],
            preview_reason=_placeholder("preview_reason"),
            intro=_placeholder("intro"),
            note=_placeholders("note") if has_note else render.note_fragment(""),
            updates=_placeholders("updates") if has_updates else Fragment(Markup(), ""),
            sections=_placeholders("sections"),
            reader=_placeholder("reader"),
            links={
                purpose.value: self._signer.link(purpose, _placeholder(purpose))
                for purpose in render.LINKS[MailKind.DIGEST]
            },
            has_marks=has_marks,
            is_odd=is_odd,
        )
        unsubscribe = self._signer.link(Purpose.UNSUBSCRIBE, _ANY_TOKEN)
        own_headers = bulk_headers.bulk_headers(self._renderer.settings, edition, unsubscribe)
        before, between, after = message.headers(own_headers).encode().split(_ANY_TOKEN.encode())
        return Shell((before, between, after), _split_shell(shell.html), _split_shell(shell.text))


def _placeholder(name: str) -> str:
    return f"\x01{name}\x02"


def _placeholders(name: str) -> Fragment:
    """Return a placeholder for the HTML and the text part."""
    return Fragment(escape(_placeholder(name)), _placeholder(name))


def _split(text: str, *, is_end: bool = False) -> TemplatePieces:
    """Split a text at its placeholders, and encode it.

    The last piece of a body part (`is_end`) must not end with a soft line break (RFC 2045, 6.7). Tokens are
    inserted unencoded, so the text after a token begins with a soft line break.
    """
    literals, names = _PLACEHOLDER.split(text)[::2], _PLACEHOLDER.split(text)[1::2]
    encoded = [message.quoted_printable_lines(literal) for literal in literals]
    if is_end:
        encoded[-1] = message.quoted_printable(literals[-1])
    for place, name in enumerate(names, 1):
        if name in _TOKENS:
            encoded[place] = message.SOFT_BREAK + encoded[place]
    return (encoded[0], *(part for pair in zip(names, encoded[1:], strict=True) for part in pair))


def _fill(pieces: TemplatePieces, values: Mapping[str, bytes]) -> list[bytes]:
    """Replace the placeholders in `values`. Return the pieces around the remaining placeholders."""
    filled = [pieces[0]]
    for name, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        if name in values:
            filled[-1] += values[name] + piece
        else:
            filled.append(piece)
    return filled


def _split_shell(text: str) -> tuple[TemplatePieces, TemplatePieces]:
    before, _, after = str(text).partition(_placeholder("sections"))
    return _split(before), _split(after, is_end=True)


def _encode_line(fragment: Fragment) -> Line:
    return Line(
        message.quoted_printable_lines(str(fragment.html)), message.quoted_printable_lines(fragment.text)
    )


def _encode_html(text: str) -> bytes:
    return message.quoted_printable_lines(str(escape(text)))
