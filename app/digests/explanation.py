"""Why a reader was sent a paper, or why not: every number on the way, by the code that composes digests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum

from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger, suppression
from app.digests import compose, planning, ranking
from app.digests.builder import DigestBuilder, DigestContext, DigestRequest
from app.digests.compose import Selection, SelectionOutcome
from app.digests.ranking import CandidatePool, Ranked, ScoreBreakdown
from app.errors import NotFound
from app.papers import queries
from app.relevance import archive_search
from app.relevance.matching import MatchDetails
from app.storage.models import Delivery, DeliveryState, Listing, Paper, Source, Subscriber, SubscriberState
from app.subscribers import schedule
from app.text import sanitize
from app.types import Digest, DigestItem, Interest, MailKind, Match, PaperView, Section, Skip

BEFORE = 10  # papers that stand before this one are named
ALIKE = 0.5  # the likeness from which two papers can be said to say much the same


@dataclass(frozen=True, slots=True)
class ReaderNow:
    """The reader: whether anything may be sent, and when."""

    id: int
    email: str
    state: SubscriberState | None  # at the moment that is asked about; None: they had not come yet
    paused_until: datetime | None
    suppressed: str  # why the address gets no mail, or nothing
    next_due_at: datetime | None  # None, too, where another moment is asked about
    min_papers: int
    max_papers: int


@dataclass(frozen=True, slots=True)
class PaperNow:
    """The paper, and where it was seen."""

    id: int
    asked_for: int  # another id, where that paper was merged into this one
    title: str
    arxiv_id: str
    withdrawn_at: datetime | None
    listed: tuple[tuple[date, str], ...]  # day and source, oldest first


@dataclass(frozen=True, slots=True)
class Recorded:
    """A digest of the reader's that has the paper, as the ledger knows it."""

    delivery_id: int
    edition: str
    state: DeliveryState
    state_reason: str
    held: str  # why no mail of its edition leaves, or nothing
    possibly_delivered: bool
    made_at: datetime
    sent_at: datetime | None
    interest: str  # under which the paper stood
    reason: str
    trend: str
    score: float


@dataclass(frozen=True, slots=True)
class InterestMatch:
    """One of the reader's interests, and how the paper fits it."""

    wish: Interest
    numbers: MatchDetails
    weighted: float  # its relevance, by the weight of the interest: 1 − (1 − relevance)^weight


@dataclass(frozen=True, slots=True)
class HigherRanked:
    """A paper with a better score."""

    id: int
    title: str
    score: float


class OutrankedBy(StrEnum):
    """Why a paper with a lower score was picked instead."""

    VARIETY = "variety"  # this one is like another pick
    CHAMPION = "champion"  # the other is an interest's own best


@dataclass(frozen=True, slots=True)
class RankPosition:
    """The paper among those that the next digest is made from."""

    weighed: ScoreBreakdown  # relevance to the reader, trend, freshness and score
    fate: SelectionOutcome | None  # None: it is not relevant enough, or was promised before
    place: int | None  # by score among the relevant ones, from 1
    relevant: int  # how many those are
    candidates: int  # that were not promised before
    before: tuple[HigherRanked, ...]  # the best of those with better scores
    likeness: float  # to that pick before it which is most like it: a cosine
    like: str  # the title of that
    overtaken: OutrankedBy | None  # where a paper with a lower score took the last place


