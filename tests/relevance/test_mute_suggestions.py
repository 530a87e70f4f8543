import pytest

from app.relevance import mute_suggestions
from app.relevance.model import RelevanceModel
from app.types import Interest

MODEL = RelevanceModel.bundled()


def test_suggested_words_to_mute() -> None:
    """Suggest keywords in the text, pairs of title words, then title words; no words of own interests.

    A part of a hyphenated word is not suggested, "GUI-Agents" is, but "GUI" is not. Neither is a word that
    most papers mention, "Language".
    """
    suggestions = mute_suggestions.suggest(
        "Language Agents that Plan: A Study of GUI-Agents",
        "We use world models, and GUI agents.",
        ["world models", "robots", "Language  agents"],
        [Interest("study of plans")],
        MODEL,
    )
    assert suggestions == ["world models", "Language agents", "GUI-Agents", "Agents"]


def test_general_words_are_not_suggested() -> None:
    """Muting them would leave out papers on any subject."""
    suggestions = mute_suggestions.suggest(
        "Think over Trajectories: Leveraging Video", "We think over trajectories.", [], [], MODEL
    )
    assert suggestions == ["Think", "Trajectories", "Video"]


def test_texts_that_cannot_be_muted_are_not_suggested() -> None:
    """ "ti:" is a filter of other search engines."""
    suggestions = mute_suggestions.suggest("Laser Pulses", "A ti:sapphire laser.", ["ti:sapphire"], [], MODEL)
    assert suggestions == ["Laser", "Pulses"]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("model", 0.94), ("Language Models", 0.59), ("large language models", 0.47), ("LLMs", 0.47),
        ("map", 0.052), ("MAP", 0.001), ("USE MAPS", 0.052), ("crypto currency", 0.0), ("author:model", 0.0),
    ],
)  # fmt: skip
def test_share_of_papers(text: str, share: float) -> None:
    """A phrase has that of its rarest pair of words. Long and short forms are the same. Filters have none."""
    assert mute_suggestions.share_of_papers(text, MODEL) == pytest.approx(share, abs=0.01)
