"""Backtest interests: compute the digests that they would have produced on recent days."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from app.digests.builder import DigestBuilder, DigestContext
from app.errors import InvalidInput
from app.subscribers import Preferences, schedule
from app.types import Cadence, Digest, Interest, Skip

MAX_DAYS = 60


@dataclass(frozen=True, slots=True)
class BacktestedEdition:
    """The digest for one day, or the reason why there would have been none."""

    edition: str
    at: datetime
    digest: Digest | Skip


def run(
    context: DigestContext,
    now: datetime,
    interests: Sequence[Interest],
    days: int,
    max_papers: int,
    first_day: date | None = None,
) -> list[BacktestedEdition]:
    """Return the digests that a daily subscriber would have received in the last `days` days, oldest first.

    Each digest is due at the default hour from the settings and uses the listings and votes as of that time.
    No paper appears twice, and papers first listed before `first_day` count as sent already. By default,
    `first_day` is the day of the first digest, in UTC or in the default time zone, whichever is earlier.
    Nothing is written. Raise InvalidInput if `days` is not between 1 and MAX_DAYS, and InvalidInterest if an
    interest cannot be parsed.
    """
    if not 1 <= days <= MAX_DAYS:
        raise InvalidInput(f"the number of days must be from 1 to {MAX_DAYS}", field="days")
    moments = _last_moments(context, now, days)
    # In the evening of the Americas, it is tomorrow in UTC. In the morning of Asia, it is yesterday.
    first_edition = date.fromisoformat(schedule.edition(context.settings.default_zone, moments[0]))
    first_day = first_day or min(first_edition, moments[0].date())
    # The same days are loaded before and after the digest hour, so that the cached match index is reused.
    back = max(days, (now.date() - moments[0].date()).days)
    with context.db.read() as session:
        builder = DigestBuilder(context, session, now, back=back)
    preferences = Preferences(interests=tuple(interests), max_papers=max_papers)
    sent = {paper.id for paper in builder.papers if (paper.first_listed_on or first_day) < first_day}
    editions = []
    for moment in moments:
        builder.rewind_to(moment)
        name = schedule.edition(context.settings.default_zone, moment)
        digest = builder.preview(name, preferences, frozenset(sent))
        sent |= {item.paper_id for item in digest.picks} if isinstance(digest, Digest) else set()
        editions.append(BacktestedEdition(name, moment, digest))
    return editions


def _last_moments(context: DigestContext, now: datetime, days: int) -> list[datetime]:
    """Return the last `days` times at which daily digests were due at the default hour, oldest first."""
    moments, due = list[datetime](), now - timedelta(days=days + 2)
    cadence = (Cadence.DAILY, 0, context.settings.default_hour, context.settings.default_zone)
    while (due := schedule.next_due(*cadence, after=due)) <= now:
        moments.append(due)
    return moments[-days:]


def daily_counts(
    builder: DigestBuilder, interest: Interest, days: Sequence[date], muted: Collection[int] = ()
) -> tuple[int, ...]:
    """Return, for each of these days, the number of matching, unmuted papers first listed on it.

    `builder.interests` must have matched the interest. The maximum number of papers in a digest does not
    apply.
    """
    papers = builder.interests.papers_above_floor(interest.text, interest.weight)
    counts = Counter(paper.first_listed_on for paper in papers if paper.id not in muted)
    return tuple(counts[day] for day in days)
