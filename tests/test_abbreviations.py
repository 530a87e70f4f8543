"""Short forms are learned where papers agree on them, and nowhere else."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance import matching
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.text import abbreviations
from app.text.abbreviations import Abbreviations
from app.text.tokenizer import Token
from app.types import PaperView


def learned(*abstracts: str) -> Abbreviations:
    """What an archive of these abstracts teaches."""
    return RelevanceModel.train([("", abstract) for abstract in abstracts]).abbreviations


KNOWN = learned(
    *["We use reinforcement learning (RL) and finetuning."] * 3,
    *["Large language models (LLMs) need fine-tuning."] * 3,
    *["Multimodal large language models (MLLMs) see."] * 3,
)


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        ("We use reinforcement learning (RL) here.", "RL", "reinforcement learning"),
        ("Many large language models (LLMs) fail.", "LLM", "large language models"),
        ("a mixture of experts (MoE) layer", "MoE", "mixture of experts"),
        ("with low-rank adaptation (LoRA)", "LoRA", "low rank adaptation"),
    ],
)
def test_an_explanation_is_found(text: str, short: str, long: str) -> None:
    """Small words may give no letter, and a plural is the same short form."""
    assert list(abbreviations.find_definitions(text)) == [(short, long)]


@pytest.mark.parametrize(
    "text",
    [
        "in Paris (France)",
        "as before (see Table 2)",
        "our method (OM)",
        "good. Reasons (GR)",
        "(RL)",
        "x (AB",
    ],
)
def test_other_brackets_explain_nothing(text: str) -> None:
    """A bracket is a short form only right behind the words that spell it, in the same clause."""
    found = list(abbreviations.find_definitions(text))
    assert found == ([("OM", "our method")] if "OM" in text else [])


@pytest.mark.parametrize(
    "unit",
    [
        "aaaaaaaaaaaaaaa aaaaaaaaaaaa aaaaaaaaaa a a a a a a a a a a (AAAAAAAAAAAB) ",
        "aaaaaaaaa a aaaaaaaaa a aaaaaaaaa a aaaaaaaaa a aaaaaaaaa a aaaaaaaa a (AAAAAAAAAAAB) ",
        "(A",
    ],
)
def test_a_hostile_abstract_takes_no_time(unit: str) -> None:
    """The longest that ingest lets in, made of words that may spell a short form in many ways, but do not."""
    began = time.process_time()
    assert list(abbreviations.find_definitions((unit * 10_000)[:20_000])) == []
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("RL", "reinforcement learning"),
        ("LLMs", "large language model"),
        ("multimodal LLM", "multimodal large language models"),
        ("multimodal LLM", "MLLM"),
        ("fine-tuning LLMs", "finetuning of large language models"),
    ],
)
def test_long_and_short_are_one_term(one: str, other: str) -> None:
    """Also a long form that holds a short one, and what some write as one word."""
    assert KNOWN.terms(one) == KNOWN.terms(other)


def test_a_short_form_says_what_it_is_made_of() -> None:
    """A paper that is folded into a longer form is still one on what that holds."""
    known = learned(
        *["Video diffusion models (VDMs) move."] * 3,
        *["Diffusion models (DMs) draw."] * 3,
        *["Multimodal large language models (MLLMs) see, large language models (LLMs) read."] * 3,
    )
    assert known.parts["dm"] == ("diffus", "diffus model", "model")
    assert {"dm", "video", "diffus", "video diffus"} < {*known.parts["vdm"]}
    assert {"llm", "multimod", "languag model"} < {*known.parts["mllm"]}


def test_a_compound_says_the_words_that_it_is_made_of() -> None:
    """A name that three papers have does not hide the words from whoever looks for one of them."""
    corpus = RelevanceModel.train(
        [("", "LongVideo is a name."), ("", "We watch long videos."), ("", "Cats purr.")] * 3
    )
    assert corpus.abbreviations.terms("long videos") == ["longvideo"]
    assert corpus.abbreviations.parts["longvideo"] == ("long", "video")
    index, query = (
        matching.MatchIndex([PaperView(1, "Seen", "They watch long videos.")], corpus),
        parse("videos"),
    )
    assert set(index.match([query])[0]) == {1}
    assert index.reason(query, 1) == "“videos” in the abstract"


def test_what_is_usually_one_word_says_nothing_besides() -> None:
    """Few write "data set": a paper on datasets is not one on data, and whoever excludes data may get it."""
    corpus = RelevanceModel.train([("", "A dataset."), ("", "Cats purr.")] * 4 + [("", "A data set.")] * 3)
    assert corpus.abbreviations.terms("data set") == corpus.abbreviations.terms("dataset")
    assert "dataset" not in corpus.abbreviations.parts
    index = matching.MatchIndex([PaperView(1, "A Dataset of Cats")], corpus)
    assert index.match([parse("data"), parse("cats -data")]) == [{}, index.match([parse("cats")])[0]]


def test_a_long_form_may_hold_a_compound() -> None:
    """ "supervised fine-tuning" is SFT, however the last word is written."""
    known = learned(
        "Supervised finetuning (SFT) works.",
        *["Supervised fine-tuning (SFT) works."] * 3,
        *["We finetune, and fine-tune."] * 3,
    )
    assert known.terms("SFT") == known.terms("supervised fine-tuning") == known.terms("supervised finetuning")


def test_two_papers_are_too_few() -> None:
    """What fewer than three explain may be a slip."""
    assert learned(*["We use reinforcement learning (RL)."] * 2).shorts == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Automatic speech recognition (ASR) listens.", "The attack success rate (ASR) falls."),
        ("Small language models (SLMs) fit.", "Spoken language models (SLMs) talk."),
        ("Self-supervised learning (SSL) helps.", "Semi-supervised learning (SSL) helps."),
    ],
)
def test_a_short_form_of_two_meanings_stays_itself(one: str, other: str) -> None:
    """Neither is folded into it, however alike they are; a slip of one paper does not count."""
    assert learned(*[one] * 3, *[other] * 3).shorts == {}
    assert learned(*[one] * 4, *[other] * 2).shorts == {}
    assert learned(*[one] * 4, other).shorts == learned(*[one] * 3).shorts != {}


def test_a_long_form_with_a_word_that_says_nothing_is_not_learned() -> None:
    """ "use" is no telling word to `words`: "computer use agent" would fold every "computer agent"."""
    assert ("comput", "agent") not in learned(*["A computer use agent (CUA) clicks."] * 3).shorts


# Whoever writes the short form finds the long one, and the other way round.
PAPERS = [
    PaperView(1, "Walking Robots", "We train them with reinforcement learning only."),
    PaperView(2, "Running Robots", "We train them with RL only."),
    PaperView(3, "Sleeping Robots", "We train them with nothing at all."),
]


@pytest.mark.parametrize("wish", ["RL", "reinforcement learning", "RLs"])
def test_an_interest_finds_both_forms_and_quotes_what_is_there(wish: str) -> None:
    """Its reason has the words of the paper, not those of the interest."""
    corpus = RelevanceModel.train(
        [("Robots", "Reinforcement learning (RL) of robots."), *[("Cats", "They purr.")] * 9] * 3
    )
    index, query = matching.MatchIndex(PAPERS, corpus), parse(wish)
    assert set(index.match([query])[0]) == {1, 2}
    reasons = [index.reason(query, number) for number in (1, 2)]
    assert reasons == ["“reinforcement learning” in the abstract", "“RL” in the abstract"]


WORDS = [
    "reinforcement",
    "learning",
    "RL",
    "of",
    "multimodal",
    "large",
    "language",
    "models",
    "LLMs",
    "fine-tuning",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_folded_words_keep_their_places(text: str) -> None:
    """They are the same terms with and without places, and none overlaps the next."""
    tokens: list[Token] = KNOWN.tokens(text)
    assert [token.stem for token in tokens] == KNOWN.terms(text)
    assert all(one.end <= other.start for one, other in itertools.pairwise(tokens))
    assert all(text[token.start : token.end].strip() for token in tokens)
