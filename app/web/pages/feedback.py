"""What readers say of papers: by the two links of each card, by pasting, and what was learned from it.

GET shows a page with one button; POST acts, and twice is once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query, Request, Response, UploadFile
from sqlmodel import Session

from app import clock, subscribers
from app.errors import InvalidInput, NotFound, TooManyRequests
from app.links import Grant, Purpose
from app.papers import bibliography, queries
from app.relevance import model_store, user_profile
from app.text import sanitize
from app.types import Feedback, ParseResult
from app.web import pasted_papers
from app.web.forms import PreferencesForm, Text
from app.web.pages import paper_actions
from app.web.request_bodies import FormRoute
from app.web.signed_links import allows, db, page, redirect_to_preferences
from app.web.work_limits import Capacity

router = APIRouter(include_in_schema=False, route_class=FormRoute)

AUTHORS_SHOWN = 30
A_PAGE = 50  # papers
FILE_NAME_CHARS = 60
SAID = {
    "removed": "Removed.",
    "weighed": "Saved.",
    "forgotten": "Forgotten: your digests go by your interests alone, until you say something new.",
}

Opine = Annotated[Grant, allows(Purpose.FEEDBACK)]
Change = Annotated[Grant, allows(Purpose.PREFERENCES)]
Id = Annotated[int, Form(ge=0, lt=2**31)]  # as large as a paper's id can be in PostgreSQL
OwnKey = Annotated[str, Form(pattern=r"^([0-9a-f]{16})?$")]
Paper = Annotated[int, Path(ge=0, lt=2**31)]
Number = Annotated[int, Query(alias="page", ge=1)]


class FeedbackAction(StrEnum):
    """What two of a card's links ask for; the others are in `following`."""

    MORE = "like"
    LESS = "dislike"


@dataclass(frozen=True, slots=True)
class FeedbackOverview:
    """What the preferences page shows of what a reader said."""

    liked: tuple[Feedback, ...]
    disliked: tuple[Feedback, ...]
    authors: tuple[tuple[str, int], ...]
    more_authors: int  # that are not shown
    followed: frozenset[str]  # of them
    aside: tuple[str, ...]  # who wrote what was liked, and does not count for it


def learned(session: Session, subscriber_id: int) -> FeedbackOverview:
    said = subscribers.feedback_for_ranking(session, [subscriber_id]).get(subscriber_id, ())
    authors = user_profile.liked_authors(said)
    reader = subscribers.get(session, subscriber_id)
    interests = subscribers.preferences_of(session, reader).interests
    return FeedbackOverview(
        liked=tuple(opinion for opinion in said if opinion.liked),
        disliked=tuple(opinion for opinion in said if not opinion.liked),
        authors=tuple(authors[:AUTHORS_SHOWN]),
        more_authors=max(0, len(authors) - AUTHORS_SHOWN),
        followed=frozenset(paper_actions.followed((name for name, _ in authors), interests)),
        aside=tuple(reader.ignored_authors),
    )


# --- from a card


@router.get("/opinion/{token}/{wish}/{paper}")
def ask(request: Request, grant: Opine, wish: FeedbackAction, paper: Paper) -> Response:
    return _asking(request, grant, wish, paper)


@router.post("/opinion/{token}/{wish}/{paper}")
def say(request: Request, grant: Opine, wish: FeedbackAction, paper: Paper, action: Text = "") -> Response:
    """Record it, or take it back: but only what this very link has said, not what another said since."""
    reader, liked = grant.subscriber_id, wish is FeedbackAction.MORE
    with db(request).write() as session:
        if action != "undo":
            subscribers.set_feedback(session, reader, paper, liked, clock.utcnow())
        elif subscribers.feedback_on(session, reader, paper) is liked:
            subscribers.remove_feedback(session, reader, paper)
    return _asking(request, grant, wish, paper, undone=action == "undo")


def _asking(
    request: Request, grant: Grant, wish: FeedbackAction, paper: int, *, undone: bool = False
) -> Response:
    """The paper with one button. Whose link it is does not stand on the page: mails are forwarded."""
    with db(request).read() as session:
        known = queries.papers(session, [paper]).get(paper)
        if known is None:
            raise NotFound("This paper is not in the archive any more.")
        said, young = (
            subscribers.feedback_on(session, grant.subscriber_id, paper),
            model_store.papers_needed(session),
        )
    return page(
        request, "opinion.html",
        title=known.title, liked=wish is FeedbackAction.MORE, said=said, young=young, undone=undone,
    )  # fmt: skip


# --- beside the preferences


