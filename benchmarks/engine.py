"""Measure what handing out jobs costs: procrastinate beside APScheduler in every process, on PostgreSQL.

    python -m benchmarks.engine [--mails 10000] [--rounds 3] [--workers 1 2 4] [--idle 120] [--json]

Before procrastinate, each process ran every job each minute with APScheduler, and claimed emails by itself.
Both engines send the same emails, in turns, from the same ledger to a relay that accepts everything. At the
start of a round, APScheduler starts `send` in every process, and procrastinate in one, which recruits others.

The CPU time includes the workers and all processes of PostgreSQL, but not the relay. `idle` is what two
workers use in a minute without work. An empty job does nothing, and is deferred by the one before. Jobs that
would use the network are left out.
"""

import argparse
import itertools
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import text
from sqlmodel import col, func, select

from app import main as application
from app import pipeline
from app.application import Application
from app.delivery.ledger.claims import BATCH_SIZE
from app.digests import planning
from app.jobs import schedule, scheduler, worker
from app.storage import schema, worker_registry
from app.storage.database import Database
from app.storage.models import Delivery, DeliveryState
from benchmarks import endtoend, scale, sending, workload

ENGINES = ("apscheduler", "procrastinate")
LOCAL_JOBS = (pipeline.send, pipeline.plan, pipeline.sign_ahead, pipeline.answer_requests)
SETTLE_SECONDS = 3.0
EMPTY_JOBS = 300
_RESET = text("""
    UPDATE delivery SET state = 'pending', next_attempt_at = now(), give_up_at = NULL, sent_at = NULL,
        attempts = 0, lease_owner = '', lease_until = NULL
""")


# --- a worker process


def do_nothing(_app: Application, _now: datetime) -> None:
    """Wait until the next job is deferred: see `_any_left`."""
    time.sleep(0.02)


_left = itertools.count(EMPTY_JOBS - 1, -1)


def _any_left(_app: Application, _now: datetime) -> bool:
    """Return whether to defer `do_nothing` once more, as a process does that recruits another."""
    return next(_left) > 0


def _work(engine: str, settings: dict[str, Any], orders: Connection) -> None:
    structlog.configure(processors=[endtoend._drop])
    defaults = workload.settings(Path(settings["journal_dir"]))
    app = application.build(defaults.model_copy(update=settings))
    empty = schedule.Job(do_nothing, "0", "0", lane=schedule.Lane.SEND, is_shared=True, has_more=_any_left)
    schedule.JOBS = (*(job for job in schedule.JOBS if job.work in LOCAL_JOBS), empty)
    running: Any = {"apscheduler": scheduler, "procrastinate": worker}[engine].running
    with worker_registry.registered(app.db), running(app) as background:
        orders.send("ready")
        while (name := orders.recv()) != "stop":
            if engine == "procrastinate":
                background.defer(name)
            else:
                background.modify_job(name, next_run_time=datetime.now(UTC))
    app.db.dispose()
    orders.send("ended")


