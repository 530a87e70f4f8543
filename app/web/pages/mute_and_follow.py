"""A digest's links for muting a word or following an author of a paper.

GET shows a page with a button. POST acts, and is idempotent.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from sqlmodel import Session

from app import clock, subscribers
from app.errors import InvalidInput, NotFound
from app.links import Purpose
from app.papers import canonical_rows
from app.relevance import mute_suggestions, query_language, query_rewriting
from app.relevance.model import RelevanceModel
from app.storage.models import Paper
from app.text.names import normalized_name
from app.web.feedback_overview import followed_authors
from app.web.forms import Text
from app.web.link_access import SignedLink, allows
from app.web.request_bodies import FormRoute

router = APIRouter(include_in_schema=False, route_class=FormRoute)

NOTABLE_SHARE = 0.1  # of papers that mention a word; pages state it from here on
AUTHORS_SHOWN = 30  # per paper, always including the last author

FeedbackLink = Annotated[SignedLink, allows(Purpose.FEEDBACK)]
PaperId = Annotated[int, Path(ge=0, lt=2**31)]  # the range of ids in PostgreSQL


def _find_paper(session: Session, number: int, *, is_needed: bool) -> Paper | None:
    """Return a paper. If it is hidden or gone, raise NotFound if it is needed, otherwise return None.

    Undoing does not need it, so that it works for papers that were hidden after the subscriber's click.
    """
    try:
        return canonical_rows.unhidden_paper(session, number)
    except NotFound:
        if is_needed:
            raise
        return None


# --- mute a word


@router.get("/feedback/{token}/mute/{paper}")
def ask_mute(link: FeedbackLink, paper: PaperId) -> Response:
    return _mute_page(link, paper)


@router.post("/feedback/{token}/mute/{paper}")
def mute(
    link: FeedbackLink, paper: PaperId, word: Text = "", other: Text = "", action: Text = ""
) -> Response:
    """Mute or unmute the chosen word and the typed word."""
    texts = [text for text in map(query_language.normalize, (word, other)) if text]
    try:
        if not texts:
            raise InvalidInput("Choose a word, or type one.", "word")
        change = subscribers.unmute if action == "undo" else subscribers.mute
        with link.db.write() as session:
            change(session, link.subscriber_id, texts, clock.utcnow())
    except InvalidInput as error:
        return _mute_page(link, paper, problem=str(error), picked=word, typed=other, status=422)
    if action == "undo":
        return _mute_page(link, paper, undone=texts)
    with link.db.read() as session:
        shares = _percentages(texts, _model(link, session))
    return link.page("muted.html", shares=shares)


def _mute_page(link: SignedLink, number: int, *, status: int = 200, **values: Any) -> Response:
    with link.db.read() as session:
        paper = _find_paper(session, number, is_needed="undone" not in values)
        chosen = subscribers.preferences_of(session, subscribers.get(session, link.subscriber_id))
        model = _model(link, session)
    words: Iterable[str] = ()
    if paper:
        words = mute_suggestions.suggest(paper.title, paper.abstract, paper.keywords, chosen.interests, model)
    values = {"problem": "", "picked": "", "typed": "", "undone": (), **values}
    values |= {"words": _percentages(words, model), "muted": chosen.muted}
    return link.page("mute.html", status=status, paper=paper, **values)


def _percentages(texts: Iterable[str], model: RelevanceModel) -> dict[str, int]:
    """Return the percentage of papers, to the nearest 5, that mention each text. Return 0 if it is small."""
    shares = {text: mute_suggestions.share_of_papers(text, model) for text in texts}
    return {text: 5 * round(20 * share) if share >= NOTABLE_SHARE else 0 for text, share in shares.items()}


def _model(link: SignedLink, session: Session) -> RelevanceModel:
    return link.app.models.current(session)


# --- follow an author


@router.get("/feedback/{token}/follow/{paper}")
def ask_follow(link: FeedbackLink, paper: PaperId) -> Response:
    return _follow_page(link, paper)


@router.post("/feedback/{token}/follow/{paper}")
def follow(
    link: FeedbackLink, paper: PaperId, author: Text = "", other: Text = "", action: Text = ""
) -> Response:
    """Follow the chosen or typed author of the paper, or stop following this author."""
    try:
        with link.db.write() as session:
            if action == "undo":
                subscribers.unfollow(session, link.subscriber_id, author, clock.utcnow())
            else:
                author = _find_author(canonical_rows.unhidden_paper(session, paper), other.strip() or author)
                most = link.app.settings.max_interests
                subscribers.follow(session, link.subscriber_id, author, clock.utcnow(), most)
    except InvalidInput as error:
        return _follow_page(link, paper, problem=str(error), typed=other, status=422)
    if action == "undo":
        return _follow_page(link, paper, undone=author)
    return link.page("followed.html", author=author)


def _follow_page(link: SignedLink, number: int, *, status: int = 200, **values: Any) -> Response:
    with link.db.read() as session:
        paper = _find_paper(session, number, is_needed="undone" not in values)
        chosen = subscribers.preferences_of(session, subscribers.get(session, link.subscriber_id))
    authors = dict.fromkeys(paper.authors if paper else ())
    names = [name for name in authors if query_rewriting.query_for("author", name)]
    offered = names if len(names) <= AUTHORS_SHOWN else [*names[: AUTHORS_SHOWN - 1], names[-1]]
    followed = followed_authors(offered, chosen.interests)
    values = {"followed": followed, "problem": "", "typed": "", "undone": "", **values}
    others = [name for name in names if name not in offered]
    return link.page("follow.html", status=status, paper=paper, authors=offered, others=others, **values)


def _find_author(paper: Paper, typed: str) -> str:
    """Return the author with this name, ignoring accents and case. Raise InvalidInput if there is none."""
    if not typed:
        raise InvalidInput("Choose one of the authors.", "author")
    names = {normalized_name(name): name for name in reversed(paper.authors)}
    name = typed if typed in paper.authors else names.get(normalized_name(typed))
    if name is None:
        raise InvalidInput("The paper has no author with this name. Choose one of its authors.", "author")
    return name
