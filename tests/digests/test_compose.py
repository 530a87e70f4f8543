"""Test composing: each paper once, a place for every interest, and a reason for every skipped digest."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.digests import compose, ranking, skip_reasons
from app.digests.ranking import CandidatePool, EvidenceMatrix, RankingRequest, Vector
from app.relevance.cut_offs import FLOOR
from app.types import CardReason, Digest, EmptyDigestPolicy, Interest, PaperView, Skip, Trend
from tests.support.evidence import add_interest

TODAY = date(2026, 11, 20)
AGENTS, VIDEO = Interest("agents"), Interest("video")
REST = {number: np.array([0.6, 0.8]) for number in range(4, 10)}


def build_pool(
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
        add_interest(evidence, text, matches.get(text, {}), (excluded or {}).get(text, frozenset()))
    return CandidatePool(
        papers={
            n: PaperView(n, f"Paper {n}", "An abstract.", last_listed_on=(listed or {}).get(n, TODAY))
            for n in range(1, papers + 1)
        },
        trends={n: Trend(score, f"{score:.0%}") for n, score in (trends or {}).items()},
        matches=evidence,
        reason=lambda text, paper_id: CardReason(f"{paper_id} because of {text}"),
        vectors=vectors or {},
        today=TODAY,
        calendar_note=lambda _: calendar_note,
    )


def compose_for(reader: RankingRequest, on: CandidatePool) -> Digest | Skip:
    return compose.compose("2026-11-20", *ranking.rank(on, [reader]))


def composed_digest(reader: RankingRequest, on: CandidatePool) -> Digest:
    result = compose_for(reader, on)
    assert isinstance(result, Digest), result
    return result


def skip_of(reader: RankingRequest, on: CandidatePool) -> str:
    result = compose_for(reader, on)
    assert isinstance(result, Skip), result
    return result.reason


def paper_ids(result: Digest) -> dict[str, list[int]]:
    return {section.interest: [item.paper_id for item in section.picks] for section in result.sections}


def test_paper_appears_once_under_its_best_interest() -> None:
    """Papers within a section are sorted by score."""
    on = build_pool({"agents": {1: FLOOR, 2: 0.9, 3: FLOOR}, "video": {1: 0.6, 4: 0.5}})
    assert paper_ids(composed_digest(RankingRequest((AGENTS, VIDEO)), on)) == {
        "agents": [2, 3],
        "video": [1, 4],
    }


def test_sections_come_in_the_order_of_their_best_papers() -> None:
    """The best paper of all is the first one. If best papers are equal, the reader's order is kept."""
    on = build_pool({"agents": {1: 0.5}, "video": {2: 0.9, 3: 0.4}, "traps": {4: 0.5}})
    result = composed_digest(RankingRequest((TRAPS, AGENTS, VIDEO)), on)
    assert [*paper_ids(result).items()] == [("video", [2, 3]), ("traps", [4]), ("agents", [1])]
    assert result.sections[0].scores[0] == max(
        score for section in result.sections for _, score in section.scored
    )


def test_papers_already_sent_are_excluded() -> None:
    """This holds even for the best match."""
    on = build_pool({"agents": {1: 0.99, 2: FLOOR}})
    assert paper_ids(composed_digest(RankingRequest((AGENTS,), already_sent=frozenset({1})), on)) == {
        "agents": [2]
    }


def test_papers_below_the_score_threshold_are_excluded() -> None:
    """Two weak matches of one paper may exceed it together."""
    weak = FLOOR * 0.7
    on = build_pool({"agents": {1: weak, 2: weak}, "video": {2: weak}})
    assert paper_ids(composed_digest(RankingRequest((AGENTS, VIDEO)), on)) == {"agents": [2]}


def test_votes_and_freshness_break_ties() -> None:
    """Papers of equal relevance are sorted by trend, then by age."""
    on = build_pool(
        {"agents": {1: 0.5, 2: 0.5, 3: 0.5}},
        trends={1: 0.1, 2: 0.9, 3: 0.9},
        listed={3: TODAY - timedelta(days=1)},
    )
    assert paper_ids(composed_digest(RankingRequest((AGENTS,)), on)) == {"agents": [2, 3, 1]}


