"""Test planning: digests are composed ahead, by batches of readers, and sent when due."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from app import bounces, pipeline, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.delivery.journal import AttemptResult
from app.delivery.send_result import SendOutcome, SendResult
from app.digests import compose, digest_requests, planning, reconciliation
from app.digests.builder import DigestBuilder
from app.digests.digest_requests import DigestRequest
from app.digests.explanation import explain
from app.digests.reconciliation import Reconciliation
from app.doctor import service_state
from app.storage import job_runs
from app.storage.models import (
    Delivery,
    DeliveryState,
    DigestContent,
    InterestRow,
    Paper,
    Source,
    Subscriber,
)
from app.subscribers import Preferences
from app.types import Cadence, Digest, EmptyDigestPolicy, Interest, Skip
from tests.conftest import NOW
from tests.support import factories, sample_archive
from tests.support.mail_server import MailServer

HOUR = NOW.replace(hour=8, minute=0)
AHEAD = HOUR - timedelta(minutes=9)
DAY = timedelta(days=1)
AGENTS = "Language Agents that Plan"
VIDEO = "Video Diffusion in Real Time"


@pytest.fixture
def app(app: Application) -> Application:
    """Add two papers of today, and Alice, who is due at eight and interested in agents."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        for title in (AGENTS, VIDEO):
            factories.add_paper(session, source, title, NOW.date(), NOW, abstract=f"{title}, at last.")
        factories.add_subscriber(session, "alice@example.org", ["language agents"], HOUR)
    return app


def deliveries(app: Application) -> list[Delivery]:
    with app.db.read() as session:
        return list(session.exec(select(Delivery).order_by(col(Delivery.id))))


def titles(app: Application) -> list[list[str]]:
    return [[pick.title for pick in factories.load_digest(app, row).picks] for row in deliveries(app)]


def change_preferences(app: Application, now: datetime, **fields: object) -> None:
    with app.db.write() as session:
        subscribers.change(session, 1, Preferences(**fields), now)  # type: ignore[arg-type]


@pytest.mark.parametrize("cadence", Cadence)
def test_requested_first_digest(app: Application, mail_server: MailServer, cadence: Cadence) -> None:
    """If it was skipped, it can be requested on another day. The schedule continues a day after it."""
    early, tomorrow = HOUR - timedelta(hours=1), HOUR + DAY - timedelta(hours=1)
    rhythm = Preferences(interests=(Interest("pigeons"),), cadence=cadence, weekday=2, hour=8)
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", rhythm, early - 6 * DAY)
        subscribers.change(session, bob, rhythm, early - DAY / 24)
    for _ in range(2):
        skipped = pipeline.plan_first(app, bob, early)
        assert skipped
        assert (skipped.state, skipped.edition) == (DeliveryState.SKIPPED, f"{early:%Y-%m-%d}")
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        factories.add_paper(session, source, "Homing Pigeons", tomorrow.date(), tomorrow)
    digest = pipeline.plan_first(app, bob, tomorrow)
    assert digest
    assert pipeline.send_now(app, tomorrow, [digest.id or 0])["sent"] == 1
    again = pipeline.plan_first(app, bob, tomorrow + timedelta(minutes=1))
    assert again
    assert (again.id, again.state) == (digest.id, DeliveryState.SENT)
    with app.db.read() as session:
        following = session.get_one(Subscriber, bob).next_due_at
        assert reconciliation.reconcile(session, tomorrow, skipped.edition, digest.edition).surplus == 0
    assert following
    assert following == digest.give_up_at
    assert following.date() > tomorrow.date()
    assert len(mail_server.messages) == 1


def test_first_digest_says_who_added_the_subscriber(app: Application, mail_server: MailServer) -> None:
    """Only for those whom the operator added, and only once."""
    alice = 1
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", Preferences(interests=(Interest("video"),)), AHEAD)
    pipeline.plan_and_send(app, HOUR)
    with app.db.write() as session:
        source = factories.add_source(session, NOW, "another")
        factories.add_paper(session, source, "Video Games", (NOW + DAY).date(), NOW + DAY)
    pipeline.plan(app, HOUR + DAY)
    notes: dict[int, list[str]] = {alice: [], bob: []}
    for row in deliveries(app):
        if row.state is DeliveryState.SKIPPED:
            continue
        notes[row.subscriber_id].append(factories.load_digest(app, row).note)
    assert not any(notes[alice])
    assert [note.split(".")[0] for note in notes[bob]] == ["Welcome", ""]
    assert "the operator of Paperboy" in notes[bob][0]
    assert len(mail_server.messages) == 2


# --- after a digest that was not sent


def add_paper(app: Application, title: str, at: datetime) -> None:
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        factories.add_paper(session, source, title, at.date(), at, abstract=f"{title}, at last.")


