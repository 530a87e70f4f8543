"""Interests find the papers they ask for, exactly as they ask, with reasons that are true."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.digests import ranking
from app.errors import InvalidInterest
from app.relevance import matching
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.text.tokenizer import stems
from app.types import PaperView
from tests import corpora

PAPERS = [
    PaperView(
        1,
        "Speculative Decoding with Tree Attention",
        "We speed up large language models by drafting tokens with a small model and verifying them.",
        ("Ada Lovelace", "Grace Hopper"),
        categories=("cs.CL", "cs.LG"),
    ),
    PaperView(
        2,
        "Quantized Diffusion Transformers for Video",
        "Low-bit quantization of video diffusion models keeps quality at four bits.",
        ("José García", "Alan Turing"),
        categories=("cs.CV",),
    ),
    PaperView(
        3,
        "A Survey of Text-to-Image Generation",
        "Diffusion models dominate image generation from text; this survey covers decoding and safety.",
        ("Barbara Liskov",),
        categories=("cs.CV", "eess.IV"),
    ),
    PaperView(4, "Trading Cryptocurrency with Agents", "LLM agents trade crypto assets.", ("Ken Li",)),
]
INDEX = matching.MatchIndex(PAPERS, RelevanceModel.shipped())


# An archive that spans a space, and its papers as candidates.
SUBJECTS = corpora.papers()
MEANT = matching.MatchIndex(SUBJECTS, corpora.corpus())


def hits(text: str, index: matching.MatchIndex = INDEX) -> dict[int, float]:
    return index.match([parse(text)])[0]


def why(text: str, paper: int, index: matching.MatchIndex = INDEX) -> str:
    return index.reason(parse(text), paper)


@pytest.mark.parametrize(
    ("wish", "papers"),
    [
        ("speculative decoding", {1, 3}),
        ('"speculative decoding"', {1}),
        ("decode", {1, 3}),  # stems
        ('"diffusion models"', {2, 3}),
        ('"models diffusion"', set()),
        ("diffusion -video", {3}),
        ('diffusion -"text to image"', {2}),
        ("diffusion -author:liskov", {2}),
        ("text-to-image", {3}),
        ("TEXT TO IMAGE", {3}),
        ("author:turing", {2}),
        ("author:garcia", {2}),  # accents do not matter
        ('author:"Ada Lovelace"', {1}),
        ("author:love", set()),  # whole names only
        ("author: turing", {2}),
        ("author:turing author:liskov", {2, 3}),  # any of them, as with categories
        ("cat:cs.CV", {2, 3}),
        ("cat:cs", {1, 2, 3}),
        ("cat:cs.CV cat:cs.CL", {1, 2, 3}),  # any of several categories
        ("diffusion cat:cs.CL", set()),
        ("agents -cat:cs -crypto", set()),
        ("“diffusion models” −video", {3}),  # as typed on a phone
        ("nothing about astronomy", set()),
    ],
)
def test_the_syntax_is_honoured_exactly(wish: str, papers: set[int]) -> None:
    """Words are looked for, phrases required, exclusions and filters obeyed."""
    assert set(hits(wish)) == papers


def test_a_better_match_is_more_relevant() -> None:
    """Both words in the title outweigh one in the abstract; none of it is enough to be sent for."""
    found = hits("speculative decoding")
    assert found[3] < ranking.FLOOR < found[1]


@pytest.mark.parametrize(
    ("wish", "paper", "least"),
    [("image", 3, matching.TITLE_RELEVANCE), ('"diffusion models"', 3, matching.PHRASE_RELEVANCE)],
)
def test_what_a_reader_typed_counts_however_common_it_is(wish: str, paper: int, least: float) -> None:
    """An interest that stands in a title, and a phrase in quotes, are worth showing."""
    assert hits(wish)[paper] >= least


def test_a_phrase_of_small_words_is_required_and_nothing_more() -> None:
    """It is in a paper of any kind."""
    papers = [PaperView(1, "Agents", "How to plan."), PaperView(2, "Video", "How to film.")]
    index = matching.MatchIndex(papers, RelevanceModel.shipped())
    assert set(hits('agents "how to"', index)) == {1}


def test_words_apart_in_a_title_are_not_the_interest() -> None:
    """ "Real-World Image Restoration with Large-Scale Models" is no paper on world models."""
    index = matching.MatchIndex(
        [PaperView(1, "Real-World Images with Large-Scale Models")], RelevanceModel.shipped()
    )
    assert not index.numbers(parse("world models"), 1).in_title


@pytest.mark.parametrize(
    ("wish", "paper", "reason"),
    [
        ("speculative decoding", 1, "“Speculative Decoding” in the title"),
        ("quantization", 2, "“Quantized” in the title"),
        (
            "low-bit quantization of transformers",
            2,
            "“Low-bit quantization” in the abstract; “Transformers” in the title",
        ),
        ("author:turing", 2, "by Alan Turing"),
        ("author:garcia author:liskov", 2, "by José García"),
        ("author:garcia author:turing", 2, "by José García, Alan Turing"),
        ("image cat:cs.CV", 3, "“Image” in the title; filed under cs.CV"),
        ("cat:eess", 3, "filed under eess.IV"),
        ("LLMs", 1, "“large language models” in the abstract"),
        ("large language models", 4, "“LLM” in the abstract"),
        ("language models", 4, "“LLM” in the abstract"),  # a large one is one
        ("diffusion", 3, "“Diffusion” in the abstract"),
        ('"diffusion models"', 2, "“video diffusion models” in the abstract"),
    ],
)
def test_the_reason_names_what_matched(wish: str, paper: int, reason: str) -> None:
    """The words as the paper spells them, and where they stand."""
    assert why(wish, paper) == reason


# --- by meaning


def test_papers_on_a_subject_are_found_without_its_words() -> None:
    """Examples say what "tumour" means; the reason names the words that bring the paper close."""
    found = hits("tumour", MEANT)
    silent = [n for n in found if "tumour" not in (SUBJECTS[n - 1].title + SUBJECTS[n - 1].abstract).lower()]
    assert silent
    for number in silent:
        assert "medical imaging" in SUBJECTS[number - 1].abstract
        assert why("tumour", number, MEANT).startswith("close to your interest through “")


@pytest.mark.parametrize("wish", ["zebrafish", "sourdough fermentation", "image sourdough fermentation"])
def test_what_the_archive_does_not_know_brings_no_flood(wish: str) -> None:
    """One known word of three has poor examples: what they mean is damped, and nothing is sent for it."""
    assert MEANT.numbers(parse(wish), 1).archive_knows_it < 0.2
    assert not [relevance for relevance in hits(wish, MEANT).values() if relevance >= ranking.FLOOR]


def test_what_the_archive_knows_is_known() -> None:
    """So that the damping above is the exception."""
    assert MEANT.numbers(parse("federated learning"), 1).archive_knows_it > 0.9


def test_a_paper_that_the_archive_lacks_is_an_example_too() -> None:
    """Today's papers say what today's words mean, before the night's model knows them."""
    new = [replace(paper, id=paper.id + 1000, title=f"Zorbing {paper.title}") for paper in SUBJECTS[:4]]
    index = matching.MatchIndex([*SUBJECTS, *new], corpora.corpus())
    assert index.numbers(parse("zorbing"), 1).archive_knows_it > 0.9
    assert {paper.id for paper in new} < set(hits("zorbing", index))


