"""Test how digests are built from candidates, interests and feedback."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select

from app import pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.digests import builder, planning
from app.digests.builder import DigestBuilder
from app.relevance import matching, user_profile
from app.relevance.match_index_cache import IndexCache
from app.relevance.model import RelevanceModel
from app.relevance.query_language import Query, parse
from app.storage.models import Delivery, DeliveryState, DigestContent
from app.subscribers import Preferences
from app.types import Cadence, Feedback, Interest, PaperView
from tests.support import factories, sample_archive
from tests.support.mail_server import MailServer


def test_likes_select_similar_papers(
    app: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need not match an interest. Papers with feedback are not selected again."""
    monkeypatch.setattr(app.models, "current", lambda session: sample_archive.trained_model())
    day = now.date()
    liked = [paper for paper in sample_archive.papers() if "protein folding" in paper.abstract][:6]
    with app.db.write() as session:
        source = factories.add_source(session, now)
        ids = {
            paper.id: factories.add_paper(session, source, paper.title, day, now, abstract=paper.abstract)
            for paper in sample_archive.papers()
        }
        sequels = {
            factories.add_paper(session, source, f"More on {paper.title}", day, now, abstract=paper.abstract)
            for paper in liked
        }
        alice, bob = (
            factories.add_subscriber(session, f"{name}@example.org", [], now) for name in ("alice", "bob")
        )
    with app.db.write() as session:
        for paper in liked:
            subscribers.set_feedback(session, alice, ids[paper.id], True, now)
            subscribers.set_feedback(session, bob, ids[paper.id], False, now)
    pipeline.plan_and_send(app, now)
    with app.db.read() as session:
        rows = select(Delivery.subscriber_id, DigestContent.digest).select_from(Delivery).join(DigestContent)
        digests = dict(session.exec(rows).all())
    close = next(s for s in digests[alice]["sections"] if s["heading"] == "Close to what you liked")
    assert set(close["papers"]) == sequels
    assert all("which you liked, through" in reason for reason in close["reasons"])
    assert {section["heading"] for section in digests[bob]["sections"]} == {"Trending now"}
    trending = {paper for section in digests[bob]["sections"] for paper in section["papers"]}
    assert trending.isdisjoint(sequels), "papers like those that a reader disliked are not sent"


