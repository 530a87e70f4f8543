"""Test which searches the first page of results offers."""

import pytest

from app.relevance import query_language, search_offers
from app.relevance.suggestions import InterestReader
from tests.support import sample_archive


@pytest.mark.parametrize(
    ("typed", "total", "by_author"),
    [
        ("pinto", 0, "author:pinto"),
        ("lerrel pinto", 7, 'author:"lerrel pinto"'),
        ("pinto", 7, ""),  # a word that papers contain
        ("C++", 0, ""),  # initials are not a name
        ("six words are not a name", 0, ""),
        ('"lerrel pinto"', 0, ""),
        ("pinto -robots", 0, ""),
    ],
)
def test_an_author_is_offered_for_plain_words(typed: str, total: int, by_author: str) -> None:
    """Words that name an author get no hint: their correction would be wrong."""
    reader = InterestReader(sample_archive.trained_model())
    offers = search_offers.choose(query_language.parse(typed), total, reader, lambda _: True)
    assert (offers.by_author, offers.hint is None) == (by_author, bool(by_author))


def test_no_author_without_papers_is_offered() -> None:
    reader = InterestReader(sample_archive.trained_model())
    offers = search_offers.choose(query_language.parse("lerrel pinto"), 0, reader, lambda _: False)
    assert (offers.by_author, offers.hint is None) == ("", False)


@pytest.mark.parametrize(("typed", "offered"), [("video - survey", False), ("video NOT survey", True)])
def test_a_dash_in_a_title_is_no_exclusion(typed: str, offered: bool) -> None:
    reader = InterestReader(sample_archive.trained_model())
    hint = search_offers.choose(query_language.parse(typed), 0, reader, lambda _: False).hint
    assert bool(hint and hint.with_exclusion) is offered


@pytest.mark.parametrize("has_papers", [True, False])
def test_similar_category_is_offered_only_if_it_has_papers(*, has_papers: bool) -> None:
    reader = InterestReader(sample_archive.trained_model())
    hint = search_offers.choose(query_language.parse("cat:cs.R0"), 0, reader, lambda _: has_papers).hint
    assert hint is not None
    assert hint.with_filters == ("cat:cs.RO" if has_papers else "")


@pytest.mark.parametrize(("total", "offered"), [(0, 'author:"Lerrel Pinto"'), (7, "")])
def test_value_of_a_filter_is_completed(total: int, offered: str) -> None:
    """Only if the search finds nothing."""
    reader = InterestReader(sample_archive.trained_model())
    query = query_language.parse("author:Lerrel Pinto")
    hint = search_offers.choose(query, total, reader, lambda _: True).hint
    assert hint is not None
    assert hint.with_filters == offered
