"""PURE. What relays tell by webhook → notices. One reader a shape; what is not understood says so.

generic    ours: objects with recipient, kind, status, diagnostic, return_path, message_id
ses        Amazon SES, as SNS delivers it (wrapped or raw)
postmark   one event an object          sendgrid   a list of events          mailgun   event-data
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from app.bounces import mime_parser
from app.bounces.notices import MAX_SAID, Kind, Notice, one_line, read, verp_in
from app.delivery.smtp import responses
from app.delivery.smtp.responses import Reason

MAX_ANSWER = 1_000  # characters of a server's answer: a line has at most 512
MAX_EVENTS = 10_000  # at once; more than any relay puts into one body that we take
# What a relay that calls a bounce permanent may know better than the words that it hands on.
_UNSURE = frozenset({Reason.UNDEFINED, Reason.ON_HOLD, Reason.FILTERED, Reason.USER_UNKNOWN})


class Unreadable(ValueError):
    """This is not the JSON of the shape."""


def parse_webhook(shape: str, payload: bytes) -> tuple[Notice, ...]:
    """What a relay tells; an empty tuple where it tells of nothing that comes back. Unreadable otherwise."""
    try:
        return tuple(PROVIDERS[shape](json.loads(payload)))
    except Unreadable:
        raise
    except (ValueError, RecursionError):
        raise Unreadable("the body is not JSON") from None


def sns_confirmation_url(payload: bytes) -> str:
    """The address that confirms a subscription which Amazon SNS asks for; empty where it does not."""
    try:
        told = json.loads(payload)
    except (ValueError, RecursionError):
        return ""
    asked = isinstance(told, dict) and told.get("Type") == "SubscriptionConfirmation"
    return one_line(_text(told, "SubscribeURL"), 1000) if asked else ""


def read_mail(raw: bytes) -> tuple[Notice, ...]:
    """What a mail tells. Amazon SNS, asked to, sends its JSON by mail."""
    found = read(raw)
    if found[0].kind is not Kind.UNKNOWN:
        return found
    lines = (line for part in mime_parser.parse(raw).walk() for line in part.text.split("\n"))
    told = next((line for line in lines if line.startswith('{"') and "Type" in line), "")
    try:
        return tuple(_ses(json.loads(told))) or found
    except (ValueError, RecursionError):
        return found


def _generic(told: Any) -> Iterator[Notice]:
    for each in _objects(told):
        kind = _text(each, "kind") or "bounce"
        recipient, said = _text(each, "recipient"), _text(each, "diagnostic")
        declared = each.get("hard") if isinstance(each.get("hard"), bool) else None
        paths, message_id = (_text(each, "return_path"),), _text(each, "message_id")
        if kind == "bounce":
            yield _bounce(recipient, said, _text(each, "status"), declared, paths, message_id)
        elif kind in ("complaint", "unsubscribe"):
            yield _complaint(recipient, kind == "unsubscribe", said, paths, message_id)
        elif kind == "delivered":
            yield _delivered(recipient, said, paths, message_id)
        else:
            raise Unreadable("kind must be bounce, complaint, unsubscribe or delivered")


def _ses(told: Any) -> Iterator[Notice]:
    if isinstance(told, dict) and isinstance(told.get("Message"), str):  # SNS wraps it
        told = json.loads(told["Message"]) if told["Message"].lstrip().startswith("{") else {}
    for each in _objects(told):
        mail = _object(each, "mail")
        paths, message_id = (_text(mail, "source"),), _header_of(mail)
        kind = _text(each, "notificationType") or _text(each, "eventType")
        about = _object(each, kind[:1].lower() + kind[1:])
        if kind == "Bounce":
            permanent = _text(about, "bounceType") == "Permanent"
            for who in _objects(about.get("bouncedRecipients")):
                said, status = _text(who, "diagnosticCode"), _text(who, "status")
                yield _bounce(_text(who, "emailAddress"), said, status, permanent, paths, message_id)
        elif kind == "Complaint":
            for who in _objects(about.get("complainedRecipients")):
                said = _text(about, "complaintFeedbackType") or "complaint"
                yield _complaint(_text(who, "emailAddress"), False, said, paths, message_id)
        elif kind == "Delivery":
            for recipient in _list(about.get("recipients")):
                yield _delivered(str(recipient), _text(about, "smtpResponse"), paths, message_id)


def _header_of(mail: dict[str, Any]) -> str:
    found = (_text(each, "value") for each in _objects(mail.get("headers")) if _is_message_id(each))
    return next(found, "") or _text(_object(mail, "commonHeaders"), "messageId")


def _is_message_id(header: dict[str, Any]) -> bool:
    return _text(header, "name").lower() == "message-id"


_POSTMARK_HARD = {"HardBounce", "BadEmailAddress"}
_POSTMARK_PASSING = {
    "AutoResponder",
    "Transient",
    "Subscribe",
    "ChallengeVerification",
    "AddressChange",
    "OpenRelayTest",
}


def _postmark(told: Any) -> Iterator[Notice]:
    for each in _objects(told):
        record, kind = _text(each, "RecordType"), _text(each, "Type")
        recipient = _text(each, "Email") or _text(each, "Recipient")
        returned = read(_text(each, "Content").encode("utf-8", "replace"))[0]
        paths, message_id = returned.return_paths, returned.message_id
        said = _text(each, "Details") or _text(each, "Description")
        if record == "SpamComplaint" or kind == "SpamComplaint":
            yield _complaint(recipient, False, said, paths, message_id)
        elif record == "SubscriptionChange" or kind == "Unsubscribe":
            if each.get("SuppressSending") is not False:
                yield _complaint(recipient, True, said, paths, message_id)
        elif record == "Delivery":
            yield _delivered(recipient, said, paths, message_id)
        elif record == "Bounce" and kind not in _POSTMARK_PASSING:
            yield _bounce(recipient, said, "", kind in _POSTMARK_HARD, paths, message_id)


def _sendgrid(told: Any) -> Iterator[Notice]:
    for each in _objects(told):
        kind, recipient = _text(each, "event"), _text(each, "email")
        said, message_id = _text(each, "reason") or _text(each, "response"), _text(each, "smtp-id")
        if kind == "bounce":
            declared = _text(each, "type") == "bounce"
            yield _bounce(recipient, said, _text(each, "status"), declared, (), message_id)
        elif kind in ("spamreport", "unsubscribe", "group_unsubscribe"):
            yield _complaint(recipient, kind != "spamreport", said or kind, (), message_id)
        elif kind == "delivered":
            yield _delivered(recipient, said, (), message_id)


def _mailgun(told: Any) -> Iterator[Notice]:
    if not isinstance(told, dict):
        raise Unreadable("an object with event-data is expected")
    event = _object(told, "event-data")
    kind, recipient = _text(event, "event"), _text(event, "recipient")
    status, named = (
        _object(event, "delivery-status"),
        _text(_object(_object(event, "message"), "headers"), "message-id"),
    )
    said = f"{_text(status, 'code')} {_text(status, 'message') or _text(status, 'description')}".strip()
    message_id = f"<{named.strip('<>')}>" if named else ""
    paths = (_text(_object(event, "envelope"), "sender"),)
    if kind == "failed" and _text(event, "severity") == "permanent":
        declared = _text(event, "reason") in ("bounce", "suppress-bounce")
        yield _bounce(recipient, said, _text(status, "enhanced-code"), declared, paths, message_id)
    elif kind in ("complained", "unsubscribed"):
        yield _complaint(recipient, kind == "unsubscribed", said or kind, paths, message_id)
    elif kind == "delivered":
        yield _delivered(recipient, said, paths, message_id)


PROVIDERS: dict[str, Callable[[Any], Iterator[Notice]]] = {
    "generic": _generic,
    "ses": _ses,
    "postmark": _postmark,
    "sendgrid": _sendgrid,
    "mailgun": _mailgun,
}


def _bounce(
    recipient: str, said: str, status: str, declared: bool | None, paths: tuple[str, ...], message_id: str
) -> Notice:
    said = said[:MAX_ANSWER].removeprefix("smtp; ").removeprefix("smtp;")
    meant = responses.diagnose(said, status=responses.status_in(status), field=True)
    hard = meant.hard if declared is None or meant.reason not in _UNSURE else declared
    reason = Reason.USER_UNKNOWN if hard and meant.reason in _UNSURE else meant.reason
    return _notice(
        Kind.BOUNCE, recipient, said, paths, message_id, status=meant.status, reason=reason, hard=hard
    )


def _complaint(recipient: str, opts_out: bool, said: str, paths: tuple[str, ...], message_id: str) -> Notice:
    kind = Kind.OPT_OUT if opts_out else Kind.COMPLAINT
    return _notice(kind, recipient, said, paths, message_id, reason=Reason.FEEDBACK)


def _delivered(recipient: str, said: str, paths: tuple[str, ...], message_id: str) -> Notice:
    status = responses.status_in(said)
    return _notice(Kind.DELIVERED, recipient, said, paths, message_id, status=status, reason=Reason.DELIVERED)


def _notice(
    kind: Kind, recipient: str, said: str, paths: tuple[str, ...], message_id: str, **more: Any
) -> Notice:
    return Notice(
        kind,
        one_line(recipient, 320),
        said=one_line(said, MAX_SAID),
        return_paths=tuple(found for path in paths for found in verp_in(path)),
        message_id=one_line(message_id, 250),
        **more,
    )


def _objects(told: Any) -> list[dict[str, Any]]:
    found = _list(told) if isinstance(told, list) else [told]
    return [each for each in found if isinstance(each, dict)]


def _list(told: Any) -> list[Any]:
    found = told if isinstance(told, list) else []
    if len(found) > MAX_EVENTS:  # whoever is told that all is well does not tell again
        raise Unreadable(f"more than {MAX_EVENTS:,} events at once")
    return found


def _object(told: dict[str, Any], name: str) -> dict[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}


def _text(told: dict[str, Any], name: str) -> str:
    """A field as text; a surrogate that JSON smuggles in would break whatever stores it."""
    found = told.get(name)
    text = str(found) if isinstance(found, (str, int)) and not isinstance(found, bool) else ""
    return text[:20_000].encode("utf-8", "replace").decode()
