"""Test that signed webhooks are accepted, and unsigned or altered ones refused, with keys made here."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID
from fastapi.testclient import TestClient

from app import clock, main
from app.application import Application
from app.papers.sources.http_client import HttpTransport
from app.settings import Settings
from app.storage import api_keys
from app.storage.api_keys import Scope
from tests.support.http_server import FakeHttpServer

TOPIC = "arn:aws:sns:eu-west-1:123456789012:bounces"
CERTIFICATE_URL = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0f1e.pem"
SNS_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SENDGRID_KEY = ec.generate_private_key(ec.SECP256R1())
SENDGRID_PUBLIC = base64.b64encode(
    SENDGRID_KEY.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
).decode()
MAILGUN_KEY = "3b1f9c0d5a7e4826"
Post = Callable[..., httpx.Response]


def certificate(days: int = 30) -> bytes:
    """Return a certificate in PEM of SNS_KEY that expires in `days`."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")]), datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, SNS_KEY.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=60)).not_valid_after(now + timedelta(days=days))
    return builder.sign(SNS_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def amazon() -> FakeHttpServer:
    return FakeHttpServer(httpx.Response(200, content=certificate()))


@pytest.fixture
def post(app: Application, amazon: FakeHttpServer) -> Iterator[Post]:
    """Return a function that posts to an installation that verifies all signatures."""

    async def at_once(_seconds: float) -> None: ...

    keys = {"sns_topics": (TOPIC,), "sendgrid_key": SENDGRID_PUBLIC, "mailgun_key": MAILGUN_KEY}
    wire = HttpTransport(httpx.MockTransport(amazon), sleep=at_once)
    signed = replace(app, settings=app.settings.model_copy(update=keys), http=wire)
    with app.db.write() as session:
        key = api_keys.create(session, "relay", [Scope.BOUNCES], clock.utcnow())[1]
    with TestClient(main.create_app(signed), base_url="https://paperboy.test") as client:

        def post(provider: str, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            authorized = {"Authorization": f"Bearer {key}", **(headers or {})}
            return client.post(f"/hooks/bounces/{provider}", content=content, headers=authorized)

        yield post


def sign_sns(message: dict[str, str], version: str = "2") -> dict[str, str]:
    """Sign a message as the documentation of SNS describes it."""
    if message["Type"] == "Notification":
        names = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
    else:
        names = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    text = "".join(f"{name}\n{message[name]}\n" for name in names if name in message)
    algorithm = hashes.SHA256() if version == "2" else hashes.SHA1()  # noqa: S303 - version 1 has SHA-1
    signature = base64.b64encode(SNS_KEY.sign(text.encode(), padding.PKCS1v15(), algorithm)).decode()
    added = {"SignatureVersion": version, "Signature": signature, "SigningCertURL": CERTIFICATE_URL}
    return added | message


def sns_time(hours_ago: int = 0) -> str:
    return f"{datetime.now(UTC) - timedelta(hours=hours_ago):%Y-%m-%dT%H:%M:%S}.000Z"


def notification(**changed: str) -> dict[str, str]:
    return {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea",
        "TopicArn": TOPIC,
        "Message": json.dumps(
            {"notificationType": "Delivery", "delivery": {"recipients": ["x@example.org"]}}
        ),
        "Timestamp": sns_time(),
    } | changed


@pytest.mark.parametrize("version", ["1", "2"])
def test_signed_sns_message_is_accepted_and_its_certificate_cached(
    post: Post, amazon: FakeHttpServer, version: str
) -> None:
    """A subject is signed too, if there is one."""
    for message in (notification(), notification(Subject="Größe")):
        assert post("ses", sign_sns(message, version)).json() == {"counts": {"delivered": 1}}
    assert [str(request.url) for request in amazon.requests] == [CERTIFICATE_URL]


def test_signed_sns_subscription_is_recorded(post: Post) -> None:
    request = notification(
        Type="SubscriptionConfirmation", Token="t", SubscribeURL="https://sns.eu-west-1.amazonaws.com/?x"
    )
    assert "subscription" in post("ses", sign_sns(request)).json()
    assert post("ses", request).status_code == 403


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"Message": "{}"}, "does not match"),
        ({"Subject": "added"}, "does not match"),
        ({"Signature": ""}, "not signed: turn off raw message delivery"),
        ({"Signature": "%"}, "not base64"),
        ({"SignatureVersion": "3"}, "unknown"),
        ({"Type": "Other"}, "unknown"),
        ({"TopicArn": TOPIC + "2"}, "PAPERBOY_SNS_TOPICS"),
        ({"SigningCertURL": "http://sns.eu-west-1.amazonaws.com/a.pem"}, "certificate"),
        ({"SigningCertURL": "https://sns.eu-west-1.amazonaws.com.evil.test/a.pem"}, "certificate"),
        ({"SigningCertURL": "https://evil.test/sns.eu-west-1.amazonaws.com/a.pem"}, "certificate"),
        ({"SigningCertURL": "https://bucket.s3.amazonaws.com/a.pem"}, "certificate"),
        ({"SigningCertURL": "https://sns.eu-west-1.amazonaws.com@evil.test/a.pem"}, "certificate"),
        ({"SigningCertURL": "https://sns.eu-west-1.amazonaws.com:444/a.pem"}, "certificate"),
    ],
)
def test_altered_sns_message_is_refused(
    post: Post, amazon: FakeHttpServer, changed: dict[str, str], reason: str
) -> None:
    """Nothing is fetched from a URL that is not Amazon's."""
    refused = post("ses", sign_sns(notification()) | changed)
    assert (refused.status_code, reason in refused.json()["detail"]) == (403, True)
    assert all(request.url.host == "sns.eu-west-1.amazonaws.com" for request in amazon.requests)
    assert all(str(request.url) == CERTIFICATE_URL for request in amazon.requests)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"signature": 1}'])
