"""Test imports of subscribers: their job runs, audit log and pauses, also when they are interrupted."""

import io
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import col, func, select

from app import main, maintenance
from app.application import Application
from app.delivery import ledger
from app.errors import Conflict, InvalidInput
from app.settings import Settings
from app.storage import figure_cache
from app.storage.figure_cache import MAX_AGE, FigureReader
from app.storage.models import AuditEntry, Event, JobRun, Subscriber
from app.subscribers import csv_transfer
from tests.conftest import NOW
from tests.subscribers.test_csv_transfer import csv_file
from tests.support import factories
from tests.support.fork_server import ForkServer


@pytest.mark.parametrize(
    "content",
    [
        b"email,interests\na@example.org,robotics\nb\xe9b@example.org,robotics\n",
        b'email,interests\na@example.org,robotics\n"b@example.org,robotics\n',
        b"email,interests\na@example.org," + b"x," * 600_000 + b"\n",
        b"email,interests" + b",x" * 300 + b"\na@example.org,robotics\n",
        b"x" * 3_000_000,
    ],
    ids=["encoding", "quotation mark", "long row", "columns", "long line"],
)
def test_unreadable_file_adds_nobody(content: bytes, app: Application) -> None:
    """Nor does it pause sending, or count as a failed job."""
    with pytest.raises(InvalidInput):
        maintenance.import_subscribers(app, io.BytesIO(content), "cli", NOW)
    with app.db.read() as session:
        assert session.exec(select(Subscriber)).all() == []
        assert session.exec(select(JobRun)).all() == []
        assert not ledger.is_paused(session)


def test_import_is_recorded_without_addresses(app: Application) -> None:
    """The run has the counts and the skipped rows. The audit log says who imported."""
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["robotics"], NOW)
    lines = ["alice@example.org,robotics,,,,,,", "bob@example.org,robotics,,,,,,"]
    result = maintenance.import_subscribers(app, csv_file(*lines), "a key", NOW)
    assert result.paused_scope
    with app.db.read() as session:
        run = session.get_one(JobRun, result.run_id)
        assert run.counts == {"rows": 2, "added": 1, "rejected": 1, "total": 2}
        assert [(row["row"], row["reason"]) for row in run.rejections] == [
            (3, "this address is already registered (active).")
        ]
        assert ledger.is_paused(session)
    assert audit_entries(app) == [
        ("a key", "subscriber.import", "2 rows"),
        ("a key", "sending.pause", "*"),
        ("a key", "subscriber.import", "1 subscriber"),
    ]


