"""PURE. Status, words and phase together → what a refusal means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.delivery.smtp.responses.phases import Phase
from app.delivery.smtp.responses.phrase_matching import phase_in, reason_in
from app.delivery.smtp.responses.reasons import HARD, HARD_BY_STATUS, Reason
from app.delivery.smtp.responses.status_codes import GENERIC_CODES, SPECIFIC_CODES, better, status_in
from app.types import SendOutcome

MAX_READ = 8000  # characters


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a notice says of one recipient."""

    reason: Reason
    hard: bool
    status: str = ""
    said: str = ""  # the words that decided


# The commands were not understood (RFC 5321, 4.2.2), or a password was missed (RFC 4954).
_BY_CODE = {
    **dict.fromkeys((500, 501, 502, 503, 504), Reason.SYNTAX_ERROR),
    **dict.fromkeys((530, 534, 535, 538), Reason.SECURITY_ERROR),
}
_BY_PHASE = {Phase.CONNECT: Reason.BLOCKED, Phase.MAIL: Reason.REJECTED}
# A server that writes 5.1.1 and yet says one of these knows better what happened.
_SAYS_MORE = frozenset(
    {
        Reason.MAILBOX_FULL, Reason.REQUIRE_PTR, Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.SPEEDING,
        Reason.TOO_MANY_CONNECTIONS, Reason.NO_RELAYING, Reason.SPAM_DETECTED, Reason.FILTERED,
        Reason.HAS_MOVED, Reason.SUSPEND, Reason.MAILER_ERROR, Reason.VIRUS_DETECTED,
        Reason.MESSAGE_TOO_BIG, Reason.BLOCKED,
    }
)  # fmt: skip
# And the server that writes the notice than the one that it quotes, where that one says next to nothing.
_SAYS_MORE_THAN: dict[Reason | None, frozenset[Reason]] = {
    Reason.USER_UNKNOWN: frozenset({Reason.SUSPEND, Reason.MAILBOX_FULL, Reason.HAS_MOVED}),
    Reason.SYSTEM_ERROR: _SAYS_MORE | {Reason.USER_UNKNOWN, Reason.HOST_UNKNOWN},
}
# Gateways of IronPort's put the answer that they got into one of their own.
_WRAPPED = re.compile(r"\b(?:\d\.[\dx]\.\d - )?unknown (?:address )?error (\d{3})-?(?=')", re.IGNORECASE)
_CODE = re.compile(r"(?:^|[\s:;,(\[<>\"'])([245][0-7]\d)(?=[\s:;,-]|$)")


def diagnose(
    said: str,
    elsewhere: str = "",
    *,
    status: str = "",
    delayed: bool = False,
    own: bool = False,
    field: bool = False,
) -> Diagnosis:
    """What a notice means: `said` about the recipient, `elsewhere` in its words for people.

    `status` is the enhanced one of its field. What is only delayed is never hard. `field`: `said` comes
    from the field that RFC 3464 has for the answer on this recipient. `own`: it quotes no other server.
    """
    said, elsewhere = _flat(said), _flat(elsewhere)
    phase = phase_in(said) or phase_in(elsewhere)
    said, elsewhere = (_WRAPPED.sub(r"\1 ", text) for text in (said, elsewhere))
    best = better(status, status_in(said)) or status_in(elsewhere)
    reason = _reason(said, elsewhere, best, phase)
    if reason is Reason.HOST_UNKNOWN and best.startswith("4"):
        reason = Reason.NETWORK_ERROR  # name servers have bad hours, too
    if reason is Reason.USER_UNKNOWN and not (own or _confirmed(said or elsewhere, best, phase, field)):
        reason = Reason.FILTERED
    transient = delayed or (best.startswith("4") and reason in HARD_BY_STATUS)
    return Diagnosis(reason, reason in HARD and not transient, best, said)


def _reason(said: str, elsewhere: str, status: str, phase: Phase) -> Reason:
    number = status.partition(".")[2]
    in_words = reason_in(said)
    around = reason_in(elsewhere)
    decided = SPECIFIC_CODES.get(number)
    if decided is Reason.USER_UNKNOWN and in_words in _SAYS_MORE:
        return in_words
    if number == "4.7":  # given up: the last thing that was said tells why
        return next((each for each in (in_words, around) if each in _SAYS_MORE), Reason.EXPIRED)
    if not decided and around in _SAYS_MORE_THAN.get(in_words, ()):
        return around  # type: ignore[return-value]
    return (
        decided
        or in_words
        or _BY_CODE.get(_code(said))
        or _BY_PHASE.get(phase)
        or around
        or GENERIC_CODES.get(number)
        or (Reason.EXPIRED if status.startswith("4") else None)
        or (Reason.ON_HOLD if said else Reason.UNDEFINED)
    )


def _confirmed(said: str, status: str, phase: Phase, field: bool) -> bool:
    """Whether "no such user" is more than words.

    A status says so, the recipient itself was refused, or the server speaks of its own users. After DATA,
    when every recipient had been accepted, and in an answer of which nobody says what it answers, it is often
    a filter that speaks: such a mail came back softly, and it is the score that decides.
    """
    if status.split(".")[1:2] in (["1"], ["5"]) or status[1:] == ".2.1" or phase is Phase.RCPT:
        return True
    return phase is Phase.UNTOLD and not status and (field or not _code(said) or "... " in said)


def _code(text: str) -> int:
    found = _CODE.search(text)
    return int(found[1]) if found else 0


def _flat(text: str) -> str:
    return " ".join(text[:MAX_READ].split())


# --- the relay's answers


# Our address, our authentication, our reputation: whoever the reader is, the next mail fares no better. It
# stops everybody's mail, so only words that cannot mean one reader's own filter count.
_OUR_FAULT = frozenset({Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.NO_RELAYING, Reason.REQUIRE_PTR})
_OUR_FAULT_WORDS = re.compile(
    r"\b(blocklist|blacklist|block list|spamhaus|barracuda)\b|authentication (is )?required|not authenticated"
    r"|(client host|ip( address)?|sender( address)?|domain) .{0,60}(blocked|rejected|banned|not allowed)",
    re.IGNORECASE,
)
_OUR_FAULT_STATUS = re.compile(r"5\.1\.[78]|5\.7\.(?:0|8|9|11|14|2\d|30|5\d\d|6\d\d|7\d\d)|5\.5\.[12]")
_OUR_FAULT_CODES = {500, 502, 503, 504, 521, 530, 534, 535, 538}


def classify(code: int, text: str) -> SendOutcome:
    """What an answer of the relay's to a mail means. The enhanced status decides where there is one."""
    if 200 <= code < 300:
        return SendOutcome.ACCEPTED
    if 400 <= code < 500:
        return SendOutcome.DEFERRED
    status = status_in(text)
    if _OUR_FAULT_STATUS.fullmatch(status):
        return SendOutcome.SENDER_REJECTED
    # It is our own relay, asked about one recipient: its word on them needs no confirmation.
    meant = diagnose(f"{code} {text}", own=True)
    if meant.hard:
        return SendOutcome.HARD_BOUNCE
    if meant.reason is Reason.MAILBOX_FULL:
        return SendOutcome.MAILBOX_FULL
    # 5.7.1 says only that somebody's policy refused. One reader's filter must not stop everybody's mail.
    named = meant.reason in _OUR_FAULT or _OUR_FAULT_WORDS.search(text) or code in _OUR_FAULT_CODES
    return (
        SendOutcome.SENDER_REJECTED if named and status in ("", "5.7.1", "5.0.0") else SendOutcome.SOFT_BOUNCE
    )
