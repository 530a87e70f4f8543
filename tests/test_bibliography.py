"""What people paste to say which papers they like is understood, or it is said what was not."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app import bibliography
from app.errors import InvalidInput
from app.records import PaperRecord


def only(text: str) -> PaperRecord:
    """The one paper of a text in which everything was understood."""
    parsed = bibliography.parse(text)
    assert parsed.rejections == ()
    (record,) = parsed.records
    return record


def complaints(text: str) -> list[tuple[str, int | None]]:
    return [(rejection.reason, rejection.row) for rejection in bibliography.parse(text).rejections]


@pytest.mark.parametrize(
    ("typed", "arxiv_id"),
    [
        ("1706.03762", "1706.03762"),
        ("  1706.03762v5\r", "1706.03762"),
        ("arXiv:1706.03762 [cs.CL]", "1706.03762"),
        ("arXiv: 1706.03762", "1706.03762"),
        ("https://arxiv.org/abs/1706.03762v5", "1706.03762"),
        ("http://arxiv.org/pdf/1706.03762.pdf", "1706.03762"),
        ("https://huggingface.co/papers/1706.03762?ref=mail#top", "1706.03762"),
        ("https://doi.org/10.48550/arXiv.1706.03762", "1706.03762"),
        ("[3] 1706.03762v1 Attention Is All You Need", "1706.03762"),
        ("[1706.03762] Attention Is All You Need", "1706.03762"),
        ("<https://arxiv.org/abs/1706.03762>", "1706.03762"),
        ("hep-th/9901001", "hep-th/9901001"),
    ],
)
def test_an_arxiv_id_is_found_however_it_is_written(typed: str, arxiv_id: str) -> None:
    """As an id, a link of any site that uses it, or arXiv's own DOI; without its version."""
    assert only(typed).arxiv_id == arxiv_id


@pytest.mark.parametrize(
    "typed", ["10.1145/329.333", "https://doi.org/10.1145/329.333", "doi:10.1145/329.333."]
)
def test_a_doi_is_found(typed: str) -> None:
    """With its resolver or without."""
    assert (only(typed).doi, only(typed).title) == ("10.1145/329.333", "")


def test_several_ids_may_stand_in_a_line() -> None:
    """However they are parted."""
    parsed = bibliography.parse("1706.03762, 1810.04805;2005.14165 10.1145/3292500.3330701")
    assert [record.arxiv_id or record.doi for record in parsed.records] == [
        "1706.03762", "1810.04805", "2005.14165", "10.1145/3292500.3330701",
    ]  # fmt: skip


def test_a_line_of_ids_may_be_long() -> None:
    """None of them is left out, nor cut into the id of another paper."""
    ids = [f"1706.{number:05}" for number in range(150)]
    parsed = bibliography.parse(",".join(ids))
    assert [record.arxiv_id for record in parsed.records] == ids


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        ("Attention Is All You Need", "Attention Is All You Need"),
        ("- BERT: Pre-training", "BERT: Pre-training"),
        ("12. 3D Gaussian Splatting", "3D Gaussian Splatting"),
        ("(3) GPT-4. A Study", "GPT-4. A Study"),
        ("Fast - and Slow - Thinking", "Fast - and Slow - Thinking"),
        (r"$\pi_0$: A Flow Model", "π_0: A Flow Model"),
        ("用于检索的语言模型", "用于检索的语言模型"),
    ],
)
def test_any_other_line_is_a_title(typed: str, title: str) -> None:
    """Without the mark of the list that it stood in, and its formulas as people read them."""
    assert only(typed) == PaperRecord(title=title)


def test_bibtex_is_read_with_its_names_and_accents() -> None:
    """Field names of any case, either enclosing, names in either order, “others” left out."""
    record = only(
        r"""@inproceedings{key,
          Title = "G{\"o}del's {\emph Second} Theorem, 50\% \& more",
          author = {G{\"o}del, Kurt and van der Berg, Anna and {The {BERT} Team} and others},
          abstract = {We prove
             that $\alpha$ exists.},
          doi = {https://doi.org/10.1000/XYZ.1},
          year = 1931 }"""
    )
    assert record == PaperRecord(
        title="Gödel's Second Theorem, 50% & more",
        authors=("Kurt Gödel", "Anna van der Berg", "The BERT Team"),
        abstract="We prove that α exists.",
        doi="10.1000/xyz.1",
    )


