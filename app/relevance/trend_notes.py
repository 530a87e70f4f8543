"""PURE. Describe votes over time in a note on a card: their number, recent gain and daily rank."""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta

from app.text.in_words import count_of
from app.types import PaperView

A_DAY, MOMENTUM_WINDOW = timedelta(days=1), timedelta(days=3)
MIN_GAIN = 5  # votes; smaller gains are noise
TOP_SHARE = 0.1
MIN_DAY_SIZE = 10  # papers; on a day with fewer, "top 10%" means nothing


def describe(paper: PaperView, votes_of_day: Sequence[int], now: datetime) -> tuple[str, str]:
    """Return two notes on a paper's votes: a full note, and a short one without the number of votes.

    Both contain the recent gain if it is large, and the rank if it is high. Both are "" without votes. The
    gain is counted from the sample of an earlier UTC day whose age is closest to a day: just after midnight,
    yesterday's last sample is only minutes old. The first count of a source is not a gain, because its votes
    may be older.
    """
    if not paper.upvotes:
        return "", ""
    notes = []
    words = count_of(paper.upvotes, "vote")
    midnight, a_day_ago = datetime.combine(now.date(), time.min, UTC), now - A_DAY
    earlier = [sample for sample in paper.votes if now - MOMENTUM_WINDOW <= sample.at < midnight]
    if earlier:
        start = min(earlier, key=lambda sample: abs(sample.at - a_day_ago))
        newly_counted = sum(sample.newly_counted for sample in paper.votes if sample.at > start.at)
        gain = paper.upvotes - start.upvotes - newly_counted
        if gain >= MIN_GAIN:
            days = round((now - start.at) / A_DAY)
            since = f"in {days} days" if days > 1 else "since yesterday"
            words = f"{paper.upvotes - gain} → {paper.upvotes} votes {since}"
            notes.append(f"+{gain} {since}")
    rank = len(votes_of_day) - bisect_left(votes_of_day, paper.upvotes)  # ties get the lowest of their ranks
    if len(votes_of_day) >= MIN_DAY_SIZE and rank <= TOP_SHARE * len(votes_of_day):
        words += ", among the top 10% of its day"
        notes.append("top 10% of its day")
    return words, ", ".join(notes)
