"""Test updates on earlier papers: each is in one digest, at its end, and never in an email of its own."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import event
from sqlmodel import col, delete, select

from app import pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.delivery.ledger import removal
from app.digests import paper_updates, planning
from app.digests.builder import DigestBuilder
from app.digests.operator_changes import Editor
from app.papers import merging
from app.papers.rechecking import WINDOW
from app.storage.models import (
    Delivery,
    DeliveryState,
    DigestContent,
    FeedbackRow,
    Paper,
    PaperSnapshot,
    Source,
)
from app.types import EmptyDigestPolicy, PaperRecord, PaperUpdate, ParseResult, SourceKind, UpdateKind
from tests.conftest import NOW
from tests.support import factories, stored_records
from tests.support.mail_server import MailServer

DAY = timedelta(days=1)
HOUR = NOW.replace(hour=8, minute=0)
AGENTS, ABSTRACT = "Language Agents that Plan", "Language agents that plan, at last."
ARXIV_ID, PAGE = "2611.00001", "https://arxiv.org/abs/2611.00001"
CODE = "https://github.com/alice/agents"
WITHDRAWN = PaperUpdate(UpdateKind.WITHDRAWN, 1, AGENTS, PAGE)
WITH_CODE = PaperUpdate(UpdateKind.CODE, 1, AGENTS, CODE)


@pytest.fixture
def app(app: Application, mail_server: MailServer) -> Application:
    """Add Alice, who is due at eight, and a paper for her. Emails are really sent."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        factories.add_paper(session, source, AGENTS, HOUR.date(), NOW, abstract=ABSTRACT, arxiv_id=ARXIV_ID)
        factories.add_subscriber(session, "alice@example.org", ["language agents"], HOUR)
    return app


def add_paper_of(app: Application, day: datetime) -> None:
    """Add another paper that Alice is interested in."""
    with app.db.write() as session:
        source, title = session.get_one(Source, 1), f"Language Agents, Part {day.day}{day.month}"
        factories.add_paper(session, source, title, day.date(), day, abstract=title)


def store(app: Application, now: datetime, kind: SourceKind = SourceKind.ARXIV, **fields: object) -> None:
    """Store a record of the paper, as a source gives it."""
    record = PaperRecord(AGENTS, **({"arxiv_id": ARXIV_ID, "abstract": ABSTRACT} | fields))  # type: ignore[arg-type]
    with app.db.write() as session:
        source = session.exec(select(Source).where(Source.kind == kind)).first()
        if source is None:
            source = Source(name=kind, kind=kind, created_at=now)
            session.add(source)
            session.flush()
        stored_records.store(session, source, ParseResult(1, (record,)), now)


def send(app: Application, now: datetime) -> Delivery:
    """Send the digests that are due, and return the last one."""
    pipeline.plan_and_send(app, now)
    with app.db.read() as session:
        return session.exec(select(Delivery).order_by(col(Delivery.id).desc())).first()  # type: ignore[return-value]


def updates_at(app: Application, now: datetime) -> tuple[PaperUpdate, ...]:
    """Return the updates in the digest that is due now, on a day with a new paper."""
    add_paper_of(app, now)
    return factories.load_digest(app, send(app, now)).updates


def parts(mail_server: MailServer) -> list[tuple[str, str]]:
    """Return the text and the HTML of each email."""
    bodies = [
        [part.get_content().replace("\r\n", "\n") for part in mail.parsed().iter_parts()]  # type: ignore[attr-defined]
        for mail in mail_server.messages
    ]
    return [(text, html) for text, html in bodies]


def like(app: Application, now: datetime, paper_id: int = 1) -> None:
    with app.db.write() as session:
        subscribers.set_feedback(session, 1, paper_id, True, now)


