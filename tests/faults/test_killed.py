"""Kill senders at each boundary: no email is lost, and only emails in flight may be doubled."""

from datetime import datetime, timedelta

import pytest

from app.application import Application
from app.settings import Settings, UncertainPolicy
from tests.faults import checks
from tests.faults.conftest import CONNECTIONS
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import Death, Starter

MINUTE = timedelta(minutes=1)
ONE = {"smtp_connections": 1}
COMMANDS = ("connect", "ehlo", "mail", "rcpt", "data")
LEDGER = "app.delivery.ledger.sender_ledger:SenderLedger"
JOURNAL = "app.delivery.journal:Journal"


@pytest.fixture(params=list(UncertainPolicy))
def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Return settings with each policy for uncertain emails."""
    return settings.model_copy(update={"when_uncertain": request.param})


def check_aftermath(
    app: Application, relay: RelayProcess, now: datetime, names: list[str], doubts: int
) -> set[str]:
    """Check what the next sender finds a minute later, and return the readers of uncertain emails."""
    relay.reset()
    checks.restart(app, now + MINUTE)
    checks.check_conservation(app)
    doubtful = checks.doubtful(app)
    assert len(doubtful) <= doubts
    sent = {name for name, state in checks.states(app).items() if state == "sent"}
    assert sent <= set(relay.copies()) <= sent | doubtful
    checks.settle(app, now + 2 * MINUTE)
    checks.check_everybody(app, relay, names)
    return doubtful


@pytest.mark.parametrize("stage", COMMANDS)
def test_killed_before_a_body(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str
) -> None:
    """The email is unsent and pending again immediately."""
    names = checks.queue(app, now, 8)
    relay.on(stage, tell=True)
    sender = start_sender(now)
    relay.reached()
    sender.kill()
    relay.go_on()
    assert check_aftermath(app, relay, now, names, doubts=0) == set()
    assert all(not row.possibly_delivered for row in checks.rows(app).values())


@pytest.mark.parametrize("stage", COMMANDS[2:])
def test_killed_between_two_mails(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str
) -> None:
    """The sender dies at a command of the next email, when the previous reply may be on its way."""
    names = checks.queue(app, now, 8)
    relay.on(stage, tell=True, after=4)
    sender = start_sender(now, settings=ONE)
    relay.reached()
    sender.kill()
    relay.go_on()
    check_aftermath(app, relay, now, names, doubts=1)


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("stage", ["body", "end"])
def test_killed_in_flight(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str, takes: bool
) -> None:
    """The body was being sent or awaits its reply: only that email is uncertain."""
    names = checks.queue(app, now, 8)
    if stage == "body":
        relay.on("body", tell=True, then="close", to="reader4@example.org", times=1)
        takes = False
    else:
        relay.on("end", tell=True, takes=takes, to="reader4@example.org", times=1)
    sender = start_sender(now, settings=ONE)
    relay.reached()
    sender.kill()
    relay.go_on()
    assert check_aftermath(app, relay, now, names, doubts=1) == {"reader4"}
    assert len(relay.copies().get("reader4", [])) == takes + (app.settings.when_uncertain == "resend")
    assert [name for name, row in checks.rows(app).items() if row.possibly_delivered] == ["reader4"]


def test_killed_with_all_connections_in_flight(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """At most one email per connection is uncertain."""
    names = checks.queue(app, now, 8)
    relay.on("end", tell=True, takes=True, times=CONNECTIONS)
    sender = start_sender(now)
    in_flight = {relay.reached()["to"].partition("@")[0] for _ in range(CONNECTIONS)}
    sender.kill()
    for _ in in_flight:
        relay.go_on()
    assert check_aftermath(app, relay, now, names, doubts=CONNECTIONS) == in_flight


PLACES = [
    ("before the claim", Death(f"{LEDGER}._claim", "before", 1)),
    ("after the claim", Death(f"{LEDGER}._claim", "after", 1)),
    ("before the line that begins", Death(f"{JOURNAL}.begin", "before", 4)),
    ("after the line that begins", Death(f"{JOURNAL}.begin", "after", 4)),
    ("after 250, before its line", Death(f"{JOURNAL}.end", "before", 4)),
    ("after its line", Death(f"{JOURNAL}.end", "after", 4)),
    ("before folding", Death(f"{LEDGER}._write_results", "before", 1)),
    ("in the midst of folding", Death("app.delivery.ledger.sender_ledger:record_results", "after", 1)),
    ("after folding", Death(f"{LEDGER}._write_results", "after", 1)),
    ("after the journal forgot", Death(f"{JOURNAL}.acknowledge", "after", 1)),
]


@pytest.mark.parametrize("death", [pytest.param(death, id=name) for name, death in PLACES])
def test_killed_at_a_step_of_the_sender(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, death: Death
) -> None:
    """The sender dies right before or after steps that the relay cannot observe."""
    names = checks.queue(app, now, 8)
    start_sender(now, dies=death).dies()
    check_aftermath(app, relay, now, names, doubts=CONNECTIONS)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_with_a_synced_journal(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, when: str
) -> None:
    """Intended emails are distinguished from those that were started, because the machine is up."""
    names = checks.queue(app, now, 8)
    start_sender(now, dies=Death(f"{JOURNAL}.begin", when, 4), settings={"journal_fsync": True}).dies()
    check_aftermath(app, relay, now, names, doubts=CONNECTIONS)


@pytest.mark.parametrize(
    "death",
    [
        pytest.param(Death("app.delivery.ledger.recovery:replay_journal", "before"), id="before"),
        pytest.param(Death("app.delivery.ledger.recovery:replay_journal", "after"), id="not committed"),
        pytest.param(Death("app.delivery.journal:_remove", "before"), id="committed"),
        pytest.param(Death("app.delivery.journal:_remove", "after"), id="after"),
    ],
)
def test_killed_during_recovery(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, death: Death
) -> None:
    """The next recovery has the same result."""
    names = checks.queue(app, now, 8)
    relay.on("end", tell=True, takes=True, to="reader4@example.org", times=1)
    sender = start_sender(now, settings=ONE)
    relay.reached()
    sender.kill()
    relay.go_on()
    start_sender(now, dies=death).dies()
    assert check_aftermath(app, relay, now, names, doubts=1) == {"reader4"}
    assert len(relay.copies()["reader4"]) == 1 + (app.settings.when_uncertain == "resend")
