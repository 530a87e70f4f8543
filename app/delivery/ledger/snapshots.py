"""Snapshots: copies of papers as digests show them, shared by all digests of a day.

`DigestContent.digest` is {"edition", "note", "considered", "sections": [{"interest", "heading", "cards",
"papers", "why", "marks", "scores", "reasons"}]}. The items of a section are stored as columns of equal
length: "cards" contains the ids of snapshots, "why" contains indexes into "reasons", which lists each reason
once, and "marks" contains texts, which can be keys of a cache (see `_decode_marks`). The other fields of an
item are in its snapshot. A reason that at least MIN_SHARING subscribers in a batch receive is stored in
a separate snapshot, together with its marks. In that case, "reasons" contains the id of that snapshot, and
the item's marks are empty. If a digest has updates on earlier papers, "updates" contains [kind, paper id,
title, URL] for each item.

Snapshots do not change when the paper does, so a delivery can be rendered again, byte for byte, until it is
deleted. Columns are compact, because they are read for each email.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from sqlmodel import Session, col, delete, select

from app.storage.database import execute_and_count, in_array
from app.storage.inserts import insert_many_or_ignore
from app.storage.models import PaperSnapshot
from app.types import Digest, DigestItem, Marks, PaperUpdate, Section, UpdateKind

OWN_FIELDS = ("paper_id", "reason", "marks")  # fields of an item that are not in its snapshot
REASON_FIELDS = ("reason", "marks")
COLUMNS = ("cards", "papers", "why", "marks", "scores")
SHARED_FIELDS = tuple(field.name for field in fields(DigestItem) if field.name not in OWN_FIELDS)
# Snapshots omit values that equal these defaults, which saves a tenth of their size. So a default must never
# change.
_DEFAULTS = {field.name: field.default for field in fields(DigestItem)}
MIN_SHARING = 5  # subscribers in a batch; for fewer, copies in their digests take less space than a snapshot
A_DAY = timedelta(days=1)
MAX_CACHED_SNAPSHOTS, MAX_CACHED_ITEMS = 15_000, 25_000  # for reading
MAX_ENCODED_ITEMS = 60_000  # for storing; per planning run

# The content of a snapshot: the paper's id, then the values of SHARED_FIELDS.
SnapshotValues = tuple[Any, ...]
SnapshotFields = Mapping[str, Any]
_ReasonText = tuple[int, str, str]  # paper id, reason, marks
_StoredItem = tuple[Any, Any, Any, Any, Any]  # snapshot id, paper id, reason (or its id), marks, score
_StoredSection = tuple[str, str, list[_StoredItem]]  # interest, heading, items
_snapshot_values = attrgetter("paper_id", *SHARED_FIELDS)


# --- store


def store(
    session: Session, digests: Sequence[Digest], now: datetime, encoder: ItemEncoder | None = None
) -> list[dict[str, Any]]:
    """Store snapshots that are new today. Return the `DigestContent.digest` for each digest, in order."""
    encoded = (encoder or ItemEncoder()).encode(digests, f"{now:%Y%m%d}")
    items = [item for sections in encoded for section in sections for item in section]
    readers = Counter(map(attrgetter("reason_key"), items))
    by_key: dict[str, DigestItem | _ReasonText] = {item.card_key: item.item for item in items}
    # A reason that few subscribers share may be personal. It stays in the digest and is deleted with it.
    shared = {
        item.reason_key: (item.item.paper_id, item.reason, item.marks)
        for item in items
        if item.reason_key and readers[item.reason_key] >= MIN_SHARING
    }
    ids = _store_snapshots(session, by_key | shared, now)
    reason_ids = {key: ids[key] for key in shared}
    return [
        {
            "edition": digest.edition,
            "note": digest.note,
            "considered": digest.considered,
            "sections": [
                _section_columns(section, own, ids, reason_ids)
                for section, own in zip(digest.sections, sections, strict=True)
            ],
            **({"updates": [list(item) for item in digest.updates]} if digest.updates else {}),
        }
        for digest, sections in zip(digests, encoded, strict=True)
    ]


class _EncodedItem(NamedTuple):
    """An item as digests and snapshots store it."""

    item: DigestItem
    card_key: str
    reason: str
    marks: str
    reason_key: str  # "" if there is no reason


class ItemEncoder:
    """Encode each item once. A planning run has one encoder, because its digests share items.

    Look up encoded items by the identity of the item, because comparing all fields takes longer.
    """

    def __init__(self) -> None:
        # By the `id` of each item. An entry holds its item, so no other object can get the same `id`.
        self._encoded = dict[int, _EncodedItem]()
        self._day = ""

    def encode(self, digests: Sequence[Digest], day: str) -> list[list[list[_EncodedItem]]]:
        """Encode the items of each section of each digest."""
        if day != self._day:
            self._encoded.clear()
            self._day = day
        encoded, encode = self._encoded, self._encode
        return [
            [[encoded.get(id(item)) or encode(item) for item in section.picks] for section in digest.sections]
            for digest in digests
        ]

    def _encode(self, item: DigestItem) -> _EncodedItem:
        marks, day = item.marks, self._day
        spans = json.dumps([marks.title, marks.summary, marks.rest], ensure_ascii=False) if marks else ""
        reason_key = _new_key(f"{day}-why", (item.paper_id, item.reason, spans)) if item.reason else ""
        card_key = _card_key(day, _snapshot_values(item))
        if len(self._encoded) >= MAX_ENCODED_ITEMS:
            self._encoded.clear()
        encoded = self._encoded[id(item)] = _EncodedItem(item, card_key, item.reason, spans, reason_key)
        return encoded


def _store_snapshots(
    session: Session, by_key: Mapping[str, DigestItem | _ReasonText], now: datetime
) -> dict[str, int]:
    """Store the snapshots that are new. Return the ids of new and existing ones by key."""
    ids = _ids_by_key(session, by_key)
    if new_keys := sorted(by_key.keys() - ids.keys()):  # sorted, to avoid deadlocks
        rows = [{"key": key, "created_at": now, **_snapshot(by_key[key])} for key in new_keys]
        new_ids = dict(
            zip(new_keys, insert_many_or_ignore(session, PaperSnapshot, ("key",), rows), strict=True)
        )
        by_others = [key for key, number in new_ids.items() if number is None]
        ids |= {key: number for key, number in new_ids.items() if number} | _ids_by_key(session, by_others)
    return ids


def _snapshot(content: DigestItem | _ReasonText) -> dict[str, Any]:
    if isinstance(content, DigestItem):
        paper_id, *values = _snapshot_values(content)
        named = zip(SHARED_FIELDS, values, strict=True)
        set_fields = {name: value for name, value in named if value != _DEFAULTS[name]}
        return {"paper_id": paper_id, "fields": set_fields}
    paper_id, *values = content
    return {"paper_id": paper_id, "fields": dict(zip(REASON_FIELDS, values, strict=True))}


def _section_columns(
    section: Section, items: Sequence[_EncodedItem], ids: Mapping[str, int], reason_ids: Mapping[str, int]
) -> dict[str, Any]:
    reasons = [reason_ids.get(item.reason_key, item.reason) for item in items]
    places = {reason: place for place, reason in enumerate(dict.fromkeys(reasons))}
    return {
        "interest": section.interest,
        "heading": section.heading,
        "cards": [ids[item.card_key] for item in items],
        "papers": [item.item.paper_id for item in items],
        "why": [places[reason] for reason in reasons],
        "marks": ["" if item.reason_key in reason_ids else item.marks for item in items],
        "scores": [*section.scores] or [0.0] * len(items),
        "reasons": [*places],
    }


def _decode_marks(text: str) -> Marks | None:
    """Return the marks that a digest stores as text. Raise TypeError or ValueError on malformed text."""
    if text == "":
        return None
    title, summary, rest = json.loads(text)
    in_title, in_summary = (tuple((int(start), int(end)) for start, end in own) for own in (title, summary))
    return Marks(in_title, in_summary, str(rest))


def _ids_by_key(session: Session, keys: Collection[str]) -> dict[str, int]:
    key_and_id = select(col(PaperSnapshot.key), col(PaperSnapshot.id))
    existing = key_and_id.where(in_array(session, col(PaperSnapshot.key), keys))
    return {row[0]: row[1] for row in session.execute(existing).all()}


def _new_key(day: str, values: SnapshotValues) -> str:
    """Return a key of only 22 characters, because it is stored twice: in the table and in its index."""
    digest = blake2b(json.dumps([day, values]).encode(), digest_size=16).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


_card_key = lru_cache(maxsize=MAX_CACHED_SNAPSHOTS)(_new_key)


def prune_snapshots(session: Session, before: datetime) -> int:
    """Delete the snapshots that only deliveries created before `before` can use. Return the number deleted.

    A digest may use a snapshot up to a day older than itself.
    """
    outdated = delete(PaperSnapshot).where(col(PaperSnapshot.created_at) < before - A_DAY)
    return execute_and_count(session, outdated)


# --- read back


@dataclass(frozen=True, slots=True)
class RestoredDigest:
    """A digest as it was composed, without unreadable items."""

    digest: Digest
    unreadable: int = 0  # the number of items or sections that are missing or broken


class SnapshotStore:
    """A thread-safe cache of snapshots and items that restores digests. There is one per process."""

    def __init__(self) -> None:
        self._snapshots: dict[int, SnapshotFields] = {}
        # By reason and marks, then by snapshot id.
        self._items = defaultdict[tuple[str | int, str], dict[int, DigestItem]](dict)
        self._item_count = 0
        self._day: date | None = None

    def start_day(self, day: date) -> None:
        """Drop everything that was cached on another day. Each day has its own snapshots."""
        if day != self._day:
            self._day = day
            self._snapshots.clear()
            self._clear_items()

    def _clear_items(self) -> None:
        self._items.clear()
        self._item_count = 0

    def restore(self, session: Session, stored: Sequence[Mapping[str, Any]]) -> list[RestoredDigest]:
        """Restore stored digests in the given order, with at most one database query. Skip unreadable items.

        Subscribers with the same item and reason share one `DigestItem`.
        """
        cached = [self._restore_from_cache(content) for content in stored]
        missing = [content for content, digest in zip(stored, cached, strict=True) if not digest]
        loaded = iter(self._restore(session, missing)) if missing else iter(())
        return [digest or next(loaded) for digest in cached]

    def _restore_from_cache(self, stored: Mapping[str, Any]) -> RestoredDigest | None:
        """Return a digest if all of its items are cached, as is usual when a run sends it; otherwise None."""
        restored = []
        try:
            for section in stored["sections"]:
                reasons, ids, why = section["reasons"], section["cards"], section["why"]
                items = [
                    self._items[reasons[reason], marks][snapshot_id]
                    for snapshot_id, reason, marks in zip(ids, why, section["marks"], strict=True)
                ]
                scores = section["scores"]
                if min(why) < 0 or not (len(section["papers"]) == len(scores) == len(ids)):
                    return None
                if not all(map(_is_score, scores)):
                    return None
                restored.append(
                    Section(section["interest"], tuple(items), section["heading"], _scores(scores))
                )
        except (IndexError, KeyError, TypeError, ValueError):
            return None
        return _restored_digest(stored, restored)

    def _restore(self, session: Session, stored: Sequence[Mapping[str, Any]]) -> list[RestoredDigest]:
        contents = [content if isinstance(content, dict) else {"sections": None} for content in stored]
        parsed = [_parse_sections(content) for content in contents]
        items = [section[2] for sections in parsed for section in sections if section]
        snapshots = self._load_snapshots(session, chain.from_iterable(items))
        digests = []
        for content, sections in zip(contents, parsed, strict=True):
            restored, unreadable = [], 0
            for section in sections:
                if section is None:
                    unreadable += 1
                    continue
                interest, heading, stored_items = section
                items_and_scores = [(self._item(row, snapshots), row[4]) for row in stored_items]
                readable = [(item, score) for item, score in items_and_scores if item]
                unreadable += len(stored_items) - len(readable)
                if readable:
                    picks, scores = zip(*readable, strict=True)
                    restored.append(Section(interest, picks, heading, _scores(scores)))
            digests.append(_restored_digest(content, restored, unreadable))
        return digests

    def _item(self, stored: _StoredItem, snapshots: Mapping[int, SnapshotFields]) -> DigestItem | None:
        """Return the object that all digests share for a stored item, or None if the item is unreadable."""
        snapshot_id, _, reason, marks, score = stored
        if not (isinstance(reason, str | int) and _is_score(score)):
            return None
        try:
            cache = self._items[reason, marks]
            if (item := cache.get(snapshot_id)) is None:
                item = cache[snapshot_id] = self._new_item(snapshot_id, reason, marks, snapshots)
                self._item_count += 1
        except (KeyError, TypeError, ValueError):
            return None
        return item

    @staticmethod
    def _new_item(
        snapshot_id: int, reason: str | int, marks: str, snapshots: Mapping[int, SnapshotFields]
    ) -> DigestItem:
        """Return an item. Raise KeyError, TypeError or ValueError if a part of it is missing or broken."""
        text = reason if isinstance(reason, str) else str(snapshots[reason]["reason"])
        own_marks = _decode_marks(marks if isinstance(reason, str) else snapshots[reason]["marks"])
        return DigestItem(**snapshots[snapshot_id], reason=text, marks=own_marks)

    def _load_snapshots(self, session: Session, items: Iterable[_StoredItem]) -> Mapping[int, SnapshotFields]:
        """Return the snapshots of these items by id, from memory or from the database."""
        if len(self._snapshots) > MAX_CACHED_SNAPSHOTS:
            self._snapshots.clear()
        if self._item_count > MAX_CACHED_ITEMS:
            self._clear_items()
        ids = {number for item in items for number in (item[0], item[2]) if _is_id(number)}
        snapshots = {number: snapshot for number in ids if (snapshot := self._snapshots.get(number))}
        if missing := ids - snapshots.keys():
            columns = select(PaperSnapshot.id, PaperSnapshot.paper_id, PaperSnapshot.fields)
            rows = session.execute(columns.where(col(PaperSnapshot.id).in_(missing)))
            loaded = {
                snapshot_id: {"paper_id": paper_id, **fields}
                for snapshot_id, paper_id, fields in rows
                if isinstance(fields, dict)
            }
            snapshots |= loaded
            self._snapshots |= loaded
        return snapshots


def paper_ids(stored: Mapping[str, Any]) -> list[int]:
    """Return the ids of the papers in a stored digest, without a database query."""
    sections = stored.get("sections", [])
    readable = filter(is_readable, sections if isinstance(sections, list) else ())
    return [paper for section in readable for paper in section["papers"] if _is_id(paper)]


def is_readable(section: Any) -> bool:
    """Return whether a stored section has all columns, each of the same length."""
    columns = [section.get(name) for name in COLUMNS] if isinstance(section, dict) else [None]
    lengths = {len(column) if isinstance(column, list) else None for column in columns}
    return len(lengths) == 1 and None not in lengths


def items_of(stored: Mapping[str, Any], papers: Collection[int]) -> list[tuple[str, str | int]]:
    """Return the interest and the reason of each item about one of `papers` in a stored digest.

    A reason that several subscribers share is given as the id of its snapshot: see `shared_reasons`.
    """
    return [
        (section[0], reason if _is_id(reason) else str(reason))
        for section in _parse_sections(stored)
        if section
        for _, paper_id, reason, *_ in section[2]
        if paper_id in papers
    ]


def shared_reasons(session: Session, reasons: Iterable[str | int]) -> dict[str | int, str]:
    """Return, by id, the text of each reason that is given as the id of a snapshot."""
    ids = {reason for reason in reasons if isinstance(reason, int)}
    rows = session.exec(select(PaperSnapshot).where(in_array(session, col(PaperSnapshot.id), ids)))
    return {row.id or 0: str(row.fields.get("reason", "")) for row in rows if isinstance(row.fields, dict)}


def _parse_sections(stored: Mapping[str, Any]) -> list[_StoredSection | None]:
    """Return the interest, heading and items of each section, or None for an unreadable section."""
    sections = stored.get("sections", [])
    return [_parse_section(section) for section in sections] if isinstance(sections, list) else [None]


def _parse_section(stored: Any) -> _StoredSection | None:
    try:
        columns, reasons = [stored[name] for name in COLUMNS], stored["reasons"]
        if not all(isinstance(column, list) for column in (*columns, reasons)):
            return None
        rows = list(zip(*columns, strict=True))
        interest, heading = str(stored["interest"]), str(stored["heading"])
    except (KeyError, TypeError, ValueError):
        return None
    items = []
    for snapshot_id, paper_id, index, marks, score in rows:
        reason = reasons[index] if isinstance(index, int) and 0 <= index < len(reasons) else None
        items.append((snapshot_id, paper_id, reason, marks, score))
    return interest, heading, items


def paper_updates(stored: Mapping[str, Any]) -> tuple[list[PaperUpdate], int]:
    """Return the updates on earlier papers in a stored digest, and the number of unreadable items."""
    items = stored.get("updates", [])
    if not isinstance(items, list):
        return [], 1
    updates = []
    for item in items:
        with suppress(TypeError, ValueError):
            kind, paper_id, title, url = item
            updates.append(PaperUpdate(UpdateKind(kind), int(paper_id), str(title), str(url)))
    return updates, len(items) - len(updates)


def _restored_digest(
    stored: Mapping[str, Any], sections: Sequence[Section], unreadable: int = 0
) -> RestoredDigest:
    considered = stored.get("considered")
    updates, unreadable_updates = paper_updates(stored)
    digest = Digest(
        edition=str(stored.get("edition", "")),
        sections=tuple(sections),
        note=str(stored.get("note", "")),
        considered=considered if isinstance(considered, int) else 0,
        updates=tuple(updates),
    )
    return RestoredDigest(digest, unreadable + unreadable_updates)


def _scores(stored: Iterable[float]) -> tuple[float, ...]:
    scores = tuple(stored)
    return scores if any(scores) else ()


def _is_score(score: object) -> bool:
    return isinstance(score, float | int)


def _is_id(number: object) -> bool:
    return isinstance(number, int) and 0 < number < 2**63
