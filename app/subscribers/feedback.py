"""Subscribers' feedback: likes and dislikes, ignored authors, and pasted papers.

Feedback on a paper in the archive refers to the paper's row. A pasted paper that is not in the archive is
stored as the subscriber's private paper: nothing that a subscriber pastes becomes public.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b

from sqlalchemy import update
from sqlmodel import Session, col, delete, or_, select

from app.errors import InvalidInput
from app.papers import canonical_rows, dedupe
from app.papers.title_normalization import title_key
from app.relevance.model import RelevanceModel
from app.storage.database import in_array
from app.storage.models import FeedbackRow, Paper, PrivatePaper, Subscriber
from app.subscribers.repository import get_for_update, require_not_erased
from app.text.identifiers import id_of_paper_page
from app.text.names import normalized_name
from app.types import Feedback, PaperRecord

MAX_FEEDBACK = 1_000  # papers that a subscriber may rate or paste
MAX_IGNORED_AUTHORS, NAME_CHARS = 200, 200
KEY_CHARS = 200  # of a title's key; a subscriber's private papers with the same key are stored once


@dataclass(frozen=True, slots=True)
class MatchedReferences:
    """Pasted papers, grouped by whether the archive has them. The groups do not depend on the subscriber."""

    archived: tuple[tuple[int, str], ...] = ()  # in the archive: id and title
    own: tuple[PaperRecord, ...] = ()  # not in the archive, but a profile can learn from them
    unknown: tuple[PaperRecord, ...] = ()  # not in the archive and not usable; ignored

    @property
    def usable(self) -> int:
        """Return the number of papers that a profile can use."""
        return len(self.archived) + len(self.own)


# --- feedback on one paper


def set_feedback(session: Session, subscriber_id: int, paper_id: int, liked: bool, now: datetime) -> None:
    """Store a like or dislike, replacing an earlier one.

    Raise NotFound if there is no such paper or it is hidden, InvalidInput if the subscriber would exceed
    MAX_FEEDBACK papers.
    """
    require_not_erased(get_for_update(session, subscriber_id))
    paper = canonical_rows.unhidden_paper(session, paper_id)
    rows = _feedback_rows(session, subscriber_id)
    _check_room(len(rows) + len(_private_title_keys(session, subscriber_id)), paper.id not in rows)
    _store(session, subscriber_id, [paper], liked, now)


def feedback_on(session: Session, subscriber_id: int, paper_id: int) -> bool | None:
    """Return True if a subscriber likes a paper, False if they dislike it, None if there is no feedback."""
    current = canonical_rows.canonical_ids(session, [paper_id])
    return _last(_feedback_rows(session, subscriber_id)[current.get(paper_id, 0)])


def _last(rows: Sequence[FeedbackRow]) -> bool | None:
    """Return the last feedback of rows on the same paper. There are several if papers were merged."""
    return max(rows, key=lambda row: (row.at, row.id)).liked if rows else None


def remove_feedback(session: Session, subscriber_id: int, paper_id: int) -> None:
    """Delete a subscriber's feedback on a paper, including feedback stored under its former ids."""
    get_for_update(session, subscriber_id)
    current = canonical_rows.canonical_ids(session, [paper_id])
    for row in _feedback_rows(session, subscriber_id)[current.get(paper_id, 0)]:
        session.delete(row)


def remove_private_paper(session: Session, subscriber_id: int, own_key: str) -> None:
    """Delete a subscriber's private paper. `own_key` is the `Feedback.own_key` of the paper."""
    papers = select(PrivatePaper).where(PrivatePaper.subscriber_id == subscriber_id)
    for paper in session.exec(papers).all():
        if _public_key(paper) == own_key:
            session.delete(paper)
    session.flush()


def forget(session: Session, subscriber_id: int) -> None:
    """Delete a subscriber's feedback, ignored authors and private papers."""
    for table in (FeedbackRow, PrivatePaper):
        session.execute(delete(table).where(col(table.subscriber_id) == subscriber_id))
    session.execute(update(Subscriber).where(col(Subscriber.id) == subscriber_id).values(ignored_authors=[]))


def _store(session: Session, subscriber_id: int, papers: Sequence[Paper], liked: bool, now: datetime) -> None:
    """Replace the feedback on each paper, and delete private papers with the same title.

    Feedback that does not change keeps its time.
    """
    rows = _feedback_rows(session, subscriber_id)
    changed = [paper for paper in papers if _last(rows[paper.id or 0]) is not liked]
    for row in (row for paper in changed for row in rows[paper.id or 0]):
        session.delete(row)
    keys = [_title_key(paper.title) for paper in papers]
    same_title = (col(PrivatePaper.subscriber_id) == subscriber_id, col(PrivatePaper.title_key).in_(keys))
    session.execute(delete(PrivatePaper).where(*same_title))
    session.flush()
    for paper in changed:
        session.add(FeedbackRow(subscriber_id=subscriber_id, paper_id=paper.id or 0, liked=liked, at=now))
    session.flush()


