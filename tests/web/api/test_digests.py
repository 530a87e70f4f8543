"""Test the API for previews, test emails, explanations and backtests."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import main
from app.application import Application
from app.digests import planning
from app.settings import Settings
from app.storage.api_keys import Scope
from app.storage.models import Paper
from tests.conftest import NOW
from tests.support import factories
from tests.support.mail_server import MailServer
from tests.web.api.conftest import Call, admin_api

AGENTS = "Language Agents that Plan"


@pytest.fixture
def settings(settings: Settings, mail_server: MailServer) -> Settings:
    """Return settings that use the real SMTP server."""
    return settings.model_copy(update={"smtp_port": mail_server.port})


def preview_titles(preview: dict[str, Any]) -> list[str]:
    return [pick["title"] for section in preview["sections"] for pick in section["picks"]]


def test_preview_for_arbitrary_interests(paper_ids: dict[str, int], call: Call) -> None:
    """It includes the picks with their reasons and the rendered email."""
    response = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": "language agents"}]})
    assert response.status_code == 200, response.text
    preview = response.json()
    assert preview_titles(preview) == [AGENTS]
    assert (preview["skipped"], preview["considered"], preview["edition"]) == (None, 2, "2026-11-20")
    assert AGENTS in preview["html"]
    assert AGENTS in preview["text"]
    assert preview["sections"][0]["picks"][0]["reason"]


def test_preview_accepts_the_preferences_of_a_subscriber(paper_ids: dict[str, int], call: Call) -> None:
    """Values outside their limits are refused."""

    def preview(**preferences: object) -> dict[str, Any]:
        payload = {"interests": [{"text": "language agents"}], **preferences}
        answer: dict[str, Any] = call("POST", "/previews", scope=Scope.READ, json=payload).json()
        return answer

    assert AGENTS not in preview_titles(preview(muted=["author:nobody", "agents"]))
    few = preview(min_papers=3)
    assert ("than the minimum of 3" in few["skipped"], few["considered"]) == (True, 2)
    assert preview(muted=["the"])["errors"][0]["pointer"] == "/body/muted"
    assert preview(max_trending=31)["errors"][0]["pointer"] == "/body/max_trending"
    assert preview(max_trending=30)["skipped"] is None


def test_preview_uses_the_defaults_of_new_subscribers(
    app: Application, create_key: Callable[..., str]
) -> None:
    """A field that is left out has the value that a new subscriber would get."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        for title in ("Agents that Plan", "Agents that Act", "Agents that Rest"):
            factories.add_paper(session, source, title, NOW.date(), NOW)
    few = replace(app, settings=app.settings.model_copy(update={"default_max_papers": 2}))
    site = main.create_app(few)
    admin_api(site).state.clock = lambda: NOW
    key = {"Authorization": f"Bearer {create_key(Scope.READ)}"}
    body = {"interests": [{"text": "agents"}]}
    with TestClient(site) as client:
        for values, count in (({}, 2), ({"max_papers": 3}, 3)):
            answer = client.post("/api/v1/previews", json={**body, **values}, headers=key)
            assert len(preview_titles(answer.json())) == count


def test_preview_and_check_of_interests_give_hints(paper_ids: dict[str, int], call: Call) -> None:
    """Interests about which there is nothing to tell have none."""
    interests = [
        {"text": text}
        for text in ("langauge agents", "video", "beekeeping", "agents NOT video", "agents OR video")
    ]
    hints = call("POST", "/previews", scope=Scope.READ, json={"interests": interests}).json()["hints"]
    assert [(hint["interest"], hint["did_you_mean"]) for hint in hints] == [
        ("langauge agents", "language agents"),
        ("beekeeping", ""),
        ("agents NOT video", ""),
        ("agents OR video", ""),
    ]
    assert hints[0]["message"] == "Did you mean “language agents”? We search for both."
    assert hints[1]["missing_words"] == ["beekeeping"]
    assert (hints[2]["with_exclusion"], hints[2]["parts"]) == ("agents -video", [])
    assert hints[3]["parts"] == ["agents", "video"]
    checked = call("GET", "/interests/hint", scope=Scope.READ, params={"text": " langauge  agents"})
    assert checked.json() == hints[0]
    assert call("GET", "/interests/hint", scope=Scope.READ, params={"text": "video"}).json()["message"] == ""
    category = call("GET", "/interests/hint", scope=Scope.READ, params={"text": "cat:cs.R0"}).json()
    assert (category["with_filters"], category["message"]) == ("cat:cs.RO", "Did you mean “cat:cs.RO”?")
    refused = call("GET", "/interests/hint", scope=Scope.READ, params={"text": "?!"})
    assert (refused.status_code, "at least one word" in refused.text) == (422, True)
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/query/text"]