def test_next_digest_contains_the_papers_of_an_expired_one(app: Application, mail_server: MailServer) -> None:
    """The old digest waits until the next one is composed, ahead of its hour."""
    tomorrow, newer = HOUR + DAY, "Language Agents that Rest"
    mail_server.reply("rcpt", "451 4.3.0 try later")
    pipeline.plan_and_send(app, AHEAD)
    pipeline.plan_and_send(app, HOUR)
    add_paper(app, newer, tomorrow - DAY / 4)
    pipeline.plan_and_send(app, tomorrow - timedelta(minutes=11))
    assert [row.state for row in deliveries(app)] == [DeliveryState.DEFERRED]
    assert pipeline.plan_and_send(app, AHEAD + DAY)["planned"] == 1
    old, _ = deliveries(app)
    assert (old.state, old.next_attempt_at) == (DeliveryState.FAILED, None)
    assert old.reason == "given up because the next digest is due: 451 4.3.0 try later"
    mail_server.clear_rules()
    assert pipeline.plan_and_send(app, tomorrow)["sent"] == 1
    assert sorted(titles(app)[1]) == sorted([AGENTS, newer])


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "moved_to"),
    [
        ({"cadence": Cadence.WEEKLY, "weekday": 4}, {}, HOUR + DAY),
        ({}, {"hour": 6}, HOUR + DAY * 22 / 24),
        ({}, {"hour": 20}, HOUR + DAY * 3 / 2),
        ({}, {"cadence": Cadence.WEEKLY, "weekday": 3}, HOUR + 6 * DAY),
    ],
)
def test_late_digest_is_given_up_when_the_next_one_is_due_by_a_new_schedule(
    app: Application,
    mail_server: MailServer,
    claimed: bool,
    before: dict[str, Any],
    after: dict[str, Any],
    moved_to: datetime,
) -> None:
    """It never arrives after the next one, even if a sender had claimed it when the schedule changed."""
    interests = (Interest("language agents"),)
    change_preferences(app, HOUR - DAY * 7 / 2, interests=interests, **before)
    pipeline.plan_and_send(app, AHEAD)

    def change_schedule() -> None:
        change_preferences(app, HOUR + timedelta(seconds=1), interests=interests, **after)

    mail_server.reply("rcpt", "451 later", times=1, first=change_schedule if claimed else lambda: None)
    pipeline.plan_and_send(app, HOUR)
    if not claimed:
        change_schedule()
    (row,) = deliveries(app)
    assert (row.state, row.give_up_at) == (DeliveryState.DEFERRED, moved_to)
    with app.db.read() as session:
        assert session.get_one(Subscriber, 1).next_due_at == moved_to
    pipeline.plan(app, moved_to - timedelta(minutes=9))
    pipeline.plan_and_send(app, moved_to)
    assert [row.state for row in deliveries(app)] == [DeliveryState.FAILED, DeliveryState.SENT]


def test_retried_digest_never_arrives_after_the_next_one(app: Application, mail_server: MailServer) -> None:
    """It is given up when the next one is composed, and is not retried if the next one is due."""
    mail_server.reply("rcpt", "550 5.7.1 policy", times=1)
    mail_server.reply("rcpt", "451 later", times=1)
    assert pipeline.plan_and_send(app, HOUR)["failed"] == 1
    with app.db.write() as session:
        assert ledger.count_retryable(session, HOUR, HOUR + DAY) == {}
        assert ledger.retry_failed(session, "2026-11-20", HOUR + DAY) == 0
        assert ledger.count_retryable(session, HOUR, HOUR) == {"2026-11-20": 1}
        assert ledger.retry_failed(session, "2026-11-20", HOUR + DAY - timedelta(minutes=30)) == 1
    assert pipeline.send_now(app, HOUR + DAY - timedelta(minutes=30)) == {"deferred": 1}
    pipeline.plan(app, AHEAD + DAY)
    pipeline.plan_and_send(app, HOUR + DAY)
    assert [row.state for row in deliveries(app)] == [DeliveryState.FAILED, DeliveryState.SENT]
    assert titles(app)[1] == [AGENTS]


def test_next_digest_waits_for_the_result_of_the_last_one(app: Application, mail_server: MailServer) -> None:
    """A sender has claimed the last one. Other subscribers do not wait."""
    planning.plan(app.digest_context, HOUR)
    with app.db.write() as session:
        claimed = ledger.claim(session, owner="slow", now=HOUR)
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR + DAY)
    assert planning.plan(app.digest_context, AHEAD + DAY) == {"planned": 1}
    assert {row.subscriber_id: row.state for row in deliveries(app)} == {
        1: DeliveryState.CLAIMED,
        2: DeliveryState.PENDING,
    }
    with app.db.write() as session:
        ledger.record_results(
            session,
            [AttemptResult(claimed[0], SendResult(SendOutcome.DEFERRED, 451, "later"), AHEAD.timestamp())],
            owner="slow",
            now=AHEAD + DAY,
            policy=app.settings.when_uncertain,
            on_failed=bounces.record_refusal,
        )
    assert planning.plan(app.digest_context, AHEAD + DAY) == {"planned": 1}
    assert titles(app) == [[AGENTS]] * 3


def test_papers_of_a_digest_that_may_have_arrived_are_not_sent_again(
    app: Application, mail_server: MailServer
) -> None:
    """It stays uncertain, and the next digest does not wait for it."""
    pipeline.plan_and_send(app, AHEAD)
    mail_server.drop("end", times=1)
    pipeline.plan_and_send(app, HOUR)
    add_paper(app, newer := "Language Agents that Rest", HOUR + DAY * 3 / 4)
    assert pipeline.plan(app, AHEAD + DAY)["planned"] == 1
    assert titles(app) == [[AGENTS], [newer]]
    assert deliveries(app)[0].state is DeliveryState.UNCERTAIN


