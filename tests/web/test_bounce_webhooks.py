"""Test bounce webhooks: authentication, the payload formats and the effect of each notice."""

import base64
import email
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from app import clock
from app.application import Application
from app.bounces import PROVIDERS
from app.delivery import suppression
from app.delivery.sender import preview_request
from app.mail.composer import Composer
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import Delivery, DeliveryState, Event, JobRun, Subscriber, SubscriberState
from app.web import security
from tests.support import sample_digest
from tests.web.conftest import ALICE

PostNotice = Callable[[str, Any], Any]  # a relay, a payload → the response


@pytest.fixture
def key(app: Application) -> str:
    """Create a key with the scope `bounces`."""
    with app.db.write() as session:
        return api_keys.create(session, "relay", [Scope.BOUNCES], clock.utcnow())[1]


@pytest.fixture
def post_notice(client: TestClient, key: str) -> PostNotice:
    """Return a function that posts a notice as a relay does."""

    def post(relay: str, notice: Any) -> Any:
        body = notice if isinstance(notice, bytes) else json.dumps(notice).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "text/plain"}
        return client.post(f"/hooks/bounces/{relay}", content=body, headers=headers)

    return post


@pytest.fixture
def sent_digest(app: Application, alice: int) -> dict[str, str]:
    """Send a digest to Alice, and return its return path and its Message-ID."""
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


def suppression_reason(app: Application) -> str:
    with app.db.read() as session:
        row = suppression.get(session, ALICE)
    return row.reason if row else ""


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"relay:{password}".encode()).decode()


def test_key_is_accepted_as_bearer_token_or_basic_password(client: TestClient, key: str) -> None:
    """Many relays accept only a URL with credentials."""
    for header in (f"Bearer {key}", basic(key)):
        answer = client.post("/hooks/bounces/generic", content=b"[]", headers={"Authorization": header})
        assert (answer.status_code, answer.json()) == (200, {"counts": {}})


@pytest.mark.parametrize("header", [None, "Bearer pb_x", "Bearer", basic("pb_x"), "Basic x", "Basic YQ=="])
def test_missing_key_is_refused_with_401(client: TestClient, header: str | None) -> None:
    """The response names the authentication schemes."""
    refused = client.post(
        "/hooks/bounces/generic", content=b"[]", headers={"Authorization": header} if header else {}
    )
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic")
    headers = {
        None: "A key with the “bounces” scope is needed",
        "Bearer pb_x": "Unknown key",
        basic("pb_x"): "Unknown key",
    }
    assert refused.json()["detail"].startswith(headers.get(header, ""))


def test_a_key_of_another_scope_is_refused(app: Application, client: TestClient) -> None:
    """Refuse even a key that has all other scopes."""
    others = [scope for scope in Scope if scope is not Scope.BOUNCES]
    with app.db.write() as session:
        _, other = api_keys.create(session, "other", others, clock.utcnow())
    refused = client.post("/hooks/bounces/generic", headers={"Authorization": f"Bearer {other}"})
    assert refused.status_code == 403
    assert refused.headers["content-type"] == "application/problem+json"
    assert "” scope" in refused.json()["detail"]


def test_unknown_relay_is_refused_with_the_supported_ones(client: TestClient, key: str) -> None:
    """The response is a problem document. The format is not guessed."""
    refused = client.post("/hooks/bounces/sparrow", content=b"[]", headers={"Authorization": basic(key)})
    assert refused.status_code == 422
    assert "mailgun" in refused.json()["errors"][0]["detail"]


def test_revoked_key_is_refused_immediately(app: Application, client: TestClient, key: str) -> None:
    with app.db.write() as session:
        api_keys.revoke(session, "relay", clock.utcnow())
    assert client.post("/hooks/bounces/ses", headers={"Authorization": basic(key)}).status_code == 401


DIAGNOSTIC = "550 5.1.1 <alice@example.org>: user unknown"
GENERIC_BOUNCE = {"recipient": ALICE, "status": "5.1.1", "diagnostic": DIAGNOSTIC}


def ses_payload(path: str, message_id: str) -> dict[str, Any]:
    recipient = {"emailAddress": ALICE, "status": "5.1.1", "diagnosticCode": f"smtp; {DIAGNOSTIC}"}
    bounce = {"bounceType": "Permanent", "bounceSubType": "General", "bouncedRecipients": [recipient]}
    payload = {"notificationType": "Bounce", "bounce": bounce, "mail": {"source": path}}
    return {"Type": "Notification", "Message": json.dumps(payload)}


