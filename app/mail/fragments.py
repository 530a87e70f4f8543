"""The parts of digests that many messages share, rendered and encoded once: cards, headings, the shell.

A fragment consists of whole lines of quoted-printable, with placeholders for each reader's values. A message
is composed by concatenating fragments and values. When decoded, it equals the output of `Renderer.render`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from markupsafe import escape

from app.links import FEEDBACK_ACTIONS, TOKEN_CHARS, LinkSigner, Purpose
from app.mail import message, render, subject_line
from app.mail.render import LIMIT_STEPS, Fragment, Renderer, TextLimits
from app.types import DigestItem, MailKind, Section

# Together, the caches use at most a few hundred megabytes, regardless of the number of readers.
MAX_CACHED_ITEMS, MAX_CACHED_CARDS, MAX_CACHED_PAPERS = 20_000, 5_000, 2_000
MAX_CACHED_LINES, MAX_CACHED_SHELLS = 8_000, 64
_SHARED_FIELDS = tuple(field.name for field in fields(DigestItem) if field.name not in ("reason", "score"))
_cache_key = attrgetter("reason", *_SHARED_FIELDS)
_TOKENS = {purpose.value for purpose in Purpose}
_PLACEHOLDER = re.compile("\x01(\\w+)\x02")  # texts contain no control characters: see render.one_line
_ANY_TOKEN = "T" * TOKEN_CHARS


class Line(NamedTuple):
    """A short text, encoded for both parts."""

    html: bytes
    text: bytes


class Subject(NamedTuple):
    """A subject as text, as a header, and as HTML, and the number of papers that it names."""

    text: str
    named: int
    header: bytes
    html: bytes


class EncodedPaper(NamedTuple):
    """A card without its reason: the pieces around the reason and the tokens in its links."""

    title: str
    preview_title: bytes
    html: tuple[bytes, ...]
    text: tuple[bytes, ...]


class EncodedCard(NamedTuple):
    """A card: the pieces before, between and after the tokens in its links."""

    title: str
    preview_title: bytes
    preview_reason: bytes
    html: tuple[bytes, bytes, bytes, bytes, bytes]
    text: tuple[bytes, bytes, bytes, bytes, bytes]


SectionLayout = list[tuple[Line, list[EncodedCard]]]  # each section's heading and cards
TemplatePieces = tuple[Any, ...]  # encoded text (bytes), alternating with placeholder names (str)


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
        self._cards_by_item: list[dict[int, tuple[DigestItem, EncodedCard | None]]] = [
            {} for _ in LIMIT_STEPS
        ]
        # Not decorators: those would keep every instance alive, and share one cache among all of them.
        sizes = {"_card": MAX_CACHED_CARDS, "_paper": MAX_CACHED_PAPERS, "shell": MAX_CACHED_SHELLS}
        sizes |= dict.fromkeys(("_reason", "_heading", "subject", "intro", "note"), MAX_CACHED_LINES)
        for name, size in sizes.items():
            setattr(self, name, lru_cache(size)(getattr(self, name)))

    def layout(self, sections: Sequence[Section], step: int) -> SectionLayout:
        """Return the sections with their displayable cards, using the text limits in LIMIT_STEPS[step]."""
        layout, cached_by_id = [], self._cards_by_item[step].get
        for section in sections:
            cards = [
                # Look up by identity, because the ledger restores the same object for many readers.
                cached[1]
                if (cached := cached_by_id(id(item))) and cached[0] is item
                else self._cached_card(item, step)
                for item in section.picks
            ]
            if usable := [card for card in cards if card]:
                layout.append((self._heading(section.interest, section.heading), usable))
        return layout

    def _cached_card(self, item: DigestItem, step: int) -> EncodedCard | None:
        """Encode a card and cache it. Return None if it cannot be shown: the message is sent without it."""
        try:
            card = self._card(_cache_key(item), LIMIT_STEPS[step])
        except Exception:
            card = None
        cache = self._cards_by_item[step]
        if len(cache) >= MAX_CACHED_ITEMS:
            cache.clear()
        cache[id(item)] = item, card
        return card

    def _card(self, key: tuple[Any, ...], limits: TextLimits) -> EncodedCard:
        reason, shared = key[0], key[1:]
        paper = self._paper(shared, limits)
        preview_reason, line = self._reason(reason, limits.reason)
        html, text = _with_reason(line.html, paper.html), _with_reason(line.text, paper.text)
        return EncodedCard(paper.title, paper.preview_title, preview_reason, html, text)

    def _paper(self, shared: tuple[Any, ...], limits: TextLimits) -> EncodedPaper:
        without_reason = DigestItem(**dict(zip(_SHARED_FIELDS, shared, strict=True)), reason="")
        item = render.fit_to_limits(without_reason, limits)
        links = self._signer.feedback_links(item.paper_id, _placeholder(Purpose.FEEDBACK))
        card = self._renderer.card(item, _placeholders("reason"), links)
        preview_title = _encode_html(render.preview_title(item.title))
        return EncodedPaper(item.title, preview_title, _split_card(card.html), _split_card(card.text))

    def _reason(self, reason: str, chars: int) -> tuple[bytes, Line]:
        short = render.truncated_line(reason, chars)
        return _encode_html(render.preview_reason(short)), _encode_line(self._renderer.reason(short))

    def _heading(self, interest: str, heading: str) -> Line:
        return _encode_line(self._renderer.heading(interest, heading))

    def subject(self, titles: tuple[str, ...], count: int) -> Subject:
        """Encode the subject of a digest of `count` papers, of which `titles` are the first two."""
        text, named = subject_line.write(titles, count)
        return Subject(text, named, message.subject(text).encode(), _encode_html(text))

    def intro(self, count: int, considered: int) -> Line:
        """Encode the sentence that states the number of papers."""
        text = self._renderer.intro(count, considered)
        return Line(_encode_html(text), message.quoted_printable_lines(text))

    def note(self, note: str) -> Line:
        """Encode the note above the sections."""
        return _encode_line(render.note_fragment(note))

    def shell(self, edition: str, preview_title_count: int, has_note: bool) -> Shell:
        """Encode everything except the sections, with `preview_title_count` titles in the preview."""
        shell = self._renderer.shell(
            edition,
            subject=_placeholder("subject"),
            preview_titles=[_placeholder(f"preview_title{number}") for number in range(preview_title_count)],
            preview_reason=_placeholder("preview_reason"),
            intro=_placeholder("intro"),
            note=_placeholders("note") if has_note else render.note_fragment(""),
            sections=_placeholders("sections"),
            reader=_placeholder("reader"),
            links={
                purpose.value: self._signer.link(purpose, _placeholder(purpose))
                for purpose in render.LINKS[MailKind.DIGEST]
            },
        )
        unsubscribe = self._signer.link(Purpose.UNSUBSCRIBE, _ANY_TOKEN)
        list_headers = self._renderer.list_headers(edition, unsubscribe)
        before, between, after = message.headers(list_headers).encode().split(_ANY_TOKEN.encode())
        return Shell((before, between, after), _split_shell(shell.html), _split_shell(shell.text))


def _placeholder(name: str) -> str:
    return f"\x01{name}\x02"


def _placeholders(name: str) -> Fragment:
    """Return a placeholder for both parts."""
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


def _split_card(text: str) -> tuple[bytes, ...]:
    first, *names_and_parts = _split(str(text))
    if names_and_parts[::2] != ["reason", *(Purpose.FEEDBACK for _ in FEEDBACK_ACTIONS)]:
        raise ValueError("the template of a card must show the reason, and then its four feedback links")
    return (first, *names_and_parts[1::2])


def _with_reason(reason: bytes, card: tuple[bytes, ...]) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    above, below, second, third, fourth, after = card
    return above + reason + below, second, third, fourth, after


def _split_shell(text: str) -> tuple[TemplatePieces, TemplatePieces]:
    before, _, after = str(text).partition(_placeholder("sections"))
    return _split(before), _split(after, is_end=True)


def _encode_line(fragment: Fragment) -> Line:
    return Line(
        message.quoted_printable_lines(str(fragment.html)), message.quoted_printable_lines(fragment.text)
    )


def _encode_html(text: str) -> bytes:
    return message.quoted_printable_lines(str(escape(text)))
