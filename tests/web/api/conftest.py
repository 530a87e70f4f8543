"""Fixtures for the real application with a fixed clock, and for API clients with keys of one scope."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import col, select

from app import main
from app.application import Application
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import AuditEntry
from tests.conftest import NOW
from tests.support import factories

Call = Callable[..., httpx2.Response]


@pytest.fixture
def site(app: Application) -> FastAPI:
    """Return the web application with its clock fixed at NOW."""
    application = main.create_app(app)
    admin_api(application).state.clock = lambda: NOW
    return application


def admin_api(site: FastAPI) -> FastAPI:
    """Return the admin API that is mounted in the application."""
    return next(route.app for route in site.routes if getattr(route, "path", "") == "/api")


@pytest.fixture
def client(site: FastAPI) -> Iterator[TestClient]:
    """Return a client without a key. Internal errors give an error response, as in production."""
    with TestClient(site, raise_server_exceptions=False) as test_client:
        yield test_client


@pytest.fixture
def create_key(app: Application) -> Callable[..., str]:
    """Return a function that creates a key with the given scopes."""

    def make(*scopes: Scope) -> str:
        with app.db.write() as session:
            return api_keys.create(session, f"{scopes[0]} key", scopes, NOW)[1]

    return make


@pytest.fixture
def call(client: TestClient, create_key: Callable[..., str]) -> Call:
    """Return a function that calls a route under /api/v1. By default it uses the scope of the method."""
    keys: dict[tuple[Scope, ...], str] = {}

    def request(
        method: str, path: str, *, scope: Scope | tuple[Scope, ...] | None = None, **content: Any
    ) -> httpx2.Response:
        scope = scope or (Scope.READ if method == "GET" else Scope.WRITE)
        scopes = scope if isinstance(scope, tuple) else (scope,)
        keys[scopes] = keys.get(scopes) or create_key(*scopes)
        headers = {"Authorization": f"Bearer {keys[scopes]}", **content.pop("headers", {})}
        return client.request(method, f"/api/v1{path}", headers=headers, **content)

    return request


@pytest.fixture
def audit_log(app: Application) -> Callable[[], list[tuple[str, str, str]]]:
    """Return a function that reads the audit log as (actor, action, subject)."""

    def read() -> list[tuple[str, str, str]]:
        with app.db.read() as session:
            rows = session.exec(select(AuditEntry).order_by(col(AuditEntry.id)))
            return [(row.actor, row.action, row.subject) for row in rows]

    return read


@pytest.fixture
def alice(app: Application) -> int:
    """Add an active reader interested in language agents, due at NOW."""
    with app.db.write() as session:
        return factories.add_subscriber(session, "alice@example.org", ["language agents"], NOW)


@pytest.fixture
def paper_ids(app: Application) -> dict[str, int]:
    """Add two papers of today from one source, and return their ids by title."""
    titles = ("Language Agents that Plan", "Video Diffusion in Real Time")
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        return {
            title: factories.add_paper(
                session,
                source,
                title,
                NOW.date(),
                NOW,
                abstract=f"{title}, at last.",
                organization_names=["NVIDIA"],
            )
            for title in titles
        }
