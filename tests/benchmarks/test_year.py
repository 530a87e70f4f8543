"""Some days of the simulated year: the invariants hold, and a violation of each is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app import clock
from benchmarks import year

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def _present() -> Iterator[None]:
    yield
    clock.travel(clock.system_time())


def test_days_with_all_disturbances(monkeypatch: pytest.MonkeyPatch) -> None:
    """No invariant is violated while the relay and the sources fail, and after a restart and a restore."""
    monkeypatch.setattr(year, "MONTH", 2)
    result = year.run("sqlite", days=6, readers=8, papers=5)
    assert not result["violations"]
    assert [month["figures"]["sent digests"] > 0 for month in result["months"]] == [True] * 3
    year.show(result)
