"""Who asks, how often, from which page, and what every answer carries."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from app import main
from app.application import Application
from app.errors import TooManyRequests
from app.storage import rate_limits
from app.storage.models import RateLimit
from app.web import security, templating
from app.web.security import first_untrusted_hop
from app.web.work_limits import RateLimiter


def test_every_answer_carries_the_headers(client: TestClient) -> None:
    """Pages, files, and errors of every kind."""
    for path in ("/", "/manage", "/static/style.css", "/nothing-here", "/confirm/forged", "/healthz"):
        answer = client.get(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert "unsafe-inline" not in answer.headers["content-security-policy"], path


def test_plain_http_is_not_told_to_use_tls(app: Application) -> None:
    """A service on somebody's own machine would become unreachable."""
    plain = app.settings.model_copy(update={"base_url": "http://127.0.0.1:8000"})
    assert "Strict-Transport-Security" not in security.headers(plain)


def test_pages_with_a_secret_in_their_url_send_no_referrer(client: TestClient) -> None:
    """The others let our own forms say where they come from."""
    assert client.get("/confirm/forged").headers["referrer-policy"] == "no-referrer"
    assert client.get("/").headers["referrer-policy"] == "same-origin"


def test_nothing_on_a_page_is_inline_or_foreign(client: TestClient) -> None:
    """What the policy would block is not there to begin with."""
    page = client.get("/").text
    assert "<style" not in page
    assert " style=" not in page
    assert " onclick" not in page
    assert 'src="http' not in page


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site", "origin": "https://paperboy.test"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://paperboy.test"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 200),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/subscribe", "/manage"])
def test_a_form_is_taken_from_our_own_pages_only(
    client: TestClient, path: str, headers: dict[str, str], status: int
) -> None:
    """Another site cannot make its visitors ask for mail."""
    form = {"email": "carol@example.org", "interest": "robotics", "hour": "8", "zone": "UTC"}
    assert client.post(path, data=form, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("chain", "trusted", "visitor"),
    [
        (["203.0.113.9", "198.51.100.1"], (), "198.51.100.1"),
        (["203.0.113.9", "198.51.100.1"], ("198.51.100.1",), "203.0.113.9"),
        (["6.6.6.6", "203.0.113.9", "10.0.0.2", "10.0.0.1"], ("10.0.0.0/8",), "203.0.113.9"),
        (["10.0.0.3", "10.0.0.1"], ("10.0.0.0/8",), "10.0.0.3"),
        (["rubbish", "10.0.0.1"], ("10.0.0.0/8",), "10.0.0.1"),
        (["2001:db8::1", "::1"], ("::1",), "2001:db8::1"),
        (["::ffff:203.0.113.9", "::ffff:10.0.0.1"], ("10.0.0.0/8",), "203.0.113.9"),
        (["testclient"], ("10.0.0.0/8",), "testclient"),
        ([""], (), ""),
    ],
)
def test_a_forwarded_address_is_believed_as_far_as_our_proxies_wrote_it(
    chain: list[str], trusted: tuple[str, ...], visitor: str
) -> None:
    """Whatever a visitor puts in front of it is theirs to make up."""
    assert first_untrusted_hop(chain, trusted) == visitor


def test_names_are_limited_apart_and_forgotten_when_their_window_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list for each visitor stayed in memory for ever, and each request looked through all of them."""
    seconds = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    limiter = RateLimiter(2, 60)
    for number in range(1000):
        limiter.hit(f"198.51.100.{number}")
    seconds = 30.0
    limiter.hit("192.0.2.1")
    limiter.hit("192.0.2.1")
    for refused in (limiter.hit, limiter.check, limiter.hit):
        with pytest.raises(TooManyRequests) as raised:
            refused("192.0.2.1")
        assert raised.value.retry_after == 60
    limiter.check("192.0.2.2")
    seconds = 60.0
    limiter.check("192.0.2.2")
    assert list(vars(limiter)["_windows"]) == ["192.0.2.1"]
    seconds = 90.0
    limiter.hit("192.0.2.1")


def test_limits_that_guard_mail_are_shared_by_all_processes(app: Application, now: datetime) -> None:
    """What is refused is not counted, so who goes on asking does not wait for ever."""
    hour = timedelta(hours=1)
    for _ in range(2):
        with app.db.write() as session:
            rate_limits.limit(session, "tests of key 1", 2, now, hour)
    for _ in range(3):
        with pytest.raises(TooManyRequests) as raised, app.db.write() as session:
            rate_limits.limit(session, "tests of key 1", 2, now + hour / 2, hour)
        assert raised.value.retry_after == 1800
    with app.db.read() as session:
        assert session.exec(select(RateLimit.hits)).one() == 2


def test_searches_are_counted_by_the_minute(client: TestClient) -> None:
    """Nobody reads so fast; to look through the archive page by page is not counted."""
    client.app.state.capacity.search_limit = RateLimiter(2, 60)  # type: ignore[attr-defined]
    answers = [client.get("/search?q=zebra") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 61
    assert "Please wait a little" in answers[-1].text
    assert client.get("/search").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/feed.atom", "/feed.json?interest=agents", "/sitemap.xml", "/robots.txt", "/healthz", "/nothing"],
)
def test_head_is_answered_as_get_without_the_body(client: TestClient, path: str) -> None:
    """Feed readers and whoever watches a site look whether there is something, before they read it."""
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers == got.headers


def test_a_file_is_kept_for_ever_only_under_the_url_of_its_content(client: TestClient) -> None:
    """While a new version is rolled out, an old process is asked for what a new page names."""
    urls = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', client.get("/").text))
    assert len(urls) >= 4
    for url in urls:
        assert client.get(url).headers["cache-control"] == templating.IMMUTABLE
        path, _, _ = url.partition("?")
        for query in ("v=0123456789ab", "anything", url.partition("?")[2] + "&x"):
            assert client.get(f"{path}?{query}").headers["cache-control"] == "no-cache"


def test_an_oversized_form_is_refused(client: TestClient) -> None:
    """Before it is held in memory; with its length announced or without."""
    flood = b"interest=" + b"x" * security.MAX_FORM_BYTES
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/subscribe", content=flood, headers=kind).status_code == 413
    assert client.post("/subscribe", content=iter([flood]), headers=kind).status_code == 413


def test_an_error_inside_shows_nothing_of_it(app: Application) -> None:
    """A page with a way on, with the headers, and no trace of the cause."""
    site = main.create_app(app)

    @site.get("/broken")
    def broken() -> None:
        raise RuntimeError("the secret inside")

    with TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False) as client:
        answer = client.get("/broken")
    assert answer.status_code == 500
    assert "Something went wrong on our side" in answer.text
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
