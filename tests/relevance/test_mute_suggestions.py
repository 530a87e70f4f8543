from __future__ import annotations

from app.relevance import mute_suggestions
from app.types import Interest


def test_suggested_words_to_mute() -> None:
    """Suggest keywords in the text, pairs of title words, then title words; no words of own interests.

    A part of a hyphenated word is not suggested: "GUI-Agents" is, "GUI" is not.
    """
    suggestions = mute_suggestions.suggest(
        "Language Agents that Plan: A Study of GUI-Agents",
        "We use world models, and GUI agents.",
        ["world models", "robots", "Language  agents"],
        [Interest("study of plans")],
    )
    assert suggestions == ["world models", "Language agents", "GUI-Agents", "Language", "Agents"]


def test_general_words_are_not_suggested() -> None:
    """Muting them would leave out papers on any subject."""
    suggestions = mute_suggestions.suggest(
        "Think over Trajectories: Leveraging Video", "We think over trajectories.", [], []
    )
    assert suggestions == ["Think", "Trajectories", "Video"]


def test_texts_that_cannot_be_muted_are_not_suggested() -> None:
    """ "ti:" is a filter of other search engines."""
    suggestions = mute_suggestions.suggest("Laser Pulses", "A Ti:sapphire laser.", ["Ti:sapphire"], [])
    assert suggestions == ["Laser", "Pulses"]
