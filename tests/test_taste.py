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

from app.digests import ranking
from app.relevance import user_profile
from app.text import tokenizer
from app.types import Feedback, PaperView
from tests import corpora

AT = datetime(2026, 11, 21, tzinfo=UTC)
PAPERS = corpora.papers()


@cache
def candidates() -> user_profile.Candidates:
    corpus = corpora.corpus()
    assert corpus.space
    return user_profile.Candidates(PAPERS, corpus, corpus.space)


def opinion(paper: PaperView, liked: bool = True) -> Feedback:
    return Feedback(paper.title, paper.abstract, paper.authors, liked, AT, paper.id)


def on(subject: str) -> list[PaperView]:
    return [paper for paper in PAPERS if subject in paper.abstract]


def learned(
    opinions: Sequence[Feedback], found_in: user_profile.Candidates | None = None
) -> user_profile.UserProfile:
    found = user_profile.build_profile(opinions, found_in or candidates())
    assert found
    return found


def test_who_said_nothing_has_no_taste() -> None:
    """Then their digest is by interests alone."""
    assert user_profile.build_profile([], candidates()) is None


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
    assert all(hit < ranking.FLOOR for number, hit in found.items() if number != like.id)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(PAPERS))
def test_the_twin_of_a_liked_paper_comes_first(liked: PaperView) -> None:
    """Nothing is nearer to a paper than itself."""
    found = learned([opinion(liked)]).relevance
    assert max(found, key=lambda number: found[number]) == liked.id


OPINIONS = st.lists(st.tuples(st.sampled_from(PAPERS), st.booleans()), max_size=8)


@settings(deadline=None, max_examples=50)
@given(OPINIONS, st.sampled_from(PAPERS))
def test_a_dislike_never_raises_a_paper(said: list[tuple[PaperView, bool]], disliked: PaperView) -> None:
    """Not its twin, nor any other, whatever was liked or disliked besides."""
    opinions = [opinion(paper, liked) for paper, liked in said]
    lowered = learned([*opinions, opinion(disliked, liked=False)]).relevance
    before = learned(opinions).relevance if opinions else {}
    ids = lowered.keys() | before.keys()
    assert all(lowered.get(number, 0.0) <= before.get(number, 0.0) + user_profile.LEAST for number in ids)


def test_the_twin_of_a_disliked_paper_is_held_down() -> None:
    """And the reason says so, for whoever asks why it was not sent."""
    disliked = on("quantization")[0]
    found = learned([*map(opinion, on("astronomy")[:3]), opinion(disliked, liked=False)])
    assert found.relevance[disliked.id] < 0
    assert f"close to “{disliked.title}” that you asked less of, through “" in found.reason(disliked.id)


def test_a_paper_without_a_known_word_says_nothing() -> None:
    """What was pasted may be on a subject that the archive has never heard of."""
    unknown = Feedback("Zxqv", "", (), True, AT)
    assert learned([unknown]).relevance == {}
    like = opinion(on("astronomy")[0])
    assert learned([unknown, like]).relevance == learned([like]).relevance


@settings(deadline=None, max_examples=20)
@given(st.permutations([opinion(p, liked=n % 3 > 0) for n, p in enumerate(PAPERS[::40])]))
def test_the_order_of_opinions_is_irrelevant(opinions: list[Feedback]) -> None:
    """A taste is what was said, not when."""
    straight = learned(sorted(opinions, key=lambda one: one.title)).relevance
    assert learned(opinions).relevance == pytest.approx(straight)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PAPERS), min_size=1, max_size=6, unique=True))
def test_a_reason_quotes_what_both_papers_say(liked: list[PaperView]) -> None:
    """The words that it names stand in both papers, and the liked one is named by its title."""
    texts = {paper.id: f"{paper.title} {paper.abstract}" for paper in PAPERS}
    found = learned([opinion(paper) for paper in liked])
    for number in [number for number, hit in found.relevance.items() if hit > 0][:5]:
        said = re.search(r"close to “(.+?)” that you liked, through (.+)$", found.reason(number))
        assert said
        near = [texts[paper.id] for paper in liked if paper.title == said.group(1)]
        quoted = re.findall("“(.+?)”", said.group(2))
        assert 0 < len(quoted) <= user_profile.CLOSE_WORDS
        assert all(words in texts[number] for words in quoted)
        assert any({*tokenizer.stems(" ".join(quoted))} <= {*tokenizer.stems(text)} for text in near)