@pytest.mark.parametrize("index", [INDEX, MEANT], ids=["young archive", "grown archive"])
def test_many_interests_at_once_are_each_as_alone(
    index: matching.MatchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches bound the memory, and change nothing."""
    queries = [parse(text) for text in ("image", "policy reward", "author:turing", "zebrafish", "RL -bandit")]
    alone = [index.match([query])[0] for query in queries]
    monkeypatch.setattr(matching, "BATCH", 2)
    for found, own in zip(index.match(queries), alone, strict=True):
        assert found == pytest.approx(own, abs=1e-5)
    assert index.match([]) == []


def test_the_numbers_add_up_to_the_relevance() -> None:
    """What an explanation shows is what was matched with; what is left out says why."""
    query = parse("tumour -biopsy")
    found = MEANT.match([query])[0]
    for paper in SUBJECTS:
        numbers = MEANT.numbers(query, paper.id)
        z = matching.WORDS * numbers.words + numbers.meaning + matching.WHOLE * numbers.all_words
        assert numbers.agreement == pytest.approx(z, abs=1e-4)
        assert numbers.relevance == pytest.approx(found.get(paper.id, 0.0), abs=1e-5)
        assert bool(numbers.left_out) == ("biopsy" in f"{paper.title} {paper.abstract}".lower())
    with pytest.raises(KeyError):
        MEANT.numbers(query, 99_999)


def test_the_papers_of_a_subject_are_near_each_other() -> None:
    """Rows of length one by paper, for whoever wants no two that say the same; none without a space."""
    first, second, far = (MEANT.vectors[number] for number in (1, 2, 2 * corpora.EACH))
    assert first @ first == pytest.approx(1, abs=1e-3)
    assert first @ second > first @ far
    assert INDEX.vectors[1].shape == (0,)


def test_there_may_be_nothing_to_match() -> None:
    """A day without papers."""
    for corpus in (RelevanceModel.shipped(), corpora.corpus()):
        assert matching.MatchIndex([], corpus).match([parse("agents")]) == [{}]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ("speculative decoding", []),
        ("Zebrafish image", ["Zebrafish"]),
        ('"Quantum Gravity" diffusion -dragons author:turing', ["Quantum", "Gravity"]),
        ("LLMs", []),  # written out
        ("language", []),  # in a short form
        ("author:turing", []),
    ],
)
def test_words_that_no_paper_has_are_named(wish: str, words: list[str]) -> None:
    """As they were typed; what is excluded need not be there."""
    assert INDEX.missing(parse(wish)) == words


def test_a_word_typed_twice_is_said_once() -> None:
    """The same interest, although no paper says “agents agents”."""
    assert hits("agents agents") == hits("agents")


# --- whatever is asked

VOCABULARY = ["diffusion", "video", "decoding", "image", "agents", "LLM", "large", "language", "models", "to"]
SUBJECT_WORDS = [
    "RL",
    "reinforcement",
    "learning",
    "tumour",
    "policy",
    "image",
    "galaxy",
    "bit",
    "model",
    "zebra",
]


def quoted_is_there(paper: PaperView, reason: str) -> None:
    """What stands in quotes stands in the field that is named; words that bring it close, in either."""
    assert reason
    for part in reason.split("; "):
        fields = {"title": paper.title, "abstract": paper.abstract}
        text = fields.get(part.rsplit(" ", 1)[-1], f"{paper.title} {paper.abstract}")
        quoted = re.findall("“(.*?)”", part)
        assert quoted
        assert all(words in text for words in quoted)


@given(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=20))
def test_a_quoted_word_does_occur_in_the_paper(words: list[str]) -> None:
    """Whatever is asked, the words in quotes stand in the field that the reason names."""
    assume(set(words) != {"to"})
    for number in hits(" ".join(words)):
        quoted_is_there(PAPERS[number - 1], why(" ".join(words), number))


@settings(max_examples=25)
@given(st.lists(st.sampled_from(SUBJECT_WORDS), min_size=1, max_size=5), st.data())
def test_words_that_bring_a_paper_close_do_occur_in_it(words: list[str], data: st.DataObject) -> None:
    """And a paper that is not close is not said to be."""
    text = " ".join(words)
    found = sorted(hits(text, MEANT))
    assume(found)
    number = data.draw(st.sampled_from(found))
    reason = why(text, number, MEANT)
    quoted_is_there(SUBJECTS[number - 1], reason)
    if "close to your interest" in reason:
        assert MEANT.numbers(parse(text), number).meaning > 0


@pytest.mark.parametrize("wish", ["reinforcement zebra", "RL zebra", "bandit learning", "translation zebra"])
def test_a_reason_says_nothing_twice(wish: str) -> None:
    """Where a short form stands for a word of the interest, it is not what brings the paper close besides."""
    short = [replace(p, abstract=p.abstract.replace("reinforcement learning", "RL")) for p in SUBJECTS]
    index = matching.MatchIndex(short, corpora.corpus())
    for number in hits(wish, index):
        reason = why(wish, number, index)
        said = [stem for words in re.findall("“(.*?)”", reason) for stem in stems(words)]
        assert len(set(said)) == len(said), reason


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(SUBJECT_WORDS), min_size=1, max_size=4),
    st.sampled_from([*corpora.SUBJECTS["medical imaging"].split()[:4], "study", "model"]),
)
def test_nothing_outweighs_an_excluded_word(words: list[str], excluded: str) -> None:
    """No title, phrase or closeness does; and what is not excluded is as relevant as before."""
    query = parse(f"{' '.join(words)} -{excluded}")
    forbidden = MEANT.excluded(query)
    assert {
        p.id for p in SUBJECTS if excluded in re.findall(r"\w+", f"{p.title} {p.abstract}".lower())
    } <= forbidden
    kept = {
        number: worth for number, worth in hits(" ".join(words), MEANT).items() if number not in forbidden
    }
    assert MEANT.match([query])[0] == pytest.approx(kept)


def test_an_excluded_short_form_forbids_its_plural() -> None:
    """Whoever wants no VLA wants no VLAs."""
    paper = PaperView(1, "Faster VLAs for Robots")
    assert matching.MatchIndex([paper], RelevanceModel.shipped()).excluded(parse("robots -VLA")) == {1}


@given(st.permutations(["image", '"diffusion models"', "cat:cs", "-author:turing", "-crypto", "text"]))
def test_filters_hold_wherever_they_stand(parts: list[str]) -> None:
    """Among the words, before or after them."""
    assert set(hits(" ".join(parts))) == {3}


TYPED = [
    *VOCABULARY,
    '"diffusion models"',
    "-crypto",
    "-",
    '"',
    "author:liskov",
    "author:",
    "cat:cs",
    "“LLM”",
    "x,",
]


@given(st.text(max_size=80) | st.lists(st.sampled_from(TYPED), min_size=1, max_size=9).map(" ".join))
def test_no_interest_breaks_the_matching(text: str) -> None:
    """Any text is either refused with a reason or searched for, and an exclusion never leaks."""
    try:
        query = parse(text)
    except InvalidInterest:
        return
    found = hits(text)
    assert all(INDEX.numbers(query, number).relevance == found[number] for number in found)
    stricter = hits(f"-diffusion {query.text}")
    assert stricter == {number: worth for number, worth in found.items() if number not in (2, 3)}


def test_excluded_papers_are_known_by_themselves() -> None:
    """So that an exclusion holds beyond its own interest, too."""
    assert INDEX.excluded(parse("anything -crypto -author:liskov")) == {3, 4}
    assert INDEX.excluded(parse("anything -cat:cs.CL")) == {1}
