"""Test user profiles: likes raise similar papers, dislikes lower them, and reasons are true."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.digests import ranking
from app.relevance import cut_offs, user_profile
from app.relevance.model import RelevanceModel
from app.relevance.reasons import MAX_CLOSE_WORDS
from app.text import tokenizer
from app.types import Feedback, PaperView
from tests.support import sample_archive

AT = datetime(2026, 11, 21, tzinfo=UTC)
PAPERS = sample_archive.papers()


@cache
def candidates() -> user_profile.Candidates:
    model = sample_archive.trained_model()
    assert model.space
    return user_profile.Candidates(PAPERS, model, model.space)


def feedback_on(paper: PaperView, liked: bool = True) -> Feedback:
    return Feedback(paper.title, paper.abstract, paper.authors, liked, AT, paper.id)


def papers_on(subject: str) -> list[PaperView]:
    return [paper for paper in PAPERS if subject in paper.abstract]


def profile_of(
    feedback: Sequence[Feedback], among: user_profile.Candidates | None = None
) -> user_profile.UserProfile:
    profile = user_profile.build_profile(feedback, among or candidates())
    assert profile
    return profile


def test_no_feedback_gives_no_profile() -> None:
    """The digest is then built from interests only."""
    assert user_profile.build_profile([], candidates()) is None


def test_similar_papers_rank_first() -> None:
    """With five liked papers of a subject, the others of the subject rank highest."""
    liked, *later = [papers_on("protein folding")[:5], *papers_on("protein folding")[5:]]
    relevance = profile_of([feedback_on(paper) for paper in liked]).relevance
    ranked = sorted(relevance, key=lambda number: -relevance[number])[: len(later)]
    assert sum(number in {paper.id for paper in later} for number in ranked) >= len(later) - 5


def test_single_like_selects_no_paper() -> None:
    """One like may raise papers that an interest matches, but reaches the floor for no other paper."""
    like = papers_on("astronomy")[0]
    relevance = profile_of([feedback_on(like)]).relevance
    assert all(value < cut_offs.FLOOR for number, value in relevance.items() if number != like.id)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(PAPERS))
def test_copy_of_a_liked_paper_ranks_first(liked: PaperView) -> None:
    """No paper is more similar to a liked paper than itself."""
    relevance = profile_of([feedback_on(liked)]).relevance
    assert max(relevance, key=lambda number: relevance[number]) == liked.id


FEEDBACK = st.lists(st.tuples(st.sampled_from(PAPERS), st.booleans()), max_size=8)


@settings(deadline=None, max_examples=50)
@given(FEEDBACK, st.sampled_from(PAPERS))
def test_dislike_never_raises_a_paper(rated: list[tuple[PaperView, bool]], disliked: PaperView) -> None:
    """This holds with any other likes and dislikes."""
    feedback = [feedback_on(paper, liked) for paper, liked in rated]
    lowered = profile_of([*feedback, feedback_on(disliked, liked=False)]).relevance
    before = profile_of(feedback).relevance if feedback else {}
    ids = lowered.keys() | before.keys()
    assert all(
        lowered.get(number, 0.0) <= before.get(number, 0.0) + user_profile.MIN_RELEVANCE for number in ids
    )


def test_copy_of_a_disliked_paper_is_lowered() -> None:
    """Its relevance is negative, and the reason names the disliked paper."""
    disliked = papers_on("quantization")[0]
    profile = profile_of([*map(feedback_on, papers_on("astronomy")[:3]), feedback_on(disliked, liked=False)])
    assert profile.relevance[disliked.id] < 0
    assert f"close to “{disliked.title}”, which you asked less of, through “" in profile.reason(disliked.id)


def test_paper_without_known_words_has_no_effect() -> None:
    """A paper without known terms changes nothing, whether it is liked or disliked."""
    unknown = Feedback("Zxqv", "", (), True, AT)
    assert profile_of([unknown]).relevance == {}
    disliked = profile_of([replace(unknown, liked=False)])
    assert disliked.agreement.tolist() == [0.0] * len(disliked.agreement)
    like = feedback_on(papers_on("astronomy")[0])
    assert profile_of([unknown, like]).relevance == profile_of([like]).relevance


@settings(deadline=None, max_examples=20)
@given(st.permutations([feedback_on(p, liked=n % 3 > 0) for n, p in enumerate(PAPERS[::40])]))
def test_the_order_of_feedback_is_irrelevant(feedback: list[Feedback]) -> None:
    by_title = profile_of(sorted(feedback, key=lambda entry: entry.title)).relevance
    assert profile_of(feedback).relevance == pytest.approx(by_title)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PAPERS), min_size=1, max_size=6, unique=True))
def test_reason_quotes_common_words(liked: list[PaperView]) -> None:
    """The quoted words occur in both papers, and the liked one is named by its title."""
    texts = {paper.id: f"{paper.title} {paper.abstract}" for paper in PAPERS}
    profile = profile_of([feedback_on(paper) for paper in liked])
    for number in [number for number, value in profile.relevance.items() if value > 0][:5]:
        match = re.search(r"close to “(.+?)”, which you liked, through (.+)$", profile.reason(number))
        assert match
        liked_texts = [texts[paper.id] for paper in liked if paper.title == match.group(1)]
        quoted = re.findall("“(.+?)”", match.group(2))
        assert 0 < len(quoted) <= MAX_CLOSE_WORDS
        assert all(words in texts[number] for words in quoted)
        assert any(
            {*tokenizer.content_stems(" ".join(quoted))} <= {*tokenizer.content_stems(text)}
            for text in liked_texts
        )


def test_adjacent_words_are_quoted_together() -> None:
    """Words are quoted together unless punctuation separates them."""
    model = sample_archive.trained_model()
    assert model.space
    papers = [PaperView(1, "Faster Protein-Folding", "Lidar."), PaperView(2, "Protein: folding", "Lidar.")]
    like = Feedback("Protein folding on a budget", "A galaxy.", (), True, AT)
    together, apart = papers
    profile = profile_of([like], user_profile.Candidates(papers, model, model.space))
    through = "close to “Protein folding on a budget”, which you liked, through "
    assert profile.reason(together.id) == f"{through}“Protein-Folding”"
    assert set(re.findall("“(.+?)”", profile.reason(apart.id).removeprefix(through))) == {
        "Protein",
        "folding",
    }


def test_single_letters_are_not_named() -> None:
    """Papers with formulas share variables, which say nothing to a reader."""
    papers = [replace(paper, abstract=f"{paper.abstract} For q and n.") for paper in papers_on("retrieval")]
    others = [paper for paper in PAPERS if "retrieval" not in paper.abstract]
    model = RelevanceModel.train([(paper.title, paper.abstract) for paper in [*papers, *others]])
    assert model.space
    profile = profile_of(
        [feedback_on(papers[0])], user_profile.Candidates([*papers, *others], model, model.space)
    )
    texts = [profile.reason(number) for number in profile.relevance if number != papers[0].id]
    assert any(", through “" in text for text in texts)
    assert not [text for text in texts if re.search("“.”", text)]


def profile_for(author: str, *, liked: str) -> user_profile.UserProfile:
    """Return the profile of a like by author `liked`, over one paper by `author` on another subject."""
    model = sample_archive.trained_model()
    assert model.space
    like = replace(feedback_on(PAPERS[0]), authors=(liked, "Ada Lovelace"))
    other = replace(papers_on("retrieval")[3], authors=(author, "Alan Turing"))
    return profile_of([like], user_profile.Candidates([other], model, model.space))


@pytest.mark.parametrize(
    ("author", "liked"),
    [
        ("Jane Doe", "Jane Doe"),
        ("jané doe", "Jane Doe"),
        ("Jane Doe", "Doe, Jane"),
        ("Jane Doe", "Jane Q. Doe"),
        ("J. Doe", "Jane Doe"),
        ("Jane Doe", "Doe, J."),
        ("Plato", "PLATO"),
    ],
)
def test_liked_authors_are_a_separate_term(author: str, liked: str) -> None:
    """Spellings of a name make no difference, and the reason names the author and the liked paper."""
    profile = profile_for(author, liked=liked)
    number = profile.candidates.texts[0].paper.id
    assert profile.relevance[number] > 0
    assert profile.reason(number) == f"by {author}, whose “{PAPERS[0].title}” you liked"


def test_reason_names_a_liked_paper_once() -> None:
    """The reason gives the title of the liked paper only once."""
    like = replace(papers_on("astronomy")[0], authors=("Jane Doe",))
    paper = replace(like, title="A Sequel")
    model = sample_archive.trained_model()
    assert model.space
    profile = profile_of([feedback_on(like)], user_profile.Candidates([paper], model, model.space))
    reason = profile.reason(paper.id)
    assert reason.startswith(f"by Jane Doe, whose “{like.title}” you liked, and close to it, through “")


@pytest.mark.parametrize(
    ("author", "liked"), [("Jane Doe", "John Doe"), ("Jane Doe", "Jane Roe"), ("Doe", "J. Doe"), ("", "")]
)
def test_different_first_names_are_different_authors(author: str, liked: str) -> None:
    """A different first name is another person, even with the same initial."""
    assert not profile_for(author, liked=liked).author_evidence.any()


def test_ambiguous_names_are_weighted() -> None:
    """ "Y. Li" may mean any of them, so each gets a share."""
    model = sample_archive.trained_model()
    assert model.space
    like = replace(feedback_on(PAPERS[0]), authors=("Y. Li",))
    first, second = (
        replace(papers_on("retrieval")[n], authors=(name,)) for n, name in enumerate(("Yan Li", "Ying Li"))
    )
    alone = profile_of([like], user_profile.Candidates([first], model, model.space)).author_evidence
    shared = profile_of([like], user_profile.Candidates([first, second], model, model.space)).author_evidence
    assert 0 < shared[0] == shared[1] < alone[0]


def test_author_evidence_grows_with_their_share() -> None:
    """Evidence grows with the share of the liked papers that an author wrote."""
    model = sample_archive.trained_model()
    assert model.space
    names = ("Jane Doe", "Ada Lovelace", "Ada Lovelace", "Alan Turing")
    likes = [replace(feedback_on(p), authors=(name,)) for p, name in zip(PAPERS, names, strict=False)]
    papers = [replace(p, authors=(name,)) for p, name in zip(papers_on("retrieval"), names[:2], strict=False)]
    once, twice = profile_of(likes, user_profile.Candidates(papers, model, model.space)).author_evidence
    assert 0 < once < twice


def test_authors_are_sorted_by_number_of_liked_papers() -> None:
    """Count each paper once, in any spelling, without dislikes. The first like decides the spelling."""
    feedback = [
        Feedback("", "", ("Hopper, Grace", "Ada Lovelace", "ADA LOVELACE", ""), True, AT),
        Feedback("", "", ("Lovelace, Ada", "Charles Babbage"), True, AT),
        Feedback("", "", ("Alan Turing", "Ada Lovelace"), False, AT),
    ]
    assert user_profile.liked_authors(feedback) == [
        ("Ada Lovelace", 2),
        ("Hopper, Grace", 1),
        ("Charles Babbage", 1),
    ]


def test_dislike_counts_as_much_as_a_like() -> None:
    """Without likes, a dislike takes from the papers near it the evidence that a like would give."""
    rated = papers_on("astronomy")[0]
    raised = profile_of([feedback_on(rated)])
    lowered = profile_of([feedback_on(rated, liked=False)])
    assert lowered.agreement == pytest.approx(-raised.agreement.clip(0))
    positive = {number for number, value in raised.relevance.items() if value > 0}
    assert positive
    for number in positive:
        evidence = ranking.evidence_of([raised.relevance[number], lowered.relevance[number]])
        assert evidence[1] == pytest.approx(-evidence[0])


def test_dislike_near_likes_spares_their_subject() -> None:
    """The disliked paper sinks, but the papers that are closer to a like than to it hardly do."""
    liked, disliked, rest = (papers_on("astronomy")[part] for part in (slice(5), slice(5, 6), slice(6, None)))
    likes = [feedback_on(paper) for paper in liked]
    before = profile_of(likes).agreement
    after = profile_of([*likes, feedback_on(disliked[0], liked=False)]).agreement
    loss = {paper.id: (before - after)[candidates().row_of[paper.id]] for paper in PAPERS}
    kept = [paper for paper in rest if loss[paper.id] < loss[disliked[0].id] / 4]
    assert len(kept) >= 0.8 * len(rest)
    assert all(loss[paper.id] == 0 for paper in liked)


def test_several_tastes_stay_several() -> None:
    """Likes on three subjects raise the papers of each more than their mean would."""
    likes = [
        feedback_on(paper)
        for subject in ("astronomy", "quantization", "retrieval")
        for paper in papers_on(subject)[:2]
    ]
    profile = profile_of(likes)
    mean = candidates().closeness_to_centroid(candidates().rated_papers(likes))
    gain = profile.agreement - len(likes) / (len(likes) + 1) * mean
    own = [candidates().row_of[like.paper_id] for like in likes if like.paper_id]
    other = [candidates().row_of[paper.id] for paper in papers_on("federated learning")]
    assert gain.min() > -1e-5
    assert gain[own].min() > 5 * gain[other].mean()


def test_authors_of_one_taste_are_not_diluted_by_another() -> None:
    """An author of a like counts as much if the reader also likes papers on another subject."""
    model = sample_archive.trained_model()
    assert model.space
    by_jane = [replace(paper, authors=("Jane Doe",)) for paper in papers_on("astronomy")[:2]]
    new = replace(papers_on("retrieval")[0], authors=("Jane Doe",))
    pool = user_profile.Candidates([new], model, model.space)
    likes = [feedback_on(paper) for paper in by_jane]
    others = [feedback_on(paper) for paper in papers_on("quantization")[:4]]
    apart, together = (profile_of(rated, pool).author_evidence[0] for rated in (likes, [*likes, *others]))
    assert together >= 0.9 * apart


def common_name_profile(name: str) -> user_profile.UserProfile:
    """Return the profile of five likes by this author, among many authors named Wang and many named Wei."""
    model = sample_archive.trained_model()
    assert model.space
    names = [f"{first} {last}" for first in ("Wei", "Li", "Jun") for last in ("Wang", "Chen", "Zhou")]
    papers = [replace(p, authors=(n, name)) for p, n in zip(papers_on("retrieval"), names, strict=False)]
    likes = [replace(feedback_on(paper), authors=(name,)) for paper in papers_on("astronomy")[:5]]
    return profile_of(likes, user_profile.Candidates(papers, model, model.space))


@pytest.mark.parametrize("name", ["Wei Wang", "W. Wang"])
def test_common_name_alone_selects_no_paper(name: str) -> None:
    """Many people may have the name, so the reason does not say that they are the same person."""
    profile = common_name_profile(name)
    assert 0 < max(profile.relevance.values()) < cut_offs.FLOOR
    number = max(profile.relevance, key=lambda paper: profile.relevance[paper])
    assert ", perhaps an author of “" in profile.reason(number)
    assert "whose" not in profile.reason(number)


def test_rare_name_may_select_a_paper() -> None:
    """A person of this name on a few candidates is the author of the liked papers."""
    like = [replace(feedback_on(paper), authors=("Ada Lovelace",)) for paper in papers_on("astronomy")[:5]]
    model = sample_archive.trained_model()
    assert model.space
    papers = [replace(papers_on("retrieval")[0], authors=("Ada Lovelace",)), *papers_on("quantization")]
    profile = profile_of(like, user_profile.Candidates(papers, model, model.space))
    assert profile.relevance[papers[0].id] >= cut_offs.FLOOR
    assert "by Ada Lovelace, whose “" in profile.reason(papers[0].id)
