"""Feed readers get valid feeds: public ones for everybody, and a reader's own for nobody else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any
from xml.etree import ElementTree

import feedparser
import httpx
import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from app import clock, subscribers
from app.application import Application
from app.delivery import ledger
from app.links import Purpose
from app.relevance import matching
from app.storage.models import Delivery, DeliveryState, Listing, Paper, Source, VoteCount
from app.subscribers import Preferences
from app.types import Digest, DigestItem, Interest, MailKind, Section
from app.web import preview, signed_links
from app.web.http_cache import KEEP
from app.web.pages import feeds
from app.web.work_limits import FEEDS_A_MINUTE, PASTES, PREVIEWS_A_MINUTE, Capacity
from tests.support import factories, sample_digest
from tests.web.conftest import BOB, WANTED, Link

ATOM = "{http://www.w3.org/2005/Atom}"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
HOSTILE = "Agents </title><script>alert(1)</script> ]]> &\x0b\x00\ufffe \u202ereversed\n$O(n < m)$ “מאמר”"
HOSTILE_READ = "Agents </title><script>alert(1)</script> ]]> & reversed $O(n < m)$ “מאמר”"
FEEDS = ["/feed", "/day/{day}/feed", "/feed?interest=agents", "{own}"]


def list_paper(app: Application, title: str, ago: int = 1, upvotes: int = 10, **fields: Any) -> int:
    """A paper that was listed some days ago; its id."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = session.exec(select(Source)).first() or factories.source(session, now)
        day = (now - timedelta(days=ago)).date()
        abstract = "What agents do all day."
        return factories.paper(session, source, title, day, now, upvotes, **{"abstract": abstract} | fields)


def bring(app: Application, reader: int, due_at: datetime, picks: Sequence[DigestItem]) -> int:
    """A digest of the reader's; its delivery."""
    digest = Digest(f"{due_at:%Y-%m-%d}", (Section("world models", tuple(picks)),))
    with app.db.write() as session:
        given = ledger.enqueue(
            session, subscriber_id=reader, kind=MailKind.DIGEST, edition=digest.edition, due_at=due_at,
            now=clock.utcnow(), digest=digest,
        )  # fmt: skip
    assert given
    return given


def minutes_pass(monkeypatch: pytest.MonkeyPatch, by: timedelta = KEEP) -> None:
    """Until what was made for everybody is made anew."""
    monkeypatch.setattr(clock, "_ahead", by)


def own_path(app: Application, reader: int) -> str:
    with app.db.read() as session:
        return signed_links.feed_path(app, subscribers.get(session, reader))


def spelled(path: str, ending: str, own: str) -> str:
    """One of FEEDS in a format; a reader's own Atom feed has no ending."""
    if path == "{own}":
        return own + (ending if ending == ".json" else "")
    start, _, query = path.format(day=clock.utcnow().date() - timedelta(days=1)).partition("?")
    return start + ending + (f"?{query}" if query else "")


def atom(answer: httpx.Response) -> Any:
    """The feed as feedparser reads it, every required element where RFC 4287 wants it."""
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/atom+xml; charset=utf-8"
    root = ElementTree.fromstring(answer.content)  # noqa: S314 - our own
    for element in (root, *root.iter(f"{ATOM}entry")):
        assert [len(element.findall(ATOM + name)) for name in ("id", "title", "updated")] == [1, 1, 1]
        assert RFC_3339.fullmatch(element.findtext(f"{ATOM}updated") or "")
        assert (element.findtext(f"{ATOM}id") or "").startswith("https://paperboy.test/")
        assert element.find(f"{ATOM}link[@rel='alternate']") is not None
    assert root.findtext(f"{ATOM}author/{ATOM}name")
    read = feedparser.parse(answer.content)
    assert not read.bozo
    return read


def json_feed(answer: httpx.Response) -> Any:
    """The feed, every field of version 1.1 that is required in it."""
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/feed+json"
    read = answer.json()
    assert read["version"] == "https://jsonfeed.org/version/1.1"
    assert read["title"]
    for item in read["items"]:
        assert item["id"] == item["url"]
        assert item["content_html"]
        assert RFC_3339.fullmatch(item["date_published"])
        assert all(author["name"] for author in item.get("authors", []))
    return read