def test_body_without_a_signature_is_refused(post: Post, body: bytes) -> None:
    for provider in ("ses", "sendgrid", "mailgun"):
        refused = post(provider, body)
        reason = refused.json()["detail"].removeprefix("The webhook signature is not valid: ")
        assert refused.status_code == 403
        assert reason.startswith(("it is missing", "the message is not signed"))


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (httpx.Response(200, content=b"no certificate"), 503),
        (httpx.Response(200, content=certificate(days=-1)), 403),
        (httpx.Response(302, headers={"location": "https://evil.test/a.pem"}), 503),
        (httpx.Response(404), 503),
        (httpx.ConnectError("refused"), 503),
    ],
)
def test_unusable_certificate_is_refused(
    post: Post, amazon: FakeHttpServer, answer: httpx.Response | Exception, status: int
) -> None:
    """SNS sends a message again after a 503. A redirect is not followed."""
    amazon.answers = [answer]
    assert post("ses", sign_sns(notification())).status_code == status
    assert all(request.url.host == "sns.eu-west-1.amazonaws.com" for request in amazon.requests)


@pytest.mark.parametrize(
    ("timestamp", "status"), [(24, 200), (26, 403), (-1, 403), ("yesterday", 403), ("", 403)]
)
def test_sns_message_must_be_recent(post: Post, timestamp: int | str, status: int) -> None:
    """An old one may be a replay. A number is the message's age in hours."""
    sent_at = sns_time(timestamp) if isinstance(timestamp, int) else timestamp
    answer = post("ses", sign_sns(notification(Timestamp=sent_at)))
    assert (answer.status_code, "timestamp" in answer.text) == (status, status == 403)


def sign_sendgrid(body: bytes, timestamp: str) -> dict[str, str]:
    signature = SENDGRID_KEY.sign(timestamp.encode() + body, ec.ECDSA(hashes.SHA256()))
    return {
        "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
        "X-Twilio-Email-Event-Webhook-Timestamp": timestamp,
    }


SENDGRID_BODY = b'[{"event": "delivered", "email": "x@example.org"}]\r\n'


def test_broken_certificate_is_fetched_again(post: Post, amazon: FakeHttpServer) -> None:
    amazon.answers = [httpx.Response(200, content=b"no certificate")]
    assert post("ses", sign_sns(notification())).status_code == 503
    amazon.answers = [httpx.Response(200, content=certificate())]
    assert post("ses", sign_sns(notification())).status_code == 200


def test_sendgrid_signature_covers_the_body_and_the_timestamp(post: Post) -> None:
    seconds = int(time.time())
    headers = sign_sendgrid(SENDGRID_BODY, str(seconds))
    assert post("sendgrid", SENDGRID_BODY, headers).json() == {"counts": {"delivered": 1}}
    later = headers | {"X-Twilio-Email-Event-Webhook-Timestamp": str(seconds + 1)}
    for body, sent in ((SENDGRID_BODY + b" ", headers), (SENDGRID_BODY, later)):
        refused = post("sendgrid", body, sent)
        assert refused.status_code == 403
        assert "PAPERBOY_SENDGRID_KEY" in refused.json()["detail"]


@pytest.mark.parametrize(("hours", "status"), [(24, 200), (26, 403), (-1, 403)])
def test_sendgrid_signature_must_be_recent(post: Post, hours: int, status: int) -> None:
    """SendGrid sends an event again for 24 hours."""
    headers = sign_sendgrid(SENDGRID_BODY, str(int(time.time()) - hours * 3600))
    answer = post("sendgrid", SENDGRID_BODY, headers)
    assert (answer.status_code, "timestamp" in answer.text) == (status, status == 403)


def mailgun_event(age: float = 0, key: str = MAILGUN_KEY) -> dict[str, Any]:
    timestamp, token = str(int(time.time() - age)), "d3ad" * 12
    signature = hmac.new(key.encode(), (timestamp + token).encode(), hashlib.sha256).hexdigest()
    event = {"event": "delivered", "recipient": "x@example.org"}
    return {
        "signature": {"timestamp": timestamp, "token": token, "signature": signature},
        "event-data": event,
    }


def test_mailgun_signature_must_be_right_and_recent(post: Post) -> None:
    """Mailgun sends an event again for eight hours."""
    for age in (0, 8 * 3600, -60):
        assert post("mailgun", mailgun_event(age)).json() == {"counts": {"delivered": 1}}
    for age in (13 * 3600, -3600):
        refused = post("mailgun", mailgun_event(age))
        assert (refused.status_code, "timestamp" in refused.json()["detail"]) == (403, True)
    assert post("mailgun", mailgun_event(key="other")).status_code == 403
    changed = mailgun_event()
    changed["signature"]["token"] = "\ud800"
    assert post("mailgun", changed).status_code == 403


def test_other_providers_need_no_signature(post: Post) -> None:
    """Postmark does not sign."""
    assert post("postmark", []).status_code == post("generic", []).status_code == 200


@pytest.mark.parametrize(
    "wrong", [{"sns_topics": "bounces"}, {"sendgrid_key": "abc"}, {"sendgrid_key": "bm8ga2V5"}]
)
def test_unusable_keys_are_refused_at_start(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"must be (the|comma)"):
        Settings(**wrong)  # type: ignore[arg-type]
