"""PURE. A relay's reply → the outcome of an email, which depends on who is at fault."""

from __future__ import annotations

import re

from app.delivery.send_result import SendOutcome
from app.delivery.smtp.responses.diagnosis import diagnose
from app.delivery.smtp.responses.enhanced_status import status_in
from app.delivery.smtp.responses.phrase_matching import without_addresses
from app.delivery.smtp.responses.refusal_reasons import Action, Reason
from app.delivery.smtp.responses.throttling_phrases import THROTTLING

# Reasons that concern the sender's address, authentication or reputation. The relay would refuse every email,
# so sending stops. Texts that may come from one subscriber's own filter must therefore not count.
_OUR_FAULT = frozenset({Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.NO_RELAYING, Reason.REQUIRE_PTR})
_OUR_FAULT_WORDS = re.compile(
    r"\b(blocklist|blacklist|block list|spamhaus|barracuda)\b|authentication (is )?required|not authenticated"
    r"|(client host|ip( address)?|sender( address)?|domain) .{0,60}(blocked|rejected|banned|not allowed)",
    re.IGNORECASE,
)
_OUR_FAULT_STATUS = re.compile(r"5\.1\.[78]|5\.7\.(?:0|8|9|11|14|2\d|30|5\d\d|6\d\d|7\d\d)|5\.5\.[12]")
_OUR_FAULT_CODES = {500, 502, 503, 504, 521, 530, 534, 535, 538}


def classify(code: int, text: str, recipient: str = "") -> SendOutcome:
    """Return the outcome of an email, given the relay's reply. The enhanced status, if any, is in `text`.

    Words of addresses, and of the recipient's domain and its hosts, are ignored, because the recipient chose
    them.
    """
    if 200 <= code < 300:
        return SendOutcome.ACCEPTED
    text = _without_names(text, recipient)
    if 400 <= code < 500:
        return SendOutcome.THROTTLED if THROTTLING.search(text) else SendOutcome.DEFERRED
    status = status_in(text)
    if _OUR_FAULT_STATUS.fullmatch(status):
        return SendOutcome.SENDER_REJECTED
    diagnosis = diagnose(f"{code} {text}")
    if diagnosis.action is Action.SUPPRESS:
        return SendOutcome.HARD_BOUNCE
    if diagnosis.reason is Reason.MAILBOX_FULL:
        return SendOutcome.MAILBOX_FULL
    # 5.7.1 only means that some policy refused the email. One subscriber's filter must not stop all mail.
    is_our_fault = diagnosis.reason in _OUR_FAULT or _OUR_FAULT_WORDS.search(text) or code in _OUR_FAULT_CODES
    return (
        SendOutcome.SENDER_REJECTED
        if is_our_fault and status in ("", "5.7.1", "5.0.0")
        else SendOutcome.SOFT_BOUNCE
    )


def _without_names(text: str, recipient: str) -> str:
    """Return a text with neutral words in place of addresses and of the hosts in the recipient's domain."""
    text = without_addresses(text)
    if not recipient:
        return text
    domain = re.escape(recipient.rpartition("@")[2])
    return re.sub(rf"{re.escape(recipient)}|[\w.-]{{0,100}}{domain}\b", "x", text, flags=re.IGNORECASE)
