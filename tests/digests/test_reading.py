"""Test how misspelt and foreign interests are matched, and the hints on interests that match nothing."""

from datetime import date, datetime, timedelta

import pytest

from app import pipeline
from app.application import Application
from app.digests import ranking
from app.digests.builder import DigestBuilder
from app.relevance import suggestions
from app.relevance.model import RelevanceModel
from app.relevance.suggestions import InterestHint
from app.subscribers import Preferences
from app.types import Digest, Interest, Skip
from tests.support import factories

VISION = "Vision Language Models at Night"
TITLES = (VISION, "Vision Language Models by Day", "Language Agents", "Robot Hands", "Protein Graphs")


@pytest.fixture
def builder(app: Application, now: datetime) -> DigestBuilder:
    """Return a builder for an archive of five papers."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for title in TITLES:
            factories.add_paper(session, source, title, now.date(), now)
    with app.db.read() as session:
        return DigestBuilder(app.digest_context, session, now)


def preview(builder: DigestBuilder, text: str) -> Digest | Skip:
    return builder.preview("2026-11-20", Preferences(interests=(Interest(text),)))


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("vison language modles", "vision language models"),
        ("modèles de langage", "language models"),
        ("视觉语言模型", "vision-language models"),
    ],
)
def test_interest_is_searched_for_as_read(builder: DigestBuilder, typed: str, read: str) -> None:
    """The reason says how it was read, the section and the hint show the interest as typed."""
    digest = preview(builder, typed)
    assert isinstance(digest, Digest)
    [section] = digest.sections
    assert section.interest == typed
    assert VISION in [pick.title for pick in section.picks]
    assert section.picks[0].reason.endswith(f"in the title; your interest was read as “{read}”")
    assert builder.interests.hint(typed) == InterestHint(typed, did_you_mean=read)
    marks = section.picks[0].marks
    assert marks
    assert marks.title
    assert marks.rest == f"your interest was read as “{read}”"


def test_interest_is_also_searched_for_as_typed(app: Application, now: datetime) -> None:
    """The relevance is the maximum of both, and the reason names what matched."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        typed = factories.add_paper(session, source, "Langauge: A Toy Named so", now.date(), now)
        read = factories.add_paper(session, source, "Language of Whales", now.date(), now)
    with app.db.read() as session:
        builder = DigestBuilder(app.digest_context, session, now)
    digest = preview(builder, "langauge")
    assert isinstance(digest, Digest)
    reasons = {pick.paper_id: pick.reason for pick in digest.picks}
    assert reasons[typed] == "“Langauge” in the title"
    assert reasons[read] == "“Language” in the title; your interest was read as “language”"


def test_explanation_uses_the_reading(builder: DigestBuilder) -> None:
    """The numbers are those of the reading by which the paper matches better."""
    digest = preview(builder, "vison language modles")
    assert isinstance(digest, Digest)
    paper = next(paper for paper in builder.papers if paper.title == VISION)
    details = builder.interests.details("vison language modles", paper)
    assert details.in_title
    assert details.relevance == pytest.approx(
        ranking.relevance_of(builder.pool.matches.rows["vison language modles"].evidence).max(), abs=1e-6
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("vision", InterestHint("vision")),
        ("author:Nobody", InterestHint("author:Nobody")),
        (
            "beekeeping",
            InterestHint("beekeeping", missing_words=("beekeeping",), topics=("Vision Language Models",)),
        ),
        (
            "visionary",
            InterestHint(
                "visionary",
                missing_words=("visionary",),
                topics=("Vision Language Models",),
                topics_are_near=True,
            ),
        ),
        (
            "модели",
            InterestHint(
                "модели", missing_words=("модели",), is_foreign=True, topics=("Vision Language Models",)
            ),
        ),
    ],
)
def test_hints(builder: DigestBuilder, text: str, hint: InterestHint) -> None:
    """An interest that matches nothing is told so, with topics that the archive has."""
    assert builder.interests.hint(text) == hint


def test_most_frequent_topics_are_offered_once(builder: DigestBuilder) -> None:
    """Topics that are near to an interest are offered for each interest."""
    texts = ["visionary", "beekeeping", "knitting", "visionaries"]
    hints = {hint.interest: hint for hint in builder.interests.hints(texts)}
    assert [text for text in texts if hints[text].topics] == ["visionary", "beekeeping", "visionaries"]
    assert hints["knitting"].missing_words == ("knitting",)


