"""Test the feeds: public feeds, feeds of an interest, and the private feed of a reader."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any
from xml.etree import ElementTree

import feedparser
import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event
from sqlmodel import select

from app import clock, subscribers
from app.application import Application
from app.delivery import ledger
from app.links import Purpose
from app.relevance import matching
from app.storage.models import Delivery, DeliveryState, Listing, Paper, Source, VoteCount
from app.subscribers import Preferences
from app.types import Digest, DigestItem, Interest, MailKind, Section
from app.web import capacity, link_access, preview
from app.web.capacity import Capacity
from app.web.http_cache import KEEP, KEEP_MATCHES, STALE_MATCHES
from app.web.pages import feeds
from tests.conftest import NOW
from tests.support import factories, sample_digest
from tests.web.conftest import BOB, WANTED, Link

ATOM = "{http://www.w3.org/2005/Atom}"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
HOSTILE = "Agents </title><script>alert(1)</script> ]]> &\x0b\x00\ufffe \u202ereversed\n$O(n < m)$ “מאמר”"
HOSTILE_READ = "Agents </title><script>alert(1)</script> ]]> & reversed $O(n < m)$ “מאמר”"
FEEDS = ["/feed", "/day/{day}/feed", "/feed?interest=agents", "{own}"]


def add_paper(app: Application, title: str, ago: int = 1, upvotes: int = 10, **fields: Any) -> int:
    """Add a paper listed `ago` days ago and return its id."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = session.exec(select(Source)).first() or factories.add_source(session, now)
        day = (now - timedelta(days=ago)).date()
        abstract = "What agents do all day."
        return factories.add_paper(
            session, source, title, day, now, upvotes, **{"abstract": abstract} | fields
        )


def add_digest(app: Application, reader: int, due_at: datetime, picks: Sequence[DigestItem]) -> int:
    """Add a digest for the reader and return its delivery."""
    digest = Digest(f"{due_at:%Y-%m-%d}", (Section("world models", tuple(picks)),))
    with app.db.write() as session:
        delivery = ledger.enqueue(
            session, subscriber_id=reader, kind=MailKind.DIGEST, edition=digest.edition, due_at=due_at,
            now=clock.utcnow(), digest=digest,
        )  # fmt: skip
    assert delivery
    return delivery


def expire_cache(monkeypatch: pytest.MonkeyPatch, by: timedelta = KEEP_MATCHES) -> None:
    """Move the time past the lifetime of cached responses."""
    monkeypatch.setattr(clock, "_ahead", by)


def private_path(app: Application, reader: int) -> str:
    with app.db.read() as session:
        return link_access.feed_path(app, subscribers.get(session, reader))


def path_in_format(path: str, ending: str, own: str) -> str:
    """Return the path of a feed in a format; a reader's own Atom feed has no extension."""
    if path == "{own}":
        return own + (ending if ending == ".json" else "")
    start, _, query = path.format(day=clock.utcnow().date() - timedelta(days=1)).partition("?")
    return start + ending + (f"?{query}" if query else "")


def parse_atom(answer: httpx.Response) -> Any:
    """Parse the feed, and check every element that RFC 4287 requires."""
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


def parse_json_feed(answer: httpx.Response) -> Any:
    """Parse the feed, and check every field that version 1.1 requires."""
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


@pytest.mark.once
@pytest.mark.parametrize("path", FEEDS)
def test_atom_and_json_have_the_same_entries(
    app: Application, client: TestClient, alice: int, path: str
) -> None:
    """Entries have the same order and ids, and each feed links to itself."""
    number = add_paper(app, "Agents that Plan", authors=["Ada Lovelace", "Alan Turing"], categories=["cs.AI"])
    other = add_paper(app, "Machines that Rest", upvotes=3)
    add_digest(
        app,
        alice,
        clock.utcnow(),
        [sample_digest.pick(number, "Agents that Plan"), sample_digest.pick(other, "Other")],
    )
    own = private_path(app, alice)
    in_atom = parse_atom(client.get(path_in_format(path, ".atom", own)))
    in_json = parse_json_feed(client.get(path_in_format(path, ".json", own)))
    ids = [f"https://paperboy.test/paper/{each}" for each in (number, other)]
    assert [entry.id for entry in in_atom.entries] == [item["id"] for item in in_json["items"]] == ids
    first, item = in_atom.entries[0], in_json["items"][0]
    assert [author.name for author in first.authors] == [author["name"] for author in item["authors"]]
    assert [author.name for author in first.authors] == ["Ada Lovelace", "Alan Turing"]
    assert [tag.term for tag in first.tags] == item["tags"]
    assert "cs.AI" in item["tags"]
    assert first.content[0].value == item["content_html"]
    assert first.summary == item["summary"]
    assert in_atom.feed.id == "https://paperboy.test" + path_in_format(path, ".atom", own)
    assert in_json["feed_url"] == "https://paperboy.test" + path_in_format(path, ".json", own)