def test_welcome_is_repeated_if_the_first_digest_expired(app: Application, mail_server: MailServer) -> None:
    """Bob has not received it yet."""
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", Preferences(interests=(Interest("video"),)), AHEAD)
    mail_server.reply("rcpt", "451 4.3.0 try later")
    pipeline.plan_and_send(app, AHEAD)
    pipeline.plan_and_send(app, HOUR)
    pipeline.plan_and_send(app, AHEAD + DAY)
    notes = [factories.load_digest(app, row).note for row in deliveries(app) if row.subscriber_id == bob]
    assert [note.split(".")[0] for note in notes] == ["Welcome", "Welcome"]


# --- ahead of the hour


def test_digest_is_composed_ahead_and_sent_when_due(app: Application, mail_server: MailServer) -> None:
    """Its edition and times are computed from the due time."""
    assert pipeline.plan_and_send(app, HOUR - timedelta(minutes=11)) == {}
    assert pipeline.plan_and_send(app, AHEAD) == {"planned": 1}
    (row,) = deliveries(app)
    assert (row.edition, row.created_at, row.due_at) == ("2026-11-20", AHEAD, HOUR)
    assert (row.next_attempt_at, row.give_up_at) == (HOUR, HOUR + DAY)
    assert pipeline.plan_and_send(app, HOUR - timedelta(seconds=1)) == {}
    assert mail_server.messages == []
    assert pipeline.plan_and_send(app, HOUR)["sent"] == 1
    assert len(mail_server.messages) == 1


def test_composing_ahead_can_be_disabled(app: Application) -> None:
    """Then a digest is composed when it is due."""
    at_once = app.settings.model_copy(update={"compose_ahead_minutes": 0})
    object.__setattr__(app, "settings", at_once)
    assert planning.plan(app.digest_context, AHEAD) == {}
    assert planning.plan(app.digest_context, HOUR) == {"planned": 1}


def test_edition_is_the_local_day_of_the_due_time(app: Application) -> None:
    """Bob is due at midnight in Tokyo; his digest is composed the evening before."""
    midnight = datetime(2026, 11, 20, 15, tzinfo=NOW.tzinfo)
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["video"], midnight, hour=0, zone="Asia/Tokyo")
        session.get_one(Subscriber, 1).next_due_at = HOUR + DAY
    planning.plan(app.digest_context, midnight - timedelta(minutes=1))
    (row,) = deliveries(app)
    assert (row.edition, row.next_attempt_at) == ("2026-11-21", midnight)


def test_after_an_outage_only_the_coming_edition_is_composed(app: Application) -> None:
    """After an outage of two days, one digest is composed for the next due time."""
    with app.db.write() as session:
        session.get_one(Subscriber, 1).next_due_at = HOUR - 2 * DAY
    assert planning.plan(app.digest_context, AHEAD) == {"planned": 1}
    (row,) = deliveries(app)
    assert (row.edition, row.next_attempt_at, row.give_up_at) == ("2026-11-20", HOUR, HOUR + DAY)


def add_weekly_readers(app: Application, *names: str) -> None:
    """Add three papers of two weeks, and readers who are due at the end of each and get one paper at most."""
    weekly = {"cadence": Cadence.WEEKLY, "weekday": HOUR.weekday(), "max_papers": 1}
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        for title, day in (("Doves", HOUR - 6 * DAY), ("Rock Pigeons", HOUR - DAY), ("Owls", HOUR + 6 * DAY)):
            factories.add_paper(session, source, title, day.date(), day, abstract="On homing pigeons.")
        for name in names:
            factories.add_subscriber(session, f"{name}@example.org", ["pigeons"], HOUR, **weekly)
        session.execute(delete(Subscriber).where(col(Subscriber.id) == 1))


def test_weekly_digest_contains_the_papers_of_a_refused_one(
    app: Application, mail_server: MailServer
) -> None:
    """It covers more days. After a digest that was delivered, the next one covers as many days as ever."""
    add_weekly_readers(app, "bob", "carol")
    mail_server.reply("rcpt", "552 5.2.2 mailbox full", to="bob@example.org", times=1)
    pipeline.plan_and_send(app, AHEAD)
    pipeline.plan_and_send(app, HOUR)
    assert titles(app) == [["Rock Pigeons"]] * 2
    with app.db.write() as session:
        session.execute(update(Subscriber).values(max_papers=3))
    for now in (AHEAD, HOUR):
        pipeline.plan_and_send(app, now + 7 * DAY)
    digests = {row.subscriber_id: factories.load_digest(app, row) for row in deliveries(app)[2:]}
    assert {n: [pick.title for pick in digest.picks] for n, digest in digests.items()} == {
        2: ["Owls", "Rock Pigeons", "Doves"],
        3: ["Owls"],
    }
    with app.db.read() as session:
        builder = DigestBuilder(app.digest_context, session, HOUR + 14 * DAY)
        readers = session.exec(select(Subscriber)).all()
        [group] = builder.by_window(session, readers)
        assert (group.builder, group.rows) == (builder, readers)


