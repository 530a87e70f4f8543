"""Whoever asks to be forgotten is forgotten: no table keeps a word of theirs."""

from __future__ import annotations

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
from app.storage import audit_log
from app.storage.models import InterestQuery, Subscriber, Suppression
from app.subscribers import MatchedReferences, Preferences, SignUp, interests
from app.types import Interest, MailKind, PaperRecord, SendOutcome, SendResult
from tests.support import sample_digest
from tests.support.mail_server import MailServer

WORD = "zyxquark"
ADDRESS = f"{WORD}@example.org"
IP = "192.0.2.77"
HOUR = timedelta(hours=1)


def dump(app: Application) -> Iterator[tuple[str, str]]:
    """Yield every row of every table with the table's name."""
    with app.db.read() as session:
        for table in SQLModel.metadata.sorted_tables:
            for row in session.execute(select(table)):
                yield table.name, repr(row._asdict())


def holding(app: Application, *traces: str) -> list[tuple[str, str]]:
    """Return the rows in which one of these stands, in whatever case."""
    return [
        (name, row) for name, row in dump(app) if any(trace.casefold() in row.casefold() for trace in traces)
    ]


def queries(app: Application) -> set[str]:
    with app.db.read() as session:
        return set(session.exec(select(InterestQuery.text)))


def join(session: Session, email: str, now: datetime, *wishes: str) -> int:
    wanted = Preferences(interests=tuple(Interest(text) for text in wishes))
    return subscribers.add(session, email, wanted, now)


def digest() -> object:
    """A digest whose sections, reasons, note and best title say the word."""
    made = sample_digest.digest("2026-11-20")
    first = made.sections[0]
    pick = replace(first.picks[0], reason=f"matches “{WORD}” in the title")
    section = replace(first, interest=WORD, picks=(pick, *first.picks[1:]))
    return replace(made, sections=(section, *made.sections[1:]), note=f"{WORD} was rare")


@pytest.fixture
def reader(app: Application, now: datetime) -> int:
    """A reader with the word in every field that they, an operator or a mail server can fill."""
    wanted = Preferences(
        zone="Asia/Pyongyang", interests=(Interest(WORD), Interest("robotics")), muted=(f"no {WORD}",)
    )
    with app.db.write() as session:
        subscribers.sign_up(session, SignUp(ADDRESS, wanted), IP, now - 3 * HOUR)
        identity = session.exec(select(Subscriber.id).where(Subscriber.email == ADDRESS)).one() or 0
        subscribers.confirm(session, identity, IP, now - 3 * HOUR)
        pasted = PaperRecord(title=f"The {WORD} paper", abstract=f"On {WORD}.", authors=(f"A. {WORD}",))
        subscribers.like(session, identity, MatchedReferences(own=(pasted,)), now)
        subscribers.ignore_author(session, identity, f"Ada {WORD.title()}")
        subscribers.follow(session, identity, f"Bob {WORD.title()}", now)
        subscribers.pause(session, identity, now + HOUR * 48, now)
        subscribers.resume(session, identity, now)
    return identity


def handle(session: Session, identity: int, now: datetime) -> int:
    """Let operators, the relay and a mailbox say the word, too; the id of the reader's digest."""
    delivery_id = ledger.enqueue(
        session, subscriber_id=identity, kind=MailKind.DIGEST, edition="2026-11-20", due_at=now, now=now,
        digest=digest(),  # type: ignore[arg-type]
    )  # fmt: skip
    assert delivery_id is not None
    said = f"550 5.7.1 mailbox of {WORD} <{ADDRESS}> is busy"
    bounces.record_refusal(
        session, delivery_id, identity, SendResult(SendOutcome.SOFT_BOUNCE, 550, said), now
    )
    audit_log.record(
        session, "desk", "subscriber.add", identity, now, consent=f"{WORD} signed at the workshop"
    )
    audit_log.record(session, "desk", "digest.test", identity, now, to=ADDRESS)
    listed_as = suppression.address_hash(ADDRESS)
    audit_log.record(session, "desk", "suppression.lift", listed_as, now, reason=f"{WORD} phoned")
    return delivery_id


@pytest.mark.parametrize("keep_off", [True, False], ids=["with the fingerprint", "without"])
def test_no_table_keeps_a_word_of_an_erased_reader(
    app: Application, mail_server: MailServer, reader: int, now: datetime, keep_off: bool
) -> None:
    """Interests, pasted papers, digests, the relay's words, operators' notes: all of it is gone."""
    with app.db.write() as session:
        handle(session, reader, now)
    mail_server.reply("data", f"451 4.3.0 {WORD} <{ADDRESS}> later", to=ADDRESS, times=1)
    pipeline.send_pending(app, now)
    stranger = Notice(Kind.BOUNCE, ADDRESS, diagnostic=f"550 5.1.1 <{ADDRESS}> unknown", hard=True)
    _, rejections = processing.apply(app.bounce_context, [stranger], now)
    assert not any(ADDRESS in str(each) for each in rejections)
    assert {name for name, _ in holding(app, WORD)} >= {
        "subscriber", "interest_query", "private_paper", "digest_content", "event", "delivery", "audit_entry",
    }  # fmt: skip
    with app.db.write() as session:
        subscribers.erase(session, reader, now, suppress=keep_off)
    fingerprint = suppression.address_hash(ADDRESS)
    assert holding(app, WORD, ADDRESS, IP, "Pyongyang") == []
    assert {name for name, _ in holding(app, fingerprint)} == ({"suppression"} if keep_off else set())


