"""Test the query language: interests are parsed, or rejected with what to change."""

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
        # A dash alone excludes nothing.
        ("RL - a survey", Query("", words=("rl", "a", "survey"), capitals=frozenset({"rl"}))),
        (
            "SWE-bench, agents",
            Query("", ("swe", "bench", "agent"), (("swe", "bench"),), capitals=frozenset({"swe"})),
        ),
        ("DIFFUSION MODELS", Query("", words=("diffus", "model"))),
        ("recent papers on DIFFUSION MODELS", Query("", words=("diffus", "model"))),
        ("RAGs", Query("", words=("rag",), capitals=frozenset({"rag"}))),
        (
            'agents "with CLIP" -RLHF',
            Query(
                "",
                ("agent",),
                phrases=(("with", "clip"),),
                excluded_phrases=(("rlhf",),),
                capitals=frozenset({"clip"}),
                excluded_capitals=frozenset({"rlhf"}),
            ),
        ),
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
        ("any news from Google", "Google"),
        ("Papers by Yann LeCun", "Yann LeCun"),
        ("recent work by Microsoft", "Microsoft"),
        ("research by design", "research by design"),
        ("Research From Scratch", "Research From Scratch"),
        ("work from home", "work from home"),
        ("more from less data", "more from less data"),
        ("everything from scratch", "everything from scratch"),
        ("anything about agents", "agents"),
        ("more about agents", "agents"),
        ("more agents", "more agents"),
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
        *((text, True) for text in ("on-policy", "End-to-End", "speech-to-speech", "in-the-wild")),
        *((text, False) for text in ("fine-tuning", "Long-Context", "text-to-3D", "SWE-", "SWE", "-GPT-5")),
        *((text, False) for text in ("text-to-text-image", "to-and-for", "on policy", "computer-use")),
    ],
)
def test_hyphens_and_capitals_mark_names(text: str, is_name: bool) -> None:
    """Filters decide by the archive which are names. A word joined to itself or to function words is one."""
    assert bool(query_language.parse(f"agents {text}").names) == is_name


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
        ("ti:diffusion", "put it in quotes"),
        ('abs:"world models"', "Titles and abstracts are always searched"),
    ],
)
def test_invalid_interests_have_a_reason(text: str, word: str) -> None:
    """The error message says what to change."""
    with pytest.raises(InvalidInterest, match=word):
        query_language.parse(text)


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("شبکه\u200cهای عصبی", "شبکه\u200cهای عصبی"),
        ("क्\u200dष भाषा", "क्\u200dष भाषा"),
        ("👩\u200d🔬 science \U0001fae8", "👩\u200d🔬 science \U0001fae8"),
        ("\u200fמודלי שפה\u200e", "מודלי שפה"),
        ("\u202alanguage\u202c \u2068agents\u2069", "language agents"),
        ("author:علی\u200cرضا", "author:علی\u200cرضا"),
    ],
)
def test_invisible_characters_of_scripts(text: str, normalized: str) -> None:
    """Joiners and new emoji are kept. Direction marks, which are copied with a text, are removed."""
    assert query_language.parse_typed(text).text == normalized


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
        ("author：Bengio -cat：cs.CL", "author:Bengio -cat:cs.CL"),  # full-width colons
        ("cat:cs.CL, cat:[cs.LG]", "cat:cs.CL cat:cs.LG"),
        ("agents -author:x;", "agents -author:x"),
        ("cat:cs.*", "cat:cs"),
        ("world\u200b mo\u00addels", "world models"),
        ('5" disks', "5 disks"),
        ('"Ti:sapphire" lasers', '"Ti sapphire" lasers'),
        ("Ti:sapphire lasers", "Ti sapphire lasers"),
        ("One Sample to Rule Them All: Data Efficiency", "One Sample to Rule Them All Data Efficiency"),
        ("one to rule them all: natural language", "one to rule them all natural language"),
        ("TAG:Tangential Guidance", "TAG Tangential Guidance"),
        ("CAT: Causal Attention Tuning", "CAT Causal Attention Tuning"),
        ("CAT：因果注意力", "CAT 因果注意力"),
        ("ORG：组织 agents", "ORG 组织 agents"),
        ("CAT：Causal Attention Tuning", "CAT Causal Attention Tuning"),
        ("agents from ORG:", "agents from ORG"),
        ("AUTHOR:lecun", "author:lecun"),
        ("Cat: cs.CL", "cat:cs.CL"),
        ("quantifying ``learning'' in ''ciphers\"", 'quantifying "learning" in "ciphers"'),
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


def test_operators_of_other_search_engines_are_words() -> None:
    """They may be meant as words, and stored interests must not change."""
    assert query_language.parse("quantum NOT gates").words == ("quantum", "not", "gate")


def test_ligatures_are_letters() -> None:
    """They are pasted from PDF files."""
    assert (
        query_language.parse("eﬃcient ﬁne-tuning").words
        == query_language.parse("efficient fine-tuning").words
    )


def test_examples_are_filters() -> None:
    """Hints list one example of each filter."""
    assert [*query_language.FILTER_EXAMPLES] == [*FilterField]
    for name, example in query_language.FILTER_EXAMPLES.items():
        assert [*query_language.parse(example).required] == [name]
    assert query_language.filter_names("or") == "author:, org: or cat:"
