"""What a reader said of papers is kept as they said it last, is theirs alone, and can be forgotten."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import event, text
from sqlmodel import Session, func, select

from app import subscribers
from app.application import Application
from app.delivery import suppression
from app.errors import Conflict, InvalidInput, NotFound
from app.papers import merging
from app.storage.models import FeedbackRow, FormSubmission, Paper, PrivatePaper, Subscriber
from app.subscribers import MatchedReferences, Preferences, SignUp, feedback
from app.types import Feedback, Interest, PaperRecord
from tests import shelves

WANTED = Preferences(interests=(Interest("robotics"),))
MINUTE = timedelta(minutes=1)
ATTENTION = PaperRecord(
    title="Attention Is All We Had", abstract="We attend.", authors=("Ada Lovelace", "Alan Turing")
)


@pytest.fixture
def papers(app: Application, now: datetime) -> tuple[int, int, int]:
    """Three papers of the archive."""
    with app.db.write() as session:
        source = shelves.source(session, now)
        return (
            shelves.paper(
                session, source, "Language Agents that Plan Ahead", now.date(), now, arxiv_id="2611.00001",
                abstract="They plan.", authors=["Ada Lovelace", "Grace Hopper"],
            ),
            shelves.paper(
                session, source, "Folding Proteins on a Laptop", now.date(), now, doi="10.1000/fold",
                authors=["Ada Lovelace"],
            ),
            shelves.paper(session, source, "Introduction", now.date(), now, authors=["Someone Else"]),
        )  # fmt: skip


@pytest.fixture
def alice(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return shelves.reader(session, "alice@example.org", ["agents"], now)


@pytest.fixture
def bob(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return shelves.reader(session, "bob@example.org", ["proteins"], now)


def said_by(session: Session, reader: int) -> list[tuple[str, bool]]:
    return [
        (each.title, each.liked)
        for each in subscribers.feedback_for_ranking(session, [reader]).get(reader, ())
    ]


def count(session: Session, table: type) -> int:
    return session.exec(select(func.count()).select_from(table)).one()


# --- a word on a paper


def test_the_last_word_counts(app: Application, alice: int, papers: tuple[int, ...], now: datetime) -> None:
    """Saying the same again changes nothing, not even when it was said; the contrary does."""
    with app.db.write() as session:
        for later in (now, now + MINUTE):
            subscribers.set_feedback(session, alice, papers[0], True, later)
        (opinion,) = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert opinion == Feedback(
            "Language Agents that Plan Ahead", "They plan.", ("Ada Lovelace", "Grace Hopper"), True, now,
            paper_id=papers[0],
        )  # fmt: skip
        subscribers.set_feedback(session, alice, papers[0], False, now + MINUTE)
        assert said_by(session, alice) == [("Language Agents that Plan Ahead", False)]
        subscribers.remove_feedback(session, alice, papers[0])
        assert subscribers.feedback_for_ranking(session, [alice]) == {}


def test_each_reader_has_their_own_say(
    app: Application, alice: int, bob: int, papers: tuple[int, ...], now: datetime
) -> None:
    """What one takes back, removes or forgets, the other keeps; the newest stands first."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, papers[0], True, now)
        subscribers.set_feedback(session, alice, papers[1], False, now + MINUTE)
        subscribers.set_feedback(session, bob, papers[0], False, now)
        subscribers.like(session, bob, MatchedReferences(own=(ATTENTION,)), now)
        own_key = subscribers.feedback_for_ranking(session, [bob])[bob][1].own_key
        subscribers.remove_feedback(session, alice, papers[0])
        subscribers.remove_private_paper(session, alice, own_key)
        assert said_by(session, alice) == [("Folding Proteins on a Laptop", False)]
        subscribers.forget_opinions(session, alice)
        assert subscribers.feedback_for_ranking(session, [alice, bob]).keys() == {bob}
        assert len(said_by(session, bob)) == 2
        subscribers.remove_private_paper(session, bob, own_key)
        assert said_by(session, bob) == [("Language Agents that Plan Ahead", False)]


def test_a_paper_that_is_not_there_has_no_opinions(app: Application, alice: int, now: datetime) -> None:
    """Nor can it be taken back; nothing happens."""
    with app.db.write() as session:
        with pytest.raises(NotFound):
            subscribers.set_feedback(session, alice, 4711, True, now)
        subscribers.remove_feedback(session, alice, 4711)


