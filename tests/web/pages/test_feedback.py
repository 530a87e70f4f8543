"""Test the pages for feedback: give, list, remove and delete it."""

import re
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient
from sqlmodel import func, select

from app import clock, subscribers
from app.application import Application
from app.digests import hiding
from app.links import Purpose
from app.papers import bibliography
from app.storage.models import Paper, Subscriber, SubscriberState
from app.subscribers import MatchedReferences
from app.types import PaperRecord
from app.web import capacity
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
    """Add two papers."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        return (
            factories.add_paper(
                session, source, TITLE, now.date(), now, arxiv_id=KNOWN, authors=["Ada Lovelace"]
            ),
            factories.add_paper(session, source, "Small Robots", now.date(), now, arxiv_id=OTHER),
        )  # fmt: skip


@pytest.fixture
def bob(app: Application) -> int:
    with app.db.write() as session:
        return factories.add_subscriber(session, "bob@example.org", ["robots"], clock.utcnow())


def feedback_of(app: Application, reader: int) -> dict[str, bool]:
    with app.db.read() as session:
        feedback = subscribers.feedback_for_ranking(session, [reader]).get(reader, ())
    return {entry.title: entry.liked for entry in feedback}


def like(app: Application, reader: int, *paper_ids: int, liked: bool = True) -> None:
    with app.db.write() as session:
        for paper_id in paper_ids:
            subscribers.set_feedback(session, reader, paper_id, liked, clock.utcnow())


def feedback_path(link: Link, reader: int, action: FeedbackAction, paper: int) -> str:
    return link(Purpose.FEEDBACK, reader, argument=paper).replace("/like/", f"/{action}/")


# --- from a card


@pytest.mark.parametrize("action", FeedbackAction)
def test_feedback_is_recorded_by_post_only(
    app: Application,
    client: TestClient,
    alice: int,
    papers: tuple[int, int],
    link: Link,
    action: FeedbackAction,
) -> None:
    """Repeating it changes nothing, and it can be undone."""
    path = feedback_path(link, alice, action, papers[0])
    for _ in range(2):
        page = client.get(path).text
    assert "Agents &amp; &lt;b&gt;Bold&lt;/b&gt; Plans" in page
    assert len(re.findall("<button", page.partition("<main")[2])) == 1
    assert feedback_of(app, alice) == {}
    for _ in range(2):
        answer = client.post(path)
        assert "Saved" in answer.text
        assert [response.status_code for response in answer.history] == [303], "Back would fail"
        assert feedback_of(app, alice) == {TITLE: action is FeedbackAction.MORE}
    assert "Undo" in client.get(path).text
    for other in ("mute", "follow"):
        other_path = path.replace(f"/{action}/", f"/{other}/")
        assert f'href="{other_path}"' in page
        assert client.get(other_path).status_code == 200
    for _ in range(2):
        assert "Your feedback was removed." in client.post(path, data={"action": "undo"}).text
        assert feedback_of(app, alice) == {}


def test_later_feedback_replaces_earlier_feedback(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link
) -> None:
    """Undo on a stale page only undoes the feedback of that page."""
    more, less = (feedback_path(link, alice, action, papers[0]) for action in FeedbackAction)
    client.post(more)
    assert "You previously asked for more like this" in client.get(less).text
    client.post(less)
    assert feedback_of(app, alice) == {TITLE: False}
    assert "You previously asked for less like this" in client.post(more, data={"action": "undo"}).text
    assert feedback_of(app, alice) == {TITLE: False}


def test_feedback_link_does_not_identify_its_reader(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """A forwarded email does not name its reader or link to the reader's pages."""
    like(app, bob, *papers)
    answer = client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[0]))
    assert ALICE not in answer.text
    assert "/preferences/" not in answer.text
    assert feedback_of(app, alice) == {TITLE: True}
    client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[1]), data={"action": "undo"})
    assert len(feedback_of(app, bob)) == 2


def test_feedback_on_a_missing_paper(client: TestClient, alice: int, link: Link) -> None:
    for method in ("GET", "POST"):
        answer = client.request(method, feedback_path(link, alice, FeedbackAction.MORE, 4711))
        assert answer.status_code == 404
        assert "no longer in the archive" in answer.text


def test_feedback_pages_do_not_name_a_hidden_paper(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link
) -> None:
    """They respond as for a missing paper."""
    with app.db.write() as session:
        hiding.hide(session, session.get_one(Paper, papers[0]), clock.utcnow())
    for action in ("like", "dislike", "mute", "follow"):
        path = link(Purpose.FEEDBACK, alice, argument=papers[0]).replace("/like/", f"/{action}/")
        answer = client.get(path)
        assert answer.status_code == 404
        assert "no longer in the archive" in answer.text


