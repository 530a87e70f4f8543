"""An operator can do for a reader what the reader can do, and it is on record who did it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import select

from app import subscribers
from app.application import Application
from app.delivery import suppression
from app.storage.models import AuditEntry, Scope
from app.types import PaperRecord
from tests.conftest import NOW
from tests.support import factories
from tests.web.api.conftest import Call

BOB = {
    "email": "Bob@Example.org",
    "consent": "signed the list at the workshop",
    "zone": "Europe/Berlin",
    "hour": 7,
    "interests": [{"text": '"video generation" -game', "quota": 3}],
}


def test_a_reader_is_added_and_active_at_once(app: Application, call: Call) -> None:
    """Consent was given elsewhere: how is kept in the audit, and no mail asks again."""
    added = call("POST", "/subscribers", json=BOB, scope=(Scope.WRITE, Scope.SEND))
    assert added.status_code == 201, added.text
    bob = added.json()
    assert (bob["email"], bob["state"], bob["hour"], bob["max_papers"]) == (
        "bob@example.org",
        "active",
        7,
        10,
    )
    assert bob["interests"] == [{"text": '"video generation" -game', "weight": 1.0, "quota": 3}]
    assert (bob["max_trending"], bob["muted"]) == (3, [])
    assert bob["next_due_at"] == "2026-11-21T06:00:00Z"
    with app.db.read() as session:
        row = session.exec(select(AuditEntry)).one()
    assert (row.actor, row.action, row.subject) == ("write key", "subscriber.add", str(bob["id"]))
    assert row.detail == {"consent": "signed the list at the workshop"}
    assert call("GET", f"/deliveries?subscriber_id={bob['id']}").json()["items"] == []


def test_the_same_reader_is_not_added_twice(call: Call) -> None:
    """However the address is spelled."""
    call("POST", "/subscribers", json=BOB)
    again = call("POST", "/subscribers", json=BOB | {"email": "bob@example.ORG"})
    assert again.status_code == 409
    assert "bob@example.org" in again.json()["detail"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"email": "bob"}, "/body/email"),
        ({"email": "bob@example.org\r\nBcc: all@example.org"}, "/body/email"),
        ({"zone": "Mars/Olympus"}, "/body/zone"),
        ({"hour": 24}, "/body/hour"),
        ({"cadence": "hourly"}, "/body/cadence"),
        ({"interests": [{"text": "?!"}]}, "/body/interests/0"),
        ({"interests": [{"text": "a" * 10_000}]}, "/body/interests/0/text"),
        ({"min_papers": 9, "max_papers": 3}, "/body/min_papers"),
        ({"max_trending": 31}, "/body/max_trending"),
        ({"muted": ["of the"]}, "/body/muted"),
        ({"consent": ""}, "/body/consent"),
        ({"colour": "red"}, "/body/colour"),
    ],
)
def test_what_cannot_be_used_is_named_and_changes_nothing(
    change: dict[str, Any], pointer: str, call: Call, audited: Callable[[], list[Any]]
) -> None:
    """The caller reads which field to mend."""
    refused = call("POST", "/subscribers", json=BOB | change)
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    assert call("GET", "/subscribers").json()["items"] == []
    assert audited() == []


def test_a_suppressed_address_is_not_added(app: Application, call: Call) -> None:
    """Who complained once is not written to because of a spreadsheet."""
    with app.db.write() as session:
        suppression.suppress(session, "bob@example.org", "complained", NOW)
    assert call("POST", "/subscribers", json=BOB).status_code == 409


def test_changing_one_thing_leaves_the_others(alice: int, call: Call) -> None:
    """A patch says only what is different; interests are replaced as a whole."""
    changed = call("PATCH", f"/subscribers/{alice}", json={"cadence": "weekly", "weekday": 4}).json()
    assert (changed["cadence"], changed["weekday"], changed["hour"]) == ("weekly", 4, 8)
    assert [each["text"] for each in changed["interests"]] == ["language agents"]
    changed = call("PATCH", f"/subscribers/{alice}", json={"interests": [{"text": "robots", "weight": 2}]})
    assert changed.json()["interests"] == [{"text": "robots", "weight": 2.0, "quota": None}]
    changed = call("PATCH", f"/subscribers/{alice}", json={"muted": ["games"], "max_trending": 5})
    assert (changed.json()["muted"], changed.json()["max_trending"]) == (["games"], 5)
    changed = call("PATCH", f"/subscribers/{alice}", json={"muted": []})
    assert (changed.json()["muted"], changed.json()["max_trending"]) == ([], 5)
    assert call("GET", f"/subscribers/{alice}").json() == changed.json() | {
        "feedback": [],
        "ignored_authors": [],
    }


def test_pausing_resuming_leaving_and_erasing(
    alice: int, call: Call, audited: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """The whole life of a reader in an operator's hands."""
    until = (NOW + timedelta(days=7)).isoformat()
    paused = call("POST", f"/subscribers/{alice}/pause", json={"until": until}).json()
    assert (paused["state"], paused["next_due_at"]) == ("paused", None)
    assert call("POST", f"/subscribers/{alice}/resume", scope=Scope.SEND).json()["state"] == "active"
    assert call("POST", f"/subscribers/{alice}/unsubscribe").json()["state"] == "unsubscribed"
    assert call("DELETE", f"/subscribers/{alice}").status_code == 204
    erased = call("GET", f"/subscribers/{alice}").json()
    assert (erased["state"], erased["interests"]) == ("erased", [])
    assert "alice" not in erased["email"]
    assert [action for _, action, _ in audited()] == [
        "subscriber.pause",
        "subscriber.resume",
        "subscriber.unsubscribe",
        "subscriber.erase",
    ]
    assert call("POST", f"/subscribers/{alice}/pause", json={}).status_code == 409


