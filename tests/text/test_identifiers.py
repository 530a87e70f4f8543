"""Test finding DOIs and arXiv ids in texts and URLs."""

import pytest

from app.relevance.arxiv_categories import CATEGORIES
from app.text import identifiers


@pytest.mark.parametrize(
    ("value", "doi"),
    [
        ("https://doi.org/10.1234/Pigeons.1?from=feed", "10.1234/pigeons.1"),
        ("doi:10.1234/pigeons.1.", "10.1234/pigeons.1"),
        ("<b>10.1234/pigeons.1</b>", "10.1234/pigeons.1"),
        (
            "10.1002/(SICI)1097-0258(19980815)17:15/16<1661::AID-SIM968>3.0.CO;2-2",
            "10.1002/(sici)1097-0258(19980815)17:15/16<1661::aid-sim968>3.0.co;2-2",
        ),
        (
            "<i>10.1002/(SICI)1097-0258(19980815)17:15/16<1703::AID-SIM969>3.0.CO;2-#</i>",
            "10.1002/(sici)1097-0258(19980815)17:15/16<1703::aid-sim969>3.0.co;2-#",
        ),
        (
            "https://journals.example/10.1175/1520-0469(1963)020<0130:DNF>2.0.CO;2",
            "10.1175/1520-0469(1963)020<0130:dnf>2.0.co;2",
        ),
        (
            "https://doi.org/10.1890/0012-9658(2002)083%5B2935:DTMPIF%5D2.0.CO;2",
            "10.1890/0012-9658(2002)083[2935:dtmpif]2.0.co;2",
        ),
        ("version 10.1 of 2026", ""),
        ("https://doi.org/10.1234%2Fpigeons.1", "10.1234/pigeons.1"),
        ("https://doi.org/10.1234/pigeons.pdf", "10.1234/pigeons.pdf"),
        ("10.1234/41173(414)", "10.1234/41173(414)"),
        ("(see 10.1234/41173(414)).", "10.1234/41173(414)"),
        ("https://birds.example/articles/10.1234/pigeons.1/full", "10.1234/pigeons.1"),
        ("https://birds.example/doi/10.1234/pigeons.1/abstract?rss=yes", "10.1234/pigeons.1"),
        ("https://birds.example/pdf/10.1234/pigeons.1.pdf", "10.1234/pigeons.1"),
        ("https://www.biorxiv.org/content/10.1101/2026.11.01.512345v1?rss=1", "10.1101/2026.11.01.512345"),
        (
            "https://www.medrxiv.org/content/10.64898/2026.11.01.512345v2.full.pdf",
            "10.64898/2026.11.01.512345",
        ),
        ("www.biorxiv.org/content/10.1101/573887v12.full-text", "10.1101/573887"),
        ("https://genome.example/doi/10.1101/gr.275790.121", "10.1101/gr.275790.121"),
        ("https://birds.example/doi/10.1234/full", ""),
        ("https://birds.example/doi/10.1234/full/abstract", ""),
        ("https://birds.example/doi/10.1234/pigeons.1/full/", "10.1234/pigeons.1"),
        ("https://doi.org/10.1234/pigeons.1/", "10.1234/pigeons.1"),
        ("https://dx.doi.org//10.1234/pigeons.html", "10.1234/pigeons.html"),
        ("https://doi.org/doi/10.1234/pigeons.pdf", "10.1234/pigeons.pdf"),
        ("https://zenodo.example/doi/10.1234/pigeons.pdf", "10.1234/pigeons"),
        ("https://birds.example/article?id=10.1234/pigeons.1&type=printable", "10.1234/pigeons.1"),
        (
            "https://birds.example/?u=https%3A%2F%2Fa.test%2F10.1234%2Fpigeons%26utm_source%3D1",
            "10.1234/pigeons",
        ),
        ("https://birds.example/10.1234/pigeons&owls", "10.1234/pigeons&owls"),
        ("((10.1234/41173(414)).,)", "10.1234/41173(414)"),
    ],
)
def test_doi(value: str, doi: str) -> None:
    """A DOI may contain the page in brackets. The address of a page may contain more than the DOI."""
    assert identifiers.doi(value) == doi


@pytest.mark.parametrize(
    "value",
    [
        "{}<br>Next",
        "<a href='https://doi.org/{}'>A paper</a>",
        "https://doi.org/{}?from=feed",
        "{}<span>",
        "{}. Next",
        "https://doi.org/10.1002/(SICI)1097-0258(19980815)17:15/16%3C1661::AID-SIM968%3E3.0.CO;2-2",
        "https://doi.org/10.1002/%28sici%291097-0258%2819980815%2917:15/16%3c1661::aid-sim968%3e3.0.co%3b2-2",
    ],
)
def test_doi_with_a_page_has_an_end(value: str) -> None:
    """It ends with a check character, and is the same if a URL encodes the brackets."""
    doi = "10.1002/(sici)1097-0258(19980815)17:15/16<1661::aid-sim968>3.0.co;2-2"
    assert identifiers.doi(value.format(doi)) == doi


@pytest.mark.parametrize(
    ("value", "arxiv_id"),
    [
        ("https://arxiv.org/abs/2611.00001v2", "2611.00001"),
        ("0704.0001", "0704.0001"),
        ("1412.1234", "1412.1234"),
        ("1412.12345", ""),
        ("1501.00001", "1501.00001"),
        ("1501.0001", ""),
        ("https://lab.example/arxiv-notes/2012.1127", ""),
        ("arXiv:math.GT/0309136", "math.GT/0309136"),
        ("https://arxiv.org/abs/hep-th/9901001v3", "hep-th/9901001"),
        ("https://lab.example/arxiv-notes/2026.1127", ""),
        ("https://arxiv-fans.example/news/2026112", ""),
        ("https://arxiv-fans.example/math/2026112", ""),
        ("https://lab.example/arxiv/0000.0000", ""),
    ],
)
def test_arxiv_id(value: str, arxiv_id: str) -> None:
    """It begins with a year and a month, or with the name of an archive. It has five digits since 2015."""
    assert identifiers.arxiv_id(value)[0] == arxiv_id


def test_arxiv_category() -> None:
    """Not all have two letters after the dot, for example physics.optics and cond-mat.dis-nn."""
    assert [name for name in CATEGORIES if not identifiers.ARXIV_CATEGORY.fullmatch(name)] == []
    wrong = ["cs.CL stat.ML", "cs.CL,", "cs.", "cs.cl.", "Computer Vision", "cs.COMP", "physics.-ph", ""]
    assert [name for name in wrong if identifiers.ARXIV_CATEGORY.fullmatch(name)] == []
