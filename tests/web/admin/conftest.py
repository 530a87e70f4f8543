"""Fixtures for operators who are signed in to the admin pages."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2
import pytest
from fastapi.testclient import TestClient

from app import clock, main
from app.application import Application
from app.storage import admin_sessions, api_keys
from app.storage.api_keys import Scope
from app.web.admin.sign_in import COOKIE

ALL = (Scope.READ, Scope.WRITE, Scope.SEND)


@dataclass(frozen=True, slots=True)
class Desk:
    """An operator's browser that is signed in."""

    browser: TestClient
    form_token: str

    def get(self, path: str) -> httpx2.Response:
        return self.browser.get(path, follow_redirects=False)

    def post(self, path: str, **fields: str | list[str]) -> httpx2.Response:
        """Submit a form of this session."""
        data = {"form_token": self.form_token, **fields}
        return self.browser.post(path, data=data, follow_redirects=False)

    def press(self, page: str, path: str = "") -> httpx2.Response:
        """Submit the form of a page whose action is `path`, or the page itself, with its hidden fields."""
        path = path or page
        form = re.search(rf'<form[^>]* action="{path}">(.*?)</form>', self.get(page).text, re.DOTALL)
        assert form, f"{page} has no form with the action {path}"
        fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form[1])
        return self.browser.post(path, data=dict(fields), follow_redirects=False)


@pytest.fixture
def visitor(app: Application) -> Iterator[TestClient]:
    """Return a browser without a session. Internal errors give an error page, as in production."""
    with TestClient(
        main.create_app(app), base_url="https://paperboy.test", raise_server_exceptions=False
    ) as browser:
        yield browser


@pytest.fixture
def sign_in(app: Application, visitor: TestClient) -> Callable[..., Desk]:
    """Return a function that signs in with a new key of the given scopes."""
    names = iter(f"desk {number}" for number in range(100))

    def enter(*scopes: Scope) -> Desk:
        with app.db.write() as session:
            key = api_keys.create(session, next(names), scopes or ALL, clock.utcnow())[1]
        browser = TestClient(visitor.app, base_url="https://paperboy.test", raise_server_exceptions=False)
        answer = browser.post("/admin/sign-in", data={"key": key}, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        return Desk(browser, admin_sessions.form_token(browser.cookies[COOKIE]))

    return enter
