"""Test definitions of short forms: a bracket after the words that spell it."""

import time

import pytest

from app.text.definitions import find_definitions


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        ("We use reinforcement learning (RL) here.", "RL", "reinforcement learning"),
        ("Many large language models (LLMs) fail.", "LLM", "large language models"),
        ("a mixture of experts (MoE) layer", "MoE", "mixture of experts"),
        ("with low-rank adaptation (LoRA)", "LoRA", "low-rank adaptation"),
    ],
)
def test_definitions_are_found(text: str, short: str, long: str) -> None:
    """Small words may contribute no letter, a plural is the same short form, and hyphens are kept."""
    assert list(find_definitions(text)) == [(short, long)]


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
def test_other_brackets_are_ignored(text: str) -> None:
    """A bracket defines a short form only directly after the words that spell it, in the same clause."""
    definitions = list(find_definitions(text))
    assert definitions == ([("OM", "our method")] if "OM" in text else [])


@pytest.mark.parametrize(
    "unit",
    [
        "aaaaaaaaaaaaaaa aaaaaaaaaaaa aaaaaaaaaa a a a a a a a a a a (AAAAAAAAAAAB) ",
        "aaaaaaaaa a aaaaaaaaa a aaaaaaaaa a aaaaaaaaa a aaaaaaaaa a aaaaaaaa a (AAAAAAAAAAAB) ",
        "(A",
    ],
)
def test_hostile_abstract_is_fast(unit: str) -> None:
    """The longest accepted abstract, of words that nearly spell a short form, takes under 2 seconds."""
    began = time.process_time()
    assert list(find_definitions((unit * 10_000)[:20_000])) == []
    assert time.process_time() - began < 2
