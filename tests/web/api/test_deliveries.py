"""The ledger and the brake: what went where, what is held, and that the sum is right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from app import subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.digests import planning
from app.storage.models import Delivery, DeliveryState, Scope
from app.subscribers import Preferences, SignUp
from app.types import Interest, Skip
from tests.conftest import NOW
from tests.support import factories
from tests.web.api.conftest import Call


@pytest.fixture
def planned(app: Application, alice: int, shelf: dict[str, int]) -> int:
    """Alice has a digest waiting, and Bob, for whom nothing matched, has none; her delivery's id."""
    with app.db.write() as session:
        factories.reader(session, "bob@example.org", ['"honey bees"'], NOW)
    planning.plan(app.digest_context, NOW)
    return 1


def put(app: Application, delivery_id: int, **fields: object) -> None:
    with app.db.write() as session:
        row = session.get_one(Delivery, delivery_id)
        for name, value in fields.items():
            setattr(row, name, value)
        session.add(row)


def test_deliveries_are_found_by_what_they_are(planned: int, alice: int, call: Call) -> None:
    """By state, edition, kind and reader; all that is given must fit."""
    assert len(call("GET", "/deliveries").json()["items"]) == 2
    (waiting,) = call("GET", "/deliveries?state=pending&kind=digest&edition=2026-11-20").json()["items"]
    assert (waiting["id"], waiting["subscriber_id"]) == (planned, alice)
    (skipped,) = call("GET", "/deliveries?state=skipped").json()["items"]
    assert skipped["reason"]
    assert call("GET", f"/deliveries?state=sent&subscriber_id={alice}").json()["items"] == []
    assert call("GET", "/deliveries?state=lost").status_code == 422


def test_a_delivery_shows_its_digest(planned: int, call: Call) -> None:
    """With the reason of each pick, as it was composed."""
    shown = call("GET", f"/deliveries/{planned}").json()
    assert shown["digest"]["sections"][0]["picks"][0]["title"] == "Language Agents that Plan"
    assert call("GET", "/deliveries/99").status_code == 404


def test_an_edition_balances(planned: int, call: Call) -> None:
    """Every digest that was due is in one state."""
    (listed,) = call("GET", "/editions").json()["items"]
    assert (listed["edition"], listed["digests"]["pending"]) == ("2026-11-20", 1)
    edition = call("GET", "/editions/2026-11-20").json()
    balance = edition["reconciliation"]
    assert (balance["due"], balance["pending"], balance["skipped"], balance["consistent"]) == (2, 1, 1, True)
    assert {**balance, **listed["digests"]} == balance
    assert call("GET", "/editions/2026-11-19").status_code == 404
    assert call("GET", "/sending").json()["reconciliation"] == balance


def test_other_mails_that_wait_are_counted_beside_the_balance(
    app: Application, planned: int, call: Call
) -> None:
    """The law counts digests; a confirmation that waits for the relay is seen, too."""
    with app.db.write() as session:
        wanted = Preferences(interests=(Interest("agents"),))
        subscribers.sign_up(session, SignUp("carol@example.org", wanted), "192.0.2.1", NOW)
    told = call("GET", "/sending").json()
    assert told["reconciliation"]["due"] == 2
    at = told["others"][0].pop("next_attempt_at")
    assert (told["others"], at) == ([{"kind": "confirm", "mails": 1}], "2026-11-20T09:30:00Z")


def test_editions_come_a_page_at_a_time(app: Application, planned: int, call: Call) -> None:
    """By their names, descending."""
    with app.db.write() as session:
        quiet = [ledger.Entry(1, edition, NOW, Skip("quiet")) for edition in ("2026-11-18", "2026-11-19")]
        ledger.add_entries(session, quiet, NOW)
    first = call("GET", "/editions?limit=2").json()
    assert [each["edition"] for each in first["items"]] == ["2026-11-20", "2026-11-19"]
    rest = call("GET", "/editions", params={"cursor": first["next_cursor"]}).json()
    assert [each["edition"] for each in rest["items"]] == ["2026-11-18"]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("path", ["/sending", "/editions/2026-11-20"])
