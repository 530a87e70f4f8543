"""A concordance says where runs of words stand, in all papers at once."""

from __future__ import annotations

import pytest

from app.relevance.phrase_index import PhraseIndex

PAPERS = PhraseIndex([
    [["large", "language", "models"], ["they", "reason"]],
    [["language"], ["models", "large"]],
    [],
    [["large", "large", "language"]],
])  # fmt: skip


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (["large"], [True, True, False, True]),
        (["large", "language"], [True, False, False, True]),
        (["language", "models"], [True, False, False, False]),  # no run goes over the end of a text
        (["models", "they"], [False, False, False, False]),
        (["language", "large"], [False, False, False, False]),  # nor from one paper to the next
        (["large", "zebras"], [False, False, False, False]),
        ([], [False, False, False, False]),
    ],
)
def test_a_run_stands_where_its_words_are_neighbours(run: list[str], found: list[bool]) -> None:
    """In this order, within one text."""
    assert PAPERS.having(run).tolist() == found


def test_any_of_some_words_will_do() -> None:
    """Those that no paper has are none."""
    assert PAPERS.having_any(["reason", "models", "zebras"]).tolist() == [True, True, False, False]
    assert not PAPERS.having_any([]).any()


def test_words_that_nobody_wrote_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are not looked through for them."""
    monkeypatch.setattr(PAPERS, "_papers_at", None)
    assert not PAPERS.having(["zebras", "large"]).any()
    assert not PAPERS.having_any(["zebras"]).any()


def test_there_may_be_no_papers() -> None:
    """An archive begins empty."""
    assert PhraseIndex([]).having(["large"]).tolist() == []
