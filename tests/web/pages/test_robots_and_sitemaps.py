"""Test the sitemap, robots.txt and page metadata: only public pages may be indexed."""

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
from app.web import http_cache
from app.web.pages import robots_and_sitemaps
from app.web.rate_limits import RateLimiter
from tests.support import factories, sample_digest
from tests.web.conftest import Link

NS = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9"}
CHANGED = datetime(2026, 11, 19, 12, tzinfo=UTC)


class HeadParser(HTMLParser):
    """Collects the links of a page by rel and its metas by name or property."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: dict[str, list[dict[str, str | None]]] = {}
        self.metas: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "link":
            self.links.setdefault(attributes["rel"] or "", []).append(attributes)
        if tag == "meta" and (name := attributes.get("name") or attributes.get("property")):
            assert name not in self.metas, f"{name} is there twice"
            self.metas[name] = attributes["content"] or ""


def add_papers(app: Application, *titles: str, **fields: object) -> list[int]:
    """Add papers of 19 November and return their ids."""
    with app.db.write() as session:
        source = factories.add_source(session, CHANGED)
        return [
            factories.add_paper(session, source, title, CHANGED.date(), CHANGED, **fields) for title in titles
        ]


def sitemap_entries(client: TestClient, path: str, tag: str = "url") -> dict[str, str]:
    """Return each URL of a sitemap with its last modification."""
    answer = client.get(path)
    assert answer.headers["content-type"] == "application/xml"
    root = ElementTree.fromstring(answer.content)  # noqa: S314 - our own
    return {
        url.findtext("s:loc", "", NS): url.findtext("s:lastmod", "", NS)
        for url in root.findall(f"s:{tag}", NS)
    }


def all_entries(client: TestClient) -> dict[str, str]:
    """Return the entries of all sitemaps of the index."""
    entries = {}
    for url in sitemap_entries(client, "/sitemap.xml", "sitemap"):
        entries |= sitemap_entries(client, url.removeprefix("https://paperboy.test"))
    return entries


def test_sitemaps_list_all_public_pages(app: Application, client: TestClient) -> None:
    """Withdrawn and merged papers are left out."""
    listed, merged, withdrawn = add_papers(app, "Kept", "Merged", "Gone")
    with app.db.write() as session:
        session.get_one(Paper, merged).merged_into_id = listed
        session.get_one(Paper, withdrawn).withdrawn_at = CHANGED
        session.get_one(Paper, listed).updated_at = CHANGED + timedelta(days=1)
    assert all_entries(client) == {
        "https://paperboy.test/": "2026-11-20",
        "https://paperboy.test/day/2026-11-19": "2026-11-20",
        "https://paperboy.test/week/2026-W47": "2026-11-20",
        f"https://paperboy.test/paper/{listed}": "2026-11-20",
    }


def test_sitemaps_are_limited_in_size(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large archive has several. A paper stays in its own."""
    monkeypatch.setattr(robots_and_sitemaps, "MAX_URLS", 4)
    ids = add_papers(app, *map(str, range(9)))
    parts = [*sitemap_entries(client, "/sitemap.xml", "sitemap")][1:]
    assert parts == [f"https://paperboy.test/sitemap/papers-{part}.xml" for part in range(3)]
    listed = [[*sitemap_entries(client, f"/sitemap/papers-{part}.xml")] for part in range(3)]
    assert max(map(len, listed)) == 4
    assert sorted(url for urls in listed for url in urls) == [
        f"https://paperboy.test/paper/{number}" for number in ids
    ]


def test_sitemaps_leave_the_cached_feeds(app: Application, client: TestClient) -> None:
    """A sitemap that does not exist is not found, and the others have their own small cache."""
    add_papers(app, "One")
    for part, status in (("days", 200), ("papers-0", 200), ("papers-1", 404), ("papers-200", 404)):
        assert client.get(f"/sitemap/{part}.xml").status_code == status
    state = client.app.state  # type: ignore[attr-defined]
    assert not state.feed_cache._responses
    assert client.get("/sitemap.xml").status_code == 200
    assert len(state.sitemap_cache._responses) == http_cache.MAX_SITEMAPS


