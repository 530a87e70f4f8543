"""PURE. Parse relays' webhooks into notices, with one function per provider.

generic    our own format: objects with recipient, kind, status, diagnostic, return_path, message_id
ses        Amazon SES, as SNS delivers it (wrapped or raw)
postmark   one event per object         sendgrid   a list of events          mailgun   event-data
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from app.bounces import mime_parser, notices
from app.bounces.notices import MAX_DIAGNOSTIC, Kind, Notice, printable_line, return_paths_in
from app.delivery.smtp import responses
from app.delivery.smtp.responses import Action, Reason

MAX_REPLY = 1_000  # characters of an SMTP reply; one line can have at most 512
MAX_EVENTS = 10_000  # per request; relays send fewer even in the largest body that we accept
# Reasons for which the relay's own verdict ("permanent" or "temporary") overrides the diagnostic.
_UNCERTAIN = frozenset({Reason.UNDEFINED, Reason.ON_HOLD, Reason.FILTERED, Reason.USER_UNKNOWN})


class InvalidPayload(ValueError):
    """The payload is not valid JSON in the provider's format."""


def parse_webhook(provider: str, payload: bytes) -> tuple[Notice, ...]:
    """Parse a payload into notices. Ignore unrelated events. Raise InvalidPayload if it is malformed."""
    try:
        return tuple(PROVIDERS[provider](json.loads(payload)))
    except InvalidPayload:
        raise
    except (ValueError, RecursionError):
        raise InvalidPayload("the body is not JSON") from None


def sns_confirmation_url(payload: bytes) -> str:
    """Return the URL that confirms an Amazon SNS subscription, or an empty string if none is requested."""
    try:
        event = json.loads(payload)
    except (ValueError, RecursionError):
        return ""
    is_request = isinstance(event, dict) and event.get("Type") == "SubscriptionConfirmation"
    return printable_line(_text(event, "SubscribeURL"), 1000) if is_request else ""


def parse_mail(raw: bytes) -> tuple[Notice, ...]:
    """Parse a message into notices. If there are none, look for a JSON event from Amazon SNS in its text."""
    parsed = notices.parse(raw)
    if parsed[0].kind is not Kind.UNKNOWN:
        return parsed
    lines = (line for part in mime_parser.parse(raw).walk() for line in part.text.split("\n"))
    event = next((line for line in lines if line.startswith('{"') and "Type" in line), "")
    try:
        return tuple(_ses(json.loads(event))) or parsed
    except (ValueError, RecursionError):
        return parsed


def _generic(payload: Any) -> Iterator[Notice]:
    for event in _events(payload, "return_path", "message_id"):
        kind = _text(event, "kind") or "bounce"
        recipient, diagnostic = _text(event, "recipient"), _text(event, "diagnostic")
        declared = event.get("hard") if isinstance(event.get("hard"), bool) else None
        paths, message_id = (_text(event, "return_path"),), _text(event, "message_id")
        if kind == "bounce":
            yield _bounce(recipient, diagnostic, _text(event, "status"), declared, paths, message_id)
        elif kind in ("complaint", "unsubscribe"):
            feedback_type = "opt-out" if kind == "unsubscribe" else "abuse"
            yield _feedback(feedback_type, recipient, diagnostic, paths, message_id)
        elif kind == "delivered":
            yield _delivered(recipient, diagnostic, paths, message_id)
        else:
            raise InvalidPayload("kind must be bounce, complaint, unsubscribe or delivered")


# The bounce types and subtypes that SES also uses for automatic replies, such as "out of office". Unlike
# bounces with a delivery status notice, these have neither a status nor a diagnostic.
_SES_AUTOMATIC_REPLIES = {("Transient", "General"), ("Undetermined", "Undetermined")}
_SES_REPORTS = {"auth-failure", "not-spam"}  # types of feedback that are not complaints
# Subtypes of bounces and complaints about emails that SES did not send.
_SES_SUPPRESSED = {"OnAccountSuppressionList", "Suppressed"}


