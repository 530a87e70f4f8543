"""Test filters: required and excluded phrases, authors, organisations and categories."""

import itertools
from collections.abc import Sequence, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInterest
from app.relevance.bm25 import Matrix
from app.relevance.filters import Filters
from app.relevance.highlights import PaperText
from app.relevance.model import TermStatistics
from app.relevance.muted_texts import parse_muted
from app.relevance.query_language import FilterField, Query, parse
from app.relevance.query_rewriting import query_for
from app.text.abbreviations import Abbreviations
from app.text.tokenizer import STOP_STEMS, WORD, content_stems
from app.text.word_forms import is_same_word, stem
from app.types import PaperView

ABBREVIATIONS = Abbreviations(
    {("fine", "tune"): "finetun"},
    {("larg", "languag", "model"): "llm"},
    split_compounds=frozenset({"finetun"}),
)
PAPER = PaperView(
    1,
    "Drafting for Large Language Models",
    "Speculative decoding of LLMs, by José. Decoding twice: drafts, and models.",
    ("Grace Hopper", "José García"),
    organization_names=("AI at Météo, Paris", "meteo-lab"),
    categories=("cs.CL", "stat.ML"),
)
OTHER = PaperView(2, "Cats")
FILTERS = Filters([OTHER, PAPER], ABBREVIATIONS)


@pytest.mark.parametrize(
    ("interest", "reason"),
    [
        ("decoding", ""),
        ('"speculative decoding" author:garcia cat:cs', ""),
        ("decoding -drafts", "it contains a word or phrase that the interest excludes"),
        ("decoding -author:hopper", "it is by an author whom the interest excludes"),
        ("decoding -org:meteo", "it is from an organization that the interest excludes"),
        ("decoding -cat:stat", "it is filed under a category that the interest excludes"),
        ('"tree attention"', "it does not contain a phrase in quotes"),
        ("author:hop", "it is by other authors"),
        ("org:METEO", ""),
        ('org:"ai at meteo"', ""),
        ("org:Météo-Lab", ""),
        ("org:nvidia org:lab", ""),
        ("org:met", "it is from another organization"),
        ('org:"meteo ai"', "it is from another organization"),
        ("org:Paris cat:cs.CV", "it is filed under other categories"),
        ("cat:cs.CV", "it is filed under other categories"),
        ("cat:c", "it is filed under other categories"),
        ('"tree attention" -drafts', "it contains a word or phrase that the interest excludes"),
        ('"drafts, and models"', ""),
        ('"decoding speculative"', "it does not contain a phrase in quotes"),
        ('"language model"', ""),  # other forms of the words
        ('"decoder"', ""),
        ('"speculation"', "it does not contain a phrase in quotes"),  # only the stem is the same
        (
            '"models speculative"',
            "it does not contain a phrase in quotes",
        ),  # the title ends, the abstract begins
        ('"jose"', ""),
        ("decoding on-policy", "it does not contain “on-policy” as a whole"),
        ("decoding (Qwen2.5-VL)", "it does not contain “Qwen2.5-VL” as a whole"),
        ("decoding -GPT-5 org:GPT-5 GPT-5,", "it does not contain “GPT-5” as a whole"),
    ],
)
def test_rejection_reasons(interest: str, reason: str) -> None:
    """The reason names exclusions before unmet requirements."""
    query = parse(interest)
    assert FILTERS.rejection_reason(query, 1) == reason
    assert FILTERS.passing_mask(query)[1] == (not reason)


@pytest.mark.parametrize("name", ["Anna Großmann", "İbrahim Yılmaz", "Νίκος Παπαδόπουλος", "Łukasz Kaiser"])
def test_names_with_letters_that_case_folding_replaces(name: str) -> None:
    """Papers with such a name can be followed and muted."""
    paper = PaperView(1, "Cats", authors=(name,), organization_names=(name,), categories=(name,))
    filters = Filters([paper], ABBREVIATIONS)
    for field in FilterField:
        query = parse(query_for(field, name))
        assert (filters.rejection_reason(query, 0), filters.passing_mask(query).tolist()) == ("", [True])
        assert filters.excluded_mask(parse_muted(f'{field}:"{name}"')).tolist() == [True]


