"""Feedback on papers: the links in a digest, pasted papers, and the lists below the preferences.

GET shows a page with a button. POST acts, and is idempotent.
"""

import math
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query, Response, UploadFile

from app import clock, subscribers
from app.errors import InvalidInput, TooManyRequests
from app.links import Purpose
from app.papers import bibliography, canonical_rows
from app.text import sanitize
from app.types import ParseResult
from app.web import feedback_overview, pasted_papers
from app.web.errors import please_wait, with_retry_after
from app.web.forms import PreferencesForm, Text
from app.web.link_access import SignedLink, allows
from app.web.request_bodies import FormRoute
from app.web.site_state import capacity

router = APIRouter(include_in_schema=False, route_class=FormRoute)

PAPERS_PER_PAGE = 50
MAX_FILE_NAME_CHARS = 60

FeedbackLink = Annotated[SignedLink, allows(Purpose.FEEDBACK)]
Change = Annotated[SignedLink, allows(Purpose.PREFERENCES)]
Id = Annotated[int, Form(ge=0, lt=2**31)]  # the range of ids in PostgreSQL
OwnKey = Annotated[str, Form(pattern=r"^([0-9a-f]{16})?$")]
Paper = Annotated[int, Path(ge=0, lt=2**31)]
Number = Annotated[int, Query(alias="page", ge=1)]


class FeedbackAction(StrEnum):
    """The two feedback links for a paper in a digest. `mute_and_follow` has the other links."""

    MORE = "like"
    LESS = "dislike"


# --- the links in a digest


@router.get("/feedback/{token}/{choice}/{paper}")
def ask_feedback(link: FeedbackLink, choice: FeedbackAction, paper: Paper, done: str = "") -> Response:
    """Show the paper with a button. The page does not name the subscriber, because people forward emails."""
    with link.db.read() as session:
        row = canonical_rows.unhidden_paper(session, paper)
        current = subscribers.feedback_on(session, link.subscriber_id, paper)
    return link.page(
        "feedback.html", title=row.title, liked=choice is FeedbackAction.MORE, current=current,
        has_authors=bool(row.authors), undone=done == "removed", paper=paper,
    )  # fmt: skip


@router.post("/feedback/{token}/{choice}/{paper}")
def give_feedback(link: FeedbackLink, choice: FeedbackAction, paper: Paper, action: Text = "") -> Response:
    """Record the feedback of a link, or remove it (`action` "undo") unless other feedback has replaced it."""
    subscriber, liked = link.subscriber_id, choice is FeedbackAction.MORE
    with link.db.write() as session:
        if action != "undo":
            subscribers.set_feedback(session, subscriber, paper, liked, clock.utcnow())
        elif subscribers.feedback_on(session, subscriber, paper) is liked:
            subscribers.remove_feedback(session, subscriber, paper)
    return link.redirect_to_itself("removed" if action == "undo" else "")


# --- below the preferences


@router.get("/preferences/{token}/papers")
def list_feedback(
    link: Change, of: FeedbackAction = FeedbackAction.MORE, number: Number = 1, done: str = ""
) -> Response:
    """Show a page of the papers that a subscriber liked or disliked, newest first."""
    with link.db.read() as session:
        overview = feedback_overview.overview(session, link.subscriber_id)
    listed, other = (overview.liked, overview.disliked)[:: 1 if of is FeedbackAction.MORE else -1]
    pages = max(1, math.ceil(len(listed) / PAPERS_PER_PAGE))
    number = min(number, pages)  # the last page may have become empty after a removal
    first = (number - 1) * PAPERS_PER_PAGE
    return link.page(
        "feedback_list.html", of=of, other=len(other),
        total=len(listed), overview=overview, number=number, pages=pages, first=first + 1,
        entries=listed[first : first + PAPERS_PER_PAGE], message=feedback_overview.MESSAGES.get(done, ""),
    )  # fmt: skip


