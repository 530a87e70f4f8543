"""Test how duplicate papers are detected and their fields combined."""

import functools
import itertools
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.papers import dedupe
from app.papers import field_precedence as fields
from app.papers.dedupe import PaperIdentity
from app.papers.title_normalization import Title, title_end, title_key
from app.types import PaperRecord, SourceKind

LONG_TITLE = "How Birds Plan: Long-Horizon Reasoning of Pigeons in the Streets of Large Cities"
SUBTITLE = LONG_TITLE.partition(": ")[2]
RESPONSES = (
    "Author Correction", "Corrections to", "Erratum", "Corrigendum to", "Retraction", "Retraction Note",
    "Retractions", "Expression of Concern", "Comments on", "Reply to", "Replies to", "Response",
    "Responses to", "Authors' Response", "Authors’ Reply", "Rejoinder", "Publisher's Note", "Re",
    "Withdrawal", "Withdrawal Notice", "Notice of Withdrawal", "Removal Notice", "Discussion",
    "Discussion of", "Editorial", "Letter to the Editor", "Editorial Note", "Peer Review of",
    "Supplementary Material for",
)  # fmt: skip
TITLE = "Pigeons That Plan: Long-Horizon Reasoning in Small Birds"


@pytest.mark.parametrize(
    "other",
    [
        "Pigeons that plan: long-horizon reasoning in small birds",
        "Pigeons That Plan: Long Horizon\n  Reasoning in Small Birds",
        r"Pigeons That $\textbf{Plan}$: Long-Horizon Reasoning in Small Birds",
        "Pigéons That Plan: Long–Horizon Reasoning in Small Birds",
        "The Pigeons That Plan: Long-Horizon Reasoning in Small Birds",
        "Pigeons That Plan: Long-Horizon Reasonng in Small Birds",
        "Long-Horizon Reasoning in Small Birds",
    ],
)
def test_equivalent_titles(other: str) -> None:
    """Case, hyphens, line breaks, TeX, accents, articles, typos and a missing name make no difference."""
    assert dedupe.same_title(Title(TITLE), Title(other))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Pigeons That Plan, Part I", "Pigeons That Plan, Part II"),
        ("Pigeon v1.5: A Bird That Plans Ahead", "Pigeon v1: A Bird That Plans Ahead"),
        ("RecBird Technical Report", "RecBird-V2 Technical Report"),
        ("Pigeons: A Survey", "Owls: A Survey"),
        ("Feeding Everything Everywhere All at Once", "Watching Everything, Everywhere, All at Once"),
        ("RecBird Technical Report", "RecBird-Song Technical Report"),
        (
            "Wave Sampling for Computer-Generated Birdsong",
            "Random Wave Sampling for Computer-Generated Birdsong",
        ),
        ("Learning to Plan with Supervised Small Birds", "Learning to Plan with Unsupervised Small Birds"),
        ("Birds Plan with Symmetric Wings over Cities", "Birds Plan with Asymmetric Wings over Cities"),
        ("Birds Can Plan Long Flights over Cities", "Birds Can Not Plan Long Flights over Cities"),
        ("Planning with LLMs in Small Birds and Cities", "Planning with MLLMs in Small Birds and Cities"),
        (
            "Stop Flying: A Survey on Efficient Flight of Small Birds in Cities",
            "Wing Economy: A Survey of Efficient Flight of Small Birds in Cities",
        ),
        (
            "BirdNet: Recognition of Small Birds in Large Cities",
            "BirdNet 2.0: Recognition of Small Birds in Large Cities",
        ),
        ("BirdNet: Recognition of Small Birds", "BirdNet++: Recognition of Small Birds"),
        ("BirdNet: Recognition of Small Birds", "BirdNet$^+$: Recognition of Small Birds"),
        (LONG_TITLE, "Comment on " + LONG_TITLE),
        *((title, f"{kind}: {title}") for title in (LONG_TITLE, SUBTITLE) for kind in RESPONSES),
        ("Do Pigeons Plan Ahead in Cities?", 'Reply to "Do Pigeons Plan Ahead in Cities?"'),
    ],
)
def test_different_titles(a: str, b: str) -> None:
    """Numbers, versions, replies and corrections distinguish titles."""
    assert not dedupe.same_title(Title(a), Title(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (
            "BirdNet: Recognition of Small Birds in the Streets of Large Cities",
            "Wingspan: Recognition of Small Birds in Streets of Large Cities",
        ),
        (
            "Planning Long Flights of Small Birds with LLMs",
            "Planning Long Flights of Small Birds with Large Language Models",
        ),
        ("Planning Long Flights of Small Birds", "Planning Long Flights for Small Bird"),
        ("Planning Long Flights of Small Birds", "Planing Lnog Flihts of SmallBirds"),
        ("Planning Long Flights of Small Birds in Cities", "Planning Long Flights of Small Birds in"),
        (SUBTITLE, f"RETRACTED ARTICLE: {SUBTITLE}"),
        (
            "Plant Response to Drought Stress in Large Cities",
            "Plant Responses to Drought Stress in Large Cities",
        ),
        ("Detecting Toxic Comments of Birds in Cities", "Detecting Toxic Coments of Birds in Cities"),
        ("Speech+Text Planning for Birds", "Speech + Text Planning for Birds"),
    ],
)
def test_copies_of_titles(a: str, b: str) -> None:
    """Another name, a known abbreviation, an ending, typing errors or a cut end make no difference.

    Nor does the mark before the title of a retracted paper.
    """
    assert dedupe.same_title(Title(a), Title(b))
    assert dedupe.same_title(Title(b), Title(a))


