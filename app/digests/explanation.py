"""Explain why a subscriber was or was not sent a paper, using the same code that composes digests."""

import itertools
from dataclasses import asdict, replace
from datetime import date, datetime

from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger, suppression
from app.digests import compose, explanation_text, planning, ranking, selection
from app.digests.builder import DigestBuilder, DigestContext
from app.digests.digest_requests import DigestRequest
from app.digests.explanation_types import (
    Card,
    Explanation,
    HigherRanked,
    InterestMatch,
    OutrankedBy,
    PaperNow,
    PastDelivery,
    PreferenceChange,
    RankPosition,
    SubscriberNow,
)
from app.digests.ranking import Ranked
from app.digests.selection import Selection, SelectionOutcome
from app.errors import NotFound
from app.papers import canonical_rows, paper_views
from app.relevance.cut_offs import FLOOR
from app.storage.models import Delivery, Listing, Paper, Source, Subscriber, SubscriberState
from app.subscribers import schedule
from app.text import sanitize
from app.types import Digest, DigestItem, Interest, MailKind, Match, PaperView, Section, Skip

# Preferences that affect when a digest is due or what else it contains, but not how papers are scored.
_WITHOUT_EFFECT_ON_SCORES = {"weekday", "hour", "zone", "paper_updates"}
MAX_HIGHER_RANKED = 10  # papers with higher scores that an explanation lists


def explain(
    context: DigestContext, now: datetime, subscriber: str, paper: str, at: datetime | None = None
) -> Explanation:
    """Explain why a subscriber (address or number) was sent a paper (id, arXiv id, DOI or URL), or why not.

    The verdict uses the listings, votes and deliveries, and the subscriber's state and feedback, as of `at`
    (default: now). Preferences and interests are always current. Raise NotFound if there is no such
    subscriber or paper, and InvalidInterest if none of the subscriber's interests can be parsed.
    """
    with context.db.read() as session:
        stored_since = ledger.retained_since(session, now, context.settings.retention_days)
        now = at or now
        row = subscribers.find(session, subscriber)
        subscriber_now = _subscriber(session, row, now)
        subscriber_now = replace(subscriber_now, next_due_at=None) if at else subscriber_now
        paper_now, view = _paper(session, paper, context.settings.base_url)
        deliveries = _past_deliveries(context, session, row.id or 0, view.id)
        delivery = explanation_text.explained_delivery(deliveries, now)
        explained_at = delivery.created_at if delivery else now
        has_preferences = delivery or subscriber_now.state not in (None, SubscriberState.PENDING)
        changes = _preference_changes(session, row.id or 0, explained_at, replaced=bool(has_preferences))
        group = DigestBuilder(context, session, now).by_window(session, [row], now)[-1]
        (builder := group.builder).rewind_to(now)
        [digest_request] = group.requests(session, now)
    times = _due_times_at(row, at) if at else planning.due_times(row, now)
    request = builder.ranking_request(replace(digest_request, following_due=times.following_due))
    [ranked] = ranking.rank(builder.pool, [request])
    digest = compose.compose(times.edition, ranked)
    sections = digest.sections if isinstance(digest, Digest) else ()
    cards = {item.paper_id: _card(each, item, score) for each in sections for item, score in each.scored}
    interests = tuple(_interest_match(builder, interest, view) for interest in request.interests)
    profile = ranked.profile
    ineligible_reason = _ineligible_reason(builder, digest_request, request.since, paper_now, now.date())
    facts = Explanation(
        verdict="",
        note=explanation_text.describe_changes(changes, explained_at, stored_since),
        at=now,
        changes_since=changes,
        subscriber=subscriber_now,
        paper=paper_now,
        deliveries=deliveries,
        floor=FLOOR,
        interests=interests,
        profile=Match(profile[view.id], request.profile_reason(view.id)) if view.id in profile else None,
        ineligible_reason=ineligible_reason,
        rank=None if ineligible_reason else _rank_position(ranked, builder.pool.papers[view.id]),
        card=cards.get(view.id),
        skip_reason=digest.reason if isinstance(digest, Skip) else "",
    )
    return replace(facts, verdict=explanation_text.summarize(facts))


def _due_times_at(row: Subscriber, at: datetime) -> planning.DueTimes:
    """Return the times of the edition of the local day of `at`. The row stores only the current due time."""
    following_due = schedule.next_edition_due(row.cadence, row.weekday, row.hour, row.zone, at)
    return planning.DueTimes(schedule.edition(row.zone, at), at, following_due)


