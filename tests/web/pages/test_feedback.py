"""A reader says what they think of papers, sees what was learned, and can have it forgotten."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient
from sqlmodel import func, select

from app import clock, subscribers
from app.application import Application
from app.links import Purpose
from app.papers import bibliography
from app.relevance.model_store import MIN_PAPERS
from app.storage.models import Paper, Subscriber, SubscriberState
from app.subscribers import MatchedReferences
from app.types import PaperRecord
from app.web import work_limits
from app.web.pages.feedback import FeedbackAction
from tests.support import factories
from tests.web.conftest import ALICE, Link

TITLE = "Agents & <b>Bold</b> Plans"
KNOWN, OTHER, STRANGE = "2611.00001", "2611.00002", "1706.03762"
FORM = {
    "email": "carol@example.org",
    "interest": ["robotics"],
    "cadence": "daily",
    "hour": "8",
    "zone": "UTC",
}
PASTE = f"""https://arxiv.org/abs/{KNOWN}
{STRANGE}
???
@article{{x, title = {{A Paper That Nobody Else Has}}, author = {{Lovelace, Ada and Hopper, Grace}}}}"""


@pytest.fixture
def papers(app: Application) -> tuple[int, int]:
    """Two papers of the archive."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.source(session, now)
        return (
            factories.paper(
                session, source, TITLE, now.date(), now, arxiv_id=KNOWN, authors=["Ada Lovelace"]
            ),
            factories.paper(session, source, "Small Robots", now.date(), now, arxiv_id=OTHER),
        )  # fmt: skip


@pytest.fixture
def bob(app: Application) -> int:
    with app.db.write() as session:
        return factories.reader(session, "bob@example.org", ["robots"], clock.utcnow())


def said_by(app: Application, reader: int) -> dict[str, bool]:
    with app.db.read() as session:
        said = subscribers.feedback_for_ranking(session, [reader]).get(reader, ())
    return {entry.title: entry.liked for entry in said}


def like(app: Application, reader: int, *paper_ids: int, liked: bool = True) -> None:
    with app.db.write() as session:
        for paper_id in paper_ids:
            subscribers.set_feedback(session, reader, paper_id, liked, clock.utcnow())


def feedback_path(link: Link, reader: int, wish: FeedbackAction, paper: int) -> str:
    return link(Purpose.FEEDBACK, reader, argument=paper).replace("/like/", f"/{wish}/")


# --- from a card


@pytest.mark.parametrize("wish", FeedbackAction)
def test_a_click_is_recorded_by_its_button_alone(
    app: Application,
    client: TestClient,
    alice: int,
    papers: tuple[int, int],
    link: Link,
    wish: FeedbackAction,
) -> None:
    """Opening the link shows the paper; the button records; twice is once; and it can be taken back."""
    path = feedback_path(link, alice, wish, papers[0])
    for _ in range(2):
        asked = client.get(path).text
    assert "Agents &amp; &lt;b&gt;Bold&lt;/b&gt; Plans" in asked
    assert len(re.findall("<button", asked.partition("<main")[2])) == 1
    assert said_by(app, alice) == {}
    for _ in range(2):
        assert "Saved" in client.post(path).text
        assert said_by(app, alice) == {TITLE: wish is FeedbackAction.MORE}
    assert "Undo" in client.get(path).text
    for _ in range(2):
        assert "Your feedback was removed." in client.post(path, data={"action": "undo"}).text
        assert said_by(app, alice) == {}


def test_a_second_link_changes_ones_mind(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link
) -> None:
    """And a page that was left open takes back only what it had said itself."""
    more, less = (feedback_path(link, alice, wish, papers[0]) for wish in FeedbackAction)
    client.post(more)
    assert "You previously asked for more like this" in client.get(less).text
    client.post(less)
    assert said_by(app, alice) == {TITLE: False}
    assert "You previously asked for less like this" in client.post(more, data={"action": "undo"}).text
    assert said_by(app, alice) == {TITLE: False}


