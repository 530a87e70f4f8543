"""Test the names of time zones. The tests of sources and files cover dates."""

from __future__ import annotations

import pytest

from app.text import dates


@pytest.mark.parametrize(
    "name",
    [
        "Mars/Olympus",
        "",
        "../etc/passwd",
        "localtime",
        "CET",
        "posix/Europe/Berlin",
        "utc ",
        "Europe/Berlin\n",
    ],
)
def test_unknown_time_zone_is_rejected(name: str) -> None:
    """Only IANA zones are accepted."""
    assert not dates.valid_zone(name)
    assert dates.valid_zone("Europe/Berlin")
