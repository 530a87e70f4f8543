"""A relay that refuses, breaks off, is slow or mad, at any stage: what each reader gets of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from app import pipeline
from app.application import Application
from app.delivery import ledger
from app.delivery.smtp.connection import Timeouts
from app.settings import Settings, UncertainPolicy
from tests.faults import reckoning
from tests.faults.senders import Starter
from tests.faults.sink import STAGES, Sink

pytestmark = pytest.mark.once

BEFORE_THE_BODY = STAGES[:-2]
FOR_ONE = STAGES[3:]  # from RCPT on, the relay knows whose mail it is
ONE = {"smtp_connections": 1}
SOON = timedelta(minutes=10)


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("stage", STAGES)
def test_broken_off(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, then: str
) -> None:
    """Wherever a connection ends, everybody gets one mail; what may have arrived is told from the rest."""
    names = reckoning.queue(app, now, 8)
    relay.on(stage, then=then, mute=True, times=1, after=1, takes=False)
    counts = start(now).counts()
    assert sum(counts.values()) == 8
    assert counts.get("uncertain", 0) == (stage not in BEFORE_THE_BODY)
    reckoning.settle(app, now + SOON)
    reckoning.check_everybody(app, relay, names)
    assert len(relay.taken()) == 8


@pytest.mark.parametrize("policy", list(UncertainPolicy))
def test_taken_but_not_answered(
    app: Application, settings: Settings, relay: Sink, now: datetime, start: Starter, policy: UncertainPolicy
) -> None:
    """It takes the mail and breaks off before it says so: sent again unchanged, or held for the operator."""
    names = reckoning.queue(app, now, 8)
    relay.on("end", then="reset", mute=True, takes=True, times=1, to="reader4@example.org")
    counts = start(now, settings={"uncertain": policy}).counts()
    assert counts == {"sent": 7, "uncertain": 1}
    if policy is UncertainPolicy.HOLD:
        assert start(now + SOON, settings={"uncertain": policy}).counts() == {}
        assert len(relay.copies()["reader4"]) == 1
        with app.db.write() as session:
            ledger.resend(session, reckoning.rows(app)["reader4"].id or 0, now + SOON)
    reckoning.settle(app, now + SOON)
    reckoning.check_everybody(app, relay, names)
    assert len(relay.copies()["reader4"]) == 2


@pytest.mark.parametrize("say", ["421 4.3.2 going down", "451 4.3.0 later"])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "body"])
def test_later(app: Application, relay: Sink, now: datetime, start: Starter, stage: str, say: str) -> None:
    """4xx to one command, in the middle: nobody else is held up, and later everybody has one mail."""
    names = reckoning.queue(app, now, 8)
    relay.on(stage, say=say, times=1, after=1)
    counts = start(now).counts()
    assert counts["sent"] >= 7
    assert "uncertain" not in counts
    reckoning.settle(app, now + SOON)
    reckoning.check_everybody(app, relay, names)
    assert len(relay.taken()) == 8


@pytest.mark.parametrize(
    ("say", "suppresses"),
    [
        ("550 5.1.1 no such user", True),
        ("552 5.2.2 mailbox full", False),
        ("554 5.6.0 not this one", False),
        ("550 no", False),
    ],
)
@pytest.mark.parametrize("stage", ["rcpt", "data", "end"])
def test_refused(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, say: str, suppresses: bool
) -> None:
    """5xx to one reader's mail: this one failed, with these words, and the others have theirs."""
    names = reckoning.queue(app, now, 8)
    relay.on(stage, say=say, to="reader4@example.org")
    assert start(now).counts() == {"sent": 7, "failed": 1}
    assert say in reckoning.rows(app)["reader4"].reason
    reckoning.settle(app, now + SOON)
    assert set(relay.copies()) == set(names) - {"reader4"}
    assert len(relay.taken()) == 7


@pytest.mark.parametrize(
    ("stage", "say"),
    [
        ("connect", "554 5.7.1 we do not know you"),
        ("mail", "550 5.7.1 sender address rejected"),
        ("rcpt", "550 5.7.25 no reverse DNS"),
        ("end", "550 5.7.26 this mail is unauthenticated"),
    ],
)
def test_our_own_fault(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, say: str
) -> None:
    """All sending pauses, with the relay's words; when it is mended, everybody gets one mail."""
    names = reckoning.queue(app, now, 30)
    relay.on(stage, say=say)
    assert set(start(now).counts()) <= {"deferred", "pending"}
    with app.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert say in pause.reason
        ledger.resume(session)
    relay.behave()
    reckoning.settle(app, now + SOON)
    reckoning.check_everybody(app, relay, names)
    assert len(relay.taken()) == 30