def test_building_sitemaps_is_rate_limited(app: Application, client: TestClient) -> None:
    client.app.state.capacity.visitors.pages = RateLimiter(1, 60)  # type: ignore[attr-defined]
    paths = "/sitemap.xml", "/sitemap.xml", "/sitemap/days.xml"
    assert [client.get(path).status_code for path in paths] == [200, 200, 429]


def test_sitemap_without_papers_lists_the_front_page(client: TestClient) -> None:
    assert all_entries(client) == {"https://paperboy.test/": f"{clock.utcnow():%Y-%m-%d}"}


def test_unchanged_sitemap_returns_304(app: Application, client: TestClient) -> None:
    """It can be several megabytes."""
    add_papers(app, "One")
    response = client.get("/sitemap/papers-0.xml")
    assert (
        client.get("/sitemap/papers-0.xml", headers={"If-None-Match": response.headers["etag"]}).status_code
        == 304
    )


def test_robots_txt_allows_only_public_pages(client: TestClient) -> None:
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


@pytest.mark.once
@pytest.mark.parametrize("purpose", Purpose)
def test_robots_may_fetch_signed_links_to_see_noindex(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose
) -> None:
    """A crawler that may not fetch a leaked link would list its URL."""
    (paper,) = add_papers(app, "One")
    day, now = f"{CHANGED:%Y-%m-%d}", clock.utcnow()
    with app.db.write() as session:
        digest = Digest(day, (Section("world models", (sample_digest.pick(paper, "One"),)),))
        delivery = ledger.enqueue(
            session,
            subscriber_id=alice,
            kind=MailKind.DIGEST,
            edition=day,
            due_at=now,
            now=now,
            digest=digest,
        )
    path = link(purpose, alice, argument=paper if purpose is Purpose.FEEDBACK else delivery)
    robots = RobotFileParser()
    robots.parse(client.get("/robots.txt").text.splitlines())
    assert robots.can_fetch("any", path)
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-robots-tag"] == "noindex, nofollow"


@pytest.mark.parametrize("path", ["/", "/day/2026-11-19", "/week/2026-W47", "/paper/1"])
def test_public_pages_have_canonical_url_and_metadata(
    app: Application, client: TestClient, path: str
) -> None:
    """Query parameters do not change the canonical URL."""
    add_papers(app, 'A "Paper" & <More>', authors=["Ada Lovelace"])
    head = HeadParser(client.get(path, params={"utm_source": "x"}).text)
    assert [link["href"] for link in head.links["canonical"]] == [f"https://paperboy.test{path}"]
    assert head.metas["og:url"] == f"https://paperboy.test{path}"
    assert head.metas["og:title"]
    assert head.metas["og:description"] == head.metas["description"]
    assert head.metas["og:type"] == ("article" if path.startswith("/paper/") else "website")
    assert head.metas["twitter:card"] == "summary_large_image"
    assert "robots" not in head.metas


@pytest.mark.parametrize("path", ["/manage", "/search", "/nothing"])
def test_other_pages_are_noindex(client: TestClient, path: str) -> None:
    head = HeadParser(client.get(path).text)
    assert head.metas["robots"] == "noindex"
    assert "canonical" not in head.links
    assert not [name for name in head.metas if name.startswith("og:")]


def test_pages_link_working_feeds(app: Application, client: TestClient) -> None:
    """Feed readers discover the feeds of a page."""
    add_papers(app, "One")
    for path, count in (("/", 2), ("/day/2026-11-19", 4)):
        alternates = HeadParser(client.get(path).text).links["alternate"]
        assert len(alternates) == count
        for each in alternates:
            answer = client.get(each["href"] or "")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(each["type"] or "?")


def test_site_image_has_the_declared_size(client: TestClient) -> None:
    metas = HeadParser(client.get("/").text).metas
    picture = client.get(metas["og:image"].removeprefix("https://paperboy.test"))
    assert picture.headers["content-type"] == "image/png"
    width, height = struct.unpack(">II", picture.content[16:24])
    assert (metas["og:image:width"], metas["og:image:height"]) == (str(width), str(height))
