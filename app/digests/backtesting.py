"""The digests that somebody with some interests would have got over the last days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from app.digests.builder import DigestBuilder, DigestContext
from app.errors import InvalidInput
from app.subscribers import Preferences, schedule
from app.types import Cadence, Digest, Interest, Skip

MOST_DAYS = 60


@dataclass(frozen=True, slots=True)
class Edition:
    """What a day would have brought."""

    edition: str
    at: datetime
    digest: Digest | Skip


def run(
    context: DigestContext, now: datetime, wishes: Sequence[Interest], days: int, max_papers: int
) -> list[Edition]:
    """The digests of the last `days` days, the oldest first, of somebody who had signed up before them.

    Each is due at the settings' own hour, and is made of what was listed by then, with the votes of then.
    No paper comes twice. Nothing is written.
    """
    if not 1 <= days <= MOST_DAYS:
        raise InvalidInput(f"the days must be from 1 to {MOST_DAYS}", field="days")
    moments = _moments(context, now, days)
    # Before the hour and after it the same days are laid out, and the same index serves.
    back = max(days, (now.date() - moments[0].date()).days)
    with context.db.read() as session:
        desk = DigestBuilder(context, session, now, back=back)
    wanted = Preferences(interests=tuple(wishes), max_papers=max_papers)
    had: set[int] = set()
    editions = []
    for moment in moments:
        desk.turn_to(moment)
        name = schedule.edition(context.settings.default_zone, moment)
        digest = desk.preview(name, wanted, frozenset(had))
        had |= {pick.paper_id for pick in digest.picks} if isinstance(digest, Digest) else set()
        editions.append(Edition(name, moment, digest))
    return editions


def daily_counts(
    desk: DigestBuilder, text: str, days: Sequence[date], without: Collection[int] = ()
) -> tuple[int, ...]:
    """How many papers fit an interest that were new on each of these days, however many a digest holds."""
    new = Counter(paper.first_listed_on for paper in desk.fitting(text) if paper.id not in without)
    return tuple(new[day] for day in days)


def _moments(context: DigestContext, now: datetime, days: int) -> list[datetime]:
    """When a daily digest was due, up to now."""
    due, moments = now - timedelta(days=days + 2), list[datetime]()
    rhythm = (Cadence.DAILY, 0, context.settings.default_hour, context.settings.default_zone)
    while (due := schedule.next_due(*rhythm, after=due)) <= now:
        moments.append(due)
    return moments[-days:]