@pytest.mark.parametrize(
    ("typed", "is_author"),
    [
        ("Donald E. Knuth", (True, True)), ("Donald Knuth", (True, True)), ("Knuth, Donald F.", (True, True)),
        ("E. Knuth", (True, False)), ("Knuth", (True, True)), ("D. Knuth", (False, False)),
    ],
)  # fmt: skip
def test_middle_initials_do_not_tell_authors_apart(typed: str, is_author: tuple[bool, bool]) -> None:
    """As in likes, a paper may spell a name with or without them. A typed initial is found as before."""
    authors = ("Donald E. Knuth", "Donald Knuth")
    papers = [PaperView(number, "Cats", authors=(name,)) for number, name in enumerate(authors)]
    query = parse(query_for("author", typed))
    assert tuple(Filters(papers, ABBREVIATIONS).passing_mask(query).tolist()) == is_author
    names = query.required[FilterField.AUTHOR]
    assert (
        tuple(bool(PaperText(paper, ABBREVIATIONS).matching_authors(names)) for paper in papers) == is_author
    )


def test_field_that_no_source_gives() -> None:
    """The reason says that the paper lacks it. A field is absent if all papers lack it."""
    reasons = [FILTERS.rejection_reason(parse(text), 0) for text in ("org:meteo", "cat:cs")]
    assert reasons == ["no source names its organization", "no source gives its categories"]
    query = parse("decoding org:meteo cat:cs author:x")
    assert FILTERS.absent_fields(query) == []
    filters = Filters([OTHER], ABBREVIATIONS)
    assert filters.absent_fields(query) == ["an organization", "a category"]
    assert Filters([], ABBREVIATIONS).absent_fields(query) == []
    assert filters.absent_fields(parse("decoding -org:meteo -cat:cs")) == []


@pytest.mark.parametrize(
    ("interest", "passing"),
    [
        ("SWE-bench", [True, False, True]),
        ("GPT-5", [False, True, False]),  # with a number, it is always a name
        ("LLM-based", [True, True, True]),  # frequent words, seldom together
        ("NEW-thing", [False, False, False]),  # too rare to be ordinary words
        ("swe-bench", [True, True, True]),
    ],
)
def test_hyphenated_name_must_occur_as_a_whole(interest: str, passing: list[bool]) -> None:
    """Whether it is a name depends on how often its words are neighbours in the archive."""
    counts = {"swe": 40, "bench": 50, "swe bench": 20, "llm": 400, "base": 300, "llm base": 90, "gpt": 300}
    papers = [
        PaperView(1, "Agents on SWE-bench Verified", "LLM"),
        PaperView(2, "A Bench for GPT-5", "SWE tasks, based on 5 tests"),
        PaperView(3, "SWE Bench, Again"),
    ]
    filters = Filters(papers, ABBREVIATIONS, TermStatistics(1000, counts, 8.0, 150.0))
    assert filters.passing_mask(parse(interest)).tolist() == passing


@pytest.mark.parametrize(
    ("interest", "title", "is_passing"),
    [
        ("video-to-video", "Videos. On Video", False),
        ("video-to-video", "Editing Videos to Video", True),
        ("agent-to-agent", "Agents, Agents", False),
        ("token-by-token", "Tokens of Tokens", False),
        ("day-to-day", "Day-to-day Tasks", True),
        ("on-line learning", "Online Learning", True),
        ("in-painting", "Inpaints Pictures", True),
        ("in-painting", "Paintings in Museums", False),
    ],
)
def test_compound_with_one_content_word_must_occur_as_a_whole(
    interest: str, title: str, is_passing: bool
) -> None:
    """Its other words tell it apart from papers that only contain the content word."""
    assert Filters([PaperView(1, title)], ABBREVIATIONS).passing_mask(parse(interest)).tolist() == [
        is_passing
    ]


