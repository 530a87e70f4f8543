"""Test the warm-up of a sending domain: each receiver gets a limited number of emails per day."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, event
from sqlmodel import col, select, update

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.delivery.warm_up import UNLIMITED_FROM, WarmUp
from app.doctor import sending
from app.errors import InvalidSettings
from app.settings import Settings, load
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import Delivery, DeliveryState
from app.types import MailKind
from tests.delivery.ledger.test_ledger import enqueue_mails, still_clock
from tests.delivery.test_receiver_backoffs import move
from tests.support import factories, sample_digest
from tests.support.mail_server import MailServer

DAY = timedelta(days=1)


def test_limits_double_until_they_end() -> None:
    """They are off before the first day, and from 100,000 on."""
    ramp = WarmUp(date(2026, 12, 1), mails=50, days=2)
    days = [date(2026, 12, 1) + n * DAY for n in range(60)]
    limits = [ramp.limit_on(day) for day in days]
    assert limits[:6] == [50, 50, 100, 100, 200, 200]
    assert ramp.limit_on(date(2026, 11, 30)) is None
    end = limits.index(None)
    assert days[end] == ramp.unlimited_from
    assert set(limits[end:]) == {None}
    assert all(earlier <= later < UNLIMITED_FROM for earlier, later in pairwise(limits[:end]))  # type: ignore[operator]
    assert WarmUp(date(2026, 12, 1), UNLIMITED_FROM, 1).unlimited_from == date(2026, 12, 1)


@pytest.mark.parametrize(("text", "start"), [("", None), ("2026-12-01", date(2026, 12, 1))])
def test_setting(text: str, start: date | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty day means that there is no warm-up."""
    monkeypatch.setenv("PAPERBOY_WARM_UP_START", text)
    assert Settings().warm_up_start == start


def test_invalid_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERBOY_WARM_UP_START", "soon")
    with pytest.raises(InvalidSettings, match="PAPERBOY_WARM_UP_START"):
        load()


@pytest.fixture
def warming(app: Application, now: datetime) -> Application:
    """Return an application whose warm-up begins today, with three emails per receiver."""
    return warm(app, now.date(), mails=3)


def warm(app: Application, start: date, mails: int) -> Application:
    fields = {"warm_up_start": start, "warm_up_mails": mails, "warm_up_days": 1}
    return replace(app, settings=app.settings.model_copy(update=fields))


def readers_at(app: Application, now: datetime, domain: str, count: int, **fields: Any) -> list[int]:
    """Enqueue emails for readers at a domain, and return their ids."""
    names = [f"{domain.partition('.')[0]}{n}" for n in range(count)]
    ids = enqueue_mails(app, now, *names, **fields)
    move(app, **{name: f"{name}@{domain}" for name in names})
    return ids


def mails(app: Application, ids: list[int]) -> list[Delivery]:
    with app.db.read() as session:
        return [session.get_one(Delivery, delivery_id) for delivery_id in ids]


def domains(server: MailServer) -> list[str]:
    return [mail.recipient.partition("@")[2] for mail in server.messages]


@pytest.mark.usefixtures("still_clock")
def test_mails_beyond_the_limit_wait(warming: Application, mail_server: MailServer, now: datetime) -> None:
    """Each provider has its own limit, across its domains, and so has every other domain."""
    gmail = readers_at(warming, now, "gmail.com", 3) + readers_at(warming, now, "googlemail.com", 2)
    readers_at(warming, now, "example.org", 2)
    assert pipeline.send_now(warming, now) == {"sent": 5, "deferred": 2}
    assert sorted(domains(mail_server)) == ["example.org"] * 2 + ["gmail.com"] * 3
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + DAY
    for mail in mails(warming, gmail)[3:]:
        assert (mail.state, mail.attempts, mail.next_attempt_at) == (DeliveryState.DEFERRED, 0, midnight)
        assert mail.reason == f"warm-up of the sending domain: google gets at most 3 emails on {now.date()}"
    assert pipeline.send_now(warming, now + DAY / 4) == {}, "nothing more today"