def test_figures_are_counted_again_after_an_import(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large installation, they were counted between two batches."""
    monkeypatch.setattr(figure_cache, "LARGE", 0)

    def count_subscribers() -> int:
        with app.db.read() as session:
            reader = FigureReader(app.db.figures, MAX_AGE)
            return reader.get(
                session, "subscribers", NOW, session.exec(select(func.count(col(Subscriber.id)))).one
            )

    def add_another(_: object) -> None:
        assert count_subscribers() == 1
        with app.db.write() as session:
            factories.add_subscriber(session, "bob@example.org", [], NOW)
        assert count_subscribers() == 1

    file = csv_file("alice@example.org,robotics,,,,,,")
    maintenance.import_subscribers(app, file, "cli", NOW, after_batch=add_another)
    assert count_subscribers() == 2


def audit_entries(app: Application) -> list[tuple[str, str, str]]:
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id)))
        return [(entry.actor, entry.action, entry.subject) for entry in entries]


def test_import_that_adds_nobody_ends_its_own_pause(app: Application) -> None:
    """An operator did not resume, so complaints count as before."""
    assert not maintenance.import_subscribers(app, csv_file("nobody,robotics,,,,,,"), "cli", NOW).paused_scope
    actions = [action for _, action, _ in audit_entries(app)]
    assert actions == ["subscriber.import", "sending.pause", "subscriber.import", "sending.pause_ended"]
    with app.db.read() as session:
        assert not ledger.is_paused(session)


@pytest.mark.parametrize("reason", ["on holiday", ledger.IMPORTED])
def test_import_does_not_end_the_pause_of_others(reason: str, app: Application) -> None:
    """An operator, or another import, pauses sending meanwhile. The first import adds nobody."""

    def pause(_: object) -> None:
        with app.db.write() as session:
            ledger.pause(session, reason, NOW + timedelta(seconds=5))

    maintenance.import_subscribers(app, csv_file("nobody,robotics,,,,,,"), "cli", NOW, after_batch=pause)
    with app.db.read() as session:
        assert [each.reason for each in ledger.pauses(session)] == [reason]
    assert "sending.pause_ended" not in [action for _, action, _ in audit_entries(app)]


@pytest.mark.parametrize("is_automatic", [False, True])
def test_pause_after_an_import_keeps_its_reason(app: Application, is_automatic: bool) -> None:
    """Whoever resumes sending knows that nobody has checked the digests of the imported subscribers."""
    maintenance.import_subscribers(app, csv_file("alice@example.org,robotics,,,,,,"), "cli", NOW)
    reason = "the relay refuses our emails"
    pause = ledger.pause_automatically if is_automatic else ledger.pause
    for _ in range(2):
        with app.db.write() as session:
            pause(session, reason, NOW + timedelta(hours=1))
    with app.db.read() as session:
        [both] = ledger.pauses(session)
        assert (ledger.reasons(both), both.since) == ([ledger.IMPORTED, reason], NOW)


def test_second_import_is_refused(app: Application, settings: Settings) -> None:
    """A second import is refused while one is running, and no pause remains."""
    other, nobody = main.build(settings), "nobody,robotics,,,,,,"

    def import_again(_: object) -> None:
        with pytest.raises(Conflict, match="another import is running"):
            maintenance.import_subscribers(other, csv_file(nobody), "cli", NOW + timedelta(seconds=5))

    for _ in range(2):
        maintenance.import_subscribers(app, csv_file(nobody), "cli", NOW, after_batch=import_again)
    other.db.dispose()
    with app.db.read() as session:
        assert ledger.pauses(session) == []
        assert {run.error for run in session.exec(select(JobRun))} == {""}


@pytest.mark.parametrize("scope", [ledger.ALL_EDITIONS, ledger.FIRST_DIGESTS])
def test_import_that_adds_nobody_leaves_an_earlier_pause_alone(
    scope: str, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause still has its time. The import that began it could still end it."""
    monkeypatch.setattr(ledger, "any_sent", lambda _: scope == ledger.FIRST_DIGESTS)
    file = ["alice@example.org,robotics,,,,,,"]
    maintenance.import_subscribers(app, csv_file(*file), "cli", NOW)
    again = maintenance.import_subscribers(app, csv_file(*file), "cli", NOW + timedelta(minutes=5))
    assert (again.report.added, again.paused_scope) == (0, None)
    with app.db.write() as session:
        assert [(each.edition, each.since) for each in ledger.pauses(session)] == [(scope, NOW)]
        assert ledger.end_import_pause(session, NOW, scope)


def test_stopped_import_ends_between_two_batches(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where, and can be repeated."""
    monkeypatch.setattr(csv_transfer, "IMPORT_BATCH", 2)
    lines = [f"reader{number}@example.org,robotics,,,,,," for number in range(5)]
    result = maintenance.import_subscribers(
        app, csv_file(*lines), "cli", NOW, after_batch=lambda _: app.stopping.set()
    )
    assert (result.report.rows, result.report.added, result.report.is_complete) == (2, 2, False)
    with app.db.read() as session:
        assert "2 of 5 rows" in session.get_one(JobRun, result.run_id).error
    app.stopping.clear()
    assert maintenance.import_subscribers(app, csv_file(*lines), "cli", NOW).report.added == 3


KILLED = """
    import os, signal
    from app import main, maintenance
    from app.subscribers import csv_transfer

    csv_transfer.IMPORT_BATCH = 10
    app = main.build(settings)

    def after_batch(report):
        if report.rows == 30:
            os.kill(os.getpid(), signal.SIGKILL)

    with open(path, "rb") as file:
        maintenance.import_subscribers(app, file, "cli", now, hold=True, after_batch=after_batch)
"""


def test_killed_import_can_be_repeated(
    app: Application, settings: Settings, tmp_path: Path, processes: ForkServer
) -> None:
    """Nobody is lost, nobody is added twice, sending stays paused, and the audit log has the import."""
    file = tmp_path / "readers.csv"
    emails = [f"reader{number:02}@example.org" for number in range(47)]
    file.write_bytes(csv_file(*(f"{email},robotics,,,,,," for email in emails)).getvalue())
    assert processes.run(KILLED, settings=settings, path=file, now=NOW) == -signal.SIGKILL
    with app.db.read() as session:
        assert len(session.exec(select(Subscriber.email)).all()) == 30
        assert ledger.is_paused(session)
    assert audit_entries(app) == [("cli", "subscriber.import", "47 rows"), ("cli", "sending.pause", "*")]
    with file.open("rb") as content:
        result = maintenance.import_subscribers(app, content, "cli", NOW + timedelta(minutes=1), hold=True)
    assert (result.report.added, result.report.registered, result.paused_scope) == (
        17,
        30,
        ledger.ALL_EDITIONS,
    )
    with app.db.read() as session:
        assert session.exec(select(Subscriber.email).order_by(Subscriber.email)).all() == emails
        added = session.exec(select(Event.subscriber_id).where(Event.kind == "added")).all()
        assert len(added) == len(set(added)) == 47
        assert ledger.is_paused(session)
