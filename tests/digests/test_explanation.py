"""Test explanations: the verdict is correct and agrees with planning."""

import math
import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, select

from app import pipeline, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.digests import explanation_text, planning, ranking
from app.digests.explanation_types import Explanation, OutrankedBy
from app.errors import NotFound
from app.relevance.cut_offs import FLOOR
from app.storage.models import (
    Delivery,
    DeliveryState,
    Event,
    InterestRow,
    Listing,
    Merge,
    Paper,
    Source,
    Subscriber,
    SubscriberState,
)
from app.subscribers import Preferences, event_log, stored_interests
from app.types import Cadence, EmptyDigestPolicy, Interest, PaperRecord, ParseResult
from tests.conftest import NOW
from tests.support import factories, sample_archive, stored_records

TODAY = NOW.date()
ALICE = "alice@example.org"
TITLES = (
    "Language Agents that Remember",
    "Language Agents that Plan",
    "Language Agents that Trade in Markets",
    "Video Diffusion in Real Time",
)


@pytest.fixture
def papers(app: Application) -> dict[str, int]:
    """Add four papers of today, and Alice, who likes language agents but no markets.

    Return the ids by title.
    """
    with app.db.write() as session:
        source = factories.add_source(session, NOW - timedelta(days=30))
        ids = {
            title: factories.add_paper(
                session, source, title, TODAY, NOW, upvotes=40 - number, abstract=f"{title}, at last."
            )
            for number, title in enumerate(TITLES)
        }
        factories.add_subscriber(session, ALICE, ["language agents -markets"], NOW)
    return ids


def explain(app: Application, paper: object, **options: Any) -> Explanation:
    return pipeline.explain(app, options.pop("now", NOW), ALICE, str(paper), **options)


def update_alice(app: Application, **fields: Any) -> None:
    """Set columns of Alice's row."""
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        for name, value in fields.items():
            setattr(alice, name, value)


def deliveries(session: Session) -> list[Delivery]:
    return list(session.exec(select(Delivery).order_by(col(Delivery.id))))


def planned_papers(app: Application) -> set[int]:
    """Plan Alice's digest and return its papers."""
    planning.plan(app.digest_context, NOW)
    with app.db.read() as session:
        digests = ledger.stored_digests(session, [row.id for row in deliveries(session)])
        return {number for digest in digests.values() for number in ledger.paper_ids(digest)}


@pytest.mark.parametrize(
    "preference",
    [
        {},
        {"max_papers": 1},
        {"min_papers": 5},
        {"when_empty": EmptyDigestPolicy.TRENDING, "max_papers": 2},
        {"max_trending": 2},
    ],
)
@pytest.mark.parametrize("interests", [True, False])
def test_explanation_agrees_with_planning(
    app: Application, papers: dict[str, int], preference: dict[str, Any], interests: bool
) -> None:
    """For any preferences, a paper is planned if and only if the explanation says so."""
    update_alice(app, **preference)
    if not interests:
        with app.db.write() as session:
            session.delete(session.exec(select(InterestRow)).one())
    explanations = {number: explain(app, number) for number in papers.values()}
    promised = {n for n, each in explanations.items() if each.verdict.startswith("Would be sent")}
    assert promised == planned_papers(app)
    assert promised == {n for n, each in explanations.items() if each.card}


def test_scores_of_a_matching_paper(app: Application, papers: dict[str, int]) -> None:
    """They are those of matching and composing, and combine as documented."""
    explanation = explain(app, papers[TITLES[0]])
    assert explanation.verdict.startswith(
        "Would be sent in the next digest, due 2026-11-20 09:30 UTC, under “language agents -markets”: "
    )
    (match,) = explanation.interests
    assert match.details.all_words
    assert match.details.words > 0
    assert explanation.rank
    weighed = explanation.rank.breakdown
    assert weighed.relevance == pytest.approx(match.details.relevance)
    assert weighed.strength == pytest.approx(match.details.strength)
    assert weighed.score == pytest.approx(
        weighed.strength * (1 + ranking.TREND * weighed.trend.score) * weighed.freshness
    )
    assert (explanation.rank.position, explanation.rank.candidates, explanation.floor) == (
        1,
        4,
        FLOOR,
    )
    assert explanation.paper.listings == ((TODAY, "Hugging Face Daily Papers"),)


