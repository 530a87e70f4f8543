"""Test backups of a running service, and that a restore sends nothing twice."""

from __future__ import annotations

import os
import shutil
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import col, select

from app import main, maintenance, pipeline, subscribers, webhooks
from app.application import Application
from app.delivery import ledger, suppression
from app.delivery.journal import AttemptResult, Journal
from app.delivery.send_result import SendOutcome, SendResult
from app.digests import reconciliation
from app.errors import Conflict, InvalidInput
from app.maintenance.after_restore import RestoreReport
from app.storage import backup_file, webhook_endpoints, webhook_outbox
from app.storage.database import Database
from app.storage.models import (
    Delivery,
    DeliveryState,
    Paper,
    Subscriber,
    SubscriberState,
    WebhookEndpoint,
    WebhookEvent,
    WebhookMessage,
    WorkerRow,
)
from app.subscribers import Preferences, SignUp
from app.types import Interest, MailKind
from tests.maintenance.conftest import DAY, READERS, add_papers, move, pop_run, received
from tests.storage.test_releases import RELEASES, read_rows
from tests.support import factories
from tests.support.mail_server import MailServer


def restore(
    service: Application, file: Path, url: str, now: datetime, previous: Database | None = None
) -> tuple[Application, RestoreReport]:
    """Restore into another database, and return the service that uses it."""
    folder = Path(service.settings.journal_dir).with_name("journal of the restored")
    settings = service.settings.model_copy(update={"database_url": url, "journal_dir": str(folder)})
    db = Database(url)
    manifest = backup_file.read_manifest(file)
    report = maintenance.restore(db, settings, file, manifest, now, previous)
    db.dispose()
    return main.build(settings), report


def test_every_row_is_restored(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer
) -> None:
    """The file is private, and the tables are equal, apart from the pause."""
    pipeline.plan_and_send(service, now + timedelta(hours=1))
    file = tmp_path / "deep" / "backup.zip"
    file.parent.mkdir()
    abandoned = file.with_name(".paperboy-20261101T000000Z.zip.1.partial")
    abandoned.touch()
    os.utime(abandoned, (now.timestamp() - 2 * 86_400,) * 2)
    manifest = maintenance.back_up(service, file, now + timedelta(hours=2))
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["backup.zip"]
    before = read_rows(service.settings.database_url)
    restored, report = restore(service, file, empty_url, now + timedelta(hours=3))
    restored.db.dispose()
    after = read_rows(empty_url)
    (pause,) = after.pop("sending_pause")
    assert pause["edition"] == "*"
    before["job_run"] = [run for run in before["job_run"] if run["job"] != "backup"]
    counts = pop_run(after, "restore")
    assert counts == {"rows": manifest.rows, "recovered": 0, "waiting": 0, "due_since": 0}
    assert after == {name: rows for name, rows in before.items() if name not in backup_file.EXCLUDED}
    assert manifest.tables["delivery"].rows == READERS
    assert (report.waiting, report.due_since) == (0, {})


