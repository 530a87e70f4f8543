"""Test moves to another database: its rows, the pauses of both databases, and other processes."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text, update
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlmodel import col, func, select

from app import maintenance, pipeline
from app.application import Application
from app.delivery import ledger
from app.doctor import daily_report
from app.errors import Conflict, InvalidInput, SchemaError
from app.maintenance import database_move
from app.storage import backup_file, schema, webhook_endpoints
from app.storage.database import Database
from app.storage.models import Source, Subscriber, WebhookEvent, WebhookMessage
from app.types import MailKind
from tests.maintenance.conftest import DAY, READERS, add_papers, move, pop_run, received
from tests.storage.test_releases import read_rows
from tests.support import factories, other_process
from tests.support.fork_server import ForkServer
from tests.support.mail_server import MailServer


def test_move_there_and_back(
    service: Application, url_without_tables: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """Each database has the same rows. The old one is paused for good, and the new one sends at once."""
    pipeline.plan_and_send(service, now + timedelta(hours=1))
    before = read_rows(service.settings.database_url)
    there = move(service, f"sqlite:///{tmp_path}/there.db", tmp_path / "1.zip", now + DAY)
    back = move(there, url_without_tables, tmp_path / "2.zip", now + DAY)
    restored_services += [there, back]
    after = read_rows(url_without_tables)
    assert [pop_run(after, "move")["rows"] > READERS for _ in (there, back)] == [True] * 2
    assert after == {name: rows for name, rows in before.items() if name not in backup_file.EXCLUDED}
    for old in (service, there):
        assert not pipeline.plan_and_send(old, now + DAY + timedelta(hours=1))["sent"]
        with old.db.read() as session:
            assert "this database was moved to " in ledger.pauses(session)[0].reason
            with pytest.raises(Conflict, match="--force"):
                ledger.resume(session, now)
    add_papers(back, now + DAY, 1)
    assert pipeline.plan_and_send(back, now + DAY + timedelta(hours=1))["sent"] == READERS
    mails = received(mail_server)
    assert len(mails) == len(set(mails))


def test_characters_that_postgresql_rejects_are_replaced(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """An SQLite database of an earlier release may contain NUL."""
    old = move(service, f"sqlite:///{tmp_path}/old.db", tmp_path / "1.zip", now + DAY)
    with old.db.write() as session:
        session.execute(text("UPDATE source SET last_error = 'gone' || char(0) || 'away'"))
    new = move(old, empty_url, tmp_path / "2.zip", now + DAY)
    restored_services += [old, new]
    with new.db.read() as session:
        assert session.exec(select(Source.last_error)).all() == ["gone\ufffdaway"]


def test_interrupted_move(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted move is repeated. The operator's own pause goes with the database."""
    with service.db.write() as session:
        ledger.pause(session, "on holiday", now)
    target = Database(empty_url)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(database_move, "_finish_move", interrupt)
        with pytest.raises(KeyboardInterrupt):
            maintenance.move(service, empty_url, tmp_path / "1.zip", now)
    with target.read() as session:
        assert ledger.pauses(session)[0].reason == database_move.MOVING
    maintenance.move(service, empty_url, tmp_path / "2.zip", now)
    with target.write() as session:
        assert ledger.pauses(session)[0].reason == "on holiday"
    target.dispose()


def test_refused_move_keeps_no_backup(
    service: Application, empty_url: str, tmp_path: Path, now: datetime
) -> None:
    """The target is unreachable or has other rows. A backup contains addresses."""
    unreachable = "postgresql+psycopg://me:hunter2@127.0.0.1:1/none"
    with pytest.raises(OperationalError):
        maintenance.move(service, unreachable, tmp_path / "backups" / "1.zip", now)
    with service.db.read() as session:
        assert not ledger.pauses(session)
    schema.migrate(empty_url)
    target = Database(empty_url)
    with target.write() as session:
        factories.add_source(session, now)
    target.dispose()
    with pytest.raises(Conflict, match=r"differs from this database in .*subscriber.*: empty the target"):
        maintenance.move(service, empty_url, tmp_path / "backups" / "2.zip", now)
    assert not list(tmp_path.glob("backups/*"))


@pytest.mark.parametrize(
    "paused", ["", "on holiday", ledger.IMPORTED, ledger.IMPORTED + ledger.ALSO + "on holiday"]
)
@pytest.mark.parametrize("failure", ["the target has other rows", "the backup exists"])
def test_refused_move_leaves_the_pause_as_it_was(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, failure: str, paused: str
) -> None:
    """The old database stayed paused, and an import could not end its own pause."""
    before = []
    if paused:
        before = [(paused, now - DAY)]
        with service.db.write() as session:
            ledger.pause(session, paused, now - DAY)
    if failure == "the backup exists":
        (tmp_path / "1.zip").write_text("existing")
    else:
        schema.migrate(empty_url)
        target = Database(empty_url)
        with target.write() as session:
            factories.add_source(session, now)
        target.dispose()
    with service.db.write() as session:
        webhook_endpoints.add(session, "https://a.test/hook", list(WebhookEvent), False, now)
    with pytest.raises((Conflict, InvalidInput)):
        maintenance.move(service, empty_url, tmp_path / "1.zip", now)
    with service.db.read() as session:
        assert [(pause.reason, pause.since) for pause in ledger.pauses(session)] == before
        assert session.exec(select(WebhookMessage)).all() == []
    assert (tmp_path / "1.zip").exists() is (failure == "the backup exists")