@pytest.mark.parametrize("text", ["", "?!", "x" * 400])
def test_preview_refuses_unsearchable_interests(text: str, call: Call) -> None:
    """The error is the same as at sign-up."""
    refused = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": text}]})
    assert refused.status_code == 422


@pytest.mark.parametrize("path", ["/previews", "/backtests"])
@pytest.mark.parametrize("wrong", [{"weight": -1e308}, {"weight": 0}, {"quota": -3}, {"quota": 0}])
def test_preview_limits_weights_as_sign_up_does(
    paper_ids: dict[str, int], call: Call, path: str, wrong: dict[str, float]
) -> None:
    payload = {"interests": [{"text": "agents"}, {"text": "video"} | wrong]}
    refused = call("POST", path, scope=Scope.READ, json=payload)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/body/interests/1"


def test_preview_without_papers_gives_the_reason(call: Call) -> None:
    preview = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": "agents"}]}).json()
    assert "the archive is still empty" in preview["skipped"]
    assert preview["sections"] == []


def test_subscriber_preview_excludes_papers_already_sent(
    app: Application, alice: int, paper_ids: dict[str, int], call: Call
) -> None:
    """It uses the code that plans digests, and writes nothing."""
    before = call("GET", f"/subscribers/{alice}/preview").json()
    assert preview_titles(before) == [AGENTS]
    assert call("GET", "/deliveries").json()["items"] == []
    planning.plan(app.digest_context, NOW)
    after = call("GET", f"/subscribers/{alice}/preview").json()
    assert preview_titles(after) == []
    assert (after["skipped"], after["considered"]) == ("the one recent paper matched no interest", 1)
    assert call("GET", "/subscribers/99/preview").status_code == 404


def test_test_mail_goes_only_to_the_given_address(
    alice: int,
    paper_ids: dict[str, int],
    call: Call,
    mail_server: MailServer,
    audit_log: Callable[[], list[tuple[str, str, str]]],
) -> None:
    """The subscriber's digest stays due, and the links in the test email belong to nobody."""
    path = f"/subscribers/{alice}/test-send"
    response = call("POST", path, scope=Scope.SEND, json={"to": "me@example.org"})
    assert response.json()["outcome"] == "accepted", response.text
    (mail,) = mail_server.messages
    assert mail.recipient == "me@example.org"
    assert AGENTS in mail.parsed().get_body(("plain",)).get_content()
    assert mail.parsed()["Subject"].startswith("Test: ")
    assert "This is a test email." in mail.parsed().get_body(("plain",)).get_content()
    assert "alice" not in mail.data.decode()
    assert call("GET", "/deliveries").json()["items"] == []
    assert audit_log() == [("send key", "digest.test", str(alice))]


def test_refused_test_mail_returns_the_relay_reply(
    alice: int, paper_ids: dict[str, int], call: Call, mail_server: MailServer
) -> None:
    mail_server.reply("rcpt", "550 5.1.1 no such user")
    response = call(
        "POST", f"/subscribers/{alice}/test-send", scope=Scope.SEND, json={"to": "me@example.org"}
    )
    assert (response.json()["outcome"], response.json()["code"]) == ("hard_bounce", 550)