def test_paper_over_quota_moves_to_the_next_best_interest() -> None:
    """It moves only if it matches that interest nearly as well."""
    on = build_pool({"agents": {1: 0.9, 2: 0.8, 3: 0.7}, "video": {2: 0.6, 3: 0.1}})
    assert paper_ids(composed_digest(RankingRequest((Interest("agents", quota=1), VIDEO)), on)) == {
        "agents": [1],
        "video": [2],
    }


def test_paper_over_quota_moves_only_where_it_would_be_selected_anyway() -> None:
    """An interest that it matches weakly does not take it, and the likes take only what fits them best."""
    weak = FLOOR * 0.7
    on = build_pool({"agents": {1: 0.9, 2: 0.8, 3: 0.4, 4: FLOOR}, "video": {3: weak}})
    reader = RankingRequest((Interest("agents", quota=1), VIDEO), profile={2: 0.7, 4: 0.6})
    assert paper_ids(composed_digest(reader, on)) == {"agents": [1], "": [4]}


def test_full_interest_does_not_take_papers_from_another() -> None:
    """Agents alone would select the first paper, although it matches the full interest better."""
    on = build_pool({"agents": {1: FLOOR}, "video": {1: 0.9, 2: 0.95}})
    assert paper_ids(composed_digest(RankingRequest((AGENTS, Interest("video", quota=1))), on)) == {
        "agents": [1],
        "video": [2],
    }


def test_full_interest_does_not_displace_papers_of_another() -> None:
    """Its surplus papers have better scores, but no place."""
    on = build_pool(
        {"agents": dict.fromkeys(range(1, 31), 0.9), "video": dict.fromkeys(range(31, 35), 0.4)}, 34
    )
    result = composed_digest(RankingRequest((Interest("agents", quota=1), VIDEO), max_papers=4), on)
    assert paper_ids(result) == {"agents": [1], "video": [31, 32, 33]}


def test_every_interest_keeps_its_best_paper() -> None:
    """With room for three, the best paper of the other interest is selected."""
    on = build_pool({"agents": dict.fromkeys(range(1, 9), 0.9), "video": {9: FLOOR}})
    assert paper_ids(composed_digest(RankingRequest((AGENTS, VIDEO), max_papers=3), on)) == {
        "agents": [1, 2],
        "video": [9],
    }


def test_digest_below_the_minimum_is_held_back() -> None:
    """The reason gives the number of papers."""
    too_few = "fewer than the minimum of 3"
    for scores, reason in (
        ({1: 0.9, 2: 0.9}, f"only 2 papers matched, {too_few}; they count for the following digest"),
        ({1: 0.9}, f"only 1 paper matched, {too_few}; it counts for the following digest"),
    ):
        assert skip_of(RankingRequest((AGENTS,), min_papers=3), build_pool({"agents": scores})) == reason


def test_digest_below_the_minimum_is_sent_before_papers_expire() -> None:
    """Papers that would leave the window tomorrow are sent today, with a note that counts them."""
    reader = RankingRequest((AGENTS,), min_papers=4, expires_on=TODAY - timedelta(days=5))
    for papers, expiring, subject in (
        (1, 1, "the only one"),
        (2, 2, "they"),
        (2, 1, "1 of them"),
        (3, 2, "2 of them"),
    ):
        listed = dict.fromkeys(range(1, expiring + 1), TODAY - timedelta(days=6))
        on = build_pool({"agents": dict.fromkeys(range(1, papers + 1), 0.9)}, listed=listed)
        digest = composed_digest(reader, on)
        assert len(paper_ids(digest)["agents"]) == papers
        assert digest.note == (
            "This digest has fewer matching papers than your minimum of 4, "
            f"because {subject} would be too old for the next digest."
        )


