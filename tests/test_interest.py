"""What a reader typed is understood as they meant it, or refused with what to change."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInterest
from app.relevance import query_language
from app.relevance.query_language import Query
from app.types import Interest


def parsed(text: str) -> Query:
    """Without the text itself, which every query holds."""
    query = query_language.parse(text)
    assert query.text == query_language.normalise(text)
    return Query("", *(getattr(query, name) for name in Query.__dataclass_fields__ if name != "text"))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("world models", Query("", words=("world", "model"))),
        ('"world models"', Query("", phrases=(("world", "model"),))),
        ("text-to-image", Query("", words=("text", "to", "imag"))),
        (
            'agents -crypto -"stock market"',
            Query("", words=("agent",), without=(("crypto",), ("stock", "market"))),
        ),
        ("author:García", Query("", authors=("garcia",))),
        ('AUTHOR: "Ada  Lovelace"', Query("", authors=("ada lovelace",))),
        ("cat:cs.CL -cat:eess", Query("", categories=("cs.cl",), without_categories=("eess",))),
        ("agents -author:ng", Query("", words=("agent",), without_authors=("ng",))),
        ("“world models” −video", Query("", phrases=(("world", "model"),), without=(("video",),))),
        ("agents author: ", Query("", words=("agent",))),
        ("RL - a survey", Query("", words=("rl", "a", "survey"))),  # a dash alone excludes nothing
        ("state-of-the-art", Query("", words=("state", "of", "the", "art"))),
    ],
)
def test_what_was_typed_is_understood(text: str, query: Query) -> None:
    """Words, phrases, exclusions, authors and categories, each where it belongs."""
    assert parsed(text) == query


def test_small_words_count_for_nothing_but_in_phrases() -> None:
    """ "text to image" is looked for as two words; in quotes all three must be there."""
    assert query_language.parse("text to image").terms == ("text", "imag")
    assert query_language.parse('"text to image"').phrases == (("text", "to", "imag"),)


def test_words_and_each_phrase_are_runs_of_their_own() -> None:
    """The last word of one and the first of the next are no pair."""
    assert query_language.parse('agents "world models" video').runs == (
        ("agent", "video"),
        ("world", "model"),
    )


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("agents", False),
        ('"agents"', True),
        ("agents -crypto", True),
        ("author:ng", True),
        ("a -cat:cs b", True),
    ],
)
def test_strict_interests_are_known(text: str, strict: bool) -> None:
    """Where nothing must or must not be there, no paper has to be read."""
    assert query_language.parse(text).strict is strict


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x" * 10_000, "300 characters"),
        ("!!! ... ???", "at least one word"),
        ("", "at least one word"),
        ("-crypto", "and then what not"),
        ("the of and", "at least one word"),
        ('""', "at least one word"),
        ("author:", "at least one word"),
        ("diffusion\x00models", "plain text"),
        ("diffusion\u202emodels", "plain text"),
        ('agents "world models', "not closed"),
        ('agents -author:"Ada Lovelace', "not closed"),
        ('cat:"cs.CL', "not closed"),
        ("title:agents", "no filter “title:”"),
        ("Ti:sapphire lasers", "In quotes it is looked for as it stands"),
        ('abs:"world models"', "Titles and abstracts are always searched"),
    ],
)
def test_an_interest_that_cannot_be_searched_for_says_why(text: str, word: str) -> None:
    """The message tells what to change."""
    with pytest.raises(InvalidInterest, match=word):
        query_language.parse(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("author:garcia, agents", "author:garcia agents"),
        ("cat:cs.CL, cat:[cs.LG]", "cat:cs.CL cat:cs.LG"),
        ("agents -author:x;", "agents -author:x"),
        ("cat:cs.*", "cat:cs"),
        ("world\u200b mo\u00addels", "world models"),
        ('5" disks', "5 disks"),
        ('"Ti:sapphire" lasers', '"Ti sapphire" lasers'),
        ("agents \u2011crypto", "agents -crypto"),  # every hyphen is one
        ("\uff02world models\uff02", '"world models"'),
    ],
)
def test_what_people_type_around_a_value_is_no_part_of_it(text: str, same: str) -> None:
    """Commas of a list, brackets, and marks that come along from a page."""
    assert replace(query_language.parse(text), text="") == replace(query_language.parse(same), text="")


def test_spelling_is_unified_before_it_is_stored() -> None:
    """Two readers with the same interest share one row."""
    assert query_language.normalise("  “world  models” ") == query_language.normalise('"world models"')


@given(st.text(max_size=120))
def test_any_text_is_understood_or_refused(text: str) -> None:
    """Normalising twice changes nothing, and what is stored means what was typed."""
    once = query_language.normalise(text)
    assert query_language.normalise(once) == once
    try:
        query = query_language.parse(text)
    except InvalidInterest:
        return
    assert query_language.parse(query.text) == query


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("agents, RL, quantization", ("agents", "RL", "quantization")),
        (" agents ,RL,, agents, ?! ", ("agents", "RL")),
        ("language agents", ()),
        ("agents,", ()),
        ('"agents, RL", quantization', ()),
        ("“agents, RL”", ()),
        ("agents, -robot", ()),
        ("author:Smith, Jones", ()),
        ("agents, cat:cs.CL", ()),
        ("few-shot, long-context", ("few-shot", "long-context")),
    ],
)
def test_what_looks_like_several_interests(text: str, pieces: tuple[str, ...]) -> None:
    """Commas part plain words; where there is anything else, they may well belong to it."""
    assert query_language.split_suggestion(text) == pieces


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("author", "Ada Lovelace", 'author:"Ada Lovelace"'),
        ("author", "Ada “Countess” Lovelace", 'author:"Ada Countess Lovelace"'),
        ("author", 'Ada"Countess"Lovelace\u200b', 'author:"Ada Countess Lovelace"'),
        ("author", "„García“, José", 'author:"García , José"'),
        ("cat", "cs.CL", "cat:cs.CL"),
        ("cat", "Machine Learning", 'cat:"Machine Learning"'),
        ("author", "…", ""),
        ("author", "“”", ""),
        ("author", "x" * 400, ""),
        ("author", "Ada\x00", ""),
        ("cat", "", ""),
    ],
)
def test_a_name_becomes_an_interest_where_it_can(field: str, value: str, text: str) -> None:
    """Quotes in it would end it; of what cannot be read there is none."""
    assert query_language.query_for(field, value) == text


@given(st.sampled_from(["author", "cat"]), st.text())
def test_what_is_made_of_a_name_is_one_filter(field: str, value: str) -> None:
    """Whatever a source says."""
    if text := query_language.query_for(field, value):
        query = query_language.parse(text)
        assert len(query.authors + query.categories) == 1
        assert (query.words, query.phrases, query.without) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "without", "authors", "categories"),
    [
        ("Diffusion", (("diffus",),), (), ()),
        ("  Diffusion   Models ", (("diffus", "model"),), (), ()),
        ('"diffusion models"', (("diffus", "model"),), (), ()),
        ("-diffusion", (("diffus",),), (), ()),
        ('author:"Jané Doe"', (), ("jane doe",), ()),
        ("author: Jané Doe", (), ("jane doe",), ()),
        ("cat:cs.CR", (), (), ("cs.cr",)),
        ("title:x", (("titl", "x"),), (), ()),
    ],
)
def test_what_is_muted_is_a_word_a_phrase_an_author_or_a_category(
    text: str, without: tuple[str, ...], authors: tuple[str, ...], categories: tuple[str, ...]
) -> None:
    """Several words are one phrase, in quotation marks or without."""
    query = query_language.muted(text)
    assert (query.without, query.without_authors, query.without_categories) == (without, authors, categories)


@pytest.mark.parametrize("text", ["", "the", "of the", "?", "author:", "x" * 101, "a\x00b"])
def test_what_cannot_be_muted_says_why(text: str) -> None:
    """Least of all a word that every paper has."""
    with pytest.raises(InvalidInterest):
        query_language.muted(text)


@given(st.text(max_size=120))
def test_any_text_is_muted_or_refused(text: str) -> None:
    """Nothing else happens."""
    with contextlib.suppress(InvalidInterest):
        query = query_language.muted(text)
        assert query.without or query.without_authors or query.without_categories


def test_what_a_paper_offers_to_mute() -> None:
    """Keywords that it says, neighbours in its title, then words; none of the reader's own interests."""
    offered = query_language.mute_suggestions(
        "Language Agents that Plan: A Study of GUI-Agents",
        "We use world models, and GUI agents.",
        ["world models", "robots", "Language  agents"],
        [Interest("study of plans")],
    )
    assert offered == ["world models", "Language agents", "GUI-Agents", "Language", "Agents", "GUI"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('author:"Hongtao Wu"', "Papers by Hongtao Wu"),
        ("Author: Wu", "Papers by Wu"),
        ("author:“Jané Doe”, author:lecun", "Papers by Jané Doe or lecun"),
        ("author:wu author:li author:wu author:ng", "Papers by wu, li or ng"),
        ("cat:cs.CL", "Papers in cs.CL"),
        ("cat:cs.CL cat:stat.ML", "Papers in cs.CL or stat.ML"),
        ("language  agents", "language  agents"),
        ("cat:cs.CL author:wu", "cat:cs.CL author:wu"),
        ("agents author:wu", "agents author:wu"),
        ("author:wu -author:li", "author:wu -author:li"),
        ('author:wu author:""', "Papers by wu"),
        ("author:…", "author:…"),
        ("", ""),
    ],
)
def test_an_interest_in_words(text: str, words: str) -> None:
    """Authors or categories alone are told without syntax; all else as it was typed."""
    assert query_language.describe(text) == words
