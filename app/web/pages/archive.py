"""Public archive pages: a paper and its picture, search, the papers of a day, the most upvoted of a week."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlmodel import Session

from app import clock
from app.errors import InvalidInterest, NotFound, TooManyRequests
from app.papers import archive_lists, canonical_rows, listings, pictures
from app.papers.archive_lists import PaperFilter
from app.relevance import query_language
from app.relevance.archive_search import ArchiveSearch, SearchPage
from app.web import paper_cards
from app.web.errors import ErrorPage, please_wait, with_retry_after
from app.web.http_cache import CachedResponse, conditional_response, public_page
from app.web.paper_cards import Week, WeekPapers
from app.web.security import PUBLIC_REFERRER
from app.web.site_state import application, capacity, db
from app.web.templating import page
from app.web.visitors import visitor

router = APIRouter(include_in_schema=False)

RESULTS_PER_PAGE = 20
ON_DAY = 50  # papers per page
IN_WEEK = 50  # papers per page
RELATED = 5  # papers
MAX_PAGE = 100_000
# Not longer, because proxies serve the picture of a hidden paper until the cached response expires.
FOR_A_WEEK = "public, max-age=604800, immutable"
_WEEK = re.compile(r"(\d{4})-W(\d{2})", re.ASCII)
_WITHDRAWN = ErrorPage(
    "This paper was withdrawn",
    "Its authors or its publisher withdrew it, so we no longer show it. The site that published it may give "
    "the reason.",
)
_HIDDEN = ErrorPage(
    "This paper is not shown here",
    "The operator of this service took it off these pages. You may find it on the site that published it.",
)
_EMPTY_DAY = ErrorPage("No papers on this day", "On weekends and holidays, sources list few papers or none.")
_EMPTY_WEEK = ErrorPage("No papers in this week", "")
_FUTURE_DAY = ErrorPage("No papers on this day yet", "This day has not come yet.")
_FUTURE_WEEK = ErrorPage("No papers in this week yet", "This week has not begun yet.")


class NothingListed(Exception):
    """No paper was listed in this period. `listing` names the days or weeks before and after."""

    def __init__(self, message: str, listing: paper_cards.Day | WeekPapers) -> None:
        super().__init__(message)
        self.listing = listing


@router.get("/paper/{number}")
def paper(request: Request, number: str, later: BackgroundTasks) -> Response:
    """Show a paper with its abstract, votes, listings and related papers."""
    paper_id = _parse_id(number)
    with db(request).read() as session:
        row = canonical_rows.papers(session, [paper_id]).get(paper_id)
        if row is None:
            raise NotFound("No paper has this number.")
        if row.hidden_at:
            return page(request, "error.html", status=410, error=_HIDDEN, detail="", code=410)
        if row.withdrawn_at:
            return page(request, "error.html", status=404, error=_WITHDRAWN, detail=row.title, code=404)
        if number != str(row.id):
            # The redirect is temporary, because an operator may undo the merge.
            return RedirectResponse(f"/paper/{row.id}", status_code=307)
        _renew_if_outdated(request, session, later)
    return public_page(request, ("paper", number), lambda: _build_paper(request, paper_id))


def _build_paper(request: Request, number: int) -> Response:
    search: ArchiveSearch = request.app.state.archive_search
    with db(request).read() as session:
        related = search.related_papers(session, number, RELATED)
        paper_page = paper_cards.paper_page(session, number, related, clock.utcnow())
    return page(request, "paper.html", paper_page=paper_page)


@router.get("/paper/{number}/picture")
def paper_picture(request: Request, number: str, v: str = "") -> Response:
    """Return the stored copy of a paper's picture. Browsers may cache it for a week if `v` is its version."""
    picture = None
    if application(request).settings.pictures:
        capacity(request).visitors.pictures.hit(visitor(request))
        with db(request).read() as session:
            picture = pictures.of_public_paper(session, _parse_id(number))
    if picture is None:
        raise NotFound("There is no picture of this paper here.")
    caching = {"Cache-Control": FOR_A_WEEK if v == picture.version else "no-cache"}
    return conditional_response(request, CachedResponse(picture.data, picture.media_type), caching)


