"""PURE. A relay's reply → the outcome of an email, which depends on who is at fault."""

import re

from app.delivery.send_result import SendOutcome
from app.delivery.smtp.responses.diagnosis import Diagnosis, diagnose
from app.delivery.smtp.responses.enhanced_status import status_in
from app.delivery.smtp.responses.phases import Phase
from app.delivery.smtp.responses.phrase_matching import without_addresses
from app.delivery.smtp.responses.refusal_reasons import Action, Reason
from app.delivery.smtp.responses.throttling_phrases import THROTTLING

# Reasons that concern our address, server or limits. Usually the relay then refuses every email, but one
# subscriber's filter or one receiver can be the cause, too.
_ABOUT_SENDER = frozenset(
    {
        Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.BLOCKED, Reason.NO_RELAYING, Reason.REQUIRE_PTR,
        Reason.SPEEDING, Reason.TOO_MANY_CONNECTIONS,
    }
)  # fmt: skip
# Statuses of which most concern the sender (security), and the reasons with which they do not.
_SECURITY_STATUSES = {"5.7.0", "5.7.9"}
_NOT_ABOUT_SENDER = frozenset(
    {
        Reason.CONTENT_ERROR, Reason.FILTERED, Reason.MAILBOX_FULL, Reason.MESSAGE_TOO_BIG,
        Reason.POLICY_VIOLATION, Reason.SPAM_DETECTED, Reason.VIRUS_DETECTED,
    }
)  # fmt: skip
# Reasons that concern our account at the relay if the text mentions it.
_MAY_CONCERN_ACCOUNT = frozenset({Reason.REJECTED, Reason.SECURITY_ERROR, Reason.SUSPEND})
# Reasons for refusals of MAIL that concern the size or the content of an email.
_ABOUT_EMAIL = frozenset(
    {
        Reason.CONTENT_ERROR, Reason.EXCEED_LIMIT, Reason.MAILBOX_FULL, Reason.MESSAGE_TOO_BIG,
        Reason.SYSTEM_FULL,
    }
)  # fmt: skip
_SENDER_STATUS = re.compile(r"5\.1\.[78]|5\.7\.(?:8|11|14|2\d|30|5\d\d|6\d\d|7\d\d)")
_LOGIN_CODES = {530, 534, 535, 538}  # RFC 4954
_PROTOCOL_CODES = {500, 502, 503, 521}  # the relay does not accept our commands, or any mail
_SMTPUTF8_CODES, _SMTPUTF8 = {553, 555}, re.compile(r"\b5\.5\.4\b|\b5\.6\.7\b|\bsmtputf8\b", re.IGNORECASE)
_AUTHENTICATION = re.compile(r"\bauthenticat", re.IGNORECASE)
_SENDER = re.compile(
    r"\bsender\b|\breturn[- ]path\b|\bsend ?as|\bnot (?:allowed|authori[sz]ed|permitted) to send\b",
    re.IGNORECASE,
)
_OUR_ACCOUNT = re.compile(r"\byour (?:\w{1,20} )?account\b|\bsending\b", re.IGNORECASE)
_DENIED = re.compile(
    r"\bnot (?:been )?(?:allowed|authori[sz]ed|permitted|verified)\b|\bblocked\b|\bunverified\b"
)
# A refusal whose first words are an address, in place of which there is a null character.
_BEGINS_WITH_ADDRESS = re.compile(
    r"(?:[245]\.\d{1,3}\.\d{1,3} )?(?:\W?\b(?:the|sender|address|mailbox|recipient|user)\b){0,3}\W{0,3}\0"
)
_HOST = re.compile(r"[\w.-]+")
_QUOTED = re.compile(r"(?<=[\"'<(\[])[^\s\"'<>()\[\]]{1,64}(?=[\"'>)\]])")


