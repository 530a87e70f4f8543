"""What a digest would be can be seen, and sent to oneself, without anybody else noticing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.application import Application
from app.digests import planning
from app.settings import Settings
from app.storage.models import Paper, Scope
from tests.conftest import NOW
from tests.support.mail_server import MailServer
from tests.web.api.conftest import Call

AGENTS = "Language Agents that Plan"


@pytest.fixture
def settings(settings: Settings, mail_server: MailServer) -> Settings:
    """The relay is a real server."""
    return settings.model_copy(update={"smtp_port": mail_server.port})


def titles(preview: dict[str, Any]) -> list[str]:
    return [pick["title"] for section in preview["sections"] for pick in section["picks"]]


def test_a_preview_for_any_interests(shelf: dict[str, int], call: Call) -> None:
    """The picks with their reasons, and the mail as it would look."""
    shown = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": "language agents"}]})
    assert shown.status_code == 200, shown.text
    preview = shown.json()
    assert titles(preview) == [AGENTS]
    assert (preview["skipped"], preview["considered"], preview["edition"]) == (None, 2, "2026-11-20")
    assert AGENTS in preview["html"]
    assert AGENTS in preview["text"]
    assert preview["sections"][0]["picks"][0]["reason"]


def test_a_preview_takes_what_a_reader_may_choose(shelf: dict[str, int], call: Call) -> None:
    """And what they may not is told."""

    def shown(**chosen: object) -> dict[str, Any]:
        wanted = {"interests": [{"text": "language agents"}], **chosen}
        answer: dict[str, Any] = call("POST", "/previews", scope=Scope.READ, json=wanted).json()
        return answer

    assert AGENTS not in titles(shown(muted=["author:nobody", "agents"]))
    assert "at least 3 papers" in shown(min_papers=3)["skipped"]
    assert shown(muted=["the"])["errors"][0]["pointer"] == "/body/muted"
    assert shown(max_trending=31)["errors"][0]["pointer"] == "/body/max_trending"
    assert shown(max_trending=30)["skipped"] is None


@pytest.mark.parametrize("text", ["", "?!", "x" * 400])
def test_a_preview_refuses_what_cannot_be_searched_for(text: str, call: Call) -> None:
    """The same answer as at sign-up."""
    refused = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": text}]})
    assert refused.status_code == 422


@pytest.mark.parametrize("path", ["/previews", "/backtests"])
@pytest.mark.parametrize("wrong", [{"weight": -1e308}, {"weight": 0}, {"quota": -3}, {"quota": 0}])
def test_an_interest_weighs_as_much_as_at_sign_up(
    shelf: dict[str, int], call: Call, path: str, wrong: dict[str, float]
) -> None:
    """A digest that no reader could get is foretold to nobody."""
    wanted = {"interests": [{"text": "agents"}, {"text": "video"} | wrong]}
    refused = call("POST", path, scope=Scope.READ, json=wanted)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/body/interests/1"


def test_without_papers_the_preview_says_why_not(call: Call) -> None:
    """Silence is explained."""
    preview = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": "agents"}]}).json()
    assert "The archive is still empty" in preview["skipped"]
    assert preview["sections"] == []


def test_a_readers_preview_leaves_out_what_they_had(
    app: Application, alice: int, shelf: dict[str, int], call: Call
) -> None:
    """It is planned by the same code as the digest itself, and writes nothing."""
    before = call("GET", f"/subscribers/{alice}/preview").json()
    assert titles(before) == [AGENTS]
    assert call("GET", "/deliveries").json()["items"] == []
    planning.plan(app.digest_context, NOW)
    after = call("GET", f"/subscribers/{alice}/preview").json()
    assert titles(after) == []
    assert after["skipped"]
    assert call("GET", "/subscribers/99/preview").status_code == 404


def test_a_test_goes_to_the_given_address_only(
    alice: int,
    shelf: dict[str, int],
    call: Call,
    mail_server: MailServer,
    audited: Callable[[], list[tuple[str, str, str]]],
) -> None:
    """The reader's digest stays due, and the links in the test are nobody's."""
    path = f"/subscribers/{alice}/test-send"
    sent = call("POST", path, scope=Scope.SEND, json={"to": "me@example.org"})
    assert sent.json()["outcome"] == "accepted", sent.text
    (mail,) = mail_server.messages
    assert mail.recipient == "me@example.org"
    assert AGENTS in mail.parsed().get_body(("plain",)).get_content()
    assert "alice" not in mail.data.decode()
    assert call("GET", "/deliveries").json()["items"] == []
    assert audited() == [("send key", "digest.test", str(alice))]


def test_a_refused_test_says_what_the_relay_said(
    alice: int, shelf: dict[str, int], call: Call, mail_server: MailServer
) -> None:
    """That is what a test is for."""
    mail_server.reply("rcpt", "550 5.1.1 no such user")
    sent = call("POST", f"/subscribers/{alice}/test-send", scope=Scope.SEND, json={"to": "me@example.org"})
    assert (sent.json()["outcome"], sent.json()["code"]) == ("hard_bounce", 550)


def test_tests_are_limited(alice: int, shelf: dict[str, int], call: Call, mail_server: MailServer) -> None:
    """A key that leaked is nobody's bulk mailer."""
    path = f"/subscribers/{alice}/test-send"
    answers = [call("POST", path, scope=Scope.SEND, json={"to": "me@example.org"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].headers["content-type"] == "application/problem+json"
    assert len(mail_server.messages) == 5


def test_nothing_to_send_is_a_conflict(alice: int, call: Call) -> None:
    """With the reason why there would be no digest."""
    refused = call("POST", f"/subscribers/{alice}/test-send", scope=Scope.SEND, json={"to": "me@example.org"})
    assert refused.status_code == 409


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_a_preview_of_a_day_beyond_the_calendar_is_refused(day: str, call: Call) -> None:
    """There are no days before the first, or after the last, to look at."""
    answer = call("POST", "/previews", scope=Scope.READ, json={"interests": [{"text": "agents"}], "day": day})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/body/day"


def test_an_explanation_with_every_number(alice: int, shelf: dict[str, int], call: Call) -> None:
    """The sentence, the interests with their numbers, and the paper's place; as at another moment, too."""
    path = f"/subscribers/{alice}/explain/{shelf[AGENTS]}"
    told = call("GET", path)
    assert told.status_code == 200, told.text
    explained = told.json()
    assert explained["verdict"].startswith("Would be sent in the next digest")
    assert explained["interests"][0]["interest"]["text"] == "language agents"
    assert explained["interests"][0]["details"]["relevance"] > explained["floor"]
    assert explained["interests"][0]["weighted"] == explained["rank"]["breakdown"]["relevance"]
    assert explained["rank"]["outcome"] == "picked"
    earlier = call("GET", path, params={"at": "2026-11-19T08:00:00Z"}).json()
    assert earlier["verdict"] == "Not sent: no source lists it before 2026-11-20."


def test_an_explanation_knows_that_clocks_differ(alice: int, shelf: dict[str, int], call: Call) -> None:
    """In Kiritimati it is the 20th already while the papers of the 19th are being listed."""
    path = f"/subscribers/{alice}/explain/{shelf[AGENTS]}"
    told = call("GET", path, params={"at": "2026-11-20T01:00:00+14:00"}).json()
    assert told["verdict"] == "Not sent: no source lists it before 2026-11-20."
    assert told["at"] == "2026-11-19T11:00:00Z"


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "1900-01-01T00:00:00Z", "9999-12-31T23:00:00Z"])
def test_a_moment_beyond_the_calendar_explains_nothing(
    at: str, alice: int, shelf: dict[str, int], call: Call
) -> None:
    """It is refused, as a day is, with the parameter to change."""
    refused = call("GET", f"/subscribers/{alice}/explain/{shelf[AGENTS]}", params={"at": at})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/query/at"


