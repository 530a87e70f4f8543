"""Test erasure: no table keeps any text of an erased reader."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Thread

import pytest
from sqlmodel import Session, SQLModel, col, select

from app import bounces, pipeline, subscribers
from app.application import Application
from app.bounces import Kind, Notice, processing
from app.delivery import ledger, suppression
from app.delivery.journal import AttemptResult
from app.delivery.send_result import SendOutcome, SendResult
from app.storage import audit_log
from app.storage.models import InterestQuery, Subscriber, Suppression
from app.subscribers import MatchedReferences, Preferences, SignUp, stored_interests
from app.types import Interest, MailKind, PaperRecord
from tests.support import factories, sample_digest
from tests.support.mail_server import MailServer

WORD = "zyxquark"
ADDRESS = f"{WORD}@example.org"
IP = "192.0.2.77"
HOUR = timedelta(hours=1)


def all_rows(app: Application) -> Iterator[tuple[str, str]]:
    """Yield every row of every table with the table's name."""
    with app.db.read() as session:
        for table in SQLModel.metadata.sorted_tables:
            for row in session.execute(select(table)):
                yield table.name, repr(row._asdict())


def rows_with(app: Application, *traces: str) -> list[tuple[str, str]]:
    """Return the rows that contain one of these texts, ignoring case."""
    return [
        (name, row)
        for name, row in all_rows(app)
        if any(trace.casefold() in row.casefold() for trace in traces)
    ]


def queries(app: Application) -> set[str]:
    with app.db.read() as session:
        return set(session.exec(select(InterestQuery.text)))


def add_reader(session: Session, email: str, now: datetime, *texts: str) -> int:
    preferences = Preferences(interests=tuple(Interest(text) for text in texts))
    return subscribers.add(session, email, preferences, now)


def secret_digest() -> object:
    """Return a digest with the word in sections, reasons, the note and the best title."""
    sample = sample_digest.digest("2026-11-20")
    first = sample.sections[0]
    pick = replace(first.picks[0], reason=f"matches “{WORD}” in the title")
    section = replace(first, interest=WORD, picks=(pick, *first.picks[1:]))
    return replace(sample, sections=(section, *sample.sections[1:]), note=f"{WORD} was rare")


@pytest.fixture
def add_secret_reader(app: Application, now: datetime) -> int:
    """Add a reader with the word in every field that they, an operator or a mail server can fill."""
    preferences = Preferences(
        zone="Asia/Pyongyang", interests=(Interest(WORD), Interest("robotics")), muted=(f"no {WORD}",)
    )
    with app.db.write() as session:
        factories.sign_up(session, SignUp(ADDRESS, preferences), IP, now - 3 * HOUR)
        identity = session.exec(select(Subscriber.id).where(Subscriber.email == ADDRESS)).one() or 0
        subscribers.confirm(session, identity, IP, now - 3 * HOUR)
        pasted = PaperRecord(title=f"The {WORD} paper", abstract=f"On {WORD}.", authors=(f"A. {WORD}",))
        subscribers.like(session, identity, MatchedReferences(own=(pasted,)), now)
        subscribers.ignore_author(session, identity, f"Ada {WORD.title()}")
        subscribers.follow(session, identity, f"Bob {WORD.title()}", now)
        subscribers.pause(session, identity, now + HOUR * 48, now)
        subscribers.resume(session, identity, now)
    return identity


def add_secret_events(session: Session, identity: int, now: datetime) -> int:
    """Add the word to texts of operators, the relay and a mailbox. Return the id of the reader's digest."""
    delivery_id = ledger.enqueue(
        session, subscriber_id=identity, kind=MailKind.DIGEST, edition="2026-11-20", due_at=now, now=now,
        digest=secret_digest(),  # type: ignore[arg-type]
    )  # fmt: skip
    assert delivery_id is not None
    reply = f"550 5.7.1 mailbox of {WORD} <{ADDRESS}> is busy"
    refusal = SendResult(SendOutcome.SOFT_BOUNCE, 550, reply)
    bounces.record_refusal(session, AttemptResult(delivery_id, refusal, now.timestamp()), identity, now)
    audit_log.record(
        session, "desk", "subscriber.add", identity, now, consent=f"{WORD} signed at the workshop"
    )
    audit_log.record(session, "desk", "digest.test", identity, now, to=ADDRESS)
    listed_as = suppression.address_hash(ADDRESS)
    audit_log.record(session, "desk", "suppression.lift", listed_as, now, reason=f"{WORD} phoned")
    return delivery_id


@pytest.mark.parametrize("keep_off", [True, False], ids=["with the fingerprint", "without"])
def test_no_table_keeps_texts_of_an_erased_reader(
    app: Application, mail_server: MailServer, add_secret_reader: int, now: datetime, keep_off: bool
) -> None:
    """Check interests, pasted papers, digests, replies of the relay and notes of operators."""
    with app.db.write() as session:
        add_secret_events(session, add_secret_reader, now)
    mail_server.reply("data", f"451 4.3.0 {WORD} <{ADDRESS}> later", to=ADDRESS, times=1)
    pipeline.send_now(app, now)
    stranger = Notice(Kind.BOUNCE, ADDRESS, diagnostic=f"550 5.1.1 <{ADDRESS}> unknown", hard=True)
    _, rejections = processing.apply(app.bounce_context, [stranger], now)
    assert not any(ADDRESS in str(each) for each in rejections)
    assert {name for name, _ in rows_with(app, WORD)} >= {
        "subscriber", "interest_query", "private_paper", "digest_content", "event", "delivery", "audit_entry",
    }  # fmt: skip
    with app.db.write() as session:
        subscribers.erase(session, add_secret_reader, now, suppress=keep_off)
    fingerprint = suppression.address_hash(ADDRESS)
    assert rows_with(app, WORD, ADDRESS, IP, "Pyongyang") == []
    assert {name for name, _ in rows_with(app, fingerprint)} == ({"suppression"} if keep_off else set())