@pytest.mark.parametrize("cadence", [Cadence.DAILY, Cadence.WEEKDAYS])
def test_next_digest_contains_the_oldest_papers_of_one_that_was_given_up(
    app: Application, mail_server: MailServer, cadence: Cadence
) -> None:
    """It covers the days of that digest, even after a weekend, and no earlier ones. Explanations agree."""
    following = HOUR + (DAY if cadence is Cadence.DAILY else 3 * DAY)
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        for title, day in (("Owls", HOUR - 7 * DAY), ("Doves", HOUR - 6 * DAY), ("Swans", HOUR - 5 * DAY)):
            factories.add_paper(session, source, title, day.date(), day, abstract="On homing pigeons.")
        for name in ("bob", "carol"):
            factories.add_subscriber(session, f"{name}@example.org", ["pigeons"], HOUR, cadence=cadence)
        session.execute(delete(Subscriber).where(col(Subscriber.id) == 1))
    mail_server.reply("rcpt", "451 4.3.0 try later", to="bob@example.org")
    pipeline.plan_and_send(app, HOUR)
    assert sorted(map(sorted, titles(app))) == [["Doves", "Swans"]] * 2
    mail_server.clear_rules()
    explanation = explain(app.digest_context, following - DAY / 4, "bob@example.org", "4")
    assert not explanation.ineligible_reason
    for now in (following - timedelta(minutes=9), following):
        pipeline.plan_and_send(app, now)
    received = {
        row.subscriber_id: sorted(pick.title for pick in factories.load_digest(app, row).picks)
        for row in deliveries(app)
        if row.state is DeliveryState.SENT
    }
    assert received == {2: ["Doves", "Swans"], 3: ["Doves", "Swans"]}
    assert len(mail_server.messages) == 2
    with app.db.read() as session:
        builder = DigestBuilder(app.digest_context, session, following + DAY)
        readers = session.exec(select(Subscriber)).all()
        [group] = builder.by_window(session, readers)
        assert (group.builder, group.rows) == (builder, readers)


def test_next_digest_covers_the_day_on_which_a_lost_one_was_composed(
    app: Application, mail_server: MailServer
) -> None:
    """Bob is due at midnight UTC, so his digests are composed, and begin to cover, the UTC day before.

    Its days are among those that are loaded for all digests, so no more papers are loaded.
    """
    midnight = HOUR.replace(hour=0) + DAY
    composed = midnight - timedelta(minutes=9)
    first = composed - (app.settings.candidate_days - 1) * DAY
    with app.db.write() as session:
        session.execute(delete(Subscriber).where(col(Subscriber.id) == 1))
        factories.add_paper(session, session.get_one(Source, 1), "Owls", first.date(), first)
        factories.add_subscriber(
            session,
            "bob@example.org",
            ["owls"],
            midnight,
            zone="Asia/Shanghai",
            hour=8,
            cadence=Cadence.DAILY,
        )
    mail_server.reply("rcpt", "451 4.3.0 try later")
    for now in (composed, midnight, composed + DAY):
        pipeline.plan_and_send(app, now)
    assert titles(app) == [["Owls"]] * 2
    with app.db.read() as session:
        builder = DigestBuilder(app.digest_context, session, composed + 2 * DAY)
        readers = session.exec(select(Subscriber)).all()
        [group] = builder.by_window(session, readers)
        assert (group.builder, group.rows) == (builder, readers)


def test_weekly_digest_covers_the_days_of_a_longer_one_that_was_lost(app: Application) -> None:
    """It covered 15 days, because it was late. The weekday was then changed."""
    add_weekly_readers(app, "bob")
    with app.db.write() as session:
        session.execute(update(Subscriber).values(max_papers=3, next_due_at=HOUR + 6 * DAY))
    pipeline.plan(app, HOUR + 7 * DAY)
    with app.db.write() as session:
        session.execute(update(Delivery).values(state=DeliveryState.FAILED, next_attempt_at=None))
        weekday = (HOUR + 8 * DAY).weekday()
        session.execute(update(Subscriber).values(weekday=weekday, next_due_at=HOUR + 8 * DAY))
    pipeline.plan(app, HOUR + 8 * DAY)
    assert titles(app) == [["Owls", "Rock Pigeons", "Doves"]] * 2


def test_papers_of_given_up_digests_are_sent_for_a_week_more(app: Application) -> None:
    """After a long pause of all sending, older papers are left out, and the maximum per digest holds."""
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        for age in range(7):
            day = HOUR - age * DAY
            title = f"Pigeons {age} days before"
            factories.add_paper(session, source, title, day.date(), day, abstract="On homing pigeons.")
        factories.add_subscriber(session, "bob@example.org", ["pigeons"], HOUR)
        factories.add_subscriber(session, "carol@example.org", ["pigeons"], HOUR, max_papers=2)
        session.execute(delete(Subscriber).where(col(Subscriber.id) == 1))
        ledger.pause(session, "the relay is being moved", HOUR)
    for days in range(11):
        planning.plan(app.digest_context, HOUR + days * DAY)
    assert [len(picks) for picks in titles(app)[-2:]] == [4, 2]
    assert set(titles(app)[-2]) == {f"Pigeons {age} days before" for age in range(4)}


