"""Papers as shown on public pages, and suggestions for interests."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from fastapi import Request
from sqlmodel import Session

from app.papers import archive_lists, bylines, listing_days, listings, paper_views, pictures
from app.papers.listings import ListingView
from app.papers.pictures import Picture
from app.relevance import trending
from app.relevance.suggestions import TopicIndex
from app.text import summarizer
from app.types import PaperView, Trend
from app.web.site_state import cached
from app.web.vote_chart import VoteChart, vote_chart

SUGGEST_FROM = timedelta(days=60)
TOPIC_DAYS, TOPIC_TITLES = timedelta(days=6), 500  # topics are counted in the 500 newest titles of a week
KEEP_SUGGESTIONS = timedelta(minutes=10)
PAPERS_ON_FRONT_PAGE, KEEP_NEWEST = 10, timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class PaperCard:
    paper: PaperView
    authors: str
    summary: str
    trend: Trend
    listed_on: date | None  # the newest day in the list's period on which a source listed the paper
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class Week:
    """An ISO 8601 week. It begins on Monday and belongs to the year that contains its Thursday."""

    year: int
    number: int

    def __str__(self) -> str:
        return f"{self.year:04}-W{self.number:02}"

    @property
    def first(self) -> date:
        return date.fromisocalendar(self.year, self.number, 1)

    @property
    def last(self) -> date:
        return date.fromisocalendar(self.year, self.number, 7)


@dataclass(frozen=True, slots=True)
class Day:
    """A page of the papers listed on a day, most votes first, and the neighboring days."""

    day: date
    cards: tuple[PaperCard, ...]
    total: int
    before: date | None
    after: date | None
    page: int
    pages: int
    first: int  # rank of the first card
    topics: tuple[str, ...] = ()

    @property
    def week(self) -> Week:
        return week_of(self.day)


@dataclass(frozen=True, slots=True)
class WeekPapers:
    """A page of the papers listed in a week, most votes first, its days with papers, and the neighbors."""

    week: Week
    days: tuple[date, ...]
    cards: tuple[PaperCard, ...]
    total: int
    before: Week | None
    after: Week | None
    page: int
    pages: int
    first: int  # rank of the first card
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PaperPage:
    card: PaperCard
    listings: tuple[ListingView, ...]
    chart: VoteChart | None
    related: tuple[PaperCard, ...]


def week_of(day: date) -> Week:
    year, number, _ = day.isocalendar()
    return Week(year, number)


def latest_day(session: Session) -> date | None:
    """Return the newest day that has papers, or None if the archive is empty."""
    return listing_days.neighbours(session, date.max)[0]


def newest_day(request: Request) -> Day | None:
    """Return the newest day for the front page, or None if the archive is empty. Read it once a minute."""

    def read(session: Session, now: datetime) -> Day | None:
        day = latest_day(session)
        return papers_of_day(session, day, PAPERS_ON_FRONT_PAGE, now, for_page=True) if day else None

    return cached(request, "newest_day", KEEP_NEWEST, read)


def papers_of_day(
    session: Session, day: date, limit: int, now: datetime, page: int = 1, *, for_page: bool = False
) -> Day:
    """Load a page of at most `limit` papers listed on a day. Load pictures and topics only if `for_page`.

    A page past the last one has neither papers nor topics.
    """
    papers = paper_views.candidates(session, day, day)
    trends = trending.trends(papers, now)
    ranked = sorted(papers, key=lambda paper: (-paper.upvotes, -trends[paper.id].score, paper.id))
    start = (page - 1) * limit
    page_cards = tuple(_card(paper, trends[paper.id]) for paper in ranked[start : start + limit])
    before, after = listing_days.neighbours(session, day)
    pages = math.ceil(len(papers) / limit)
    listing = Day(day, page_cards, len(papers), before, after, page, pages, start + 1)
    if not (for_page and page_cards):
        return listing
    topics = _topics(session, day - TOPIC_DAYS, day, (paper.title for paper in papers))
    return replace(listing, cards=with_pictures(session, page_cards), topics=topics)


def papers_of_week(session: Session, week: Week, limit: int, now: datetime, page: int = 1) -> WeekPapers:
    """Load a page of at most `limit` papers listed in a week. A page past the last one has no topics."""
    ids, start = archive_lists.rank_by_votes(session, week.first, week.last), (page - 1) * limit
    views = paper_views.in_given_order(session, ids[start : start + limit])
    page_cards = with_pictures(session, cards(views, now, until=week.last))
    before, _ = listing_days.neighbours(session, week.first)
    _, after = listing_days.neighbours(session, week.last)
    return WeekPapers(
        week,
        tuple(listing_days.between(session, week.first, week.last)),
        page_cards,
        len(ids),
        week_of(before) if before else None,
        week_of(after) if after else None,
        page,
        math.ceil(len(ids) / limit),
        start + 1,
        _topics(session, week.first, week.last, (card.paper.title for card in page_cards))
        if page_cards
        else (),
    )


def _topics(session: Session, first: date, last: date, titles: Iterable[str]) -> tuple[str, ...]:
    """Return frequent topics from `first` to `last`, beginning with those that occur in `titles`."""
    return tuple(TopicIndex(archive_lists.titles(session, first, last, TOPIC_TITLES)).varied(titles))


def paper_page(session: Session, paper_id: int, related: Iterable[PaperView], now: datetime) -> PaperPage:
    """Load the content of a paper's page."""
    (paper,) = paper_views.by_ids(session, [paper_id])
    (card,) = with_pictures(session, cards([paper], now))
    listed = tuple(listings.of_paper(session, paper_id))
    return PaperPage(card, listed, vote_chart(paper.votes), cards(related, now))


def cards(papers: Iterable[PaperView], now: datetime, *, until: date | None = None) -> tuple[PaperCard, ...]:
    """Return cards for papers from any days. Compute a paper's trend without comparing it with others.

    `until` is the last day of the list's period. None: the period has no end.
    """
    return tuple(_card(paper, trending.trends([paper], now)[paper.id], until) for paper in papers)


def with_pictures(session: Session, plain: Sequence[PaperCard]) -> tuple[PaperCard, ...]:
    """Return the cards, with pictures for the papers that have one."""
    stored = pictures.of_papers(session, [card.paper.id for card in plain])
    return tuple(replace(card, picture=stored.get(card.paper.id)) for card in plain)


def _card(paper: PaperView, trend: Trend, until: date | None = None) -> PaperCard:
    byline = bylines.byline(paper.authors, paper.author_count)
    summary = summarizer.summary(paper.title, paper.tldr, paper.abstract)
    listed_on = max((day for day in paper.listed_on if until is None or day <= until), default=None)
    return PaperCard(paper, byline, summary, trend, listed_on)


def suggestions(request: Request, typed: str = "", limit: int = 8) -> list[str]:
    """Return keywords that contain a word beginning with the typed text, most frequent first.

    The keywords of recent papers are counted at most every ten minutes.
    """
    keywords = cached(request, "keywords", KEEP_SUGGESTIONS, _recent_keywords)
    typed = " ".join(typed.lower().split())
    return [word for word in keywords if f" {typed}" in f" {word}"][:limit]


def _recent_keywords(session: Session, now: datetime) -> list[str]:
    counted = archive_lists.keywords(session, (now - SUGGEST_FROM).date())
    return [word for word, _ in counted.most_common() if 2 < len(word) <= 60]
