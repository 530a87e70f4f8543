"""Test the names of time zones and weekdays. The tests of sources and files cover dates."""

from importlib.resources import files

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


def test_former_names_of_places_in_other_countries() -> None:
    """The time zone database links zones that have the same time now, even of different countries.

    If this fails after an update of tzdata, add to `_RENAMED` each new name of a place in another country.
    """
    zoneinfo = files("tzdata").joinpath("zoneinfo")
    rows = [line.split("\t") for line in zoneinfo.joinpath("zone1970.tab").read_text("utf-8").splitlines()]
    shared = {row[2] for row in rows if not row[0].startswith("#") and "," in row[0]}
    renamed = {old for old, new in dates._former_names().items() if new in shared}
    assert renamed == {
        "America/Montreal", "America/Nipigon", "America/Thunder_Bay", "Asia/Rangoon",
        "Canada/Eastern", "Europe/Belfast", "Pacific/Samoa", "US/Arizona", "US/Samoa",
    }  # fmt: skip


def test_unlisted_zones() -> None:
    """Together with those of the form, they are all zones that the service accepts."""
    assert {"EST5EDT", "Etc/GMT+3", "Japan"} <= set(dates.unlisted_zones())
    for name in {*dates._zones()} - {*dates.unlisted_zones(), "UTC"}:
        assert dates.find_zone(name) in dates.current_zones()


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
