"""Why, or why not: the sentence is true, and agrees with what planning then does."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session, col, select

from app import pipeline, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.digests import explanation, planning, ranking
from app.digests.explanation import Explanation, OutrankedBy
from app.errors import NotFound
from app.papers import ingest
from app.storage.models import (
    Delivery,
    DeliveryState,
    InterestRow,
    Merge,
    Source,
    Subscriber,
    SubscriberState,
)
from app.subscribers import Preferences
from app.types import EmptyDigestPolicy, Interest, PaperRecord, ParseResult
from tests import corpora, shelves
from tests.conftest import NOW

TODAY = NOW.date()
ALICE = "alice@example.org"
TITLES = (
    "Language Agents that Plan",
    "Language Agents that Remember",
    "Language Agents that Trade in Markets",
    "Video Diffusion in Real Time",
)


@pytest.fixture
def papers(app: Application) -> dict[str, int]:
    """Four papers of today by title, and Alice, who likes language agents, but no markets."""
    with app.db.write() as session:
        source = shelves.source(session, NOW - timedelta(days=30))
        made = {
            title: shelves.paper(
                session, source, title, TODAY, NOW, upvotes=40 - number, abstract=f"{title}, at last."
            )
            for number, title in enumerate(TITLES)
        }
        shelves.reader(session, ALICE, ["language agents -markets"], NOW)
    return made


def explain(app: Application, paper: object, **options: Any) -> Explanation:
    return pipeline.explain(app, options.pop("now", NOW), ALICE, str(paper), **options)


def change(app: Application, **fields: Any) -> None:
    """Change how Alice is, or wants her digest."""
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        for name, value in fields.items():
            setattr(alice, name, value)


def deliveries(session: Session) -> list[Delivery]:
    return list(session.exec(select(Delivery).order_by(col(Delivery.id))))


def planned(app: Application) -> set[int]:
    """What Alice's digest holds once it is planned."""
    planning.plan(app.digest_context, NOW)
    with app.db.read() as session:
        digests = ledger.stored_digests(session, [row.id for row in deliveries(session)])
        return {number for digest in digests.values() for number in ledger.paper_ids(digest)}


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"max_papers": 1},
        {"min_papers": 5},
        {"when_empty": EmptyDigestPolicy.TRENDING, "max_papers": 2},
        {"beyond": 2},
    ],
)
@pytest.mark.parametrize("interests", [True, False])
def test_it_foretells_what_planning_does(
    app: Application, papers: dict[str, int], wish: dict[str, Any], interests: bool
) -> None:
    """Whatever Alice asked for: a paper would be sent if, and only if, it is then planned."""
    change(app, **wish)
    if not interests:
        with app.db.write() as session:
            session.delete(session.exec(select(InterestRow)).one())
    told = {number: explain(app, number) for number in papers.values()}
    promised = {number for number, each in told.items() if each.verdict.startswith("Would be sent")}
    assert promised == planned(app)
    assert promised == {number for number, each in told.items() if each.card}


def test_every_number_of_a_paper_that_fits(app: Application, papers: dict[str, int]) -> None:
    """They are those of matching and composing, and combine to the score as documented."""
    told = explain(app, papers[TITLES[0]])
    assert told.verdict.startswith(
        "Would be sent in the next digest, due 2026-11-20 09:30 UTC, under “language agents -markets”: "
    )
    (judged,) = told.interests
    assert judged.numbers.all_words
    assert judged.numbers.words > 0
    assert told.standing
    weighed = told.standing.weighed
    assert weighed.relevance == pytest.approx(judged.numbers.relevance)
    assert weighed.score == pytest.approx(
        weighed.relevance * (1 + ranking.TREND * weighed.trend.score) * weighed.freshness
    )
    assert (told.standing.place, told.standing.candidates, told.floor) == (1, 4, ranking.FLOOR)
    assert told.paper.listed == ((TODAY, "Hugging Face Daily Papers"),)


