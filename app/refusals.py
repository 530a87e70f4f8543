"""PURE. What a refusal means: (code, enhanced status, words) → a reason, hard or soft."""

from __future__ import annotations

import re

from app.records import Verdict

_STATUS = re.compile(r"\b([245])\.(\d{1,3})\.(\d{1,3})\b")
_NO_MAILBOX = {"5.1.1", "5.1.2", "5.1.10"}
_NO_MAILBOX_WORDS = re.compile(
    r"user unknown|unknown (user|recipient|mailbox)|no such (user|mailbox|recipient|address|person)"
    r"|(user|mailbox|recipient|account|address) (does not|doesn't) exist|invalid (mailbox|recipient)",
    re.IGNORECASE,
)
_FULL_WORDS = re.compile(r"(mailbox|quota|storage).{0,30}(full|exceeded)|over quota", re.IGNORECASE)
# Our address, our authentication, our reputation: RFC 3463, RFC 7372, RFC 7489 and Microsoft's own.
_OUR_FAULT = re.compile(
    r"5\.1\.[78]|5\.7\.(0|8|9|11|14|2\d|30|5\d\d|6\d\d|7\d\d)|5\.5\.[12]",
)
_OUR_FAULT_WORDS = re.compile(
    r"\b(spf|dkim|dmarc|rdns|ptr record|reverse dns|blocklist|blacklist|block list|spamhaus|barracuda)\b"
    r"|relay(ing)? (access )?denied|unable to relay|authentication (is )?required|not authenticated"
    r"|(client host|ip( address)?|sender( address)?|domain) .{0,60}(blocked|rejected|banned|not allowed)",
    re.IGNORECASE,
)
_OUR_FAULT_CODES = {500, 502, 503, 504, 521, 530, 534, 535, 538}


def classify(code: int, text: str) -> Verdict:
    """What an answer to a mail means. The enhanced status decides where there is one (RFC 3463)."""
    if 200 <= code < 300:
        return Verdict.ACCEPTED
    if 400 <= code < 500:
        return Verdict.DEFERRED
    found = _STATUS.search(text)
    status = found.group() if found else ""
    if not status.startswith("5"):
        return _classify_words(code, text)
    if status in _NO_MAILBOX:
        return Verdict.HARD
    if status == "5.2.2":
        return Verdict.FULL
    if _OUR_FAULT.fullmatch(status):
        return Verdict.OUR_FAULT
    # 5.7.1 says only that somebody's policy refused. One reader's filter must not stop everybody's mail.
    if status == "5.7.1" and _OUR_FAULT_WORDS.search(text):
        return Verdict.OUR_FAULT
    return Verdict.SOFT


def _classify_words(code: int, text: str) -> Verdict:
    if _NO_MAILBOX_WORDS.search(text):
        return Verdict.HARD
    if _FULL_WORDS.search(text):
        return Verdict.FULL
    if code in _OUR_FAULT_CODES or _OUR_FAULT_WORDS.search(text):
        return Verdict.OUR_FAULT
    return Verdict.SOFT
