"""OpenTelemetry traces, if PAPERBOY_OTEL_ENDPOINT is set. They need the extra `otel`."""

from __future__ import annotations

from fastapi import FastAPI

from app.errors import InvalidSettings
from app.links import Purpose
from app.settings import Settings


def install(site: FastAPI, settings: Settings) -> None:
    """Send traces of requests to the configured collector, if there is one."""
    if not settings.otel_endpoint:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise InvalidSettings(
            "PAPERBOY_OTEL_ENDPOINT is set, but its packages are not installed: "
            ".venv/bin/pip install -e '.[otel]'"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "paperboy"}))
    # The exporter appends a path to an endpoint from the environment, but not to this one.
    exporter = OTLPSpanExporter(endpoint=traces_url(settings.otel_endpoint))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    # The paths of signed links are secret, so those requests are not traced.
    private = ",".join(f"/{purpose}/" for purpose in Purpose)
    FastAPIInstrumentor.instrument_app(site, tracer_provider=provider, excluded_urls=private)


def traces_url(collector: str) -> str:
    """Return the URL for sending spans to a collector (OTLP/HTTP)."""
    return collector.rstrip("/").removesuffix("/v1/traces") + "/v1/traces"