@pytest.mark.parametrize(
    ("revision", "has_rows", "error", "message"),
    [
        (None, True, Conflict, "is not empty"),
        ("abc123", False, SchemaError, "at revision abc123 of a newer"),
        ("abc123", True, Conflict, "is not empty"),
        (schema.known_revisions()[0], True, Conflict, "differs from this database in "),
    ],
)
def test_database_of_another_program_is_refused(
    service: Application, url_without_tables: str, tmp_path: Path, now: datetime, revision: str | None,
    has_rows: bool, error: type[Exception], message: str,
) -> None:  # fmt: skip
    """The old database stayed paused, so that nothing was sent any more."""
    target = Database(url_without_tables)
    with target.write() as session:
        session.execute(text("CREATE TABLE note (id INTEGER)"))
        if has_rows:
            session.execute(text("INSERT INTO note VALUES (1)"))
        if revision:
            session.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
            session.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})
    target.dispose()
    with pytest.raises(error, match=message):
        maintenance.move(service, url_without_tables, tmp_path / "1.zip", now)
    with service.db.read() as session:
        assert not ledger.pauses(session)


@pytest.mark.postgres
def test_target_without_the_right_to_create_tables_is_refused(
    service: Application, url_without_tables: str, tmp_path: Path, now: datetime
) -> None:
    """Since PostgreSQL 15, only the owner of a database has it. The old database stayed paused."""
    target = Database(url_without_tables)
    with target.write() as session:
        session.execute(text("CREATE ROLE clerk LOGIN"))
    target.dispose()
    try:
        with pytest.raises(DBAPIError, match="permission denied for schema public"):
            maintenance.move(
                service, str(make_url(url_without_tables).set(username="clerk")), tmp_path / "1.zip", now
            )
    finally:
        with target.write() as session:
            session.execute(text("DROP ROLE clerk"))
        target.dispose()
    with service.db.read() as session:
        assert not ledger.pauses(session)


def test_move_that_fails_while_copying_stays_paused(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target may have the rows already, so nothing must be sent from the old database."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backup_file, "load", interrupt)
    with pytest.raises(KeyboardInterrupt):
        maintenance.move(service, empty_url, tmp_path / "1.zip", now)
    with service.db.read() as session:
        assert [pause.reason for pause in ledger.pauses(session)] == [database_move.MOVING]


def test_finished_move_is_not_repeated(
    service: Application, empty_url: str, tmp_path: Path, now: datetime
) -> None:
    """By then, the new database has other rows. It must not be emptied."""
    maintenance.move(service, empty_url, tmp_path / "1.zip", now)
    target = Database(empty_url)
    with target.write() as session:
        session.execute(update(Subscriber).values(email="changed@example.org").where(col(Subscriber.id) == 1))
    target.dispose()
    with pytest.raises(
        Conflict, match=r"this database was moved to .* on \d{4}-.*: set PAPERBOY_DATABASE_URL"
    ):
        maintenance.move(service, empty_url, tmp_path / "2.zip", now + DAY)
    assert not (tmp_path / "2.zip").exists()


def test_report_of_the_day_is_not_repeated(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application],
) -> None:  # fmt: skip
    old = replace(service, settings=service.settings.model_copy(update={"admin_addresses": ("ada@a.test",)}))
    daily_report.send_daily_report(old, now)
    new = move(old, empty_url, tmp_path / "1.zip", now)
    restored_services.append(new)
    daily_report.send_daily_report(new, now + timedelta(hours=1))
    assert len(mail_server.messages) == 1


@pytest.mark.postgres
def test_reason_for_the_pause_contains_no_password(
    service: Application, empty_url: str, tmp_path: Path, now: datetime
) -> None:
    """It is stored in the old database, and sent to the operators in an alert."""
    url = make_url(empty_url).update_query_dict({"password": "hunter2"}).render_as_string(hide_password=False)
    maintenance.move(service, url, tmp_path / "1.zip", now)
    with service.db.read() as session:
        reason = ledger.pauses(session)[0].reason
    assert f"/{make_url(empty_url).database}?" in reason
    assert "hunter2" not in reason


def test_move_to_the_database_in_use_is_refused(service: Application, tmp_path: Path, now: datetime) -> None:
    """It was paused for good, for example if the same move was repeated with the new URL in use."""
    with service.db.write() as session:
        webhook_endpoints.add(session, "https://a.test/hook", list(WebhookEvent), False, now)
    url = service.settings.database_url
    before = read_rows(url)
    for same_url in (url, url.replace("sqlite:////", "sqlite:////./").replace("127.0.0.1", "localhost")):
        with pytest.raises(Conflict, match="already uses this database"):
            maintenance.move(service, same_url, tmp_path / "1.zip", now)
    assert read_rows(url) == before
    assert not (tmp_path / "1.zip").exists()


