"""Ranking: a reader's result does not depend on other readers, and the score follows its formula."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.digests import ranking
from app.digests.ranking import FLOOR, FRESH, TREND, CandidatePool, EvidenceMatrix, Ranked, RankingRequest
from app.types import Interest, PaperView, Trend

TODAY = date(2026, 11, 20)
YESTERDAY = TODAY - timedelta(days=1)
TEXTS = ("agents", "video", "traps")
INTERESTS = tuple(map(Interest, TEXTS))


def pool(
    *hits: Mapping[int, float],
    excluded: frozenset[int] = frozenset(),
    listed: Mapping[int, date] | None = None,
) -> CandidatePool:
    """Return papers 1 … 9 with their relevance to each interest; the first interest has the exclusions."""
    matches = EvidenceMatrix(range(1, 10))
    for number, text in enumerate(TEXTS):
        matches.add(text, dict(enumerate(hits))[number] if number < len(hits) else {})
    matches.add(TEXTS[0], hits[0], excluded)
    papers = {
        n: PaperView(n, f"Paper {n}", last_listed_on=(listed or {}).get(n, TODAY)) for n in range(1, 10)
    }
    trends = {n: Trend(n / 10, "") for n in papers}
    return CandidatePool(papers, trends, matches, lambda text, paper: "", {}, TODAY)


def ranked(on: CandidatePool, reader: RankingRequest) -> Ranked:
    [result] = ranking.rank(on, [reader])
    return result


def test_evidence_adds_up() -> None:
    """Two interests, a weight and a profile: 1 − Π (1 − r)^w, then trend and age, as documented."""
    on = pool({1: 0.4}, {1: 0.2}, listed={1: YESTERDAY})
    result = ranked(on, RankingRequest((Interest("agents", 2.0), Interest("video")), profile={1: 0.1}))
    breakdown = result.score_breakdown(on.papers[1])
    assert breakdown.relevance == pytest.approx(1 - 0.6**2 * 0.8 * 0.9)
    assert breakdown.score == pytest.approx(breakdown.relevance * (1 + TREND * 0.1) * FRESH)
    assert result.scores.tolist() == [breakdown.score]
    relevance = ranking.relevance_of(result.evidence_by_interest())
    assert relevance[:, 0].tolist() == pytest.approx([1 - 0.6**2, 0.2, 0.1])


def test_only_what_is_relevant_listed_lately_and_new() -> None:
    """Papers already sent or too old are not in the result, but their scores can still be computed."""
    on = pool(dict.fromkeys(range(1, 6), FLOOR) | {6: FLOOR - 0.01}, listed={2: YESTERDAY})
    result = ranked(on, RankingRequest((INTERESTS[0],), already_sent=frozenset({3, 99}), since=TODAY))
    assert result.papers == [5, 4, 1]
    assert int(result.eligible.sum()) == 7
    assert (
        result.score_breakdown(on.papers[2]).relevance
        == result.score_breakdown(on.papers[3]).relevance
        == pytest.approx(FLOOR)
    )


def test_a_dislike_takes_away() -> None:
    """Negative profile relevance makes a paper less relevant than its interests do."""
    on = pool({1: 0.4, 2: 0.4})
    assert ranked(on, RankingRequest((INTERESTS[0],), profile={1: -0.5})).papers == [2]


def test_no_profile_brings_what_an_interest_excludes() -> None:
    """Another interest may."""
    on = pool({}, {2: 0.5}, excluded=frozenset({1, 2}))
    assert ranked(on, RankingRequest(INTERESTS[:2], profile={1: 0.9, 3: 0.9})).papers == [3, 2]


def test_an_exclusion_takes_no_dislike_away() -> None:
    """Another interest may bring the paper, and what was disliked still speaks against it."""
    on = pool({}, {1: 0.4, 2: 0.4}, excluded=frozenset({1}))
    result = ranked(on, RankingRequest(INTERESTS[:2], profile={1: -0.5, 2: -0.5}))
    assert result.papers == []
    assert result.score_breakdown(on.papers[1]).relevance == result.score_breakdown(on.papers[2]).relevance


def test_a_perfect_match_has_finite_evidence() -> None:
    """An interest may be half an abstract, with a relevance that rounds to 1."""
    on = pool({1: 1.0, 2: 0.99}, {1: 1.0})
    result = ranked(on, RankingRequest(INTERESTS[:2], profile={1: -0.99, 2: 1.0}))
    assert result.papers == [2, 1]
    assert np.isfinite(result.evidence).all()


def test_without_papers_or_readers() -> None:
    """Nothing is relevant, and nothing breaks."""
    matches = EvidenceMatrix([])
    matches.add("agents", {})
    empty = CandidatePool({}, {}, matches, lambda text, paper: "", {}, TODAY)
    assert ranked(empty, RankingRequest(INTERESTS[:1])).papers == []
    assert ranked(pool({}), RankingRequest(())).papers == []
    assert ranking.rank(pool({}), []) == []


def test_interests_are_added_one_by_one() -> None:
    """Rows added before keep their values when the matrix grows."""
    matches = EvidenceMatrix([7, 3])
    for number in range(100):
        matches.add(f"interest {number}", {3: number / 100})
    evidence = matches.evidence[[matches.row_of[f"interest {number}"] for number in range(100)], 0]
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
def test_a_reader_among_others_is_ranked_for_as_alone(
    hits: Sequence[dict[int, float]], asking: list[RankingRequest]
) -> None:
    """To the last digit, whoever else there is, and in whatever order the interests stand."""
    on = pool(*hits, excluded=frozenset({4, 5}), listed={6: YESTERDAY})
    together = ranking.rank(on, asking)
    for result, reader in zip(together, asking, strict=True):
        for alone in (reader, replace(reader, interests=reader.interests[::-1])):
            other = ranked(on, alone)
            assert (result.papers, result.scores.tolist()) == (other.papers, other.scores.tolist())
        assert [result.score_breakdown(on.papers[n]).score for n in result.papers] == result.scores.tolist()
        assert result.scores.tolist() == sorted(result.scores, reverse=True)


@given(hits=st.tuples(relevances, relevances, relevances), reader=readers)
def test_it_is_the_formula(hits: Sequence[dict[int, float]], reader: RankingRequest) -> None:
    """Relevance is 1 − Π (1 − r)^w over interests and profile, computed result by result."""
    on = pool(*hits)
    result, hits_of = ranked(on, reader), dict(zip(TEXTS, hits, strict=True))
    for number, paper in on.papers.items():
        pairs = [(hits_of[interest.text].get(number, 0.0), interest.weight) for interest in reader.interests]
        lacking = math.prod((1 - hit) ** weight for hit, weight in pairs) * (
            1 - reader.profile.get(number, 0.0)
        )
        assert result.score_breakdown(paper).relevance == pytest.approx(1 - lacking, abs=1e-9)
        if abs(1 - lacking - FLOOR) > 1e-9:
            assert (number in result.papers) == (1 - lacking > FLOOR and number not in reader.already_sent)