@pytest.mark.parametrize("gap", [13, 18])
def test_weekly_digest_after_a_gap_contains_the_papers_of_all_days(app: Application, gap: int) -> None:
    """The subscriber has chosen another weekday or paused, so the next digest is due after `gap` days."""
    add_weekly_readers(app, "bob")
    assert planning.plan(app.digest_context, AHEAD) == {"planned": 1}
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        for days in (gap - 12, gap - 8):
            day = HOUR + days * DAY
            factories.add_paper(session, source, f"Pigeons {days}", day.date(), day, abstract="On pigeons.")
        session.execute(update(Subscriber).values(max_papers=9, next_due_at=HOUR + gap * DAY))
        session.execute(update(Delivery).values(state=DeliveryState.SENT))
    assert planning.plan(app.digest_context, AHEAD + gap * DAY) == {"planned": 1}
    assert set(titles(app)[1]) >= {f"Pigeons {gap - 12}", f"Pigeons {gap - 8}", "Owls"}


def test_late_weekly_digest_contains_papers_of_all_days(app: Application) -> None:
    """After an outage of three days, it also contains the oldest papers of its week."""
    add_weekly_readers(app, "bob")
    with app.db.write() as session:
        session.execute(update(Subscriber).values(max_papers=3))
    assert planning.plan(app.digest_context, HOUR + 3 * DAY) == {"planned": 1}
    assert titles(app) == [["Rock Pigeons", "Doves"]]


@pytest.mark.parametrize(("age", "waits"), [(6, False), (5, True)])
def test_digest_below_the_minimum_waits_for_the_next_one(app: Application, age: int, waits: bool) -> None:
    """The next due time decides, however early the digest is composed. Operators' previews agree."""
    with app.db.write() as session:
        source = session.exec(select(factories.Source)).one()
        factories.add_paper(session, source, "Pigeons that Plan", (NOW - age * DAY).date(), NOW)
        bob = factories.add_subscriber(session, "bob@example.org", ["pigeons"], HOUR, min_papers=2)
    (preview,) = planning.preview_due(app.digest_context, AHEAD, [bob])
    assert isinstance(preview.digest, Skip) == waits
    explanation = explain(app.digest_context, AHEAD, "bob@example.org", "1")
    assert bool(explanation.skip_reason) == waits
    assert planning.plan(app.digest_context, AHEAD)["skipped"] == waits
    before = AHEAD - timedelta(minutes=1)
    later = explain(app.digest_context, HOUR + DAY / 2, "bob@example.org", "1", at=before)
    assert bool(later.skip_reason) == waits


# --- between composing and sending


def test_changed_interests_recompose_a_planned_digest(app: Application, mail_server: MailServer) -> None:
    """The next run composes it again, and it is sent once."""
    planning.plan(app.digest_context, AHEAD)
    change_preferences(app, AHEAD, interests=(Interest("video diffusion"),))
    assert deliveries(app) == []
    assert planning.plan(app.digest_context, AHEAD + timedelta(minutes=1)) == {"planned": 1}
    assert titles(app) == [[VIDEO]]
    assert pipeline.plan_and_send(app, HOUR)["sent"] == 1
    assert len(mail_server.messages) == 1


def test_changed_interests_can_replace_a_planned_skip(app: Application) -> None:
    change_preferences(app, AHEAD - DAY, interests=(Interest("pigeons"),))
    assert planning.plan(app.digest_context, AHEAD) == {"skipped": 1}
    change_preferences(app, AHEAD, interests=(Interest("video diffusion"),))
    assert planning.plan(app.digest_context, AHEAD) == {"planned": 1}


def test_changed_hour_moves_a_planned_digest(app: Application, mail_server: MailServer) -> None:
    """Nothing is sent at eight, and one digest at six in the evening."""
    planning.plan(app.digest_context, AHEAD)
    change_preferences(app, AHEAD, hour=18, interests=(Interest("language agents"),))
    assert pipeline.plan_and_send(app, HOUR) == {}
    assert pipeline.plan_and_send(app, HOUR.replace(hour=18))["sent"] == 1
    assert len(mail_server.messages) == 1


@pytest.mark.parametrize("change", [{"max_papers": 9}, {"hour": 18}, {"zone": "America/New_York"}, None])
def test_cancelled_digest_is_not_composed_again(
    app: Application, mail_server: MailServer, change: dict[str, object] | None
) -> None:
    """The subscriber saves other preferences before the hour, or pauses and resumes."""
    planning.plan(app.digest_context, AHEAD)
    with app.db.write() as session:
        assert ledger.cancel(session, f"{HOUR:%Y-%m-%d}") == 1
    if change:
        change_preferences(app, AHEAD, interests=(Interest("language agents"),), **change)
    else:
        with app.db.write() as session:
            subscribers.pause(session, 1, None, AHEAD)
            subscribers.resume(session, 1, AHEAD)
    for hours in (0, 1, 10, 13):
        pipeline.plan_and_send(app, HOUR + timedelta(hours=hours))
    assert [(row.state, row.reason) for row in deliveries(app)] == [
        (DeliveryState.SKIPPED, "cancelled by an operator")
    ]
    with app.db.read() as session:
        assert reconciliation.reconcile_recent(session, HOUR + DAY / 2).is_consistent
    pipeline.plan_and_send(app, HOUR + 3 * DAY / 2)
    assert len(mail_server.messages) == 1
    assert titles(app)[1] == [AGENTS]