def test_matches_are_kept_between_runs(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second day's run matches nothing."""
    batches: list[int] = []
    original = matching.MatchIndex._scores

    def recording(index: matching.MatchIndex, queries: Sequence[Query]) -> object:
        batches.append(len(queries))
        return original(index, queries)

    monkeypatch.setattr(matching.MatchIndex, "_scores", recording)
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Video Agents", now.date(), now)
        for name in ("alice", "bob"):
            factories.add_subscriber(session, f"{name}@example.org", ["agents"], now, hour=8)
    planning.plan(app.digest_context, now)
    planning.plan(app.digest_context, now + timedelta(days=1))
    assert batches == [1]


def test_papers_are_split_into_words_once() -> None:
    """A new paper makes a new index, which takes over the words of the others."""
    cache, model, papers = IndexCache(), RelevanceModel.bundled(), [*sample_archive.papers()][:3]
    before, after = cache.get(papers[:2], model), cache.get(papers, model)
    assert all(after.texts[content] is text for content, text in before.texts.items())
    assert len(after.texts) == 3


def listed_on(papers: Sequence[PaperView], day: date) -> list[PaperView]:
    return [replace(paper, last_listed_on=day) for paper in papers]


def test_an_index_replaces_an_older_one_of_nearly_the_same_papers() -> None:
    """An index of other papers, or of an earlier day that a visitor opens, replaces none."""
    cache, model, papers = IndexCache(), RelevanceModel.bundled(), [*sample_archive.papers()]
    day = date(2026, 11, 20)
    before = listed_on(papers[:10], day)
    today = [*before, *listed_on(papers[10:12], day + timedelta(days=1))]
    others = listed_on(papers[12:20], day)
    first, second, third = (cache.get(own, model) for own in (before, today, others))
    assert cache.get(today, model) is second
    assert cache.get(others, model) is third
    again = cache.get(before, model)
    assert again is not first
    assert cache.get(today, model) is second
    assert cache.get(before, model) is again


def test_a_part_of_the_papers_does_not_replace_the_whole() -> None:
    """The papers of the last few weeks and today's candidates may be nearly the same. Both stay."""
    cache, model, papers = IndexCache(), RelevanceModel.bundled(), [*sample_archive.papers()]
    weeks, today = papers[:20], papers[:18]
    first, second = cache.get(weeks, model), cache.get(today, model)
    assert cache.get(weeks, model) is first
    assert cache.get(today, model) is second


def test_the_least_recently_used_index_is_dropped() -> None:
    cache, model, papers = IndexCache(), RelevanceModel.bundled(), [*sample_archive.papers()]
    parts = [papers[start : start + 4] for start in range(0, 20, 4)]
    first, second, third, _ = (cache.get(part, model) for part in parts[:4])
    assert cache.get(parts[0], model) is first
    cache.get(parts[4], model)
    assert cache.get(parts[0], model) is first
    assert cache.get(parts[2], model) is third
    assert cache.get(parts[1], model) is not second


def test_indexes_share_the_memory_for_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matches of a new index push out those of an old one, not only its own."""
    model, papers, queries = (
        RelevanceModel.bundled(),
        [*sample_archive.papers()],
        [parse("robot"), parse("image")],
    )
    size = sum(own.size for own in matching.MatchIndex(papers, model).matches(queries))
    monkeypatch.setattr(matching, "MAX_CACHED_BYTES", size)
    cache = matching.MatchCache()
    old, new = (matching.MatchIndex(own, model, cache=cache) for own in (papers[:9], papers))
    [first] = old.matches(queries[:1])
    assert old.matches(queries[:1])[0] is first
    second = new.matches(queries)[1]
    assert old.matches(queries[:1])[0] is not first
    assert new.matches(queries[1:])[0] is second


def test_an_invalid_interest_affects_only_its_own_reader(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other readers get their digests, and their interests are matched in one batch."""
    batches: list[list[str]] = []
    original = matching.MatchIndex._scores

    def recording(index: matching.MatchIndex, queries: Sequence[Query]) -> object:
        batches.append([query.text for query in queries])
        return original(index, queries)

    monkeypatch.setattr(matching.MatchIndex, "_scores", recording)
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Video Agents", now.date(), now)
        alice = factories.add_subscriber(session, "alice@example.org", ['"an open quotation mark'], now)
        bob, carol = (
            factories.add_subscriber(session, f"{name}@example.org", [text], now)
            for name, text in (("bob", "agents"), ("carol", "video"))
        )
    planning.plan(app.digest_context, now)
    with app.db.read() as session:
        planned = {row.subscriber_id: row for row in session.exec(select(Delivery))}
        digests = ledger.stored_digests(session, [row.id for row in planned.values()])
    assert planned[alice].state is DeliveryState.SKIPPED
    assert (
        "something went wrong on our side, and we have logged it (InvalidInterest)" in planned[alice].reason
    )
    assert digests.keys() == {planned[bob].id, planned[carol].id}
    assert [texts for texts in batches if texts] == [["agents", "video"]]


def add_like(title: str, now: datetime) -> tuple[Feedback, ...]:
    return (Feedback(title, "An abstract.", (), True, now),)


def test_profiles_are_built_before_rows_are_locked(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning keeps rows locked as briefly as possible. SQLite locks none."""
    monkeypatch.setattr(app.models, "current", lambda session: sample_archive.trained_model())
    calls: list[str] = []
    original = DigestBuilder.ranked

    def ranked(self: DigestBuilder, *requests: Any) -> Any:
        calls.append("ranked")
        return original(self, *requests)

    class RecordedProfile(user_profile.UserProfile):
        @property
        def relevance(self) -> dict[int, float]:  # type: ignore[override]
            calls.append("learned")
            return {}

    original_excluded = matching.MatchIndex.excluded_papers

    def excluded(self: matching.MatchIndex, query: Query) -> frozenset[int]:
        calls.extend(["muted"] if query.excluded_phrases else [])
        return original_excluded(self, query)

    monkeypatch.setattr(DigestBuilder, "ranked", ranked)
    monkeypatch.setattr(user_profile, "UserProfile", RecordedProfile)
    monkeypatch.setattr(matching.MatchIndex, "excluded_papers", excluded)
    with app.db.write() as session:
        paper = factories.add_paper(
            session, factories.add_source(session, now), "Video Agents", now.date(), now
        )
        fields = {"muted": ["game", "GAME", "lions"]}
        alice = factories.add_subscriber(session, "alice@example.org", ["agents"], now, **fields)
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, paper, True, now)
    planning.plan(app.digest_context, now)
    if app.db.locks_rows:
        assert calls[:4] == ["learned", "muted", "muted", "ranked"]
    assert calls.count("learned") == 1
    assert calls.count("muted") == 2, "spellings of the same word are searched once"


def test_digests_that_cover_more_days_are_matched_before_rows_are_locked(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their papers are also loaded before. SQLite locks no rows."""
    calls: list[str] = []

    def record(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, call)

    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Video Agents", now.date(), now)
        late = now - timedelta(days=2)
        factories.add_subscriber(session, "alice@example.org", ["agents"], late, cadence=Cadence.WEEKLY)
    record(DigestBuilder, "__init__")
    record(matching.MatchIndex, "matches")
    record(planning, "_compose")
    assert planning.plan(app.digest_context, now)["planned"] == 1
    before_lock = ["matches"] if app.db.locks_rows else []
    assert calls[: calls.index("_compose")] == ["__init__"] * (2 if app.db.locks_rows else 1) + before_lock
    assert (calls.count("__init__"), calls.count("matches")) == (2, 1)


def test_profile_cache_is_bounded(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader has a profile, and there may be many readers."""
    monkeypatch.setattr(app.models, "current", lambda session: sample_archive.trained_model())
    monkeypatch.setattr(builder, "MAX_CACHED_PROFILES", 1)
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Video Agents", now.date(), now)
    with app.db.read() as session:
        digest_builder = DigestBuilder(app.digest_context, session, now)
    first = digest_builder.profile_of(add_like("Tumours", now))
    assert digest_builder.profile_of(add_like("Tumours", now)) is first
    assert digest_builder.profile_of(add_like("Galaxies", now))
    assert digest_builder.profile_of(add_like("Tumours", now)) is not first


def test_a_dropped_builder_is_freed_at_once(app: Application, now: datetime) -> None:
    """Each preview builds one, and its papers and matches may take megabytes."""
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Video Agents", now.date(), now)
    with app.db.read() as session:
        digest_builder = DigestBuilder(app.digest_context, session, now)
    digest_builder.preview(now.date().isoformat(), Preferences(interests=(Interest("video agents"),)))
    reference = weakref.ref(digest_builder)
    gc.disable()
    try:
        del digest_builder
        assert reference() is None
    finally:
        gc.enable()


def test_duplicate_interests_count_once(app: Application, now: datetime) -> None:
    """A preview deduplicates interests as sign-up does."""
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Video Agents", now.date(), now)
    once = pipeline.preview(app, Preferences(interests=(Interest("agents"),)), now)[0]
    assert (
        pipeline.preview(
            app,
            Preferences(
                interests=(
                    Interest("agents"),
                    Interest(" Agents "),
                    Interest("agents", 2.0),
                )
            ),
            now,
        )[0]
        == once
    )
