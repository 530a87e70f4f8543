"""PURE. Describe votes over time in a note on a card: their number, recent gain and daily rank."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta

from app.text.in_words import count_of
from app.types import PaperView

MOMENTUM_WINDOW = timedelta(days=3)
MIN_GAIN = 5  # votes; smaller gains are noise
TOP_SHARE = 0.1
MIN_DAY_SIZE = 10  # papers; on a day with fewer, "top 10%" means nothing


def describe(paper: PaperView, votes_of_day: Sequence[int], now: datetime) -> tuple[str, str]:
    """Return two notes on a paper's votes: a full note, and a short one without the number of votes.

    Both contain the recent gain if it is large, and the rank if it is high. Both are "" without votes. The
    first count of a source is not a gain, because its votes may be older.
    """
    if not paper.upvotes:
        return "", ""
    notes = []
    words = count_of(paper.upvotes, "vote")
    earlier = [
        sample
        for sample in paper.votes
        if sample.at.date() < now.date() and now - sample.at <= MOMENTUM_WINDOW
    ]
    if earlier:
        start = earlier[-1]
        newly_counted = sum(sample.newly_counted for sample in paper.votes if sample.at > start.at)
        gain = paper.upvotes - start.upvotes - newly_counted
        if gain >= MIN_GAIN:
            days = (now.date() - start.at.date()).days
            since = "since yesterday" if days == 1 else f"in {days} days"
            words = f"{paper.upvotes - gain} → {paper.upvotes} votes {since}"
            notes.append(f"+{gain} {since}")
    rank = len(votes_of_day) - bisect_left(votes_of_day, paper.upvotes)  # ties get the lowest of their ranks
    if len(votes_of_day) >= MIN_DAY_SIZE and rank <= TOP_SHARE * len(votes_of_day):
        words += ", among the top 10% of its day"
        notes.append("top 10% of its day")
    return words, ", ".join(notes)