def test_a_reader_who_is_erased_says_nothing_any_more(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """Though a link was opened a moment before."""
    with app.db.write() as session:
        subscribers.erase(session, alice, now)
        with pytest.raises(Conflict):
            subscribers.set_feedback(session, alice, papers[0], True, now)
        with pytest.raises(Conflict):
            subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)


def test_two_papers_that_are_one_today_have_one_opinion(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """The newer one, by whichever id it was said; taken back, it is gone under both."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, papers[1], False, now)
        subscribers.set_feedback(session, alice, papers[0], True, now + MINUTE)
        kept, absorbed = (session.get_one(Paper, number) for number in papers[:2])
        merging.merge(session, kept, absorbed, "nearly the same title", now)
        (opinion,) = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert (opinion.paper_id, opinion.liked) == (papers[0], True)
        subscribers.set_feedback(
            session, alice, papers[1], False, now + 2 * MINUTE
        )  # by a link in an older mail
        (opinion,) = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert (opinion.paper_id, opinion.liked) == (papers[0], False)
        subscribers.remove_feedback(session, alice, papers[1])
        assert count(session, FeedbackRow) == 0


def test_opinions_take_few_queries(app: Application, papers: tuple[int, ...], now: datetime) -> None:
    """However many readers are asked for: a planning run asks for hundreds at once."""
    with app.db.write() as session:
        readers = [shelves.reader(session, f"reader{n}@example.org", [], now) for n in range(30)]
        for number in readers:
            subscribers.set_feedback(session, number, papers[number % 3], True, now)
    asked: list[str] = []
    event.listen(app.db.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    with app.db.read() as session:
        assert len(subscribers.feedback_for_ranking(session, readers)) == 30
    assert len([statement for statement in asked if statement.startswith("SELECT")]) == 5


# --- pasted papers


@pytest.mark.parametrize(
    ("pasted", "place"),
    [
        (PaperRecord(title="", arxiv_id="2611.00001"), 0),
        (PaperRecord(title="Another Title", arxiv_id="2611.00001"), 0),
        (PaperRecord(title="language agents that plan ahead."), 0),
        (PaperRecord(title="Language Agents that {P}lan Ahead", authors=("Hopper, G.",)), 0),
        (PaperRecord(title="", doi="10.1000/fold"), 1),
        (PaperRecord(title="Folding Proteins on a Laptop", arxiv_id="2611.99999"), 1),
        (PaperRecord(title="Introduction", authors=("Someone Else",)), 2),
    ],
)
def test_a_pasted_paper_is_recognised(
    app: Application, papers: tuple[int, ...], pasted: PaperRecord, place: int
) -> None:
    """By its arXiv id, its DOI, or its title, where nothing speaks against it."""
    with app.db.read() as session:
        found = subscribers.match_references(session, [pasted, pasted])
    assert [identity for identity, _ in found.known] == [papers[place]]
    assert (found.own, found.unknown) == ((), ())


@pytest.mark.parametrize(
    "pasted",
    [
        PaperRecord(title="Language Agents that Plan Ahead", arxiv_id="2611.99999"),
        PaperRecord(title="Language Agents that Plan Ahead", authors=("Nobody of Them",)),
        PaperRecord(title="Introduction"),
    ],
)
def test_a_title_alone_may_not_be_enough(
    app: Application, papers: tuple[int, ...], pasted: PaperRecord
) -> None:
    """Another id, other authors, or a title that many papers have: then it is kept for its reader alone."""
    with app.db.read() as session:
        found = subscribers.match_references(session, [pasted])
    assert (found.known, found.own) == ((), (pasted,))


@pytest.mark.parametrize(
    "unknown", [PaperRecord(title="", arxiv_id="1706.03762"), PaperRecord(title="hello")], ids=["id", "word"]
)
def test_what_says_nothing_is_told(app: Application, papers: tuple[int, ...], unknown: PaperRecord) -> None:
    """Nothing can be learned from a number alone, or from a single word."""
    with app.db.read() as session:
        found = subscribers.match_references(session, [unknown, unknown])
    assert (found.unknown, found.usable) == ((unknown,), 0)


def test_a_merged_paper_is_recognised_as_what_it_is_today(
    app: Application, papers: tuple[int, ...], now: datetime
) -> None:
    """Whichever of its names was pasted, it is one paper."""
    with app.db.write() as session:
        merging.merge(session, *(session.get_one(Paper, number) for number in papers[:2]), "by hand", now)
        both = [PaperRecord(title="", arxiv_id="2611.00001"), PaperRecord(title="", doi="10.1000/fold")]
        assert [identity for identity, _ in subscribers.match_references(session, both).known] == [papers[0]]


def test_pasted_papers_are_liked_once(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """Again and again; what was disliked is liked now; and the archive learns nothing of it."""
    pasted = [PaperRecord(title="", arxiv_id="2611.00001"), ATTENTION, ATTENTION]
    with app.db.write() as session:
        before = count(session, Paper)
        subscribers.set_feedback(session, alice, papers[0], False, now)
        for later in (now + MINUTE, now + 2 * MINUTE):
            subscribers.like(session, alice, subscribers.match_references(session, pasted), later)
        said = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert count(session, Paper) == before
    assert [(each.title, each.liked, each.at) for each in said] == [
        ("Language Agents that Plan Ahead", True, now + MINUTE),
        ("Attention Is All We Had", True, now + MINUTE),
    ]
    assert (said[1].abstract, said[1].authors, said[1].paper_id) == (
        "We attend.", ("Ada Lovelace", "Alan Turing"), None,
    )  # fmt: skip


def test_a_paper_that_the_archive_got_to_know_is_not_liked_twice(
    app: Application, alice: int, now: datetime
) -> None:
    """What its reader says of it takes the place of what they had pasted."""
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)
        paper = shelves.paper(session, shelves.source(session, now), ATTENTION.title, now.date(), now)
        subscribers.set_feedback(session, alice, paper, False, now)
        assert said_by(session, alice) == [(ATTENTION.title, False)]


def test_titles_of_any_script_and_length_are_kept(app: Application, alice: int, now: datetime) -> None:
    """An index of the database takes no more than it can hold."""
    titles = ["".join(chr(0x4E00 + (n * 37 + offset) % 20_000) for n in range(1_000)) for offset in (1, 2)]
    own = tuple(PaperRecord(title=title) for title in [*titles, "∞", "x" * 1_000])
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=own), now)
        assert {title for title, _ in said_by(session, alice)} == {record.title for record in own}


def test_there_is_room_for_a_thousand(
    app: Application, alice: int, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paste beyond it is refused as a whole, and what was there stays."""
    monkeypatch.setattr(feedback, "MOST_OPINIONS", 2)
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)
        two = MatchedReferences(own=(PaperRecord(title="One More"), PaperRecord(title="And Another")))
        with pytest.raises(InvalidInput, match="remove some first"):
            subscribers.like(session, alice, two, now)
        assert said_by(session, alice) == [(ATTENTION.title, True)]


