"""The archive for everybody: each paper's own page, search, the papers of a day, the most voted of a week."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlmodel import Session

from app import clock
from app.application import Application
from app.errors import InvalidInterest, NotFound
from app.papers import queries
from app.papers.queries import PaperFilter
from app.relevance import query_language
from app.relevance.archive_search import ArchiveSearch, SearchPage
from app.web import paper_cards
from app.web.api.values import Day
from app.web.errors import ErrorPage
from app.web.http_cache import public_page
from app.web.paper_cards import Week
from app.web.security import PUBLIC_REFERRER, visitor
from app.web.templating import page
from app.web.work_limits import Capacity

router = APIRouter(include_in_schema=False)

ON_PAGE = 20
ON_DAY = 50  # on a page
IN_WEEK = 50
RELATED = 5
LAST_PAGE = 100_000
_WEEK = re.compile(r"(\d{4})-W(\d{2})", re.ASCII)
_WITHDRAWN = ErrorPage(
    "This paper was withdrawn",
    "Its authors or its publisher took it back, so it is not shown here any more. Where it was published, "
    "there may be a word on why.",
)


@router.get("/paper/{number}")
def paper(request: Request, number: str, later: BackgroundTasks) -> Response:
    """All that is known of a paper."""
    app: Application = request.app.state.paperboy
    library: ArchiveSearch = request.app.state.library
    asked, now = _id(number), clock.utcnow()
    with app.db.read() as session:
        row = queries.papers(session, [asked]).get(asked)
        if row is None:
            raise NotFound("No paper has this number.")
        if row.withdrawn_at:
            return page(request, "error.html", status=404, trouble=_WITHDRAWN, said=row.title, number=404)
        if number != str(row.id):
            # Not for ever: an operator may part them again.
            return RedirectResponse(f"/paper/{row.id}", status_code=307)
        _keep_up(library, session, now, later)
    return public_page(request, ("paper", number), lambda: _sheet(request, asked))


def _sheet(request: Request, number: int) -> Response:
    app: Application = request.app.state.paperboy
    library: ArchiveSearch = request.app.state.library
    with app.db.read() as session:
        related = library.related_papers(session, number, RELATED)
        sheet = paper_cards.sheet(session, number, related, clock.utcnow())
    return page(request, "paper.html", sheet=sheet)


def _id(text: str) -> int:
    """An id that a row may have; 0, which none has, for everything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _page(text: str) -> int:
    """Which page; the first for what is none."""
    return min(max(_id(text), 1), LAST_PAGE)


@dataclass(frozen=True, slots=True)
class Typed:
    """A search as it was typed."""

    q: str = ""
    day: str = ""
    source: str = ""
    code: str = ""
    page: str = ""

    @property
    def words(self) -> dict[str, str]:
        """What leads to this search again, without the page."""
        fields = {"q": self.q, "day": self.day, "source": self.source, "code": self.code}
        return {name: value for name, value in fields.items() if value}

    @property
    def number(self) -> int:
        """Which page; the first for what is none."""
        return _page(self.page)


@dataclass(frozen=True, slots=True)
class Read:
    """What a search asks for, or what is wrong with it."""

    query: query_language.Query | None
    only: PaperFilter
    problems: dict[str, str]


def read(typed: Typed, sources: Sequence[str]) -> Read:
    """Understand a search. Without words all papers are meant."""
    problems, query, day = {}, None, None
    try:
        query = query_language.parse(typed.q) if typed.q.strip() else None
    except InvalidInterest as error:
        problems["q"] = str(error)
    try:
        day = date.fromisoformat(typed.day) if typed.day else None
    except ValueError:
        problems["day"] = "Please write the day as 2026-11-20."
    if typed.source and typed.source not in sources:
        problems["source"] = "There is no source of this name."
    return Read(query, PaperFilter(day, typed.source, bool(typed.code)), problems)


def typed(q: str = "", day: str = "", source: str = "", code: str = "", page: str = "") -> Typed:
    return Typed(q, day.strip(), source, code, page)


