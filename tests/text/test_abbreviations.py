"""Test abbreviations: they are learned if enough papers agree on them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance import cut_offs, matching
from app.relevance.highlights import PaperText
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.text.abbreviations import Abbreviations, learn
from app.text.tokenizer import content_stems, tokenize
from app.types import PaperView


def abbreviations_of(*abstracts: str) -> Abbreviations:
    """Return the abbreviations learned from an archive of these abstracts."""
    return RelevanceModel.train([("", abstract) for abstract in abstracts]).abbreviations


LEARNED = abbreviations_of(
    *["We use reinforcement learning (RL) and finetuning."] * 3,
    *["Large language models (LLMs) need fine-tuning."] * 3,
    *["Multimodal large language models (MLLMs) see."] * 3,
)


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
def test_long_and_short_form_are_one_term(one: str, other: str) -> None:
    """Test also nested forms and compounds."""
    assert LEARNED.terms(one) == LEARNED.terms(other)


def test_short_form_implies_its_words() -> None:
    """A short form implies the words and shorter forms in its long form."""
    learned = abbreviations_of(
        *["Video diffusion models (VDMs) move."] * 3,
        *["Diffusion models (DMs) draw."] * 3,
        *["Multimodal large language models (MLLMs) see, large language models (LLMs) read."] * 3,
    )
    assert learned.expansions["dm"] == ("diffus", "diffus model", "model")
    assert {"dm", "video", "diffus", "video diffus"} < {*learned.expansions["vdm"]}
    assert {"llm", "multimod", "languag model"} < {*learned.expansions["mllm"]}


def test_short_form_implies_its_shorter_readings() -> None:
    """ "Diffusion language models" are diffusion models, and so are "masked diffusion language models"."""
    learned = abbreviations_of(
        *["Masked diffusion language models (MDLMs) write."] * 3,
        *["Diffusion language models (DLMs) are diffusion models."] * 3,
        *["Diffusion models (DMs) draw."] * 3,
        *["Language models (LMs) read."] * 9,
        *["Cats purr."] * 20,
    )
    assert {"dm", "diffus model"} <= {*learned.expansions["dlm"]} - {*learned.contained["dlm"]}
    assert {"dm", "dlm"} <= {*learned.expansions["mdlm"]}
    assert "mask model" not in learned.expansions["mdlm"]


def test_kind_of_a_term_matches_but_does_not_contain_it() -> None:
    """A paper on diffusion language models is one on diffusion models, but does not contain this phrase."""
    model = RelevanceModel.train(
        [
            ("", "Diffusion language models (DLMs), diffusion models (DMs), language models (LMs)."),
            ("", "Cats"),
        ]
        * 3
    )
    papers = [PaperView(1, "A Diffusion Language Model"), PaperView(2, "A Diffusion Model")]
    index = matching.MatchIndex(papers, model)
    [matches] = index.match([parse("diffusion models")])
    assert set(matches) == {1, 2}
    assert min(matches.values()) > cut_offs.FLOOR
    assert index.reason(parse("diffusion models"), 1).text == "“Diffusion Language Model” in the title"
    assert set(index.match([parse('"diffusion models"')])[0]) == {2}
    assert set(index.match([parse('language -"diffusion models"')])[0]) == {1}


def test_compound_implies_its_words() -> None:
    """A compound that is usually split still matches each of its words."""
    model = RelevanceModel.train(
        [("", "LongVideo is a name."), ("", "We watch long videos."), ("", "Cats purr.")] * 3
    )
    assert model.abbreviations.terms("long videos") == ["longvideo"]
    assert model.abbreviations.expansions["longvideo"] == ("long", "video")
    index, query = (
        matching.MatchIndex([PaperView(1, "Seen", "They watch long videos.")], model),
        parse("videos"),
    )
    assert set(index.match([query])[0]) == {1}
    assert index.reason(query, 1).text == "“videos” in the abstract"


def test_solid_compound_does_not_imply_its_parts() -> None:
    """ "data set" is rare, so a paper on datasets does not match data and is not excluded by it."""
    model = RelevanceModel.train([("", "A dataset."), ("", "Cats purr.")] * 4 + [("", "A data set.")] * 3)
    assert model.abbreviations.terms("data set") == model.abbreviations.terms("dataset")
    assert "dataset" not in model.abbreviations.expansions
    index = matching.MatchIndex([PaperView(1, "A Dataset of Cats")], model)
    assert index.match([parse("data"), parse("cats -data")]) == [{}, index.match([parse("cats")])[0]]


def test_compound_with_a_shorter_stem() -> None:
    """The stem of "multimodal" is shorter than those of its words. A stem like "scaler" is another word's."""
    texts = ["Multimodal data. Multi-modal data.", "A scaler. We scale rates and frame rates. A framer."]
    learned = abbreviations_of(*texts * 3)
    assert learned.terms("multi-modal") == learned.terms("multimodal")
    assert not {"scaler", "framer"} & {*learned.terms("scale rate, frame rate")}