@pytest.mark.usefixtures("still_clock")
def test_limit_grows(app: Application, mail_server: MailServer, now: datetime) -> None:
    """After midnight (UTC) the emails leave first that waited, up to the limit of that day."""
    waiting = readers_at(app, now, "gmail.com", 20)
    with app.db.write() as session:
        session.execute(update(Delivery).values(give_up_at=None))
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC)
    times = [now, *(midnight + n * DAY for n in (1, 2, 3))]
    counts = [pipeline.send_now(warm(app, now.date(), 2), at)["sent"] for at in times]
    assert counts == [2, 4, 8, 6]
    assert {mail.state for mail in mails(app, waiting)} == {DeliveryState.SENT}


@pytest.mark.usefixtures("still_clock")
def test_deferred_digests_go_first(app: Application, mail_server: MailServer, now: datetime) -> None:
    """Those of yesterday precede those that are due at midnight, but nobody waits for a requested link."""
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + DAY
    warming = warm(app, now.date() - DAY, mails=1)  # today's limit is 2, and tomorrow's is 4
    yesterday = readers_at(warming, now, "gmail.com", 5)
    assert pipeline.send_now(warming, now) == {"sent": 2, "deferred": 3}
    today = readers_at(warming, now, "googlemail.com", 3)
    link = readers_at(warming, now, "google.com", 1, kind=MailKind.MANAGE)
    with app.db.write() as session:
        session.execute(update(Delivery).values(give_up_at=midnight + DAY / 3))
        of_tomorrow = update(Delivery).where(col(Delivery.id).in_(today + link))
        session.execute(of_tomorrow.values(due_at=midnight, next_attempt_at=midnight))
    assert pipeline.send_now(warming, midnight) == {"sent": 4, "deferred": 3}
    assert {mail.state for mail in mails(app, yesterday + link)} == {DeliveryState.SENT}
    assert {mail.state for mail in mails(app, today)} == {DeliveryState.DEFERRED}


@pytest.mark.parametrize("hour", [0, 8])
@pytest.mark.usefixtures("still_clock")
def test_readers_take_turns(app: Application, mail_server: MailServer, hour: int) -> None:
    """The subscriber who has waited longest is next, even if their digest expires before it can be sent."""
    start = datetime(2026, 11, 20, hour, tzinfo=UTC)
    fields = {"warm_up_start": start.date(), "warm_up_mails": 2, "warm_up_days": 30}
    app = replace(app, settings=app.settings.model_copy(update=fields))
    with app.db.write() as session:
        source = factories.add_source(session, start)
        for day, title in enumerate(["One", "Two", "Three", "Four", "Five", "Six"]):
            listed = start + (day - 1) * DAY
            factories.add_paper(session, source, f"Language Agents, Part {title}", listed.date(), listed)
        for number in range(6):
            factories.add_subscriber(
                session, f"{number}@gmail.com", ["language agents"], start, hour=hour, max_papers=1
            )
    for day in range(6):
        pipeline.plan_and_send(app, start + day * DAY - timedelta(minutes=9))
        for hours in range(0, 24, 4):
            pipeline.plan_and_send(app, start + day * DAY + timedelta(hours=hours))
    digests = Counter(mail.recipient for mail in mail_server.messages)
    assert len(digests) == 6
    assert max(digests.values()) - min(digests.values()) <= 1