def test_what_is_paused_does_not_leave(
    path: str, app: Application, planned: int, call: Call, audited: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """Everything, or one edition; it goes on when it is resumed."""

    def may_leave() -> bool:
        with app.db.write() as session:
            left = bool(ledger.claim(session, owner="test", now=NOW))
            session.rollback()
            return left

    assert may_leave()
    paused = call("POST", f"{path}/pause", scope=Scope.SEND, json={"reason": "a wrong key"})
    assert paused.status_code == 204
    assert not may_leave()
    (pause,) = call("GET", "/sending").json()["pauses"]
    assert pause["reason"] == "a wrong key"
    assert call("POST", f"{path}/resume", scope=Scope.SEND).status_code == 204
    assert may_leave()
    assert call("POST", f"{path}/resume", scope=Scope.SEND).status_code == 404
    assert [action for _, action, _ in audited()] == ["sending.pause", "sending.resume"]


def test_a_cancelled_edition_does_not_leave(
    app: Application, planned: int, call: Call, audited: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """It says so, its papers are free for the next digest, and to cancel it twice changes nothing."""
    for _ in range(2):
        edition = call("POST", "/editions/2026-11-20/cancel", scope=Scope.SEND).json()
        assert (
            edition["reconciliation"] | {"pending": 0, "skipped": 2, "consistent": True}
            == edition["reconciliation"]
        )
    shown = call("GET", f"/deliveries/{planned}").json()
    assert (shown["state"], shown["reason"]) == ("skipped", "cancelled by an operator")
    with app.db.write() as session:
        assert ledger.paper_ids_promised(session, [shown["subscriber_id"]], NOW) == {
            shown["subscriber_id"]: set()
        }
        assert not ledger.claim(session, owner="test", now=NOW)
    assert call("POST", "/editions/2026-11-19/cancel", scope=Scope.SEND).status_code == 404
    assert {(action, subject) for _, action, subject in audited()} == {("edition.cancel", "2026-11-20")}


def test_a_pause_needs_a_reason(call: Call) -> None:
    """Whoever finds it paused has to know why."""
    assert call("POST", "/sending/pause", scope=Scope.SEND, json={"reason": ""}).status_code == 422


def test_an_uncertain_mail_is_released(app: Application, planned: int, call: Call) -> None:
    """Held, because nobody knows whether it arrived; the operator decides."""
    refused = call("POST", f"/deliveries/{planned}/resend", scope=Scope.SEND)
    assert refused.status_code == 409
    put(app, planned, state=DeliveryState.UNCERTAIN, next_attempt_at=None)
    released = call("POST", f"/deliveries/{planned}/resend", scope=Scope.SEND).json()
    assert (released["state"], released["next_attempt_at"]) == ("uncertain", "2026-11-20T09:30:00Z")
    with app.db.write() as session:
        assert ledger.claim(session, owner="test", now=NOW) == [planned]
    assert call("POST", "/deliveries/99/resend", scope=Scope.SEND).status_code == 404


def test_suppressions_are_asked_for_by_address_and_lifted_with_a_reason(
    app: Application, call: Call, audited: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """The list holds hashes: it can be asked for one address, and shows nobody's."""
    for name in ("mallory", "trent"):
        added = call(
            "POST", "/suppressions", json={"email": f"{name}@example.org", "reason": "asked by phone"}
        )
        assert added.status_code == 201
    assert "mallory" not in call("GET", "/suppressions").text
    (found,) = call("GET", "/suppressions", params={"email": "Mallory@Example.org"}).json()["items"]
    assert found["reason"] == "asked by phone"
    assert call("GET", "/suppressions?email=alice@example.org").json()["items"] == []
    gone = {"email": "mallory@example.org", "reason": "asked again, by mail"}
    assert call("POST", "/suppressions/lift", json=gone, scope=Scope.SEND).status_code == 204
    assert call("POST", "/suppressions/lift", json=gone, scope=Scope.SEND).status_code == 404
    with app.db.read() as session:
        assert not suppression.is_suppressed(session, "mallory@example.org")
        assert suppression.is_suppressed(session, "trent@example.org")
    assert [action for _, action, _ in audited()] == ["suppression.add"] * 2 + ["suppression.lift"]


def test_suppressions_come_a_page_at_a_time(app: Application, call: Call) -> None:
    """In the order in which they were listed."""
    with app.db.write() as session:
        for number in range(3):
            at = NOW + timedelta(minutes=number)
            suppression.suppress(session, f"reader{number}@example.org", f"reason {number}", at)
    first = call("GET", "/suppressions?limit=2").json()
    rest = call("GET", "/suppressions", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    reasons = [each["reason"] for each in first["items"] + rest["items"]]
    assert reasons == ["reason 0", "reason 1", "reason 2"]
    assert rest["next_cursor"] is None
