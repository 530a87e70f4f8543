"""Test changes of address: both owners confirm, one after the other."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import update
from sqlmodel import col, select

from app import bounces, maintenance, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.errors import Conflict, InvalidAddress
from app.storage import webhook_endpoints
from app.storage.models import (
    AddressChange,
    Delivery,
    Subscriber,
    SubscriberState,
    WebhookEvent,
    WebhookMessage,
)
from app.subscribers import Preferences, SignUp
from app.types import Interest, MailKind
from tests.support import factories
from tests.support.interleaving import before_statement

OLD, NEW = "alice@example.org", "alice@example.net"


@pytest.fixture
def alice(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return subscribers.add(session, OLD, Preferences(interests=(Interest("agents"),)), now)


def find_id(app: Application, email: str) -> int:
    with app.db.read() as session:
        return subscribers.find(session, email).id or 0


def mailed(app: Application) -> list[int]:
    """Return the subscribers of the emails about a change of address."""
    with app.db.read() as session:
        addressed = select(Delivery.subscriber_id).where(Delivery.kind == MailKind.ADDRESS)
        return list(session.exec(addressed.order_by(col(Delivery.id))))


def ask(app: Application, alice: int, now: datetime, email: str = NEW) -> None:
    with app.db.write() as session:
        subscribers.request_change(session, alice, email, now)


def confirm(app: Application, subscriber: int, now: datetime, email: str = NEW, mail: int = -1) -> None:
    """Press the button in the n-th email about a change, on a page that shows `email`."""
    with app.db.write() as session:
        sent = select(Delivery.id).where(
            Delivery.kind == MailKind.ADDRESS, Delivery.subscriber_id == subscriber
        )
        mails = session.exec(sent.order_by(col(Delivery.id))).all() or [0]
        request = subscribers.confirm_change(session, subscriber, mails[mail] or 0, email, "192.0.2.1", now)
        if request is not None:
            subscribers.process(session, request, now, factories.CONFIRMABLE)


def test_both_addresses_confirm(app: Application, alice: int, now: datetime) -> None:
    """Preferences and consent stay; links in earlier emails no longer work; each link works once."""
    ask(app, alice, now)
    assert mailed(app) == [alice]
    confirm(app, alice, now)
    pending = find_id(app, NEW)
    assert mailed(app) == [alice, pending]
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == OLD
    confirm(app, alice, now)
    assert mailed(app) == [alice, pending]
    confirm(app, pending, now)
    with app.db.read() as session:
        changed = subscribers.get(session, alice)
        assert (changed.email, changed.state, changed.link_epoch) == (NEW, SubscriberState.ACTIVE, 1)
        assert changed.consent_at == now
        assert subscribers.get(session, pending).state is SubscriberState.ERASED
        assert session.exec(select(AddressChange)).all() == []
    for subscriber in (alice, pending):
        with pytest.raises(Conflict):
            confirm(app, subscriber, now)


def test_a_change_erases_nobody(app: Application, alice: int, now: datetime) -> None:
    """It was reported, counted and listed as an erasure. The row of the new address stays for its links."""
    with app.db.write() as session:
        webhook_endpoints.add(session, "https://example.com/hook", [WebhookEvent.ERASED], False, now)
    ask(app, alice, now)
    confirm(app, alice, now)
    pending = find_id(app, NEW)
    confirm(app, pending, now)
    with app.db.read() as session:
        assert subscribers.get(session, pending).state is SubscriberState.ERASED
        assert [row.id for row in session.exec(subscribers.query_by_address())] == [alice]
        assert subscribers.count_by_state(session)[SubscriberState.ERASED] == 0
        assert subscribers.count_changes(session, now, now + timedelta(days=1))["erased"] == 0
        assert session.exec(select(WebhookMessage)).all() == []
    with app.db.write() as session:
        subscribers.erase(session, alice, now)
        assert subscribers.count_by_state(session)[SubscriberState.ERASED] == 1
        assert len(session.exec(select(WebhookMessage)).all()) == 1


def test_new_address_gets_a_link_at_once(app: Application, alice: int, now: datetime) -> None:
    """A link sent to the old address no longer works, so it does not count towards the limit."""
    with app.db.write() as session:
        assert subscribers.send_link(session, OLD, "", now, factories.CONFIRMABLE) is not None
    ask(app, alice, now)
    confirm(app, alice, now)
    confirm(app, find_id(app, NEW), now + timedelta(minutes=1))
    later = now + timedelta(minutes=2)
    with app.db.write() as session:
        assert subscribers.send_link(session, NEW, "", later, factories.CONFIRMABLE) is not None
        assert subscribers.send_link(session, NEW, "", later, factories.CONFIRMABLE) is None


def test_an_address_with_a_subscriber_gets_no_mail(app: Application, alice: int, now: datetime) -> None:
    """Nobody learns who is subscribed, and nobody takes over a subscription."""
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", Preferences(interests=(Interest("x rays"),)), now)
    ask(app, alice, now, "bob@example.org")
    confirm(app, alice, now, "bob@example.org")
    assert mailed(app) == [alice]
    with pytest.raises(Conflict):
        confirm(app, bob, now)


def test_the_address_on_the_page_is_confirmed(app: Application, alice: int, now: datetime) -> None:
    """The holder of a preferences link may replace the address while the page is open."""
    ask(app, alice, now)
    ask(app, alice, now, "mallory@example.org")
    with pytest.raises(Conflict, match="The new address has changed since you opened this page"):
        confirm(app, alice, now)
    assert mailed(app) == [alice]


def test_two_subscribers_want_the_same_address(app: Application, alice: int, now: datetime) -> None:
    """A link to the new address confirms only the change that it was sent for."""
    with app.db.write() as session:
        preferences = Preferences(interests=(Interest("x rays"),))
        mallory = subscribers.add(session, "mallory@example.org", preferences, now)
    for subscriber in (mallory, alice):
        ask(app, subscriber, now)
        confirm(app, subscriber, now)
    pending = find_id(app, NEW)
    assert sorted(mailed(app)) == sorted([mallory, alice, pending, pending])
    confirm(app, pending, now, mail=0)
    with app.db.read() as session:
        assert subscribers.get(session, mallory).email == NEW
        assert subscribers.get(session, alice).email == OLD


@pytest.mark.parametrize("confirmed", [0, 1])
def test_unsubscribing_ends_a_change(app: Application, alice: int, now: datetime, confirmed: int) -> None:
    """This holds before and after the first confirmation."""
    ask(app, alice, now)
    for _ in range(confirmed):
        confirm(app, alice, now)
    with app.db.write() as session:
        subscribers.unsubscribe(session, alice, now)
    with pytest.raises(Conflict, match="This subscription is no longer active"):
        confirm(app, find_id(app, NEW) if confirmed else alice, now)
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == OLD


def test_a_replaced_request_mails_nobody(app: Application, alice: int, now: datetime) -> None:
    """Its form may be processed later than the next request."""
    ask(app, alice, now)
    with app.db.write() as session:
        form = subscribers.confirm_change(session, alice, 0, NEW, "", now)
        subscribers.request_change(session, alice, "alice@example.com", now)
        assert subscribers.process(session, form or 0, now, factories.CONFIRMABLE) is None


@pytest.mark.postgres
@pytest.mark.parametrize("statement", ["FROM suppression", "INSERT INTO delivery", "UPDATE form_submission"])
def test_request_is_replaced_while_its_mail_is_prepared(
    app: Application, alice: int, now: datetime, statement: str
) -> None:
    """The email to the first address does not belong to the request for the second one."""
    ask(app, alice, now)
    with app.db.write() as session:
        (mail,) = session.exec(select(Delivery.id).where(Delivery.kind == MailKind.ADDRESS))
        request = subscribers.confirm_change(session, alice, mail or 0, NEW, "192.0.2.1", now)
    with (
        before_statement(app.db.engine, statement, lambda: ask(app, alice, now, "alice@example.com")),
        app.db.write() as session,
    ):
        assert subscribers.process(session, request or 0, now, factories.CONFIRMABLE) is not None
    with app.db.read() as session:
        change = session.get_one(AddressChange, alice)
        assert (change.email, change.delivery_id) == ("alice@example.com", None)
        assert session.exec(select(Subscriber).where(Subscriber.email == NEW)).one_or_none() is None


def test_link_confirms_only_the_address_it_was_sent_to(app: Application, alice: int, now: datetime) -> None:
    """Even if the email is recorded as that of another request."""
    ask(app, alice, now)
    confirm(app, alice, now)
    pending, other = find_id(app, NEW), "alice@example.com"
    with app.db.write() as session:
        session.get_one(AddressChange, alice).email = other
    with app.db.read() as session:
        change = session.get_one(AddressChange, alice)
        assert subscribers.open_change(session, pending, change.delivery_id or 0, now) is None
    with pytest.raises(Conflict):
        confirm(app, pending, now, other)


def test_suppressed_address_gets_no_mail(app: Application, alice: int, now: datetime) -> None:
    with app.db.write() as session:
        suppression.suppress(session, NEW, "complaint", now)
    ask(app, alice, now)
    confirm(app, alice, now)
    assert mailed(app) == [alice]


def test_requests_expire_and_end_with_the_subscriber(app: Application, alice: int, now: datetime) -> None:
    later = now + timedelta(days=2)
    ask(app, alice, now)
    with pytest.raises(Conflict):
        confirm(app, alice, later)
    with app.db.write() as session:
        subscribers.expire_changes(session, later)
        assert session.exec(select(AddressChange)).all() == []
    ask(app, alice, later)
    with app.db.read() as session:
        assert subscribers.export(session, alice, now)["new_address"] == NEW
    with app.db.write() as session:
        subscribers.erase(session, alice, later)
        assert session.exec(select(AddressChange)).all() == []


def end_by_erasing(app: Application, alice: int, now: datetime) -> None:
    with app.db.write() as session:
        subscribers.erase(session, alice, now, suppress=False)


def end_by_expiry(app: Application, alice: int, now: datetime) -> None:
    with app.db.write() as session:
        subscribers.expire_changes(session, now + timedelta(days=2))


def end_by_another_request(app: Application, alice: int, now: datetime) -> None:
    ask(app, alice, now, "alice@example.com")


def end_by_operator(app: Application, alice: int, now: datetime) -> None:
    with app.db.write() as session:
        subscribers.replace_address(session, alice, "alice@example.com", now)


ENDINGS = [end_by_erasing, end_by_expiry, end_by_another_request, end_by_operator]


@pytest.mark.parametrize("end", ENDINGS)
def test_new_address_is_forgotten_with_its_change(
    app: Application, alice: int, now: datetime, end: Callable[[Application, int, datetime], None]
) -> None:
    """It was stored as a pending subscriber for 30 more days, even after an erasure."""
    ask(app, alice, now)
    confirm(app, alice, now)
    pending = find_id(app, NEW)
    end(app, alice, now)
    with app.db.read() as session:
        assert session.exec(select(Subscriber).where(Subscriber.email == NEW)).all() == []
        assert subscribers.get(session, pending).state is SubscriberState.ERASED
        assert subscribers.count_changes(session, now, now + timedelta(days=3))["erased"] <= 1


@pytest.mark.parametrize("end", ENDINGS)
def test_new_address_is_forgotten_after_a_bounce(
    app: Application, alice: int, now: datetime, end: Callable[[Application, int, datetime], None]
) -> None:
    """The address may be mistyped, and belong to nobody or to somebody else."""
    ask(app, alice, now)
    confirm(app, alice, now)
    with app.db.write() as session:
        mail = session.exec(select(Delivery).where(Delivery.subscriber_id == find_id(app, NEW))).one()
        bounces.record_hard(session, mail.id or 0, mail.subscriber_id, "550 5.1.1 unknown", now)
    end(app, alice, now)
    with app.db.read() as session:
        assert session.exec(select(Subscriber).where(Subscriber.email == NEW)).all() == []


@pytest.mark.parametrize("end", ENDINGS)
def test_own_sign_up_of_the_new_address_remains(
    app: Application, alice: int, now: datetime, end: Callable[[Application, int, datetime], None]
) -> None:
    """Somebody else may have signed up with the address."""
    with app.db.write() as session:
        preferences = Preferences(interests=(Interest("x rays"),))
        pending = subscribers.invite(session, NEW, preferences, now, factories.CONFIRMABLE)
    ask(app, alice, now)
    confirm(app, alice, now)
    end(app, alice, now)
    with app.db.read() as session:
        assert subscribers.get(session, pending).state is SubscriberState.PENDING


def test_another_change_to_the_new_address_remains(app: Application, alice: int, now: datetime) -> None:
    with app.db.write() as session:
        preferences = Preferences(interests=(Interest("x rays"),))
        bob = subscribers.add(session, "bob@example.org", preferences, now)
    for subscriber in (alice, bob):
        ask(app, subscriber, now)
        confirm(app, subscriber, now)
    pending = find_id(app, NEW)
    end_by_erasing(app, alice, now)
    confirm(app, pending, now)
    with app.db.read() as session:
        assert subscribers.get(session, bob).email == NEW


def request_link(app: Application, now: datetime, email: str = NEW) -> Delivery | None:
    """Request a link in the form at /manage, and return the email."""
    with app.db.write() as session:
        sent = subscribers.send_link(session, email, "192.0.2.1", now, factories.CONFIRMABLE)
        return session.get(Delivery, sent) if sent else None


def test_requested_link_confirms_the_change_again(app: Application, alice: int, now: datetime) -> None:
    """It is not a sign-up: confirming one would create a second subscription, and block the change."""
    ask(app, alice, now)
    confirm(app, alice, now)
    pending, later = find_id(app, NEW), now + timedelta(hours=2)
    assert request_link(app, now + timedelta(minutes=59)) is None
    again = request_link(app, later)
    assert again is not None
    assert (again.kind, again.subscriber_id) == (MailKind.ADDRESS, pending)
    with app.db.read() as session:
        assert subscribers.pending_choices(session, pending, again.id) is None
        (last, *_) = subscribers.events(session, pending, 1)
        assert last.kind == "link_asked"
    confirm(app, pending, later)
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == NEW
        assert subscribers.get(session, pending).state is SubscriberState.ERASED


def test_each_link_of_a_change_works_for_two_days(app: Application, alice: int, now: datetime) -> None:
    """Each step is taken an hour before its link expires, also with a requested link."""
    step = timedelta(hours=47)
    ask(app, alice, now)
    confirm(app, alice, now + step)
    maintenance.prune(app, now + 3 * step / 2)
    pending = find_id(app, NEW)
    assert request_link(app, now + 2 * step) is not None
    maintenance.prune(app, now + 5 * step / 2)
    with app.db.read() as session:
        assert subscribers.new_address(session, alice, now + 5 * step / 2) == NEW
    with pytest.raises(Conflict):
        confirm(app, pending, now + 2 * step + timedelta(days=2))
    confirm(app, pending, now + 3 * step)
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == NEW


def test_change_of_address_in_a_long_pause_can_be_confirmed_afterwards(
    app: Application, alice: int, now: datetime
) -> None:
    """The link to each address may wait for longer than it works."""
    for step, reader in enumerate((OLD, NEW)):
        paused_at = now + step * timedelta(days=7)
        with app.db.write() as session:
            ledger.pause(session, "the relay is down", paused_at)
        if reader == OLD:
            ask(app, alice, paused_at)
        else:
            confirm(app, alice, paused_at)
        maintenance.prune(app, paused_at + timedelta(days=6))
        with app.db.write() as session:
            ledger.resume(session, paused_at + timedelta(days=6))
    with app.db.write() as session:
        session.execute(update(Delivery).values(next_attempt_at=None))  # all were sent
        assert subscribers.new_address(session, alice, now + timedelta(days=14)) == NEW
    maintenance.prune(app, now + timedelta(days=14))
    confirm(app, find_id(app, NEW), now + timedelta(days=14))
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == NEW


def test_requested_links_of_a_change_are_limited(app: Application, alice: int, now: datetime) -> None:
    """All emails that were requested to the new address count."""
    ask(app, alice, now)
    confirm(app, alice, now)
    sent = [request_link(app, now + timedelta(hours=2 * number)) for number in range(1, 5)]
    assert [mail is not None for mail in sent] == [True, True, False, False]


def test_requested_link_confirms_a_sign_up_beside_a_change(
    app: Application, alice: int, now: datetime
) -> None:
    """The latest email about the change still works."""
    with app.db.write() as session:
        form = SignUp(NEW, Preferences(interests=(Interest("x rays"),)))
        factories.sign_up(session, form, "192.0.2.1", now)
    ask(app, alice, now)
    confirm(app, alice, now)
    again = request_link(app, now + timedelta(hours=2))
    assert again is not None
    assert again.kind is MailKind.CONFIRM
    confirm(app, find_id(app, NEW), now + timedelta(hours=2))
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == NEW


@pytest.mark.postgres
def test_new_address_is_registered_while_it_is_stored(app: Application, alice: int, now: datetime) -> None:
    """The operator is told so, and the subscriber keeps the earlier address."""

    def add_another() -> None:
        with app.db.write() as session:
            subscribers.add(session, NEW, Preferences(interests=(Interest("agents"),)), now)

    with (
        pytest.raises(Conflict, match="already registered"),
        before_statement(app.db.engine, "UPDATE subscriber SET email", add_another),
        app.db.write() as session,
    ):
        subscribers.replace_address(session, alice, NEW, now)
    assert find_id(app, OLD) == alice
    assert find_id(app, NEW) != alice


def test_no_link_is_sent_after_a_change_expired(app: Application, alice: int, now: datetime) -> None:
    """Nobody signed up with the new address, so there is nothing to confirm, even before it is erased."""
    ask(app, alice, now)
    confirm(app, alice, now)
    later = now + timedelta(days=2)
    assert request_link(app, later) is None
    with app.db.read() as session:
        (last,) = subscribers.events(session, find_id(app, NEW), 1)
    assert (last.kind, last.detail) == ("link_refused", "the change to this address has expired")
    maintenance.prune(app, later)
    assert request_link(app, later) is None


@pytest.mark.parametrize("signed_up", [True, False], ids=["an old sign-up", "a fresh address"])
def test_pruning_keeps_the_address_of_an_open_change(
    app: Application, alice: int, now: datetime, signed_up: bool
) -> None:
    """Its link works for two days, even if unconfirmed sign-ups are erased sooner. Then it is erased."""
    if signed_up:
        with app.db.write() as session:
            form = SignUp(NEW, Preferences(interests=(Interest("x rays"),)))
            factories.sign_up(session, form, "192.0.2.1", now - timedelta(days=40))
    ask(app, alice, now)
    confirm(app, alice, now)
    pending = find_id(app, NEW)
    with app.db.write() as session:
        later = now + timedelta(hours=47)
        assert subscribers.expire_pending(session, later - timedelta(days=1), later) == 0
    maintenance.prune(app, now + timedelta(days=2))
    with app.db.read() as session:
        assert session.exec(select(AddressChange)).all() == []
        assert subscribers.get(session, pending).state is SubscriberState.ERASED


def test_invalid_requests(app: Application, alice: int, now: datetime) -> None:
    for email in (OLD, "nobody"):
        with pytest.raises(InvalidAddress):
            ask(app, alice, now, email)
    with app.db.write() as session:
        subscribers.unsubscribe(session, alice, now)
    with pytest.raises(Conflict):
        ask(app, alice, now)
    with app.db.read() as session:
        assert len(session.exec(select(Subscriber)).all()) == 1
