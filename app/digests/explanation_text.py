"""Write an explanation: the sentence on why a paper was or was not sent, a note, and the scores."""

import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

from app.delivery import ledger
from app.digests import ranking
from app.digests.explanation_types import (
    Explanation,
    OutrankedBy,
    PastDelivery,
    PreferenceChange,
    RankPosition,
    SubscriberNow,
)
from app.digests.selection import SelectionOutcome
from app.storage.models import DeliveryState, SubscriberState
from app.subscribers import event_labels
from app.text.in_words import count_of

NEAR_DUPLICATE = 0.5  # at this similarity or above, two papers are described as saying much the same


def summarize(facts: Explanation) -> str:
    """Return one sentence that explains why the paper was sent, will be sent, or is not sent.

    Dates without a time are in the subscriber's time zone, as the names of editions are.
    """
    if delivery := explained_delivery(facts.deliveries, facts.at):
        return _delivery_sentence(delivery, ZoneInfo(facts.subscriber.zone))
    if sentence := _subscriber_sentence(facts.subscriber):
        return sentence
    if facts.ineligible_reason:
        return f"Not sent: {facts.ineligible_reason}."
    if facts.card:
        due = (
            f", due {facts.subscriber.next_due_at:%Y-%m-%d %H:%M} UTC" if facts.subscriber.next_due_at else ""
        )
        under = f", under “{facts.card.interest}”" if facts.card.interest else ""
        return f"Would be sent in the next digest{due}{under}: {facts.card.reason}."
    if facts.rank is None or facts.rank.outcome is None:
        return _below_floor_sentence(facts)
    if facts.rank.outcome is SelectionOutcome.PICKED:
        return f"Not sent yet: {facts.skip_reason}."
    return f"Not in the next digest: {_no_room_reason(facts, facts.rank)}."


def explained_delivery(deliveries: Sequence[PastDelivery], at: datetime) -> PastDelivery | None:
    """Return the newest delivery, created by `at`, that sent the paper, may have sent it, or will send it."""
    return next(
        (
            delivery
            for delivery in deliveries
            if delivery.created_at <= at
            and (delivery.possibly_delivered or delivery.state not in ledger.UNDELIVERED)
        ),
        None,
    )


def describe_changes(changes: Sequence[PreferenceChange], explained_at: datetime, stored_since: date) -> str:
    """Return a note that the preferences changed after `explained_at`, or "" if they did not.

    Changes before `stored_since` may have been deleted.
    """
    if changes:
        names = dict.fromkeys(name for change in changes for name in change.preferences)
        named = [event_labels.name_preferences(names)] if names else []
        named += ["all of them, by a new sign-up"] if any(not each.preferences for each in changes) else []
        first = f"first at {changes[0].at:%Y-%m-%d %H:%M} UTC"
        since = f"{explained_at:%Y-%m-%d %H:%M} UTC"
        note = f"The subscriber's preferences have changed since {since} ({', '.join(named)}; {first})."
    elif (day := explained_at.date()) <= stored_since:
        note = (
            f"The preferences may have been different on {day}: changes before {stored_since} are not kept."
        )
    else:
        return ""
    return f"{note} The scores use the current ones."