def test_weights_are_applied_to_relevance(app: Application, papers: dict[str, int]) -> None:
    """The weighted relevances combine to that of the paper."""
    with app.db.write() as session:
        interests = (Interest("language agents", 3.0), Interest("plan"), Interest("video", 0.5))
        subscribers.change(session, 1, Preferences(zone="UTC", interests=interests), NOW)
    explanation = explain(app, papers[TITLES[0]])
    heavy = explanation.interests[0]
    assert heavy.weighted == pytest.approx(1 - (1 - heavy.details.relevance) ** 3)
    assert heavy.weighted > heavy.details.relevance > 0
    remainder = math.prod(1 - match.weighted for match in explanation.interests)
    assert explanation.rank
    assert explanation.rank.breakdown.relevance == pytest.approx(1 - remainder)


def test_paper_below_the_score_threshold(app: Application, papers: dict[str, int]) -> None:
    """The verdict names its relevance and the threshold."""
    explanation = explain(app, papers["Video Diffusion in Real Time"])
    assert explanation.verdict == "Not sent: its relevance 0.00 is below the floor of 0.33."
    assert explanation.rank
    assert (explanation.rank.outcome, explanation.rank.position) == (None, None)


def test_excluding_dislike_is_named(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interest alone would include the paper."""
    monkeypatch.setattr(app.models, "current", lambda session: sample_archive.trained_model())
    like = next(paper for paper in sample_archive.papers() if "protein folding" in paper.abstract)
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        disliked, other = (
            factories.add_paper(session, source, title, TODAY, NOW, abstract=like.abstract)
            for title in (like.title, "A Sequel")
        )
        alice = factories.add_subscriber(session, ALICE, ["protein folding"], NOW)
        session.exec(select(InterestRow)).one().weight = 0.8
    assert explain(app, other).verdict.startswith("Would be sent")
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, disliked, False, NOW)
    explanation = explain(app, other)
    assert re.fullmatch(
        rf"Not sent: its relevance 0\.[0-3]\d is below the floor of 0\.33: "
        rf"it is close to “{like.title}”, which you asked less of, through .+\.",
        explanation.verdict,
    )


def test_matching_exclusion_is_named(app: Application, papers: dict[str, int]) -> None:
    explanation = explain(app, papers["Language Agents that Trade in Markets"])
    excluded = "it contains a word or phrase that the interest excludes"
    assert explanation.interests[0].details.rejection_reason == excluded
    assert explanation.verdict.startswith(
        f"Not sent: “language agents -markets” does not match it ({excluded})"
    )


def test_absent_category_is_named(app: Application, papers: dict[str, int]) -> None:
    """Neither this paper nor any other has a category, so the interest can match nothing."""
    with app.db.write() as session:
        subscriber = session.exec(select(Subscriber.id)).one() or 0
        stored_interests.store(session, subscriber, [Interest("cat:cs.CL")])
    explanation = explain(app, papers[TITLES[0]])
    assert explanation.interests[0].details.rejection_reason == "no source gives its categories"
    assert "“cat:cs.CL” does not match it (no source gives its categories)" in explanation.verdict
    assert "no recent paper has a category (Hugging Face Daily Papers gives none)" in explanation.skip_reason


def test_full_digest_and_full_quota(app: Application, papers: dict[str, int]) -> None:
    """The papers with better scores are named."""
    update_alice(app, max_papers=1)
    explanation = explain(app, papers[TITLES[1]])
    assert explanation.verdict == (
        "Not in the next digest: it has room for 1 paper, and this one is number 2 of 2 by its score."
    )
    assert explanation.rank
    assert [better.title for better in explanation.rank.higher_ranked] == [TITLES[0]]
    update_alice(app, max_papers=10)
    with app.db.write() as session:
        session.exec(select(InterestRow)).one().quota = 1
    assert explain(app, papers[TITLES[1]]).verdict == (
        "Not in the next digest: other papers have used up the quota of “language agents -markets” (1)."
    )


@pytest.fixture
def similar_papers(app: Application, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Add three papers on protein folding, best first. The second repeats the first."""
    monkeypatch.setattr(app.models, "current", lambda session: sample_archive.trained_model())
    about = [paper.abstract for paper in sample_archive.papers() if "protein folding" in paper.abstract]
    abstracts = {
        "Protein Folding": about[0],
        "Protein Folding Again": about[0],
        "More Protein Folding": about[1],
    }
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        return [
            factories.add_paper(
                session, source, title, TODAY, NOW, upvotes=40 - 10 * place, abstract=abstract
            )
            for place, (title, abstract) in enumerate(abstracts.items())
        ]


def test_duplicate_content_is_named(app: Application, similar_papers: list[int]) -> None:
    """A paper with a lower score is picked, so the verdict names the similarity instead of the rank."""
    with app.db.write() as session:
        factories.add_subscriber(session, ALICE, ["protein folding"], NOW, max_papers=2)
    explanation, selected = explain(app, similar_papers[1]), explain(app, similar_papers[2])
    assert explanation.rank
    assert selected.card
    assert explanation.rank.breakdown.score > selected.card.score
    assert explanation.rank.outranked_by is OutrankedBy.VARIETY
    assert explanation.verdict == (
        "Not in the next digest: it says much the same as “Protein Folding”, which is in it "
        "(similarity 1.00), so more varied papers with lower scores go first."
    )
    assert planned_papers(app) == {similar_papers[0], similar_papers[2]}


def test_a_small_similarity_is_not_called_large(app: Application, papers: dict[str, int]) -> None:
    """If two scores are nearly equal, a small similarity decides."""
    update_alice(app, max_papers=1)
    explanation = explain(app, papers[TITLES[1]])
    assert explanation.rank
    near = replace(explanation.rank, outranked_by=OutrankedBy.VARIETY, similar_to="Another", similarity=0.16)
    assert explanation_text.summarize(replace(explanation, rank=near)) == (
        "Not in the next digest: it is similar to “Another”, which is in it (similarity 0.16), "
        "so more varied papers with lower scores go first."
    )


def test_best_paper_of_another_interest_is_preferred(app: Application, similar_papers: list[int]) -> None:
    """Its score is lower; the verdict names that reason and not the similarity."""
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        hens = factories.add_paper(
            session, source, "Hens", TODAY, NOW, abstract="They eat honey and bees.", upvotes=0
        )
        factories.add_subscriber(session, ALICE, ["protein folding", "honey bees"], NOW, max_papers=2)
        session.exec(select(InterestRow).where(InterestRow.position == 1)).one().weight = 0.5
    explanation = explain(app, similar_papers[2])
    assert explanation.rank
    assert explanation.rank.outranked_by is OutrankedBy.BEST_OF_INTEREST
    assert explanation.verdict == (
        "Not in the next digest: it has room for 2 papers; this one is number 3 of 4 by its score, "
        "and each interest's best paper goes first."
    )
    assert planned_papers(app) == {similar_papers[0], hens}


def test_paper_waiting_for_the_minimum(app: Application, papers: dict[str, int]) -> None:
    """It was picked, but the digest waits for more papers."""
    update_alice(app, min_papers=5)
    verdict = explain(app, papers[TITLES[0]]).verdict
    assert verdict == (
        "Not sent yet: only 2 papers matched, fewer than the minimum of 5; "
        "they count for the following digest."
    )


def test_sent_paper_is_explained_from_the_ledger(app: Application, papers: dict[str, int]) -> None:
    """The stored reason and score are shown beside the current ones."""
    number = papers[TITLES[0]]
    before = explain(app, number)
    planning.plan(app.digest_context, NOW)
    due = "2026-11-20 09:30 UTC"
    assert explain(app, number).verdict == f"It is in the digest 2026-11-20, which is due at {due}."
    for state in (DeliveryState.CLAIMED, DeliveryState.COMMITTING, DeliveryState.PENDING):
        with app.db.write() as session:
            session.exec(select(Delivery)).one().state = state
        verdict = explain(app, number).verdict
        assert ("which is being sent" in verdict) == (state is not DeliveryState.PENDING)
    with app.db.write() as session:
        ledger.pause(session, "a wrong subject", NOW, "2026-11-20")
    assert (
        explain(app, number).verdict == "It is in the digest 2026-11-20, which is held back: a wrong subject."
    )
    with app.db.write() as session:
        (row,) = deliveries(session)
        row.state, row.sent_at = DeliveryState.SENT, NOW
    explanation = explain(app, number, now=NOW + timedelta(hours=1))
    assert explanation.verdict.startswith(
        "Sent on 2026-11-20 in the digest 2026-11-20, under “language agents -markets”: “Language Agents”"
    )
    update_alice(app, zone="America/Los_Angeles")
    with app.db.write() as session:
        deliveries(session)[0].sent_at = NOW - timedelta(hours=2)  # half past eleven on the evening before
    assert explain(app, number).verdict.startswith("Sent on 2026-11-19 in")
    (delivery,) = explanation.deliveries
    assert before.card
    assert (delivery.delivery_id, delivery.score, delivery.reason) == (
        row.id,
        before.card.score,
        before.card.reason,
    )
    assert explanation.rank
    assert explanation.rank.breakdown.relevance == pytest.approx(explanation.interests[0].details.relevance)
    earlier = explain(app, number, now=NOW - timedelta(minutes=1))
    assert earlier.verdict.startswith("Would be sent")


@pytest.mark.parametrize(
    ("state", "maybe", "verdict"),
    [
        (
            DeliveryState.DEFERRED,
            False,
            "It is in the digest 2026-11-20, which will be retried at 2026-11-20 09:30 UTC: 451 later.",
        ),
        (DeliveryState.UNCERTAIN, False, "It may have been sent in the digest 2026-11-20: 451 later."),
        (DeliveryState.FAILED, True, "It may have been sent in the digest 2026-11-20"),
        (DeliveryState.FAILED, False, "Would be sent"),
    ],
)
def test_failed_and_uncertain_deliveries(
    app: Application, papers: dict[str, int], state: DeliveryState, maybe: bool, verdict: str
) -> None:
    """Papers of a digest that was never sent appear in the next one."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        (row,) = deliveries(session)
        row.state, row.possibly_delivered, row.smtp_text = state, maybe, "451 later"
    assert explain(app, papers[TITLES[0]]).verdict.startswith(verdict)


@pytest.mark.parametrize(
    ("state", "verdict"), [(DeliveryState.FAILED, "Would be sent"), (DeliveryState.SENT, "Sent on")]
)
def test_paper_of_an_undelivered_weekly_digest(
    app: Application, papers: dict[str, int], state: DeliveryState, verdict: str
) -> None:
    """The next digest looks further back, as it does in planning."""
    update_alice(app, cadence=Cadence.WEEKLY, weekday=NOW.weekday())
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        (row,) = deliveries(session)
        row.state, row.sent_at = state, NOW
    update_alice(app, next_due_at=NOW + timedelta(days=10))
    assert explain(app, papers[TITLES[0]], now=NOW + timedelta(days=9)).verdict.startswith(verdict)


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"state": SubscriberState.PENDING}, "Not sent: the subscriber has not confirmed the address yet."),
        (
            {"state": SubscriberState.PAUSED, "paused_until": NOW + timedelta(days=3)},
            "Not sent: the subscriber has paused until 2026-11-23.",
        ),
        (
            {"state": SubscriberState.PAUSED, "paused_until": NOW.replace(hour=15), "zone": "Asia/Tokyo"},
            "Not sent: the subscriber has paused until 2026-11-21.",
        ),
        ({"state": SubscriberState.UNSUBSCRIBED}, "Not sent: the subscriber has unsubscribed."),
        ({"state": SubscriberState.BOUNCING}, "Not sent: mail to the address bounces."),
        ({"state": SubscriberState.ERASED}, "Not sent: the subscriber was erased."),
    ],
)
def test_inactive_reader(
    app: Application, papers: dict[str, int], fields: dict[str, Any], verdict: str
) -> None:
    """The reader's state comes before any score."""
    update_alice(app, **fields)
    assert explain(app, papers[TITLES[0]]).verdict == verdict


def test_suppressed_address(app: Application, papers: dict[str, int]) -> None:
    """The reason of the suppression is given."""
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "complaint", NOW)
    assert explain(app, papers[TITLES[0]]).verdict == "Not sent: no mail is sent to the address (complaint)."


