"""Pause sending when the relay refuses too many mails."""

from __future__ import annotations

import re
from collections import Counter, deque

from app.types import SendOutcome, SendResult

WINDOW, MINIMUM = 100, 20  # the replies that are counted, and the fewest that can stop sending
REFUSALS = (
    SendOutcome.HARD_BOUNCE,
    SendOutcome.SOFT_BOUNCE,
    SendOutcome.MAILBOX_FULL,
    SendOutcome.SENDER_REJECTED,
)
ANSWERS = (*REFUSALS, SendOutcome.ACCEPTED, SendOutcome.DEFERRED, SendOutcome.THROTTLED)
_PERSONAL = re.compile(r"<[^>]*>|\S*@\S*")


class CircuitBreaker:
    """A limit on the share of refusals, in percent, among the relay's last WINDOW replies."""

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._refusals: deque[str] = deque(maxlen=WINDOW)  # texts; empty if the reply was not a refusal

    def add(self, result: SendResult) -> str:
        """Count a result. Return a reason to pause sending that quotes the most common refusal, or ""."""
        if result.outcome not in ANSWERS:
            return ""
        is_refusal = result.outcome in REFUSALS
        self._refusals.append(_PERSONAL.sub("…", f"{result.code} {result.text:.200}") if is_refusal else "")
        if not is_refusal or len(self._refusals) < MINIMUM:
            return ""
        texts = Counter(filter(None, self._refusals))
        if texts.total() * 100 < self._percent * len(self._refusals):
            return ""
        text, count = texts.most_common(1)[0]
        refused = f"the relay refused {texts.total()} of the last {len(self._refusals)} mails"
        return f"{refused}; {count} of them: {text}"
