"""Simulate a year of an installation in accelerated time, and report growth and violations.

    python -m benchmarks.year [--days 365] [--readers 100] [--papers 50] [--database postgresql] [--json]

The service's own jobs run at the times at which readers in four time zones are due, and at night. The papers
come from a simulated Hugging Face, and a feed lists every tenth again, up to 70 days later. Each day, people
sign up (one does not confirm), like, mute, pause, unsubscribe and are erased, and an email bounces.
A visitor searches the archive. A backup is written every seventh day and deleted after 30. In between, the
relay fails for a day and the sources for a week (in short runs, a sixth of the days), the process restarts,
and a backup is restored. The run begins on 1 September 2027, so that it crosses daylight saving changes, New
Year and 29 February.

Retention periods are the shortest, so a table with one should not grow after the second month. Every night,
`year_checks` compares the ledger, the relay and earlier digests. The exit status is 1 if there are
violations. CPU seconds are per day, and include the relay and the database's server.
"""

import argparse
import io
import json
import os
import random
import resource
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import stamina
import structlog
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlmodel import Session, SQLModel, col, func, select

from app import clock, main, maintenance, pipeline, subscribers
from app.delivery import ledger
from app.errors import PaperboyError
from app.jobs import schedule
from app.papers import source_registry
from app.settings import Settings
from app.storage import backup_file, schema
from app.storage.database import Database
from app.storage.models import Delivery, FormSubmission, Paper, Subscriber, SubscriberState
from app.subscribers import Preferences, SignUp
from app.types import Cadence, Interest, MailKind, SourceKind
from benchmarks import endtoend, memory_growth, scale, simulated_sources, workload
from benchmarks.simulated_sources import Sources
from benchmarks.year_checks import DAY, Checks
from tests.bounces import mails
from tests.support.mail_server import MailServer, Received