def test_weights_make_the_relevance(app: Application, papers: dict[str, int]) -> None:
    """What each interest says is told by its weight, too; together they are the paper's relevance."""
    with app.db.write() as session:
        wishes = (Interest("language agents", 3.0), Interest("plan"), Interest("video", 0.5))
        subscribers.change(session, 1, Preferences(zone="UTC", interests=wishes), NOW)
    told = explain(app, papers[TITLES[0]])
    heavy = told.interests[0]
    assert heavy.weighted == pytest.approx(1 - (1 - heavy.numbers.relevance) ** 3)
    assert heavy.weighted > heavy.numbers.relevance > 0
    left = math.prod(1 - judged.weighted for judged in told.interests)
    assert told.standing
    assert told.standing.weighed.relevance == pytest.approx(1 - left)


def test_what_does_not_fit_is_under_the_floor(app: Application, papers: dict[str, int]) -> None:
    """The numbers say so."""
    told = explain(app, papers["Video Diffusion in Real Time"])
    assert told.verdict == "Not sent: its relevance 0.00 is under the floor of 0.33."
    assert told.standing
    assert (told.standing.fate, told.standing.place) == (None, None)


def test_a_dislike_that_holds_it_down_is_named(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interest alone would bring it."""
    monkeypatch.setattr(app.models, "current", lambda session: corpora.trained_model())
    like = next(paper for paper in corpora.papers() if "protein folding" in paper.abstract)
    with app.db.write() as session:
        source = shelves.source(session, NOW)
        disliked, other = (
            shelves.paper(session, source, title, TODAY, NOW, abstract=like.abstract)
            for title in (like.title, "A Sequel")
        )
        alice = shelves.reader(session, ALICE, ["protein folding"], NOW)
        session.exec(select(InterestRow)).one().weight = 0.6
    assert explain(app, other).verdict.startswith("Would be sent")
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, disliked, False, NOW)
    told = explain(app, other)
    assert re.fullmatch(
        rf"Not sent: its relevance 0\.[0-3]\d is under the floor of 0\.33: "
        rf"it is close to “{like.title}” that you asked less of, through .+\.",
        told.verdict,
    )


def test_an_exclusion_is_named(app: Application, papers: dict[str, int]) -> None:
    """It fits, but the interest leaves it out."""
    told = explain(app, papers["Language Agents that Trade in Markets"])
    excluded = "a word or phrase that the interest excludes is in it"
    assert told.interests[0].numbers.left_out == excluded
    assert told.verdict.startswith(f"Not sent: “language agents -markets” leaves it out ({excluded})")


def test_a_full_digest_and_a_quota(app: Application, papers: dict[str, int]) -> None:
    """What stands before a paper without room is named."""
    change(app, max_papers=1)
    told = explain(app, papers[TITLES[1]])
    assert told.verdict == (
        "Not in the next digest: it has room for one paper, and this one is number 2 of 2 by its score."
    )
    assert told.standing
    assert [better.title for better in told.standing.before] == [TITLES[0]]
    change(app, max_papers=10)
    with app.db.write() as session:
        session.exec(select(InterestRow)).one().quota = 1
    assert explain(app, papers[TITLES[1]]).verdict == (
        "Not in the next digest: the quota of “language agents -markets” (1) is taken by other papers."
    )


@pytest.fixture
def twins(app: Application, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Three papers on protein folding, the best first: the second says what the first one says."""
    monkeypatch.setattr(app.models, "current", lambda session: corpora.trained_model())
    about = [paper.abstract for paper in corpora.papers() if "protein folding" in paper.abstract]
    said = {"Protein Folding": about[0], "Protein Folding Again": about[0], "More Protein Folding": about[1]}
    with app.db.write() as session:
        source = shelves.source(session, NOW)
        return [
            shelves.paper(session, source, title, TODAY, NOW, upvotes=40 - 10 * place, abstract=abstract)
            for place, (title, abstract) in enumerate(said.items())
        ]


def test_a_paper_that_says_what_a_picked_one_says(app: Application, twins: list[int]) -> None:
    """A paper with a lower score is picked: no place explains that, but what it is like does."""
    with app.db.write() as session:
        shelves.reader(session, ALICE, ["protein folding"], NOW, max_papers=2)
    told, picked = explain(app, twins[1]), explain(app, twins[2])
    assert told.standing
    assert picked.card
    assert told.standing.weighed.score > picked.card.score
    assert told.standing.overtaken is OutrankedBy.VARIETY
    assert told.verdict == (
        "Not in the next digest: it says much the same as “Protein Folding”, which is in it (likeness 1.00), "
        "and papers that repeat less go first, though their scores are lower."
    )
    assert planned(app) == {twins[0], twins[2]}


def test_a_little_likeness_is_not_called_much(app: Application, papers: dict[str, int]) -> None:
    """Where two scores are nearly the same, a little of it decides."""
    change(app, max_papers=1)
    told = explain(app, papers[TITLES[1]])
    assert told.standing
    near = replace(told.standing, overtaken=OutrankedBy.VARIETY, like="Another", likeness=0.16)
    assert explanation._verdict(replace(told, standing=near)) == (
        "Not in the next digest: it is in part like “Another”, which is in it (likeness 0.16), "
        "and papers that repeat less go first, though their scores are lower."
    )


def test_the_best_paper_of_another_interest_goes_first(app: Application, twins: list[int]) -> None:
    """Though its score is lower: that is said, and not that they are alike."""
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        hens = shelves.paper(session, source, "Honey Bees", TODAY, NOW, upvotes=0)
        shelves.reader(session, ALICE, ["protein folding", "honey bees"], NOW, max_papers=2)
    told = explain(app, twins[2])
    assert told.standing
    assert told.standing.overtaken is OutrankedBy.CHAMPION
    assert told.verdict == (
        "Not in the next digest: it has room for 2 papers; this one is number 3 of 4 by its score, "
        "and each interest's best paper goes first."
    )
    assert planned(app) == {twins[0], hens}


def test_a_thin_day_keeps_it(app: Application, papers: dict[str, int]) -> None:
    """It was picked, but the digest waits for more."""
    change(app, min_papers=5)
    said = explain(app, papers[TITLES[0]]).verdict
    assert said == "Not sent yet: 2 of at least 5 papers: kept for the next digest."


def test_what_was_sent_is_told_by_the_ledger(app: Application, papers: dict[str, int]) -> None:
    """With the reason and score of then, beside the numbers of now; before it was planned, as before."""
    number = papers[TITLES[0]]
    before = explain(app, number)
    planning.plan(app.digest_context, NOW)
    assert explain(app, number).verdict == "It is in the digest 2026-11-20, which is about to be sent."
    with app.db.write() as session:
        ledger.pause(session, "a wrong subject", NOW, "2026-11-20")
    assert (
        explain(app, number).verdict == "It is in the digest 2026-11-20, which is held back: a wrong subject."
    )
    with app.db.write() as session:
        (row,) = deliveries(session)
        row.state, row.sent_at = DeliveryState.SENT, NOW
    told = explain(app, number, now=NOW + timedelta(hours=1))
    assert told.verdict.startswith(
        "Sent on 2026-11-20 in the digest 2026-11-20, under “language agents -markets”: “Language Agents”"
    )
    (kept,) = told.recorded
    assert before.card
    assert (kept.delivery_id, kept.score, kept.reason) == (row.id, before.card.score, before.card.reason)
    assert told.standing
    assert told.standing.weighed.relevance == pytest.approx(told.interests[0].numbers.relevance)
    earlier = explain(app, number, now=NOW - timedelta(minutes=1))
    assert earlier.verdict.startswith("Would be sent")


@pytest.mark.parametrize(
    ("state", "maybe", "verdict"),
    [
        (DeliveryState.DEFERRED, False, "It is in the digest 2026-11-20, which is tried again: 451 later."),
        (DeliveryState.UNCERTAIN, False, "It may have been sent in the digest 2026-11-20"),
        (DeliveryState.FAILED, True, "It may have been sent in the digest 2026-11-20"),
        (DeliveryState.FAILED, False, "Would be sent"),
    ],
)
def test_what_came_between(
    app: Application, papers: dict[str, int], state: DeliveryState, maybe: bool, verdict: str
) -> None:
    """A paper of a digest that never left comes with the next one."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        (row,) = deliveries(session)
        row.state, row.possibly_delivered, row.smtp_text = state, maybe, "451 later"
    assert explain(app, papers[TITLES[0]]).verdict.startswith(verdict)


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"state": SubscriberState.PENDING}, "Not sent: the reader has not confirmed the address yet."),
        (
            {"state": SubscriberState.PAUSED, "paused_until": NOW + timedelta(days=3)},
            "Not sent: the reader has paused until 2026-11-23.",
        ),
        ({"state": SubscriberState.UNSUBSCRIBED}, "Not sent: the reader has unsubscribed."),
        ({"state": SubscriberState.BOUNCING}, "Not sent: mail to the address comes back."),
        ({"state": SubscriberState.ERASED}, "Not sent: the reader was erased."),
    ],
)
def test_a_reader_who_gets_nothing(
    app: Application, papers: dict[str, int], fields: dict[str, Any], verdict: str
) -> None:
    """The reader's state comes before any number."""
    change(app, **fields)
    assert explain(app, papers[TITLES[0]]).verdict == verdict


def test_a_suppressed_address_gets_nothing(app: Application, papers: dict[str, int]) -> None:
    """With the reason for which it is on the list."""
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "complaint", NOW)
    assert explain(app, papers[TITLES[0]]).verdict == "Not sent: the address gets no mail (complaint)."