@router.get("/preferences/{token}/papers")
def papers(
    request: Request,
    grant: Change,
    of: FeedbackAction = FeedbackAction.MORE,
    number: Number = 1,
    said: str = "",
) -> Response:
    """All that a reader asked for more of, or for less: the newest first, page by page."""
    with db(request).read() as session:
        known = learned(session, grant.subscriber_id)
    wanted, other = (known.liked, known.disliked)[:: 1 if of is FeedbackAction.MORE else -1]
    pages = max(1, math.ceil(len(wanted) / A_PAGE))
    number = min(number, pages)  # the last one may have been emptied just now
    first = (number - 1) * A_PAGE
    return page(
        request, "said.html", token=request.path_params["token"], of=of, other=len(other), total=len(wanted),
        known=known, number=number, pages=pages, first=first + 1, opinions=wanted[first : first + A_PAGE],
        said=SAID.get(said, ""),
    )  # fmt: skip


@router.post("/preferences/{token}/papers")
def paste(request: Request, grant: Change, liked: Text = "", file: UploadFile | None = None) -> Response:
    """Like the papers that were pasted, or are in a file, and tell what became of each."""
    file = file if file and file.filename else None  # a browser sends a nameless one where none was chosen
    try:
        if not liked.strip() and not file:
            raise InvalidInput("Paste at least one paper, or choose a file.", "liked")
        limits: Capacity = request.app.state.capacity
        limits.paste_limit.hit(str(grant.subscriber_id))
        with limits.pastes.take():
            pasted = _given(liked, file)
        if not pasted.rows:
            raise InvalidInput("No paper is named in that.", "file" if file else "liked")
        with db(request).read() as session:
            found = subscribers.match_references(session, pasted.records)
        with db(request).write() as session:
            subscribers.like(session, grant.subscriber_id, found, clock.utcnow())
    except InvalidInput as error:
        form = PreferencesForm(liked=liked, problems={error.field or "liked": str(error)})
        return _pasted(request, form, status=422)
    except TooManyRequests as error:
        form = PreferencesForm(liked=liked, problems={"liked": _wait(error)})
        answer = _pasted(request, form, status=429)
        answer.headers["Retry-After"] = str(error.retry_after)
        return answer
    return _pasted(request, PreferencesForm(), found=found, rejections=pasted.rejections)


def _given(liked: str, file: UploadFile | None) -> ParseResult:
    """What was pasted, and what is in the file; what was not understood there says so."""
    pasted = pasted_papers.parse(liked)
    if file is None:
        return pasted
    read = pasted_papers.parse_file(file.file.read(bibliography.MOST_FILE_BYTES + 1))
    origin = sanitize.one_line(file.filename, FILE_NAME_CHARS)
    rejections = (replace(rejection, origin=origin) for rejection in read.rejections)
    return ParseResult(
        pasted.rows + read.rows, pasted.records + read.records, (*pasted.rejections, *rejections)
    )


def _wait(error: TooManyRequests) -> str:
    minutes = math.ceil(error.retry_after / 60)
    wait = "a minute" if minutes == 1 else f"{minutes} minutes"
    return f"That was a lot at once: please wait {wait}, and add them then."


def _pasted(request: Request, form: PreferencesForm, *, status: int = 200, **became: Any) -> Response:
    token = request.path_params["token"]
    with db(request).read() as session:
        young = model_store.papers_needed(session)
    values = {"found": subscribers.MatchedReferences(), "rejections": (), "young": young, **became}
    return page(request, "pasted.html", status=status, form=form, token=token, **values)


@router.post("/preferences/{token}/remove")
def remove(
    request: Request,
    grant: Change,
    paper: Id = 0,
    own: OwnKey = "",
    of: Annotated[FeedbackAction | None, Form()] = None,
    number: Annotated[int, Form(alias="page", ge=1)] = 1,
) -> Response:
    """And back to the list that the button stood in."""
    with db(request).write() as session:
        subscribers.remove_feedback(session, grant.subscriber_id, paper)
        if own:
            subscribers.remove_private_paper(session, grant.subscriber_id, own)
    if of:
        return redirect_to_preferences(request, "removed", f"&of={of}&page={number}", at="/papers")
    return redirect_to_preferences(request, "removed", "#learned")


@router.post("/preferences/{token}/author")
def weigh_author(
    request: Request, grant: Change, follow: Text = "", aside: Text = "", again: Text = ""
) -> Response:
    """Who wrote what is liked: follow them, set them aside, or let them count again."""
    reader = grant.subscriber_id
    with db(request).write() as session:
        if follow:
            subscribers.follow(session, reader, follow, clock.utcnow())
            return redirect_to_preferences(request, "followed")
        change = subscribers.ignore_author if aside else subscribers.unignore_author
        change(session, reader, aside or again)
    return redirect_to_preferences(request, "weighed", "#learned")


@router.get("/preferences/{token}/forget")
def ask_forget(request: Request, grant: Change) -> Response:
    return page(request, "forget.html", token=request.path_params["token"])


@router.post("/preferences/{token}/forget")
def forget(request: Request, grant: Change) -> Response:
    with db(request).write() as session:
        subscribers.forget_feedback(session, grant.subscriber_id)
    return redirect_to_preferences(request, "forgotten", "#learned")