def test_withdrawal_is_in_one_digest(app: Application, mail_server: MailServer) -> None:
    """It is in both parts of the next digest, with a link, and in no later one."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    assert updates_at(app, HOUR + DAY) == (WITHDRAWN,)
    assert updates_at(app, HOUR + 2 * DAY) == ()
    first, (text, html), third = parts(mail_server)
    assert "UPDATES ON EARLIER PAPERS" in text
    assert f"“{AGENTS}” was withdrawn.\n{PAGE}" in text
    assert f'“<a href="{PAGE}"' in html
    assert "withdrawn" not in "".join(first + third)


def test_withdrawn_paper_is_not_offered(app: Application, mail_server: MailServer) -> None:
    """Those who were not sent it hear nothing of it."""
    store(app, HOUR - DAY / 4, withdrawn=True)
    assert send(app, HOUR).state is DeliveryState.SKIPPED
    assert updates_at(app, HOUR + DAY) == ()
    assert AGENTS not in parts(mail_server)[0][0]


def test_updates_wait_for_a_digest(app: Application, mail_server: MailServer) -> None:
    """On days without papers there is no digest, and the updates come with the next one."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    for days in (1, 2, 3):
        assert send(app, HOUR + days * DAY).state is DeliveryState.SKIPPED
    assert updates_at(app, HOUR + 4 * DAY) == (WITHDRAWN,)
    assert len(mail_server.messages) == 2


def test_updates_come_with_trending_papers(app: Application) -> None:
    """A reader who wants trending papers on empty days gets the updates with them."""
    with app.db.write() as session:
        subscriber = subscribers.get(session, 1)
        subscriber.when_empty = EmptyDigestPolicy.TRENDING
        session.add(subscriber)
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    with app.db.write() as session:
        factories.add_paper(session, session.get_one(Source, 1), "Pigeons", (HOUR + DAY).date(), HOUR + DAY)
    assert factories.load_digest(app, send(app, HOUR + DAY)).updates == (WITHDRAWN,)


def test_code_of_a_liked_paper(app: Application, mail_server: MailServer) -> None:
    """Code that a source found after the like is in one digest, with a link."""
    send(app, HOUR)
    like(app, HOUR + DAY / 4)
    store(app, HOUR + DAY / 2, SourceKind.HUGGINGFACE, code_url=CODE)
    assert updates_at(app, HOUR + DAY) == (WITH_CODE,)
    assert updates_at(app, HOUR + 2 * DAY) == ()
    text, html = parts(mail_server)[1]
    assert f"“{AGENTS}” now has code:\n{CODE}" in text
    assert f'href="{CODE}"' in html


@pytest.mark.parametrize("planned", [False, True])
def test_hidden_paper_has_no_updates(app: Application, planned: bool) -> None:
    """They are neither in the next digest nor in one that waits. Unreadable updates in the latter stay."""
    send(app, HOUR)
    like(app, HOUR + DAY / 4)
    store(app, HOUR + DAY / 2, SourceKind.HUGGINGFACE, code_url=CODE)
    add_paper_of(app, HOUR + DAY)
    if planned:
        pipeline.plan(app, HOUR + DAY)
        with app.db.write() as session:
            session.execute(delete(PaperSnapshot).where(col(PaperSnapshot.paper_id) == 1))
            content = session.exec(select(DigestContent).where(col(DigestContent.has_updates))).one()
            content.digest = content.digest | {"updates": [["exploded", 1], *content.digest["updates"]]}
    with app.db.write() as session:
        Editor(session, "desk", HOUR + DAY).hide(1)
    if planned:
        with app.db.read() as session:
            content = session.exec(select(DigestContent).where(col(DigestContent.has_updates))).one()
            assert content.digest["updates"] == [["exploded", 1]]
    assert factories.load_digest(app, send(app, HOUR + DAY)).updates == ()