@pytest.mark.parametrize(
    "name",
    ["2611.00001", "2611.00001v3", "https://arxiv.org/abs/2611.00001", "10.1000/Agents", "10.1000%2Fagents"],
)
def test_a_paper_is_called_as_on_the_command_line(
    app: Application, alice: int, shelf: dict[str, int], call: Call, name: str
) -> None:
    """By its arXiv id, its DOI or its URL; a key's owner need not look its number up."""
    with app.db.write() as session:
        row = session.get(Paper, shelf[AGENTS])
        assert row
        row.arxiv_id, row.doi = "2611.00001", "10.1000/agents"
    told = call("GET", f"/subscribers/{alice}/explain/{name}")
    assert told.status_code == 200, told.text
    assert told.json()["paper"]["id"] == shelf[AGENTS]


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("/subscribers/99/explain/1", "There is no such reader."),
        ("/subscribers/1/explain/99", "There is no paper 99 in the archive."),
        ("/subscribers/1/explain/2611.99999", "There is no paper 2611.99999 in the archive."),
        ("/subscribers/1/explain/10.1000/none", "There is no paper 10.1000/none in the archive."),
        ("/subscribers/1/explain/%00%20", "There is no paper"),
    ],
)
def test_nothing_to_explain(alice: int, shelf: dict[str, int], call: Call, path: str, missing: str) -> None:
    """There is no such reader, or no such paper."""
    assert alice == 1
    told = call("GET", path)
    assert told.status_code == 404
    assert missing in told.json()["detail"]


def test_what_the_last_days_would_have_brought(shelf: dict[str, int], call: Call) -> None:
    """A digest or a reason for each day."""
    wanted = {"interests": [{"text": "language agents"}], "days": 2}
    told = call("POST", "/backtests", scope=Scope.READ, json=wanted)
    assert told.status_code == 200, told.text
    yesterday, today = told.json()["items"]
    assert (yesterday["skipped"], yesterday["sections"]) == ("no new papers.", [])
    assert (titles(today), today["edition"], today["considered"]) == ([AGENTS], "2026-11-20", 2)
    earlier = call("POST", "/backtests", scope=Scope.READ, json=wanted | {"at": "2026-11-20T01:00:00+14:00"})
    assert [day["edition"] for day in earlier.json()["items"]] == ["2026-11-18", "2026-11-19"]
    too_early = call("POST", "/backtests", scope=Scope.READ, json=wanted | {"at": "1900-01-01T00:00:00Z"})
    assert (too_early.status_code, too_early.json()["errors"][0]["pointer"]) == (422, "/body/at")


@pytest.mark.parametrize(
    "wrong", [{"days": 0}, {"days": 61}, {"interests": [{"text": "?!"}]}, {"interests": []}]
)
def test_a_look_back_has_its_bounds(call: Call, wrong: dict[str, Any]) -> None:
    """Refused before anything is matched."""
    wanted = {"interests": [{"text": "agents"}]} | wrong
    assert call("POST", "/backtests", scope=Scope.READ, json=wanted).status_code == 422
