"""Test the timeline of a run."""

import threading
from datetime import datetime, timedelta

import pytest

from app.clock import Timeline

PATIENCE = 30.0


@pytest.mark.once
def test_slow_database_does_not_block_other_runs(now: datetime) -> None:
    """While one run waits for the database's time, another one can begin. The time is read once."""
    has_begun, may_end, readings = threading.Event(), threading.Event(), []

    def wait() -> timedelta:
        has_begun.set()
        readings.append(may_end.wait(PATIENCE))
        return timedelta(minutes=2)

    slow, starts = Timeline(now, wait), list[datetime]()
    first = threading.Thread(target=lambda: starts.append(slow.start))
    first.start()
    assert has_begun.wait(PATIENCE)
    other = threading.Thread(target=lambda: starts.append(Timeline(now, timedelta).start))
    other.start()
    other.join(PATIENCE)
    may_end.set()
    first.join()
    assert starts == [now, now + timedelta(minutes=2)]
    assert slow.start == starts[1]
    assert readings == [True]
