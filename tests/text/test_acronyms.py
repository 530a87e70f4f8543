"""Test acronyms that are spelled like ordinary words."""

import io
from collections.abc import Sequence, Set

import numpy as np
import pytest

from app.relevance import muted_texts, query_words
from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.text import acronyms
from app.text.tokenizer import content_stems, distinct_words
from app.types import PaperView

ARCHIVE = [
    *[("CLIP", "Contrastive language-image pretraining (CLIP) embeds images.")] * 4,
    *[("Policies", "We clip gradients. Clipping and clipped rewards help.")] * 4,
    *[("LLMs", "LLMs reason. An LLM plans.")] * 4,
    ("Plans", "Our llms plan."),
]
MODEL = RelevanceModel.train(ARCHIVE)
PAPERS = [
    PaperView(1, "CLIP Scores", "We score images."),
    PaperView(2, "Gradient Clipping", "We clip updates."),
    PaperView(3, "Contrastive Language-Image Pretraining", "We embed text."),
    PaperView(4, "Probing CLIPs", "The models of a video clip."),
    PaperView(5, "CLIPPING ALL GRADIENTS", "Nothing else."),
    PaperView(6, "Video Clips", "The CLIP-based models embed."),
    PaperView(7, "llms", "The llm plans."),
]
INDEX = MatchIndex(PAPERS, MODEL)
ACRONYM, WORD = {1, 3, 4, 6}, {2, 5}


@pytest.mark.parametrize(
    ("text", "words", "stems"),
    [
        ("CLIP and OpenCLIP", {0: "CLIP"}, ["CLIP", "openclip"]),
        (
            "a CLIP-based score, CLIP's, CLIPs",
            {2: "CLIP", 20: "CLIP", 28: "CLIP"},
            ["CLIP", "base", "score", "CLIP", "CLIP"],
        ),
        ("AIME 2025", {0: "AIME"}, ["aim", "2025"]),
        ("VIDEO CLIP", {0: "VIDEO", 6: "CLIP"}, ["video", "CLIP"]),
        ("A GPT4", {}, ["gpt4"]),
        ("\u338fCLIP a", {1: "CLIP"}, ["kclip"]),  # the sign before the acronym is folded to a letter
    ],
)
def test_find(text: str, words: dict[int, str], stems: list[str]) -> None:
    assert acronyms.find(text) == words
    own = MODEL.abbreviations.acronyms
    assert own.stems(text) == own.stems(text, content_stems(text)) == stems


@pytest.mark.parametrize(
    ("text", "is_emphasis"),
    [
        ("DIFFUSION MODELS", True),
        ("CLIP AND 3D-RAG!", True),
        ("CLIP", False),
        ("AIME 2025", False),
        ("CLIP and RAG", False),
        ("用 CLIP 和 LLM 检索图像", False),
        ("", False),
    ],
)
def test_emphasis(text: str, is_emphasis: bool) -> None:
    assert acronyms.is_emphasis(text) is is_emphasis


@pytest.mark.parametrize(
    ("text", "capitals", "excluded"),
    [
        ("CLIP -RAG", {"clip"}, {"rag"}),
        ("agents -CLIP -RAG", set(), {"clip", "rag"}),
        ("CLIP MODELS -RAG", set(), set()),
        ("CLIP MODELS cat:cs.CV", set(), set()),
        ("CLIP and CLIPs", {"clip"}, set()),
        ("CLIP on video clips", set(), set()),
        ('"video clip" CLIP', set(), set()),
        ("CLIP -clip", {"clip"}, set()),
        ('model -CLIP -"video clip"', set(), set()),
        ("AIM or AIME", set(), set()),
        ("aims of RAG and AIME", {"rag"}, set()),
    ],
)
def test_capitals_of_query(text: str, capitals: set[str], excluded: set[str]) -> None:
    """Words that share a stem with a differently typed word are read as if in lower case."""
    query = parse(text)
    assert (query.capitals, query.excluded_capitals) == (capitals, excluded)


def test_learned_acronyms_are_inflected_in_lower_case() -> None:
    """Few authors write "llms", so "LLM" is no ordinary word. A title in capitals shows no acronyms."""
    assert MODEL.abbreviations.acronyms.words == {"clip"}
    assert learned([("IMAGE MODELS", "An image. Images.")] * 3) == set()
    assert learned([("CLIP", "Clips."), *[("CLIP", "clips, clipped and clipping")] * 2]) == set()
    assert learned([("CLIP", "We clip."), *[("CLIP", "clips")] * 3]) == {"clip"}
    assert learned([("Objects", "The IS and AN are ARE."), ("", "isn't aren't annual")] * 3) == set()


