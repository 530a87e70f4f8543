"""Test what an operator's changes of papers do to digests: hide, pin, merge and split."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event, inspect, text, update
from sqlmodel import Session, col, select

from app import pipeline
from app.application import Application
from app.delivery import ledger
from app.delivery.ledger import removal
from app.digests import digest_requests, hiding, paper_updates, planning
from app.digests.builder import DigestBuilder
from app.digests.operator_changes import Editor
from app.errors import Conflict, InvalidInput, NotFound
from app.papers import canonical_rows
from app.storage import compressed_json
from app.storage.models import (
    AuditEntry,
    Delivery,
    DeliveryState,
    DigestContent,
    Merge,
    Paper,
    Source,
    Subscriber,
)
from app.types import EmptyDigestPolicy
from tests.conftest import NOW
from tests.support import factories
from tests.support.mail_server import MailServer

HOUR = NOW.replace(hour=8, minute=0)
AHEAD = HOUR - timedelta(minutes=9)
DAY = timedelta(days=1)
AGENTS, MORE, VIDEO = "Language Agents that Plan", "Language Agents that Rest", "Video Diffusion in Real Time"


@pytest.fixture
def app(app: Application) -> Application:
    """Add three papers of today, and Alice, who is due at eight and interested in agents."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        for title in (AGENTS, MORE, VIDEO):
            factories.add_paper(session, source, title, NOW.date(), NOW, abstract=f"{title}, at last.")
        factories.add_subscriber(session, "alice@example.org", ["language agents"], HOUR)
    return app


def digests(app: Application) -> list[list[str]]:
    """Return the titles in each digest, by delivery; a reason if it was skipped."""
    with app.db.read() as session:
        rows = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
    return [
        [row.reason]
        if row.state is DeliveryState.SKIPPED
        else sorted(pick.title for pick in factories.load_digest(app, row).picks)
        for row in rows
    ]


def test_hidden_paper_is_never_planned(app: Application) -> None:
    with app.db.write() as session:
        Editor(session, "desk", AHEAD).hide(1, "asked by its authors")
    assert pipeline.plan(app, AHEAD)["planned"] == 1
    assert digests(app) == [[MORE]]
    why = pipeline.explain(app, AHEAD, "alice@example.org", "1")
    assert why.ineligible_reason == f"an operator hid it on {AHEAD:%Y-%m-%d}"


def test_hidden_paper_leaves_digests_that_wait(app: Application, mail_server: MailServer) -> None:
    """A digest is sent without it, and skipped if it has no other. What was sent stays."""
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["video diffusion"], HOUR)
        factories.add_subscriber(session, "carol@example.org", ["video diffusion"], HOUR)
    pipeline.plan(app, AHEAD)
    pipeline.sign_ahead(app, AHEAD)
    pipeline.send_now(app, HOUR, [3])
    with app.db.write() as session:
        Editor(session, "desk", AHEAD).hide(1)
        Editor(session, "desk", AHEAD).hide(3)
    assert digests(app) == [[MORE], [removal.NOTHING_LEFT], [VIDEO]]
    with app.db.read() as session:
        assert session.get_one(DigestContent, 1).signature == ""
        changes = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    assert [entry.detail["left_out_of_digests"] for entry in changes] == [1, 1]
    assert pipeline.send_now(app, HOUR)["sent"] == 1
    sent = {mail.recipient: mail.data.decode() for mail in mail_server.messages}
    assert AGENTS not in sent["alice@example.org"]
    assert MORE in sent["alice@example.org"]


@pytest.mark.parametrize("paper", [1, 2])
def test_paper_hidden_while_a_digest_is_being_sent_is_not_sent_later(
    app: Application, mail_server: MailServer, paper: int
) -> None:
    """The relay asks to try again later. The digest that contains nothing else is skipped."""
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["rest"], HOUR)
    pipeline.plan(app, AHEAD)
    pipeline.sign_ahead(app, AHEAD)

    def hide() -> None:
        with app.db.write() as session:
            Editor(session, "desk", HOUR).hide(paper)

    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1, first=hide)
    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1)
    assert pipeline.send_now(app, HOUR) == {"deferred": 2}
    title = (AGENTS, MORE)[paper - 1]
    counts = pipeline.send_now(app, HOUR + DAY / 24)
    assert counts == ({"sent": 2} if paper == 1 else {"sent": 1, "skipped": 1})
    assert all(title not in mail.data.decode() for mail in mail_server.messages)
    assert digests(app)[1] == ([MORE] if paper == 1 else [removal.NOTHING_LEFT])


