"""Test that the names of organisations are recognised among plain words, and ordinary words are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance import cut_offs, matching, scoring
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.relevance.typed_organizations import MAX_WORDS, OrganizationNames
from app.text.abbreviations import Abbreviations
from app.types import PaperView
from tests.support import sample_archive

NO_ABBREVIATIONS = Abbreviations({}, {})
ORGANIZATIONS = [
    ("NVIDIA", "nvidia"),
    ("AI at Meta", "facebook"),
    ("Microsoft",),
    ("Microsoft Research",),
    ("Deepmind", "google-lab"),
    ("Google",),
    ("The University of Hong Kong", "hkuhk"),
    ("Peking University",),
    ("Sea AI Lab", "sail"),
    ("Together",),
    ("World Models",),
    ("Personalized AI Group",),
]
# "Together" and "World Models" are written in lower case: as many papers do so as come from them.
TEXTS = {
    0: "Together, we put them together.",
    1: "It runs on NVIDIA, see github.com/nvidia and nvidia.com.",
    2: "Robots learn world models.",
}
PAPERS = [
    PaperView(number, f"Pigeons {number}", TEXTS.get(number, "They plan."), organization_names=names)
    for number, names in enumerate(ORGANIZATIONS)
]


def idf(stem: str) -> float:
    """Return a high idf for all words except some of the names."""
    return 3.0 if stem in ("person", "microsoft") else 9.0


NAMES = OrganizationNames(PAPERS, NO_ABBREVIATIONS, idf)


@pytest.mark.parametrize(
    ("interest", "named"),
    [
        ("NVIDIA", ["NVIDIA"]),
        ("nvidia -robot", ["NVIDIA"]),
        ("nvidia GPUs", []),
        ("Meta AI", ["AI at Meta"]),
        ("Meta", []),
        ("Facebook", ["AI at Meta"]),
        ("microsoft", ["Microsoft", "Microsoft Research"]),
        ("Microsoft Research", ["Microsoft Research"]),
        ("deep mind", ["Deepmind"]),
        ("Google DeepMind", ["Deepmind", "Google"]),
        ("Google and Microsoft", ["Deepmind", "Google", "Microsoft", "Microsoft Research"]),
        ("University of Hong Kong", ["The University of Hong Kong"]),
        ("HKU HK", ["The University of Hong Kong"]),
        ("peking", ["Peking University"]),
        ("university", []),  # other names have it elsewhere
        ("lab", []),
        ("AI", []),
        ("personal", []),
        ("Personalized AI Group", ["Personalized AI Group"]),
        ("together", []),
        ("world models", []),
        ('"NVIDIA"', []),
        ('NVIDIA "planning"', ["NVIDIA"]),
        ('NVIDIA robots "planning"', []),
        ("org:NVIDIA", []),
        ("pigeons", []),
    ],
)
def test_named_organizations(interest: str, named: list[str]) -> None:
    """All plain words must be names. Quoted words are searched for in the text."""
    rows = NAMES.rows_named_by(parse(interest))
    assert sorted(PAPERS[row].organization for row in rows) == named


def test_abbreviations_are_no_names() -> None:
    """An interest in "MoE" is one in mixtures of experts, even if an organisation has this name."""
    papers = [PaperView(1, "Pigeons", organization_names=("MoE",))]
    assert OrganizationNames(papers, NO_ABBREVIATIONS, idf).rows_named_by(parse("MoE")) == {0}
    abbreviations = Abbreviations({}, {("mixtur", "expert"): "moe"})
    assert not OrganizationNames(papers, abbreviations, idf).rows_named_by(parse("MoE"))


def test_a_name_outweighs_fewer_ordinary_uses() -> None:
    """ "Apple" is a name if more papers come from it than write about apples."""
    fruit = PaperView(1, "Picking Fruit", "A robot picks an apple.")
    apple = [PaperView(number, "Pigeons", organization_names=("Apple",)) for number in (2, 3)]
    assert OrganizationNames([fruit, *apple], NO_ABBREVIATIONS, idf).rows_named_by(parse("apple")) == {1, 2}
    assert not OrganizationNames([fruit, *apple[:1]], NO_ABBREVIATIONS, idf).rows_named_by(parse("apple"))


def papers_sent(index: matching.MatchIndex, interest: str) -> dict[int, float]:
    """Return {paper id: relevance} for the papers with enough relevance to be sent."""
    [hits] = index.match([parse(interest)])
    return {number: relevance for number, relevance in hits.items() if relevance >= cut_offs.FLOOR}


def test_matching_by_organization() -> None:
    """They match like papers with the interest in their title, and the reason names the organisation."""
    for model in (RelevanceModel.bundled(), sample_archive.trained_model()):
        index = matching.MatchIndex(PAPERS, model)
        query = parse("Microsoft")
        assert papers_sent(index, "Microsoft") == dict.fromkeys((2, 3), scoring.ORGANIZATION_RELEVANCE)
        assert index.reason(query, 3).text == "from Microsoft Research"
        assert index.details(query, 3).from_organization
        assert not index.details(query, 4).from_organization
        assert index.missing_words(query) == []
        assert index.missing_words(parse("Contoso")) == ["Contoso"]
        assert index.match([parse("Microsoft -pigeons")]) == [{}]
        assert index.reason(parse("NVIDIA"), 0).text == "from NVIDIA"
        assert index.reason(parse("facebook"), 1).text == "from AI at Meta (facebook)"
        assert index.reason(parse("Face Book"), 1).text == "from AI at Meta"
        assert index.reason(parse("Google DeepMind"), 4).text == "from Deepmind"


def test_organization_beside_a_phrase() -> None:
    """Papers from the organisation need the phrase, but need not contain the name."""
    texts = [
        ("NVIDIA", "We study world models."),
        ("NVIDIA", "A cat."),
        ("Contoso", "We study world models."),
    ]
    papers = [
        PaperView(number, "Pigeons", text, organization_names=(name,))
        for number, (name, text) in enumerate(texts)
    ]
    index = matching.MatchIndex(papers, RelevanceModel.bundled())
    query = parse('NVIDIA "world models"')
    assert papers_sent(index, query.text) == {0: scoring.ORGANIZATION_RELEVANCE}
    assert index.reason(query, 0).text == "“world models” in the abstract; from NVIDIA"
    assert index.missing_words(query) == []
    assert index.missing_words(parse('NVIDIA "wombat"')) == ["wombat"]


def test_reason_quotes_the_whole_name_only() -> None:
    """A word of the name that occurs in the text is not quoted by itself."""
    paper = PaperView(1, "AI for Pigeons", "At Shanghai AI Lab.", organization_names=("Shanghai AI Lab",))
    index = matching.MatchIndex([paper], RelevanceModel.bundled())
    assert (
        index.reason(parse("Shanghai AI Lab"), 1).text
        == "“Shanghai AI Lab” in the abstract; from Shanghai AI Lab"
    )
    index = matching.MatchIndex(
        [PaperView(1, "AI", organization_names=("Sea AI",))], RelevanceModel.bundled()
    )
    assert index.reason(parse("Sea AI"), 1).text == "from Sea AI"


@given(st.lists(st.sampled_from(["nvidia", "google", "microsoft", "research", "x"]), min_size=1, max_size=99))
def test_any_number_of_names(words: list[str]) -> None:
    """A long interest is not split into names."""
    text = " ".join(words)[:250]
    rows = NAMES.rows_named_by(parse(text))
    assert not rows or len(text.split()) <= MAX_WORDS
