"""Test rate limits, client addresses, form origins and security headers."""

import re
import time
from datetime import datetime, timedelta

import pytest
import structlog
from fastapi.testclient import TestClient
from sqlalchemy.exc import DataError
from sqlmodel import select

from app import main
from app.application import Application
from app.errors import TooManyRequests
from app.storage import hit_counters
from app.storage.models import RateLimit
from app.web import security, templating
from app.web.rate_limits import RateLimiter
from app.web.visitors import first_untrusted_hop


def test_every_response_has_security_headers(client: TestClient) -> None:
    """Check pages, static files and errors of every kind."""
    for path in ("/", "/manage", "/static/style.css", "/nothing-here", "/confirm/forged", "/healthz"):
        answer = client.get(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert "unsafe-inline" not in answer.headers["content-security-policy"], path


@pytest.mark.parametrize(
    ("path", "function"),
    [("/subscription/secret", "app.clock.utcnow"), ("/api/v1/subscribers", "app.web.api.auth.authenticate")],
)
def test_values_that_the_database_refuses_are_not_logged(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, function: str
) -> None:
    """The error, the statement and the route are logged. Paths are not, because they may contain a link."""

    def refuse(*_: object) -> None:
        raise DataError("SELECT %(email)s", {"email": "alice@example.org"}, ValueError("alice@example.org"))

    monkeypatch.setattr(function, refuse)
    with structlog.testing.capture_logs() as logged:
        assert client.get(path, headers={"Authorization": "Bearer unknown"}).status_code == 422
    (entry,) = logged
    assert (entry["event"], entry["error"]) == ("the database refused a value", "ValueError")
    assert entry["statement"] == "SELECT %(email)s"
    assert entry["path"]
    assert "alice" not in str(entry)
    assert "secret" not in str(entry)


def test_no_hsts_on_plain_http(app: Application) -> None:
    """With HSTS, a service on localhost would become unreachable."""
    plain = app.settings.model_copy(update={"base_url": "http://127.0.0.1:8000"})
    assert "Strict-Transport-Security" not in security.headers(plain)


def test_pages_with_a_secret_in_their_url_send_no_referrer(client: TestClient) -> None:
    """Other pages send the origin, which our form checks need."""
    assert client.get("/confirm/forged").headers["referrer-policy"] == "no-referrer"
    assert client.get("/").headers["referrer-policy"] == "same-origin"


def test_pages_have_no_inline_or_external_resources(client: TestClient) -> None:
    """Pages contain nothing that the content security policy would block."""
    page = client.get("/").text
    assert "<style" not in page
    assert " style=" not in page
    assert " onclick" not in page
    assert 'src="http' not in page


@pytest.mark.once
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
def test_forms_from_other_origins_are_refused(
    client: TestClient, path: str, headers: dict[str, str], status: int
) -> None:
    """Another site cannot make its visitors request mail."""
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
def test_forwarded_address_is_trusted_only_from_own_proxies(
    chain: list[str], trusted: tuple[str, ...], visitor: str
) -> None:
    """A visitor can forge all entries before those that our proxies appended."""
    assert first_untrusted_hop(chain, trusted) == visitor


def test_rate_limit_is_per_key_and_expired_keys_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise memory would grow with each visitor and each request would scan all of them."""
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


def test_mail_limits_are_shared_between_processes(app: Application, now: datetime) -> None:
    """Refused requests do not count, so repeating them does not extend the wait."""
    hour = timedelta(hours=1)
    for _ in range(2):
        with app.db.write() as session:
            hit_counters.limit(session, "tests of key 1", 2, now, hour)
    for _ in range(3):
        with pytest.raises(TooManyRequests) as raised, app.db.write() as session:
            hit_counters.limit(session, "tests of key 1", 2, now + hour / 2, hour)
        assert raised.value.retry_after == 1800
    with app.db.read() as session:
        assert session.exec(select(RateLimit.hits)).one() == 2


def test_searches_are_limited_per_minute(client: TestClient) -> None:
    """A search without words counts as well, because its filters may read the whole archive."""
    client.app.state.capacity.visitors.searches = RateLimiter(5, 60)  # type: ignore[attr-defined]
    queries = ["?q=zebra", "?code=1", "?day=2026-11-20", "?page=9", "", "?code=1"]
    answers = [client.get(f"/search{query}") for query in queries]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 61
    assert "Please wait" in answers[-1].text


@pytest.mark.parametrize(
    "path",
    ["/", "/feed.atom", "/feed.json?interest=agents", "/sitemap.xml", "/robots.txt", "/healthz", "/nothing"],
)
def test_head_returns_the_headers_of_get(client: TestClient, path: str) -> None:
    """Feed readers and uptime monitors send HEAD requests."""
    get, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers == get.headers


def test_static_files_are_immutable_only_under_their_content_hash(client: TestClient) -> None:
    """During a rollout, an old process may be asked for a file that a new page links."""
    urls = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', client.get("/").text))
    assert len(urls) >= 4
    for url in urls:
        assert client.get(url).headers["cache-control"] == templating.IMMUTABLE
        path, _, _ = url.partition("?")
        for query in ("v=0123456789ab", "anything", url.partition("?")[2] + "&x"):
            assert client.get(f"{path}?{query}").headers["cache-control"] == "no-cache"


def test_an_oversized_form_is_refused(client: TestClient) -> None:
    """Refuse it before it is read into memory, with or without a Content-Length."""
    flood = b"interest=" + b"x" * security.MAX_FORM_BYTES
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/subscribe", content=flood, headers=kind).status_code == 413
    assert client.post("/subscribe", content=iter([flood]), headers=kind).status_code == 413


def test_internal_error_page_hides_the_cause(app: Application) -> None:
    """The page has the security headers and a link to continue."""
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