@pytest.mark.parametrize(
    ("papers", "calendar_note", "reason"),
    [
        (9, "", "none of 9 recent papers matched an interest"),
        (1, "", "the one recent paper matched no interest"),
        (0, "nothing is listed on a Saturday", "no new papers; nothing is listed on a Saturday"),
    ],
)
def test_skip_reason(papers: int, calendar_note: str, reason: str) -> None:
    """It has the number of papers considered, and the calendar's explanation if there is one."""
    assert skip_of(RankingRequest((AGENTS,)), build_pool({}, papers, calendar_note=calendar_note)) == reason


def test_skip_reason_names_unknown_words() -> None:
    """The word may be mistyped or unused in the field."""
    on = replace(
        build_pool({}, 9), missing_words=lambda text: ["lerning", "C++"] if text == "agents" else ["lerning"]
    )
    reason = "none of 9 recent papers matched an interest: no paper mentions “lerning”, “C++”"
    assert skip_of(RankingRequest((AGENTS, VIDEO)), on) == reason


def test_skip_reason_names_no_words_if_another_interest_has_them_all() -> None:
    """The missing words do not explain why the other interest matched nothing."""
    on = replace(build_pool({}), missing_words=lambda text: ["honey"] if text == "agents" else [])
    assert skip_of(RankingRequest((AGENTS, VIDEO)), on) == "none of 9 recent papers matched an interest"
    assert skip_of(RankingRequest((AGENTS,)), on).endswith("no paper mentions “honey”")


def test_skip_reason_names_fields_that_no_paper_has() -> None:
    """The sources that don't give them are named, once for all interests."""
    note = skip_reasons.absent_fields_note(["a category"], {"Hugging Face Daily Papers"})
    assert note == "no recent paper has a category (Hugging Face Daily Papers gives none)"
    notes_by_interest = {"agents": note, "video": note}
    on = replace(
        build_pool({}),
        missing_words=lambda _: ["Zebrafish"],
        absent_fields_note=lambda text: notes_by_interest[text],
    )
    assert skip_of(RankingRequest((AGENTS, VIDEO)), on) == (
        f"none of 9 recent papers matched an interest: no paper mentions “Zebrafish”; {note}"
    )
    both = skip_reasons.absent_fields_note(["an organization", "a category"], {"Blog", "arXiv", "HF"})
    assert both == "no recent paper has an organization or a category (Blog, HF and arXiv give none)"
    assert skip_reasons.absent_fields_note(["a category"], map(str, range(9))).endswith(
        "(the sources give none)"
    )


def test_skip_reason_suits_subscribers_and_operators() -> None:
    """It addresses nobody and ends without a full stop, however many parts it has."""
    on = build_pool({}, 9, calendar_note="nothing is listed on a Saturday")
    reader = RankingRequest((AGENTS,), muted=frozenset({1, 2}), invalid_interests=('"open',))
    assert skip_of(reader, on) == (
        "none of 7 recent papers matched an interest; 2 more were muted; nothing is listed on a Saturday; "
        'interests that could not be understood were left out: "open'
    )


def test_trending_papers_can_replace_an_empty_digest() -> None:
    """They respect the exclusions, and the note says what they are."""
    on = build_pool({}, 4, trends={1: 0.2, 2: 0.9, 3: 0.5, 4: 0.99}, excluded={"agents": frozenset({4})})
    result = composed_digest(
        RankingRequest((AGENTS,), max_papers=2, when_empty=EmptyDigestPolicy.TRENDING), on
    )
    assert paper_ids(result) == {"": [2, 3]}
    assert "Nothing new matched" in result.note


def test_trending_papers_fill_free_places() -> None:
    """They come after all matches, need votes, and are never the best paper of the digest."""
    on = replace(
        build_pool({"agents": {1: 0.5}}, 6, excluded={"agents": frozenset({5})}),
        trends={
            2: Trend(0.6, "3 votes"), 3: Trend(0.9, "90 votes"), 4: Trend(0.5, ""), 5: Trend(1.0, "99 votes"),
            6: Trend(0.5, "1 vote"),
        },
    )  # fmt: skip
    reader = RankingRequest((AGENTS,), max_trending=3)
    result = composed_digest(reader, on)
    assert paper_ids(result) == {"agents": [1], "": [3, 2]}
    well_voted = ("more votes than most papers of its day", 0.0)
    assert [(item.reason, score) for item, score in result.sections[1].scored] == [well_voted, well_voted]
    assert result.sections[-1].heading == ""
    assert paper_ids(composed_digest(replace(reader, max_trending=1), on)) == {"agents": [1], "": [3]}
    assert paper_ids(composed_digest(replace(reader, max_trending=0), on)) == {"agents": [1]}
    assert paper_ids(composed_digest(replace(reader, max_papers=2), on)) == {"agents": [1], "": [3]}
    assert paper_ids(composed_digest(replace(reader, already_sent=frozenset({3})), on)) == {
        "agents": [1],
        "": [2],
    }
    assert paper_ids(composed_digest(replace(reader, profile={3: -0.1}), on)) == {"agents": [1], "": [2]}


