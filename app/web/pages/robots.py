"""robots.txt and the sitemap, for search engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, tostring

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from sqlmodel import Session, col, func, select

from app import clock
from app.application import Application
from app.storage.models import Listing, Paper
from app.web import http_cache, paper_cards
from app.web.http_cache import CachedResponse, ResponseCache

router = APIRouter(include_in_schema=False)

MAX_URLS = 50_000  # the limit of the sitemap protocol
HOURLY = {"Cache-Control": "public, max-age=3600"}
# Searches and feeds of interests cost work, and their papers have their own pages. The rest is for machines.
# Signed links are not listed: a crawler that may not fetch one does not see its noindex, and may list it.
DISALLOWED = (
    "/search", "/feed.atom?interest=", "/feed.json?interest=",
    "/api/", "/hooks/", "/metrics", "/suggest",
)  # fmt: skip

Page = tuple[str, datetime]  # its path, and when it last changed


@router.get("/robots.txt")
def robots(request: Request) -> Response:
    app: Application = request.app.state.paperboy
    rules = "".join(f"Disallow: {path}\n" for path in DISALLOWED)
    text = f"User-agent: *\n{rules}\nSitemap: {app.settings.base_url}/sitemap.xml\n"
    return PlainTextResponse(text, headers=HOURLY)


@router.get("/sitemap.xml")
def sitemap(request: Request) -> Response:
    """List the front page, every day and week, and as many papers as fit, newest first."""
    app: Application = request.app.state.paperboy
    cache: ResponseCache = request.app.state.feed_cache
    response = cache.get_or_build((request.url.path,), clock.utcnow(), lambda: _sitemap(app))
    return http_cache.conditional_response(request, response, HOURLY)


def _sitemap(app: Application) -> CachedResponse:
    with app.db.read() as session:
        days = _days(session)
        newest = max(days.values(), default=clock.utcnow())
        listed = [(f"/day/{day}", at) for day, at in days.items()]
        pages = [("/", newest), *listed, *_weeks(days)][:MAX_URLS]
        pages += _papers(session, MAX_URLS - len(pages))
    return CachedResponse(_serialize(app.settings.base_url, pages), "application/xml")


def _days(session: Session) -> dict[date, datetime]:
    """Return for each day when any of its papers last changed, newest day first."""
    listed = select(col(Listing.listed_on), func.max(col(Paper.updated_at)))
    shown = listed.join(Paper, col(Paper.id) == Listing.paper_id).where(col(Paper.withdrawn_at).is_(None))
    newest = shown.group_by(col(Listing.listed_on)).order_by(col(Listing.listed_on).desc())
    return dict(session.exec(newest).all())


def _weeks(days: Mapping[date, datetime]) -> Iterator[Page]:
    for week, of_week in groupby(days, paper_cards.week_of):
        yield f"/week/{week}", max(days[day] for day in of_week)


def _papers(session: Session, limit: int) -> Iterator[Page]:
    statement = select(col(Paper.id), col(Paper.updated_at))
    statement = statement.where(col(Paper.merged_into_id).is_(None), col(Paper.withdrawn_at).is_(None))
    for number, at in session.exec(statement.order_by(col(Paper.id).desc()).limit(limit)):
        yield f"/paper/{number}", at


def _serialize(base_url: str, pages: Iterable[Page]) -> bytes:
    """Serialize pages in the sitemap protocol 0.9."""
    root = Element("urlset", {"xmlns": "http://www.sitemaps.org/schemas/sitemap/0.9"})
    for path, at in pages:
        url = SubElement(root, "url")
        SubElement(url, "loc").text = base_url + path
        SubElement(url, "lastmod").text = f"{at:%Y-%m-%d}"
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))
