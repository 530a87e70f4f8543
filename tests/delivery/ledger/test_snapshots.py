"""Test snapshots of papers: stored once a day and restored unchanged."""

from copy import deepcopy
from dataclasses import MISSING, fields, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import pytest
from sqlmodel import select

from app.application import Application
from app.delivery import ledger
from app.delivery.ledger import snapshots
from app.storage.models import PaperSnapshot
from app.types import Digest, DigestItem, Marks, Section
from tests.support import sample_digest


def store(app: Application, now: datetime, *digests: Digest) -> list[dict[str, Any]]:
    with app.db.write() as session:
        return ledger.store(session, digests, now)


def restore(
    app: Application, *digests: dict[str, Any], cards: ledger.SnapshotStore | None = None
) -> list[ledger.RestoredDigest]:
    with app.db.read() as session:
        return (cards or ledger.SnapshotStore()).restore(session, digests)


def card_count(app: Application) -> int:
    """Return the number of snapshots of papers, without those of reasons."""
    with app.db.read() as session:
        return sum("reason" not in row.fields for row in session.exec(select(PaperSnapshot)))


def reason_count(app: Application) -> int:
    with app.db.read() as session:
        return sum("reason" in row.fields for row in session.exec(select(PaperSnapshot)))


@pytest.mark.parametrize(
    ("readers", "is_shared"), [(snapshots.MIN_SHARING, True), (snapshots.MIN_SHARING - 1, False)]
)
def test_a_reason_of_many_readers_is_stored_once(
    app: Application, now: datetime, readers: int, is_shared: bool
) -> None:
    """Each digest refers to it, also if it is only restored partly from a cache."""
    shared = sample_digest.pick(1, "Bees", marks=Marks(((0, 4),), (), "by Zoë"))
    own = sample_digest.pick(2, "Ants", reason="close to “Wasps”, which you liked")
    alice, bob = (Digest("2026-11-20", (Section("bees", picks),)) for picks in ((shared, own), (shared,)))
    digests = [alice, *[bob] * (readers - 1)]
    contents = store(app, now, *digests)
    assert reason_count(app) == is_shared
    assert isinstance(contents[0]["sections"][0]["reasons"][0], int) is is_shared
    cards = ledger.SnapshotStore()
    for _ in range(2):
        assert [each.digest for each in restore(app, *contents, cards=cards)] == digests


def test_a_reason_of_one_reader_is_stored_with_the_digest(app: Application, now: datetime) -> None:
    """It may tell about the reader, so it is erased with the digest."""
    own = sample_digest.pick(2, "Ants", reason="close to “Wasps”, which you liked")
    (content,) = store(app, now, Digest("2026-11-20", (Section("", (own,)),)))
    assert reason_count(app) == 0
    assert content["sections"][0]["reasons"] == [own.reason]


def test_an_item_without_its_reason_is_unreadable(app: Application, now: datetime) -> None:
    """It is counted, and the other items are restored."""
    picks = sample_digest.pick(1, "Bees"), sample_digest.pick(2, "Ants", reason="for you")
    digests = [Digest("2026-11-20", (Section("bees", picks),))] * snapshots.MIN_SHARING
    contents = store(app, now, *digests)
    section = contents[0]["sections"][0]
    section["reasons"] = [10**9, *section["reasons"][1:]]
    restored = restore(app, contents[0])[0]
    assert (restored.unreadable, [item.title for item in restored.digest.picks]) == (1, ["Ants"])


def test_a_digest_is_restored_unchanged(app: Application, now: datetime) -> None:
    """Check every field of every item, the note, and the number of papers considered."""
    liked = Section("", (sample_digest.pick(20, "Robots"),), "Close to what you liked")
    digest = replace(sample_digest.digest(), considered=214)
    marked = sample_digest.pick(21, "Bees", marks=Marks(((0, 4),), ((3, 5), (7, 9)), "by Zoë"))
    digest = replace(digest, sections=(*digest.sections, liked, Section("bees", (marked,))))
    (content,) = store(app, now, digest)
    assert restore(app, content) == [ledger.RestoredDigest(digest)]
    item = digest.picks[0]
    first = content["sections"][0]
    assert (first["papers"][0], first["reasons"][first["why"][0]], first["scores"][0]) == (
        item.paper_id, item.reason, 0.94,
    )  # fmt: skip


