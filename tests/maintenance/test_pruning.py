"""Test the pruning of old deliveries and events."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select

from app import bounces, maintenance, subscribers
from app.application import Application
from app.delivery import ledger
from app.delivery.ledger import retention
from app.digests import planning
from app.errors import Conflict, InvalidPreference
from app.storage import audit_log, job_runs
from app.storage.models import AuditEntry, Delivery, Event, JobRun, Subscriber, SubscriberState
from app.subscribers import privacy, repository
from app.types import Cadence, EmptyDigestPolicy, Interest, Skip
from tests.conftest import NOW
from tests.support import factories

AGENTS = "Language Agents that Plan"


@pytest.fixture
def app(app: Application) -> Application:
    """Return the application with a paper of today, and Alice, who is due at eight and likes agents."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        factories.add_paper(session, source, AGENTS, NOW.date(), NOW, abstract=f"{AGENTS}, at last.")
        factories.add_subscriber(session, "alice@example.org", ["language agents"], NOW)
    return app


def plan(app: Application, now: datetime) -> Counter[str]:
    return planning.plan(app.digest_context, now)


def list_again(app: Application, day: date) -> None:
    with app.db.write() as session:
        paper = session.exec(select(factories.Paper).where(factories.Paper.title == AGENTS)).one()
        paper.last_listed_on = day
        session.exec(
            select(factories.Listing).where(factories.Listing.paper_id == paper.id)
        ).one().listed_on = day


@pytest.mark.parametrize("minutes", [1, 24 * 60])
def test_pruned_deliveries_cannot_repeat_papers(app: Application, minutes: int) -> None:
    """When the delivery of a paper is pruned, the paper is too old to be a candidate."""
    plan(app, NOW)
    later = NOW + timedelta(days=app.settings.retention_days, minutes=minutes)
    list_again(app, later.date())
    assert maintenance.prune(app, later)["deliveries"] == 1
    assert plan(app, later) == {"skipped": 1}


def test_raised_retention_cannot_repeat_papers(app: Application) -> None:
    """Papers that were first listed after the newest deleted digest are sent."""
    short = replace(app, settings=app.settings.model_copy(update={"retention_days": 60}))
    plan(app, NOW)
    later = NOW + timedelta(days=60, hours=1)
    assert maintenance.prune(short, later)["deliveries"] == 1
    assert maintenance.prune(app, later)["deliveries"] == 0
    list_again(app, later.date())
    assert plan(app, later) == {"skipped": 1}
    later += timedelta(days=1)
    with app.db.write() as session:
        source = session.exec(select(factories.Source)).one()
        paper = factories.add_paper(session, source, f"{AGENTS} Twice", later.date(), later)
        session.get_one(factories.Paper, paper).first_listed_on = NOW.date() + timedelta(days=1)
    assert plan(app, later) == {"planned": 1}
    with app.db.read() as session:
        digests = ledger.stored_digests(session, session.exec(select(Delivery.id)).all())
        assert [ledger.paper_ids(digest) for digest in digests.values()] == [[paper]]


def test_pruning_by_a_wrong_clock_stops_no_digests(app: Application) -> None:
    """The clock was three years ahead when editions were planned, and more when they were deleted."""
    wrong = NOW + timedelta(days=3 * 365)
    assert plan(app, wrong) == {"skipped": 1}
    later = wrong + timedelta(days=app.settings.retention_days, minutes=1)
    assert maintenance.prune(app, later)["deliveries"] == 1
    with app.db.write() as session:
        session.get_one(Subscriber, 1).next_due_at = NOW
    assert plan(app, NOW) == {"planned": 1}