@pytest.mark.once
@pytest.mark.parametrize("path", FEEDS)
@pytest.mark.parametrize("ending", [".atom", ".json"])
def test_unchanged_feed_returns_304_for_its_etag(
    app: Application, client: TestClient, alice: int, path: str, ending: str
) -> None:
    """Only the ETag is compared."""
    number = add_paper(app, "Agents that Plan")
    add_digest(app, alice, clock.utcnow(), [sample_digest.pick(number, "Agents that Plan")])
    where = path_in_format(path, ending, private_path(app, alice))
    response = client.get(where)
    etag = response.headers["etag"]
    for value in (etag, f'"x", {etag}', etag.removeprefix("W/"), "*"):
        again = client.get(where, headers={"If-None-Match": value})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["cache-control"] == response.headers["cache-control"]
    assert client.get(where, headers={"If-None-Match": '"x"'}).content == response.content


def test_etag_is_weak_and_independent_of_compression(app: Application, client: TestClient) -> None:
    """A strong ETag would promise identical bytes."""
    for number in range(5):
        add_paper(app, f"Agents of {number}")
    plain, packed = (client.get("/feed.atom", headers={"Accept-Encoding": c}) for c in ("identity", "gzip"))
    assert (plain.headers.get("content-encoding"), packed.headers["content-encoding"]) == (None, "gzip")
    assert plain.headers["etag"] == packed.headers["etag"]
    assert re.fullmatch(r'W/"[0-9a-f]{32}"', plain.headers["etag"])


@pytest.mark.parametrize("path", FEEDS)
def test_hostile_text_is_escaped(app: Application, client: TestClient, alice: int, path: str) -> None:
    """Test markup, control characters, bidi marks, and characters that XML cannot contain."""
    expected = HOSTILE.replace("\x00", "")  # our databases cannot store it
    number = add_paper(app, expected, abstract=expected, authors=[expected, "\x0b"], categories=[expected])
    add_digest(
        app,
        alice,
        clock.utcnow(),
        [sample_digest.pick(number, expected, summary=expected, reason=expected, authors=expected)],
    )
    own = private_path(app, alice)
    (entry,) = parse_atom(client.get(path_in_format(path, ".atom", own))).entries
    (item,) = parse_json_feed(client.get(path_in_format(path, ".json", own)))["items"]
    assert item["title"] == HOSTILE_READ
    assert [author["name"] for author in item["authors"]] == [HOSTILE_READ]
    assert "alert(1)" in entry.title  # as cleaned by feedparser
    assert "<script" not in item["content_html"]
    assert "&lt;script&gt;" in item["content_html"]


def test_feeds_of_an_empty_archive(client: TestClient) -> None:
    """They are valid and have an ETag."""
    first = client.get("/feed.atom")
    assert parse_atom(first).entries == []
    assert parse_json_feed(client.get("/feed.json"))["items"] == []
    assert client.get("/feed.atom", headers={"If-None-Match": first.headers["etag"]}).status_code == 304


# --- for everybody


def test_trending_feed_is_sorted_by_day_and_votes(app: Application, client: TestClient) -> None:
    """Each entry has its votes."""
    older = add_paper(app, "Older", ago=3, upvotes=90)
    quiet, loud = add_paper(app, "Quiet", upvotes=2), add_paper(app, "Loud", upvotes=40)
    items = parse_json_feed(client.get("/feed.json"))["items"]
    assert [item["id"].rpartition("/")[2] for item in items] == [str(each) for each in (loud, quiet, older)]
    assert "40 votes" in items[0]["content_html"]


