"""Test the parser of pasted reading lists: each part that is not understood is reported."""

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.errors import InvalidInput
from app.papers import bibliography
from app.types import PaperRecord


def parse_one(text: str) -> PaperRecord:
    """Return the only paper of a text that has no rejections."""
    parsed = bibliography.parse(text)
    assert parsed.rejections == ()
    (record,) = parsed.records
    return record


def rejections_of(text: str) -> list[tuple[str, int | None]]:
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
def test_arxiv_ids(typed: str, arxiv_id: str) -> None:
    """It may be an id, a link of any site that uses it, or arXiv's own DOI. The version is removed."""
    assert parse_one(typed).arxiv_id == arxiv_id


@pytest.mark.parametrize(
    "typed", ["10.1145/329.333", "https://doi.org/10.1145/329.333", "doi:10.1145/329.333."]
)
def test_dois(typed: str) -> None:
    """It may stand in a URL of a resolver."""
    assert (parse_one(typed).doi, parse_one(typed).title) == ("10.1145/329.333", "")


@pytest.mark.parametrize(
    "typed",
    [
        "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        "[1] 10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O.",
        "<https://doi.org/10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O>",
        "https://doi.org/10.1002/(SICI)1097-4571(199806)49:8%3C693::AID-ASI4%3E3.0.CO;2-O?from=feed",
        "https://doi.org/10.1002/%28SICI%291097-4571%28199806%2949:8%3C693::AID-ASI4%3E3.0.CO%3B2-O",
    ],
)
def test_doi_with_a_page(typed: str) -> None:
    """Its brackets and semicolon separate nothing."""
    doi = "10.1002/(sici)1097-4571(199806)49:8<693::aid-asi4>3.0.co;2-o"
    assert parse_one(typed) == PaperRecord(title="", doi=doi)


def test_dois_with_pages_among_others() -> None:
    """Ecological journals put the page in square brackets."""
    parsed = bibliography.parse(
        "10.1145/329.333;doi:10.1890/0012-9658(2002)083[2935:DTMPIF]2.0.CO;2,1706.03762 [10.1145/3292500.1] "
        "10.1175/1520-0469(1963)020<0130:DNF>2.0.CO;2;10.1145/329.334"
    )
    assert [record.arxiv_id or record.doi for record in parsed.records] == [
        "10.1145/329.333", "10.1890/0012-9658(2002)083[2935:dtmpif]2.0.co;2", "1706.03762",
        "10.1145/3292500.1", "10.1175/1520-0469(1963)020<0130:dnf>2.0.co;2", "10.1145/329.334",
    ]  # fmt: skip


def test_several_ids_in_a_line() -> None:
    """Any separators are accepted."""
    parsed = bibliography.parse("1706.03762, 1810.04805;2005.14165 10.1145/3292500.3330701")
    assert [record.arxiv_id or record.doi for record in parsed.records] == [
        "1706.03762", "1810.04805", "2005.14165", "10.1145/3292500.3330701",
    ]  # fmt: skip


def test_long_line_of_ids() -> None:
    """No id is left out or cut into the id of another paper."""
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
        (r"$\pi_0$: A Flow Model", "π₀: A Flow Model"),
        ("用于检索的语言模型", "用于检索的语言模型"),
    ],
)
def test_other_lines_are_titles(typed: str, title: str) -> None:
    """List marks are removed, and formulas are converted to Unicode."""
    assert parse_one(typed) == PaperRecord(title=title)


@pytest.mark.parametrize("typed", ["z" * 10_000, "10.1/xyz", "doi:10.12/a.b", "10./x"])
def test_overlong_words_and_malformed_ids_are_rejected(typed: str) -> None:
    """Titles in languages without blanks and titles with ids are accepted."""
    assert rejections_of(typed) == [("neither a title nor a link or ID", 1)]
    assert parse_one("模型" * 30).title == "模型" * 30
    assert parse_one("10.1/xyz and Other Paths").title == "10.1/xyz and Other Paths"
    assert parse_one("Donaudampfschifffahrtselektrizitäten").title