def test_a_snapshot_omits_empty_fields(app: Application, now: datetime) -> None:
    """They are restored as the defaults of an item."""
    item = sample_digest.pick(1, "Bees", comments=0, votes=7, organization="")
    digest = Digest("2026-11-20", (Section("bees", (item,)),))
    (content,) = store(app, now, digest)
    with app.db.read() as session:
        stored = session.get_one(PaperSnapshot, content["sections"][0]["cards"][0]).fields
    assert stored.keys().isdisjoint({"comments", "organization"})
    assert (stored["title"], stored["votes"]) == ("Bees", 7)
    assert restore(app, content)[0].digest == digest


def test_defaults_of_items_never_change() -> None:
    """Stored snapshots omit them."""
    numbers = dict.fromkeys(("comments", "votes", "stars"), 0)
    texts = ("pdf_url", "code_url", "project_url", "published_on", "summary_by", "organization")
    texts += ("short_authors", "trend_note", "submitted_by")
    defaults = {field.name: field.default for field in fields(DigestItem) if field.default is not MISSING}
    assert defaults == {**numbers, **dict.fromkeys(texts, ""), "marks": None}


def test_a_snapshot_is_stored_once_a_day(app: Application, now: datetime) -> None:
    """The number of readers and of planning runs does not matter."""
    count = len(sample_digest.digest().picks)
    bob = Digest(
        "2026-11-20", (Section("bees", (replace(sample_digest.digest().picks[0], reason="for Bob"),)),)
    )
    store(app, now, sample_digest.digest(), sample_digest.digest(), bob)
    store(app, now + timedelta(hours=1), sample_digest.digest())
    assert card_count(app) == count
    store(app, now + timedelta(days=1), sample_digest.digest())
    assert card_count(app) == 2 * count


def test_an_encoder_of_two_days(app: Application, now: datetime) -> None:
    """The same objects get new snapshots on the second day."""
    digests = [sample_digest.digest()] * snapshots.MIN_SHARING
    encoder = ledger.ItemEncoder()
    with app.db.write() as session:
        days = [ledger.store(session, digests, now + n * timedelta(days=1), encoder) for n in (0, 1)]
    first, second = (
        [section["cards"] + section["reasons"] for section in day[0]["sections"]] for day in days
    )
    assert {*chain(*first)}.isdisjoint(chain(*second))


