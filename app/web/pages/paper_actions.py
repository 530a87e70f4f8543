"""What readers ask for from a card of their mail: to mute a word of it, to follow one of its authors.

GET shows a page with one button; POST acts, and twice is once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from sqlmodel import Session

from app import clock, subscribers
from app.errors import InvalidInput, NotFound
from app.links import Grant, Purpose
from app.papers import queries
from app.relevance import query_language
from app.storage.models import Paper
from app.types import Interest
from app.web.forms import Text
from app.web.request_bodies import FormRoute
from app.web.signed_links import allows, db, page

router = APIRouter(include_in_schema=False, route_class=FormRoute)

AUTHORS_SHOWN = 30  # of a paper; the last one is always among them

Opine = Annotated[Grant, allows(Purpose.FEEDBACK)]
Number = Annotated[int, Path(ge=0, lt=2**31)]  # as large as a paper's id can be in PostgreSQL


# --- a word


@router.get("/opinion/{token}/mute/{paper}")
def ask_mute(request: Request, grant: Opine, paper: Number) -> Response:
    return _muting(request, grant, paper)


@router.post("/opinion/{token}/mute/{paper}")
def mute(
    request: Request, grant: Opine, paper: Number, word: Text = "", other: Text = "", action: Text = ""
) -> Response:
    """Mute what was chosen and what was typed; or take it back."""
    texts = [text for text in map(query_language.normalise, (word, other)) if text]
    try:
        if not texts:
            raise InvalidInput("Choose a word, or type one.", "word")
        change = subscribers.unmute if action == "undo" else subscribers.mute
        with db(request).write() as session:
            change(session, grant.subscriber_id, texts, clock.utcnow())
    except InvalidInput as error:
        return _muting(request, grant, paper, problem=str(error), picked=word, typed=other, status=422)
    if action == "undo":
        return _muting(request, grant, paper, undone=texts)
    return page(request, "muted.html", texts=texts)


def _muting(request: Request, grant: Grant, number: int, *, status: int = 200, **said: Any) -> Response:
    with db(request).read() as session:
        paper = _paper(session, number)
        chosen = subscribers.preferences_of(session, subscribers.get(session, grant.subscriber_id))
    words = query_language.mute_suggestions(paper.title, paper.abstract, paper.keywords, chosen.interests)
    values = {"problem": "", "picked": "", "typed": "", "undone": (), **said}
    return page(request, "mute.html", status=status, paper=paper, words=words, muted=chosen.muted, **values)


# --- an author


@router.get("/opinion/{token}/follow/{paper}")
def ask_follow(request: Request, grant: Opine, paper: Number) -> Response:
    return _following(request, grant, paper)


@router.post("/opinion/{token}/follow/{paper}")
def follow(request: Request, grant: Opine, paper: Number, author: Text = "", action: Text = "") -> Response:
    """Follow one of the paper's authors, or take that back."""
    try:
        change = subscribers.unfollow if action == "undo" else subscribers.follow
        with db(request).write() as session:
            if action != "undo" and author not in _paper(session, paper).authors:
                raise InvalidInput("Choose one of the authors.", "author")
            change(session, grant.subscriber_id, author, clock.utcnow())
    except InvalidInput as error:
        return _following(request, grant, paper, problem=str(error), status=422)
    if action == "undo":
        return _following(request, grant, paper, undone=author)
    return page(request, "followed.html", author=author)


def _following(request: Request, grant: Grant, number: int, *, status: int = 200, **said: Any) -> Response:
    with db(request).read() as session:
        paper = _paper(session, number)
        chosen = subscribers.preferences_of(session, subscribers.get(session, grant.subscriber_id))
    names = [name for name in dict.fromkeys(paper.authors) if query_language.query_for("author", name)]
    shown = names if len(names) <= AUTHORS_SHOWN else [*names[: AUTHORS_SHOWN - 1], names[-1]]
    values = {"followed": followed(shown, chosen.interests), "problem": "", "undone": "", **said}
    return page(request, "follow.html", status=status, paper=paper, authors=shown, **values)


def followed(names: Iterable[str], interests: Iterable[Interest]) -> list[str]:
    """Those of these authors who are an interest by themselves."""
    wanted = {wish.text.casefold() for wish in interests}
    return [name for name in names if query_language.query_for("author", name).casefold() in wanted]


def _paper(session: Session, number: int) -> Paper:
    known = queries.papers(session, [number]).get(number)
    if known is None:
        raise NotFound("This paper is not in the archive any more.")
    return known
