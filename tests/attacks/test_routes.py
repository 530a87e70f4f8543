"""Test every route with every credential that is not its own: keys, sessions and signed links.

The routes are those of the application, so a new one is tested without being listed here.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import SQLModel, col, select

from app import clock, main, subscribers
from app.application import Application
from app.delivery import ledger
from app.links import Purpose
from app.storage import admin_sessions, api_keys
from app.storage.api_keys import Scope
from app.storage.models import ApiKey
from app.subscribers import Preferences
from app.types import Interest, MailKind
from app.web import rate_limits, site
from app.web.admin.sign_in import COOKIE
from tests.support import factories, sample_digest
from tests.web.admin.test_sign_in import ROUTES as ADMIN_ROUTES
from tests.web.api.test_auth import OPERATIONS

ALICE, BOB = "alice@example.org", "bob@example.net"
DAY = timedelta(days=1)
COUNTERS = ("rate_limit", "lock", "job_run")  # which also change without a valid credential


def signed_routes() -> list[tuple[str, str]]:
    """Return method and path of every route with a signed link in its path."""
    return sorted(
        (method, route.path_format)
        for module in site.PAGES
        for route in module.router.routes
        for method in route.methods
        if "{token}" in route.path and method != "HEAD"
    )


SIGNED = signed_routes()


@pytest.fixture
def visitor(app: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Return a browser, which may send as many wrong keys as it likes."""
    monkeypatch.setattr(rate_limits, "WRONG_KEYS_A_MINUTE", 10**9)
    with TestClient(
        main.create_app(app), base_url="https://paperboy.test", raise_server_exceptions=False
    ) as browser:
        yield browser


@pytest.fixture
def readers(app: Application) -> dict[str, int]:
    """Add Alice and Bob, with a digest each, and two papers, all with the numbers 1 and 2."""
    now = clock.utcnow()
    wanted = Preferences(interests=(Interest("language agents"), Interest("robotics")))
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for title in ("Language Agents that Plan", "Robots"):
            factories.add_paper(session, source, title, now.date(), now, authors=["Ada Lovelace"])
        ids = {email: subscribers.add(session, email, wanted, now - DAY) for email in (ALICE, BOB)}
        for number in ids.values():
            ledger.enqueue(
                session, subscriber_id=number, kind=MailKind.DIGEST, edition="2026-11-20",
                due_at=now, now=now, digest=sample_digest.digest(),
            )  # fmt: skip
    return ids


def rows(app: Application) -> list[tuple[str, str]]:
    """Return all rows of all tables, except counters."""
    with app.db.read() as session:
        return [
            (table.name, repr(row))
            for table in SQLModel.metadata.sorted_tables
            if table.name not in COUNTERS
            for row in session.execute(select(table)).all()
        ]


def purpose_of(path: str) -> Purpose:
    return Purpose(path.split("/")[1])


def test_signed_routes_are_those_of_all_purposes() -> None:
    assert {purpose_of(path) for _, path in SIGNED} == set(Purpose)
    assert len(SIGNED) > 40


@pytest.mark.once
def test_signed_links_with_foreign_tokens(
    app: Application, visitor: TestClient, readers: dict[str, int]
) -> None:
    """Tokens of every other purpose, tampered, old and of nobody: no route shows or changes anything."""
    now, alice = clock.utcnow(), readers[ALICE]
    before = rows(app)
    for method, path in SIGNED:
        purpose = purpose_of(path)
        good = app.signer.token(purpose, alice, now, argument=1)
        foreign = (other for other in Purpose if other != purpose)
        tokens = {f"of {other}": app.signer.token(other, alice, now, argument=1) for other in foreign}
        tokens["tampered"] = ("B" if good[0] == "A" else "A") + good[1:]
        tokens["of nobody"] = app.signer.token(purpose, 4711, now, argument=1)
        tokens["of a test email"] = app.signer.token(purpose, 0, now)
        if lifetime := app.signer.lifetimes.get(purpose):
            issued = now - lifetime - timedelta(minutes=1)
            tokens["old"] = app.signer.token(purpose, alice, issued, argument=1)
        if purpose is not Purpose.UNSUBSCRIBE:
            tokens["revoked"] = app.signer.token(purpose, alice, now, epoch=7, argument=1)
        for name, token in tokens.items():
            at = path.format(token=token, paper=1, choice="like")
            answer = visitor.request(method, at, follow_redirects=False)
            expected = (410,) if name in ("old", "revoked") else (403, 404, 410) if "of" in name else (403,)
            assert answer.status_code in expected, (method, path, name, answer.status_code)
            assert ALICE not in answer.text, (method, path, name)
    assert rows(app) == before


