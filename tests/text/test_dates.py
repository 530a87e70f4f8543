"""Test the names of time zones and weekdays. The tests of sources and files cover dates."""

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
        "Factory",
        "posix/Europe/Berlin",
        "utc ",
        "Europe/Berlin\n",
    ],
)
def test_unknown_time_zone_is_rejected(name: str) -> None:
    """Only IANA zones are accepted."""
    assert not dates.valid_zone(name)
    assert dates.valid_zone("Europe/Berlin")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (" europe/BERLIN ", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("america/new york", "America/New_York"),
        ("Argentina/Buenos Aires", "America/Argentina/Buenos_Aires"),
        ("buenos_aires", "America/Argentina/Buenos_Aires"),
        ("CET", "CET"),
        ("est5edt", "EST5EDT"),
        ("Singapore", "Singapore"),
        ("utc", "UTC"),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("us/eastern", "America/New_York"),
        ("Europe/Oslo", "Europe/Oslo"),  # a link to Europe/Berlin, but the current name for Norway
        ("Etc/GMT+1", "Etc/GMT+1"),
        ("GMT+1", None),  # not Etc/GMT+1, which is an hour behind UTC
        ("Eastern", None),
        ("Mars/Olympus", None),
        ("localtime", None),
        ("", None),
    ],
)
def test_typed_time_zones_are_found(typed: str, name: str | None) -> None:
    """Case, underscores and the region of a current zone may be left out."""
    assert dates.find_zone(typed) == name


def test_last_parts_of_current_zones_are_distinct() -> None:
    """Therefore the last part is enough to name a zone."""
    last_parts = [name.rpartition("/")[2] for name in dates.current_zones()]
    assert len(set(last_parts)) == len(last_parts) > 300


@pytest.mark.parametrize(
    ("typed", "number"),
    [("0", 0), ("6", 6), ("Monday", 0), ("SUN", 6), ("thurs ", 3), ("7", None), ("mo", None), ("²", None),
     ("Mondays", None), ("", None)],
)  # fmt: skip
def test_weekdays_have_numbers_and_names(typed: str, number: int | None) -> None:
    assert dates.weekday(typed) == number
