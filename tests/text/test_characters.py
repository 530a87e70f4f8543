"""Test folding of accents: what a writer may leave out makes no difference, and other letters remain."""

import itertools

import pytest

from app.text import characters
from app.text.characters import fold_accents


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("José Łukasz Øystein Đoàn Việt", "jose lukasz oystein doan viet"),
        ("ＬＬＭ ㎏", "llm k"),
        ("한국어 형태소", "한국어 형태소"),
        ("パスとバスとハス", "パスとバスとハス"),
        ("ทำ", "ทำ"),
        ("லொ லெ", "லொ லெ"),
        ("লো লে", "লো লে"),
        ("أيضا", "ايضا"),
    ],
)
def test_fold_accents(text: str, folded: str) -> None:
    """Accents are removed, but not the parts of a letter in other scripts."""
    assert fold_accents(text) == folded


def test_korean_syllables_differ() -> None:
    """Each of the 11,172 syllables is a letter of its own."""
    syllables = "".join(map(chr, range(0xAC00, 0xD7A4)))
    assert fold_accents(syllables) == syllables


def test_kana_differ() -> None:
    """A sign for another consonant makes another kana."""
    kana = map(chr, (*range(0x3041, 0x3097), *range(0x30A1, 0x30FB)))
    assert all(fold_accents(one) != fold_accents(other) for one, other in itertools.combinations(kana, 2))


def test_half_width_katakana() -> None:
    """Half-width katakana, as in old databases, become the usual characters."""
    assert characters.normalize("ﾊﾟｽ ｶﾞﾝﾏ 1") == "パス ガンマ 1"


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("أيضًا", "ايضا"),  # Arabic points
        ("محـــمد", "محمد"),
        ("שָׁלוֹם", "שלום"),  # Hebrew points
        ("شبکه‌های", "شبکههای"),  # a joiner
        ("葛\U000e0100城", "葛城"),  # a variation selector
        ("ọ̀rọ̀", "oro"),
        ("x̂", "x"),
    ],
)
def test_remove_accents(text: str, other: str) -> None:
    """Signs that a writer may leave out are removed, in any script."""
    assert characters.remove_accents(text) == other
    assert len(fold_accents(text)) == len(text)
