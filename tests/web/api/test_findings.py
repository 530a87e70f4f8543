"""Test the findings and the daily report of the API: the same as in the doctor, on the pages and by email."""

import html
from collections.abc import Callable
from datetime import date, timedelta

import pytest
from fastapi.testclient import TestClient

from app import main, pipeline
from app.application import Application
from app.delivery import ledger
from app.doctor import Level, daily_report, local_checks, service_state
from app.storage import job_runs
from app.storage.api_keys import Scope
from tests.conftest import NOW
from tests.support import factories
from tests.support.mail_server import MailServer
from tests.web.api.conftest import Call


@pytest.fixture
def problems(app: Application) -> None:
    """Pause sending, let a job fail, and add a source that fails."""
    with app.db.write() as session:
        ledger.pause(session, "the relay is being moved", NOW)
        source = factories.add_source(session, NOW, name="The lab")
        source.failures, source.last_error = 3, "status 404"
        session.add(source)
    with job_runs.record(app.db, "prune", NOW) as run:
        run.fail("the disk", "it is full")


@pytest.mark.usefixtures("problems")
def test_findings_are_those_of_the_doctor(app: Application, call: Call) -> None:
    """The doctor's checks of the service are among them, with the same words. Levels can be selected."""
    items = call("GET", "/findings").json()["items"]
    assert items == [each.as_dict() for each in local_checks.all_findings(app, NOW)]
    checked = [each.as_dict() for each in service_state.check(app.db, app.models, NOW)]
    assert checked == items[: len(checked)]
    attention = call("GET", "/findings?level=warning&level=error").json()["items"]
    assert attention == [each for each in items if each["level"] != Level.OK]
    by_check = {each["check"]: each for each in attention}
    assert by_check["source The lab"]["message"] == "it failed 3 times in a row: status 404"
    assert by_check["sending"]["urgent"]
    assert "the relay is being moved" in by_check["sending"]["message"]
    assert by_check["job prune"]["fix"].startswith("for details, run `paperboy runs")
    assert call("GET", "/findings?level=bad").status_code == 422


@pytest.mark.usefixtures("problems")
def test_findings_are_those_of_the_first_admin_page(app: Application, create_key: Callable[..., str]) -> None:
    """Each finding that is not ok is on that page, in the same words."""
    key = create_key(Scope.READ)
    browser = TestClient(main.create_app(app), base_url="https://testserver")
    browser.post("/admin/sign-in", data={"key": key})
    page = html.unescape(browser.get("/admin").text)
    answer = browser.get(
        "/api/v1/findings?level=warning&level=error", headers={"Authorization": f"Bearer {key}"}
    )
    items = answer.json()["items"]
    assert len(items) > 2
    assert [each["message"] for each in items if each["message"] not in page] == []


def test_report_of_a_day(app: Application, call: Call, mail_server: MailServer) -> None:
    """The default is yesterday, as in the email. Each day has its own digests."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW, name="The lab")
        factories.add_paper(session, source, "Language Agents that Plan", NOW.date(), NOW)
        factories.add_subscriber(session, "alice@example.org", ["language agents"], NOW)
    pipeline.plan_and_send(app, NOW)
    report = call("GET", f"/report?day={NOW.date()}").json()
    assert report["subject"].endswith(f"{NOW.date()}: 1 digest sent")
    lines = {section["heading"]: section["lines"] for section in report["sections"]}
    assert lines[f"Digests of {NOW.date()}"] == ["1 due = 1 sent"]
    assert "The lab: 1 paper" in lines["Sources"]
    yesterday = call("GET", "/report").json()
    assert yesterday["subject"] == daily_report.build(app, NOW).subject
    assert str(NOW.date() - timedelta(days=1)) in yesterday["subject"]
    assert "No digest was due." in str(yesterday["sections"])


@pytest.mark.usefixtures("problems")
def test_report_of_an_earlier_day_names_no_present_problems_in_its_subject(call: Call) -> None:
    """They are under "Needs attention now"."""
    earlier = call("GET", f"/report?day={NOW.date() - timedelta(days=9)}").json()
    assert "attention" not in earlier["subject"]
    assert earlier["sections"][0]["heading"] == "Needs attention now"
    assert "status 404" in str(earlier["sections"][0]["lines"])
    assert "attention" in call("GET", "/report").json()["subject"]


@pytest.mark.parametrize(
    ("day", "status"),
    [(date.min, 422), (date(1970, 1, 1), 200), (NOW.date() + timedelta(days=1), 422), (date.max, 422)],
)
def test_report_of_an_odd_day(day: date, status: int, call: Call) -> None:
    """Long ago, nothing was due. Earlier days and the future have no report."""
    assert call("GET", f"/report?day={day}").status_code == status
