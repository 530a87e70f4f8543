"""Test shortened texts and titles."""

import pytest

from app.text import shortening


@pytest.mark.parametrize(
    ("text", "chars", "shortened"),
    [
        ("short enough", 12, "short enough"),
        ("the budget of the retrieval", 20, "the budget…"),
        ("a budget, and more of it", 15, "a budget…"),
        ("of the and to go", 12, "of…"),
        ("日本語の論文" * 5, 10, "日本語の論文日本語…"),
        ("x" * 30, 10, "x" * 9 + "…"),
        ("भाषाभाषाभाषा", 6, "भाषा…"),  # not before a vowel sign
        ("เครื่องเครื่อง", 5, "เค…"),
        ("abcdefg👨‍👩‍👧", 10, "abcdefg…"),  # not within an emoji
        ("abcdefgh👍🏽 and", 10, "abcdefgh…"),
        ("abcdef🇩🇪🇫🇷 and", 9, "abcdef🇩🇪…"),
        ("abcdef🇩🇪🇫🇷 and", 10, "abcdef🇩🇪…"),
        ("भाषाक्षिभाषा", 7, "भाषा…"),  # not within क्षि
        ("भाषाक्षिभाषा", 8, "भाषा…"),
        ("வணக்கம் உலகம்உலகம்", 8, "வணக்கம்…"),  # the sign at the end of a word joins nothing
        ("a" + "\u0301" * 9, 5, "…"),
        ("a reader (of pages) and more", 13, "a reader…"),
    ],
)
def test_shorten(text: str, chars: int, shortened: str) -> None:
    """Texts are cut between words, and not after marks or function words."""
    assert shortening.shorten(text, chars) == shortened


@pytest.mark.parametrize(
    ("text", "chars", "shortened"),
    [
        ("reads pages, and stops", 22, "reads pages, and stops"),
        ("reads pages, and stops early", 15, "reads pages…"),
        ("a, reads pages or stops early", 18, "a, reads pages…"),  # the clause is too short
        ("It reads pages. It stops early", 24, "It reads pages."),
        ("It reads e.g. Pages when it stops", 25, "It reads e.g. Pages…"),
        ("It reads pages while it stops early", 23, "It reads pages…"),
        ("It is guided by many readers", 24, "It is guided by many…"),
        ("It reads a page to stop early", 26, "It reads a page…"),
        (
            "It reads pages that are guided by many through signs",
            44,
            "It reads pages that are guided by many…",
        ),
        ("It reads every single page, and is guided through signs", 43, "It reads every single page…"),
        ("It reads four pages (i.e., one, two) and stops", 30, "It reads four pages…"),
        ("It reads four pages (one, two), and stops early", 38, "It reads four pages (one, two)…"),
    ],
)
def test_shorten_at_clause(text: str, chars: int, shortened: str) -> None:
    """Texts are cut after a sentence, a clause or a phrase if most of them remains."""
    assert shortening.shorten_at_clause(text, chars) == shortened


@pytest.mark.parametrize(
    ("title", "short"),
    [
        ("Bookmark: Reading Long Documents Page by Page", "Bookmark"),
        ("Think Twice: When to Stop: A Study", "Think Twice"),
        ("No Name at All", "No Name at All"),
        ("Ratio 1:2 of Pages", "Ratio 1:2 of Pages"),
        (": An Empty Name", ": An Empty Name"),
        ("Position: Stop Reading Pages", "Position: Stop Reading Pages"),
        ("A Survey: All about Pages", "A Survey: All about Pages"),
        ("Technical Report: All about Pages", "Technical Report: All about Pages"),
    ],
)
def test_short_title(title: str, short: str) -> None:
    """A name before a colon is enough, but a kind of paper is no name."""
    assert shortening.short_title(title) == short