def test_claiming_reads_no_digest_for_a_paper_that_was_hidden_long_ago(app: Application) -> None:
    """Digests composed since then cannot mention the paper, not even in their updates."""
    send(app, HOUR)
    like(app, HOUR + DAY / 4)
    store(app, HOUR + DAY / 2, SourceKind.HUGGINGFACE, code_url=CODE)
    add_paper_of(app, HOUR + DAY)
    pipeline.plan(app, HOUR + DAY)
    with app.db.write() as session:
        before = HOUR - 2 * DAY
        old = factories.add_paper(session, session.get_one(Source, 1), "Old", before.date(), before)
        Editor(session, "desk", before).hide(old)
    statements: list[str] = []
    event.listen(app.db.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    with app.db.write() as session:
        claimed_ids = ledger.claim(session, owner="me", now=HOUR + DAY)
        assert session.exec(select(DigestContent.has_updates).where(DigestContent.delivery_id == 2)).one()
        statements.clear()
        assert removal.leave_out_of_claimed(session, claimed_ids) == []
    assert claimed_ids == [2]
    assert not any("digest_content.digest" in statement for statement in statements)


def test_updates_on_a_paper_hidden_during_a_planning_run_are_left_out(app: Application) -> None:
    """The run has loaded its updates before."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    now = HOUR + 40 * DAY  # the paper is no candidate any more
    add_paper_of(app, now)
    with app.db.read() as session:
        builder, recent = DigestBuilder(app.digest_context, session, now), paper_updates.load(session, now)
    with app.db.write() as session:
        Editor(session, "desk", now).hide(1)
    planning._plan_batch(app.digest_context, builder, recent, planning._due(now), now, now)
    with app.db.read() as session:
        content = session.exec(select(DigestContent).order_by(col(DigestContent.delivery_id).desc())).first()
    assert content
    assert content.has_updates
    assert content.digest["updates"] == []


@pytest.mark.parametrize("when", ["not liked", "liked later"])
def test_code_that_nobody_waits_for(app: Application, when: str) -> None:
    """Those who did not like the paper, or liked it when it had code, hear nothing of it."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, SourceKind.HUGGINGFACE, code_url=CODE)
    if when == "liked later":
        like(app, HOUR + DAY * 3 / 4)
    assert updates_at(app, HOUR + DAY) == ()


def test_reader_who_wants_no_updates(app: Application) -> None:
    """If they want them again, they get what is still recent."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    for days, wanted in ((1, False), (2, True)):
        with app.db.write() as session:
            subscriber = subscribers.get(session, 1)
            subscriber.paper_updates = wanted
            session.add(subscriber)
        assert updates_at(app, HOUR + days * DAY) == ((WITHDRAWN,) if wanted else ())


def test_updates_of_a_lost_digest_come_again(app: Application) -> None:
    """A digest that failed did not arrive, so its updates are in the next one."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    assert updates_at(app, HOUR + DAY) == (WITHDRAWN,)
    with app.db.write() as session:
        lost = session.exec(select(Delivery).order_by(col(Delivery.id).desc())).first()
        assert lost
        lost.state = DeliveryState.FAILED
        session.add(lost)
    assert updates_at(app, HOUR + 2 * DAY) == (WITHDRAWN,)
    assert updates_at(app, HOUR + 3 * DAY) == ()


def test_same_paper_from_another_source(app: Application) -> None:
    """If the reader got another row of the paper, a withdrawal is in one digest, before and after merges."""
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        twin = factories.add_paper(session, source, f"{AGENTS}!", HOUR.date(), NOW, abstract=ABSTRACT)
    digest = factories.load_digest(app, send(app, HOUR))
    assert {pick.paper_id for pick in digest.picks} == {1, twin}
    with app.db.write() as session:
        merging.merge(session, session.get_one(Paper, 1), session.get_one(Paper, twin), "same", HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    assert updates_at(app, HOUR + DAY) == (WITHDRAWN,)
    assert updates_at(app, HOUR + 2 * DAY) == ()


def test_merge_after_the_update(app: Application) -> None:
    """An update on a row that is merged later is not repeated for the paper that absorbed it."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    assert updates_at(app, HOUR + DAY) == (WITHDRAWN,)
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        day = HOUR - 30 * DAY
        survivor = factories.add_paper(session, source, "Agents", day.date(), day, arxiv_id="2610.1")
        row, other = session.get_one(Paper, 1), session.get_one(Paper, survivor)
        row.arxiv_id = None
        session.flush()
        merging.merge(session, row, other, "same", HOUR + DAY)
        assert row.merged_into_id == survivor
    assert updates_at(app, HOUR + 2 * DAY) == ()


def test_code_from_a_merged_paper(app: Application) -> None:
    """A liked paper has code since its twin had it. Undoing the merge takes it back."""
    send(app, HOUR)
    like(app, HOUR + DAY / 4)
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        at, versions = HOUR + DAY / 2, {"code_url": "1.2026-11-20.3"}
        twin = factories.add_paper(session, source, AGENTS, HOUR.date(), at, code_url=CODE, versions=versions)
        merging.merge(session, session.get_one(Paper, 1), session.get_one(Paper, twin), "same", HOUR + DAY)
        assert session.get_one(Paper, 1).code_found_at == at
    assert updates_at(app, HOUR + DAY) == (WITH_CODE,)
    with app.db.write() as session:
        merging.undo_merge(session, 1, HOUR + DAY)
        assert session.get_one(Paper, 1).code_found_at is None


def test_old_updates_are_dropped(app: Application) -> None:
    """They are dropped after 60 days without a digest."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    assert updates_at(app, HOUR + WINDOW + 2 * DAY) == ()


def test_many_updates(app: Application) -> None:
    """A digest has at most ten, and the next one has the others."""
    with app.db.write() as session:
        source = session.get_one(Source, 1)
        for number in range(paper_updates.MAX_UPDATES + 3):
            day = HOUR - 20 * DAY
            paper = factories.add_paper(session, source, f"Old {number}", day.date(), day, code_url=CODE)
            session.get_one(Paper, paper).code_found_at = HOUR - DAY
            session.add(FeedbackRow(subscriber_id=1, paper_id=paper, liked=True, at=HOUR - 2 * DAY))
    counts = [len(updates_at(app, HOUR + days * DAY)) for days in range(3)]
    assert counts == [paper_updates.MAX_UPDATES, 3, 0]


def test_unreadable_updates_are_counted(app: Application) -> None:
    """The rest of the digest is still sent."""
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    add_paper_of(app, HOUR + DAY)
    pipeline.plan(app, HOUR + DAY)
    with app.db.write() as session:
        content = session.exec(select(DigestContent).where(col(DigestContent.has_updates))).one()
        content.digest = content.digest | {"updates": [*content.digest["updates"], ["exploded", 1]]}
        session.add(content)
        restored = app.snapshots.restore(session, [content.digest])[0]
    assert restored.digest.updates == (WITHDRAWN,)
    assert restored.unreadable == 1
    assert pipeline.send_now(app, HOUR + DAY)["sent"] == 1


def test_one_query_for_all_readers(app: Application) -> None:
    """The number of queries does not grow with the number of readers."""
    with app.db.write() as session:
        for number in range(30):
            factories.add_subscriber(session, f"{number}@example.org", ["language agents"], HOUR)
    send(app, HOUR)
    store(app, HOUR + DAY / 2, withdrawn=True)
    statements: list[str] = []

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(app.db.engine, "before_cursor_execute", count)
    add_paper_of(app, HOUR + DAY)
    pipeline.plan(app, HOUR + DAY)
    queries = [text for text in statements if text.startswith("SELECT") and "has_updates" in text]
    assert len(queries) == 1
    with app.db.read() as session:
        assert len(session.exec(select(DigestContent).where(col(DigestContent.has_updates))).all()) == 31
