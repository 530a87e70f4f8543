"""What is relevant to a reader depends on nobody else, and every number on the way adds up."""

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
WISHES = tuple(map(Interest, TEXTS))


def shelf(
    *hits: Mapping[int, float],
    excluded: frozenset[int] = frozenset(),
    listed: Mapping[int, date] | None = None,
) -> CandidatePool:
    """Papers 1 … 9, and how relevant each is to the interests; the first has the exclusions."""
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
    [one] = ranking.rank(on, [reader])
    return one


def test_evidence_adds_up() -> None:
    """Two interests, a weight and a taste: 1 − Π (1 − r)^w, then trend and age, as documented."""
    on = shelf({1: 0.4}, {1: 0.2}, listed={1: YESTERDAY})
    one = ranked(on, RankingRequest((Interest("agents", 2.0), Interest("video")), taste={1: 0.1}))
    weighed = one.weigh(on.papers[1])
    assert weighed.relevance == pytest.approx(1 - 0.6**2 * 0.8 * 0.9)
    assert weighed.score == pytest.approx(weighed.relevance * (1 + TREND * 0.1) * FRESH)
    assert one.scores.tolist() == [weighed.score]
    parts = ranking.relevance_of(one.parts())
    assert parts[:, 0].tolist() == pytest.approx([1 - 0.6**2, 0.2, 0.1])


def test_only_what_is_relevant_listed_lately_and_new() -> None:
    """The best score first; what a reader had, or is too old for them, is still weighed."""
    on = shelf(dict.fromkeys(range(1, 6), FLOOR) | {6: FLOOR - 0.01}, listed={2: YESTERDAY})
    one = ranked(on, RankingRequest((WISHES[0],), had=frozenset({3, 99}), since=TODAY))
    assert one.papers == [5, 4, 1]
    assert int(one.open.sum()) == 7
    assert one.weigh(on.papers[2]).relevance == one.weigh(on.papers[3]).relevance == pytest.approx(FLOOR)


def test_a_dislike_takes_away() -> None:
    """Taste under 0 makes a paper less relevant than its interests do."""
    on = shelf({1: 0.4, 2: 0.4})
    assert ranked(on, RankingRequest((WISHES[0],), taste={1: -0.5})).papers == [2]


def test_no_taste_brings_what_an_interest_excludes() -> None:
    """Another interest may."""
    on = shelf({}, {2: 0.5}, excluded=frozenset({1, 2}))
    assert ranked(on, RankingRequest(WISHES[:2], taste={1: 0.9, 3: 0.9})).papers == [3, 2]


def test_an_exclusion_takes_no_dislike_away() -> None:
    """Another interest may bring the paper, and what was disliked still speaks against it."""
    on = shelf({}, {1: 0.4, 2: 0.4}, excluded=frozenset({1}))
    one = ranked(on, RankingRequest(WISHES[:2], taste={1: -0.5, 2: -0.5}))
    assert one.papers == []
    assert one.weigh(on.papers[1]).relevance == one.weigh(on.papers[2]).relevance


def test_whoever_fits_perfectly_is_a_number_among_others() -> None:
    """An interest may be half an abstract: so near to 1 that it rounds to it, and still it can be weighed."""
    on = shelf({1: 1.0, 2: 0.99}, {1: 1.0})
    one = ranked(on, RankingRequest(WISHES[:2], taste={1: -0.99, 2: 1.0}))
    assert one.papers == [2, 1]
    assert np.isfinite(one.evidence).all()


def test_without_papers_or_readers() -> None:
    """Nothing is relevant, and nothing breaks."""
    matches = EvidenceMatrix([])
    matches.add("agents", {})
    empty = CandidatePool({}, {}, matches, lambda text, paper: "", {}, TODAY)
    assert ranked(empty, RankingRequest(WISHES[:1])).papers == []
    assert ranked(shelf({}), RankingRequest(())).papers == []
    assert ranking.rank(shelf({}), []) == []


def test_interests_are_filed_as_they_come() -> None:
    """However many: those filed before stay as they were."""
    matches = EvidenceMatrix([7, 3])
    for number in range(100):
        matches.add(f"interest {number}", {3: number / 100})
    found = matches.evidence[[matches.places[f"interest {number}"] for number in range(100)], 0]
    assert ranking.relevance_of(found).tolist() == pytest.approx([number / 100 for number in range(100)])


numbers = st.integers(1, 9)
relevances = st.dictionaries(numbers, st.floats(0.0, 0.99), max_size=9)
wishes = st.lists(
    st.builds(Interest, st.sampled_from(TEXTS), st.floats(0.1, 3.0)),
    max_size=3,
    unique_by=lambda wish: wish.text,
).map(tuple)
tastes = st.dictionaries(numbers, st.floats(-0.99, 0.99), max_size=9)
readers = st.builds(
    RankingRequest,
    wishes,
    taste=tastes,
    had=st.frozensets(numbers, max_size=4),
    since=st.sampled_from([date.min, TODAY]),
)


@given(hits=st.tuples(relevances, relevances, relevances), asking=st.lists(readers, max_size=5))
def test_a_reader_among_others_is_ranked_for_as_alone(
    hits: Sequence[dict[int, float]], asking: list[RankingRequest]
) -> None:
    """To the last digit, whoever else there is, and in whatever order the interests stand."""
    on = shelf(*hits, excluded=frozenset({4, 5}), listed={6: YESTERDAY})
    together = ranking.rank(on, asking)
    for one, reader in zip(together, asking, strict=True):
        for alone in (reader, replace(reader, wishes=reader.wishes[::-1])):
            other = ranked(on, alone)
            assert (one.papers, one.scores.tolist()) == (other.papers, other.scores.tolist())
        assert [one.weigh(on.papers[n]).score for n in one.papers] == one.scores.tolist()
        assert one.scores.tolist() == sorted(one.scores, reverse=True)


@given(hits=st.tuples(relevances, relevances, relevances), reader=readers)
def test_it_is_the_formula(hits: Sequence[dict[int, float]], reader: RankingRequest) -> None:
    """What is ranked is what 1 − Π (1 − r)^w over interests and taste says, computed one by one."""
    on = shelf(*hits)
    found, of = ranked(on, reader), dict(zip(TEXTS, hits, strict=True))
    for number, paper in on.papers.items():
        said = [(of[wish.text].get(number, 0.0), wish.weight) for wish in reader.wishes]
        lacking = math.prod((1 - hit) ** weight for hit, weight in said) * (1 - reader.taste.get(number, 0.0))
        assert found.weigh(paper).relevance == pytest.approx(1 - lacking, abs=1e-9)
        if abs(1 - lacking - FLOOR) > 1e-9:
            assert (number in found.papers) == (1 - lacking > FLOOR and number not in reader.had)
