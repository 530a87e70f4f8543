"""Test editions that wait until an operator has approved them."""

import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlmodel import col, select

from app import main, maintenance, pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.doctor import service_state
from app.errors import Conflict, InvalidInput
from app.settings import Settings
from app.storage.models import Delivery, DeliveryState, Source
from app.subscribers import Preferences, SignUp
from app.types import Interest
from tests.support import factories
from tests.support.mail_server import MailServer

HOUR = timedelta(hours=1)


@pytest.fixture
def service(settings: Settings, now: datetime) -> Iterator[Application]:
    """Return a service that asks for approval. Alice is due at 9:00 and Bob at 12:00."""
    app = main.build(settings.model_copy(update={"approve_editions": True, "compose_ahead_minutes": 0}))
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for number in range(4):
            day = now - timedelta(days=number - 1)
            factories.add_paper(session, source, f"Language agents, part {number}", day.date(), now)
        for name, hour in (("alice", 9), ("bob", 12)):
            due = now.replace(hour=hour, minute=0)
            factories.add_subscriber(session, f"{name}@example.org", ["language agents"], due, hour=hour)
    yield app
    app.db.dispose()


def test_edition_waits_for_approval(service: Application, mail_server: MailServer, now: datetime) -> None:
    """One approval holds for the whole edition, also for those who are due later. The next edition waits."""
    pipeline.plan_and_send(service, now)
    assert mail_server.messages == []
    with service.db.write() as session:
        assert [(each.edition, each.reason) for each in ledger.pauses(session)] == [
            ("2026-11-20", ledger.AWAITS_APPROVAL)
        ]
        assert [row.edition for row in ledger.draw_waiting(session, "2026-11-20", 5)] == ["2026-11-20"]
        ledger.resume(session, now, "2026-11-20")
    pipeline.plan_and_send(service, now + HOUR)
    pipeline.plan_and_send(service, now + 3 * HOUR)
    assert [mail.recipient for mail in mail_server.messages] == ["alice@example.org", "bob@example.org"]
    pipeline.plan_and_send(service, now + 24 * HOUR)
    assert len(mail_server.messages) == 2
    with service.db.read() as session:
        assert [each.edition for each in ledger.pauses(session)] == ["2026-11-21"]