def test_hidden_paper_is_not_sent_if_a_failed_digest_is_retried(
    app: Application, mail_server: MailServer
) -> None:
    mail_server.reply("rcpt", "550 5.7.1 policy", times=1)
    pipeline.plan(app, AHEAD)
    assert pipeline.send_now(app, HOUR) == {"failed": 1}
    with app.db.write() as session:
        Editor(session, "desk", HOUR).hide(1)
        assert ledger.retry_failed(session, f"{HOUR:%Y-%m-%d}", HOUR) == 1
    assert pipeline.send_now(app, HOUR) == {"sent": 1}
    assert digests(app) == [[MORE]]
    assert AGENTS not in mail_server.messages[0].data.decode()


def test_digest_that_may_have_arrived_is_resent_with_a_hidden_paper(
    app: Application, mail_server: MailServer
) -> None:
    """It is sent again with the same bytes, so that a mailbox can detect the duplicate."""
    mail_server.drop("end", times=1)
    pipeline.plan(app, AHEAD)
    assert pipeline.send_now(app, HOUR) == {"uncertain": 1}
    with app.db.write() as session:
        Editor(session, "desk", HOUR).hide(1)
    assert pipeline.send_now(app, HOUR + DAY / 24) == {"sent": 1}
    assert mail_server.messages == mail_server.swallowed


def test_paper_hidden_during_a_planning_run_is_left_out(app: Application) -> None:
    """The run has loaded its candidates before."""
    with app.db.read() as session:
        builder = DigestBuilder(app.digest_context, session, AHEAD)
        recent = paper_updates.load(session, AHEAD)
    due = planning._due(AHEAD + timedelta(minutes=10))
    with app.db.write() as session:
        Editor(session, "desk", AHEAD).hide(1)
    planning._match_ahead(app.digest_context, builder, due)
    planning._plan_batch(app.digest_context, builder, recent, due, AHEAD, AHEAD + timedelta(minutes=10))
    assert digests(app) == [[MORE]]


@pytest.mark.parametrize("damaged", [None, {"heading": "Agents"}, {"papers": [1], "cards": None}])
def test_damaged_digest_does_not_keep_a_paper_from_being_hidden(app: Application, damaged: object) -> None:
    """Its readable sections change; the others stay as they are."""
    pipeline.plan(app, AHEAD)
    with app.db.write() as session:
        content = session.get_one(DigestContent, 1)
        content.digest = {**content.digest, "sections": [damaged, *content.digest["sections"]]}
    with app.db.write() as session:
        Editor(session, "desk", AHEAD).hide(1)
    with app.db.read() as session:
        first, *others = session.get_one(DigestContent, 1).digest["sections"]
    assert first == damaged
    assert [section["papers"] for section in others] == [[2]]
    assert digests(app) == [[MORE]]


def test_merging_with_a_hidden_paper_changes_digests_that_wait(app: Application) -> None:
    """The paper that was not hidden leaves them."""
    with app.db.write() as session:
        Editor(session, "desk", AHEAD).hide(3)
    pipeline.plan(app, AHEAD)
    assert digests(app) == [[AGENTS, MORE]]
    with app.db.write() as session:
        Editor(session, "desk", AHEAD).merge(3, 1)
    assert digests(app) == [[MORE]]


def test_hide_and_show_are_recorded_once(app: Application) -> None:
    with app.db.write() as session:
        editor = Editor(session, "desk", NOW)
        editor.hide(1, "spam")
        with pytest.raises(Conflict):
            editor.hide(1)
        editor.show(1)
        with pytest.raises(Conflict):
            editor.show(1)
        with pytest.raises(NotFound):
            editor.hide(99)
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    assert [(entry.actor, entry.action, entry.subject) for entry in entries] == [
        ("desk", "paper.hide", "1"),
        ("desk", "paper.show", "1"),
    ]
    assert entries[0].detail == {"title": AGENTS, "reason": "spam", "left_out_of_digests": 0}