def test_shorter_interest_is_suggested_only_if_it_matches(builder: DigestBuilder) -> None:
    """The longest part comes first, then the rarest. A single word says at least half of the interest."""
    hint = builder.interests.hint('"protein" beekeeping')
    assert hint.shorter == ""
    assert builder.interests.hint("beekeeping honey").shorter == ""
    assert builder.interests.hint("SWE-9 protein graphs").shorter == "protein graphs"
    assert builder.interests.hint("what do graphs, as a language?").shorter == "graphs"  # the rarer word
    assert builder.interests.hint("beekeeping language").shorter == ""
    assert builder.interests.hint("language for beekeeping").shorter == ""
    assert builder.interests.hint("robot orchard").shorter == ""  # part of a compound
    assert builder.interests.hint("language agents for beekeeping").shorter == "language agents"
    assert builder.interests.hint("what makes graphs work?").shorter == "graphs"
    strict = builder.interests.hint("SWE-9 graphs")  # the name is required, and no paper has it
    assert (strict.missing_words, strict.shorter) == (("SWE-9",), "")


def test_common_noun_can_be_omitted(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paper on diffusion transformers is not close to "diffusion models", but readers may want it.

    "Space" is not suggested for "state space models": it has another meaning.
    """
    monkeypatch.setattr(app.models, "current", lambda _session: RelevanceModel.bundled())
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for title in ("Sparse Diffusion Transformers for Weather", "A Space of Compositional Prompts"):
            factories.add_paper(session, source, title, now.date(), now, abstract="We study forecasts.")
    with app.db.read() as session:
        hint = DigestBuilder(app.digest_context, session, now).interests.hint
    assert hint("diffusion models").shorter == "diffusion"
    assert hint("diffusion transformer models").shorter == "diffusion transformer"
    assert hint("state space models").shorter == ""


def test_exclusion_is_suggested_only_if_it_excludes_papers_and_leaves_others(builder: DigestBuilder) -> None:
    """Otherwise, the hint says why nothing matches. It never suggests what is to be excluded."""
    hint = builder.interests.hint
    assert hint("language models not agents") == InterestHint(
        "language models not agents", with_exclusion="language models -agents"
    )
    absent = hint("beekeeping not zebras")
    assert (absent.with_exclusion, absent.missing_words) == ("", ("beekeeping", "zebras"))
    only = hint("graphs not protein")
    assert (only.with_exclusion, only.shorter) == ("", "")
    for text in ("beekeeping not vision", "beekeeping NOT vision", "beekeeping -vision"):
        excluding = hint(text)
        assert (excluding.missing_words, excluding.shorter) == (("beekeeping",), "")
        assert not excluding.topics_are_near


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Hongtao Wu", 'author:"Hongtao Wu"'),
        ("hongtao", "author:hongtao"),
        ("Hongtao Li", ""),
        ("robot", ""),  # papers match
        ("Hongtao Wu -hands", ""),
    ],
)
def test_an_author_is_offered_for_a_name(app: Application, now: datetime, text: str, query: str) -> None:
    """The hint said that no paper mentions the name, and offered the most frequent topics."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(
            session, source, "Robot Hands", now.date(), now, authors=["Hongtao Wu", "Li Robot"]
        )
    with app.db.read() as session:
        matcher = DigestBuilder(app.digest_context, session, now).interests
    hint = matcher.hint(text)
    assert hint.by_author == query
    if query:
        assert suggestions.sentences(hint) == [f"Looking for an author? Use “{query}”."]
        assert matcher.hint(query) == InterestHint(query)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("author:Hongtao Wu", 'author:"Hongtao Wu"'),
        ("author:Wu, Hongtao", 'author:"Wu, Hongtao"'),
        ("author:hopper,hongtao", "author:hopper author:hongtao"),
        ("cat:cs.CL,cs.RO", "cat:cs.CL cat:cs.RO"),
        ("author:Grace Hopper", ""),  # no paper
        ("author:hongtao robot", ""),  # papers match
    ],
)
def test_value_of_a_filter_is_completed(app: Application, now: datetime, text: str, meant: str) -> None:
    """The hint said that no paper mentions “Wu”."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        fields = {"authors": ["Hongtao Wu"], "categories": ["cs.RO"]}
        factories.add_paper(session, source, "Robot Hands", now.date(), now, **fields)
    with app.db.read() as session:
        matcher = DigestBuilder(app.digest_context, session, now).interests
    assert matcher.hint(text).with_filters == meant
    if meant:
        assert suggestions.sentences(matcher.hint(text)) == [f"Did you mean “{meant}”?"]
        assert matcher.hint(meant).with_filters == ""


def test_name_that_many_authors_have_suggests_full_names(app: Application, now: datetime) -> None:
    """The filter matches family and given names, because sources write either first."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        authors = ["Chen Wang", "Wei Chen", "Wei X. Chen", "W. Chen", "Ada Lovelace"]
        factories.add_paper(session, source, "Robot Hands", now.date(), now, authors=authors)
        factories.add_paper(
            session, source, "Robot Feet", now.date(), now, authors=["Li Chen", "Ada Lovelace"]
        )
    with app.db.read() as session:
        matcher = DigestBuilder(app.digest_context, session, now).interests
    hint = matcher.hint("author:Chen")
    assert hint == InterestHint("author:Chen", matching_authors=4)
    assert suggestions.sentences(hint)[0].startswith("This name matches 4 authors of recent papers")
    for text in ('author:"Wei Chen"', "author:Lovelace", "author:Chen -robot", "robot -author:Chen"):
        assert matcher.hint(text).matching_authors == 0


