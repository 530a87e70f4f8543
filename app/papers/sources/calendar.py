"""PURE. The days on which sources have no papers, and the submission windows of arXiv's announcements.

The calendar explains an empty day, so that it is not mistaken for a fault.
"""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from app.types import SourceKind

MONDAY, THURSDAY, FRIDAY, SATURDAY = 0, 3, 4, 5
_EASTERN = ZoneInfo("America/New_York")
ARXIV_CUTOFF = time(14, 0)  # submissions up to this time are in that evening's announcement
# arXiv has no deadline, and therefore no announcement in the evening, on seven holidays of the United States
# and on a few other days that it publishes each year (https://info.arxiv.org/help/availability.html).
_FIXED_HOLIDAYS = {
    (1, 1): "New Year's Day",
    (6, 19): "Juneteenth",
    (7, 4): "Independence Day",
    (12, 25): "Christmas",
}
_MOVING_HOLIDAYS = {  # by month, weekday and its number in the month
    (1, MONDAY, 3): "Martin Luther King Day",
    (9, MONDAY, 1): "Labor Day",
    (11, THURSDAY, 4): "Thanksgiving",
}
_OTHER_HOLIDAYS = {date(2026, 12, 29): "the winter break", date(2026, 12, 31): "New Year's Eve"}


def no_papers_reason(kind: SourceKind, day: date) -> str:
    """Return why a source has few or no papers on a day, without a period, or "" for other days."""
    weekend = day.weekday() >= SATURDAY
    if kind is SourceKind.HUGGINGFACE and weekend:
        return f"Hugging Face lists few or no papers on a {day:%A}"
    if kind in (SourceKind.ARXIV, SourceKind.ARXIV_FEED, SourceKind.ARXIV_OAI):
        if weekend:
            return f"arXiv announces no papers on a {day:%A}"
        if holiday := _holiday(_last_weekday_before(day)):
            return f"arXiv announces no papers on {day.day} {day:%B} because of {holiday}"
    return ""


def _holiday(day: date) -> str:
    """Return the name of the holiday that arXiv observes on a weekday, or "" if there is none.

    A holiday on a Saturday is observed on the Friday before it, and one on a Sunday on the Monday after it.
    """
    if day in _OTHER_HOLIDAYS:
        return _OTHER_HOLIDAYS[day]
    weekend = timedelta(days={MONDAY: -1, FRIDAY: 1}.get(day.weekday(), 0))
    for each in (day, day + weekend):
        if name := _FIXED_HOLIDAYS.get((each.month, each.day)):
            return name
    return _MOVING_HOLIDAYS.get((day.month, day.weekday(), (day.day + 6) // 7), "")


def announces(day: date) -> bool:
    """Return whether arXiv has an announcement with this date."""
    return not no_papers_reason(SourceKind.ARXIV_FEED, day)


def announcement_before(day: date) -> date:
    """Return the last day before `day` on which arXiv announced papers."""
    day -= timedelta(days=1)
    while not announces(day):
        day -= timedelta(days=1)
    return day


def submission_window(day: date) -> tuple[datetime, datetime]:
    """Return the beginning and end of the period in which the papers announced on `day` were submitted."""
    return _cutoff(announcement_before(day)), _cutoff(day)


def _cutoff(day: date) -> datetime:
    """Return the deadline for the announcement of `day`: 14:00 in New York on the last weekday before it."""
    return datetime.combine(_last_weekday_before(day), ARXIV_CUTOFF, _EASTERN).astimezone(UTC)


def _last_weekday_before(day: date) -> date:
    day -= timedelta(days=1)
    while day.weekday() >= SATURDAY:
        day -= timedelta(days=1)
    return day