def test_papers_over_quota_are_not_added_as_trending() -> None:
    """The reader limited their number."""
    on = build_pool({"agents": {1: 0.99, 2: 0.8, 3: 0.7}}, trends={2: 0.9, 3: 0.9, 4: 0.8})
    result = composed_digest(RankingRequest((Interest("agents", quota=1),), max_trending=3), on)
    assert paper_ids(result) == {"agents": [1], "": [4]}


def test_weight_does_not_change_the_section_of_a_paper() -> None:
    """A paper stays under the interest that it matches best."""
    on = build_pool({"agents": {1: 0.7, 2: 0.8}, "video": {1: 0.8}})
    assert paper_ids(composed_digest(RankingRequest((Interest("agents", 3.0), VIDEO)), on)) == {
        "agents": [2],
        "video": [1],
    }


def test_trending_papers_do_not_count_towards_the_minimum() -> None:
    """Without matches the digest is skipped."""
    on = build_pool({"agents": {1: 0.5}}, trends=dict.fromkeys(range(1, 9), 0.9))
    assert "only 1 paper matched, fewer than the minimum of 2" in skip_of(
        RankingRequest((AGENTS,), min_papers=2, max_trending=3), on
    )
    assert "none of 9" in skip_of(RankingRequest((VIDEO,), max_trending=3), on)


def test_muted_papers_are_excluded() -> None:
    """Matches, trends and likes do not matter. The skip reason gives the number of muted papers."""
    on = build_pool({"agents": {1: 0.9, 2: 0.5}}, 3, trends={1: 0.9, 3: 0.6})
    reader = RankingRequest((AGENTS,), max_trending=3, profile={1: 0.9}, muted=frozenset({1}))
    assert paper_ids(composed_digest(reader, on)) == {"agents": [2], "": [3]}
    assert skip_of(replace(reader, muted=frozenset({1, 2, 3})), on) == "no new papers that are not muted"
    reason = skip_of(replace(reader, muted=frozenset({1, 2}), already_sent=frozenset({2})), on)
    assert reason == "the one recent paper matched no interest; one more was muted"
    trending = RankingRequest((), muted=frozenset({1}))
    assert paper_ids(composed_digest(trending, on)) == {"": [3, 2]}


@pytest.mark.parametrize(
    ("age", "reason"), [(0, "newly listed"), (1, "newly listed"), (2, "listed on 18 November")]
)
def test_papers_without_votes_are_called_new_for_two_days(age: int, reason: str) -> None:
    on = build_pool({}, 2, listed={2: TODAY - timedelta(days=age)})
    on = replace(on, trends={1: Trend(0.9, "12 votes"), 2: Trend(0.5, "")})
    result = composed_digest(RankingRequest((AGENTS,), when_empty=EmptyDigestPolicy.TRENDING), on)
    assert [item.reason for item in result.picks] == ["more votes than most papers of its day", reason]


def test_all_trending_papers_may_be_excluded() -> None:
    """The skip reason still counts the new papers."""
    on = build_pool({}, 2, excluded={"agents": frozenset({1, 2})})
    reader = RankingRequest((AGENTS,), when_empty=EmptyDigestPolicy.TRENDING)
    assert skip_of(reader, on) == "none of 2 recent papers matched an interest"


def test_reader_without_interests_gets_trending_papers() -> None:
    assert paper_ids(
        composed_digest(RankingRequest((), max_papers=1), build_pool({}, 3, trends={2: 0.9}))
    ) == {"": [2]}


