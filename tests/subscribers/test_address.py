"""Test changes of address: both owners confirm, one after the other."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlmodel import select

from app import subscribers
from app.application import Application
from app.delivery import suppression
from app.errors import Conflict, InvalidAddress
from app.storage.models import AddressChange, Delivery, Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Interest, MailKind

OLD, NEW = "alice@example.org", "alice@example.net"


@pytest.fixture
def alice(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return subscribers.add(session, OLD, Preferences(interests=(Interest("agents"),)), now)


def find_id(app: Application, email: str) -> int:
    with app.db.read() as session:
        return subscribers.find(session, email).id or 0


def mailed(app: Application) -> list[int]:
    """Return the subscribers of the mails about a change of address."""
    with app.db.read() as session:
        return list(session.exec(select(Delivery.subscriber_id).where(Delivery.kind == MailKind.ADDRESS)))


def ask(app: Application, alice: int, now: datetime, email: str = NEW) -> None:
    with app.db.write() as session:
        subscribers.request_change(session, alice, email, now)


def confirm(app: Application, subscriber: int, now: datetime) -> None:
    with app.db.write() as session:
        request = subscribers.confirm_change(session, subscriber, "192.0.2.1", now)
        if request is not None:
            subscribers.process(session, request, now)


def test_both_addresses_confirm(app: Application, alice: int, now: datetime) -> None:
    """Preferences and consent stay; links in earlier mails no longer work; each link works once."""
    ask(app, alice, now)
    assert mailed(app) == [alice]
    confirm(app, alice, now)
    pending = find_id(app, NEW)
    assert mailed(app) == [alice, pending]
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == OLD
    with pytest.raises(Conflict, match="already confirmed"):
        confirm(app, alice, now)
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


def test_an_address_with_a_subscriber_gets_no_mail(app: Application, alice: int, now: datetime) -> None:
    """Nobody learns who is subscribed, and nobody takes over a subscription."""
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", Preferences(interests=(Interest("x rays"),)), now)
    ask(app, alice, now, "bob@example.org")
    confirm(app, alice, now)
    assert mailed(app) == [alice]
    with pytest.raises(Conflict):
        confirm(app, bob, now)


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
        assert subscribers.export(session, alice)["new_address"] == NEW
    with app.db.write() as session:
        subscribers.erase(session, alice, later)
        assert session.exec(select(AddressChange)).all() == []


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
