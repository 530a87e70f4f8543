"""Test the pipeline: each due reader gets one digest per edition, also after failures."""

import inspect
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import Session, col, select

from app import main, pipeline
from app.application import Application
from app.digests import planning, reconciliation
from app.papers import merging
from app.relevance import matching
from app.relevance.query_language import Query
from app.settings import Settings
from app.storage.database import wait_for_locks
from app.storage.models import Delivery, DeliveryState, JobRun, Merge, Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Cadence, Digest, Interest, PaperRecord, ParseResult
from tests.conftest import NOW
from tests.support import factories, stored_records
from tests.support.mail_server import MailServer

TODAY = NOW.date()
AGENTS = "Language Agents that Plan"
VIDEO = "Video Diffusion in Real Time"


@pytest.fixture
def app(app: Application) -> Application:
    """Return the application with two papers of today, and Alice, who is due at eight and likes agents."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        for title in (AGENTS, VIDEO):
            factories.add_paper(session, source, title, TODAY, NOW, abstract=f"{title}, at last.")
        factories.add_subscriber(session, "alice@example.org", ["language agents"], NOW)
    return app


def test_docstring_lists_the_functions_in_order() -> None:
    functions = filter(inspect.isfunction, vars(pipeline).values())
    defined = [each.__name__ for each in functions if each.__module__ == pipeline.__name__]
    public = [name for name in defined if not name.startswith("_")]
    assert re.findall(r"^(\w+)\(\) ", pipeline.__doc__ or "", re.MULTILINE) == public


def test_batches_let_other_transactions_in(app: Application, settings: Settings) -> None:
    """SQLite's lock is free between two batches for longer than another transaction waits to retry."""
    other, has_begun, enough = main.build(settings), threading.Event(), threading.Event()

    def work(session: Session) -> int:
        session.connection()  # acquire the lock
        has_begun.set()
        time.sleep(0.2)
        return not enough.is_set()

    def visit() -> None:
        wait_for_locks(2000)
        with other.db.write() as session:
            factories.add_subscriber(session, "bob@example.org", ["robots"], NOW)

    with ThreadPoolExecutor() as threads:
        batches = threads.submit(app.db.write_in_batches, work, app.stopping)
        has_begun.wait()
        try:
            threads.submit(visit).result()
        finally:
            enough.set()
            other.db.dispose()
        batches.result()


def plan(app: Application, now: datetime) -> Counter[str]:
    return planning.plan(app.digest_context, now)


def deliveries(app: Application) -> list[Delivery]:
    with app.db.read() as session:
        return list(session.exec(select(Delivery).order_by(col(Delivery.id))))


def titles(app: Application, delivery: Delivery) -> list[str]:
    return [pick.title for pick in factories.load_digest(app, delivery).picks]


def add_paper(app: Application, title: str, day: date) -> None:
    with app.db.write() as session:
        source = session.exec(select(factories.Source)).first()
        assert source
        factories.add_paper(session, source, title, day, NOW, abstract=f"{title}, at last.")


def test_due_reader_gets_matching_papers(app: Application) -> None:
    """One delivery has the matching paper and its reason. The next due time is tomorrow at eight."""
    assert plan(app, NOW) == {"planned": 1}
    (delivery,) = deliveries(app)
    assert titles(app, delivery) == [AGENTS]
    assert "Language Agents" in factories.load_digest(app, delivery).picks[0].reason
    with app.db.read() as session:
        alice = session.exec(select(Subscriber)).one()
    assert alice.next_due_at == datetime(2026, 11, 21, 8, tzinfo=NOW.tzinfo)
    assert delivery.give_up_at == alice.next_due_at


def test_planning_twice_changes_nothing(app: Application) -> None:
    """Planning again finds nobody due."""
    plan(app, NOW)
    assert plan(app, NOW) == {}
    assert len(deliveries(app)) == 1


def test_concurrent_planning_is_exact(app: Application) -> None:
    """Two concurrent runs on one database plan every reader exactly once."""
    with app.db.write() as session:
        for number in range(30):
            factories.add_subscriber(session, f"reader{number}@example.org", [f"agents {number}"], NOW)
    with ThreadPoolExecutor(4) as pool:
        planned = sum(pool.map(lambda _: plan(app, NOW), range(4)), start=Counter[str]())
    assert planned.total() == 31
    rows = deliveries(app)
    assert len({(row.subscriber_id, row.edition) for row in rows}) == len(rows) == 31