def _ses(payload: Any) -> Iterator[Notice]:
    if isinstance(payload, dict) and isinstance(payload.get("Message"), str):  # wrapped by SNS
        message = payload["Message"].lstrip()  # it may be a text about the topic
        payload = json.loads(message) if message.startswith("{") else []
    for event in _events(payload, "notificationType", "eventType"):
        yield from _ses_event(event)


def _ses_event(event: dict[str, Any]) -> Iterator[Notice]:
    """Yield the notices of one SES event."""
    mail = _object(event, "mail")
    headers = _objects(mail.get("headers"))
    ids = (_text(header, "value") for header in headers if _text(header, "name").lower() == "message-id")
    message_id = next(ids, "") or _text(_object(mail, "commonHeaders"), "messageId")
    tokens = _list(_object(mail, "tags").get("paperboy"))
    paths = (_text(mail, "source"), *(_echoed_path(_to_text(token)) for token in tokens))
    kind = _text(event, "notificationType") or _text(event, "eventType")
    details = _object(event, kind[:1].lower() + kind[1:])
    bounce_type = _text(details, "bounceType")
    subtype = _text(details, "bounceSubType") or _text(details, "complaintSubType")
    reported = _text(details, "complaintFeedbackType") or "abuse"
    for recipient in _objects(details.get("bouncedRecipients") or details.get("complainedRecipients")):
        address = _text(recipient, "emailAddress")
        diagnostic, status = _text(recipient, "diagnosticCode"), _text(recipient, "status")
        if subtype in _SES_SUPPRESSED:
            yield _suppressed(address, diagnostic or subtype, paths, message_id)
        elif kind == "Complaint":
            feedback_type = reported if reported.lower() in _SES_REPORTS else "abuse"
            yield _feedback(feedback_type, address, reported, paths, message_id)
        elif (bounce_type, subtype) in _SES_AUTOMATIC_REPLIES and not (diagnostic or status):
            yield _notice(Kind.VACATION, address, "", paths, message_id, reason=Reason.VACATION)
        elif kind == "Bounce":
            yield _bounce(address, diagnostic, status, bounce_type == "Permanent", paths, message_id)
    if kind == "Reject":  # SES accepted the email, then found a virus in it, and sent it to nobody
        for address in _list(mail.get("destination")):
            reason = f"rejected by the relay: {_text(details, 'reason')}"
            yield _dropped(str(address), reason, Reason.VIRUS_DETECTED, paths, message_id)
    elif kind == "Delivery":
        for address in _list(details.get("recipients")):
            yield _delivered(str(address), _text(details, "smtpResponse"), paths, message_id)


_POSTMARK_HARD = {"HardBounce", "BadEmailAddress"}
_POSTMARK_IGNORED = {
    "AutoResponder",
    "Transient",
    "Subscribe",
    "ChallengeVerification",
    "AddressChange",
    "OpenRelayTest",
}
# The type of emails that Postmark did not send, because the recipient is inactive, or because of us.
_POSTMARK_NOT_SENT = "SMTPApiError"


def _postmark(payload: Any) -> Iterator[Notice]:
    for event in _events(payload, "RecordType", "Type"):
        record, kind = _text(event, "RecordType"), _text(event, "Type")
        recipient = _text(event, "Email") or _text(event, "Recipient")
        returned = notices.parse(_text(event, "Content").encode("utf-8", "replace"))[0]
        paths = (*returned.return_paths, _echoed_path(_text(_object(event, "Metadata"), "paperboy")))
        message_id = returned.message_id
        diagnostic = _text(event, "Details") or _text(event, "Description")
        reason = _text(event, "SuppressionReason")  # of a subscription change
        if "SpamComplaint" in (record, kind, reason):
            yield _feedback("abuse", recipient, diagnostic, paths, message_id)
        elif record == "SubscriptionChange" or kind == "Unsubscribe":
            # A hard bounce is also reported as a bounce, with the reply that decides on its consequences.
            if event.get("SuppressSending") is not False and reason != "HardBounce":
                yield _feedback("opt-out", recipient, diagnostic, paths, message_id)
        elif record == "Delivery":
            yield _delivered(recipient, diagnostic, paths, message_id)
        elif record == "Bounce" and kind == _POSTMARK_NOT_SENT and "inactive" in diagnostic.lower():
            yield _suppressed(recipient, diagnostic, paths, message_id)
        elif record == "Bounce" and kind not in _POSTMARK_IGNORED:
            yield _bounce(recipient, diagnostic, "", kind in _POSTMARK_HARD, paths, message_id)