def test_a_different_word_needs_the_same_abstract() -> None:
    """Authors edit titles, and write series of papers, whose abstracts differ."""
    authors = ("Mei Tanaka",)
    abstract = "We teach pigeons in cities to plan their flights ahead, and measure how well they do it. " * 3
    other = "Owls at night listen for mice. Here is the largest collection of recorded hunts so far. " * 3
    first = PaperIdentity("Feeding Everything Everywhere All at Once", authors=authors, abstract=abstract)
    edited = PaperIdentity("Watching Everything Everywhere All at Once", authors=authors, abstract=abstract)
    series = PaperIdentity("Watching Everything Everywhere All at Once", authors=authors, abstract=other)
    assert dedupe.same_paper_reason(first, edited) == "similar title and same abstract"
    assert dedupe.same_paper_reason(first, series) == ""
    assert dedupe.same_paper_reason(first, PaperIdentity(edited.title, authors=authors)) == ""


def test_a_character_may_be_a_word() -> None:
    """In Chinese, one other character can mean the opposite."""
    assert not dedupe.same_title(
        Title("城市中有监督学习的鸟类迁徙规划方法研究"), Title("城市中无监督学习的鸟类迁徙规划方法研究")
    )


def test_greek_letters_match_their_names() -> None:
    """Sources show the letter, its name in TeX, or the plain name."""
    keys = {title_key(f"{sign}-Bird in Flight") for sign in ("π", r"$\pi$", "pi", "Π")}
    assert keys == {"pibirdinflight"}


def test_title_key_of_non_latin_titles() -> None:
    """Papers have titles in any script."""
    assert title_key("鳩の計画") == "鳩の計画"
    assert title_key("?!") == ""


@pytest.mark.parametrize(
    ("title", "other"),
    [
        ("किताब की भाषा और साहित्य", "किताब का भूषा और साहित्य"),
        ("データのガンの検出のための深層学習入門", "データのカンの検出のための深層学習入門"),
        ("การเรียนรู้ของป่าไม้ในเมืองใหญ่", "การเรียนรู้ของป้าไม้ในเมืองใหญ่"),
    ],
)
def test_vowel_signs_tell_titles_apart(title: str, other: str) -> None:
    """So do voicing marks and tones. Keys don't include them, but candidates are found by their keys."""
    assert title_key(title) == title_key(other)
    assert dedupe.same_paper_reason(PaperIdentity(title), PaperIdentity(other)) == ""
    assert dedupe.same_paper_reason(PaperIdentity(title), PaperIdentity(title)) == "same title"


def test_accents_may_be_left_out() -> None:
    """Not all sources keep them."""
    a, b = PaperIdentity("الذَّكاء الاصطناعي في التعليم"), PaperIdentity("الذكاء الاصطناعي في التعليم")
    assert dedupe.same_paper_reason(a, b) == "same title"


def test_ids_take_precedence_over_titles() -> None:
    """Equal arXiv ids or DOIs mean one paper, different arXiv ids two. Different DOIs decide nothing."""
    a = PaperIdentity(TITLE, arxiv_id="2611.00001", doi="10.1/a")
    assert (
        dedupe.same_paper_reason(a, PaperIdentity("Another Name", arxiv_id="2611.00001")) == "same arXiv ID"
    )
    assert dedupe.same_paper_reason(a, PaperIdentity(TITLE, arxiv_id="2611.00002")) == ""
    assert dedupe.same_paper_reason(a, PaperIdentity("Another Name", doi="10.1/a")) == "same DOI"
    assert dedupe.same_paper_reason(a, PaperIdentity(TITLE, doi="10.1/other")) == "same title"