def test_neighbouring_words_are_quoted_together() -> None:
    """But not across a stop."""
    corpus = corpora.corpus()
    assert corpus.space
    papers = [PaperView(1, "Faster Protein-Folding", "Lidar."), PaperView(2, "Protein: folding", "Lidar.")]
    like = Feedback("Protein folding on a budget", "A galaxy.", (), True, AT)
    together, apart = papers
    found = learned([like], user_profile.Candidates(papers, corpus, corpus.space))
    through = "close to “Protein folding on a budget” that you liked, through "
    assert found.reason(together.id) == f"{through}“Protein-Folding”"
    assert set(re.findall("“(.+?)”", found.reason(apart.id).removeprefix(through))) == {"Protein", "folding"}


def by(author: str, *, liked: str) -> user_profile.UserProfile:
    """What liking a paper by somebody says of a paper on another subject."""
    corpus = corpora.corpus()
    assert corpus.space
    like = replace(opinion(PAPERS[0]), authors=(liked, "Ada Lovelace"))
    other = replace(on("retrieval")[3], authors=(author, "Alan Turing"))
    return learned([like], user_profile.Candidates([other], corpus, corpus.space))


@pytest.mark.parametrize(
    ("author", "liked"),
    [
        ("Jane Doe", "Jane Doe"),
        ("jané doe", "Jane Doe"),
        ("Jane Doe", "Doe, Jane"),
        ("Jane Doe", "Jane Q. Doe"),
        ("J. Doe", "Jane Doe"),
        ("Jane Doe", "Doe, J."),
        ("Plato", "PLATO"),
    ],
)
def test_authors_that_were_liked_are_a_term_of_their_own(author: str, liked: str) -> None:
    """However sources write a name, and the reason says whose work it is."""
    found = by(author, liked=liked)
    number = found.candidates.passages[0].paper.id
    assert found.relevance[number] > 0
    assert found.reason(number) == f"by {author}, whose “{PAPERS[0].title}” you liked"
    assert list(found.authors.values()) == [1, 1]


def test_a_paper_that_is_close_and_by_the_same_people_is_named_once() -> None:
    """Its title is long enough."""
    like = replace(on("astronomy")[0], authors=("Jane Doe",))
    paper = replace(like, title="A Sequel")
    corpus = corpora.corpus()
    assert corpus.space
    found = learned([opinion(like)], user_profile.Candidates([paper], corpus, corpus.space))
    said = found.reason(paper.id)
    assert said.startswith(f"by Jane Doe, whose “{like.title}” you liked, and close to it, through “")


@pytest.mark.parametrize(
    ("author", "liked"), [("Jane Doe", "John Doe"), ("Jane Doe", "Jane Roe"), ("Doe", "J. Doe"), ("", "")]
)
def test_who_has_another_name_is_somebody_else(author: str, liked: str) -> None:
    """Many people share a last name and an initial."""
    assert not by(author, liked=liked).by_authors.any()


def test_a_name_that_several_may_bear_counts_by_parts() -> None:
    """ "Y. Li" may be any of them."""
    corpus = corpora.corpus()
    assert corpus.space
    like = replace(opinion(PAPERS[0]), authors=("Y. Li",))
    one, two = (replace(on("retrieval")[n], authors=(name,)) for n, name in enumerate(("Yan Li", "Ying Li")))
    alone = learned([like], user_profile.Candidates([one], corpus, corpus.space)).by_authors
    shared = learned([like], user_profile.Candidates([one, two], corpus, corpus.space)).by_authors
    assert 0 < shared[0] == shared[1] < alone[0]


def test_who_wrote_more_of_what_was_liked_counts_more() -> None:
    """A share of the liked papers, so an author of one in twenty says little."""
    corpus = corpora.corpus()
    assert corpus.space
    names = ("Jane Doe", "Ada Lovelace", "Ada Lovelace", "Alan Turing")
    likes = [replace(opinion(p), authors=(name,)) for p, name in zip(PAPERS, names, strict=False)]
    papers = [replace(p, authors=(name,)) for p, name in zip(on("retrieval"), names[:2], strict=False)]
    one, two = learned(likes, user_profile.Candidates(papers, corpus, corpus.space)).by_authors
    assert 0 < one < two


def test_authors_of_several_liked_papers_come_first() -> None:
    """However they are spelled, each paper once, and not those of disliked ones; the newest says how."""
    held = [
        Feedback("", "", ("Hopper, Grace", "Ada Lovelace", "ADA LOVELACE", ""), True, AT),
        Feedback("", "", ("Lovelace, Ada", "Charles Babbage"), True, AT),
        Feedback("", "", ("Alan Turing", "Ada Lovelace"), False, AT),
    ]
    assert user_profile.authors_liked(held) == [
        ("Ada Lovelace", 2),
        ("Hopper, Grace", 1),
        ("Charles Babbage", 1),
    ]
    shown = {tokenizer.normalized_name(name): papers for name, papers in user_profile.authors_liked(held)}
    assert shown == learned(held).authors
