"""Test backups of a running service, and that a restore sends nothing twice."""

import io
import os
import shutil
import sqlite3
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, col, select

from app import main, maintenance, pipeline, subscribers, webhooks
from app.application import Application
from app.bounces import recording
from app.delivery import ledger, suppression
from app.delivery.journal import AttemptResult, Journal
from app.delivery.send_result import SendOutcome, SendResult
from app.digests import reconciliation
from app.errors import Conflict, InvalidInput
from app.maintenance.after_restore import RestoreReport
from app.papers import merging, splitting
from app.storage import api_keys, backup_file, job_runs, schema, webhook_endpoints, webhook_outbox
from app.storage.database import Database
from app.storage.models import (
    Delivery,
    DeliveryState,
    DigestContent,
    Event,
    Listing,
    Merge,
    Paper,
    Source,
    Subscriber,
    SubscriberState,
    VoteCount,
    WebhookEndpoint,
    WebhookEvent,
    WebhookMessage,
    WorkerRow,
)
from app.subscribers import Preferences, SignUp
from app.types import Interest, MailKind, PaperRecord, ParseResult, SourceKind
from tests.maintenance.conftest import DAY, READERS, add_papers, move, pop_run, received
from tests.storage.test_releases import RELEASES, read_rows
from tests.support import factories, other_process, stored_records
from tests.support.fork_server import ForkServer
from tests.support.mail_server import MailServer


def restore(
    service: Application, file: Path, url: str, now: datetime, previous: Database | None = None
) -> tuple[Application, RestoreReport]:
    """Restore into another database, and return the service that uses it."""
    folder = Path(service.settings.journal_dir).with_name("journal of the restored")
    settings = service.settings.model_copy(update={"database_url": url, "journal_dir": str(folder)})
    db = Database(url)
    manifest = backup_file.read_manifest(file)
    try:
        report = maintenance.restore(db, settings, file, manifest, now, previous)
    finally:
        db.dispose()
    return main.build(settings), report


