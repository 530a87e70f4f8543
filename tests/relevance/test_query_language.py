"""Test the query language: interests are parsed, or rejected with what to change."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInterest
from app.relevance import query_language
from app.relevance.query_language import FilterField, Query
from app.text.tokenizer import stem_all

AUTHOR, ORGANIZATION, CATEGORY = FilterField


def parse_without_text(text: str) -> Query:
    """Return the query of a text, with its field `text` empty."""
    query = query_language.parse(text)
    assert query.text == query_language.normalize(text)
    return Query("", *(getattr(query, name) for name in Query.__dataclass_fields__ if name != "text"))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("world models", Query("", words=("world", "model"))),
        ('"world models"', Query("", phrases=(("world", "models"),))),
        ("text-to-image", Query("", words=("text", "to", "imag"))),
        (
            'agents -crypto -"stock market"',
            Query("", words=("agent",), excluded_phrases=(("crypto",), ("stock", "market"))),
        ),
        ("author:García", Query("", required={AUTHOR: ("garcia",)})),
        ('AUTHOR: "Ada  Lovelace"', Query("", required={AUTHOR: ("ada lovelace",)})),
        ("cat:cs.CL -cat:eess", Query("", required={CATEGORY: ("cs.cl",)}, excluded={CATEGORY: ("eess",)})),
        ("org:NVIDIA", Query("", required={ORGANIZATION: ("nvidia",)})),
        (
            'Org:"Google  DeepMind" -org:Météo',
            Query("", required={ORGANIZATION: ("google deepmind",)}, excluded={ORGANIZATION: ("meteo",)}),
        ),
        ("agents org:", Query("", words=("agent",))),
        ("agents -author:ng", Query("", words=("agent",), excluded={AUTHOR: ("ng",)})),
        ("“world models” −video", Query("", phrases=(("world", "models"),), excluded_phrases=(("video",),))),
        ("agents author: ", Query("", words=("agent",))),
        ("RL - a survey", Query("", words=("rl", "a", "survey"))),  # a dash alone excludes nothing
        ("SWE-bench, agents", Query("", words=("swe", "bench", "agent"), names=(("swe", "bench"),))),
        ("state-of-the-art", Query("", words=("state", "of", "the", "art"))),
    ],
)
def test_parse(text: str, query: Query) -> None:
    """Words, phrases, exclusions, authors and categories are each put into their own field."""
    assert parse_without_text(text) == query


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recent papers on world models", "world models"),
        ("work about LLM reasoning", "LLM reasoning"),
        ("quantization methods", "quantization"),
        ("methods", "methods"),
        ("deep research", "deep research"),
        ("papers on", "papers on"),
        ("-diffusion methods", "methods"),
        ("recent papers on -diffusion methods", "methods"),
    ],
)
def test_request_around_an_interest_is_ignored(text: str, words: str) -> None:
    """ "Papers on" and "methods" say what is wanted of a subject, unless nothing else is typed."""
    assert query_language.parse(text).words == tuple(stem_all(words))


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        *(
            (text, True)
            for text in ("SWE-bench", "GPT-5", "Llama-3.1", "MMLU-Pro", "Qwen2.5-VL", "LLM-based")
        ),
        *((text, False) for text in ("fine-tuning", "Long-Context", "text-to-3D", "SWE-", "SWE", "-GPT-5")),
    ],
)
def test_hyphens_and_capitals_mark_names(text: str, is_name: bool) -> None:
    """Filters decide by the archive which of these are names."""
    assert bool(query_language.parse(f"agents {text}").names) == is_name


def test_runs_of_plain_words() -> None:
    """Phrases, exclusions and filters are not part of them."""
    text = 'world models "in quotes" -video agents author:ng for cat:"cs.CL" all'
    found = [text[start:end] for start, end in query_language.plain_runs(text)]
    assert found == ["world models", "agents", "for", "all"]


def test_stop_words_count_only_in_phrases() -> None:
    """ "text to image" means two words; in quotes all three must occur."""
    assert query_language.parse("text to image").terms == ("text", "imag")
    assert query_language.parse('"text to image"').phrases == (("text", "to", "image"),)


def test_words_and_phrases_are_separate_runs() -> None:
    """The last word of a run and the first word of the next one form no pair."""
    assert query_language.parse('agents "world models" video').runs == (
        ("agent", "video"),
        ("world", "model"),
    )


@pytest.mark.parametrize(
    ("text", "has_filters"),
    [
        ("agents", False),
        ('"agents"', True),
        ("agents -crypto", True),
        ("author:ng", True),
        ("org:nvidia", True),
        ("agents -org:nvidia", True),
        ("a -cat:cs b", True),
    ],
)
def test_has_filters(text: str, has_filters: bool) -> None:
    """Without filters, papers need not be indexed for them."""
    assert query_language.parse(text).has_filters is has_filters


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x" * 10_000, "300 characters"),
        ("!!! ... ???", "at least one word"),
        ("", "at least one word"),
        ("-crypto", "not only exclusions"),
        ("the of and", "at least one word"),
        ('"to be"', r"to search for\.$"),
        ('""', "at least one word"),
        ("author:", "at least one word"),
        ("org:", r"at least one word or filter \(author:, org: or cat:\)"),
        ("-org:nvidia", "not only exclusions"),
        ("papers about -robots", "not only exclusions"),
        ("recent papers on -survey", "not only exclusions"),
        ("organization:NVIDIA", "the filters are author:, org: and cat:"),
        ("diffusion\x00models", "plain text"),
        ("diffusion\u202emodels", "plain text"),
        ('agents "world models', "not closed"),
        ('agents -author:"Ada Lovelace', "not closed"),
        ('cat:"cs.CL', "not closed"),
        ("title:agents", "no filter “title:”"),
        ("Ti:sapphire lasers", "put it in quotes"),
        ('abs:"world models"', "Titles and abstracts are always searched"),
    ],
)
def test_invalid_interests_have_a_reason(text: str, word: str) -> None:
    """The error message says what to change."""
    with pytest.raises(InvalidInterest, match=word):
        query_language.parse(text)


@pytest.mark.parametrize(
    "text", ["x" * 101, f'"a {"x" * 101}"', f"agents -{'x' * 101}", f"author:{'x' * 101}"]
)
def test_overlong_word_is_refused_when_typed(text: str) -> None:
    """A stored one is still parsed, so that its subscriber gets digests."""
    with pytest.raises(InvalidInterest, match="A search can't have words of more than 100 characters"):
        query_language.parse_typed(text, "A search")
    assert query_language.parse(text)
    assert query_language.parse_typed("x" * 100)


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
def test_punctuation_around_values_is_ignored(text: str, same: str) -> None:
    """Ignore commas of a list, brackets, and invisible characters copied from a page."""
    assert replace(query_language.parse(text), text="") == replace(query_language.parse(same), text="")


def test_normalization() -> None:
    """Two readers with the same interest share one row in the database."""
    assert query_language.normalize("  “world  models” ") == query_language.normalize('"world models"')


@given(st.text(max_size=120))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Normalising twice changes nothing, and the stored text gives the same query as the typed one."""
    once = query_language.normalize(text)
    assert query_language.normalize(once) == once
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
    assert query_language.split_suggestion(text) == pieces


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
        ("robots not driving", ""),
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
    """Suggest an exclusion for NOT in capitals and for a separate dash, but not for “not”."""
    assert query_language.exclusion_suggestion(text) == rewritten


