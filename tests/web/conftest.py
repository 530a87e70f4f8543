"""A visitor with a browser, and a reader with links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from app import clock, main, subscribers
from app.application import Application
from app.links import Purpose
from app.storage.models import Subscriber
from app.subscribers import Preferences, SignUp
from app.types import Interest

ALICE, BOB = "alice@example.org", "bob@example.org"
WANTED = Preferences(
    zone="Europe/Berlin", interests=(Interest("diffusion models"), Interest("robotics", 2.0, 3))
)
Link = Callable[..., str]


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """A visitor. What goes wrong inside is answered as in production."""
    site = main.create_app(app)
    with TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False) as visitor:
        yield visitor


@pytest.fixture
def alice(app: Application) -> int:
    """A reader for two days."""
    with app.db.write() as session:
        return subscribers.add(session, ALICE, WANTED, clock.utcnow() - timedelta(days=2))


@pytest.fixture
def pending(app: Application) -> int:
    """Bob, who has signed up and not confirmed."""
    now = clock.utcnow() - timedelta(hours=2)
    with app.db.write() as session:
        subscribers.sign_up(session, SignUp(BOB, WANTED), "192.0.2.1", now)
        return session.exec(select(Subscriber.id).where(Subscriber.email == BOB)).one() or 0


@pytest.fixture
def link(app: Application) -> Link:
    """The path of a link: link(purpose, reader). Feedback asks for more like the paper `argument`."""

    def path(purpose: Purpose, reader: int, *, issued: datetime | None = None, argument: int = 0) -> str:
        with app.db.read() as session:
            known = session.get(Subscriber, reader)
        epoch = known.link_epoch if known else 0
        when = issued or clock.utcnow() - timedelta(minutes=5)
        if purpose is Purpose.FEEDBACK:
            return f"/{purpose}/{app.signer.token(purpose, reader, when, epoch=epoch)}/like/{argument}"
        return f"/{purpose}/" + app.signer.token(purpose, reader, when, epoch=epoch, argument=argument)

    return path