def _interest_match(builder: DigestBuilder, interest: Interest, paper: PaperView) -> InterestMatch:
    details = builder.interests.details(interest.text, paper)
    weighted = ranking.relevance_of(interest.weight * ranking.evidence_of([details.relevance]))
    return InterestMatch(interest, details, weighted.item())


def _subscriber(session: Session, row: Subscriber, at: datetime) -> SubscriberNow:
    listed, state = suppression.get(session, row.email), subscribers.state_at(session, row, at)
    return SubscriberNow(
        id=row.id or 0,
        email=row.email,
        state=state,
        zone=row.zone,
        paused_until=row.paused_until if state is row.state else None,
        suppression_reason=listed.reason if listed and listed.since <= at else "",
        next_due_at=row.next_due_at,
        min_papers=row.min_papers,
        max_papers=row.max_papers,
    )


def _preference_changes(
    session: Session, subscriber_id: int, since: datetime, *, replaced: bool
) -> tuple[PreferenceChange, ...]:
    """Return the changes after `since` to preferences that affect which papers are sent, oldest first.

    `replaced` is True if the next confirmation after `since` replaces earlier preferences. All confirmations
    do, except a subscriber's very first one.
    """
    changes = []
    for event in subscribers.preference_events(session, subscriber_id, since):
        names = tuple(name for name in event.detail.split(", ") if name not in _WITHOUT_EFFECT_ON_SCORES)
        if event.kind == "changed" and names:
            changes.append(PreferenceChange(event.at, names))
        elif event.kind == "confirmed":
            changes += [PreferenceChange(event.at, ())] if replaced else []
            replaced = True
    return tuple(changes)


def _paper(session: Session, reference: str, base_url: str) -> tuple[PaperNow, PaperView]:
    """Return the paper with this id, arXiv id, DOI or URL, as it is stored now."""
    reference = sanitize.one_line(reference, 2000)
    requested_id = None
    if reference.isascii() and reference.isdigit() and len(reference) < 10:
        requested_id = session.exec(select(Paper.id).where(col(Paper.id) == int(reference))).first()
    requested_id = requested_id or canonical_rows.find_by_reference(session, reference, base_url)
    if requested_id is None:
        raise NotFound(f"There is no paper {reference[:100]} in the archive.")
    row = canonical_rows.papers(session, [requested_id])[requested_id]
    listed = select(col(Listing.listed_on), col(Source.name)).join(Source).where(Listing.paper_id == row.id)
    paper = PaperNow(
        id=row.id or 0,
        requested_id=requested_id,
        title=row.title,
        arxiv_id=row.arxiv_id or "",
        withdrawn_at=row.withdrawn_at,
        hidden_at=row.hidden_at,
        listings=tuple(sorted({(day, source) for day, source in session.exec(listed)})),
    )
    return paper, paper_views.by_ids(session, [requested_id])[0]


def _past_deliveries(
    context: DigestContext, session: Session, subscriber_id: int, paper: int
) -> tuple[PastDelivery, ...]:
    """Return the deliveries whose digest contains the paper, under any of its ids, newest first."""
    deliveries = select(Delivery).where(
        Delivery.subscriber_id == subscriber_id, Delivery.kind == MailKind.DIGEST
    )
    rows = session.exec(deliveries.order_by(col(Delivery.created_at).desc())).all()
    digests = ledger.stored_digests(session, [row.id for row in rows])
    papers = {number: ledger.paper_ids(digest) for number, digest in digests.items()}
    history = canonical_rows.MergeHistory.load(session, set().union(*papers.values()))

    def contained(paper_id: int, at: datetime) -> bool:
        return paper in history.papers_at(paper_id, at)

    rows = [
        row
        for row in rows
        if any(contained(number, row.created_at) for number in papers.get(row.id or 0, ()))
    ]
    restored_digests = context.snapshots.restore(session, [digests[row.id or 0] for row in rows])
    pauses = ledger.pauses(session)
    return tuple(
        PastDelivery(
            delivery_id=row.id or 0,
            edition=row.edition,
            state=row.state,
            state_reason=row.reason or row.smtp_text,
            hold_reason=ledger.hold_reason(pauses, row),
            possibly_delivered=row.possibly_delivered,
            next_attempt_at=row.next_attempt_at,
            created_at=row.created_at,
            sent_at=row.sent_at,
            **asdict(_card(section, item, score)),
        )
        for row, restored in zip(rows, restored_digests, strict=True)
        for section in restored.digest.sections
        for item, score in section.scored
        if contained(item.paper_id, row.created_at)
    )


