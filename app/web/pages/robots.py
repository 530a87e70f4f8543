"""robots.txt and the sitemap, for search engines."""

from __future__ import annotations

from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, tostring

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from sqlmodel import col, func, select

from app import clock
from app.application import Application
from app.papers import queries
from app.storage.models import Listing, Paper
from app.web import http_cache, paper_cards
from app.web.http_cache import CachedResponse, ResponseCache

router = APIRouter(include_in_schema=False)

MAX_URLS = 50_000  # the limit of the sitemap protocol
HOURLY = {"Cache-Control": "public, max-age=3600"}
# Searches and feeds for interests are expensive, and their papers have their own pages. The rest is for
# machines. Signed links are not listed here: a crawler that may not fetch a link does not see its noindex
# header, and may index it.
DISALLOWED = (
    "/search", "/feed.atom?interest=", "/feed.json?interest=",
    "/api/", "/hooks/", "/metrics", "/suggest",
)  # fmt: skip


@router.get("/robots.txt")
def robots(request: Request) -> Response:
    app: Application = request.app.state.paperboy
    rules = "".join(f"Disallow: {path}\n" for path in DISALLOWED)
    text = f"User-agent: *\n{rules}\nSitemap: {app.settings.base_url}/sitemap.xml\n"
    return PlainTextResponse(text, headers=HOURLY)


@router.get("/sitemap.xml")
def sitemap(request: Request) -> Response:
    """List the front page, all days and weeks, and as many papers as fit, newest first."""
    app: Application = request.app.state.paperboy
    cache: ResponseCache = request.app.state.feed_cache
    response = cache.get_or_build((request.url.path,), clock.utcnow(), lambda: _sitemap(app))
    return http_cache.conditional_response(request, response, HOURLY)


def _sitemap(app: Application) -> CachedResponse:
    listed = select(col(Listing.listed_on), func.max(col(Paper.updated_at)))
    visible = listed.join(Paper, col(Paper.id) == Listing.paper_id).where(*queries.PUBLIC)
    by_day = visible.group_by(col(Listing.listed_on)).order_by(col(Listing.listed_on).desc())
    papers = select(col(Paper.id), col(Paper.updated_at)).order_by(col(Paper.id).desc())
    papers = papers.where(col(Paper.merged_into_id).is_(None), *queries.PUBLIC)
    with app.db.read() as session:
        changes = dict(session.exec(by_day).all())  # day → when any of its papers last changed
        pages = [("/", max(changes.values(), default=clock.utcnow()))]
        pages += [(f"/day/{day}", at) for day, at in changes.items()]
        for week, days in groupby(changes, paper_cards.week_of):
            pages.append((f"/week/{week}", max(changes[day] for day in days)))
        pages = pages[:MAX_URLS]
        newest = session.exec(papers.limit(MAX_URLS - len(pages)))
        pages += [(f"/paper/{number}", at) for number, at in newest]

    root = Element("urlset", {"xmlns": "http://www.sitemaps.org/schemas/sitemap/0.9"})
    for path, at in pages:
        url = SubElement(root, "url")
        SubElement(url, "loc").text = app.settings.base_url + path
        SubElement(url, "lastmod").text = f"{at:%Y-%m-%d}"
    body = bytes(tostring(root, encoding="utf-8", xml_declaration=True))
    return CachedResponse(body, "application/xml")
