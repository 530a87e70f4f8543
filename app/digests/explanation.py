"""Explain why a reader was sent a paper, or was not, with the code that composes digests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime

from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger, suppression
from app.digests import compose, explanation_text, planning, ranking, selection
from app.digests.builder import DigestBuilder, DigestContext, DigestRequest
from app.digests.explanation_types import (
    Card,
    Explanation,
    HigherRanked,
    InterestMatch,
    OutrankedBy,
    PaperNow,
    PastDelivery,
    RankPosition,
    ReaderNow,
)
from app.digests.ranking import CandidatePool, Ranked
from app.digests.selection import Selection, SelectionOutcome
from app.errors import NotFound
from app.papers import queries
from app.relevance.matching import MatchDetails
from app.storage.models import Delivery, Listing, Paper, Source, Subscriber
from app.subscribers import schedule
from app.text import sanitize
from app.types import Digest, DigestItem, Interest, MailKind, Match, PaperView, Section, Skip

MAX_HIGHER_RANKED = 10  # papers with better scores that are named


def explain(
    context: DigestContext, now: datetime, subscriber: str, paper: str, at: datetime | None = None
) -> Explanation:
    """Explain why a reader (address or number) was sent a paper (id, arXiv id, DOI or URL), or why not.

    Listings, votes, deliveries, and the reader's state and feedback are those of `at`, or of now; preferences
    and interests are always today's. Raises NotFound if there is no such reader or paper.
    """
    now = at or now
    with context.db.read() as session:
        row = subscribers.find(session, subscriber)
        reader = _reader(session, row, now)
        reader = replace(reader, next_due_at=None) if at else reader
        paper_now, view = _paper(session, paper)
        deliveries = _past_deliveries(context, session, reader.id, view.id)
        builder = DigestBuilder(context, session, now)
        builder.rewind_to(now)
        since = builder.earliest_possible_delivery
        [digest_request] = planning.digest_requests(session, [row], since, now)
    request = builder.ranking_request(digest_request)
    [ranked] = ranking.rank(builder.pool, [request])
    digest = compose.compose(schedule.edition(row.zone, planning.newest_due(row, now)), ranked)
    candidate = builder.pool.papers.get(view.id)
    exclusion = _exclusion_reason(digest_request, builder, view.id)
    if candidate and (exclusion or (candidate.last_listed_on or request.since) < request.since):
        candidate = None
    profile = ranked.profile
    facts = Explanation(
        verdict="",
        at=now,
        reader=reader,
        paper=paper_now,
        recorded=deliveries,
        floor=ranking.FLOOR,
        interests=tuple(
            _interest_match(interest, builder.match_details(interest.text, view))
            for interest in request.interests
        ),
        taste=Match(profile[view.id], request.profile_reason(view.id)) if view.id in profile else None,
        no_candidate="" if candidate else _no_candidate(paper_now, request.since, now.date(), exclusion),
        standing=_rank_position(ranked, candidate) if candidate else None,
        card=_card(digest, view.id),
        no_digest=digest.reason if isinstance(digest, Skip) else "",
    )
    return replace(facts, verdict=explanation_text.summarize(facts))


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
    """Return the paper with this id, arXiv id, DOI or URL, as it is stored today."""
    name = sanitize.one_line(name, 2000)
    asked_for = _paper_id(session, name) or queries.find_by_reference(session, name)
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


def _paper_id(session: Session, name: str) -> int | None:
    """Return `name` as a number if it is the id of a paper."""
    if not (name.isascii() and name.isdigit() and len(name) < 19):
        return None
    return session.exec(select(Paper.id).where(col(Paper.id) == int(name))).first()


def _past_deliveries(
    context: DigestContext, session: Session, reader: int, paper: int
) -> tuple[PastDelivery, ...]:
    """Return each delivery whose digest has the paper, under any former id; newest first."""
    deliveries = select(Delivery).where(Delivery.subscriber_id == reader, Delivery.kind == MailKind.DIGEST)
    rows = session.exec(deliveries.order_by(col(Delivery.created_at).desc())).all()
    digests = ledger.stored_digests(session, [row.id for row in rows])
    papers = {number: ledger.paper_ids(digest) for number, digest in digests.items()}
    current = queries.canonical_ids(session, {number for numbers in papers.values() for number in numbers})
    rows = [row for row in rows if paper in map(current.get, papers.get(row.id or 0, ()))]
    restored_digests = context.snapshots.restore(session, [digests[row.id or 0] for row in rows])
    pauses = {pause.edition: pause.reason for pause in ledger.pauses(session)}
    return tuple(
        _past_delivery(row, section, item, pauses)
        for row, restored in zip(rows, restored_digests, strict=True)
        for section in restored.digest.sections
        for item in section.picks
        if current.get(item.paper_id) == paper
    )


def _past_delivery(
    row: Delivery, section: Section, item: DigestItem, pauses: Mapping[str, str]
) -> PastDelivery:
    return PastDelivery(
        delivery_id=row.id or 0,
        edition=row.edition,
        state=row.state,
        state_reason=row.reason or row.smtp_text,
        held=pauses.get(ledger.ALL_EDITIONS) or pauses.get(row.edition, ""),
        possibly_delivered=row.possibly_delivered,
        made_at=row.created_at,
        sent_at=row.sent_at,
        interest=section.interest,
        reason=item.reason,
        trend=item.trend,
        score=item.score,
    )


def _interest_match(interest: Interest, details: MatchDetails) -> InterestMatch:
    weighted = ranking.relevance_of(interest.weight * ranking.evidence_of([details.relevance]))
    return InterestMatch(interest, details, weighted.item())


def _exclusion_reason(request: DigestRequest, builder: DigestBuilder, paper: int) -> str:
    """Return which feedback or muted text keeps a paper out of the reader's digests; empty if none does."""
    if any(item.paper_id == paper for item in request.feedback):
        return "the reader has already given feedback on it"
    muted = (text for text in request.reader.muted if paper in builder.papers_muted_by(text))
    return next((f"the reader has muted “{text}”, which is in it" for text in muted), "")


