"""What digests show of papers: written down once a day however many readers get it, and read back.

`Contents.digest` is {"edition", "note", "considered", "sections": [{"interest", "heading", "cards", "papers",
"why", "scores", "reasons"}]}: a section's picks in columns, each as long as the others, but that "why" counts
in "reasons", which are there once. All else that a pick shows is its card's, which no change of the paper
reaches: a delivery can be rendered again, byte for byte, as long as it is kept. Picks are columns, because
they are read for each mail that leaves.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter, itemgetter
from typing import Any

from sqlmodel import Session, col, delete, select

from app.storage.database import insert_many_or_ignore
from app.storage.models import PaperSnapshot
from app.types import Digest, DigestItem, Section

PER_READER_FIELDS = ("paper_id", "reason", "score")  # what the delivery itself keeps of a pick
COLUMNS = ("cards", "papers", "why", "scores")
SHARED_FIELDS = tuple(field.name for field in fields(DigestItem) if field.name not in PER_READER_FIELDS)
A_DAY = timedelta(days=1)
CARDS_KEPT, PICKS_KEPT = 5_000, 50_000  # in memory, of those read lately: some megabytes

# What makes a card what it is: the paper's id, and then everything that is SHOWN.
Face = tuple[Any, ...]
Shown = Mapping[str, Any]
_Picks = defaultdict[str, dict[int, DigestItem]]
_Row = tuple[Any, Any, Any, Any]  # card, paper_id, reason, score
_Read = tuple[str, str, list[_Row]]  # interest, heading, and picks
_face = attrgetter("paper_id", *SHARED_FIELDS)


def store(session: Session, digests: Sequence[Digest], now: datetime) -> list[dict[str, Any]]:
    """What `Contents.digest` is to hold of these, in this order. Cards that are new today are written."""
    ids = _ids(session, {_face(pick) for digest in digests for pick in digest.picks}, now)
    return [_written(digest, ids) for digest in digests]


def _written(digest: Digest, ids: Mapping[Face, int]) -> dict[str, Any]:
    return {
        "edition": digest.edition,
        "note": digest.note,
        "considered": digest.considered,
        "sections": [_section_written(section, ids) for section in digest.sections],
    }


def _section_written(section: Section, ids: Mapping[Face, int]) -> dict[str, Any]:
    reasons = list(dict.fromkeys(pick.reason for pick in section.picks))
    return {
        "interest": section.interest,
        "heading": section.heading,
        "cards": [ids[_face(pick)] for pick in section.picks],
        "papers": [pick.paper_id for pick in section.picks],
        "why": [reasons.index(pick.reason) for pick in section.picks],
        "scores": [pick.score for pick in section.picks],
        "reasons": reasons,
    }


def _ids(session: Session, faces: Collection[Face], now: datetime) -> dict[Face, int]:
    """The ids of cards. In the order of their keys, so that two processes cannot wait for each other."""
    day = f"{now:%Y%m%d}"
    keys = {_key(day, face): face for face in faces}
    known = _known(session, keys)
    if new := sorted(keys.keys() - known.keys()):
        rows = [_row(key, keys[key], now) for key in new]
        insert_many_or_ignore(session, PaperSnapshot, ("key",), rows)
        known |= _known(session, new)
    return {face: known[key] for key, face in keys.items()}


def _known(session: Session, keys: Collection[str]) -> dict[str, int]:
    rows = session.execute(
        select(col(PaperSnapshot.key), col(PaperSnapshot.id)).where(col(PaperSnapshot.key).in_(keys))
    )
    return {row[0]: row[1] for row in rows}


def _row(key: str, face: Face, now: datetime) -> dict[str, Any]:
    paper_id, *shown = face
    return {
        "key": key,
        "paper_id": paper_id,
        "shown": dict(zip(SHARED_FIELDS, shown, strict=True)),
        "created_at": now,
    }


@lru_cache(maxsize=CARDS_KEPT)
def _key(day: str, face: Face) -> str:
    return f"{day}-{blake2b(json.dumps(face).encode(), digest_size=16).hexdigest()}"


def prune_cards(session: Session, before: datetime) -> int:
    """Delete the cards that only deliveries made before a moment can use; how many.

    A card may be as much older than the last digest that shows it as its day is long.
    """
    outdated = delete(PaperSnapshot).where(col(PaperSnapshot.created_at) < before - A_DAY)
    return session.execute(outdated).rowcount  # type: ignore[attr-defined, no-any-return]


@dataclass(frozen=True, slots=True)
class RestoredDigest:
    """A digest as it was composed, as far as it can be read."""

    digest: Digest
    unreadable: int = 0  # picks whose card is gone or broken


class SnapshotStore:
    """Reads digests back.

    Made once in a process, for one database. Threads may share it.
    """

    def __init__(self) -> None:
        self._cards: dict[int, Shown] = {}
        # By reason and card: where a pick is a digest's best, and where it is not.
        self._best: _Picks = defaultdict(dict)
        self._others: _Picks = defaultdict(dict)
        self._count = 0

    def restore(
        self, session: Session, stored: Sequence[Mapping[str, Any]], *, scored: bool = True
    ) -> list[RestoredDigest]:
        """The digests that deliveries hold, in this order, with one question to the database at most.

        A pick that cannot be read costs its reader that pick, and is counted. Scores are each reader's own:
        where only the best pick matters, not `scored`, it has 1 and all others 0, so that the same card with
        the same reason is the same `Pick` for all readers.
        """
        if scored:
            return self._read(session, stored, scored)
        at_hand = [self._at_hand(each) for each in stored]
        missing = [each for each, found in zip(stored, at_hand, strict=True) if not found]
        read = iter(self._read(session, missing, scored)) if missing else iter(())
        return [found or next(read) for found in at_hand]

    def _at_hand(self, stored: Mapping[str, Any]) -> RestoredDigest | None:
        """A digest all of whose picks others have, too: nearly every one of a morning."""
        found = []
        try:
            sections = stored["sections"]
            highest = [max(section["scores"]) for section in sections]
            best = highest.index(max(highest))
            for number, section in enumerate(sections):
                reasons, cards, why = section["reasons"], section["cards"], section["why"]
                kept = [self._others] * len(cards)
                if number == best:
                    kept[section["scores"].index(highest[best])] = self._best
                picks = [of[reasons[n]][card] for of, card, n in zip(kept, cards, why, strict=True)]
                if min(why) < 0 or not (len(section["papers"]) == len(section["scores"]) == len(cards)):
                    return None
                found.append(Section(section["interest"], tuple(picks), section["heading"]))
        except (IndexError, KeyError, TypeError, ValueError):
            return None
        return RestoredDigest(_digest(stored, found))

    def _read(
        self, session: Session, stored: Sequence[Mapping[str, Any]], scored: bool
    ) -> list[RestoredDigest]:
        stored = [each if isinstance(each, dict) else {"sections": None} for each in stored]
        sections = [_sections(each) for each in stored]
        cards = self._cards_of(session, (pick for each in sections for one in each if one for pick in one[2]))
        return [self._restored(*each, cards, scored) for each in zip(stored, sections, strict=True)]

    def _restored(
        self,
        stored: Mapping[str, Any],
        sections: Sequence[_Read | None],
        cards: Mapping[int, Shown],
        scored: bool,
    ) -> RestoredDigest:
        found, unreadable = [], 0
        best = _best(sections, cards)
        for section in sections:
            if section is None:
                unreadable += 1
                continue
            interest, heading, picks = section
            made = [self._pick(each, cards, None if scored else each is best) for each in picks]
            readable = tuple([pick for pick in made if pick])
            unreadable += len(made) - len(readable)
            if readable:
                found.append(Section(interest, readable, heading))
        return RestoredDigest(_digest(stored, found), unreadable)

    def _pick(self, stored: _Row, cards: Mapping[int, Shown], best: bool | None) -> DigestItem | None:
        card, _, reason, score = stored
        if not (isinstance(reason, str) and _is_score(score)):
            return None
        try:
            if best is None:
                return DigestItem(**cards[card], reason=reason, score=score)
            kept = (self._best if best else self._others)[reason]
            if (pick := kept.get(card)) is None:
                pick = kept[card] = DigestItem(**cards[card], reason=reason, score=float(best))
                self._count += 1
        except (KeyError, TypeError, ValueError):
            return None
        return pick

    def _cards_of(self, session: Session, picks: Iterable[_Row]) -> Mapping[int, Shown]:
        """The cards of these picks, read where they are not in memory."""
        self._forget_some()
        wanted = {card for card, *_ in picks if _is_id(card)}
        cards = {number: card for number in wanted if (card := self._cards.get(number))}
        if new := wanted - cards.keys():
            rows = session.execute(
                select(PaperSnapshot.id, PaperSnapshot.paper_id, PaperSnapshot.shown).where(
                    col(PaperSnapshot.id).in_(new)
                )
            )
            read = {
                number: {"paper_id": paper_id, **shown}
                for number, paper_id, shown in rows
                if isinstance(shown, dict)
            }
            cards |= read
            self._cards |= read
        return cards

    def _forget_some(self) -> None:
        if len(self._cards) > CARDS_KEPT:
            self._cards.clear()
        if self._count > PICKS_KEPT:
            self._best.clear()
            self._others.clear()
            self._count = 0


def paper_ids(stored: Mapping[str, Any]) -> list[int]:
    """The papers of a stored digest; no card is read for it."""
    picks = (pick for section in _sections(stored) if section for pick in section[2])
    return [paper for _, paper, *_ in picks if _is_id(paper)]


def _sections(stored: Mapping[str, Any]) -> list[_Read | None]:
    """Interest, heading and picks of each section; None for one that cannot be read."""
    sections = stored.get("sections", [])
    return [_section(each) for each in sections] if isinstance(sections, list) else [None]


def _section(stored: Any) -> _Read | None:
    try:
        columns, reasons = [stored[name] for name in COLUMNS], stored["reasons"]
        if not all(isinstance(column, list) for column in (*columns, reasons)):
            return None
        rows = list(zip(*columns, strict=True))
        interest, heading = str(stored["interest"]), str(stored["heading"])
    except (KeyError, TypeError, ValueError):
        return None
    return interest, heading, [(card, paper, _at(why, reasons), score) for card, paper, why, score in rows]


def _at(place: object, reasons: Sequence[object]) -> object:
    return reasons[place] if isinstance(place, int) and 0 <= place < len(reasons) else None


def _digest(stored: Mapping[str, Any], sections: Sequence[Section]) -> Digest:
    considered = stored.get("considered")
    return Digest(
        edition=str(stored.get("edition", "")),
        sections=tuple(sections),
        note=str(stored.get("note", "")),
        considered=considered if isinstance(considered, int) else 0,
    )


def _best(sections: Iterable[_Read | None], cards: Mapping[int, Shown]) -> _Row | None:
    """The pick with the highest score, the first of several, of those that can be read."""
    picks = [pick for section in sections if section for pick in section[2]]
    readable = [pick for pick in picks if _is_id(pick[0]) and pick[0] in cards and _is_score(pick[3])]
    return max(readable, key=itemgetter(3), default=None)


def _is_score(score: object) -> bool:
    return isinstance(score, float | int)


def _is_id(number: object) -> bool:
    return isinstance(number, int) and 0 < number < 2**63
