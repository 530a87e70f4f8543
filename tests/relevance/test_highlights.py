"""Test highlights: every quoted word is in the paper."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance import reasons
from app.relevance.highlights import MAX_HIGHLIGHTS, PaperText
from app.text.abbreviations import Abbreviations
from app.types import PaperView

ABBREVIATIONS = Abbreviations({}, {("larg", "languag", "model"): "llm"})
TEXT = PaperText(
    PaperView(
        1,
        "Drafting for Large Language Models",
        "Speculative decoding of LLMs, by José. Decoding twice: drafts, and models.",
        ("Grace Hopper", "José García"),
        categories=("cs.CL", "stat.ML"),
    ),
    ABBREVIATIONS,
)


def highlights(*terms: str, text: PaperText = TEXT) -> str:
    """Return the highlights as a reason quotes them."""
    return reasons.interest_reason(text.highlights(set(terms), lambda _: 1.0), [], [], None, [], "", [])[0]


def test_adjacent_words_are_quoted_together() -> None:
    """They are quoted as the paper spells them; the field with the heaviest stretch comes first."""
    assert highlights("specul", "decod") == "“Speculative decoding” in the abstract"
    assert highlights("draft", "jose") == "“Drafting” in the title; “José” in the abstract"


def test_first_form_of_an_abbreviation_is_quoted() -> None:
    """The long form in the title is quoted, since it comes first."""
    assert highlights("llm") == "“Large Language Models” in the title"
    assert TEXT.surface_form("llm") == "Large Language Models"
    assert TEXT.surface_form("tree") == ""


def test_words_that_a_paper_lacks_are_not_cached() -> None:
    """Otherwise, anyone could fill the memory with previews."""
    text = PaperText(TEXT.paper, ABBREVIATIONS)
    for number in range(100):
        assert text.surface_form(f"word{number}") == ""
        assert not text.has_other_form(f"word{number}", "words")
    assert sum(len(cache) for cache in vars(text).values() if isinstance(cache, dict)) == 0


def test_implied_words_are_quoted_where_written_out() -> None:
    """A short form is quoted for an implied word only if the paper does not write the word out."""
    paper = PaperView(1, "LLMs at work", "Large language models (LLMs) are used.")
    assert highlights("languag", text=PaperText(paper, ABBREVIATIONS)) == "“language” in the abstract"
    paper = replace(paper, abstract="They are used.")
    assert highlights("languag", text=PaperText(paper, ABBREVIATIONS)) == "“LLMs” in the title"


@pytest.mark.parametrize(
    ("abstract", "highlight"),
    [
        ("A mixture of experts (MoE) model.", "“experts” and “model” apart in the abstract"),
        ("It has many experts. Models differ.", "“experts” and “Models” apart in the abstract"),
        ("They are expert-models.", "“expert-models” in the abstract"),
        ("We have experts, models and data.", "“experts” and “models” apart in the abstract"),
    ],
)
def test_highlight_is_contiguous(abstract: str, highlight: str) -> None:
    """A highlight crosses neither a comma, nor the end of a sentence, nor a bracket."""
    text = PaperText(PaperView(1, "", abstract), ABBREVIATIONS)
    assert highlights("expert", "model", text=text) == highlight


@pytest.mark.parametrize(
    ("abstract", "highlight"),
    [
        ("Claude 3.5 wins.", "“Claude 3.5” in the abstract"),
        ("Claude. 5 times, 3 wins.", "“Claude” in the abstract"),
        ("In 3.5 s, Claude wins.", "“Claude” in the abstract"),
        ("In 3 to 5 s.", ""),
    ],
)
def test_version_numbers(abstract: str, highlight: str) -> None:
    """They are quoted together with their name, and single digits are not quoted by themselves."""
    text = PaperText(PaperView(1, "", abstract), ABBREVIATIONS)
    assert highlights("claud", "3", "5", text=text) == highlight


@pytest.mark.parametrize(
    ("abstract", "word"),
    [
        ("For cross-lingual tasks.", "cross-lingual"),
        ("For cross-lingual and lingual tasks.", "lingual"),
        ("Lingual - or not.", "Lingual"),
        ("For tasks.", ""),
    ],
)
def test_part_of_a_word_with_hyphens_is_no_whole_word(abstract: str, word: str) -> None:
    """A word that stands by itself somewhere is preferred."""
    assert PaperText(PaperView(1, "", abstract), ABBREVIATIONS).whole_word("lingual") == word


@pytest.mark.parametrize(
    ("author", "name", "matches"),
    [
        ("Ronan O’Neil", "o'neil", True),
        ("Jean\u2010Luc Picard", "jean-luc picard", True),
        ("José García", "jose-garcia", True),
        ("Lovelace, Ada", "ada lovelace", True),
        ("Ada Lovelace", "lovelace, ada", True),
        ("Ada Lovelace", "love", False),
        ("Ada Lovelace", "lovelace ada", False),
    ],
)
def test_name_spellings(author: str, name: str, matches: bool) -> None:
    """Apostrophes, hyphens and accents make no difference."""
    paper = PaperText(PaperView(1, "", authors=("Grace Hopper", author)), ABBREVIATIONS)
    assert paper.matching_authors([name]) == ([author] if matches else [])


TYPED = {"token": "tokenization", "imag": "images", "network": "network", "use": "use", "tool": "tool"}


@pytest.mark.parametrize(
    ("title", "terms", "highlight"),
    [
        ("Tokens for tokenizers", {"token"}, "“tokenizers” in the title"),
        ("Tokens", {"token"}, ""),
        ("Next-Token Prediction", {"token"}, ""),
        ("NTP", {"token"}, "“NTP” in the title"),
        ("Imaging a clip", {"imag"}, "“Imaging” in the title"),
        ("A video clip", {"imag"}, ""),
        ("A video by CLIP", {"imag"}, "“CLIP” in the title"),
        ("Using some tools", {"tool", "use"}, "“tools” in the title"),
        ("We use some tools; tool-using robots", {"tool", "use"}, "“tool-using” in the title"),
    ],
)
def test_only_forms_of_the_typed_words_are_quoted(title: str, terms: set[str], highlight: str) -> None:
    """Other words with the same stem are not, even in a long form. "Use" counts only beside another word."""
    shorts = {("next", "token", "predict"): "ntp", ("contrast", "imag", "pretrain"): "clip"}
    text = PaperText(PaperView(1, title), Abbreviations({}, shorts))
    quoted = text.highlights(terms, lambda _: 1.0, TYPED)
    assert reasons.interest_reason(quoted, [], [], None, [], "", [])[0] == highlight
    assert bool(text.surface_form(min(terms), TYPED)) is bool(highlight)


def test_number_of_highlights_is_limited() -> None:
    """Only the stretches with the highest idf are quoted, so that the reason stays short."""
    text = PaperText(PaperView(1, "One, with two; by three, as four, or five."), Abbreviations({}, {}))
    idf = {"one": 1.0, "two": 2.0, "three": 3.0, "five": 5.0}
    ((_, quotes),) = text.highlights({*idf}, idf.__getitem__)
    assert len(quotes) == MAX_HIGHLIGHTS
    assert "five" in quotes


@given(st.sets(st.sampled_from(["llm", "decod", "specul", "model", "draft", "jose", "twice", "tree"])))
def test_highlights_occur_in_their_field(terms: set[str]) -> None:
    """Every quoted stretch is in the field that the reason names."""
    for field, quotes in TEXT.highlights(terms, lambda _: 1.0):
        text = {"title": TEXT.paper.title, "abstract": TEXT.paper.abstract}[field]
        assert all(quote in text for quote in quotes)
