"""Composing digests: each paper once, a place for every interest, and a reason for every skipped digest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.digests import compose, ranking
from app.digests.ranking import FLOOR, CandidatePool, EvidenceMatrix, RankingRequest, Vector
from app.papers import display
from app.types import Digest, EmptyDigestPolicy, Interest, PaperView, Skip, Trend

TODAY = date(2026, 11, 20)
AGENTS, VIDEO = Interest("agents"), Interest("video")
REST = {number: np.array([0.6, 0.8]) for number in range(4, 10)}


def pool(
    matches: Mapping[str, Mapping[int, float]],
    papers: int = 9,
    trends: Mapping[int, float] | None = None,
    listed: Mapping[int, date] | None = None,
    excluded: Mapping[str, frozenset[int]] | None = None,
    vectors: Mapping[int, Vector] | None = None,
    calendar_note: str = "",
) -> CandidatePool:
    """Return papers 1 … n, with their relevance to each interest."""
    evidence = EvidenceMatrix(range(1, papers + 1))
    for text in ("agents", "video", "traps"):
        evidence.add(text, matches.get(text, {}), (excluded or {}).get(text, frozenset()))
    return CandidatePool(
        papers={
            n: PaperView(n, f"Paper {n}", "An abstract.", last_listed_on=(listed or {}).get(n, TODAY))
            for n in range(1, papers + 1)
        },
        trends={n: Trend(score, f"{score:.0%}") for n, score in (trends or {}).items()},
        matches=evidence,
        reason=lambda text, paper_id: f"{paper_id} because of {text}",
        vectors=vectors or {},
        today=TODAY,
        calendar_note=calendar_note,
    )


def composed(reader: RankingRequest, on: CandidatePool) -> Digest | Skip:
    return compose.compose("2026-11-20", *ranking.rank(on, [reader]))


def digest(reader: RankingRequest, on: CandidatePool) -> Digest:
    result = composed(reader, on)
    assert isinstance(result, Digest), result
    return result


def skipped(reader: RankingRequest, on: CandidatePool) -> str:
    result = composed(reader, on)
    assert isinstance(result, Skip), result
    return result.reason


def ids(result: Digest) -> dict[str, list[int]]:
    return {section.interest: [item.paper_id for item in section.picks] for section in result.sections}


def test_a_paper_stands_once_under_the_interest_it_fits_best() -> None:
    """Sections follow the reader's order; papers within a section are sorted by score."""
    on = pool({"agents": {1: FLOOR, 2: 0.9, 3: FLOOR}, "video": {1: 0.6, 4: 0.5}})
    assert ids(digest(RankingRequest((AGENTS, VIDEO)), on)) == {"agents": [2, 3], "video": [1, 4]}


def test_never_what_was_sent_before() -> None:
    """Not even when it is the best match by far."""
    on = pool({"agents": {1: 0.99, 2: FLOOR}})
    assert ids(digest(RankingRequest((AGENTS,), already_sent=frozenset({1})), on)) == {"agents": [2]}


def test_below_the_floor_nothing_is_sent() -> None:
    """Two weak matches of one paper together may pass it."""
    weak = FLOOR * 0.7
    on = pool({"agents": {1: weak, 2: weak}, "video": {2: weak}})
    assert ids(digest(RankingRequest((AGENTS, VIDEO)), on)) == {"agents": [2]}


def test_votes_and_freshness_break_ties() -> None:
    """Equally relevant papers stand by trend, then by age."""
    on = pool(
        {"agents": {1: 0.5, 2: 0.5, 3: 0.5}},
        trends={1: 0.1, 2: 0.9, 3: 0.9},
        listed={3: TODAY - timedelta(days=1)},
    )
    assert ids(digest(RankingRequest((AGENTS,)), on)) == {"agents": [2, 3, 1]}


def test_a_quota_holds_and_the_next_best_interest_takes_over() -> None:
    """A paper that no longer fits under its best interest may stand under one it fits nearly as well."""
    on = pool({"agents": {1: 0.9, 2: 0.8, 3: 0.7}, "video": {2: 0.6, 3: 0.1}})
    assert ids(digest(RankingRequest((Interest("agents", quota=1), VIDEO)), on)) == {
        "agents": [1],
        "video": [2],
    }


