"""Fixtures: the real application with its clock held still, and callers whose keys have one scope each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import col, select

from app import clock, main
from app.application import Application
from app.storage import api_keys
from app.storage.models import AuditEntry, Scope
from tests.conftest import NOW
from tests.support import factories

Call = Callable[..., httpx2.Response]


@pytest.fixture
def site(app: Application) -> FastAPI:
    """The web application, for which it is always NOW."""
    made = main.create_app(app)
    api_of(made).dependency_overrides[clock.utcnow] = lambda: NOW
    return made


def api_of(site: FastAPI) -> FastAPI:
    """The admin API that is mounted in it."""
    return next(route.app for route in site.routes if getattr(route, "path", "") == "/api")


@pytest.fixture
def client(site: FastAPI) -> Iterator[TestClient]:
    """A caller without a key. An error of the server's is an answer, as it would be in life."""
    with TestClient(site, raise_server_exceptions=False) as made:
        yield made


@pytest.fixture
def key_of(app: Application) -> Callable[..., str]:
    """A function that makes a key with some scopes, named for the first."""

    def make(*scopes: Scope) -> str:
        with app.db.write() as session:
            return api_keys.create(session, f"{scopes[0]} key", scopes, NOW)[1]

    return make


@pytest.fixture
def call(client: TestClient, key_of: Callable[..., str]) -> Call:
    """Call a route below /api/v1 with the scope that its method asks for, or the ones that are given."""
    made: dict[tuple[Scope, ...], str] = {}

    def request(
        method: str, path: str, *, scope: Scope | tuple[Scope, ...] | None = None, **content: Any
    ) -> httpx2.Response:
        scope = scope or (Scope.READ if method == "GET" else Scope.WRITE)
        scopes = scope if isinstance(scope, tuple) else (scope,)
        made[scopes] = made.get(scopes) or key_of(*scopes)
        headers = {"Authorization": f"Bearer {made[scopes]}"}
        return client.request(method, f"/api/v1{path}", headers=headers, **content)

    return request


@pytest.fixture
def audited(app: Application) -> Callable[[], list[tuple[str, str, str]]]:
    """What the audit says so far: who, what, to what."""

    def read() -> list[tuple[str, str, str]]:
        with app.db.read() as session:
            rows = session.exec(select(AuditEntry).order_by(col(AuditEntry.id)))
            return [(row.actor, row.action, row.subject) for row in rows]

    return read


@pytest.fixture
def alice(app: Application) -> int:
    """An active reader who likes agents, due at NOW."""
    with app.db.write() as session:
        return factories.reader(session, "alice@example.org", ["language agents"], NOW)


@pytest.fixture
def shelf(app: Application) -> dict[str, int]:
    """Two papers of today from one source; their ids by title."""
    titles = ("Language Agents that Plan", "Video Diffusion in Real Time")
    with app.db.write() as session:
        source = factories.source(session, NOW)
        return {
            title: factories.paper(session, source, title, NOW.date(), NOW, abstract=f"{title}, at last.")
            for title in titles
        }