@pytest.mark.parametrize("waits_days", [0, 500])
def test_subscriber_is_welcomed_once(waits_days: int, app: Application) -> None:
    """Also if the first digest has been deleted. The next one is not held as a first digest either.

    Bob's first digest welcomes him even if he had to wait longer than the retention.
    """
    preferences = subscribers.Preferences(interests=(Interest("language agents"),))
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", preferences, NOW - timedelta(hours=2))

    def add_paper_and_plan(title: str, now: datetime) -> list[str]:
        """Add a paper, and return the notes of Bob's stored digests."""
        with app.db.write() as session:
            source = session.exec(select(factories.Source)).one()
            factories.add_paper(session, source, title, now.date(), now)
        plan(app, now)
        with app.db.read() as session:
            digests = select(Delivery).where(Delivery.subscriber_id == bob)
            return [factories.load_digest(app, row).note for row in session.exec(digests).all()]

    first = NOW + timedelta(days=waits_days)
    maintenance.prune(app, first)
    (welcome,) = add_paper_and_plan("Language Agents that Welcome", first)
    assert welcome.startswith("Welcome")
    later = first + timedelta(days=app.settings.retention_days, minutes=1)
    assert maintenance.prune(app, later)["deliveries"] == 2
    with app.db.write() as session:
        ledger.pause(session, ledger.IMPORTED, later, ledger.FIRST_DIGESTS)
    assert add_paper_and_plan("Language Agents that Remember", later) == [""]
    with app.db.read() as session:
        assert ledger.count_held(session) == 0