def test_category_that_no_paper_has_is_named(app: Application, now: datetime) -> None:
    """The hint lists categories that papers have."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, VISION, now.date(), now, categories=["cs.CV", "cs.RO"])
        factories.add_paper(session, source, "Robot Hands", now.date(), now, categories=["cs.RO"])
    with app.db.read() as session:
        matcher = DigestBuilder(app.digest_context, session, now).interests
    hint = InterestHint("cat:robotics", missing_categories=("robotics",), categories=("cs.RO", "cs.CV"))
    assert matcher.hint("cat:robotics") == hint
    assert matcher.hint("cat:cs.ro") == InterestHint("cat:cs.ro")
    assert suggestions.sentences(hint) == [
        "No recent paper is in the category “robotics”. The most frequent categories: cs.RO, cs.CV."
    ]


def test_similar_category_is_offered_for_an_unknown_one(app: Application, now: datetime) -> None:
    """The hint listed only the most frequent categories, and the words of “cs.LGG” as missing."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Robot Hands", now.date(), now, categories=["cs.RO"])
    with app.db.read() as session:
        matcher = DigestBuilder(app.digest_context, session, now).interests
    hint = matcher.hint("cat:cs.R0")
    assert (hint.missing_categories, hint.with_filters) == (("cs.R0",), "cat:cs.RO")
    assert suggestions.sentences(hint) == [
        "No recent paper is in the category “cs.R0”.",
        "Did you mean “cat:cs.RO”?",
    ]
    assert matcher.hint("cs.LGG") == InterestHint("cs.LGG", with_filters="cat:cs.LG")


def test_old_archive_is_named_as_the_reason(app: Application, now: datetime) -> None:
    """The weekday of the preview does not matter."""
    with app.db.write() as session:
        day = now.date() - timedelta(days=40)
        factories.add_paper(session, factories.add_source(session, now), VISION, day, now)
    sunday = date(2026, 11, 22)
    with app.db.read() as session:
        digest = preview(DigestBuilder(app.digest_context, session, now, sunday), "vision")
    assert digest == Skip(f"no new papers; the newest papers in the archive are from {day:%-d %B %Y}")


def test_reason_for_an_empty_digest_names_words_that_no_paper_says(app: Application, now: datetime) -> None:
    """A word that was read as another one is not named."""
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Robot Hands", now.date(), now)
    interests = Preferences(interests=(Interest("langauge beekeeping"),))
    digest, hints = pipeline.preview(app, interests, now)
    assert isinstance(digest, Skip)
    assert "no paper mentions “language”, “beekeeping”" in digest.reason
    assert [hint.did_you_mean for hint in hints] == ["language beekeeping"]
    before, hints = pipeline.preview(app, interests, now - timedelta(days=40))
    assert not isinstance(before, Digest)
    assert [hint.missing_words for hint in hints] == [()], "there are no recent papers at all"
