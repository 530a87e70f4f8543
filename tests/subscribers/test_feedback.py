"""Test feedback on papers: the last one counts, it belongs to its reader, and it can be deleted."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import event, text
from sqlmodel import Session, func, select

from app import subscribers
from app.application import Application
from app.delivery import suppression
from app.digests import hiding
from app.errors import Conflict, InvalidInput, NotFound
from app.papers import bibliography, merging
from app.relevance.model import RelevanceModel
from app.storage.models import FeedbackRow, FormSubmission, Paper, PrivatePaper, Subscriber
from app.subscribers import MatchedReferences, Preferences, SignUp, feedback
from app.types import Feedback, Interest, PaperRecord
from tests.support import factories

WANTED = Preferences(interests=(Interest("robotics"),))
MINUTE = timedelta(minutes=1)
MODEL, BASE_URL = RelevanceModel.bundled(), "https://paperboy.test"
ATTENTION = PaperRecord(
    title="Attention Is All We Had", abstract="We attend.", authors=("Ada Lovelace", "Alan Turing")
)


@pytest.fixture
def papers(app: Application, now: datetime) -> tuple[int, int, int]:
    """Add three papers."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        return (
            factories.add_paper(
                session, source, "Language Agents that Plan Ahead", now.date(), now, arxiv_id="2611.00001",
                abstract="They plan.", authors=["Ada Lovelace", "Grace Hopper"],
            ),
            factories.add_paper(
                session, source, "Folding Proteins on a Laptop", now.date(), now, doi="10.1000/fold",
                authors=["Ada Lovelace"],
            ),
            factories.add_paper(session, source, "Introduction", now.date(), now, authors=["Someone Else"]),
        )  # fmt: skip


