"""Atom and JSON feeds: trending papers, a day's papers, an interest, and a subscriber's own digests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Request, Response
from jinja2 import Environment
from sqlmodel import Session

from app import clock, pipeline, subscribers
from app.delivery import ledger
from app.errors import InvalidInterest, NotFound
from app.links import Purpose
from app.papers import canonical_rows, listing_days, paper_views
from app.relevance.query_language import normalize
from app.storage.models import Paper
from app.types import Digest, DigestItem, Interest
from app.web import feed_formats, http_cache, paper_cards, preview
from app.web.api.values import Day
from app.web.feed_formats import Feed, FeedEntry
from app.web.http_cache import CachedResponse, ResponseCache
from app.web.link_access import PRIVATE, SignedLink, allows
from app.web.site_state import application, capacity, db
from app.web.visitors import visitor

router = APIRouter(include_in_schema=False)

MAX_ENTRIES = 100
TRENDING_DAYS, PAPERS_PER_DAY = 7, 20  # in the feed of trending papers
INTEREST_DAYS = preview.DAYS - 1  # in the feed for an interest, as in a preview
MAX_DIGESTS = 60  # in a subscriber's own feed

Own = Annotated[SignedLink, allows(Purpose.FEED)]


@dataclass(frozen=True, slots=True)
class FeedItem:
    """A paper in a feed, with the interest and the time of its entry."""

    item: DigestItem
    shown_at: datetime  # when this version of the entry appeared
    interest: str = ""
    sent: bool = False  # in a digest; the entry then keeps the date and text of the digest


@dataclass(frozen=True, slots=True)
class FeedInfo:
    """The title, description and paths of a feed. `path` has no file extension."""

    title: str
    description: str
    path: str
    home: str = "/"
    query: str = ""
    ranked: bool = False  # entries are sorted by votes; otherwise, newest first


@router.get("/feed.atom")
@router.get("/feed.json")
def trending(request: Request, interest: str = "") -> Response:
    """Return the feed of trending papers, or of papers from the last two weeks that match an interest."""
    state, text, now = request.app.state, normalize(interest), clock.utcnow()
    if text:
        return _cached(request, state.match_cache, now, partial(_build_interest, request, text, now), text)
    return _cached(request, state.feed_cache, now, partial(_build_trending, request, now))


@router.get("/day/{day}/feed.atom")
@router.get("/day/{day}/feed.json")
def day_feed(request: Request, day: Day) -> Response:
    now = clock.utcnow()
    return _cached(request, request.app.state.feed_cache, now, partial(_build_day, request, day, now))


def _cached(
    request: Request, cache: ResponseCache, now: datetime, build: Callable[[], CachedResponse], text: str = ""
) -> Response:
    response = cache.get_or_build((request.url.path, text), now, build)
    headers = {"Cache-Control": f"public, max-age={int(cache.keep.total_seconds())}"}
    return http_cache.conditional_response(request, response, headers)


def _build_day(request: Request, day: date, now: datetime) -> CachedResponse:
    day_text = f"{day:%A}, {day.day} {day:%B %Y}"
    with db(request).read() as session:
        listed = paper_cards.papers_of_day(session, day, MAX_ENTRIES, now)
        if not listed.total:
            raise NotFound(f"No paper was listed on {day_text}.")
        order = ", most votes first" if listed.cards[0].paper.upvotes else ""
        description, path = f"The papers from {day_text}{order}.", f"/day/{day}"
        info = FeedInfo(day_text, description, f"{path}/feed", path, ranked=True)
        return _build_feed(request, session, info, [_card_item(card, day) for card in listed.cards], now)


@router.get("/feed/{token}")
@router.get("/feed/{token}.json")
def own_feed(request: Request, link: Own) -> Response:
    """Return a feed of the papers in a subscriber's digests, newest first."""
    app, now = application(request), clock.utcnow()
    with capacity(request).searches.take(), app.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
        info = FeedInfo("your papers", "The papers in your digests.", request.url.path.removesuffix(".json"))
        pauses = ledger.pauses(session)
        delivered = [  # papers of undelivered digests appear in later digests
            delivery
            for delivery in subscribers.history(session, subscriber.id or 0, MAX_DIGESTS)
            if delivery.state not in ledger.UNDELIVERED and ledger.is_released(pauses, delivery, now)
        ]
        digests = ledger.restored_digests(session, [delivery.id for delivery in delivered], app.snapshots)
        hidden = canonical_rows.hidden(session)
        items = [
            item
            for row in delivered
            if (digest := digests.get(row.id or 0))
            for item in _digest_items(digest, row.due_at, sent=True)
            if item.item.paper_id not in hidden
        ]
        response = _build_feed(request, session, info, items, now)
    return http_cache.conditional_response(request, response, PRIVATE)


def _build_trending(request: Request, now: datetime) -> CachedResponse:
    info = FeedInfo("trending papers", "The most discussed papers from the last few days.", "/feed")
    with db(request).read() as session:
        items = [
            _card_item(card, day)
            for day, _ in listing_days.latest(session, TRENDING_DAYS)
            for card in paper_cards.papers_of_day(session, day, PAPERS_PER_DAY, now).cards
        ]
        return _build_feed(request, session, info, items, now)