def test_a_full_interest_costs_another_no_paper_that_it_would_bring_itself() -> None:
    """Agents alone would bring the first paper; that it fits the full one better takes nothing away."""
    on = pool({"agents": {1: FLOOR}, "video": {1: 0.9, 2: 0.95}})
    assert ids(digest(RankingRequest((AGENTS, Interest("video", quota=1))), on)) == {
        "agents": [1],
        "video": [2],
    }


def test_a_full_interest_hides_no_paper_of_another() -> None:
    """However many of its papers have better scores: they have no place, and so they take none."""
    on = pool({"agents": dict.fromkeys(range(1, 31), 0.9), "video": dict.fromkeys(range(31, 35), 0.4)}, 34)
    result = digest(RankingRequest((Interest("agents", quota=1), VIDEO), max_papers=4), on)
    assert ids(result) == {"agents": [1], "video": [31, 32, 33]}


def test_an_interest_with_many_papers_does_not_crowd_out_another() -> None:
    """With room for three, the best paper of the other interest is in."""
    on = pool({"agents": dict.fromkeys(range(1, 9), 0.9), "video": {9: FLOOR}})
    assert ids(digest(RankingRequest((AGENTS, VIDEO), max_papers=3), on)) == {"agents": [1, 2], "video": [9]}


def test_a_thin_day_waits_for_the_next() -> None:
    """Fewer papers than the reader's minimum are held back, and the reason says how many there were."""
    on = pool({"agents": {1: 0.9, 2: 0.9}})
    assert (
        skipped(RankingRequest((AGENTS,), min_papers=3), on)
        == "2 of at least 3 papers: kept for the next digest"
    )


def test_a_thin_day_goes_out_before_a_paper_is_lost() -> None:
    """What would drop out of the window tomorrow is sent today."""
    on = pool({"agents": {1: 0.9}}, listed={1: TODAY - timedelta(days=6)})
    assert ids(digest(RankingRequest((AGENTS,), min_papers=3, expires_on=TODAY - timedelta(days=5)), on)) == {
        "agents": [1]
    }


@pytest.mark.parametrize(
    ("papers", "calendar_note", "reason"),
    [
        (9, "", "none of the 9 new papers matched your interests."),
        (1, "", "the one new paper did not match your interests."),
        (0, "Nothing is listed on a Saturday.", "no new papers. Nothing is listed on a Saturday."),
    ],
)
def test_a_skip_says_why(papers: int, calendar_note: str, reason: str) -> None:
    """How many papers were looked at, and whether the calendar explains it."""
    assert skipped(RankingRequest((AGENTS,)), pool({}, papers, calendar_note=calendar_note)) == reason


def test_a_skip_names_the_words_that_no_paper_has() -> None:
    """The word may be mistyped, or not used in the field."""
    on = replace(
        pool({}, 9), missing_words=lambda text: ["lerning", "C++"] if text == "agents" else ["lerning"]
    )
    reason = "none of the 9 new papers matched your interests: no paper says “lerning”, “C++”."
    assert skipped(RankingRequest((AGENTS, VIDEO)), on) == reason


def test_a_reader_may_choose_trending_papers_instead_of_no_digest() -> None:
    """Best trending first, without what their exclusions forbid, and the note says so."""
    on = pool({}, 4, trends={1: 0.2, 2: 0.9, 3: 0.5, 4: 0.99}, excluded={"agents": frozenset({4})})
    result = digest(RankingRequest((AGENTS,), max_papers=2, when_empty=EmptyDigestPolicy.TRENDING), on)
    assert ids(result) == {"": [2, 3]}
    assert "Nothing new matched" in result.note