def test_an_encoder_is_bounded(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items beyond its limit are encoded again, with the same result."""
    picks = [sample_digest.pick(number, f"Paper {number}", reason=f"reason {number}") for number in range(6)]
    digests = [
        Digest("2026-11-20", (Section("bees", (picks[number], picks[number - 1])),))
        for number in (*range(6), 0, 3)
    ]
    expected = store(app, now, *digests)
    monkeypatch.setattr(snapshots, "MAX_ENCODED_ITEMS", 3)
    encoder = ledger.ItemEncoder()
    with app.db.write() as session:
        halves = [ledger.store(session, half, now, encoder) for half in (digests[:5], digests[5:])]
    assert [content for half in halves for content in half] == expected
    assert len(encoder._encoded) <= 3


def test_changed_content_makes_a_new_snapshot(app: Application, now: datetime) -> None:
    """Digests composed earlier keep the old one."""
    pick = sample_digest.pick(1, "A Paper")
    later = replace(pick, trend="141 votes")
    digests = [Digest("2026-11-20", (Section("bees", (each,)),)) for each in (pick, later)]
    contents = store(app, now, *digests)
    assert card_count(app) == 2
    assert [each.digest for each in restore(app, *contents)] == digests


def test_readers_share_items(app: Application, now: datetime) -> None:
    """Only their scores differ."""
    picks = tuple(sample_digest.pick(number, f"Paper {number}") for number in (1, 2))
    alice, bob = (
        Digest("2026-11-20", (Section("bees", picks, scores=scores),))
        for scores in ((0.5, 0.71), (0.1, 0.93))
    )
    contents = store(app, now, alice, bob)
    cards = ledger.SnapshotStore()
    restored = [each.digest for _ in range(2) for each in restore(app, *contents, cards=cards)]
    assert restored == [alice, bob, alice, bob]
    for same in zip(*(digest.picks for digest in restored), strict=True):
        assert len(set(map(id, same))) == 1


def test_a_single_item_is_shared_too(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of one narrow interest use the cache."""
    (content,) = store(
        app, now, Digest("2026-11-20", (Section("bees", (sample_digest.pick(1, "A Paper"),)),))
    )
    cards = ledger.SnapshotStore()
    with app.db.read() as session:
        (first,) = cards.restore(session, [content])
        monkeypatch.setattr(cards, "_restore", None)
        (again,) = cards.restore(session, [content])
    assert again.digest.picks[0] is first.digest.picks[0]


@pytest.mark.parametrize("stored_digest", [[], "nothing", 7])
def test_invalid_content(app: Application, stored_digest: Any) -> None:
    """It has no papers and counts as unreadable."""
    with app.db.read() as session:
        (read,) = ledger.SnapshotStore().restore(session, [stored_digest])
    assert (read.digest.picks, read.unreadable) == ((), 1)


def test_cache_is_bounded(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old entries are dropped, and loaded again when needed."""
    monkeypatch.setattr(snapshots, "MAX_CACHED_SNAPSHOTS", 3)
    monkeypatch.setattr(snapshots, "MAX_CACHED_ITEMS", 3)
    another = Digest("2026-11-20", (Section("bees", (sample_digest.pick(1, "A Paper"),)),))
    contents = store(app, now, sample_digest.digest(), another)
    cards = ledger.SnapshotStore()
    with app.db.read() as session:
        first, _, again = (cards.restore(session, [contents[n]])[0] for n in (0, 1, 0))
    assert again == first
    assert again.digest.picks[0] is not first.digest.picks[0]


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("cards", 99), ("cards", "one"), ("cards", -1), ("cards", 10**30), ("cards", []), ("cards", None),
        ("why", 99), ("why", -1), ("why", "one"), ("why", None), ("scores", "high"), ("scores", None),
        ("reasons", {}), ("reasons", 7), ("marks", 7), ("marks", None), ("marks", "["),
        ("marks", "[[1], [], 7]"),
    ],
)  # fmt: skip
def test_an_unreadable_item_is_left_out(
    app: Application, now: datetime, column: str, value: Any, at_hand: bool
) -> None:
    """It is counted, and the reader gets the others."""
    (whole,) = store(app, now, sample_digest.digest())
    damaged = deepcopy(whole)
    damaged["sections"][0][column][0] = value
    cards = ledger.SnapshotStore()
    with app.db.read() as session:
        for _ in range(2 if at_hand else 0):
            cards.restore(session, [whole])
        (read,) = cards.restore(session, [damaged])
    assert read.unreadable == 1
    titles = [pick.title for pick in sample_digest.digest().picks[1:]]
    assert [pick.title for pick in read.digest.picks] == titles


@pytest.mark.parametrize("field", ["title", "a field that is no field"])
def test_snapshot_with_wrong_fields_is_left_out(app: Application, now: datetime, field: str) -> None:
    """It lacks a field or has an unknown one."""
    (content,) = store(app, now, sample_digest.digest())
    with app.db.write() as session:
        card = session.get_one(PaperSnapshot, content["sections"][0]["cards"][0])
        fields = {name: text for name, text in card.fields.items() if name != field}
        card.fields = fields if field in card.fields else {**fields, field: 1}
    assert restore(app, content)[0].unreadable == 1


@pytest.mark.parametrize(
    "sections",
    [
        "no sections",
        [None],
        [{"interest": "bees"}],
        [{"interest": "", "heading": "", "cards": 7, "papers": [], "why": [], "scores": [], "reasons": []}],
        [{"interest": "", "heading": "", "cards": [1], "papers": [], "why": [], "scores": [], "reasons": []}],
    ],
)
def test_an_unreadable_section_is_left_out(app: Application, now: datetime, sections: Any) -> None:
    """It counts as one item, because its size is unknown."""
    (content,) = store(app, now, sample_digest.digest())
    content["sections"] = [*content["sections"], *sections] if isinstance(sections, list) else sections
    (read,) = restore(app, content)
    assert read.unreadable == 1
    assert len(read.digest.picks) in (0, 8)


def test_unused_snapshots_are_pruned(app: Application, now: datetime) -> None:
    """A digest at the end of a day may use a snapshot of its start."""
    morning, night = now.replace(hour=0, minute=0), now.replace(hour=23, minute=59)
    store(app, morning, sample_digest.digest())
    (late,) = store(app, night, sample_digest.digest())
    with app.db.write() as session:
        ledger.prune_snapshots(session, night)
    assert restore(app, late)[0].unreadable == 0
    with app.db.write() as session:
        assert ledger.prune_snapshots(session, night + timedelta(days=1)) == len(sample_digest.digest().picks)
    assert restore(app, late)[0].unreadable == len(sample_digest.digest().picks)