def test_an_operators_words_on_a_suppressed_address_go_with_its_reader(
    app: Application, reader: int, now: datetime
) -> None:
    """The address stays listed, by its hash; the words on it named somebody."""
    with app.db.write() as session:
        suppression.suppress(session, ADDRESS, f"{WORD} phoned, and was angry", now)
        subscribers.erase(session, reader, now, suppress=False)
        assert suppression.is_suppressed(session, ADDRESS)
    assert holding(app, WORD) == []


def test_a_pause_of_sending_names_nobody(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The relay's words stand there until an operator resumes, long after an erasure."""
    with app.db.write() as session:
        join(session, ADDRESS, now, "robotics")
        reader = session.exec(select(Subscriber.id)).one() or 0
        subscribers.request_erasure(session, reader, now)
    mail_server.reply("mail", f"550 5.7.1 <{ADDRESS}>: SPF check failed", times=9)
    pipeline.send_pending(app, now)
    with app.db.read() as session:
        (pause,) = ledger.pauses(session)
    assert "SPF check failed" in pause.reason
    assert ADDRESS not in pause.reason


# --- interests that nobody has any more


def test_an_interest_is_kept_as_long_as_somebody_has_it(app: Application, now: datetime) -> None:
    """Shared by two readers, it goes with the second; one that is given up goes at once."""
    with app.db.write() as session:
        alice = join(session, "alice@example.org", now, "robotics", WORD)
        bob = join(session, "bob@example.org", now, "robotics")
        subscribers.erase(session, alice, now)
    assert queries(app) == {"robotics"}
    with app.db.write() as session:
        subscribers.change(session, bob, Preferences(interests=(Interest("proteins"),)), now)
    assert queries(app) == {"proteins"}


def test_texts_that_nobody_has_are_found_later_too(app: Application, now: datetime) -> None:
    """For those that another transaction held on to, and never used."""
    with app.db.write() as session:
        join(session, "alice@example.org", now, "robotics")
        session.add(InterestQuery(text=WORD))
        session.flush()
        assert subscribers.forget_unused_queries(session) == 1
        assert subscribers.forget_unused_queries(session) == 0
    assert queries(app) == {"robotics"}


def has(app: Application, reader: int) -> list[str]:
    with app.db.read() as session:
        return [wish.text for wish in subscribers.interests_of(session, [reader]).get(reader, ())]


def test_who_adopts_an_interest_while_its_only_reader_is_erased_has_it(
    app: Application, now: datetime
) -> None:
    """Whichever transaction ends first, neither fails, and nobody loses an interest."""
    with app.db.write() as session:
        alice = join(session, "alice@example.org", now, WORD)
        bob = join(session, "bob@example.org", now, "robotics")

    def erase() -> None:
        with app.db.write() as session:
            subscribers.erase(session, alice, now)

    leaving = Thread(target=erase)
    with app.db.write() as session:
        interests.store(session, bob, [Interest(WORD)])
        leaving.start()
        if session.get_bind().dialect.name == "postgresql":
            leaving.join()  # it does not wait for Bob; on SQLite, it does
    leaving.join()
    assert has(app, bob) == [WORD]
    assert has(app, alice) == []


def test_who_adopts_an_interest_right_after_it_was_deleted_has_it(app: Application, now: datetime) -> None:
    """The text is on its way out: it is stored anew."""
    with app.db.write() as session:
        alice = join(session, "alice@example.org", now, WORD)
        bob = join(session, "bob@example.org", now, "robotics")

    def adopt() -> None:
        with app.db.write() as session:
            interests.store(session, bob, [Interest(WORD), Interest("robotics")])

    adopting = Thread(target=adopt)
    with app.db.write() as session:
        subscribers.erase(session, alice, now)
        adopting.start()
    adopting.join()
    assert has(app, bob) == [WORD, "robotics"]
    assert queries(app) == {WORD, "robotics"}


# --- what an export tells of others


def test_an_export_holds_no_number_of_a_row(app: Application, reader: int, now: datetime) -> None:
    """The next number would tell what happened to others since."""
    with app.db.write() as session:
        handle(session, reader, now)
        held = subscribers.export(session, reader)
    rows = [held["subscriber"], *held["deliveries"], *held["events"], *held["feedback"]]
    assert len(rows) > 8
    assert not any({"id", "delivery_id", "subscriber_id", "own_id", "key"} & row.keys() for row in rows)


def test_a_suppression_names_its_hash_alone(app: Application, reader: int, now: datetime) -> None:
    """What outlives a reader is one row, and says nothing that they wrote."""
    with app.db.write() as session:
        subscribers.erase(session, reader, now)
        (row,) = session.exec(select(Suppression).order_by(col(Suppression.id))).all()
    assert (row.address_hash, row.reason) == (
        suppression.address_hash(ADDRESS),
        "erased at the reader's wish",
    )