def test_what_trends_beyond_the_interests_fills_free_places() -> None:
    """After all that fits, only what somebody voted on, and never as the best paper of the digest."""
    on = replace(
        pool({"agents": {1: 0.5}}, 6, excluded={"agents": frozenset({5})}),
        trends={
            2: Trend(0.6, "3 votes"), 3: Trend(0.9, "90 votes"), 4: Trend(0.5, ""), 5: Trend(1.0, "99 votes"),
            6: Trend(0.5, "1 vote"),
        },
    )  # fmt: skip
    reader = RankingRequest((AGENTS,), max_trending=3)
    result = digest(reader, on)
    assert ids(result) == {"agents": [1], "": [3, 2]}
    well_voted = ("more votes than most papers of its day", 0.0)
    assert [(item.reason, item.score) for item in result.picks[1:]] == [well_voted, well_voted]
    assert result.sections[-1].heading == ""
    assert ids(digest(replace(reader, max_trending=1), on)) == {"agents": [1], "": [3]}
    assert ids(digest(replace(reader, max_trending=0), on)) == {"agents": [1]}
    assert ids(digest(replace(reader, max_papers=2), on)) == {"agents": [1], "": [3]}
    assert ids(digest(replace(reader, already_sent=frozenset({3})), on)) == {"agents": [1], "": [2]}
    assert ids(digest(replace(reader, profile={3: -0.1}), on)) == {"agents": [1], "": [2]}


def test_what_a_quota_turned_away_is_not_beyond_the_interests() -> None:
    """It fits one of them: its reader wants no more of that."""
    on = pool({"agents": {1: 0.99, 2: 0.8, 3: 0.7}}, trends={2: 0.9, 3: 0.9, 4: 0.8})
    result = digest(RankingRequest((Interest("agents", quota=1),), max_trending=3), on)
    assert ids(result) == {"agents": [1], "": [4]}


def test_a_weight_says_not_what_a_paper_is_about() -> None:
    """The interest that counts most takes no paper from the one that it fits better."""
    on = pool({"agents": {1: 0.7, 2: 0.8}, "video": {1: 0.8}})
    assert ids(digest(RankingRequest((Interest("agents", 3.0), VIDEO)), on)) == {"agents": [2], "video": [1]}


def test_what_trends_beyond_makes_no_digest_by_itself() -> None:
    """A digest below the minimum is still held back, and one without matches is still skipped."""
    on = pool({"agents": {1: 0.5}}, trends=dict.fromkeys(range(1, 9), 0.9))
    assert "1 of at least 2 papers" in skipped(RankingRequest((AGENTS,), min_papers=2, max_trending=3), on)
    assert "none of the 9" in skipped(RankingRequest((VIDEO,), max_trending=3), on)


def test_a_muted_paper_is_in_no_section() -> None:
    """Even if it fits, trends or is liked. The reason for a skip says how many papers were muted."""
    on = pool({"agents": {1: 0.9, 2: 0.5}}, 3, trends={1: 0.9, 3: 0.6})
    reader = RankingRequest((AGENTS,), max_trending=3, profile={1: 0.9}, muted=frozenset({1}))
    assert ids(digest(reader, on)) == {"agents": [2], "": [3]}
    assert skipped(replace(reader, muted=frozenset({1, 2, 3})), on) == "no new papers; 3 say what you muted."
    reason = skipped(replace(reader, muted=frozenset({1, 2}), already_sent=frozenset({2})), on)
    assert reason == "the one new paper did not match your interests; one says what you muted."
    trending = RankingRequest((), muted=frozenset({1}))
    assert ids(digest(trending, on)) == {"": [3, 2]}


def test_what_nobody_voted_on_is_not_said_to_trend() -> None:
    """It fills what room there is, as new."""
    on = replace(pool({}, 2), trends={1: Trend(0.9, "12 votes"), 2: Trend(0.5, "")})
    result = digest(RankingRequest((AGENTS,), when_empty=EmptyDigestPolicy.TRENDING), on)
    assert [item.reason for item in result.picks] == [
        "more votes than most papers of its day",
        "newly listed",
    ]


def test_what_trends_may_be_all_excluded() -> None:
    """The reason for the skip still counts the new papers."""
    on = pool({}, 2, excluded={"agents": frozenset({1, 2})})
    reader = RankingRequest((AGENTS,), when_empty=EmptyDigestPolicy.TRENDING)
    assert skipped(reader, on) == "none of the 2 new papers matched your interests."


def test_without_interests_a_reader_gets_what_trends() -> None:
    """Somebody who names none wants the news of the field."""
    assert ids(digest(RankingRequest((), max_papers=1), pool({}, 3, trends={2: 0.9}))) == {"": [2]}


