"""Test how interests are split, corrected and described."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.relevance import query_language, query_rewriting


def test_runs_of_plain_words() -> None:
    """Phrases, exclusions and filters are not part of them."""
    text = 'world models "in quotes" -video agents author:ng for cat:"cs.CL" all'
    runs = [text[start:end] for start, end in query_rewriting.plain_runs(text)]
    assert runs == ["world models", "agents", "for", "all"]


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
        ("agents, org:NVIDIA", ()),
        ("few-shot, long-context", ("few-shot", "long-context")),
        ("video generation OR robotics", ("video generation", "robotics")),
        ("author:Smith OR author:Jones -survey", ("author:Smith", "author:Jones -survey")),
        ("video, images OR audio", ("video, images", "audio")),
        ("video or audio", ()),
        ("OR scheduling", ()),
        ('"video OR audio"', ()),
        ("agents (video OR audio)", ()),
        ("video OR NOT audio", ()),
        ("robots OR the", ()),
        ("a OR b, the", ()),
        ("author:Smith OR cat:", ()),
        ("video OR title:audio", ()),
        ("robots, the", ()),
        ("video OR -audio", ()),
        ("robots, NOT driving", ()),
        ("robots, not driving", ()),
        ("robots, but no driving", ()),
        ("robots, - driving", ()),
        ("- robots, agents", ("- robots", "agents")),
        ("video; images, audio; 3D", ("video", "images, audio", "3D")),
        ("• video generation • robots", ("video generation", "robots")),
        ("video · audio", ("video", "audio")),
        ("video / audio / robots", ("video", "audio", "robots")),
        ("video | audio", ("video", "audio")),
        ("input/output, audio", ("input/output", "audio")),
        ("input/output", ()),
        ('"video; audio"', ()),
    ],
)
def test_split_into_several_interests(text: str, pieces: tuple[str, ...]) -> None:
    """Split plain words at the separators of lists, and all texts at OR. Leave other texts alone."""
    assert query_rewriting.split_suggestion(text) == pieces


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("robots NOT driving", "robots -driving"),
        ("robots AND NOT driving", "robots -driving"),
        ("robots, but NOT driving", "robots, -driving"),
        ("robots - driving", "robots -driving"),
        ("robots – driving", "robots -driving"),
        ("robots NOT self driving", 'robots -"self driving"'),
        ("robots NOT driving AND vision", "robots -driving AND vision"),
        ("robots NOT driving NOT flying", "robots -driving -flying"),
        ("robots NOT -driving", "robots -driving"),
        ("robots - NOT driving", "robots -driving"),
        ("robots NOT - driving", "robots -driving"),
        ("robots - self driving", 'robots -"self driving"'),
        ("agents - LLM", "agents -LLM"),
        ("deep learning - a survey", ""),
        ("deep learning - Survey", ""),
        ("deep learning - toward trust", ""),
        ("BERT - Pre-training of Deep Bidirectional Transformers", ""),
        ("NeRF – neural radiance fields", ""),
        ("deep learning - a survey NOT robots", "deep learning - a survey -robots"),
        ('robots NOT "self driving" cars', 'robots -"self driving" cars'),
        ("robots NOT author:Smith", "robots -author:Smith"),
        ("robots not driving", "robots -driving"),
        ("web agents but not robots", "web agents -robots"),
        ("robots, but not driving", "robots, -driving"),
        ("video generation but no diffusion models", 'video generation -"diffusion models"'),
        ("robots other than humanoids", "robots -humanoids"),
        ("not only text except images", "not only text -images"),
        ("world models except for driving", "world models -driving"),
        ("robots excluding any humanoids", "robots -humanoids"),
        ("agents that are not robots", ""),
        ("whether or not robots plan", ""),
        ("text, not only images", ""),
        ("attention is not all you need", ""),
        ("learning to plan without access to any labels", ""),
        ("learning to plan, not to get access to any labels", ""),
        ("learning without forgetting", ""),
        ("transformers without normalization layers", ""),
        ("everything except robotics", ""),
        ("all papers not about robots", ""),
        ("not safe for work", ""),
        ("without labels", ""),
        ("robots not", ""),
        ('"robots"? agents', ""),
        ("robots -driving", ""),
        ("robots NOT", ""),
        ("robots NOT the", ""),
        ("NOT driving", ""),
        ("- robots", ""),
        ('robots "NOT driving"', ""),
        ("robots NOT (driving OR flying)", ""),
        ('robots NOT "driving', ""),
    ],
)
def test_negations_of_other_search_engines(text: str, rewritten: str) -> None:
    """Suggest an exclusion for NOT, a separate dash, and such words as “not” before one or two last words."""
    assert query_rewriting.exclusion_suggestion(text) == rewritten


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("author", "Ada Lovelace", 'author:"Ada Lovelace"'),
        ("author", "Ada “Countess” Lovelace", 'author:"Ada Countess Lovelace"'),
        ("author", 'Ada"Countess"Lovelace\u200b', 'author:"Ada Countess Lovelace"'),
        ("author", "„García“, José", 'author:"García , José"'),
        ("org", "University of California, Berkeley", 'org:"University of California, Berkeley"'),
        ("org", "MMLab@NTU", "org:MMLab@NTU"),
        ("cat", "cs.CL", "cat:cs.CL"),
        ("cat", "Machine Learning", 'cat:"Machine Learning"'),
        ("author", "…", ""),
        ("author", "“”", ""),
        ("author", "x" * 400, ""),
        ("author", "Ada\x00", ""),
        ("cat", "", ""),
    ],
)
def test_author_interest_from_a_name(field: str, value: str, text: str) -> None:
    """Remove quotes from the name. Return nothing if no valid interest can be written."""
    assert query_rewriting.query_for(field, value) == text


@example(["except", "not", "-"])
@given(
    st.lists(
        st.sampled_from(["a", "NOT", "not", "except", "-", "AND", "OR", ",", '"', "-b", "author:b", "(c)"])
    )
)
def test_suggestions_are_valid_interests(parts: list[str]) -> None:
    """Any text may be stored, because older releases had other rules."""
    text = " ".join(parts)
    for part in query_rewriting.split_suggestion(text):
        assert query_language.parse_typed(part)
    if rewritten := query_rewriting.exclusion_suggestion(text):
        assert query_language.parse_typed(rewritten).has_filters


@given(st.sampled_from(["author", "org", "cat"]), st.text())
def test_interest_from_any_name_is_one_filter(field: str, value: str) -> None:
    """Any value that a source may give is one filter, or nothing."""
    if text := query_rewriting.query_for(field, value):
        query = query_language.parse(text)
        assert [len(values) for values in query.required.values()] == [1]
        assert (query.words, query.phrases, query.excluded_phrases) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('author:"Hongtao Wu"', "Papers by Hongtao Wu"),
        ("Author: Wu", "Papers by Wu"),
        ("author:“Jané Doe”, author:lecun", "Papers by Jané Doe or lecun"),
        ("author:wu author:li author:wu author:ng", "Papers by wu, li or ng"),
        ('org:NVIDIA org:"AI at Meta"', "Papers from NVIDIA or AI at Meta"),
        ("org:NVIDIA author:wu", "org:NVIDIA author:wu"),
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
def test_display_text_of_an_interest(text: str, words: str) -> None:
    """Authors only, or categories only, are shown without syntax; everything else as typed."""
    assert query_rewriting.describe(text) == words


@pytest.mark.parametrize("example", query_language.FILTER_EXAMPLES.values())
def test_every_filter_is_described(example: str) -> None:
    """Subscribers see no syntax."""
    assert re.fullmatch(rf"Papers \w+ {example.partition(':')[2]}", query_rewriting.describe(example))
