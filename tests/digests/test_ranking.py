"""Test ranking: the score follows its formula and does not depend on other readers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.digests import ranking
from app.digests.ranking import FRESH, TREND, CandidatePool, EvidenceMatrix, Ranked, RankingRequest
from app.relevance.cut_offs import FLOOR
from app.types import CardReason, Interest, Marks, PaperView, Trend
from tests.support.evidence import add_interest

TODAY = date(2026, 11, 20)
YESTERDAY = TODAY - timedelta(days=1)
TEXTS = ("agents", "video", "traps")
INTERESTS = tuple(map(Interest, TEXTS))


def build_pool(
    *hits: Mapping[int, float],
    excluded: frozenset[int] = frozenset(),
    listed: Mapping[int, date] | None = None,
) -> CandidatePool:
    """Return papers 1 … 9 with their relevance to each interest; the first interest has the exclusions."""
    matches = EvidenceMatrix(range(1, 10))
    for number, text in enumerate(TEXTS):
        add_interest(matches, text, dict(enumerate(hits))[number] if number < len(hits) else {})
    add_interest(matches, TEXTS[0], hits[0], excluded)
    papers = {
        n: PaperView(n, f"Paper {n}", last_listed_on=(listed or {}).get(n, TODAY)) for n in range(1, 10)
    }
    trends = {n: Trend(n / 10, "") for n in papers}
    return CandidatePool(papers, trends, matches, lambda text, paper: CardReason(""), {}, TODAY)


def rank_for(on: CandidatePool, reader: RankingRequest) -> Ranked:
    [result] = ranking.rank(on, [reader])
    return result


def test_score_combines_interests_weight_and_profile() -> None:
    """Check 1 − Π (1 − r)^w, then trend and age, as documented."""
    on = build_pool({1: 0.4}, {1: 0.2}, listed={1: YESTERDAY})
    result = rank_for(on, RankingRequest((Interest("agents", 2.0), Interest("video")), profile={1: 0.1}))
    breakdown = result.score_breakdown(on.papers[1])
    assert breakdown.relevance == pytest.approx(1 - 0.6**2 * 0.8 * 0.9)
    assert breakdown.score == pytest.approx(breakdown.relevance * (1 + TREND * 0.1) * FRESH)
    assert result.scores.tolist() == [breakdown.score]
    relevance = ranking.relevance_of(result.evidence_by_interest())
    assert relevance[:, 0].tolist() == pytest.approx([1 - 0.6**2, 0.2, 0.1])


def test_ranking_contains_only_relevant_recent_unsent_papers() -> None:
    """Scores of other papers can still be computed."""
    on = build_pool(dict.fromkeys(range(1, 6), FLOOR) | {6: FLOOR - 0.01}, listed={2: YESTERDAY})
    result = rank_for(on, RankingRequest((INTERESTS[0],), already_sent=frozenset({3, 99}), since=TODAY))
    assert result.papers == [5, 4, 1]
    assert int(result.eligible.sum()) == 7
    assert (
        result.score_breakdown(on.papers[2]).relevance
        == result.score_breakdown(on.papers[3]).relevance
        == pytest.approx(FLOOR)
    )


def test_relevance_decides_what_is_sent_and_strength_the_order() -> None:
    """Strengths of several interests add up, even if the relevance to one of them is too low by itself."""
    matches = EvidenceMatrix(range(1, 10))
    add_interest(
        matches, "agents", {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.4}, strength={1: 0.4, 2: 0.6, 3: 0.9, 4: 0.3}
    )
    add_interest(matches, "video", {4: 0.1}, strength={4: 0.7})
    on = replace(build_pool({}), matches=matches, trends={})
    result = rank_for(on, RankingRequest(INTERESTS[:2], profile={1: 0.05, 2: -0.05}))
    assert result.papers == [4, 2, 1]
    assert result.scores.tolist() == pytest.approx([1 - 0.7 * 0.3, 1 - 0.4 * 1.05, 1 - 0.6 * 0.95])
    breakdown = result.score_breakdown(on.papers[3])
    assert (breakdown.relevance, breakdown.strength) == pytest.approx((0.3, 0.9))


def test_no_score_is_negative() -> None:
    """A dislike can outweigh the strength of a paper that is relevant enough."""
    matches = EvidenceMatrix(range(1, 10))
    add_interest(matches, "agents", {1: 0.9, 2: 0.9}, strength={1: 0.2, 2: 0.4})
    on = replace(build_pool({}), matches=matches, trends={})
    result = rank_for(on, RankingRequest(INTERESTS[:1], profile={1: -0.9}))
    assert result.papers == [2, 1]
    assert result.scores.tolist() == pytest.approx([0.4, 0.0])
    assert result.score_breakdown(on.papers[1]).strength == 0


def test_reason_names_a_profile_that_would_be_enough() -> None:
    """No marked word shows it, so it is said in words."""
    marked = CardReason("“agents” in the title", Marks(((0, 5),), ()))
    on = replace(build_pool({1: 0.5, 2: 0.5}), reason=lambda text, paper: marked)
    profile = RankingRequest(
        (INTERESTS[0],), profile={1: 0.1, 2: 0.5, 3: 0.5}, profile_reason=lambda _: "liked"
    )
    result = rank_for(on, profile)
    assert result.reason(TEXTS[0], 1) == marked
    assert result.reason(TEXTS[0], 2) == CardReason(
        "“agents” in the title; liked", Marks(((0, 5),), (), "liked")
    )
    assert result.reason("", 3) == CardReason("liked")


def test_dislike_lowers_relevance() -> None:
    on = build_pool({1: 0.4, 2: 0.4})
    assert rank_for(on, RankingRequest((INTERESTS[0],), profile={1: -0.5})).papers == [2]


def test_profile_does_not_override_an_exclusion() -> None:
    """Another interest may."""
    on = build_pool({}, {2: 0.5}, excluded=frozenset({1, 2}))
    assert rank_for(on, RankingRequest(INTERESTS[:2], profile={1: 0.9, 3: 0.9})).papers == [3, 2]


def test_exclusion_keeps_a_negative_profile() -> None:
    """Another interest may select the paper, and the dislike still lowers its score."""
    on = build_pool({}, {1: 0.4, 2: 0.4}, excluded=frozenset({1}))
    result = rank_for(on, RankingRequest(INTERESTS[:2], profile={1: -0.5, 2: -0.5}))
    assert result.papers == []
    assert result.score_breakdown(on.papers[1]).relevance == result.score_breakdown(on.papers[2]).relevance


def test_a_perfect_match_has_finite_evidence() -> None:
    """A relevance may round to 1."""
    on = build_pool({1: 1.0, 2: 0.99}, {1: 1.0})
    result = rank_for(on, RankingRequest(INTERESTS[:2], profile={1: -0.99, 2: 1.0}))
    assert result.papers == [2, 1]
    assert np.isfinite(result.scores).all()
    assert all(0 <= result.score_breakdown(paper).relevance <= 1 for paper in on.papers.values())


def test_empty_pool_or_no_interests() -> None:
    matches = EvidenceMatrix([])
    add_interest(matches, "agents", {})
    empty = CandidatePool({}, {}, matches, lambda text, paper: CardReason(""), {}, TODAY)
    assert rank_for(empty, RankingRequest(INTERESTS[:1])).papers == []
    assert rank_for(build_pool({}), RankingRequest(())).papers == []
    assert ranking.rank(build_pool({}), []) == []


def test_adding_interests_keeps_existing_rows() -> None:
    """The matrix grows without changing earlier values."""
    matches = EvidenceMatrix([7, 3])
    for number in range(100):
        add_interest(matches, f"interest {number}", {3: number / 100})
    evidence = matches.matrices(f"interest {number}" for number in range(100))[0].toarray()[:, 0]
    assert ranking.relevance_of(evidence).tolist() == pytest.approx([number / 100 for number in range(100)])


numbers = st.integers(1, 9)
relevances = st.dictionaries(numbers, st.floats(0.0, 0.99), max_size=9)
interests = st.lists(
    st.builds(Interest, st.sampled_from(TEXTS), st.floats(0.1, 3.0)),
    max_size=3,
    unique_by=lambda interest: interest.text,
).map(tuple)
profiles = st.dictionaries(numbers, st.floats(-0.99, 0.99), max_size=9)
readers = st.builds(
    RankingRequest,
    interests,
    profile=profiles,
    already_sent=st.frozensets(numbers, max_size=4),
    since=st.sampled_from([date.min, TODAY]),
)


@given(hits=st.tuples(relevances, relevances, relevances), asking=st.lists(readers, max_size=5))
def test_ranking_is_independent_of_other_readers(
    hits: Sequence[dict[int, float]], asking: list[RankingRequest]
) -> None:
    """Results are identical to the last digit for any order of the interests, and with sparse matrices."""
    on = build_pool(*hits, excluded=frozenset({4, 5}), listed={6: YESTERDAY})
    together = ranking.rank(on, asking)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "MAX_DENSE_TEXTS", 0)
        without_dense_matrix = ranking.rank(on, asking)
    for result, other in zip(together, without_dense_matrix, strict=True):
        assert (result.papers, result.scores.tolist()) == (other.papers, other.scores.tolist())
    for result, reader in zip(together, asking, strict=True):
        for alone in (reader, replace(reader, interests=reader.interests[::-1])):
            other = rank_for(on, alone)
            assert (result.papers, result.scores.tolist()) == (other.papers, other.scores.tolist())
        assert [result.score_breakdown(on.papers[n]).score for n in result.papers] == result.scores.tolist()
        assert result.scores.tolist() == sorted(result.scores, reverse=True)


@given(hits=st.tuples(relevances, relevances, relevances), reader=readers)
def test_ranking_matches_the_formula(hits: Sequence[dict[int, float]], reader: RankingRequest) -> None:
    """Compute 1 − Π (1 − r)^w over interests and profile paper by paper."""
    on = build_pool(*hits)
    result, hits_of = rank_for(on, reader), dict(zip(TEXTS, hits, strict=True))
    for number, paper in on.papers.items():
        pairs = [(hits_of[interest.text].get(number, 0.0), interest.weight) for interest in reader.interests]
        lacking = math.prod((1 - hit) ** weight for hit, weight in pairs) * (
            1 - reader.profile.get(number, 0.0)
        )
        assert result.score_breakdown(paper).relevance == pytest.approx(1 - lacking, abs=1e-9)
        if abs(1 - lacking - FLOOR) > 1e-9:
            assert (number in result.papers) == (1 - lacking > FLOOR and number not in reader.already_sent)
