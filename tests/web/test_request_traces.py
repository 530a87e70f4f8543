"""Test that tracing is optional and configured by a setting."""

from __future__ import annotations

import sys

import pytest
from fastapi import FastAPI

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