def test_a_pause_needs_a_moment_that_says_where(alice: int, call: Call) -> None:
    """A time without a zone would be a guess."""
    assert (
        call("POST", f"/subscribers/{alice}/pause", json={"until": "2026-12-24T00:00:00"}).status_code == 422
    )


def test_readers_are_found_by_state_and_address(app: Application, alice: int, call: Call) -> None:
    """Exactly the address, spelled anyhow."""
    with app.db.write() as session:
        factories.reader(session, "carol@example.org", ["robots"], NOW)
    assert len(call("GET", "/subscribers?state=active").json()["items"]) == 2
    assert call("GET", "/subscribers?state=bouncing").json()["items"] == []
    found = call("GET", "/subscribers", params={"email": "ALICE@example.org"}).json()["items"]
    assert [each["id"] for each in found] == [alice]
    assert call("GET", "/subscribers?email=%25").status_code == 422


def test_pages_hold_everyone_once(app: Application, call: Call) -> None:
    """Even though somebody comes while the pages are read."""
    with app.db.write() as session:
        for number in range(7):
            factories.reader(session, f"reader{number}@example.org", [], NOW)
    seen, cursor = [], None
    while True:
        page = call(
            "GET", "/subscribers", params={"limit": 3} | ({"cursor": cursor} if cursor else {})
        ).json()
        seen += [each["email"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        with app.db.write() as session:
            factories.reader(session, f"late{len(seen)}@example.org", [], NOW)
    assert seen == [f"reader{number}@example.org" for number in range(6, -1, -1)]


def test_everything_about_a_reader_can_be_handed_out(alice: int, call: Call) -> None:
    """As the reader could ask for it."""
    assert "alice@example.org" in call("GET", f"/subscribers/{alice}/export").text


def test_what_a_reader_said_is_shown_and_forgotten(
    app: Application,
    alice: int,
    shelf: dict[str, int],
    call: Call,
    audited: Callable[[], list[tuple[str, str, str]]],
) -> None:
    """Read with their details; forgotten at their wish, and it is on record who did it."""
    title, paper = next(iter(shelf.items()))
    pasted = subscribers.MatchedReferences(own=(PaperRecord(title="A Paper of Her Own"),))
    with app.db.write() as session:
        subscribers.like(session, alice, pasted, NOW - timedelta(hours=1))
        subscribers.set_feedback(session, alice, paper, False, NOW)
        subscribers.ignore_author(session, alice, "Ada Lovelace")
    shown = call("GET", f"/subscribers/{alice}").json()
    said = shown["feedback"]
    assert shown["ignored_authors"] == ["Ada Lovelace"]
    assert said[0] == {"title": title, "liked": False, "at": "2026-11-20T09:30:00Z", "paper_id": paper}
    assert [(each["title"], each["paper_id"]) for each in said[1:]] == [("A Paper of Her Own", None)]
    for _ in range(2):
        assert call("DELETE", f"/subscribers/{alice}/feedback").status_code == 204
    assert call("GET", f"/subscribers/{alice}").json()["feedback"] == []
    assert audited()[0] == ("write key", "subscriber.delete_feedback", str(alice))
    assert call("DELETE", "/subscribers/4711/feedback").status_code == 404


def test_interests_are_counted_over_active_readers(app: Application, alice: int, call: Call) -> None:
    """Many readers share few interests; one that nobody has any more counts none."""
    with app.db.write() as session:
        factories.reader(session, "bob@example.org", ["language agents", "robots"], NOW)
        factories.reader(session, "carol@example.org", ["robots", "100% recall"], NOW, state="unsubscribed")
    counted = call("GET", "/interests").json()["items"]
    assert {each["text"]: each["readers"] for each in counted} == {
        "language agents": 2,
        "robots": 1,
        "100% recall": 0,
    }
    assert [each["text"] for each in call("GET", "/interests?q=0%25").json()["items"]] == ["100% recall"]
    first = call("GET", "/interests?limit=1").json()
    assert len(call("GET", "/interests", params={"cursor": first["next_cursor"]}).json()["items"]) == 2