def test_move_is_repeated_if_the_target_was_lost(service: Application, tmp_path: Path, now: datetime) -> None:
    """The copy stays paused, because the lost database may have sent emails."""
    file = tmp_path / "new.db"
    for number in (1, 2):
        maintenance.move(service, f"sqlite:///{file}", tmp_path / f"{number}.zip", now)
        target = Database(f"sqlite:///{file}")
        with target.read() as session:
            assert session.exec(select(func.count()).select_from(Subscriber)).one() > 0
            assert len(ledger.pauses(session)) == number - 1
        target.dispose()
        file.unlink()


@pytest.mark.parametrize("has_ended", [False, True])
def test_pause_of_an_import_during_a_move(
    service: Application, empty_url: str, tmp_path: Path, now: datetime,
    monkeypatch: pytest.MonkeyPatch, has_ended: bool,
) -> None:  # fmt: skip
    """It goes along, unless the import adds nobody and ends meanwhile. The old database stays paused."""
    with service.db.write() as session:
        ledger.pause(session, ledger.IMPORTED, now - DAY)
    original = database_move._finish_move

    def end_import(old: Database, new: Database, at: datetime) -> str:
        with service.db.write() as session:
            assert not (has_ended and ledger.end_import_pause(session, now - DAY))
            assert ledger.is_paused(session)
        return original(old, new, at)

    monkeypatch.setattr(database_move, "_finish_move", end_import)
    maintenance.move(service, empty_url, tmp_path / "1.zip", now)
    target = Database(empty_url)
    with target.read() as session:
        pauses = [(pause.reason, pause.since) for pause in ledger.pauses(session)]
        assert pauses == ([] if has_ended else [(ledger.IMPORTED, now - DAY)])
    target.dispose()


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_requested_emails_wait_during_a_move(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application], monkeypatch: pytest.MonkeyPatch, is_interrupted: bool,
) -> None:  # fmt: skip
    """The pause keeps its date, so the emails are sent after it, also if the move had to be repeated."""
    with service.db.write() as session:
        webhook_endpoints.add(session, "https://a.test/hook", list(WebhookEvent), False, now)
        ledger.pause(session, "on holiday", now)
        ledger.pause(session, ledger.IMPORTED, now)
        ledger.enqueue(
            session, subscriber_id=1, kind=MailKind.MANAGE, edition="manage-1", due_at=now, now=now,
            give_up_at=now + DAY,
        )  # fmt: skip
    moved_at = now + 3 * DAY

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if is_interrupted:
        with monkeypatch.context() as patch:
            patch.setattr(webhook_endpoints, "disable_all", interrupt)
            with pytest.raises(KeyboardInterrupt):
                maintenance.move(service, empty_url, tmp_path / "1.zip", moved_at)
        with service.db.read() as session:
            assert database_move.MOVING in ledger.pauses(session)[0].reason
    new = move(service, empty_url, tmp_path / "2.zip", moved_at + timedelta(hours=1))
    restored_services.append(new)
    resumed_at = moved_at + timedelta(hours=2)
    with new.db.write() as session:
        [pause] = ledger.pauses(session)
        assert (ledger.reasons(pause), pause.since) == (["on holiday", ledger.IMPORTED], now)
        ledger.resume(session, resumed_at)
    assert pipeline.send_now(new, resumed_at) == {"sent": 1}


@pytest.mark.parametrize("is_refused", [False, True])
def test_reason_that_is_added_during_a_move_is_kept(
    service: Application, empty_url: str, tmp_path: Path, now: datetime,
    monkeypatch: pytest.MonkeyPatch, is_refused: bool,
) -> None:  # fmt: skip
    """Complaints pause sending meanwhile. After a move, the new database is paused because of them."""
    original = backup_file.write

    def complain(*arguments: Any, **options: Any) -> Any:
        with service.db.write() as session:
            ledger.pause_automatically(session, "9 complaints", now)
        if is_refused:
            raise Conflict("a test")
        return original(*arguments, **options)

    monkeypatch.setattr(backup_file, "write", complain)
    with pytest.raises(Conflict) if is_refused else nullcontext():
        maintenance.move(service, empty_url, tmp_path / "1.zip", now)
    database = service.db if is_refused else Database(empty_url)
    with database.read() as session:
        assert [pause.reason for pause in ledger.pauses(session)] == ["9 complaints"]
    database.dispose()


def test_move_waits_for_no_sender(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, processes: ForkServer
) -> None:
    """While another process may send, nothing is moved, and nothing is paused."""
    in_use = pytest.raises(Conflict, match="in use by 1 other process: stop")
    with other_process.using(processes, service.settings.database_url), in_use:
        maintenance.move(service, empty_url, tmp_path / "1.zip", now)
    with service.db.read() as session:
        assert not ledger.pauses(session)
    maintenance.move(service, empty_url, tmp_path / "1.zip", now)