# The reasons of dropped emails that concern the recipient. The others concern us or the email, such as "Spam
# Content".
_SENDGRID_SUPPRESSED = {"Bounced Address", "Invalid", "Spam Reporting Address", "Unsubscribed Address"}


def _sendgrid(payload: Any) -> Iterator[Notice]:
    for event in _events(payload, "event"):
        kind, recipient = _text(event, "event"), _text(event, "email")
        paths = (_echoed_path(_text(event, "paperboy")),)
        diagnostic, message_id = _text(event, "reason") or _text(event, "response"), _text(event, "smtp-id")
        if kind == "bounce":
            declared = _text(event, "type") == "bounce"
            yield _bounce(recipient, diagnostic, _text(event, "status"), declared, paths, message_id)
        elif kind == "dropped" and diagnostic in _SENDGRID_SUPPRESSED:
            yield _suppressed(recipient, diagnostic, paths, message_id)
        elif kind == "dropped":
            yield _dropped(recipient, diagnostic, Reason.ON_HOLD, paths, message_id)
        elif kind in ("spamreport", "unsubscribe", "group_unsubscribe"):
            feedback_type = "abuse" if kind == "spamreport" else "opt-out"
            yield _feedback(feedback_type, recipient, diagnostic or kind, paths, message_id)
        elif kind == "delivered":
            yield _delivered(recipient, diagnostic, paths, message_id)


def _mailgun(payload: Any) -> Iterator[Notice]:
    if not isinstance(payload, dict) or not isinstance(payload.get("event-data"), dict):
        raise InvalidPayload("the body must be an object with the object “event-data”")
    (event,) = _events(payload["event-data"], "event")
    kind, recipient = _text(event, "event"), _text(event, "recipient")
    status = _object(event, "delivery-status")
    description = _text(status, "message") or _text(status, "description")
    diagnostic = f"{_text(status, 'code')} {description}".strip()
    bare_message_id = _text(_object(_object(event, "message"), "headers"), "message-id")
    message_id = f"<{bare_message_id.strip('<>')}>" if bare_message_id else ""
    token = _text(_object(event, "user-variables"), "paperboy")
    paths = (_text(_object(event, "envelope"), "sender"), _echoed_path(token))
    reason = _text(event, "reason")
    if kind == "failed" and reason.startswith("suppress-"):  # "-bounce", "-complaint" or "-unsubscribe"
        yield _suppressed(recipient, diagnostic or reason, paths, message_id)
    elif kind == "failed" and _text(event, "severity") == "permanent":
        declared = reason == "bounce"
        yield _bounce(recipient, diagnostic, _text(status, "enhanced-code"), declared, paths, message_id)
    elif kind in ("complained", "unsubscribed"):
        feedback_type = "abuse" if kind == "complained" else "opt-out"
        yield _feedback(feedback_type, recipient, diagnostic or kind, paths, message_id)
    elif kind == "delivered":
        yield _delivered(recipient, diagnostic, paths, message_id)


PROVIDERS: dict[str, Callable[[Any], Iterator[Notice]]] = {
    "generic": _generic,
    "ses": _ses,
    "postmark": _postmark,
    "sendgrid": _sendgrid,
    "mailgun": _mailgun,
}


def _bounce(
    recipient: str,
    diagnostic: str,
    status: str,
    declared: bool | None,
    paths: tuple[str, ...],
    message_id: str,
) -> Notice:
    """Build a bounce. `declared` is the relay's verdict: True for permanent, False for temporary, or None."""
    diagnostic = diagnostic[:MAX_REPLY].removeprefix("smtp; ").removeprefix("smtp;")
    diagnosis = responses.diagnose(diagnostic, status=responses.status_in(status), field=True)
    reason, hard, action = diagnosis.reason, diagnosis.hard, diagnosis.action
    if declared is not None and reason in _UNCERTAIN:
        hard, action = declared, Action.SUPPRESS if declared else Action.COUNT
        reason = Reason.USER_UNKNOWN if declared else reason
    details = {"status": diagnosis.status, "reason": reason, "hard": hard, "action": action}
    return _notice(Kind.BOUNCE, recipient, diagnostic, paths, message_id, **details)