def test_equal_titles_need_a_matching_author_or_abstract() -> None:
    """Either one is sufficient, because abstracts are rewritten."""
    mei = PaperIdentity(
        TITLE, authors=("Mei Tanaka", "Olu Adeyemi"), abstract="We teach pigeons to plan. " * 5
    )
    assert dedupe.same_paper_reason(
        mei, PaperIdentity(TITLE, authors=("M. Tanaka",), abstract="Something else entirely.")
    )
    assert dedupe.same_paper_reason(mei, PaperIdentity(TITLE, abstract="We teach pigeons to plan! " * 5))
    assert dedupe.same_paper_reason(mei, PaperIdentity(TITLE))
    yousef = PaperIdentity(TITLE, authors=("Yousef Kotp",))  # the given name is the longer one
    assert dedupe.same_paper_reason(yousef, PaperIdentity(TITLE, authors=("Y. Kotp",)))
    assert not dedupe.same_paper_reason(mei, PaperIdentity(TITLE, authors=("Ana Silva",)))
    assert not dedupe.same_paper_reason(
        mei, PaperIdentity(TITLE, authors=("Ana Silva",), abstract="Nothing in common at all.")
    )


def test_common_title_needs_a_common_author() -> None:
    a, b = PaperIdentity("Introduction", authors=("Mei Tanaka",)), PaperIdentity("Introduction")
    assert not dedupe.same_paper_reason(a, b)
    assert dedupe.same_paper_reason(a, PaperIdentity("Introduction", authors=("Mei Tanaka",)))


@pytest.mark.parametrize("title", ["Introduction", "基于深度学习的图像识别方法研究", TITLE])
def test_same_title_and_link_are_one_paper(title: str) -> None:
    """A feed lists an entry again at each poll, and may list it before its abstract is written."""
    entry = PaperIdentity(title, url="https://birds.test/1")
    announced, complete = (
        replace(entry, abstract=text) for text in ("To be announced.", "We teach pigeons.")
    )
    for a, b in ((entry, entry), (entry, complete), (announced, complete)):
        assert dedupe.same_paper_reason(a, b) == "same title"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (PaperIdentity("Editorial", doi="10.1/a"), PaperIdentity("Editorial", doi="10.1/b")),
        (PaperIdentity("Introduction", doi="10.1/a"), PaperIdentity("Introduction")),
        (PaperIdentity("Introduction", arxiv_id="2611.00001"), PaperIdentity("Introduction")),
        (
            PaperIdentity("Introduction", arxiv_id="2611.00001"),
            PaperIdentity("Introduction", doi="10.1/a"),
        ),
    ],
)
def test_ids_tell_common_titles_apart(a: PaperIdentity, b: PaperIdentity) -> None:
    """Only records that have nothing but a title are recognized by a short title."""
    assert not dedupe.same_paper_reason(a, b)
    assert not dedupe.same_paper_reason(b, a)


@pytest.mark.parametrize(
    "changes",
    [{"doi": "10.1/b"}, {"authors": ("Olu Adeyemi",)}, {"authors": ("Olu Adeyemi",), "abstract": "Qubits."}],
)
def test_common_link_of_different_papers(changes: dict[str, Any]) -> None:
    """Each editorial of a journal may link to its home page."""
    editorial = PaperIdentity(
        "Editorial", doi="10.1/a", authors=("Mei Tanaka",), abstract="Birds in spring.", url="https://j.test/"
    )
    other = replace(editorial, **{"doi": "", "authors": (), "abstract": "", **changes})
    assert not dedupe.same_paper_reason(editorial, other)


@pytest.mark.parametrize(
    "url", ["http://birds.test/1", "https://www.birds.test/1", "https://birds.test/1/", "HTTP://birds.test/1"]
)
def test_spelling_of_a_link_makes_no_difference(url: str) -> None:
    a, b = (PaperIdentity("World Models", url=link) for link in ("https://birds.test/1", url))
    assert dedupe.same_paper_reason(a, b) == "same title"


def test_common_title_with_another_link_is_another_paper() -> None:
    """Each issue of a journal has an introduction. Records with nothing but a title cannot be told apart."""
    introduction = PaperIdentity("Introduction")
    assert dedupe.same_paper_reason(introduction, introduction)
    first, second = (replace(introduction, url=f"https://birds.test/{number}") for number in (1, 2))
    assert not dedupe.same_paper_reason(first, second)
    assert not dedupe.same_paper_reason(first, introduction)
    assert not dedupe.same_paper_reason(introduction, replace(introduction, abstract="We teach pigeons."))