def postmark_payload(path: str, message_id: str) -> dict[str, Any]:
    content = f"From: MAILER-DAEMON@x\nTo: <{path}>\nSubject: Undelivered\n\nsorry"
    payload = {"RecordType": "Bounce", "Type": "HardBounce", "Email": ALICE, "Details": DIAGNOSTIC}
    return payload | {"Content": content}


def sendgrid_payload(path: str, message_id: str) -> list[dict[str, Any]]:
    payload = {"event": "bounce", "type": "bounce", "email": ALICE, "status": "5.1.1", "reason": DIAGNOSTIC}
    return [payload | {"smtp-id": message_id}, {"event": "open", "email": ALICE}]


def mailgun_payload(path: str, message_id: str) -> dict[str, Any]:
    event = {
        "event": "failed", "severity": "permanent", "reason": "bounce", "recipient": ALICE,
        "delivery-status": {"code": 550, "message": "5.1.1 user unknown"},
        "message": {"headers": {"message-id": message_id.strip("<>")}},
    }  # fmt: skip
    return {"signature": {"token": "x"}, "event-data": event}


def generic_payload(path: str, message_id: str) -> dict[str, Any]:
    return GENERIC_BOUNCE | {"return_path": path}


PAYLOADS = {
    "generic": generic_payload,
    "mailgun": mailgun_payload,
    "postmark": postmark_payload,
    "sendgrid": sendgrid_payload,
    "ses": ses_payload,
}


def test_every_format_is_tested() -> None:
    """A new relay needs a payload here, and in tests/attacks/test_properties.py."""
    assert PAYLOADS.keys() == PROVIDERS.keys()


@pytest.mark.parametrize("relay", PAYLOADS)
def test_hard_bounce_suppresses_the_address_in_every_format(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str], relay: str
) -> None:
    """A repeated notice changes nothing."""
    notice = PAYLOADS[relay](sent_digest["path"], sent_digest["id"])
    assert post_notice(relay, notice).json() == {"counts": {"hard": 1}}
    assert suppression_reason(app).startswith("bounced: 550 5.1.1")
    assert post_notice(relay, notice).json() == {"counts": {"known": 1}}


@pytest.mark.parametrize("relay", PAYLOADS)
def test_notice_without_a_signed_return_path_is_ignored(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str], relay: str
) -> None:
    """The address alone, or a return path that we did not sign, is not enough."""
    notice = PAYLOADS[relay](f"bounce+{'0' * 40}@paperboy.test", "<guessed@paperboy.test>")
    assert post_notice(relay, notice).json() == {"counts": {"unclaimed": 1}}
    assert suppression_reason(app) == ""


