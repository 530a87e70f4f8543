"""What feed readers get: the papers of the last days, of one day, of an interest, of a reader's digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Request, Response
from jinja2 import Environment
from sqlmodel import Session

from app import clock, pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.errors import InvalidInterest, NotFound
from app.links import Grant, Purpose
from app.papers import queries
from app.relevance.query_language import normalise
from app.storage.models import Paper, Subscriber
from app.types import Digest, DigestItem, Interest
from app.web import feed_formats, http_cache, paper_cards, preview
from app.web.api.values import Day
from app.web.feed_formats import Entry, Feed
from app.web.http_cache import CachedResponse, ResponseCache
from app.web.security import visitor
from app.web.signed_links import PRIVATE, allows
from app.web.work_limits import Capacity

router = APIRouter(include_in_schema=False)

MOST = 100  # entries
DAYS, OF_A_DAY = 7, 20  # of what is trending
BACK = preview.DAYS - 1  # days of an interest: what a preview looks back on is laid out alike
DIGESTS = 60  # of a reader
PUBLIC = {"Cache-Control": "public, max-age=900"}

Own = Annotated[Grant, allows(Purpose.FEED)]


@dataclass(frozen=True, slots=True)
class FeedItem:
    """A paper of a feed, and how it came there."""

    pick: DigestItem
    shown_at: datetime  # since when it is shown as it is
    interest: str = ""
    sent: bool = False  # by a digest, whose date and words it keeps


@dataclass(frozen=True, slots=True)
class FeedInfo:
    """What a feed says of itself. Its path is the Atom feed's, without the ending."""

    title: str
    words: str
    path: str
    home: str = "/"
    query: str = ""
    ranked: bool = False  # by votes; otherwise the newest come first


@router.get("/feed.atom")
@router.get("/feed.json")
def trending(request: Request, interest: str = "") -> Response:
    """What is trending; or, of the last two weeks, what fits an interest."""
    kept: ResponseCache = request.app.state.kept
    text, now = normalise(interest), clock.utcnow()
    make = partial(_of_interest, request, text, now) if text else partial(_of_last_days, request, now)
    made = kept.of((request.url.path, text), now, make)
    return http_cache.conditional_response(request, made, PUBLIC)


@router.get("/day/{day}/feed.atom")
@router.get("/day/{day}/feed.json")
def one_day(request: Request, day: Day) -> Response:
    """The papers of a day."""
    kept: ResponseCache = request.app.state.kept
    now = clock.utcnow()
    made = kept.of((request.url.path,), now, lambda: _of_day(request, day, now))
    return http_cache.conditional_response(request, made, PUBLIC)


def _of_day(request: Request, day: date, now: datetime) -> CachedResponse:
    words = f"{day:%A}, {day.day} {day:%B %Y}"
    with _app(request).db.read() as session:
        shown = paper_cards.of_day(session, day, MOST, now)
        if not shown.total:
            raise NotFound(f"No paper was listed on {words}.")
        said, path = f"The papers of {words}, most votes first.", f"/day/{day}"
        about = FeedInfo(words, said, f"{path}/feed", path, ranked=True)
        return _made(request, session, about, [_of_card(card, day) for card in shown.cards], now)


@router.get("/feed/{token}")
@router.get("/feed/{token}.json")
def own(request: Request, grant: Own) -> Response:
    """What a reader's own digests brought, the newest first."""
    app, now = _app(request), clock.utcnow()
    slots: Capacity = request.app.state.capacity
    with slots.searches.take(), app.db.read() as session:
        reader = subscribers.get(session, grant.subscriber_id)
        about = FeedInfo("your papers", "The papers of your digests.", request.url.path.removesuffix(".json"))
        made = _made(request, session, about, [*_sent(app, session, reader, now)], now)
    return http_cache.conditional_response(request, made, PRIVATE)


def path_of(app: Application, reader: Subscriber) -> str:
    """Where a reader's own feed is: the same for as long as their links live."""
    number, at = reader.id or 0, reader.created_at
    return f"/{Purpose.FEED}/{app.signer.token(Purpose.FEED, number, at, epoch=reader.link_epoch)}"


def _of_last_days(request: Request, now: datetime) -> CachedResponse:
    about = FeedInfo("trending papers", "The most discussed papers of each of the last days.", "/feed")
    with _app(request).db.read() as session:
        choices = [
            _of_card(card, day)
            for day, _ in queries.days(session, DAYS)
            for card in paper_cards.of_day(session, day, OF_A_DAY, now).cards
        ]
        return _made(request, session, about, choices, now)