def _feedback_rows(session: Session, subscriber_id: int) -> defaultdict[int, list[FeedbackRow]]:
    """Return a subscriber's feedback, keyed by the current id of the paper."""
    rows = session.exec(select(FeedbackRow).where(FeedbackRow.subscriber_id == subscriber_id)).all()
    current = canonical_rows.canonical_ids(session, {row.paper_id for row in rows})
    by_paper: defaultdict[int, list[FeedbackRow]] = defaultdict(list)
    for row in rows:
        by_paper[current[row.paper_id]].append(row)
    return by_paper


# --- all feedback from many subscribers


def feedback_for_ranking(
    session: Session, subscriber_ids: Collection[int]
) -> dict[int, tuple[Feedback, ...]]:
    """Return subscribers' feedback as ranking and pages use it: without hidden papers and ignored authors."""
    feedback = all_feedback(session, subscriber_ids, with_hidden=False)
    if not feedback:
        return feedback
    rows = select(Subscriber.id, Subscriber.ignored_authors).where(col(Subscriber.id).in_(list(feedback)))
    for subscriber, stored in session.exec(rows):
        # Drop any other values in the JSON column, so that planning does not fail on them.
        names = stored if isinstance(stored, list) else []
        if ignored := {normalized_name(name) for name in names if isinstance(name, str)}:
            feedback[subscriber or 0] = tuple(
                replace(
                    item, authors=tuple(name for name in item.authors if normalized_name(name) not in ignored)
                )
                for item in feedback[subscriber or 0]
            )
    return feedback


def all_feedback(
    session: Session, subscriber_ids: Collection[int], *, with_hidden: bool = True
) -> dict[int, tuple[Feedback, ...]]:
    """Return each subscriber's feedback, newest first. Subscribers without feedback are left out.

    Each paper occurs once: if two papers have been merged, only the newer feedback is returned. Feedback on
    papers that an operator has hidden is returned only `with_hidden`.
    """
    by_subscriber: defaultdict[int, list[Feedback]] = defaultdict(list)
    rated = in_array(session, col(FeedbackRow.subscriber_id), subscriber_ids)
    feedback = select(FeedbackRow).where(rated)
    rows = session.exec(feedback.order_by(col(FeedbackRow.at).desc(), col(FeedbackRow.id).desc())).all()
    papers = canonical_rows.papers(session, {row.paper_id for row in rows})
    processed: set[tuple[int, int | None]] = set()
    for row in rows:
        paper = papers[row.paper_id]
        is_included = with_hidden or paper.hidden_at is None
        if is_included and (row.subscriber_id, paper.id) not in processed:
            processed.add((row.subscriber_id, paper.id))
            authors = tuple(paper.authors)
            by_subscriber[row.subscriber_id].append(
                Feedback(paper.title, paper.abstract, authors, row.liked, row.at, paper_id=paper.id)
            )
    own_papers = in_array(session, col(PrivatePaper.subscriber_id), subscriber_ids)
    private = select(PrivatePaper).where(own_papers)
    for own in session.exec(private.order_by(col(PrivatePaper.id))):
        by_subscriber[own.subscriber_id].append(
            Feedback(own.title, own.abstract, tuple(own.authors), True, own.at, own_key=_public_key(own))
        )
    return {
        subscriber: tuple(sorted(items, key=lambda item: item.at, reverse=True))
        for subscriber, items in by_subscriber.items()
    }


def _public_key(paper: PrivatePaper) -> str:
    # Not the row's id: consecutive ids would reveal how many papers others have pasted.
    return blake2b(paper.title_key.encode(), digest_size=8).hexdigest()


# --- ignored authors


def ignore_author(session: Session, subscriber_id: int, author: str) -> None:
    """Stop using an author of liked papers in the subscriber's profile.

    Raise InvalidInput if the subscriber already ignores MAX_IGNORED_AUTHORS other authors.
    """
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    others = [name for name in subscriber.ignored_authors if normalized_name(name) != normalized_name(author)]
    if len(others) >= MAX_IGNORED_AUTHORS:
        raise InvalidInput(
            f"You can ignore at most {MAX_IGNORED_AUTHORS} authors. Stop ignoring some first.", "author"
        )
    if normalized_name(author):
        subscriber.ignored_authors = [*others, author[:NAME_CHARS]]
        session.add(subscriber)


def unignore_author(session: Session, subscriber_id: int, author: str) -> None:
    """Resume using an author of liked papers in the subscriber's profile."""
    subscriber = get_for_update(session, subscriber_id)
    subscriber.ignored_authors = [
        name for name in subscriber.ignored_authors if normalized_name(name) != normalized_name(author)
    ]
    session.add(subscriber)


