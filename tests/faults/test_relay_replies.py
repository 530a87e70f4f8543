"""A relay that refuses, disconnects or is slow at any stage: what each reader gets."""

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
from tests.faults import checks
from tests.faults.relay_process import STAGES, Sink
from tests.faults.sender_process import Starter

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
    """Wherever a connection ends, everybody gets one mail, and mails in flight are uncertain."""
    names = checks.queue(app, now, 8)
    relay.on(stage, then=then, mute=True, times=1, after=1, takes=False)
    counts = start(now).counts()
    assert sum(counts.values()) == 8
    assert counts.get("uncertain", 0) == (stage not in BEFORE_THE_BODY)
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.taken()) == 8


@pytest.mark.parametrize("policy", list(UncertainPolicy))
def test_accepted_but_not_answered(
    app: Application, settings: Settings, relay: Sink, now: datetime, start: Starter, policy: UncertainPolicy
) -> None:
    """The relay disconnects before its reply: the mail is sent again unchanged, or held."""
    names = checks.queue(app, now, 8)
    relay.on("end", then="reset", mute=True, takes=True, times=1, to="reader4@example.org")
    counts = start(now, settings={"uncertain": policy}).counts()
    assert counts == {"sent": 7, "uncertain": 1}
    if policy is UncertainPolicy.HOLD:
        assert start(now + SOON, settings={"uncertain": policy}).counts() == {}
        assert len(relay.copies()["reader4"]) == 1
        with app.db.write() as session:
            ledger.resend(session, checks.rows(app)["reader4"].id or 0, now + SOON)
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.copies()["reader4"]) == 2


@pytest.mark.parametrize("say", ["421 4.3.2 going down", "451 4.3.0 later"])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "body"])
def test_4xx(app: Application, relay: Sink, now: datetime, start: Starter, stage: str, say: str) -> None:
    """4xx to one command delays nobody else, and later everybody has one mail."""
    names = checks.queue(app, now, 8)
    relay.on(stage, say=say, times=1, after=1)
    counts = start(now).counts()
    assert counts["sent"] >= 7
    assert "uncertain" not in counts
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
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
def test_5xx(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, say: str, suppresses: bool
) -> None:
    """The mail of one reader fails with the reply's text; the others get theirs."""
    names = checks.queue(app, now, 8)
    relay.on(stage, say=say, to="reader4@example.org")
    assert start(now).counts() == {"sent": 7, "failed": 1}
    assert say in checks.rows(app)["reader4"].reason
    checks.settle(app, now + SOON)
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
    """All sending pauses with the reply's text; after resuming, everybody gets one mail."""
    names = checks.queue(app, now, 30)
    relay.on(stage, say=say)
    assert set(start(now).counts()) <= {"deferred", "pending"}
    with app.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert say in pause.reason
        ledger.resume(session)
    relay.behave()
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.taken()) == 30


MANNERS: list[dict[str, Any]] = [
    {"glued": True},
    {"bytewise": True},
    {"glued": True, "bytewise": True},
    {"pipelining": False},
    {"pipelining": False, "bytewise": True},
]


@pytest.mark.parametrize("manners", MANNERS, ids=lambda manners: "-".join(manners))
def test_replies_in_any_pieces(
    app: Application, relay: Sink, now: datetime, start: Starter, manners: dict[str, Any]
) -> None:
    """Several replies in one packet, or each byte in its own; with and without PIPELINING."""
    names = checks.queue(app, now, 20)
    relay.talk(**manners)
    assert start(now).counts() == {"sent": 20}
    checks.check_everybody(app, relay, names)
    checks.check_manners(relay)
    assert len(relay.taken()) == 20


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in ("body", "ehlo")])
def test_two_replies_to_one_command(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, pipelining: bool
) -> None:
    """A reply may be taken for that to another command: no mail counts as sent that did not arrive."""
    names = checks.queue(app, now, 20)
    relay.talk(pipelining=pipelining)
    relay.on(stage, copies=2, times=2, after=2 if stage != "connect" else 0)
    start(now, settings=ONE).counts()
    relay.behave()
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)


def test_greylisting(app: Application, relay: Sink, now: datetime, start: Starter) -> None:
    """Deferred at the first attempt, everybody gets their mail at the second."""
    names = checks.queue(app, now, 20)
    relay.talk(greylisting=True)
    assert set(start(now).counts()) <= {"deferred", "pending"}
    with app.db.read() as session:
        assert ledger.pauses(session) == []
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.taken()) == 20


def test_no_more_connections_than_allowed(
    app: Application, relay: Sink, now: datetime, start: Starter
) -> None:
    """Nor more mails per connection: after those it is renewed."""
    names = checks.queue(app, now, 60)
    relay.talk(pace=0.002)
    start(now, settings={"smtp_messages_per_connection": 7}).counts()
    state = relay.state()
    assert state["most_open"] <= app.settings.smtp_connections
    assert state["connections"] >= 60 // 7
    checks.check_everybody(app, relay, names)


def test_a_second_run_finds_nothing_to_do(
    app: Application, relay: Sink, now: datetime, start: Starter
) -> None:
    """It does not even connect."""
    names = checks.queue(app, now, 3)
    start(now).counts()
    assert pipeline.send_pending(app, now + SOON) == {}
    assert relay.state()["connections"] <= app.settings.smtp_connections
    checks.check_everybody(app, relay, names)


# --- what takes too long

PATIENT = partial(Timeouts, connect=1.0, mail=0.4, rcpt=0.4, data=0.4, end=4.0, quit=0.4)


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_late_reply_to_a_body(
    app: Application, relay: Sink, now: datetime, start: Starter, pipelining: bool
) -> None:
    """It is waited for longer than for other replies: a timeout would send the mail twice."""
    names = checks.queue(app, now, 8)
    relay.talk(pipelining=pipelining)
    relay.on("end", late=1.2, times=2, after=1)
    assert start(now, constants={"app.delivery.smtp.connection_pool:Timeouts": PATIENT}).counts() == {
        "sent": 8
    }
    checks.check_everybody(app, relay, names)
    assert len(relay.taken()) == 8


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("stage", STAGES)
def test_a_reply_that_never_comes(
    app: Application, relay: Sink, now: datetime, start: Starter, stage: str, pipelining: bool
) -> None:
    """After the timeout the others are served; only uncertain mails are sent twice."""
    names = checks.queue(app, now, 8)
    relay.talk(pipelining=pipelining)
    relay.on(stage, then="hang", mute=True, takes=True, times=1, after=1)
    impatient = partial(PATIENT, end=1.0)
    counts = start(now, constants={"app.delivery.smtp.connection_pool:Timeouts": impatient}).counts()
    assert sum(counts.values()) == 8
    assert counts.get("uncertain", 0) == (stage not in BEFORE_THE_BODY)
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)


def test_timeouts_are_those_of_the_standard() -> None:
    """RFC 5321, 4.5.3.2: five minutes for a command, ten for the reply to a body."""
    assert Timeouts() == Timeouts(mail=300, rcpt=300, data=120, block=180, end=600)
