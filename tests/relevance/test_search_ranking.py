"""Test that a search on disk filters exactly as digests do, and ranks as they do."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import InvalidInterest
from app.papers.searchable_papers import SearchablePaper
from app.relevance import query_language, search_ranking
from app.relevance.archive_search import MAX_RESULTS, MIN_RELEVANCE
from app.relevance.bm25 import Matrix
from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.relevance.query_language import FilterField
from app.relevance.search_index import IndexedPaper, IndexReader, IndexWriter
from app.relevance.search_index_fields import ListingFilter, QueryBuilder
from app.relevance.search_ranking import CandidateRanker
from app.types import PaperView
from tests.support import sample_archive

DAY = date(2026, 11, 20)
PAPERS = [
    replace(
        paper,
        title=paper.title
        + (" on SWE-bench", ", Online")[paper.id % 2]
        + ("", ", In-Depth", " in Depth", ", In\u2011Depths")[paper.id % 4]
        + (" with CLIP", " and CLIPs", " with clips", " and Clipping", "")[paper.id % 5],
        authors=(("Lovelace, Ada", "Alan M. Turing"), ("Grace Hopper",), ("José García-Ruiz",))[paper.id % 3],
        categories=(("cs.CL",), ("math.PR", "cs.LG"), ("math",), ())[paper.id % 4],
        organization_names=(("NVIDIA", "nvidia-lab"), (), ("AI at Météo",), ("Together",))[paper.id % 4],
        last_listed_on=DAY - timedelta(days=paper.id % 5),
    )
    for paper in sample_archive.papers()
]
QUERIES = [
    "offline policies of an actor",
    '"machine translation"',
    "RL -bandit",
    "robot -RL",
    'speech -"protein folding" author:turing',
    "author:lovelace -cat:cs",
    'cat:math "we study" -RL -author:"ada lovelace"',
    "-MT retrieval",
    "robot -objective",  # "object" has the same stem
    'graph -"communicated" -neighbors',
    '"networked" graph',
    '"objective"',
    '"reinforcement learning" -policy',
    '"a robust" noise',
    '"the the" robot',
    "author:garcia",
    'author:"jose garcia"',
    'author:"hopper grace"',
    'author:"alan turing"',
    'author:"Grace B. Hopper"',
    "cat:cs",
    "cat:c",
    "cat:cs.LG -org:nvidia",
    "org:nvidia org:meteo",
    'org:"ai at meteo"',
    "org:Meteo-Lab",
    "swe-bench SWE-bench",
    "SWE-bench graph -graph-networks",
    "robot-to-robot -graph-by-graph",
    "robot on-line",
    "graph -on-line",
    "CLIP graph",
    "clip graph",
    "GRAPH CLIPS",
    "robot -CLIP",
    "robot -clip",
    '"with CLIP" robot',
    '"with clip" -"and CLIP"',
    "CLIP-graph speech",
    "in-depth robot",
    "graph -in-depth",
    'graph -"in depth"',
    "in-depths graph",
    "Nvidia",
    "Meteo",
    "together",
    "robot author:lovelace author:hopper -cat:math.PR",
]
SOURCES = (1, 2)


def searchable(paper: PaperView) -> SearchablePaper:
    """Return a paper that a source lists, every third one with code."""
    listed = [(paper.last_listed_on or DAY, SOURCES[paper.id % 2])]
    return SearchablePaper(paper, paper.id % 3 == 0, listed)


def write(version: Path, papers: Sequence[PaperView], model: RelevanceModel) -> None:
    with IndexWriter(version, model) as writer:
        writer.put([IndexedPaper(searchable(paper), "1") for paper in papers])


@pytest.fixture(scope="module", params=["trained", "bundled"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[CandidateRanker, IndexReader, MatchIndex]:
    """Return an index on disk and one in memory, of the same papers."""
    texts = [(paper.title, paper.abstract) for paper in PAPERS]
    model = RelevanceModel.train(texts) if request.param == "trained" else RelevanceModel.bundled()
    version = tmp_path_factory.mktemp("search") / "version"
    write(version, PAPERS, model)
    reader = IndexReader(version, model)
    by_id = {paper.id: paper for paper in PAPERS}
    ranker = CandidateRanker(reader, lambda ids: [by_id[number] for number in ids])
    return ranker, reader, MatchIndex(PAPERS, model)


def test_every_filter_is_compared() -> None:
    """The queries contain each filter as a requirement and as an exclusion."""
    queries = [*map(query_language.parse, QUERIES)]
    assert {name for query in queries for name in query.required} == {*FilterField}
    assert {name for query in queries for name in query.excluded} == {*FilterField}


@pytest.mark.parametrize("text", QUERIES)
def test_search_matches_like_an_interest(
    both: tuple[CandidateRanker, IndexReader, MatchIndex], text: str
) -> None:
    """The same papers pass the filters and are relevant, in the same order, up to the rounding of vectors."""
    ranker, reader, index = both
    query = query_language.parse(text)
    passing = index.filters.passing_mask(query)
    builder = QueryBuilder(reader.schema, reader.model).with_filters(query, ListingFilter())
    hits = reader.find(builder.everything(), 1000, count=True)
    ids = {paper.id for paper, passes in zip(PAPERS, passing.tolist(), strict=True) if passes}
    assert ({*hits.ids}, hits.total) == (ids, len(ids))
    (in_memory,) = index.match([query])
    ranked = ranker.search(query, ListingFilter(), MAX_RESULTS, MIN_RELEVANCE)
    expected = {number for number, value in in_memory.items() if value >= MIN_RELEVANCE}
    for number in {*ranked.ids} ^ expected:  # those at the edge
        assert in_memory.get(number, 0) == pytest.approx(MIN_RELEVANCE, abs=0.02)
    strengths = [index.details(query, number).strength for number in ranked.ids if number in expected]
    assert all(later <= earlier + 0.02 for earlier, later in itertools.pairwise(strengths))


def test_compound_written_as_one_word_is_a_candidate(
    both: tuple[CandidateRanker, IndexReader, MatchIndex],
) -> None:
    """Papers with "online" match "on-line" by meaning, though they lack the word "line"."""
    ranked = both[0].search(query_language.parse("on-line"), ListingFilter(), MAX_RESULTS, 0.0)
    assert {*ranked.ids} == {paper.id for paper in PAPERS if "Online" in paper.title}


@pytest.mark.parametrize(("text", "searches"), [("machine translation", 1), ('"machine translation"', 0)])
def test_papers_near_in_meaning_are_not_searched_for_a_phrase(
    both: tuple[CandidateRanker, IndexReader, MatchIndex],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    searches: int,
) -> None:
    """This would be slow in a large archive. The papers with the phrase are searched anyway."""
    directions: list[Matrix] = []
    near = QueryBuilder.near

    def recording(builder: QueryBuilder, direction: Matrix) -> tantivy.Query | None:
        directions.append(direction)
        return near(builder, direction)

    monkeypatch.setattr(search_ranking, "ANY_WORD", 1)  # as if more papers had the phrase
    monkeypatch.setattr(search_ranking, "ALL_WORDS", 1)
    monkeypatch.setattr(QueryBuilder, "near", recording)
    query = query_language.parse(text)
    assert both[0].search(query, ListingFilter(), MAX_RESULTS, MIN_RELEVANCE).ids
    assert len(directions) == searches


@pytest.mark.parametrize("text", ["robot", "-RL author:turing"])
def test_filters_on_listings(both: tuple[CandidateRanker, IndexReader, MatchIndex], text: str) -> None:
    """The day and the source must be those of one listing."""
    ranker, *_ = both
    query = query_language.parse(text)
    everything = {*ranker.search(query, ListingFilter(), MAX_RESULTS, MIN_RELEVANCE).ids}
    by_id = {paper.id: searchable(paper) for paper in PAPERS}
    for only in (
        ListingFilter(code=True),
        ListingFilter(day=DAY),
        ListingFilter(source_id=1),
        ListingFilter(DAY, 2),
        ListingFilter(DAY, 1, True),
        ListingFilter(source_id=3),
    ):
        expected = {
            number
            for number in everything
            for day, source_id in by_id[number].listings
            if only.day in (None, day)
            and only.source_id in (None, source_id)
            and (by_id[number].with_code or not only.code)
        }
        assert {*ranker.search(query, only, MAX_RESULTS, MIN_RELEVANCE).ids} >= expected
        assert {*ranker.search(query, only, MAX_RESULTS, MIN_RELEVANCE).ids} <= {
            n for n in by_id if only.code <= by_id[n].with_code
        }


def test_absent_fields(tmp_path: Path) -> None:
    model = RelevanceModel.bundled()
    write(tmp_path / "version", [PaperView(1, "Zebra stripes")], model)
    ranker = CandidateRanker(IndexReader(tmp_path / "version", model), lambda ids: [])
    query = query_language.parse("zebra org:nvidia cat:cs")
    assert ranker.absent_fields(query) == ("an organization", "a category")
    assert ranker.absent_fields(query_language.parse("zebra -cat:cs")) == ()


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='ab -"|:_\\+^*?~(){}[]/!&é中\x00', max_size=40))
def test_any_text_is_searched_or_refused(
    both: tuple[CandidateRanker, IndexReader, MatchIndex], text: str
) -> None:
    """No text is syntax for tantivy."""
    ranker, _, index = both
    try:
        query = query_language.parse(text)
        found = ranker.search(query, ListingFilter(), MAX_RESULTS, MIN_RELEVANCE)
    except InvalidInterest:
        return
    assert len(found.ids) <= found.total <= len(PAPERS)
    passing = dict(zip((paper.id for paper in PAPERS), index.filters.passing_mask(query), strict=True))
    assert all(passing[number] for number in found.ids)


def test_readers_see_commits(tmp_path: Path) -> None:
    """Before the commit, a reader sees the old state; after it, the new one. Nothing is indexed twice."""
    version, model = tmp_path / "version", RelevanceModel.bundled()
    write(version, PAPERS[:2], model)
    reader = IndexReader(version, model)
    with IndexWriter(version, model) as writer:
        writer.put([IndexedPaper(searchable(paper), "2") for paper in PAPERS[1:3]])
        writer.delete([PAPERS[0].id])
        assert not reader.refresh()
        assert reader.papers == 2
    assert reader.refresh()
    assert reader.papers == 2
    ids, _ = reader.records([paper.id for paper in PAPERS[:4]])
    assert ids == [paper.id for paper in PAPERS[1:3]]


def test_failed_update_changes_nothing(tmp_path: Path) -> None:
    version, model = tmp_path / "version", RelevanceModel.bundled()
    write(version, PAPERS[:1], model)
    with pytest.raises(ZeroDivisionError), IndexWriter(version, model) as writer:  # noqa: PT012
        writer.put([IndexedPaper(searchable(paper), "1") for paper in PAPERS])
        raise ZeroDivisionError
    reader = IndexReader(version, model)
    assert (reader.papers, reader.records([1, 2])[0]) == (1, [1])