@pytest.mark.usefixtures("still_clock")
def test_expired_digest(warming: Application, mail_server: MailServer, now: datetime) -> None:
    """A digest that waits until the next one is due is given up, so its papers go into that one."""
    ids = readers_at(warming, now, "gmail.com", 5)
    pipeline.send_now(warming, now)
    with warming.db.write() as session:
        for mail in session.exec(select(Delivery).where(Delivery.state == DeliveryState.DEFERRED)):
            mail.give_up_at = now + DAY / 4
            session.add(mail)
    pipeline.send_now(warming, now + DAY)
    lost = mails(warming, ids)[3:]
    assert {mail.state for mail in lost} == {DeliveryState.FAILED}
    assert all("the next digest is due: warm-up" in mail.reason for mail in lost)
    with warming.db.read() as session:
        readers = [mail.subscriber_id for mail in lost]
        assert not any(ledger.paper_ids_promised(session, readers, now - DAY).values())


@pytest.mark.usefixtures("still_clock")
def test_service_mails_are_counted_but_never_wait(
    warming: Application, mail_server: MailServer, now: datetime
) -> None:
    """Somebody waits for them."""
    links = readers_at(warming, now, "gmail.com", 5, kind=MailKind.MANAGE)
    assert pipeline.send_now(warming, now) == {"sent": 5}
    readers_at(warming, now, "googlemail.com", 2)
    assert pipeline.send_now(warming, now) == {"deferred": 2}
    assert {mail.receiver for mail in mails(warming, links)} == {"google"}


@pytest.mark.usefixtures("still_clock")
def test_refused_mails_do_not_count(warming: Application, mail_server: MailServer, now: datetime) -> None:
    """Only emails that a receiver took count towards its limit."""
    readers_at(warming, now, "gmail.com", 5)
    mail_server.reply("rcpt", "550 5.1.1 no such user", to="gmail0@gmail.com")
    assert pipeline.send_now(warming, now) == {"sent": 2, "failed": 1, "deferred": 2}
    readers_at(warming, now, "googlemail.com", 3)
    assert pipeline.send_now(warming, now) == {"sent": 1, "deferred": 2}


@pytest.mark.usefixtures("still_clock")
def test_mails_in_flight_count(warming: Application, now: datetime) -> None:
    """What another sender has claimed and not yet sent is taken into account."""
    ids = readers_at(warming, now, "gmail.com", 5)

    async def claim(owner: str) -> ledger.ClaimedBatch:
        sender = ledger.SenderLedger(
            warming.db, warming.settings, owner, warming.snapshots, lambda: now, lambda *_: None
        )
        return await sender.claim(limit=2)

    first, second, third = (asyncio.run(claim(f"host:1:{name}")) for name in "abc")
    assert [request.delivery_id for request in first.requests + second.requests] == ids[:3]
    assert second.skipped | third.skipped == dict.fromkeys(ids[3:], DeliveryState.DEFERRED)


@pytest.mark.postgres
@pytest.mark.usefixtures("still_clock")
def test_mails_recorded_during_a_claim_count(app: Application, now: datetime) -> None:
    """Another sender may record an email as sent between any two statements of a claim."""
    warming = warm(app, now.date(), mails=10)
    ids = readers_at(warming, now, "gmail.com", 15)
    first, second = (
        ledger.SenderLedger(
            warming.db, warming.settings, f"host:1:{name}", warming.snapshots, lambda: now, lambda *_: None
        )
        for name in "ab"
    )
    in_flight = [request.delivery_id for request in asyncio.run(first.claim(limit=10)).requests]
    assert in_flight == ids[:10]
    sent = update(Delivery).values(state=DeliveryState.SENT, sent_at=now)
    other = create_engine(warming.db.engine.url, poolclass=NullPool)  # without the listener

    def record_one(*_: Any) -> None:
        if in_flight:
            with other.begin() as connection:
                connection.execute(sent.where(col(Delivery.id) == in_flight.pop()))

    event.listen(warming.db.engine, "before_cursor_execute", record_one)
    try:
        batch = asyncio.run(second.claim())
    finally:
        event.remove(warming.db.engine, "before_cursor_execute", record_one)
        other.dispose()
    assert len(in_flight) < 10
    assert (batch.requests, batch.skipped) == ((), dict.fromkeys(ids[10:], DeliveryState.DEFERRED))


