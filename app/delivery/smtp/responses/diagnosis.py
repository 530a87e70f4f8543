"""PURE. Code, enhanced status, text and command of a refusal → a diagnosis."""

import re
from dataclasses import dataclass

from app.delivery.smtp.responses.enhanced_status import (
    GENERIC_CODES,
    SPECIFIC_CODES,
    more_specific,
    status_in,
)
from app.delivery.smtp.responses.phases import Phase
from app.delivery.smtp.responses.phrase_matching import phase_in, reason_in, topic_in, without_addresses
from app.delivery.smtp.responses.refusal_reasons import (
    HARD,
    HARD_BY_STATUS,
    NOT_ABOUT_RECIPIENT,
    Action,
    Reason,
)

MAX_CHARS = 8000  # of each text; the rest is ignored


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The meaning of a refusal of one recipient."""

    reason: Reason
    hard: bool  # no mail will ever reach this address
    action: Action
    status: str = ""
    text: str = ""  # the refusal itself, on one line


# The server did not understand a command (RFC 5321, 4.2.2), or it requires a login (RFC 4954).
_BY_CODE = {
    **dict.fromkeys((500, 501, 502, 503, 504), Reason.SYNTAX_ERROR),
    **dict.fromkeys((530, 534, 535, 538), Reason.SECURITY_ERROR),
}
_BY_PHASE = {Phase.CONNECT: Reason.BLOCKED, Phase.MAIL: Reason.REJECTED}
# Reasons that outweigh the status of an unknown user, such as 5.1.1, if the text names them.
_OVERRIDES_USER_UNKNOWN = frozenset(
    {
        Reason.MAILBOX_FULL, Reason.REQUIRE_PTR, Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.SPEEDING,
        Reason.TOO_MANY_CONNECTIONS, Reason.NO_RELAYING, Reason.SPAM_DETECTED, Reason.FILTERED,
        Reason.HAS_MOVED, Reason.SUSPEND, Reason.MAILER_ERROR, Reason.VIRUS_DETECTED,
        Reason.MESSAGE_TOO_BIG, Reason.BLOCKED, Reason.NETWORK_ERROR,
    }
)  # fmt: skip
# The reason in a quoted reply → the reasons that take precedence if the text around the reply names them.
_OVERRIDES_FROM_AROUND: dict[Reason | None, frozenset[Reason]] = {
    Reason.USER_UNKNOWN: frozenset({Reason.SUSPEND, Reason.MAILBOX_FULL, Reason.HAS_MOVED}),
    Reason.SYSTEM_ERROR: _OVERRIDES_USER_UNKNOWN | {Reason.USER_UNKNOWN, Reason.HOST_UNKNOWN},
}
# Phrases of failures that may be temporary. They are ignored if a permanent status is about the address.
_MAY_PASS = re.compile(
    r"\btemporar|\btry again|\b(?:try|again) later\b|\bdeferred\b|\bname ?server (?:reply|error|fail|time)",
    re.IGNORECASE,
)
# The server verified the return path, often by asking ours, and refuses it. Another reason in the text, such
# as a full mailbox, is the cause.
_REFUSED_SENDER = re.compile(
    r"\bsender (?:verif(?!ied\b)|callout|(?:address )?rejected ?:)"
    r"|\bsender (?:address )?(?:(?:could|can) ?not|can't|couldn't) be verified\b"
    r"|\bverif(?!ied\b)\w{1,9} (?:failed |of |for |the ){0,4}(?:\S{1,320} )?(?<!by )(?:the )?sender\b",
    re.IGNORECASE,
)
# The text mentions the return path. This is enough if the text names no reason, or one of _OF_ANY_ADDRESS,
# which may concern either address.
_MENTIONED_SENDER = re.compile(
    r"\bsender (?:address )?(?:rejected|unknown\b|not found|does not exist)"
    r"|\b(?:unknown|invalid|bad|non-?existent) sender\b"
    r"|\bsender(?:'s)? (?:e-?mail )?(?:domain|host)\b",
    re.IGNORECASE,
)
_OF_ANY_ADDRESS = frozenset({Reason.USER_UNKNOWN, Reason.HOST_UNKNOWN, Reason.NOT_ACCEPT})
# Postfix asked the destination whether the address exists. The rest is the reply, which Postfix may quote
# with its code, or the reason why there is none.
_VERIFICATION = re.compile(r"\bun(?:verified|deliverable) address: (.*)", re.IGNORECASE)
_QUOTED_CODE = re.compile(r"\b(?:said|to me): ([245])\d\d\b", re.IGNORECASE)
# IronPort gateways wrap the reply that they received in one of their own.
_WRAPPED = re.compile(r"\b(?:\d\.[\dx]\.\d - )?unknown (?:address )?error (\d{3})-?(?=')", re.IGNORECASE)
_CODE = re.compile(r"(?:^|[\s:;,(\[<>\"'])([245][0-7]\d)(?=[\s:;,-]|$)")


def diagnose(
    refusal: str,
    around: str = "",
    *,
    status: str = "",
    delayed: bool = False,
    own: bool = False,
    field: bool = False,
) -> Diagnosis:
    """Diagnose a refusal of one recipient.

    `refusal` is the text about the recipient, and `around` is the other human-readable text of the notice.
    `status` is the enhanced status from a field of the notice. `delayed` means that delivery is only delayed,
    which is never a hard failure. `field` means that `refusal` is the Diagnostic-Code for this recipient
    (RFC 3464). `own` means that `refusal` is the server's own reply, not quoted from another server.
    """
    text = _one_line(refusal)
    refusal, around = without_addresses(text), without_addresses(_one_line(around))
    phase = phase_in(refusal) or phase_in(around)
    refusal, around = (_WRAPPED.sub(r"\1 ", part) for part in (refusal, around))
    best = more_specific(status, status_in(refusal)) or status_in(around)
    reason = _reason(refusal, around, best, phase)
    if reason is Reason.HOST_UNKNOWN and best.startswith("4"):
        reason = Reason.NETWORK_ERROR  # a name server failed temporarily
    may_pass = not best.startswith("5.1") and bool(_MAY_PASS.search(refusal))
    if best.startswith("4"):
        may_pass |= reason in HARD_BY_STATUS or not _is_stated(reason, refusal or around)
    transient = delayed or may_pass
    action = _action(reason, transient)
    if reason is Reason.USER_UNKNOWN and not (own or _is_confirmed(refusal or around, best, phase, field)):
        reason = Reason.FILTERED
    return Diagnosis(reason, reason in HARD and not transient, action, best, text)


def _action(reason: Reason, transient: bool) -> Action:
    if reason in HARD and not transient:
        return Action.SUPPRESS
    return Action.OURS if reason in NOT_ABOUT_RECIPIENT else Action.COUNT


def _reason(refusal: str, around: str, status: str, phase: Phase) -> Reason:
    code = status.partition(".")[2]
    by_text = reason_in(refusal)
    by_status = SPECIFIC_CODES.get(code)
    is_unclear = by_status in _OF_ANY_ADDRESS or not (by_status or by_text in NOT_ABOUT_RECIPIENT)
    if is_unclear and _refuses_sender(refusal, by_text):
        return Reason.REJECTED
    if by_status is Reason.USER_UNKNOWN:
        other = by_text or topic_in(refusal)
        return other if other in _OVERRIDES_USER_UNKNOWN else by_status
    if code == "4.7":  # the server gave up; the last refusal says why
        specific = (reason for reason in (by_text, reason_in(around)) if reason in _OVERRIDES_USER_UNKNOWN)
        return next(specific, Reason.EXPIRED)
    overrides = _OVERRIDES_FROM_AROUND.get(by_text) if not by_status else None
    if overrides and (by_text_around := reason_in(around)) in overrides:
        return by_text_around
    return (
        by_status
        or by_text
        or _BY_CODE.get(_reply_code(refusal))
        or _BY_PHASE.get(phase)
        or topic_in(refusal)
        or reason_in(around)
        or GENERIC_CODES.get(code)
        or (Reason.EXPIRED if status.startswith("4") else None)
        or (Reason.ON_HOLD if refusal else Reason.UNDEFINED)
    )


def _refuses_sender(text: str, reason: Reason | None) -> bool:
    """Return whether a text refuses the return path. `reason` is the reason that the text names, if any.

    "Mailbox full: unknown sender" only mentions the sender, but "Sender verify failed: mailbox full" is about
    the sender's own mailbox.
    """
    names_other = reason and reason not in _OF_ANY_ADDRESS | NOT_ABOUT_RECIPIENT
    return bool(_REFUSED_SENDER.search(text) or (not names_other and _MENTIONED_SENDER.search(text)))


def _is_stated(reason: Reason, text: str) -> bool:
    """Return whether a text itself states a reason, which a temporary status only suggests.

    For example, Postfix also uses 4.1.1 if it cannot verify an address because of an outage.
    """
    verification = _VERIFICATION.search(text)
    if verification and (quoted := _QUOTED_CODE.search(verification[1])):
        return quoted[1] == "5"
    return reason_in(verification[1] if verification else text) is reason


def _is_confirmed(refusal: str, status: str, phase: Phase, field: bool) -> bool:
    """Return whether anything besides the text confirms that the user is unknown.

    A status, a refusal of RCPT, or a server that reports on its own users can confirm it. A refusal after
    DATA often comes from a filter, because the recipient had already been accepted. A refusal that does not
    name its command may also come from a filter. Such a refusal is reported as filtered and not as hard, but
    because its text says that the user is unknown, it suppresses the address, too.
    """
    if status.split(".")[1:2] in (["1"], ["5"]) or status[1:] == ".2.1" or phase is Phase.RCPT:
        return True
    return phase is Phase.UNKNOWN and not status and (field or not _reply_code(refusal) or "... " in refusal)


def _reply_code(text: str) -> int:
    match = _CODE.search(text)
    return int(match[1]) if match else 0


def _one_line(text: str) -> str:
    return " ".join(text[:MAX_CHARS].split())