def test_what_is_there_already_takes_no_room(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bibliography that grows may be pasted whole, again and again."""
    monkeypatch.setattr(feedback, "MOST_OPINIONS", 3)
    pasted = [PaperRecord(title="", arxiv_id="2611.00001"), ATTENTION]
    with app.db.write() as session:
        for grown in (pasted, [*pasted, PaperRecord(title="One More")]):
            subscribers.like(session, alice, subscribers.match_references(session, grown), now)
        assert len(said_by(session, alice)) == 3


# --- signing up, exporting, erasing


def signed_up(session: Session, now: datetime, *own: PaperRecord, email: str = "carol@example.org") -> int:
    subscribers.sign_up(session, SignUp(email, WANTED, MatchedReferences(own=own)), "192.0.2.1", now)
    return session.exec(select(Subscriber.id).where(Subscriber.email == email)).one() or 0


def test_what_was_pasted_at_sign_up_waits_for_the_confirmation(app: Application, now: datetime) -> None:
    """It stays apart until then; confirming makes it the reader's."""
    with app.db.write() as session:
        signed_up(session, now, PaperRecord(title="Pasted by a Stranger"))
        carol = signed_up(session, now, ATTENTION)
        assert said_by(session, carol) == []
        subscribers.confirm(session, carol, "192.0.2.1", now)
        assert said_by(session, carol) == [(ATTENTION.title, True)]


def test_a_stranger_changes_nothing_of_what_a_reader_said(app: Application, now: datetime) -> None:
    """An active reader's opinions stay as they are; so do a former reader's, until they confirm."""
    with app.db.write() as session:
        carol = signed_up(session, now, ATTENTION)
        subscribers.confirm(session, carol, "192.0.2.1", now)
        signed_up(session, now, PaperRecord(title="Pasted by a Stranger"))
        assert said_by(session, carol) == [(ATTENTION.title, True)]
        subscribers.unsubscribe(session, carol, now)
        signed_up(session, now + timedelta(days=1), PaperRecord(title="Pasted by a Stranger"))
        assert said_by(session, carol) == [(ATTENTION.title, True)]


def test_a_full_reader_of_old_signs_up_like_anybody(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there is no room is not told to who only knows the address."""
    with app.db.write() as session:
        carol = signed_up(session, now, ATTENTION)
        subscribers.confirm(session, carol, "192.0.2.1", now)
        subscribers.unsubscribe(session, carol, now)
        monkeypatch.setattr(feedback, "MOST_OPINIONS", 1)
        signed_up(session, now, PaperRecord(title="One More"))
        subscribers.confirm(session, carol, "192.0.2.1", now)
        assert said_by(session, carol) == [(ATTENTION.title, True)]


def test_nothing_is_kept_for_an_address_that_gets_no_mail(app: Application, now: datetime) -> None:
    """Nobody could ever see it, or have it forgotten."""
    with app.db.write() as session:
        suppression.suppress(session, "carol@example.org", "complaint", now)
        asked = SignUp("carol@example.org", WANTED, MatchedReferences(own=(ATTENTION,)))
        subscribers.sign_up(session, asked, "192.0.2.1", now)
        row = session.exec(select(FormSubmission)).one()
        assert (row.email, row.visitor, row.preferences, row.liked) == ("", "", {}, {})


def test_declining_forgets_what_was_pasted(app: Application, now: datetime) -> None:
    """Nothing is kept of who never was a reader."""
    with app.db.write() as session:
        subscribers.decline(session, signed_up(session, now, ATTENTION), now)
        assert session.exec(select(FormSubmission.liked)).one() == {}


def test_opinions_are_exported_and_erased(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """With titles, as people read them; and after erasing, nothing of them is left."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, papers[0], False, now)
        subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)
        held = subscribers.export(session, alice)["opinions"]
        assert [(each["title"], each["liked"]) for each in held] == [
            ("Language Agents that Plan Ahead", False), (ATTENTION.title, True),
        ]  # fmt: skip
        assert held[0]["at"] == now.isoformat()
        subscribers.erase(session, alice, now)
        assert subscribers.export(session, alice)["opinions"] == []
        assert (count(session, FeedbackRow), count(session, PrivatePaper)) == (0, 0)


@pytest.mark.parametrize("stored", ["null", "[null, 7]", '"Ada Lovelace"', "7"])
def test_what_is_no_list_of_names_costs_nobody_anything(app: Application, now: datetime, stored: str) -> None:
    """Least of all the others of the shard."""
    with app.db.write() as session:
        paper = shelves.paper(session, shelves.source(session, now), "One", now.date(), now, authors=["Ada"])
        alice = shelves.reader(session, "alice@example.org", [], now)
        subscribers.set_feedback(session, alice, paper, True, now)
        session.execute(text("UPDATE subscriber SET ignored_authors = :stored"), {"stored": stored})
    with app.db.read() as session:
        assert subscribers.feedback_for_ranking(session, [alice])[alice][0].authors == ("Ada",)


def test_an_author_of_what_is_liked_may_be_left_out(app: Application, now: datetime) -> None:
    """Of every paper that speaks for them, however they are spelled; and be counted again, or forgotten."""
    with app.db.write() as session:
        source = shelves.source(session, now)
        one, two = (
            shelves.paper(session, source, title, now.date(), now, authors=authors)
            for title, authors in (("One", ["Ada Lovelace", "Alan Turing"]), ("Two", ["Lovelace, Ada"]))
        )
        alice, bob = (shelves.reader(session, f"{name}@example.org", [], now) for name in ("alice", "bob"))
        for reader in (alice, bob):
            subscribers.set_feedback(session, reader, one, True, now)
            subscribers.set_feedback(session, reader, two, True, now)
        for _ in range(2):
            subscribers.ignore_author(session, alice, "Ada Lovelace")

    def counted(reader: int) -> list[tuple[str, ...]]:
        with app.db.read() as session:
            said = subscribers.feedback_for_ranking(session, [alice, bob])[reader]
        return sorted(one.authors for one in said)

    assert counted(alice) == [(), ("Alan Turing",)]
    assert counted(bob) == [("Ada Lovelace", "Alan Turing"), ("Lovelace, Ada",)]
    with app.db.read() as session:
        told = {tuple(each["authors"]) for each in subscribers.export(session, alice)["opinions"]}
    assert told == {*counted(bob)}, "what is held is told in full"
    with app.db.write() as session:
        subscribers.unignore_author(session, alice, "ADA LOVELACE")
    assert counted(alice) == counted(bob)
    with app.db.write() as session:
        subscribers.ignore_author(session, alice, "Alan Turing")
        subscribers.forget_opinions(session, alice)
        assert subscribers.get(session, alice).ignored_authors == []
