"""Kill a worker of a fleet in the middle of sending: nothing is lost, and no job is stranded."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from app.application import Application
from app.settings import Settings
from app.storage import worker_registry
from tests.faults import checks
from tests.faults.conftest import CONNECTIONS
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import Starter
from tests.support.postgres_server import PostgresServer

MAILS, KILLS = 600, 2
# Small batches, so that all processes take part.
CONSTANTS = {"app.delivery.ledger.claims:BATCH_SIZE": 20, "app.delivery.sender:FIRST_BATCH": 10}


@pytest.fixture
def settings(settings: Settings, postgres: PostgresServer) -> Settings:
    """Return settings with a PostgreSQL database of its own."""
    return settings.model_copy(update={"database_url": postgres.create_database()})


def wait_until(condition: Callable[[], Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def count_sent(app: Application) -> int:
    return sum(row.state == "sent" for row in checks.rows(app).values())


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_killed_workers_of_a_fleet(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """Two workers and two web processes with a scheduler send; both workers are killed in the middle.

    The others send the rest, recover the emails of the dead, and rescue their jobs at the next full minute.
    """
    served = [start_sender(now, serves=True, constants=CONSTANTS) for _ in range(2)]
    killed = [start_sender(now, works=True, constants=CONSTANTS) for _ in range(KILLS)]
    wait_until(lambda: count_workers(app) == 4, 100)
    names = checks.queue(app, now, MAILS)
    relay.talk(pace=0.03)
    wait_until(lambda: len(lease_owners(app)) == 4, 100)  # they look for work at the next full minute
    for number, worker in enumerate(killed):
        wait_until(lambda number=number: count_sent(app) > (number + 1) * MAILS // 4, 60)
        worker.kill()
    wait_until(lambda: count_sent(app) == MAILS, 150)
    wait_until(lambda: count_running_jobs(app) == 0, 150)  # at the second full minute at the latest
    doubtful = {name for name, row in checks.rows(app).items() if row.possibly_delivered}
    assert len(doubtful) <= KILLS * CONNECTIONS
    with app.db.read() as session:
        assert len(worker_registry.statuses(session)) == 4, "the dead are still listed"
    for process in served:
        assert process.is_ended_by_sigterm()
    with app.db.read() as session:
        assert len(worker_registry.statuses(session)) == KILLS
    checks.check_everybody(app, relay, names)


def lease_owners(app: Application) -> set[str]:
    return {row.lease_owner for row in checks.rows(app).values() if row.lease_owner}


def count_workers(app: Application) -> int:
    with app.db.read() as session:
        return len(worker_registry.statuses(session))


def count_running_jobs(app: Application) -> int:
    """Return the number of jobs that run, or whose process died."""
    with app.db.read() as session:
        return sum(each.count for each in worker_registry.job_counts(session) if each.state == "running")