@router.get("/search")
def search(request: Request, form: Annotated[Typed, Depends(typed)], later: BackgroundTasks) -> Response:
    """What the archive has on something; what names one paper leads to its page."""
    app: Application = request.app.state.paperboy
    library: ArchiveSearch = request.app.state.library
    now, found, missing = clock.utcnow(), SearchPage((), 0), ""
    capacity: Capacity = request.app.state.capacity
    if form.q.strip():
        capacity.search_limit.hit(visitor(request))
    with app.db.read() as session:
        try:
            if number := queries.find_by_reference(session, form.q):
                return RedirectResponse(f"/paper/{number}", status_code=303)
        except NotFound as error:
            missing = str(error)
        empty, sources = queries.is_empty(session), queries.source_names(session)
        asked = read(form, sources)
        if not asked.problems:
            _keep_up(library, session, now, later)
    if not (asked.problems or missing):
        with capacity.searches.take():
            found = library.search(asked.query, asked.only, (form.number - 1) * ON_PAGE, ON_PAGE)
    return page(
        request, "search.html", status=422 if asked.problems else 200, headers=PUBLIC_REFERRER, form=form,
        problems=asked.problems, missing=missing, empty=empty, sources=sources, found=found,
        cards=paper_cards.cards(found.papers, now), pages=math.ceil(found.total / ON_PAGE),
        first=(form.number - 1) * ON_PAGE + 1,
    )  # fmt: skip


def _keep_up(library: ArchiveSearch, session: Session, now: datetime, later: BackgroundTasks) -> None:
    """After the answer, where the archive has changed: to look at all of it takes seconds."""
    if library.is_outdated(session, now):
        later.add_task(library.refresh)


@router.get("/day")
def newest_day(request: Request) -> Response:
    """To the newest day of which there are papers."""
    day = _newest(request)
    return RedirectResponse(f"/day/{day}", status_code=302) if day else page(request, "empty.html")


@router.get("/week")
def newest_week(request: Request) -> Response:
    """To the newest week of which there are papers."""
    day = _newest(request)
    if day is None:
        return page(request, "empty.html")
    return RedirectResponse(f"/week/{paper_cards.week_of(day)}", status_code=302)


def _newest(request: Request) -> date | None:
    app: Application = request.app.state.paperboy
    with app.db.read() as session:
        return paper_cards.latest(session)


@router.get("/day/{day}")
def one_day(request: Request, day: Day, number: Annotated[str, Query(alias="page")] = "") -> Response:
    """All papers of a day, page by page."""
    place = _page(number)
    return public_page(request, ("day", str(day), str(place)), lambda: _day(request, day, place))


def _day(request: Request, day: date, place: int) -> Response:
    app: Application = request.app.state.paperboy
    with app.db.read() as session:
        shown = paper_cards.of_day(session, day, ON_DAY, clock.utcnow(), place)
    words = f"{day:%A}, {day.day} {day:%B %Y}"
    if not shown.total:
        raise NotFound(f"No paper was listed on {words}.")
    if not shown.cards:
        pages = "is only one page" if shown.pages == 1 else f"are only {shown.pages} pages"
        raise NotFound(f"There {pages} of {words}.")
    return page(request, "day.html", shown=shown)


@router.get("/week/{name}")
def one_week(request: Request, name: str) -> Response:
    """The most voted of a week."""
    week = _week(name)
    return public_page(request, ("week", str(week)), lambda: _of_week(request, week))


def _of_week(request: Request, week: Week) -> Response:
    app: Application = request.app.state.paperboy
    with app.db.read() as session:
        shown = paper_cards.of_week(session, week, IN_WEEK, clock.utcnow())
    if not shown.total:
        raise NotFound(f"No paper was listed in week {week.number} of {week.year}.")
    return page(request, "week.html", shown=shown)


def _week(name: str) -> Week:
    """A week of the calendar, or NotFound."""
    written = _WEEK.fullmatch(name)
    try:
        week = Week(*map(int, written.groups())) if written else None
        if week and week.first <= week.last:
            return week
    except (ValueError, OverflowError):
        pass
    raise NotFound("There is no such week. One is written as 2026-W47.")