class Fleet:
    """Worker processes of one engine."""

    def __init__(self, engine: str, count: int, settings: dict[str, Any]) -> None:
        self.engine = engine
        context, self._pipes, self.processes = multiprocessing.get_context("spawn"), [], []
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            process = context.Process(target=_work, args=(engine, settings, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self.processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def order(self, name: str) -> None:
        """Start a job as the engine does at a full minute."""
        for pipe in self._pipes if self.engine == "apscheduler" else self._pipes[:1]:
            pipe.send(name)

    def stop(self) -> None:
        for pipe in self._pipes:
            pipe.send("stop")
        for process in self.processes:
            process.join()

    def cpu(self) -> float:
        """Return the CPU seconds that the processes have used."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13]))
        return ticks / scale.CLOCK_TICK


@contextmanager
def run_fleet(engine: str, count: int, settings: dict[str, Any]) -> Iterator[Fleet]:
    fleet = Fleet(engine, count, settings)
    time.sleep(SETTLE_SECONDS)
    yield fleet
    fleet.stop()


# --- the measurements


def prepare(settings: dict[str, Any], mails: int) -> None:
    """Fill a ledger with planned digests. Nobody is due again."""
    app = scale._build(settings)
    scale.fill(app, mails, 1, spread=False)
    planning.plan(app.digest_context, scale.FIRST_HOUR - scale.AHEAD)
    with app.db.write() as session:
        session.execute(text("UPDATE subscriber SET next_due_at = now() + interval '1 year'"))
    app.db.dispose()


def measure_round(db: Database, fleet: Fleet, server: int) -> dict[str, float]:
    """Send all emails of the ledger once. Return the seconds, and the CPU µs per email by kind of process."""
    with db.write() as session:
        session.execute(_RESET)
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE delivery"))
    before, database_before, began = fleet.cpu(), scale.server_cpu(server), time.monotonic()
    fleet.order("send")
    while _anything_unsent(db):
        time.sleep(0.2)
    seconds = time.monotonic() - began
    time.sleep(0.5)  # for the jobs to end
    used, database = fleet.cpu() - before, scale.server_cpu(server) - database_before
    with db.read() as session:
        sent = Delivery.state == DeliveryState.SENT
        mails = session.exec(select(func.count()).select_from(Delivery).where(sent)).one()
    figures = {"workers_us": used, "server_us": database, "all_us": used + database}
    return {name: value / mails * 1e6 for name, value in figures.items()} | {"seconds": seconds}


def _anything_unsent(db: Database) -> bool:
    unsent = col(Delivery.state).in_((DeliveryState.PENDING, DeliveryState.CLAIMED, DeliveryState.COMMITTING))
    with db.read() as session:
        return session.exec(select(Delivery.id).where(unsent).limit(1)).first() is not None


def compare(
    db: Database, settings: dict[str, Any], server: int, counts: list[int], rounds: int
) -> list[dict[str, Any]]:
    """Measure both engines in turns with each number of workers. The first round of a fleet warms it up."""
    rows = []
    for count in counts:
        figures: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
        for turn in range(rounds):
            for engine in ENGINES if turn % 2 == 0 else reversed(ENGINES):
                with run_fleet(engine, count, settings) as fleet:
                    measure_round(db, fleet, server)
                    figures[engine] += [measure_round(db, fleet, server) for _ in range(2)]
        rows += [
            {"engine": engine, "processes": count, **_summarize(measured)}
            for engine, measured in figures.items()
        ]
    return rows


def _summarize(measured: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians of all rounds, and the lowest and highest CPU time."""
    medians = {name: round(statistics.median(each[name] for each in measured), 1) for name in measured[0]}
    totals = [each["all_us"] for each in measured]
    return medians | {"lowest_us": round(min(totals), 1), "highest_us": round(max(totals), 1)}


def measure_jobs(db: Database, settings: dict[str, Any], server: int) -> list[dict[str, Any]]:
    """Return the CPU µs of a job that does nothing, and its share per email if each job sends one batch."""
    with run_fleet("procrastinate", 1, settings) as fleet:
        before, database_before = fleet.cpu(), scale.server_cpu(server)
        deferred = text("SELECT last_value FROM procrastinate_jobs_id_seq")
        with db.read() as session:
            first = session.execute(deferred).scalar_one()
        fleet.order("do_nothing")
        last = first
        while last < first + EMPTY_JOBS:
            time.sleep(0.2)
            with db.read() as session:
                last = session.execute(deferred).scalar_one()
        workers_us = (fleet.cpu() - before) / EMPTY_JOBS * 1e6
        server_us = (scale.server_cpu(server) - database_before) / EMPTY_JOBS * 1e6
    total = workers_us + server_us
    row = {"workers_us": workers_us, "server_us": server_us, "a_mail_us": total / BATCH_SIZE}
    return [{name: round(value, 1) for name, value in row.items()}]


def measure_idle(settings: dict[str, Any], server: int, seconds: int) -> list[dict[str, Any]]:
    """Return the CPU milliseconds that two workers and the server use in a minute without work."""
    rows = []
    for engine in ENGINES:
        with run_fleet(engine, 2, settings) as fleet:
            before, database_before = fleet.cpu(), scale.server_cpu(server)
            time.sleep(seconds)
            used = {
                "workers_ms": fleet.cpu() - before,
                "server_ms": scale.server_cpu(server) - database_before,
            }
            rows.append(
                {"engine": engine} | {name: round(value / seconds * 60_000) for name, value in used.items()}
            )
    return rows


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, scale.run_relay() as port:
        folder = Path(name)
        folder.chmod(0o755)  # the server may run as another user
        with scale.run_database("postgresql", folder) as (url, server):
            schema.migrate(url)
            (folder / "journal").mkdir()
            settings = {
                "database_url": url,
                "journal_dir": str(folder / "journal"),
                "smtp_host": "127.0.0.1",
                "smtp_port": port,
                "dkim_keys": (),
                "scheduler": False,
            }
            scale._alone(prepare, settings, arguments.mails)
            db = Database(url)
            result = {
                "rounds": compare(db, settings, server, arguments.workers, arguments.rounds),
                "empty job": measure_jobs(db, settings, server),
                "idle": measure_idle(settings, server, arguments.idle) if arguments.idle else [],
            }
            db.dispose()
            return result


def show(result: dict[str, Any], arguments: argparse.Namespace) -> None:
    print("{cores} cores ({processor}), Python {python}, load {load:.1f}".format(**sending.machine()))
    print(f"{arguments.mails:,} emails a round; CPU an email, medians of {2 * arguments.rounds} rounds")
    for name, rows in result.items():
        print(f"\n{name}")
        for cells in [[*rows[0]], *([*row.values()] for row in rows)] if rows else []:
            print("".join(f"{cell:>15}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mails", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--idle", type=int, default=120, help="seconds without work; 0: do not measure")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = parser.parse_args()
    result = run(arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result, arguments)


if __name__ == "__main__":
    main()
