"""Test which words long forms can leave out."""

from collections.abc import Iterator, Sequence

import pytest

from app.text.shorter_readings import learn
from app.text.tokenizer import content_stems

SHORTS = {
    ("languag", "model"): "lm",
    ("diffus", "languag", "model"): "dlm",
    ("vision", "languag", "model"): "vlm",
    ("long", "context", "languag", "model"): "lclm",
    ("time", "seri", "model"): "tsm",
}
DIFFUSION = ("diffus", "languag", "model"), ("diffus", "model")


def papers(*texts: str) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]]]]:
    """Yield papers. Their terms are their stems: the short forms are written, not folded."""
    for text in texts:
        stems = content_stems(text)
        yield stems, [stems]


@pytest.mark.parametrize(
    ("long", "text"),
    [
        ("diffusion language model", "DLM, a diffusion model"),
        ("vision-language model", "VLM, a vision model"),  # the hyphen joins the omitted word
        ("long-context language model", "LCLM, a context model"),  # the long form has two words in front
        ("time series model", "TSM, a time model"),  # "series model" is no long form
    ],
)
def test_leading_words_of_another_long_form_are_left_out(long: str, text: str) -> None:
    """Only "diffusion" modifies another long form by itself, and has no hyphen."""
    hyphenated = frozenset({"vision languag", "long context"})
    expected = {DIFFUSION} if long.startswith("diffusion") else frozenset[object]()
    assert learn(SHORTS, hyphenated, papers(*[text] * 3, *["cats"] * 20)) == expected


@pytest.mark.parametrize(
    ("both", "only_short", "only_pair", "others", "is_learned"),
    [
        (2, 10, 0, 100, True),
        (1, 10, 0, 100, False),  # one paper may mean something else
        (3, 90, 0, 100, True),
        (3, 100, 0, 1_000, False),  # less than three of a hundred
        (3, 19, 85, 915, False),  # chance explains it: each paper contains the pair as often
        (6, 16, 85, 915, True),
        (3, 0, 0, 0, True),  # no other paper to compare with
    ],
)
def test_papers_must_contain_the_reading(
    both: int, only_short: int, only_pair: int, others: int, is_learned: bool
) -> None:
    """Enough papers with the short form contain the pair, and more than chance explains."""
    texts = ["DLM, a diffusion model"] * both + ["DLM"] * only_short
    texts += ["a diffusion model"] * only_pair + ["cats"] * others
    assert learn(SHORTS, frozenset(), papers(*texts)) == ({DIFFUSION} if is_learned else frozenset())