# --- pasted papers


def match_references(
    session: Session, pasted: Sequence[PaperRecord], model: RelevanceModel, base_url: str
) -> MatchedReferences:
    """Look up pasted papers in the archive by the same rules that decide which papers are merged.

    A record may have the URL of a paper's page. If this is below `base_url`, nothing else is compared.
    Hidden papers count as not in the archive, because the titles of the others are shown to the visitor.
    A profile can use a paper that is not in the archive if it has an abstract, or a title with an id or
    authors, or a title that names a subject (see `RelevanceModel.names_subject`).
    """
    ids = [record.arxiv_id for record in pasted if record.arxiv_id]
    dois = [record.doi for record in pasted if record.doi]
    titles = [title_key(record.title) for record in pasted if record.title]
    numbers = {record.url: id_of_paper_page(record.url, base_url) for record in pasted}
    matches = or_(
        col(Paper.arxiv_id).in_(ids),
        col(Paper.doi).in_(dois),
        col(Paper.title_key).in_(titles),
        col(Paper.id).in_(filter(None, numbers.values())),
    )
    candidates: defaultdict[str, list[Paper]] = defaultdict(list)
    rows = session.exec(select(Paper).where(matches).order_by(col(Paper.id))).all()
    hidden = canonical_rows.hidden(session) if rows else set()
    public = {row.id: row for row in rows if row.id not in hidden}
    for candidate in public.values():
        for key in {candidate.arxiv_id, candidate.doi, candidate.title_key}:
            candidates[key or ""].append(candidate)

    archived: list[int] = []
    own: dict[str, PaperRecord] = {}
    unknown: list[PaperRecord] = []
    for record in pasted:
        identity = _identity(record)
        keys = filter(None, (record.arxiv_id, record.doi, title_key(record.title)))
        papers = (paper for key in keys for paper in candidates.get(key, ()))
        paper = public.get(numbers[record.url]) or next(
            (each for each in papers if dedupe.same_paper_reason(identity, _identity(each))), None
        )
        if paper is not None:
            archived.append(paper.id or 0)
        elif _is_usable(record, model):
            own.setdefault(_title_key(record.title), record)
        else:
            unknown.append(record)
    archived_papers = canonical_rows.papers(session, archived).values()
    archived_titles = tuple({paper.id or 0: paper.title for paper in archived_papers}.items())
    return MatchedReferences(archived_titles, tuple(own.values()), tuple(dict.fromkeys(unknown)))


def _is_usable(record: PaperRecord, model: RelevanceModel) -> bool:
    is_reference = record.arxiv_id or record.doi or record.authors
    return bool(record.abstract or (record.title and is_reference) or model.names_subject(record.title))


def like(session: Session, subscriber_id: int, liked: MatchedReferences, now: datetime) -> None:
    """Store likes for these papers. Raise InvalidInput if the subscriber would exceed MAX_FEEDBACK papers."""
    require_not_erased(get_for_update(session, subscriber_id))
    rows, title_keys = _feedback_rows(session, subscriber_id), _private_title_keys(session, subscriber_id)
    new = [record for record in liked.own if _title_key(record.title) not in title_keys]
    current = canonical_rows.papers(session, [identity for identity, _ in liked.archived]).values()
    papers = {paper.id or 0: paper for paper in current}  # two of them may have been merged since
    _check_room(len(rows) + len(title_keys), len(new) + len(papers.keys() - rows.keys()))
    _store(session, subscriber_id, list(papers.values()), True, now)
    session.add_all(
        PrivatePaper(
            subscriber_id=subscriber_id,
            title_key=_title_key(record.title),
            title=record.title,
            abstract=record.abstract,
            authors=list(record.authors),
            at=now,
        )
        for record in new
    )
    session.flush()


def _private_title_keys(session: Session, subscriber_id: int) -> set[str]:
    return set(
        session.exec(select(PrivatePaper.title_key).where(PrivatePaper.subscriber_id == subscriber_id))
    )


def _check_room(count: int, more: int) -> None:
    """Raise InvalidInput if a subscriber with `count` papers may not add `more`."""
    if more and count + more > MAX_FEEDBACK:
        limit = f"You can rate or add at most {MAX_FEEDBACK:,} papers, and you have {count:,}."
        raise InvalidInput(f"{limit} Please remove some first.", "liked")


def _identity(paper: PaperRecord | Paper) -> dedupe.PaperIdentity:
    ids = {"arxiv_id": paper.arxiv_id or "", "doi": paper.doi or ""}
    return dedupe.PaperIdentity(paper.title, **ids, abstract=paper.abstract, authors=tuple(paper.authors))


def _title_key(title: str) -> str:
    return title_key(title)[:KEY_CHARS]