def test_several_processes_respect_the_limit(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Four senders at once send no more than one would."""
    warming = warm(app, now.date(), mails=40)
    readers_at(warming, now, "gmail.com", 150)
    readers_at(warming, now, "example.org", 10)
    with ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(pipeline.send_now, warming, now) for _ in range(4)]
        for sender in senders:
            sender.result()
    assert sorted(domains(mail_server)) == ["example.org"] * 10 + ["gmail.com"] * 40


@pytest.mark.parametrize("days", [-1, 30])
def test_no_limit(app: Application, mail_server: MailServer, now: datetime, days: int) -> None:
    """Before the first day and after the end, emails have no receiver: the index stays empty."""
    ids = readers_at(app, now, "gmail.com", 5)
    assert pipeline.send_now(warm(app, now.date() - days * DAY, 1), now) == {"sent": 5}
    assert {mail.receiver for mail in mails(app, ids)} == {None}


@pytest.mark.usefixtures("still_clock")
def test_operators_see_what_waits(warming: Application, mail_server: MailServer, now: datetime) -> None:
    """The doctor names the receivers."""
    (quiet,) = sending.check_warm_up(warming.db, warming.settings, now)
    assert quiet.message.endswith("no emails are waiting")
    readers_at(warming, now, "gmail.com", 5)
    pipeline.send_now(warming, now)
    (finding,) = sending.check_warm_up(warming.db, warming.settings, now)
    assert "at most 3 emails today" in finding.message
    assert "2 emails are waiting until tomorrow: google (2)" in finding.message
    (future,) = sending.check_warm_up(warming.db, warming.settings, now - DAY)
    assert "it begins on" in future.message
    (over,) = sending.check_warm_up(warming.db, warming.settings, now + 30 * DAY)
    assert "it ended on" in over.message


def test_api_and_metrics(app: Application, mail_server: MailServer) -> None:
    """They have the limit and what waits. Metrics sum the domains that are not large receivers."""
    now = clock.utcnow().replace(hour=9)
    warming = warm(app, now.date(), mails=2)
    edition, digest = now.date().isoformat(), sample_digest.digest()
    with app.db.write() as session:
        for number, domain in enumerate(["gmail.com"] * 5 + ["alice.example"] * 3):
            reader = factories.add_subscriber(session, f"{number}@{domain}", [], now + DAY)
            entry = ledger.Entry(reader, edition, now, digest, give_up_at=now + 3 * DAY)
            ledger.add_entries(session, [entry], now)
        key = api_keys.create(session, "desk", [Scope.READ], now)[1]
    pipeline.send_now(warming, now)
    with TestClient(main.create_app(warming), headers={"Authorization": f"Bearer {key}"}) as client:
        status = client.get("/api/v1/statistics").json()["warm_up"]
        metrics = client.get("/metrics").text
    assert (status["limit"], status["waiting"], status["day"]) == (2, 4, now.date().isoformat())
    assert status["receivers"] == [
        {"receiver": "google", "sent": 2, "waiting": 3},
        {"receiver": "alice.example", "sent": 2, "waiting": 1},
    ]
    assert "paperboy_warm_up_limit 2.0" in metrics
    assert 'paperboy_warm_up_waiting{receiver="google"} 3.0' in metrics
    assert 'paperboy_warm_up_waiting{receiver="others"} 1.0' in metrics
    assert "alice" not in metrics


def test_erased_reader(warming: Application, mail_server: MailServer, now: datetime) -> None:
    """The domain may be theirs alone, so it is deleted."""
    (mail,) = readers_at(warming, now, "alice.example", 1)
    pipeline.send_now(warming, now)
    with warming.db.write() as session:
        subscribers.erase(session, mails(warming, [mail])[0].subscriber_id, now)
    assert mails(warming, [mail])[0].receiver is None


__all__ = ["still_clock"]