def test_showing_a_paper_shows_its_merged_rows(app: Application) -> None:
    """A hidden paper is merged in two steps. Its parts are shown with the last one, also once split off."""
    with app.db.write() as session:
        editor = Editor(session, "desk", NOW)
        editor.hide(3)
        editor.merge(3, 2)
        editor.merge(2, 1)
        assert canonical_rows.hidden(session) == {1, 2, 3}
        editor.show(1)
        session.flush()
        assert canonical_rows.hidden(session) == set()
        assert editor.split(1, row_id=2).hidden_at is None
        assert editor.split(2, row_id=3).hidden_at is None
        assert canonical_rows.hidden(session) == set()


def test_changes_apply_to_the_paper_as_it_is_now(app: Application) -> None:
    """Another process hides and merges papers after they were read."""
    with app.db.write() as session:
        read_before = session.exec(select(Paper).order_by(col(Paper.id))).all()
        table = inspect(Paper).local_table
        others = session.connection()  # its statements do not change the objects of the session
        others.execute(update(table).where(table.c.id == 3).values(hidden_at=NOW))
        others.execute(update(table).where(table.c.id == 2).values(merged_into_id=1))
        editor = Editor(session, "desk", NOW)
        with pytest.raises(Conflict, match="already hidden"):
            editor.hide(3)
        with pytest.raises(Conflict, match="already the same paper"):
            editor.merge(1, 2)
        with pytest.raises(Conflict, match="never sent"):
            editor.pin(3)
        assert editor.hide(2) is read_before[0]


