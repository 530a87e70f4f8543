"""Test matching: interests select the right papers, and reasons quote what the papers contain."""

import gc
import itertools
import math
import re
import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.errors import InvalidInterest
from app.relevance import cut_offs, matching, reasons, scoring
from app.relevance.model import RelevanceModel
from app.relevance.query_language import parse
from app.text.tokenizer import content_stems
from app.types import PaperView, Spans
from tests.support import sample_archive

PAPERS = [
    PaperView(
        1,
        "Speculative Decoding with Tree Attention",
        "We speed up large language models by drafting tokens with a small model and verifying them.",
        ("Ada Lovelace", "Grace Hopper"),
        organization_names=("Google DeepMind", "deepmind-berlin"),
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
INDEX = matching.MatchIndex(PAPERS, RelevanceModel.bundled())
SUMMARY = "A summary: LLMs are fast."


# A model with an LSA space, and the papers it was trained on as candidates.
SUBJECTS = sample_archive.papers()
LSA_INDEX = matching.MatchIndex(SUBJECTS, sample_archive.trained_model())


def matches(text: str, index: matching.MatchIndex = INDEX) -> dict[int, float]:
    return index.match([parse(text)])[0]


def reason_for(text: str, paper: int, index: matching.MatchIndex = INDEX) -> str:
    return index.reason(parse(text), paper).text


@pytest.mark.parametrize(
    ("interest", "papers"),
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
        ('org:"google deepmind"', {1}),
        ("decoding -org:google", {3}),
        ("org:berlin org:nvidia", {1}),
        ("org:deep", set()),
        ("diffusion org:google", set()),
        ("cat:cs.CV", {2, 3}),
        ("cat:cs", {1, 2, 3}),
        ("cat:cs.CV cat:cs.CL", {1, 2, 3}),  # any of several categories
        ("diffusion cat:cs.CL", set()),
        ("agents -cat:cs -crypto", set()),
        ("“diffusion models” −video", {3}),  # as typed on a phone
        ("nothing about astronomy", set()),
    ],
)
def test_query_syntax(interest: str, papers: set[int]) -> None:
    """Words are searched for, phrases required, exclusions and filters applied."""
    assert set(matches(interest)) == papers


def test_relevance_of_fields() -> None:
    """Both words in the title outweigh one in the abstract, which is not enough for a digest."""
    relevance = matches("speculative decoding")
    assert relevance[3] < cut_offs.FLOOR < relevance[1]


@pytest.mark.parametrize(
    ("interest", "paper", "least"),
    [("image", 3, scoring.TITLE_RELEVANCE), ('"diffusion models"', 3, scoring.PHRASE_RELEVANCE)],
)
def test_minimum_relevance_of_exact_matches(interest: str, paper: int, least: float) -> None:
    """An interest in a title and a phrase in quotes have a minimum relevance."""
    assert matches(interest)[paper] >= least


def test_words_beside_a_phrase_count() -> None:
    """A paper that contains the phrase but not the words is judged like any other. It was always sent."""
    relevance = matches('safety "diffusion models"')
    assert relevance[3] >= scoring.PHRASE_RELEVANCE > cut_offs.FLOOR > relevance.get(2, 0)
    assert matches('"diffusion models"')[2] >= scoring.PHRASE_RELEVANCE


@pytest.mark.parametrize(
    "interest", ['new "diffusion models"', 'the very best "diffusion models" for safety']
)
def test_fillers_beside_a_phrase_do_not_count(interest: str) -> None:
    """Words such as "new" and "best" say nothing about the subject."""
    assert matches(interest)[3] >= scoring.PHRASE_RELEVANCE
    assert "no “" not in reason_for(interest, 3)
    assert parse('new "how to"').terms == ("new",)  # a phrase of stop words is only a filter


def test_phrase_of_stop_words_is_only_a_filter() -> None:
    """It filters papers, but does not raise their relevance: it occurs in papers of any kind."""
    papers = [PaperView(1, "Agents", "How to plan."), PaperView(2, "Video", "How to film.")]
    index = matching.MatchIndex(papers, RelevanceModel.bundled())
    assert set(matches('agents "how to"', index)) == {1}


def test_separated_words_in_a_title_do_not_match() -> None:
    """ "Real-World Image Restoration with Large-Scale Models" is no paper on world models."""
    index = matching.MatchIndex(
        [PaperView(1, "Real-World Images with Large-Scale Models")], RelevanceModel.bundled()
    )
    assert not index.details(parse("world models"), 1).in_title


@pytest.mark.parametrize(
    ("interest", "paper", "reason"),
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
        ("decoding org:berlin", 1, "“Decoding” in the title; from Google DeepMind (deepmind-berlin)"),
        (
            "cat:cs author:hopper org:google",
            1,
            "by Grace Hopper; from Google DeepMind; filed under cs.CL, cs.LG",
        ),
        ("image cat:cs.CV", 3, "“Image” in the title; filed under cs.CV"),
        ("cat:eess", 3, "filed under eess.IV"),
        ("LLMs", 1, "“large language models” in the abstract"),
        ("large language models", 4, "“LLM” in the abstract"),
        ("language models", 4, "“LLM” in the abstract"),  # implied by the short form
        ("diffusion", 3, "“Diffusion” in the abstract"),
        ('"diffusion models"', 2, "“video diffusion models” in the abstract"),
    ],
)
def test_reason_quotes_the_matching_words(interest: str, paper: int, reason: str) -> None:
    """It quotes the words as the paper spells them, and names the field."""
    assert reason_for(interest, paper) == reason