@dataclass(frozen=True, slots=True)
class Card:
    """The paper as it would stand in the next digest."""

    interest: str
    reason: str
    trend: str
    score: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why, in one sentence, and every number on the way."""

    verdict: str
    at: datetime
    reader: ReaderNow
    paper: PaperNow
    recorded: tuple[Recorded, ...]  # the newest first
    floor: float
    interests: tuple[InterestMatch, ...]
    taste: Match | None
    no_candidate: str  # why it cannot be in the next digest, or nothing
    standing: RankPosition | None  # of a candidate
    card: Card | None  # where it would be in the next digest
    no_digest: str  # why there would be none, or nothing


def explain(
    context: DigestContext, now: datetime, subscriber: str, paper: str, at: datetime | None = None
) -> Explanation:
    """Why a reader (address or number) was sent a paper (id, arXiv id, DOI or URL), or why not.

    Listings, votes, the reader's state and opinions, and what was promised are those of `at`, or of now; the
    reader's settings and interests are today's. NotFound where there is no such reader or paper.
    """
    now = at or now
    with context.db.read() as session:
        row = subscribers.find(session, subscriber)
        reader = _reader(session, row, now)
        reader = replace(reader, next_due_at=None) if at else reader
        paper_now, view = _paper(session, paper)
        recorded = _recorded(context, session, reader.id, view.id)
        desk = DigestBuilder(context, session, now)
        desk.turn_to(now)
        [order] = planning.digest_requests(session, [row], desk.oldest, now)
    asked = desk.asked(order)
    [ranked] = ranking.rank(desk.shelf, [asked])
    digest = compose.compose(schedule.edition(row.zone, planning.newest_due(row, now)), ranked)
    candidate = desk.shelf.papers.get(view.id)
    barred = _exclusion_reason(order, desk, view.id)
    if candidate and (barred or (candidate.last_listed_on or asked.since) < asked.since):
        candidate = None
    facts = Explanation(
        verdict="",
        at=now,
        reader=reader,
        paper=paper_now,
        recorded=recorded,
        floor=ranking.FLOOR,
        interests=tuple(_judged(wish, desk.numbers(wish.text, view)) for wish in asked.wishes),
        taste=Match(ranked.taste[view.id], asked.why_liked(view.id)) if view.id in ranked.taste else None,
        no_candidate="" if candidate else _no_candidate(paper_now, asked.since, now.date(), barred),
        standing=_standing(ranked, candidate) if candidate else None,
        card=_card(digest, view.id),
        no_digest=digest.reason if isinstance(digest, Skip) else "",
    )
    return replace(facts, verdict=_verdict(facts))


# --- what is known


def _reader(session: Session, row: Subscriber, at: datetime) -> ReaderNow:
    listed, state = suppression.get(session, row.email), subscribers.state_at(session, row, at)
    return ReaderNow(
        id=row.id or 0,
        email=row.email,
        state=state,
        paused_until=row.paused_until if state is row.state else None,
        suppressed=listed.reason if listed and listed.since <= at else "",
        next_due_at=row.next_due_at,
        min_papers=row.min_papers,
        max_papers=row.max_papers,
    )


def _paper(session: Session, name: str) -> tuple[PaperNow, PaperView]:
    """The paper that is called so, as it is known today."""
    name = sanitize.one_line(name, 2000)
    asked_for = _numbered(session, name) or archive_search.find_by_reference(session, name)
    if asked_for is None:
        raise NotFound(f"There is no paper {name[:100]} in the archive.")
    row = queries.papers(session, [asked_for])[asked_for]
    listed = select(col(Listing.listed_on), col(Source.name)).join(Source).where(Listing.paper_id == row.id)
    paper = PaperNow(
        id=row.id or 0,
        asked_for=asked_for,
        title=row.title,
        arxiv_id=row.arxiv_id or "",
        withdrawn_at=row.withdrawn_at,
        listed=tuple(sorted({(day, source) for day, source in session.exec(listed)})),
    )
    return paper, queries.paper_views(session, [asked_for])[0]


def _numbered(session: Session, name: str) -> int | None:
    """The paper whose own number this is."""
    if not (name.isascii() and name.isdigit() and len(name) < 19):
        return None
    return session.exec(select(Paper.id).where(col(Paper.id) == int(name))).first()


def _recorded(context: DigestContext, session: Session, reader: int, paper: int) -> tuple[Recorded, ...]:
    """Each digest with the paper, whatever id it went by then; the newest first."""
    digests = select(Delivery).where(Delivery.subscriber_id == reader, Delivery.kind == MailKind.DIGEST)
    rows = session.exec(digests.order_by(col(Delivery.created_at).desc())).all()
    kept = ledger.stored_digests(session, [row.id for row in rows])
    had = {number: ledger.paper_ids(digest) for number, digest in kept.items()}
    today = queries.canonical_ids(session, {number for numbers in had.values() for number in numbers})
    rows = [row for row in rows if paper in map(today.get, had.get(row.id or 0, ()))]
    read = context.snapshots.restore(session, [kept[row.id or 0] for row in rows])
    pauses = {pause.edition: pause.reason for pause in ledger.pauses(session)}
    return tuple(
        _mention(row, section, pick, pauses)
        for row, restored in zip(rows, read, strict=True)
        for section in restored.digest.sections
        for pick in section.picks
        if today.get(pick.paper_id) == paper
    )


def _mention(row: Delivery, section: Section, pick: DigestItem, pauses: Mapping[str, str]) -> Recorded:
    return Recorded(
        delivery_id=row.id or 0,
        edition=row.edition,
        state=row.state,
        state_reason=row.reason or row.smtp_text,
        held=pauses.get(ledger.ALL_EDITIONS) or pauses.get(row.edition, ""),
        possibly_delivered=row.possibly_delivered,
        made_at=row.created_at,
        sent_at=row.sent_at,
        interest=section.interest,
        reason=pick.reason,
        trend=pick.trend,
        score=pick.score,
    )


def _judged(wish: Interest, numbers: MatchDetails) -> InterestMatch:
    weighted = ranking.relevance_of(wish.weight * ranking.evidence_of([numbers.relevance]))
    return InterestMatch(wish, numbers, weighted.item())


def _exclusion_reason(order: DigestRequest, desk: DigestBuilder, paper: int) -> str:
    """What the reader said that keeps a paper out of all their digests, or nothing."""
    if any(one.paper_id == paper for one in order.opinions):
        return "the reader knows it: they have said what they think of it"
    muted = (text for text in order.reader.muted if paper in desk.saying(text))
    return next((f"the reader has muted “{text}”, which is in it" for text in muted), "")


def _no_candidate(paper: PaperNow, oldest: date, today: date, barred: str) -> str:
    """Why a paper is not among those that the reader's digest is made from."""
    days = [day for day, _ in paper.listed if day <= today]
    if paper.withdrawn_at:
        return f"it was withdrawn by {paper.withdrawn_at.date()}"
    if barred:
        return barred
    if not days:
        return f"no source lists it before {paper.listed[0][0]}" if paper.listed else "no source listed it"
    if days[-1] < oldest:
        return f"it was last listed on {days[-1]}, and the reader's digests look back to {oldest}"
    return f"it is known since {days[0]}, and deliveries of so long ago may be forgotten"


