"""Test backtests: each past day uses the papers, listings and votes of that day."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlmodel import select

from app import pipeline
from app.application import Application
from app.digests import backtesting, planning
from app.digests.backtesting import BacktestedEdition
from app.digests.builder import DigestBuilder
from app.errors import InvalidInput
from app.papers import paper_views
from app.storage.models import Delivery, Listing, Source, VoteCount
from app.types import Digest, Interest, PaperView, Skip, VoteSample
from tests.conftest import NOW
from tests.support import factories

TODAY = NOW.date()
AGENTS = [Interest("agents")]


def add_paper(app: Application, title: str, ago: int, upvotes: int = 10) -> int:
    """Add a paper listed `ago` days ago, with votes of eight o'clock that day. Return its id."""
    with app.db.write() as session:
        source = session.exec(select(Source)).first() or factories.add_source(session, NOW)
        day = NOW - timedelta(days=ago, hours=2)
        return factories.add_paper(
            session, source, title, day.date(), day, upvotes=upvotes, abstract=f"{title}, at last."
        )


def papers_by_day(editions: list[BacktestedEdition]) -> dict[str, list[int]]:
    """Return the papers of each day that has any."""
    return {
        each.edition: [pick.paper_id for pick in each.digest.picks]
        for each in editions
        if isinstance(each.digest, Digest)
    }


def test_each_day_uses_papers_listed_by_then(app: Application) -> None:
    """Papers listed before the first day are left out, as in the counts of a preview."""
    add_paper(app, "Agents Before", 3)
    first, second = add_paper(app, "Agents that Plan", 2), add_paper(app, "Agents that Rest", 0)
    add_paper(app, "Video Diffusion", 1)
    editions = pipeline.backtest(app, NOW, AGENTS, 3)
    assert [each.edition for each in editions] == ["2026-11-18", "2026-11-19", "2026-11-20"]
    assert papers_by_day(editions) == {"2026-11-18": [first], "2026-11-20": [second]}
    assert isinstance(editions[1].digest, Skip)
    assert editions[1].digest.reason == "the one recent paper matched no interest"


@pytest.mark.parametrize(
    ("hour", "last_day"), [(7, TODAY - timedelta(days=1)), (8, TODAY)], ids=["before", "after"]
)
def test_last_day_is_that_of_the_latest_digest_hour(app: Application, hour: int, last_day: date) -> None:
    """Before the digest hour, that is yesterday. The number of days is the same."""
    add_paper(app, "Agents of Today", 0)
    yesterday = add_paper(app, "Agents of Yesterday", 1)
    editions = pipeline.backtest(app, NOW.replace(hour=hour, minute=0), AGENTS, 3)
    days = [last_day - timedelta(days=ago) for ago in (2, 1, 0)]
    assert [each.edition for each in editions] == [day.isoformat() for day in days]
    assert papers_by_day(editions)[str(TODAY - timedelta(days=1))] == [yesterday]


@pytest.mark.parametrize(
    ("zone", "hour", "now", "edition"),
    [
        ("America/Los_Angeles", 20, datetime(2026, 11, 20, 5, tzinfo=UTC), "2026-11-19"),
        ("Asia/Tokyo", 8, datetime(2026, 11, 20, 0, tzinfo=UTC), "2026-11-20"),
    ],
)
def test_first_day_has_papers_in_every_zone(
    app: Application, zone: str, hour: int, now: datetime, edition: str
) -> None:
    """When the digest is due, the day in UTC may be another one."""
    settings = app.settings.model_copy(update={"default_zone": zone, "default_hour": hour})
    number, _ = add_paper(app, "Agents that Plan", 1), add_paper(app, "Agents Before", 2)
    context = replace(app.digest_context, settings=settings)
    assert papers_by_day(backtesting.run(context, now, AGENTS, 1, 8)) == {edition: [number]}


def test_backtest_agrees_with_planning(app: Application) -> None:
    """A reader who had subscribed before got the same papers in the same order."""
    for ago in range(6):
        for number in range(3):
            add_paper(app, f"Agents {ago} of {number}", ago, upvotes=5 * number + ago)
    start = NOW - timedelta(days=5)
    with app.db.write() as session:
        factories.add_subscriber(
            session, "alice@example.org", ["agents"], start.replace(hour=8, minute=0), max_papers=4
        )
    for ago in reversed(range(6)):
        planning.plan(app.digest_context, (NOW - timedelta(days=ago)).replace(hour=8, minute=0))
        factories.record_sent(app)
    with app.db.read() as session:
        rows = session.exec(select(Delivery).order_by(Delivery.edition)).all()  # type: ignore[arg-type]
        real = {row.edition: factories.load_digest(app, row) for row in rows}
    editions = pipeline.backtest(app, NOW, AGENTS, 5, max_papers=4)
    backtested = {edition.edition: edition.digest for edition in editions}
    assert len(backtested) == 5
    for name, digest in backtested.items():
        assert isinstance(digest, Digest)
        assert [pick.paper_id for pick in digest.picks] == [pick.paper_id for pick in real[name].picks]


