"""Test subjects of digests, and which titles the preview text names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.mail import subject_and_preview
from app.text.shortening import FUNCTION_WORDS

LONG = "Learning Where to Stop Tokens as a Budget for the Retrieval and Reasoning of Many Hops"
HEBREW = "שיטה חדשה"


@pytest.mark.parametrize(
    ("titles", "count", "subject", "named"),
    [
        (["Bookmark: Reading Page by Page", "Agon: A Game"], 10, "Bookmark, Agon + 8 more", 2),
        (["Bookmark: Reading Page by Page", "Agon: A Game"], 2, "Bookmark, Agon", 2),
        (["Bookmark: Reading Page by Page"], 1, "Bookmark: Reading Page by Page", 1),
        (["Agon: A Game", "Read Less, Learn More"], 5, "Agon; Read Less, Learn More + 3 more", 2),
        (["Bookmark: Reading Page by Page", LONG], 5, "Bookmark: Reading Page by Page + 4 more", 1),
        (["Agents: A Survey", "agents: When to Trust Them"], 6, "Agents: A Survey + 5 more", 1),
        ([f"Agents: {LONG}", "Agents: When to Trust Them"], 6, "Agents + 5 more", 1),
        ([f"Bookmark: {LONG}", LONG], 5, "Bookmark + 4 more", 1),
        (
            [LONG, "Agon: A Game"],
            9,
            "Learning Where to Stop Tokens as a Budget for the Retrieval… + 8 more",
            1,
        ),
        ([LONG[:-14]], 1, "Learning Where to Stop Tokens as a Budget for the Retrieval…", 1),
        (
            ["Position: Stop Reading Pages", "Agon: A Game"],
            3,
            "Position: Stop Reading Pages, Agon + 1 more",
            2,
        ),
        ([HEBREW, "3D: Vision"], 2, f"{HEBREW}, \u200e3D", 2),
        ([HEBREW, "3D: Vision"], 3, f"{HEBREW}, \u200e3D + 1 more", 2),
        ([LONG[:40], HEBREW], 9, f"{LONG[:40]}, {HEBREW} \u200e+ 7 more", 2),
        ([HEBREW, LONG], 5, f"{HEBREW} \u200e+ 4 more", 1),
        ([f"Agon: {HEBREW}", LONG], 5, f"Agon: {HEBREW} \u200e+ 4 more", 1),
    ],
)
def test_subject(titles: list[str], count: int, subject: str, named: int) -> None:
    """It names one or two papers and counts the others. Right-to-left titles do not change the order."""
    assert subject_and_preview.write(titles, count) == (subject, named)


@given(
    titles=st.lists(st.text("aA: the of", max_size=200), min_size=1, max_size=2), others=st.integers(0, 99)
)
def test_subject_is_short(titles: list[str], others: int) -> None:
    """The number of papers that it names and counts is that of the digest."""
    count = len(titles) + (others if len(titles) > 1 else 0)
    text, named = subject_and_preview.write(titles, count)
    assert len(text) <= subject_and_preview.SUBJECT_CHARS
    assert 1 <= named <= len(titles)
    assert text.endswith(f" + {count - named} more") == (count > named)


@given(
    words=st.lists(st.sampled_from(["of", "The", "and", "Budget", "retrieval,"]), min_size=30, max_size=60)
)
def test_subject_is_not_cut_after_a_function_word(words: list[str]) -> None:
    """A title of nothing but function words is the exception."""
    cut, ellipsis, _ = subject_and_preview.write([" ".join(words)], 1).text.partition("…")
    assert ellipsis
    assert (
        cut.split()[-1].lower() not in FUNCTION_WORDS
        or {word.lower() for word in cut.split()} <= FUNCTION_WORDS
    )


def test_the_preview_says_why_the_first_paper_was_sent() -> None:
    """If the subject names two papers, it says which of them the reason is for."""
    reason = "“game” in the title"
    assert subject_and_preview.preview_reason(reason) == f"Why: {reason}"
    assert subject_and_preview.preview_reason(reason, "Agon: A Game") == f"Why “Agon”: {reason}"
    assert subject_and_preview.preview_reason("", "Agon: A Game") == ""


@pytest.mark.parametrize(
    ("title", "preview"),
    [
        ("“Attention” Is All: A Game", "Why “‘Attention’ Is All”: new"),
        ('Is "Attention" All', "Why “Is 'Attention' All”: new"),
        (f"{HEBREW}: A Game", f"Why “{HEBREW}”\u200e: new"),
    ],
)
def test_the_preview_quotes_any_title(title: str, preview: str) -> None:
    """Quotes are not doubled, and the reason stays after a right-to-left title."""
    assert subject_and_preview.preview_reason("new", title) == preview


@pytest.mark.parametrize(
    ("count", "named", "expected"), [(1, 1, []), (2, 2, []), (3, 1, [1, 2]), (3, 2, [2]), (10, 2, [2, 3])]
)
def test_the_preview_continues_after_the_subject(count: int, named: int, expected: list[int]) -> None:
    """It names up to two more papers, in the order of the digest."""
    assert list(subject_and_preview.in_preview(range(count), named)) == expected
