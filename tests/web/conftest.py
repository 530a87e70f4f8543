"""Fixtures for a visitor's browser and for subscribers with signed links."""

import html
import re
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
from tests.support import factories

ALICE, BOB = "alice@example.org", "bob@example.org"
WANTED = Preferences(
    zone="Europe/Berlin", interests=(Interest("diffusion models"), Interest("robotics", 2.0, 3))
)
Link = Callable[..., str]
Fields = dict[str, str | list[str]]


def fields_of(page: str) -> Fields:
    """Return the fields of the preferences on a page, as a browser submits them if nothing is changed."""
    form = page.partition('<form class="card"')[2].partition("</form>")[0]
    fields: dict[str, list[str]] = {}
    for tag, name, rest in re.findall(
        r'<(input|select|textarea)[^>]* name="(\w+)"(.*?)(?=<(?:input|select|textarea)|$)', form, re.DOTALL
    ):
        attributes, _, content = rest.partition(">")
        if tag == "select":
            values = re.findall(r'<option value="([^"]*)" selected', content)
        elif tag == "textarea":
            values = [content.partition("</textarea>")[0].removeprefix("\n")]
        elif re.search(r'value="(?:skip|trending|yes)"', attributes) and "checked" not in attributes:
            values = []
        else:
            values = re.findall(r'value="([^"]*)"', attributes)
        fields.setdefault(name, []).extend(html.unescape(value) for value in values)
    return {name: values for name, values in fields.items() if name != "form_token"}


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """Return a visitor's browser. Internal errors give an error page, as in production."""
    site = main.create_app(app)
    with TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False) as browser:
        yield browser


@pytest.fixture
def alice(app: Application) -> int:
    """Add a reader who confirmed two days ago, and return the id."""
    with app.db.write() as session:
        return subscribers.add(session, ALICE, WANTED, clock.utcnow() - timedelta(days=2))


@pytest.fixture
def pending(app: Application) -> int:
    """Add Bob, who signed up and has not confirmed, and return the id."""
    now = clock.utcnow() - timedelta(hours=2)
    with app.db.write() as session:
        factories.sign_up(session, SignUp(BOB, WANTED), "192.0.2.1", now)
        return session.exec(select(Subscriber.id).where(Subscriber.email == BOB)).one() or 0


@pytest.fixture
def link(app: Application) -> Link:
    """Return a function for the path of a signed link. For FEEDBACK, `argument` is the paper to like."""

    def path(purpose: Purpose, reader: int, *, issued: datetime | None = None, argument: int = 0) -> str:
        with app.db.read() as session:
            subscriber = session.get(Subscriber, reader)
        epoch = subscriber.link_epoch if subscriber else 0
        when = issued or clock.utcnow() - timedelta(minutes=5)
        if subscriber and not issued:
            when = max(when, subscriber.created_at)
        if purpose is Purpose.FEEDBACK:
            return f"/{purpose}/{app.signer.token(purpose, reader, when, epoch=epoch)}/like/{argument}"
        return f"/{purpose}/" + app.signer.token(purpose, reader, when, epoch=epoch, argument=argument)

    return path