def _parse_id(text: str) -> int:
    """Parse an id. Return 0, which is never an id, if the text is not valid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _parse_page(text: str) -> int:
    """Parse a page number. Return 1 if the text is not valid."""
    return min(max(_parse_id(text), 1), MAX_PAGE)


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The fields of a search, as typed."""

    q: str = ""
    day: str = ""
    source: str = ""
    code: str = ""
    page: str = ""

    @property
    def params(self) -> dict[str, str]:
        """Return the URL parameters of this search, without the page."""
        fields = {"q": self.q, "day": self.day, "source": self.source, "code": self.code}
        return {name: value for name, value in fields.items() if value}

    @property
    def number(self) -> int:
        """Return the page number, from 1."""
        return _parse_page(self.page)


@dataclass(frozen=True, slots=True)
class ParsedSearch:
    """A parsed search, with its errors keyed by field name."""

    query: query_language.Query | None
    paper_filter: PaperFilter
    problems: dict[str, str]


def parse_search(form: SearchForm, sources: Sequence[str]) -> ParsedSearch:
    """Parse a search. A search without a query finds all papers that pass the filters."""
    problems, query, day = {}, None, None
    try:
        query = query_language.parse_typed(form.q, "A search") if form.q.strip() else None
    except InvalidInterest as error:
        problems["q"] = str(error)
    try:
        day = date.fromisoformat(form.day) if form.day else None
    except ValueError:
        problems["day"] = "Please write the day in the form 2026-11-20."
    if form.source and form.source not in sources:
        problems["source"] = "There is no source with this name."
    return ParsedSearch(query, PaperFilter(day, form.source, bool(form.code)), problems)


def search_form(q: str = "", day: str = "", source: str = "", code: str = "", page: str = "") -> SearchForm:
    return SearchForm(q, day.strip(), source, code, page)


@router.get("/search")
def search(
    request: Request, form: Annotated[SearchForm, Depends(search_form)], later: BackgroundTasks
) -> Response:
    """Search the archive. If the query is the id, DOI or URL of a paper, redirect to the paper's page.

    Also redirect if the query cannot be parsed or finds nothing, but is the exact title of a paper.
    If there are too many searches, show the form again with the time to wait.
    """
    try:
        return _search(request, form, later)
    except TooManyRequests as error:
        problem = {"q": please_wait(error, "search again")}
        with db(request).read() as session:
            sources = listings.source_names(session)
        response = _search_page(request, form, 429, problems=problem, sources=sources)
        return with_retry_after(response, error)


def _search(request: Request, form: SearchForm, later: BackgroundTasks) -> Response:
    archive: ArchiveSearch = request.app.state.archive_search
    results, missing = SearchPage((), 0, 0), ""
    first = (form.number - 1) * RESULTS_PER_PAGE
    capacity(request).visitors.searches.hit(visitor(request))
    with db(request).read() as session:
        try:
            base_url = application(request).settings.base_url
            if number := canonical_rows.find_by_reference(session, form.q, base_url):
                return RedirectResponse(f"/paper/{number}", status_code=303)
        except NotFound as error:
            missing = str(error)
        empty, sources = archive_lists.is_empty(session), listings.source_names(session)
        parsed = parse_search(form, sources)
        if not parsed.problems:
            _renew_if_outdated(request, session, later)
    if not (parsed.problems or missing):
        with capacity(request).searches.take():
            try:
                results = archive.search(parsed.query, parsed.paper_filter, first, RESULTS_PER_PAGE)
            except InvalidInterest as error:
                parsed.problems["q"] = str(error)
    cards = paper_cards.cards(results.papers, clock.utcnow(), until=parsed.paper_filter.day)
    with db(request).read() as session:
        may_be_title = not (results.total or missing) and form.params.keys() == {"q"}
        if may_be_title and (number := archive_lists.find_by_title(session, form.q)):
            return RedirectResponse(f"/paper/{number}", status_code=303)
        if cards:
            cards = paper_cards.with_pictures(session, cards)
    return _search_page(
        request, form, 422 if parsed.problems else 200, problems=parsed.problems, missing=missing,
        empty=empty, sources=sources, results=results, first=first + 1,
        best_first=bool(parsed.query and parsed.query.terms),
        cards=cards,
        pages=math.ceil(results.listed / RESULTS_PER_PAGE),
    )  # fmt: skip


def _search_page(request: Request, form: SearchForm, status: int, **values: Any) -> Response:
    newest = paper_cards.newest_day(request)
    topics = newest.topics if newest else ()
    return page(
        request, "search.html", status=status, headers=PUBLIC_REFERRER, form=form, topics=topics, **values
    )


