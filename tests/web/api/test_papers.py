"""The archive, the sources that fill it, and the runs that tell how."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sqlmodel import select

from app.application import Application
from app.papers import ingest, source_registry
from app.storage import job_runs
from app.storage.models import Merge, Source
from app.types import PaperRecord, ParseResult, Rejection, SourceKind
from app.web.api import sources as api_sources
from tests.conftest import NOW
from tests.web.api.conftest import Call

AGENTS, VIDEO = "Language Agents that Plan", "Video Diffusion in Real Time"
FEED = {"name": "A lab's blog", "kind": "feed", "config": {"url": "https://lab.example/feed.xml"}}


def test_papers_are_searched_by_words_day_and_source(shelf: dict[str, int], call: Call) -> None:
    """All words must be there; what looks like a pattern is only text."""
    assert [each["title"] for each in call("GET", "/papers").json()["items"]] == [VIDEO, AGENTS]
    assert [each["id"] for each in call("GET", "/papers?q=plan+agents").json()["items"]] == [shelf[AGENTS]]
    for nothing in (
        "q=agents+video",
        "q=%25",
        "q=_",
        "day=2026-11-19",
        "source_id=99",
        "arxiv_id=2511.00001",
    ):
        assert call("GET", f"/papers?{nothing}").json()["items"] == []
    assert len(call("GET", "/papers?day=2026-11-20&source_id=1").json()["items"]) == 2
    first = call("GET", "/papers?limit=1").json()
    assert (
        call("GET", "/papers", params={"cursor": first["next_cursor"]}).json()["items"][0]["title"] == AGENTS
    )


@pytest.mark.parametrize("q", ["'; DROP TABLE paper; --", '" OR 1=1', "\x00", "\\", "é" * 300])
def test_hostile_words_are_words(q: str, shelf: dict[str, int], call: Call) -> None:
    """No parameter ever becomes SQL."""
    assert call("GET", "/papers", params={"q": q}).status_code in (200, 422)
    assert len(call("GET", "/papers").json()["items"]) == 2


def test_one_paper_shows_where_it_was_seen(shelf: dict[str, int], call: Call) -> None:
    """With its listings and its votes over time."""
    shown = call("GET", f"/papers/{shelf[AGENTS]}").json()
    assert [each["listed_on"] for each in shown["listings"]] == ["2026-11-20"]
    assert [each["upvotes"] for each in shown["votes"]] == [10]
    assert shown["sources"] == ["Hugging Face Daily Papers"]
    assert call("GET", "/papers/99").status_code == 404


@pytest.fixture
def merge_id(app: Application) -> int:
    """A paper that a saved page showed without an id, and then Hugging Face with one."""
    with app.db.write() as session:
        page = Source(name="pages", kind=SourceKind.PAGE, created_at=NOW)
        hub = Source(name="hub", kind=SourceKind.HUGGINGFACE, created_at=NOW)
        session.add_all([page, hub])
        session.flush()
        bare = PaperRecord(AGENTS, abstract="They plan.", listed_on=NOW.date())
        ingest.store(session, page, ParseResult(1, (bare,)), NOW)
        known = PaperRecord(AGENTS, arxiv_id="2511.01234", abstract="They plan.", listed_on=NOW.date())
        ingest.store(session, hub, ParseResult(1, (known,)), NOW)
        return session.exec(select(Merge.id)).one() or 0


def test_a_merge_is_shown_and_undone(
    merge_id: int, call: Call, audited: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """One paper becomes two again, each with what was seen of it."""
    (merge,) = call("GET", "/merges?undone=false").json()["items"]
    assert merge["id"] == merge_id
    for paper_id in (merge["survivor_id"], merge["absorbed_id"]):
        shown = call("GET", f"/papers/{paper_id}").json()
        assert (shown["id"], shown["arxiv_id"]) == (merge["survivor_id"], "2511.01234")
        assert [each["id"] for each in shown["merges"]] == [merge_id]
    assert len(call("GET", "/papers?arxiv_id=2511.01234").json()["items"]) == 1
    undone = call("POST", f"/merges/{merge_id}/undo").json()
    assert undone["undone_at"] == "2026-11-20T09:30:00Z"
    assert len(call("GET", "/papers").json()["items"]) == 2
    assert call("POST", f"/merges/{merge_id}/undo").status_code == 409
    assert call("POST", "/merges/99/undo").status_code == 404
    assert call("GET", "/merges?undone=false").json()["items"] == []
    assert audited() == [("write key", "merge.undo", str(merge_id))]


def test_a_source_is_added_changed_paused_and_resumed(
    call: Call, audited: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """It is due at once, and begins anew when it is asked for something else."""
    added = call("POST", "/sources", json=FEED)
    assert added.status_code == 201, added.text
    source = added.json()
    assert source["next_poll_at"] == "2026-11-20T09:30:00Z"
    path = f"/sources/{source['id']}"
    assert call("PATCH", path, json={"name": "The lab"}).json()["name"] == "The lab"
    moved = call("PATCH", path, json={"config": {"url": "https://lab.example/new.xml"}}).json()
    assert moved["config"]["url"] == "https://lab.example/new.xml"
    assert call("POST", f"{path}/pause").json()["paused"]
    assert not call("POST", f"{path}/resume").json()["paused"]
    assert call("GET", path).json()["name"] == "The lab"
    assert [each["name"] for each in call("GET", "/sources").json()["items"]] == ["The lab"]
    assert [action for _, action, _ in audited()] == [
        "source.add",
        "source.change",
        "source.change",
        "source.pause",
        "source.resume",
    ]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"kind": "page", "config": {}}, 422),
        ({"kind": "gopher"}, 422),
        ({"name": ""}, 422),
        ({"name": "x\r\ny"}, 422),
        ({"config": {}}, 422),
        ({"config": {"url": "file:///etc/passwd"}}, 422),
        ({"config": {"url": "https://user:pass@lab.example/"}}, 422),
        ({"config": {"url": "https://lab.example/", "colour": "red"}}, 422),
        ({"kind": "arxiv", "config": {"categories": ["cs.CL OR all:x"]}}, 422),
        ({"kind": "arxiv_feed", "config": {"query": "cat:cs.CL"}}, 422),
        ({}, 409),
    ],
)
def test_a_source_that_could_not_be_asked_is_refused(
    change: dict[str, object], status: int, call: Call
) -> None:
    """At once, rather than by failing every hour."""
    call("POST", "/sources", json=FEED)
    refused = call("POST", "/sources", json=FEED | change)
    assert refused.status_code == status, refused.text
    assert len(call("GET", "/sources").json()["items"]) == 1


def test_refreshing_answers_at_once_and_leaves_a_run(
    app: Application, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came of it is among the runs; a failure of it is no failure of the request."""
    asked: list[int | None] = []

    def refresh(_app: Application, _now: object, *, source_id: int | None = None) -> None:
        asked.append(source_id)
        raise ConnectionError("the upstream is away")

    monkeypatch.setattr(api_sources.pipeline, "refresh", refresh)
    source_id = call("POST", "/sources", json=FEED).json()["id"]
    assert call("POST", f"/sources/{source_id}/refresh").status_code == 202
    assert asked == [source_id]
    assert call("POST", "/sources/99/refresh").status_code == 404