@pytest.mark.parametrize(
    ("days", "verdict"),
    [
        (-2, "Not sent: the reader had not signed up yet."),
        (0, "Would be sent in the next digest, under “language agents”"),
        (1, "Not sent: the reader has paused."),
        (2, "Would be sent in the next digest, under “language agents”"),
        (3, "Not sent: the reader has unsubscribed."),
    ],
)
def test_how_the_reader_was_at_the_moment(
    app: Application, papers: dict[str, int], days: int, verdict: str
) -> None:
    """Not how they are today; and the digest that is next today was not the next one then."""
    day, bob = timedelta(days=1), "bob@example.org"
    with app.db.write() as session:
        wants = Preferences(interests=(Interest("language agents"),))
        number = subscribers.add(session, bob, wants, NOW - day)
        subscribers.pause(session, number, NOW + 2 * day, NOW + day)
        subscribers.resume(session, number, NOW + 2 * day)
        subscribers.unsubscribe(session, number, NOW + 3 * day)
        suppression.suppress(session, bob, "complaint", NOW + 3 * day)
    paper, later = str(papers[TITLES[0]]), NOW + 30 * day
    told = pipeline.explain(app, later, bob, paper, at=NOW + days * day)
    assert told.verdict.startswith(verdict)
    assert told.reader.next_due_at is None