@pytest.mark.once
def test_restore_into_a_file_without_tables(
    service: Application, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """A failed command may have left the file behind."""
    file, database = tmp_path / "backup.zip", tmp_path / "empty.db"
    manifest = maintenance.back_up(service, file, now)
    database.touch()
    restored, _ = restore(service, file, f"sqlite:///{database}", now)
    restored_services.append(restored)
    with restored.db.read() as session:
        assert len(session.exec(select(Subscriber)).all()) == manifest.tables["subscriber"].rows == READERS


def test_every_row_is_restored(
    service: Application, url_without_tables: str, tmp_path: Path, now: datetime, mail_server: MailServer
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
    restored, report = restore(service, file, url_without_tables, now + timedelta(hours=3))
    with restored.db.read() as session:  # a missing value does not become the JSON value null
        assert session.execute(text("SELECT count(*) FROM paper WHERE sourced IS NOT NULL")).scalar() == 0
    restored.db.dispose()
    after = read_rows(url_without_tables)
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
    assert report.uncertain == READERS
    assert not pipeline.plan_and_send(restored, now + DAY)["sent"]
    with restored.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert "deliveries --state uncertain" in pause.reason
        ledger.resume(session, now)
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
        ledger.resume(session, now)
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


def test_previous_database_in_use_is_refused(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, processes: ForkServer
) -> None:
    """Both services would send the same digests. Nothing is restored."""
    file = tmp_path / "backup.zip"
    maintenance.back_up(service, file, now)
    url = service.settings.database_url
    previous = Database(url, read_only=True)
    in_use = pytest.raises(Conflict, match="the previous database is in use by 1 other process: stop the")
    with other_process.using(processes, url), in_use:
        restore(service, file, empty_url, now, previous)
    previous.dispose()
    db = Database(empty_url)
    assert backup_file.is_empty(db)
    db.dispose()


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


@pytest.mark.parametrize("with_previous", [False, True])
def test_first_digest_held_at_the_backup_and_released_since(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application], *, with_previous: bool,
) -> None:  # fmt: skip
    """It is not sent again. With the previous database, one that is still held there stays held."""
    ten, file = now.replace(hour=10), tmp_path / "backup.zip"
    pipeline.plan_and_send(service, ten)
    table = b"email,interests,hour\ncarol@example.org,language agents,9\ndave@example.org,language agents,9\n"
    maintenance.import_subscribers(service, io.BytesIO(table), "cli", ten)
    nine = ten + timedelta(hours=23)
    assert pipeline.plan_and_send(service, nine) == {"planned": 2}
    maintenance.back_up(service, file, nine)
    with service.db.write() as session:
        assert ledger.resume(session, nine, ledger.FIRST_DIGESTS)
        carol, dave = session.exec(select(Delivery).order_by(col(Delivery.id)).offset(READERS)).all()
        dave.next_attempt_at = None
    assert pipeline.plan_and_send(service, nine)["sent"] == 1
    previous = service.db if with_previous else None
    restored, report = restore(service, file, empty_url, nine + timedelta(minutes=30), previous)
    restored_services.append(restored)
    assert (report.waiting, report.recovered) == ((0, 1) if with_previous else (2, 0))
    with restored.db.write() as session:
        for scope in (ledger.ALL_EDITIONS, ledger.FIRST_DIGESTS):
            assert ledger.resume(session, nine + timedelta(minutes=30), scope)
        states = [session.get_one(Delivery, mail.id).state for mail in (carol, dave)]
    assert states == (["sent", "pending"] if with_previous else ["uncertain", "uncertain"])
    pipeline.plan_and_send(restored, nine + timedelta(minutes=31))
    recipients = [mail.recipient for mail in mail_server.messages[READERS:]]
    assert recipients == ["carol@example.org", *(["dave@example.org"] if with_previous else [])]


def test_emails_deferred_at_the_backup_and_resumed_since(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """They are not sent again, although the time of their next attempt has not come yet."""
    ten, file, minute = now.replace(hour=10), tmp_path / "backup.zip", timedelta(minutes=1)
    mail_server.reply("rcpt", "550 5.7.1 Service unavailable; client host blocked using Spamhaus")
    assert pipeline.plan_and_send(service, ten)["deferred"] == READERS
    maintenance.back_up(service, file, ten + minute)
    mail_server.clear_rules()
    with service.db.write() as session:
        ledger.resume(session, ten + minute)
    assert pipeline.plan_and_send(service, ten + 2 * minute)["sent"] == READERS
    restored, report = restore(service, file, empty_url, ten + 3 * minute)
    restored_services.append(restored)
    assert report.waiting == READERS
    with restored.db.write() as session:
        ledger.resume(session, ten + 3 * minute)
    pipeline.plan_and_send(restored, ten + timedelta(hours=1))
    assert len(mail_server.messages) == READERS


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


def test_revoked_links_and_pauses_since_the_backup_are_repeated(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """Replaced links stay invalid, and no digests go to old addresses or to readers who paused."""
    later = now + timedelta(minutes=5)
    maintenance.back_up(service, tmp_path / "backup.zip", now)
    with service.db.write() as session:
        ids = [subscribers.find(session, f"r{number}@example.org").id or 0 for number in range(READERS)]
        subscribers.new_links(session, ids[0], later)
        subscribers.pause(session, ids[1], None, later)
        subscribers.pause(session, ids[2], now + 9 * DAY, later)
        subscribers.replace_address(session, ids[3], "new@example.org", later)
        subscribers.replace_address(session, ids[4], "r3@example.org", later)
        subscribers.replace_address(session, ids[3], "r4@example.org", later)  # both have swapped addresses
        subscribers.replace_address(session, ids[5], "moved@example.org", later)
        subscribers.erase(session, ids[5], later)
    fields = ("id", "email", "state", "paused_until", "next_due_at", "due_since", "link_epoch")
    restored, _ = restore(service, tmp_path / "backup.zip", empty_url, now + timedelta(minutes=9), service.db)
    restored_services.append(restored)
    rows, events = list[Any](), list[Any]()
    for each in (service, restored):
        with each.db.read() as session:
            people = session.exec(select(Subscriber).order_by(col(Subscriber.id))).all()
            rows.append([tuple(getattr(person, name) for name in fields) for person in people])
            history = select(Event.subscriber_id, Event.kind, Event.at).where(Event.subscriber_id != ids[5])
            kinds = col(Event.kind).in_(("new_links", "address_changed", "paused"))
            events.append(set(session.exec(history.where(kinds)).all()))
    assert rows[0] == rows[1]
    assert events[0] == events[1]
    assert len(events[0]) == 5, "two of the three changes have the same subscriber and time"


def test_pause_before_a_bounce_is_repeated(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """Lifting the suppression of the address sends no digests to a reader who had paused them."""
    with service.db.write() as session:
        reader = subscribers.find(session, "r1@example.org").id or 0
        delivery = subscribers.new_links(session, reader, now)
    maintenance.back_up(service, tmp_path / "backup.zip", now)
    with service.db.write() as session:
        subscribers.pause(session, reader, now + 9 * DAY, now + timedelta(minutes=1))
        recording.record_hard(session, delivery, reader, "550 5.1.1 unknown", now + timedelta(minutes=2))
    restored, _ = restore(service, tmp_path / "backup.zip", empty_url, now + timedelta(minutes=9), service.db)
    restored_services.append(restored)
    with restored.db.write() as session:
        assert subscribers.lift_suppression(session, "r1@example.org", now + timedelta(minutes=10))
        subscriber = subscribers.get(session, reader)
    assert (subscriber.state, subscriber.paused_until) == (SubscriberState.PAUSED, now + 9 * DAY)


def test_reused_id_of_another_subscriber(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """The previous database came from an older backup, and gave the id to somebody else, who has left."""
    with service.db.write() as session:
        last = subscribers.find(session, f"r{READERS - 1}@example.org").id or 0
    maintenance.back_up(service, tmp_path / "backup.zip", now)
    with service.db.write() as session:
        other = session.get_one(Subscriber, last)
        other.email, other.created_at = "other@example.org", now + timedelta(minutes=1)
        other.link_epoch, other.state = 1, SubscriberState.UNSUBSCRIBED
    restored, _ = restore(service, tmp_path / "backup.zip", empty_url, now + timedelta(minutes=9), service.db)
    restored_services.append(restored)
    with restored.db.read() as session:
        subscriber = subscribers.get(session, last)
    assert (subscriber.email, subscriber.state) == (f"r{READERS - 1}@example.org", SubscriberState.ACTIVE)


def test_new_address_that_another_subscriber_has(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """The previous database does not know that subscriber, because an older backup lacked them.

    The address stays the old one, whose links stay revoked, and so does that of a subscriber who moved there.
    Other changes of these subscribers are recorded.
    """
    maintenance.back_up(service, tmp_path / "backup.zip", now)
    later = now + timedelta(minutes=2)
    with service.db.write() as session:
        ids = [subscribers.find(session, f"r{number}@example.org").id or 0 for number in range(READERS)]
        other = session.get_one(Subscriber, ids[-1])
        other.email, other.created_at = "other@example.org", now + timedelta(minutes=1)
        session.add(other)
        session.flush()
        subscribers.replace_address(session, ids[0], f"r{READERS - 1}@example.org", later)
        subscribers.replace_address(session, ids[1], "r0@example.org", later)
        subscribers.replace_address(session, ids[2], "new@example.org", later)
        subscribers.new_links(session, ids[0], later)
        subscribers.pause(session, ids[1], None, later)
    restored, report = restore(
        service, tmp_path / "backup.zip", empty_url, now + timedelta(minutes=9), service.db
    )
    restored_services.append(restored)
    assert report.old_addresses == ["r0@example.org", "r1@example.org"]
    with restored.db.read() as session:
        people = [subscribers.get(session, each) for each in (*ids[:3], ids[-1])]
        moved = session.exec(select(Event.subscriber_id).where(Event.kind == "address_changed")).all()
        since = select(Event.subscriber_id, Event.kind).where(
            Event.at >= later, Event.kind != "address_changed"
        )
        others = {tuple(row) for row in session.exec(since)}
    assert [(person.email, person.link_epoch) for person in people] == [
        ("r0@example.org", 2), ("r1@example.org", 1), ("new@example.org", 1), ("r7@example.org", 0),
    ]  # fmt: skip
    assert others >= {(ids[0], "new_links"), (ids[1], "paused")}
    assert moved == [ids[2]], "bounces count for an address that is still used"


@pytest.mark.parametrize("with_previous", [False, True])
def test_digests_due_after_a_pause_that_ended_since_the_backup(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, with_previous: bool,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """They may have been sent, like those of subscribers who were active."""
    with service.db.write() as session:
        paused = subscribers.find(session, "r0@example.org").id or 0
        subscribers.pause(session, paused, now + DAY, now)
    maintenance.back_up(service, tmp_path / "backup.zip", now)
    later = now + 3 * DAY
    previous = service.db if with_previous else None
    restored, report = restore(service, tmp_path / "backup.zip", empty_url, later, previous)
    restored_services.append(restored)
    with restored.db.read() as session:
        own = select(Delivery.edition, Delivery.state).where(Delivery.subscriber_id == paused)
        assert session.exec(own.order_by(col(Delivery.id))).all() == [
            ("2026-11-21", DeliveryState.UNCERTAIN),
            ("2026-11-22", DeliveryState.UNCERTAIN),
        ]
    assert report.due_since == {"2026-11-20": READERS - 1, "2026-11-21": READERS, "2026-11-22": READERS}


Step = Callable[[Session, datetime], object]


def store(kind: SourceKind, **fields: Any) -> Step:
    """Return a step that stores a record of the same paper from the source of a kind."""
    record = PaperRecord("Pigeons That Plan in Cities", authors=("Mei Tanaka",), upvotes=1, **fields)

    def step(session: Session, now: datetime) -> None:
        source = session.exec(select(Source).where(Source.name == kind)).one()
        stored_records.store(session, source, ParseResult(1, (replace(record, listed_on=now.date()),)), now)

    return step


def root_of(session: Session) -> Paper:
    """Return the newest paper that was not merged into another."""
    roots = select(Paper).where(col(Paper.merged_into_id).is_(None))
    return session.exec(roots.order_by(col(Paper.id).desc())).all()[0]


def split_source(session: Session, now: datetime) -> None:
    source = session.exec(select(Source).where(Source.name == SourceKind.JSONL)).one()
    splitting.split_source(session, root_of(session), source.id or 0, now)


def split_doi(session: Session, now: datetime) -> None:
    splitting.split_doi(session, root_of(session), now)


def undo_first_merge(session: Session, now: datetime) -> None:
    merging.undo_merge(session, 1, now)


def merge_both(session: Session, now: datetime) -> None:
    roots = select(Paper).where(col(Paper.merged_into_id).is_(None), Paper.title == root_of(session).title)
    first, second = session.exec(roots).all()
    merging.merge_by_hand(session, first, second, now)


MERGED = (store(SourceKind.FEED), store(SourceKind.ARXIV, arxiv_id="2611.00001", abstract="We teach birds."))
CHAIN = (MERGED[0], store(SourceKind.JSONL, doi="10.1234/birds"), MERGED[1])
HISTORIES = {
    "merged": MERGED,
    "chain": CHAIN,
    "undone": (*CHAIN, undo_first_merge),
    "merged again": (*CHAIN, undo_first_merge, merge_both),
    "split by DOI": (store(SourceKind.ARXIV, arxiv_id="2611.00001", doi="10.1234/birds"), split_doi),
    "split by source": (store(SourceKind.FEED), store(SourceKind.JSONL), split_source),
}


def store_another(session: Session, now: datetime) -> None:
    source = session.exec(select(Source).where(Source.name == SourceKind.FEED)).one()
    record = PaperRecord("Owls That Sleep All Day", authors=("Olu Adeyemi",), listed_on=now.date())
    stored_records.store(session, source, ParseResult(1, (record,)), now)


def store_from_two_sources(service: Application, now: datetime) -> None:
    with service.db.write() as session:
        for kind in (SourceKind.FEED, SourceKind.JSONL):
            factories.add_source(session, now, kind)
            store(kind)(session, now)


@pytest.mark.parametrize("add_paper", [store_another, split_source])
def test_ids_of_lost_papers_are_not_reused(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, add_paper: Step,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """Links in emails and the addresses of pages contain them."""
    store_from_two_sources(service, now)
    file = tmp_path / "backup.zip"
    maintenance.back_up(service, file, now)
    restored, _ = restore(service, file, empty_url, now)
    restored_services.append(restored)
    newest = []
    for app in (service, restored):
        with app.db.write() as session:
            add_paper(session, now)
        with app.db.read() as session:
            newest.append(max(session.exec(select(Paper.id)).all()))
    assert newest[1] - newest[0] == ledger.PAPER_ID_GAP


def test_ids_skipped_by_a_restore_are_not_reused_by_the_next(
    service: Application, new_database_url: Callable[[], str], tmp_path: Path, now: datetime,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """A backup made right after a restore, before any paper was added, contains them."""
    store_from_two_sources(service, now)
    newest, source = [], service
    for number in range(3):
        file = tmp_path / f"{number}.zip"
        maintenance.back_up(source, file, now)
        with source.db.write() as session:
            store_another(session, now)
        with source.db.read() as session:
            newest.append(max(session.exec(select(Paper.id)).all()))
        source, _ = restore(service, file, new_database_url(), now)
        restored_services.append(source)
    assert [later - earlier for earlier, later in pairwise(newest)] == [ledger.PAPER_ID_GAP] * 2


@pytest.mark.parametrize(
    ("steps", "before_backup"),
    [
        pytest.param(HISTORIES[name], n, id=f"{name}-{n}")
        for name in HISTORIES
        for n in range(len(HISTORIES[name]))
    ],
)
def test_merges_and_splits_since_the_backup_are_repeated(
    service: Application, new_database_url: Callable[[], str], tmp_path: Path, now: datetime,
    steps: Sequence[Step], before_backup: int, restored_services: list[Application],
) -> None:  # fmt: skip
    """They could refer to rows that the backup lacks, so the restore failed or merges could not be undone."""
    with service.db.write() as session:
        for kind in (SourceKind.FEED, SourceKind.ARXIV, SourceKind.JSONL):
            session.add(Source(name=kind, kind=kind, created_at=now))
    for number, step in enumerate(steps):
        if number == before_backup:
            maintenance.back_up(service, tmp_path / "backup.zip", now)
        with service.db.write() as session:
            step(session, now + timedelta(minutes=number))
    restored, _ = restore(service, tmp_path / "backup.zip", new_database_url(), now + DAY, service.db)
    restored_services.append(restored)
    assert archive_rows(restored) == archive_rows(service)
    with restored.db.write() as session:  # new rows get new ids
        root = root_of(session)
        new = factories.add_paper(session, session.get_one(Source, 1), "A new paper", now.date(), now)
        merging.merge_by_hand(session, root, session.get_one(Paper, new), now + DAY)


def archive_rows(app: Application) -> dict[str, list[str]]:
    """Return the papers, merges, listings and votes, without the ids that nothing refers to."""
    with app.db.read() as session:
        rows = {
            table.__name__: [
                str(row.model_dump(exclude=set() if table is Paper else {"id"}))
                for row in session.exec(select(table).order_by(col(table.id)))
            ]
            for table in (Paper, Merge, Listing, VoteCount)
        }
    return {name: sorted(texts) for name, texts in rows.items()}


def test_digest_composed_again_since_the_backup(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, mail_server: MailServer,
    restored_services: list[Application],
) -> None:  # fmt: skip
    """The planned digest in the backup was withdrawn, because the subscriber changed their interests."""
    ahead = now.replace(hour=9, minute=52)
    pipeline.plan(service, ahead)
    maintenance.back_up(service, tmp_path / "backup.zip", ahead)
    with service.db.write() as session:
        subscriber = subscribers.find(session, "r0@example.org")
        interests = (Interest("language agents with memory"),)
        preferences = replace(subscribers.preferences_of(session, subscriber), interests=interests)
        subscribers.change(session, subscriber.id or 0, preferences, ahead)
    pipeline.plan_and_send(service, now.replace(hour=10, minute=1))
    digests = select(Delivery.id, Delivery.state).where(Delivery.subscriber_id == subscriber.id)
    with service.db.read() as session:
        sent = session.exec(digests).all()
    assert [state for _, state in sent] == [DeliveryState.SENT]
    restored, _ = restore(service, tmp_path / "backup.zip", empty_url, now + timedelta(hours=2), service.db)
    restored_services.append(restored)
    with restored.db.read() as session:
        assert session.exec(digests).all() == sent
        assert session.get_one(DigestContent, sent[0][0]).digest


def test_key_rotated_since_the_backup(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, restored_services: list[Application]
) -> None:
    """The old key, which may have leaked, stays invalid."""
    with service.db.write() as session:
        row, key = api_keys.create(session, "relay", [api_keys.Scope.WRITE], now)
        _, other = api_keys.create(session, "other", [api_keys.Scope.WRITE], now)
    maintenance.back_up(service, tmp_path / "backup.zip", now)
    with service.db.write() as session:
        api_keys.rotate(session, row.id or 0, now, timedelta())
    restored, _ = restore(service, tmp_path / "backup.zip", empty_url, now + DAY, service.db)
    restored_services.append(restored)
    with restored.db.read() as session:
        assert api_keys.authenticate(session, key, now + DAY) is None
        assert api_keys.authenticate(session, other, now + DAY)


@pytest.mark.parametrize("interrupted", ["migrate", "restore_journals", "disable_all", "skip_ids"])
def test_interrupted_restore_can_be_repeated(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, interrupted: str,
    monkeypatch: pytest.MonkeyPatch, restored_services: list[Application],
) -> None:  # fmt: skip
    """The second run continues with the rows that the first one loaded. Another backup is refused."""
    file, other = tmp_path / "backup.zip", tmp_path / "other.zip"
    with service.db.write() as session:
        gone = subscribers.find(session, "r7@example.org").id or 0
    maintenance.back_up(service, file, now)
    maintenance.back_up(service, other, now + timedelta(hours=1))
    with service.db.write() as session:
        subscribers.unsubscribe(session, gone, now + timedelta(hours=1))
    modules = {"migrate": schema, "restore_journals": backup_file, "disable_all": webhook_endpoints}
    with monkeypatch.context() as patch:
        module = modules.get(interrupted, ledger)
        original = getattr(module, interrupted)

        def interrupt(*arguments: object) -> None:
            if interrupted == "migrate" and len(arguments) == 2:  # before the rows are loaded
                original(*arguments)
                return
            raise KeyboardInterrupt

        patch.setattr(module, interrupted, interrupt)
        with pytest.raises(KeyboardInterrupt):
            restore(service, file, empty_url, now + DAY, service.db)
    with pytest.raises(Conflict, match="is not empty"):
        restore(service, other, empty_url, now + DAY, service.db)
    restored, _ = restore(service, file, empty_url, now + DAY, service.db)
    restored_services.append(restored)
    with restored.db.read() as session:
        assert subscribers.get(session, gone).state == "unsubscribed"
    with pytest.raises(Conflict, match="is not empty"):
        restore(service, file, empty_url, now + DAY, service.db)


@contextmanager
def interrupted_at(module: Any, function: str) -> Iterator[None]:
    """Interrupt the block when it calls a function."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_restore_interrupted_at_its_end_need_not_be_repeated(
    service: Application, empty_url: str, tmp_path: Path, now: datetime
) -> None:
    """It has settled the database, but could not print its report. The error says where to continue."""
    file = tmp_path / "backup.zip"
    maintenance.back_up(service, file, now)

    with interrupted_at(job_runs, "_finish"):
        restore(service, file, empty_url, now + DAY, service.db)
    with pytest.raises(
        Conflict, match="already been restored; review `paperboy deliveries --state uncertain`"
    ):
        restore(service, file, empty_url, now + DAY, service.db)


def test_interrupted_restore_is_not_repeated_after_other_jobs(
    service: Application, empty_url: str, tmp_path: Path, now: datetime
) -> None:
    """They may have added papers with the ids of other papers in the previous database."""
    file = tmp_path / "backup.zip"
    maintenance.back_up(service, file, now)

    with interrupted_at(ledger, "skip_ids"):
        restore(service, file, empty_url, now + DAY, service.db)
    db = Database(empty_url)
    job_runs.begin(db, "refresh", now + DAY + timedelta(minutes=1))
    db.dispose()
    with pytest.raises(Conflict, match="the service has run"):
        restore(service, file, empty_url, now + DAY, service.db)


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
        ledger.resume(session, now)
        states = session.exec(select(Delivery.state).where(Delivery.kind == MailKind.DIGEST)).all()
    assert len(states) == 60
    assert set(states) <= {DeliveryState.SENT, DeliveryState.UNCERTAIN}
    assert not pipeline.plan_and_send(restored, now + timedelta(hours=9))["sent"]
    assert len(mail_server.messages) == 60


def refuse_writes(connection: Any, _record: object) -> None:
    """Make a new connection read-only."""
    is_sqlite = isinstance(connection, sqlite3.Connection)
    connection.execute("PRAGMA query_only = ON" if is_sqlite else "SET default_transaction_read_only = on")
    connection.commit()


def test_backup_of_a_database_that_refuses_writes(
    service: Application, tmp_path: Path, now: datetime
) -> None:
    """A standby or a full disk is a reason to save the data."""
    event.listen(service.db.engine, "connect", refuse_writes)
    service.db.engine.dispose()
    with pytest.raises(OperationalError):
        job_runs.begin(service.db, "poll", now)
    with structlog.testing.capture_logs() as logged:
        manifest = maintenance.back_up(service, tmp_path / "backup.zip", now)
    assert "refused to record the run" in logged[-1]["event"]
    assert manifest.tables["subscriber"].rows == READERS
    event.remove(service.db.engine, "connect", refuse_writes)
    service.db.engine.dispose()


@pytest.mark.once
@pytest.mark.parametrize("has_log", [False, True])
def test_backup_of_a_stopped_service_on_a_full_or_read_only_disk(
    service: Application, tmp_path: Path, now: datetime, *, has_log: bool
) -> None:
    """SQLite cannot create its -shm file. The rows that are only in its -wal file are saved as well."""
    running = Path(service.settings.database_url.removeprefix("sqlite:///"))
    stopped = tmp_path / "a stopped service" / "paperboy.db"
    stopped.parent.mkdir()
    if not has_log:
        service.db.dispose()
    for file in running.parent.glob(f"{running.name}*"):
        if file.suffix in {".db", ".db-wal"}:
            shutil.copy(file, stopped.with_suffix(file.suffix))
    stopped.with_suffix(".db-shm").symlink_to(
        tmp_path / "none" / "none"
    )  # has the same effect, even for root
    files = {path: path.read_bytes() for path in stopped.parent.iterdir() if path.is_file()}
    assert len(files) == 1 + has_log
    target = tmp_path / "backups" / "1.zip"
    url = f"sqlite:///{stopped}"
    with pytest.raises(OperationalError), Database(url).read() as session:
        session.execute(text("SELECT 1 FROM subscriber"))
    with maintenance.readable_url(url, target) as readable, structlog.testing.capture_logs() as logged:
        app = replace(service, db=Database(readable))
        manifest = maintenance.back_up(app, target, now)
        app.db.dispose()
    assert "refused to record the run" in logged[-1]["event"]
    assert manifest.tables["subscriber"].rows == READERS
    assert list(target.parent.iterdir()) == [target]
    assert {path: path.read_bytes() for path in files} == files


def test_backup_during_which_the_database_begins_to_refuse_writes(
    service: Application, tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is complete, although the end of the run cannot be recorded."""
    write = backup_file.write

    def write_then_refuse(db: Database, *details: Any) -> backup_file.Manifest:
        manifest = write(db, *details)
        event.listen(db.engine, "connect", refuse_writes)
        db.engine.dispose()
        return manifest

    monkeypatch.setattr(backup_file, "write", write_then_refuse)
    file = tmp_path / "backup.zip"
    with structlog.testing.capture_logs() as logged:
        manifest = maintenance.back_up(service, file, now)
    assert "refused to record the run" in logged[-1]["event"]
    assert backup_file.read_manifest(file).rows == manifest.rows
    event.remove(service.db.engine, "connect", refuse_writes)
    service.db.engine.dispose()


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
                content = content.replace(f'"{manifest.revision}"'.encode(), f'"{newer.revision}"'.encode())
            target.writestr(name, content)
    with pytest.raises(InvalidInput, match="which this release cannot read: install that release"):
        backup_file.read_manifest(damaged)


def test_backup_of_a_release_moves_to_another_kind_of_database(
    url_without_tables: str, service: Application, now: datetime, restored_services: list[Application]
) -> None:
    """It was made on SQLite. Rows that are added get new ids."""
    restored, _ = restore(service, RELEASES / "0.1.0.zip", url_without_tables, now)
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


def test_tables_of_an_operator_are_left_out(
    service: Application, empty_url: str, tmp_path: Path, now: datetime, new_database_url: Callable[[], str]
) -> None:
    """A column whose type a backup cannot store stopped all backups and moves."""
    settings = service.settings.model_copy(update={"database_url": new_database_url()})
    own = replace(service, settings=settings, db=Database(settings.database_url))
    with own.db.write() as session:
        columns = "id INTEGER PRIMARY KEY, price NUMERIC(8, 2), author VARCHAR(100) REFERENCES worker"
        session.execute(text(f"CREATE TABLE note ({columns})"))
        session.execute(text("INSERT INTO note VALUES (1, 2.5, NULL)"))
    manifest = maintenance.back_up(own, tmp_path / "backup.zip", now)
    assert manifest.tables_left_out == ("note",)
    assert not {"note", "worker"} & manifest.tables.keys()
    assert maintenance.move(own, empty_url, tmp_path / "1.zip", now).manifest.tables_left_out == ("note",)
    own.db.dispose()


@pytest.mark.once
def test_backup_of_a_database_with_only_excluded_tables(tmp_path: Path, now: datetime) -> None:
    """It contains no tables."""
    db = Database(f"sqlite:///{tmp_path}/other.db")
    with db.write() as session:
        session.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        session.execute(text("CREATE TABLE procrastinate_jobs (id INTEGER PRIMARY KEY AUTOINCREMENT)"))
    manifest = backup_file.write(db, tmp_path / "backup.zip", tmp_path, now, "0.2.0")
    assert (manifest.tables, manifest.tables_left_out) == ({}, ())
    db.dispose()


@pytest.mark.once
def test_previous_database_on_a_read_only_disk(service: Application) -> None:
    """SQLite could not create its -wal and -shm files there, so the database seemed to be unreadable."""
    service.db.dispose()
    url = service.settings.database_url
    previous = Database(url, read_only=True)
    with previous.read() as session:
        assert len(session.exec(select(Subscriber)).all()) == READERS
        file = Path(url.removeprefix("sqlite:///"))
        assert [path.name for path in file.parent.glob(f"{file.name}*")] == [file.name]
    previous.dispose()