@pytest.mark.parametrize(
    ("days", "verdict"),
    [
        (-2, "Not sent: the subscriber had not signed up yet."),
        (0, "Would be sent in the next digest, under “language agents”"),
        (1, "Not sent: the subscriber has paused."),
        (2, "Would be sent in the next digest, under “language agents”"),
        (3, "Not sent: the subscriber has unsubscribed."),
    ],
)
def test_state_of_the_reader_at_an_earlier_time(
    app: Application, papers: dict[str, int], days: int, verdict: str
) -> None:
    """Today's state and today's next digest are not used."""
    day, bob = timedelta(days=1), "bob@example.org"
    with app.db.write() as session:
        wants = Preferences(interests=(Interest("language agents"),))
        number = subscribers.add(session, bob, wants, NOW - day)
        subscribers.pause(session, number, NOW + 2 * day, NOW + day)
        subscribers.resume(session, number, NOW + 2 * day)
        subscribers.unsubscribe(session, number, NOW + 3 * day)
        suppression.suppress(session, bob, "complaint", NOW + 3 * day)
    paper, later = str(papers[TITLES[0]]), NOW + 30 * day
    explanation = pipeline.explain(app, later, bob, paper, at=NOW + days * day)
    assert explanation.verdict.startswith(verdict)
    assert explanation.subscriber.next_due_at is None


