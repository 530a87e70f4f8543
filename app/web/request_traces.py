"""OpenTelemetry traces of requests, if PAPERBOY_OTEL_ENDPOINT is set. See `app.runtime.tracing`."""

from collections.abc import Mapping
from typing import Any

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace

from app.runtime import tracing

# FastAPI adds the route and the status of the response. Other attributes are omitted, because the path and
# the query may contain links that anyone can use, keys, addresses, interests or search terms.
RECORDED = frozenset(
    {"http.request.method", "network.protocol.version", "server.address", "server.port", "url.scheme"}
)

# Mounted applications need this as well. With FastAPI's defaults, they would send paths and queries to a
# global provider of OpenTelemetry if the tracing of the site is off.
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


def telemetry(endpoint: str) -> TelemetryConfig:
    """Return FastAPI's telemetry settings: a span per request if there is a collector, otherwise nothing.

    Logs are off, because they would contain the messages of exceptions.
    """
    provider = tracing.configure(endpoint)
    if provider is None:
        return NO_TELEMETRY
    return {
        **NO_TELEMETRY,
        "tracing": True,
        "tracer_provider": _Provider(provider),
        "operation_spans": False,
    }


class _Provider(trace.TracerProvider):
    def __init__(self, provider: trace.TracerProvider) -> None:
        self._provider = provider

    def get_tracer(self, *names: Any, **options: Any) -> trace.Tracer:
        return _Tracer(self._provider.get_tracer(*names, **options))


class _Tracer(trace.NoOpTracer):
    """A tracer whose new spans have only the attributes in RECORDED."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def start_span(
        self, *args: Any, attributes: Mapping[str, Any] | None = None, **options: Any
    ) -> trace.Span:
        options["attributes"] = {key: value for key, value in (attributes or {}).items() if key in RECORDED}
        return self._tracer.start_span(*args, **options)
