"""What readers say of papers: liked, disliked, taken back; and the papers that they pasted.

What is said of a paper of the archive points to it. A pasted paper that the archive does not know is kept
beside that, for its reader alone: nothing that somebody pastes becomes public.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b

from sqlalchemy import update
from sqlmodel import Session, col, delete, or_, select

from app.errors import InvalidInput, NotFound
from app.papers import dedupe, queries
from app.storage.models import FeedbackRow, Paper, PrivatePaper, Subscriber
from app.subscribers.repository import get_for_update, require_not_erased
from app.text.tokenizer import normalized_name
from app.types import Feedback, PaperRecord

MOST_OPINIONS = 1_000
LEAST_CHARS = 8  # of a title that says something by itself: “hello” does not
MOST_ASIDE, NAME_CHARS = 200, 200
KEY_CHARS = 200  # of a title's key: two papers of one reader that begin so much alike are one


@dataclass(frozen=True, slots=True)
class MatchedReferences:
    """What became of pasted papers. It depends on the archive alone, not on who pasted them."""

    known: tuple[tuple[int, str], ...] = ()  # papers of the archive: id and title
    own: tuple[PaperRecord, ...] = ()  # not in the archive, but with a title: they count all the same
    unknown: tuple[PaperRecord, ...] = ()  # ids, or a word for a title: they say nothing here

    @property
    def usable(self) -> int:
        """How many of them tell something about a taste."""
        return len(self.known) + len(self.own)


# --- a word on a paper


def set_feedback(session: Session, subscriber_id: int, paper_id: int, liked: bool, now: datetime) -> None:
    """A reader likes a paper, or does not; the last word counts. NotFound where there is no such paper."""
    require_not_erased(get_for_update(session, subscriber_id))
    paper = queries.papers(session, [paper_id]).get(paper_id)
    if paper is None:
        raise NotFound("This paper is not in the archive any more.")
    said = _said(session, subscriber_id)
    _check_room(len(said) + len(_held(session, subscriber_id)), paper.id not in said)
    _say(session, subscriber_id, [paper], liked, now)


def feedback_on(session: Session, subscriber_id: int, paper_id: int) -> bool | None:
    """Whether a reader likes a paper; None where they said nothing of it."""
    today = queries.canonical_ids(session, [paper_id])
    rows = _said(session, subscriber_id)[today.get(paper_id, 0)]
    return max(rows, key=lambda row: (row.at, row.id)).liked if rows else None


def remove_feedback(session: Session, subscriber_id: int, paper_id: int) -> None:
    """Forget what a reader said of a paper, under whatever id it went then."""
    get_for_update(session, subscriber_id)
    today = queries.canonical_ids(session, [paper_id])
    for row in _said(session, subscriber_id)[today.get(paper_id, 0)]:
        session.delete(row)


def remove_private_paper(session: Session, subscriber_id: int, own_key: str) -> None:
    """Forget a paper that a reader pasted and only they have. `own_key` is that of its Opinion."""
    mine = select(PrivatePaper).where(PrivatePaper.subscriber_id == subscriber_id)
    for own in session.exec(mine).all():
        if _public_key(own) == own_key:
            session.delete(own)
    session.flush()


def forget(session: Session, subscriber_id: int) -> None:
    """Forget all that a reader said of papers and of who wrote them, and the papers that they pasted."""
    for table in (FeedbackRow, PrivatePaper):
        session.execute(delete(table).where(col(table.subscriber_id) == subscriber_id))
    session.execute(update(Subscriber).where(col(Subscriber.id) == subscriber_id).values(ignored_authors=[]))


def _say(session: Session, subscriber_id: int, papers: Sequence[Paper], liked: bool, now: datetime) -> None:
    """Put one word on each paper in the place of all that was said of it; the same word twice is one."""
    said = _said(session, subscriber_id)
    fresh = [
        paper
        for paper in papers
        if [(row.paper_id, row.liked) for row in said[paper.id or 0]] != [(paper.id, liked)]
    ]
    for row in (row for paper in fresh for row in said[paper.id or 0]):
        session.delete(row)
    keys = [_key(paper.title) for paper in papers]
    mine = (col(PrivatePaper.subscriber_id) == subscriber_id, col(PrivatePaper.title_key).in_(keys))
    session.execute(delete(PrivatePaper).where(*mine))
    session.flush()
    for paper in fresh:
        session.add(FeedbackRow(subscriber_id=subscriber_id, paper_id=paper.id or 0, liked=liked, at=now))
    session.flush()


def _said(session: Session, subscriber_id: int) -> defaultdict[int, list[FeedbackRow]]:
    """What a reader said, by the paper as it is known today."""
    rows = session.exec(select(FeedbackRow).where(FeedbackRow.subscriber_id == subscriber_id)).all()
    today = queries.canonical_ids(session, {row.paper_id for row in rows})
    said: defaultdict[int, list[FeedbackRow]] = defaultdict(list)
    for row in rows:
        said[today[row.paper_id]].append(row)
    return said


# --- what was said


def feedback_for_ranking(
    session: Session, subscriber_ids: Collection[int]
) -> dict[int, tuple[Feedback, ...]]:
    """What readers said, as it counts: less the authors whom they set aside."""
    aside = _authors_aside(session, subscriber_ids)
    said = all_feedback(session, subscriber_ids)
    return {reader: tuple(_less(each, aside[reader]) for each in theirs) for reader, theirs in said.items()}


def all_feedback(session: Session, subscriber_ids: Collection[int]) -> dict[int, tuple[Feedback, ...]]:
    """What readers said, each reader's newest first; nothing for who said nothing.

    A paper stands in it once: of what was said of two papers that are one today, the newer counts.
    """
    found: defaultdict[int, list[Feedback]] = defaultdict(list)
    theirs = select(FeedbackRow).where(col(FeedbackRow.subscriber_id).in_(subscriber_ids))
    rows = session.exec(theirs.order_by(col(FeedbackRow.at).desc(), col(FeedbackRow.id).desc())).all()
    today = queries.papers(session, {row.paper_id for row in rows})
    seen: set[tuple[int, int | None]] = set()
    for row in rows:
        paper = today[row.paper_id]
        if (row.subscriber_id, paper.id) not in seen:
            seen.add((row.subscriber_id, paper.id))
            found[row.subscriber_id].append(_of_archive(row, paper))
    pasted = select(PrivatePaper).where(col(PrivatePaper.subscriber_id).in_(subscriber_ids))
    for own in session.exec(pasted.order_by(col(PrivatePaper.id))):
        found[own.subscriber_id].append(_of_own(own))
    return {
        reader: tuple(sorted(said, key=lambda each: each.at, reverse=True)) for reader, said in found.items()
    }


def _of_archive(row: FeedbackRow, paper: Paper) -> Feedback:
    authors = tuple(paper.authors)
    return Feedback(paper.title, paper.abstract, authors, row.liked, row.at, paper_id=paper.id)


def _of_own(own: PrivatePaper) -> Feedback:
    return Feedback(own.title, own.abstract, tuple(own.authors), True, own.at, own_key=_public_key(own))


def _public_key(own: PrivatePaper) -> str:
    # Not the number of its row: the next number would tell how many papers others have pasted since.
    return blake2b(own.title_key.encode(), digest_size=8).hexdigest()


# --- who wrote it


def ignore_author(session: Session, subscriber_id: int, author: str) -> None:
    """Who wrote what a reader likes need not be liked for it: no paper speaks for this author any more.

    InvalidInput where there is no room for one more.
    """
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    others = [name for name in subscriber.ignored_authors if normalized_name(name) != normalized_name(author)]
    if len(others) >= MOST_ASIDE:
        raise InvalidInput(f"There is room for {MOST_ASIDE} authors: please let some count again.", "author")
    if normalized_name(author):
        subscriber.ignored_authors = [*others, author[:NAME_CHARS]]
        session.add(subscriber)


def unignore_author(session: Session, subscriber_id: int, author: str) -> None:
    """Take that back."""
    subscriber = get_for_update(session, subscriber_id)
    subscriber.ignored_authors = [
        name for name in subscriber.ignored_authors if normalized_name(name) != normalized_name(author)
    ]
    session.add(subscriber)


def _authors_aside(session: Session, subscriber_ids: Collection[int]) -> dict[int, frozenset[str]]:
    """Whom readers set aside, by one spelling each."""
    theirs = select(Subscriber.id, Subscriber.ignored_authors).where(col(Subscriber.id).in_(subscriber_ids))
    return {reader or 0: _people(names) for reader, names in session.exec(theirs)}


def _people(names: object) -> frozenset[str]:
    """What is no name is left out: it must not cost anybody their digest."""
    listed = names if isinstance(names, list) else []
    return frozenset(normalized_name(name) for name in listed if isinstance(name, str))


def _less(opinion: Feedback, aside: Set[str]) -> Feedback:
    if not aside:
        return opinion
    return replace(
        opinion, authors=tuple(name for name in opinion.authors if normalized_name(name) not in aside)
    )


# --- pasted papers


def match_references(session: Session, pasted: Sequence[PaperRecord]) -> MatchedReferences:
    """Look pasted papers up in the archive, by the same rules by which its own are told apart."""
    shelves = _shelves(session, pasted)
    known: list[int] = []
    own: dict[str, PaperRecord] = {}
    unknown: list[PaperRecord] = []
    for record in pasted:
        paper = _find(record, shelves)
        if paper is not None:
            known.append(paper.id or 0)
        elif record.abstract or len(record.title) >= LEAST_CHARS:
            own.setdefault(_key(record.title), record)
        else:
            unknown.append(record)
    today = {paper.id or 0: paper.title for paper in queries.papers(session, known).values()}
    return MatchedReferences(tuple(today.items()), tuple(own.values()), tuple(dict.fromkeys(unknown)))


def like(session: Session, subscriber_id: int, liked: MatchedReferences, now: datetime) -> None:
    """A reader likes these papers. InvalidInput where there is no room for so many."""
    require_not_erased(get_for_update(session, subscriber_id))
    said, held = _said(session, subscriber_id), _held(session, subscriber_id)
    own = [record for record in liked.own if _key(record.title) not in held]
    more = len(own) + sum(identity not in said for identity, _ in liked.known)
    _check_room(len(said) + len(held), more)
    today = queries.papers(session, [identity for identity, _ in liked.known])
    _say(session, subscriber_id, list(today.values()), True, now)
    session.add_all(_own(subscriber_id, record, now) for record in own)
    session.flush()


def _held(session: Session, subscriber_id: int) -> set[str]:
    """The papers that a reader pasted and only they have, by their keys."""
    return set(
        session.exec(select(PrivatePaper.title_key).where(PrivatePaper.subscriber_id == subscriber_id))
    )


def _check_room(has: int, more: int) -> None:
    if more and has + more > MOST_OPINIONS:
        room = f"There is room for {MOST_OPINIONS:,} papers, and you have {has:,}: please remove some first."
        raise InvalidInput(room, "liked")


def _shelves(session: Session, pasted: Iterable[PaperRecord]) -> dict[str, list[Paper]]:
    """The papers of the archive that may be meant, by arXiv id, by DOI and by the key of their title."""
    ids = [record.arxiv_id for record in pasted if record.arxiv_id]
    dois = [record.doi for record in pasted if record.doi]
    keys = [dedupe.title_key(record.title) for record in pasted if record.title]
    near = or_(col(Paper.arxiv_id).in_(ids), col(Paper.doi).in_(dois), col(Paper.title_key).in_(keys))
    shelves: defaultdict[str, list[Paper]] = defaultdict(list)
    for paper in session.exec(select(Paper).where(near).order_by(col(Paper.id))):
        for name in {paper.arxiv_id, paper.doi, paper.title_key}:
            shelves[name or ""].append(paper)
    return shelves


def _find(record: PaperRecord, shelves: dict[str, list[Paper]]) -> Paper | None:
    names = filter(None, (record.arxiv_id, record.doi, dedupe.title_key(record.title)))
    near = (paper for name in names for paper in shelves.get(name, ()))
    return next((paper for paper in near if dedupe.same_paper_reason(_known(record), _known(paper))), None)


def _known(paper: PaperRecord | Paper) -> dedupe.PaperIdentity:
    ids = {"arxiv_id": paper.arxiv_id or "", "doi": paper.doi or ""}
    return dedupe.PaperIdentity(paper.title, **ids, abstract=paper.abstract, authors=tuple(paper.authors))


def _own(subscriber_id: int, record: PaperRecord, now: datetime) -> PrivatePaper:
    return PrivatePaper(
        subscriber_id=subscriber_id,
        title_key=_key(record.title),
        title=record.title,
        abstract=record.abstract,
        authors=list(record.authors),
        at=now,
    )


def _key(title: str) -> str:
    return dedupe.title_key(title)[:KEY_CHARS]
