"""The doctor requests the web app at its base URL, on request."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import httpx
import pytest

from app.doctor import web_reachability
from app.doctor.findings import Finding, Level
from app.papers.sources.http_client import HttpTransport
from app.settings import Settings

Serve = Callable[[httpx.Request], httpx.Response]


def run_check(settings: Settings, now: datetime, serve: Serve) -> Finding:
    """Return the finding about a web app with these answers."""

    async def at_once(_seconds: float) -> None:
        pass

    (finding,) = web_reachability.check(
        settings, now, HttpTransport(httpx.MockTransport(serve), sleep=at_once)
    )
    return finding


def test_a_web_app_that_answers_is_well(settings: Settings, now: datetime) -> None:
    """It is asked for its health, where links begin."""

    def serve(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "https://paperboy.test/healthz"
        return httpx.Response(200, json={"status": "ok"})

    assert run_check(settings, now, serve).level is Level.OK


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, text="no such page"),
        httpx.Response(401, text="log in"),
        httpx.Response(200, text="<h1>Welcome to nginx!</h1>"),
        httpx.Response(200, json=["ok"]),
    ],
)
def test_something_else_in_its_place_is_found(
    answer: httpx.Response, settings: Settings, now: datetime
) -> None:
    """A proxy that does not pass on, asks for a login, or serves another site."""
    finding = run_check(settings, now, lambda _: answer)
    assert (finding.level, "PAPERBOY_BASE_URL" in finding.fix) == (Level.ERROR, True)


def test_a_web_app_that_cannot_be_reached_is_found(settings: Settings, now: datetime) -> None:
    """The name, the network or the certificate is wrong."""

    def serve(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("certificate verify failed")

    finding = run_check(settings, now, serve)
    assert (finding.level, "certificate verify failed" in finding.message) == (Level.ERROR, True)


def test_an_address_without_https_is_not_asked(settings: Settings, now: datetime) -> None:
    """What readers cannot use safely is not what is to be found well."""

    def serve(_request: httpx.Request) -> httpx.Response:
        raise AssertionError("it was asked")

    finding = run_check(settings.model_copy(update={"base_url": "http://127.0.0.1:8000"}), now, serve)
    assert (finding.level, "PAPERBOY_BASE_URL" in finding.fix) == (Level.WARNING, True)