def test_votes_of_the_past_day_are_used(app: Application) -> None:
    """Later votes do not affect earlier days."""
    quiet, loud = add_paper(app, "Agents one", 1, upvotes=3), add_paper(app, "Agents two", 1, upvotes=8)
    with app.db.write() as session:
        source_id = session.exec(select(Source)).one().id
        votes = {"paper_id": quiet, "original_paper_id": quiet, "source_id": source_id}
        session.add(VoteCount(**votes, at=NOW - timedelta(hours=3), upvotes=500))
    yesterday, _ = pipeline.backtest(app, NOW, AGENTS, 2)
    assert isinstance(yesterday.digest, Digest)
    assert [(pick.paper_id, pick.trend) for pick in yesterday.digest.picks] == [
        (loud, "8 votes"),
        (quiet, "3 votes"),
    ]


def test_later_listing_does_not_affect_earlier_days(app: Application) -> None:
    number = add_paper(app, "Agents again", 6)
    with app.db.write() as session:
        source_id = session.exec(select(Source)).one().id
        session.add(Listing(paper_id=number, original_paper_id=number, source_id=source_id, listed_on=TODAY))
    with app.db.read() as session:
        (paper,) = paper_views.by_ids(session, [number])
    assert paper.listed_on == (TODAY - timedelta(days=6), TODAY)
    assert paper_views.as_of(paper, NOW - timedelta(days=1)).last_listed_on == TODAY - timedelta(days=6)
    assert paper_views.as_of(paper, NOW) == paper


def test_the_oldest_votes_are_used_for_days_before_them() -> None:
    """They are a better estimate than none, but no momentum is computed from them."""
    later = VoteSample(NOW, 40)
    paper = PaperView(1, "Paper", upvotes=90, votes=(later, VoteSample(NOW + timedelta(days=1), 90)))
    then = paper_views.as_of(replace(paper, listed_on=(TODAY,)), NOW - timedelta(days=1))
    assert (then.votes, then.upvotes, then.listed_on) == ((later,), 40, ())
    assert paper_views.as_of(PaperView(1, "Paper"), NOW).votes == ()


def test_backtest_writes_nothing(app: Application) -> None:
    """Backtests do not affect the ledger or each other."""
    add_paper(app, "Agents that Plan", 0)
    assert pipeline.backtest(app, NOW, AGENTS) == pipeline.backtest(app, NOW, AGENTS)
    with app.db.read() as session:
        assert session.exec(select(Delivery)).all() == []


def test_paper_counts_on_its_first_day(app: Application) -> None:
    """Later listings do not count again."""
    again = add_paper(app, "Agents again", 2)
    for ago in (0, 0, 2, 5):
        add_paper(app, f"Agents of {ago}", ago)
    add_paper(app, "Video Diffusion", 1)
    with app.db.write() as session:
        source_id = session.exec(select(Source)).one().id
        session.add(Listing(paper_id=again, original_paper_id=again, source_id=source_id, listed_on=TODAY))
    with app.db.read() as session:
        builder = DigestBuilder(app.digest_context, session, NOW, back=3)
    builder.interests.match(AGENTS)
    builder.rewind_to(NOW)
    days = [TODAY - timedelta(days=ago) for ago in (3, 2, 1, 0)]
    assert backtesting.daily_counts(builder, Interest("agents"), days) == (0, 2, 0, 2)


@pytest.mark.parametrize("days", [0, -1, 61])
def test_number_of_days_is_between_1_and_60(app: Application, days: int) -> None:
    with pytest.raises(InvalidInput, match="from 1 to 60"):
        pipeline.backtest(app, NOW, AGENTS, days)


def test_match_index_is_cached(app: Application) -> None:
    """It is rebuilt when texts or the model change; votes do not matter."""
    number = add_paper(app, "Agents that Plan", 0)
    with app.db.read() as session:
        papers, corpus = paper_views.by_ids(session, [number]), app.models.current(session)
    index = app.indexes.get(papers, corpus)
    assert app.indexes.get([replace(papers[0], upvotes=99)], corpus) is index
    assert app.indexes.get([], corpus) is not index
    assert app.indexes.get(papers, corpus) is index
    assert app.indexes.get([replace(papers[0], title="Another")], corpus) is not index