def test_runs_are_found_by_job_and_outcome(app: Application, call: Call) -> None:
    """Each with its counts, one with every row it rejected."""
    with job_runs.record(app.db, "ingest", NOW) as good:
        good.add({"rows": 2, "rejected": 1})
        good.reject([Rejection("no title", 2, origin="a.json")])
    with job_runs.record(app.db, "refresh", NOW) as bad:
        bad.fail("arxiv", "it answered 503")
    assert [each["id"] for each in call("GET", "/runs").json()["items"]] == [bad.id, good.id]
    assert [each["id"] for each in call("GET", "/runs?failed=true").json()["items"]] == [bad.id]
    assert [each["id"] for each in call("GET", "/runs?failed=false&job=ingest").json()["items"]] == [good.id]
    shown = call("GET", f"/runs/{good.id}").json()
    assert shown["counts"] == {"rows": 2, "rejected": 1}
    assert shown["rejections"] == [{"origin": "a.json", "row": 2, "reason": "no title", "detail": ""}]


def test_statistics_count_what_there_is(
    app: Application, alice: int, shelf: dict[str, int], call: Call
) -> None:
    """States without anybody are there with nought, so that a chart has all its lines."""
    with app.db.write() as session:
        source_registry.all_sources(session)[0].failures = 2
    told = call("GET", "/statistics").json()
    assert told["at"] == "2026-11-20T09:30:00Z"
    assert (told["subscribers"]["active"], told["subscribers"]["pending"]) == (1, 0)
    assert (told["papers"], told["interests"]) == (2, 1)
    assert told["papers_per_day"] == [{"day": "2026-11-20", "count": 2}]
    assert (told["sources"], told["sources_failing"]) == (1, 1)
    assert set(told["digests"]) >= {"sent", "deferred", "uncertain"}
    assert told["digest_lateness_seconds"] == 0


def test_changes_are_found_by_who_and_what(call: Call) -> None:
    """Whoever wonders why a source is silent finds out who paused it."""
    source_id = call("POST", "/sources", json=FEED).json()["id"]
    call("POST", f"/sources/{source_id}/pause")
    paused, added = call("GET", "/audit-log").json()["items"]
    assert (paused["action"], paused["actor"], paused["subject"]) == (
        "source.pause",
        "write key",
        FEED["name"],
    )
    assert added["detail"] == {"kind": "feed"}
    assert call("GET", "/audit-log?action=source.add&actor=write+key").json()["items"] == [added]
    assert call("GET", "/audit-log?actor=nobody").json()["items"] == []


def test_no_key_lets_a_feed_lead_inside(call: Call) -> None:
    """Neither a new source nor a changed one: the operator's settings do."""
    inside = {"name": "Wiki", "kind": "feed", "config": {"url": "http://10.0.0.7/", "allow_private": True}}
    told = call("POST", "/sources", json=inside)
    assert (told.status_code, "PAPERBOY_ALLOW_PRIVATE_SOURCES" in told.text) == (422, True)
    source_id = call("POST", "/sources", json=FEED).json()["id"]
    assert call("PATCH", f"/sources/{source_id}", json={"config": inside["config"]}).status_code == 422
    assert call("GET", f"/sources/{source_id}").json()["config"] == FEED["config"]


def test_a_source_of_files_cannot_be_refreshed(app: Application, call: Call) -> None:
    """That is told in the answer, not only in a log."""
    with app.db.write() as session:
        source_id = source_registry.source_for_files(session, SourceKind.PAGE, NOW).id
    assert call("POST", f"/sources/{source_id}/refresh").status_code == 409


@pytest.mark.parametrize(
    ("kind", "config"), [("arxiv", {"query": "\ud800"}), ("feed", {"url": "https://lab.example/\ud800"})]
)
def test_text_that_is_no_text_cannot_break_the_list(kind: str, config: dict[str, str], call: Call) -> None:
    """Half a character cannot be written out again: no list of sources could be shown any more."""
    wanted = json.dumps({"name": "Half", "kind": kind, "config": config})
    assert call("POST", "/sources", content=wanted).status_code == 422
    assert call("GET", "/sources").status_code == 200