@pytest.mark.parametrize(
    ("relay", "payload", "field"),
    [
        ("generic", {"a": 1}, "“return_path” or “message_id”"),
        ("generic", [GENERIC_BOUNCE], "“return_path” or “message_id”"),
        ("generic", [5, None], "“return_path” or “message_id”"),
        ("mailgun", {"event-data": {"recipient": ALICE}}, "“event”"),
        ("postmark", sendgrid_payload("", ""), "“RecordType”"),
        ("sendgrid", {"Email": ALICE}, "“event”"),
        ("ses", {"mail": {}}, "“notificationType” or “eventType”"),
        ("ses", {"Type": "Notification", "Message": '{"mail": {}}'}, "“notificationType” or “eventType”"),
    ],
)
def test_payload_without_the_fields_of_its_format_is_refused(
    post_notice: PostNotice, relay: str, payload: Any, field: str
) -> None:
    """Otherwise, a misconfigured relay or a wrong script would lose all bounces without an error."""
    refused = post_notice(relay, payload)
    assert (refused.status_code, f"No event has the field {field}" in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize("payload", [{"event": "failed"}, {"event-data": []}, []])
def test_mailgun_payload_without_event_data_is_refused(post_notice: PostNotice, payload: Any) -> None:
    refused = post_notice("mailgun", payload)
    detail = "The body must be an object with the object “event-data”"
    assert (refused.status_code, detail in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("relay", "payload"),
    [
        ("ses", {"Type": "Notification", "Message": "Successfully validated SNS topic."}),
        ("postmark", {"RecordType": "Open", "Recipient": ALICE}),
        ("sendgrid", [{"event": "open"}, {"sg_event_id": "1"}]),
    ],
)
def test_unrelated_event_is_accepted(post_notice: PostNotice, relay: str, payload: Any) -> None:
    """Relays send a refused request again for hours."""
    accepted = post_notice(relay, payload)
    assert (accepted.status_code, accepted.json()) == (200, {"counts": {}})


@pytest.mark.parametrize(
    ("host", "relay", "name"),
    [
        ("smtp.postmarkapp.com", "postmark", "X-PM-Metadata-paperboy"),
        ("smtp.sendgrid.net", "sendgrid", "X-SMTPAPI"),
        ("smtp.eu.mailgun.org", "mailgun", "X-Mailgun-Variables"),
        ("email-smtp.eu-west-1.amazonaws.com", "ses", "X-SES-MESSAGE-TAGS"),
    ],
)
def test_echoed_header_identifies_the_mail(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str], host: str, relay: str, name: str
) -> None:
    """The relay replaced the return path and the Message-ID. Other relays get no such header."""
    request = preview_request(sample_digest.digest(), ALICE, "paperboy.test", clock.utcnow())
    delivery_id = app.signer.delivery_of(sent_digest["path"])
    request = request._replace(delivery_id=delivery_id)
    settings = app.settings.model_copy(update={"smtp_host": host})
    composer = Composer(settings, app.signer, app.renderer)
    mail = email.message_from_bytes(composer.sign_and_serialize(composer.draft(request)).data)
    plain = app.composer.sign_and_serialize(app.composer.draft(request)).data
    assert name.encode() not in plain
    value = str(mail[name])
    notice = PAYLOADS[relay]("", "")
    match relay:
        case "postmark":
            notice["Metadata"] = {"paperboy": value}
        case "sendgrid":
            notice[0] |= json.loads(value)["unique_args"]
        case "mailgun":
            notice["event-data"]["user-variables"] = json.loads(value)
        case _:
            event = json.loads(notice["Message"])
            key, _, token = value.partition("=")
            event["mail"]["tags"] = {key: [token]}
            notice["Message"] = json.dumps(event)
    assert post_notice(relay, notice).json() == {"counts": {"hard": 1}}


def test_message_id_is_accepted_only_with_the_address_of_its_reader(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str]
) -> None:
    """A recipient knows the Message-ID, but must not be able to suppress other addresses."""
    notice = sendgrid_payload("", sent_digest["id"])
    notice[0]["email"] = "bob@example.org"
    assert post_notice("sendgrid", notice).json() == {"counts": {"unclaimed": 1}}


@pytest.mark.parametrize(
    ("relay", "notice"),
    [
        ("generic", {"kind": "complaint"}),
        ("sendgrid", [{"event": "spamreport"}]),
        ("mailgun", {"event-data": {"event": "complained"}}),
        ("postmark", {"RecordType": "SpamComplaint"}),
        (
            "postmark",
            {
                "RecordType": "SubscriptionChange",
                "SuppressionReason": "SpamComplaint",
                "SuppressSending": True,
            },
        ),
    ],
)
def test_complaint_suppresses_the_address_in_every_format(
    app: Application,
    post_notice: PostNotice,
    sent_digest: dict[str, str],
    alice: int,
    relay: str,
    notice: Any,
) -> None:
    event = notice[0] if isinstance(notice, list) else notice.get("event-data", notice)
    event |= {
        "recipient": ALICE, "email": ALICE, "Email": ALICE,
        "return_path": sent_digest["path"], "smtp-id": sent_digest["id"],
        "message": {"headers": {"message-id": sent_digest["id"].strip("<>")}},
        "Content": f"To: {sent_digest['path']}\n\nx",
    }  # fmt: skip
    assert post_notice(relay, notice).json() == {"counts": {"complaints": 1}}
    assert suppression_reason(app)
    with app.db.read() as session:
        assert session.get_one(Subscriber, alice).state is SubscriberState.UNSUBSCRIBED


@pytest.mark.parametrize(
    ("feedback_type", "count"),
    [
        ({"complaintFeedbackType": "abuse"}, "complaints"),
        ({}, "complaints"),
        ({"complaintFeedbackType": None}, "complaints"),
        ({"complaintFeedbackType": "fraud"}, "complaints"),
        ({"complaintFeedbackType": "virus"}, "complaints"),
        ({"complaintFeedbackType": "other"}, "complaints"),
        ({"complaintFeedbackType": "Not-Spam"}, "reports"),
        ({"complaintFeedbackType": "not-spam"}, "reports"),
        ({"complaintFeedbackType": "auth-failure"}, "reports"),
    ],
)
def test_ses_complaint_in_raw_delivery(
    post_notice: PostNotice, sent_digest: dict[str, str], feedback_type: dict[str, str | None], count: str
) -> None:
    """Raw delivery omits the SNS envelope. Only "not-spam" and "auth-failure" are not complaints."""
    complaint = {"complainedRecipients": [{"emailAddress": ALICE}], **feedback_type}
    payload = {"eventType": "Complaint", "complaint": complaint, "mail": {"source": sent_digest["path"]}}
    assert post_notice("ses", payload).json() == {"counts": {count: 1}}