ON_SATURDAY = "Hugging Face lists few or no papers on a Saturday"


@pytest.mark.parametrize(
    ("zone", "hour", "due", "edition", "note"),
    [
        ("UTC", 1, datetime(2026, 11, 21, 1, tzinfo=UTC), "2026-11-21", f"; {ON_SATURDAY}"),
        ("America/New_York", 20, datetime(2026, 11, 21, 1, tzinfo=UTC), "2026-11-20", ""),
        (
            "Asia/Tokyo",
            8,
            datetime(2026, 11, 20, 23, tzinfo=UTC),
            "2026-11-21",
            "",
        ),  # Friday's papers are new
    ],
)
def test_weekend_is_that_of_the_subscriber(
    app: Application, zone: str, hour: int, due: datetime, edition: str, note: str
) -> None:
    """A Friday's edition does not mention Saturday, even if it is Saturday in UTC."""
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["zebrafish"], due, zone=zone, hour=hour)
    plan(app, due)
    row = next(row for row in deliveries(app) if row.state is DeliveryState.SKIPPED)
    missing = "no paper mentions “zebrafish”"
    assert row.edition == edition
    assert row.reason == f"none of 2 recent papers matched an interest: {missing}{note}"


@pytest.mark.parametrize(
    ("failures", "note"), [(0, f"; {ON_SATURDAY}"), (1, ""), (2, "; some sources could not be read")]
)
def test_weekend_explains_nothing_if_the_source_fails(app: Application, failures: int, note: str) -> None:
    """A first failure may pass before the next digest, so it is not mentioned."""
    saturday = datetime(2026, 11, 21, 9, tzinfo=UTC)
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["zebrafish"], saturday, hour=9)
        for source in session.exec(select(factories.Source)):
            source.failures = failures
    plan(app, saturday)
    row = next(row for row in deliveries(app) if row.state is DeliveryState.SKIPPED)
    missing = "no paper mentions “zebrafish”"
    assert row.reason == f"none of 2 recent papers matched an interest: {missing}{note}"


def test_paper_is_not_sent_twice(app: Application) -> None:
    """The next day there is nothing new for Alice, and her edition is skipped."""
    plan(app, NOW)
    factories.record_sent(app)
    plan(app, NOW + timedelta(days=1))
    first, second = deliveries(app)
    assert titles(app, first) == [AGENTS]
    assert (second.state, second.reason) == (
        DeliveryState.SKIPPED,
        f"the one recent paper matched no interest; {ON_SATURDAY}",
    )


def test_undone_merge_sends_no_paper_again(app: Application) -> None:
    """A paper sent while merged counts as sent after the merge is undone, however late it is listed."""
    page = PaperRecord("Pigeons that Plan in Cities", abstract="We teach pigeons to plan.", listed_on=TODAY)
    own = replace(page, arxiv_id="2611.00001", listed_on=None)
    later = NOW + timedelta(days=30)
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "bob@example.org", ["pigeons"], NOW)
        source = session.exec(select(factories.Source)).one()
        stored_records.store(session, source, ParseResult(2, (own, page)), NOW)
    plan(app, NOW)
    factories.record_sent(app)
    with app.db.write() as session:
        merging.undo_merge(session, session.exec(select(Merge)).one().id or 0, NOW)
        source = session.exec(select(factories.Source)).one()
        stored_records.store(session, source, ParseResult(1, (replace(own, listed_on=later.date()),)), later)
    plan(app, later)
    states = [row.state for row in deliveries(app) if row.subscriber_id == reader]
    assert states == [DeliveryState.SENT, DeliveryState.SKIPPED]


def test_papers_of_a_failed_digest_are_sent_later(app: Application) -> None:
    """The papers of an abandoned digest were never read, so they may be sent again."""
    plan(app, NOW)
    with app.db.write() as session:
        session.exec(select(Delivery)).one().state = DeliveryState.FAILED
    plan(app, NOW + timedelta(days=1))
    assert titles(app, deliveries(app)[1]) == [AGENTS]