def _standing(ranked: Ranked, paper: PaperView) -> RankPosition:
    selection = compose.choose(ranked)
    place = ranked.papers.index(paper.id) if paper.id in selection.fates else None
    ahead, overtaken = _ahead(ranked, selection, paper)
    likeness, like = _most_similar(ranked.shelf, paper, ahead)
    before = zip(ranked.papers[: place or 0], ranked.scores.tolist(), strict=False)
    return RankPosition(
        weighed=ranked.weigh(paper),
        fate=selection.fates.get(paper.id),
        place=None if place is None else place + 1,
        relevant=len(ranked.papers),
        candidates=int(ranked.open.sum()),
        before=tuple(
            HigherRanked(number, ranked.shelf.papers[number].title, score)
            for number, score in itertools.islice(before, BEFORE)
        ),
        likeness=likeness,
        like=like,
        overtaken=overtaken,
    )


def _ahead(
    ranked: Ranked, selection: Selection, paper: PaperView
) -> tuple[list[PaperView], OutrankedBy | None]:
    """The picks that go before a paper whatever is like what, and why others did if it has no room."""
    line = sorted(ranked.papers, key=lambda number: number not in selection.first)  # by score in each group
    turns, places = ({n: turn for turn, n in enumerate(each)} for each in (line, ranked.papers))
    picks = [choice.paper for choice in selection.chosen]
    ahead = [pick for pick in picks if turns[pick.id] < turns.get(paper.id, len(turns))]
    if selection.fates.get(paper.id) is not SelectionOutcome.FULL:
        return ahead, None
    if len(ahead) < len(picks):
        return ahead, OutrankedBy.VARIETY
    lower = any(places[pick.id] > places[paper.id] for pick in picks)
    return ahead, OutrankedBy.CHAMPION if lower else None


def _most_similar(shelf: CandidatePool, paper: PaperView, picked: Sequence[PaperView]) -> tuple[float, str]:
    """How like a paper is to that pick which is most like it, and the title of that."""
    place = shelf.vectors.get(paper.id)
    others = [pick for pick in picked if pick.id in shelf.vectors]
    if place is None or not others:
        return 0.0, ""
    return max((round(float(shelf.vectors[pick.id] @ place), 4), pick.title) for pick in others)


def _card(digest: Digest | Skip, paper: int) -> Card | None:
    """The paper as it would stand in the digest."""
    for section in digest.sections if isinstance(digest, Digest) else ():
        for pick in section.picks:
            if pick.paper_id == paper:
                return Card(section.interest, pick.reason, pick.trend, pick.score)
    return None


# --- the one sentence


def _verdict(facts: Explanation) -> str:
    known = [_of_ledger(one) for one in facts.recorded if one.made_at <= facts.at]
    if said := next(filter(None, known), "") or _of_reader(facts.reader):
        return said
    if facts.no_candidate:
        return f"Not sent: {facts.no_candidate}."
    return _of_digest(facts)