def test_number_of_authors_in_a_reason_is_limited() -> None:
    """A paper had twenty authors called Li, and the reason named all of them."""
    paper = PaperView(1, "Agents", authors=("Ann Li", "Bo Li", "Ada Lovelace", "Chen Li", "Dan Li", "Eve Li"))
    index = matching.MatchIndex([paper], RelevanceModel.bundled())
    assert index.reason(parse("author:Li"), 1).text == "by Ann Li, Bo Li, Chen Li and 2 more"


@pytest.mark.parametrize(
    ("interest", "reason"),
    [
        ("video quality", "“Video” in the title; “quality” in the abstract"),
        (
            "Quality And Video",
            "“Video” in the title; “quality” in the abstract",
        ),  # in any case
        ("A Quality For Video", "“Video” in the title; “quality” in the abstract"),
        ("video AND quality", "“Video” in the title; “quality” in the abstract"),
        ("VIDEO AT QUALITY", "“Video” in the title; “quality” in the abstract"),
        ("IT for video", "“Video” in the title; no “IT for video”"),  # a name
        ("A* video", "“Video” in the title; no “A* video”"),
        ("quality of bits", "“bit” and “quality” apart in the abstract"),
        ("video zebra", "“Video” in the title; no “zebra”"),
        ("zebra video striped horse", "“Video” in the title; no “zebra” or “striped horse”"),
        ("video-zebra horse", "“Video” in the title; no “video-zebra horse”"),
        ("quantized -zebra", "“Quantized” in the title"),
        ("transformation", "“Transformers” in the title"),
        ("keeping", "“keeps” in the abstract"),
        ("qualitative", ""),
    ],
)
def test_reason_tells_what_is_missing(interest: str, reason: str) -> None:
    """It names the words of the interest that the paper lacks, and tells if the others are not together."""
    assert reason_for(interest, 2) == reason