def test_comparison_is_symmetric() -> None:
    papers = [
        PaperIdentity(TITLE),
        PaperIdentity(TITLE, arxiv_id="2611.00001"),
        PaperIdentity(TITLE, doi="10.1/a", authors=("Mei Tanaka",)),
        PaperIdentity("Long-Horizon Reasoning in Small Birds", authors=("Ana Silva",)),
        PaperIdentity("Pigeons That Plan, Part II"),
    ]
    for a, b in itertools.combinations(papers, 2):
        assert dedupe.same_paper_reason(a, b) == dedupe.same_paper_reason(b, a)


def test_nearest_titles_are_ranked() -> None:
    """Titles that are not similar are left out."""
    titles = {number: f"A Study of Topic {number} in Birds of the City" for number in range(500)}
    others = {key: Title(title) for key, title in titles.items()}
    others |= {
        900: Title(TITLE),
        901: Title(TITLE.replace("Small", "Smaller")),
    }
    assert dedupe.nearest(Title(TITLE), others, 10) == [900, 901]
    assert dedupe.nearest(Title(TITLE), others, 1) == [900]
    assert dedupe.nearest(Title("Nothing Like Any of Them"), others, 10) == []


@pytest.mark.parametrize(
    "copy",
    [
        "Pigeon: Pigeons That Plan in the Streets of Large Cities",
        "Pigeons That Plan in the Streets of Large City",
        "Pigeons Who Plan in the Streets of Large Cities",
        "PIGEONS THAT PLAN IN THE STREETS OF LARGE",
        "Pigeons That Plan in the Streets of Large Cities: A Study of Birds",
    ],
)
def test_copies_of_a_title_are_in_one_block(copy: str) -> None:
    """A copy begins or ends as the title does."""
    key = title_key("Pigeons That Plan in the Streets of Large Cities")
    starts, ends = dedupe.block_ranges(Title(copy))
    assert key.startswith(tuple(starts)) or title_end(key).startswith(tuple(ends))


RECORDS = st.builds(
    PaperRecord,
    title=st.sampled_from(["Pigeons", "Pigeons That Plan"]),
    abstract=st.sampled_from(["", "short", "a longer abstract"]),
    authors=st.sampled_from([(), ("Mei",), ("Mei", "Olu")]),
    tldr=st.sampled_from(["", "one", "two"]),
    author_count=st.integers(0, 3),
    published_on=st.sampled_from([None, date(2026, 11, 1), date(2026, 11, 2)]),
    listed_on=st.sampled_from([date(2026, 11, 3), date(2026, 11, 4)]),
)


@given(st.lists(st.tuples(RECORDS, st.sampled_from(SourceKind)), min_size=2, max_size=5), st.randoms())
def test_combining_is_commutative_and_idempotent(
    records: list[tuple[PaperRecord, SourceKind]], random: object
) -> None:
    """Reading the records again in any order changes nothing."""

    def combined(order: list[tuple[PaperRecord, SourceKind]]) -> fields.Fields:
        return functools.reduce(fields.combine, (fields.from_record(record, kind) for record, kind in order))

    first = combined(records)
    random.shuffle(records)  # type: ignore[attr-defined]
    assert combined(records) == first == combined(records + records)
    assert fields.content_hash(combined(records)) == fields.content_hash(first)


def test_saved_search_pages_only_fill_empty_fields() -> None:
    """Saved pages garble formulas, so older text of arXiv wins."""
    arxiv = PaperRecord("π Birds", abstract="With π.", as_of=date(2026, 11, 1))
    page = PaperRecord("pi Birds", abstract="With pi.", tldr="Birds.", listed_on=date(2026, 11, 20))
    combined = fields.combine(
        fields.from_record(page, SourceKind.PAGE), fields.from_record(arxiv, SourceKind.ARXIV)
    ).values
    assert (combined["title"], combined["abstract"], combined["tldr"]) == ("π Birds", "With π.", "Birds.")


def test_poll_without_a_value_keeps_the_stored_one() -> None:
    """The versions of a paper that was split are empty."""
    stored = replace(fields.from_record(PaperRecord("Birds", tldr="Birds."), SourceKind.ARXIV), versions={})
    polled = fields.from_record(PaperRecord("A Bird"), SourceKind.ARXIV, 1)
    combined = fields.combine(stored, polled, is_poll=True).values
    assert (combined["title"], combined["tldr"]) == ("A Bird", "Birds.")


def test_content_hash_ignores_empty_fields() -> None:
    """A new column must not change existing hashes."""
    pigeons = fields.from_record(PaperRecord("Pigeons"), SourceKind.ARXIV)
    more = fields.Fields({**pigeons.values, "new_column": ""}, pigeons.versions)
    assert fields.content_hash(more) == fields.content_hash(pigeons)
