"""Test the spans that FastAPI records of requests, with a provider of the API of OpenTelemetry."""

from typing import Any

import pytest
from opentelemetry import trace
from starlette.testclient import TestClient

from app import main
from app.application import Application
from app.runtime import tracing


class Span(trace.NonRecordingSpan):
    """A span that keeps what is set on it."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(trace.SpanContext(0xABC, 0xDEF, is_remote=False))
        self.name, self.attributes, self.events = name, dict(attributes), list[Any]()
        self.status = trace.StatusCode.UNSET

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.attributes |= attributes

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = status
        self.events.extend(filter(None, [description]))

    def add_event(self, name: str, *details: Any, **more: Any) -> None:
        self.events.append((name, details, more))

    def record_exception(self, exception: BaseException, *details: Any, **more: Any) -> None:
        self.events.append((exception, details, more))


class Provider(trace.TracerProvider, trace.NoOpTracer):
    """A provider and its tracer, which keep the spans of requests."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def get_tracer(self, name: str, *_: Any, **__: Any) -> trace.Tracer:
        return trace.NoOpTracer() if name == tracing.NAME else self

    def start_span(self, name: str, *_: Any, attributes: Any = None, **__: Any) -> Span:  # type: ignore[override]
        self.spans.append(Span(name, attributes))
        return self.spans[-1]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """Use a provider that keeps spans, also as the global one, as if there were a collector."""
    provider = Provider()
    monkeypatch.setattr(tracing, "configure", lambda _endpoint: provider)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return provider


@pytest.fixture
def traced(app: Application, provider: Provider) -> TestClient:
    site = main.create_app(app)

    def fail(token: str) -> None:
        raise ValueError(f"alice@example.org has the token {token}")

    site.add_api_route("/fail/{token}", fail)
    return TestClient(site, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("method", "url", "span_name"),
    [
        ("GET", "/search?q=a+rare+secret", "GET /search"),
        ("GET", "/api/v1/subscribers?email=secret@example.org", "GET /api/v1/subscribers"),
        ("POST", "/hooks/bounces/postmark?key=secret", "POST /hooks/bounces/{provider}"),
        ("GET", "/unsubscribe/secret", "GET /unsubscribe/{token}"),
        ("GET", "/UNSUBSCRIBE/secret", "GET"),
        ("SECRET", "/", "HTTP /"),
    ],
)
def test_span_has_the_route_instead_of_the_url(
    traced: TestClient, provider: Provider, method: str, url: str, span_name: str
) -> None:
    """A request is one span, even in a mounted application, without addresses, keys, links, search terms."""
    response = traced.request(method, url)
    (span,) = provider.spans
    assert (span.name, span.events) == (span_name, [])
    assert span.attributes["http.response.status_code"] == response.status_code
    assert "secret" not in repr(span.attributes).lower()


def test_no_spans_without_a_collector(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mounted applications would send paths and queries to a global provider."""
    provider = Provider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    client = TestClient(main.create_app(app))
    client.get("/search?q=a+rare+secret")
    client.get("/api/v1/subscribers?email=secret@example.org")
    client.post("/hooks/bounces/postmark?key=secret")
    assert provider.spans == []


def test_span_of_a_failed_request_has_only_the_type_of_the_error(
    traced: TestClient, provider: Provider
) -> None:
    """The message and the stack trace of an exception may contain addresses and tokens."""
    assert traced.get("/fail/secret").status_code == 500
    (span,) = provider.spans
    assert (span.name, span.status, span.events) == ("GET /fail/{token}", trace.StatusCode.ERROR, [])
    assert span.attributes["error.type"] == "ValueError"
    assert "secret" not in repr(span.attributes)