def _no_candidate(paper: PaperNow, oldest: date, today: date, exclusion: str) -> str:
    """Return why a paper is not a candidate for the reader's digest."""
    days = [day for day, _ in paper.listed if day <= today]
    if paper.withdrawn_at:
        return f"it was withdrawn by {paper.withdrawn_at.date()}"
    if exclusion:
        return exclusion
    if not days:
        return f"no source lists it before {paper.listed[0][0]}" if paper.listed else "no source listed it"
    if days[-1] < oldest:
        return f"it was last listed on {days[-1]}, and the reader's digests look back to {oldest}"
    return f"it was first listed on {days[0]}, and deliveries from that time may have been deleted"


def _rank_position(ranked: Ranked, paper: PaperView) -> RankPosition:
    selected = selection.select(ranked)
    place = ranked.papers.index(paper.id) if paper.id in selected.outcomes else None
    ahead, outranked_by = _papers_ahead(ranked, selected, paper)
    similarity, most_similar = _most_similar(ranked.pool, paper, ahead)
    before = zip(ranked.papers[: place or 0], ranked.scores.tolist(), strict=False)
    return RankPosition(
        weighed=ranked.score_breakdown(paper),
        fate=selected.outcomes.get(paper.id),
        place=None if place is None else place + 1,
        relevant=len(ranked.papers),
        candidates=int(ranked.eligible.sum()),
        before=tuple(
            HigherRanked(number, ranked.pool.papers[number].title, score)
            for number, score in itertools.islice(before, MAX_HIGHER_RANKED)
        ),
        likeness=similarity,
        like=most_similar,
        overtaken=outranked_by,
    )


def _papers_ahead(
    ranked: Ranked, selected: Selection, paper: PaperView
) -> tuple[list[PaperView], OutrankedBy | None]:
    """Return the selected papers that come before a paper regardless of similarity.

    If the digest had no room for the paper, also return why papers with lower scores were selected, if any.
    """
    # Each interest's best paper first, and by score in both groups: the order without MMR.
    order = sorted(ranked.papers, key=lambda number: number not in selected.best_per_interest)
    position = {number: index for index, number in enumerate(order)}
    papers = [choice.paper for choice in selected.selected]
    ahead = [other for other in papers if position[other.id] < position.get(paper.id, len(position))]
    if selected.outcomes.get(paper.id) is not SelectionOutcome.FULL:
        return ahead, None
    if len(ahead) < len(papers):
        return ahead, OutrankedBy.VARIETY
    rank = {number: index for index, number in enumerate(ranked.papers)}
    is_lower = any(rank[other.id] > rank[paper.id] for other in papers)
    return ahead, OutrankedBy.CHAMPION if is_lower else None


def _most_similar(pool: CandidatePool, paper: PaperView, selected: Sequence[PaperView]) -> tuple[float, str]:
    """Return the cosine similarity of a paper to the most similar selected paper, and the title of that."""
    vector = pool.vectors.get(paper.id)
    others = [other for other in selected if other.id in pool.vectors]
    if vector is None or not others:
        return 0.0, ""
    return max((round(float(pool.vectors[other.id] @ vector), 4), other.title) for other in others)


def _card(digest: Digest | Skip, paper: int) -> Card | None:
    for section in digest.sections if isinstance(digest, Digest) else ():
        for item in section.picks:
            if item.paper_id == paper:
                return Card(section.interest, item.reason, item.trend, item.score)
    return None