def test_long_form_with_a_compound() -> None:
    """ "supervised fine-tuning" is SFT in each spelling of the last word."""
    learned = abbreviations_of(
        "Supervised finetuning (SFT) works.",
        *["Supervised fine-tuning (SFT) works."] * 3,
        *["We finetune, and fine-tune."] * 3,
    )
    assert (
        learned.terms("SFT")
        == learned.terms("supervised fine-tuning")
        == learned.terms("supervised finetuning")
    )


def test_definition_needs_three_papers() -> None:
    """A definition in fewer than three papers may be an error."""
    assert abbreviations_of(*["We use reinforcement learning (RL)."] * 2).shorts == {}


@pytest.mark.parametrize(
    ("definition", "pair"),
    [
        ("a Vision-Language Model (VLM)", "vision languag"),
        ("a vision\u2010language model (VLM)", "vision languag"),
        ("text-to-image diffusion (TID)", "text imag"),
        ("a mixture-of-experts (MoE) layer", "mixtur expert"),
        ("low-rank fine-tuning (LRFT)", "low rank"),
    ],
)
def test_pairs_that_are_usually_hyphenated(definition: str, pair: str) -> None:
    """Small words between hyphens do not count, and compounds are one word, as in long forms."""
    compounds = {("fine", "tune"): "finetun"}
    without = definition.replace("-", " ").replace("\u2010", " ")
    assert learn([definition, without], compounds)[1] == {pair}
    assert learn([definition, without, without], compounds)[1] == frozenset()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Automatic speech recognition (ASR) listens.", "The attack success rate (ASR) falls."),
        ("Small language models (SLMs) fit.", "Spoken language models (SLMs) talk."),
        ("Self-supervised learning (SSL) helps.", "Semi-supervised learning (SSL) helps."),
    ],
)
def test_ambiguous_short_form_is_not_replaced(one: str, other: str) -> None:
    """Neither long form is replaced by it. A deviation in one paper does not count."""
    assert abbreviations_of(*[one] * 3, *[other] * 3).shorts == {}
    assert abbreviations_of(*[one] * 4, *[other] * 2).shorts == {}
    assert abbreviations_of(*[one] * 4, other).shorts == abbreviations_of(*[one] * 3).shorts != {}


def test_long_form_with_a_stop_word_is_not_learned() -> None:
    """ "use" is a stop word: "computer use agent" would otherwise replace every "computer agent"."""
    assert ("comput", "agent") not in abbreviations_of(*["A computer use agent (CUA) clicks."] * 3).shorts


@pytest.mark.parametrize(
    ("interest", "folded"),
    [
        ("reasoning in large language models", ["reason", "llm"]),
        ("large language model reasoning", ["llm", "reason"]),
        ("large reasoning models", ["lrm"]),
        ("models of large reasoning", ["lrm"]),
    ],
)
def test_long_form_side_by_side_is_preferred(interest: str, folded: list[str]) -> None:
    """The words of "large reasoning models" occur in the first interest as well, but apart."""
    both = Abbreviations({}, {("larg", "languag", "model"): "llm", ("larg", "reason", "model"): "lrm"})
    assert sorted(both.fold_any_order(content_stems(interest))) == sorted(folded)


# The short form finds the long one, and vice versa.
PAPERS = [
    PaperView(1, "Walking Robots", "We train them with reinforcement learning only."),
    PaperView(2, "Running Robots", "We train them with RL only."),
    PaperView(3, "Sleeping Robots", "We train them with nothing at all."),
]


