"""PURE. Read dates from untrusted values and file names, or None if there is none. Check time zones."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import cache
from zoneinfo import available_timezones

_DAY = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")


def day(value: object) -> date | None:
    """Return the date at the start of an ISO date or time, without converting its time zone."""
    match = re.match(r"\s*(\d{4}-\d{2}-\d{2})(?:$|[T\s])", value) if isinstance(value, str) else None
    return _date(match.group(1)) if match else None


def utc_day(value: object) -> date | None:
    """Return the UTC date of an ISO time. A time without a zone is assumed to be UTC.

    Return None for years before 1900 or after 2200, such as the zero time 0001-01-01.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        return _plausible((moment.astimezone(UTC) if moment.tzinfo else moment).date())
    except (ValueError, OverflowError):
        return None


def day_in(text: str) -> date | None:
    """Return the first date of the form 2026-11-20 in a text, such as a file name."""
    match = _DAY.search(text)
    return _date(match.group(0)) if match else None


def _date(text: str) -> date | None:
    try:
        return _plausible(date.fromisoformat(text))
    except ValueError:
        return None


def _plausible(day: date) -> date | None:
    return day if 1900 <= day.year <= 2200 else None


def valid_zone(name: str) -> bool:
    """Return whether this is the name of an IANA time zone that a setting or a subscriber may have."""
    return name in _zones()


@cache
def _zones() -> frozenset[str]:
    # Leave out names without a slash, because some of them, such as "localtime", mean this machine's zone.
    return frozenset(name for name in available_timezones() if "/" in name or name == "UTC")
