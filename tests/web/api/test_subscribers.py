"""Test the API for subscribers. All changes are in the audit log."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import select

from app import pipeline, subscribers
from app.application import Application
from app.delivery import suppression
from app.links import Purpose
from app.storage.api_keys import Scope
from app.storage.models import AuditEntry, Delivery, SubscriberState
from app.subscribers import Preferences, SignUp
from app.types import Interest, PaperRecord
from tests.conftest import NOW
from tests.support import factories
from tests.support.mail_server import MailServer
from tests.web.api.conftest import Call

BOB = {
    "email": "Bob@Example.org",
    "consent": "signed the list at the workshop",
    "zone": "Europe/Berlin",
    "hour": 7,
    "interests": [{"text": '"video generation" -game', "quota": 3}],
}


def test_added_subscriber_is_active_without_confirmation(app: Application, call: Call) -> None:
    """The audit log records how consent was given; no confirmation is sent."""
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


def test_duplicate_address_is_refused(call: Call) -> None:
    """Case and spelling variants count as the same address."""
    call("POST", "/subscribers", json=BOB)
    again = call("POST", "/subscribers", json=BOB | {"email": "bob@example.ORG"})
    assert again.status_code == 409
    assert "bob@example.org" in again.json()["detail"]


@pytest.mark.once
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
def test_invalid_fields_are_named_and_nothing_changes(
    change: dict[str, Any], pointer: str, call: Call, audit_log: Callable[[], list[Any]]
) -> None:
    refused = call("POST", "/subscribers", json=BOB | change)
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    assert call("GET", "/subscribers").json()["items"] == []
    assert audit_log() == []


def test_suppressed_address_cannot_be_added(app: Application, call: Call) -> None:
    """An address that complained must not return through an import."""
    with app.db.write() as session:
        suppression.suppress(session, "bob@example.org", "complained", NOW)
    assert call("POST", "/subscribers", json=BOB).status_code == 409


def test_patch_changes_only_the_given_fields(alice: int, call: Call) -> None:
    """Interests are replaced as a whole."""
    changed = call("PATCH", f"/subscribers/{alice}", json={"cadence": "weekly", "weekday": 4}).json()
    assert (changed["cadence"], changed["weekday"], changed["hour"]) == ("weekly", 4, 8)
    assert [each["text"] for each in changed["interests"]] == ["language agents"]
    changed = call("PATCH", f"/subscribers/{alice}", json={"interests": [{"text": "robots", "weight": 2}]})
    assert changed.json()["interests"] == [{"text": "robots", "weight": 2.0, "quota": None}]
    changed = call("PATCH", f"/subscribers/{alice}", json={"muted": ["games"], "max_trending": 5})
    assert (changed.json()["muted"], changed.json()["max_trending"]) == (["games"], 5)
    changed = call("PATCH", f"/subscribers/{alice}", json={"muted": []})
    assert (changed.json()["muted"], changed.json()["max_trending"]) == ([], 5)
    assert changed.json()["paper_updates"] is True
    changed = call("PATCH", f"/subscribers/{alice}", json={"paper_updates": False})
    assert changed.json()["paper_updates"] is False
    assert call("GET", f"/subscribers/{alice}").json() == changed.json() | {
        "feedback": [],
        "ignored_authors": [],
    }


def test_pause_resume_unsubscribe_and_erase(
    alice: int, call: Call, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    until = (NOW + timedelta(days=7)).isoformat()
    paused = call("POST", f"/subscribers/{alice}/pause", json={"until": until}).json()
    assert (paused["state"], paused["next_due_at"]) == ("paused", None)
    assert call("POST", f"/subscribers/{alice}/resume", scope=Scope.SEND).json()["state"] == "active"
    assert call("POST", f"/subscribers/{alice}/unsubscribe").json()["state"] == "unsubscribed"
    assert call("POST", f"/subscribers/{alice}/resume", scope=Scope.SEND).status_code == 409
    assert call("DELETE", f"/subscribers/{alice}").status_code == 204
    erased = call("GET", f"/subscribers/{alice}").json()
    assert (erased["state"], erased["interests"]) == ("erased", [])
    assert "alice" not in erased["email"]
    assert [action for _, action, _ in audit_log()] == [
        "subscriber.pause",
        "subscriber.resume",
        "subscriber.unsubscribe",
        "subscriber.erase",
    ]
    assert call("POST", f"/subscribers/{alice}/pause", json={}).status_code == 409


def test_unconfirmed_sign_up_shows_what_was_asked_for(app: Application, call: Call) -> None:
    """The choices are stored only when they are confirmed."""
    wanted = Preferences(interests=(Interest("robots", 1.5),), hour=17, zone="Asia/Tokyo", muted=("crypto",))
    with app.db.write() as session:
        factories.sign_up(session, SignUp("dave@example.org", wanted), "", NOW)
    (shown,) = call("GET", "/subscribers?state=pending").json()["items"]
    assert [each["text"] for each in shown["interests"]] == ["robots"]
    assert (shown["hour"], shown["zone"], shown["muted"]) == (17, "Asia/Tokyo", ["crypto"])
    assert call("GET", f"/subscribers/{shown['id']}").json()["hour"] == 17


def test_confirmation_of_an_invitation_is_sent_until_its_link_expires(app: Application, call: Call) -> None:
    """The setting confirm_link_days counts, as for sign-ups on the page."""
    app.signer.lifetimes = {**app.signer.lifetimes, Purpose.CONFIRM: timedelta(days=1)}
    assert call("POST", "/subscribers", json=BOB).json()["state"] == "pending"
    with app.db.read() as session:
        mail = session.exec(select(Delivery)).one()
    assert mail.give_up_at == mail.created_at + timedelta(days=1)


def test_pause_requires_a_time_with_a_zone(alice: int, call: Call) -> None:
    assert (
        call("POST", f"/subscribers/{alice}/pause", json={"until": "2026-12-24T00:00:00"}).status_code == 422
    )


def test_subscribers_can_be_filtered_by_state_and_address(app: Application, alice: int, call: Call) -> None:
    """The address must match exactly, apart from case and spelling variants."""
    with app.db.write() as session:
        factories.add_subscriber(session, "carol@example.org", ["robots"], NOW)
    assert len(call("GET", "/subscribers?state=active").json()["items"]) == 2
    assert call("GET", "/subscribers?state=bouncing").json()["items"] == []
    items = call("GET", "/subscribers", params={"email": "ALICE@example.org"}).json()["items"]
    assert [each["id"] for each in items] == [alice]
    assert call("GET", "/subscribers?email=%25").status_code == 422


def test_pagination_returns_every_subscriber_once(app: Application, call: Call) -> None:
    """Subscribers may be added while pages are read."""
    with app.db.write() as session:
        for number in range(7):
            factories.add_subscriber(session, f"reader{number}@example.org", [], NOW)
    emails, cursor = [], None
    while True:
        page = call(
            "GET", "/subscribers", params={"limit": 3} | ({"cursor": cursor} if cursor else {})
        ).json()
        emails += [each["email"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        with app.db.write() as session:
            factories.add_subscriber(session, f"late{len(emails)}@example.org", [], NOW)
    assert emails == [f"reader{number}@example.org" for number in range(6, -1, -1)]


def test_export_contains_all_data_of_a_subscriber(alice: int, call: Call) -> None:
    assert "alice@example.org" in call("GET", f"/subscribers/{alice}/export").text


def test_feedback_is_shown_and_can_be_deleted(
    app: Application,
    alice: int,
    paper_ids: dict[str, int],
    call: Call,
    audit_log: Callable[[], list[tuple[str, str, str]]],
) -> None:
    """Deletion is in the audit log."""
    title, paper = next(iter(paper_ids.items()))
    pasted = subscribers.MatchedReferences(own=(PaperRecord(title="A Paper of Her Own"),))
    with app.db.write() as session:
        subscribers.like(session, alice, pasted, NOW - timedelta(hours=1))
        subscribers.set_feedback(session, alice, paper, False, NOW)
        subscribers.ignore_author(session, alice, "Ada Lovelace")
    body = call("GET", f"/subscribers/{alice}").json()
    feedback = body["feedback"]
    assert body["ignored_authors"] == ["Ada Lovelace"]
    assert feedback[0] == {"title": title, "liked": False, "at": "2026-11-20T09:30:00Z", "paper_id": paper}
    assert [(each["title"], each["paper_id"]) for each in feedback[1:]] == [("A Paper of Her Own", None)]
    for _ in range(2):
        assert call("DELETE", f"/subscribers/{alice}/feedback").status_code == 204
    assert call("GET", f"/subscribers/{alice}").json()["feedback"] == []
    assert audit_log()[0] == ("write key", "subscriber.delete_feedback", str(alice))
    assert call("DELETE", "/subscribers/4711/feedback").status_code == 404


def test_interests_are_counted_over_active_subscribers(app: Application, alice: int, call: Call) -> None:
    """Interests that no subscriber has any more are not counted."""
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["language agents", "robots"], NOW)
        factories.add_subscriber(
            session, "carol@example.org", ["robots", "100% recall"], NOW, state="unsubscribed"
        )
    counted = call("GET", "/interests").json()["items"]
    assert {each["text"]: each["subscribers"] for each in counted} == {
        "language agents": 2,
        "robots": 1,
        "100% recall": 0,
    }
    assert [each["text"] for each in call("GET", "/interests?q=0%25").json()["items"]] == ["100% recall"]
    first = call("GET", "/interests?limit=1").json()
    assert len(call("GET", "/interests", params={"cursor": first["next_cursor"]}).json()["items"]) == 2


def test_address_changes_when_both_mailboxes_confirm(
    app: Application, call: Call, alice: int, mail_server: MailServer, audit_log: Callable[..., Any]
) -> None:
    """Until then it is `new_address`. The audit log has no addresses."""
    body = call("PATCH", f"/subscribers/{alice}", json={"email": "Alice@New.example.org"}).json()
    assert (body["email"], body["new_address"]) == ("alice@example.org", "alice@new.example.org")
    assert body["next_due_at"] == call("GET", f"/subscribers/{alice}").json()["next_due_at"]
    pipeline.send(app, NOW)
    (mail,) = mail_server.messages
    assert mail.recipient == "alice@example.org"
    assert audit_log() == [("write key", "subscriber.request_address", str(alice))]


def test_address_that_was_confirmed_elsewhere_changes_at_once(
    app: Application, call: Call, alice: int, audit_log: Callable[..., Any]
) -> None:
    """It needs the scope `send`. Earlier links stop working, and a pending sign-up of the address ends."""
    change = {"email": "alice@new.example.org", "email_confirmed": True, "max_papers": 3}
    refused = call("PATCH", f"/subscribers/{alice}", json=change)
    assert (refused.status_code, refused.json()["detail"][:28]) == (403, "This key lacks the “send” sc")
    with app.db.write() as session:
        preferences = Preferences(interests=(Interest("agents"),))
        pending = subscribers.invite(
            session, "alice@new.example.org", preferences, NOW, factories.CONFIRMABLE
        )
    body = call("PATCH", f"/subscribers/{alice}", json=change, scope=(Scope.SEND, Scope.WRITE)).json()
    assert (body["email"], body["new_address"], body["max_papers"]) == ("alice@new.example.org", None, 3)
    with app.db.read() as session:
        assert subscribers.get(session, alice).link_epoch == 1
        assert subscribers.get(session, pending).state is SubscriberState.ERASED
    assert [action for _, action, _ in audit_log()] == ["subscriber.change", "subscriber.replace_address"]
    assert call("PATCH", f"/subscribers/{alice}", json={}, scope=Scope.WRITE).status_code == 200
    assert len(audit_log()) == 2, "nothing was changed"
    with app.db.read() as session:
        entry = session.exec(select(AuditEntry).where(AuditEntry.action == "subscriber.change")).one()
    assert entry.detail == {"changed": ["max_papers"]}


@pytest.mark.once
@pytest.mark.parametrize("confirmed", [False, True])
def test_address_that_cannot_be_used_is_refused(
    app: Application, call: Call, alice: int, *, confirmed: bool
) -> None:
    """Each refusal says why, and nothing else in the request is changed."""
    with app.db.write() as session:
        bob = factories.add_subscriber(session, "bob@example.org", ["agents"], NOW)
        suppression.suppress(session, "gone@example.org", "it bounced", NOW)
    for email, status, reason in (
        ("bob@example.org", 409, f"already registered: subscriber {bob}, active"),
        ("gone@example.org", 409, "is suppressed: if its owner wants mail again, lift"),
        ("alice@example.org", 422, "address"),
        ("nobody", 422, "address"),
    ):
        body = {"email": email, "email_confirmed": confirmed, "max_papers": 3}
        answer = call("PATCH", f"/subscribers/{alice}", json=body, scope=(Scope.WRITE, Scope.SEND))
        assert (answer.status_code, reason in answer.json()["detail"]) == (status, True), answer.text
    unchanged = call("GET", f"/subscribers/{alice}").json()
    assert (unchanged["email"], unchanged["new_address"], unchanged["max_papers"]) == (
        "alice@example.org",
        None,
        10,
    )


def test_a_confirmed_address_ends_the_bounces(app: Application, call: Call, alice: int) -> None:
    """The subscriber gets digests again. One who left does not get a new address."""
    with app.db.write() as session:
        row = subscribers.get(session, alice)
        row.state, row.next_due_at = SubscriberState.BOUNCING, None
        suppression.suppress(session, row.email, "it bounced", NOW)
        session.add(row)
    change = {"email": "alice@new.example.org", "email_confirmed": True}
    both = (Scope.WRITE, Scope.SEND)
    body = call("PATCH", f"/subscribers/{alice}", json=change, scope=both).json()
    assert (body["state"], body["next_due_at"] is not None) == ("active", True)
    with app.db.write() as session:
        subscribers.unsubscribe(session, alice, NOW)
    again = call("PATCH", f"/subscribers/{alice}", json=change | {"email": "a@new.example.org"}, scope=both)
    assert (again.status_code, "this one is unsubscribed" in again.json()["detail"]) == (409, True)
