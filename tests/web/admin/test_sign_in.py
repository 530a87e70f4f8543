"""Test who may open the admin pages and submit their forms, for every route."""

import html
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import httpx2
import pytest
import time_machine
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from sqlmodel import select

from app import clock, main, subscribers
from app.application import Application
from app.doctor import operator_mail
from app.errors import InvalidInput, NotFound
from app.storage import admin_sessions, api_keys
from app.storage.api_keys import Scope
from app.storage.models import AdminSession, AuditEntry, Source
from app.subscribers import Preferences
from app.types import Interest, SourceKind
from app.web import capacity, rate_limits
from app.web.admin import PAGES
from app.web.admin.sign_in import COOKIE, HOME
from tests.support.mail_server import MailServer
from tests.web.admin.conftest import ALL, Desk

IMPORT = f"{HOME}/subscribers/import"  # needs the scopes write and send
# The ends of paths that ask before an action.
ASKING = ("/cancel", "/remove", "/revoke", "/unsubscribe", "/new-links", "-uncertain")
SEND_ONLY = ("editions", "deliveries", "sending", "/resume", "/new-links", "/test", "/lift", "/remedies/send")


def routes() -> Iterator[tuple[str, str]]:
    """Yield method and path of every route that needs a session."""
    names = {
        "subscriber_id": 1,
        "key_id": 99,
        "source_id": 1,
        "paper_id": 1,
        "run_id": 1,
        "webhook_id": 1,
        "delivery_id": 1,
        "edition": "2026-11-20",
        "name": "a-file",
    }
    for module in PAGES:
        for route in module.router.routes:
            assert isinstance(route, APIRoute)
            if not route.path.startswith((f"{HOME}/sign-in", f"{HOME}/sign-out")):
                (method,) = route.methods
                yield method, route.path.format(**names)


ROUTES = list(routes())


def scope_of(method: str, path: str) -> Scope:
    """Return the scope that a route should need: reading, sending, or else writing."""
    if method == "GET":
        return Scope.READ
    sends_no_mail = path.startswith((f"{HOME}/sources", f"{HOME}/webhooks"))
    return Scope.SEND if any(part in path for part in SEND_ONLY) and not sends_no_mail else Scope.WRITE


@pytest.fixture
def alice(app: Application) -> int:
    """Add a subscriber and a source, both with the number 1."""
    now = clock.utcnow()
    with app.db.write() as session:
        session.add(
            Source(name="a feed", kind=SourceKind.FEED, config={"url": "https://a.test/"}, created_at=now)
        )
        return subscribers.add(session, "alice@example.org", Preferences(interests=(Interest("ai"),)), now)


@pytest.mark.once
def test_every_route_is_protected(
    app: Application, visitor: TestClient, sign_in: Callable[..., Desk], alice: int
) -> None:
    """Without a valid session, every route leads to the sign-in page and nothing happens."""
    assert len(ROUTES) > 25
    desks = [sign_in() for _ in range(4)]  # with a key that is revoked and one that expires; unused; old
    with app.db.write() as session:
        rows = session.exec(select(AdminSession).order_by(AdminSession.id)).all()  # type: ignore[arg-type]
        api_keys.revoke(session, "desk 0", clock.utcnow())
        key = next(key for key in api_keys.list_keys(session) if key.id == rows[1].key_id)
        key.expires_at = clock.utcnow()
        rows[2].used_at -= timedelta(minutes=app.settings.admin_idle_minutes)
        rows[3].created_at -= timedelta(hours=app.settings.admin_session_hours)
        session.add_all([key, *rows])
    desks += [Desk(visitor, ""), Desk(TestClient(visitor.app, cookies={COOKIE: "x" * 43}), "")]
    for method, path in ROUTES:
        answers = [desk.get(path) if method == "GET" else desk.post(path) for desk in desks]
        assert {answer.status_code for answer in answers} == {303}, path
        assert all(f"{HOME}/sign-in" in answer.headers["location"] for answer in answers), path
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == "alice@example.org"


