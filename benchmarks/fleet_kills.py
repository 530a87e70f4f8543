"""Kill the processes of a fleet at random while it sends, and check what everybody received.

    python -m benchmarks.fleet_kills [--readers 50000] [--kills 300] [--crashes 2] [--seed 1]

On PostgreSQL with its default durability, two web processes with a scheduler and four workers send to a relay
that logs each email before it accepts it. Processes are killed with `kill -9` at random moments and replaced.
PostgreSQL is killed `--crashes` times, all its processes at once, and started again. Once, the relay accepts
nothing for a minute, and once a worker's disk is full, so that it can write no journal. At the end, each
reader must have received one digest, or the ledger must say that it may have arrived twice. No job may be
left running.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from app import main as application
from app.application import Application
from app.storage import schema, worker_registry
from benchmarks import scale, workload
from tests.faults import checks, relay_process, sender_process
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import Sender, Starter

SERVERS, WORKERS, CONNECTIONS = 2, 4, 3
PAUSE_SECONDS = 60.0
QUEUED_AT_ONCE = 500  # digests in a transaction
JOURNAL_BYTES = 4096  # that the process with a full disk may write
CONSTANTS = {"app.delivery.ledger.claims:BATCH_SIZE": 50, "app.delivery.sender:FIRST_BATCH": 20}
GIVE_UP_AFTER = 1800.0  # seconds without progress


class Fleet:
    """The processes that send. A killed one is replaced by one of the same kind."""

    def __init__(self, start: Starter, chance: random.Random) -> None:
        self._start, self._chance = start, chance
        self.processes = [(self._begin(serves), serves) for serves in [True] * SERVERS + [False] * WORKERS]
        self.kills = 0

    def _begin(self, serves: bool, **limits: int) -> Sender:
        kind = {"serves": True} if serves else {"works": True}
        return self._start(checks.NOON, constants=CONSTANTS, **kind, **limits)

    def kill_one(self) -> None:
        place = self._chance.randrange(len(self.processes))
        process, serves = self.processes[place]
        process.kill()
        self.kills += 1
        self.processes[place] = self._begin(serves), serves

    def fill_the_disk_of_one(self) -> None:
        """Replace a worker by one that can write no journal."""
        self.processes[-1][0].kill()
        self.kills += 1
        self.processes[-1] = self._begin(False, largest_file=JOURNAL_BYTES), False

    def replace_the_dead(self) -> int:
        """Replace the processes that ended by themselves. Return how many."""
        dead = [number for number, (each, _) in enumerate(self.processes) if not each.process.is_alive()]
        for number in dead:
            serves = self.processes[number][1]
            self.processes[number] = self._begin(serves), serves
        return len(dead)


class Postgres:
    """A running PostgreSQL server, which `crash` kills and starts again."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._data = url, folder / "pgdata"
        self._restarted: subprocess.Popen[bytes] | None = None

    def crash(self) -> None:
        """Kill all its processes, and start it with the same command."""
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        command = Path(f"/proc/{postmaster}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        owner = Path(f"/proc/{postmaster}").stat()
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for process in (postmaster, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        while Path(f"/proc/{postmaster}/cmdline").exists() and _is_running(postmaster):
            time.sleep(0.05)
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):  # they name a process that is not reaped yet
            (self._data / lock).unlink(missing_ok=True)
        self._restarted = subprocess.Popen(  # noqa: S603 - the command of the server that was running
            command, user=owner.st_uid, group=owner.st_gid, cwd=self._data,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while True:
            with suppress(DBAPIError), create_engine(self._url, poolclass=NullPool).connect():
                return
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server if `crash` has started it."""
        if self._restarted:
            self._restarted.send_signal(signal.SIGINT)
            self._restarted.wait()


def _is_running(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def run(arguments: argparse.Namespace, folder: Path) -> list[str]:
    """Run the benchmark, print the tally, and return the problems."""
    chance = random.Random(arguments.seed)  # noqa: S311 - no secret
    (folder / "relay").mkdir()
    with (
        scale.run_database("postgresql", folder) as (url, _),
        relay_process.run_relay(folder / "relay") as relay,
    ):
        settings = workload.settings(folder).model_copy(
            update={"database_url": url, "smtp_port": relay.port, "smtp_connections": CONNECTIONS}
        )
        schema.migrate(url)
        app, postgres = application.build(settings), Postgres(url, folder)
        try:
            names: list[str] = []
            for first in range(0, arguments.readers, QUEUED_AT_ONCE):
                count = min(QUEUED_AT_ONCE, arguments.readers - first)
                names += checks.queue(app, checks.NOON, count, first)
            began = time.monotonic()
            with sender_process.starter(settings) as start:
                fleet = _kill_while_sending(app, relay, postgres, start, chance, arguments)
                _wait_for_the_end(app, fleet)
            print(f"{time.monotonic() - began:,.0f} seconds, {fleet.kills} kills, seed {arguments.seed}")
            return _check(app, relay, names, fleet)
        finally:
            app.db.dispose()
            postgres.stop()


def _kill_while_sending(
    app: Application,
    relay: RelayProcess,
    postgres: Postgres,
    start: Starter,
    chance: random.Random,
    arguments: argparse.Namespace,
) -> Fleet:
    """Spread the faults over the sending of all emails, by the number of emails that are sent."""
    events = ["kill"] * arguments.kills + ["crash"] * arguments.crashes + ["pause", "full disk"]
    chance.shuffle(events)
    fleet = Fleet(start, chance)
    for number, event in enumerate(events):
        due = arguments.readers * number // (len(events) + 1)
        _wait_until_sent(app, fleet, due)
        time.sleep(chance.random() / 5)
        if event == "kill":
            fleet.kill_one()
        elif event == "crash":
            postgres.crash()
        elif event == "pause":
            relay.on("end", late=PAUSE_SECONDS, times=CONNECTIONS * len(fleet.processes))
        else:
            fleet.fill_the_disk_of_one()
        print(f"\r{number + 1} of {len(events)} faults, {_count_sent(app):,} sent ", end="", file=sys.stderr)
    return fleet


def _wait_until_sent(app: Application, fleet: Fleet, count: int) -> None:
    progress, since = -1, time.monotonic()
    while (sent := _count_sent(app)) < count:
        if sent != progress:
            progress, since = sent, time.monotonic()
        if time.monotonic() - since > GIVE_UP_AFTER:
            raise SystemExit(f"no progress after {sent:,} of {count:,} emails")
        fleet.replace_the_dead()
        time.sleep(0.1)


def _wait_for_the_end(app: Application, fleet: Fleet) -> None:
    """Wait until nothing is left to send, and no job is recorded as running."""
    since, before = time.monotonic(), None
    while (now := _open_work(app)) != (0, 0):
        if now != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since > GIVE_UP_AFTER:
            return  # `_check` says what is left
        fleet.replace_the_dead()
        time.sleep(1)


def _open_work(app: Application) -> tuple[int, int]:
    left = len(checks.waiting(app)) + _count(app, "state IN ('claimed', 'committing')")
    with app.db.read() as session:
        running = sum(each.count for each in worker_registry.job_counts(session) if each.state == "running")
    return left, running


def _count_sent(app: Application) -> int:
    return _count(app, "state = 'sent'")


def _count(app: Application, condition: str) -> int:
    """Return the number of deliveries that meet an SQL condition. Wait while PostgreSQL is restarting."""
    while True:
        try:
            with app.db.read() as session:
                query = text(f"SELECT count(*) FROM delivery WHERE {condition}")  # noqa: S608 - our own words
                return int(session.execute(query).scalar_one())
        except DBAPIError:
            time.sleep(0.2)


def _check(app: Application, relay: RelayProcess, names: list[str], fleet: Fleet) -> list[str]:
    copies, ledger = relay.copies(), checks.rows(app)
    received = Counter(len(copies.get(name, [])) for name in names)
    flagged = {name for name, row in ledger.items() if row.possibly_delivered}
    doubled = {name for name, mails in copies.items() if len(mails) > 1}
    left = _open_work(app)
    print(f"emails received per reader: {dict(sorted(received.items()))}")
    print(f"states: {dict(Counter(str(row.state) for row in ledger.values()))}")
    print(f"recorded as possibly delivered: {len(flagged)}; received twice: {len(doubled)}")
    print(f"left to send, and jobs left running: {left}")
    lost = [name for name in names if name not in copies and ledger[name].state != "uncertain"]
    bound = fleet.kills * CONNECTIONS + 2 * CONNECTIONS * len(fleet.processes)
    return [
        *([f"{len(lost)} readers received nothing, such as {lost[0]}"] if lost else []),
        *(
            [f"{len(doubled - flagged)} readers received two emails for no reason"]
            if doubled - flagged
            else []
        ),
        *(
            [f"{len(flagged)} emails are possibly delivered; at most {bound} may be"]
            if len(flagged) > bound
            else []
        ),
        *([f"left over: {left}"] if left != (0, 0) else []),
        *([f"protocol errors: {relay.state()['complaints'][:3]}"] if relay.state()["complaints"] else []),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--readers", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--crashes", type=int, default=2, help="of PostgreSQL")
    parser.add_argument("--seed", type=int, default=1)
    with tempfile.TemporaryDirectory(prefix="paperboy-fleet-") as folder:
        problems = run(parser.parse_args(), Path(folder))
    print("\n".join(problems) or "Everybody received one digest, or it is recorded as possibly delivered.")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
