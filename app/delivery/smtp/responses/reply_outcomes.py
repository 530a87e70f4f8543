"""PURE. A relay's reply → the outcome of an email, which depends on who is at fault."""

from __future__ import annotations

import re

from app.delivery.send_result import SendOutcome
from app.delivery.smtp.responses.diagnosis import diagnose
from app.delivery.smtp.responses.enhanced_status import status_in
from app.delivery.smtp.responses.phrase_matching import without_addresses
from app.delivery.smtp.responses.refusal_reasons import Action, Reason
from app.delivery.smtp.responses.throttling_phrases import THROTTLING

# Reasons that concern our address, our server or its limits. If they are the cause, the relay refuses every
# email, but one subscriber's filter or one receiver may also be the cause.
_ABOUT_SENDER = frozenset(
    {
        Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.BLOCKED, Reason.NO_RELAYING, Reason.REQUIRE_PTR,
        Reason.SPEEDING, Reason.TOO_MANY_CONNECTIONS,
    }
)  # fmt: skip
_SENDER_STATUS = re.compile(r"5\.1\.[78]|5\.7\.(?:8|11|14|2\d|30|5\d\d|6\d\d|7\d\d)")
_LOGIN_CODES = {530, 534, 535, 538}  # RFC 4954
_PROTOCOL_CODES = {500, 502, 503, 521}  # the relay does not accept our commands, or any mail
_AUTHENTICATION = re.compile(r"\bauthenticat", re.IGNORECASE)
_SENDER = re.compile(r"\bsender\b|\breturn[- ]path\b|\bsend ?as", re.IGNORECASE)
_RECIPIENT = re.compile(r"\brecipient|\brcpt\b|\baddressee", re.IGNORECASE)


def classify(
    code: int, text: str, *, sender: str = "", recipient: str = "", to_mail: bool = False
) -> SendOutcome:
    """Return the outcome of an email, given the relay's reply. The enhanced status, if any, is in `text`.

    `sender` and `recipient` are the addresses of the envelope. Words of addresses, and of the recipient's
    domain and its hosts, are ignored, because the recipient chose them. `to_mail` means that this is the
    reply to MAIL, when the relay does not know the recipient yet.
    """
    if 200 <= code < 300:
        return SendOutcome.ACCEPTED
    words = _without_names(text, recipient)
    if 400 <= code < 500:
        return SendOutcome.THROTTLED if THROTTLING.search(words) else SendOutcome.DEFERRED
    if code in _LOGIN_CODES or _SENDER_STATUS.fullmatch(status_in(words)):
        return SendOutcome.SENDER_REJECTED
    diagnosis = diagnose(f"{code} {words}")
    if to_mail:
        about_email = diagnosis.reason in (Reason.MESSAGE_TOO_BIG, Reason.CONTENT_ERROR)
        return SendOutcome.SOFT_BOUNCE if about_email else SendOutcome.SENDER_REJECTED
    if diagnosis.action is Action.SUPPRESS:
        is_ours = _names_only_sender(text, words, sender, recipient)
        return SendOutcome.SENDER_SUSPECTED if is_ours else SendOutcome.HARD_BOUNCE
    if diagnosis.reason is Reason.MAILBOX_FULL:
        return SendOutcome.MAILBOX_FULL
    is_suspected = (
        code in _PROTOCOL_CODES
        or diagnosis.reason in _ABOUT_SENDER
        or (diagnosis.reason is Reason.REJECTED and _SENDER.search(words))
        or (diagnosis.reason is Reason.SECURITY_ERROR and _AUTHENTICATION.search(words))
    )
    return SendOutcome.SENDER_SUSPECTED if is_suspected else SendOutcome.SOFT_BOUNCE


def _names_only_sender(text: str, words: str, sender: str, recipient: str) -> bool:
    """Return whether a refusal names the sender, but not the recipient. `words` is its text without names.

    For example, a relay may ask our server whether the return path exists, and refuse RCPT if it does not.
    """
    text = text.lower()
    if sender and sender.lower() in text:
        return not recipient or recipient.lower() not in text
    return bool(_SENDER.search(words) and not _RECIPIENT.search(words))


def _without_names(text: str, recipient: str) -> str:
    """Return a text with neutral words in place of addresses and of the hosts in the recipient's domain."""
    text = without_addresses(text)
    if not recipient:
        return text
    domain = re.escape(recipient.rpartition("@")[2])
    return re.sub(rf"{re.escape(recipient)}|[\w.-]{{0,100}}{domain}\b", "x", text, flags=re.IGNORECASE)
