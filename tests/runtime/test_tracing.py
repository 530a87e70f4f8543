"""Test the spans of jobs, with a tracer of the API of OpenTelemetry that records them."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
import structlog
from opentelemetry import trace

from app import logs
from app.application import Application
from app.errors import InvalidSettings
from app.runtime import tracing
from app.storage import job_runs

CONTEXT = trace.SpanContext(0xABC, 0xDEF, is_remote=False)


class Span(trace.NonRecordingSpan):
    """A span that keeps what is set on it."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(CONTEXT)
        self.name, self.attributes, self.status = name, dict(attributes), ""

    def set_attributes(self, attributes: Any) -> None:
        self.attributes |= attributes

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = status.description


class Tracer(trace.NoOpTracer):
    def __init__(self) -> None:
        self.spans: list[Span] = []

    @contextmanager
    def start_as_current_span(self, name: str, *, attributes: Any, **_: Any) -> Iterator[Span]:  # type: ignore[override]
        self.spans.append(Span(name, attributes))
        with trace.use_span(self.spans[-1], record_exception=False, set_status_on_exception=False) as span:
            yield span


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Tracer:
    """Use a tracer that records, instead of one that does nothing."""
    recording = Tracer()
    monkeypatch.setattr(tracing.trace, "get_tracer", lambda _name: recording)
    return recording


def test_each_run_of_a_job_is_a_span(
    app: Application, tracer: Tracer, now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the number of the run and its counts, and the log lines have its ids."""
    with job_runs.record(app.db, "send", now) as run:
        run.add({"sent": 3})
        ids = tracing.current_ids()
    (span,) = tracer.spans
    assert (span.name, span.status) == ("job send", "")
    assert span.attributes == {"job": "send", "run": run.id, "counts.sent": 3}
    assert ids == {"trace_id": f"{0xABC:032x}", "span_id": f"{0xDEF:016x}"}
    assert tracing.current_ids() == {}


def test_failed_run_is_a_failed_span(app: Application, tracer: Tracer, now: datetime) -> None:
    """Without the message, which may name an address."""
    with pytest.raises(ValueError, match="alice"), job_runs.record(app.db, "send", now):
        raise ValueError("alice@example.org")
    assert (tracer.spans[0].status, "alice" in repr(tracer.spans[0].attributes)) == ("ValueError", False)


def test_log_lines_have_the_ids_of_the_trace(
    app: Application, tracer: Tracer, capsys: pytest.CaptureFixture[str]
) -> None:
    root, handlers, level = logging.getLogger(), logging.getLogger().handlers, logging.getLogger().level
    try:
        logs.configure(app.settings.model_copy(update={"log_json": True}))
        with tracing.span("job", {}):
            structlog.get_logger("inside").info("inside")
        structlog.get_logger("outside").info("outside")
    finally:
        root.handlers, root.level = handlers, level
        structlog.reset_defaults()
    inside, outside = capsys.readouterr().err.splitlines()[-2:]
    assert f'"trace_id": "{0xABC:032x}"' in inside
    assert "trace_id" not in outside


def test_endpoint_without_the_extra_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra; otherwise traces would be missing silently."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidSettings, match=r"\.\[otel\]"):
        tracing.configure("http://127.0.0.1:4318/v1/traces")


@pytest.mark.parametrize("endpoint", ["http://collector:4318", "http://collector:4318/v1/traces"])
@pytest.mark.parametrize("query", ["", "?tenant=lab"])
def test_spans_are_posted_to_the_collector_path(endpoint: str, query: str) -> None:
    """The endpoint may be given with or without the path, and with a query."""
    assert tracing.traces_url(endpoint + query) == f"http://collector:4318/v1/traces{query}"
