"""Test acronyms that are spelled like ordinary words."""

from __future__ import annotations

import pytest

from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.text import acronyms
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
    ("text", "words"),
    [
        ("CLIP and OpenCLIP", {0: "CLIP"}),
        ("a CLIP-based score, CLIP's, CLIPs", {2: "CLIP", 20: "CLIP", 28: "CLIP"}),
        ("AIME 2025", {0: "AIME"}),
        ("DIFFUSION MODELS", {}),
        ("A GPT4", {}),
        ("㎏CLIP a", {1: "CLIP"}),
    ],
)
def test_find(text: str, words: dict[int, str]) -> None:
    assert acronyms.find(text) == words
    assert MODEL.abbreviations.acronyms.stems(text)  # even if a sign before the acronym is folded to a letter


def test_learned_acronyms_are_inflected_in_lower_case() -> None:
    """Few authors write "llms", so "LLM" is no ordinary word."""
    assert MODEL.abbreviations.acronyms.words == {"clip"}
    assert (
        acronyms.learn([("Objects", "The IS and AN are ARE."), ("", "isn't aren't annual")] * 3).words
        == set()
    )


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
    assert {"aime", "clip"} < RelevanceModel.bundled().abbreviations.acronyms.words