def test_state_without_events_uses_the_confirmation(app: Application, papers: dict[str, int]) -> None:
    """Old events are deleted."""
    day = timedelta(days=1)
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        alice.created_at, alice.confirmed_at = NOW - day, NOW - day / 2
        subscribers.unsubscribe(session, alice.id or 0, NOW + day)
        assert subscribers.state_at(session, alice, NOW) is SubscriberState.ACTIVE
        assert subscribers.state_at(session, alice, NOW - 0.7 * day) is SubscriberState.PENDING
        assert subscribers.state_at(session, alice, NOW + day) is SubscriberState.UNSUBSCRIBED


def test_bounce_after_an_unsubscription_does_not_change_the_state(
    app: Application, papers: dict[str, int]
) -> None:
    """The notice may come late."""
    hour = timedelta(hours=1)
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        subscribers.unsubscribe(session, alice.id or 0, NOW)
        session.add(Event(at=NOW + hour, kind="bounce", subscriber_id=alice.id))
        subscribers.resubscribe(session, alice.id or 0, "", NOW + 3 * hour)
        assert subscribers.state_at(session, alice, NOW + 2 * hour) is SubscriberState.UNSUBSCRIBED
        assert subscribers.state_at(session, alice, NOW + 3 * hour) is SubscriberState.ACTIVE