def test_erasure_deletes_the_note_on_a_suppression(
    app: Application, add_secret_reader: int, now: datetime
) -> None:
    """The address stays listed by its hash; the note named a person."""
    with app.db.write() as session:
        suppression.suppress(session, ADDRESS, f"{WORD} phoned, and was angry", now)
        subscribers.erase(session, add_secret_reader, now, suppress=False)
        assert suppression.is_suppressed(session, ADDRESS)
    assert rows_with(app, WORD) == []


def test_pause_reason_contains_no_address(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The relay's reply stays until an operator resumes, maybe long after an erasure."""
    with app.db.write() as session:
        add_reader(session, ADDRESS, now, "robotics")
        add_secret_reader = session.exec(select(Subscriber.id)).one() or 0
        subscribers.request_erasure(session, add_secret_reader, now)
    mail_server.reply("mail", f"550 5.7.1 <{ADDRESS}>: SPF check failed", times=9)
    pipeline.send_now(app, now)
    with app.db.read() as session:
        (pause,) = ledger.pauses(session)
    assert "SPF check failed" in pause.reason
    assert ADDRESS not in pause.reason


# --- interests that nobody has any more


def test_shared_interest_is_deleted_with_its_last_reader(app: Application, now: datetime) -> None:
    """An interest that is removed from the preferences is deleted immediately."""
    with app.db.write() as session:
        alice = add_reader(session, "alice@example.org", now, "robotics", WORD)
        bob = add_reader(session, "bob@example.org", now, "robotics")
        subscribers.erase(session, alice, now)
    assert queries(app) == {"robotics"}
    with app.db.write() as session:
        subscribers.change(session, bob, Preferences(interests=(Interest("proteins"),)), now)
    assert queries(app) == {"proteins"}


def test_unused_interests_are_pruned(app: Application, now: datetime) -> None:
    """Another transaction may have kept one and never used it."""
    with app.db.write() as session:
        add_reader(session, "alice@example.org", now, "robotics")
        session.add(InterestQuery(text=WORD))
        session.flush()
        assert subscribers.forget_unused_queries(session) == 1
        assert subscribers.forget_unused_queries(session) == 0
    assert queries(app) == {"robotics"}


def has_interest(app: Application, add_secret_reader: int) -> list[str]:
    with app.db.read() as session:
        return [
            interest.text
            for interest in subscribers.interests_of(session, [add_secret_reader]).get(add_secret_reader, ())
        ]


def test_interest_added_during_the_erasure_of_its_only_reader(app: Application, now: datetime) -> None:
    """Neither transaction fails, and the new reader keeps the interest."""
    with app.db.write() as session:
        alice = add_reader(session, "alice@example.org", now, WORD)
        bob = add_reader(session, "bob@example.org", now, "robotics")

    def erase() -> None:
        with app.db.write() as session:
            subscribers.erase(session, alice, now)

    leaving = Thread(target=erase)
    with app.db.write() as session:
        stored_interests.store(session, bob, [Interest(WORD)])
        leaving.start()
        if session.get_bind().dialect.name == "postgresql":
            leaving.join()  # on PostgreSQL, it does not wait for Bob
    leaving.join()
    assert has_interest(app, bob) == [WORD]
    assert has_interest(app, alice) == []


def test_interest_added_right_after_its_deletion(app: Application, now: datetime) -> None:
    """The text is stored again."""
    with app.db.write() as session:
        alice = add_reader(session, "alice@example.org", now, WORD)
        bob = add_reader(session, "bob@example.org", now, "robotics")

    def adopt() -> None:
        with app.db.write() as session:
            stored_interests.store(session, bob, [Interest(WORD), Interest("robotics")])

    adopting = Thread(target=adopt)
    with app.db.write() as session:
        subscribers.erase(session, alice, now)
        adopting.start()
    adopting.join()
    assert has_interest(app, bob) == [WORD, "robotics"]
    assert queries(app) == {WORD, "robotics"}


# --- what an export tells of others


def test_export_contains_no_row_ids(app: Application, add_secret_reader: int, now: datetime) -> None:
    """A later id would reveal the activity of others."""
    with app.db.write() as session:
        add_secret_events(session, add_secret_reader, now)
        export = subscribers.export(session, add_secret_reader, now)
    rows = [export["subscriber"], *export["deliveries"], *export["events"], *export["feedback"]]
    assert len(rows) > 8
    assert not any({"id", "delivery_id", "subscriber_id", "own_id", "key"} & row.keys() for row in rows)


def test_suppression_contains_only_a_hash(app: Application, add_secret_reader: int, now: datetime) -> None:
    """It is the only row that is kept after an erasure."""
    with app.db.write() as session:
        subscribers.erase(session, add_secret_reader, now)
        (row,) = session.exec(select(Suppression).order_by(col(Suppression.id))).all()
    assert (row.address_hash, row.reason) == (
        suppression.address_hash(ADDRESS),
        "erased on request",
    )


def test_changes_of_others_to_the_erased_address_are_deleted(app: Application, now: datetime) -> None:
    """Anyone may ask to move a subscription to any address."""
    with app.db.write() as session:
        erased, other = (add_reader(session, email, now, "x rays") for email in (ADDRESS, "bob@example.org"))
        subscribers.request_change(session, other, ADDRESS, now)
        subscribers.erase(session, erased, now)
    assert rows_with(app, ADDRESS) == []
