"""Detect silent sources: those that have stopped listing papers on the weekdays on which they usually do."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise

from sqlmodel import Session

from app.papers import listing_days, poll_history, poll_schedule
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
    polls = poll_history.successful(session, source.id or 0, now - HISTORY)
    unpolled = {day for day in _days_between([*polls, now]) if day > days[-1]}
    if not is_silent(days, now.date(), unpolled):
        return ""
    chances = [*_chances_of_no_paper(days, now.date(), unpolled)]
    expected = sum(1 - chance for chance in chances)
    text = f"it has listed no paper since {days[-1]}: usually, {expected:.0f} of "
    if unpolled:
        return f"{text}the {len(chances)} days on which it was polled have papers"
    return f"{text}these {len(chances)} days have papers"


def _days_between(polls: Sequence[datetime]) -> Iterator[date]:
    """Yield the days between two polls that are further apart than sources are polled.

    Then, the source was paused or failing, or the service was not running.
    """
    for earlier, later in pairwise(polls):
        if later - earlier > poll_schedule.MAX_DELAY:
            yield from _dates(earlier.date() + DAY, later.date())


def is_silent(days: Sequence[date], today: date, unpolled: Collection[date] = ()) -> bool:
    """Return whether a source that listed papers on `days` is silent. Do not count `today` and `unpolled`.

    No calendar is needed, because `days` shows on which weekdays the source usually lists papers. Weekends
    and the days between weekly lists are expected to be empty, and a single holiday is tolerated.
    """
    if len(days) < MIN_DAYS:
        return False
    return math.prod(_chances_of_no_paper(days, today, unpolled)) < SILENCE_PROBABILITY


def _chances_of_no_paper(days: Sequence[date], today: date, unpolled: Collection[date]) -> Iterator[float]:
    """Yield the probability of no papers for each day between the last papers and `today`, except `unpolled`.

    The probability is the share of days without papers among the earlier days with the same weekday. One day
    without papers is added for each weekday, so that no probability is 0.
    """
    observed = Counter(each.weekday() for each in _dates(days[0], days[-1] + DAY))
    with_papers = Counter(each.weekday() for each in days)
    for day in _dates(days[-1] + DAY, today):
        if day not in unpolled:
            yield 1 - with_papers[day.weekday()] / (observed[day.weekday()] + 1)


def _dates(begin: date, end: date) -> Iterator[date]:
    """Yield the days from `begin` to the day before `end`."""
    return (begin + number * DAY for number in range((end - begin).days))