# --- every feed


@pytest.mark.parametrize("path", FEEDS)
def test_both_formats_say_the_same(app: Application, client: TestClient, alice: int, path: str) -> None:
    """The same papers in the same order, known by their pages here, and the feed by its own address."""
    number = list_paper(
        app, "Agents that Plan", authors=["Ada Lovelace", "Alan Turing"], categories=["cs.AI"]
    )
    other = list_paper(app, "Agents that Rest", upvotes=3)
    bring(
        app,
        alice,
        clock.utcnow(),
        [sample_digest.pick(number, "Agents that Plan"), sample_digest.pick(other, "Other")],
    )
    own = own_path(app, alice)
    in_atom = atom(client.get(spelled(path, ".atom", own)))
    in_json = json_feed(client.get(spelled(path, ".json", own)))
    ids = [f"https://paperboy.test/paper/{each}" for each in (number, other)]
    assert [entry.id for entry in in_atom.entries] == [item["id"] for item in in_json["items"]] == ids
    first, item = in_atom.entries[0], in_json["items"][0]
    assert [author.name for author in first.authors] == [author["name"] for author in item["authors"]]
    assert [author.name for author in first.authors] == ["Ada Lovelace", "Alan Turing"]
    assert [tag.term for tag in first.tags] == item["tags"]
    assert "cs.AI" in item["tags"]
    assert first.content[0].value == item["content_html"]
    assert first.summary == item["summary"]
    assert in_atom.feed.id == "https://paperboy.test" + spelled(path, ".atom", own)
    assert in_json["feed_url"] == "https://paperboy.test" + spelled(path, ".json", own)