@pytest.mark.parametrize(
    ("path", "counts_topics"), [("/feed.json", False), ("/feed.atom", False), ("/", True)]
)
def test_feeds_do_not_count_topics(
    app: Application, client: TestClient, path: str, counts_topics: bool
) -> None:
    """Only pages that show topics read the titles of the week."""
    add_paper(app, "Agents that Plan")
    statements = list[str]()
    event.listen(app.db.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert client.get(path).status_code == 200
    assert any(re.match(r"SELECT papers?\.title \n?FROM", sql) for sql in statements) == counts_topics


@pytest.mark.once
def test_feed_size_is_limited(app: Application, client: TestClient) -> None:
    """At most twenty papers a day, only recent days, and a hundred entries in all."""
    for number in range(feeds.PAPERS_PER_DAY + 3):
        for ago in range(1, feeds.TRENDING_DAYS + 2):
            add_paper(app, f"Paper {number} of {ago}", ago, upvotes=number)
    items = parse_json_feed(client.get("/feed.json"))["items"]
    assert len(items) == feeds.MAX_ENTRIES
    newest = [item for item in items if item["date_published"] == items[0]["date_published"]]
    assert len(newest) == feeds.PAPERS_PER_DAY


def test_paper_listed_twice_has_one_entry(app: Application, client: TestClient) -> None:
    """Its id is its page, and its date is the first listing."""
    number = add_paper(app, "Listed Again", ago=2)
    with app.db.write() as session:
        source, day = session.exec(select(Source.id)).one(), clock.utcnow().date() - timedelta(days=1)
        session.add(Listing(paper_id=number, original_paper_id=number, source_id=source, listed_on=day))
    (item,) = parse_json_feed(client.get("/feed.json"))["items"]
    assert item["date_published"].startswith(f"{clock.utcnow().date() - timedelta(days=2)}")


@pytest.mark.parametrize("path", ["/feed", "/feed?interest=agents"])
def test_entry_keeps_its_id_when_papers_merge(app: Application, client: TestClient, path: str) -> None:
    """Feed readers would list a paper again as unread once its arXiv version takes the place of its row."""
    earliest, newest = add_paper(app, "Agents that Plan", ago=3), add_paper(app, "Agents that Plan", ago=2)
    with app.db.write() as session:
        session.get_one(Paper, earliest).merged_into_id = newest
    base_url, paper_url = app.settings.base_url, f"{app.settings.base_url}/paper/{newest}"
    [entry] = feedparser.parse(client.get(path_in_format(path, ".atom", "")).content).entries
    assert (entry.id, entry.link) == (f"{base_url}/paper/{earliest}", paper_url)
    [item] = client.get(path_in_format(path, ".json", "")).json()["items"]
    assert (item["id"], item["url"]) == (f"{base_url}/paper/{earliest}", paper_url)


def test_new_votes_update_the_feed(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = add_paper(app, "Agents that Plan")
    before = client.get("/feed.atom").headers["etag"]
    with app.db.write() as session:
        source = session.exec(select(Source.id)).one()
        at = clock.utcnow() + timedelta(seconds=2)
        session.add(VoteCount(paper_id=number, original_paper_id=number, source_id=source, at=at, upvotes=11))
    expire_cache(monkeypatch)
    assert "11 votes" in client.get("/feed.atom", headers={"If-None-Match": before}).text


def test_withdrawal_changes_the_etag(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No remaining entry is newer, so dates alone would not show the change."""
    add_paper(app, "Agents that Stay", upvotes=20)
    withdrawn = add_paper(app, "Agents that Go")
    before = client.get("/feed.atom")
    assert "last-modified" not in before.headers
    with app.db.write() as session:
        session.get_one(Paper, withdrawn).withdrawn_at = clock.utcnow()
    expire_cache(monkeypatch)
    headers = {"If-Modified-Since": format_datetime(clock.utcnow(), usegmt=True)}
    answer = client.get("/feed.atom", headers=headers)
    assert [entry.title for entry in parse_atom(answer).entries] == ["Agents that Stay"]


def test_public_feeds_are_cacheable(app: Application, client: TestClient) -> None:
    add_paper(app, "Agents that Plan")
    for path in FEEDS[:-1]:
        answer = client.get(path_in_format(path, ".atom", ""))
        lifetime = KEEP_MATCHES if "interest" in path else KEEP
        assert answer.headers["cache-control"] == f"public, max-age={lifetime // timedelta(seconds=1)}"


@pytest.mark.parametrize("ending", [".atom", ".json"])
def test_day_feed_is_sorted_by_votes(app: Application, client: TestClient, ending: str) -> None:
    """The order is that of the day's page, also for papers listed on an earlier day."""
    few, most = add_paper(app, "Few", upvotes=2), add_paper(app, "Most", ago=2, upvotes=40)
    some, day = add_paper(app, "Some", upvotes=9), clock.utcnow().date() - timedelta(days=1)
    with app.db.write() as session:
        source = session.exec(select(Source.id)).one()
        session.add(Listing(paper_id=most, original_paper_id=most, source_id=source, listed_on=day))
    answer = client.get(f"/day/{day}/feed{ending}")
    assert "most votes first" in answer.text
    matches = re.findall(r'<id>[^<]*/paper/(\d+)<|"id": ?"[^"]*/paper/(\d+)"', answer.text)
    assert ["".join(pair) for pair in matches] == [str(each) for each in (most, some, few)]


@pytest.mark.parametrize(("day", "status"), [("2020-01-01", 404), ("tomorrow", 422)])
@pytest.mark.parametrize("ending", [".atom", ".json"])
def test_feed_of_a_day_without_papers(client: TestClient, day: str, status: int, ending: str) -> None:
    answer = client.get(f"/day/{day}/feed{ending}")
    assert answer.status_code == status
    assert "Go to the home page" in answer.text


# --- of an interest


def test_interest_feed_has_matches_with_reasons(app: Application, client: TestClient) -> None:
    """Phrases, exclusions and the score threshold work as in digests."""
    fits = add_paper(app, "Agents that Plan")
    add_paper(app, "Agents that Trade", abstract="Agents on the stock market.")
    add_paper(app, "Video Diffusion", abstract="Clips of cats.")
    answer = client.get("/feed.json", params={"interest": "  agents   -market "})
    read = parse_json_feed(answer)
    assert [item["id"] for item in read["items"]] == [f"https://paperboy.test/paper/{fits}"]
    assert "<strong>Why:</strong> “Agents” in the title" in read["items"][0]["content_html"]
    assert read["items"][0]["tags"] == ["agents -market"]
    assert read["title"] == "Paperboy: agents -market"
    assert parse_json_feed(client.get(read["feed_url"])) == read
    assert client.get(read["home_page_url"]).status_code == 200


def test_feeds_agree_on_votes(app: Application, client: TestClient) -> None:
    """The feed of an interest has the current votes, not those of the day on which a paper was new."""
    paper = add_paper(app, "Agents that Plan", ago=3, upvotes=10)
    with app.db.write() as session:
        first = session.exec(select(VoteCount)).one()
        first.at -= timedelta(days=3)
        fields = {"paper_id": paper, "original_paper_id": paper, "source_id": first.source_id}
        session.add(VoteCount(**fields, at=clock.utcnow() - timedelta(days=1), upvotes=90))
    for path in ("/feed.json", "/feed.json?interest=agents"):
        (item,) = parse_json_feed(client.get(path))["items"]
        assert "90 votes" in item["content_html"], path


def test_interest_without_matches_gives_an_empty_feed(app: Application, client: TestClient) -> None:
    add_paper(app, "Agents that Plan")
    read = parse_atom(client.get("/feed.atom", params={"interest": '"<b>zebrafish</b> & co"'}))
    assert read.entries == []
    assert "zebrafish" in read.feed.title


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ('"open', "A quotation mark is not closed."),
        ("-robots", "at least one word or filter (author:, org: or cat:) to search for"),
        ("x" * 301, "at most 300 characters"),
        ("agents\x07", "without control characters"),
        ("title:agents", "There is no filter"),
    ],
)
def test_invalid_interest_gives_an_error_page(client: TestClient, typed: str, error: str) -> None:
    answer = client.get("/feed.atom", params={"interest": typed})
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/html")
    assert error in answer.text


@pytest.mark.once
def test_interest_feeds_are_rate_limited(app: Application, client: TestClient) -> None:
    """Matching is expensive. Public feeds and previews have separate limits."""
    most = app.settings.feeds_per_minute
    responses = [client.get("/feed.atom", params={"interest": f"word{n}"}) for n in range(most + 1)]
    assert [answer.status_code for answer in responses] == [200] * most + [429]
    assert 0 < int(responses[-1].headers["retry-after"]) <= 61
    assert "an hour" not in responses[-1].text
    assert client.get("/feed.atom").status_code == 200
    limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    for _ in range(app.settings.previews_per_minute):
        limits.visitors.previews.hit("testclient")


@contextmanager
def busy_slots(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Occupy all slots for feeds of interests. Requests do not wait for a slot."""
    limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    monkeypatch.setattr(limits.feeds, "_patience", 0)
    with ExitStack() as busy:
        for _ in range(capacity.FEEDS):
            busy.enter_context(limits.feeds.take())
        yield


def test_concurrent_interest_feeds_are_limited(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Feed readers retry, and sign-ups with pasted papers do not need the same slots."""
    with busy_slots(client, monkeypatch):
        answer = client.get("/feed.atom", params={"interest": "agents"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/feed.atom").status_code == 200
        limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
        limits.pastes.check()
    assert client.get("/feed.atom", params={"interest": "agents"}).status_code == 200


def test_cached_interest_feed_needs_no_matching(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served under load, for any spacing of the interest, and for another hour after it expires."""
    add_paper(app, "Agents that Plan")
    response = client.get("/feed.atom", params={"interest": "agents plan"})
    with busy_slots(client, monkeypatch):
        for text in ["agents plan", "  agents  plan "] * 40:
            assert client.get("/feed.atom", params={"interest": text}).content == response.content
        expire_cache(monkeypatch)
        assert client.get("/feed.atom", params={"interest": "agents plan"}).content == response.content
        expire_cache(monkeypatch, KEEP_MATCHES + STALE_MATCHES)
        assert client.get("/feed.atom", params={"interest": "agents plan"}).status_code == 429


@pytest.mark.parametrize(
    ("path", "lifetime"),
    [
        ("/feed.atom", KEEP),
        ("/feed.json", KEEP),
        ("/sitemap/papers-0.xml", KEEP),
        ("/feed.atom?interest=agents", KEEP_MATCHES),
    ],
)
def test_public_feeds_are_cached_for_some_minutes(
    app: Application, client: TestClient, path: str, lifetime: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Feeds of interests take longer to build than other feeds, so they are kept longer."""
    add_paper(app, "Agents that Plan")
    content = client.get(path).content
    add_paper(app, "Agents that Rest")
    expire_cache(monkeypatch, lifetime - timedelta(minutes=1))
    assert client.get(path).content == content
    expire_cache(monkeypatch, lifetime)
    assert client.get(path).content != content


@pytest.mark.parametrize("hour", range(0, 24, 6))
def test_feeds_and_previews_share_one_index(
    app: Application, client: TestClient, hour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both cover the same days at every hour."""
    monkeypatch.setattr(clock, "system_time", lambda: NOW.replace(hour=hour))
    for ago in range(30):
        add_paper(app, f"Agents {ago}", ago)
    indexes: list[matching.MatchIndex] = []

    class Counted(matching.MatchIndex):
        def __init__(self, *args: Any) -> None:
            indexes.append(self)
            super().__init__(*args)

    monkeypatch.setattr(matching, "MatchIndex", Counted)
    now = clock.utcnow()
    [interest] = preview.Previews(app).build(Preferences(interests=(Interest("agents"),)), now).interests
    items = parse_json_feed(client.get("/feed.json", params={"interest": "agents"}))["items"]
    assert len(items) > 10
    assert len(indexes) == 1
    dates = {item["date_published"][:10] for item in items}
    assert min(dates) == str(now.date() - timedelta(days=preview.DAYS - 1))
    # Today's paper appears in the feed when digests are due.
    assert len(items) == sum(interest.counts) - (hour < app.settings.default_hour)


# --- a reader's own


def test_private_feed_contains_the_digests(app: Application, client: TestClient, alice: int) -> None:
    """The newest comes first, with the reason and interest of each paper."""
    now = clock.utcnow()
    add_digest(
        app,
        alice,
        now - timedelta(days=1),
        [sample_digest.pick(1, "Of Yesterday"), sample_digest.pick(2, "And This")],
    )
    add_digest(app, alice, now, [sample_digest.pick(3, "Of Today", reason="“today” in the title")])
    read = parse_atom(client.get(private_path(app, alice)))
    assert [entry.title for entry in read.entries] == ["Of Today", "Of Yesterday", "And This"]
    assert "“today” in the title" in read.entries[0].content[0].value
    assert [tag.term for tag in read.entries[0].tags] == ["world models"]
    assert read.entries[0].published == f"{now:%Y-%m-%dT%H:%M:%SZ}"


def test_private_feed_is_not_cached(app: Application, client: TestClient, alice: int) -> None:
    add_digest(app, alice, clock.utcnow() - timedelta(days=1), [sample_digest.pick(1, "Of Yesterday")])
    assert len(parse_atom(client.get(private_path(app, alice))).entries) == 1
    add_digest(app, alice, clock.utcnow(), [sample_digest.pick(2, "Of Today")])
    assert len(parse_atom(client.get(private_path(app, alice))).entries) == 2


def test_merged_papers_have_one_entry(app: Application, client: TestClient, alice: int) -> None:
    """Two digests contained them before the merge; the newer digest's text is used."""
    original, merged = add_paper(app, "Agents that Plan"), add_paper(app, "Agents That Plan!")
    add_digest(
        app, alice, clock.utcnow() - timedelta(days=1), [sample_digest.pick(original, "Agents that Plan")]
    )
    add_digest(app, alice, clock.utcnow(), [sample_digest.pick(merged, "Agents That Plan!")])
    assert len(parse_atom(client.get(private_path(app, alice))).entries) == 2
    with app.db.write() as session:
        session.get_one(Paper, merged).merged_into_id = original
    (entry,) = parse_atom(client.get(private_path(app, alice))).entries
    assert entry.title == "Agents That Plan!"
    assert client.get(entry.id).url.path == f"/paper/{original}"


def test_private_feed_contains_no_other_readers_data(
    app: Application, client: TestClient, alice: int
) -> None:
    """It has no address and no link with further rights."""
    with app.db.write() as session:
        bob = subscribers.add(session, BOB, WANTED, clock.utcnow())
    add_digest(app, bob, clock.utcnow(), [sample_digest.pick(1, "For Bob Alone")])
    add_digest(app, alice, clock.utcnow(), [sample_digest.pick(2, "For Alice")])
    feed = client.get(private_path(app, alice)).text
    assert "For Alice" in feed
    assert "Bob" not in feed
    assert "example.org" not in feed
    assert set(re.findall(r"https://paperboy\.test/(\w+)/", feed)) == {"feed", "paper"}


def test_private_feed_contains_only_sent_digests(app: Application, client: TestClient, alice: int) -> None:
    """Papers of failed or cancelled digests appear in a later digest."""
    now = clock.utcnow()
    add_digest(app, alice, now + timedelta(minutes=5), [sample_digest.pick(1, "Composed Ahead")])
    for ago, state in enumerate(ledger.UNDELIVERED, 1):
        number = add_digest(
            app, alice, now - timedelta(days=ago), [sample_digest.pick(ago + 1, f"It was {state}")]
        )
        with app.db.write() as session:
            session.get_one(Delivery, number).state = DeliveryState(state)
    assert parse_atom(client.get(private_path(app, alice))).entries == []


def test_private_feed_shows_no_digest_before_it_is_approved(
    app: Application, client: TestClient, alice: int
) -> None:
    """Neither one of a held edition nor a first digest that is held."""
    now = clock.utcnow() - timedelta(minutes=5)
    first, second = (
        add_digest(app, alice, now - timedelta(days=ago), [sample_digest.pick(ago + 1, f"Agents {ago}")])
        for ago in range(2)
    )
    with app.db.write() as session:
        held, waiting = (session.get_one(Delivery, number) for number in (first, second))
        held.state, held.next_attempt_at = DeliveryState.PENDING, None
        waiting.state, waiting.next_attempt_at = DeliveryState.PENDING, now
        ledger.pause(session, ledger.IMPORTED, now, ledger.FIRST_DIGESTS)
        ledger.pause(session, ledger.AWAITS_APPROVAL, now, waiting.edition)
    assert parse_atom(client.get(private_path(app, alice))).entries == []
    with app.db.write() as session:
        for pause in ledger.pauses(session):
            ledger.resume(session, now, pause.edition)
    assert len(parse_atom(client.get(private_path(app, alice))).entries) == 2


@pytest.mark.parametrize("ending", ["", ".json"])
def test_private_feed_url_is_revoked_with_the_links(
    app: Application, client: TestClient, alice: int, ending: str
) -> None:
    """Revocation or erasure ends it; until then it stays the same."""
    add_digest(app, alice, clock.utcnow(), [sample_digest.pick(1, "A Secret Choice")])
    old = private_path(app, alice)
    assert private_path(app, alice) == old
    with app.db.write() as session:
        subscribers.get(session, alice).link_epoch += 1
    new = private_path(app, alice)
    assert "A Secret Choice" in client.get(new + ending).text
    with app.db.write() as session:
        subscribers.erase(session, alice, clock.utcnow())
    for path in (old, new):
        answer = client.get(path + ending)
        assert answer.status_code == 410
        assert "A Secret Choice" not in answer.text


def test_private_feed_is_not_stored_or_indexed(app: Application, client: TestClient, alice: int) -> None:
    """It never answers 304."""
    path = private_path(app, alice)
    response = client.get(path)
    unchanged = client.get(path, headers={"If-None-Match": response.headers["etag"]})
    for answer in (response, unchanged):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-robots-tag"] == "noindex, nofollow"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_preferences_link_the_private_feed(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Both formats are linked."""
    page = client.get(link(Purpose.PREFERENCES, alice)).text
    assert f'href="{private_path(app, alice)}"' in page
    assert f'href="{private_path(app, alice)}.json"' in page


def test_direction_of_a_feed_entry(app: Application, client: TestClient, alice: int) -> None:
    """The text of a summary sets its direction, also in feed readers."""
    arabic = sample_digest.pick(4711, "نماذج", summary="تبلغ الدقة 95%.")
    add_digest(app, alice, clock.utcnow(), [arabic])
    (item,) = parse_json_feed(client.get(private_path(app, alice) + ".json"))["items"]
    assert '<p dir="auto">تبلغ الدقة 95%.' in item["content_html"]


def test_feed_entry_without_authors_and_links(app: Application, client: TestClient, alice: int) -> None:
    """It has no empty paragraphs."""
    bare = sample_digest.pick(4711, "Gone", authors="", organization="", url="", pdf_url="")
    add_digest(app, alice, clock.utcnow(), [bare])
    (item,) = parse_json_feed(client.get(private_path(app, alice) + ".json"))["items"]
    assert not re.search(r"<p[^>]*>\s*</p>", item["content_html"])
    assert len(re.findall("<p[ >]", item["content_html"])) == item["content_html"].count("</p>") == 2


def test_private_feed_keeps_papers_removed_from_the_archive(
    app: Application, client: TestClient, alice: int
) -> None:
    """The entry has the data of its digest."""
    add_digest(
        app, alice, clock.utcnow(), [sample_digest.pick(4711, "Gone", authors="Ada Lovelace and 3 more")]
    )
    with app.db.read() as session:
        assert session.get(Paper, 4711) is None
    (item,) = parse_json_feed(client.get(private_path(app, alice) + ".json"))["items"]
    assert item["authors"] == [{"name": "Ada Lovelace and 3 more"}]
