"""The digests that somebody with some interests would have got over the last days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from app import cadence
from app.desk import Desk
from app.errors import InvalidInput
from app.parts import App
from app.records import Cadence, Digest, Skip, Wish
from app.subscribers import Preferences

MOST_DAYS = 60


@dataclass(frozen=True, slots=True)
class Edition:
    """What a day would have brought."""

    edition: str
    at: datetime
    digest: Digest | Skip


def digests(app: App, now: datetime, wishes: Sequence[Wish], days: int, max_papers: int) -> list[Edition]:
    """The digests of the last `days` days, the oldest first, of somebody who had signed up before them.

    Each is due at the settings' own hour, and is made of what was listed by then, with the votes of then.
    No paper comes twice. Nothing is written.
    """
    if not 1 <= days <= MOST_DAYS:
        raise InvalidInput(f"the days must be from 1 to {MOST_DAYS}", field="days")
    moments = _moments(app, now, days)
    # Before the hour and after it the same days are laid out, and the same index serves.
    back = max(days, (now.date() - moments[0].date()).days)
    with app.db.read() as session:
        desk = Desk(app, session, now, back=back)
    wanted = Preferences(interests=tuple(wishes), max_papers=max_papers)
    had: set[int] = set()
    editions = []
    for moment in moments:
        desk.turn_to(moment)
        name = cadence.edition(app.settings.default_zone, moment)
        digest = desk.preview(name, wanted, frozenset(had))
        had |= {pick.paper_id for pick in digest.picks} if isinstance(digest, Digest) else set()
        editions.append(Edition(name, moment, digest))
    return editions


def daily(desk: Desk, text: str, days: Sequence[date], without: Collection[int] = ()) -> tuple[int, ...]:
    """How many papers fit an interest that were new on each of these days, however many a digest holds."""
    new = Counter(paper.first_listed_on for paper in desk.fitting(text) if paper.id not in without)
    return tuple(new[day] for day in days)


def _moments(app: App, now: datetime, days: int) -> list[datetime]:
    """When a daily digest was due, up to now."""
    due, moments = now - timedelta(days=days + 2), list[datetime]()
    rhythm = (Cadence.DAILY, 0, app.settings.default_hour, app.settings.default_zone)
    while (due := cadence.next_due(*rhythm, after=due)) <= now:
        moments.append(due)
    return moments[-days:]