@pytest.mark.parametrize("path", FEEDS)
@pytest.mark.parametrize("ending", [".atom", ".json"])
def test_what_has_not_changed_is_not_sent_again(
    app: Application, client: TestClient, alice: int, path: str, ending: str
) -> None:
    """By its tag, and by nothing else."""
    number = list_paper(app, "Agents that Plan")
    bring(app, alice, clock.utcnow(), [sample_digest.pick(number, "Agents that Plan")])
    where = spelled(path, ending, own_path(app, alice))
    sent = client.get(where)
    etag = sent.headers["etag"]
    for known in (etag, f'"x", {etag}', etag.removeprefix("W/"), "*"):
        again = client.get(where, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["cache-control"] == sent.headers["cache-control"]
    assert client.get(where, headers={"If-None-Match": '"x"'}).content == sent.content


def test_a_tag_is_the_same_for_compressed_bytes(app: Application, client: TestClient) -> None:
    """And a weak one, therefore: a strong tag would promise the same bytes."""
    for number in range(5):
        list_paper(app, f"Agents of {number}")
    plain, packed = (client.get("/feed.atom", headers={"Accept-Encoding": c}) for c in ("identity", "gzip"))
    assert (plain.headers.get("content-encoding"), packed.headers["content-encoding"]) == (None, "gzip")
    assert plain.headers["etag"] == packed.headers["etag"]
    assert re.fullmatch(r'W/"[0-9a-f]{32}"', plain.headers["etag"])


@pytest.mark.parametrize("path", FEEDS)
def test_hostile_text_stays_text(app: Application, client: TestClient, alice: int, path: str) -> None:
    """Markup, control characters, marks that turn the direction, and what XML cannot hold."""
    said = HOSTILE.replace("\x00", "")  # no database of ours takes it
    number = list_paper(app, said, abstract=said, authors=[said, "\x0b"], categories=[said])
    bring(
        app,
        alice,
        clock.utcnow(),
        [sample_digest.pick(number, said, summary=said, reason=said, authors=said)],
    )
    own = own_path(app, alice)
    (entry,) = atom(client.get(spelled(path, ".atom", own))).entries
    (item,) = json_feed(client.get(spelled(path, ".json", own)))["items"]
    assert item["title"] == HOSTILE_READ
    assert [author["name"] for author in item["authors"]] == [HOSTILE_READ]
    assert "alert(1)" in entry.title  # as feedparser cleans it
    assert "<script" not in item["content_html"]
    assert "&lt;script&gt;" in item["content_html"]


def test_an_empty_archive_has_feeds_already(client: TestClient) -> None:
    """Whoever subscribes before the first paper is fetched keeps their feed, and it stays the same."""
    first = client.get("/feed.atom")
    assert atom(first).entries == []
    assert json_feed(client.get("/feed.json"))["items"] == []
    assert client.get("/feed.atom", headers={"If-None-Match": first.headers["etag"]}).status_code == 304


# --- for everybody


def test_what_is_trending_comes_newest_first(app: Application, client: TestClient) -> None:
    """Of a day the most discussed; each with how it is doing."""
    older = list_paper(app, "Older", ago=3, upvotes=90)
    quiet, loud = list_paper(app, "Quiet", upvotes=2), list_paper(app, "Loud", upvotes=40)
    items = json_feed(client.get("/feed.json"))["items"]
    assert [item["id"].rpartition("/")[2] for item in items] == [str(each) for each in (loud, quiet, older)]
    assert "40 votes" in items[0]["content_html"]


def test_a_feed_is_no_archive(app: Application, client: TestClient) -> None:
    """Twenty papers of a day, of the last days that have any, and a hundred in all."""
    for number in range(feeds.PAPERS_PER_DAY + 3):
        for ago in range(1, feeds.TRENDING_DAYS + 2):
            list_paper(app, f"Paper {number} of {ago}", ago, upvotes=number)
    items = json_feed(client.get("/feed.json"))["items"]
    assert len(items) == feeds.MAX_ENTRIES
    newest = [item for item in items if item["date_published"] == items[0]["date_published"]]
    assert len(newest) == feeds.PAPERS_PER_DAY


def test_a_paper_that_is_listed_twice_is_one_entry(app: Application, client: TestClient) -> None:
    """Known by its page, and dated by the day on which it was first seen."""
    number = list_paper(app, "Listed Again", ago=2)
    with app.db.write() as session:
        source, day = session.exec(select(Source.id)).one(), clock.utcnow().date() - timedelta(days=1)
        session.add(Listing(paper_id=number, original_paper_id=number, source_id=source, listed_on=day))
    (item,) = json_feed(client.get("/feed.json"))["items"]
    assert item["date_published"].startswith(f"{clock.utcnow().date() - timedelta(days=2)}")


def test_new_votes_are_news(app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """To whoever has read the paper before."""
    number = list_paper(app, "Agents that Plan")
    before = client.get("/feed.atom").headers["etag"]
    with app.db.write() as session:
        source = session.exec(select(Source.id)).one()
        at = clock.utcnow() + timedelta(seconds=2)
        session.add(VoteCount(paper_id=number, original_paper_id=number, source_id=source, at=at, upvotes=11))
    minutes_pass(monkeypatch)
    assert "11 votes" in client.get("/feed.atom", headers={"If-None-Match": before}).text


def test_a_withdrawal_is_news(app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """To go by dates would hide it: nothing that is left has become newer."""
    list_paper(app, "Agents that Stay", upvotes=20)
    gone = list_paper(app, "Agents that Go")
    before = client.get("/feed.atom")
    assert "last-modified" not in before.headers
    with app.db.write() as session:
        session.get_one(Paper, gone).withdrawn_at = clock.utcnow()
    minutes_pass(monkeypatch)
    asked = {"If-Modified-Since": format_datetime(clock.utcnow(), usegmt=True)}
    answer = client.get("/feed.atom", headers=asked)
    assert [entry.title for entry in atom(answer).entries] == ["Agents that Stay"]


def test_public_feeds_may_be_kept_for_a_while(app: Application, client: TestClient) -> None:
    """By anybody's cache."""
    list_paper(app, "Agents that Plan")
    for path in FEEDS[:-1]:
        answer = client.get(spelled(path, ".atom", ""))
        assert answer.headers["cache-control"] == "public, max-age=900"


@pytest.mark.parametrize("ending", [".atom", ".json"])
def test_a_day_has_the_most_votes_first(app: Application, client: TestClient, ending: str) -> None:
    """As it says of itself, and as its page has them; also where a paper was listed before."""
    few, most = list_paper(app, "Few", upvotes=2), list_paper(app, "Most", ago=2, upvotes=40)
    some, day = list_paper(app, "Some", upvotes=9), clock.utcnow().date() - timedelta(days=1)
    with app.db.write() as session:
        source = session.exec(select(Source.id)).one()
        session.add(Listing(paper_id=most, original_paper_id=most, source_id=source, listed_on=day))
    answer = client.get(f"/day/{day}/feed{ending}")
    assert "most votes first" in answer.text
    found = re.findall(r'<id>[^<]*/paper/(\d+)<|"id": ?"[^"]*/paper/(\d+)"', answer.text)
    assert ["".join(pair) for pair in found] == [str(each) for each in (most, some, few)]


@pytest.mark.parametrize(("day", "status"), [("2020-01-01", 404), ("tomorrow", 422)])
@pytest.mark.parametrize("ending", [".atom", ".json"])
def test_a_day_without_papers_is_told_kindly(client: TestClient, day: str, status: int, ending: str) -> None:
    """As on its page."""
    answer = client.get(f"/day/{day}/feed{ending}")
    assert answer.status_code == status
    assert "Go to the home page" in answer.text


# --- of an interest


def test_an_interest_brings_what_fits_with_the_reason(app: Application, client: TestClient) -> None:
    """By the product's own matching: phrases, exclusions and the floor."""
    fits = list_paper(app, "Agents that Plan")
    list_paper(app, "Agents that Trade", abstract="Agents on the stock market.")
    list_paper(app, "Video Diffusion", abstract="Clips of cats.")
    answer = client.get("/feed.json", params={"interest": "  agents   -market "})
    read = json_feed(answer)
    assert [item["id"] for item in read["items"]] == [f"https://paperboy.test/paper/{fits}"]
    assert "<strong>Why:</strong> “Agents” in the title" in read["items"][0]["content_html"]
    assert read["items"][0]["tags"] == ["agents -market"]
    assert read["title"] == "Paperboy: agents -market"
    assert json_feed(client.get(read["feed_url"])) == read
    assert client.get(read["home_page_url"]).status_code == 200


def test_an_interest_that_nothing_fits_is_an_empty_feed(app: Application, client: TestClient) -> None:
    """Tomorrow may bring something; the words that make it unusual are kept as they are."""
    list_paper(app, "Agents that Plan")
    read = atom(client.get("/feed.atom", params={"interest": '"<b>zebrafish</b> & co"'}))
    assert read.entries == []
    assert "zebrafish" in read.feed.title


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ('"open', "A quotation mark is not closed."),
        ("-robots", "at least one word to look for"),
        ("x" * 301, "at most 300 characters"),
        ("agents\x07", "without control characters"),
        ("title:agents", "There is no filter"),
    ],
)
def test_an_interest_that_cannot_be_read_is_told_in_plain_words(
    client: TestClient, typed: str, said: str
) -> None:
    """A page for people: whoever wrote the address is one."""
    answer = client.get("/feed.atom", params={"interest": typed})
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/html")
    assert said in answer.text


def test_interests_are_not_asked_for_without_end(app: Application, client: TestClient) -> None:
    """To match one is work; the public feeds go on, and so do previews, which are counted apart."""
    made = [client.get("/feed.atom", params={"interest": f"word{n}"}) for n in range(FEEDS_A_MINUTE + 1)]
    assert [answer.status_code for answer in made] == [200] * FEEDS_A_MINUTE + [429]
    assert 0 < int(made[-1].headers["retry-after"]) <= 61
    assert "an hour" not in made[-1].text
    assert client.get("/feed.atom").status_code == 200
    limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    for _ in range(PREVIEWS_A_MINUTE):
        limits.preview_limit.hit("testclient")


def test_a_few_interests_are_matched_at_once(app: Application, client: TestClient) -> None:
    """A feed reader comes again; whoever signs up meanwhile need not wait."""
    limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    with ExitStack() as busy:
        for _ in range(PASTES):
            busy.enter_context(limits.pastes.take())
        answer = client.get("/feed.atom", params={"interest": "agents"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/feed.atom").status_code == 200
    assert client.get("/feed.atom", params={"interest": "agents"}).status_code == 200


def test_a_poll_within_some_minutes_costs_nothing(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy everything is, and however the blanks of an interest are spelled."""
    list_paper(app, "Agents that Plan")
    sent = client.get("/feed.atom", params={"interest": "agents plan"})
    limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    with ExitStack() as busy:
        for _ in range(PASTES):
            busy.enter_context(limits.pastes.take())
        for text in ["agents plan", "  agents  plan "] * 40:
            assert client.get("/feed.atom", params={"interest": text}).content == sent.content
        minutes_pass(monkeypatch)
        assert client.get("/feed.atom", params={"interest": "agents plan"}).status_code == 429


@pytest.mark.parametrize("path", ["/feed.atom", "/feed.json", "/sitemap.xml", "/feed.atom?interest=agents"])
def test_what_is_for_everybody_is_made_once(
    app: Application, client: TestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until some minutes have passed."""
    list_paper(app, "Agents that Plan")
    sent = client.get(path).content
    list_paper(app, "Agents that Rest")
    assert client.get(path).content == sent
    minutes_pass(monkeypatch)
    assert client.get(path).content != sent


@pytest.mark.parametrize("hours", range(0, 24, 6))
def test_a_feed_looks_back_as_far_as_a_preview(
    app: Application, client: TestClient, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every hour of the day, so that one index of the papers serves both."""
    for ago in range(30):
        list_paper(app, f"Agents {ago}", ago)
    minutes_pass(monkeypatch, timedelta(hours=hours))
    made: list[matching.MatchIndex] = []

    class Counted(matching.MatchIndex):
        def __init__(self, *args: Any) -> None:
            made.append(self)
            super().__init__(*args)

    monkeypatch.setattr(matching, "MatchIndex", Counted)
    preview.Previews(app).build(Preferences(interests=(Interest("agents"),)), clock.utcnow())
    assert len(json_feed(client.get("/feed.json", params={"interest": "agents"}))["items"]) > 10
    assert len(made) == 1


# --- a reader's own


def test_a_reader_reads_their_digests_by_feed(app: Application, client: TestClient, alice: int) -> None:
    """The newest first, as they were composed, each with its reason, under its interest."""
    now = clock.utcnow()
    bring(
        app,
        alice,
        now - timedelta(days=1),
        [sample_digest.pick(1, "Of Yesterday"), sample_digest.pick(2, "And This")],
    )
    bring(app, alice, now, [sample_digest.pick(3, "Of Today", reason="“today” in the title")])
    read = atom(client.get(own_path(app, alice)))
    assert [entry.title for entry in read.entries] == ["Of Today", "Of Yesterday", "And This"]
    assert "“today” in the title" in read.entries[0].content[0].value
    assert [tag.term for tag in read.entries[0].tags] == ["world models"]
    assert read.entries[0].published == f"{now:%Y-%m-%dT%H:%M:%SZ}"


def test_a_new_digest_is_in_it_at_once(app: Application, client: TestClient, alice: int) -> None:
    """A reader's own feed is kept for nobody."""
    bring(app, alice, clock.utcnow() - timedelta(days=1), [sample_digest.pick(1, "Of Yesterday")])
    assert len(atom(client.get(own_path(app, alice))).entries) == 1
    bring(app, alice, clock.utcnow(), [sample_digest.pick(2, "Of Today")])
    assert len(atom(client.get(own_path(app, alice))).entries) == 2


def test_a_paper_that_was_two_is_one_entry(app: Application, client: TestClient, alice: int) -> None:
    """Digests brought both before they were merged; the newer one's card stays."""
    kept, merged = list_paper(app, "Agents that Plan"), list_paper(app, "Agents That Plan!")
    bring(app, alice, clock.utcnow() - timedelta(days=1), [sample_digest.pick(kept, "Agents that Plan")])
    bring(app, alice, clock.utcnow(), [sample_digest.pick(merged, "Agents That Plan!")])
    assert len(atom(client.get(own_path(app, alice))).entries) == 2
    with app.db.write() as session:
        session.get_one(Paper, merged).merged_into_id = kept
    (entry,) = atom(client.get(own_path(app, alice))).entries
    assert entry.title == "Agents That Plan!"
    assert client.get(entry.id).url.path == f"/paper/{kept}"


def test_nothing_of_anybody_else_is_in_it(app: Application, client: TestClient, alice: int) -> None:
    """Nor an address, nor a link that can do more."""
    with app.db.write() as session:
        bob = subscribers.add(session, BOB, WANTED, clock.utcnow())
    bring(app, bob, clock.utcnow(), [sample_digest.pick(1, "For Bob Alone")])
    bring(app, alice, clock.utcnow(), [sample_digest.pick(2, "For Alice")])
    said = client.get(own_path(app, alice)).text
    assert "For Alice" in said
    assert "Bob" not in said
    assert "example.org" not in said
    assert set(re.findall(r"https://paperboy\.test/(\w+)/", said)) == {"feed", "paper"}


def test_nothing_comes_before_its_hour_nor_what_never_left(
    app: Application, client: TestClient, alice: int
) -> None:
    """What failed or was cancelled comes in a later digest, as its papers do."""
    now = clock.utcnow()
    bring(app, alice, now + timedelta(minutes=5), [sample_digest.pick(1, "Composed Ahead")])
    for ago, state in enumerate(ledger.UNDELIVERED, 1):
        number = bring(
            app, alice, now - timedelta(days=ago), [sample_digest.pick(ago + 1, f"It was {state}")]
        )
        with app.db.write() as session:
            session.get_one(Delivery, number).state = DeliveryState(state)
    assert atom(client.get(own_path(app, alice))).entries == []


@pytest.mark.parametrize("ending", ["", ".json"])
def test_its_address_ends_with_the_readers_links(
    app: Application, client: TestClient, alice: int, ending: str
) -> None:
    """When they are revoked, and when the reader is erased; until then it stays the same."""
    bring(app, alice, clock.utcnow(), [sample_digest.pick(1, "A Secret Choice")])
    old = own_path(app, alice)
    assert own_path(app, alice) == old
    with app.db.write() as session:
        subscribers.get(session, alice).link_epoch += 1
    new = own_path(app, alice)
    assert "A Secret Choice" in client.get(new + ending).text
    with app.db.write() as session:
        subscribers.erase(session, alice, clock.utcnow())
    for path in (old, new):
        answer = client.get(path + ending)
        assert answer.status_code == 410
        assert "A Secret Choice" not in answer.text


def test_it_is_kept_by_nobody_and_found_by_nobody(app: Application, client: TestClient, alice: int) -> None:
    """No cache and no search engine; not even an answer that says nothing has changed."""
    path = own_path(app, alice)
    sent = client.get(path)
    unchanged = client.get(path, headers={"If-None-Match": sent.headers["etag"]})
    for answer in (sent, unchanged):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-robots-tag"] == "noindex, nofollow"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_preferences_lead_to_it(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """In both formats."""
    page = client.get(link(Purpose.PREFERENCES, alice)).text
    assert f'href="{own_path(app, alice)}"' in page
    assert f'href="{own_path(app, alice)}.json"' in page


def test_a_paper_that_left_the_archive_stays_in_it(app: Application, client: TestClient, alice: int) -> None:
    """Told as far as its digest tells it."""
    bring(app, alice, clock.utcnow(), [sample_digest.pick(4711, "Gone", authors="Ada Lovelace and 3 more")])
    with app.db.read() as session:
        assert session.get(Paper, 4711) is None
    (item,) = json_feed(client.get(own_path(app, alice) + ".json"))["items"]
    assert item["authors"] == [{"name": "Ada Lovelace and 3 more"}]