def test_reasons_for_not_being_a_candidate(app: Application, papers: dict[str, int]) -> None:
    """Too old, too new, withdrawn or never listed. Interests are matched in any case."""
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        old = factories.add_paper(session, source, "Old Language Agents", TODAY - timedelta(days=9), NOW)
        withdrawn = factories.add_paper(session, source, "Withdrawn Agents", TODAY, NOW, withdrawn_at=NOW)
        factories.add_unlisted_papers(session, 1, NOW)
    explanation = explain(app, old)
    assert explanation.verdict == (
        "Not sent: it was last listed on 2026-11-11, and the subscriber's digests look back to 2026-11-14."
    )
    assert explanation.interests[0].details.relevance > 0
    assert explanation.rank is None
    assert explain(app, withdrawn).verdict == "Not sent: it had been withdrawn by 2026-11-20."
    assert explain(app, withdrawn + 1).verdict == "Not sent: no source listed it."
    yesterday = explain(app, papers[TITLES[0]], now=NOW - timedelta(days=1))
    assert yesterday.verdict == "Not sent: no source lists it before 2026-11-20."


def test_paper_that_may_have_been_sent_long_ago(app: Application, papers: dict[str, int]) -> None:
    """It is listed today, but also before the first deliveries that are still stored."""
    first_day = TODAY - timedelta(days=app.settings.retention_days)
    with app.db.write() as session:
        paper = session.get_one(Paper, papers[TITLES[0]])
        paper.first_listed_on = first_day
        listing = session.exec(select(Listing).where(Listing.paper_id == paper.id)).one()
        session.add(
            Listing(
                **listing.model_dump(include={"paper_id", "original_paper_id", "source_id"}),
                listed_on=first_day,
            )
        )
    assert explain(app, papers[TITLES[0]]).verdict == (
        f"Not sent: it was first listed on {first_day}, and it may have been sent then: deliveries up to "
        f"{first_day} may have been deleted."
    )