@pytest.mark.parametrize(
    ("quoted", "close_words", "reason"),
    [
        ([("title", ["Law"])], [], "“Law” in the title; no “scaling”"),
        ([("title", ["Law"])], ["compute"], "“Law” in the title; no “scaling”, but related words: “compute”"),
        ([("title", ["Law"])], None, "“Law” in the title; no “scaling”"),
        ([], [], "a similar topic"),
        ([], ["compute"], "related words: “compute”"),
    ],
)
def test_reason_claims_no_topic_without_evidence(
    quoted: list[tuple[str, list[str]]], close_words: list[str] | None, reason: str
) -> None:
    """If no word of the paper shows that its topic is similar, what the paper lacks is enough."""
    assert reasons.interest_reason(quoted, [], ["scaling"], close_words, [], "", [])[0] == reason


PHRASE_PAPERS = [
    PaperView(1, "Actor-Policy Mismatch in RL", "We study mismatch. On-policy learning is slow, on purpose."),
    PaperView(
        2, "Learning in Context", "With in-context learning, GPT-5 (not GPT-4) learns from 5 contexts."
    ),
    PaperView(3, "A Study of LLM Safety", "Large language models, and language models in general, are safe."),
    PaperView(4, "Language Models and Safety", "Language (models) as policies."),
    PaperView(5, "Online Learning", "We study learning on many devices."),
]


@pytest.mark.parametrize(
    ("interest", "paper", "reason", "marked_in_title"),
    [
        ('"on-policy"', 1, "“On-policy” in the abstract", []),
        ('"on-policy" mismatch', 1, "“Mismatch” in the title; “On-policy” in the abstract", ["Mismatch"]),
        ('"on-policy learning"', 1, "“On-policy learning” in the abstract", []),
        ('"in-context learning"', 2, "“in-context learning” in the abstract", []),
        ("GPT-5", 2, "“GPT-5” in the abstract", []),
        ("on-policy", 1, "“On-policy” in the abstract", []),
        ("on-line learning", 5, "“Online Learning” in the title", ["Online Learning"]),  # as one word
        ("in-context learning", 2, "“Learning in Context” in the title", ["Learning in Context"]),
        ('"language models"', 3, "“LLM” in the title", ["LLM"]),  # a short form of the phrase
        (
            '"language models" safety',
            4,
            "“Language Models and Safety” in the title",
            [PHRASE_PAPERS[3].title],
        ),
    ],
)
def test_phrase_is_quoted_and_marked_as_a_whole(
    interest: str, paper: int, reason: str, marked_in_title: list[str]
) -> None:
    """The words of a phrase in quotes or of a name are not quoted, marked or missed by themselves."""
    index = matching.MatchIndex(PHRASE_PAPERS, RelevanceModel.bundled())
    card_reason = index.reason(parse(interest), paper)
    assert card_reason.text == reason
    assert card_reason.marks is not None
    title = PHRASE_PAPERS[paper - 1].title
    assert [title[start:end] for start, end in card_reason.marks.title] == marked_in_title


# --- by meaning


def test_semantic_match_without_the_words() -> None:
    """The LSA space finds papers without the word; the reason names the words that bring them close."""
    without_word = [
        n
        for n in matches("tumour", LSA_INDEX)
        if "tumour" not in (SUBJECTS[n - 1].title + SUBJECTS[n - 1].abstract).lower()
    ]
    assert without_word
    for number in without_word:
        assert "medical imaging" in SUBJECTS[number - 1].abstract
        assert reason_for("tumour", number, LSA_INDEX).startswith("related words: “")


@pytest.mark.parametrize("interest", ["zebrafish", "sourdough fermentation", "image sourdough fermentation"])
def test_unknown_words_match_no_papers_by_similarity(interest: str) -> None:
    """An interest with few known words has poor examples: P is damped, and no paper reaches the floor."""
    assert LSA_INDEX.details(parse(interest), 1).archive_knows_it < 0.2
    assert not [
        relevance for relevance in matches(interest, LSA_INDEX).values() if relevance >= cut_offs.FLOOR
    ]


def test_known_words_are_not_damped() -> None:
    """Its examples have its words, so that P is not damped."""
    assert LSA_INDEX.details(parse("federated learning"), 1).archive_knows_it > 0.9