def test_likes_take_no_trending_papers_from_a_reader_without_interests() -> None:
    """The digest stays full, and is sent even if fewer liked papers than the minimum match."""
    on = build_pool({}, 4, trends={2: 0.9, 3: 0.1, 4: 0.5})
    reader = RankingRequest((), min_papers=3, max_papers=3)
    assert [item.paper_id for item in composed_digest(reader, on).picks] == [2, 4, 3]
    result = composed_digest(replace(reader, profile={3: 0.6, 1: -0.6}), on)
    liked, trending = result.sections
    assert (liked.heading, [item.paper_id for item in liked.picks]) == ("Close to what you liked", [3])
    assert (trending.heading, [item.paper_id for item in trending.picks]) == ("Trending now", [2, 4])
    assert trending.picks[1].reason == "newly listed"


def test_likes_are_named_as_reason() -> None:
    """A liked kind of paper without a matching interest is in a section at the end."""
    profile = {1: 0.6, 2: 0.6}
    result = composed_digest(
        RankingRequest((AGENTS,), profile=profile, profile_reason=lambda _: "close to “Plans”"),
        build_pool({"agents": {1: 0.9}}),
    )
    assert paper_ids(result) == {"agents": [1], "": [2]}
    assert [item.reason for item in result.picks] == [
        "1 because of agents; close to “Plans”",
        "close to “Plans”",
    ]


def test_like_overridden_by_an_exclusion_is_not_a_reason() -> None:
    """Another interest selects the paper."""
    on = build_pool({"video": {1: 0.9}}, excluded={"agents": frozenset({1})})
    result = composed_digest(
        RankingRequest((AGENTS, VIDEO), profile={1: 0.9}, profile_reason=lambda _: "close to “Plans”"), on
    )
    assert [item.reason for item in result.picks] == ["1 because of video"]


def test_similar_papers_are_diversified() -> None:
    """A different paper of nearly equal score comes before the second similar one."""
    same, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    on = build_pool({"agents": {1: 0.9, 2: 0.89, 3: 0.88}}, vectors={1: same, 2: same, 3: other} | REST)
    assert paper_ids(composed_digest(RankingRequest((AGENTS,), max_papers=2), on)) == {"agents": [1, 3]}
    assert paper_ids(composed_digest(RankingRequest((AGENTS,), max_papers=3), on)) == {"agents": [1, 2, 3]}


def test_a_much_better_paper_is_selected_despite_its_similarity() -> None:
    """Diversity lowers a score by a limited amount."""
    same, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    on = build_pool({"agents": {1: 0.99, 2: 0.98, 3: FLOOR}}, vectors={1: same, 2: same, 3: other} | REST)
    assert paper_ids(composed_digest(RankingRequest((AGENTS,), max_papers=2), on)) == {"agents": [1, 2]}


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
def test_invariants_of_composing(
    hits: Sequence[dict[int, float]],
    quota: int | None,
    profile: dict[int, float],
    vectors: dict[int, Vector],
    most: int,
    least: int,
    sent: frozenset[int],
    order: Sequence[int],
) -> None:
    """Each paper appears once, limits hold, and each interest has its best paper.

    Papers already sent or below the threshold are excluded, and the order of interests changes nothing.
    """
    interests = (replace(AGENTS, quota=quota), VIDEO, TRAPS)
    on = build_pool(dict(zip(("agents", "video", "traps"), hits, strict=True)), vectors=vectors)
    request = RankingRequest(interests, least, most, profile=profile, already_sent=sent)
    result = compose_for(request, on)
    other = compose_for(replace(request, interests=tuple(interests[n] for n in order)), on)
    if isinstance(result, Skip) or isinstance(other, Skip):
        assert result == other
        return
    selected = [item.paper_id for item in result.picks]
    assert sorted(selected) == sorted(item.paper_id for item in other.picks)
    assert len(set(selected)) == len(selected)
    assert least <= len(selected) <= most
    assert not set(selected) & sent
    assert result.sections[0].scores[0] == max(
        score for section in result.sections for _, score in section.scored
    )
    assert len(paper_ids(result).get("agents", ())) <= (quota or most)
    for number in selected:
        lacking = math.prod(1 - each.get(number, 0.0) for each in (*hits, profile))
        assert 1 - lacking >= FLOOR - 1e-9