@pytest.mark.parametrize(
    "fields",
    [
        "eprint = {1706.03762}, archivePrefix = {arXiv}",
        "eprint = {arXiv:1706.03762v5}",
        "journal = {arXiv preprint arXiv:1706.03762}",
        "journal = {CoRR}, volume = {abs/1706.03762}",
        "url = {https://arxiv.org/abs/1706.03762}",
        "doi = {10.48550/arXiv.1706.03762}",
    ],
)
def test_an_arxiv_id_is_found_where_exporters_put_it(fields: str) -> None:
    """arXiv's own BibTeX, Google Scholar's, DBLP's, and what reference managers write."""
    assert only("@article{x, title = {Attention}, " + fields + "}").arxiv_id == "1706.03762"


def test_text_around_bibtex_is_read_too() -> None:
    """Comments and macros of a file are no papers; a key that is there twice is two papers."""
    text = """% Encoding: UTF-8
    @string{long = {A Title From a Macro}}
    @comment{jabref-meta: databaseType:bibtex;}
    @article{one, title = long}
    1706.03762
    @article{one, title = {Another}, title = {Ignored}}
    # a remark
    @string{long = {Once More}}
    """
    records = bibliography.parse(text).records
    assert [record.title or record.arxiv_id for record in records] == [
        "A Title From a Macro", "1706.03762", "Another",
    ]  # fmt: skip
    assert complaints(text) == []


def test_what_is_broken_costs_itself_alone() -> None:
    """Each complaint names its line, and the papers around it are read."""
    text = "\n".join(
        [
            "1706.03762",
            "???",
            "<https://openreview.net/forum?id=abc>",
            "@article{never, title = {closed",
            "@misc{empty, year = 2020}",
            "@article{fine, title = {Fine}}",
            "A Title at the End",
        ]
    )
    assert complaints(text) == [
        ("neither a title nor a link or id", 2),
        ("a link in which no arXiv id or DOI stands", 3),
        ("a BibTeX entry with a brace, quotation mark or comma too few", 4),
        ("a BibTeX entry without title, DOI or arXiv id", 5),
    ]
    assert [record.title for record in bibliography.parse(text).records] == ["", "Fine", "A Title at the End"]


def test_two_hundred_papers_are_read_at_once() -> None:
    """The first ones; that there were more is said."""
    parsed = bibliography.parse("\n".join(f"Paper Number {n}" for n in range(250)))
    assert [parsed.records[-1].title, len(parsed.records)] == ["Paper Number 199", 200]
    assert [rejection.reason for rejection in parsed.rejections] == [
        "only 200 papers are read at once: the rest is left out"
    ]


def test_more_than_two_hundred_kilobytes_are_refused() -> None:
    """As a whole, with what to do: in bytes, as the wire counts."""
    bibliography.parse("é" * 100_000)
    with pytest.raises(InvalidInput, match="200 kB"):
        bibliography.parse("é" * 100_001)


def test_a_macro_cannot_stand_for_a_book() -> None:
    """A few letters repeated would otherwise become more text than there is room for."""
    text = "@string{a = {" + "word " * 10_000 + "}}\n" + "@misc{b, title = a, abstract = a}\n" * 250
    records = bibliography.parse(text).records
    assert max(len(record.title + record.abstract) for record in records) < 1000


BIBTEX = st.lists(
    st.sampled_from(
        ["@article{", "@misc(", "@string{", "@comment", "{", "}", '"', "=", ",", "#", "\\", "$", "\n",
         " and ", "title", "author", "abstract", "doi", "eprint", "key", "1706.03762", "10.1145/1.2", "x, y",
         "%", "~", "https://", "\x00", "\ud800", "é", r"\'e", r"\begin{x}"]
    )
)  # fmt: skip


@settings(deadline=None)  # a busy machine is no fault of the text
@given(st.one_of(st.text(), BIBTEX.map("".join)))
@example('@a{b,title="{"}')
@example("@a{b,author={, ,}}")
@example("@a(b,title={)}")
@example("\\AB")
def test_any_text_at_all_is_read(text: str) -> None:
    """Nothing is raised; every record names a paper, in texts that a database and a mail can hold."""
    parsed = bibliography.parse(text)
    assert parsed.rows == len(parsed.records) + len(parsed.rejections)
    for record in parsed.records:
        assert record.title or record.arxiv_id or record.doi
        for value in (record.title, record.abstract, record.arxiv_id, record.doi, *record.authors):
            assert "\x00" not in value
            value.encode()
            assert "\n" not in value
    for rejection in parsed.rejections:
        (rejection.reason + rejection.detail).encode()
