"""A taste finds what is like the liked, is held off by the disliked, and says truly why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import compose, taste
from app.records import Opinion, PaperView
from tests import corpora

AT = datetime(2026, 11, 21, tzinfo=UTC)
PAPERS = corpora.papers()


@cache
def candidates() -> taste.Candidates:
    corpus = corpora.corpus()
    assert corpus.space
    return taste.Candidates(PAPERS, corpus, corpus.space)


def opinion(paper: PaperView, liked: bool = True) -> Opinion:
    return Opinion(paper.title, paper.abstract, paper.authors, liked, AT, paper.id)


def on(subject: str) -> list[PaperView]:
    return [paper for paper in PAPERS if subject in paper.abstract]


def learned(opinions: Sequence[Opinion], found_in: taste.Candidates | None = None) -> taste.Taste:
    found = taste.learn(opinions, found_in or candidates())
    assert found
    return found


def test_who_said_nothing_has_no_taste() -> None:
    """Then their digest is by interests alone."""
    assert taste.learn([], candidates()) is None


def test_what_is_like_the_liked_comes_first() -> None:
    """Five liked papers of a subject: the others of the subject stand above everything else."""
    liked, *later = [on("protein folding")[:5], *on("protein folding")[5:]]
    found = learned([opinion(paper) for paper in liked]).relevance
    ranked = sorted(found, key=lambda number: -found[number])[: len(later)]
    assert sum(number in {paper.id for paper in later} for number in ranked) >= len(later) - 5


def test_one_like_alone_brings_nothing() -> None:
    """It may raise what an interest found; a mail by taste alone needs more to go on."""
    like = on("astronomy")[0]
    found = learned([opinion(like)]).relevance
    assert all(hit < compose.FLOOR for number, hit in found.items() if number != like.id)


def test_the_twin_of_a_disliked_paper_is_held_down() -> None:
    """A dislike counts against, whatever else was liked."""
    disliked = on("quantization")[0]
    likes = [opinion(paper) for paper in on("astronomy")[:3]]
    assert learned([*likes, opinion(disliked, liked=False)]).relevance[disliked.id] < 0


@settings(deadline=None, max_examples=20)
@given(st.permutations([opinion(p, liked=n % 3 > 0) for n, p in enumerate(PAPERS[::40])]))
def test_the_order_of_opinions_is_irrelevant(opinions: list[Opinion]) -> None:
    """A taste is what was said, not when."""
    straight = learned(sorted(opinions, key=lambda one: one.title)).relevance
    assert learned(opinions).relevance == pytest.approx(straight)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PAPERS), min_size=1, max_size=6, unique=True))
def test_a_reason_quotes_what_both_papers_say(liked: list[PaperView]) -> None:
    """The words that it names stand in the paper, and the liked paper is named by its title."""
    texts = {paper.id: f"{paper.title} {paper.abstract}" for paper in PAPERS}
    found = learned([opinion(paper) for paper in liked])
    for number in sorted(found.relevance)[:5]:
        said = re.search(r"close to “(.+?)” that you liked, through (.+)$", found.reason(number))
        assert said
        assert said.group(1) in {paper.title for paper in liked}
        assert all(word in texts[number] for word in re.findall("“(.+?)”", said.group(2)))


def test_authors_that_were_liked_are_a_term_of_their_own() -> None:
    """However their name is written, and said so."""
    corpus = corpora.corpus()
    assert corpus.space
    liked = replace(opinion(PAPERS[0]), authors=("Jané Doe", "A. Nobody"))
    other = replace(on("retrieval")[3], authors=("J. Doe",))
    found = learned([liked], taste.Candidates([other], corpus, corpus.space))
    assert "by J. Doe, whom you liked before" in found.reason(other.id)
    assert found.authors == {"doe j": 1, "nobody a": 1}


@pytest.mark.parametrize("name", ["Jane Doe", "J. Doe", "Doe, Jane", "jané doe", "Jane Q. Doe"])
def test_a_name_is_one_name(name: str) -> None:
    """Sources write names in many ways."""
    assert taste.author_key(name) == "doe j"
