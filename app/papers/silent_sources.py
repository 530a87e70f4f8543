"""Detect silent sources: those that have stopped listing papers on the weekdays on which they usually do."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from sqlmodel import Session

from app.papers import listing_days
from app.storage.models import Source

DAY = timedelta(days=1)
# A source is silent if the probability that all days since its last papers are empty is below this threshold.
# The probability is estimated from the weekdays in HISTORY. The threshold tolerates a single holiday (see
# benchmarks/silence.py).
SILENCE_PROBABILITY, HISTORY = 0.01, timedelta(days=90)
MIN_DAYS = 5  # days with papers that are needed to judge a source


def describe_silence(session: Session, source: Source, now: datetime) -> str:
    """Return a text such as "it has listed no paper since 2026-11-20: …", or "" if a source is not silent."""
    days = listing_days.of_source(session, source.id or 0, (now - HISTORY).date())
    if not is_silent(days, now.date()):
        return ""
    empty = (now.date() - days[-1]).days - 1
    expected = sum(1 - chance for chance in _chances_of_no_paper(days, now.date()))
    return (
        f"it has listed no paper since {days[-1]}: usually, {expected:.0f} of these {empty} days have papers"
    )


def is_silent(days: Sequence[date], today: date) -> bool:
    """Return whether a source that listed papers on `days` is silent. `today` is not counted.

    No calendar is needed, because `days` shows on which weekdays the source usually lists papers. Weekends
    and the days between weekly lists are expected to be empty, and a single holiday is tolerated.
    """
    return len(days) >= MIN_DAYS and math.prod(_chances_of_no_paper(days, today)) < SILENCE_PROBABILITY


def _chances_of_no_paper(days: Sequence[date], today: date) -> Iterator[float]:
    """Yield the probability of no papers for each day between the last papers and `today`.

    The probability is the share of days without papers among the earlier days with the same weekday. One day
    without papers is added for each weekday, so that no probability is 0.
    """
    observed = Counter(each.weekday() for each in _dates(days[0], days[-1] + DAY))
    with_papers = Counter(each.weekday() for each in days)
    for day in _dates(days[-1] + DAY, today):
        weekday = day.weekday()
        yield 1 - with_papers[weekday] / (observed[weekday] + 1)


def _dates(begin: date, end: date) -> Iterator[date]:
    """Yield the days from `begin` to the day before `end`."""
    return (begin + number * DAY for number in range((end - begin).days))