def test_a_link_speaks_for_one_reader(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """A forwarded mail does not name its reader, and its link leads to no page of theirs."""
    like(app, bob, *papers)
    answer = client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[0]))
    assert ALICE not in answer.text
    assert "/preferences/" not in answer.text
    assert said_by(app, alice) == {TITLE: True}
    client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[1]), data={"action": "undo"})
    assert len(said_by(app, bob)) == 2


def test_a_paper_that_is_gone_is_said_kindly(client: TestClient, alice: int, link: Link) -> None:
    """A good link over a paper that the archive does not have."""
    for method in ("GET", "POST"):
        answer = client.request(method, feedback_path(link, alice, FeedbackAction.MORE, 4711))
        assert answer.status_code == 404
        assert "no longer in the archive" in answer.text


@pytest.mark.parametrize(
    "rest", ["love/1", "like/one", "like/-1", f"like/{2**31}", f"like/{2**63}", "like", "like/1/2"]
)
def test_a_link_that_was_typed_wrongly_is_no_crash(
    client: TestClient, alice: int, link: Link, rest: str
) -> None:
    """Whatever follows a good token, the answer is a page that says so."""
    for method in ("GET", "POST"):
        answer = client.request(method, link(Purpose.FEEDBACK, alice).removesuffix("like/0") + rest)
        assert answer.status_code in (404, 422)
        assert "<h1>" in answer.text


def test_there_is_room_for_so_many(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whoever holds a link cannot fill the shelves; to change one's mind needs no room."""
    monkeypatch.setattr(subscribers.feedback, "MAX_FEEDBACK", 1)
    client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[0]))
    refused = client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[1]))
    assert refused.status_code == 422
    assert "please remove some first" in refused.text
    assert client.post(feedback_path(link, alice, FeedbackAction.LESS, papers[0])).status_code == 200
    assert said_by(app, alice) == {TITLE: False}


# --- pasting


def test_what_became_of_a_paste_is_told_piece_by_piece(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link
) -> None:
    """Recognised, kept for its reader alone, not known, not understood; and the archive learns nothing."""
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": PASTE})
    assert answer.status_code == 200
    text = " ".join(re.sub("<[^>]+>", "", answer.text).split())
    for words in (
        "2 papers were added. Papers like them will rank higher in your digests once we have collected more",
        "Recognised: 1. Agents &amp; &lt;b&gt;Bold&lt;/b&gt; Plans",
        "Not in our archive, saved for you only: 1.",
        "A Paper That Nobody Else Has",
        "Not found: 1. Please paste the title or the BibTeX entry instead.",
        STRANGE,
        "Couldn’t be read: 1. Line 3: neither a title nor a link or id: ???",
    ):
        assert words in text
    assert said_by(app, alice) == {TITLE: True, "A Paper That Nobody Else Has": True}
    with app.db.read() as session:
        assert session.exec(select(func.count()).select_from(Paper)).one() == 2
    for path in ("/", f"/day/{clock.utcnow().date()}"):
        assert "Nobody Else" not in client.get(path).text


@pytest.mark.parametrize("typed", ["", " \r\n ", "x" * (bibliography.MOST_BYTES + 1)])
def test_a_paste_that_cannot_be_read_at_all_comes_back(
    app: Application, client: TestClient, alice: int, link: Link, typed: str
) -> None:
    """As it was typed, with what to change."""
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": typed})
    assert answer.status_code == 422
    assert 'id="problem-liked"' in answer.text
    assert typed.strip() in answer.text
    assert said_by(app, alice) == {}


def test_a_file_is_taken_as_well(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link
) -> None:
    """Beside what is pasted; what was not understood in it says so, with its name."""
    ris = f"TY  - GEN\nUR  - https://arxiv.org/abs/{KNOWN}\nER  - \nTY  - GEN\nER  - \n"
    file = ("my <library>.ris", ris.encode("utf-16"))
    answer = client.post(
        link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": "A Pasted Title"}, files={"file": file}
    )
    text = " ".join(re.sub("<[^>]+>", "", answer.text).split())
    assert "2 papers were added. Papers like them will rank higher in your digests once" in text
    assert "my &lt;library&gt;.ris, line 4: a RIS entry without title, DOI or arXiv id" in text
    assert said_by(app, alice) == {TITLE: True, "A Pasted Title": True}


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (("", b""), "liked"),
        (("a.pdf", b"%PDF-1.7"), "file"),
        (("a.bib", b"x" * (bibliography.MOST_FILE_BYTES + 1)), "file"),
        (("a.bib", b"% nothing but a remark"), "file"),
    ],
)
def test_a_file_that_cannot_be_taken_says_why(
    app: Application, client: TestClient, alice: int, link: Link, file: tuple[str, bytes], problem: str
) -> None:
    """Beside the field, and nothing is kept; to choose none is not to choose one."""
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", files={"file": file})
    assert answer.status_code == 422
    assert f'id="problem-{problem}"' in answer.text
    assert said_by(app, alice) == {}