@pytest.mark.parametrize(
    ("bounce_type", "subtype", "notice_fields", "count"),
    [
        ("Transient", "General", {}, "automatic_answers"),
        ("Undetermined", "Undetermined", {}, "automatic_answers"),
        ("Transient", "General", {"status": "4.4.7", "diagnosticCode": "smtp; 450 expired"}, "soft"),
        ("Transient", "General", {"status": "5.0.0"}, "soft"),
        ("Transient", "MailboxFull", {}, "soft"),
        ("Permanent", "General", {}, "hard"),
    ],
)
def test_ses_reports_automatic_replies_as_bounces(
    post_notice: PostNotice,
    sent_digest: dict[str, str],
    bounce_type: str,
    subtype: str,
    notice_fields: dict[str, str],
    count: str,
) -> None:
    """Unlike other temporary bounces, automatic replies come without a delivery status notice."""
    recipients = [{"emailAddress": ALICE, **notice_fields}]
    bounce = {"bounceType": bounce_type, "bounceSubType": subtype, "bouncedRecipients": recipients}
    payload = {"notificationType": "Bounce", "bounce": bounce, "mail": {"source": sent_digest["path"]}}
    assert post_notice("ses", payload).json() == {"counts": {count: 1}}


def ses_suppressed(kind: str, subtype: str, recipients: str) -> dict[str, Any]:
    """Return a notice of SES about an email that it did not send."""
    details = {f"{kind.lower()}SubType": subtype, recipients: [{"emailAddress": ALICE}]}
    return {"notificationType": kind, kind.lower(): details}


@pytest.mark.parametrize(
    ("relay", "notice"),
    [
        ("ses", ses_suppressed("Complaint", "OnAccountSuppressionList", "complainedRecipients")),
        ("ses", ses_suppressed("Bounce", "OnAccountSuppressionList", "bouncedRecipients")),
        ("ses", ses_suppressed("Bounce", "Suppressed", "bouncedRecipients")),
        ("postmark", {"RecordType": "Bounce", "Type": "SMTPApiError", "Details": "marked as inactive"}),
        ("sendgrid", [{"event": "dropped", "reason": "Bounced Address"}]),
        ("sendgrid", [{"event": "dropped", "reason": "Spam Reporting Address"}]),
        ("sendgrid", [{"event": "dropped", "reason": "Unsubscribed Address"}]),
        ("sendgrid", [{"event": "dropped", "reason": "Invalid"}]),
        *(
            (
                "mailgun",
                {"event-data": {"event": "failed", "severity": "permanent", "reason": f"suppress-{name}"}},
            )
            for name in ("bounce", "complaint", "unsubscribe")
        ),
    ],
)
def test_suppression_by_the_relay_suppresses_the_address(
    app: Application,
    post_notice: PostNotice,
    sent_digest: dict[str, str],
    alice: int,
    relay: str,
    notice: Any,
) -> None:
    """The relay accepted the email, but did not send it. It is no complaint, even if one was the cause."""
    event = notice[0] if isinstance(notice, list) else notice.get("event-data", notice)
    event |= {
        "recipient": ALICE, "email": ALICE, "Email": ALICE,
        "mail": {"source": sent_digest["path"]}, "smtp-id": sent_digest["id"],
        "message": {"headers": {"message-id": sent_digest["id"].strip("<>")}},
        "delivery-status": {"code": 607, "description": "a user who marked your messages as spam"},
        "Content": f"To: {sent_digest['path']}\n\nx",
    }  # fmt: skip
    assert post_notice(relay, notice).json() == {"counts": {"hard": 1}}
    assert suppression_reason(app).startswith("bounced: suppressed by the relay: ")
    with app.db.read() as session:
        assert session.get_one(Subscriber, alice).state is SubscriberState.BOUNCING