def test_bibtex_names_and_accents() -> None:
    """Field names have any case, values either delimiter, names either order, and “others” is left out."""
    record = parse_one(
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
def test_arxiv_id_in_exported_bibtex(fields: str) -> None:
    """The entries are those of arXiv, Google Scholar, DBLP and reference managers."""
    assert parse_one("@article{x, title = {Attention}, " + fields + "}").arxiv_id == "1706.03762"


def test_text_around_bibtex() -> None:
    """Comments and macros are not papers; two entries with the same key are two papers."""
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
    assert rejections_of(text) == []


def test_invalid_bibtex_entry_is_rejected() -> None:
    """Each rejection has its line, and the papers around it are read."""
    text = "\n".join(
        [
            "1706.03762",
            "???",
            "<https://openreview.net/forum?id=abc>",
            "https://arxiv.org/abs/9999.12345",
            "@article{never, title = {closed",
            "@misc{empty, year = 2020}",
            "@article{fine, title = {Fine}}",
            "A Title at the End",
        ]
    )
    assert rejections_of(text) == [
        ("neither a title nor a link or ID", 2),
        ("a link without a valid arXiv ID or DOI", 3),
        ("a link without a valid arXiv ID or DOI", 4),
        ("a BibTeX entry that lacks a brace, quotation mark or comma", 5),
        ("a BibTeX entry without title, DOI or arXiv ID", 6),
    ]
    assert [record.title for record in bibliography.parse(text).records] == ["", "Fine", "A Title at the End"]


def test_at_most_two_hundred_papers() -> None:
    """A rejection says that there were more."""
    parsed = bibliography.parse("\n".join(f"Paper Number {n}" for n in range(250)))
    assert [parsed.records[-1].title, len(parsed.records)] == ["Paper Number 199", 200]
    assert [rejection.reason for rejection in parsed.rejections] == [
        "only the first 200 papers were read: add the rest separately"
    ]


def test_text_with_many_errors_is_abandoned() -> None:
    """The first rejection says so, because a page shows only the first ones."""
    parsed = bibliography.parse_file(b"a\n" * 290_000)
    assert [len(parsed.rejections), parsed.rejections[1].row, parsed.rejections[-1].row] == [201, 1, 200]
    assert parsed.rejections[0].reason == "200 entries could not be read, so the rest was left out"
    mixed = bibliography.parse("?\n" * 150 + "\n".join(f"Paper Number {n}" for n in range(250)))
    assert [mixed.rejections[0].reason, len(mixed.rejections)] == [
        "only the first 200 papers were read: add the rest separately", 151,
    ]  # fmt: skip


def test_size_limit() -> None:
    """The error says what to do. The limit counts bytes."""
    bibliography.parse("é" * 100_000)
    with pytest.raises(InvalidInput, match="200 kB"):
        bibliography.parse("é" * 100_001)


def test_bibtex_macros_are_not_expanded_without_limit() -> None:
    """A small text could expand to any size."""
    text = "@string{a = {" + "word " * 10_000 + "}}\n" + "@misc{b, title = a, abstract = a}\n" * 250
    records = bibliography.parse(text).records
    assert max(len(record.title + record.abstract) for record in records) < 1000


# --- what reference managers export

ZOTERO = r"""@misc{vaswani_attention_2023,
	title = {Attention {Is} {All} {\textless}You{\textgreater} {Need}},
	url = {http://arxiv.org/abs/1706.03762},
	doi = {10.48550/arXiv.1706.03762},
	abstract = {Recurrent models \{of 50\% size\} cost \$5.},
	author = {Vaswani, Ashish and Kaiser, Łukasz},
	month = aug,
	note = {arXiv:1706.03762 [cs]},
	annote = {Comment: see arXiv:1111.11111},
	file = {Full Text PDF:/home/a/AB/Vaswani et al. - 2023.pdf:application/pdf;Snap\{shot:C\:\\x:text/html},
}
"""
RIS = """TY  - UNPB
TI  - Attention <i>Is</i> All <You> Need
AU  - Vaswani, Ashish
AU  - Kaiser, Łukasz
AB  - Recurrent models
of 50% size cost $5.
DA  - 2023/08/02/
UR  - http://arxiv.org/abs/1706.03762
DO  - 10.48550/arXiv.1706.03762
ER  -
"""
CSL = """[{"id": "vaswani", "type": "article", "title": "Attention <i>Is</i> All &lt;You&gt; Need",
"abstract": "<jats:p>Recurrent models of 50% size cost $5.</jats:p>", "DOI": "10.48550/arXiv.1706.03762",
"author": [{"family": "Vaswani", "given": "Ashish"}, {"literal": "Łukasz Kaiser"}, 7],
"note": "arXiv:1706.03762 [cs]", "issued": {"date-parts": [["2023", 8]]}}]"""
CSV = """\ufeff"Key","Item Type","Author","Title","DOI","Url","Abstract Note","Extra"
"A","preprint","Vaswani, Ashish; Kaiser, Łukasz","Attention Is All <You> Need","10.48550/arXiv.1706.03762",\
"http://arxiv.org/abs/1706.03762","Recurrent models
of 50% size cost $5.","arXiv:1706.03762 [cs]"
"""


@pytest.mark.parametrize("text", [ZOTERO, RIS, CSL, CSV], ids=["BibTeX", "RIS", "CSL JSON", "CSV"])
def test_formats_are_detected(text: str) -> None:
    """The same paper gives the same record in every format, without markup, files and other papers' ids."""
    record = parse_one(text)
    assert record.abstract == "Recurrent models of 50% size cost $5."
    assert (record.title, record.authors) == (
        "Attention Is All <You> Need",
        ("Ashish Vaswani", "Łukasz Kaiser"),
    )
    assert (record.arxiv_id, record.doi) == ("1706.03762", "10.48550/arxiv.1706.03762")


def test_biblatex_fields() -> None:
    """It has eprints, subtitles and names in parts; `date`, `file` and the type are ignored."""
    text = r"""@online{a, title = {One}, subtitle = {Two}, date = {2023-08-02}, eprint = {1706.03762 [cs]},
      eprinttype = {arxiv}, author = {family=Berg, given=Anna, prefix=van der, useprefix=true and {The Team}}}
    @article{b, title = {Three}, eprint = {1706.0376}, eprinttype = {pmid}, doi = {10.1007/978-3\_1}}
    @misc{c, number = {{arXiv}:1810.04805}, publisher = {{arXiv}}, file = {/home/x.pdf;/home/y z.html}}"""
    first, second, third = bibliography.parse(text).records
    assert (first.title, first.arxiv_id, first.authors) == (
        "One: Two",
        "1706.03762",
        ("Anna van der Berg", "The Team"),
    )
    assert (second.arxiv_id, second.doi, third.arxiv_id) == ("", "10.1007/978-3_1", "1810.04805")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_of_tables(delimiter: str) -> None:
    """Excel separates columns with semicolons in German, French and other languages."""
    rows = [["Title", "Authors", "DOI"], ["Owls at Noon", '"Tanaka, Mei; Lee, Ann"', "10.1234/owls.1"]]
    parsed = bibliography.parse("\n".join(map(delimiter.join, rows)))
    assert parsed.rejections == ()
    (record,) = parsed.records
    assert (record.title, record.doi) == ("Owls at Noon", "10.1234/owls.1")
    assert record.authors == ("Mei Tanaka", "Ann Lee")


def test_invalid_entry_in_every_format() -> None:
    """Its rejection has a location and a reason; an entry without an end ends where the next begins."""
    ris = "TY  - JOUR\nTI  - One\nTY  - JOUR\nID  - x\nER  - \n1706.03762\nTI  - Two\nAU  - A, B, Jr."
    assert [record.title for record in bibliography.parse(ris).records] == ["One", "", "Two"]
    assert rejections_of(ris) == [("a RIS entry without title, DOI or arXiv ID", 3)]
    csl = '[{"id": "x"}, 7, {"title": "One"}, {"title": "cut'
    assert [record.title for record in bibliography.parse(csl).records] == ["One"]
    assert [rejection.detail for rejection in bibliography.parse(csl).rejections] == [
        "x", "number 2", "3 complete rows were read",
    ]  # fmt: skip
    csv = 'Title,DOI\nOne,\n,\n\n-,"a\nb"\n"",10.1/x\nTwo'
    assert [record.title for record in bibliography.parse(csv).records] == ["One", "-", "Two"]
    assert rejections_of(csv) == [("a row of the table without title, DOI or arXiv ID", 7)]
    long = "Title,DOI\nOne,\n" + "x" * 140_000
    assert rejections_of(long) == [("a table that is broken from here on", 3)]


@pytest.mark.parametrize("head", ["title,doi," + "x" * 150_000, 'title,doi,"\n' + "x" * 150_000])
def test_table_with_an_invalid_header(head: str) -> None:
    """Its beginning looks like a table. Files and pasted texts give the same rejection."""
    assert rejections_of(head) == [("a table that is broken from here on", 1)]
    assert [rejection.row for rejection in bibliography.parse_file(head.encode()).rejections] == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '<?xml version="1.0"?><rdf:RDF/>',
            "XML, RDF or a web page: please export BibTeX, RIS or CSL JSON instead",
        ),
        ("<!DOCTYPE html>", "XML, RDF or a web page: please export BibTeX, RIS or CSL JSON instead"),
        ('{"a', "JSON that cannot be read"),
    ],
)
def test_unsupported_format_suggests_an_export(text: str, reason: str) -> None:
    """There is one rejection, not one per line."""
    assert rejections_of(text) == [(reason, None)]


