"""Test that tracing is optional and configured by a setting, and that traces contain no secrets."""

import sys
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from app import main
from app.application import Application
from app.errors import InvalidSettings
from app.settings import Settings
from app.web import request_traces


def test_no_endpoint_installs_no_tracing(settings: Settings) -> None:
    """The `otel` extra need not be installed."""
    site = FastAPI()
    request_traces.install(site, settings)
    assert site.user_middleware == []


def test_endpoint_without_the_extra_raises_an_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the extra; otherwise traces would be missing silently."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    new_settings = settings.model_copy(update={"otel_endpoint": "http://127.0.0.1:4318/v1/traces"})
    with pytest.raises(InvalidSettings, match=r"\.\[otel\]"):
        request_traces.install(FastAPI(), new_settings)


def test_requests_with_links_are_not_traced(app: Application) -> None:
    """Whoever reads the traces could otherwise use a link, such as one that signs an operator in."""
    paths = [getattr(route, "path", "") for route in main.create_app(app).routes]
    secret = [path for path in paths if "{token" in path]
    assert len(secret) > 10
    assert [path for path in secret if not path.startswith(request_traces.PRIVATE_PATHS)] == []


def test_spans_contain_no_query() -> None:
    """Like the access log, traces show no addresses and search terms."""
    attributes = {
        "http.url": "https://paperboy.test/search?q=a+disease?",
        "http.target": "/search",
        "url.path": "/search",
        "url.query": "q=a+disease?",
    }
    span = SimpleNamespace(
        attributes=attributes, set_attribute=attributes.__setitem__, is_recording=lambda: True
    )
    request_traces.remove_query(span, {})
    assert attributes == {
        "http.url": "https://paperboy.test/search",
        "http.target": "/search",
        "url.path": "/search",
        "url.query": "",
    }