@pytest.mark.parametrize(
    ("interest", "excluded"),
    [
        ("decoding -LLM", True),  # the title has the long form
        ("decoding -by-drafts", False),  # it has "drafts", but not the typed word
        ('decoding -"drafting for"', True),
        ('decoding -"large language models"', True),
        ('decoding -"LLM drafting"', False),  # both occur, but not next to each other
        ('decoding -"drafting for LLMs"', True),  # one word has its long form
        ("decoding -language", True),  # a short form also matches
        ('decoding -"small language models"', False),
        ('decoding -"the"', False),
        ("decoding -VLM", False),
        ("decoding", False),
    ],
)
def test_exclusion_of_abbreviations(interest: str, excluded: bool) -> None:
    """An excluded short form excludes its long form, too, and the other way round."""
    paper = PaperView(1, "Drafting for LLMs", "Speculative decoding.")
    assert Filters([OTHER, paper], ABBREVIATIONS).excluded_mask(parse(interest)).tolist() == [False, excluded]


@pytest.mark.parametrize(
    ("word", "abstract", "is_mentioned"),
    [
        ("experience", "Experiments with users.", False),
        ("experience", "Experiments on experiences.", True),
        ("medication", "Medical images.", False),
        ("digits", "Digital twins.", False),
        ("relativity", "Relative poses.", False),
        ("animal", "Animated faces.", False),
        ("verify", "Verified proofs.", True),
        ("alignment", "Aligning models.", True),
        ("quantisation", "Quantized weights.", True),
        ("social experience", "Social experiments.", False),
        ("finetuning", "Fine-tuned models.", True),
        ("fine-tuning experience", "Finetuning experiments.", False),
    ],
)
def test_forms_of_words(word: str, abstract: str, is_mentioned: bool) -> None:
    """Muted and excluded words match in all forms. Other words with the same stem don't count."""
    filters = Filters([OTHER, PaperView(1, "A Study", abstract)], ABBREVIATIONS)
    assert filters.excluded_mask(parse_muted(word)).tolist() == [False, is_mentioned]
    assert filters.excluded_mask(parse(f'cats -"{word}"')).tolist() == [False, is_mentioned]