@pytest.fixture
def alice(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return factories.add_subscriber(session, "alice@example.org", ["agents"], now)


@pytest.fixture
def bob(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return factories.add_subscriber(session, "bob@example.org", ["proteins"], now)


def feedback_of(session: Session, reader: int) -> list[tuple[str, bool]]:
    return [
        (each.title, each.liked)
        for each in subscribers.feedback_for_ranking(session, [reader]).get(reader, ())
    ]


def count_rows(session: Session, table: type) -> int:
    return session.exec(select(func.count()).select_from(table)).one()


# --- feedback on one paper


def test_the_last_feedback_counts(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """Repeating it changes nothing, not even its time; the opposite replaces it."""
    with app.db.write() as session:
        for later in (now, now + MINUTE):
            subscribers.set_feedback(session, alice, papers[0], True, later)
        (item,) = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert item == Feedback(
            "Language Agents that Plan Ahead", "They plan.", ("Ada Lovelace", "Grace Hopper"), True, now,
            paper_id=papers[0],
        )  # fmt: skip
        subscribers.set_feedback(session, alice, papers[0], False, now + MINUTE)
        assert feedback_of(session, alice) == [("Language Agents that Plan Ahead", False)]
        subscribers.remove_feedback(session, alice, papers[0])
        assert subscribers.feedback_for_ranking(session, [alice]) == {}


def test_feedback_belongs_to_its_reader(
    app: Application, alice: int, bob: int, papers: tuple[int, ...], now: datetime
) -> None:
    """Deleting one reader's feedback keeps that of others; the newest comes first."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, papers[0], True, now)
        subscribers.set_feedback(session, alice, papers[1], False, now + MINUTE)
        subscribers.set_feedback(session, bob, papers[0], False, now)
        subscribers.like(session, bob, MatchedReferences(own=(ATTENTION,)), now)
        own_key = subscribers.feedback_for_ranking(session, [bob])[bob][1].own_key
        subscribers.remove_feedback(session, alice, papers[0])
        subscribers.remove_private_paper(session, alice, own_key)
        assert feedback_of(session, alice) == [("Folding Proteins on a Laptop", False)]
        subscribers.forget_feedback(session, alice)
        assert subscribers.feedback_for_ranking(session, [alice, bob]).keys() == {bob}
        assert len(feedback_of(session, bob)) == 2
        subscribers.remove_private_paper(session, bob, own_key)
        assert feedback_of(session, bob) == [("Language Agents that Plan Ahead", False)]


def test_feedback_on_an_unknown_paper_is_rejected(app: Application, alice: int, now: datetime) -> None:
    """Removing feedback that does not exist does nothing."""
    with app.db.write() as session:
        with pytest.raises(NotFound):
            subscribers.set_feedback(session, alice, 4711, True, now)
        subscribers.remove_feedback(session, alice, 4711)


def test_an_erased_reader_cannot_give_feedback(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """This includes links opened before the erasure."""
    with app.db.write() as session:
        subscribers.erase(session, alice, now)
        with pytest.raises(Conflict):
            subscribers.set_feedback(session, alice, papers[0], True, now)
        with pytest.raises(Conflict):
            subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)


def test_hidden_papers_are_not_named(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """They are not matched, and their feedback does not count, even if another paper is merged into them."""
    pasted = [PaperRecord(title="", arxiv_id="2611.00001"), PaperRecord(title="", doi="10.1000/fold")]
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, papers[0], True, now)
        merging.merge(session, *(session.get_one(Paper, number) for number in papers[:2]), "by hand", now)
        hiding.hide(session, session.get_one(Paper, papers[0]), now)
        assert feedback_of(session, alice) == []
        matched = subscribers.match_references(session, pasted, MODEL, BASE_URL)
        assert (matched.archived, matched.unknown) == ((), tuple(pasted))
        with pytest.raises(NotFound):
            subscribers.set_feedback(session, alice, papers[1], False, now)
        assert len(subscribers.export(session, alice, now)["feedback"]) == 1
        hiding.show(session, session.get_one(Paper, papers[0]), now)
        assert feedback_of(session, alice) == [("Language Agents that Plan Ahead", True)]


def test_links_to_our_own_pages_are_recognized(
    app: Application, papers: tuple[int, ...], now: datetime
) -> None:
    """A link to another service is not, even if a paper here has the same number. Nor are hidden papers."""
    lines = ["- https://paperboy.test/paper/{} the best", "http://paperboy.test/paper/{}?utm=x, 2611.00001"]
    others = ["https://paperboy.test/paper/99", f"https://example.org/paper/{papers[0]}"]
    text = "\n".join([*(line.format(papers[2]) for line in lines), *others])
    pasted = bibliography.parse(text)
    assert pasted.rejections == ()
    with app.db.write() as session:
        matched = subscribers.match_references(session, pasted.records, MODEL, BASE_URL)
        assert dict(matched.archived).keys() == {papers[0], papers[2]}
        assert [record.url for record in matched.unknown] == others
        hiding.hide(session, session.get_one(Paper, papers[2]), now)
        matched = subscribers.match_references(session, pasted.records, MODEL, BASE_URL)
        assert dict(matched.archived).keys() == {papers[0]}


@pytest.mark.parametrize(
    "text",
    [
        "[Folding Proteins](https://paperboy.test/paper/{})",
        "A talk on it (see https://paperboy.test/paper/{}).",
        "Paperboy.test/paper/{}/",
        "https://paperboy.test/admin/papers/{}?q=x",
        "title,url\nA Misspelled Titel,https://paperboy.test/paper/{}\n",
        "@misc{{fold, url = {{https://paperboy.test/paper/{}}}}}",
        "TY  - JOUR\nUR  - https://paperboy.test/paper/{}\nER  -",
    ],
)
def test_links_to_our_own_pages_are_recognized_in_any_format(
    app: Application, papers: tuple[int, ...], text: str
) -> None:
    pasted = bibliography.parse(text.format(papers[2]))
    with app.db.read() as session:
        matched = subscribers.match_references(session, pasted.records, MODEL, BASE_URL)
    assert (dict(matched.archived).keys(), matched.own, matched.unknown) == ({papers[2]}, (), ())


def test_title_before_a_link_to_another_service_is_kept(app: Application, papers: tuple[int, ...]) -> None:
    """The address looks like that of a page of ours, but the title decides."""
    titles = ["Language Agents that Plan Ahead", "Attention Is All You Need"]
    pasted = bibliography.parse("\n".join(f"{title} https://nips.cc/paper/{papers[2]}" for title in titles))
    with app.db.read() as session:
        matched = subscribers.match_references(session, pasted.records, MODEL, BASE_URL)
    assert matched.archived == ((papers[0], titles[0]),)
    assert [record.title for record in (*matched.own, *matched.unknown)] == titles[1:]


def test_merged_papers_have_one_feedback(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """The newer one counts under either id, and removing it removes both."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, papers[1], False, now)
        subscribers.set_feedback(session, alice, papers[0], True, now + MINUTE)
        remaining, absorbed = (session.get_one(Paper, number) for number in papers[:2])
        merging.merge(session, remaining, absorbed, "nearly the same title", now)
        (item,) = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert (item.paper_id, item.liked) == (papers[0], True)
        subscribers.set_feedback(session, alice, papers[1], True, now + 2 * MINUTE)
        assert subscribers.feedback_for_ranking(session, [alice])[alice] == (item,)  # it keeps its time
        subscribers.set_feedback(
            session, alice, papers[1], False, now + 2 * MINUTE
        )  # by a link in an older email
        (item,) = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert (item.paper_id, item.liked) == (papers[0], False)
        subscribers.remove_feedback(session, alice, papers[1])
        assert count_rows(session, FeedbackRow) == 0


def test_loading_feedback_takes_few_queries(app: Application, papers: tuple[int, ...], now: datetime) -> None:
    """The number of queries does not depend on the number of readers."""
    with app.db.write() as session:
        readers = [factories.add_subscriber(session, f"reader{n}@example.org", [], now) for n in range(30)]
        for number in readers:
            subscribers.set_feedback(session, number, papers[number % 3], True, now)
    statements: list[str] = []
    event.listen(app.db.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with app.db.read() as session:
        assert len(subscribers.feedback_for_ranking(session, readers)) == 30
    assert len([statement for statement in statements if statement.startswith("SELECT")]) == 5


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
def test_pasted_paper_is_matched(
    app: Application, papers: tuple[int, ...], pasted: PaperRecord, place: int
) -> None:
    """It is matched by arXiv id, DOI or title, unless other fields contradict."""
    with app.db.read() as session:
        rows = subscribers.match_references(session, [pasted, pasted], MODEL, BASE_URL)
    assert [identity for identity, _ in rows.archived] == [papers[place]]
    assert (rows.own, rows.unknown) == ((), ())


@pytest.mark.parametrize(
    "pasted",
    [
        PaperRecord(title="Language Agents that Plan Ahead", arxiv_id="2611.99999"),
        PaperRecord(title="Language Agents that Plan Ahead", authors=("Nobody of Them",)),
        PaperRecord(title="Introduction"),
    ],
)
def test_ambiguous_title_is_stored_privately(
    app: Application, papers: tuple[int, ...], pasted: PaperRecord
) -> None:
    """Another id, other authors or a common title prevent a match."""
    with app.db.read() as session:
        rows = subscribers.match_references(session, [pasted], MODEL, BASE_URL)
    assert (rows.archived, rows.own) == ((), (pasted,))


@pytest.mark.parametrize(
    "unknown",
    [
        PaperRecord(title="", arxiv_id="1706.03762"),
        *map(PaperRecord, ("hello", "No Such Paper", "asdf qwertz uiop", "lorem ipsum dolor sit amet")),
    ],
    ids=lambda record: record.title or "id",
)
def test_unusable_references_are_reported(
    app: Application, papers: tuple[int, ...], unknown: PaperRecord
) -> None:
    """A number, or a title that names no subject, contains nothing to learn from."""
    with app.db.read() as session:
        rows = subscribers.match_references(session, [unknown, unknown], MODEL, BASE_URL)
    assert (rows.unknown, rows.usable) == ((unknown,), 0)


@pytest.mark.parametrize(
    "pasted",
    [
        PaperRecord(title="Attention Is All You Need"),
        PaperRecord(title="Adam"),
        PaperRecord(title="Hyperagents", arxiv_id="2603.19461"),
        PaperRecord(title="Hyperagents", doi="10.1000/hyper"),
        PaperRecord(title="Hyperagents", authors=("Ada Lovelace",)),
    ],
    ids=str,
)
def test_paper_that_is_not_in_the_archive(
    app: Application, papers: tuple[int, ...], pasted: PaperRecord
) -> None:
    """A title is enough if it names a subject. Otherwise, an id or authors must come with it."""
    with app.db.read() as session:
        rows = subscribers.match_references(session, [pasted], MODEL, BASE_URL)
    assert (rows.own, rows.unknown) == ((pasted,), ())


def test_pasted_merged_paper_matches_the_remaining_one(
    app: Application, papers: tuple[int, ...], now: datetime
) -> None:
    with app.db.write() as session:
        merging.merge(session, *(session.get_one(Paper, number) for number in papers[:2]), "by hand", now)
        both = [PaperRecord(title="", arxiv_id="2611.00001"), PaperRecord(title="", doi="10.1000/fold")]
        assert [
            identity for identity, _ in subscribers.match_references(session, both, MODEL, BASE_URL).archived
        ] == [papers[0]]


def test_pasted_papers_are_liked_once(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """Repetition changes nothing, a dislike becomes a like, and the archive is unchanged."""
    pasted = [PaperRecord(title="", arxiv_id="2611.00001"), ATTENTION, ATTENTION]
    with app.db.write() as session:
        before = count_rows(session, Paper)
        subscribers.set_feedback(session, alice, papers[0], False, now)
        for later in (now + MINUTE, now + 2 * MINUTE):
            subscribers.like(
                session, alice, subscribers.match_references(session, pasted, MODEL, BASE_URL), later
            )
        items = subscribers.feedback_for_ranking(session, [alice])[alice]
        assert count_rows(session, Paper) == before
    assert [(each.title, each.liked, each.at) for each in items] == [
        ("Language Agents that Plan Ahead", True, now + MINUTE),
        ("Attention Is All We Had", True, now + MINUTE),
    ]
    assert (items[1].abstract, items[1].authors, items[1].paper_id) == (
        "We attend.", ("Ada Lovelace", "Alan Turing"), None,
    )  # fmt: skip


def test_feedback_replaces_a_private_paper_of_the_same_title(
    app: Application, alice: int, now: datetime
) -> None:
    """The paper was pasted before it was in the archive."""
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)
        paper = factories.add_paper(
            session, factories.add_source(session, now), ATTENTION.title, now.date(), now
        )
        subscribers.set_feedback(session, alice, paper, False, now)
        assert feedback_of(session, alice) == [(ATTENTION.title, False)]


def test_titles_of_any_script_and_length_are_stored(app: Application, alice: int, now: datetime) -> None:
    """Their keys are short enough for a database index."""
    titles = ["".join(chr(0x4E00 + (n * 37 + offset) % 20_000) for n in range(1_000)) for offset in (1, 2)]
    own = tuple(PaperRecord(title=title) for title in [*titles, "∞", "x" * 1_000])
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=own), now)
        assert {title for title, _ in feedback_of(session, alice)} == {record.title for record in own}


def test_at_most_a_thousand_papers(
    app: Application, alice: int, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paste beyond the limit is rejected as a whole."""
    monkeypatch.setattr(feedback, "MAX_FEEDBACK", 2)
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)
        two = MatchedReferences(own=(PaperRecord(title="One More"), PaperRecord(title="And Another")))
        with pytest.raises(InvalidInput, match="remove some first"):
            subscribers.like(session, alice, two, now)
        assert feedback_of(session, alice) == [(ATTENTION.title, True)]


def test_papers_pasted_again_do_not_count_twice(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A growing bibliography may be pasted repeatedly."""
    monkeypatch.setattr(feedback, "MAX_FEEDBACK", 3)
    pasted = [PaperRecord(title="", arxiv_id="2611.00001"), ATTENTION]
    with app.db.write() as session:
        for grown in (pasted, [*pasted, PaperRecord(title="Zebra Stripes")]):
            subscribers.like(
                session, alice, subscribers.match_references(session, grown, MODEL, BASE_URL), now
            )
        assert len(feedback_of(session, alice)) == 3


# --- signing up, exporting, erasing


def sign_up(session: Session, now: datetime, *own: PaperRecord, email: str = "carol@example.org") -> int:
    factories.sign_up(session, SignUp(email, WANTED, MatchedReferences(own=own)), "192.0.2.1", now)
    return session.exec(select(Subscriber.id).where(Subscriber.email == email)).one() or 0


def test_papers_pasted_at_sign_up_are_stored_on_confirmation(app: Application, now: datetime) -> None:
    with app.db.write() as session:
        sign_up(session, now, PaperRecord(title="Pasted by a HostileServer"))
        carol = sign_up(session, now, ATTENTION)
        assert feedback_of(session, carol) == []
        subscribers.confirm(session, carol, "192.0.2.1", now)
        assert feedback_of(session, carol) == [(ATTENTION.title, True)]


def test_papers_pasted_at_sign_up_may_be_merged_before_the_confirmation(
    app: Application, papers: tuple[int, ...], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are then one paper, also for the limit."""
    monkeypatch.setattr(feedback, "MAX_FEEDBACK", 1)
    liked = MatchedReferences(archived=tuple((number, "") for number in papers[:2]))
    with app.db.write() as session:
        factories.sign_up(session, SignUp("carol@example.org", WANTED, liked), "192.0.2.1", now)
        carol = subscribers.find(session, "carol@example.org")
        merging.merge(session, *(session.get_one(Paper, number) for number in papers[:2]), "by hand", now)
        subscribers.confirm(session, carol.id or 0, "192.0.2.1", now)
        assert feedback_of(session, carol.id or 0) == [("Language Agents that Plan Ahead", True)]


def test_a_sign_up_by_a_stranger_changes_no_feedback(app: Application, now: datetime) -> None:
    """Active readers keep their feedback; so do former readers until they confirm."""
    with app.db.write() as session:
        carol = sign_up(session, now, ATTENTION)
        subscribers.confirm(session, carol, "192.0.2.1", now)
        sign_up(session, now, PaperRecord(title="Pasted by a HostileServer"))
        assert feedback_of(session, carol) == [(ATTENTION.title, True)]
        subscribers.unsubscribe(session, carol, now)
        sign_up(session, now + timedelta(days=1), PaperRecord(title="Pasted by a HostileServer"))
        assert feedback_of(session, carol) == [(ATTENTION.title, True)]


def test_sign_up_does_not_reveal_a_full_feedback_list(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error would reveal the reader to anyone who knows the address."""
    with app.db.write() as session:
        carol = sign_up(session, now, ATTENTION)
        subscribers.confirm(session, carol, "192.0.2.1", now)
        subscribers.unsubscribe(session, carol, now)
        monkeypatch.setattr(feedback, "MAX_FEEDBACK", 1)
        sign_up(session, now, PaperRecord(title="One More"))
        subscribers.confirm(session, carol, "192.0.2.1", now)
        assert feedback_of(session, carol) == [(ATTENTION.title, True)]


def test_suppressed_address_stores_no_papers(app: Application, now: datetime) -> None:
    """Its owner could neither see nor delete them."""
    with app.db.write() as session:
        suppression.suppress(session, "carol@example.org", "complaint", now)
        form = SignUp("carol@example.org", WANTED, MatchedReferences(own=(ATTENTION,)))
        factories.sign_up(session, form, "192.0.2.1", now)
        row = session.exec(select(FormSubmission)).one()
        assert (row.email, row.visitor, row.preferences, row.liked) == ("", "", {}, {})


def test_declining_deletes_pasted_papers(app: Application, now: datetime) -> None:
    with app.db.write() as session:
        subscribers.decline(session, sign_up(session, now, ATTENTION), now)
        assert session.exec(select(FormSubmission.liked)).one() == {}


def test_feedback_is_exported_and_erased(
    app: Application, alice: int, papers: tuple[int, ...], now: datetime
) -> None:
    """The export has titles, and the erasure leaves nothing."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, papers[0], False, now)
        subscribers.like(session, alice, MatchedReferences(own=(ATTENTION,)), now)
        exported = subscribers.export(session, alice, now)["feedback"]
        assert [(each["title"], each["liked"]) for each in exported] == [
            ("Language Agents that Plan Ahead", False), (ATTENTION.title, True),
        ]  # fmt: skip
        assert exported[0]["at"] == f"{now:%Y-%m-%dT%H:%M:%SZ}"
        subscribers.erase(session, alice, now)
        assert subscribers.export(session, alice, now)["feedback"] == []
        assert (count_rows(session, FeedbackRow), count_rows(session, PrivatePaper)) == (0, 0)


@pytest.mark.parametrize("stored", ["null", "[null, 7]", '"Ada Lovelace"', "7"])
def test_an_invalid_list_of_ignored_authors_is_treated_as_empty(
    app: Application, now: datetime, stored: str
) -> None:
    """Planning of the batch does not fail."""
    with app.db.write() as session:
        paper = factories.add_paper(
            session, factories.add_source(session, now), "One", now.date(), now, authors=["Ada"]
        )
        alice = factories.add_subscriber(session, "alice@example.org", [], now)
        subscribers.set_feedback(session, alice, paper, True, now)
        session.execute(text("UPDATE subscriber SET ignored_authors = :stored"), {"stored": stored})
    with app.db.read() as session:
        assert subscribers.feedback_for_ranking(session, [alice])[alice][0].authors == ("Ada",)


def test_liked_author_can_be_ignored(app: Application, now: datetime) -> None:
    """This holds for any spelling of the name. It can be undone, and is deleted with the feedback."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        one, two = (
            factories.add_paper(session, source, title, now.date(), now, authors=authors)
            for title, authors in (("One", ["Ada Lovelace", "Alan Turing"]), ("Two", ["Lovelace, Ada"]))
        )
        alice, bob = (
            factories.add_subscriber(session, f"{name}@example.org", [], now) for name in ("alice", "bob")
        )
        for reader in (alice, bob):
            subscribers.set_feedback(session, reader, one, True, now)
            subscribers.set_feedback(session, reader, two, True, now)
        for _ in range(2):
            subscribers.ignore_author(session, alice, "Ada Lovelace")

    def counted(reader: int) -> list[tuple[str, ...]]:
        with app.db.read() as session:
            items = subscribers.feedback_for_ranking(session, [alice, bob])[reader]
        return sorted(item.authors for item in items)

    assert counted(alice) == [(), ("Alan Turing",)]
    assert counted(bob) == [("Ada Lovelace", "Alan Turing"), ("Lovelace, Ada",)]
    with app.db.read() as session:
        exported = {tuple(item["authors"]) for item in subscribers.export(session, alice, now)["feedback"]}
    assert exported == {*counted(bob)}, "the export contains all authors"
    with app.db.write() as session:
        subscribers.unignore_author(session, alice, "ADA LOVELACE")
    assert counted(alice) == counted(bob)
    with app.db.write() as session:
        subscribers.ignore_author(session, alice, "Alan Turing")
        subscribers.forget_feedback(session, alice)
        assert subscribers.get(session, alice).ignored_authors == []