def learned(papers: Sequence[tuple[str, str]]) -> Set[str]:
    words = [distinct_words(f"{title} {abstract}") for title, abstract in papers]
    return acronyms.learn(papers, words).words


@pytest.mark.parametrize(
    ("interest", "papers"),
    [
        ("CLIP", ACRONYM),
        ("CLIPs", ACRONYM),
        ("contrastive language-image pretraining", ACRONYM),
        ("clip", ACRONYM | WORD),
        ("LLM", {7}),
        ("CLIP GRADIENTS", ACRONYM | WORD),
    ],
)
def test_capitals_distinguish_an_acronym_from_a_word(interest: str, papers: set[int]) -> None:
    """In lower case, or if all words are in capitals, an interest matches the word as well."""
    query = parse(interest)
    assert {paper.id for paper in PAPERS if INDEX.details(query, paper.id).words > 0} == papers


def test_paper_with_a_title_in_capitals_matches_acronym() -> None:
    papers = [PaperView(1, "A SURVEY OF CLIP", ""), PaperView(2, "用 CLIP 和 LLM 检索图像", "")]
    index = MatchIndex(papers, MODEL)
    assert {*index.match([parse("CLIP")])[0]} == {*index.match([parse("clip")])[0]} == {1, 2}


def test_words_of_interest_are_acronyms() -> None:
    words = query_words.prepare(parse("use of CLIP models"), MODEL.abbreviations)
    assert (words.typed["CLIP"], words.stop_words) == ("CLIP", {"use"})
    assert [(term, [token.stem for token in within]) for term, within in words.tokens_by_term] == [
        ("CLIP", ["CLIP"]),
        ("model", ["model"]),
    ]
    index = MatchIndex([PaperView(1, "Clipping Tokenization", "")], MODEL)
    assert index.missing_words(parse("CLIP tokens")) == ["CLIP"]
    assert index.missing_words(parse("clip tokens")) == []
    assert index.reason(parse("CLIP tokens"), 1).text == "“Tokenization” in the title; no “CLIP tokens”"


def test_readings() -> None:
    """A word in lower case may stand for the acronym."""
    own = MODEL.abbreviations.acronyms
    assert [*own.readings(("clip", "model"))] == [("clip", "model"), ("CLIP", "model")]
    assert [*own.readings(("model", "clip"))] == [("model", "clip"), ("model", "CLIP")]
    assert [*own.readings(("CLIP", "model"))] == [("CLIP", "model")]


@pytest.mark.parametrize(
    ("muted", "papers"),
    [
        ("CLIP", ACRONYM),
        ("clip", ACRONYM | WORD),
        ("GRADIENT CLIP", {2}),
        ("gradient CLIP", set()),
        ("clips by CLIP", set()),
    ],
)
def test_muted_acronyms(muted: str, papers: set[int]) -> None:
    assert INDEX.excluded_papers(muted_texts.parse_muted(muted)) == papers


def test_exclusions_and_phrases_with_acronyms() -> None:
    """`-CLIP` excludes long forms, but not papers on clipping."""
    assert INDEX.excluded_papers(parse("gradient -CLIP")) == ACRONYM
    assert INDEX.excluded_papers(parse("CLIP -clip")) == ACRONYM | WORD
    assert {*INDEX.match([parse('"CLIP-based models"')])[0]} == {6}
    assert {*INDEX.match([parse('"video CLIP"')])[0]} == {4, 6}  # the acronym is elsewhere in the paper


@pytest.mark.parametrize(
    ("interest", "paper", "reason"),
    [
        ("CLIP", 6, "“CLIP” in the abstract"),
        ("clip", 6, "“Clips” in the title"),
        ("CLIP", 4, "“CLIPs” in the title"),
        ("CLIP", 3, "“Contrastive Language-Image Pretraining” in the title"),
        ("clip", 1, "“CLIP” in the title"),
        ("CLIP models", 6, "“models” and “CLIP” apart in the abstract"),
    ],
)
def test_reasons_quote_the_acronym(interest: str, paper: int, reason: str) -> None:
    assert INDEX.reason(parse(interest), paper).text == reason


def test_models_store_acronyms() -> None:
    """Models of earlier releases have none."""
    assert RelevanceModel.decode(MODEL.encode()).abbreviations == MODEL.abbreviations
    with np.load(io.BytesIO(MODEL.encode())) as arrays:
        earlier = {name: arrays[name] for name in arrays if name not in ("acronyms", "hyphenated")}
    np.savez(buffer := io.BytesIO(), **earlier)
    assert not RelevanceModel.decode(buffer.getvalue()).abbreviations.acronyms.words
    assert {"aime", "clip"} < RelevanceModel.bundled().abbreviations.acronyms.words
