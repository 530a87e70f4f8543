"""Search engines, and programs that show a link, are told what is public, and nothing else."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from urllib.robotparser import RobotFileParser
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient

from app import clock
from app.application import Application
from app.delivery import ledger
from app.links import Purpose
from app.storage.models import Paper
from app.types import Digest, MailKind, Section
from app.web.pages import robots
from tests.support import factories, sample_digest
from tests.web.conftest import Link

NS = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9"}
CHANGED = datetime(2026, 11, 19, 12, tzinfo=UTC)


class Head(HTMLParser):
    """What a page says of itself: links by rel, and metas by name or property."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: dict[str, list[dict[str, str | None]]] = {}
        self.metas: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "link":
            self.links.setdefault(said["rel"] or "", []).append(said)
        if tag == "meta" and (name := said.get("name") or said.get("property")):
            assert name not in self.metas, f"{name} is there twice"
            self.metas[name] = said["content"] or ""


def shelve(app: Application, *titles: str, **fields: object) -> list[int]:
    """Papers of 19 November; their ids."""
    with app.db.write() as session:
        source = factories.source(session, CHANGED)
        return [factories.paper(session, source, one, CHANGED.date(), CHANGED, **fields) for one in titles]


def addresses(client: TestClient) -> dict[str, str]:
    """The day on which each address of the sitemap last changed."""
    answer = client.get("/sitemap.xml")
    assert answer.headers["content-type"] == "application/xml"
    root = ElementTree.fromstring(answer.content)  # noqa: S314 - our own
    return {
        url.findtext("s:loc", "", NS): url.findtext("s:lastmod", "", NS) for url in root.findall("s:url", NS)
    }


def test_the_sitemap_lists_all_that_is_public(app: Application, client: TestClient) -> None:
    """With the day of their last change; nothing that is withdrawn or was merged away."""
    kept, merged, gone = shelve(app, "Kept", "Merged", "Gone")
    with app.db.write() as session:
        session.get_one(Paper, merged).merged_into_id = kept
        session.get_one(Paper, gone).withdrawn_at = CHANGED
        session.get_one(Paper, kept).updated_at = CHANGED + timedelta(days=1)
    assert addresses(client) == {
        "https://paperboy.test/": "2026-11-20",
        "https://paperboy.test/day/2026-11-19": "2026-11-20",
        "https://paperboy.test/week/2026-W47": "2026-11-20",
        f"https://paperboy.test/paper/{kept}": "2026-11-20",
    }


def test_a_sitemap_holds_no_more_than_it_may(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest papers have the room that the days leave."""
    *_, last = shelve(app, "One", "Two", "Three")
    monkeypatch.setattr(robots, "MAX_URLS", 4)
    assert [*addresses(client)] == [
        "https://paperboy.test/",
        "https://paperboy.test/day/2026-11-19",
        "https://paperboy.test/week/2026-W47",
        f"https://paperboy.test/paper/{last}",
    ]


def test_a_site_without_papers_has_a_front_page(client: TestClient) -> None:
    """Which changed just now, as far as anybody knows."""
    assert addresses(client) == {"https://paperboy.test/": f"{clock.utcnow():%Y-%m-%d}"}


def test_the_sitemap_is_sent_again_only_when_it_has_changed(app: Application, client: TestClient) -> None:
    """It may be some megabytes."""
    shelve(app, "One")
    sent = client.get("/sitemap.xml")
    assert client.get("/sitemap.xml", headers={"If-None-Match": sent.headers["etag"]}).status_code == 304


def test_robots_keep_to_what_is_public(client: TestClient) -> None:
    """No interest anybody may think of, nothing of machines."""
    answer = client.get("/robots.txt")
    assert answer.headers["content-type"].startswith("text/plain")
    robots = RobotFileParser()
    robots.parse(answer.text.splitlines())
    assert robots.site_maps() == ["https://paperboy.test/sitemap.xml"]
    public = ["/", "/day/2026-11-19", "/paper/1", "/feed.atom", "/feed.json", "/day/2026-11-19/feed.atom"]
    assert [path for path in public if not robots.can_fetch("any", path)] == []
    looked_for = ["/search?q=agents", "/feed.atom?interest=agents", "/feed.json?interest=x"]
    closed = [*looked_for, "/api/v1/papers", "/hooks/ses", "/metrics", "/suggest"]
    assert [path for path in closed if robots.can_fetch("any", path)] == []


@pytest.mark.parametrize("purpose", Purpose)
def test_robots_may_learn_that_a_signed_link_is_not_to_be_listed(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose
) -> None:
    """Where it has leaked: a crawler that may not read a page lists its bare address all the same."""
    (paper,) = shelve(app, "One")
    day, now = f"{CHANGED:%Y-%m-%d}", clock.utcnow()
    with app.db.write() as session:
        digest = Digest(day, (Section("world models", (sample_digest.pick(paper, "One"),)),))
        sent = ledger.enqueue(
            session,
            subscriber_id=alice,
            kind=MailKind.DIGEST,
            edition=day,
            due_at=now,
            now=now,
            digest=digest,
        )
    path = link(purpose, alice, argument=paper if purpose is Purpose.FEEDBACK else sent)
    robots = RobotFileParser()
    robots.parse(client.get("/robots.txt").text.splitlines())
    assert robots.can_fetch("any", path)
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-robots-tag"] == "noindex, nofollow"


@pytest.mark.parametrize("path", ["/", "/day/2026-11-19", "/week/2026-W47", "/paper/1"])
def test_a_public_page_says_what_it_is(app: Application, client: TestClient, path: str) -> None:
    """Under one address, whatever was added to it; for search engines and for who shows a link to it."""
    shelve(app, 'A "Paper" & <More>', authors=["Ada Lovelace"])
    head = Head(client.get(path, params={"utm_source": "x"}).text)
    assert [link["href"] for link in head.links["canonical"]] == [f"https://paperboy.test{path}"]
    assert head.metas["og:url"] == f"https://paperboy.test{path}"
    assert head.metas["og:title"]
    assert head.metas["og:description"] == head.metas["description"]
    assert head.metas["og:type"] == ("article" if path.startswith("/paper/") else "website")
    assert head.metas["twitter:card"] == "summary_large_image"
    assert "robots" not in head.metas


@pytest.mark.parametrize("path", ["/manage", "/search", "/nothing"])
def test_other_pages_stay_out_of_search_engines(client: TestClient, path: str) -> None:
    """They say nothing to anybody who did not come on purpose."""
    head = Head(client.get(path).text)
    assert head.metas["robots"] == "noindex"
    assert "canonical" not in head.links
    assert not [name for name in head.metas if name.startswith("og:")]


def test_feeds_are_found_from_the_pages(app: Application, client: TestClient) -> None:
    """A feed reader is given the address of a page; all that it finds there works."""
    shelve(app, "One")
    for path, count in (("/", 2), ("/day/2026-11-19", 4)):
        alternates = Head(client.get(path).text).links["alternate"]
        assert len(alternates) == count
        for each in alternates:
            answer = client.get(each["href"] or "")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(each["type"] or "?")


def test_the_picture_of_the_site_is_there(client: TestClient) -> None:
    """In the size that is said of it."""
    metas = Head(client.get("/").text).metas
    picture = client.get(metas["og:image"].removeprefix("https://paperboy.test"))
    assert picture.headers["content-type"] == "image/png"
    width, height = struct.unpack(">II", picture.content[16:24])
    assert (metas["og:image:width"], metas["og:image:height"]) == (str(width), str(height))
