"""Test the vocabulary: words are counted once per paper, under their commonest spelling."""

import pytest

from app.relevance import vocabulary
from app.relevance.vocabulary import Vocabulary
from app.text.tokenizer import distinct_words

WORDS = [*map(distinct_words, ["ImageNet and imagenet, ImageNet!", "ImageNet café", "Café GPT4 cat Модель"])]


def test_words_are_counted_by_folded_form() -> None:
    """Short words, words with digits and words in other scripts are left out."""
    words = Vocabulary.count(WORDS)
    assert words.papers == {"imagenet": 2, "cafe": 2}
    assert words.spellings == {"imagenet": "ImageNet", "cafe": "café"}
    assert Vocabulary.count(WORDS, min_papers=3) == Vocabulary()


def test_lines_round_trip() -> None:
    words = Vocabulary.count(WORDS)
    assert words.to_lines() == ["café\t2", "ImageNet\t2"]
    assert Vocabulary.from_lines(words.to_lines()) == words
    with pytest.raises(ValueError, match="values to unpack"):
        Vocabulary.from_lines(["no count"])


def test_bundled_words_are_added() -> None:
    """A word's own spelling is kept, and its papers are added up."""
    bundled = vocabulary.bundled_vocabulary()
    both = Vocabulary({"language": "LANGUAGE"}, {"language": 3}).with_bundled()
    assert both.papers["language"] == bundled.papers["language"] + 3
    assert both.spellings["language"] == "LANGUAGE"
    assert both.papers["diffusion"] == bundled.papers["diffusion"] > 500