def _of_interest(request: Request, text: str, now: datetime) -> CachedResponse:
    app = _app(request)
    limits: Capacity = request.app.state.capacity
    limits.feed_limit.hit(visitor(request))
    try:
        with limits.pastes.take():
            editions = pipeline.backtest(app, now, [Interest(text)], BACK)
    except InvalidInterest as error:
        raise HTTPException(400, str(error)) from None
    brought = [(each.digest, each.at) for each in reversed(editions) if isinstance(each.digest, Digest)]
    choices = [choice for digest, at in brought for choice in _of_digest(digest, at)]
    words = "The papers of the last two weeks that fit, each with the reason."
    home, query = "/search?" + urlencode({"q": text}), "?" + urlencode({"interest": text})
    about = FeedInfo(text, words, "/feed", home, query)
    with app.db.read() as session:
        return _made(request, session, about, choices, now)


def _sent(app: Application, session: Session, reader: Subscriber, now: datetime) -> Iterator[FeedItem]:
    """Not what is composed ahead of its hour, nor what never left: a later digest brings those papers."""
    due = [
        delivery
        for delivery in subscribers.history(session, reader.id or 0, DIGESTS)
        if delivery.due_at <= now and delivery.state not in ledger.UNDELIVERED
    ]
    kept = ledger.stored_digests(session, [delivery.id for delivery in due])
    times = [(kept[number], row.due_at) for row in due if (number := row.id or 0) in kept]
    read = app.snapshots.restore(session, [digest for digest, _ in times])
    for (_, at), restored in zip(times, read, strict=True):
        yield from _of_digest(restored.digest, at, sent=True)


def _of_digest(digest: Digest, at: datetime, *, sent: bool = False) -> Iterator[FeedItem]:
    for section in digest.sections:
        for pick in section.picks:
            yield FeedItem(pick, at, section.interest, sent)


def _of_card(card: paper_cards.PaperCard, day: date) -> FeedItem:
    paper = card.paper
    pick = DigestItem(
        paper.id, paper.title, card.authors, card.summary, "", card.trend, paper.url, paper.pdf_url,
        paper.code_url, paper.project_url, summary_by=paper.tldr_by,
    )  # fmt: skip
    return FeedItem(pick, paper.votes[-1].at if paper.votes else _midnight(day))


def _made(
    request: Request, session: Session, about: FeedInfo, choices: Sequence[FeedItem], now: datetime
) -> CachedResponse:
    """The feed in the format of the path."""
    app, in_json = _app(request), request.url.path.endswith(".json")
    entries = [_entry(request, choice, paper) for choice, paper in _once(session, choices)]
    if not about.ranked:
        entries.sort(key=lambda entry: entry.published, reverse=True)
    updated = max((entry.updated for entry in entries[:MOST]), default=_midnight(now.date()))
    feed = Feed(
        url=app.settings.base_url + _self(about, in_json),
        home=app.settings.base_url + about.home,
        title=f"{app.settings.site_name}: {about.title}",
        about=about.words,
        publisher=app.settings.site_name,
        updated=updated,
        entries=tuple(entries[:MOST]),
    )
    body = feed_formats.json_feed(feed) if in_json else feed_formats.atom(feed)
    media = feed_formats.JSON if in_json else f"{feed_formats.ATOM}; charset=utf-8"
    return CachedResponse(body, media)


def _once(session: Session, choices: Sequence[FeedItem]) -> Iterator[tuple[FeedItem, Paper | None]]:
    """Each paper as it was chosen last, and as it is known today: digests may show one that was two then."""
    papers = queries.papers(session, {choice.pick.paper_id for choice in choices})
    had: set[int | None] = set()
    for choice in choices:
        paper = papers.get(choice.pick.paper_id)
        number = paper.id if paper else choice.pick.paper_id
        if number not in had:
            yield choice, paper
        had.add(number)


def _self(about: FeedInfo, in_json: bool) -> str:
    """A reader's own Atom feed has no ending: it is the link itself."""
    ending = ".json" if in_json else "" if about.path.startswith(f"/{Purpose.FEED}/") else ".atom"
    return f"{about.path}{ending}{about.query}"


def _entry(request: Request, choice: FeedItem, paper: Paper | None) -> Entry:
    """A paper that is not in the archive any more is told as far as its digest tells it."""
    pick, at = choice.pick, choice.shown_at
    listed = _midnight(paper.first_listed_on) if paper and paper.first_listed_on else at
    templates: Environment = request.app.state.templates
    return Entry(
        url=f"{_app(request).settings.base_url}/paper/{pick.paper_id}",
        title=pick.title,
        summary=pick.summary,
        content=templates.get_template("entry.html").render(pick=pick),
        published=at if choice.sent else listed,
        updated=at if choice.sent or not paper else paper.updated_at,
        authors=tuple(paper.authors) if paper else (pick.authors,),
        tags=(*(paper.categories if paper else ()), choice.interest),
        source=pick.url,
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _app(request: Request) -> Application:
    app: Application = request.app.state.paperboy
    return app