def test_two_operators_hide_a_paper_at_once(app: Application) -> None:
    """The second one waits for the first, and is told that it is hidden."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

    def hide() -> None:
        with app.db.write() as session:
            Editor(session, "other desk", NOW).hide(1)

    with ThreadPoolExecutor(1) as pool:
        with app.db.write() as session:
            Editor(session, "desk", NOW).hide(1)
            second = pool.submit(hide)
            deadline = time.monotonic() + 10
            while app.db.locks_rows and time.monotonic() < deadline:
                with app.db.read() as other:
                    if other.execute(waiting).scalar_one():
                        break
                time.sleep(0.02)
        with pytest.raises(Conflict):
            second.result(timeout=30)


def test_edit_is_recorded_with_old_and_new_values(app: Application) -> None:
    """An edit that changes nothing is not recorded."""
    with app.db.write() as session:
        editor = Editor(session, "desk", NOW)
        editor.edit(1, {"title": "Agents", "published_on": "2026-11-01"})
        editor.edit(1, {"title": "Agents"})
    with app.db.read() as session:
        [entry] = session.exec(select(AuditEntry)).all()
    assert entry.detail == {
        "old": {"title": AGENTS, "published_on": None},
        "new": {"title": "Agents", "published_on": "2026-11-01"},
    }


def test_taking_back_an_edit_is_recorded(app: Application) -> None:
    """It is, also if the sources give the same value by now."""
    with app.db.write() as session:
        editor = Editor(session, "desk", NOW)
        paper = editor.edit(1, {"tldr": "They plan."})
        paper.sourced = {"tldr": "They plan."}
        session.flush()
        editor.edit(1, {"tldr": None})
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    assert [entry.detail["new"] for entry in entries] == [{"tldr": "They plan."}] * 2


def test_pinned_paper_comes_first_and_once(app: Application, mail_server: MailServer) -> None:
    """It ranks before better papers. Readers of trending papers get it with its own reason."""
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        for number in range(3):
            title = f"Language Agents, Volume {number}"
            factories.add_paper(session, source, title, NOW.date(), NOW, upvotes=90, abstract=title)
        old = NOW.date() - 10 * DAY
        pinned = factories.add_paper(
            session, source, "On Agents", old, NOW, upvotes=0, abstract="A survey on language agents."
        )
        trending = {"max_trending": 1, "when_empty": EmptyDigestPolicy.TRENDING}
        factories.add_subscriber(session, "bob@example.org", ["pigeons"], HOUR, **trending)
        factories.add_subscriber(session, "carol@example.org", ["video diffusion"], HOUR)
        factories.add_subscriber(session, "dan@example.org", ["video diffusion"], HOUR, **trending)
        session.get_one(Subscriber, 1).max_papers = 2
        Editor(session, "desk", AHEAD).pin(pinned)
    assert pipeline.plan(app, AHEAD)["planned"] == 4
    with app.db.read() as session:
        rows = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
    alice, bob, carol, dan = (factories.load_digest(app, row) for row in rows)
    assert [alice.picks[0].title, len(alice.picks)] == ["On Agents", 2]
    assert "editor" not in alice.picks[0].reason
    reason = "picked by the editor of this service"
    assert (bob.picks[0].title, bob.picks[0].reason) == ("On Agents", reason)
    assert [item.title for item in carol.picks] == [VIDEO]
    assert [(item.title, item.reason) for item in dan.picks[1:]] == [("On Agents", reason)]
    pipeline.send_now(app, HOUR)
    pipeline.plan(app, AHEAD + DAY)
    assert sum("On Agents" in titles for titles in digests(app)) == 3
    rank = pipeline.explain(app, AHEAD, "carol@example.org", str(pinned)).rank
    assert rank
    assert (rank.breakdown.pinned, rank.breakdown.freshness, rank.outcome) == (True, 1.0, None)


def test_pin_ends(app: Application) -> None:
    """Afterwards, the paper is one among the others."""
    with app.db.write() as session:
        Editor(session, "desk", AHEAD - DAY).pin(3, days=1)
        Editor(session, "desk", AHEAD).pin(2, days=1)
    with app.db.read() as session:
        assert DigestBuilder(app.digest_context, session, AHEAD).pool.pinned == {2}
    with app.db.write() as session:
        Editor(session, "desk", AHEAD).unpin(2)
        with pytest.raises(Conflict):
            Editor(session, "desk", AHEAD).pin(Editor(session, "desk", AHEAD).hide(3).id or 0)
    with app.db.read() as session:
        assert DigestBuilder(app.digest_context, session, AHEAD).pool.pinned == frozenset()
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
        until = {"pinned_until": (AHEAD + DAY).isoformat()}
        assert [entry.detail for entry in entries[1:3]] == [until | {"previously": None}, until]


def promised(app: Application) -> frozenset[int]:
    """Return the papers that Alice is not sent again."""
    with app.db.read() as session:
        return digest_requests.already_promised(session, [1], NOW - 30 * DAY)[1]


def test_merged_paper_is_not_sent_again(app: Application, mail_server: MailServer) -> None:
    """Alice was sent one of the two."""
    with app.db.write() as session:
        session.get_one(Paper, 2).hidden_at = NOW
    pipeline.plan(app, AHEAD)
    assert digests(app) == [[AGENTS]]
    with app.db.write() as session:
        session.get_one(Paper, 2).hidden_at = None
        Editor(session, "desk", HOUR).merge(2, 1)
    assert promised(app) == {1}
    pipeline.send_now(app, HOUR)
    pipeline.plan(app, AHEAD + DAY)
    assert not {AGENTS, MORE} & {*digests(app)[1]}


SAME = "How Agents Plan"  # another record of AGENTS, listed a day later


def add_duplicate(app: Application) -> None:
    with app.db.write() as session:
        source, day = session.get_one(Source, 1), HOUR + DAY
        session.get_one(Paper, 1).arxiv_id = "2611.00001"
        abstract = "Language agents, at last."
        factories.add_paper(session, source, SAME, day.date(), day, doi="10.1000/1", abstract=abstract)


@pytest.mark.parametrize("by_operator", [True, False])
def test_merged_paper_leaves_digests_that_wait(
    app: Application, mail_server: MailServer, tmp_path: Path, by_operator: bool
) -> None:
    """Alice, who got one record yesterday, does not get the other. Bob gets one of them.

    An operator merges them, or a source, which knows the arXiv id and the DOI of the paper.
    """
    assert pipeline.plan_and_send(app, HOUR)["sent"] == 1
    add_duplicate(app)
    with app.db.write() as session:
        for name, interest in (("bob", "language agents"), ("carol", f'"{SAME}"')):
            factories.add_subscriber(session, f"{name}@example.org", [interest], HOUR + DAY)
    pipeline.plan(app, AHEAD + DAY)
    others = sorted([AGENTS, MORE])
    assert digests(app) == [others, [SAME], [SAME, *others], [SAME]]
    if by_operator:
        with app.db.write() as session:
            Editor(session, "desk", AHEAD + DAY).merge(1, 4)
            [merge] = session.exec(select(AuditEntry)).all()
        assert merge.detail["left_out_of_digests"] == 2
    else:
        file = tmp_path / "papers.json"
        file.write_text(
            '[{"title": "Language Agents that Plan", "arxiv_id": "2611.00001", "doi": "10.1000/1"}]'
        )
        assert pipeline.read_files(app, [file], AHEAD + DAY).summary.papers_merged == 1
    assert digests(app) == [others, [removal.ONLY_REPEATED], others, [SAME]]
    assert pipeline.send_now(app, HOUR + DAY)["sent"] == 2


def test_merged_paper_stays_in_the_first_of_two_digests_that_wait(app: Application) -> None:
    pipeline.plan(app, AHEAD)
    with app.db.write() as session:
        session.get_one(Delivery, 1).give_up_at = HOUR + 2 * DAY
    add_duplicate(app)
    pipeline.plan(app, AHEAD + DAY)
    assert digests(app) == [[AGENTS, MORE], [SAME]]
    with app.db.write() as session:
        Editor(session, "desk", AHEAD + DAY).merge(1, 4)
    assert digests(app) == [[AGENTS, MORE], [removal.ONLY_REPEATED]]


@pytest.mark.parametrize("merged_while_sending", [False, True])
def test_digest_that_is_held_does_not_keep_a_merged_paper_from_another(
    app: Application, merged_while_sending: bool
) -> None:
    """An operator may never release it. If it is released, it is checked again when it is claimed."""
    pipeline.plan(app, AHEAD)
    with app.db.write() as session:
        session.get_one(Delivery, 1).give_up_at = HOUR + 2 * DAY
    add_duplicate(app)
    pipeline.plan(app, AHEAD + DAY)
    with app.db.write() as session:
        claimed_ids = ledger.claim(session, owner="me", now=HOUR + DAY)
        if merged_while_sending:
            Editor(session, "desk", HOUR + DAY).merge(1, 4)
        held, other = (session.get_one(Delivery, number) for number in (1, 2))
        held.state, held.next_attempt_at = DeliveryState.PENDING, None
        if merged_while_sending:
            assert removal.leave_out_of_claimed(session, [2]) == []
        else:
            other.state = DeliveryState.PENDING
            Editor(session, "desk", HOUR + DAY).merge(1, 4)
    assert claimed_ids == [1, 2]
    assert digests(app) == [[AGENTS, MORE] if merged_while_sending else [MORE], [SAME]]


def test_merged_paper_leaves_a_digest_after_the_clock_was_set_back(
    app: Application, mail_server: MailServer
) -> None:
    """Then a digest can be older than the snapshot that it contains."""
    hour = timedelta(hours=1)
    with app.db.write() as session:
        session.get_one(Subscriber, 1).next_due_at = HOUR + 5 * hour
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR + hour)
    pipeline.plan(app, AHEAD + hour)
    with app.db.write() as session:
        session.get_one(Subscriber, 1).next_due_at = HOUR
    assert pipeline.plan_and_send(app, HOUR)["sent"] == 1
    add_duplicate(app)
    with app.db.write() as session:
        session.get_one(Subscriber, 2).next_due_at = HOUR + 2 * DAY
    pipeline.plan(app, AHEAD + DAY)
    assert digests(app) == [[AGENTS, MORE], [AGENTS, MORE], [SAME]]
    with app.db.write() as session:
        Editor(session, "desk", AHEAD + DAY).merge(1, 4)
    assert digests(app)[2] == [removal.ONLY_REPEATED]


def merge_duplicate(app: Application) -> None:
    with app.db.write() as session:
        Editor(session, "desk", HOUR + DAY).merge(1, 4)


def plan_duplicate(app: Application) -> None:
    """Send Alice one record of a paper, plan the other for her, and both for Bob."""
    assert pipeline.plan_and_send(app, HOUR)["sent"] == 1
    add_duplicate(app)
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR + DAY)
    pipeline.plan(app, AHEAD + DAY)
    assert digests(app) == [[AGENTS, MORE], [SAME], [SAME, AGENTS, MORE]]


def test_paper_merged_while_a_digest_is_being_sent_is_not_sent_twice(
    app: Application, mail_server: MailServer
) -> None:
    """The relay asks to try again later. By then, Alice's digest is skipped, and Bob's has one record."""
    plan_duplicate(app)
    pipeline.sign_ahead(app, AHEAD + DAY)
    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1, first=lambda: merge_duplicate(app))
    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1)
    assert pipeline.send_now(app, HOUR + DAY) == {"deferred": 2}
    assert pipeline.send_now(app, HOUR + DAY + DAY / 24) == {"sent": 1, "skipped": 1}
    assert digests(app)[1] == [removal.ONLY_REPEATED]
    [first, second] = [mail.data.decode() for mail in mail_server.messages]
    assert MORE in first
    assert MORE in second
    assert (SAME in second) + (AGENTS in second) == 1


def test_merged_paper_is_not_sent_if_a_failed_digest_is_retried(
    app: Application, mail_server: MailServer
) -> None:
    plan_duplicate(app)
    mail_server.reply("rcpt", "550 5.7.1 policy", times=2)
    assert pipeline.send_now(app, HOUR + DAY) == {"failed": 2}
    merge_duplicate(app)
    with app.db.write() as session:
        assert ledger.retry_failed(session, f"{HOUR + DAY:%Y-%m-%d}", HOUR + DAY) == 2
    assert pipeline.send_now(app, HOUR + DAY) == {"sent": 1, "skipped": 1}
    assert digests(app)[1] == [removal.ONLY_REPEATED]
    assert len(digests(app)[2]) == 2


def test_paper_merged_during_a_planning_run_is_not_sent_twice(
    app: Application, mail_server: MailServer
) -> None:
    """The run has loaded its candidates before, so it composes digests with the absorbed record."""
    assert pipeline.plan_and_send(app, HOUR)["sent"] == 1
    add_duplicate(app)
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR + DAY)
    now = AHEAD + DAY
    with app.db.read() as session:
        builder = DigestBuilder(app.digest_context, session, now)
        recent = paper_updates.load(session, now)
    merge_duplicate(app)
    planning._plan_batch(app.digest_context, builder, recent, planning._due(HOUR + DAY), now, HOUR + DAY)
    assert digests(app)[1:] == [[SAME], [SAME, AGENTS, MORE]]
    assert pipeline.send_now(app, HOUR + DAY) == {"sent": 1, "skipped": 1}
    assert digests(app)[1] == [removal.ONLY_REPEATED]
    assert len(digests(app)[2]) == 2


@pytest.mark.parametrize("first_claimed", [[1, 2], [1], [2]])
def test_paper_merged_while_two_digests_are_being_sent_stays_in_the_first(
    app: Application, mail_server: MailServer, first_claimed: list[int]
) -> None:
    """The order in which they are claimed again does not matter."""
    pipeline.plan(app, AHEAD)
    with app.db.write() as session:
        session.get_one(Delivery, 1).give_up_at = HOUR + 2 * DAY
    add_duplicate(app)
    pipeline.plan(app, AHEAD + DAY)
    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1, first=lambda: merge_duplicate(app))
    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1)
    assert pipeline.send_now(app, HOUR + DAY) == {"deferred": 2}
    for ids in (first_claimed, [1, 2]):
        pipeline.send_now(app, HOUR + DAY + DAY / 24, ids)
    assert digests(app) == [[AGENTS, MORE], [removal.ONLY_REPEATED]]
    assert len(mail_server.messages) == 1


def test_merged_paper_that_its_reader_did_not_get_is_sent(app: Application, mail_server: MailServer) -> None:
    """The relay rejected the digest with the other record. The paper counts as sent."""
    mail_server.reply("rcpt", "550 5.7.1 policy", times=1)
    assert pipeline.plan_and_send(app, HOUR) == {"planned": 1, "failed": 1}
    add_duplicate(app)
    with app.db.write() as session:
        session.get_one(Subscriber, 1).max_papers = 1
        Editor(session, "desk", AHEAD + DAY).pin(4)
    pipeline.plan(app, AHEAD + DAY)
    assert digests(app)[1] == [SAME]
    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1, first=lambda: merge_duplicate(app))
    assert pipeline.send_now(app, HOUR + DAY) == {"deferred": 1}
    assert pipeline.send_now(app, HOUR + DAY + DAY / 24) == {"sent": 1}
    assert digests(app)[1] == [SAME]
    assert promised(app) == {1}


def test_merge_that_was_undone_changes_no_digest(app: Application, mail_server: MailServer) -> None:
    plan_duplicate(app)

    def merge_and_split() -> None:
        merge_duplicate(app)
        with app.db.write() as session:
            Editor(session, "desk", HOUR + DAY).split(1, row_id=4)

    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1, first=merge_and_split)
    mail_server.reply("rcpt", "451 4.7.1 greylisted", times=1)
    assert pipeline.send_now(app, HOUR + DAY) == {"deferred": 2}
    assert pipeline.send_now(app, HOUR + DAY + DAY / 24) == {"sent": 2}


def test_digest_that_may_have_arrived_is_resent_with_a_merged_paper(
    app: Application, mail_server: MailServer
) -> None:
    """It is sent again with the same bytes, so that a mailbox can detect the duplicate."""
    plan_duplicate(app)
    mail_server.drop("end", times=2)
    assert pipeline.send_now(app, HOUR + DAY) == {"uncertain": 2}
    merge_duplicate(app)
    assert pipeline.send_now(app, HOUR + DAY + DAY / 24) == {"sent": 2}
    resent = {(mail.recipient, mail.data) for mail in mail_server.messages[1:]}
    assert resent == {(mail.recipient, mail.data) for mail in mail_server.swallowed}


def test_claiming_reads_no_digest_for_papers_that_were_merged_long_ago(
    app: Application, mail_server: MailServer
) -> None:
    """Digests composed since then do not repeat these papers."""
    plan_duplicate(app)
    pipeline.send_now(app, HOUR + DAY)
    merge_duplicate(app)
    now = HOUR + 3 * DAY
    with app.db.write() as session:
        factories.add_paper(session, session.get_one(Source, 1), "Language Agents Anew", now.date(), now)
    pipeline.plan(app, now)
    statements: list[str] = []
    event.listen(app.db.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    with app.db.write() as session:
        claimed_ids = ledger.claim(session, owner="me", now=now)
        statements.clear()
        assert removal.leave_out_of_claimed(session, claimed_ids) == []
    assert len(claimed_ids) == 2
    assert len(statements) == 3


def test_claiming_reads_no_digest_of_days_without_the_merged_paper(
    app: Application, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscribers have a digest of every day of a year. Both records are in two of them."""
    title, ahead = "Language Agents, Day {}", AHEAD + 4 * DAY
    for day in range(4):
        with app.db.write() as session:
            at = HOUR + day * DAY
            factories.add_paper(session, session.get_one(Source, 1), title.format(day), at.date(), at)
        assert pipeline.plan_and_send(app, at)["sent"] == 1
    with app.db.write() as session:
        at = HOUR + 4 * DAY
        duplicate = factories.add_paper(session, session.get_one(Source, 1), SAME, at.date(), at)
        session.get_one(Paper, duplicate).abstract = "Language agents, at last."
    pipeline.plan(app, ahead)
    with app.db.write() as session:
        claimed_ids = ledger.claim(session, owner="me", now=at)
        Editor(session, "desk", at).merge(1, duplicate)
    assert digests(app) == [
        [AGENTS, MORE, title.format(0)],
        *([title.format(day)] for day in (1, 2, 3)),
        [SAME],
    ]
    texts, text_of = list[bytes](), compressed_json.text_of
    monkeypatch.setattr(compressed_json, "text_of", lambda stored: texts.append(text_of(stored)) or texts[-1])
    with app.db.write() as session:
        assert removal.leave_out_of_claimed(session, claimed_ids) == claimed_ids
    assert len(texts) == 3, "the claimed digest twice, because it changes, and the first one"


