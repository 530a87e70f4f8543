"""OpenTelemetry traces of requests, if PAPERBOY_OTEL_ENDPOINT is set. See `app.runtime.tracing`."""

from __future__ import annotations

from fastapi import FastAPI

from app.links import Purpose
from app.runtime import tracing
from app.settings import Settings


def install(site: FastAPI, settings: Settings) -> None:
    """Send traces of requests to the configured collector, if there is one."""
    provider = tracing.configure(settings.otel_endpoint)
    if provider is None:
        return
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    # The paths of signed links are secret, so those requests are not traced.
    private = ",".join(f"/{purpose}/" for purpose in Purpose)
    FastAPIInstrumentor.instrument_app(site, tracer_provider=provider, excluded_urls=private)