def test_signed_links_of_another_reader(
    app: Application, visitor: TestClient, readers: dict[str, int]
) -> None:
    """Whatever Bob does with his links, Alice's rows stay as they are, and he never sees her address."""
    now = clock.utcnow()

    def of_alice() -> list[tuple[str, str]]:
        return [row for row in rows(app) if "subscriber_id=1" in row[1] or ALICE in row[1]]

    before = of_alice()
    ends = [route for route in SIGNED if route[1].endswith(("/links", "/return")) or "erase" in route[1]]
    used = 0
    for method, path in [route for route in SIGNED if route not in ends] + ends:
        for argument in (1, 2):  # the number of Alice's digest, and of his own
            purpose = purpose_of(path)
            with app.db.read() as session:
                epoch = subscribers.get(session, readers[BOB]).link_epoch
            token = app.signer.token(purpose, readers[BOB], now, epoch=epoch, argument=argument)
            at = path.format(token=token, paper=1, choice="like")
            answer = visitor.request(method, at, follow_redirects=False)
            assert answer.status_code < 500, (method, path, answer.text)
            assert ALICE not in answer.text, (method, path)
            if purpose is Purpose.VIEW:
                assert (answer.status_code == 200) == (argument == 2)
            used += answer.status_code < 400
    assert used > len(SIGNED)
    assert of_alice() == before


@pytest.mark.once
def test_api_with_credentials_of_other_kinds(
    app: Application, visitor: TestClient, readers: dict[str, int]
) -> None:
    """Garbage, revoked and expired keys, links and sessions of operators: always 401, and nothing changes."""
    now, everything = clock.utcnow(), list(Scope)
    with app.db.write() as session:
        row, valid = api_keys.create(session, "valid", everything, now)
        _, revoked = api_keys.create(session, "revoked", everything, now)
        api_keys.revoke(session, "revoked", now)
        _, expired = api_keys.create(session, "expired", everything, now - 3 * DAY, days=1)
        identity = api_keys.identity_of(row, now)
        assert identity
        opened = admin_sessions.create(session, identity, now)
    link = app.signer.token(Purpose.PREFERENCES, readers[ALICE], now)
    bearers = [f"pb_{'x' * 43}", valid[:-1], f"{valid}x", revoked, expired, opened, link, ""]
    headers = [{"Authorization": f"Bearer {each}"} for each in bearers]
    headers += [{"Cookie": f"{COOKIE}={opened}"}, {"Cookie": f"{COOKIE}={valid}"}, {"X-Api-Key": valid}, {}]
    before = rows(app)
    for method, path, _ in OPERATIONS:
        for sent in headers:
            answer = visitor.request(method, f"/api{path}", headers=sent, json={})
            assert answer.status_code == 401, (method, path, sent)
    assert rows(app) == before


@pytest.mark.once
def test_admin_pages_with_credentials_of_other_kinds(
    app: Application, visitor: TestClient, readers: dict[str, int]
) -> None:
    """A key is no session, and one that may not read opens none: every route leads to signing in."""
    now = clock.utcnow()
    with app.db.write() as session:
        _, valid = api_keys.create(session, "valid", list(Scope), now)
        keys = {scope: api_keys.create(session, scope, [scope], now)[1] for scope in Scope}
    for scope, key in keys.items():
        answer = visitor.post("/admin/sign-in", data={"key": key}, follow_redirects=False)
        assert (answer.status_code == 303) == (scope is Scope.READ), scope
    visitor.cookies.clear()
    headers = [{"Authorization": f"Bearer {valid}"}, {"Cookie": f"{COOKIE}={valid}"}]
    for method, path in ADMIN_ROUTES:
        for sent in headers:
            form = {"form_token": valid}
            answer = visitor.request(method, path, headers=sent, data=form, follow_redirects=False)
            assert answer.status_code == 303, (method, path)
            assert "/admin/sign-in" in answer.headers["location"]
    with app.db.read() as session:
        assert session.exec(select(col(ApiKey.revoked_at)).where(ApiKey.name == "valid")).one() is None