def test_papers_that_arrive_during_a_hold_are_in_the_next_digest(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """Nothing matched Carol's interest when the edition was composed, so her digest was skipped."""
    with service.db.write() as session:
        factories.add_subscriber(session, "carol@example.org", ["pigeons"], now.replace(hour=9), hour=9)
    assert pipeline.plan(service, now) == {"planned": 1, "skipped": 1}
    with service.db.write() as session:
        source = session.exec(select(Source)).one()
        factories.add_paper(session, source, "Homing Pigeons", now.date(), now + HOUR)
        ledger.resume(session, now + HOUR, "2026-11-20")
    pipeline.plan_and_send(service, now + HOUR)
    assert recipients(mail_server) == ["alice"]
    pipeline.plan(service, now + timedelta(days=1))
    with service.db.read() as session:
        waiting = select(Delivery).where(Delivery.subscriber_id == 3, Delivery.edition == "2026-11-21")
        digest = factories.load_digest(service, session.exec(waiting).one())
    assert [pick.title for pick in digest.picks] == ["Homing Pigeons"]


def test_approval_covers_a_digest_that_is_composed_again(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """The only digest composed so far is withdrawn, because its subscriber chooses a later hour."""
    app = replace(service, settings=service.settings.model_copy(update={"compose_ahead_minutes": 60}))
    early = now.replace(hour=8, minute=30)

    def change(hour: int, at: datetime) -> None:
        with app.db.write() as session:
            interests = (Interest("language agents"),)
            subscribers.change(session, 1, subscribers.Preferences(interests=interests, hour=hour), at)

    pipeline.plan(app, early)
    change(10, early + timedelta(minutes=1))
    with app.db.write() as session:
        assert ledger.planned_editions(session, ["2026-11-20"]) == set()
        assert [pause.edition for pause in ledger.pauses(session)] == ["2026-11-20"]
    pipeline.plan(app, early + HOUR)
    with app.db.write() as session:
        ledger.resume(session, now, "2026-11-20")
    change(11, early + HOUR)
    with app.db.read() as session:
        assert ledger.planned_editions(session, ["2026-11-20"]) == set()
        events = [(event.kind, event.detail) for event in subscribers.events(session, 1, 9)]
    assert events.count(("digest_withdrawn", "2026-11-20")) == 2
    for hours in (2, 4):
        pipeline.plan_and_send(app, now.replace(minute=0) + hours * HOUR)
    assert recipients(mail_server) == ["alice", "bob"]
    pipeline.plan(app, early + 26 * HOUR)
    with app.db.read() as session:
        assert [pause.edition for pause in ledger.pauses(session)] == ["2026-11-21"]


@pytest.mark.parametrize("is_sent", [True, False])
def test_approval_outlives_the_erasure_of_a_subscriber(
    is_sent: bool, service: Application, mail_server: MailServer, now: datetime
) -> None:
    """Alice's digest was the only one that had been composed. Bob is not due before she is erased."""
    pipeline.plan(service, now)
    with service.db.write() as session:
        ledger.resume(session, now, "2026-11-20")
    if is_sent:
        pipeline.plan_and_send(service, now + HOUR)
    with service.db.write() as session:
        subscribers.erase(session, 1, now + HOUR)
    pipeline.plan_and_send(service, now + 2 * HOUR)
    pipeline.plan_and_send(service, now + 3 * HOUR)
    assert recipients(mail_server) == (["alice", "bob"] if is_sent else ["bob"])


def test_approval_of_a_requested_first_digest_covers_nothing_else(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """The scheduled digests of the edition need another one, and it covers first digests requested later."""
    preferences = subscribers.Preferences(interests=(Interest("language agents"),))

    def request(name: str, at: datetime) -> None:
        with service.db.write() as session:
            subscriber = subscribers.add(session, f"{name}@example.org", preferences, at)
        pipeline.plan_first(service, subscriber, at)
        pipeline.plan_and_send(service, at)

    def approve(at: datetime) -> list[str]:
        with service.db.write() as session:
            assert ledger.resume(session, now, "2026-11-20")
        pipeline.plan_and_send(service, at)
        return recipients(mail_server)

    night = now - 8 * HOUR
    request("carol", night)
    assert recipients(mail_server) == []
    assert approve(night + HOUR) == ["carol"]
    request("dan", night + 2 * HOUR)
    assert recipients(mail_server) == ["carol"]
    assert approve(night + 3 * HOUR) == ["carol", "dan"]
    pipeline.plan_and_send(service, now)
    assert recipients(mail_server) == ["carol", "dan"]
    assert approve(now + HOUR) == ["alice", "carol", "dan"]
    request("erin", now + 2 * HOUR)
    assert recipients(mail_server) == ["alice", "carol", "dan", "erin"]


def test_edition_without_digests_needs_no_approval(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """Carol's is skipped, twice because she chooses another hour. Alice's is the first digest."""
    app = replace(service, settings=service.settings.model_copy(update={"compose_ahead_minutes": 60}))
    early = now.replace(hour=7, minute=30)
    with app.db.write() as session:
        due = now.replace(hour=8, minute=0)
        carol = factories.add_subscriber(session, "carol@example.org", ["birdsong"], due, hour=8)
    assert pipeline.plan(app, early) == {"skipped": 1}
    with app.db.write() as session:
        assert ledger.pauses(session) == []
        interests = (Interest("birdsong"),)
        subscribers.change(session, carol, subscribers.Preferences(interests=interests, hour=9), early)
    assert pipeline.plan(app, early + HOUR) == {"planned": 1, "skipped": 1}
    with app.db.read() as session:
        assert [each.edition for each in ledger.pauses(session)] == ["2026-11-20"]
    pipeline.send(app, now)
    assert mail_server.messages == []


def test_edition_that_nobody_approved_needs_no_approval_later(service: Application, now: datetime) -> None:
    """Neither does a cancelled one. Their pauses are deleted after some days, and other pauses are not."""

    def approvals(at: datetime) -> list[str]:
        findings = service_state.check(service.db, service.models, at)
        return [each.check for each in findings if each.check.startswith("sending ")]

    for hours in (0, 3):
        pipeline.plan_and_send(service, now + hours * HOUR)
    assert approvals(now) == ["sending 2026-11-20"]
    for hours in (24, 27):
        pipeline.plan_and_send(service, now + hours * HOUR)
    assert approvals(now + 27 * HOUR) == ["sending 2026-11-21"]
    with service.db.write() as session:
        ledger.cancel(session, "2026-11-21")
        ledger.pause(session, "a holiday", now)
        ledger.pause(session, "a typo", now, ledger.FIRST_DIGESTS)
        ledger.pause_edition(session, "2026-11-22", "a typo", now)
    assert approvals(now + 27 * HOUR) == ["sending 2026-11-22"]
    for days, left in ((10, 3), (11, 2), (12, 1), (13, 0)):
        maintenance.prune(service, now + timedelta(days=days, hours=1))
        with service.db.read() as session:
            editions = {each.edition for each in ledger.pauses(session)}
        assert len(editions - {ledger.ALL_EDITIONS, ledger.FIRST_DIGESTS}) == left, days
        assert editions >= {ledger.ALL_EDITIONS, ledger.FIRST_DIGESTS}


def test_other_mails_need_no_approval(service: Application, mail_server: MailServer, now: datetime) -> None:
    pipeline.plan_and_send(service, now)
    with service.db.write() as session:
        subscribers.send_link(session, "alice@example.org", "", now, factories.CONFIRMABLE)
    pipeline.send(service, now)
    assert [mail.recipient for mail in mail_server.messages] == ["alice@example.org"]


def test_coming_edition_is_held_by_its_date(
    service: Application, mail_server: MailServer, now: datetime
) -> None:
    """Without the setting, only that edition waits. Nobody has to act before it is planned."""
    app = replace(service, settings=service.settings.model_copy(update={"approve_editions": False}))

    def approvals(at: datetime) -> list[str]:
        return [
            each.check for each in service_state.check(app.db, app.models, at) if each.remedy and each.urgent
        ]

    with app.db.write() as session:
        ledger.hold(session, "2026-11-21", now)
    assert approvals(now) == []
    pipeline.plan_and_send(app, now)
    pipeline.plan_and_send(app, now + 3 * HOUR)
    assert len(mail_server.messages) == 2
    pipeline.plan_and_send(app, now + 24 * HOUR)
    assert len(mail_server.messages) == 2
    assert approvals(now + 24 * HOUR) == ["sending 2026-11-21"]
    with app.db.write() as session:
        ledger.resume(session, now, "2026-11-21")
    pipeline.plan_and_send(app, now + 25 * HOUR)
    assert len(mail_server.messages) == 3


@pytest.mark.parametrize(
    "edition",
    [
        "2026-11-18",
        "2026-W48",
        "2026-13-01",
        "20261120",
        "2026-W48-1",
        "tomorrow",
        "",
        "*",
        "2027-11-20",
        "9999-12-31",
    ],
)
def test_only_coming_editions_are_held(service: Application, edition: str, now: datetime) -> None:
    with service.db.write() as session, pytest.raises(InvalidInput):
        ledger.hold(session, edition, now)


@pytest.mark.parametrize("edition", ["2026-11-19", "2026-11-20", "2027-01-19"])
def test_edition_is_held_once(service: Application, edition: str, now: datetime) -> None:
    """It is still yesterday somewhere."""
    with service.db.write() as session:
        ledger.hold(session, edition, now)
        assert [pause.edition for pause in ledger.pauses(session)] == [edition]
        with pytest.raises(Conflict, match="is already held"):
            ledger.hold(session, edition, now)


def test_edition_that_has_begun_is_not_held(service: Application, now: datetime) -> None:
    with service.db.write() as session:
        ledger.hold(session, "2026-11-21", now)
    pipeline.plan(service, now)
    with service.db.write() as session, pytest.raises(Conflict, match="pause it instead"):
        ledger.hold(session, "2026-11-20", now)


@pytest.fixture
def live(service: Application, mail_server: MailServer, now: datetime) -> Application:
    """Return a service that has sent digests to Alice and Bob, and then imports Carol and Dan."""
    app = replace(service, settings=service.settings.model_copy(update={"approve_editions": False}))
    pipeline.plan_and_send(app, now)
    pipeline.plan_and_send(app, now + 3 * HOUR)
    file = b"email,interests,hour,zone,consent_version\n" + b"".join(
        f"{name}@example.org,language agents,9,UTC,{consent}\n".encode()
        for name, consent in (("carol", ""), ("dan", "a list of 2025"))
    )
    result = maintenance.import_subscribers(app, io.BytesIO(file), "cli", now + 4 * HOUR)
    assert (result.report.added, result.paused_scope) == (2, ledger.FIRST_DIGESTS)
    return app


def recipients(mail_server: MailServer) -> list[str]:
    return sorted(mail.recipient.partition("@")[0] for mail in mail_server.messages)


def test_import_into_a_live_list_holds_only_the_new_first_digests(
    live: Application, mail_server: MailServer, now: datetime
) -> None:
    """They are composed, so that an operator can see them. The others leave, and nothing is held twice."""
    tomorrow = now + timedelta(days=1)
    pipeline.plan_and_send(live, tomorrow)
    assert recipients(mail_server) == ["alice", "alice", "bob"]
    with live.db.write() as session:
        count, (held, _) = ledger.draw_held(session, 5)
        assert count == 2
        paper = ledger.paper_ids(ledger.stored_digests(session, [held.id])[held.id or 0]).pop()
    explained = pipeline.explain(live, tomorrow, str(held.subscriber_id), str(paper))
    assert "is held back: subscribers were imported" in explained.verdict
    with live.db.write() as session:
        assert ledger.resume(session, now, ledger.FIRST_DIGESTS)
    pipeline.plan_and_send(live, tomorrow + timedelta(minutes=1))
    assert recipients(mail_server) == ["alice", "alice", "bob", "carol", "dan"]
    pipeline.plan_and_send(live, tomorrow + timedelta(days=1))
    with live.db.read() as session:
        assert ledger.draw_held(session, 5)[0] == 0


def test_import_does_not_hold_the_first_digests_of_others(
    live: Application, mail_server: MailServer, now: datetime
) -> None:
    """Those of subscribers who were added before it, or have left and signed up again since.

    Until an operator releases them, it also holds those of a later import, which says so.
    """
    file = io.BytesIO(b"email,interests,hour\nfrank@example.org,language agents,9\n")
    later = maintenance.import_subscribers(live, file, "cli", now + 5 * HOUR, hold=False)
    assert later.paused_scope == ledger.FIRST_DIGESTS
    with live.db.write() as session:
        subscribers.add(
            session, "erin@example.org", Preferences(interests=(Interest("language agents"),)), now
        )
        carol = subscribers.find(session, "carol@example.org").id or 0
        subscribers.unsubscribe(session, carol, now + 5 * HOUR)
        form = SignUp("carol@example.org", Preferences(interests=(Interest("language agents"),), hour=9))
        mail = factories.sign_up(session, form, "192.0.2.1", now + 6 * HOUR)
        assert mail
        subscribers.confirm(session, carol, "192.0.2.1", now + 6 * HOUR, mail)
    pipeline.plan_and_send(live, now + timedelta(days=1))
    assert recipients(mail_server) == ["alice", "alice", "bob", "carol", "carol", "erin"]


@pytest.mark.parametrize("hold", [None, False])
def test_import_after_the_clock_was_ahead_holds_first_digests(
    live: Application, mail_server: MailServer, now: datetime, hold: bool | None
) -> None:
    """The pause began in the future. After the clock was corrected, another import is held, too."""
    file = io.BytesIO(b"email,interests,hour\nerin@example.org,language agents,9\n")
    result = maintenance.import_subscribers(live, file, "cli", now + 3 * HOUR, hold=hold)
    assert result.paused_scope == ledger.FIRST_DIGESTS
    pipeline.plan_and_send(live, now + timedelta(days=1))
    assert recipients(mail_server) == ["alice", "alice", "bob"]
    with live.db.read() as session:
        assert ledger.draw_held(session, 5)[0] == 3


def test_first_digests_are_held_until_they_are_released(
    live: Application, mail_server: MailServer, now: datetime
) -> None:
    """Also on the second day, whose digests contain the papers of the first day's, which are given up."""
    for days in (1, 2):
        pipeline.plan_and_send(live, now + timedelta(days=days))
    assert "carol" not in recipients(mail_server)
    with live.db.write() as session:
        count, waiting = ledger.draw_held(session, 5)
        assert count >= 2
        assert {row.edition for row in waiting} == {"2026-11-22"}
        digests = ledger.stored_digests(session, [row.id or 0 for row in waiting])
        assert [len(ledger.paper_ids(digest)) for digest in digests.values()] == [4, 4]
        ledger.resume(session, now, ledger.FIRST_DIGESTS)
    for days in (2, 3):
        pipeline.plan_and_send(live, now + timedelta(days=days, minutes=1))
    with live.db.read() as session:
        sent = select(Delivery).where(Delivery.state == DeliveryState.SENT)
        editions = [row.edition for row in session.exec(sent.where(col(Delivery.subscriber_id) > 2))]
    assert editions == ["2026-11-22"] * 2


def test_import_pause_that_ends_releases_what_it_held(
    live: Application, mail_server: MailServer, now: datetime
) -> None:
    """The import added nobody, but a planner ran meanwhile."""
    pipeline.plan_and_send(live, now + timedelta(days=1))
    with live.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert ledger.draw_held(session, 5)[0] == 2
        assert ledger.end_import_pause(session, pause.since, ledger.FIRST_DIGESTS)
        assert ledger.draw_held(session, 5)[0] == 0
    pipeline.plan_and_send(live, now + timedelta(days=1, minutes=1))
    assert recipients(mail_server) == ["alice", "alice", "bob", "carol", "dan"]


def test_import_of_nobody_holds_nothing(live: Application, now: datetime) -> None:
    with live.db.write() as session:
        ledger.resume(session, now, ledger.FIRST_DIGESTS)
    file = io.BytesIO(b"email,interests\nalice@example.org,language agents\n")
    assert maintenance.import_subscribers(live, file, "cli", now + 5 * HOUR).paused_scope is None
    with live.db.read() as session:
        assert ledger.pauses(session) == []