def _build_interest(request: Request, text: str, now: datetime) -> CachedResponse:
    app = application(request)
    capacity(request).visitors.feeds.hit(visitor(request))
    try:
        with capacity(request).feeds.take():
            first_day = now.date() - timedelta(days=INTEREST_DAYS)
            editions = pipeline.backtest(app, now, [Interest(text)], INTEREST_DAYS, first_day=first_day)
    except InvalidInterest as error:
        raise HTTPException(400, str(error)) from None
    items = [
        item
        for edition in reversed(editions)
        if isinstance(edition.digest, Digest)
        for item in _digest_items(edition.digest, edition.at)
    ]
    description = "Papers from the last two weeks that match, each with the reason."
    home, query = "/search?" + urlencode({"q": text}), "?" + urlencode({"interest": text})
    info = FeedInfo(text, description, "/feed", home, query)
    with app.db.read() as session:
        # Use the current votes, as in the feed of trending papers. Past editions have the votes of their day.
        papers = paper_views.by_ids(session, {item.item.paper_id for item in items})
        trends = {card.paper.id: card.trend.words for card in paper_cards.cards(papers, now)}
        items = [
            replace(item, item=replace(item.item, trend=trends.get(item.item.paper_id, ""))) for item in items
        ]
        return _build_feed(request, session, info, items, now)


def _digest_items(digest: Digest, at: datetime, *, sent: bool = False) -> Iterator[FeedItem]:
    for section in digest.sections:
        for item in section.picks:
            yield FeedItem(item, at, section.interest, sent)


def _card_item(card: paper_cards.PaperCard, day: date) -> FeedItem:
    paper = card.paper
    item = DigestItem(
        paper.id, paper.title, card.authors, card.summary, "", card.trend.words, paper.url, paper.pdf_url,
        paper.code_url, paper.project_url, summary_by=paper.tldr_by, organization=paper.organization,
        comments=paper.comments, stars=paper.stars, submitted_by=paper.submitted_by,
    )  # fmt: skip
    return FeedItem(item, paper.votes[-1].at if paper.votes else _midnight(day))


def _build_feed(
    request: Request, session: Session, info: FeedInfo, items: Sequence[FeedItem], now: datetime
) -> CachedResponse:
    """Serialize a feed in the format given by the path of the request."""
    app, in_json = application(request), request.url.path.endswith(".json")
    papers = canonical_rows.papers(session, {item.item.paper_id for item in items})
    originals = canonical_rows.original_ids(session, {paper.id or 0 for paper in papers.values()})
    entries, listed = [], set[int | None]()
    for item in items:
        paper = papers.get(item.item.paper_id)
        number = paper.id if paper else item.item.paper_id  # papers may be merged after they were sent
        if number not in listed:
            permanent = item.item.paper_id if item.sent else originals.get(number or 0, number)
            entries.append(_entry(request, item, paper, permanent))
        listed.add(number)
    if not info.ranked:
        entries.sort(key=lambda entry: entry.published, reverse=True)
    updated = max((entry.updated for entry in entries[:MAX_ENTRIES]), default=_midnight(now.date()))
    # A subscriber's own Atom feed has no extension, because its URL is the signed link.
    extension = ".json" if in_json else "" if info.path.startswith(f"/{Purpose.FEED}/") else ".atom"
    feed = Feed(
        url=f"{app.settings.base_url}{info.path}{extension}{info.query}",
        home=app.settings.base_url + info.home,
        title=f"{app.settings.site_name}: {info.title}",
        about=info.description,
        publisher=app.settings.site_name,
        updated=updated,
        entries=tuple(entries[:MAX_ENTRIES]),
    )
    body = feed_formats.json_feed(feed) if in_json else feed_formats.atom(feed)
    media = feed_formats.JSON if in_json else f"{feed_formats.ATOM}; charset=utf-8"
    return CachedResponse(body, media)


def _entry(request: Request, feed_item: FeedItem, paper: Paper | None, permanent: int | None) -> FeedEntry:
    """Return a feed entry. If the paper has been deleted, use the data that the digest stored about it.

    `permanent` is the number of the paper in the id of the entry: feed readers list an entry with another id
    as new. It stays the same if the paper is merged with a later row, such as its arXiv version.
    """
    item, at = feed_item.item, feed_item.shown_at
    listed = _midnight(paper.first_listed_on) if paper and paper.first_listed_on else at
    templates: Environment = request.app.state.templates
    base_url = application(request).settings.base_url
    return FeedEntry(
        id=f"{base_url}/paper/{permanent}",
        url=f"{base_url}/paper/{item.paper_id}",
        title=item.title,
        summary=item.summary,
        content=templates.get_template("feed_entry.html").render(item=item),
        published=at if feed_item.sent else listed,
        updated=at if feed_item.sent or not paper else paper.updated_at,
        authors=tuple(paper.authors) if paper else (item.authors,),
        tags=(*(paper.categories if paper else ()), feed_item.interest),
        source=item.url,
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