@pytest.mark.parametrize(
    "rest", ["love/1", "like/one", "like/-1", f"like/{2**31}", f"like/{2**63}", "like", "like/1/2"]
)
def test_malformed_feedback_paths_do_not_crash(client: TestClient, alice: int, link: Link, rest: str) -> None:
    """The token is valid; the rest of the path is not."""
    for method in ("GET", "POST"):
        answer = client.request(method, link(Purpose.FEEDBACK, alice).removesuffix("like/0") + rest)
        assert answer.status_code in (404, 422)
        assert "<h1>" in answer.text


def test_feedback_is_limited_per_subscriber(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Replacing existing feedback is always possible."""
    monkeypatch.setattr(subscribers.feedback, "MAX_FEEDBACK", 1)
    client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[0]))
    refused = client.post(feedback_path(link, alice, FeedbackAction.MORE, papers[1]))
    assert refused.status_code == 422
    assert "Please remove some first" in refused.text
    assert client.post(feedback_path(link, alice, FeedbackAction.LESS, papers[0])).status_code == 200
    assert feedback_of(app, alice) == {TITLE: False}


# --- pasting


def test_pasted_papers_are_reported_one_by_one(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link
) -> None:
    """Each is recognised, stored for this subscriber only, unknown or unreadable.

    None is added to the archive.
    """
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": PASTE})
    assert answer.status_code == 200
    text = " ".join(re.sub("<[^>]+>", "", answer.text).split())
    for words in (
        "2 papers were added. Papers like them will rank higher in your digests.",
        "Recognized: 1. Agents &amp; &lt;b&gt;Bold&lt;/b&gt; Plans",
        "Not in our archive, but saved for you: 1.",
        "A Paper That Nobody Else Has",
        "Not recognized: 1. We can’t tell what these are about. If a paper is in our archive, enter its",
        "arXiv ID or DOI. Otherwise, paste its BibTeX entry.",
        STRANGE,
        "Couldn’t be read: 1. Line 3: neither a title nor a link or ID: ???",
    ):
        assert words in text
    assert feedback_of(app, alice) == {TITLE: True, "A Paper That Nobody Else Has": True}
    with app.db.read() as session:
        assert session.exec(select(func.count()).select_from(Paper)).one() == 2
    for path in ("/", f"/day/{clock.utcnow().date()}"):
        assert "Nobody Else" not in client.get(path).text


@pytest.mark.parametrize("typed", ["", " \r\n ", "x" * (bibliography.MAX_BYTES + 1)])
def test_unreadable_paste_is_shown_again_with_an_error(
    app: Application, client: TestClient, alice: int, link: Link, typed: str
) -> None:
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": typed})
    assert answer.status_code == 422
    assert 'id="problem-liked"' in answer.text
    assert typed.strip() in answer.text
    assert feedback_of(app, alice) == {}


@pytest.mark.once
def test_paste_without_any_paper_is_kept(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """The page says so in an alert, which has the focus. The limit of unreadable lines is not one of them."""
    broken = "\n".join(["???"] * 300)
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": broken})
    assert answer.status_code == 200
    alert = re.search(r'<p class="notice bad" role="alert" tabindex="-1" autofocus>(.*?)</p>', answer.text)
    assert alert
    assert alert[1] == "No papers were added. The reasons are below. We kept the text that you entered."
    assert f"\n{broken}</textarea>" in answer.text
    assert "Couldn’t be read: 200." in answer.text
    assert "200 entries could not be read, so the rest was left out" in answer.text
    assert feedback_of(app, alice) == {}


def test_uploaded_file_is_read_with_the_pasted_text(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link
) -> None:
    """Errors in the file name the file."""
    ris = f"TY  - GEN\nUR  - https://arxiv.org/abs/{KNOWN}\nER  - \nTY  - GEN\nER  - \n"
    file = ("my <library>.ris", ris.encode("utf-16"))
    answer = client.post(
        link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": "A Pasted Title"}, files={"file": file}
    )
    text = " ".join(re.sub("<[^>]+>", "", answer.text).split())
    assert "2 papers were added. Papers like them will rank higher in your digests." in text
    assert "my &lt;library&gt;.ris, line 4: a RIS entry without title, DOI or arXiv ID" in text
    assert feedback_of(app, alice) == {TITLE: True, "A Pasted Title": True}


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (("", b""), "liked"),
        (("a.pdf", b"%PDF-1.7"), "file"),
        (("a.bib", b"x" * (bibliography.MAX_FILE_BYTES + 1)), "file"),
        (("a.bib", b"% nothing but a remark"), "file"),
    ],
)
def test_unusable_file_is_refused_with_an_error(
    app: Application, client: TestClient, alice: int, link: Link, file: tuple[str, bytes], problem: str
) -> None:
    """Nothing is stored. An empty file field is not an error."""
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", files={"file": file})
    assert answer.status_code == 422
    assert f'id="problem-{problem}"' in answer.text
    assert feedback_of(app, alice) == {}


def test_pasting_is_rate_limited(
    app: Application, client: TestClient, alice: int, bob: int, link: Link
) -> None:
    """The pasted text is kept, and other readers are not affected."""
    path = link(Purpose.PREFERENCES, alice) + "/papers"
    answers = [
        client.post(path, data={"liked": f"Title Number {number}"})
        for number in range(app.settings.pastes_per_hour + 1)
    ]
    assert {answer.status_code for answer in answers[:-1]} == {200}
    refused = answers[-1]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert 'id="problem-liked"' in refused.text
    assert f"\nTitle Number {app.settings.pastes_per_hour}</textarea>" in refused.text
    assert len(feedback_of(app, alice)) == app.settings.pastes_per_hour
    assert client.post(
        link(Purpose.PREFERENCES, bob) + "/papers", data={"liked": "A Paper That Was Pasted"}
    ).is_success


def test_concurrent_pastes_are_limited(client: TestClient, alice: int, link: Link) -> None:
    """Parsing can take seconds, so it must not occupy all threads. The typed text is kept."""
    limits: capacity.Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    forms = ((link(Purpose.PREFERENCES, alice) + "/papers", {}), ("/subscribe", FORM))
    with ExitStack() as busy:
        for _ in range(capacity.PASTES):
            busy.enter_context(limits.pastes.take())
        for path, form in forms:
            refused = client.post(path, data={**form, "liked": "A Typed Title"})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
            assert 'id="problem-liked"' in refused.text
            assert "A Typed Title</textarea>" in refused.text
        assert client.post("/subscribe", data={**FORM, "email": "erin@example.org"}).status_code == 200
    assert 'value="carol@example.org"' in refused.text
    for path, form in forms:
        assert client.post(path, data={**form, "liked": "A Typed Title"}).status_code == 200


def test_largest_paste_and_file_fit_into_one_form(client: TestClient, alice: int, link: Link) -> None:
    """The error for larger ones names the same limits."""
    path, file = link(Purpose.PREFERENCES, alice) + "/papers", "x " * (bibliography.MAX_FILE_BYTES // 2)
    typed = {"liked": "x " * (bibliography.MAX_BYTES // 2)}
    assert client.post(path, data=typed, files={"file": ("a.bib", file)}).status_code == 200
    larger = client.post(path, data=typed, files={"file": ("a.bib", file + "%")})
    assert larger.status_code == 422
    assert "x </textarea>" in larger.text
    flood = client.post(path, data=typed, files={"file": ("a.bib", file * 2)})
    assert flood.status_code == 413
    for page in (larger.text, flood.text):
        assert f"{bibliography.MAX_FILE_BYTES // 1000} kB" in page


def test_largest_paste_in_any_script_fits_into_a_form(client: TestClient, alice: int, link: Link) -> None:
    """URL encoding needs nine bytes for a Chinese character."""
    typed = "模" * (bibliography.MAX_BYTES // 3)
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/papers", data={"liked": typed})
    assert answer.status_code == 200
    assert "Not recognized: 1." in answer.text


def test_papers_can_be_pasted_at_sign_up(
    app: Application, client: TestClient, papers: tuple[int, int], link: Link
) -> None:
    """They are stored on confirmation, and the confirmation page lists them."""
    answer = client.post("/subscribe", data={**FORM, "liked": PASTE})
    assert "Check your mailbox" in answer.text
    assert "Line 3" in answer.text
    with app.db.read() as session:
        carol = session.exec(select(Subscriber.id)).one() or 0
    assert feedback_of(app, carol) == {}
    confirm = link(Purpose.CONFIRM, carol)
    assert "Papers like the 2 you listed will rank higher" in client.get(confirm).text
    client.post(confirm)
    assert len(feedback_of(app, carol)) == 2


def test_pages_tell_that_likes_count_at_once(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """No model has to be trained first."""
    preferences, more = (
        link(Purpose.PREFERENCES, alice),
        feedback_path(link, alice, FeedbackAction.MORE, papers[0]),
    )
    with app.db.write() as session:
        session.get_one(Subscriber, bob).state = SubscriberState.PENDING
    like(app, bob, papers[0])
    pasted = client.post(preferences + "/papers", data={"liked": "A Paper That Was Pasted"}).text
    assert "One paper was added. Papers like it will rank higher in your digests." in pasted
    assert "will rank higher in your digests." in client.post(more).text
    assert "Papers like the one you listed will rank higher." in client.get(link(Purpose.CONFIRM, bob)).text


def test_paste_at_sign_up_does_not_reveal_subscribers(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int]
) -> None:
    """The response depends only on the paste and the archive; a subscriber's feedback is unchanged."""
    answers = {
        client.post("/subscribe", data={**FORM, "email": email, "liked": PASTE}).text.replace(email, "")
        for email in (ALICE, "new@example.org")
    }
    assert len(answers) == 1
    assert feedback_of(app, alice) == {}


def test_invalid_paste_keeps_the_rest_of_the_form(app: Application, client: TestClient) -> None:
    """An error elsewhere keeps the paste."""
    long = client.post("/subscribe", data={**FORM, "liked": "x" * (bibliography.MAX_BYTES + 1)})
    assert long.status_code == 422
    assert 'id="problem-liked"' in long.text
    assert 'value="carol@example.org"' in long.text
    mistaken = client.post("/subscribe", data={**FORM, "email": "carol", "liked": "\nA <Title>"})
    assert mistaken.status_code == 422
    assert "\nA &lt;Title&gt;</textarea>" in mistaken.text
    with app.db.read() as session:
        assert session.exec(select(Subscriber)).all() == []


# --- what was learned


def test_feedback_page_lists_papers_and_authors(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """Each paper can be removed; other readers' feedback is not shown."""
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


def test_authors_beyond_thirty_are_summarized(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """All authors have an effect, so the page gives the number of hidden ones."""
    own = PaperRecord(title="Own", authors=tuple(f"Ada Lovelace the {number}th" for number in range(33)))
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=(own,)), clock.utcnow())
    few = client.get(link(Purpose.PREFERENCES, alice)).text
    assert '/papers#authors">The first 30 authors</a>' in few
    assert "Ada Lovelace the 5th" not in few
    page = client.get(link(Purpose.PREFERENCES, alice) + "/papers").text
    assert "Ada Lovelace the 29th" in page
    assert "Ada Lovelace the 30th" not in page
    assert "and 3 more authors with fewer liked papers" in page


def test_feedback_list_is_paginated(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """The preferences show five entries and link to all. After a removal, the same page is shown again."""
    own = tuple(PaperRecord(title=f"Own <{number}>") for number in range(51))
    with app.db.write() as session:
        subscribers.like(session, alice, MatchedReferences(own=own), clock.utcnow())
    path = link(Purpose.PREFERENCES, alice)
    summary = client.get(path).text
    assert summary.count('name="own"') == 5
    assert f'href="{path}/papers?of=like">All 51 papers</a>' in summary
    first, last = (client.get(f"{path}/papers", params={"page": number}) for number in (1, 99))
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
    assert removed.headers["location"] == f"{path}/papers?done=removed&of=like&page=2"
    again = client.get(removed.headers["location"]).text
    assert "Removed." in again
    assert again.count('name="own"') == 50
    assert "No papers." in client.get(f"{path}/papers?of=dislike").text
    assert client.get(f"{path}/papers?of=all").status_code == 422


def test_feedback_can_be_removed(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """Ids of other readers' feedback have no effect."""
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
    assert feedback_of(app, alice) == {"Small Robots": True, "Own": True}
    client.post(path + "/remove", data={"own": ids[alice]})
    assert feedback_of(app, alice) == {"Small Robots": True}
    for wrong in ({"paper": "x"}, {"own": "-1"}, {"paper": 2**63}):
        assert client.post(path + "/remove", data=wrong).status_code == 422
    assert len(feedback_of(app, bob)) == 3


def test_all_feedback_can_be_deleted(
    app: Application, client: TestClient, alice: int, bob: int, papers: tuple[int, int], link: Link
) -> None:
    """It needs a confirmation and affects only this reader."""
    like(app, alice, *papers)
    like(app, bob, *papers)
    path = link(Purpose.PREFERENCES, alice)
    assert f'href="{path}/forget"' in client.get(path).text
    for _ in range(2):
        assert "Delete all feedback" in client.get(path + "/forget").text
    assert len(feedback_of(app, alice)) == 2
    for _ in range(2):
        assert "Your feedback was deleted." in client.post(path + "/forget").text
    assert feedback_of(app, alice) == {}
    assert len(feedback_of(app, bob)) == 2


@pytest.mark.parametrize("place", ["/papers", "/remove", "/forget"])
def test_only_preference_links_show_the_feedback_list(
    app: Application, client: TestClient, alice: int, papers: tuple[int, int], link: Link, place: str
) -> None:
    like(app, alice, *papers)
    for purpose in Purpose:
        if purpose is not Purpose.PREFERENCES:
            token = link(purpose, alice, argument=papers[0]).rpartition("/")[2]
            answer = client.post(
                f"/preferences/{token}{place}", data={"paper": papers[0], "liked": "A Title"}
            )
            assert answer.status_code == 403
    assert len(feedback_of(app, alice)) == 2