def test_what_a_reader_liked_is_a_reason_and_brings_papers_of_its_own() -> None:
    """Under an interest it is added to the interest's reason; alone it has a section at the end."""
    profile = {1: 0.6, 2: 0.6}
    result = digest(
        RankingRequest((AGENTS,), profile=profile, profile_reason=lambda _: "close to “Plans”"),
        pool({"agents": {1: 0.9}}),
    )
    assert ids(result) == {"agents": [1], "": [2]}
    assert [item.reason for item in result.picks] == [
        "1 because of agents; close to “Plans”",
        "close to “Plans”",
    ]


def test_a_like_that_an_exclusion_overrides_is_no_reason() -> None:
    """The like does not count: another interest brings the paper."""
    on = pool({"video": {1: 0.9}}, excluded={"agents": frozenset({1})})
    result = digest(
        RankingRequest((AGENTS, VIDEO), profile={1: 0.9}, profile_reason=lambda _: "close to “Plans”"), on
    )
    assert [item.reason for item in result.picks] == ["1 because of video"]


def test_of_two_papers_that_say_the_same_one_leaves_room_for_another() -> None:
    """A different one of nearly equal worth comes before the second of the two; nothing is lost for good."""
    same, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    on = pool({"agents": {1: 0.9, 2: 0.89, 3: 0.88}}, vectors={1: same, 2: same, 3: other} | REST)
    assert ids(digest(RankingRequest((AGENTS,), max_papers=2), on)) == {"agents": [1, 3]}
    assert ids(digest(RankingRequest((AGENTS,), max_papers=3), on)) == {"agents": [1, 2, 3]}


def test_a_much_better_paper_is_selected_despite_its_similarity() -> None:
    """Diversity lowers a score only so far."""
    same, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    on = pool({"agents": {1: 0.99, 2: 0.98, 3: FLOOR}}, vectors={1: same, 2: same, 3: other} | REST)
    assert ids(digest(RankingRequest((AGENTS,), max_papers=2), on)) == {"agents": [1, 2]}


# --- whatever matches

TRAPS = Interest("traps")
numbers = st.integers(1, 9)
relevances = st.dictionaries(numbers, st.floats(0.0, 0.99), max_size=9)
profiles = st.dictionaries(numbers, st.floats(-0.99, 0.99), max_size=9)
angles = st.fixed_dictionaries({number: st.floats(0.0, 1.5) for number in range(1, 10)})
places = angles.map(lambda of: {n: np.array([math.cos(angle), math.sin(angle)]) for n, angle in of.items()})
quotas = st.one_of(st.none(), st.integers(1, 3))


@given(
    hits=st.tuples(relevances, relevances, relevances),
    quota=quotas,
    profile=profiles,
    vectors=places,
    most=st.integers(3, 10),
    least=st.integers(1, 3),
    sent=st.frozensets(numbers),
    order=st.permutations([0, 1, 2]),
)
def test_whatever_matches(
    hits: Sequence[dict[int, float]],
    quota: int | None,
    profile: dict[int, float],
    vectors: dict[int, Vector],
    most: int,
    least: int,
    sent: frozenset[int],
    order: Sequence[int],
) -> None:
    """Each paper once, none again, none below the floor, quota and limits hold; the order of interests
    changes nothing, and each interest's best paper is there.
    """
    interests = (replace(AGENTS, quota=quota), VIDEO, TRAPS)
    on = pool(dict(zip(("agents", "video", "traps"), hits, strict=True)), vectors=vectors)
    request = RankingRequest(interests, least, most, profile=profile, already_sent=sent)
    result = composed(request, on)
    other = composed(replace(request, interests=tuple(interests[n] for n in order)), on)
    if isinstance(result, Skip) or isinstance(other, Skip):
        assert result == other
        return
    selected = [item.paper_id for item in result.picks]
    assert sorted(selected) == sorted(item.paper_id for item in other.picks)
    assert len(set(selected)) == len(selected)
    assert least <= len(selected) <= most
    assert not set(selected) & sent
    assert len(ids(result).get("agents", ())) <= (quota or most)
    for number in selected:
        lacking = math.prod(1 - each.get(number, 0.0) for each in (*hits, profile))
        assert 1 - lacking >= FLOOR - 1e-9