def test_a_sent_digest_is_not_composed_again(app: Application, mail_server: MailServer) -> None:
    """Changes after the due time apply to the next digest."""
    pipeline.plan_and_send(app, AHEAD)
    pipeline.plan_and_send(app, HOUR)
    change_preferences(app, HOUR + timedelta(minutes=1), hour=18, interests=(Interest("video"),))
    assert [row.state for row in deliveries(app)] == [DeliveryState.SENT]
    assert pipeline.plan_and_send(app, HOUR.replace(hour=18)) == {}


@pytest.mark.parametrize(
    ("changed", "following"),
    [
        ({"muted": ("blockchain",)}, HOUR + DAY),
        ({"hour": 6}, HOUR.replace(hour=6) + DAY),
        ({"hour": 18}, HOUR.replace(hour=18) + DAY),
        ({"cadence": Cadence.WEEKLY, "weekday": 0}, HOUR + 3 * DAY),
        ({"cadence": Cadence.WEEKLY, "weekday": 4, "hour": 18}, HOUR.replace(hour=18) + 7 * DAY),
        ({"zone": "Pacific/Auckland"}, HOUR.replace(hour=19)),  # Saturday, 08:00
    ],
    ids=["muted", "earlier hour", "later hour", "other weekday", "later on the same weekday", "zone"],
)
def test_a_due_digest_survives_a_change(
    app: Application, changed: dict[str, Any], following: datetime
) -> None:
    """The worker was down at eight. One digest is composed, and the next one follows the new schedule."""
    change_preferences(
        app, HOUR + timedelta(minutes=1), **{"hour": 8, "interests": (Interest("agents"),)} | changed
    )
    assert planning.plan(app.digest_context, NOW) == {"planned": 1}
    assert [(row.edition, row.due_at) for row in deliveries(app)] == [("2026-11-20", HOUR)]
    with app.db.read() as session:
        assert session.get_one(Subscriber, 1).next_due_at == following
        assert reconciliation.reconcile_recent(session, NOW) == Reconciliation(1, {DeliveryState.PENDING: 1})
    assert planning.plan(app.digest_context, following - timedelta(hours=1)) == {}


def pause_alice(session: Session) -> None:
    subscribers.pause(session, 1, None, AHEAD)


def unsubscribe_alice(session: Session) -> None:
    subscribers.unsubscribe(session, 1, AHEAD)


def suppress_alice(session: Session) -> None:
    suppression.suppress(session, "alice@example.org", "she complained", AHEAD)


@pytest.mark.parametrize("leave_by", [pause_alice, unsubscribe_alice, suppress_alice])
def test_planned_digest_is_not_sent_to_an_inactive_reader(
    app: Application, mail_server: MailServer, leave_by: Callable[[Session], None]
) -> None:
    """Test a pause, an unsubscription and a suppression after planning."""
    planning.plan(app.digest_context, AHEAD)
    with app.db.write() as session:
        leave_by(session)
    pipeline.plan_and_send(app, HOUR)
    assert mail_server.messages == []
    assert not {row.state for row in deliveries(app)} - {DeliveryState.SKIPPED, DeliveryState.SUPPRESSED}
    with app.db.read() as session:
        assert reconciliation.reconcile_recent(session, HOUR).is_consistent


# --- what is stored


def test_planned_digest_does_not_change_with_its_papers(app: Application) -> None:
    """Snapshots are read by a new cache, as in another process."""

    def build_mail() -> bytes:
        with app.db.read() as session:
            (request,) = ledger.mail_requests(session, [1], ledger.SnapshotStore())
        return app.composer.sign_and_serialize(app.composer.draft(request)).data

    planning.plan(app.digest_context, AHEAD)
    before = build_mail()
    with app.db.write() as session:
        for paper in session.exec(select(Paper)):
            paper.title, paper.abstract, paper.url = "Withdrawn", "", "https://elsewhere.test/"
    assert build_mail() == before
    assert b"Language Agents" in before


def test_unstorable_digest_affects_only_its_reader(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the batch is planned, and Alice is tried again after an hour."""
    original = DigestBuilder.digest

    def digest(self: DigestBuilder, reader: Subscriber, *of: object) -> object:
        return Skip(object()) if reader.id == 1 else original(self, reader, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(DigestBuilder, "digest", digest)
    with app.db.write() as session:
        for name in ("bob", "carol"):
            factories.add_subscriber(session, f"{name}@example.org", ["video"], HOUR)
    assert planning.plan(app.digest_context, HOUR) == {"planned": 2, "not_planned": 1}
    assert {row.subscriber_id for row in deliveries(app)} == {2, 3}
    with app.db.read() as session:
        alice = session.get_one(Subscriber, 1)
        assert alice.next_due_at == HOUR
        assert alice.plan_after
        assert alice.plan_after > HOUR + planning.TRY_AGAIN
        assert planning.lateness(session, HOUR + DAY / 48) == timedelta()
    assert planning.plan(app.digest_context, HOUR + planning.TRY_AGAIN / 2) == {}


def test_changed_preferences_end_the_wait_after_a_failure(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest stays due, and is planned at once."""
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "add_entries", None)  # calling it raises an error
        assert planning.plan(app.digest_context, HOUR) == {"not_planned": 1}
    change_preferences(app, HOUR + DAY / 288, hour=18, interests=(Interest("language agents"),))
    assert planning.plan(app.digest_context, HOUR + DAY / 144) == {"planned": 1}
    (row,) = deliveries(app)
    assert (row.edition, row.due_at) == (HOUR.date().isoformat(), HOUR)


