"""robots.txt and the sitemaps, for search engines."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Annotated
from xml.sax.saxutils import escape

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import PlainTextResponse
from sqlmodel import Session, col, func, select

from app import clock
from app.application import Application
from app.errors import NotFound
from app.papers import paper_views
from app.storage.models import Listing, Paper
from app.web import http_cache, paper_cards
from app.web.http_cache import CachedResponse, ResponseCache
from app.web.site_state import application, capacity
from app.web.visitors import visitor

router = APIRouter(include_in_schema=False)

MAX_URLS = 50_000  # per sitemap; the limit of the protocol
MAX_PARTS = 50_000  # sitemaps per index; also the limit of the protocol
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
HOURLY = {"Cache-Control": "public, max-age=3600"}
# Searches and feeds for interests are expensive, and their papers have their own pages. The other paths are
# for programs. Signed links are not listed here: a crawler that may not fetch a link does not see its noindex
# header, and may index it.
DISALLOWED = (
    "/search", "/feed.atom?interest=", "/feed.json?interest=",
    "/api/", "/hooks/", "/metrics", "/suggest",
)  # fmt: skip


@router.get("/robots.txt")
def robots(request: Request) -> Response:
    rules = "".join(f"Disallow: {path}\n" for path in DISALLOWED)
    text = f"User-agent: *\n{rules}\nSitemap: {application(request).settings.base_url}/sitemap.xml\n"
    return PlainTextResponse(text, headers=HOURLY)


@router.get("/sitemap.xml")
def sitemap_index(request: Request) -> Response:
    """List the sitemaps: one for the days and weeks, and one for each range of MAX_URLS paper ids."""
    return _cached(request, _index)


@router.get("/sitemap/days.xml")
def sitemap_of_days(request: Request) -> Response:
    """List the front page and all days and weeks, newest first."""
    return _cached(request, _days)


@router.get("/sitemap/papers-{part}.xml")
def sitemap_of_papers(request: Request, part: Annotated[int, Path(ge=0, le=MAX_PARTS)]) -> Response:
    """List the public papers in one part of the sitemap."""
    return _cached(request, partial(_papers, part=part))


def _cached(request: Request, build: Callable[[Application], CachedResponse]) -> Response:
    """Return a sitemap. Building it counts toward the visitor's rate limit for pages."""
    cache: ResponseCache = request.app.state.sitemap_cache

    def build_counted() -> CachedResponse:
        capacity(request).visitors.pages.hit(visitor(request))
        return build(application(request))

    response = cache.get_or_build((request.url.path,), clock.utcnow(), build_counted)
    return http_cache.conditional_response(request, response, HOURLY)


def _index(app: Application) -> CachedResponse:
    with app.db.read() as session:
        parts = _parts(session)
    paths = ["/sitemap/days.xml", *(f"/sitemap/papers-{part}.xml" for part in parts)]
    return _xml(app, "sitemapindex", "sitemap", [(path, None) for path in paths])


def _parts(session: Session) -> range:
    """Return the numbers of the sitemaps of papers."""
    last = session.exec(select(func.max(Paper.id))).one()
    return range(last // MAX_URLS + 1 if last else 0)


def _days(app: Application) -> CachedResponse:
    listed = select(col(Listing.listed_on), func.max(col(Paper.updated_at)))
    visible = listed.join(Paper, col(Paper.id) == Listing.paper_id).where(*paper_views.PUBLIC)
    by_day = visible.group_by(col(Listing.listed_on)).order_by(col(Listing.listed_on).desc())
    with app.db.read() as session:
        changes = dict(session.exec(by_day).all())  # time of the last change to a paper, by day
    pages = [("/", max(changes.values(), default=clock.utcnow()))]
    pages += [(f"/day/{day}", at) for day, at in changes.items()]
    for week, days in groupby(changes, paper_cards.week_of):
        pages.append((f"/week/{week}", max(changes[day] for day in days)))
    return _xml(app, "urlset", "url", pages[:MAX_URLS])


def _papers(app: Application, part: int) -> CachedResponse:
    in_part = col(Paper.id).between(part * MAX_URLS, (part + 1) * MAX_URLS - 1)
    papers = select(col(Paper.id), col(Paper.updated_at)).where(in_part, *paper_views.PUBLIC)
    papers = papers.where(col(Paper.merged_into_id).is_(None)).order_by(col(Paper.id).desc())
    with app.db.read() as session:
        if part not in _parts(session):
            raise NotFound("There is no sitemap with this number.")
        pages = [(f"/paper/{number}", at) for number, at in session.exec(papers)]
    return _xml(app, "urlset", "url", pages)


def _xml(
    app: Application, root_tag: str, tag: str, pages: Iterable[tuple[str, datetime | None]]
) -> CachedResponse:
    base_url = escape(app.settings.base_url)  # the paths need no escaping
    entries = (
        f"<{tag}><loc>{base_url}{path}</loc>{f'<lastmod>{at.date()}</lastmod>' if at else ''}</{tag}>"
        for path, at in pages
    )
    start = f'<?xml version="1.0" encoding="utf-8"?>\n<{root_tag} xmlns="{NAMESPACE}">'
    return CachedResponse(f"{start}{''.join(entries)}</{root_tag}>".encode(), "application/xml")