def _renew_if_outdated(request: Request, session: Session, later: BackgroundTasks) -> None:
    """Update the search index after the response if the archive has changed."""
    search: ArchiveSearch = request.app.state.archive_search
    if search.is_outdated(session, clock.utcnow()):
        later.add_task(search.refresh_after_response)


@router.get("/day")
def newest_day(request: Request) -> Response:
    """Redirect to the newest day that has papers."""
    day = _latest_day(request)
    return RedirectResponse(f"/day/{day}", status_code=302) if day else page(request, "empty.html")


@router.get("/week")
def newest_week(request: Request) -> Response:
    """Redirect to the newest week that has papers."""
    day = _latest_day(request)
    if day is None:
        return page(request, "empty.html")
    return RedirectResponse(f"/week/{paper_cards.week_of(day)}", status_code=302)


def _latest_day(request: Request) -> date | None:
    with db(request).read() as session:
        return paper_cards.latest_day(session)


@router.get("/day/{name}")
def day_page(request: Request, name: str, number: Annotated[str, Query(alias="page")] = "") -> Response:
    """Show a page of the papers listed on a day."""
    day, page_number = _parse_day(name), _parse_page(number)
    key = ("day", str(day), str(page_number))
    try:
        return public_page(request, key, lambda: _build_day(request, day, page_number))
    except NothingListed as error:
        is_future = day > clock.utcnow().date()
        return _empty_page(request, _FUTURE_DAY if is_future else _EMPTY_DAY, error)


def _build_day(request: Request, day: date, page_number: int) -> Response:
    with db(request).read() as session:
        listing = paper_cards.papers_of_day(session, day, ON_DAY, clock.utcnow(), page_number, for_page=True)
    _check_page(listing, f"on {_in_words(day)}", _in_words(day))
    return page(request, "day.html", listing=listing)


def _in_words(day: date) -> str:
    return f"{day:%A}, {day.day} {day:%B %Y}"


@router.get("/week/{name}")
def week_page(request: Request, name: str, number: Annotated[str, Query(alias="page")] = "") -> Response:
    """Show a page of the papers listed in a week, most votes first."""
    week, page_number = _parse_week(name), _parse_page(number)
    key = ("week", str(week), str(page_number))
    try:
        return public_page(request, key, lambda: _build_week(request, week, page_number))
    except NothingListed as error:
        is_future = week.first > clock.utcnow().date()
        return _empty_page(request, _FUTURE_WEEK if is_future else _EMPTY_WEEK, error)


def _build_week(request: Request, week: Week, page_number: int) -> Response:
    with db(request).read() as session:
        listing = paper_cards.papers_of_week(session, week, IN_WEEK, clock.utcnow(), page_number)
    words = f"week {week.number} of {week.year}"
    _check_page(listing, f"in {words}", words)
    return page(request, "week.html", listing=listing)


def _check_page(listing: paper_cards.Day | WeekPapers, when: str, name: str) -> None:
    """Raise NothingListed if a listing has no papers, and NotFound if only this page of it has none.

    `when` completes “No paper was listed …”, and `name` completes “pages of …”.
    """
    if not listing.total:
        raise NothingListed(f"No paper was listed {when}.", listing)
    if not listing.cards:
        pages = "is only one page" if listing.pages == 1 else f"are only {listing.pages} pages"
        raise NotFound(f"There {pages} of {name}.")


def _empty_page(request: Request, error: ErrorPage, nothing: NothingListed) -> Response:
    """Return a page that says why there are no papers and links to the days or weeks before and after."""
    return page(
        request, "nothing_listed.html", status=404, code=404, error=error, detail=str(nothing),
        listing=nothing.listing,
    )  # fmt: skip


def _parse_day(name: str) -> date:
    """Parse a day such as 2026-11-20. Raise NotFound if there is no such day."""
    try:
        day = date.fromisoformat(name)
    except ValueError:
        day = None
    if day is None or day.isoformat() != name:
        raise NotFound("This day does not exist. Write a day in the form 2026-11-20.")
    return day


def _parse_week(name: str) -> Week:
    """Parse a week such as 2026-W47. Raise NotFound if there is no such week."""
    match = _WEEK.fullmatch(name)
    try:
        week = Week(*map(int, match.groups())) if match else None
        if week and week.first <= week.last:
            return week
    except (ValueError, OverflowError):
        pass
    raise NotFound("This week does not exist. Write a week in the form 2026-W47.")