@given(relevant=relevances, irrelevant=relevances, quota=quotas, vectors=places)
def test_adding_an_interest_keeps_the_best_paper_of_another(
    relevant: dict[int, float], irrelevant: dict[int, float], quota: int | None, vectors: dict[int, Vector]
) -> None:
    """This holds for any number of matches and any quota."""
    on = build_pool({"agents": relevant, "video": irrelevant}, vectors=vectors)
    alone = compose_for(RankingRequest((AGENTS,), max_papers=2), on)
    if isinstance(alone, Skip):
        return
    both = composed_digest(RankingRequest((AGENTS, replace(VIDEO, quota=quota)), max_papers=2), on)
    assert alone.picks[0].paper_id in [item.paper_id for item in both.picks]


@given(
    hits=st.tuples(relevances, relevances),
    profile=profiles,
    vectors=places,
    most=st.integers(1, 10),
    weights=st.tuples(st.floats(0.1, 3.0), st.floats(0.1, 3.0)).map(sorted),
)
def test_larger_weight_never_sends_fewer_papers(
    hits: Sequence[dict[int, float]],
    profile: dict[int, float],
    vectors: dict[int, Vector],
    most: int,
    weights: Sequence[float],
) -> None:
    """The preferences offer weights as amounts, so this holds for any matches and feedback."""
    on = build_pool({"agents": hits[0], "video": hits[1]}, vectors=vectors)
    requests = [
        RankingRequest((replace(AGENTS, weight=weight), VIDEO), max_papers=most, profile=profile)
        for weight in weights
    ]
    fewer, more = (set(ranked.papers) for ranked in ranking.rank(on, requests))
    assert fewer <= more
    digests = [compose_for(request, on) for request in requests]
    counts = [len(digest.picks) if isinstance(digest, Digest) else 0 for digest in digests]
    assert counts == [min(len(relevant), most) for relevant in (fewer, more)]


@given(
    hits=relevances, profile=profiles, muted=st.frozensets(numbers), empty=st.sampled_from(EmptyDigestPolicy)
)
def test_exclusions_override_profile_and_trend(
    hits: dict[int, float], profile: dict[int, float], muted: frozenset[int], empty: EmptyDigestPolicy
) -> None:
    """Only another interest may select an excluded paper."""
    on = build_pool(
        {"agents": {}, "video": hits}, trends=dict.fromkeys(muted, 0.99), excluded={"agents": muted}
    )
    result = compose_for(RankingRequest((AGENTS, VIDEO), when_empty=empty, profile=profile), on)
    if isinstance(result, Digest):
        leaked = {item.paper_id for item in result.picks} & muted
        assert all(hits.get(number, 0.0) >= FLOOR for number in leaked)


def test_note_explains_the_last_skipped_digest() -> None:
    """Without a skipped edition there is no note."""
    on = build_pool({"agents": {1: 0.5}}, trends={2: 0.9})
    days = [(f"2026-11-{day}", f"no new papers. A reason for {day}") for day in range(15, 20)]
    note = composed_digest(
        RankingRequest((AGENTS,), skipped_editions=tuple(days[-1:]), invalid_interests=('"open',)), on
    ).note
    reason = "There was no digest on Thursday, 19 November: no new papers. A reason for 19."
    assert note.startswith(f"{reason} We could not")
    note = composed_digest(RankingRequest((AGENTS,), skipped_editions=tuple(days)), on).note
    assert note == reason.replace(" on Thursday", " several times, the last on Thursday")
    assert composed_digest(RankingRequest((AGENTS,)), on).note == ""
    trending = RankingRequest(
        (VIDEO,), when_empty=EmptyDigestPolicy.TRENDING, skipped_editions=tuple(days[-1:])
    )
    assert "here is what is trending. There was no digest on Thursday" in composed_digest(trending, on).note
