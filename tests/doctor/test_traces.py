"""Test the check of the OpenTelemetry collector."""

from enum import Enum

import pytest

from app.doctor import Level, traces
from app.runtime import tracing


class Result(Enum):
    SUCCESS = 0
    FAILURE = 1


class Exporter:
    """An exporter that returns a result, and keeps what it was asked to send."""

    def __init__(self, result: Result) -> None:
        self.result, self.exported = result, list[object]()

    def export(self, spans: object) -> Result:
        self.exported.append(spans)
        return self.result


@pytest.mark.parametrize(("result", "level"), [(Result.SUCCESS, Level.OK), (Result.FAILURE, Level.WARNING)])
def test_collector_gets_no_spans(monkeypatch: pytest.MonkeyPatch, result: Result, level: Level) -> None:
    """The finding names the collector without its password."""
    exporter = Exporter(result)
    monkeypatch.setattr(tracing, "build_exporter", lambda _endpoint: exporter)
    (finding,) = traces.check("http://user:hunter2@collector:4318")
    assert (finding.level, exporter.exported) == (level, [[]])
    assert "://…@collector:4318/v1/traces" in finding.message


def test_no_collector() -> None:
    assert list(traces.check("")) == []