@pytest.mark.parametrize("liked", [True, False])
def test_a_paper_with_feedback_is_not_sent(app: Application, papers: dict[str, int], liked: bool) -> None:
    """The reader may have pasted it at sign-up, so it is not new."""
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        subscribers.set_feedback(session, alice.id or 0, papers[TITLES[0]], liked, NOW)
    explanation = explain(app, papers[TITLES[0]])
    assert explanation.verdict == "Not sent: the subscriber has already given feedback on it."
    before = explain(app, papers[TITLES[0]], at=NOW - timedelta(minutes=1))
    assert before.verdict.startswith("Would be sent")
    # All abstracts end alike, so the liked paper is close even to the one on videos.
    expected = {papers[TITLES[1]], papers[TITLES[3]]} if liked else set()
    assert planned_papers(app) == expected


def test_merged_paper_is_explained_under_either_id(app: Application, papers: dict[str, int]) -> None:
    """A paper sent under either id counts as sent."""
    page = PaperRecord(
        "Pigeons that Plan in Cities", abstract="Language agents for pigeons.", listed_on=TODAY
    )
    own = replace(page, arxiv_id="2611.00001", listed_on=None)
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        stored_records.store(session, source, ParseResult(2, (own, page)), NOW)
        merge = session.exec(select(Merge)).one()
    explanation = explain(app, merge.absorbed_id)
    assert (explanation.paper.id, explanation.paper.requested_id) == (merge.survivor_id, merge.absorbed_id)
    for name in ("2611.00001v2", "arxiv.org/abs/2611.00001", "https://huggingface.co/papers/2611.00001"):
        assert explain(app, name).paper.id == merge.survivor_id
    planning.plan(app.digest_context, NOW)
    assert (
        len(explain(app, merge.absorbed_id).deliveries)
        == len(explain(app, merge.survivor_id).deliveries)
        == 1
    )


@pytest.mark.parametrize(
    ("subscriber", "paper", "missing"),
    [
        ("bob@example.org", "1", "There is no subscriber with the address bob@example.org."),
        ("99", "1", "There is no such subscriber."),
        (ALICE, "99", "There is no paper 99 in the archive."),
        (ALICE, "2611.99999", "There is no paper 2611.99999 in the archive."),
        (ALICE, "10.1000/none", "There is no paper 10.1000/none in the archive."),
        (ALICE, "https://example.org/x", "There is no paper https://example.org/x in the archive."),
        (ALICE, "", "There is no paper"),
    ],
)
def test_an_unknown_reader_or_paper_is_an_error(
    app: Application, papers: dict[str, int], subscriber: str, paper: str, missing: str
) -> None:
    """The message names which of the two is unknown."""
    with pytest.raises(NotFound, match=missing):
        pipeline.explain(app, NOW, subscriber, paper)


def test_muted_paper_names_the_muted_text(app: Application, papers: dict[str, int]) -> None:
    """No digest contains it."""
    update_alice(app, muted=["plan", "no longer: understood"], max_trending=3)
    muted = papers["Language Agents that Plan"]
    explanation = explain(app, muted)
    assert explanation.verdict == "Not sent: the subscriber has muted “plan”, which the paper mentions."
    assert explanation.rank is None
    assert planned_papers(app) == {papers[TITLES[0]]}


