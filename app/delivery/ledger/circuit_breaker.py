"""Pause sending when the relay refuses too many emails, or seems to refuse us."""

from __future__ import annotations

import re
from collections import Counter, deque

from app.delivery.send_result import SendOutcome, SendResult

WINDOW, MINIMUM = 100, 20  # the last WINDOW replies count; with fewer than MINIMUM, sending goes on
SUSPICIONS = 3  # emails that are refused as if because of us, without one that is accepted in between
REFUSALS = (
    SendOutcome.HARD_BOUNCE,
    SendOutcome.SOFT_BOUNCE,
    SendOutcome.MAILBOX_FULL,
    SendOutcome.CONTENT_REFUSED,
    SendOutcome.SENDER_REJECTED,
    SendOutcome.SENDER_REJECTION_SUSPECTED,
)
REPLIES = (*REFUSALS, SendOutcome.ACCEPTED, SendOutcome.DEFERRED, SendOutcome.THROTTLED)
_PERSONAL = re.compile(r"<[^>]*>|\S*@\S*")


class CircuitBreaker:
    """A limit on the percentage of refusals among the relay's last WINDOW replies, and on SUSPICIONS."""

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._suspicions = 0  # since the last accepted email
        self._refusals: deque[str] = deque(maxlen=WINDOW)  # texts; empty if the reply was not a refusal

    def add(self, result: SendResult, *, is_retry: bool = False) -> str:
        """Count a result. If refusals reach a limit, return the reason to pause sending, otherwise "".

        The reason quotes the most common refusal, or the last suspicion. A retry is no suspicion: a run may
        consist of retries, whose emails were refused individually while others were accepted.
        """
        if result.outcome not in REPLIES:
            return ""
        is_refusal = result.outcome in REFUSALS
        refusal = _PERSONAL.sub("…", f"{result.code} {result.text:.200}") if is_refusal else ""
        self._refusals.append(refusal)
        if result.outcome is SendOutcome.ACCEPTED:
            self._suspicions = 0
        elif result.outcome is SendOutcome.SENDER_REJECTION_SUSPECTED and not is_retry:
            self._suspicions += 1
            if self._suspicions == SUSPICIONS:
                return f"the relay refuses us: {refusal}"
        if not is_refusal or len(self._refusals) < MINIMUM:
            return ""
        texts = Counter(filter(None, self._refusals))
        if texts.total() * 100 < self._percent * len(self._refusals):
            return ""
        text, count = texts.most_common(1)[0]
        refused = f"the relay refused {texts.total()} of the last {len(self._refusals)} emails"
        return f"{refused}; {count} of them: {text}"
