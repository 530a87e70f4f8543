"""Test the phrase index, which finds exact phrases in all papers at once."""

import pytest

from app.relevance.phrase_index import PhraseIndex

PAPERS = PhraseIndex([
    [["large", "language", "models"], ["they", "reason"]],
    [["language"], ["models", "large"]],
    [],
    [["large", "large", "language"]],
])  # fmt: skip


@pytest.mark.parametrize(
    ("phrase", "mask"),
    [
        (["large"], [True, True, False, True]),
        (["large", "language"], [True, False, False, True]),
        (["language", "models"], [True, False, False, False]),  # no phrase spans two texts
        (["models", "they"], [False, False, False, False]),
        (["language", "large"], [False, False, False, False]),  # nor from one paper to the next
        (["large", "zebras"], [False, False, False, False]),
        ([], [False, False, False, False]),
    ],
)
def test_words_must_be_adjacent(phrase: list[str], mask: list[bool]) -> None:
    """The words are in this order, within one text."""
    assert PAPERS.containing(phrase).tolist() == mask


def test_any_of_several_words() -> None:
    """Ignore words that no paper has. An empty list matches nothing."""
    assert PAPERS.containing_any(["reason", "models", "zebras"]).tolist() == [True, True, False, False]
    assert not PAPERS.containing_any([]).any()


def test_unknown_words_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are not searched for unknown words."""
    monkeypatch.setattr(PAPERS, "_papers_at", None)
    assert not PAPERS.containing(["zebras", "large"]).any()
    assert not PAPERS.containing_any(["zebras"]).any()


def test_empty_index() -> None:
    """The mask of an empty archive is empty."""
    assert PhraseIndex([]).containing(["large"]).tolist() == []