@pytest.mark.parametrize(
    ("score", "text"), [(0.329999, "0.32"), (0.33, "0.33"), (float(np.float32(0.35)), "0.35"), (1.0, "1.00")]
)
def test_scores_are_rounded_down(score: float, text: str) -> None:
    """The last digits of a strength, which is stored in 32 bits, do not count."""
    assert explanation_text.format_score(score) == text


MINUTE = timedelta(minutes=1)


def change_alice(app: Application, at: datetime, **preferences: Any) -> None:
    """Let Alice change her preferences."""
    with app.db.write() as session:
        alice = subscribers.find(session, ALICE)
        changed = replace(subscribers.preferences_of(session, alice), **preferences)
        subscribers.change(session, alice.id or 0, changed, at)


def test_changed_preferences_are_noted(app: Application, papers: dict[str, int]) -> None:
    """The note names the changes after the explained time that affect the papers, and when they began."""
    paper, interests = papers[TITLES[0]], (Interest("video"),)
    change_alice(app, NOW, hour=9)
    assert (explain(app, paper, at=NOW - MINUTE).note, explain(app, paper).note) == ("", "")
    change_alice(app, NOW + MINUTE, interests=interests, hour=8)
    change_alice(app, NOW + 2 * MINUTE, muted=("blockchain",))
    before = explain(app, paper, at=NOW)
    assert before.note == (
        "The subscriber's preferences have changed since 2026-11-20 09:30 UTC (interests, muted; first at "
        "2026-11-20 09:31 UTC). The scores use the current ones."
    ).replace("09:31", f"{NOW + MINUTE:%H:%M}")
    assert [(each.at, each.preferences) for each in before.changes_since] == [
        (NOW + MINUTE, ("interests",)),
        (NOW + 2 * MINUTE, ("muted",)),
    ]
    assert explain(app, paper, at=NOW + MINUTE).changes_since == before.changes_since[1:]
    assert explain(app, paper, now=NOW + 3 * MINUTE).note == ""


def test_preferences_changed_since_the_digest_are_noted(app: Application, papers: dict[str, int]) -> None:
    """The sentence is about the digest, and the scores are about the present."""
    [paper, *_] = sorted(planned_papers(app))
    assert explain(app, paper, now=NOW + MINUTE).note == ""
    with app.db.write() as session:
        [delivery] = deliveries(session)
        delivery.state, delivery.sent_at = DeliveryState.SENT, NOW
    change_alice(app, NOW + MINUTE, interests=(Interest("video"),))
    explanation = explain(app, paper, now=NOW + 2 * MINUTE)
    assert explanation.verdict.startswith("Sent on 2026-11-20")
    assert "have changed since 2026-11-20 09:30 UTC (interests; first at" in explanation.note


def test_preferences_of_a_new_sign_up_are_noted(app: Application, papers: dict[str, int]) -> None:
    """They may replace all former preferences. Those of the first sign-up replace none."""
    paper = papers[TITLES[0]]
    for days in (2, 4):
        with app.db.write() as session:
            alice = subscribers.find(session, ALICE)
            event_log.record_event(session, "confirmed", alice, NOW + timedelta(days=days))
    note = explain(app, paper, now=NOW + timedelta(days=5), at=NOW + timedelta(days=3)).note
    assert "UTC (all of them, by a new sign-up; first at 2026-11-24" in note
    before = explain(app, paper, at=NOW - timedelta(days=1))
    assert before.subscriber.state in (None, SubscriberState.PENDING)
    assert [change.at for change in before.changes_since] == [NOW + timedelta(days=4)]


@pytest.mark.parametrize(("days", "is_noted"), [(-1, False), (0, True)])
def test_deleted_changes_are_noted(
    app: Application, papers: dict[str, int], days: int, is_noted: bool
) -> None:
    """Events are deleted after PAPERBOY_RETENTION_DAYS, so changes before may be missing."""
    later = NOW + timedelta(days=app.settings.retention_days + days)
    note = explain(app, papers[TITLES[0]], now=later, at=NOW).note
    assert ("changes before 2026-11-20 are not kept" in note) == is_noted
    assert bool(note) == is_noted