def test_unconfirmed_sign_ups_leave_no_rows(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest row is kept, so that its id is not reused. Subscribers who were erased are counted."""
    monkeypatch.setattr(privacy, "DELETION_BATCH", 2)
    preferences = subscribers.Preferences(interests=(Interest("language agents"),))
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", preferences, NOW)
        subscribers.erase(session, bob, NOW)
        for number in range(6):
            form = subscribers.SignUp(f"bot{number}@example.org", preferences)
            factories.sign_up(session, form, "192.0.2.1", NOW)
        newest = session.exec(select(Subscriber.id).order_by(col(Subscriber.id).desc())).first()
    ended = NOW + timedelta(days=app.settings.unconfirmed_days, minutes=1)
    counts = maintenance.prune(app, ended)
    assert (counts["unconfirmed"], counts["sign_ups"]) == (6, 0)
    later = ended + timedelta(days=app.settings.retention_days, minutes=1)
    assert maintenance.prune(app, later)["sign_ups"] == 5
    with app.db.read() as session:
        assert session.exec(select(Subscriber.id).order_by(col(Subscriber.id))).all() == [1, bob, newest]


def test_event_of_a_subscriber_who_left_is_deleted(app: Application) -> None:
    """Bob and Carol were added and never got a digest. Carol has unsubscribed."""
    later = NOW + timedelta(days=app.settings.retention_days, minutes=1)
    with app.db.write() as session:
        for name in ("bob", "carol"):
            preferences = subscribers.Preferences(interests=(Interest("knitting"),))
            number = subscribers.add(session, f"{name}@example.org", preferences, NOW)
        subscribers.unsubscribe(session, number, NOW)
    maintenance.prune(app, later)
    with app.db.read() as session:
        assert [(each.subscriber_id, each.kind) for each in session.exec(select(Event))] == [
            (number - 1, "added")
        ]


@pytest.mark.parametrize("has_come_back", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        {"interests": (Interest("language agents"),)},
        {"muted": ("knitting",)},
        {"zone": "Asia/Tokyo"},
        {"cadence": Cadence.WEEKLY, "weekday": 2},
        {"max_trending": 5, "paper_updates": False},
        {"when_empty": EmptyDigestPolicy.TRENDING},
        {"feedback": True},
        {"ignored_author": "Ada Byron"},
        {"ip": "192.0.2.1"},
    ],
    ids=lambda data: next(iter(data)),
)
def test_former_subscriber_keeps_only_address_and_consent(
    app: Application, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], has_come_back: bool
) -> None:
    """Each kind of data is deleted, also alone. Of those who come back in time, everything is kept."""
    monkeypatch.setattr(privacy, "FORGETTING_BATCH", 2)
    app = replace(app, settings=app.settings.model_copy(update={"default_zone": "Europe/Berlin"}))
    reset = subscribers.default_preferences(app.settings)
    own = {name: value for name, value in data.items() if hasattr(reset, name)}
    preferences = replace(reset, **own)
    with app.db.write() as session:
        readers = [factories.add_subscriber(session, f"{n}@example.org", ["agents"], NOW) for n in range(3)]
        for reader in readers:
            if "feedback" in data:
                subscribers.set_feedback(session, reader, 1, True, NOW)
            subscribers.ignore_author(session, reader, data.get("ignored_author", ""))
            row = session.get_one(Subscriber, reader)
            repository.store_preferences(session, row, preferences)
            row.consent_at, row.consent_ip = NOW, data.get("ip", "")
            subscribers.unsubscribe(session, reader, NOW)
            if has_come_back:
                row.state, row.ended_at = SubscriberState.ACTIVE, None
    retention_days = timedelta(days=app.settings.retention_days)
    assert maintenance.prune(app, NOW + retention_days)["former_subscribers"] == 0, "it is too early"
    later = NOW + retention_days + timedelta(minutes=1)
    assert maintenance.prune(app, later)["former_subscribers"] == (0 if has_come_back else 3)
    assert maintenance.prune(app, later)["former_subscribers"] == 0
    with app.db.read() as session:
        row = subscribers.get(session, readers[0])
        stored = subscribers.preferences_of(session, row)
        assert stored == (preferences if has_come_back else reset)
        feedback = subscribers.feedback_for_ranking(session, readers)
        others = {"feedback": feedback, "ignored_author": row.ignored_authors, "ip": row.consent_ip}
        assert {name for name, value in others.items() if value} == (
            others.keys() & data.keys() if has_come_back else set()
        )
        assert (row.email, row.consent_at) == ("0@example.org", NOW)


def test_former_subscriber_can_come_back_with_new_interests(app: Application) -> None:
    """No import can add them again."""
    preferences = subscribers.Preferences(interests=(Interest("language agents"),))
    with app.db.write() as session:
        reader = subscribers.add(session, "bob@example.org", preferences, NOW)
        subscribers.unsubscribe(session, reader, NOW)
    later = NOW + timedelta(days=app.settings.retention_days, minutes=1)
    maintenance.prune(app, later)
    with app.db.write() as session:
        with pytest.raises(Conflict, match="only its owner can subscribe again"):
            subscribers.add(session, "bob@example.org", preferences, later)
        with pytest.raises(InvalidPreference, match="Add at least one interest"):
            subscribers.resubscribe(session, reader, "", later)
        subscribers.change(session, reader, preferences, later)
        assert subscribers.resubscribe(session, reader, "", later).state is SubscriberState.ACTIVE


def test_old_entries_of_the_audit_log_are_deleted(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "PRUNING_BATCH", 2)
    later = NOW + timedelta(days=app.settings.retention_days, minutes=1)
    with app.db.write() as session:
        for at in (NOW, NOW, NOW, NOW + timedelta(days=1)):
            audit_log.record(session, "cli", "model.train", "", at)
    assert maintenance.prune(app, later)["audit_entries"] == 3
    with app.db.read() as session:
        assert session.exec(select(AuditEntry.at)).all() == [NOW + timedelta(days=1)]


def test_audit_log_is_kept_since_the_oldest_pause(app: Application) -> None:
    """The doctor finds in it whether the pause is automatic."""
    later = NOW + timedelta(days=app.settings.retention_days, minutes=1)
    with app.db.write() as session:
        audit_log.record(session, "cli", "model.train", "", NOW - timedelta(days=1))
        ledger.pause_automatically(session, "complaints", NOW)
    assert maintenance.prune(app, later)["audit_entries"] == 1
    with app.db.read() as session:
        (pause,) = ledger.pauses(session)
        assert ledger.last_automatic(session, pause) == NOW


def test_pruning_deletes_later_bounces_of_a_delivery(app: Application) -> None:
    """A younger bounce event does not prevent the pruning of older deliveries."""
    plan(app, NOW)
    with app.db.write() as session:
        (delivery,) = session.exec(select(Delivery)).all()
        at = NOW + timedelta(days=1)
        session.add(
            Event(at=at, kind="bounce", subscriber_id=delivery.subscriber_id, delivery_id=delivery.id)
        )
    later = NOW + timedelta(days=app.settings.retention_days, hours=12)
    pruned = maintenance.prune(app, later)
    assert (pruned["deliveries"], pruned["events"]) == (1, 1)


def test_pause_is_remembered_until_it_ends(app: Application) -> None:
    """Alice's mail bounces when the event of her pause is older than the retention.

    Her suppression is lifted when that of the bounce is, too. Bob has resumed.
    """
    retention_period = timedelta(days=app.settings.retention_days, minutes=1)
    with app.db.write() as session:
        bob = factories.add_subscriber(session, "bob@example.org", [], NOW)
        for reader, resumes in ((1, False), (bob, True)):
            subscribers.pause(session, reader, None, NOW - timedelta(hours=1))
            subscribers.resume(session, reader, NOW - timedelta(minutes=30))
            subscribers.pause(session, reader, None, NOW - timedelta(minutes=20))
            if resumes:
                subscribers.resume(session, reader, NOW - timedelta(minutes=10))
    at = NOW + retention_period
    maintenance.prune(app, at)
    with app.db.write() as session:
        assert [(each.subscriber_id, each.kind) for each in session.exec(select(Event))] == [(1, "paused")]
        subscribers.send_link(session, "alice@example.org", "", at, factories.CONFIRMABLE)
        (mail,) = session.exec(select(Delivery.id).where(Delivery.subscriber_id == 1)).all()
        assert bounces.record_hard(session, mail or 0, 1, "5.1.1 no such user", at)
    at += retention_period
    maintenance.prune(app, at)
    with app.db.write() as session:
        assert subscribers.lift_suppression(session, "alice@example.org", at)
        assert session.get_one(Subscriber, 1).state is SubscriberState.PAUSED
    maintenance.prune(app, at)
    with app.db.read() as session:
        events = session.exec(select(Event.kind).order_by(col(Event.id))).all()
        assert events == ["trusted_again", "paused"], "the earlier pause is over"


def test_pruning_uses_short_transactions(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop between transactions keeps what is deleted. The next night continues."""
    monkeypatch.setattr(retention, "BATCH_SIZE", 2)
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "bob@example.org", [], NOW)
        days = [NOW - timedelta(days=500 + number) for number in range(5)]
        skips = [ledger.Entry(reader, f"{at:%Y-%m-%d}", at, Skip("quiet")) for at in days]
        ledger.add_entries(session, skips, days[0])
        session.add_all(Event(at=at, kind="changed", subscriber_id=reader) for at in days)
    prune_batch = ledger.prune_events

    def prune_and_stop(session: Session, before: datetime, is_kept: ColumnElement[bool]) -> Counter[str]:
        app.stopping.set()
        return prune_batch(session, before, is_kept)

    with monkeypatch.context() as stopping:
        stopping.setattr(ledger, "prune_events", prune_and_stop)
        pruned = maintenance.prune(app, NOW)
        assert (pruned["events"], pruned["deliveries"]) == (2, 0)
    app.stopping.clear()
    pruned = maintenance.prune(app, NOW)
    assert (pruned["events"], pruned["deliveries"]) == (3, 5)


def test_last_backups_are_kept(app: Application) -> None:
    """The doctor recognizes regular backups that have stopped by them."""
    for days in range(200, 120, -10):
        with job_runs.record(app.db, "backup", NOW - timedelta(days=days)):
            pass
    with suppress(ValueError), job_runs.record(app.db, "backup", NOW - timedelta(days=120)):
        raise ValueError
    for _ in range(2):
        maintenance.prune(app, NOW)
        with app.db.read() as session:
            backups = select(JobRun.started_at).where(JobRun.job == "backup").order_by(col(JobRun.id).desc())
            assert session.exec(backups).all() == [NOW - timedelta(days=days) for days in (130, 140, 150)]