@pytest.mark.postgres
def test_merging_with_a_hidden_paper_locks_only_digests_that_contain_it(
    app: Application, mail_server: MailServer
) -> None:
    with app.db.write() as session:
        Editor(session, "desk", NOW).hide(2)
        factories.add_subscriber(session, "bob@example.org", ["diffusion"], HOUR)
    pipeline.plan(app, AHEAD)
    assert digests(app) == [[AGENTS], [VIDEO]]
    with app.db.write() as session:
        Editor(session, "desk", HOUR).merge(2, 1)
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(pipeline.send_now, app, HOUR).result(timeout=30)
        assert sent == {"sent": 1}, "Bob's, before the merge is committed"
    assert digests(app) == [[removal.NOTHING_LEFT], [VIDEO]]


@pytest.mark.postgres
def test_merge_locks_only_digests_that_change(
    app: Application, mail_server: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a poll merges papers, all other digests can be claimed and sent."""
    assert pipeline.plan_and_send(app, HOUR)["sent"] == 1
    add_duplicate(app)
    with app.db.write() as session:
        for name, interest in (("bob", "language agents"), ("carol", f'"{SAME}"'), ("dave", "diffusion")):
            factories.add_subscriber(session, f"{name}@example.org", [interest], HOUR + DAY)
    pipeline.plan(app, AHEAD + DAY)
    sent, merge = list[dict[str, int]](), hiding.leave_out_merged

    def merge_and_send(session: Session, survivors: Sequence[Paper]) -> None:
        assert merge(session, survivors) == 2
        with ThreadPoolExecutor(1) as pool:
            sent.append(pool.submit(pipeline.send_now, app, HOUR + DAY).result(timeout=30))

    monkeypatch.setattr(hiding, "leave_out_merged", merge_and_send)
    file = tmp_path / "papers.json"
    file.write_text('[{"title": "Language Agents that Plan", "arxiv_id": "2611.00001", "doi": "10.1000/1"}]')
    pipeline.read_files(app, [file], AHEAD + DAY)
    assert sent == [{"sent": 2}], "Alice's is skipped and Bob's is sent when the poll ends"
    assert pipeline.send_now(app, HOUR + DAY) == {"sent": 1}


def test_who_was_sent_a_merged_paper_was_sent_both_parts(app: Application, mail_server: MailServer) -> None:
    """Bob, who subscribes after the split, gets both; Alice gets neither again."""
    with app.db.write() as session:
        session.get_one(Paper, 1).versions = dict.fromkeys(("title", "abstract"), "1.2026-11-20.3")
        survivor = Editor(session, "desk", AHEAD - timedelta(hours=1)).merge(1, 2)
        assert survivor.id == 1
    pipeline.plan(app, AHEAD)
    assert digests(app) == [[AGENTS]]
    with app.db.write() as session:
        part = Editor(session, "desk", HOUR).split(1, row_id=2)
        assert (part.id, part.merged_into_id) == (2, None)
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR + DAY)
    assert promised(app) == {1, 2}
    why = pipeline.explain(app, HOUR, "alice@example.org", "2")
    assert why.verdict.startswith(f"It is in the digest {HOUR:%Y-%m-%d}")
    pipeline.send_now(app, HOUR)
    pipeline.plan(app, AHEAD + DAY)
    assert digests(app)[2] == sorted([AGENTS, MORE])
    assert not {AGENTS, MORE} & {*digests(app)[1]}


def test_digest_after_a_split_has_one_part(app: Application) -> None:
    """A reader who is sent one of the two after the split may be sent the other."""
    with app.db.write() as session:
        editor = Editor(session, "desk", AHEAD - timedelta(hours=1))
        editor.merge(1, 2)
        editor.split(1, row_id=2)
        session.get_one(Paper, 2).hidden_at = NOW
    pipeline.plan(app, AHEAD)
    assert promised(app) == {1}
    with app.db.read() as session:
        assert session.exec(select(Merge.undone_at)).one() is not None


@pytest.mark.parametrize("part", [{}, {"row_id": 2, "doi": True}, {"row_id": 2, "source_id": 1}])
def test_split_needs_one_part(app: Application, part: dict[str, int]) -> None:
    with app.db.write() as session, pytest.raises(InvalidInput):
        Editor(session, "desk", NOW).split(1, **part)  # type: ignore[arg-type]


def test_paper_history_counts_digests_by_state(app: Application) -> None:
    """Each has the reason for its subscriber."""
    pipeline.plan(app, AHEAD)
    with app.db.read() as session:
        history = ledger.paper_history(session, [1])
        none = ledger.paper_history(session, [3])
    assert (history.states, history.is_complete) == ({DeliveryState.PENDING: 1}, True)
    [mail] = history.newest
    assert (mail.subscriber_id, mail.interest) == (1, "language agents")
    assert "language agents" in mail.reason.lower()
    assert (none.states, none.newest) == ({}, ())


def test_paper_history_has_reasons_that_subscribers_share(app: Application) -> None:
    """They are stored once, and the digests contain their ids."""
    with app.db.write() as session:
        factories.add_subscriber(session, "bob@example.org", ["language agents"], HOUR)
    pipeline.plan(app, HOUR)
    with app.db.read() as session:
        newest = ledger.paper_history(session, [1]).newest
    assert [delivery.reason for delivery in newest] == ["“Language Agents” in the title"] * 2
