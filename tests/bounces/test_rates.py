"""Test the counts of emails, bounces and complaints by receiver, and the pause at too many complaints."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain

import pytest
from sqlmodel import Session, col, update
from structlog.testing import capture_logs

from app import bounces, subscribers
from app.application import Application
from app.bounces import processing, rates
from app.delivery import ledger
from app.delivery.receivers import receiver_of
from app.doctor import service_state
from app.doctor.findings import Level
from app.storage import audit_log
from app.storage.models import Delivery, DeliveryState
from tests.bounces.mails import complaint
from tests.conftest import NOW
from tests.support import factories

DAY = timedelta(days=1)


def add_mails(session: Session, domain: str, count: int, prefix: str = "") -> list[int]:
    """Add readers at a domain, each with an email sent an hour ago. Return the ids of the deliveries."""
    deliveries = []
    for n in range(count):
        reader = factories.add_subscriber(session, f"{prefix}reader{n}@{domain}", ["agents"], NOW)
        at = NOW - timedelta(hours=1)
        fields = {"state": DeliveryState.SENT, "due_at": at, "created_at": at, "sent_at": at}
        deliveries.append(Delivery(subscriber_id=reader, edition="2026-11-20", **fields))
    session.add_all(deliveries)
    session.flush()
    return [delivery.id or 0 for delivery in deliveries]


def complain(app: Application, *delivery_ids: int, percent: float = 0.3, now: datetime = NOW) -> None:
    """Process a complaint about each delivery, all in one transaction."""
    context = app.bounce_context
    settings = context.settings.model_copy(update={"pause_at_complaints": percent})
    paths = [app.signer.return_path(delivery_id, "paperboy.test") for delivery_id in delivery_ids]
    notices = [bounces.parse_mail(complaint("fbl@paperboy.test", returned=path)) for path in paths]
    processing.apply(replace(context, settings=settings), [*chain.from_iterable(notices)], now)


def bounce_twice(session: Session, delivery_id: int) -> None:
    delivery = session.get_one(Delivery, delivery_id)
    bounces.record_soft(session, delivery_id, delivery.subscriber_id, "550 no", NOW)
    bounces.record_hard(session, delivery_id, delivery.subscriber_id, "550 no", NOW)


def test_rates_by_day_and_receiver(app: Application) -> None:
    """An email that bounced softly and then hard is one bounce. Unknown domains are counted together."""
    with app.db.write() as session:
        google = add_mails(session, "gmail.com", 3)
        add_mails(session, "yahoo.co.uk", 1)
        add_mails(session, "lab.example.org", 1)
        late = add_mails(session, "aol.com", 1)
        bounce_twice(session, google[0])
        yesterday = {"sent_at": NOW - DAY}
        session.execute(update(Delivery).where(col(Delivery.id) == late[0]).values(**yesterday))
    complain(app, google[1])
    with app.db.read() as session:
        found = rates.by_day(session, NOW, 3)
    today = NOW.date()
    assert found == [
        rates.ReceiverRate(today, "google", 3, 1, 1),
        rates.ReceiverRate(today, "others", 1, 0, 0),
        rates.ReceiverRate(today, "yahoo", 1, 0, 0),
        rates.ReceiverRate(today - DAY, "yahoo", 1, 0, 0),
    ]
    assert found[0].complaint_percent == pytest.approx(100 / 3)


def test_subscriber_who_complains_again_counts_once(app: Application) -> None:
    """Somebody who reports several old digests, or forges reports of their own, cannot pause sending."""
    with app.db.write() as session:
        first, other = add_mails(session, "gmail.com", 2)
        row = session.get_one(Delivery, first)
        older = [Delivery(**row.model_dump(exclude={"id", "edition"}), edition=f"day {n}") for n in range(3)]
        session.add_all(older)
        session.flush()
        first_ids = [first, *(each.id or 0 for each in older)]
    complain(app, *first_ids[:2], now=NOW - DAY)
    complain(app, *first_ids[2:])
    complain(app, other)
    with app.db.read() as session:
        assert ledger.pauses(session) == []
        assert [each.complaints for each in rates.of_last_week(session, NOW)] == [2]
        assert [each.complaints for each in rates.by_day(session, NOW, 7)] == [2, 1], "once a day"


def test_erased_subscribers_do_not_count(app: Application) -> None:
    """Their receiver is no longer stored, so their complaints must not count against another receiver."""
    with app.db.write() as session:
        google, others = add_mails(session, "gmail.com", 10), add_mails(session, "lab.example.org", 4)
        bounce_twice(session, google[2])
    complain(app, *google[:2])
    with app.db.write() as session:
        for delivery_id in google[:3]:
            subscribers.erase(session, session.get_one(Delivery, delivery_id).subscriber_id, NOW)
    complain(app, others[0])
    with app.db.read() as session:
        assert ledger.pauses(session) == []
        for by_receiver in (rates.of_last_week(session, NOW), rates.by_day(session, NOW, 1)):
            counts = [(rate.receiver, rate.sent, rate.bounces, rate.complaints) for rate in by_receiver]
            assert counts == [("google", 7, 0, 0), ("others", 4, 0, 1)]


def test_notices_name_no_erased_subscriber(app: Application) -> None:
    """Their row has a placeholder instead of an address."""
    with app.db.write() as session:
        kept, gone = add_mails(session, "yahoo.com", 2)
    complain(app, kept, gone)
    with app.db.write() as session:
        subscribers.erase(session, session.get_one(Delivery, gone).subscriber_id, NOW)
    with app.db.read() as session:
        notices = rates.newest_notices(session, NOW, 1, 10)
    assert [each.email for each in notices] == ["", "reader0@yahoo.com"]


@pytest.mark.parametrize(
    ("complaints", "percent", "paused"), [(2, 0.3, 0), (3, 0.3, 1), (3, 0, 0), (3, 80, 0)]
)
def test_sending_pauses_at_complaints(app: Application, complaints: int, percent: float, paused: int) -> None:
    """Two complaints are too few to judge, and a percentage of 0 turns it off."""
    with app.db.write() as session:
        ids = add_mails(session, "yahoo.com", 4)
    with capture_logs() as lines:
        for delivery_id in ids[:complaints]:
            complain(app, delivery_id, percent=percent)
    errors = [line["event"] for line in lines if line["log_level"] == "error"]
    assert errors == ["all sending is paused"] * paused
    with app.db.read() as session:
        pauses = ledger.pauses(session)
        assert all(ledger.last_automatic(session, pause) for pause in pauses)
    assert len(pauses) == paused
    assert all("3 complaints about 4 emails to yahoo (75.00%)" in pause.reason for pause in pauses)


def test_complaints_while_sending_is_paused(app: Application) -> None:
    """Whoever resumes sees them, because they do not count after that. Further ones change nothing."""
    with app.db.write() as session:
        ids = add_mails(session, "yahoo.com", 6)
        ledger.pause(session, "relay maintenance", NOW - timedelta(hours=1))
    with capture_logs() as lines:
        for delivery_id in ids[:5]:
            complain(app, delivery_id)
    with app.db.read() as session:
        (pause,) = ledger.pauses(session)
        assert ledger.last_automatic(session, pause)
    assert pause.reason.startswith("relay maintenance; also: 3 complaints about 6 emails to yahoo")
    assert pause.reason.count("also") == 1
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["all sending is paused"]


@pytest.mark.parametrize(("receiver", "reasons"), [("163.com", 1), ("126.com", 2)])
def test_complaints_from_another_receiver_are_another_cause(
    app: Application, receiver: str, reasons: int
) -> None:
    """Other numbers of complaints are no other cause, but digits in a receiver's name distinguish it."""
    rate = rates.ReceiverRate(NOW.date(), "163.com", sent=200, bounces=0, complaints=3)
    later = replace(rate, day=NOW.date() + timedelta(days=1), receiver=receiver, sent=1200, complaints=14)
    with app.db.write() as session:
        ledger.pause_automatically(session, rate.describe(), NOW)
        ledger.pause_automatically(session, later.describe(), NOW + timedelta(days=1))
        (pause,) = ledger.pauses(session)
    assert len(ledger.reasons(pause)) == reasons


