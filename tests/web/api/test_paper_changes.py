"""Test the operations of the API that change papers, and the trial of a source."""

from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from app import pipeline
from app.application import Application
from app.papers.sources.http_client import HttpTransport
from app.storage.api_keys import Scope
from app.storage.models import Paper
from tests.conftest import NOW
from tests.papers.sources import responses
from tests.web.api.conftest import Call

AGENTS, VIDEO = "Language Agents that Plan", "Video Diffusion in Real Time"
ACTIONS = {
    "hide": None,
    "show": None,
    "reinstate": None,
    "pin": {"days": 3},
    "unpin": None,
    "merge": {"paper_id": 2},
    "split": {"row_id": 2},
}


def test_edit_and_take_back(
    paper_ids: dict[str, int], call: Call, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """Fields that are not named stay."""
    changes = {"title": "Agents", "authors": ["Mei Tanaka"], "published_on": "2026-11-01"}
    body = call("PATCH", "/papers/1", json=changes).json()
    assert {name: body[name] for name in changes} == changes
    assert (body["abstract"], body["author_count"]) == (f"{AGENTS}, at last.", 1)
    assert body["edited_fields"] == ["title", "authors", "published_on"]
    body = call("PATCH", "/papers/1", json={"title": None}).json()
    assert (body["title"], body["edited_fields"]) == (AGENTS, ["authors", "published_on"])
    assert audit_log() == [("write key", "paper.edit", "1")] * 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"title": ""}, 422),
        ({"titel": "x"}, 422),
        ({"published_on": 0}, 422),
        ({"code_url": "ftp://example.org"}, 422),
        ({}, 200),
    ],
)
def test_invalid_edits_are_refused(
    paper_ids: dict[str, int], call: Call, body: dict[str, object], status: int
) -> None:
    answer = call("PATCH", "/papers/1", json=body)
    assert answer.status_code == status
    if status == 422:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["errors"]
    assert call("GET", "/papers/1").json()["edited_fields"] == []


def test_hidden_paper_is_listed_and_not_public(
    paper_ids: dict[str, int], call: Call, client: object, site: FastAPI
) -> None:
    """Its public page, the search, feeds, days and the sitemap do not have it, even if they were cached."""
    get = client.get  # type: ignore[attr-defined]
    day, week = f"/day/{NOW:%Y-%m-%d}", f"/week/{NOW:%G-W%V}"
    feeds = "/feed.atom", f"{day}/feed.atom", f"{day}/feed.json"
    paths = ("/", day, week, *feeds, "/search", "/search?q=planning+agents")
    assert [path for path in paths if AGENTS in get(path).text] == [*paths]
    assert "/paper/1<" in get("/sitemap/papers-0.xml").text
    assert call("POST", "/papers/1/hide", json={"reason": "spam"}).json()["hidden_at"]
    assert call("POST", "/papers/1/hide").status_code == 409
    assert [paper["id"] for paper in call("GET", "/papers?hidden=true").json()["items"]] == [1]
    assert [paper["id"] for paper in call("GET", "/papers?hidden=false").json()["items"]] == [2]
    assert get("/paper/1").status_code == 410
    for path in paths:
        answer = get(path)
        assert answer.status_code == 200, path
        assert AGENTS not in answer.text, path
        assert VIDEO in answer.text or path in ("/", "/search?q=planning+agents"), path
    assert "/paper/1<" not in get("/sitemap/papers-0.xml").text
    assert call("POST", "/papers/1/show").json()["hidden_at"] is None
    assert call("POST", "/papers/1/show").status_code == 409
    assert get("/paper/1").status_code == 200


def test_reinstate(app: Application, paper_ids: dict[str, int], call: Call) -> None:
    assert call("POST", "/papers/1/reinstate").status_code == 409
    with app.db.write() as session:
        session.get_one(Paper, 1).withdrawn_at = NOW
    assert call("POST", "/papers/1/reinstate").json()["withdrawn_at"] is None


