"""Test muted texts: they are parsed, or rejected with what to change."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInterest
from app.relevance import muted_texts
from app.relevance.query_language import FilterField

AUTHOR, ORGANIZATION, CATEGORY = FilterField


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
    query = muted_texts.parse_muted(text)
    values = query.excluded.get(AUTHOR, ()), query.excluded.get(CATEGORY, ())
    assert (query.excluded_phrases, *values) == (phrases, authors, categories)


@pytest.mark.parametrize("text", ["org:AI at Meta", 'ORG: "ai at  meta"', "-org:“AI at Meta”"])
def test_muted_organization(text: str) -> None:
    """A name of several words needs no quotation marks."""
    query = muted_texts.parse_muted(text)
    assert (query.excluded, query.excluded_phrases) == ({ORGANIZATION: ("ai at meta",)}, ())


def test_muted_filters_hash_differently() -> None:
    """They are cache keys, without their texts. All of them had the same hash, so each lookup was slow."""
    queries = [replace(muted_texts.parse_muted(f"author:{name}"), text="") for name in ("li", "wu")]
    assert len(set(map(hash, queries))) == 2


@pytest.mark.parametrize("text", ["", "the", "of the", "?", "author:", "x" * 101, "a\x00b"])
def test_invalid_muted_texts_have_a_reason(text: str) -> None:
    """Reject stop words, filters without a value, and text that is too long or not printable."""
    with pytest.raises(InvalidInterest):
        muted_texts.parse_muted(text)


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
        "robot ti:sapphire",
    ],
)
def test_muted_texts_refused_only_when_typed(text: str) -> None:
    """Stored ones can still be read."""
    assert muted_texts.parse_muted(text)
    with pytest.raises(InvalidInterest):
        muted_texts.parse_typed_muted(text)


def test_unsupported_filter_cannot_be_muted() -> None:
    """The error says what to change, as for an interest."""
    with pytest.raises(InvalidInterest, match=r"“title:”.* To mute the text itself, put it in") as error:
        muted_texts.parse_typed_muted("title:survey")
    assert error.value.field == "muted"


@pytest.mark.parametrize("text", ["robot, world model", "robot; world model", "video OR audio"])
def test_lists_cannot_be_muted(text: str) -> None:
    """They were muted as one phrase, which no paper contains."""
    with pytest.raises(InvalidInterest, match=r"looks like several muted words. Enter each one separately"):
        muted_texts.parse_typed_muted(text)
    assert muted_texts.parse_typed_muted(f'"{text}"').excluded_phrases


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
        "Ti:sapphire",
        "CAT: Causal Attention Tuning",
    ],
)
def test_specific_muted_texts(text: str) -> None:
    assert muted_texts.parse_typed_muted(text) == muted_texts.parse_muted(text)


@given(st.text(max_size=120))
def test_any_muted_text_is_parsed_or_refused(text: str) -> None:
    """Any text gives at least one exclusion, or InvalidInterest."""
    with contextlib.suppress(InvalidInterest):
        query = muted_texts.parse_muted(text)
        assert query.excluded_phrases or query.excluded