def test_complaints_of_one_batch_are_counted_together(app: Application) -> None:
    """The rates are read once for each batch, not once for each complaint."""
    with app.db.write() as session:
        ids = add_mails(session, "yahoo.com", 5)
    complain(app, *ids[:4])
    with app.db.read() as session:
        (pause,) = ledger.pauses(session)
    assert "4 complaints about 5 emails" in pause.reason


def test_resuming_forgets_earlier_complaints(app: Application) -> None:
    """Late complaints about earlier emails do not pause sending again. Three new ones do."""
    with app.db.write() as session:
        ids = add_mails(session, "yahoo.com", 7)
    complain(app, *ids[:3])
    with app.db.write() as session:
        assert ledger.resume(session, NOW)
        resumed = audit_log.SENDING_RESUMED, ledger.ALL_EDITIONS
        audit_log.record(session, "cli", *resumed, NOW + timedelta(minutes=1))
    later = NOW + timedelta(hours=1)
    complain(app, *ids[3:5], now=later)
    with app.db.read() as session:
        assert ledger.pauses(session) == []
    complain(app, ids[5], now=later)
    with app.db.read() as session:
        (pause,) = ledger.pauses(session)
    assert "3 complaints about 7 emails" in pause.reason


@pytest.mark.parametrize(
    ("address", "receiver"),
    [
        ("a@googlemail.com", "google"),
        ("a@Hotmail.co.uk", "outlook"),
        ("a@outlook.com.br", "outlook"),
        ("a@yahoo.fr", "yahoo"),
        ("a@aol.com", "yahoo"),
        ("a@me.com", "icloud"),
        ("a@gmx.at", "gmx"),
        ("a@wanadoo.fr", "orange"),
        ("a@outlook.uni-example.de", "outlook.uni-example.de"),
        ("a@example.org", "example.org"),
    ],
)
def test_receiver_of_national_domains(address: str, receiver: str) -> None:
    assert receiver_of(address) == receiver


def test_doctor_warns_before_sending_pauses(app: Application) -> None:
    """It names the receiver. Below the limit, it shows the counts of the week."""
    with app.db.write() as session:
        ids = add_mails(session, "yahoo.com", 4)
        bounce_twice(session, add_mails(session, "gmail.com", 1)[0])
    findings = {finding.check: finding for finding in service_state.check(app.db, app.models, NOW)}
    assert "complaints yahoo" not in findings
    google = findings["mail to google"]
    assert (google.level, google.message) == (
        Level.OK,
        "1 sent, 1 bounce, 0 complaints since 2026-11-13",
    )
    for delivery_id in ids[:3]:
        complain(app, delivery_id, percent=0)
    findings = {finding.check: finding for finding in service_state.check(app.db, app.models, NOW)}
    assert "mail to yahoo" not in findings
    finding = findings["complaints yahoo"]
    assert finding.level is Level.WARNING
    assert "to yahoo (75.00%)" in finding.message
