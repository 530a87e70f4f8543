"""Test that all emails to a receiver wait when it asks us to send less, and that others go on."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from app import pipeline
from app.application import Application
from app.delivery import ledger
from app.delivery.ledger import receiver_backoffs
from app.delivery.send_result import SendOutcome
from app.delivery.smtp.responses import classify
from app.doctor import service_state
from app.relevance.model_store import ModelStore
from app.storage.models import Delivery, DeliveryState, Subscriber
from tests.delivery.ledger.test_ledger import deliveries_by_name, enqueue_mails, states_by_name, still_clock
from tests.support.mail_server import MailServer

GMAIL = (
    "421 4.7.28 Gmail has detected an unusual rate of unsolicited mail originating from your IP address. To "
    "protect our users from spam, mail sent from your IP address has been temporarily rate limited."
)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "throttled"),
    [
        (GMAIL, True),
        ("4.7.0 [192.0.2.1 15] Our system has detected an unusual rate of unsolicited mail", True),
        ("4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume", True),
        ("4.7.1 [TS03] All messages from 192.0.2.1 will be permanently deferred", True),
        ("4.7.651 The mail server [192.0.2.1] has been temporarily rate limited (S77719)", True),
        ("mwinf5c04 ME Trop de connexions. OFR004_104", True),
        ("mwinf2 ME Service refuse. Veuillez essayer plus tard. OFR_999 [999]", True),
        ("4.2.1 The user you are trying to contact is receiving mail at a rate that prevents more", False),
        ("4.2.2 The recipient's inbox is out of storage space", False),
        ("4.7.1 Greylisting in action, please come back later", False),
        ("4.3.2 Service shutting down", False),
        ("4.1.1 the address ts04@yahoo.com is unknown for now", False),
    ],
)
def test_requests_to_send_less(text: str, throttled: bool) -> None:
    """Replies about one mailbox and greylisting concern one email."""
    expected = SendOutcome.THROTTLED if throttled else SendOutcome.DEFERRED
    assert classify(421, text) is expected
    assert classify(550, text) is not SendOutcome.THROTTLED


def test_delays_double_up_to_four_hours() -> None:
    delays = [receiver_backoffs.backoff_delay(count) for count in range(1, 50)]
    assert delays[0] == 10 * MINUTE
    assert all(later == min(2 * earlier, timedelta(hours=4)) for earlier, later in pairwise(delays))


def move(app: Application, **addresses: str) -> None:
    """Give readers other addresses, by their local parts."""
    deliveries = deliveries_by_name(app)
    with app.db.write() as session:
        for name, address in addresses.items():
            session.get_one(Subscriber, deliveries[name].subscriber_id).email = address


def readers_at_gmail(app: Application, now: datetime, count: int) -> list[int]:
    names = [f"reader{n}" for n in range(count)]
    ids = enqueue_mails(app, now, *names)
    move(app, **{name: f"{name}@{'gmail' if n % 2 else 'googlemail'}.com" for n, name in enumerate(names)})
    return ids


def waiting(app: Application, ids: list[int]) -> list[Delivery]:
    with app.db.read() as session:
        return [session.get_one(Delivery, delivery_id) for delivery_id in ids]


@pytest.mark.usefixtures("still_clock")
def test_all_mails_to_a_receiver_wait_and_others_go_on(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Only the emails already in flight are tried. Those that were not tried keep their attempts."""
    ids = readers_at_gmail(app, now, 60)
    enqueue_mails(app, now, "alice", "bob")
    for n in range(60):
        mail_server.reply("rcpt", GMAIL, to=f"reader{n}@{'gmail' if n % 2 else 'googlemail'}.com")
    assert pipeline.send_now(app, now) == {"deferred": 60, "sent": 2}
    mails = waiting(app, ids)
    tried = [mail for mail in mails if mail.attempts]
    assert 1 <= len(tried) <= 20
    assert {mail.state for mail in mails} == {DeliveryState.DEFERRED}
    assert all(mail.next_attempt_at == now + 10 * MINUTE for mail in mails)
    assert all("4.7.28" in mail.reason for mail in mails)


@pytest.mark.usefixtures("still_clock")
def test_the_delay_grows_and_ends(app: Application, mail_server: MailServer, now: datetime) -> None:
    """New emails wait as well, without a connection. After the delay, the emails are tried again."""
    (first,) = readers_at_gmail(app, now, 1)
    mail_server.reply("rcpt", GMAIL)
    assert pipeline.send_now(app, now) == {"deferred": 1}
    connections = mail_server.connections
    (carol,) = enqueue_mails(app, now, "carol")
    move(app, carol="carol@gmail.com")
    assert pipeline.send_now(app, now + MINUTE) == {"deferred": 1}
    assert mail_server.connections == connections
    (mail,) = waiting(app, [carol])
    assert (mail.attempts, mail.next_attempt_at) == (0, now + 10 * MINUTE)
    assert pipeline.send_now(app, now + 10 * MINUTE) == {"deferred": 2}
    assert {mail.next_attempt_at for mail in waiting(app, [first, carol])} == {now + 30 * MINUTE}
    with app.db.read() as session:
        (finding,) = [
            finding
            for finding in service_state.check(app.db, ModelStore(), now + 11 * MINUTE)
            if finding.check == "receiver google"
        ]
        assert "4.7.28" in finding.message
        assert not ledger.backoffs(session, now + 31 * MINUTE)
    mail_server.clear_rules()
    assert pipeline.send_now(app, now + 30 * MINUTE) == {"sent": 2}


def test_a_reply_during_a_back_off_does_not_extend_it(app: Application, now: datetime) -> None:
    """Twelve hours later, the delays begin again. Addresses are removed from the reason."""
    with app.db.write() as session:
        for at, until in ((0, 10), (5, 10), (10, 30), (30, 70), (70 + 13 * 60, 80 + 13 * 60)):
            receiver_backoffs.begin(session, "a@gmail.com", "421 a@gmail.com slow down", now + at * MINUTE)
            (backoff,) = ledger.backoffs(session, now + at * MINUTE).values()
            assert backoff.until == now + until * MINUTE
            assert "a@gmail.com" not in backoff.reason
        assert not receiver_backoffs.find(ledger.backoffs(session, now), "a@example.org")


@pytest.mark.usefixtures("still_clock")
def test_another_sender_stops_as_well(app: Application, now: datetime) -> None:
    """Its claimed emails are no longer sendable."""
    ids = readers_at_gmail(app, now, 2)
    others = enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        ledger.claim(session, owner="me", now=now)
        assert ledger.sendable_addresses(session, "me", now).keys() == {*ids, *others}
        receiver_backoffs.begin(session, "x@gmail.com", "421 4.7.28", now)
        assert ledger.sendable_addresses(session, "me", now).keys() == {*others}
    assert set(states_by_name(app).values()) == {"claimed"}


__all__ = ["still_clock"]


def test_backoff_by_a_clock_that_was_ahead_ends(app: Application, now: datetime) -> None:
    """It would last until that date."""
    with app.db.write() as session:
        receiver_backoffs.begin(session, "a@gmail.com", "421 slow down", now + timedelta(days=30))
        assert ledger.backoffs(session, now) == {}
        receiver_backoffs.begin(session, "a@gmail.com", "421 slow down", now)
        (backoff,) = ledger.backoffs(session, now).values()
        assert backoff.until == now + 20 * MINUTE
