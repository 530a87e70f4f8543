"""Pause sending when the relay refuses too many emails."""

import re
from collections import Counter, deque

from app.delivery.send_result import SendOutcome, SendResult

WINDOW, MINIMUM = 100, 20  # the last WINDOW replies count; with fewer than MINIMUM, sending goes on
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
    """A limit on the percentage of refusals among the relay's last WINDOW replies."""

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._refusals: deque[str] = deque(maxlen=WINDOW)  # texts; empty if the reply was not a refusal

    def add(self, result: SendResult, in_flight: int = 0) -> str:
        """Count a result. If refusals reach the limit, return the reason to pause sending, otherwise "".

        The reason quotes the most common refusal. Emails in flight count as not refused, because a refusal
        comes sooner than the reply to a body.
        """
        if result.outcome not in REPLIES:
            return ""
        is_refusal = result.outcome in REFUSALS
        refusal = _PERSONAL.sub("…", f"{result.code} {result.text:.200}") if is_refusal else ""
        self._refusals.append(refusal)
        if not is_refusal or len(self._refusals) < MINIMUM:
            return ""
        texts = Counter(filter(None, self._refusals))
        if texts.total() * 100 < self._percent * (len(self._refusals) + in_flight):
            return ""
        text, count = texts.most_common(1)[0]
        refused = f"the relay refused {texts.total()} of the last {len(self._refusals)} emails"
        return f"{refused}; {count} of them: {text}"