MANNERS: list[dict[str, Any]] = [
    {"glued": True},
    {"bytewise": True},
    {"glued": True, "bytewise": True},
    {"pipelining": False},
    {"pipelining": False, "bytewise": True},
]


@pytest.mark.parametrize("manners", MANNERS, ids=lambda manners: "-".join(manners))
def test_answers_in_all_pieces(
    app: Application, relay: Sink, now: datetime, start: Starter, manners: dict[str, Any]
) -> None:
    """Several answers in one packet, or each byte in its own; with and without PIPELINING."""
    names = reckoning.queue(app, now, 20)
    relay.talk(**manners)
    assert start(now).counts() == {"sent": 20}
    reckoning.check_everybody(app, relay, names)
    reckoning.check_manners(relay)
    assert len(relay.taken()) == 20


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in ("body", "ehlo")])
def test_two_answers_to_one_command(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, pipelining: bool
) -> None:
    """Out of pace, an answer can be taken for another's: no mail counts as sent that did not arrive."""
    names = reckoning.queue(app, now, 20)
    relay.talk(pipelining=pipelining)
    relay.on(stage, copies=2, times=2, after=2 if stage != "connect" else 0)
    start(now, settings=ONE).counts()
    relay.behave()
    reckoning.settle(app, now + SOON)
    reckoning.check_everybody(app, relay, names)


def test_greylisting(app: Application, relay: Sink, now: datetime, start: Starter) -> None:
    """Put off at the first try, everybody gets theirs at the second; patience is no failure."""
    names = reckoning.queue(app, now, 20)
    relay.talk(greylisting=True)
    assert set(start(now).counts()) <= {"deferred", "pending"}
    with app.db.read() as session:
        assert ledger.pauses(session) == []
    reckoning.settle(app, now + SOON)
    reckoning.check_everybody(app, relay, names)
    assert len(relay.taken()) == 20


def test_no_more_connections_than_allowed(
    app: Application, relay: Sink, now: datetime, start: Starter
) -> None:
    """Nor more mails over one than allowed: after those it is renewed."""
    names = reckoning.queue(app, now, 60)
    relay.talk(pace=0.002)
    start(now, settings={"smtp_messages_per_connection": 7}).counts()
    state = relay.state()
    assert state["most_open"] <= app.settings.smtp_connections
    assert state["connections"] >= 60 // 7
    reckoning.check_everybody(app, relay, names)


def test_a_second_run_finds_nothing_to_do(
    app: Application, relay: Sink, now: datetime, start: Starter
) -> None:
    """Not even a connection is made."""
    names = reckoning.queue(app, now, 3)
    start(now).counts()
    assert pipeline.send_pending(app, now + SOON) == {}
    assert relay.state()["connections"] <= app.settings.smtp_connections
    reckoning.check_everybody(app, relay, names)


# --- what takes too long

PATIENT = partial(Timeouts, connect=1.0, mail=0.4, rcpt=0.4, data=0.4, end=4.0, quit=0.4)


@pytest.mark.parametrize("pipelining", [True, False])
def test_an_answer_to_a_body_that_comes_late(
    app: Application, relay: Sink, now: datetime, start: Starter, pipelining: bool
) -> None:
    """It is waited for, longer than for any other answer: who gives up here sends the mail twice."""
    names = reckoning.queue(app, now, 8)
    relay.talk(pipelining=pipelining)
    relay.on("end", late=1.2, times=2, after=1)
    assert start(now, constants={"app.delivery.smtp.connection_pool:Timeouts": PATIENT}).counts() == {
        "sent": 8
    }
    reckoning.check_everybody(app, relay, names)
    assert len(relay.taken()) == 8


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("stage", STAGES)
def test_an_answer_that_never_comes(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, pipelining: bool
) -> None:
    """Patience ends, the others are served, and everybody gets one mail; twice only what may be there."""
    names = reckoning.queue(app, now, 8)
    relay.talk(pipelining=pipelining)
    relay.on(stage, then="hang", mute=True, takes=True, times=1, after=1)
    impatient = partial(PATIENT, end=1.0)
    counts = start(now, constants={"app.delivery.smtp.connection_pool:Timeouts": impatient}).counts()
    assert sum(counts.values()) == 8
    assert counts.get("uncertain", 0) == (stage not in BEFORE_THE_BODY)
    reckoning.settle(app, now + SOON)
    reckoning.check_everybody(app, relay, names)


def test_patience_is_what_the_standard_asks_for() -> None:
    """RFC 5321, 4.5.3.2: five minutes for a command, ten for a body's answer."""
    assert Timeouts() == Timeouts(mail=300, rcpt=300, data=120, block=180, end=600)