@router.post("/preferences/{token}/papers")
def add_papers(link: Change, liked: Text = "", file: UploadFile | None = None) -> Response:
    """Record likes for the papers in the pasted text and the file. Show the recognized papers."""
    file = file if file and file.filename else None  # browsers send a file without a name if none was chosen
    try:
        if not liked.strip() and not file:
            raise InvalidInput("Paste at least one paper, or choose a file.", "liked")
        capacity(link.request).visitors.pastes.hit(str(link.subscriber_id))
        with capacity(link.request).pastes.take():
            pasted = _parse(liked, file)
        if not pasted.rows:
            raise InvalidInput(
                f"We found no papers in this {'file' if file else 'text'}.", "file" if file else "liked"
            )
        with link.db.read() as session:
            model = link.app.models.current(session)
            base_url = link.app.settings.base_url
            matched = subscribers.match_references(session, pasted.records, model, base_url)
        with link.db.write() as session:
            subscribers.like(session, link.subscriber_id, matched, clock.utcnow())
    except InvalidInput as error:
        form = PreferencesForm(liked=liked, problems={error.field or "liked": str(error)})
        return _paste_page(link, form, status=422)
    except TooManyRequests as error:
        problem = please_wait(error, "add the papers again")
        form = PreferencesForm(liked=liked, problems={"liked": problem})
        response = _paste_page(link, form, status=429)
        return with_retry_after(response, error)
    form = PreferencesForm(liked="" if matched.usable else liked)
    return _paste_page(link, form, matched=matched, rejections=pasted.rejections)


def _parse(liked: str, file: UploadFile | None) -> ParseResult:
    """Parse the pasted text and the file. Rejections from the file contain its name."""
    pasted = pasted_papers.parse(liked)
    if file is None:
        return pasted
    uploaded = pasted_papers.parse_file(file.file.read(bibliography.MAX_FILE_BYTES + 1))
    origin = sanitize.one_line(file.filename, MAX_FILE_NAME_CHARS)
    rejections = (replace(rejection, origin=origin) for rejection in uploaded.rejections)
    return ParseResult(
        pasted.rows + uploaded.rows, pasted.records + uploaded.records, (*pasted.rejections, *rejections)
    )


def _paste_page(link: SignedLink, form: PreferencesForm, *, status: int = 200, **result: Any) -> Response:
    values = {"matched": subscribers.MatchedReferences(), "rejections": (), **result}
    return link.page("pasted.html", status=status, form=form, **values)


@router.post("/preferences/{token}/remove")
def remove(
    link: Change,
    paper: Id = 0,
    own: OwnKey = "",
    of: Annotated[FeedbackAction | None, Form()] = None,
    number: Annotated[int, Form(alias="page", ge=1)] = 1,
) -> Response:
    """Remove feedback on a paper, or delete a private paper, whose key is `own`. Redirect to its list."""
    with link.db.write() as session:
        subscribers.remove_feedback(session, link.subscriber_id, paper)
        if own:
            subscribers.remove_private_paper(session, link.subscriber_id, own)
    if of:
        return link.redirect_to_preferences("removed", f"&of={of}&page={number}", at="/papers")
    return link.redirect_to_preferences("removed", "#learned")


@router.post("/preferences/{token}/author")
def change_author(link: Change, follow: Text = "", aside: Text = "", again: Text = "") -> Response:
    """Follow an author of liked papers, ignore an author (`aside`), or stop ignoring an author (`again`)."""
    subscriber, most = link.subscriber_id, link.app.settings.max_interests
    with link.db.write() as session:
        if follow:
            subscribers.follow(session, subscriber, follow, clock.utcnow(), most)
            return link.redirect_to_preferences("followed")
        change = subscribers.ignore_author if aside else subscribers.unignore_author
        change(session, subscriber, aside or again)
    return link.redirect_to_preferences("weighed", "#learned")


@router.get("/preferences/{token}/forget")
def ask_forget(link: Change) -> Response:
    return link.page("forget.html")


@router.post("/preferences/{token}/forget")
def forget(link: Change) -> Response:
    with link.db.write() as session:
        subscribers.forget_feedback(session, link.subscriber_id)
    return link.redirect_to_preferences("forgotten", "#learned")