@given(mine=relevances, irrelevant=relevances, quota=quotas, vectors=places)
def test_another_interest_never_costs_an_interest_its_best_paper(
    mine: dict[int, float], irrelevant: dict[int, float], quota: int | None, vectors: dict[int, Vector]
) -> None:
    """However much the other one matches, and however few papers it may have."""
    on = pool({"agents": mine, "video": irrelevant}, vectors=vectors)
    alone = composed(RankingRequest((AGENTS,), max_papers=2), on)
    if isinstance(alone, Skip):
        return
    both = digest(RankingRequest((AGENTS, replace(VIDEO, quota=quota)), max_papers=2), on)
    assert alone.picks[0].paper_id in [item.paper_id for item in both.picks]


@given(
    hits=relevances, profile=profiles, muted=st.frozensets(numbers), empty=st.sampled_from(EmptyDigestPolicy)
)
def test_nothing_outweighs_an_exclusion(
    hits: dict[int, float], profile: dict[int, float], muted: frozenset[int], empty: EmptyDigestPolicy
) -> None:
    """Neither profile nor trend brings a paper that an interest excludes; only another interest may."""
    on = pool({"agents": {}, "video": hits}, trends=dict.fromkeys(muted, 0.99), excluded={"agents": muted})
    result = composed(RankingRequest((AGENTS, VIDEO), when_empty=empty, profile=profile), on)
    if isinstance(result, Digest):
        leaked = {item.paper_id for item in result.picks} & muted
        assert all(hits.get(number, 0.0) >= FLOOR for number in leaked)


@pytest.mark.parametrize(
    ("authors", "count", "byline"),
    [
        (["Ada"], 1, "Ada"),
        (["Ada", "Grace"], 2, "Ada and Grace"),
        (["Ada", "Grace", "Alan"], 3, "Ada, Grace and Alan"),
        (["Ada", "Grace", "Alan", "Ken"], 664, "Ada, Grace, Alan and 661 more"),
        ([], 4, "4 authors"),
        ([], 0, ""),
    ],
)
def test_bylines(authors: list[str], count: int, byline: str) -> None:
    """Three names, then how many more, by the true count."""
    assert display.byline(authors, count) == byline


def test_a_summary_is_the_source_s_own_or_the_abstract_s() -> None:
    """A source's summary that is too long is shortened to its most informative sentences."""
    abstract = (
        "Readers lose the middle of long documents. We introduce Bookmark, a reader with an index. " * 2
    )
    extract = "We introduce Bookmark, a reader with an index. Readers lose the middle of long documents."
    assert display.summary(PaperView(1, "Bookmark", abstract, tldr="Short.")) == "Short."
    assert display.summary(PaperView(1, "Bookmark", abstract)) == extract
    assert display.summary(PaperView(1, "Bookmark", "Other.", tldr=abstract * 2)) == extract
    assert display.summary(PaperView(1, "Bookmark")) == ""


def test_the_note_says_why_digests_were_skipped() -> None:
    """It names the last skipped edition; without one there is no note."""
    on = pool({"agents": {1: 0.5}}, trends={2: 0.9})
    days = [(f"2026-11-{day}", f"no new papers. A reason for {day}") for day in range(15, 20)]
    note = digest(
        RankingRequest((AGENTS,), skipped_editions=tuple(days[-1:]), invalid_interests=('"open',)), on
    ).note
    reason = "No digest came on Thursday, 19 November: no new papers. A reason for 19."
    assert note.startswith(f"{reason} This could not")
    note = digest(RankingRequest((AGENTS,), skipped_editions=tuple(days)), on).note
    assert note == reason.replace(" on Thursday", " several times, the last on Thursday")
    assert digest(RankingRequest((AGENTS,)), on).note == ""
    trending = RankingRequest(
        (VIDEO,), when_empty=EmptyDigestPolicy.TRENDING, skipped_editions=tuple(days[-1:])
    )
    assert "here is what is trending. No digest came on Thursday" in digest(trending, on).note