def classify(
    code: int,
    text: str,
    *,
    sender: str = "",
    recipient: str = "",
    phase: Phase = Phase.UNKNOWN,
    needs_smtputf8: bool = False,
) -> SendOutcome:
    """Return the outcome of an email, given the relay's reply. The enhanced status, if any, is in `text`.

    `sender` and `recipient` are the addresses of the envelope. Words of addresses, and of the recipient's
    domain and its hosts, are ignored, because the recipient chose them. Pass Phase.MAIL for a reply to MAIL,
    when the relay does not know the recipient yet. `needs_smtputf8` means that MAIL had this parameter.
    """
    if 200 <= code < 300:
        return SendOutcome.ACCEPTED
    if 400 <= code < 500:
        is_throttled = THROTTLING.search(text) and THROTTLING.search(_neutralize_recipient(text, recipient))
        return SendOutcome.THROTTLED if is_throttled else SendOutcome.DEFERRED
    words = _neutralize_recipient(text, recipient)
    if code in _LOGIN_CODES or _SENDER_STATUS.fullmatch(status_in(words)):
        return SendOutcome.SENDER_REJECTED
    diagnosis = diagnose(f"{code} {words}")
    if phase is Phase.MAIL:
        about_smtputf8 = needs_smtputf8 and (code in _SMTPUTF8_CODES or _SMTPUTF8.search(words))
        about_email = about_smtputf8 or diagnosis.reason in _ABOUT_EMAIL
        return SendOutcome.CONTENT_REFUSED if about_email else SendOutcome.SENDER_REJECTED
    if diagnosis.action is Action.SUPPRESS:
        concerns_sender = _begins_with_sender(text.lower(), sender.lower(), recipient.lower())
        return SendOutcome.SENDER_REJECTION_SUSPECTED if concerns_sender else SendOutcome.HARD_BOUNCE
    if diagnosis.reason is Reason.MAILBOX_FULL:
        return SendOutcome.MAILBOX_FULL
    if code in _PROTOCOL_CODES or _may_concern_sender(diagnosis, words, sender):
        return SendOutcome.SENDER_REJECTION_SUSPECTED
    return SendOutcome.CONTENT_REFUSED if diagnosis.action is Action.OURS else SendOutcome.SOFT_BOUNCE


def _may_concern_sender(diagnosis: Diagnosis, words: str, sender: str) -> bool:
    """Return whether a refusal may concern our address, account or server. `words` is neutralized."""
    reason, status = diagnosis.reason, status_in(words)
    if reason in _ABOUT_SENDER or (status in _SECURITY_STATUSES and reason not in _NOT_ABOUT_SENDER):
        return True
    if reason in _MAY_CONCERN_ACCOUNT and _OUR_ACCOUNT.search(words):
        return True
    if reason is Reason.SUSPEND and status.startswith("5.7."):
        return True
    domain, lowered = sender.rpartition("@")[2].lower(), words.lower()
    if domain and domain in lowered and domain in _HOST.findall(lowered) and _DENIED.search(lowered):
        return True
    if reason is Reason.REJECTED:
        return bool(_SENDER.search(words))
    return reason is Reason.SECURITY_ERROR and bool(_AUTHENTICATION.search(words))


def _begins_with_sender(text: str, sender: str, recipient: str) -> bool:
    """Return whether a refusal of an unknown address begins with the sender's address.

    For example, a relay may ask our server whether the return path exists, and refuse RCPT if it does not.
    Elsewhere in the text, the sender's address only shows which email was refused. All are in lower case.
    """
    if not sender or sender not in text or (recipient and recipient in text):
        return False
    return bool(_BEGINS_WITH_ADDRESS.match(text.replace(sender, "\0", 1)))


def _neutralize_recipient(text: str, recipient: str) -> str:
    """Return a text with neutral words in place of addresses, the hosts in the recipient's domain, and the
    recipient's local part if it is quoted.
    """
    text = without_addresses(text)
    local_part, _, domain = recipient.lower().rpartition("@")
    lowered = text.lower()
    if recipient and recipient.lower() in lowered:  # such as a domain with an umlaut
        text = re.sub(re.escape(recipient), "x@x", text, flags=re.IGNORECASE)
    if domain and domain in lowered:
        text = _HOST.sub(lambda match: "x" if _is_within(match[0].lower(), domain) else match[0], text)
    if local_part and local_part in lowered:
        text = _QUOTED.sub(lambda match: "x" if match[0].lower() == local_part else match[0], text)
    return text


def _is_within(host: str, domain: str) -> bool:
    return f".{host.strip('.-')}".endswith(f".{domain}")