def _suppressed(recipient: str, diagnostic: str, paths: tuple[str, ...], message_id: str) -> Notice:
    """Build a bounce of an email that the relay did not send, because its own list names the address.

    The list may contain an address because of an earlier bounce, complaint or unsubscription, even from
    another sender's email. Such a notice is therefore no complaint about us.
    """
    details = {"reason": Reason.SUPPRESSED, "hard": True, "action": Action.SUPPRESS}
    diagnostic = f"suppressed by the relay: {diagnostic}"
    return _notice(Kind.BOUNCE, recipient, diagnostic, paths, message_id, **details)


def _dropped(
    recipient: str, diagnostic: str, reason: Reason, paths: tuple[str, ...], message_id: str
) -> Notice:
    """Build a bounce of an email that the relay accepted but did not send, because of us or of the email."""
    details = {"reason": reason, "hard": False, "action": Action.OURS}
    return _notice(Kind.BOUNCE, recipient, diagnostic, paths, message_id, **details)


def _feedback(
    feedback_type: str, recipient: str, diagnostic: str, paths: tuple[str, ...], message_id: str
) -> Notice:
    kind, action = notices.feedback_consequences(feedback_type)
    details = {"reason": Reason.FEEDBACK, "action": action}
    return _notice(kind, recipient, diagnostic, paths, message_id, **details)


def _delivered(recipient: str, diagnostic: str, paths: tuple[str, ...], message_id: str) -> Notice:
    details = {"status": responses.status_in(diagnostic), "reason": Reason.DELIVERED}
    return _notice(Kind.DELIVERED, recipient, diagnostic, paths, message_id, **details)


def _notice(
    kind: Kind, recipient: str, diagnostic: str, paths: tuple[str, ...], message_id: str, **details: Any
) -> Notice:
    return Notice(
        kind,
        printable_line(recipient, 320),
        diagnostic=printable_line(diagnostic, MAX_DIAGNOSTIC),
        return_paths=tuple(address for path in paths for address in return_paths_in(path)),
        message_id=printable_line(message_id, 250),
        **details,
    )


def _echoed_path(token: str) -> str:
    """Return an address like our return paths, in which `return_paths_in` finds the token.

    The relay echoes the token from a header (see `mail.bulk_headers.echoed`).
    """
    return f"bounce+{token}@echoed"


def _events(payload: Any, *names: str) -> list[dict[str, Any]]:
    """Return the events of a payload. Raise InvalidPayload if items exist, but none has any of these fields.

    Other relays' formats and misspelled fields are thus refused. An unrelated event beside others is not,
    because relays send a refused request again for hours, with all of its events.
    """
    events = _objects(payload)
    if payload != [] and not any(_text(event, name) for event in events for name in names):
        raise InvalidPayload(f"no event has the field “{'” or “'.join(names)}”")
    return events


def _objects(payload: Any) -> list[dict[str, Any]]:
    items = _list(payload) if isinstance(payload, list) else [payload]
    return [item for item in items if isinstance(item, dict)]


def _list(value: Any) -> list[Any]:
    items = value if isinstance(value, list) else []
    if len(items) > MAX_EVENTS:  # do not truncate: the relay would not send the other events again
        raise InvalidPayload(f"the request has more than {MAX_EVENTS:,} events: send fewer at once")
    return items


def _object(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def _text(event: dict[str, Any], name: str) -> str:
    """Return a field as text, or "" if it is missing or is neither a text nor a number."""
    return _to_text(event.get(name))


def _to_text(value: Any) -> str:
    """Return a value as text. Replace lone surrogates, which JSON allows, so that the text can be stored."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return text[:20_000].encode("utf-8", "replace").decode()
