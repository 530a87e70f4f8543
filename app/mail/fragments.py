"""What digests show, rendered and encoded once: a card for each paper, headings, and all around them.

A fragment is whole lines of quoted-printable with holes for what is one reader's own: fragments and what goes
into their holes need only be joined. Read as text they are what `Renderer.render` gives, to the letter.
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
from app.mail import message, render
from app.mail.render import LIMIT_STEPS, Fragment, Renderer, TextLimits
from app.types import DigestItem, MailKind, Section

# In memory, of what digests showed lately: some hundred megabytes at most, however many readers there are.
PICKS_KEPT, CARDS_KEPT, PAPERS_KEPT, LINES_KEPT, SHELLS_KEPT = 20_000, 5_000, 2_000, 8_000, 64
_SHOWN = tuple(field.name for field in fields(DigestItem) if field.name not in ("reason", "score"))
_face = attrgetter("reason", *_SHOWN)
_TOKENS = {purpose.value for purpose in Purpose}
_HOLE = re.compile("\x01(\\w+)\x02")  # nobody's text holds control characters: see render.plain
_ANY_TOKEN = "T" * TOKEN_CHARS


class Line(NamedTuple):
    """A small thing, encoded for both parts."""

    html: bytes
    text: bytes


class Subject(NamedTuple):
    """A subject, its header line, and how it stands in the HTML."""

    text: str
    header: bytes
    html: bytes


class EncodedPaper(NamedTuple):
    """A card without the reason: what stands before and after it, between the links, and after them."""

    paper_id: int
    title: str
    also: bytes  # the title, as it stands in the preview
    html: tuple[bytes, ...]
    text: tuple[bytes, ...]


class EncodedCard(NamedTuple):
    """A paper and why it was picked: what stands before, between and after the tokens of its links."""

    paper_id: int
    title: str
    also: bytes
    why: str  # the reason, fit to be shown
    html: tuple[bytes, bytes, bytes, bytes, bytes]
    text: tuple[bytes, bytes, bytes, bytes, bytes]


ScoredCard = tuple[float, EncodedCard]  # with the pick's score
SectionLayout = list[tuple[Line, list[ScoredCard]]]  # the heading of each section, and what stands under it
TemplatePieces = tuple[Any, ...]  # fragments (bytes), and between them the names of holes (str)


class Shell(NamedTuple):
    """All of a digest around its sections."""

    headers: tuple[bytes, bytes, bytes]  # around the token that unsubscribes, which stands there twice
    html: tuple[TemplatePieces, TemplatePieces]  # before the sections, and after them
    text: tuple[TemplatePieces, TemplatePieces]


class Fragments:
    """Encodes what digests show, and keeps it. Threads may share it."""

    def __init__(self, renderer: Renderer, signer: LinkSigner) -> None:
        self._renderer = renderer
        self._signer = signer
        self._at_hand: list[dict[int, tuple[DigestItem, ScoredCard | None]]] = [{} for _ in LIMIT_STEPS]
        self._card = lru_cache(CARDS_KEPT)(self._new_card)
        self._paper = lru_cache(PAPERS_KEPT)(self._new_paper)
        self._reason = lru_cache(LINES_KEPT)(self._new_reason)
        self._heading = lru_cache(LINES_KEPT)(self._new_heading)
        self.subject = lru_cache(LINES_KEPT)(self._new_subject)
        self.intro = lru_cache(LINES_KEPT)(self._new_intro)
        self.note = lru_cache(LINES_KEPT)(self._new_note)
        self.why = lru_cache(LINES_KEPT)(self._new_why)
        self.shell = lru_cache(SHELLS_KEPT)(self._new_shell)

    def layout(self, sections: Sequence[Section], step: int) -> SectionLayout:
        """Every section with the cards that can be shown, with the room of ROOMS[step]."""
        found, known = [], self._at_hand[step].get
        for section in sections:
            placed = [
                # What the ledger restores are often the same objects for many readers.
                kept[1] if (kept := known(id(pick))) and kept[0] is pick else self._place(pick, step)
                for pick in section.picks
            ]
            if shown := [one for one in placed if one]:
                found.append((self._heading(section.interest, section.heading), shown))
        return found

    def _place(self, pick: DigestItem, step: int) -> ScoredCard | None:
        """One paper that cannot be shown must not cost the reader the others."""
        try:
            placed = float(pick.score), self._card(_face(pick), LIMIT_STEPS[step])
        except Exception:
            placed = None
        at_hand = self._at_hand[step]
        if len(at_hand) >= PICKS_KEPT:
            at_hand.clear()
        at_hand[id(pick)] = pick, placed
        return placed

    def _new_card(self, face: tuple[Any, ...], room: TextLimits) -> EncodedCard:
        reason, shown = face[0], face[1:]
        paper = self._paper(shown, room)
        why, line = self._reason(reason, room.reason)
        html, text = _with(line.html, paper.html), _with(line.text, paper.text)
        return EncodedCard(paper.paper_id, paper.title, paper.also, why, html, text)

    def _new_paper(self, shown: tuple[Any, ...], room: TextLimits) -> EncodedPaper:
        bare = DigestItem(**dict(zip(_SHOWN, shown, strict=True)), reason="")
        pick = render.fit_to_limits(bare, room)
        links = self._signer.feedback_links(pick.paper_id, _placeholder(Purpose.FEEDBACK))
        whole = self._renderer.card(pick, _placeholders("reason"), links)
        also = _in_html(render.preview_title(pick.title))
        return EncodedPaper(pick.paper_id, pick.title, also, _in_card(whole.html), _in_card(whole.text))

    def _new_reason(self, reason: str, chars: int) -> tuple[str, Line]:
        fit = render.truncated_line(reason, chars)
        return fit, _line(self._renderer.reason(fit))

    def _new_heading(self, interest: str, heading: str) -> Line:
        return _line(self._renderer.heading(interest, heading))

    def _new_subject(self, best: str, others: int) -> Subject:
        text = self._renderer.subject(best, others)
        return Subject(text, message.subject(text).encode(), _in_html(text))

    def _new_intro(self, count: int, considered: int) -> Line:
        text = self._renderer.intro(count, considered)
        return Line(_in_html(text), message.quoted_printable_lines(text))

    def _new_why(self, reason: str) -> bytes:
        return _in_html(render.preview_reason(reason))

    def _new_note(self, note: str) -> Line:
        return _line(render.note(note))

    def _new_shell(self, edition: str, also: int, noted: bool) -> Shell:
        """What is around the sections, with so many titles in the preview, and with a note or without one."""
        whole = self._renderer.shell(
            edition,
            subject=_placeholder("subject"),
            also=[_placeholder(f"also{number}") for number in range(also)],
            why=_placeholder("why"),
            intro=_placeholder("intro"),
            note=_placeholders("note") if noted else render.note(""),
            sections=_placeholders("sections"),
            reader=_placeholder("reader"),
            links={purpose.value: self._link(purpose) for purpose in render.LINKS[MailKind.DIGEST]},
        )
        listed = self._renderer.list_headers(edition, self._signer.link(Purpose.UNSUBSCRIBE, _ANY_TOKEN))
        before, between, after = message.headers(listed).encode().split(_ANY_TOKEN.encode())
        return Shell((before, between, after), _in_shell(whole.html), _in_shell(whole.text))

    def _link(self, purpose: Purpose) -> str:
        return self._signer.link(purpose, _placeholder(purpose))


def _placeholder(name: str) -> str:
    return f"\x01{name}\x02"


def _placeholders(name: str) -> Fragment:
    """A hole in both parts."""
    return Fragment(escape(_placeholder(name)), _placeholder(name))


def _mold(text: str, *, ends: bool = False) -> TemplatePieces:
    """Fragments and the names of the holes between them. A part of a mail `ends` with no line that goes on
    (RFC 2045, 6.7).

    Tokens are put into their holes as they are, so what follows one begins with the end of its line.
    """
    literals, names = _HOLE.split(text)[::2], _HOLE.split(text)[1::2]
    encoded = [message.quoted_printable_lines(literal) for literal in literals]
    if ends:
        encoded[-1] = message.quoted_printable(literals[-1])
    for place, name in enumerate(names, 1):
        if name in _TOKENS:
            encoded[place] = message.SOFT_BREAK + encoded[place]
    return (encoded[0], *(part for pair in zip(names, encoded[1:], strict=True) for part in pair))


def _in_card(text: str) -> tuple[bytes, ...]:
    first, *names_and_parts = _mold(str(text))
    if names_and_parts[::2] != ["reason", *(Purpose.FEEDBACK for _ in FEEDBACK_ACTIONS)]:
        raise ValueError("a card has its reason, and then its links to tell what one thinks of it")
    return (first, *names_and_parts[1::2])


def _with(reason: bytes, card: tuple[bytes, ...]) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    above, below, second, third, fourth, after = card
    return above + reason + below, second, third, fourth, after


def _in_shell(text: str) -> tuple[TemplatePieces, TemplatePieces]:
    before, _, after = str(text).partition(_placeholder("sections"))
    return _mold(before), _mold(after, ends=True)


def _line(fragment: Fragment) -> Line:
    return Line(
        message.quoted_printable_lines(str(fragment.html)), message.quoted_printable_lines(fragment.text)
    )


def _in_html(text: str) -> bytes:
    return message.quoted_printable_lines(str(escape(text)))