def test_one_digest_after_an_outage(app: Application) -> None:
    """After three days without planning there is one digest, not three."""
    add_paper(app, "Language Agents that Remember", TODAY + timedelta(days=2))
    plan(app, NOW + timedelta(days=3))
    (delivery,) = deliveries(app)
    assert delivery.edition == "2026-11-23"
    assert set(titles(app, delivery)) == {AGENTS, "Language Agents that Remember"}


def test_each_interest_has_a_section(app: Application) -> None:
    """Each of Bob's interests has its own section."""
    with app.db.write() as session:
        bob = factories.add_subscriber(session, "bob@example.org", ["video diffusion", "agents"], NOW)
    plan(app, NOW)
    (digest,) = [factories.load_digest(app, row) for row in deliveries(app) if row.subscriber_id == bob]
    assert [(section.interest, len(section.picks)) for section in digest.sections] == [
        ("video diffusion", 1),
        ("agents", 1),
    ]


def test_reader_with_only_an_invalid_interest_is_skipped(app: Application) -> None:
    """An invalid interest is stored as the reason for Bob's skipped edition. Alice gets her email."""
    with app.db.write() as session:
        carol = factories.add_subscriber(session, "carol@example.org", ["!!!"], NOW)
    plan(app, NOW)
    by_subscriber = {row.subscriber_id: row for row in deliveries(app)}
    assert (
        "something went wrong on our side, and we have logged it (InvalidInterest)"
        in by_subscriber[carol].reason
    )
    assert sorted(row.state for row in by_subscriber.values()) == [
        DeliveryState.PENDING,
        DeliveryState.SKIPPED,
    ]


def test_invalid_interest_is_ignored(app: Application) -> None:
    """Carol gets the papers of her other interest, and a note about the invalid one."""
    with app.db.write() as session:
        carol = factories.add_subscriber(session, "carol@example.org", ["!!!", "agents"], NOW)
    plan(app, NOW)
    (delivery,) = [row for row in deliveries(app) if row.subscriber_id == carol]
    digest = factories.load_digest(app, delivery)
    assert [section.interest for section in digest.sections] == ["agents"]
    assert "left it out: !!!. Please rewrite it" in digest.note


def test_reader_who_cannot_be_planned_is_retried(app: Application) -> None:
    """Bob has an unknown time zone: Alice gets her email, and Bob is retried in an hour."""
    with app.db.write() as session:
        bob = factories.add_subscriber(session, "bob@example.org", ["agents"], NOW, zone="Mars/Olympus")
    assert plan(app, NOW) == {"planned": 1, "not_planned": 1}
    with app.db.write() as session:
        row = session.get_one(Subscriber, bob)
        assert row.plan_after == NOW + timedelta(minutes=app.settings.compose_ahead_minutes, hours=1)
        row.zone = "UTC"
    assert plan(app, NOW + timedelta(hours=1)) == {"planned": 1}


