"""Record OpenTelemetry spans if PAPERBOY_OTEL_ENDPOINT is set. This needs the `otel` extra.

The OpenTelemetry API does nothing until a provider is set.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace

from app.errors import InvalidSettings

NAME = "paperboy"
EXPORT_SECONDS = 3.0  # limit for sending spans, with retries; a command that ends waits at most this long


@cache
def configure(endpoint: str) -> Any:
    """Send the spans of this process to a collector, and return the provider, or None if `endpoint` is empty.

    Raise InvalidSettings if the packages of the `otel` extra are not installed.
    """
    if not endpoint:
        return None
    exporter = build_exporter(endpoint)
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": NAME}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def build_exporter(endpoint: str) -> Any:
    """Build the exporter that sends spans to a collector.

    Raise InvalidSettings if the packages of the `otel` extra are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise InvalidSettings(
            "PAPERBOY_OTEL_ENDPOINT is set, but the OpenTelemetry packages are not installed: "
            "run .venv/bin/pip install -e '.[otel]'"
        ) from None
    # The exporter appends a path to an endpoint from the environment, but not to this argument.
    return OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=EXPORT_SECONDS)


def traces_url(collector: str) -> str:
    """Return the URL for sending spans to a collector (OTLP/HTTP)."""
    parts = urlsplit(collector)
    path = parts.path.rstrip("/").removesuffix("/v1/traces") + "/v1/traces"
    return parts._replace(path=path).geturl()


@contextmanager
def span(name: str, attributes: Mapping[str, int | str]) -> Iterator[trace.Span]:
    """Run the block in a span, and yield the span.

    If the block raises an exception, the span is marked as failed. The exception itself is not recorded,
    because its message may contain addresses.
    """
    tracer = trace.get_tracer(NAME)
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except BaseException as error:
            fail(current, type(error).__name__)
            raise


def fail(current: trace.Span, reason: str) -> None:
    """Mark a span as failed."""
    current.set_status(trace.Status(trace.StatusCode.ERROR, reason))


def current_ids() -> dict[str, str]:
    """Return the hexadecimal ids of the current trace and span, or {} outside a span."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id),
    }  # fmt: skip
