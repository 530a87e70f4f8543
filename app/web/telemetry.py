"""Traces by OpenTelemetry, where PAPERBOY_OTEL_ENDPOINT asks for them. The extra `otel` brings the parts."""

from __future__ import annotations

from fastapi import FastAPI

from app.errors import InvalidSettings
from app.links import Purpose
from app.settings import Settings


def install(site: FastAPI, settings: Settings) -> None:
    """Trace every request to the collector of the settings; without one, do nothing."""
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
            "PAPERBOY_OTEL_ENDPOINT is set, but the parts for it are not installed: "
            ".venv/bin/pip install -e '.[otel]'"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "paperboy"}))
    # Told in code, the exporter takes the address as it is, and adds no path to it.
    exporter = OTLPSpanExporter(endpoint=traces_url(settings.otel_endpoint))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    # The path of a reader's link is a secret: those requests are not traced.
    private = ",".join(f"/{purpose}/" for purpose in Purpose)
    FastAPIInstrumentor.instrument_app(site, tracer_provider=provider, excluded_urls=private)


def traces_url(collector: str) -> str:
    """Where a collector takes spans (OTLP/HTTP)."""
    return collector.rstrip("/").removesuffix("/v1/traces") + "/v1/traces"