@pytest.mark.once
def test_sign_in_returns_to_the_same_filters(app: Application, visitor: TestClient) -> None:
    """The address is kept with its query, exactly as it was."""
    with app.db.write() as session:
        key = api_keys.create(session, "desk", [Scope.READ], clock.utcnow())[1]
    for path in (f"{HOME}/subscribers?search=a%26b%23c&state=active", f"{HOME}/runs?failed=yes", HOME):
        page = visitor.get(path)
        (to,) = re.findall(r'name="to" value="([^"]*)"', page.text)
        answer = visitor.post(
            f"{HOME}/sign-in", data={"key": key, "to": html.unescape(to)}, follow_redirects=False
        )
        assert answer.headers["location"] == path
        visitor.cookies.clear()


def test_form_of_an_ended_session(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The sign-in page says that nothing was changed, and leads back to the page of the form.

    If that page was itself the response to a form, it cannot be opened. Then the nearest parent is shown.
    """
    desk = sign_in()
    with app.db.write() as session:
        session.exec(select(AdminSession)).one().used_at -= timedelta(hours=2)
        key = api_keys.create(session, "later", [Scope.READ], clock.utcnow())[1]
    for page, target in (
        ("https://paperboy.test/admin/editions?done=resumed", f"{HOME}/editions"),
        ("https://paperboy.test/admin/subscribers/1", f"{HOME}/subscribers/1"),
        ("https://paperboy.test/admin/subscribers/1/test", f"{HOME}/subscribers/1"),
        ("https://paperboy.test/admin/keys/1/rotate", f"{HOME}/keys"),
        ("https://paperboy.test/admin/remedies/send", HOME),
        ("https://paperboy.test/adminer", HOME),
        ("https://[", HOME),
        ("https://example.org/", HOME),
        ("", HOME),
    ):
        answer = desk.browser.post(
            f"{HOME}/sending/pause", data={"reason": "wrong"}, headers={"referer": page}
        )
        assert "so nothing was changed" in answer.text
        (to,) = re.findall(r'name="to" value="([^"]*)"', answer.text)
        assert to == target
    answer = desk.browser.post(f"{HOME}/sign-in", data={"key": key, "to": to}, follow_redirects=False)
    assert answer.headers["location"] == HOME


@pytest.mark.once
def test_link_on_another_site_leads_to_the_page(visitor: TestClient) -> None:
    """It opens on a click, because the other site may have chosen a slow page or text in it."""
    for query in ("", "?search=%22guess"):
        answer = visitor.get(f"{HOME}/subscribers{query}", headers={"sec-fetch-site": "cross-site"})
        assert f'<a class="button" href="{HOME}/subscribers{query}">' in answer.text
        assert 'http-equiv="refresh"' not in answer.text
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.once
@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/admin/", 404, "Page not found"),
        ("GET", "/admin/subscriber", 404, "Page not found"),
        ("POST", "/admin", 405, "This can’t be done here"),
    ],
)
def test_address_without_a_page(
    sign_in: Callable[..., Desk], visitor: TestClient, method: str, path: str, status: int, text: str
) -> None:
    """The error page has the menu for a signed-in operator only."""
    own, public = sign_in(Scope.READ).browser.request(method, path), visitor.request(method, path)
    assert [own.status_code, public.status_code] == [status, status]
    assert text in own.text
    assert text in public.text
    assert '<a href="/admin">Overview</a>' in own.text
    assert own.headers["Cache-Control"] == "no-store"
    assert 'href="/admin' not in public.text
    assert "Go to the home page" in public.text


def test_address_without_a_page_while_the_database_is_unreachable(
    app: Application, sign_in: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = sign_in()

    def fail(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("disk I/O error"))

    monkeypatch.setattr(admin_sessions, "find", fail)
    answer = desk.get("/admin/subscriber")
    assert (answer.status_code, "Go to the home page" in answer.text) == (404, True)


def test_every_route_needs_its_scope(sign_in: Callable[..., Desk], alice: int) -> None:
    """A form needs the scope of the same change in the API, and the token of the same session."""
    desks = {
        Scope.READ: sign_in(Scope.READ),
        Scope.WRITE: sign_in(Scope.READ, Scope.WRITE),
        Scope.SEND: sign_in(Scope.READ, Scope.SEND),
    }
    stranger = sign_in()
    for method, path in ROUTES:
        if path.startswith(IMPORT):  # its form token: see test_subscriber_files.py
            for desk in desks.values():
                answer = desk.get(path) if method == "GET" else desk.post(path)
                assert "” scope" in answer.text, path
            continue
        if method == "GET" and path.endswith(ASKING):
            for scope, desk in desks.items():
                assert (desk.get(path).status_code == 403) is (scope is not scope_of("POST", path)), path
            continue
        if method == "GET":
            assert desks[Scope.READ].get(path).status_code in (200, 404), path
            continue
        needed = scope_of(method, path)
        for scope, desk in desks.items():
            if scope is not needed:
                assert "” scope" in desk.post(path).text, (path, scope)
        for token in ("", "x", stranger.form_token):
            answer = desks[needed].post(path, form_token=token)
            assert answer.status_code == 403, path
            assert "from another session" in answer.text, path
        answer = desks[needed].post(path)
        assert answer.status_code in (303, 404, 409, 422), (path, answer.text)


def test_sign_in_and_out(app: Application, visitor: TestClient) -> None:
    """The cookie is for this site's own requests only, and the session ends with signing out."""
    now = clock.utcnow()
    with app.db.write() as session:
        key = api_keys.create(session, "desk", ALL, now)[1]
        bounces = api_keys.create(session, "relay", [Scope.BOUNCES], now)[1]
    for wrong, problem in (("pb_wrong", "unknown, revoked or expired"), (bounces, "lacks the “read” scope")):
        answer = visitor.post("/admin/sign-in", data={"key": wrong})
        assert answer.status_code == 403
        assert problem in answer.text
        assert wrong not in answer.text
    answer = visitor.post(
        "/admin/sign-in", data={"key": f" {key} ", "to": "/admin/runs"}, follow_redirects=False
    )
    assert answer.headers["location"] == "/admin/runs"
    cookie = answer.headers["set-cookie"].lower()
    for part in ("httponly", "secure", "samesite=strict", "path=/admin"):
        assert part in cookie
    page = visitor.get("/admin/runs")
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-store"
    secret = visitor.cookies[COOKIE]
    visitor.post("/admin/sign-out")
    visitor.cookies.set(COOKIE, secret, path=HOME)
    assert visitor.get("/admin/runs", follow_redirects=False).status_code == 303


def test_sign_in_by_mail(
    app: Application, visitor: TestClient, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link works once and for 15 minutes. Strangers get the same page, and no mail.

    No other link is sent while one works, so that strangers cannot flood an operator's mailbox.
    """
    settings = app.settings.model_copy(update={"admin_addresses": ("ada@example.org",)})
    site = main.create_app(replace(app, settings=settings))
    browser = TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False)
    assert "by email" not in visitor.get("/admin/sign-in").text

    def ask(email: str) -> tuple[str, list[str]]:
        page = browser.post("/admin/sign-in/link", data={"email": email}).text
        mails = [mail.parsed().as_string().replace("=\n", "") for mail in mail_server.messages]
        return page, [re.search(r"/admin/sign-in/pb_[\w-]+", mail)[0] for mail in mails]  # type: ignore[index]

    stranger, links = ask("eve@example.org")
    assert links == []
    assert "a link is on its way" in stranger
    assert ask("ADA@example.org ")[0] == stranger
    _, (first,) = ask("ada@example.org")
    with time_machine.travel(clock.utcnow() + timedelta(minutes=11)):
        _, (_, second) = ask("ada@example.org")
    assert "<button" in browser.get(second).text, "an email scanner that opens it does not sign in"
    answer = browser.post(second, follow_redirects=False)
    assert answer.headers["location"] == HOME
    assert "ada@example.org, by mail" in browser.get(HOME).text
    assert [browser.post(link).status_code for link in (first, second)] == [403, 403]
    with app.db.write() as session:
        actor = session.exec(select(AuditEntry.actor).where(AuditEntry.action == "operator.sign_in")).one()
        api_keys.revoke(session, actor, clock.utcnow())
    assert browser.get(HOME, follow_redirects=False).status_code == 303
    _, links = ask("ada@example.org")
    with time_machine.travel(clock.utcnow() + timedelta(minutes=16)):
        assert browser.post(links[-1]).status_code == 403
    with app.db.write() as session:
        link = api_keys.list_keys(session)[-1]
        with pytest.raises(NotFound, match="create a new link instead"):
            api_keys.rotate(session, link.id or 0, clock.utcnow(), timedelta(days=1))
    with app.db.write() as session, pytest.raises(InvalidInput, match="cannot begin with"):
        api_keys.create(session, "sign-in link to eve@example.org", [Scope.READ], clock.utcnow())


def test_link_that_was_not_sent_delays_no_other(
    app: Application, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the relay has refused an email, or sending has failed, an operator can ask again at once."""
    settings = app.settings.model_copy(update={"admin_addresses": ("ada@example.org",)})
    site = main.create_app(replace(app, settings=settings))
    browser = TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False)
    mail_server.reply("rcpt", "451 4.3.0 try again later")
    browser.post("/admin/sign-in/link", data={"email": "ada@example.org"})
    assert mail_server.messages == []
    mail_server.clear_rules()
    with monkeypatch.context() as broken:
        broken.setattr(operator_mail, "send", lambda *_: 1 / 0)
        browser.post("/admin/sign-in/link", data={"email": "ada@example.org"})
    browser.post("/admin/sign-in/link", data={"email": "ada@example.org"})
    assert len(mail_server.messages) == 1


@pytest.mark.once
@pytest.mark.parametrize("to", ["https://evil.test/", "//evil.test/admin/", "/admin", "/admin/\\evil", "/"])
def test_sign_in_leads_to_admin_pages_only(sign_in: Callable[..., Desk], app: Application, to: str) -> None:
    desk = sign_in()
    with app.db.write() as session:
        key = api_keys.create(session, "another", ALL, clock.utcnow())[1]
    answer = desk.browser.post("/admin/sign-in", data={"key": key, "to": to}, follow_redirects=False)
    assert answer.headers["location"] == HOME


@pytest.mark.once
def test_forms_of_other_sites_are_refused(visitor: TestClient) -> None:
    for path in ("/admin/sign-in", "/admin/sign-out"):
        assert visitor.post(path, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_a_used_session_lasts_until_its_longest_time(app: Application, sign_in: Callable[..., Desk]) -> None:
    """Each request extends it by an hour. Ended sessions are pruned."""
    desk, began = sign_in(), clock.utcnow()
    for minutes in range(50, 720, 50):
        with time_machine.travel(began + timedelta(minutes=minutes), tick=False):
            assert desk.get("/admin/keys").status_code == 200, minutes
    after = began + timedelta(hours=app.settings.admin_session_hours)
    with time_machine.travel(after, tick=False):
        assert desk.get("/admin/keys").status_code == 303
    with app.db.write() as session:
        admin_sessions.prune(session, began)
        assert not session.exec(select(AdminSession)).all()


@pytest.mark.once
def test_wrong_keys_are_limited(visitor: TestClient) -> None:
    """As for the API, somebody who tries keys has to wait."""
    answers = [
        visitor.post("/admin/sign-in", data={"key": f"pb_{n}", "to": "/admin/runs"}) for n in range(60)
    ]
    assert {answer.status_code for answer in answers} == {403, 429}
    last = answers[-1]
    assert re.search(r"Please wait \d+ seconds?, then sign in again", last.text)
    assert 0 < int(last.headers["retry-after"]) <= 60
    assert 'name="to" value="/admin/runs"' in last.text
    assert "pb_59" not in last.text, "a key is never part of a page"


def test_mailed_links_are_limited(app: Application) -> None:
    """A visitor waits after ten, and if no slot for emails is free, whether or not the address is known."""
    settings = app.settings.model_copy(update={"admin_addresses": ("ada@example.org",)})
    site = main.create_app(replace(app, settings=settings))
    browser = TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False)

    def ask() -> httpx2.Response:
        return browser.post("/admin/sign-in/link", data={"email": "eve@example.org"})

    with ExitStack() as slots:
        for _ in range(capacity.MAILS):
            slots.enter_context(site.state.capacity.mails.take())
        busy = ask()
        assert (busy.status_code, busy.headers["retry-after"]) == (429, str(capacity.RETRY_AFTER))
        assert 'value="eve@example.org"' in busy.text
    answers = [ask() for _ in range(rate_limits.SIGN_IN_LINKS_AN_HOUR)]
    assert [answer.status_code for answer in answers] == [200] * (len(answers) - 1) + [429]
    assert "Please wait 60 minutes, then ask for the link again." in answers[-1].text
    assert 'value="eve@example.org"' in answers[-1].text