def test_pasting_again_and_again_has_to_wait(
    app: Application, client: TestClient, alice: int, bob: int, link: Link
) -> None:
    """Reading a paste takes a while. What was pasted is not lost, and other readers do not wait."""
    path = link(Purpose.PREFERENCES, alice) + "/papers"
    answers = [
        client.post(path, data={"liked": f"Title Number {number}"})
        for number in range(work_limits.PASTES_AN_HOUR + 1)
    ]
    assert {answer.status_code for answer in answers[:-1]} == {200}
    refused = answers[-1]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert 'id="problem-liked"' in refused.text
    assert f"\nTitle Number {work_limits.PASTES_AN_HOUR}</textarea>" in refused.text
    assert len(said_by(app, alice)) == work_limits.PASTES_AN_HOUR
    assert client.post(
        link(Purpose.PREFERENCES, bob) + "/papers", data={"liked": "A Paper That Was Pasted"}
    ).is_success


def test_a_paste_waits_for_its_turn(client: TestClient, alice: int, link: Link) -> None:
    """Reading takes seconds at worst: threads are left for everybody else, and nothing typed is lost."""
    limits: work_limits.Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    asked = ((link(Purpose.PREFERENCES, alice) + "/papers", {}), ("/subscribe", FORM))
    with ExitStack() as busy:
        for _ in range(work_limits.PASTES):
            busy.enter_context(limits.pastes.take())
        for path, form in asked:
            refused = client.post(path, data={**form, "liked": "A Typed Title"})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
            assert 'id="problem-liked"' in refused.text
            assert "A Typed Title</textarea>" in refused.text
        assert client.post("/subscribe", data={**FORM, "email": "erin@example.org"}).status_code == 200
    assert 'value="carol@example.org"' in refused.text
    for path, form in asked:
        assert client.post(path, data={**form, "liked": "A Typed Title"}).status_code == 200