def test_of_long_ago_there_is_the_day_of_the_confirmation(app: Application, papers: dict[str, int]) -> None:
    """What was noted of readers is forgotten after a while."""
    day = timedelta(days=1)
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        alice.created_at, alice.confirmed_at = NOW - day, NOW - day / 2
        subscribers.unsubscribe(session, alice.id or 0, NOW + day)
        assert subscribers.state_at(session, alice, NOW) is SubscriberState.ACTIVE
        assert subscribers.state_at(session, alice, NOW - 0.7 * day) is SubscriberState.PENDING
        assert subscribers.state_at(session, alice, NOW + day) is SubscriberState.UNSUBSCRIBED


def test_what_is_no_candidate(app: Application, papers: dict[str, int]) -> None:
    """Too old, too new, withdrawn or never listed: each is said, and interests are judged all the same."""
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        old = shelves.paper(session, source, "Old Language Agents", TODAY - timedelta(days=9), NOW)
        gone = shelves.paper(session, source, "Withdrawn Agents", TODAY, NOW, withdrawn_at=NOW)
        shelves.archive(session, 1, NOW)
    told = explain(app, old)
    assert told.verdict == (
        "Not sent: it was last listed on 2026-11-11, and the reader's digests look back to 2026-11-14."
    )
    assert told.interests[0].numbers.relevance > 0
    assert told.standing is None
    assert explain(app, gone).verdict == "Not sent: it was withdrawn by 2026-11-20."
    assert explain(app, gone + 1).verdict == "Not sent: no source listed it."
    yesterday = explain(app, papers[TITLES[0]], now=NOW - timedelta(days=1))
    assert yesterday.verdict == "Not sent: no source lists it before 2026-11-20."