def test_candidates_are_examples_before_training() -> None:
    """New candidates are examples of new words before the model is trained on them."""
    new = [replace(paper, id=paper.id + 1000, title=f"Zorbing {paper.title}") for paper in SUBJECTS[:6]]
    index = matching.MatchIndex([*SUBJECTS, *new], sample_archive.trained_model())
    assert index.details(parse("zorbing"), 1).archive_knows_it > 0.9
    assert {paper.id for paper in new} < set(matches("zorbing", index))


def test_few_examples_damp_the_meaning() -> None:
    """Three papers have other subjects in common, too, such as those of a series."""
    new = [replace(paper, id=paper.id + 1000, title=f"Zorbing {paper.title}") for paper in SUBJECTS[:3]]
    index = matching.MatchIndex([*SUBJECTS, *new], sample_archive.trained_model())
    assert index.details(parse("zorbing"), 1).archive_knows_it < 0.75


@pytest.mark.parametrize("index", [INDEX, LSA_INDEX], ids=["without space", "with space"])
def test_batch_size_does_not_change_the_result(
    index: matching.MatchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch size does not change the result."""
    queries = [parse(text) for text in ("image", "policy reward", "author:turing", "zebrafish", "RL -bandit")]
    alone = [index.match([query])[0] for query in queries]
    monkeypatch.setattr(matching, "BATCH_SIZE", 2)
    for batched, single in zip(index.match(queries), alone, strict=True):
        assert batched == pytest.approx(single, abs=1e-5)
    assert index.match([]) == []


def test_match_details() -> None:
    """The details are the numbers that matching uses; rejected papers have a reason."""
    query = parse("tumour -biopsy")
    relevance = LSA_INDEX.match([query])[0]
    for paper in SUBJECTS:
        details = LSA_INDEX.details(query, paper.id)
        agreement, strength = (
            weights.words * details.words
            + details.meaning
            + weights.all_words * details.all_words
            - weights.missing * (not details.all_words)  # the interest has one word
            for weights in (scoring.AGREEMENT_WEIGHTS, scoring.STRENGTH_WEIGHTS)
        )
        strength = max(strength, 0) + scoring.TITLE_BONUS * details.in_title
        assert details.agreement == pytest.approx(agreement, abs=1e-4)
        if paper.id in relevance:
            expected = 1 - math.exp(-strength / scoring.STRENGTH_SCALE)
            assert details.strength == pytest.approx(expected, abs=1e-4)
        assert details.relevance == pytest.approx(relevance.get(paper.id, 0.0), abs=1e-5)
        assert bool(details.rejection_reason) == ("biopsy" in f"{paper.title} {paper.abstract}".lower())
    with pytest.raises(KeyError):
        LSA_INDEX.details(query, 99_999)


def test_paper_vectors() -> None:
    """Vectors are unit rows, more similar within a subject; without a space they are empty."""
    first, second, far = (LSA_INDEX.vectors[number] for number in (1, 2, 2 * sample_archive.EACH))
    assert first @ first == pytest.approx(1, abs=1e-3)
    assert first @ second > first @ far
    without_space = matching.MatchIndex(PAPERS, replace(RelevanceModel.bundled(), space=None))
    assert without_space.vectors[1].shape == (0,)


def test_empty_index() -> None:
    """An index without papers matches nothing."""
    for model in (RelevanceModel.bundled(), sample_archive.trained_model()):
        assert matching.MatchIndex([], model).match([parse("agents")]) == [{}]


@pytest.mark.parametrize(
    ("interest", "words"),
    [
        ("speculative decoding", []),
        ("Zebrafish image", ["Zebrafish"]),
        ('"Quantum Gravity" diffusion -dragons author:turing', ["Quantum", "Gravity"]),
        ("C++ decoding in C#", ["C++"]),
        ("LLMs", []),  # written out
        ("language", []),  # in a short form
        ("author:turing", []),
    ],
)
def test_unknown_words(interest: str, words: list[str]) -> None:
    """They are returned as typed. Excluded words and authors are not among them."""
    assert INDEX.missing_words(parse(interest)) == words


def test_duplicate_words_count_once() -> None:
    """The interest is the same, although no paper has “agents agents”."""
    assert matches("agents agents") == matches("agents")


# --- properties of any interest


@pytest.mark.parametrize(
    ("interest", "paper", "marked", "rest"),
    [
        ("tree attention decoding", 1, "[Decoding with Tree Attention] | ", ""),
        ("text to image generation", 3, "A Survey of [Text-to-Image Generation] | ", ""),
        ("decoding LLM", 1, " [Decoding] with Tree Attention | A summary: [LLMs] are fast.", ""),
        ("large language models", 1, " Decoding with Tree Attention | A summary: [LLMs] are fast.", ""),
        ("video quality", 2, "Transformers for [Video] | A summary", "“quality” in the abstract"),
        ("video zebra", 2, "Transformers for [Video] | A summary", "no “zebra”"),
        ("decoding author:hopper", 1, "[Decoding]", "by Grace Hopper"),
        ("cat:cs.CL", 1, "| A summary", "filed under cs.CL"),
    ],
)  # fmt: skip
def test_marks(interest: str, paper: int, marked: str, rest: str) -> None:
    """Whole words are marked, in the summary if the title lacks some. The rest of the reason is in words."""
    index = matching.MatchIndex([replace(each, tldr=SUMMARY) for each in PAPERS], RelevanceModel.bundled())
    marks = index.reason(parse(interest), paper).marks
    assert marks
    title = next(own.title for own in PAPERS if own.id == paper)
    assert marked in f"{_bracketed(title, marks.title)} | {_bracketed(SUMMARY, marks.summary)}"
    assert marks.rest == rest


def _bracketed(text: str, spans: Spans) -> str:
    for start, end in reversed(spans):
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    return text


def test_reasons_do_not_depend_on_other_interests() -> None:
    """Interests share the excerpts with their common words, but not with other forms of these words."""
    model = RelevanceModel.bundled()
    forms = ["token", "tokenization", "decoding", "languages", "LLM", "large", "model", "to"]
    texts = [" ".join(words) for words in itertools.combinations(forms, 3)]
    both_forms = PaperView(5, "Tokens for Language Models", "Tokenization: a token of an LLM may be large.")
    papers = [replace(each, tldr=SUMMARY) for each in (*PAPERS, both_forms)]
    shared = matching.MatchIndex(papers, model)
    for query in map(parse, texts):
        alone = matching.MatchIndex(papers, model, shared.texts)
        for paper in papers:
            assert shared.reason(query, paper.id) == alone.reason(query, paper.id), query.text


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


def assert_quotes_occur(paper: PaperView, reason: str) -> None:
    """Assert that quoted words occur in the named field; words that bring it close, in either field.

    Words of the interest that the paper lacks do not occur.
    """
    assert reason
    text = f"{paper.title} {paper.abstract}".lower()
    without = re.findall("“(.*?)”", " ".join(re.findall("no (“.*?)(?:, but|;|$)", reason)))
    assert not [words for words in without if re.search(rf"\b{words.lower()}\b", text)]
    reason = re.sub("; no “.*?(, but |$)", "; ", reason).removesuffix("; ")
    for part in reason.split("; "):
        fields = {"title": paper.title, "abstract": paper.abstract}
        text = fields.get(part.rsplit(" ", 1)[-1], f"{paper.title} {paper.abstract}")
        quoted = re.findall("“(.*?)”", part)
        assert quoted or part == "a similar topic"
        assert all(words in text for words in quoted)


@given(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=20))
def test_quoted_words_occur_in_the_paper(words: list[str]) -> None:
    """The words in quotes occur in the field that the reason names, for any interest."""
    assume(set(words) != {"to"})
    for number in matches(" ".join(words)):
        assert_quotes_occur(PAPERS[number - 1], reason_for(" ".join(words), number))


@settings(max_examples=25)
@given(st.lists(st.sampled_from(SUBJECT_WORDS), min_size=1, max_size=5), st.data())
def test_close_words_occur_in_the_paper(words: list[str], data: st.DataObject) -> None:
    """The reason names close words only if P is above 0."""
    text = " ".join(words)
    ids = sorted(matches(text, LSA_INDEX))
    assume(ids)
    number = data.draw(st.sampled_from(ids))
    reason = reason_for(text, number, LSA_INDEX)
    assert_quotes_occur(SUBJECTS[number - 1], reason)
    if "related words" in reason or "a similar topic" in reason:
        assert LSA_INDEX.details(parse(text), number).meaning > 0


@pytest.mark.parametrize(
    "interest", ["reinforcement zebra", "RL zebra", "bandit learning", "translation zebra"]
)
def test_reason_has_no_duplicate_words(interest: str) -> None:
    """A short form that is quoted for a word of the interest is not a close word, too."""
    short = [replace(p, abstract=p.abstract.replace("reinforcement learning", "RL")) for p in SUBJECTS]
    index = matching.MatchIndex(short, sample_archive.trained_model())
    for number in matches(interest, index):
        reason = reason_for(interest, number, index)
        quoted = [stem for words in re.findall("“(.*?)”", reason) for stem in content_stems(words)]
        assert len(set(quoted)) == len(quoted), reason


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(SUBJECT_WORDS), min_size=1, max_size=4),
    st.sampled_from([*sample_archive.SUBJECTS["medical imaging"].split()[:4], "study", "model"]),
)
def test_excluded_papers_never_match(words: list[str], excluded: str) -> None:
    """The relevance of the others is unchanged."""
    query = parse(f"{' '.join(words)} -{excluded}")
    excluded_ids = LSA_INDEX.excluded_papers(query)
    assert {
        p.id for p in SUBJECTS if excluded in re.findall(r"\w+", f"{p.title} {p.abstract}".lower())
    } <= excluded_ids
    others = {
        number: relevance
        for number, relevance in matches(" ".join(words), LSA_INDEX).items()
        if number not in excluded_ids
    }
    assert LSA_INDEX.match([query])[0] == pytest.approx(others)


def test_excluded_abbreviation_includes_its_plural() -> None:
    """Excluding "VLA" excludes "VLAs"."""
    paper = PaperView(1, "Faster VLAs for Robots")
    assert matching.MatchIndex([paper], RelevanceModel.bundled()).excluded_papers(parse("robots -VLA")) == {1}


@given(st.permutations(["image", '"diffusion models"', "cat:cs", "-author:turing", "-crypto", "text"]))
def test_order_of_terms_does_not_matter(parts: list[str]) -> None:
    """The order of words, phrases and filters makes no difference."""
    assert set(matches(" ".join(parts))) == {3}


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
def test_any_interest_can_be_matched(text: str) -> None:
    """Any text is rejected with a reason or searched for; an added exclusion only removes papers."""
    try:
        query = parse(text)
    except InvalidInterest:
        return
    relevance = matches(text)
    assert all(INDEX.details(query, number).relevance == relevance[number] for number in relevance)
    stricter = matches(f"-diffusion {query.text}")
    assert stricter == {number: value for number, value in relevance.items() if number not in (2, 3)}


def test_excluded_paper_ids() -> None:
    """They are returned by id, so that an exclusion can apply to other interests, too."""
    assert INDEX.excluded_papers(parse("anything -crypto -author:liskov")) == {3, 4}
    assert INDEX.excluded_papers(parse("anything -cat:cs.CL")) == {1}


# --- what is sent


@pytest.mark.parametrize(
    "interest",
    ["graph neural networks", "vision language models", "time series forecasting", "LLM reasoning"],
)
def test_order_of_words_does_not_decide(interest: str) -> None:
    """Long forms are recognised in any order, and pairs count in both."""
    papers = [PaperView(row, title, f"{title}.") for row, title in enumerate(ANY_ORDER)]
    index = matching.MatchIndex(papers, RelevanceModel.bundled())
    orders = [" ".join(order) for order in itertools.permutations(interest.split())]
    first, *others = index.match([parse(text) for text in orders])
    assert first
    for other in others:
        assert other == pytest.approx(first)


ANY_ORDER = [
    "Reasoning in LLMs",
    "Graph Neural Networks at Scale",
    "A Vision-Language Model of Weather",
    "Forecasting Long Time Series",
]


def test_title_with_all_words_in_another_order_is_enough() -> None:
    """ "LLM reasoning" consists of words that every third paper has."""
    index = matching.MatchIndex([PaperView(1, ANY_ORDER[0])], RelevanceModel.bundled())
    query = parse("LLM reasoning")
    assert index.details(query, 1).in_title
    assert index.match([query])[0][1] >= cut_offs.FLOOR


def test_weak_matches_keep_their_order() -> None:
    """Their relevance rises with agreement, and hundreds of them together are not enough to be sent."""
    details = [LSA_INDEX.details(parse("protein language models for video"), paper.id) for paper in SUBJECTS]
    weak = [each for each in details if 0 < each.agreement <= cut_offs.MIN_AGREEMENT]
    relevance = [each.relevance for each in sorted(weak, key=lambda each: each.agreement)]
    assert len(relevance) > 1
    assert relevance == sorted(set(relevance))
    assert 0 < relevance[0] < relevance[-1] < cut_offs.FLOOR / 100


def test_broad_interests_have_lower_cut_offs() -> None:
    """More papers of the archive are about reasoning of LLMs than about federated learning."""
    index = matching.MatchIndex([PaperView(1, ANY_ORDER[0])], RelevanceModel.bundled())
    broad, narrow = (
        index.details(parse(text), 1).cut_off for text in ("LLM reasoning", "federated learning")
    )
    assert broad < narrow


def test_cut_offs_are_reached_by_the_expected_number() -> None:
    """If all three counts agree, as many papers of the sample reach the interest's own cut-off."""
    agreement = np.arange(10.0)[None] + 2.5
    high = int((agreement >= cut_offs.FLOOR_Z).sum())
    mask = np.arange(10)[None] < high
    (cut_off,) = cut_offs.estimate_cut_offs(agreement, mask, mask)
    own = np.sort(agreement[0])[::-1][high - 1]
    weight = cut_offs.CUT_OFF_WEIGHT
    assert cut_off == pytest.approx(weight * own + (1 - weight) * cut_offs.FLOOR_Z)


def test_an_interest_of_one_paper_does_not_mean_all_else_in_it() -> None:
    """The only paper on pigeons is about planning, but papers on planning are not about pigeons."""
    titles = ("Pigeons that Plan", "Language Agents that Plan")
    papers = [PaperView(row, title) for row, title in enumerate(titles)]
    (hits,) = matching.MatchIndex(papers, RelevanceModel.bundled()).match([parse("pigeons")])
    assert [number for number, hit in hits.items() if hit >= cut_offs.FLOOR] == [0]


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_a_dropped_index_is_freed_at_once() -> None:
    """So is its model. Both take many megabytes, and the garbage collector may run only hours later."""
    model = RelevanceModel.decode(sample_archive.trained_model().encode())
    index = matching.MatchIndex(SUBJECTS, model)
    for query in map(parse, ("tumour", "galaxy surveys", "federated learning")):
        for number in index.match([query])[0]:
            index.reason(query, number)
            index.details(query, number)
        index.missing_words(query)
    assert model.space is not None
    references = [weakref.ref(part) for part in (index, model, model.space, model.abbreviations)]
    del index, model
    assert [reference() for reference in references] == [None] * 4
