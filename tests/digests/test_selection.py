"""Test selection: many subscribers at once get the papers that each would get alone."""

from datetime import date

import numpy as np
import pytest

from app.digests import ranking, selection
from app.digests.ranking import CandidatePool, EvidenceMatrix, RankingRequest
from app.types import CardReason, Interest, PaperView, Trend
from tests.support.evidence import add_interest

TODAY = date(2026, 11, 20)
TEXTS = ("agents", "bees", "video")


def build_pool(draw: np.random.Generator, papers: int) -> CandidatePool:
    """Return papers with random vectors, votes and relevance; many values are equal."""
    numbers = range(1, papers + 1)
    matches = EvidenceMatrix(numbers)
    for text in TEXTS:
        relevance = np.round(draw.random(papers), 1).tolist()
        add_interest(matches, text, {n: value for n, value in zip(numbers, relevance, strict=True) if value})
    vectors = draw.standard_normal((papers, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return CandidatePool(
        {n: PaperView(n, f"Paper {n}", last_listed_on=TODAY) for n in numbers},
        {n: Trend(n % 4 / 4, "") for n in numbers},
        matches,
        lambda text, paper: CardReason(""),
        dict(zip(numbers, vectors, strict=True)),
        TODAY,
    )


@pytest.mark.parametrize("seed", range(20))
def test_subscribers_together_get_the_papers_of_each_alone(seed: int) -> None:
    """Compare with the selection that counts quotas, which picks one paper at a time."""
    draw = np.random.default_rng(seed)
    pool = build_pool(draw, papers=80)
    requests = [
        RankingRequest(
            tuple(
                Interest(text, weight=draw.choice([0.5, 1.0, 2.0]))
                for text in draw.permutation(TEXTS)[: draw.integers(0, 4)].tolist()
            ),
            max_papers=int(draw.integers(1, 12)),
            profile=dict.fromkeys(range(1, 80, 9), 0.4) if number % 3 == 0 else {},
            already_sent=frozenset(draw.integers(1, 80, 10).tolist()),
        )
        for number in range(12)
    ]
    ranked = ranking.rank(pool, requests)
    for together, alone in zip(
        selection.select_for_all(ranked), map(selection._select_by_quota, ranked), strict=True
    ):
        assert together.selected == alone.selected
        assert together.first_choices == alone.first_choices
        assert together.outcomes == alone.outcomes


def test_several_subscribers_without_relevant_papers() -> None:
    """For example, on a day on which no source lists new papers."""
    pool = build_pool(np.random.default_rng(0), papers=8)
    all_sent = RankingRequest((Interest("agents"),), already_sent=frozenset(range(1, 9)))
    selections = selection.select_for_all(ranking.rank(pool, [all_sent] * 3))
    assert [each.selected for each in selections] == [[], [], []]