def test_pin_and_unpin(paper_ids: dict[str, int], call: Call) -> None:
    assert call("POST", "/papers/2/pin").json()["pinned_until"] == "2026-11-27T09:30:00Z"
    assert call("POST", "/papers/2/pin", json={"days": 1}).json()["pinned_until"] == "2026-11-21T09:30:00Z"
    assert call("POST", "/papers/2/pin", json={"days": 0}).status_code == 422
    assert [paper["id"] for paper in call("GET", "/papers?pinned=true").json()["items"]] == [2]
    assert [paper["id"] for paper in call("GET", "/papers?pinned=false").json()["items"]] == [1]
    assert call("POST", "/papers/2/unpin").json()["pinned_until"] is None
    assert call("POST", "/papers/2/unpin").status_code == 409


def test_merge_and_split(
    paper_ids: dict[str, int], call: Call, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    merged = call("POST", "/papers/2/merge", json={"paper_id": 1}).json()
    assert (merged["id"], [row["id"] for row in merged["rows"]]) == (1, [1, 2])
    assert call("POST", "/papers/2/merge", json={"paper_id": 1}).status_code == 409
    assert call("POST", "/papers/1/merge", json={"paper_id": 99}).status_code == 404
    assert call("POST", "/papers/1/split", json={}).status_code == 422
    assert call("POST", "/papers/1/split", json={"row_id": 1}).status_code == 404
    assert call("POST", "/papers/1/split", json={"doi": True}).status_code == 409
    split = call("POST", "/papers/1/split", json={"row_id": 2}).json()
    assert (split["paper"]["id"], split["split_off"]["id"]) == (1, 2)
    assert [len(split[name]["listings"]) for name in ("paper", "split_off")] == [1, 1]
    assert [action for _, action, _ in audit_log()] == ["paper.merge", "paper.split"]


@pytest.mark.parametrize(("action", "body"), ACTIONS.items())
def test_changes_need_the_scope_write(
    paper_ids: dict[str, int], call: Call, action: str, body: dict[str, int] | None
) -> None:
    for scope in (Scope.READ, Scope.SEND):
        assert call("POST", f"/papers/1/{action}", scope=scope, json=body).status_code == 403
    assert call("POST", f"/papers/99/{action}", json=body).status_code == 404


def test_deliveries_of_a_paper(app: Application, alice: int, paper_ids: dict[str, int], call: Call) -> None:
    """They say who got it and why."""
    pipeline.plan(app, NOW)
    body = call("GET", "/papers/1/deliveries").json()
    assert (body["states"], body["complete"]) == ({"pending": 1}, True)
    assert [(each["subscriber_id"], each["interest"]) for each in body["newest"]] == [
        (alice, "language agents")
    ]
    assert call("GET", "/papers/2/deliveries").json()["states"] == {}
    assert call("GET", "/papers/99/deliveries").status_code == 404
    with app.db.read() as session:
        assert session.get_one(Paper, 1).hidden_at is None


async def _resolve(host: str, port: int) -> list[str]:
    return ["93.184.215.14"]


async def _no_sleep(_seconds: float) -> None:
    """Return immediately instead of sleeping."""


def test_trial_of_a_source(site: FastAPI, app: Application, call: Call) -> None:
    """Nothing is stored, and a key needs the scope write."""
    answer = httpx.MockTransport(lambda _request: httpx.Response(200, text=responses.RSS))
    admin_api = next(route.app for route in site.routes if getattr(route, "path", "") == "/api")
    admin_api.state.paperboy = replace(app, http=HttpTransport(answer, _no_sleep, _resolve))
    feed = {"kind": "feed", "config": {"url": "https://lab.example/feed.xml"}}
    body = call("POST", "/sources/trial", json=feed).json()
    assert (body["new"], body["existing"], body["skipped"], body["error"]) == (2, 0, 1, "")
    assert body["papers"][0]["paper_id"] is None
    assert body["rejections"][0]["reason"] == "the entry has no title"
    assert call("POST", "/sources/trial", json=feed, scope=Scope.READ).status_code == 403
    assert call("POST", "/sources/trial", json={"kind": "page"}).status_code == 422
    assert call("GET", "/sources").json()["items"] == []
    assert call("GET", "/papers").json()["items"] == []


def test_polls_of_a_source(app: Application, call: Call) -> None:
    """A new source has none."""
    source = call(
        "POST", "/sources", json={"name": "Lab", "kind": "feed", "config": {"url": "https://lab.example/"}}
    ).json()
    assert call("GET", f"/sources/{source['id']}/polls").json() == {"items": []}
    assert call("GET", "/sources/99/polls").status_code == 404