def test_restored_service_is_paused(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """Nothing leaves until an operator resumes sending, and nothing that was due before the restore then."""
    file = tmp_path / "backup.zip"
    maintenance.back_up(service, file, now)
    restored, report = restore(service, file, empty_url, now + DAY)
    restored_services.append(restored)
    assert report.due_since == {"2026-11-20": READERS}
    assert not pipeline.plan_and_send(restored, now + DAY)["sent"]
    with restored.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert "deliveries --state uncertain" in pause.reason
        ledger.resume(session)
    assert not pipeline.plan_and_send(restored, now + DAY)["sent"]
    assert pipeline.plan_and_send(restored, now + DAY + timedelta(hours=1))["sent"] == READERS
    assert len(mail_server.messages) == READERS


def test_ledger_is_consistent_days_after_the_backup(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """Each digest that was due since is recorded."""
    file = tmp_path / "backup.zip"
    maintenance.back_up(service, file, now)
    later = now + 3 * DAY + timedelta(hours=2)
    restored, report = restore(service, file, empty_url, later)
    restored_services.append(restored)
    assert report.due_since == {f"2026-11-2{day}": READERS for day in range(4)}
    with restored.db.read() as session:
        ids = session.exec(select(Delivery.id)).all()
        assert min(number or 0 for number in ids) > ledger.ID_GAP, "bounces of lost emails name lower ids"
        assert reconciliation.reconcile_recent(session, later).describe_faults() == ""


def test_older_backup_with_the_previous_database(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """What left since the backup is known. Nobody gets an edition twice, nor a paper that came since."""
    file, source_id = tmp_path / "backup.zip", 1
    pipeline.plan_and_send(service, now + timedelta(hours=1))
    maintenance.back_up(service, file, now + timedelta(hours=2))
    add_papers(service, now + DAY, source_id)
    pipeline.plan_and_send(service, now + DAY + timedelta(hours=1))
    with service.db.write() as session:
        gone = subscribers.find(session, "r7@example.org").id or 0
        subscribers.unsubscribe(session, gone, now + DAY + timedelta(hours=1))
        suppression.suppress(session, "r6@example.org", "asked by phone", now + DAY)
    restored, report = restore(service, file, empty_url, now + DAY + timedelta(hours=2), service.db)
    restored_services.append(restored)
    assert (report.recovered, report.waiting, report.due_since) == (READERS, 0, {})
    with restored.db.write() as session:
        assert subscribers.get(session, gone).state == "unsubscribed"
        ledger.resume(session)
    assert not pipeline.plan_and_send(restored, now + DAY + timedelta(hours=3))["sent"]
    add_papers(restored, now + 2 * DAY, source_id)
    assert pipeline.plan_and_send(restored, now + 2 * DAY + timedelta(hours=1))["sent"] == READERS - 2
    mailed = received(mail_server)
    assert len(mail_server.messages) == 3 * READERS - 2
    assert len(mailed) == len(set(mailed)) > 3 * READERS
    with restored.db.read() as session:
        newest = session.exec(select(Delivery).order_by(col(Delivery.id).desc())).first()
    assert newest
    assert (newest.id or 0) > ledger.ID_GAP, "links of emails that were sent since keep their ids"


def test_previous_database_knows_which_waiting_emails_were_sent(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """Only emails that still wait in the previous database are uncertain."""
    file, later = tmp_path / "backup.zip", now + timedelta(hours=1)
    pipeline.plan(service, later)
    maintenance.back_up(service, file, later + timedelta(minutes=1))
    outcomes = [
        (DeliveryState.SUPPRESSED, "the address is suppressed", None),
        (DeliveryState.FAILED, "no such mailbox", None),
        (DeliveryState.SKIPPED, "cancelled by an operator", None),
        (DeliveryState.UNCERTAIN, "no reply", None),
        (DeliveryState.SENT, "", later),
    ]
    with service.db.write() as session:
        mails = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
        for mail, (state, reason, sent_at) in zip(mails, outcomes, strict=False):
            mail.state, mail.reason, mail.sent_at, mail.next_attempt_at = state, reason, sent_at, None
    restored, report = restore(service, file, empty_url, now + timedelta(hours=2), service.db)
    restored_services.append(restored)
    with restored.db.read() as session:
        after = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
    assert [(mail.state, mail.sent_at) for mail in after[:5]] == [(state, at) for state, _, at in outcomes]
    assert [mail.reason for mail in after[:3]] == [reason for _, reason, _ in outcomes[:3]]
    assert {mail.state for mail in after[5:]} == {DeliveryState.UNCERTAIN}
    assert report.recovered == 2, "one was sent, and one may have been sent"


def test_erasures_since_the_backup_are_repeated(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """An address is suppressed only if its owner asked for that."""
    file, later = tmp_path / "backup.zip", now + timedelta(hours=1)
    with service.db.write() as session:
        factories.sign_up(
            session, SignUp("new@example.org", Preferences(interests=(Interest("agents"),))), "", now
        )
        unconfirmed = subscribers.find(session, "new@example.org").id or 0
    maintenance.back_up(service, file, now)
    with service.db.write() as session:
        subscribers.decline(session, unconfirmed, later)
        for address, suppress in (("r5@example.org", True), ("r6@example.org", False)):
            subscribers.erase(session, subscribers.find(session, address).id or 0, later, suppress=suppress)
    restored, _ = restore(service, file, empty_url, now + DAY, service.db)
    restored_services.append(restored)
    with restored.db.read() as session:
        assert subscribers.count_by_state(session)[SubscriberState.ERASED] == 2
        assert suppression.is_suppressed(session, "r5@example.org")
        assert not suppression.is_suppressed(session, "r6@example.org")
        assert not suppression.is_suppressed(session, "new@example.org")
        assert subscribers.get(session, unconfirmed).state is SubscriberState.ERASED
        erased = subscribers.count_changes(session, now + DAY, now + 2 * DAY)["erased"]
        assert erased == 2, "a declined sign-up is none"


def test_mails_in_flight_at_the_backup(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """The journal in the backup knows what the relay replied. All others that were due are held."""
    pipeline.plan(service, now + timedelta(hours=1))
    with service.db.write() as session:
        mails = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
        owner = "host:1:0123456789ab:0123456789ab"
        for mail in mails[:3]:
            mail.state, mail.lease_owner, mail.lease_until = DeliveryState.COMMITTING, owner, now + DAY
        ids = [mail.id or 0 for mail in mails]
    folder = Path(service.settings.journal_dir)
    journal = Journal(folder, owner)
    journal.begin(ids[0], now.timestamp(), "<a@paperboy.test>", "Agents")
    journal.end(AttemptResult(ids[0], SendResult(SendOutcome.ACCEPTED, 250, "2.0.0 Ok"), now.timestamp()))
    journal.begin(ids[1], now.timestamp(), "<b@paperboy.test>", "Agents")
    file = tmp_path / "backup.zip"
    maintenance.back_up(service, file, now + timedelta(hours=2))
    journal.close(complete=False)
    restored, report = restore(service, file, empty_url, now + timedelta(hours=3))
    restored_services.append(restored)
    with restored.db.read() as session:
        after = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
    assert [mail.state for mail in after] == ["sent"] + ["uncertain"] * (READERS - 1)
    assert after[0].smtp_text == "2.0.0 Ok"
    assert all(mail.possibly_delivered and mail.next_attempt_at is None for mail in after[1:])
    assert report.waiting == READERS - 2


def test_backup_while_mails_are_sent(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """Every digest is in exactly one state, and the restored service sends none of them again."""
    with service.db.write() as session:
        for number in range(READERS, 60):
            due = now.replace(hour=10, minute=0)
            factories.add_subscriber(session, f"r{number}@example.org", ["language agents"], due, hour=10)
    sending = threading.Thread(target=pipeline.plan_and_send, args=(service, now + timedelta(hours=1)))
    sending.start()
    files = []
    while sending.is_alive():
        files.append(tmp_path / f"{len(files)}.zip")
        maintenance.back_up(service, files[-1], now + timedelta(hours=1, minutes=len(files)))
    assert len(mail_server.messages) == 60
    restored, _ = restore(service, files[len(files) // 2], empty_url, now + timedelta(hours=9))
    restored_services.append(restored)
    with restored.db.write() as session:
        ledger.resume(session)
        states = session.exec(select(Delivery.state).where(Delivery.kind == MailKind.DIGEST)).all()
    assert len(states) == 60
    assert set(states) <= {DeliveryState.SENT, DeliveryState.UNCERTAIN}
    assert not pipeline.plan_and_send(restored, now + timedelta(hours=9))["sent"]
    assert len(mail_server.messages) == 60


def test_restore_refuses(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, new_database_url: Callable[[], str]
) -> None:
    """A damaged or foreign file, a database with rows, and journals of another database change nothing."""
    file, damaged = tmp_path / "backup.zip", tmp_path / "damaged.zip"
    maintenance.back_up(service, file, now)
    with pytest.raises(InvalidInput, match="already exists"):
        maintenance.back_up(service, file, now)
    damaged.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(InvalidInput, match=r"not a complete backup .*: use another copy"):
        backup_file.read_manifest(damaged)
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(damaged, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content.replace(b"r1@example.org", b"x1@example.org"))
    with pytest.raises(InvalidInput, match="table subscriber has a different checksum"):
        backup_file.read_manifest(damaged)
    shutil.copy(file, damaged)
    manifest = backup_file.read_manifest(file)
    assert not backup_file.is_empty(service.db)
    db = Database(empty_url)
    assert backup_file.is_empty(db)
    journals = Path(service.settings.journal_dir)
    journals.mkdir(parents=True, exist_ok=True)
    (journals / "other.journal").write_bytes(b"")
    settings = service.settings.model_copy(update={"database_url": empty_url})
    with pytest.raises(Conflict, match="journals of another database"):
        maintenance.restore(db, settings, file, manifest, now)
    for revision, fix in (("0001", "(set PAPERBOY_DATABASE_URL to it)"), ("9999", "the newer release")):
        with service.db.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
        with pytest.raises(InvalidInput, match="previous database cannot be used") as refused:
            maintenance.restore(db, settings, file, manifest, now, service.db)
        assert str(refused.value).endswith(f"{fix}, or restore without --previous")
    assert backup_file.is_empty(db)
    db.dispose()
    newer = replace(manifest, revision="9999")
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(damaged, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "manifest.json":
                content = content.replace(manifest.revision.encode(), newer.revision.encode())
            target.writestr(name, content)
    with pytest.raises(InvalidInput, match="which this release cannot read: install that release"):
        backup_file.read_manifest(damaged)


def test_backup_of_a_release_moves_to_another_kind_of_database(
    empty_url: str, service: Application, now: datetime, restored_services: list[Application]
) -> None:
    """It was made on SQLite. Rows that are added get new ids."""
    restored, _ = restore(service, RELEASES / "0.1.0.zip", empty_url, now)
    restored_services.append(restored)
    with restored.db.write() as session:
        merged = session.exec(select(Paper.id).where(col(Paper.merged_into_id).is_not(None))).all()
        assert len(merged) == 3
        added = factories.add_subscriber(session, "new@example.org", ["robots"], now)
        assert added > max(
            row or 0 for row in session.exec(select(Subscriber.id).where(Subscriber.id != added))
        )


def states_of_events(app: Application) -> set[tuple[bool, str]]:
    """Return for all webhook events whether the endpoint is disabled, and the states."""
    joined = select(WebhookEndpoint, WebhookMessage).where(WebhookMessage.endpoint_id == WebhookEndpoint.id)
    with app.db.read() as session:
        return {(each.disabled_at is not None, message.state) for each, message in session.exec(joined)}


def test_copies_send_no_webhook_events(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """A restored database sends no events that its original may have sent. Moved ones leave once."""
    with service.db.write() as session:
        for url in ("https://a.test/hook", "https://removed.test/hook"):
            webhook_endpoints.add(session, url, list(WebhookEvent), False, now)
        webhook_outbox.emit(session, WebhookEvent.PAUSED, {}, now)
        off = webhook_endpoints.add(session, "https://off.test/hook", list(WebhookEvent), False, now)
        webhook_endpoints.change(session, off, enabled=False, now=now)
    maintenance.back_up(service, tmp_path / "backup.zip", now)
    with service.db.write() as session:
        webhook_endpoints.remove(session, webhook_endpoints.get(session, 2))
    restored, report = restore(service, tmp_path / "backup.zip", empty_url, now + timedelta(hours=1))
    assert report.webhooks == ["1 (https://a.test)", "2 (https://removed.test)"]
    moved = move(service, f"sqlite:///{tmp_path}/moved.db", tmp_path / "1.zip", now + timedelta(hours=1))
    restored_services += [restored, moved]
    assert states_of_events(restored) == states_of_events(service) == {(True, "failed")}
    assert states_of_events(moved) == {(False, "pending")}
    assert webhooks.send_events(restored, now + DAY) == {}


def test_workers_and_jobs_are_left_out(service: Application, tmp_path: Path, now: datetime) -> None:
    """They belong to running processes. Jobs could not be stored in another kind of database."""
    file = tmp_path / "backup.zip"
    with service.db.write() as session:
        session.add(WorkerRow(name="mail1:1:a", started_at=now, seen_at=now))
    backup_file.write(service.db, file, tmp_path, now, "0.2.0")
    tables = {name.partition("/")[2].partition(".")[0] for name in zipfile.ZipFile(file).namelist()}
    assert "delivery" in tables
    assert not {name for name in tables if name == "worker" or name.startswith("procrastinate")}