def test_operators_of_other_search_engines_are_words() -> None:
    """They may be meant as words, and stored interests must not change."""
    assert query_language.parse("quantum NOT gates").words == ("quantum", "not", "gate")


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
    assert query_language.query_for(field, value) == text


def test_ligatures_are_letters() -> None:
    """They are pasted from PDF files."""
    assert (
        query_language.parse("eﬃcient ﬁne-tuning").words
        == query_language.parse("efficient fine-tuning").words
    )


@given(st.lists(st.sampled_from(["a", "NOT", "-", "AND", "OR", ",", '"', "-b", "author:b", "(c)"])))
def test_suggestions_are_valid_interests(parts: list[str]) -> None:
    """Any text may be stored, because older releases had other rules."""
    text = " ".join(parts)
    for part in query_language.split_suggestion(text):
        assert query_language.parse_typed(part)
    if rewritten := query_language.exclusion_suggestion(text):
        assert query_language.parse_typed(rewritten).has_filters


@given(st.sampled_from(["author", "org", "cat"]), st.text())
def test_interest_from_any_name_is_one_filter(field: str, value: str) -> None:
    """Any value that a source may give is one filter, or nothing."""
    if text := query_language.query_for(field, value):
        query = query_language.parse(text)
        assert [len(values) for values in query.required.values()] == [1]
        assert (query.words, query.phrases, query.excluded_phrases) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "phrases", "authors", "categories"),
    [
        ("Diffusion", (("diffusion",),), (), ()),
        ("  Diffusion   Models ", (("diffusion", "models"),), (), ()),
        ('"diffusion models"', (("diffusion", "models"),), (), ()),
        ("-diffusion", (("diffusion",),), (), ()),
        ('author:"Jané Doe"', (), ("jane doe",), ()),
        ("author: Jané Doe", (), ("jane doe",), ()),
        ("cat:cs.CR", (), (), ("cs.cr",)),
        ("title:x", (("title", "x"),), (), ()),
    ],
)
def test_parse_muted_text(
    text: str, phrases: tuple[str, ...], authors: tuple[str, ...], categories: tuple[str, ...]
) -> None:
    """Several words are one phrase, with or without quotation marks."""
    query = query_language.parse_muted(text)
    values = query.excluded.get(AUTHOR, ()), query.excluded.get(CATEGORY, ())
    assert (query.excluded_phrases, *values) == (phrases, authors, categories)