def test_test_mails_are_rate_limited(
    alice: int, paper_ids: dict[str, int], call: Call, mail_server: MailServer
) -> None:
    """A leaked key cannot be used to send bulk mail."""
    path = f"/subscribers/{alice}/test-send"
    answers = [call("POST", path, scope=Scope.SEND, json={"to": "me@example.org"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert answers[-1].json()["detail"] == (
        "Too many requests. Please wait 60 minutes, then send the request again."
    )
    assert answers[-1].headers["retry-after"] == "3600"
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].headers["content-type"] == "application/problem+json"
    assert len(mail_server.messages) == 5


def test_test_mail_without_picks_is_a_conflict(alice: int, call: Call) -> None:
    """The response gives the reason for which there would be no digest."""
    refused = call("POST", f"/subscribers/{alice}/test-send", scope=Scope.SEND, json={"to": "me@example.org"})
    assert refused.status_code == 409


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_preview_of_a_day_out_of_range_is_refused(day: str, call: Call) -> None:
    answer = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": "agents"}], "day": day})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/body/day"


def test_explanation_contains_all_scores(alice: int, paper_ids: dict[str, int], call: Call) -> None:
    """It includes the sentence, each interest's scores and the paper's rank, also for another time."""
    path = f"/subscribers/{alice}/explain/{paper_ids[AGENTS]}"
    response = call("GET", path)
    assert response.status_code == 200, response.text
    explained = response.json()
    assert explained["verdict"].startswith("Would be sent in the next digest")
    assert explained["interests"][0]["interest"]["text"] == "language agents"
    assert explained["interests"][0]["details"]["relevance"] > explained["floor"]
    assert explained["interests"][0]["weighted"] == explained["rank"]["breakdown"]["relevance"]
    assert explained["rank"]["outcome"] == "picked"
    earlier = call("GET", path, params={"at": "2026-11-19T08:00:00Z"}).json()
    assert earlier["verdict"] == "Not sent: no source lists it before 2026-11-20."


def test_explanation_uses_the_subscribers_time_zone(
    alice: int, paper_ids: dict[str, int], call: Call
) -> None:
    """In Kiritimati it is the 20th already while the papers of the 19th are being listed."""
    path = f"/subscribers/{alice}/explain/{paper_ids[AGENTS]}"
    body = call("GET", path, params={"at": "2026-11-20T01:00:00+14:00"}).json()
    assert body["verdict"] == "Not sent: no source lists it before 2026-11-20."
    assert body["at"] == "2026-11-19T11:00:00Z"


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "1900-01-01T00:00:00Z", "9999-12-31T23:00:00Z"])
def test_explanation_at_a_time_out_of_range_is_refused(
    at: str, alice: int, paper_ids: dict[str, int], call: Call
) -> None:
    """The error names the parameter."""
    refused = call("GET", f"/subscribers/{alice}/explain/{paper_ids[AGENTS]}", params={"at": at})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/query/at"


@pytest.mark.parametrize(
    "name",
    ["2611.00001", "2611.00001v3", "https://arxiv.org/abs/2611.00001", "10.1000/Agents", "10.1000%2Fagents"],
)
def test_explanation_accepts_arxiv_id_doi_and_url(
    app: Application, alice: int, paper_ids: dict[str, int], call: Call, name: str
) -> None:
    with app.db.write() as session:
        row = session.get(Paper, paper_ids[AGENTS])
        assert row
        row.arxiv_id, row.doi = "2611.00001", "10.1000/agents"
    response = call("GET", f"/subscribers/{alice}/explain/{name}")
    assert response.status_code == 200, response.text
    assert response.json()["paper"]["id"] == paper_ids[AGENTS]


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("/subscribers/99/explain/1", "There is no such subscriber."),
        ("/subscribers/1/explain/99", "There is no paper 99 in the archive."),
        ("/subscribers/1/explain/2611.99999", "There is no paper 2611.99999 in the archive."),
        ("/subscribers/1/explain/10.1000/none", "There is no paper 10.1000/none in the archive."),
        ("/subscribers/1/explain/%00%20", "There is no paper"),
    ],
)
def test_explanation_of_unknown_subscriber_or_paper(
    alice: int, paper_ids: dict[str, int], call: Call, path: str, missing: str
) -> None:
    assert alice == 1
    response = call("GET", path)
    assert response.status_code == 404
    assert missing in response.json()["detail"]


def test_backtest_returns_a_digest_or_a_reason_for_each_day(paper_ids: dict[str, int], call: Call) -> None:
    payload = {"interests": [{"text": "language agents"}], "days": 2}
    response = call("POST", "/backtests", scope=Scope.READ, json=payload)
    assert response.status_code == 200, response.text
    yesterday, today = response.json()["items"]
    assert (yesterday["skipped"], yesterday["sections"]) == ("no new papers", [])
    assert (preview_titles(today), today["edition"], today["considered"]) == ([AGENTS], "2026-11-20", 2)
    earlier = call("POST", "/backtests", scope=Scope.READ, json=payload | {"at": "2026-11-20T01:00:00+14:00"})
    assert [day["edition"] for day in earlier.json()["items"]] == ["2026-11-18", "2026-11-19"]
    too_early = call("POST", "/backtests", scope=Scope.READ, json=payload | {"at": "1900-01-01T00:00:00Z"})
    assert (too_early.status_code, too_early.json()["errors"][0]["pointer"]) == (422, "/body/at")


@pytest.mark.parametrize(
    "wrong", [{"days": 0}, {"days": 61}, {"interests": [{"text": "?!"}]}, {"interests": []}]
)
def test_backtest_limits(call: Call, wrong: dict[str, Any]) -> None:
    """Requests out of range are refused before any matching."""
    payload = {"interests": [{"text": "agents"}]} | wrong
    assert call("POST", "/backtests", scope=Scope.READ, json=payload).status_code == 422
