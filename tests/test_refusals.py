"""What refusals mean, at SMTP time and in notices."""

from __future__ import annotations

import pytest

from app import refusals
from app.records import Verdict


@pytest.mark.parametrize(
    ("code", "text", "verdict"),
    [
        (250, "2.0.0 OK", Verdict.ACCEPTED),
        (251, "will forward", Verdict.ACCEPTED),
        (421, "4.7.28 rate limited, see our page on bulk senders", Verdict.DEFERRED),
        (450, "4.2.1 busy", Verdict.DEFERRED),
        (451, "4.7.1 greylisted", Verdict.DEFERRED),
        (452, "4.2.2 over quota", Verdict.DEFERRED),
        (454, "4.7.0 TLS not available", Verdict.DEFERRED),
        (550, "5.1.1 no such user", Verdict.HARD),
        (550, "5.1.2 bad destination system", Verdict.HARD),
        (550, "5.1.10 recipient not found", Verdict.HARD),
        (550, "No such user here", Verdict.HARD),
        (550, "<a@b.c>: Recipient address rejected: User unknown in local table", Verdict.HARD),
        (552, "5.2.2 mailbox full", Verdict.FULL),
        (552, "The mailbox storage is full", Verdict.FULL),
        (552, "5.3.4 message too big", Verdict.SOFT),
        (554, "5.6.0 content rejected", Verdict.SOFT),
        (550, "5.7.1 this user takes no mail from outside", Verdict.SOFT),
        (550, "Requested action not taken", Verdict.SOFT),
        (550, "5.7.1 Relay access denied", Verdict.OUR_FAULT),
        (554, "5.7.1 Service unavailable; Client host [192.0.2.1] blocked", Verdict.OUR_FAULT),
        (550, "5.7.25 no PTR record", Verdict.OUR_FAULT),
        (550, "5.7.26 unauthenticated mail", Verdict.OUR_FAULT),
        (550, "5.7.515 access denied, sending domain does not meet the level", Verdict.OUR_FAULT),
        (550, "5.7.606 banned sending address", Verdict.OUR_FAULT),
        (553, "5.1.8 bad sender's system address", Verdict.OUR_FAULT),
        (530, "5.7.0 authentication required", Verdict.OUR_FAULT),
        (554, "listed by Spamhaus", Verdict.OUR_FAULT),
        (521, "no mail here", Verdict.OUR_FAULT),
    ],
)
def test_what_an_answer_means(code: int, text: str, verdict: Verdict) -> None:
    """The enhanced status decides; without one the words do; nobody is suppressed for our fault."""
    assert refusals.classify(code, text) is verdict