@pytest.mark.parametrize("text", ["org:AI at Meta", 'ORG: "ai at  meta"', "-org:“AI at Meta”"])
def test_muted_organization(text: str) -> None:
    """A name of several words needs no quotation marks."""
    query = query_language.parse_muted(text)
    assert (query.excluded, query.excluded_phrases) == ({ORGANIZATION: ("ai at meta",)}, ())


def test_muted_filters_hash_differently() -> None:
    """They are cache keys, without their texts. All of them had the same hash, so each lookup was slow."""
    queries = [replace(query_language.parse_muted(f"author:{name}"), text="") for name in ("li", "wu")]
    assert len(set(map(hash, queries))) == 2


@pytest.mark.parametrize("text", ["", "the", "of the", "?", "author:", "x" * 101, "a\x00b"])
def test_invalid_muted_texts_have_a_reason(text: str) -> None:
    """Reject stop words, filters without a value, and text that is too long or not printable."""
    with pytest.raises(InvalidInterest):
        query_language.parse_muted(text)


@pytest.mark.parametrize(
    "text",
    [
        "over",
        "Without",
        "all of the others",
        '"unclosed',
        "author:“Jane Doe",
        "title:survey",
        "-abs:survey",
        "robot Ti:sapphire",
    ],
)
def test_muted_texts_refused_only_when_typed(text: str) -> None:
    """Stored ones can still be read."""
    assert query_language.parse_muted(text)
    with pytest.raises(InvalidInterest):
        query_language.parse_typed_muted(text)


def test_unsupported_filter_cannot_be_muted() -> None:
    """The error says what to change, as for an interest."""
    with pytest.raises(InvalidInterest, match=r"“title:”.* To mute the text itself, put it in") as error:
        query_language.parse_typed_muted("title:survey")
    assert error.value.field == "muted"


@pytest.mark.parametrize("text", ["robot, world model", "robot; world model", "video OR audio"])
def test_lists_cannot_be_muted(text: str) -> None:
    """They were muted as one phrase, which no paper contains."""
    with pytest.raises(InvalidInterest, match=r"looks like several muted words. Enter each one separately"):
        query_language.parse_typed_muted(text)
    assert query_language.parse_typed_muted(f'"{text}"').excluded_phrases


@pytest.mark.parametrize(
    "text",
    [
        "over-smoothing",
        "zero-shot",
        "input/output",
        "author:Müller, Anna",
        '"diffusion models"',
        "author:Over",
        "cat:cs.CR",
        '"title:survey"',
    ],
)
def test_specific_muted_texts(text: str) -> None:
    assert query_language.parse_typed_muted(text) == query_language.parse_muted(text)


@given(st.text(max_size=120))
def test_any_muted_text_is_parsed_or_refused(text: str) -> None:
    """Any text gives at least one exclusion, or InvalidInterest."""
    with contextlib.suppress(InvalidInterest):
        query = query_language.parse_muted(text)
        assert query.excluded_phrases or query.excluded


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
    assert query_language.describe(text) == words


def test_examples_are_filters() -> None:
    """Hints list one example of each filter."""
    assert [*query_language.FILTER_EXAMPLES] == [*FilterField]
    for name, example in query_language.FILTER_EXAMPLES.items():
        assert [*query_language.parse(example).required] == [name]
    assert query_language.filter_names("or") == "author:, org: or cat:"
