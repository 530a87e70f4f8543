"""Test a relay that refuses, disconnects or is slow at any stage."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from app import pipeline
from app.application import Application
from app.delivery import ledger
from app.delivery.smtp.timeouts import Timeouts
from app.settings import Settings, UncertainPolicy
from tests.faults import checks
from tests.faults.relay_process import STAGES, RelayProcess
from tests.faults.sender_process import Starter

pytestmark = pytest.mark.once

BEFORE_THE_BODY = STAGES[:-2]
FOR_ONE = STAGES[3:]  # from RCPT on, the relay knows whose email it is
ONE = {"smtp_connections": 1}
SOON = timedelta(minutes=10)


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("stage", STAGES)
def test_disconnect(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str, then: str
) -> None:
    """Wherever a connection ends, every reader gets one email, and emails in flight are uncertain."""
    names = checks.queue(app, now, 8)
    relay.on(stage, then=then, mute=True, times=1, after=1, takes=False)
    counts = start_sender(now).counts()
    assert sum(counts.values()) == 8
    assert counts.get("uncertain", 0) == (stage not in BEFORE_THE_BODY)
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


@pytest.mark.parametrize("policy", list(UncertainPolicy))
def test_accepted_without_a_reply(
    app: Application,
    settings: Settings,
    relay: RelayProcess,
    now: datetime,
    start_sender: Starter,
    policy: UncertainPolicy,
) -> None:
    """The email is sent again unchanged, or held."""
    names = checks.queue(app, now, 8)
    relay.on("end", then="reset", mute=True, takes=True, times=1, to="reader4@example.org")
    counts = start_sender(now, settings={"when_uncertain": policy}).counts()
    assert counts == {"sent": 7, "uncertain": 1}
    if policy is UncertainPolicy.HOLD:
        assert start_sender(now + SOON, settings={"when_uncertain": policy}).counts() == {}
        assert len(relay.copies()["reader4"]) == 1
        with app.db.write() as session:
            ledger.resend(session, checks.rows(app)["reader4"].id or 0, now + SOON)
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.copies()["reader4"]) == 2


@pytest.mark.parametrize("say", ["421 4.3.2 going down", "451 4.3.0 later"])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "body"])
def test_4xx(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str, say: str
) -> None:
    """A 4xx reply to one command delays no other email, and later every reader has one email."""
    names = checks.queue(app, now, 8)
    relay.on(stage, say=say, times=1, after=1)
    counts = start_sender(now).counts()
    assert counts["sent"] >= 7
    assert "uncertain" not in counts
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


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
    app: Application,
    relay: RelayProcess,
    now: datetime,
    start_sender: Starter,
    stage: str,
    say: str,
    suppresses: bool,
) -> None:
    """The email of one reader fails with the reply's text; the others are sent."""
    names = checks.queue(app, now, 8)
    relay.on(stage, say=say, to="reader4@example.org")
    assert start_sender(now).counts() == {"sent": 7, "failed": 1}
    assert say in checks.rows(app)["reader4"].reason
    checks.settle(app, now + SOON)
    assert set(relay.copies()) == set(names) - {"reader4"}
    assert len(relay.accepted()) == 7


@pytest.mark.parametrize(
    ("stage", "say"),
    [
        ("connect", "554 5.7.1 we do not know you"),
        ("mail", "550 5.7.1 sender address rejected"),
        ("rcpt", "550 5.7.25 no reverse DNS"),
        ("end", "550 5.7.26 this mail is unauthenticated"),
    ],
)
def test_sender_fault(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str, say: str
) -> None:
    """All sending pauses with the reply's text; after resuming, every reader gets one email."""
    names = checks.queue(app, now, 30)
    relay.on(stage, say=say)
    assert set(start_sender(now).counts()) <= {"deferred", "pending"}
    with app.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert say in pause.reason
        ledger.resume(session, now)
    relay.reset()
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 30


MANNERS: list[dict[str, Any]] = [
    {"glued": True},
    {"bytewise": True},
    {"glued": True, "bytewise": True},
    {"pipelining": False},
    {"pipelining": False, "bytewise": True},
]


@pytest.mark.parametrize("manners", MANNERS, ids=lambda manners: "-".join(manners))
def test_replies_split_or_joined(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, manners: dict[str, Any]
) -> None:
    """Several replies are in one packet, or each byte in its own, with and without PIPELINING."""
    names = checks.queue(app, now, 20)
    relay.talk(**manners)
    assert start_sender(now).counts() == {"sent": 20}
    checks.check_everybody(app, relay, names)
    checks.check_manners(relay)
    assert len(relay.accepted()) == 20


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in ("body", "ehlo")])
def test_duplicate_replies(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str, pipelining: bool
) -> None:
    """A reply may be taken for that to another command, but no undelivered email counts as sent."""
    names = checks.queue(app, now, 20)
    relay.talk(pipelining=pipelining)
    relay.on(stage, copies=2, times=2, after=2 if stage != "connect" else 0)
    start_sender(now, settings=ONE).counts()
    relay.reset()
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)


def test_greylisting(app: Application, relay: RelayProcess, now: datetime, start_sender: Starter) -> None:
    """Emails are deferred at the first attempt and accepted at the second."""
    names = checks.queue(app, now, 20)
    relay.talk(greylisting=True)
    assert set(start_sender(now).counts()) <= {"deferred", "pending"}
    with app.db.read() as session:
        assert ledger.pauses(session) == []
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 20


def test_connection_and_mail_limits(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """Connections are renewed after the allowed number of emails."""
    names = checks.queue(app, now, 60)
    relay.talk(pace=0.002)
    start_sender(now, settings={"smtp_messages_per_connection": 7}).counts()
    state = relay.state()
    assert state["most_open"] <= app.settings.smtp_connections
    assert state["connections"] >= 60 // 7
    checks.check_everybody(app, relay, names)


def test_second_run_has_nothing_to_send(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """It does not even connect."""
    names = checks.queue(app, now, 3)
    start_sender(now).counts()
    assert pipeline.send_now(app, now + SOON) == {}
    assert relay.state()["connections"] <= app.settings.smtp_connections
    checks.check_everybody(app, relay, names)


# --- what takes too long

PATIENT = partial(Timeouts, connect=1.0, mail=0.4, rcpt=0.4, data=0.4, end=4.0, quit=0.4)


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_late_reply_to_a_body(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, pipelining: bool
) -> None:
    """It is waited for longer than for other replies: a timeout would send the email twice."""
    names = checks.queue(app, now, 8)
    relay.talk(pipelining=pipelining)
    relay.on("end", late=1.2, times=2, after=1)
    assert start_sender(now, constants={"app.delivery.smtp.connection_pool:Timeouts": PATIENT}).counts() == {
        "sent": 8
    }
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("stage", STAGES)
def test_a_reply_that_never_comes(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str, pipelining: bool
) -> None:
    """After the timeout the others are served; only uncertain emails are sent twice."""
    names = checks.queue(app, now, 8)
    relay.talk(pipelining=pipelining)
    relay.on(stage, then="hang", mute=True, takes=True, times=1, after=1)
    impatient = partial(PATIENT, end=1.0)
    counts = start_sender(now, constants={"app.delivery.smtp.connection_pool:Timeouts": impatient}).counts()
    assert sum(counts.values()) == 8
    assert counts.get("uncertain", 0) == (stage not in BEFORE_THE_BODY)
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)


def test_timeouts_are_those_of_the_standard() -> None:
    """RFC 5321, 4.5.3.2: five minutes for a command, ten for the reply to a body."""
    assert Timeouts() == Timeouts(mail=300, rcpt=300, data=120, block=180, end=600)
