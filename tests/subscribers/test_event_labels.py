"""Test that operators read events and preferences in the words of the pages."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import app
from app.bounces import recording
from app.subscribers import Preferences, event_labels, event_log


def test_each_event_has_a_name() -> None:
    """Pages and commands never show the stored name of an event."""
    sources = [path.read_text("utf-8") for path in Path(app.__file__).parent.rglob("*.py")]
    recorded = {kind for text in sources for kind in re.findall(r'record_event\(\w+, "(\w+)"', text)}
    kinds = recorded | set(event_log.CHANGES) | {event_log.LINKS_REPLACED, event_log.ADDRESS_CHANGED}
    kinds |= {recording.SOFT, recording.OPT_OUT, recording.SENDER_REJECTION, recording.TRUSTED}
    kinds |= {recording.UNSUBSCRIBE_MAIL}
    assert len(kinds) > 20
    assert {kind for kind in kinds if kind not in event_labels.EVENTS} == set()


def test_each_preference_has_a_name() -> None:
    assert [field.name for field in fields(Preferences)] == list(event_labels.PREFERENCES)


@pytest.mark.parametrize(
    ("kind", "detail", "name"),
    [
        ("changed", "cadence, hour, max_trending", "how often, time of day, trending beyond the interests"),
        ("changed", "a_removed_one", "a removed one"),
        ("paused", "until 2026-12-01", "until 2026-12-01"),
        ("bounce", "550 no_such_user", "550 no_such_user"),
    ],
)
def test_detail(kind: str, detail: str, name: str) -> None:
    """Only the names of preferences are replaced."""
    assert event_labels.name_detail(kind, detail) == name
