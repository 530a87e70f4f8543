"""OpenTelemetry traces of requests, if PAPERBOY_OTEL_ENDPOINT is set. See `app.runtime.tracing`."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from app.links import Purpose
from app.runtime import tracing
from app.settings import Settings

# Requests with these paths are not traced, because anyone who has such a link can use it.
PRIVATE_PATHS = ("/admin/sign-in/", *(f"/{purpose}/" for purpose in Purpose))


def install(site: FastAPI, settings: Settings) -> None:
    """Send traces of requests to the configured collector, if there is one."""
    provider = tracing.configure(settings.otel_endpoint)
    if provider is None:
        return
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(
        site,
        tracer_provider=provider,
        excluded_urls=",".join(PRIVATE_PATHS),
        server_request_hook=remove_query,
    )


def remove_query(span: Any, _scope: Mapping[str, Any]) -> None:
    """Remove the query from the attributes of a span: it may contain addresses, interests or search terms."""
    if not span.is_recording():
        return
    for name in ("http.url", "http.target", "url.full", "url.query"):
        if value := span.attributes.get(name):
            span.set_attribute(name, "" if name == "url.query" else value.partition("?")[0])