def test_planning_is_retried_for_the_same_edition(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even after midnight: a weekly reader is not due on that day."""
    due = HOUR.replace(hour=23)
    with app.db.write() as session:
        alice = session.get_one(Subscriber, 1)
        alice.cadence, alice.weekday, alice.hour = Cadence.WEEKLY, due.weekday(), due.hour
        alice.next_due_at = alice.created_at = due
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "add_entries", None)  # calling it raises an error
        assert planning.plan(app.digest_context, due) == {"not_planned": 1}
    after_midnight = due + timedelta(hours=2)
    assert planning.plan(app.digest_context, after_midnight) == {"planned": 1}
    (row,) = deliveries(app)
    assert (row.edition, row.due_at, row.give_up_at) == ("2026-11-20", due, due + 7 * DAY)
    with app.db.read() as session:
        assert session.get_one(Subscriber, 1).next_due_at == due + 7 * DAY
        assert reconciliation.reconcile_recent(session, after_midnight).is_consistent


def test_digest_that_cannot_be_composed_is_tried_again(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same edition is composed an hour later. Until then, the failure is reported once."""
    with monkeypatch.context() as patch:
        patch.setattr(compose, "compose", None)  # calling it raises an error
        pipeline.plan(app, HOUR)
    assert deliveries(app) == []
    with app.db.read() as session:
        (run,) = job_runs.last_runs(session)
        assert planning.count_failed(session, HOUR) == 1
        checks = {each.check: each for each in service_state.check(app.db, app.models, HOUR)}
    assert (run.counts, run.error) == (
        {"not_planned": 1},
        "digests: 1 digest could not be composed: see the log",
    )
    assert checks["digests"].urgent
    assert "1 due digest could not be composed" in checks["digests"].message
    assert not checks[f"job {planning.JOB}"].urgent
    assert pipeline.plan(app, HOUR + planning.TRY_AGAIN / 2) == {}
    assert pipeline.plan(app, HOUR + planning.TRY_AGAIN) == {"planned": 1}
    with app.db.read() as session:
        assert planning.count_failed(session, HOUR + planning.TRY_AGAIN) == 0
        assert reconciliation.reconcile_recent(session, HOUR + planning.TRY_AGAIN).is_consistent
    assert [(row.edition, row.due_at) for row in deliveries(app)] == [("2026-11-20", HOUR)]
    assert titles(app) == [[AGENTS]]


def test_digest_that_cannot_be_composed_in_time_is_skipped(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its edition is skipped at the last attempt before the next one. Other readers do not wait."""
    original = DigestBuilder.ranking_request

    def fail(self: DigestBuilder, request: DigestRequest) -> object:
        return original(self, request) if request.subscriber.id != 1 else 1 / 0

    monkeypatch.setattr(DigestBuilder, "ranking_request", fail)
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["video"], HOUR)
    outcomes = [planning.plan(app.digest_context, HOUR + hours * planning.TRY_AGAIN) for hours in range(24)]
    assert outcomes[0] == {"planned": 1, "not_planned": 1}
    assert outcomes[1:-1] == [{"not_planned": 1}] * 22
    assert outcomes[-1] == {"skipped": 1}
    of_alice = [row for row in deliveries(app) if row.subscriber_id == 1]
    assert [(row.edition, row.state) for row in of_alice] == [("2026-11-20", DeliveryState.SKIPPED)]
    assert of_alice[0].reason == (
        "something went wrong on our side, and we have logged it (ZeroDivisionError)"
    )
    with app.db.read() as session:
        assert session.get_one(Subscriber, 1).next_due_at == HOUR + DAY
        assert reconciliation.reconcile_recent(session, HOUR + DAY - planning.TRY_AGAIN).is_consistent


def test_unreadable_earlier_digest_does_not_stop_planning(app: Application) -> None:
    """Its papers do not count as sent."""
    planning.plan(app.digest_context, HOUR - DAY)
    with app.db.write() as session:
        session.get_one(Subscriber, 1).next_due_at = HOUR
        delivery = Delivery(subscriber_id=1, edition="2026-11-19", due_at=HOUR - DAY, created_at=HOUR - DAY)
        session.add(delivery)
        session.flush()
        columns = {"cards": [1], "papers": ["one"], "why": [0], "scores": [0], "reasons": []}
        fields = {"sections": [{"cards": 7}, {"interest": "", "heading": "", **columns}]}
        session.add(DigestContent(delivery_id=delivery.id or 0, digest=fields))
    assert planning.plan(app.digest_context, HOUR) == {"planned": 1}


def test_batches_share_paper_snapshots(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paper has one snapshot a day."""
    monkeypatch.setattr(planning, "BATCH_SIZE", 2)
    with app.db.write() as session:
        for number in range(5):
            factories.add_subscriber(session, f"reader{number}@example.org", ["agents"], HOUR)
    assert planning.plan(app.digest_context, AHEAD) == {"planned": 6}
    with app.db.read() as session:
        digests = session.exec(select(DigestContent.digest)).all()
    assert {card for digest in digests for section in digest["sections"] for card in section["cards"]} == {1}
    assert len(digests) == 6


def test_readers_with_the_same_rare_interest_follow_one_another(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are ordered by their newest interest, however they got it."""
    monkeypatch.setattr(planning, "BATCH_SIZE", 2)
    common, *rare = (Interest(text) for text in ("language agents", "bees", "wasps"))
    with app.db.write() as session:
        for number in range(6):
            factories.add_subscriber(session, f"reader{number}@example.org", [common.text], HOUR)
        for number in (3, 5, 7):  # numbers of subscribers, of whom Alice is the first
            subscribers.change(session, number, Preferences(interests=(common, rare[number == 5])), AHEAD)
        imported = Preferences(interests=(rare[0], common))
        subscribers.add(session, "imported@example.org", imported, AHEAD - DAY)
        session.execute(update(Subscriber).values(next_due_at=HOUR))
    planning.plan(app.digest_context, AHEAD)
    assert [row.subscriber_id for row in deliveries(app)] == [1, 2, 4, 6, 3, 7, 8, 5]
    with app.db.write() as session:
        subscribers.change(session, 5, Preferences(interests=(common,)), AHEAD)
    with app.db.read() as session:
        assert session.get_one(Subscriber, 5).newest_interest == 1


@pytest.mark.once
def test_shutdown_stops_planning_between_batches(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob stays due."""
    monkeypatch.setattr(planning, "BATCH_SIZE", 1)
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR)
    app.on_batch_planned.append(app.stopping.set)
    assert planning.plan(app.digest_context, AHEAD) == {"planned": 1}
    with app.db.read() as session:
        assert planning.has_work(app.digest_context, session, AHEAD)


@pytest.mark.once
def test_preferences_changed_while_composing_are_used(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite rows are not locked meanwhile: only Alice's digest is composed again."""
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR)
    original, calls = planning._compose, []

    def change_after(*args: Any) -> tuple[list[DigestRequest], list[ledger.Entry]]:
        requests, entries = original(*args)
        if not calls:
            change_preferences(app, AHEAD, interests=(Interest("video diffusion"),))
        calls.append(len(entries))
        return requests, entries

    monkeypatch.setattr(planning, "_compose", change_after)
    assert planning.plan(app.digest_context, AHEAD) == {"planned": 2}
    assert sorted(titles(app)) == [[AGENTS], [VIDEO]]
    assert calls[:2] == [2, 1]


@pytest.mark.once
def test_preferences_are_loaded_once_if_nothing_changes(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself says whether the database has changed while digests were composed."""
    original, calls = digest_requests.load, []

    def count(session: Session, rows: Any, *args: Any) -> list[DigestRequest]:
        calls.append(len(rows))
        return original(session, rows, *args)

    monkeypatch.setattr(digest_requests, "load", count)
    assert planning.plan(app.digest_context, AHEAD) == {"planned": 1}
    assert calls == [1, 0]  # the second batch is empty


@pytest.mark.timeout(300)
def test_digests_of_a_batch_equal_those_planned_one_by_one(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning shares all it can between the readers of a batch. None of this may change a digest."""
    monkeypatch.setattr(app.models, "current", lambda session: sample_archive.trained_model())
    add_varied_readers(app, 24)
    whole = plan_two_days(app)
    with app.db.write() as session:
        session.execute(delete(Delivery))
        session.execute(update(Subscriber).values(next_due_at=HOUR))
    monkeypatch.setattr(planning, "BATCH_SIZE", 1)
    one_by_one = plan_two_days(app)
    assert one_by_one == whole
    assert len({digest.picks for digest in whole if isinstance(digest, Digest)}) > 12


def add_varied_readers(app: Application, count: int) -> None:
    """Add a hundred papers, and readers whose interests, limits, muted words and feedback differ."""
    draw = random.Random(3)  # noqa: S311
    with app.db.write() as session:
        source = factories.add_source(session, NOW, "Archive")
        papers = [
            factories.add_paper(
                session, source, paper.title, NOW.date() - DAY * draw.randint(0, 4), NOW, draw.randint(0, 50),
                abstract=paper.abstract,
            )
            for paper in draw.sample(sample_archive.papers(), 100)
        ]  # fmt: skip
        for number in range(count):
            subject, *_ = interests = draw.sample([*sample_archive.SUBJECTS], draw.randint(1, 4))
            reader = factories.add_subscriber(
                session, f"reader{number}@example.org", [*interests, f"{subject} -robot"], HOUR,
                min_papers=draw.choice([1, 1, 4]), max_papers=draw.randint(1, 12),
                max_trending=draw.choice([0, 0, 3]), muted=draw.choice([[], [], ["model"]]),
                when_empty=draw.choice([*EmptyDigestPolicy]),
            )  # fmt: skip
            for row in session.exec(select(InterestRow).where(InterestRow.subscriber_id == reader)):
                row.weight, row.quota = draw.choice([0.5, 1.0, 3.0]), draw.choice([None, None, None, 2])
            for paper in draw.sample(papers, draw.choice([0, 0, 6])):
                subscribers.set_feedback(session, reader, paper, draw.random() < 0.7, NOW)


def plan_two_days(app: Application) -> list[Digest | str]:
    """Return the digests of two days, or why there is none, by reader and day."""
    for day in range(2):
        planning.plan(app.digest_context, AHEAD + DAY * day)
    with app.db.read() as session:
        order = col(Delivery.subscriber_id), col(Delivery.edition)
        rows = session.exec(select(Delivery).order_by(*order)).all()
    return [row.reason or factories.load_digest(app, row) for row in rows]
