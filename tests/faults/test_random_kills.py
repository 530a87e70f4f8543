"""Kill senders with SIGKILL at random moments, hundreds of times."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from app.application import Application
from tests.faults import checks
from tests.faults.conftest import CONNECTIONS
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import PATIENCE, Starter

KILLS = {"sqlite": 500, "postgresql": 150}  # a sender on PostgreSQL takes longer to start
MINUTE = timedelta(minutes=1)
MAILS = 12  # waiting for each sender
LINES = 6000  # a little longer than sending these takes
Kill = Callable[[RelayProcess, Starter, datetime, random.Random], bool]


def kill_at_random_line(
    _relay: RelayProcess, start_sender: Starter, now: datetime, chance: random.Random
) -> bool:
    """Kill the sender at a random line of the sending path."""
    return start_sender(now, dies_at_line=chance.randrange(1, LINES)).is_killed_within(PATIENCE)


def kill_while_sending(
    relay: RelayProcess, start_sender: Starter, now: datetime, chance: random.Random
) -> bool:
    """Kill the sender some milliseconds after the first connection to the relay."""
    relay.on("connect", tell=True, times=1)
    sender = start_sender(now)
    relay.reached()
    relay.go_on()
    return sender.is_killed_within(chance.uniform(0, 0.04))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kill", [kill_at_random_line, kill_while_sending])
def test_random_kills(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, kill: Kill
) -> None:
    """Each sender is killed a minute after the previous one, with twelve emails to send."""
    chance = random.Random(4)  # noqa: S311 - a test must do the same again
    relay.talk(pace=0.004)
    kills, names, ever_in_doubt = 0, list[str](), set[str]()
    while kills < KILLS[app.db.url.get_backend_name()] // 2:
        now += MINUTE
        names += checks.queue(app, now, MAILS - len(checks.waiting(app)), first=len(names))
        before = checks.doubtful(app)
        kills += kill(relay, start_sender, now, chance)
        checks.restart(app, now)
        checks.check_conservation(app)
        in_doubt = checks.doubtful(app) - before
        assert len(in_doubt) <= CONNECTIONS
        ever_in_doubt |= in_doubt
    checks.settle(app, now + MINUTE)
    checks.check_everybody(app, relay, names)
    assert len(ever_in_doubt) > kills / 10, "too few died with an email in flight to tell anything"