def test_the_largest_paste_and_file_fit_into_one_form(client: TestClient, alice: int, link: Link) -> None:
    """And what is told of more names the same numbers."""
    path, file = link(Purpose.PREFERENCES, alice) + "/papers", "x " * (bibliography.MOST_FILE_BYTES // 2)
    typed = {"liked": "x " * (bibliography.MOST_BYTES // 2)}
    assert client.post(path, data=typed, files={"file": ("a.bib", file)}).status_code == 200
    larger = client.post(path, data=typed, files={"file": ("a.bib", file + "%")})
    assert larger.status_code == 422
    assert "x </textarea>" in larger.text
    flood = client.post(path, data=typed, files={"file": ("a.bib", file * 2)})
    assert flood.status_code == 413
    for said in (larger.text, flood.text):
        assert f"{bibliography.MOST_FILE_BYTES // 1000} kB" in said


def test_the_largest_paste_of_any_script_fits_into_a_form(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """A form writes one letter of Chinese as nine."""
    typed = "模" * (bibliography.MOST_BYTES // 3)
    assert client.post(link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": typed}).status_code == 200
    assert len(said_by(app, alice)) == 1


def test_papers_may_be_pasted_at_sign_up(
    app: Application, client: TestClient, papers: tuple[int, int], link: Link
) -> None:
    """They wait with the sign-up for its confirmation, which shows that they are there."""
    answer = client.post("/subscribe", data={**FORM, "liked": PASTE})
    assert "Check your mailbox" in answer.text
    assert "Line 3" in answer.text
    with app.db.read() as session:
        carol = session.exec(select(Subscriber.id)).one() or 0
    assert said_by(app, carol) == {}
    confirm = link(Purpose.CONFIRM, carol)
    assert "Papers like the 2 you listed will rank higher" in client.get(confirm).text
    client.post(confirm)
    assert len(said_by(app, carol)) == 2


def test_what_likes_wait_for_is_said_where_they_wait(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """No page promises what a young archive cannot do, and none speaks of it once something was learned."""
    preferences, more = (
        link(Purpose.PREFERENCES, alice),
        feedback_path(link, alice, FeedbackAction.MORE, papers[0]),
    )
    with app.db.write() as session:
        session.get_one(Subscriber, bob).state = SubscriberState.PENDING
    like(app, bob, papers[0])
    pages = [
        lambda: client.post(preferences + "/papers", data={"liked": "A Paper That Was Pasted"}),
        lambda: client.post(more),
        lambda: client.get(preferences),
        lambda: client.get(link(Purpose.CONFIRM, bob)),
    ]
    assert ["once we have collected more papers." in page().text for page in pages] == [True] * 4
    with app.db.write() as session:
        factories.archive(session, MIN_PAPERS, clock.utcnow())
    app.models.train(app.db, clock.utcnow())
    texts = [page().text for page in pages]
    assert not any("once we have collected more papers" in text for text in texts)
    assert "One paper was added. Papers like it will rank higher in your digests." in texts[0]
    assert "will rank higher in your digests." in texts[1]
    assert "Papers like the one you listed will rank higher." in texts[3]


def test_a_paste_does_not_tell_who_is_subscribed(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int]
) -> None:
    """The answer depends on the paste and the archive alone; an active reader’s feedback stays."""
    answers = {client.post("/subscribe", data={**FORM, "email": who, "liked": PASTE}).text
               for who in (ALICE, "new@example.org")}  # fmt: skip
    assert len(answers) == 1
    assert said_by(app, alice) == {}


def test_nothing_of_a_form_is_lost_by_a_bad_paste(app: Application, client: TestClient) -> None:
    """Nor the paste by a mistake elsewhere."""
    long = client.post("/subscribe", data={**FORM, "liked": "x" * (bibliography.MOST_BYTES + 1)})
    assert long.status_code == 422
    assert 'id="problem-liked"' in long.text
    assert 'value="carol@example.org"' in long.text
    mistaken = client.post("/subscribe", data={**FORM, "email": "carol", "liked": "\nA <Title>"})
    assert mistaken.status_code == 422
    assert "\nA &lt;Title&gt;</textarea>" in mistaken.text
    with app.db.read() as session:
        assert session.exec(select(Subscriber)).all() == []


# --- what was learned


def test_a_reader_sees_what_was_learned(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """Papers and authors, each paper with a way to remove it; and nothing of other readers."""
    path = link(Purpose.PREFERENCES, alice)
    assert "No feedback yet." in client.get(path).text
    like(app, bob, papers[1])
    like(app, alice, papers[0])
    with app.db.write() as session:
        own = PaperRecord(title="My Own Find", authors=("Ada Lovelace", "Grace Hopper"))
        subscribers.like(session, alice, MatchedReferences(own=(own,)), clock.utcnow())
    page = client.get(path).text
    section = " ".join(re.sub("<[^>]+>", " ", page.split('id="learned"')[1].split("</section>")[0]).split())
    assert "Ada Lovelace 2 papers Follow Ada Lovelace Ignore Ada Lovelace Grace Hopper" in section
    assert "Remove Agents &amp; &lt;b&gt;Bold&lt;/b&gt; Plans" in section
    assert "Remove My Own Find" in section
    assert "Small Robots" not in page
    like(app, alice, papers[0], liked=False)
    assert "Less like these" in client.get(path).text


def test_authors_beyond_thirty_are_counted(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """All of them weigh, so that there are more is said."""
    own = PaperRecord(title="Own", authors=tuple(f"Ada Lovelace the {number}th" for number in range(33)))
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=(own,)), clock.utcnow())
    few = client.get(link(Purpose.PREFERENCES, alice)).text
    assert '/papers#authors">The first 30 authors</a>' in few
    assert "Ada Lovelace the 5th" not in few
    page = client.get(link(Purpose.PREFERENCES, alice) + "/papers").text
    assert "Ada Lovelace the 29th" in page
    assert "Ada Lovelace the 30th" not in page
    assert "and 3 more with fewer papers" in page


def test_what_was_said_has_pages_of_its_own(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Five stand beside the preferences, all of them there; to remove one leads back to its place."""
    own = tuple(PaperRecord(title=f"Own <{number}>") for number in range(51))
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=own), clock.utcnow())
    path = link(Purpose.PREFERENCES, alice)
    shown = client.get(path).text
    assert shown.count('name="own"') == 5
    assert f'href="{path}/papers?of=like">All 51 papers</a>' in shown
    first, last = (client.get(f"{path}/papers", params={"page": page}) for page in (1, 99))
    assert (first.text.count('name="own"'), last.text.count('name="own"')) == (50, 1)
    assert (first.headers["cache-control"], first.headers["x-robots-tag"]) == (
        "no-store",
        "noindex, nofollow",
    )
    assert f'rel="next" href="{path}/papers?of=like&amp;page=2">Older' in first.text
    assert (
        f'rel="prev" href="{path}/papers?of=like&amp;page=1"><span aria-hidden="true">←</span> Newer'
        in last.text
    )
    form = dict(re.findall(r'name="(own|of|page)" value="(\w+)"', last.text))
    removed = client.post(f"{path}/remove", data=form, follow_redirects=False)
    assert removed.headers["location"] == f"{path}/papers?said=removed&of=like&page=2"
    again = client.get(removed.headers["location"]).text
    assert "Removed." in again
    assert again.count('name="own"') == 50
    assert "No papers." in client.get(f"{path}/papers?of=dislike").text
    assert client.get(f"{path}/papers?of=all").status_code == 422


def test_a_paper_can_be_removed(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """One's own alone, whatever numbers are sent."""
    with app.db.write() as session:
        for reader, title in ((alice, "Own"), (bob, "Another")):
            own = MatchedReferences(own=(PaperRecord(title=title),))
            subscribers.like(session, reader, own, clock.utcnow())
        ids = {
            each: subscribers.feedback_for_ranking(session, [each])[each][0].own_key for each in (alice, bob)
        }
    for reader in (alice, bob):
        like(app, reader, *papers)
    path = link(Purpose.PREFERENCES, alice)
    for _ in range(2):
        answer = client.post(path + "/remove", data={"paper": papers[0]})
        assert "Removed." in answer.text
    client.post(path + "/remove", data={"own": ids[bob]})
    assert said_by(app, alice) == {"Small Robots": True, "Own": True}
    client.post(path + "/remove", data={"own": ids[alice]})
    assert said_by(app, alice) == {"Small Robots": True}
    for wrong in ({"paper": "x"}, {"own": "-1"}, {"paper": 2**63}):
        assert client.post(path + "/remove", data=wrong).status_code == 422
    assert len(said_by(app, bob)) == 3


def test_all_of_it_can_be_forgotten(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """After one more click, and for oneself alone."""
    like(app, alice, *papers)
    like(app, bob, *papers)
    path = link(Purpose.PREFERENCES, alice)
    assert f'href="{path}/forget"' in client.get(path).text
    for _ in range(2):
        assert "Delete all feedback" in client.get(path + "/forget").text
    assert len(said_by(app, alice)) == 2
    for _ in range(2):
        assert "Your feedback was deleted." in client.post(path + "/forget").text
    assert said_by(app, alice) == {}
    assert len(said_by(app, bob)) == 2


@pytest.mark.parametrize("place", ["/papers", "/remove", "/forget"])
def test_no_other_link_reaches_what_was_learned(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link, place: str
) -> None:
    """Only the one to the preferences does; a card's link, say, can do its one thing."""
    like(app, alice, *papers)
    for purpose in Purpose:
        if purpose is not Purpose.PREFERENCES:
            token = link(purpose, alice, argument=papers[0]).rpartition("/")[2]
            answer = client.post(
                f"/preferences/{token}{place}", data={"paper": papers[0], "liked": "A Title"}
            )
            assert answer.status_code == 403
    assert len(said_by(app, alice)) == 2
