"""Relays tell of bounces: who may, in which shapes, and what comes of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from app import clock
from app.application import Application
from app.delivery import suppression
from app.storage import api_keys
from app.storage.models import Delivery, DeliveryState, JobRun, Scope, Subscriber, SubscriberState
from app.web import security
from tests.web.conftest import ALICE

Tell = Callable[..., Any]


@pytest.fixture
def key(app: Application) -> str:
    """A key of the scope `bounces`."""
    with app.db.write() as session:
        return api_keys.create(session, "relay", [Scope.BOUNCES], clock.utcnow())[1]


@pytest.fixture
def tell(client: TestClient, key: str) -> Tell:
    """A relay tells something."""

    def post(shape: str, told: Any) -> Any:
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "text/plain"}
        return client.post(f"/hooks/bounces/{shape}", content=body, headers=headers)

    return post


@pytest.fixture
def sent(app: Application, alice: int) -> dict[str, str]:
    """A digest that went to Alice: its return path and its Message-ID."""
    now = clock.utcnow() - timedelta(hours=1)
    with app.db.write() as session:
        row = Delivery(
            subscriber_id=alice, edition="2026-11-20", state=DeliveryState.SENT,
            due_at=now, created_at=now, sent_at=now,
        )  # fmt: skip
        session.add(row)
        session.flush()
        row.message_id = app.signer.message_id(row.id or 0, "paperboy.test")
        return {"path": app.signer.return_path(row.id or 0, "paperboy.test"), "id": row.message_id}


def suppressed(app: Application) -> str:
    with app.db.read() as session:
        found = suppression.get(session, ALICE)
    return found.reason if found else ""


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"relay:{password}".encode()).decode()


def test_a_key_opens_as_a_bearer_or_as_a_password(client: TestClient, key: str) -> None:
    """Many relays can be given nothing but a URL, with credentials in it."""
    for header in (f"Bearer {key}", basic(key)):
        answer = client.post("/hooks/bounces/generic", content=b"[]", headers={"Authorization": header})
        assert (answer.status_code, answer.json()) == (200, {"counts": {}})


@pytest.mark.parametrize("header", [None, "Bearer pb_x", "Bearer", basic("pb_x"), "Basic x", "Basic YQ=="])
def test_without_a_key_nothing_is_taken(client: TestClient, header: str | None) -> None:
    """And the answer says how to send one."""
    refused = client.post(
        "/hooks/bounces/generic", content=b"[]", headers={"Authorization": header} if header else {}
    )
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic")
    said = {
        None: "a key is needed",
        "Bearer pb_x": "unknown key",
        basic("pb_x"): "unknown key",
    }
    assert refused.json()["detail"].startswith(said.get(header, ""))


def test_a_key_of_another_scope_is_refused(app: Application, client: TestClient) -> None:
    """Not even one that may do everything else."""
    others = [scope for scope in Scope if scope is not Scope.BOUNCES]
    with app.db.write() as session:
        _, other = api_keys.create(session, "other", others, clock.utcnow())
    refused = client.post("/hooks/bounces/generic", headers={"Authorization": f"Bearer {other}"})
    assert refused.status_code == 403
    assert refused.headers["content-type"] == "application/problem+json"
    assert "lacks the scope" in refused.json()["detail"]


def test_a_relay_that_is_unknown_is_told_which_are_known(client: TestClient, key: str) -> None:
    """A machine gets it in the form that machines read."""
    refused = client.post("/hooks/bounces/sparrow", content=b"[]", headers={"Authorization": basic(key)})
    assert refused.status_code == 422
    assert "mailgun" in refused.json()["errors"][0]["detail"]


def test_a_revoked_key_is_refused(app: Application, client: TestClient, key: str) -> None:
    """At once."""
    with app.db.write() as session:
        api_keys.revoke(session, "relay", clock.utcnow())
    assert client.post("/hooks/bounces/ses", headers={"Authorization": basic(key)}).status_code == 401


SAID = "550 5.1.1 <alice@example.org>: user unknown"
GONE = {"recipient": ALICE, "status": "5.1.1", "diagnostic": SAID}


def of_ses(path: str, message_id: str) -> dict[str, Any]:
    who = {"emailAddress": ALICE, "status": "5.1.1", "diagnosticCode": f"smtp; {SAID}"}
    bounce = {"bounceType": "Permanent", "bounceSubType": "General", "bouncedRecipients": [who]}
    told = {"notificationType": "Bounce", "bounce": bounce, "mail": {"source": path}}
    return {"Type": "Notification", "Message": json.dumps(told)}


def of_postmark(path: str, message_id: str) -> dict[str, Any]:
    content = f"From: MAILER-DAEMON@x\nTo: <{path}>\nSubject: Undelivered\n\nsorry"
    told = {"RecordType": "Bounce", "Type": "HardBounce", "Email": ALICE, "Details": SAID}
    return told | {"Content": content}


def of_sendgrid(path: str, message_id: str) -> list[dict[str, Any]]:
    told = {"event": "bounce", "type": "bounce", "email": ALICE, "status": "5.1.1", "reason": SAID}
    return [told | {"smtp-id": message_id}, {"event": "open", "email": ALICE}]


def of_mailgun(path: str, message_id: str) -> dict[str, Any]:
    event = {
        "event": "failed", "severity": "permanent", "reason": "bounce", "recipient": ALICE,
        "delivery-status": {"code": 550, "message": "5.1.1 user unknown"},
        "message": {"headers": {"message-id": message_id.strip("<>")}},
    }  # fmt: skip
    return {"signature": {"token": "x"}, "event-data": event}


def of_ours(path: str, message_id: str) -> dict[str, Any]:
    return GONE | {"return_path": path}


SHAPES = {
    "generic": of_ours,
    "mailgun": of_mailgun,
    "postmark": of_postmark,
    "sendgrid": of_sendgrid,
    "ses": of_ses,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_bounce_in_every_shape(app: Application, tell: Tell, sent: dict[str, str], shape: str) -> None:
    """It suppresses the address at once; told twice, it is told once."""
    told = SHAPES[shape](sent["path"], sent["id"])
    assert tell(shape, told).json() == {"counts": {"hard": 1}}
    assert suppressed(app).startswith("bounced: 550 5.1.1")
    assert tell(shape, told).json() == {"counts": {"known": 1}}


@pytest.mark.parametrize("shape", SHAPES)
def test_nobody_is_believed_who_does_not_name_the_mail(
    app: Application, tell: Tell, sent: dict[str, str], shape: str
) -> None:
    """Alice's address alone, or a path that we did not sign, is not enough."""
    told = SHAPES[shape](f"bounce+{'0' * 40}@paperboy.test", "<guessed@paperboy.test>")
    assert tell(shape, told).json() == {"counts": {"unclaimed": 1}}
    assert suppressed(app) == ""


