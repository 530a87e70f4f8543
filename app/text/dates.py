"""PURE. Read dates from untrusted values and file names, or None if there is none. Find time zones."""

import re
from datetime import UTC, date, datetime
from functools import cache
from importlib.resources import files
from zoneinfo import available_timezones

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Former names that the time zone database links to a place in another country, which now has the same time.
_RENAMED = {
    "Africa/Asmera": "Africa/Asmara",
    "Africa/Timbuktu": "Africa/Bamako",
    "America/Coral_Harbour": "America/Atikokan",
    "America/Virgin": "America/St_Thomas",
    "Antarctica/South_Pole": "Antarctica/McMurdo",
    "Atlantic/Jan_Mayen": "Arctic/Longyearbyen",
    "Pacific/Ponape": "Pacific/Pohnpei",
    "Pacific/Truk": "Pacific/Chuuk",
    "Pacific/Yap": "Pacific/Chuuk",
}
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


def weekday(text: str) -> int | None:
    """Return the number of a weekday (0 is Monday), or None if there is none.

    The text is the number or an English name, in any case and with at least three letters ("Mon").
    """
    typed = text.strip().casefold()
    if re.fullmatch("[0-6]", typed, re.ASCII):
        return int(typed)
    matching = (number for number, name in enumerate(_WEEKDAYS) if name.startswith(typed))
    return next(matching, None) if len(typed) >= 3 else None


def valid_zone(name: str) -> bool:
    """Return whether this is the name of an IANA time zone that a setting or a subscriber may have."""
    return name in _zones()


def find_zone(text: str) -> str | None:
    """Return the name of the time zone that someone typed, or None if it is not known.

    Ignore case, and accept spaces for underscores. Replace a former name by the current one: Chromium still
    uses "Asia/Calcutta". A current zone may be given without its region ("Argentina/Buenos Aires", as forms
    show it) or by its last part alone ("Buenos Aires").
    """
    return _names_by_typed().get(_fold(text))


@cache
def current_zones() -> tuple[str, ...]:
    """Return the current names of the available time zones, sorted. Forms offer these."""
    table = files("tzdata").joinpath("zoneinfo/zone.tab").read_text("ascii")
    names = (line.split("\t")[2] for line in table.splitlines() if not line.startswith("#"))
    return tuple(sorted(filter(valid_zone, names)))


@cache
def unlisted_zones() -> tuple[str, ...]:
    """Return the available time zones that are no place's current or former name, such as "EST5EDT"."""
    return tuple(sorted(_zones() - {*current_zones(), *_former_names(), "UTC"}))


@cache
def _zones() -> frozenset[str]:
    # Systems add names such as "localtime", which means this machine's zone. "Factory" means no zone.
    simple = {*files("tzdata").joinpath("zones").read_text("ascii").split()} - {"Factory"}
    return frozenset(name for name in available_timezones() if "/" in name or name in simple)


@cache
def _names_by_typed() -> dict[str, str]:
    by_typed = dict[str, str]()
    for name in current_zones():  # their last parts are distinct
        by_typed |= dict.fromkeys(map(_fold, (name.partition("/")[2], name.rpartition("/")[2])), name)
    former = _former_names()
    return by_typed | {_fold(name): former.get(name, name) for name in _zones()}


def _former_names() -> dict[str, str]:
    """Return the current names of places, keyed by former names such as "Asia/Calcutta"."""
    current = frozenset(current_zones())
    lines = files("tzdata").joinpath("zoneinfo/tzdata.zi").read_text("ascii").splitlines()
    links = (line.split() for line in lines if line.startswith("L "))
    former = {old: new for _, new, old in links if "/" in old and old not in current and new in current}
    return former | {old: new for old, new in _RENAMED.items() if old in former}


def _fold(text: str) -> str:
    return "_".join(text.casefold().split())