@pytest.mark.parametrize("interest", ["RL", "reinforcement learning", "RLs"])
def test_interest_matches_both_forms(interest: str) -> None:
    """The reason quotes the words of the paper, not those of the interest."""
    model = RelevanceModel.train(
        [("Robots", "Reinforcement learning (RL) of robots."), *[("Cats", "They purr.")] * 9] * 3
    )
    index, query = matching.MatchIndex(PAPERS, model), parse(interest)
    assert set(index.match([query])[0]) == {1, 2}
    reasons = [index.reason(query, number).text for number in (1, 2)]
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
def test_merged_terms_keep_their_positions(text: str) -> None:
    """Terms with positions equal those without, and do not overlap."""
    tokens = LEARNED.fold_tokens(tokenize(text))
    assert [token.stem for token in tokens] == LEARNED.terms(text)
    assert all(one.end <= other.start for one, other in itertools.pairwise(tokens))
    assert all(text[token.start : token.end].strip() for token in tokens)


@pytest.mark.parametrize(
    ("abstract", "redefined"),
    [
        ("A ruin likelihood (RL) model.", {"rl"}),
        ("Robust reinforced learning (RL).", set()),
        ("Reinforcement learning (RL) and a ruin likelihood (RL).", set()),
        ("Multi-modal large language models (MLLMs).", set()),
        ("A lazy learning machine (LLM) with RL.", {"llm"}),
        ("A ruin likelihood, or RL.", set()),
    ],
)
def test_short_form_with_another_meaning(abstract: str, redefined: set[str]) -> None:
    """A paper may give a short form another meaning, but similar long forms are the same one."""
    assert LEARNED.redefined_short_forms("", abstract) == redefined


@pytest.mark.parametrize(
    ("definition", "is_redefined"),
    [
        ("language language models (LLM)", False),
        ("lazy learning machines (LLM)", True),
        ("rotary position encoding (RoPE)", False),
        ("random objects and plain examples (RoPE)", True),
        ("generalized reward policy optimization (GRPO)", False),
        ("graph rewiring by partial observation (GRPO)", True),
        ("visual AR (VAR)", False),
        ("value at risk (VAR)", True),
        ("semi-supervised learning (SSL)", True),
        ("sweet spot learning (SSL)", True),
    ],
)
def test_variants_of_a_long_form(definition: str, is_redefined: bool) -> None:
    """Typing errors, inner short forms, and other words in half of a long short form are the same meaning."""
    known = abbreviations_of(
        *["We use large language models (LLMs)."] * 3,
        *["A rotary position embedding (RoPE) rotates."] * 3,
        *["Group relative policy optimization (GRPO) learns."] * 3,
        *["Visual autoregressive (VAR) models draw."] * 3,
        *["Self-supervised learning (SSL) helps."] * 3,
    )
    assert bool(known.redefined_short_forms("", f"We study {definition}.")) == is_redefined


@pytest.mark.parametrize("interest", ["reinforcement learning", "RL"])
def test_paper_with_another_meaning_does_not_match(interest: str) -> None:
    """A paper that defines "RL" as something else neither matches nor is excluded, and isn't quoted."""
    papers = [
        PaperView(1, "RL in Practice", "Insurers compute the ruin likelihood (RL) daily."),
        PaperView(2, "RL in Practice", "Insurers use it daily."),
        PaperView(
            3, "Ruin Likelihood", "We compare RL and reinforcement learning: ruin likelihood (RL) wins."
        ),
    ]
    model = RelevanceModel.train([("", "Reinforcement learning (RL) learns."), ("", "Cats purr.")] * 3)
    index, query = matching.MatchIndex(papers, model), parse(interest)
    assert set(index.match([query])[0]) == {2, 3}
    assert "“RL”" not in index.reason(query, 3).text
    assert index.excluded_papers(parse('cats -"reinforcement learning"')) == {2, 3}


def test_card_respects_definitions_in_the_abstract() -> None:
    """The summary on a card may use a short form that only the abstract defines."""
    paper = PaperView(1, "Insurance", "A ruin likelihood (RL) is a risk.", tldr="RL is a risk.")
    text = PaperText(paper, LEARNED)
    assert text.card.paper.abstract == "RL is a risk."
    assert text.surface_form("rl") == text.card.surface_form("rl") == ""