def _of_ledger(one: Recorded) -> str:
    """What a digest did for the paper; nothing where it never left."""
    digest = f"the digest {one.edition}"
    if one.state is DeliveryState.SENT:
        under = f", under “{one.interest}”" if one.interest else ""
        return f"Sent on {(one.sent_at or one.made_at).date()} in {digest}{under}: {one.reason}."
    if one.state is DeliveryState.UNCERTAIN or one.possibly_delivered:
        return f"It may have been sent in {digest}: the relay did not answer in the end."
    if one.state in ledger.UNDELIVERED:
        return ""
    if one.held:
        return f"It is in {digest}, which is held back: {one.held}."
    if one.state is DeliveryState.DEFERRED:
        return f"It is in {digest}, which is tried again: {one.state_reason or 'the relay put it off'}."
    return f"It is in {digest}, which is about to be sent."


def _of_reader(reader: ReaderNow) -> str:
    """Why nothing at all is sent to this reader, if so."""
    until = f" until {reader.paused_until.date()}" if reader.paused_until else ""
    said = {
        None: "the reader had not signed up yet",
        SubscriberState.PENDING: "the reader has not confirmed the address yet",
        SubscriberState.PAUSED: f"the reader has paused{until}",
        SubscriberState.UNSUBSCRIBED: "the reader has unsubscribed",
        SubscriberState.BOUNCING: "mail to the address comes back",
        SubscriberState.ERASED: "the reader was erased",
    }.get(reader.state)
    if said is None and reader.suppressed:
        said = f"the address gets no mail ({reader.suppressed})"
    return f"Not sent: {said}." if said else ""


def _of_digest(facts: Explanation) -> str:
    """What the next digest would do for a candidate."""
    standing = facts.standing
    if facts.card:
        due = f", due {facts.reader.next_due_at:%Y-%m-%d %H:%M} UTC" if facts.reader.next_due_at else ""
        under = f", under “{facts.card.interest}”" if facts.card.interest else ""
        return f"Would be sent in the next digest{due}{under}: {facts.card.reason}."
    if standing is None or standing.fate is None:
        return _of_floor(facts)
    if standing.fate is SelectionOutcome.PICKED:
        return f"Not sent yet: {facts.no_digest}."
    return f"Not in the next digest: {_of_room(facts, standing)}."


def _of_floor(facts: Explanation) -> str:
    if not (facts.interests or (facts.standing and facts.standing.relevant)):
        return f"Not in the next digest: {facts.reader.max_papers} papers that trend more fill it."
    relevance = facts.standing.weighed.relevance if facts.standing else 0.0
    under = f"its relevance {shown(max(relevance, 0.0))} is under the floor of {shown(facts.floor)}"
    under += _limiting_factor(facts)
    nearest = max(facts.interests, key=lambda one: one.numbers.agreement, default=None)
    if nearest and nearest.numbers.left_out:
        return f"Not sent: “{nearest.wish.text}” leaves it out ({nearest.numbers.left_out}), and {under}."
    return f"Not sent: {under}."


def _limiting_factor(facts: Explanation) -> str:
    """What the reader disliked, where the interests alone would bring the paper."""
    if not facts.taste or facts.taste.relevance >= 0:
        return ""
    evidence = ranking.evidence_of(one.numbers.relevance for one in facts.interests)
    enough = evidence @ [one.wish.weight for one in facts.interests] >= ranking.ENOUGH
    return f": it is {facts.taste.reason}" if enough else ""


def _of_room(facts: Explanation, standing: RankPosition) -> str:
    most, where = facts.reader.max_papers, f"number {standing.place} of {standing.relevant} by its score"
    room = f"it has room for {most} papers" if most > 1 else "it has room for one paper"
    if standing.fate is SelectionOutcome.QUOTA:
        limited = [one for one in facts.interests if one.wish.quota is not None and one.numbers.relevance]
        texts = ", ".join(f"“{one.wish.text}” ({one.wish.quota})" for one in limited)
        return f"the quota of {texts} is taken by other papers"
    if standing.overtaken is OutrankedBy.VARIETY:
        alike = f"“{standing.like}”, which is in it (likeness {shown(standing.likeness)})"
        said = "says much the same as" if standing.likeness >= ALIKE else "is in part like"
        return f"it {said} {alike}, and papers that repeat less go first, though their scores are lower"
    if standing.overtaken is OutrankedBy.CHAMPION:
        return f"{room}; this one is {where}, and each interest's best paper goes first"
    return f"{room}, and this one is {where}"


def shown(figure: float) -> str:
    """To two places; rounded down, so that what is under the floor never reads as if it were not."""
    return f"{math.floor(round(figure * 100, 6)) / 100:.2f}"