def test_other_emails_that_sendgrid_drops(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str]
) -> None:
    """They concern us or the email, whatever words the reason contains."""
    dropped = {"event": "dropped", "email": ALICE, "smtp-id": sent_digest["id"]}
    notice = [dropped | {"reason": "Recipient List over Package Quota"}]
    assert post_notice("sendgrid", notice).json() == {"counts": {"sender_rejections": 1}}
    assert suppression_reason(app) == ""


def test_email_that_ses_rejects(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str]
) -> None:
    """SES accepts an email before it looks for viruses, and this is its only notice of the rejection."""
    mail = {"source": sent_digest["path"], "destination": [ALICE]}
    payload = {"eventType": "Reject", "mail": mail, "reject": {"reason": "Bad content"}}
    assert post_notice("ses", payload).json() == {"counts": {"sender_rejections": 1}}
    assert post_notice("ses", payload).json() == {"counts": {"known": 1}}
    assert suppression_reason(app) == ""
    with app.db.read() as session:
        (event,) = session.exec(select(Event).where(Event.kind == "refused_us"))
    assert event.detail == "rejected by the relay: Bad content"


@pytest.mark.parametrize(
    ("reason", "suppresses", "counts", "state"),
    [
        ("HardBounce", True, {}, SubscriberState.BOUNCING),
        ("ManualSuppression", True, {"opt_outs": 1}, SubscriberState.UNSUBSCRIBED),
        (None, False, {}, SubscriberState.BOUNCING),
    ],
)
def test_only_a_manual_suppression_by_postmark_is_an_opt_out(
    app: Application,
    post_notice: PostNotice,
    sent_digest: dict[str, str],
    alice: int,
    reason: str | None,
    suppresses: bool,
    counts: dict[str, int],
    state: SubscriberState,
) -> None:
    """Postmark also reports a subscription change after a hard bounce, and when sending is allowed again."""
    metadata = {"paperboy": sent_digest["path"].partition("+")[2].partition("@")[0]}
    change = {"RecordType": "SubscriptionChange", "Recipient": ALICE, "Origin": "Recipient"}
    change |= {"SuppressSending": suppresses, "SuppressionReason": reason, "Metadata": metadata}
    post_notice("postmark", postmark_payload(sent_digest["path"], ""))
    assert post_notice("postmark", change).json() == {"counts": counts}
    with app.db.read() as session:
        assert session.get_one(Subscriber, alice).state is state


def test_sns_subscription_url_is_recorded_and_not_fetched(app: Application, post_notice: PostNotice) -> None:
    """The operator finds the URL in the job run and confirms it."""
    url = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=x"
    answer = post_notice("ses", {"Type": "SubscriptionConfirmation", "SubscribeURL": url})
    assert answer.status_code == 200
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert run.job == "bounces"
    assert run.rejections[0]["detail"] == url


@pytest.mark.once
@pytest.mark.parametrize("relay", PAYLOADS)
@pytest.mark.parametrize(
    "notice",
    [b"", b"{", b"\xff", b"null", b"[]", b"[1, null, {}]", b'{"Message": "{"}', b"[" * 100_000, b'"x"'],
)
def test_malformed_notices_never_cause_a_server_error(
    post_notice: PostNotice, relay: str, notice: bytes
) -> None:
    """After a 500, relays repeat a notice for days."""
    assert post_notice(relay, notice).status_code in (200, 422)


def test_large_batches_are_processed_completely_or_refused(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str]
) -> None:
    """A refused batch is sent again by the relay."""
    notices = [{"event": "delivered"}] * 2000 + sendgrid_payload("", sent_digest["id"])
    assert post_notice("sendgrid", notices).json() == {"counts": {"delivered": 2000, "hard": 1}}
    assert post_notice("sendgrid", [{}] * 10_001).status_code == 422


def test_an_oversized_body_is_refused(client: TestClient, key: str) -> None:
    """Refuse it before it is read into memory."""
    flood = iter([b"x" * (security.MAX_FORM_BYTES + 1)])
    refused = client.post("/hooks/bounces/generic", content=flood, headers={"Authorization": basic(key)})
    assert refused.status_code == 413


def test_email_that_postmark_refuses_because_of_us(
    app: Application, post_notice: PostNotice, sent_digest: dict[str, str]
) -> None:
    """Only an inactive recipient is on its list."""
    notice = {"RecordType": "Bounce", "Type": "SMTPApiError", "Email": ALICE, "Details": "account pending"}
    post_notice("postmark", notice | {"Content": f"To: {sent_digest['path']}\n\nx"})
    assert suppression_reason(app) == ""
