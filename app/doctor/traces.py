"""Check that the OpenTelemetry collector accepts spans."""

from collections.abc import Iterator

from app.doctor.findings import Finding, ok, warning
from app.effective_settings import hide_credentials
from app.runtime import tracing


def check(endpoint: str) -> Iterator[Finding]:
    """Send an empty list of spans as the service does, with the same headers and certificates."""
    if not endpoint:
        return
    url = hide_credentials(tracing.traces_url(endpoint))
    if tracing.build_exporter(endpoint).export([]).name == "SUCCESS":
        yield ok("traces", f"the collector accepts spans at {url}")
        return
    fix = (
        "start the collector, or correct PAPERBOY_OTEL_ENDPOINT and, if it needs a login, "
        "OTEL_EXPORTER_OTLP_HEADERS; the log of the service says why"
    )
    yield warning("traces", f"the collector does not accept spans at {url}", fix)