def list_scores(facts: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the paper's scores with their names. If it was not sent, first yield what rules it out."""
    sent = (past.created_at for past in facts.deliveries if past.state is DeliveryState.SENT)
    if all(created_at > facts.at for created_at in sent):
        if facts.ineligible_reason:
            yield "not a candidate", facts.ineligible_reason
        if facts.skip_reason:
            yield "no digest", facts.skip_reason
    if facts.profile:
        yield "profile", f"{format_score(facts.profile.relevance)}: {facts.profile.reason}"
    if rank := facts.rank:
        scores, floor = rank.breakdown, format_score(facts.floor)
        yield "relevance", f"{format_score(scores.relevance)}; at least {floor} is needed"
        yield "strength", format_score(scores.strength)
        if scores.trend.score:
            yield "trend", f"{format_score(scores.trend.score)}: {scores.trend.words or 'no votes are known'}"
        yield "freshness", format_score(scores.freshness)
        pinned = f" + {ranking.PINNED:g}, because the paper is pinned" if scores.pinned else ""
        yield "score", f"{scores.score:.3f} = strength × (1 + {ranking.TREND} × trend) × freshness{pinned}"
        if rank.position:
            relevant = count_of(rank.relevant_papers, "relevant paper")
            yield "rank", f"{rank.position} of {relevant}, of {count_of(rank.candidates, 'candidate')}"
        if (similarity := format_score(rank.similarity)) > format_score(0):
            yield "similarity", f"{similarity} to “{rank.similar_to}”, which is selected earlier"


def _delivery_sentence(delivery: PastDelivery, zone: ZoneInfo) -> str:
    """Return a sentence on a digest with the paper that was delivered, may have been, or will be."""
    digest = f"the digest {delivery.edition}"
    if delivery.state is DeliveryState.SENT:
        under = f", under “{delivery.interest}”" if delivery.interest else ""
        sent_on = (delivery.sent_at or delivery.created_at).astimezone(zone).date()
        return f"Sent on {sent_on} in {digest}{under}: {delivery.reason}."
    if delivery.state is DeliveryState.UNCERTAIN or delivery.possibly_delivered:
        return f"It may have been sent in {digest}: {delivery.state_reason or 'the relay’s reply was lost'}."
    if delivery.hold_reason:
        return f"It is in {digest}, which is held back: {delivery.hold_reason}."
    at = f"at {delivery.next_attempt_at:%Y-%m-%d %H:%M} UTC" if delivery.next_attempt_at else "later"
    if delivery.state is DeliveryState.DEFERRED:
        return f"It is in {digest}, which will be retried {at}: {delivery.state_reason or 'deferred'}."
    is_due = delivery.state is DeliveryState.PENDING
    return f"It is in {digest}, which is {'due ' + at if is_due else 'being sent'}."


def _subscriber_sentence(subscriber: SubscriberNow) -> str:
    """Return a sentence on why no mail is sent to this subscriber, or "" if digests may be sent."""
    end = subscriber.paused_until and subscriber.paused_until.astimezone(ZoneInfo(subscriber.zone))
    until = f" until {end.date()}" if end else ""
    reason = {
        None: "the subscriber had not signed up yet",
        SubscriberState.PENDING: "the subscriber has not confirmed the address yet",
        SubscriberState.PAUSED: f"the subscriber has paused{until}",
        SubscriberState.UNSUBSCRIBED: "the subscriber has unsubscribed",
        SubscriberState.BOUNCING: "mail to the address bounces",
        SubscriberState.ERASED: "the subscriber was erased",
    }.get(subscriber.state)
    if reason is None and subscriber.suppression_reason:
        reason = f"no mail is sent to the address ({subscriber.suppression_reason})"
    return f"Not sent: {reason}." if reason else ""


def _below_floor_sentence(facts: Explanation) -> str:
    """Return a sentence on why the paper is not relevant enough, naming any exclusion or dislike."""
    if not (facts.interests or (facts.rank and facts.rank.relevant_papers)):
        most = count_of(facts.subscriber.max_papers, "paper")
        return f"Not in the next digest: it has room for {most}, and other papers have a stronger trend."
    relevance = facts.rank.breakdown.relevance if facts.rank else 0.0
    shortfall = (
        f"its relevance {format_score(max(relevance, 0.0))} is below the floor of {format_score(facts.floor)}"
    )
    if facts.profile and facts.profile.relevance < 0:
        evidence = ranking.evidence_of(match.details.relevance for match in facts.interests)
        if evidence @ [match.interest.weight for match in facts.interests] >= ranking.ENOUGH:
            shortfall += f": it is {facts.profile.reason}"
    nearest = max(facts.interests, key=lambda match: match.details.agreement, default=None)
    if nearest and (rejection := nearest.details.rejection_reason):
        return f"Not sent: “{nearest.interest.text}” does not match it ({rejection}), and {shortfall}."
    return f"Not sent: {shortfall}."


def _no_room_reason(facts: Explanation, rank: RankPosition) -> str:
    """Return why other papers took the place of a paper that is relevant enough."""
    most, position = (
        facts.subscriber.max_papers,
        f"number {rank.position} of {rank.relevant_papers} by its score",
    )
    room = f"it has room for {count_of(most, 'paper')}"
    if rank.outcome is SelectionOutcome.QUOTA:
        matches = [(match.interest, match.details.relevance) for match in facts.interests]
        limited = [interest for interest, relevance in matches if interest.quota is not None and relevance]
        texts = ", ".join(f"“{interest.text}” ({interest.quota})" for interest in limited)
        return f"other papers have used up the quota of {texts}"
    if rank.outranked_by is OutrankedBy.VARIETY:
        other = f"“{rank.similar_to}”, which is in it (similarity {format_score(rank.similarity)})"
        relation = "says much the same as" if rank.similarity >= NEAR_DUPLICATE else "is similar to"
        return f"it {relation} {other}, so more varied papers with lower scores go first"
    if rank.outranked_by is OutrankedBy.BEST_OF_INTEREST:
        return f"{room}; this one is {position}, and each interest's best paper goes first"
    return f"{room}, and this one is {position}"


def format_score(score: float) -> str:
    """Format a score to two decimals, rounded down: a score below the floor must not read as the floor.

    The strength is stored in 32 bits, so the last digits are ignored: 0.34999999 is 0.35.
    """
    return f"{math.floor(round(score * 100, 4)) / 100:.2f}"
