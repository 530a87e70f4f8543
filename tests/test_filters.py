"""What must, and must not, stand in papers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInterest
from app.relevance.filters import Filters
from app.relevance.highlights import PaperText
from app.relevance.query_language import Query, parse
from app.relevance.vector_space import Matrix
from app.text.abbreviations import Abbreviations
from app.text.tokenizer import stems, telling, tokenise
from app.types import PaperView

FOLDING = Abbreviations(
    {("fine", "tune"): "finetun"}, {("larg", "languag", "model"): "llm"}, apart=frozenset({"finetun"})
)
PAPER = PaperView(
    1,
    "Drafting for Large Language Models",
    "Speculative decoding of LLMs, by José. Decoding twice: drafts, and models.",
    ("Grace Hopper", "José García"),
    categories=("cs.CL", "stat.ML"),
)
OTHER = PaperView(2, "Cats")
FILTERS = Filters([OTHER, PAPER], FOLDING)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ("decoding", ""),
        ('"speculative decoding" author:garcia cat:cs', ""),
        ("decoding -drafts", "a word or phrase that the interest excludes is in it"),
        ("decoding -author:hopper", "an author whom the interest excludes wrote it"),
        ("decoding -cat:stat", "it is filed under a category that the interest excludes"),
        ('"tree attention"', "a phrase in quotes is not in it"),
        ("author:hop", "it is by other authors"),
        ("cat:cs.CV", "it is filed under other categories"),
        ("cat:c", "it is filed under other categories"),
        ('"tree attention" -drafts', "a word or phrase that the interest excludes is in it"),
        ('"drafts, and models"', ""),
        ('"decoding speculative"', "a phrase in quotes is not in it"),
        ('"language model"', ""),  # stems
        ('"models speculative"', "a phrase in quotes is not in it"),  # the title ends, the abstract begins
        ('"jose"', ""),
    ],
)
def test_what_is_left_out_says_why(wish: str, why: str) -> None:
    """An exclusion is named before anything that is missing."""
    query = parse(wish)
    assert FILTERS.why_not(query, 1) == why
    assert FILTERS.passing(query)[1] == (not why)


@pytest.mark.parametrize(
    ("wish", "forbidden"),
    [
        ("decoding -LLM", True),  # the title writes it long
        ("decoding -by-drafts", False),  # "drafts" stands there, but not what was typed
        ('decoding -"drafting for"', True),
        ('decoding -"large language models"', True),
        ('decoding -"LLM drafting"', False),  # both are there, not next to each other
        ('decoding -"drafting for LLMs"', True),  # one of its words is written long
        ("decoding -language", True),  # a short form says it besides
        ('decoding -"small language models"', False),
        ('decoding -"the"', False),
        ("decoding -VLM", False),
        ("decoding", False),
    ],
)
def test_an_exclusion_is_understood_however_it_is_written(wish: str, forbidden: bool) -> None:
    """A short form forbids what it stands for, and the other way round."""
    paper = PaperView(1, "Drafting for LLMs", "Speculative decoding.")
    assert Filters([OTHER, paper], FOLDING).excluded(parse(wish)).tolist() == [False, forbidden]


def test_what_is_left_out_twice_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exclusion is the dearest thing that can be asked."""
    asked: list[Sequence[str]] = []
    whole = Filters._means

    def counted(self: Filters, phrase: Sequence[str]) -> Matrix:
        asked.append(phrase)
        return whole(self, phrase)

    monkeypatch.setattr(Filters, "_means", counted)
    FILTERS.passing(parse("policies -bandit -bandits -robot -bandit"))
    assert len(asked) == 2


def stands(run: Sequence[str], text: Sequence[str]) -> bool:
    return bool(run) and any([*run] == [*text[at : at + len(run)]] for at in range(len(text)))


def left_out(paper: PaperView, query: Query) -> tuple[bool, bool]:
    """What one reads in a single paper, word by word: whether it is excluded; whether it does not pass."""
    passage, texts = PaperText(paper, FOLDING), [paper.title, paper.abstract]
    said = [[token.stem for token in tokenise(text)] for text in texts]
    meant = [FOLDING.fold(stems(text)) for text in texts]
    besides = {one for text in meant for stem in text for one in FOLDING.parts.get(stem, ())}

    def means(phrase: Sequence[str]) -> bool:
        folded = FOLDING.fold(telling(phrase))
        there = any(map(stands, [phrase] * 2, said))
        if len(telling(phrase)) == 1 < len(phrase):
            return there
        return there or any(map(stands, [folded] * 2, meant)) or " ".join(folded) in besides

    excluded = any(map(means, query.without)) or bool(
        passage.writers(query.without_authors) + passage.filings(query.without_categories)
    )
    lacking = not all(any(map(stands, [phrase] * 2, said)) for phrase in query.phrases)
    lacking |= bool(query.authors) and not passage.writers(query.authors)
    return excluded, excluded or lacking or bool(query.categories and not passage.filings(query.categories))


WORDS = st.sampled_from(
    [
        "large",
        "language",
        "model",
        "models",
        "LLM",
        "LLMs",
        "fine",
        "tuning",
        "finetuning",
        "the",
        "cat",
        "a-b",
    ]
)
TEXT = st.lists(WORDS, max_size=8).map(" ".join)
NAME = st.sampled_from(["Ada Lovelace", "Lovelace", "José Ada", "Lace"])
FILED = st.sampled_from(["cs.CL", "cs", "csx", "stat.ML"])
PAPERS = st.lists(st.tuples(TEXT, TEXT, st.lists(NAME, max_size=2), st.lists(FILED, max_size=2)), max_size=4)
PARTS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=3).map(lambda run: f'"{" ".join(run)}"'),
    NAME.map('author:"{}"'.format),
    FILED.map("cat:{}".format),
)


@given(PAPERS, st.lists(st.tuples(st.sampled_from(["", "-"]), PARTS), min_size=1, max_size=3))
def test_all_papers_at_once_are_read_as_each_alone(
    rows: list[tuple[str, str, list[str], list[str]]], parts: list[tuple[str, str]]
) -> None:
    """The quick way over all of them says what one finds by reading one after the other."""
    try:
        query = parse(" ".join(["cat", *itertools.starmap(str.__add__, parts)]))
    except InvalidInterest:
        return
    papers = [
        PaperView(number, title, abstract, tuple(authors), categories=tuple(filed))
        for number, (title, abstract, authors, filed) in enumerate(rows)
    ]
    filters = Filters(papers, FOLDING)
    read = [left_out(paper, query) for paper in papers]
    assert filters.excluded(query).tolist() == [excluded for excluded, _ in read]
    assert filters.passing(query).tolist() == [not out for _, out in read]
    assert [bool(filters.why_not(query, place)) for place in range(len(papers))] == [out for _, out in read]
