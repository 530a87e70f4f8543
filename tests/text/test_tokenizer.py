"""Test tokenizing: different spellings of a word give the same stem."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text import characters, tokenizer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Diffusion Models", "diffusion model"),
        ("José García", "jose garcia"),
        ("LLMs", "LLM"),
        ("VLMs and GPTs", "VLM and GPT"),
        ("VLAs and mRNAs", "VLA and mRNA"),
        ("text-to-image", "Text to image"),
        ("quantization", "quantized"),
        ("Quantisation", "quantized"),
        ("optimising behaviours", "optimize behavior"),
        ("ＬＬＭ", "llm"),  # full-width letters, as Japanese keyboards write them
    ],
)
def test_spellings_share_a_stem(one: str, other: str) -> None:
    """Case, accents, endings, hyphens, British spelling and the plural of a short form make no difference."""
    assert tokenizer.content_stems(one) == tokenizer.content_stems(other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Women's health", ["Women", "health"]),
        ("ALZHEIMER’S disease isn’t", ["ALZHEIMER", "disease", "isn"]),
        ("Can't, won't, DON’T", ["Can", "won", "DON"]),
        ("van't Hoff", ["van", "t", "Hoff"]),
        ("van 't Hoff", ["van", "t", "Hoff"]),
        ("models' s and t of AT&T", ["models", "s", "and", "t", "of", "AT", "T"]),
        ("l'apprentissage d’O'Brien", ["l", "apprentissage", "d", "O", "Brien"]),
    ],
)
def test_possessives(text: str, words: list[str]) -> None:
    """The s after an apostrophe is no word, so an interest in women's health does not search for "s"."""
    assert [text[token.start : token.end] for token in tokenizer.tokenize(text)] == words
    assert tokenizer.WORD.findall(text) == words


@pytest.mark.parametrize(
    "words",
    [
        "भाषा और कला",  # Hindi
        "தமிழ் மொழி",  # Tamil
        "বাংলা ভাষা",  # Bengali
        "أيضًا مُحَمَّد",
        "שָׁלוֹם",
        "شبکه‌های عصبی",  # Persian, with a joiner
        "ọ̀rọ̀ x̂ k",
    ],
)
def test_words_with_marks(words: str) -> None:
    """Combining marks and joiners are part of a word. Quotation marks and emoji are not."""
    text = f"“{words}”, 👩‍🔬"
    assert [text[token.start : token.end] for token in tokenizer.tokenize(text)] == words.split()
    assert tokenizer.WORD.findall(text) == words.split()
    assert len(tokenizer.folded_words(text)) == len(words.split())


def test_scripts_without_spaces() -> None:
    """A Thai text without spaces is split at its marks, so that parts of an interest are found."""
    interest, title = (
        {*tokenizer.stem_all(text)} for text in ("การเรียนรู้ของเครื่อง", "การเรียนรู้ของเครื่องสำหรับการแปลภาษาไทย")
    )
    assert len(interest & title) == 3


def test_vowel_signs_make_a_difference() -> None:
    """Words with other vowel signs are other words, but points of Arabic and Hebrew may be left out."""
    assert len({*tokenizer.stem_all("कला कली कल काल")}) == 4
    assert tokenizer.stem_all("أيضًا שָׁלוֹם شبکه‌های") == tokenizer.stem_all("ايضا שלום شبکههای")


def test_compound_with_marks() -> None:
    """A hyphen after a mark joins two words."""
    assert tokenizer.compound_span("(हिन्दी-भाषा)", 8, 12) == (1, 12)


@given(st.text(max_size=200))
def test_token_positions(text: str) -> None:
    """Token positions are valid in any script, and `content_stems` finds the same words as `tokenize`."""
    assert len(characters.fold_accents(text)) == len(text)
    tokens = tokenizer.tokenize(text)
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert all(one.end <= other.start for one, other in itertools.pairwise(tokens))
    assert tokenizer.content_stems(text) == tokenizer.without_stopwords(token.stem for token in tokens)


def test_bigrams() -> None:
    """Bigrams are in the order of the text."""
    assert list(tokenizer.bigrams(["a", "b", "c"])) == ["a b", "b c"]


@pytest.mark.parametrize(
    ("word", "compound"),
    [
        ("policy", "off-policy-only"),
        ("off", "off-policy-only"),
        ("plain", "plain"),
        ("end", "end"),
        ("a", "a"),
    ],
)
def test_span_of_a_word_with_hyphens(word: str, compound: str) -> None:
    """A hyphen beside a space joins nothing."""
    text = "a -off-policy-only plain- end"
    start = text.index(word)
    first, last = tokenizer.compound_span(text, start, start + len(word))
    assert text[first:last] == compound
