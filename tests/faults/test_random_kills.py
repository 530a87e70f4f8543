"""kill -9 at any moment, hundreds of times."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from app.pipeline import App
from app.settings import Settings
from tests.faults import reckoning
from tests.faults.conftest import CONNECTIONS
from tests.faults.senders import Starter
from tests.faults.sink import Sink

KILLS = {"sqlite": 500, "postgresql": 250}  # a sender on PostgreSQL takes longer to begin
MINUTE = timedelta(minutes=1)
NEW = 12  # mails for each sender


@pytest.mark.timeout(300)
def test_killed_at_any_moment(
    app: App, settings: Settings, relay: Sink, now: datetime, start: Starter
) -> None:
    """Sender after sender dies, each a minute after the other: at a random line, or after a random while."""
    chance = random.Random(4)  # noqa: S311 - a test must do the same again
    relay.talk(pace=0.004)
    kills, names = 0, list[str]()
    while kills < KILLS[app.db.url.get_backend_name()]:
        now += MINUTE
        names += reckoning.queue(app, now, NEW, first=len(names))
        before = reckoning.doubtful(app)
        kills += _kill(start, now, chance)
        reckoning.restart(app, now)
        reckoning.check_conservation(app)
        assert len(reckoning.doubtful(app) - before) <= CONNECTIONS
    reckoning.settle(app, now + MINUTE)
    reckoning.check_everybody(app, relay, names)


def _kill(start: Starter, now: datetime, chance: random.Random) -> bool:
    if chance.random() < 0.5:
        return start(now, dies_at_line=chance.randrange(1, 4000)).is_killed_within(30)
    return start(now).is_killed_within(chance.uniform(0.02, 0.12))