@pytest.mark.parametrize("liked", [True, False])
def test_a_paper_of_which_the_reader_spoke_is_known_to_them(
    app: Application, papers: dict[str, int], liked: bool
) -> None:
    """They may have pasted it at sign-up: it is not news."""
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        subscribers.set_feedback(session, alice.id or 0, papers[TITLES[0]], liked, NOW)
    told = explain(app, papers[TITLES[0]])
    assert told.verdict == "Not sent: the reader knows it: they have said what they think of it."
    before = explain(app, papers[TITLES[0]], at=NOW - timedelta(minutes=1))
    assert before.verdict.startswith("Would be sent")
    assert planned(app) == {papers[TITLES[1]]}


def test_a_merged_paper_is_the_one_it_is_now(app: Application, papers: dict[str, int]) -> None:
    """Under either id, and what was sent under either was sent."""
    page = PaperRecord(
        "Pigeons that Plan in Cities", abstract="Language agents for pigeons.", listed_on=TODAY
    )
    own = replace(page, arxiv_id="2611.00001", listed_on=None)
    with app.db.write() as session:
        source = session.exec(select(Source)).one()
        ingest.store(session, source, ParseResult(2, (own, page)), NOW)
        merge = session.exec(select(Merge)).one()
    told = explain(app, merge.absorbed_id)
    assert (told.paper.id, told.paper.asked_for) == (merge.kept_id, merge.absorbed_id)
    for name in ("2611.00001v2", "arxiv.org/abs/2611.00001", "https://huggingface.co/papers/2611.00001"):
        assert explain(app, name).paper.id == merge.kept_id
    planning.plan(app.digest_context, NOW)
    assert len(explain(app, merge.absorbed_id).recorded) == len(explain(app, merge.kept_id).recorded) == 1


@pytest.mark.parametrize(
    ("subscriber", "paper", "missing"),
    [
        ("bob@example.org", "1", "There is no reader with the address bob@example.org."),
        ("99", "1", "There is no such reader."),
        (ALICE, "99", "There is no paper 99 in the archive."),
        (ALICE, "2611.99999", "There is no paper 2611.99999 in the archive."),
        (ALICE, "10.1000/none", "There is no paper 10.1000/none in the archive."),
        (ALICE, "https://example.org/x", "There is no paper https://example.org/x in the archive."),
        (ALICE, "", "There is no paper"),
    ],
)
def test_what_is_missing_is_said(
    app: Application, papers: dict[str, int], subscriber: str, paper: str, missing: str
) -> None:
    """Nobody has to guess which of the two was wrong."""
    with pytest.raises(NotFound, match=missing):
        pipeline.explain(app, NOW, subscriber, paper)


def test_what_is_muted_is_told(app: Application, papers: dict[str, int]) -> None:
    """By its word; and no digest has it."""
    change(app, muted=["plan", "no longer: understood"], beyond=3)
    muted = papers["Language Agents that Plan"]
    told = explain(app, muted)
    assert told.verdict == "Not sent: the reader has muted “plan”, which is in it."
    assert told.standing is None
    assert planned(app) == {papers["Language Agents that Remember"]}