START = datetime(2027, 9, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NIGHT, NOON = timedelta(hours=4, minutes=44), timedelta(hours=12)
MONTH = 30  # days
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
CADENCES = (Cadence.DAILY, Cadence.DAILY, Cadence.DAILY, Cadence.WEEKDAYS, Cadence.WEEKLY)
HOUR, INTERESTS = 8, 50
OPERATOR = "operator@paperboy.example"
RETENTION = {"retention_days": 60, "run_retention_days": 14, "unconfirmed_days": 7, "confirm_link_days": 7}
BACKUPS_KEPT, BACKUP_EVERY = 30, 7  # days
STAGES = {
    "refresh": "ingest", "plan": "plan", "sign_ahead": "plan", "send": "send", "answer_requests": "send",
    "train": "train", "recheck": "recheck", "prune": "prune",
}  # fmt: skip
ORDER = {name: number for number, name in enumerate(STAGES)}  # the service runs them all every minute
# Tables without a retention period: the archive, and rows that stay as long as their reader.
KEPT = ("paper", "listing", "vote_count", "merge", "subscriber", "interest", "feedback", "suppression")


class Year:
    """An installation and its history. `server` is the id of the process of its database's server, or 0."""

    def __init__(
        self, folder: Path, url: str, server: int, relay: MailServer, readers: int, papers: int
    ) -> None:
        self.folder, self.url, self.relay, self.readers = folder, url, relay, readers
        self.sources = Sources(papers, START)
        self.draw = random.Random(7)  # noqa: S311 - no secret
        self.interests = scale.interest_texts(self.draw, INTERESTS)
        self.meter, self.checks = scale.Meter(server), Checks(folder, START + DAY)
        self.operator_mails, self.failed_jobs = Counter[str](), Counter[str]()
        self.months = list[dict[str, Any]]()
        self.received = list[Received]()  # today, without those to the operator
        self.signed_up = 0
        for name in ("bounces", "backups"):
            (folder / name).mkdir()
        self.start()
        with self.app.db.write() as session:
            source_registry.add(session, "Daily papers", SourceKind.HUGGINGFACE, {}, START)
            source_registry.add(session, "Lab", SourceKind.FEED, {"url": simulated_sources.FEED}, START)
        self._import_readers()

    def settings(self) -> Settings:
        own = {"database_url": self.url, "smtp_port": self.relay.port, "pictures": False, **RETENTION}
        own |= {"admin_addresses": (OPERATOR,), "bounce_folder": str(self.folder / "bounces")}
        return workload.settings(self.folder).model_copy(update=own)

    def start(self) -> None:
        """Start the service, as after a restart of its process."""
        schema.migrate(self.url)
        self.app = replace(main.build(self.settings()), http=self.sources.transport())
        self.client = TestClient(main.create_app(self.app), base_url="https://paperboy.example")

    def _import_readers(self) -> None:
        lines = ["email,interests,cadence,weekday,hour,zone"]
        for number in range(self.readers):
            own = self._preferences(number)
            texts = ";".join(interest.text for interest in own.interests)
            columns = (workload.address(number), texts, own.cadence.value, own.weekday, HOUR, own.zone)
            lines.append(",".join(map(str, columns)))
        file = io.BytesIO("\n".join(lines).encode())
        maintenance.import_subscribers(self.app, file, "benchmark", START, hold=False)

    def _preferences(self, number: int) -> Preferences:
        texts = self.draw.sample(self.interests, self.draw.randint(1, 3))
        return Preferences(
            cadence=CADENCES[number % 5], weekday=number % 7, hour=HOUR, zone=ZONES[number % 4],
            max_trending=2, interests=tuple(map(Interest, texts)),
        )  # fmt: skip

    # --- a day

    def simulate_day(self, number: int, days: int) -> None:
        """Simulate a day, including its failures."""
        day = START + DAY * number
        self._disturb(number, days, day)
        if number % BACKUP_EVERY == 0:
            self.meter.measure("backup", partial(self._back_up, day))
        for minute in self._minutes(day):
            clock.travel(minute)
            self.sources.now = minute
            if minute == day + NOON:
                self.meter.measure("web", self._visit)
                self._simulate_people(minute)
            self._run_jobs(minute, day)
        with self.app.db.read() as session:
            self.checks.check_day(session, day + DAY - MINUTE, len(self.received), self.app.snapshots)
        self.received.clear()

    def _disturb(self, number: int, days: int, day: datetime) -> None:
        if number == days // 4:
            self.relay.reply("connect", "421 4.3.2 busy")
            self.checks.disturbed_until = day + 2 * DAY
        if number == days // 4 + 1:
            self.relay.clear_rules()
        if number == days // 3:
            self.sources.down_until = day + min(7, max(1, days // 6)) * DAY
        if number == days // 2:
            self.app.db.dispose()
            self.start()
        if number == days * 2 // 3:
            self._restore(day)

    def _minutes(self, day: datetime) -> list[datetime]:
        """Return the minutes at which jobs run: when digests are composed and due, at night and at noon."""
        minutes = {day + NIGHT, day + NOON, day + DAY - 10 * MINUTE}
        for zone in ZONES:
            for local in (day - DAY, day, day + DAY):
                due = datetime.combine(local, time(HOUR), ZoneInfo(zone)).astimezone(UTC)
                minutes |= {at for at in (due - 9 * MINUTE, due) if day <= at < day + DAY}
        return sorted(minutes)

    def _run_jobs(self, now: datetime, day: datetime) -> None:
        """Run the jobs: the nightly ones at night only, and those without a stage at noon, too."""
        for job in sorted(schedule.JOBS, key=lambda job: ORDER.get(job.name, len(ORDER))):
            is_rare = job.once_a_day or (job.name not in STAGES and now != day + NOON)
            if now == day + NIGHT or not is_rare:
                try:
                    self.meter.measure(
                        STAGES.get(job.name, "other"), partial(schedule.run, self.app, job, now)
                    )
                except PaperboyError as error:
                    self.failed_jobs[f"{job.name}: {error}"] += 1
        received, self.relay.messages[:] = list(self.relay.messages), []
        self.received += [message for message in received if message.recipient != OPERATOR]
        subjects = [str(each.parsed()["Subject"]) for each in received if each.recipient == OPERATOR]
        self.operator_mails.update("".join(c for c in each if not c.isdigit()) for each in subjects)

    def _visit(self) -> None:
        for path in ("/", f"/search?q={self.draw.choice(self.interests)}"):
            self.client.get(path).raise_for_status()

    def _simulate_people(self, now: datetime) -> None:
        """Let people sign up, readers change or end their subscriptions, and an email bounce.

        As many confirm as have left since yesterday.
        """
        is_active = Subscriber.state == SubscriberState.ACTIVE
        with self.app.db.read() as session:
            stay = col(Subscriber.state).in_([SubscriberState.ACTIVE, SubscriberState.PAUSED])
            missing = self.readers - session.exec(select(func.count()).where(stay)).one()
        for number in range(missing + 1):
            self._sign_up(now, confirms=number < missing)
        with self.app.db.write() as session:
            active = session.exec(select(Subscriber.id).where(is_active)).all()
            papers = session.exec(select(Paper.id).order_by(col(Paper.id).desc()).limit(4)).all()
            liking, pausing, leaving, erased = self.draw.sample(active, 4) if len(active) > 4 else [0] * 4
            if liking:
                for number, paper in enumerate(papers):
                    subscribers.set_feedback(session, liking, paper, number > 0, now)
                subscribers.mute(session, liking, [self.draw.choice(endtoend._GOALS)], now)
                subscribers.pause(session, pausing, now + DAY * self.draw.randint(2, 14), now)
                subscribers.unsubscribe(session, leaving, now)
            if erased and now.day % 5 == 0:
                subscribers.erase(session, erased, now)
        if self.received:
            bounced = self.draw.choice(self.received)
            status = "5.1.1" if now.day % 5 == 0 else "4.2.2"
            notice = mails.dsn(bounced.sender, bounced.recipient, status)
            (self.folder / "bounces" / f"{now:%Y%m%d}.eml").write_bytes(notice)

    def _sign_up(self, now: datetime, *, confirms: bool) -> None:
        self.signed_up += 1
        form = SignUp(f"late.{self.signed_up}@example.org", self._preferences(self.signed_up))
        with self.app.db.write() as session:
            request = subscribers.request_sign_up(session, form, "192.0.2.1", now)
        pipeline.answer_requests(self.app, now, [request])
        with self.app.db.write() as session:
            row = session.get_one(FormSubmission, request)
            if row.subscriber_id and confirms:
                subscribers.confirm(session, row.subscriber_id, "192.0.2.1", now, row.delivery_id)

    def _back_up(self, now: datetime) -> Path:
        folder = self.folder / "backups"
        file = folder / f"{now:%Y%m%d}.zip"
        file.unlink(missing_ok=True)
        maintenance.back_up(self.app, file, now)
        for old in [each for each in folder.iterdir() if each.stem < f"{now - DAY * BACKUPS_KEPT:%Y%m%d}"]:
            old.unlink()
        return file

    def _restore(self, now: datetime) -> None:
        """Back up, restore the backup into a new database, and resume sending."""
        file, old = self._back_up(now), self.url
        if make_url(old).get_backend_name() == "sqlite":
            self.url = f"sqlite:///{self.folder / 'restored.db'}"
        else:
            with self.app.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("CREATE DATABASE restored"))
            self.url = make_url(old).set(database="restored").render_as_string(hide_password=False)
        self.app.db.dispose()
        new, previous = Database(self.url), Database(old, read_only=True)
        maintenance.restore(new, self.settings(), file, backup_file.read_manifest(file), now, previous)
        with new.write() as session:
            ledger.resume(session, now, force=True)
        for db in (new, previous):
            db.dispose()
        self.start()

    # --- a month

    def record_month(self, number: int) -> None:
        """Store the figures of the month whose last day has this number."""
        since, tables = START + DAY * (number + 1 - MONTH), SQLModel.metadata.sorted_tables
        of_month = (Delivery.kind == MailKind.DIGEST, Delivery.due_at >= since)
        states = select(Delivery.state, func.count()).where(*of_month).group_by(Delivery.state)
        figures: dict[str, float] = {}
        with self.app.db.read() as session:
            figures |= {f"{state} digests": count for state, count in session.exec(states)}
            rows = {table.name: session.scalar(select(func.count()).select_from(table)) for table in tables}
            sizes = table_bytes(session)
        figures |= {f"{name} CPU s": round(cpu / MONTH, 3) for name, cpu in self.meter.seconds.items()}
        self.meter.seconds.clear()
        figures["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 10**6
        figures["resident MB"] = round(memory_growth.megabytes(os.getpid()))
        kb = {name: folder_bytes(self.folder / name) for name in ("journal", "search", "bounces", "backups")}
        file = Path(make_url(self.url).database or "")
        is_file = file.is_relative_to(self.folder)
        kb["database"] = file.stat().st_size if is_file else sum(sizes.values())
        kb["WAL"] = folder_bytes(file.with_name(f"{file.name}-wal")) if is_file else 0
        figures |= {f"{name} kB": size // 1000 for name, size in kb.items()}
        self.months.append({"figures": figures, "rows": rows, "bytes": sizes})

    def result(self) -> dict[str, Any]:
        if len(self.months) > 2:
            early, late = (self.months[at]["rows"] for at in (1, -1))
            self.checks.check_growth(early, {name: late[name] for name in late.keys() - set(KEPT)})
        texts = {"operator_mails": self.operator_mails, "failed_jobs": self.failed_jobs}
        failures = {"refused_requests": self.sources.refused_requests}
        return {"months": self.months, **texts, **failures, "violations": self.checks.violations}


def table_bytes(session: Session) -> dict[str, int]:
    """Return the size of each table with its indexes."""
    if session.get_bind().dialect.name == "sqlite":
        query = "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name) GROUP BY tbl_name"
    else:
        query = "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables"
    return {name: int(size) for name, size in session.connection().execute(text(query))}


def folder_bytes(path: Path) -> int:
    """Return the size of a file or of the files in a folder. It is 0 if there are none."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def run(kind: str, days: int, readers: int, papers: int) -> dict[str, Any]:
    structlog.configure(processors=[endtoend._drop])
    no_waits = stamina.set_testing(True, attempts=2)  # between attempts to reach a source
    with no_waits, tempfile.TemporaryDirectory() as name, MailServer() as relay:
        folder = Path(name)
        folder.chmod(0o755)  # the database's server may run as another user
        with scale.run_database(kind, folder) as (url, server):
            year = Year(folder, url, server, relay, readers, papers)
            for number in range(days):
                year.simulate_day(number, days)
                if number % MONTH == MONTH - 1:
                    year.record_month(number)
                    print(number + 1, "days:", year.months[-1]["figures"], file=sys.stderr, flush=True)
            year.app.db.dispose()
    return year.result()


def show(result: dict[str, Any]) -> None:
    """Print the figures by month, the rows by table, and the bytes of the ten largest tables."""
    months = result["months"]
    for part in ("figures", "rows", "bytes"):
        names = dict.fromkeys(name for month in months for name in month[part])
        if part == "bytes":
            names = dict.fromkeys(sorted(names, key=lambda name: -months[-1]["bytes"].get(name, 0))[:10])
        numbers = "".join(f"{number + 1:>11}" for number in range(len(months)))
        print(f"\n{part:20}{numbers}  last month : 2nd")
        for name in names:
            values = [month[part].get(name, 0) for month in months]
            ratio = f"{values[-1] / values[1]:10.2f}" if values[1:] and values[1] else ""
            if any(values):
                print(f"{name:20}" + "".join(f"{value:>11,}" for value in values) + ratio)
    for name in ("operator_mails", "failed_jobs", "violations"):
        print(f"\n{name}: {sum(result[name].values())}")
        for line, count in result[name].most_common(40):
            print(f"{count:6} {line}")


def cli() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--days", type=int, default=365)
    options.add_argument("--readers", type=int, default=100)
    options.add_argument("--papers", type=int, default=50, help="per working day")
    options.add_argument("--database", choices=scale.DATABASES, default="sqlite")
    options.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = options.parse_args()
    result = run(arguments.database, arguments.days, arguments.readers, arguments.papers)
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result)
    return int(bool(result["violations"]))


if __name__ == "__main__":
    sys.exit(cli())
