"""PURE. Verify the signatures of webhooks from Amazon SNS, SendGrid and Mailgun."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

SENDGRID_SIGNATURE = "X-Twilio-Email-Event-Webhook-Signature"
SENDGRID_TIMESTAMP = "X-Twilio-Email-Event-Webhook-Timestamp"
MAX_AGE = timedelta(hours=25)  # SendGrid retries an event for 24 hours, SNS for one hour
MAILGUN_MAX_AGE = timedelta(hours=12)  # shorter, as the signature covers no event data; Mailgun retries 8 h
MAX_CLOCK_ERROR = timedelta(minutes=5)
_CERTIFICATE = re.compile(r"https://sns\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?/[A-Za-z0-9_-]+\.pem")
# By message type: the fields that the signature covers, in order. Absent fields are left out.
_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_SUBSCRIPTION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SNS_FIELDS = {
    "Notification": _NOTIFICATION,
    "SubscriptionConfirmation": _SUBSCRIPTION,
    "UnsubscribeConfirmation": _SUBSCRIPTION,
}
_SNS_HASHES = {"1": hashes.SHA1, "2": hashes.SHA256}


class RefusedSignature(ValueError):
    """The webhook has no signature or an invalid one. The message gives the reason."""


def verify_sendgrid(key: str, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
    """Verify SendGrid's ECDSA signature of the timestamp and the body, or raise RefusedSignature.

    `key` is the public key in DER and base64, as SendGrid shows it.
    """
    public_key = serialization.load_der_public_key(base64.b64decode(key))
    assert isinstance(public_key, ec.EllipticCurvePublicKey)  # noqa: S101 - the settings are validated
    signature = _decode(headers.get(SENDGRID_SIGNATURE, ""))
    timestamp = headers.get(SENDGRID_TIMESTAMP, "")
    try:
        public_key.verify(signature, timestamp.encode() + body, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise RefusedSignature("it does not match PAPERBOY_SENDGRID_KEY") from None
    _check_age(_unix_time(timestamp), now, MAX_AGE)


def verify_mailgun(key: str, body: bytes, now: datetime) -> None:
    """Verify Mailgun's HMAC of timestamp and token, and the timestamp's age, or raise RefusedSignature."""
    fields = _fields(_fields(_parse(body)).get("signature"))
    timestamp, token, signature = (str(fields.get(name, "")) for name in ("timestamp", "token", "signature"))
    if not signature:
        raise RefusedSignature("it is missing")
    expected = hmac.new(key.encode(), f"{timestamp}{token}".encode("utf-8", "replace"), hashlib.sha256)
    if not hmac.compare_digest(expected.hexdigest().encode(), signature.encode("utf-8", "replace")):
        raise RefusedSignature("it does not match PAPERBOY_MAILGUN_KEY")
    _check_age(_unix_time(timestamp), now, MAILGUN_MAX_AGE)


def sns_certificate_url(topics: Collection[str], body: bytes) -> str:
    """Return the URL of the certificate that verifies an SNS message.

    Raise RefusedSignature if the URL is not Amazon's, or if the topic is not one of `topics`, because anybody
    can publish validly signed messages in a topic of their own.
    """
    event = _fields(_parse(body))
    if not event.get("Signature"):
        raise RefusedSignature(
            "the message is not signed: turn off raw message delivery for the SNS subscription"
        )
    if event.get("TopicArn") not in topics:
        raise RefusedSignature("the topic of the message is not in PAPERBOY_SNS_TOPICS")
    url = event.get("SigningCertURL")
    if not isinstance(url, str) or not _CERTIFICATE.fullmatch(url):
        raise RefusedSignature("the certificate URL is not at sns.REGION.amazonaws.com")
    return url


def verify_sns(certificate: x509.Certificate, body: bytes, now: datetime) -> None:
    """Verify the RSA signature of an SNS message with a certificate, or raise RefusedSignature."""
    event = _fields(_parse(body))
    names = _SNS_FIELDS.get(str(event.get("Type")), ())
    algorithm = _SNS_HASHES.get(str(event.get("SignatureVersion")))
    if not names or algorithm is None:
        raise RefusedSignature("the message type or the signature version is unknown")
    lines = [text for name in names if event.get(name) is not None for text in (name, str(event[name]))]
    signed = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    key = certificate.public_key()
    if not (isinstance(key, rsa.RSAPublicKey) and certificate.not_valid_before_utc <= now):
        raise RefusedSignature("its certificate is not valid")
    if now > certificate.not_valid_after_utc:
        raise RefusedSignature("its certificate has expired")
    try:
        key.verify(_decode(str(event.get("Signature"))), signed, padding.PKCS1v15(), algorithm())
    except InvalidSignature:
        raise RefusedSignature("it does not match the message") from None
    try:
        sent_at = datetime.fromisoformat(str(event.get("Timestamp"))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RefusedSignature("its timestamp is not a date") from None
    _check_age(sent_at, now, MAX_AGE)


def _unix_time(timestamp: str) -> datetime:
    try:
        return datetime.fromtimestamp(int(timestamp), UTC)
    except (ValueError, OverflowError, OSError):
        raise RefusedSignature("its timestamp is not a number of seconds") from None


def _check_age(signed_at: datetime, now: datetime, max_age: timedelta) -> None:
    """Refuse a signature that is dated in the future or is too old, because it may be a replay."""
    if not -MAX_CLOCK_ERROR <= now - signed_at <= max_age:
        raise RefusedSignature("its timestamp is too old or in the future")


def _decode(signature: str) -> bytes:
    if not signature:
        raise RefusedSignature("it is missing")
    try:
        return base64.b64decode(signature, validate=True)
    except ValueError:
        raise RefusedSignature("it is not base64") from None


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedSignature("it is missing, because the body is not JSON") from None


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
