"""Check the plans of frequent queries at a million emails: no full scans and no large sorts.

Each case calls the functions that the service calls. The database explains every statement that they run, so
a changed query is checked again.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, or_, text
from sqlmodel import Session, col, select

from app import bounces, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.delivery.journal import AttemptResult
from app.delivery.ledger import claims, daily_limits, expiry, recovery, removal, suspected_refusals
from app.delivery.ledger.snapshots import COLUMNS
from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.warm_up import WarmUp
from app.digests import planning, reconciliation
from app.papers import canonical_rows, llm_summaries, picture_fetching, updated_papers
from app.settings import UncertainPolicy
from app.storage.api_keys import ApiKeyIdentity, Scope
from app.storage.database import Database, in_array
from app.storage.figure_cache import FigureReader
from app.storage.models import Delivery, DigestContent, Merge, Paper, PaperSnapshot, Subscriber
from app.subscribers import repository
from app.types import MailKind
from app.web.api import interests
from app.web.api.auth import Caller
from app.web.api.pagination import window_of
from app.web.capacity import Capacity
from tests.support import large_ledger

NOW = large_ledger.LAST_HOUR + timedelta(minutes=5)
LATER = NOW + timedelta(days=2)
LARGE = ("delivery", "event", "subscriber", "digest_content")
NEWEST = range(
    (large_ledger.DAYS - 1) * large_ledger.READERS + 1, (large_ledger.DAYS - 1) * large_ledger.READERS + 301
)
BATCH = range(1, 251)
RESEND = UncertainPolicy.RESEND
# PostgreSQL finds the maximum of some rows by reading a whole index from its end until a row is one of them.
_FILTERED_INDEX = re.compile(r"Scan Backward .*(\n *Index Cond: \(\w+ IS NOT NULL\))?\n *Filter: ")


@pytest.fixture(scope="module")
def big_ledger(new_database_url: Callable[[], str]) -> Iterator[Database]:
    """Return a database with a million emails."""
    database = Database(new_database_url())
    large_ledger.fill(database.engine)
    yield database
    database.dispose()


class Plans:
    """Record the plan of each statement before it runs."""

    def __init__(self, database: Database) -> None:
        self.postgres = database.url.get_backend_name() == "postgresql"
        self.of: list[tuple[str, str]] = []  # statement, plan

    def explain(
        self, connection: Any, _cursor: Any, statement: str, values: Any, _context: Any, many: bool
    ) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            asking = connection.connection.cursor()
            explain = "EXPLAIN" if self.postgres else "EXPLAIN QUERY PLAN"
            asking.execute(f"{explain} {statement}", values[0] if many else values)
            self.of.append((statement, "\n".join(str(row[-1]) for row in asking.fetchall())))
            asking.close()

    def problems(self, *, sorts: bool = False) -> list[str]:
        """List full scans of large tables, and sorts of their rows."""
        return [
            f"{statement}\n{plan}"
            for statement, plan in self.of
            if any(map(self._reads_all, plan.splitlines()))
            or _FILTERED_INDEX.search(plan)
            or (not sorts and self._sorts(plan))
        ]

    def _reads_all(self, step: str) -> bool:
        words = step.replace('"', "").split()
        if self.postgres:
            return "Seq Scan on" in step and words[words.index("on") + 1] in LARGE
        return "SCAN" in words and words[words.index("SCAN") + 1] in LARGE

    def _sorts(self, plan: str) -> bool:
        return "Sort " in plan if self.postgres else "TEMP B-TREE FOR ORDER BY" in plan


@contextmanager
def explain_session(database: Database) -> Iterator[tuple[Session, Plans]]:
    """Yield a session that explains all statements and changes nothing."""
    plans = Plans(database)
    with database.write() as session:
        connection = session.connection()
        event.listen(connection, "before_cursor_execute", plans.explain)
        yield session, plans
        session.rollback()


def endings(verdict: SendOutcome) -> list[AttemptResult]:
    answer = SendResult(verdict, 250, "2.0.0 Ok")
    return [AttemptResult(number, answer, NOW.timestamp(), f"<{number}@x>", "Papers") for number in NEWEST]


def a_reader(session: Session) -> Subscriber:
    return session.get_one(Subscriber, 77)


BOUNDED: dict[str, Callable[[Session], object]] = {
    "whether anybody is due": lambda s: s.execute(
        planning._due(NOW).with_only_columns(col(Subscriber.id)).limit(1)
    ).first(),
    "a batch to plan": lambda s: s.exec(
        planning._due(NOW).limit(250).with_for_update(skip_locked=True)
    ).all(),
    "a batch to plan, without digests that are being sent": lambda s: s.exec(
        planning._due(NOW).where(col(Subscriber.id).not_in(ledger.with_unsettled_digest(NOW))).limit(250)
    ).all(),
    "wake": lambda s: subscribers.end_expired_pauses(s, NOW),
    "scheduled far ahead": lambda s: subscribers.reschedule_far_ahead(s, NOW),
    "whether anybody is due far ahead": lambda s: subscribers.is_anyone_due_far_ahead(s, NOW),
    "lateness": lambda s: planning.lateness(s, NOW),
    "promised": lambda s: ledger.paper_ids_promised(s, BATCH, NOW - timedelta(days=7)),
    "claim": lambda s: ledger.claim(s, owner="me", now=NOW),
    "hidden and merged papers in claimed digests": lambda s: removal.leave_out_of_claimed(s, NEWEST),
    "may still leave": lambda s: ledger.sendable_addresses(s, "sender", NOW),
    "prolong": lambda s: claims.renew_lease(s, "sender", NOW),
    "record accepted": lambda s: ledger.record_results(
        s,
        endings(SendOutcome.ACCEPTED),
        owner="sender",
        now=NOW,
        policy=RESEND,
        on_failed=bounces.record_refusal,
    ),
    "record deferred": lambda s: ledger.record_results(
        s,
        endings(SendOutcome.DEFERRED),
        owner="sender",
        now=NOW,
        policy=RESEND,
        on_failed=bounces.record_refusal,
    ),
    "give up": lambda s: expiry.expire_overdue(s, NOW),
    "give up before the next digest": lambda s: ledger.expire_before_next(s, NOW),
    "forsake": lambda s: recovery.expire_leases(s, LATER, [], RESEND),
    "anything to do": lambda s: ledger.has_work(s, NOW, Path("nowhere")),
    "nothing to do": lambda s: ledger.has_work(s, NOW - timedelta(days=30), Path("nowhere")),
    "prune emails": lambda s: ledger.prune_deliveries(s, large_ledger.LAST_HOUR - timedelta(days=8), NOW),
    "prune events": lambda s: ledger.prune_events(
        s, NOW, or_(subscribers.is_current_pause(), ledger.is_awaiting_first_digest())
    ),
    "the editions": lambda s: ledger.editions(s, 51),
    "the next editions": lambda s: ledger.editions(s, 51, "2026-11-15"),
    "suppressed": lambda s: suppression.reasons_for(s, [f"reader.{number}@example.org" for number in BATCH]),
    "mail": lambda s: repository.enqueue_requested_mail(s, a_reader(s), MailKind.MANAGE, NOW),
    "hold": lambda s: ledger.hold_new(s, ["2026-11-15", "2026-11-20", "2026-11-21"], NOW),
    "unsent editions": lambda s: ledger.unsent_editions(s, ["2026-11-15", "2026-11-20"]),
    "awaiting a first digest": lambda s: ledger.awaiting_first_digest(s, BATCH),
    "schedule": lambda s: repository.reschedule(s, a_reader(s), NOW),
    "emails of a receiver today": lambda s: daily_limits.count_sent_today(s, {"google"}, NOW),
    "papers with updates": lambda s: updated_papers.changed_since(s, NOW - timedelta(days=60)),
    "signing ahead": lambda s: ledger.lock_unsigned(s, NOW, limit=200),
    "find": lambda s: subscribers.find(s, "reader.77@example.org"),
}
# Small sorts: the rows of a subscriber, of a batch, or of waiting emails.
SORTING: dict[str, Callable[[Session], object]] = {
    "record refused": lambda s: ledger.record_results(
        s,
        endings(SendOutcome.HARD_BOUNCE)[:3],
        owner="sender",
        now=NOW,
        policy=RESEND,
        on_failed=bounces.record_refusal,
    ),
    "warm-up": lambda s: ledger.warm_up_status(s, WarmUp(NOW.date(), 50, 2), NOW),
    "updates": lambda s: ledger.promised_content(s, BATCH, NOW - timedelta(days=7), {1}, {NOW.date()}),
    "limits while warming up": lambda s: daily_limits.defer_excess(
        s, WarmUp(NOW.date(), 50, 2), "me", NEWEST, NOW
    ),
    "claim while warming up": lambda s: ledger.claim(s, owner="me", now=NOW, longest_waiting_first=True),
    "undelivered digests": lambda s: ledger.first_undelivered(s, BATCH, NOW - timedelta(days=30)),
    "suspected refusals": suspected_refusals.pause_reason,
    "last due times": lambda s: ledger.last_due_times(s, BATCH, NOW - timedelta(days=15)),
    "last due times ever": lambda s: ledger.last_due_times(s, BATCH),
    "silences": lambda s: ledger.skipped_since_last_digest(s, BATCH, NOW - timedelta(days=7)),
    "wishes": lambda s: subscribers.interests_of(s, BATCH),
    "feedback": lambda s: subscribers.feedback_for_ranking(s, BATCH),
    "letters": lambda s: claims.load_claimed(s, NEWEST, ledger.SnapshotStore(), NOW),
    "history": lambda s: subscribers.history(s, 77, 14),
    "waiting": lambda s: ledger.waiting_mails(s),
    "an edition by state": lambda s: ledger.digest_totals_by_edition(s, ["2026-11-15"]),
    "totals of editions": lambda s: ledger.EditionTotals().count(s, ["2026-11-15"], NOW),
    "emails other than digests": lambda s: s.exec(
        select(Delivery).where(ledger.of_kind(MailKind.CONFIRM)).order_by(col(Delivery.id).desc()).limit(51)
    ).all(),
    "digests of late": lambda s: ledger.digest_totals_since(s, NOW - timedelta(hours=1)),
    "uncertain digests": lambda s: ledger.count_held_uncertain(s, NOW - timedelta(days=7)),
    "held first digests": lambda s: ledger.draw_held(s, 5),
    "held digests of an edition": lambda s: ledger.count_held(s, "2026-11-15"),
}


def check_hot_query(big_ledger: Database, run: Callable[[Session], object], *, sorts: bool) -> None:
    """Check that a query uses indexes, and needs no sort unless allowed."""
    with explain_session(big_ledger) as (session, plans):
        run(session)
        assert plans.of
        assert plans.problems(sorts=sorts) == []


def check_totals_use_only_an_index(big_ledger: Database) -> None:
    """No row of the table is read."""
    with explain_session(big_ledger) as (session, plans):
        assert sum(ledger.totals(session).values()) == large_ledger.READERS * large_ledger.DAYS
    (_, plan) = plans.of[-1]
    assert "ix_delivery_due" in plan
    assert ("Index Only Scan" if plans.postgres else "COVERING INDEX") in plan


def check_lists_are_paginated(big_ledger: Database) -> None:
    """Pages have descending ids from the cursor."""
    with explain_session(big_ledger) as (session, plans):
        for table in (Delivery, Subscriber):
            page = select(table).where(col(table.id) < 50_000).order_by(col(table.id).desc()).limit(51)
            assert len(session.exec(page).all()) == 51
        assert plans.problems() == []


def check_reconciliation_of_a_large_edition(big_ledger: Database) -> None:
    """Each reader is read once with the rows of the editions, and the result is exact."""
    with explain_session(big_ledger) as (session, plans):
        rows = reconciliation.reconcile(session, NOW, "2026-11-20")
    steps = "\n".join(plan for _, plan in plans.of).splitlines()
    assert not [step for step in steps if plans._reads_all(step) and "delivery" in step]
    assert (rows.due, sum(rows.states.values())) == (99 * large_ledger.READERS // 100, large_ledger.READERS)
    assert (rows.missing, rows.surplus) == (0, large_ledger.READERS // 100), "the paused got one, too"


def check_recent_papers_are_found_by_day(big_ledger: Database) -> None:
    """An index of papers that are not hidden would find nearly all."""
    with explain_session(big_ledger) as (session, plans):
        usual = {"title": "", "title_key": "", "content_hash": "", "created_at": NOW, "updated_at": NOW}
        days = (NOW.date() - timedelta(days=number) for number in range(3000))
        session.add_all([Paper(**usual, last_listed_on=day) for day in days])
        session.flush()
        if plans.postgres:
            session.execute(text("ANALYZE paper"))
        for query in (
            lambda: picture_fetching.pictures_to_fetch(session, NOW),
            lambda: llm_summaries.papers_to_summarize(session, NOW, 30),
        ):
            query()
            (_, plan) = plans.of[-1]
            assert "ix_paper_last_listed_on" in plan
            assert "ix_paper_hidden_at" not in plan
        canonical_rows.hidden(session)
        (_, plan) = plans.of[-1]
        assert "ix_paper_hidden_at" in plan, "SQLite would rather find the papers that are not merged"


def check_claims_of_merged_papers(big_ledger: Database) -> None:
    """Each paper of the claimed digests was merged, one half with papers of the first day in the ledger."""
    count, ended = len(NEWEST), []
    with explain_session(big_ledger) as (session, plans):
        usual = {"title": "", "title_key": "", "content_hash": "", "created_at": NOW, "updated_at": NOW}
        session.add_all(Paper(id=number, **usual) for number in range(1, 2 * count + 1))
        session.flush()
        for number, claimed_id in enumerate(NEWEST, 1):
            absorbed_id, days_between = count + number, 1 if number % 2 else large_ledger.DAYS - 1
            session.get_one(Paper, absorbed_id).merged_into_id = number
            session.add(Merge(survivor_id=number, absorbed_id=absorbed_id, reason="", at=NOW))
            uses = ((number, days_between), (absorbed_id, 0))
            for paper_id, days in uses:
                at = large_ledger.LAST_HOUR - timedelta(days=days)
                session.add(PaperSnapshot(key=f"{paper_id}", paper_id=paper_id, created_at=at))
                content = session.get_one(DigestContent, claimed_id - days * large_ledger.READERS)
                content.digest = {"sections": [{**{name: [paper_id] for name in COLUMNS}, "reasons": []}]}
            ended += [claimed_id] if number % 20 > 1 else []
        session.flush()
        if plans.postgres:
            session.execute(text("ANALYZE paper, merge, paper_snapshot"))
        plans.of.clear()
        # The earlier digests of one reader in ten were not delivered.
        assert removal.leave_out_of_claimed(session, NEWEST) == ended
    assert len([statement for statement, _ in plans.of if statement.startswith(("SELECT", "WITH"))]) < 15
    assert plans.problems(sorts=True) == []


def check_held_edition_is_not_counted(big_ledger: Database) -> None:
    """One of its scheduled digests suffices, so each batch of planning takes the same time."""
    if big_ledger.locks_rows:
        return  # only SQLite reports its steps
    with big_ledger.write() as session:
        steps: list[None] = []
        driver: Any = session.connection().connection.dbapi_connection
        driver.set_progress_handler(lambda: steps.append(None), 1000)
        ledger.hold_new(session, ["2026-11-20"], NOW)
        driver.set_progress_handler(None, 0)
    assert len(steps) < 10


def check_undelivered_digests_are_found_by_subscriber(big_ledger: Database) -> None:
    """PostgreSQL would also read all rows of the ledger in the states of undelivered digests."""
    with explain_session(big_ledger) as (session, plans):
        ledger.first_undelivered(session, BATCH, NOW - timedelta(days=15))
    assert len(plans.of) == 2
    for _, plan in plans.of:
        assert "delivery_subscriber_id_edition" in plan or "sqlite_autoindex_delivery" in plan
        assert "ix_delivery" not in plan


def check_scans_and_sorts_are_detected(big_ledger: Database) -> None:
    """Otherwise the other checks would prove nothing."""
    with explain_session(big_ledger) as (session, plans):
        session.exec(select(Delivery.id).where(Delivery.reason == "never").limit(1)).all()
        assert len(plans.problems()) == 1
        session.exec(select(Subscriber.id).where(col(Subscriber.id) < 5).order_by(Subscriber.zone)).all()
        assert len(plans.problems()) == 2
        assert len(plans.problems(sorts=True)) == 1
        if plans.postgres:
            newest = select(func.max(Delivery.created_at)).where(in_array(session, col(Delivery.id), BATCH))
            session.exec(newest).one()
            assert len(plans.problems(sorts=True)) == 2


CHECKS: dict[str, Callable[[Database], None]] = {
    **{case: partial(check_hot_query, run=run, sorts=False) for case, run in BOUNDED.items()},
    **{case: partial(check_hot_query, run=run, sorts=True) for case, run in SORTING.items()},
    "totals": check_totals_use_only_an_index,
    "lists": check_lists_are_paginated,
    "reconciliation": check_reconciliation_of_a_large_edition,
    "recent papers": check_recent_papers_are_found_by_day,
    "merged papers in claimed digests": check_claims_of_merged_papers,
    "undelivered digests of a batch": check_undelivered_digests_are_found_by_subscriber,
    "an edition to hold": check_held_edition_is_not_counted,
    "a scan and a sort": check_scans_and_sorts_are_detected,
}


@pytest.mark.timeout(300)  # a busy machine takes a minute to build it
def test_hot_queries_on_a_large_ledger(big_ledger: Database, subtests: pytest.Subtests) -> None:
    """Every frequent query uses indexes. One test, so that one process builds the emails."""
    for case, check in CHECKS.items():
        with subtests.test(case):
            check(big_ledger)


@pytest.mark.once
def test_interests_are_counted_by_subscriber(app: Application) -> None:
    """SQLite has no statistics in production. It read all active subscribers for each interest."""
    plans, key = Plans(app.db), ApiKeyIdentity(1, "grafana", frozenset([Scope.READ]), None)
    event.listen(app.db.engine, "before_cursor_execute", plans.explain)
    caller = Caller(app, Capacity(app.settings), key, NOW, FigureReader(app.db.figures))
    interests.list_interests(caller, window_of(50, None))
    [(_, plan)] = plans.of
    assert "SEARCH subscriber USING INTEGER PRIMARY KEY" in plan


@pytest.mark.once  # PostgreSQL scans tables that are nearly empty
def test_whether_to_train_a_model_is_read_from_indexes(app: Application) -> None:
    """The question is asked after each poll. The texts of a large archive take gigabytes."""
    with explain_session(app.db) as (session, plans):
        assert not app.models.needs_training(session)
    steps = [step for _, plan in plans.of for step in plan.splitlines() if " paper" in step]
    assert steps
    assert all("COVERING INDEX" in step for step in steps)
