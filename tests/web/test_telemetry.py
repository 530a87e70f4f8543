"""Traces are asked for by a setting, and cost nothing otherwise."""

from __future__ import annotations

import sys

import pytest
from fastapi import FastAPI

from app.errors import InvalidSettings
from app.settings import Settings
from app.web import telemetry


def test_without_an_endpoint_nothing_is_installed(settings: Settings) -> None:
    """The extra need not be there."""
    site = FastAPI()
    telemetry.install(site, settings)
    assert site.user_middleware == []


def test_an_endpoint_without_the_extra_says_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than leaving out traces that somebody counts on."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    wanted = settings.model_copy(update={"otel_endpoint": "http://127.0.0.1:4318/v1/traces"})
    with pytest.raises(InvalidSettings, match=r"\.\[otel\]"):
        telemetry.install(FastAPI(), wanted)


@pytest.mark.parametrize("set_to", ["http://collector:4318", "http://collector:4318/v1/traces"])
def test_spans_go_where_a_collector_takes_them(set_to: str) -> None:
    """As `.env.example` shows the setting, and as it is often copied."""
    assert telemetry.traces_url(set_to) == "http://collector:4318/v1/traces"