def _card(section: Section, item: DigestItem, score: float) -> Card:
    return Card(section.interest, item.reason, item.trend, score)


def _ineligible_reason(
    builder: DigestBuilder, request: DigestRequest, since: date, paper: PaperNow, today: date
) -> str:
    """Return why a paper is not a candidate for the subscriber's digest, or "" if it is one.

    `since` is the first listing day that the subscriber's digests consider.
    """
    exclusion = ""
    if any(item.paper_id == paper.id for item in request.feedback):
        exclusion = "the subscriber has already given feedback on it"
    elif muted := [
        text for text in request.subscriber.muted if paper.id in builder.interests.papers_muted_by(text)
    ]:
        exclusion = f"the subscriber has muted “{muted[0]}”, which the paper mentions"
    candidate = builder.pool.papers.get(paper.id)
    is_recent = candidate and (
        candidate.id in builder.pool.pinned or (candidate.last_listed_on or since) >= since
    )
    if is_recent and not exclusion:
        return ""
    days = [day for day, _ in paper.listings if day <= today]
    if paper.hidden_at:
        return f"an operator hid it on {paper.hidden_at.date()}"
    if paper.withdrawn_at:
        return f"it had been withdrawn by {paper.withdrawn_at.date()}"
    if exclusion:
        return exclusion
    if not days:
        return (
            f"no source lists it before {paper.listings[0][0]}" if paper.listings else "no source listed it"
        )
    if days[-1] < since:
        return f"it was last listed on {days[-1]}, and the subscriber's digests look back to {since}"
    return (
        f"it was first listed on {days[0]}, and it may have been sent then: deliveries up "
        f"to {builder.retained_since} may have been deleted"
    )


def _rank_position(ranked: Ranked, paper: PaperView) -> RankPosition:
    selected = selection.select(ranked)
    ahead, outranked_by = _papers_ahead(ranked, selected, paper)
    papers, vectors = ranked.pool.papers, ranked.pool.vectors
    similarities = [
        (round(float(vectors[other.id] @ vectors[paper.id]), 4), other.title)
        for other in ahead
        if other.id in vectors and paper.id in vectors
    ]
    similarity, similar_to = max(similarities, default=(0.0, ""))
    place = ranked.papers.index(paper.id) if paper.id in selected.outcomes else None
    higher_ranked = zip(ranked.papers[: place or 0], ranked.scores.tolist(), strict=False)
    return RankPosition(
        breakdown=ranked.score_breakdown(paper),
        outcome=selected.outcomes.get(paper.id),
        position=None if place is None else place + 1,
        relevant_papers=len(ranked.papers),
        candidates=int(ranked.eligible.sum()),
        higher_ranked=tuple(
            HigherRanked(number, papers[number].title, score)
            for number, score in itertools.islice(higher_ranked, MAX_HIGHER_RANKED)
        ),
        similarity=similarity,
        similar_to=similar_to,
        outranked_by=outranked_by,
    )


def _papers_ahead(
    ranked: Ranked, selected: Selection, paper: PaperView
) -> tuple[list[PaperView], OutrankedBy | None]:
    """Return the selected papers that would precede a paper even without MMR.

    If the digest had no room for the paper, also return why any papers with lower scores were selected.
    """
    # The order without MMR: first pinned papers and each interest's best one, then the others, by score.
    order = sorted(ranked.papers, key=lambda number: number not in selected.first_choices)
    position = {number: index for index, number in enumerate(order)}
    papers = [choice.paper for choice in selected.selected]
    ahead = [other for other in papers if position[other.id] < position.get(paper.id, len(position))]
    if selected.outcomes.get(paper.id) is not SelectionOutcome.FULL:
        return ahead, None
    if len(ahead) < len(papers):
        return ahead, OutrankedBy.VARIETY
    rank = {number: index for index, number in enumerate(ranked.papers)}
    is_lower = any(rank[other.id] > rank[paper.id] for other in papers)
    return ahead, OutrankedBy.BEST_OF_INTEREST if is_lower else None