def test_no_transaction_is_open_during_matching(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matching is slow, and others must be able to write."""
    real, writes = matching.MatchIndex._scores, list[str]()

    def while_others_write(index: matching.MatchIndex, queries: Sequence[Query]) -> object:
        if queries:  # nothing new to match, so nothing to wait for
            with app.db.write() as session:
                session.exec(select(Subscriber)).one().max_papers = 7
        writes.extend(query.text for query in queries)
        return real(index, queries)

    monkeypatch.setattr(matching.MatchIndex, "_scores", while_others_write)
    # On SQLite, a subscriber who changes while the digest is composed is planned by the next run.
    assert (plan(app, NOW) or plan(app, NOW)) == {"planned": 1}
    assert writes == ["language agents"]


def test_digests_continue_after_a_pause(app: Application) -> None:
    """After a pause, the next digest comes at the reader's usual hour."""
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        alice.state, alice.paused_until, alice.next_due_at = SubscriberState.PAUSED, NOW, None
    pipeline.plan_and_send(app, NOW)
    assert deliveries(app) == []
    assert plan(app, NOW + timedelta(days=1)) == {"planned": 1}


@pytest.mark.parametrize("state", [state for state in SubscriberState if state is not SubscriberState.ACTIVE])
def test_only_active_readers_are_planned(app: Application, state: SubscriberState) -> None:
    """Pending, paused and unsubscribed readers get no digest, even if they are due."""
    with app.db.write() as session:
        session.exec(select(Subscriber)).one().state = state
    assert plan(app, NOW) == {}


def test_weekly_digest_covers_a_week(app: Application) -> None:
    """Friday's weekly digest contains a paper of last Saturday."""
    add_paper(app, "Language Agents on Saturday", date(2026, 11, 14))
    with app.db.write() as session:
        weekly = {"cadence": Cadence.WEEKLY, "weekday": 4}
        dave = factories.add_subscriber(session, "dave@example.org", ["language agents"], NOW, **weekly)
    plan(app, NOW)
    (row,) = [row for row in deliveries(app) if row.subscriber_id == dave]
    assert set(titles(app, row)) == {AGENTS, "Language Agents on Saturday"}


@pytest.mark.parametrize(
    ("rhythm", "listed", "waits"),
    [
        ({"cadence": Cadence.DAILY}, date(2026, 11, 14), False),
        ({"cadence": Cadence.DAILY}, date(2026, 11, 15), True),
        ({"cadence": Cadence.WEEKDAYS}, date(2026, 11, 16), False),  # after the weekend it is too late
        ({"cadence": Cadence.WEEKDAYS}, date(2026, 11, 17), True),
        ({"cadence": Cadence.WEEKLY, "weekday": 4}, date(2026, 11, 19), False),
        ({"cadence": Cadence.WEEKLY, "weekday": 4}, TODAY, True),
    ],
)
def test_held_back_papers_are_in_the_next_digest(
    app: Application, rhythm: dict[str, Any], listed: date, waits: bool
) -> None:
    """A digest with too few papers is skipped only if its papers can still be in the next one."""
    add_paper(app, "Pigeons that Plan", listed)
    with app.db.write() as session:
        bob = factories.add_subscriber(session, "bob@example.org", ["pigeons"], NOW, min_papers=2, **rhythm)
    plan(app, NOW)
    factories.record_sent(app)
    add_paper(app, "Pigeons that Remember", TODAY + timedelta(days=1))
    with app.db.read() as session:
        due = session.get_one(Subscriber, bob).next_due_at
    assert due
    plan(app, due)
    deliveries_sent = [
        row for row in deliveries(app) if row.subscriber_id == bob and row.state is not DeliveryState.SKIPPED
    ]
    first, *_ = digests = [titles(app, row) for row in deliveries_sent]
    assert first == (["Pigeons that Remember", "Pigeons that Plan"] if waits else ["Pigeons that Plan"])
    assert [title for digest in digests for title in digest].count("Pigeons that Plan") == 1
    reason = "only 1 paper matched, fewer than the minimum of 2; it counts for the following digest"
    note = f"There was no digest on Friday, 20 November: {reason}."
    small = (
        "This digest has fewer matching papers than your minimum of 2, because the only one would be too old "
        "for the next digest."
    )
    assert factories.load_digest(app, deliveries_sent[0]).note == (note if waits else small)


def test_send_due_sends_and_records_the_run(app: Application, mail_server: MailServer) -> None:
    """One email arrives, the ledger is consistent, and the run has its counts."""
    assert pipeline.plan_and_send(app, NOW)["sent"] == 1
    assert len(mail_server.messages) == 1
    with app.db.read() as session:
        assert reconciliation.reconcile_recent(session, NOW).is_consistent
        assert session.exec(select(JobRun).where(JobRun.job == "send")).one().counts["sent"] == 1


def test_preview_writes_nothing(app: Application) -> None:
    """A preview shows the digest of a day. On the day before there are no papers."""
    digest = pipeline.preview(app, Preferences(interests=(Interest("video"),)), NOW)[0]
    assert isinstance(digest, Digest)
    assert [pick.title for pick in digest.picks] == [VIDEO]
    assert not isinstance(
        pipeline.preview(
            app, Preferences(interests=(Interest("video"),)), NOW, day=TODAY - timedelta(days=1)
        )[0],
        Digest,
    )
    assert deliveries(app) == []


def test_duplicate_interest_is_one_section(app: Application) -> None:
    """A preview with a duplicate interest shows each paper once."""
    digest = pipeline.preview(
        app,
        Preferences(
            interests=(
                Interest("video"),
                Interest("video"),
            )
        ),
        NOW,
    )[0]
    assert isinstance(digest, Digest)
    assert [pick.title for pick in digest.picks] == [VIDEO]