def test_equal_exclusions_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the most expensive clauses."""
    lookups: list[Sequence[str]] = []
    original = Filters._mentioning

    def counting(self: Filters, phrase: Sequence[str], capitals: Set[str]) -> Matrix:
        lookups.append(phrase)
        return original(self, phrase, capitals)

    monkeypatch.setattr(Filters, "_mentioning", counting)
    FILTERS.passing_mask(parse("policies -bandit -robot -Bandit"))
    assert len(lookups) == 2


def is_in(phrase: Sequence[str], text: Sequence[str]) -> bool:
    """Return True if forms of the words of a phrase follow each other. A term for several words is a stem."""
    runs = [text[at : at + len(phrase)] for at in range(len(text) - len(phrase) + 1)] if phrase else []
    return any(all(map(is_form, phrase, run)) for run in runs)


def is_form(word: str, other: str) -> bool:
    if "*" in word or "*" in other:
        return stem(word.strip("*")) == stem(other.strip("*"))
    return stem(word) == stem(other) and is_same_word(word, other)


def fold(words: Sequence[str]) -> list[str]:
    """Return the words without stop words. Mark terms that stand for several words with an asterisk."""
    words = [word for word in words if stem(word) not in STOP_STEMS]
    folded, past = list[str](), 0
    while past < len(words):
        runs = {**ABBREVIATIONS.compounds, **ABBREVIATIONS.shorts}.items()
        run = next((run for run in runs if (*map(stem, words[past : past + len(run[0])]),) == run[0]), None)
        folded.append(f"{run[1]}*" if run else words[past])
        past += len(run[0]) if run else 1
    return folded


def reference_result(paper: PaperView, query: Query) -> tuple[bool, bool]:
    """Return (excluded, rejected) of one paper, found word by word without an index."""
    text_of_paper, texts = PaperText(paper, ABBREVIATIONS), [paper.title, paper.abstract]
    words = [WORD.findall(text.lower()) for text in texts]
    folded_texts = [*map(fold, words)]
    implied = {
        part
        for text in texts
        for term in ABBREVIATIONS.fold(content_stems(text))
        for part in ABBREVIATIONS.contained.get(term, ())
    }

    def is_mentioned(phrase: Sequence[str]) -> bool:
        folded = fold(phrase)
        literally = any(map(is_in, [phrase] * 2, words))
        if len([word for word in phrase if stem(word) not in STOP_STEMS]) == 1 < len(phrase):
            return literally
        terms = " ".join(ABBREVIATIONS.fold(content_stems(" ".join(phrase))))
        return literally or any(map(is_in, [folded] * 2, folded_texts)) or terms in implied

    matching = {
        FilterField.AUTHOR: text_of_paper.matching_authors,
        FilterField.ORGANIZATION: text_of_paper.matching_organization,
        FilterField.CATEGORY: text_of_paper.matching_categories,
    }
    excluded = any(map(is_mentioned, query.excluded_phrases)) or any(
        matching[field](values) for field, values in query.excluded.items()
    )
    unmet = not all(any(map(is_in, [phrase] * 2, words)) for phrase in query.phrases)
    unmet |= not all(matching[field](values) for field, values in query.required.items())
    return excluded, excluded or unmet


WORDS = st.sampled_from(
    [
        "large",
        "language",
        "model",
        "models",
        "experience",
        "experiments",
        "LLM",
        "LLMs",
        "fine",
        "tuning",
        "finetuning",
        "the",
        "cat",
        "a-b",
    ]
)
TEXT = st.lists(WORDS, max_size=8).map(" ".join)
NAME = st.sampled_from(["Ada Lovelace", "Lovelace", "José Ada", "Lace", "Ada M. Lovelace", "M. Lovelace"])
CATEGORY = st.sampled_from(["cs.CL", "cs", "csx", "stat.ML"])
PAPERS = st.lists(
    st.tuples(TEXT, TEXT, *[st.lists(names, max_size=2) for names in (NAME, NAME, CATEGORY)]), max_size=4
)
PARTS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=3).map(lambda run: f'"{" ".join(run)}"'),
    NAME.map('author:"{}"'.format),
    NAME.map('org:"{}"'.format),
    CATEGORY.map("cat:{}".format),
)


@given(PAPERS, st.lists(st.tuples(st.sampled_from(["", "-"]), PARTS), min_size=1, max_size=3))
def test_index_agrees_with_single_papers(
    rows: list[tuple[str, str, list[str], list[str], list[str]]], parts: list[tuple[str, str]]
) -> None:
    """The index of all papers gives the same result as checking one paper after the other."""
    try:
        query = parse(" ".join(["cat", *itertools.starmap(str.__add__, parts)]))
    except InvalidInterest:
        return
    papers = [
        PaperView(
            number,
            title,
            abstract,
            tuple(authors),
            organization_names=tuple(names),
            categories=tuple(categories),
        )
        for number, (title, abstract, authors, names, categories) in enumerate(rows)
    ]
    filters = Filters(papers, ABBREVIATIONS)
    expected = [reference_result(paper, query) for paper in papers]
    assert filters.excluded_mask(query).tolist() == [excluded for excluded, _ in expected]
    assert filters.passing_mask(query).tolist() == [not rejected for _, rejected in expected]
    reasons = [filters.rejection_reason(query, row) for row in range(len(papers))]
    assert [bool(reason) for reason in reasons] == [rejected for _, rejected in expected]


def test_missing_categories() -> None:
    """A category counts as missing only if other papers have categories."""
    assert FILTERS.missing_categories(parse("cat:robotics cat:cs.CL cat:cs cat:cs.XX")) == [
        "robotics",
        "cs.xx",
    ]
    assert FILTERS.categories == ["cs.CL", "stat.ML"]
    assert Filters([OTHER], ABBREVIATIONS).missing_categories(parse("cat:robotics")) == []