def test_our_message_id_counts_only_with_its_readers_address(
    app: Application, tell: Tell, sent: dict[str, str]
) -> None:
    """Whoever got the digest knows its Message-ID; that gives no power over others."""
    told = of_sendgrid("", sent["id"])
    told[0]["email"] = "bob@example.org"
    assert tell("sendgrid", told).json() == {"counts": {"unclaimed": 1}}


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ("generic", {"kind": "complaint"}),
        ("sendgrid", [{"event": "spamreport"}]),
        ("mailgun", {"event-data": {"event": "complained"}}),
        ("postmark", {"RecordType": "SpamComplaint"}),
    ],
)
def test_a_complaint_ends_all_mail(
    app: Application, tell: Tell, sent: dict[str, str], alice: int, shape: str, told: Any
) -> None:
    """In every shape."""
    event = told[0] if isinstance(told, list) else told.get("event-data", told)
    event |= {
        "recipient": ALICE, "email": ALICE, "Email": ALICE,
        "return_path": sent["path"], "smtp-id": sent["id"],
        "message": {"headers": {"message-id": sent["id"].strip("<>")}}, "Content": f"To: {sent['path']}\n\nx",
    }  # fmt: skip
    assert tell(shape, told).json() == {"counts": {"complaints": 1}}
    assert suppressed(app)
    with app.db.read() as session:
        assert session.get_one(Subscriber, alice).state is SubscriberState.UNSUBSCRIBED


def test_a_complaint_that_amazon_tells(app: Application, tell: Tell, sent: dict[str, str]) -> None:
    """Raw delivery: without the wrapping of SNS."""
    complaint = {"complainedRecipients": [{"emailAddress": ALICE}], "complaintFeedbackType": "abuse"}
    told = {"eventType": "Complaint", "complaint": complaint, "mail": {"source": sent["path"]}}
    assert tell("ses", told).json() == {"counts": {"complaints": 1}}


def test_a_subscription_is_for_the_operator_to_confirm(app: Application, tell: Tell) -> None:
    """A URL that somebody sent is never fetched: it is shown in the record of a run."""
    url = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=x"
    answer = tell("ses", {"Type": "SubscriptionConfirmation", "SubscribeURL": url})
    assert answer.status_code == 200
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert run.job == "bounces"
    assert run.rejections[0]["detail"] == url


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "told",
    [b"", b"{", b"\xff", b"null", b"[]", b"[1, null, {}]", b'{"Message": "{"}', b"[" * 100_000, b'"x"'],
)
def test_whatever_is_told_is_answered(tell: Tell, shape: str, told: bytes) -> None:
    """A relay that gets a 500 tells the same again for days."""
    assert tell(shape, told).status_code in (200, 422)


def test_nothing_is_left_out_of_a_long_list(app: Application, tell: Tell, sent: dict[str, str]) -> None:
    """Relays gather events; what could not be taken whole is refused, so that it is told again."""
    told = [{"event": "delivered"}] * 2000 + of_sendgrid("", sent["id"])
    assert tell("sendgrid", told).json() == {"counts": {"delivered": 2000, "hard": 1}}
    assert tell("sendgrid", [{}] * 10_001).status_code == 422


def test_an_unknown_shape_is_not_found(tell: Tell) -> None:
    """Nor is it guessed."""
    assert tell("carrierpigeon", {}).status_code in (404, 422)


def test_an_oversized_body_is_refused(client: TestClient, key: str) -> None:
    """Before it is held in memory."""
    flood = iter([b"x" * (security.MAX_FORM_BYTES + 1)])
    refused = client.post("/hooks/bounces/generic", content=flood, headers={"Authorization": basic(key)})
    assert refused.status_code == 413
