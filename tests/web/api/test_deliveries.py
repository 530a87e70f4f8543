"""Test the API of the ledger: list deliveries, pause and cancel editions, and check the reconciliation."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from app.application import Application
from app.delivery import ledger, suppression
from app.digests import planning
from app.storage.api_keys import Scope
from app.storage.models import Delivery, DeliveryState
from app.subscribers import Preferences, SignUp
from app.types import Interest, Skip
from tests.conftest import NOW
from tests.support import factories
from tests.web.api.conftest import Call


@pytest.fixture
def pending_delivery(app: Application, alice: int, paper_ids: dict[str, int]) -> int:
    """Plan digests: Alice has a pending one, Bob has none because nothing matched. Return Alice's delivery
    id.
    """
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ['"honey bees"'], NOW)
    planning.plan(app.digest_context, NOW)
    return 1


def update_delivery(app: Application, delivery_id: int, **fields: object) -> None:
    with app.db.write() as session:
        row = session.get_one(Delivery, delivery_id)
        for name, value in fields.items():
            setattr(row, name, value)
        session.add(row)


def test_deliveries_can_be_filtered(pending_delivery: int, alice: int, call: Call) -> None:
    """Combine filters on state, edition, kind and reader."""
    assert len(call("GET", "/deliveries").json()["items"]) == 2
    (waiting,) = call("GET", "/deliveries?state=pending&kind=digest&edition=2026-11-20").json()["items"]
    assert (waiting["id"], waiting["subscriber_id"]) == (pending_delivery, alice)
    (skipped,) = call("GET", "/deliveries?state=skipped").json()["items"]
    assert skipped["reason"]
    assert call("GET", f"/deliveries?state=sent&subscriber_id={alice}").json()["items"] == []
    assert call("GET", "/deliveries?state=lost").status_code == 422


def test_delivery_includes_its_digest(pending_delivery: int, call: Call) -> None:
    """The reason of each pick is included."""
    body = call("GET", f"/deliveries/{pending_delivery}").json()
    assert body["digest"]["sections"][0]["picks"][0]["title"] == "Language Agents that Plan"
    assert call("GET", "/deliveries/99").status_code == 404


def test_edition_counts_add_up(pending_delivery: int, call: Call) -> None:
    """Every due digest is in exactly one state."""
    (listed,) = call("GET", "/editions").json()["items"]
    assert (listed["edition"], listed["digests"]["pending"]) == ("2026-11-20", 1)
    edition = call("GET", "/editions/2026-11-20").json()
    counts = edition["reconciliation"]
    assert (counts["due"], counts["pending"], counts["skipped"], counts["consistent"]) == (2, 1, 1, True)
    assert {**counts, **listed["digests"]} == counts
    assert call("GET", "/editions/2026-11-19").status_code == 404
    assert call("GET", "/sending").json()["reconciliation"] == counts


@pytest.mark.parametrize(
    ("edition", "detail"),
    [
        ("2026-11-16", "No digest was planned for the edition 2026-11-16."),
        ("2026-11-21", "No digest of the edition 2026-11-21 has been planned yet."),
        ("2025-10-01", "Any digests of the edition 2025-10-01 were deleted after 400 days."),
        ("2026-11-31", "There is no edition “2026-11-31”: an edition is a day, such as 2026-11-20."),
    ],
)
def test_edition_without_digests_says_why(call: Call, edition: str, detail: str) -> None:
    """None was planned, it has not been planned yet, it is too old, or there is no such day."""
    answer = call("GET", f"/editions/{edition}")
    assert (answer.status_code, answer.json()["detail"]) == (404, detail)


def test_other_waiting_mails_are_counted_separately(
    app: Application, pending_delivery: int, call: Call
) -> None:
    """The reconciliation covers only digests; a waiting confirmation is reported beside it."""
    with app.db.write() as session:
        preferences = Preferences(interests=(Interest("agents"),))
        factories.sign_up(session, SignUp("carol@example.org", preferences), "192.0.2.1", NOW)
    body = call("GET", "/sending").json()
    assert body["reconciliation"]["due"] == 2
    at = body["others"][0].pop("next_attempt_at")
    assert (body["others"], at) == ([{"kind": "confirm", "mails": 1}], "2026-11-20T09:30:00Z")


def test_editions_are_paginated(app: Application, pending_delivery: int, call: Call) -> None:
    """They are sorted by name, descending."""
    with app.db.write() as session:
        quiet = [ledger.Entry(1, edition, NOW, Skip("quiet")) for edition in ("2026-11-18", "2026-11-19")]
        ledger.add_entries(session, quiet, NOW)
    first = call("GET", "/editions?limit=2").json()
    assert [each["edition"] for each in first["items"]] == ["2026-11-20", "2026-11-19"]
    rest = call("GET", "/editions", params={"cursor": first["next_cursor"]}).json()
    assert [each["edition"] for each in rest["items"]] == ["2026-11-18"]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("path", ["/sending", "/editions/2026-11-20"])
def test_paused_mails_are_not_sent(
    path: str,
    app: Application,
    pending_delivery: int,
    call: Call,
    audit_log: Callable[[], list[tuple[str, str, str]]],
) -> None:
    """A pause covers everything or one edition, and ends when it is resumed."""

    def can_claim() -> bool:
        with app.db.write() as session:
            claimed = bool(ledger.claim(session, owner="test", now=NOW))
            session.rollback()
            return claimed

    assert can_claim()
    paused = call("POST", f"{path}/pause", scope=Scope.SEND, json={"reason": "a wrong key"})
    assert paused.status_code == 204
    assert not can_claim()
    (pause,) = call("GET", "/sending").json()["pauses"]
    assert pause["reason"] == "a wrong key"
    assert call("POST", f"{path}/resume", scope=Scope.SEND).status_code == 204
    assert can_claim()
    assert call("POST", f"{path}/resume", scope=Scope.SEND).status_code == 404
    assert [action for _, action, _ in audit_log()] == ["sending.pause", "sending.resume"]


def test_cancelled_edition_is_not_sent(
    app: Application, pending_delivery: int, call: Call, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """Its papers may appear in the next digest, and cancelling twice changes nothing."""
    for _ in range(2):
        edition = call("POST", "/editions/2026-11-20/cancel", scope=Scope.SEND).json()
        assert (
            edition["reconciliation"] | {"pending": 0, "skipped": 2, "consistent": True}
            == edition["reconciliation"]
        )
    body = call("GET", f"/deliveries/{pending_delivery}").json()
    assert (body["state"], body["reason"]) == ("skipped", "cancelled by an operator")
    with app.db.write() as session:
        assert ledger.paper_ids_promised(session, [body["subscriber_id"]], NOW) == {body["subscriber_id"]: {}}
        assert not ledger.claim(session, owner="test", now=NOW)
    assert call("POST", "/editions/2026-11-19/cancel", scope=Scope.SEND).status_code == 404
    assert {(action, subject) for _, action, subject in audit_log()} == {("edition.cancel", "2026-11-20")}


@pytest.mark.parametrize(
    ("edition", "message"),
    [
        ("2025-12-01", "is over"),
        ("2026-11-31", "is not an edition"),
        ("2026-99-99", "is not an edition"),
        ("2027-11-20", "more than 60 days away"),
    ],
)
def test_pause_of_a_mistyped_edition_is_refused(edition: str, message: str, call: Call) -> None:
    """Otherwise, an operator would believe that the intended edition was paused."""
    body = {"reason": "a wrong key"}
    refused = call("POST", f"/editions/{edition}/pause", scope=Scope.SEND, json=body)
    assert refused.status_code == 422
    assert message in refused.json()["detail"]
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/path/edition"]
    assert call("GET", "/sending").json()["pauses"] == []
    assert call("POST", "/editions/2026-11-21/pause", scope=Scope.SEND, json=body).status_code == 204


def test_pause_requires_a_reason(call: Call) -> None:
    assert call("POST", "/sending/pause", scope=Scope.SEND, json={"reason": ""}).status_code == 422


def test_operator_can_release_an_uncertain_mail(app: Application, pending_delivery: int, call: Call) -> None:
    """It is held because its delivery is unknown."""
    refused = call("POST", f"/deliveries/{pending_delivery}/resend", scope=Scope.SEND)
    assert refused.status_code == 409
    update_delivery(app, pending_delivery, state=DeliveryState.UNCERTAIN, next_attempt_at=None)
    released = call("POST", f"/deliveries/{pending_delivery}/resend", scope=Scope.SEND).json()
    assert (released["state"], released["next_attempt_at"]) == ("uncertain", "2026-11-20T09:30:00Z")
    with app.db.write() as session:
        assert ledger.claim(session, owner="test", now=NOW) == [pending_delivery]
    assert call("POST", "/deliveries/99/resend", scope=Scope.SEND).status_code == 404


def test_digest_as_it_is_sent(pending_delivery: int, call: Call) -> None:
    """As HTML and text, to its subscriber. A skipped digest has neither."""
    mail = call("GET", f"/deliveries/{pending_delivery}/mail").json()
    assert "alice@example.org" in mail["html"]
    assert "Language Agents that Plan" in mail["text"]
    assert mail["subject"]
    assert call("GET", "/deliveries/2/mail").status_code == 404
    assert call("GET", "/deliveries/99/mail").status_code == 404


def test_uncertain_mails_that_arrived(
    app: Application, pending_delivery: int, call: Call, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """One, or all of an edition. Other states are refused."""
    at = f"/deliveries/{pending_delivery}/confirm-arrival"
    refused = call("POST", at, scope=Scope.SEND)
    assert (refused.status_code, "pending" in refused.text) == (409, True)
    update_delivery(app, pending_delivery, state=DeliveryState.UNCERTAIN)
    assert call("POST", at, scope=Scope.SEND).json()["state"] == "sent"
    update_delivery(app, pending_delivery, state=DeliveryState.UNCERTAIN)
    everything = "/editions/2026-11-20/confirm-uncertain"
    assert [call("POST", everything, scope=Scope.SEND).json()["confirmed"] for _ in range(2)] == [1, 0]
    assert call("POST", "/deliveries/99/confirm-arrival", scope=Scope.SEND).status_code == 404
    assert [action for _, action, _ in audit_log()] == [
        "delivery.confirm_arrival", "edition.confirm_uncertain", "edition.confirm_uncertain",
    ]  # fmt: skip


def test_coming_edition_is_held(pending_delivery: int, call: Call) -> None:
    assert call("POST", "/editions/2026-11-24/hold", scope=Scope.SEND).status_code == 204
    assert [each["edition"] for each in call("GET", "/sending").json()["pauses"]] == ["2026-11-24"]
    assert call("POST", "/editions/2026-11-20/hold", scope=Scope.SEND).status_code == 409
    assert call("POST", "/editions/2026-11-10/hold", scope=Scope.SEND).status_code == 422
    assert call("POST", "/editions/2026-11-24/resume", scope=Scope.SEND).status_code == 204


def test_pause_with_any_name_is_ended(app: Application, call: Call) -> None:
    """0.1.0 also stored pauses of mistyped editions."""
    with app.db.write() as session:
        ledger.pause(session, "a typing mistake", NOW, "29.11.2026")
    statuses = [call("POST", "/editions/29.11.2026/resume", scope=Scope.SEND).status_code for _ in range(2)]
    assert statuses == [204, 404]


def test_first_digests_after_an_import(app: Application, pending_delivery: int, call: Call) -> None:
    """They can be counted and seen, and are sent together."""
    assert call("POST", "/sending/first-digests/resume", scope=Scope.SEND).status_code == 404
    with app.db.write() as session:
        ledger.pause(session, ledger.IMPORTED, NOW, ledger.FIRST_DIGESTS)
    update_delivery(app, pending_delivery, next_attempt_at=None)
    held = call("GET", "/sending/first-digests").json()
    assert (held["held"], held["sample"][0]["titles"]) == (1, ["Language Agents that Plan"])
    assert call("POST", "/sending/first-digests/resume", scope=Scope.SEND).status_code == 204
    assert call("GET", "/sending/first-digests").json() == {"held": 0, "sample": []}


@pytest.mark.parametrize("scope", [ledger.ALL_EDITIONS, "2026-11-20"])
def test_reason_of_a_held_email(app: Application, pending_delivery: int, call: Call, scope: str) -> None:
    """If the email was also deferred, both reasons are given. A sent email is not held."""
    with app.db.write() as session:
        ledger.pause(session, "the relay is moved", NOW, scope)
    for state, reason, given in (
        (DeliveryState.PENDING, "", "the relay is moved"),
        (DeliveryState.DEFERRED, "too many for today", "too many for today; also: the relay is moved"),
        (DeliveryState.SENT, "", ""),
    ):
        update_delivery(app, pending_delivery, state=state, reason=reason)
        listed = call("GET", "/deliveries?subscriber_id=1").json()["items"]
        detail = call("GET", f"/deliveries/{pending_delivery}").json()
        assert [mail["reason"] for mail in (*listed, detail)] == [given] * 2


def test_all_reasons_of_a_held_email(app: Application, pending_delivery: int, call: Call) -> None:
    """A reason that several pauses share is given once."""
    with app.db.write() as session:
        ledger.pause(session, "the relay is moved", NOW)
        for reason in ("the relay is moved", "it awaits approval"):
            ledger.pause(session, reason, NOW + timedelta(hours=1), "2026-11-20")
    detail = call("GET", f"/deliveries/{pending_delivery}").json()
    assert detail["reason"] == "the relay is moved; also: it awaits approval"


def test_suppression_lookup_and_removal(
    app: Application, call: Call, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """Addresses are stored as hashes: only those of subscribers are listed. Removal needs a reason."""
    for name in ("mallory", "trent"):
        added = call(
            "POST", "/suppressions", json={"email": f"{name}@example.org", "reason": "asked by phone"}
        )
        assert added.status_code == 201
    assert "mallory" not in call("GET", "/suppressions").text
    (item,) = call("GET", "/suppressions", params={"email": "Mallory@Example.org"}).json()["items"]
    assert item["reason"] == "asked by phone"
    assert call("GET", "/suppressions?reason=PHONE").json()["items"][1]["email"] == ""
    assert call("GET", "/suppressions?reason=spam").json()["items"] == []
    assert call("GET", "/suppressions?email=alice@example.org").json()["items"] == []
    payload = {"email": "mallory@example.org", "reason": "asked again, by mail"}
    assert call("POST", "/suppressions/lift", json=payload, scope=Scope.SEND).status_code == 204
    assert call("POST", "/suppressions/lift", json=payload, scope=Scope.SEND).status_code == 404
    with app.db.read() as session:
        assert not suppression.is_suppressed(session, "mallory@example.org")
        assert suppression.is_suppressed(session, "trent@example.org")
    assert [action for _, action, _ in audit_log()] == ["suppression.add"] * 2 + ["suppression.lift"]


def test_suppression_lookup_normalizes_the_address(call: Call) -> None:
    """A domain in Unicode is the one in punycode."""
    email = "oscar@bücher.example"
    assert call("POST", "/suppressions", json={"email": email, "reason": "asked"}).status_code == 201
    (item,) = call("GET", "/suppressions", params={"email": email}).json()["items"]
    assert item["email"] == "oscar@xn--bcher-kva.example"
    assert call("GET", "/suppressions?email=oscar").status_code == 422


def test_suppressions_are_paginated(app: Application, call: Call) -> None:
    """They are sorted by the time at which they were added."""
    with app.db.write() as session:
        for number in range(3):
            at = NOW + timedelta(minutes=number)
            suppression.suppress(session, f"reader{number}@example.org", f"reason {number}", at)
    first = call("GET", "/suppressions?limit=2").json()
    rest = call("GET", "/suppressions", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    reasons = [each["reason"] for each in first["items"] + rest["items"]]
    assert reasons == ["reason 0", "reason 1", "reason 2"]
    assert rest["next_cursor"] is None