@pytest.mark.parametrize(
    "data", ["é".encode(), "é".encode("latin-1"), b"\xef\xbb\xbf\xc3\xa9", "é".encode("utf-16")]
)
def test_file_encodings(data: bytes) -> None:
    """UTF-8 with or without a byte order mark, and older encodings."""
    title = b"@a{b, title = {Caf\xe9 \x96}}"
    assert bibliography.parse_file(title).records[0].title == "Café –"
    (record,) = bibliography.parse_file(data * 2).records
    assert record.title.strip("\ufeff") == "éé"


@pytest.mark.parametrize("data", [b"x" * 600_001, b"%PDF-1.7", b"PK\x03\x04\x00"])
def test_binary_or_large_file_is_refused(data: bytes) -> None:
    """The error says what to choose instead. Files may be three times as large as pasted texts."""
    bibliography.parse_file(b"x" * 600_000)
    with pytest.raises(InvalidInput, match=r"please (export fewer|choose BibTeX)") as refused:
        bibliography.parse_file(data)
    assert refused.value.field == "file"


EXPORTED = st.lists(
    st.sampled_from(
        ["TY  - ", "ER  - ", "TI  - ", "AU  - ", "DO  - ", "UR  - ", "title,doi\n", '"', ",", "\n", "\r", ";",
         '[{"', "{", "}", "[", "]", ":", '"title"', '"author"', '"given"', '"DOI"', "null", "7", "1e999",
         "\\ud800", "1706.03762", "10.1145/1.2", "<i>", "&#0;", "&lt;", "<?xml", "\x00", "\ufeff", "\ud800",
         "é", "@a{b,"]
    )
)  # fmt: skip
BIBTEX = st.lists(
    st.sampled_from(
        ["@article{", "@misc(", "@string{", "@comment", "{", "}", '"', "=", ",", "#", "\\", "$", "\n",
         " and ", "title", "author", "abstract", "doi", "eprint", "key", "1706.03762", "10.1145/1.2", "x, y",
         "%", "~", "https://", "\x00", "\ud800", "é", r"\'e", r"\begin{x}"]
    )
)  # fmt: skip


@settings(deadline=None)  # the machine may be busy
@given(st.one_of(st.text(), BIBTEX.map("".join), EXPORTED.map("".join)))
@example('[{"title":"\\ud800","author":[{"given":7,"family":"\\u0000"}],"DOI":[]}]')
@example("TY  - x\nAU  - ,,\nTI  - &#55296;&#0;")
@example('@a{b,title="{"}')
@example("@a{b,author={, ,}}")
@example("@a(b,title={)}")
@example("\\AB")
def test_any_text_can_be_parsed(text: str) -> None:
    """Nothing is raised; every record names a paper, in text that is valid for a database and an email."""
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


@settings(deadline=None)
@given(st.binary())
@example(b"\xff\xfeT")
def test_any_file_is_parsed_or_refused(data: bytes) -> None:
    """People may choose any file."""
    with suppress(InvalidInput):
        assert bibliography.parse_file(data).rows >= 0
