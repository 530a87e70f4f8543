"""Word an explanation: the one sentence that says why a paper was or was not sent."""

from __future__ import annotations

import math

from app.delivery import ledger
from app.digests import ranking
from app.digests.explanation_types import Explanation, OutrankedBy, PastDelivery, RankPosition, ReaderNow
from app.digests.selection import SelectionOutcome
from app.storage.models import DeliveryState, SubscriberState

NEAR_DUPLICATE = 0.5  # the similarity from which two papers are said to say much the same


def summarize(facts: Explanation) -> str:
    """Return the one sentence that explains why the paper was sent, will be sent, or is not sent."""
    past = [_delivery_sentence(delivery) for delivery in facts.recorded if delivery.made_at <= facts.at]
    if sentence := next(filter(None, past), "") or _reader_sentence(facts.reader):
        return sentence
    if facts.no_candidate:
        return f"Not sent: {facts.no_candidate}."
    return _next_digest_sentence(facts)


def _delivery_sentence(delivery: PastDelivery) -> str:
    """Say what became of a digest with the paper; empty if it was not delivered."""
    digest = f"the digest {delivery.edition}"
    if delivery.state is DeliveryState.SENT:
        under = f", under “{delivery.interest}”" if delivery.interest else ""
        return (
            f"Sent on {(delivery.sent_at or delivery.made_at).date()} in {digest}{under}: {delivery.reason}."
        )
    if delivery.state is DeliveryState.UNCERTAIN or delivery.possibly_delivered:
        return f"It may have been sent in {digest}: the relay did not answer in the end."
    if delivery.state in ledger.UNDELIVERED:
        return ""
    if delivery.held:
        return f"It is in {digest}, which is held back: {delivery.held}."
    if delivery.state is DeliveryState.DEFERRED:
        return f"It is in {digest}, which is tried again: {delivery.state_reason or 'the relay put it off'}."
    return f"It is in {digest}, which is about to be sent."


def _reader_sentence(reader: ReaderNow) -> str:
    """Say why nothing at all is sent to this reader; empty if digests may be sent."""
    until = f" until {reader.paused_until.date()}" if reader.paused_until else ""
    reason = {
        None: "the reader had not signed up yet",
        SubscriberState.PENDING: "the reader has not confirmed the address yet",
        SubscriberState.PAUSED: f"the reader has paused{until}",
        SubscriberState.UNSUBSCRIBED: "the reader has unsubscribed",
        SubscriberState.BOUNCING: "mail to the address comes back",
        SubscriberState.ERASED: "the reader was erased",
    }.get(reader.state)
    if reason is None and reader.suppressed:
        reason = f"the address gets no mail ({reader.suppressed})"
    return f"Not sent: {reason}." if reason else ""


def _next_digest_sentence(facts: Explanation) -> str:
    """Say whether the next digest would have a candidate, and why."""
    standing = facts.standing
    if facts.card:
        due = f", due {facts.reader.next_due_at:%Y-%m-%d %H:%M} UTC" if facts.reader.next_due_at else ""
        under = f", under “{facts.card.interest}”" if facts.card.interest else ""
        return f"Would be sent in the next digest{due}{under}: {facts.card.reason}."
    if standing is None or standing.fate is None:
        return _below_floor_sentence(facts)
    if standing.fate is SelectionOutcome.PICKED:
        return f"Not sent yet: {facts.no_digest}."
    return f"Not in the next digest: {_no_room_reason(facts, standing)}."


def _below_floor_sentence(facts: Explanation) -> str:
    if not (facts.interests or (facts.standing and facts.standing.relevant)):
        return f"Not in the next digest: {facts.reader.max_papers} papers that trend more fill it."
    relevance = facts.standing.weighed.relevance if facts.standing else 0.0
    shortfall = (
        f"its relevance {format_score(max(relevance, 0.0))} is under the floor of {format_score(facts.floor)}"
    )
    shortfall += _limiting_factor(facts)
    nearest = max(facts.interests, key=lambda match: match.numbers.agreement, default=None)
    if nearest and nearest.numbers.left_out:
        return f"Not sent: “{nearest.wish.text}” leaves it out ({nearest.numbers.left_out}), and {shortfall}."
    return f"Not sent: {shortfall}."


def _limiting_factor(facts: Explanation) -> str:
    """Return the dislike that keeps the paper out; empty if the interests alone would not bring it either."""
    if not facts.taste or facts.taste.relevance >= 0:
        return ""
    evidence = ranking.evidence_of(match.numbers.relevance for match in facts.interests)
    is_enough = evidence @ [match.wish.weight for match in facts.interests] >= ranking.ENOUGH
    return f": it is {facts.taste.reason}" if is_enough else ""


def _no_room_reason(facts: Explanation, standing: RankPosition) -> str:
    """Say why other papers took the places of a paper that is relevant enough."""
    most, position = facts.reader.max_papers, f"number {standing.place} of {standing.relevant} by its score"
    room = f"it has room for {most} papers" if most > 1 else "it has room for one paper"
    if standing.fate is SelectionOutcome.QUOTA:
        limited = [m.wish for m in facts.interests if m.wish.quota is not None and m.numbers.relevance]
        texts = ", ".join(f"“{interest.text}” ({interest.quota})" for interest in limited)
        return f"the quota of {texts} is taken by other papers"
    if standing.overtaken is OutrankedBy.VARIETY:
        other = f"“{standing.like}”, which is in it (likeness {format_score(standing.likeness)})"
        relation = "says much the same as" if standing.likeness >= NEAR_DUPLICATE else "is in part like"
        return f"it {relation} {other}, and papers that repeat less go first, though their scores are lower"
    if standing.overtaken is OutrankedBy.CHAMPION:
        return f"{room}; this one is {position}, and each interest's best paper goes first"
    return f"{room}, and this one is {position}"


def format_score(score: float) -> str:
    """Format to two decimals, rounded down, so that a score under the floor never reads as the floor."""
    return f"{math.floor(round(score * 100, 6)) / 100:.2f}"
