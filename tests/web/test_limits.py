"""Test the limits that operators set: each holds, and the pages and emails name it."""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from app import clock, main, maintenance, pipeline, subscribers
from app.application import Application
from app.errors import InvalidPreference, InvalidSettings, LinkExpired
from app.links import Purpose
from app.settings import Settings, load
from app.storage import admin_sessions, api_keys
from app.storage.api_keys import Scope
from app.storage.models import AdminSession, Delivery, FormSubmission
from app.subscribers import Preferences, SignUp
from app.types import Interest
from app.web.admin.sign_in import COOKIE
from tests.conftest import SECRET
from tests.support.mail_server import MailServer

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
FORM = {"cadence": "daily", "hour": "8", "zone": "UTC", "min_papers": "1", "max_papers": "9",
        "max_trending": "0", "when_empty": "skip"}  # fmt: skip


def texts(count: int) -> list[str]:
    return [f"topic {number}" for number in range(count)]


def interests(count: int) -> Preferences:
    return Preferences(interests=tuple(map(Interest, texts(count))))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Return settings with other limits than the usual ones."""
    limits = {"max_interests": 2, "confirm_link_days": 1, "preferences_link_days": 3, "admin_idle_minutes": 5,
              "admin_session_hours": 1, "pastes_per_hour": 2}  # fmt: skip
    return settings.model_copy(update=limits)


@pytest.fixture
def visitor(app: Application) -> TestClient:
    return TestClient(main.create_app(app), base_url="https://paperboy.test")


def test_forms_offer_as_many_fields_as_interests(app: Application, visitor: TestClient) -> None:
    """page.js adds fields up to this number. A subscriber with more has a field for each."""
    now = clock.utcnow()
    with app.db.write() as session:
        carol = subscribers.add(session, "carol@example.org", interests(4), now)
    token = app.signer.token(Purpose.PREFERENCES, carol, now)
    assert 'data-lines="2"' in visitor.get("/").text
    assert 'data-lines="4"' in visitor.get(f"/preferences/{token}").text


def test_sign_up_with_too_many_interests(visitor: TestClient) -> None:
    form = FORM | {"email": "alice@example.org", "interest": texts(3)}
    refused = visitor.post("/subscribe", data=form)
    assert refused.status_code == 422
    assert "at most 2 interests" in refused.text


def test_preferences_have_at_most_so_many_interests(app: Application, visitor: TestClient) -> None:
    """A subscriber to whom a command gave more keeps them."""
    now = clock.utcnow()
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", interests(2), now)
        carol = subscribers.add(session, "carol@example.org", interests(4), now)
    for number, count, status in ((bob, 3, 422), (bob, 2, 200), (carol, 5, 422), (carol, 4, 200)):
        token = app.signer.token(Purpose.PREFERENCES, number, now)
        rows = {"interest": texts(count), "weight": ["1"] * count, "quota": [""] * count}
        assert visitor.post(f"/preferences/{token}", data=FORM | rows).status_code == status
    with pytest.raises(InvalidPreference), app.db.write() as session:
        subscribers.follow(session, bob, "Ada Lovelace", now, app.settings.max_interests)


def test_api_has_the_limit_of_interests(app: Application, visitor: TestClient) -> None:
    now = clock.utcnow()
    with app.db.write() as session:
        bob = subscribers.add(session, "bob@example.org", interests(2), now)
        key = api_keys.create(session, "desk", [Scope.READ, Scope.WRITE, Scope.SEND], now)[1]
    body = {"interests": [{"text": text} for text in texts(3)]}
    added = body | {"email": "dave@example.org", "consent": "by phone"}
    for method, path, content in (
        ("PATCH", f"subscribers/{bob}", body),
        ("POST", "subscribers", added),
        ("POST", "previews", body),
    ):
        headers = {"Authorization": f"Bearer {key}"}
        answer = visitor.request(method, f"/api/v1/{path}", json=content, headers=headers)
        assert answer.status_code == 422
        assert "at most 2 interests" in answer.text


def test_lifetimes_of_links(app: Application, mail_server: MailServer) -> None:
    """Emails say how long a link works. A confirmation is given up then, and its choices are deleted."""
    now = clock.utcnow()
    with app.db.write() as session:
        request = subscribers.request_sign_up(session, SignUp("alice@example.org", interests(1)), "", now)
    pipeline.answer_requests(app, now, [request])
    assert (
        "The link works for 1 day." in mail_server.wait_for(1)[0].parsed().get_body(("plain",)).get_content()
    )
    for purpose, lasting in ((Purpose.CONFIRM, DAY), (Purpose.PREFERENCES, 3 * DAY)):
        token = app.signer.token(purpose, 1, now)
        app.signer.verify(purpose, token, now + lasting - MINUTE)
        with pytest.raises(LinkExpired):
            app.signer.verify(purpose, token, now + lasting + MINUTE)
    with app.db.read() as session:
        assert session.exec(select(Delivery.give_up_at)).one() == now + DAY
    maintenance.prune(app, now + DAY + MINUTE)
    with app.db.read() as session:
        assert session.exec(select(FormSubmission.preferences)).all() == [{}]


@pytest.mark.once
def test_unconfirmed_sign_ups_are_kept_as_long_as_their_links_work() -> None:
    with pytest.raises(InvalidSettings, match="PAPERBOY_CONFIRM_LINK_DAYS"):
        load(secret_keys=(SECRET,), unconfirmed_days=7, confirm_link_days=8)


def test_operators_are_signed_out(app: Application, visitor: TestClient) -> None:
    """After six minutes without a request, and after an hour, even if they use the session."""
    now = clock.utcnow()
    statuses = []
    for number, (age, idle) in enumerate(((4, 4), (6, 6), (59, 1), (61, 1))):
        with app.db.write() as session:
            row, _ = api_keys.create(session, f"desk {number}", [Scope.READ], now)
            key = api_keys.identity_of(row, now)
            assert key
            secret = admin_sessions.create(session, key, now - age * MINUTE)
            admin_sessions.touch(session, secret, now - idle * MINUTE)
        visitor.cookies.set(COOKIE, secret)
        statuses.append(visitor.get("/admin/keys", follow_redirects=False).status_code)
    assert statuses == [200, 303, 200, 303]
    maintenance.prune(app, now)
    with app.db.read() as session:
        assert len(session.exec(select(AdminSession)).all()) == 3


def test_pastes_of_a_subscriber(app: Application, visitor: TestClient) -> None:
    now = clock.utcnow()
    with app.db.write() as session:
        alice = subscribers.add(session, "alice@example.org", interests(1), now)
    path = f"/preferences/{app.signer.token(Purpose.PREFERENCES, alice, now)}/papers"
    answers = [visitor.post(path, data={"liked": f"Title Number {number}"}) for number in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
