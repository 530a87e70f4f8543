"""Test what the admin pages show and do."""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlmodel import Session, col, select

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.delivery.ledger import daily_limits
from app.digests.explanation_text import list_scores
from app.doctor import local_checks
from app.papers import source_registry
from app.settings import Settings
from app.storage import api_keys, audit_log, figure_cache, job_runs, webhook_endpoints
from app.storage.api_keys import Scope
from app.storage.models import (
    ApiKey,
    AuditEntry,
    Delivery,
    DeliveryState,
    DigestContent,
    Event,
    Source,
    Subscriber,
    SubscriberState,
    VoteCount,
)
from app.subscribers import Preferences, event_log
from app.types import Cadence, EmptyDigestPolicy, Interest, MailKind, Rejection, Skip, SourceKind
from app.web.admin import audit_log as audit_log_pages
from app.web.admin import deliverability, editions, next_digests, overview, runs
from app.web.admin import subscribers as subscribers_page
from app.web.capacity import WorkSlots
from tests.support import factories, sample_digest
from tests.support.mail_server import MailServer
from tests.web.admin.conftest import ALL, Desk

ALICE, BOB = "alice@example.org", "bob@example.net"
WANTED = Preferences(interests=(Interest("diffusion models"),), zone="UTC")


@pytest.fixture
def people(app: Application) -> list[int]:
    """Add Alice and Bob, who are due today, and return their numbers."""
    before = clock.utcnow() - timedelta(days=3)
    with app.db.write() as session:
        return [subscribers.add(session, email, WANTED, before) for email in (ALICE, BOB)]


def counts(page: str) -> dict[str, int]:
    """Return the numbers that a page shows as a list of counts. The first of a name counts."""
    found = re.findall(r"<dt>(\w+)</dt><dd>(?:<a [^>]*>)?(\d+)", page)
    return {name: int(number) for name, number in reversed(found)}


def actions(app: Application) -> list[tuple[str, str]]:
    """Return the changes in the audit log, with their actors."""
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id)))
        return [(entry.actor, entry.action) for entry in entries]


def test_overview_adds_up_and_says_why(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """Due = the states. Reasons that differ in a number are one reason."""
    now = clock.utcnow()
    today = now.date().isoformat()
    due = now.replace(hour=0, minute=0, second=0, microsecond=0)
    skips = [Skip(f"none of {number} recent papers matched an interest") for number in (30, 31)]
    with app.db.write() as session:
        for number in people:
            subscriber = subscribers.get(session, number)
            subscriber.hour, subscriber.due_since = 0, due - timedelta(days=2)
            subscriber.next_due_at = due + timedelta(days=1)
            session.add(subscriber)
        ledger.add_entries(
            session,
            [ledger.Entry(who, today, due, why) for who, why in zip(people, skips, strict=True)],
            now,
        )
        ledger.pause(session, "the relay is being moved", now)
    page = sign_in().get("/admin").text
    shown = counts(page)
    assert (shown["due"], shown["skipped"], shown["sent"]) == (2, 2, 0)
    assert re.search(r"none of … recent papers matched an interest</td><td[^>]*><a [^>]*>2<", page)
    assert "the relay is being moved" in page
    assert ("send", "resume_sending", "") in remedies(page)
    assert "<strong>sources:</strong> there are none" in page
    assert 'href="/admin/sources">Add a source</a>' in page
    assert "No process is running jobs: start <code>paperboy serve</code>" in page


def remedies(page: str) -> list[tuple[str, str, str]]:
    """Return the buttons of the findings on the overview: scope, action and subject."""
    pattern = r'/admin/remedies/(\w+)".*?name="action" value="(\w+)".*?name="subject" value="([^"]*)"'
    return re.findall(pattern, page, re.DOTALL)


def add_ills(session: Session, reader: int, now: datetime) -> None:
    """Add what needs a hand: one of each finding that a button resolves, but no failed model."""
    feed = {"kind": SourceKind.FEED, "config": {"url": "http://127.0.0.1:9/"}, "created_at": now}
    session.add_all(
        [
            Source(name="ill", failures=3, last_error="503", polled_at=now, **feed),
            Source(name="idle", paused=True, **feed),
        ]
    )
    add_digest(session, 7, reader, DeliveryState.FAILED, now)
    session.get_one(Subscriber, reader).next_due_at = now + timedelta(days=1)
    ledger.pause(session, "the relay is being moved", now)
    ledger.pause(session, "a wrong paper", now, "2026-11-18")
    ledger.hold_new(session, ["2026-11-20"], now)
    ledger.add_entries(session, [ledger.Entry(reader, "2026-11-20", now, sample_digest.digest())], now)
    webhook_endpoints.add(session, "https://example.org/", ["sending.paused"], False, now)
    webhook_endpoints.disable_all(session, "it did not answer for three days", now)
    api_keys.create(session, "soon", ALL, now - timedelta(days=360))
    expired = api_keys.create(session, "over", ALL, now)[0]
    expired.expires_at = now


def test_findings_are_resolved_by_their_buttons(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """Each button does what its finding needs, returns to the overview with a message, and is recorded."""
    now = clock.utcnow()
    with app.db.write() as session:
        add_ills(session, people[0], now)
    desk = sign_in()
    buttons = remedies(desk.get("/admin").text)
    assert sorted(action for _, action, _ in buttons) == [
        "approve_edition", "enable_webhook", "poll_source", "replace_key", "resume_edition",
        "resume_sending", "resume_source", "retry_failed", "revoke_key",
    ]  # fmt: skip
    for scope, action, subject in buttons:
        answer = desk.post(f"/admin/remedies/{scope}", action=action, subject=subject)
        if action == "replace_key":
            assert "Copy the key “soon” now." in answer.text
        else:
            assert answer.headers["location"] == f"/admin?done={action}", answer.text
            assert 'role="status"' in desk.get(answer.headers["location"]).text
    remaining = remedies(desk.get("/admin").text)
    assert [action for _, action, _ in remaining] == ["poll_source"], "the feed still does not answer"
    assert {action for _, action in actions(app)} == {
        "sending.resume", "webhook.enable", "source.refresh", "key.rotate", "source.resume",
        "edition.retry_failed", "key.revoke",
    }  # fmt: skip
    with app.db.read() as session:
        assert session.get_one(Delivery, 7).state is DeliveryState.PENDING


def attention(page: str) -> list[tuple[str, str]]:
    """Return the check and the text of each finding on the overview."""
    found = re.findall(r'<li class="(?:warning|error)"><strong>(.*?):</strong>(.*?)</li>', page, re.DOTALL)
    return [(html.unescape(check), html.unescape(re.sub(r"<[^>]+>", " ", text))) for check, text in found]


def test_findings_with_a_button_name_no_command(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The button does the same, or the page that is linked. Who may not press it is told the command."""
    now = clock.utcnow()
    with app.db.write() as session:
        add_ills(session, people[0], now)
        add_digest(session, 17, people[1], DeliveryState.UNCERTAIN, now)
    with job_runs.record(app.db, "prune", now) as run:
        run.fail("the disk", "it is full")
    shown = attention(sign_in().get("/admin").text)
    assert [check for check, text in shown if "paperboy " in text] == ["schedule"], "it has no button"
    assert "Look at a sample first." in dict(shown)["sending 2026-11-20"]
    assert any("Find out whether they arrived." in text for _, text in shown)
    seen = dict(attention(sign_in(Scope.READ).get("/admin").text))
    assert "paperboy sending resume --edition 2026-11-20" in seen["sending 2026-11-20"]
    fixes = {each.check: each.fix for each in local_checks.all_findings(app, now)}
    assert "`paperboy sending resume`" in fixes["sending"], "commands and the API still say how"


def test_overview_tells_people_from_events(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """One person who paused twice is one paused subscriber, and two events."""
    with app.db.write() as session:
        for _ in range(2):
            subscribers.pause(session, people[0], None, clock.utcnow())
            subscribers.resume(session, people[0], clock.utcnow())
        subscribers.pause(session, people[0], None, clock.utcnow())
    page = sign_in().get("/admin").text
    assert 'state=paused">paused</a></dt><dd>1</dd>' in page
    assert "Number of subscribers in each state now." in page
    assert re.search(r"Events in the last seven days .one person can have several.: .*3 paused", page)


@pytest.mark.parametrize("path", ["/admin", "/admin/deliverability"])
def test_page_with_figures_of_a_large_installation(
    sign_in: Callable[..., Desk], people: list[int], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The page says when they were counted. After an operator's change, they are counted again."""
    monkeypatch.setattr(figure_cache, "LARGE", 0)
    desk, age = sign_in(), "counted again after ten minutes"
    assert [age in desk.get(path).text for _ in range(2)] == [False, True]
    desk.post("/admin/sending/pause", reason="a test")
    assert [age in desk.get(path).text for _ in range(2)] == [False, True]


def test_address_with_an_international_domain(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The domain is also shown in Unicode."""
    with app.db.write() as session:
        number = factories.add_subscriber(
            session, "bob@xn--bcher-kva.example.org", ["robots"], clock.utcnow()
        )
    desk = sign_in()
    shown = 'bob@xn--bcher-kva.example.org</a> <span class="hint">(<bdi>bob@bücher.example.org</bdi>)</span>'
    assert shown in desk.get("/admin/subscribers").text
    assert "<dd>bob@bücher.example.org</dd>" in desk.get(f"/admin/subscribers/{number}").text


def test_overview_lists_settings_that_may_not_work(app: Application, sign_in: Callable[..., Desk]) -> None:
    """Each has advice and a link to the settings. One is that bounces are not processed."""
    page = sign_in().get("/admin").text
    text = dict(attention(page))["from_address"]
    assert "whose domain is not public" in text
    assert "Set PAPERBOY_FROM_ADDRESS to an address on your own domain." in text
    link = (
        '<a class="button quiet small" href="/admin/settings#PAPERBOY_FROM_ADDRESS">Look at the setting</a>'
    )
    assert link in page
    bounces = dict(attention(page))["bounces"]
    assert "none are processed" in bounces
    assert "Set PAPERBOY_BOUNCE_MAILBOX" in bounces
    assert "Create a key for webhooks" in bounces


def test_findings_about_settings_lead_to_the_settings(app: Application, tmp_path: Path) -> None:
    """Each check that can warn has a link to its setting. The check `settings` is always OK."""
    missing = str(tmp_path / "missing")
    unusual = app.settings.model_copy(
        update={"dkim_keys": (f"s:{missing}",), "bounce_folder": missing, "bounce_mailbox": "imap://a.test"}
    )
    now = clock.utcnow()
    with app.db.write() as session:
        api_keys.create(session, "relay", [Scope.BOUNCES], now)
    checks = {
        finding.check.partition(" ")[0]
        for settings in (app.settings, unusual)
        for check in local_checks.settings_checks(settings, app.db, now).values()
        for finding in check()
    }
    assert {"base_url", "dkim", "journal_dir", "bounces", "bounce", "bounce_folder"} < checks
    pages = {overview.ACTION_PAGES[check].url for check in checks - {"settings", "bounces"}}
    names = {page.removeprefix("/admin/settings#PAPERBOY_").lower() for page in pages}
    assert names <= Settings.model_fields.keys()


def test_remedies_are_refused_when_out_of_date(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The overview says so. A button needs the scope of its action."""
    desk = sign_in()
    for action, subject in (
        ("poll_source", "99"),
        ("poll_source", "x"),
        ("poll_source", "9" * 40),
        ("enable_webhook", "5"),
    ):
        answer = desk.post("/admin/remedies/write", action=action, subject=subject)
        assert answer.status_code == 409
        assert 'role="alert"' in answer.text
    assert desk.post("/admin/remedies/send", action="resume_sending").status_code == 409
    assert desk.post("/admin/remedies/write", action="resume_sending").status_code == 404
    assert desk.post("/admin/remedies/write", action="nonsense").status_code == 404
    assert actions(app) == []


def test_charts_of_growth_and_complaints(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The numbers of each chart are in a table. A subscriber counts once per day."""
    now = clock.utcnow()
    with app.db.write() as session:
        subscribers.unsubscribe(session, people[0], now)
        subscribers.erase(session, people[0], now)
        for kind in ("complaint", "bounce", "soft_bounce"):
            session.add(Event(at=now, kind=kind, subscriber_id=people[1]))
    page = sign_in().get("/admin").text
    sections = dict(re.findall(r'<h2 id="(growth|refusals)">.*?<tbody>(.*?)</tbody>', page, re.DOTALL))
    numbers = {name: re.findall(r">([\d-]+)</td>", rows) for name, rows in sections.items()}
    today, before = now.date().isoformat(), (now - timedelta(days=3)).date().isoformat()
    assert numbers == {"growth": [today, "0", "1", before, "2", "0"], "refusals": [today, "1", "1"]}


def test_charts_have_a_scale(app: Application, sign_in: Callable[..., Desk], people: list[int]) -> None:
    """Their first and last day, and their highest bar, also in the text for those who do not see them."""
    now = clock.utcnow()
    with app.db.write() as session:
        subscribers.unsubscribe(session, people[0], now)
    page = sign_in().get("/admin").text
    first, last = ((now - timedelta(days=back)).date() for back in (29, 0))
    highest = (now - timedelta(days=3)).date()
    assert (
        f'aria-label="Growth per day from {first} to {last}. Joined: 2. Left: 1. The most on one day: '
        f'2, on {highest}. The table below has the numbers."'
    ) in page
    chart = page.partition('<h2 id="growth">')[2]
    assert re.search(r'<p class="scale hint"[^>]*>2</p>', chart)
    assert f"<span>{first}</span><span>{last}</span>" in chart


def test_states_are_explained(app: Application, sign_in: Callable[..., Desk], people: list[int]) -> None:
    """Only those that are shown: on the overview and on the page of an edition."""
    today = clock.utcnow().date().isoformat()
    with app.db.write() as session:
        for number, state in zip(people, (DeliveryState.COMMITTING, DeliveryState.UNCERTAIN), strict=True):
            session.add(
                Delivery(
                    subscriber_id=number, kind=MailKind.DIGEST, edition=today, state=state,
                    due_at=clock.utcnow(), created_at=clock.utcnow(),
                )
            )  # fmt: skip
    desk = sign_in()
    for path in ("/admin", f"/admin/editions/{today}"):
        shown = desk.get(path).text
        assert "<strong>committing</strong>: the relay has the whole email" in shown
        assert "<strong>uncertain</strong>: it may have arrived" in shown
        assert "<strong>deferred</strong>" not in shown


def test_failed_digest_is_explained(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """It may never have been attempted, so the advice does not name the relay's replies."""
    reason = "given up because the next digest is due: never attempted"
    with app.db.write() as session:
        add_digest(session, 7, people[0], DeliveryState.FAILED, clock.utcnow(), reason=reason)
        session.get_one(Subscriber, people[0]).next_due_at = clock.utcnow() + timedelta(days=1)
    desk = sign_in()
    page = html.unescape(desk.get("/admin/editions/2026-11-19").text)
    assert "or it was given up because the subscriber's next digest was due" in page
    overview = html.unescape(desk.get("/admin").text)
    assert "Look at the reasons on the edition’s page first." in overview
    fixes = {each.check: each.fix for each in local_checks.all_findings(app, clock.utcnow())}
    assert "`paperboy deliveries --edition 2026-11-19 --state failed`" in fixes["edition 2026-11-19"]


def test_who_complained(app: Application, sign_in: Callable[..., Desk], people: list[int]) -> None:
    with app.db.write() as session:
        session.add(Event(at=clock.utcnow(), kind="complaint", subscriber_id=people[0], detail="abuse"))
    shown = sign_in().get("/admin/deliverability").text
    assert f'<a href="/admin/subscribers/{people[0]}">' in shown
    assert ">complained</td>" in shown


@pytest.mark.parametrize("kind", SourceKind)
def test_source_of_any_kind_has_a_page(
    kind: SourceKind, app: Application, sign_in: Callable[..., Desk]
) -> None:
    config = {SourceKind.FEED: {"url": "https://a.test/"}, SourceKind.ARXIV_FEED: {"categories": ["cs.AI"]}}
    with app.db.write() as session:
        session.add(Source(name="one", kind=kind, config=config.get(kind, {}), created_at=clock.utcnow()))
    assert sign_in().get("/admin/sources/1").status_code == 200


def test_source_is_changed(app: Application, sign_in: Callable[..., Desk]) -> None:
    """Its name, and what it reads. A refused form keeps what was typed; other settings stay."""
    now = clock.utcnow()
    with app.db.write() as session:
        session.add_all(
            [
                Source(name="lab", kind=SourceKind.FEED, config={"url": "https://a.test/"}, created_at=now),
                Source(name="q", kind=SourceKind.ARXIV, config={"query": "ti:agents"}, created_at=now),
                Source(
                    name="all", kind=SourceKind.ARXIV_OAI, created_at=now,
                    config={"set": "cs", "from": "2026-01-01"},
                ),
                Source(name="files", kind=SourceKind.PAGE, created_at=now, paused=True),
            ]
        )  # fmt: skip
    desk = sign_in()
    changes = {1: "https://b.test/", 2: "ti:robots", 3: "math"}
    for number, address in changes.items():
        at = f"/admin/sources/{number}"
        answer = desk.post(at, **{**shown_values(desk, at), "name": f"new {number}", "address": address})
        assert answer.headers["location"] == f"{at}?done=changed"
    with app.db.read() as session:
        rows = session.exec(select(Source).order_by(col(Source.id))).all()
    assert [row.name for row in rows] == ["new 1", "new 2", "new 3", "files"]
    assert [row.config for row in rows[:3]] == [
        {"url": "https://b.test/"}, {"query": "ti:robots"}, {"set": "math", "from": "2026-01-01"},
    ]  # fmt: skip
    shown = shown_values(desk, "/admin/sources/1")
    refused = desk.post("/admin/sources/1", **{**shown, "address": "file:///etc/passwd"})
    assert refused.status_code == 422
    assert 'value="file:///etc/passwd"' in refused.text
    refused = desk.post("/admin/sources/2", **{**shown_values(desk, "/admin/sources/2"), "address": ""})
    assert "An arXiv query needs 1 to 500" in refused.text


def shown_values(desk: Desk, path: str) -> dict[str, str]:
    """Return the values of the form that changes a source."""
    fields = re.findall(r'name="((?:shown_)?(?:name|address))" value="([^"]*)"', desk.get(path).text)
    return {name: html.unescape(value) for name, value in fields}


def test_source_that_another_operator_changed(app: Application, sign_in: Callable[..., Desk]) -> None:
    """A form that was opened before does not revert it. Saved again, it does."""
    with app.db.write() as session:
        config = {"url": "https://a.test/?x=1&y=2"}
        source_registry.add(session, "lab", SourceKind.FEED, config, clock.utcnow())
    desk, at = sign_in(), "/admin/sources/1"
    old = shown_values(desk, at)
    desk.post(at, **{**old, "address": "https://b.test/"})
    refused = desk.post(at, **{**old, "name": "the lab"})
    assert refused.status_code == 422
    assert "has changed this source in the meantime" in refused.text
    assert 'value="the lab"' in refused.text
    with app.db.read() as session:
        source = source_registry.get(session, 1)
        assert (source.name, source.config) == ("lab", {"url": "https://b.test/"})
    again = {**old, **{name: value for name, value in shown_values(desk, at).items() if "shown" in name}}
    assert desk.post(at, **{**again, "name": "the lab"}).headers["location"] == f"{at}?done=changed"
    with app.db.read() as session:
        source = source_registry.get(session, 1)
        assert (source.name, source.config) == ("the lab", config)


def test_source_that_is_read_from_files(app: Application, sign_in: Callable[..., Desk]) -> None:
    """`ingest` finds it by its name. It has no address, and cannot be resumed."""
    now = clock.utcnow()
    with app.db.write() as session:
        source_registry.source_for_files(session, SourceKind.FEED, now)
    desk = sign_in()
    for path in ("/admin/sources", "/admin/sources/1"):
        assert "/admin/sources/1/resume" not in desk.get(path).text
        assert "/admin/sources/1/remove" in desk.get(path).text
    assert 'id="change"' not in desk.get("/admin/sources/1").text
    old = {"shown_name": "Saved feeds", "shown_address": ""}
    refused = desk.post("/admin/sources/1", name="other", **old)
    assert "“Saved feeds” is read from files, so it cannot be changed" in refused.text
    assert refused.status_code == 422


def test_state_of_a_source_is_the_same_everywhere(app: Application, sign_in: Callable[..., Desk]) -> None:
    """On the overview, on the list and on its page."""
    now = clock.utcnow()
    with app.db.write() as session:
        session.add_all(
            [
                Source(name="files", kind=SourceKind.HUGGINGFACE, paused=True, created_at=now),
                Source(
                    name="ill", kind=SourceKind.FEED, config={"url": "https://a.test/"}, created_at=now,
                    next_poll_at=now, failures=1, last_error="a.test: HTTP 500",
                ),
            ]
        )  # fmt: skip
    desk = sign_in()
    assert '<td data-label="Next poll">due</td>' in desk.get("/admin/sources").text
    for path in ("/admin", "/admin/sources"):
        assert '<td data-label="Last success">–</td>' in desk.get(path).text
    assert "<dt>Next poll</dt><dd>due</dd>" in desk.get("/admin/sources/2").text
    for path in ("/admin", "/admin/sources"):
        shown = desk.get(path).text
        assert ">read from files</td>" in shown
        assert ">failed once: a.test: HTTP 500</td>" in shown
    assert "<dd>read from files</dd>" in desk.get("/admin/sources/1").text
    assert "<dd>failed once: a.test: HTTP 500</dd>" in desk.get("/admin/sources/2").text


def test_explanation_has_the_scores_of_the_command(
    app: Application, people: list[int], sign_in: Callable[..., Desk]
) -> None:
    """The page and `paperboy explain` name them alike."""
    now, alice = clock.utcnow(), people[0]
    with app.db.write() as session:
        source = factories.add_source(session, now)
        paper = factories.add_paper(session, source, "Diffusion Models", now.date(), now)
        session.delete(session.exec(select(VoteCount)).one())
    text = html.unescape(sign_in().get(f"/admin/subscribers/{alice}?paper={paper}").text)
    scores = dict(list_scores(pipeline.explain(app, now, str(alice), str(paper))))
    assert {"relevance", "strength", "score", "rank"} <= scores.keys()
    assert scores["trend"] == "0.50: no votes are known"
    for name, score in scores.items():
        assert f"<dt>{name.capitalize()}</dt><dd>{score}</dd>" in text
    for name in ("Agreement", "Cut-off", "Relevance", "Weighted", "Strength"):
        assert f'<td data-label="{name}" class="number">' in text


def test_changes_are_made_and_recorded(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """Each button does what the API does, in the operator's name."""
    desk, (alice, bob) = sign_in(), people
    at = f"/admin/subscribers/{alice}"
    for path in (f"{at}/pause", f"{at}/resume", f"{at}/unsubscribe", f"/admin/subscribers/{bob}/pause"):
        answer = desk.post(path)
        assert answer.status_code == 303, answer.text
        assert 'role="status"' in desk.get(answer.headers["location"]).text
    assert "nobody can sign up with it until you" in desk.get(at).text
    assert "Check the box" in desk.post(f"{at}/erase").text
    erased = desk.post(f"{at}/erase", sure="yes")
    assert "nobody can sign up with it." in desk.get(erased.headers["location"]).text
    desk.post("/admin/sending/pause", reason="the relay is being moved")
    assert "the relay is being moved" in desk.get("/admin/editions").text
    desk.post("/admin/sending/resume")
    edition = f"/admin/editions/{clock.utcnow():%Y-%m-%d}"
    desk.post(f"{edition}/pause")
    desk.post(f"{edition}/resume")
    with app.db.read() as session:
        states = [subscribers.get(session, number).state for number in people]
    assert states == [SubscriberState.ERASED, SubscriberState.PAUSED]
    made = actions(app)
    assert {actor for actor, _ in made} == {"desk 0"}
    assert [action for _, action in made] == [
        "subscriber.pause", "subscriber.resume", "subscriber.unsubscribe", "subscriber.pause",
        "subscriber.erase", "sending.pause", "sending.resume", "sending.pause", "sending.resume",
    ]  # fmt: skip


def test_buttons_are_shown_to_those_who_may(sign_in: Callable[..., Desk], people: list[int]) -> None:
    """A key that may only read gets no forms that change anything."""
    paths = ("/admin", f"/admin/subscribers/{people[0]}", "/admin/editions", "/admin/sources")
    for scopes, expected in (((Scope.READ,), False), ((Scope.READ, Scope.WRITE, Scope.SEND), True)):
        desk = sign_in(*scopes)
        pages = "".join(desk.get(path).text for path in paths)
        assert ('name="form_token"' in pages) is expected


def test_one_subscriber_with_every_digest_and_silence(
    app: Application, mail_server: MailServer, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The page has what was sent, what was skipped and why, and explains a paper."""
    now, (alice, bob) = clock.utcnow(), people
    with app.db.write() as session:
        source = factories.add_source(session, now)
        paper = factories.add_paper(session, source, "Diffusion Models", now.date(), now)
        ledger.add_entries(session, [ledger.Entry(alice, "2026-11-18", now, Skip("no new papers"))], now)
        sent = ledger.enqueue(
            session, subscriber_id=alice, kind=MailKind.DIGEST, edition="2026-11-19", due_at=now, now=now,
            digest=sample_digest.digest("2026-11-19"),
        )  # fmt: skip
    assert sent
    pipeline.send_now(app, now, [sent])
    desk = sign_in()
    page = desk.get(f"/admin/subscribers/{alice}?paper={paper}").text
    for text in ("no new papers", "2026-11-19", ">sent<", "diffusion models", "Diffusion Models", "added"):
        assert text in page, text
    assert "There is no paper 999" in desk.get(f"/admin/subscribers/{alice}?paper=999").text
    with app.db.write() as session:
        changed = Preferences(hour=9, max_trending=2, interests=(Interest("video"),))
        subscribers.change(session, alice, changed, clock.utcnow())
        event_log.record_event(session, "first_asked", subscribers.get(session, alice), clock.utcnow())
    page = desk.get(f"/admin/subscribers/{alice}?paper={paper}").text
    for text in ("first digest requested", "preferences changed", "time of day, ", "trending beyond the"):
        assert text in page, text
    assert "max_trending" not in page
    assert "preferences have changed since 20" in page
    preview = desk.get(f"/admin/subscribers/{bob}/preview").text
    assert "Diffusion Models" in preview
    assert "This is what the subscriber would get now." in preview
    assert BOB in preview.partition('<pre class="source">')[2]
    assert "reader@example.org" not in preview
    framed = re.search(r'<iframe [^>]*src="([^"]*)" sandbox="allow-popups', preview)
    assert framed
    email = desk.get(framed[1])
    assert BOB in email.text
    assert "sandbox" in email.headers["content-security-policy"]
    assert (
        "frame-src 'self'" in desk.get(f"/admin/subscribers/{bob}/preview").headers["content-security-policy"]
    )
    assert desk.post(f"/admin/subscribers/{bob}/test", to="not an address").status_code == 422
    answer = desk.post(f"/admin/subscribers/{bob}/test", to="me@example.org")
    assert answer.status_code == 303, answer.text
    assert [mail.recipient for mail in mail_server.messages] == [ALICE, "me@example.org"]


def test_every_digest_and_silence_can_be_paged_through(
    app: Application, monkeypatch: pytest.MonkeyPatch, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """“Older” leads through all of them, and “Newer” back. Emails and events keep their own positions."""
    monkeypatch.setattr(subscribers_page, "MAILS_SHOWN", 3)
    monkeypatch.setattr(subscribers_page, "EVENTS_SHOWN", 1)
    now = clock.utcnow()
    with app.db.write() as session:
        for day in range(11, 18):
            skipped = ledger.Entry(people[0], f"2026-11-{day}", now, Skip("no new papers"))
            ledger.add_entries(session, [skipped], now)
        session.add(Event(at=now, kind="paused", subscriber_id=people[0]))
    desk, start = sign_in(), f"/admin/subscribers/{people[0]}"

    def follow(rel: str, name: str, page: str) -> str:
        link = rf'<a href="([^"]*)" rel="{rel}">\w+<span class="unseen"> {name}<'
        found = re.search(link, page)
        return desk.get(start + html.unescape(found[1])).text if found else ""

    def days(page: str) -> list[str]:
        return re.findall(r"<time>2026-11-(\d\d)</time></span>", page)

    newest = desk.get(start).text
    middle = follow("next", "emails", newest)
    oldest = follow("next", "emails", middle)
    assert [days(page) for page in (newest, middle, oldest)] == [
        ["17", "16", "15"],
        ["14", "13", "12"],
        ["11"],
    ]
    assert not follow("next", "emails", oldest)
    assert not follow("prev", "emails", newest)
    assert days(follow("prev", "emails", oldest)) == ["14", "13", "12"]
    assert days(follow("prev", "emails", middle)) == ["17", "16", "15"]
    earlier = follow("next", "events", middle)
    assert days(earlier) == ["14", "13", "12"]
    assert ">added<" in earlier
    assert desk.get(f"{start}?mails=nonsense").status_code == 422


def test_find_subscribers(sign_in: Callable[..., Desk], people: list[int]) -> None:
    """By a part of the address, in any case, and by state."""
    desk = sign_in()
    for query, found in (
        ("search=ALICE", [ALICE]), ("search=example", [BOB, ALICE]), ("search=%25", []),
        ("state=active", [BOB, ALICE]), ("state=paused", []), ("search=&state=", [BOB, ALICE]),
    ):  # fmt: skip
        page = desk.get(f"/admin/subscribers?{query}").text
        assert re.findall(r"[a-z]+@example\.\w+(?=</a>)", page) == found, query


def add_digest(
    session: Session, number: int, reader: int, state: DeliveryState, now: datetime, *, reason: str = "",
    has_content: bool = True,
) -> None:  # fmt: skip
    """Add a digest of the edition 2026-11-19. A restore may have lost its content."""
    row = Delivery(id=number, subscriber_id=reader, edition="2026-11-19", state=state, reason=reason)
    row.due_at = row.created_at = now
    session.add(row)
    session.flush()
    if has_content:
        session.add(DigestContent(delivery_id=number, signature_fingerprint="x"))


@pytest.fixture
def uncertain_mails(app: Application, people: list[int]) -> None:
    """Add the emails 7 and 8. Both are uncertain; the content of 8 was lost."""
    now = clock.utcnow()
    with app.db.write() as session:
        add_digest(session, 7, people[0], DeliveryState.UNCERTAIN, now, reason="the connection broke")
        add_digest(session, 8, people[1], DeliveryState.UNCERTAIN, now, reason="lost", has_content=False)


@pytest.mark.parametrize(
    "query",
    [
        "/{reader}?paper=2147483648",
        "/{reader}?paper=999999999999999999",
        "?cursor=OTk5OTk5OTk5OTk5OTk5OTk5",  # 999999999999999999
        "/next?cursor=OTk5OTk5OTk5OTk5OTk5OTk5",
    ],
)
def test_numbers_beyond_the_range_of_ids_are_no_internal_error(
    sign_in: Callable[..., Desk], people: list[int], query: str
) -> None:
    """PostgreSQL refuses them. A page without such a row is as good an answer."""
    answer = sign_in(Scope.READ).get("/admin/subscribers" + query.format(reader=people[0]))
    assert answer.status_code in (200, 422)
    assert "paper=" not in query or "There is no paper" in answer.text


@pytest.mark.usefixtures("uncertain_mails")
def test_uncertain_mail_is_sent_again(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The page of its edition lists it with a button."""
    desk = sign_in()
    page = desk.get("/admin/editions/2026-11-19").text
    assert "the connection broke" in page
    assert 'action="/admin/deliveries/7/resend"' in page
    assert (
        desk.post("/admin/deliveries/7/resend").headers["location"].startswith("/admin/editions/2026-11-19")
    )
    with app.db.read() as session:
        assert session.get_one(Delivery, 7).next_attempt_at is not None
    assert desk.post("/admin/deliveries/8/resend").status_code == 409, "its content is unknown"


@pytest.mark.usefixtures("uncertain_mails")
def test_all_uncertain_mails_of_an_edition_are_sent_again(
    app: Application, sign_in: Callable[..., Desk]
) -> None:
    """Those whose content was lost before a restore stay as they are."""
    desk = sign_in()
    assert "Send all uncertain emails again" in desk.get("/admin/editions/2026-11-19").text
    edition = "/admin/editions/2026-11-19"
    answer = desk.press(f"{edition}/resend-uncertain")
    assert "Emails that will be sent again within a minute: 1." in desk.get(answer.headers["location"]).text
    with app.db.read() as session:
        rows = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
    assert [row.next_attempt_at is not None for row in rows] == [True, False]


@pytest.mark.usefixtures("uncertain_mails")
def test_uncertain_mails_that_arrived_are_recorded_as_sent(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """One or all of an edition. Nothing is sent again, and emails in other states stay as they are."""
    now = clock.utcnow()
    with app.db.write() as session:
        ledger.resend(session, 7, now)
    desk = sign_in()
    assert "an operator has to decide" in desk.get("/admin").text
    for number, path in (
        (8, "/admin/deliveries/8"),
        (7, "/admin/editions/2026-11-19"),
        (7, f"/admin/subscribers/{people[0]}"),
    ):
        assert f'action="/admin/deliveries/{number}/confirm-arrival"' in desk.get(path).text
    answer = desk.post("/admin/deliveries/7/confirm-arrival")
    assert "recorded as sent" in desk.get(answer.headers["location"]).text
    assert desk.post("/admin/deliveries/7/confirm-arrival").status_code == 409
    assert desk.post("/admin/deliveries/99/confirm-arrival").status_code == 404
    edition = "/admin/editions/2026-11-19"
    answer = desk.press(f"{edition}/confirm-uncertain")
    assert "Emails that were recorded as sent: 1." in desk.get(answer.headers["location"]).text
    with app.db.read() as session:
        rows = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
        assert [(row.state, row.next_attempt_at, row.sent_at) for row in rows] == [
            (DeliveryState.SENT, None, row.due_at) for row in rows
        ]
        assert not ledger.has_work(session, now, Path(app.settings.journal_dir))
    assert [action for _, action in actions(app)] == ["delivery.confirm_arrival", "edition.confirm_uncertain"]
    assert "an operator has to decide" not in desk.get("/admin").text


@pytest.mark.usefixtures("uncertain_mails")
@pytest.mark.parametrize("action", ["resend-uncertain", "confirm-uncertain"])
def test_only_uncertain_mails_that_the_page_showed_are_settled(
    app: Application, sign_in: Callable[..., Desk], action: str
) -> None:
    """Otherwise, emails that become uncertain meanwhile would be lost or sent twice."""
    desk, edition = sign_in(), "/admin/editions/2026-11-19"
    with app.db.write() as session:
        session.get_one(Delivery, 8).state = DeliveryState.COMMITTING
    stale = re.search(r'name="uncertain" value="(\w+)"', desk.get(f"{edition}/{action}").text)
    assert stale
    with app.db.write() as session:
        session.get_one(Delivery, 8).state = DeliveryState.UNCERTAIN
    answer = desk.post(f"{edition}/{action}", uncertain=stale[1])
    assert (answer.status_code, "have changed since you were asked" in answer.text) == (409, True)
    assert actions(app) == []
    with app.db.read() as session:
        rows = session.exec(select(Delivery)).all()
    assert {(row.state, row.next_attempt_at) for row in rows} == {(DeliveryState.UNCERTAIN, None)}
    assert desk.press(f"{edition}/{action}").status_code == 303


@pytest.mark.usefixtures("uncertain_mails")
@pytest.mark.parametrize(
    ("pause", "until"),
    [("/admin/sending", "all sending"), ("/admin/editions/2026-11-19", "this edition"), ("", "")],
)
def test_messages_say_when_mails_are_sent(sign_in: Callable[..., Desk], pause: str, until: str) -> None:
    """No email is promised within a minute while all sending or the edition is paused."""
    desk, edition = sign_in(), "/admin/editions/2026-11-19"
    if pause:
        desk.post(f"{pause}/pause", reason="the relay moves")
    page = desk.get(desk.press(f"{edition}/resend-uncertain").headers["location"]).text
    assert f"sent again {f'when {until} is resumed' if pause else 'within a minute'}: 1." in page
    assert (": the relay moves." in page) == bool(pause)
    if until == "all sending":
        desk.post(f"{edition}/pause")
        page = desk.get(desk.post(f"{edition}/resume").headers["location"]).text
        assert "Emails that are due will be sent when all sending is resumed, and" in page


def test_all_failed_mails_of_an_edition_are_retried(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    now = clock.utcnow()
    with app.db.write() as session:
        add_digest(session, 7, people[0], DeliveryState.FAILED, now)
        session.get_one(Subscriber, people[0]).next_due_at = now + timedelta(days=1)
    desk = sign_in()
    assert "Retry all failed emails" in desk.get("/admin/editions/2026-11-19").text
    done = desk.post("/admin/editions/2026-11-19/retry-failed")
    assert "will be sent again within a minute: 1." in desk.get(done.headers["location"]).text
    with app.db.read() as session:
        assert session.get_one(Delivery, 7).state is DeliveryState.PENDING
        (entry,) = session.exec(select(AuditEntry).where(AuditEntry.action == "edition.retry_failed"))
        assert entry.subject == "2026-11-19"


def test_failed_mails_that_cannot_be_sent_again_have_no_button(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The page says why. If the button was pressed on an older page, the message has the number."""
    now = clock.utcnow()
    with app.db.write() as session:
        add_digest(session, 7, people[0], DeliveryState.FAILED, now)
        session.get_one(Subscriber, people[0]).state = SubscriberState.BOUNCING
    desk = sign_in()
    page = desk.get("/admin/editions/2026-11-19").text
    assert "Retry all failed emails" not in page
    assert "No failed digest of this edition can be sent again." in page
    done = desk.post("/admin/editions/2026-11-19/retry-failed")
    assert "will be sent again within a minute: 0." in desk.get(done.headers["location"]).text


def test_edition_that_awaits_approval(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """Its page shows a sample, and one button approves it."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Language agents that plan", now.date(), now)
        entry = ledger.Entry(
            people[0], "2026-11-19", now, sample_digest.digest(), give_up_at=now + timedelta(days=1)
        )
        ledger.hold_new(session, ["2026-11-19"], now)
        ledger.add_entries(session, [entry], now)
    desk = sign_in()
    page = desk.get("/admin/editions/2026-11-19").text
    assert "has been awaiting approval" in page
    assert "Approve and send" in page
    assert "A sample of the waiting digests" in page
    assert sample_digest.digest().picks[0].title in html.unescape(page)
    desk.post("/admin/editions/2026-11-19/resume")
    assert "awaiting approval" not in desk.get("/admin/editions/2026-11-19").text


def test_first_digests_after_an_import(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The page shows a sample of those that are held. A button there, and on the overview, sends them."""
    now = clock.utcnow()
    digest, give_up = sample_digest.digest("2026-11-19"), now + timedelta(days=1)
    with app.db.write() as session:
        ledger.pause(session, ledger.IMPORTED, now, ledger.FIRST_DIGESTS)
    desk = sign_in()
    assert "Stop holding first digests" in desk.get("/admin/editions").text
    assert "; none is waiting yet" in desk.get("/admin").text
    with app.db.write() as session:
        held = ledger.Entry(people[0], "2026-11-19", now, digest, give_up_at=give_up, held=True)
        (number,) = ledger.add_entries(session, [held], now)
    page = desk.get("/admin/editions").text
    assert f">{ALICE}</a>" in page
    assert "Send them and stop holding first digests" in page
    assert "are held until you review a sample and release them (held now: 1 digest)." in page
    assert f'href="/admin/deliveries/{number}"' in page
    edition = desk.get("/admin/editions/2026-11-19").text
    assert "Pending, but held separately: 1 first digest of imported subscribers." in edition
    pages = (f"deliveries/{number}", f"subscribers/{people[0]}", "editions/2026-11-19/readers")
    assert all(ledger.IMPORTED in desk.get(f"/admin/{page}").text for page in pages)
    overview = html.unescape(desk.get("/admin").text)
    assert ("send", "send_first_digests", "") in remedies(overview)
    since = f"{now:%Y-%m-%d %H:%M} UTC"
    assert f"those of new subscribers have been held since {since}: {ledger.IMPORTED}; 1 digest" in overview
    released = desk.post("/admin/sending/first-digests/resume").headers["location"]
    assert "except to subscribers whose next digest is composed before that" in desk.get(released).text
    assert "First digests" not in desk.get("/admin/editions").text
    with app.db.read() as session:
        assert session.get_one(Delivery, number).next_attempt_at == now
    assert desk.post("/admin/sending/first-digests/resume").status_code == 404


def test_coming_edition_is_held(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The page lists it, and a button lets it go."""
    desk, coming = sign_in(), (clock.utcnow() + timedelta(days=3)).date().isoformat()
    assert (
        desk.post("/admin/editions", edition=f" {coming} ").headers["location"] == "/admin/editions?done=held"
    )
    assert (
        f'>{coming}</td><td data-label="Why it is held">This edition will wait for approval'
        in desk.get("/admin/editions").text
    )
    assert "awaits approval" not in desk.get("/admin").text
    refused = desk.post("/admin/editions", edition="2020-01-01")
    assert refused.status_code == 422
    assert 'value="2020-01-01"' in refused.text
    released = desk.post(f"/admin/editions/{coming}/resume").headers["location"]
    assert "The edition is no longer held." in desk.get(released).text
    assert "No upcoming edition is held." in desk.get("/admin/editions").text
    assert [action for _, action in actions(app)] == ["edition.hold", "sending.resume"]


def test_waiting_digest_is_opened_as_it_would_be_sent(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The sample and the lists lead to it. Its HTML is in a frame without scripts or working links."""
    now = clock.utcnow()
    digest = sample_digest.digest("2026-11-19")
    with app.db.write() as session:
        ledger.hold_new(session, ["2026-11-19"], now)
        ledger.add_entries(
            session,
            [
                ledger.Entry(people[0], "2026-11-19", now, digest, give_up_at=now + timedelta(days=1)),
                ledger.Entry(people[1], "2026-11-19", now, Skip("no new papers")),
            ],
            now,
        )
        waiting, skipped = session.exec(select(Delivery.id).order_by(col(Delivery.id))).all()
    desk, at = sign_in(), f"/admin/deliveries/{waiting}"
    for path in ("editions/2026-11-19", "editions/2026-11-19/readers", f"subscribers/{people[0]}"):
        assert f'href="{at}"' in desk.get(f"/admin/{path}").text, path
    page = desk.get(at)
    assert digest.picks[0].title in html.unescape(page.text)
    assert f'src="{at}/html" sandbox=' in page.text
    assert "frame-src 'self'" in page.headers["content-security-policy"]
    framed = desk.get(f"{at}/html")
    assert digest.picks[0].title in html.unescape(framed.text)
    assert ALICE in framed.text
    assert "sandbox" in framed.headers["content-security-policy"]
    assert (framed.headers["x-frame-options"], framed.headers["cache-control"]) == ("SAMEORIGIN", "no-store")
    links = re.findall(r'href="https://paperboy.test(/unsubscribe/[^"]+)"', framed.text)
    assert links
    assert {desk.get(link).status_code for link in links} <= {403, 404, 410}
    assert "This digest was skipped, so there is no email." in desk.get(f"/admin/deliveries/{skipped}").text
    assert desk.get(f"/admin/deliveries/{skipped}/html").status_code == 404


@pytest.mark.parametrize(
    ("typed", "config"),
    [
        ({"name": "A blog", "kind": "feed", "address": " https://a.test/ "}, {"url": "https://a.test/"}),
        ({"name": "X", "kind": "arxiv_feed", "address": "cs.CL, cs.LG"}, {"categories": ["cs.CL", "cs.LG"]}),
        ({"name": "HF", "kind": "huggingface", "address": ""}, {}),
    ],
)  # fmt: skip
def test_add_a_source(
    app: Application, sign_in: Callable[..., Desk], typed: dict[str, str], config: dict[str, object]
) -> None:
    desk = sign_in()
    assert desk.post("/admin/sources", **typed).status_code == 303
    with app.db.read() as session:
        (source,) = session.exec(select(Source)).all()
    assert source.config == config
    for wrong in ({"address": "ftp://x"}, {"kind": "jsonl"}, {"kind": "nonsense"}, {"name": ""}):
        right = {"name": "x", "kind": "feed", "address": "https://a.test/"}
        answer = desk.post("/admin/sources", **{**right, **wrong})
        assert answer.status_code == 422, wrong
        assert 'role="alert"' in answer.text
    assert ("desk 0", "source.add") in actions(app)


def test_warm_up(app: Application, settings: Settings) -> None:
    """The page names the receivers whose emails wait, and the overview says that some do."""
    now = clock.utcnow()
    warming = replace(app, settings=settings.model_copy(update={"warm_up_start": now.date()}))
    with app.db.write() as session:
        alice = factories.add_subscriber(session, "alice@gmail.com", [], now)
        reason = f"{daily_limits.REASON}google gets at most 50 emails"
        due = {"due_at": now, "created_at": now, "next_attempt_at": now + timedelta(days=1)}
        waits = {"state": DeliveryState.DEFERRED, "reason": reason, "receiver": "google"}
        session.add(Delivery(subscriber_id=alice, edition=now.date().isoformat(), **due, **waits))
        key = api_keys.create(session, "desk", ALL, now)[1]
    with TestClient(main.create_app(warming), base_url="https://paperboy.test") as browser:
        browser.post("/admin/sign-in", data={"key": key})
        page, overview = browser.get("/admin/deliverability").text, browser.get("/admin").text
    assert re.search(r"google</td><td[^>]*>0</td><td[^>]*>50</td><td[^>]*>1<", page)
    assert "1 emails are" not in page
    assert "1 email is waiting until tomorrow: google (1)" in overview


@pytest.mark.parametrize(
    ("days", "sentence"),
    [
        (-3, "It begins on {start}; until then, there is no limit."),
        (
            0,
            (
                "It began on {start}; each receiver gets at most 50 emails today, and "
                "there is no limit from {end} on; no emails are waiting."
            ),
        ),
        (30, "It ended on {end}."),
    ],
    ids=["before", "during", "after"],
)
def test_warm_up_sentence(app: Application, settings: Settings, days: int, sentence: str) -> None:
    """The page describes the warm-up in one sentence before, during and after it."""
    now = clock.utcnow()
    start = now.date() - timedelta(days=days)
    warming = replace(app, settings=settings.model_copy(update={"warm_up_start": start}))
    with app.db.write() as session:
        key = api_keys.create(session, "desk", ALL, now)[1]
    with TestClient(main.create_app(warming), base_url="https://paperboy.test") as browser:
        browser.post("/admin/sign-in", data={"key": key})
        page = browser.get("/admin/deliverability").text
    expected = sentence.format(start=start, end=start + timedelta(days=22))
    assert f"<p>{expected}</p>" in page


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "The only notice of the last 30 days. A"),
        (2, "The newest 2 notices of the last 30 days: complaints, then bounces. A"),
    ],
)
def test_deliverability_counts_notices(
    app: Application, sign_in: Callable[..., Desk], people: list[int], count: int, words: str
) -> None:
    """One notice is singular."""
    with app.db.write() as session:
        session.add_all(
            Event(at=clock.utcnow(), kind="complaint", subscriber_id=reader) for reader in people[:count]
        )
    assert words in sign_in().get("/admin/deliverability").text


def test_suppressions(app: Application, sign_in: Callable[..., Desk], people: list[int]) -> None:
    """An address is looked up, suppressed and lifted."""
    desk, path = sign_in(), "/admin/deliverability"
    page = desk.get(f"{path}?email={ALICE}").text
    assert "This address is not suppressed." in page
    assert "The newest 0" not in page
    assert desk.post(f"{path}/lift", email=ALICE).status_code == 422
    assert desk.post(f"{path}/suppress", email="nonsense").status_code == 422
    assert desk.post(f"{path}/suppress", email=ALICE, reason="asked by telephone").status_code == 303
    assert "asked by telephone" in desk.get(f"{path}?email={ALICE}").text
    assert desk.post(f"{path}/lift", email=ALICE).status_code == 303
    with app.db.read() as session:
        assert not suppression.is_suppressed(session, ALICE)


def test_suppression_on_the_page_of_its_subscriber(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The page says why nothing is sent, and its button restores a subscriber whose email bounced."""
    desk, path = sign_in(), f"/admin/subscribers/{people[0]}"
    assert "Suppressed" not in desk.get(path).text
    assert desk.post(f"{path}/lift").status_code == 409
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "550 no such mailbox", clock.utcnow())
        subscribers.get(session, people[0]).state = SubscriberState.BOUNCING
    page = desk.get(path).text
    assert "550 no such mailbox. No mail is sent to this address." in page
    assert f'action="{path}/lift"' in page
    assert f'action="{path}/lift"' not in sign_in(Scope.READ).get(path).text
    assert desk.post(f"{path}/lift").status_code == 303
    page = desk.get(f"{path}?done=lifted").text
    assert "The address is no longer suppressed." in page
    assert "<dt>State</dt><dd>active</dd>" in page


def test_suppressed_addresses_are_listed(
    app: Application, monkeypatch: pytest.MonkeyPatch, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The newest first, with the addresses of subscribers; by reason, and page by page."""
    monkeypatch.setattr(deliverability, "ENTRIES_SHOWN", 2)
    now = clock.utcnow()
    with app.db.write() as session:
        for email, reason in ((ALICE, "550 no such user"), (BOB, "spam"), ("gone@example.org", "100% spam")):
            suppression.suppress(session, email, reason, now)
    desk, path = sign_in(), "/admin/suppressions"

    def reasons(query: str) -> list[str]:
        return re.findall(r'data-label="Reason">([^<]*)<', desk.get(path + query).text)

    assert reasons("") == ["100% spam", "spam"]
    assert reasons("?why=&at=before-2") == ["550 no such user"]
    assert reasons("?why=SPAM") == ["100% spam", "spam"]
    assert reasons("?why=100%25") == ["100% spam"]
    newest = desk.get(path).text
    assert "/admin/deliverability?email=bob%40example.net#address" in newest
    assert "gone@example.org" not in newest
    assert '?why=&amp;at=before-2" rel="next">Older' in newest


def test_deliverability_does_not_read_all_addresses(
    app: Application, monkeypatch: pytest.MonkeyPatch, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """It links to the list of suppressed addresses, and computes one hash for a lookup."""
    with app.db.write() as session:
        suppression.suppress(session, BOB, "spam", clock.utcnow())
    hashed: list[str] = []
    address_hash = suppression.address_hash

    def record_and_hash(email: str) -> str:
        hashed.append(email)
        return address_hash(email)

    monkeypatch.setattr(suppression, "address_hash", record_and_hash)
    desk = sign_in()
    assert 'href="/admin/suppressions"' in desk.get("/admin/deliverability").text
    assert hashed == []
    desk.get(f"/admin/deliverability?email={BOB}")
    assert hashed == [BOB]


def test_pages_reload_while_something_is_in_progress(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """A run until it has ended or was probably killed; an edition while it is sent. A link stops it."""
    now = clock.utcnow()
    begun = job_runs.begin(app.db, "train", now)
    lost = job_runs.begin(app.db, "send", now - timedelta(days=2))
    with app.db.write() as session:
        add_digest(session, 7, people[0], DeliveryState.CLAIMED, now)
    desk = sign_in()
    edition = "/admin/editions/2026-11-19"

    def reloads(path: str) -> bool:
        return 'http-equiv="refresh"' in desk.get(path).text

    assert reloads(f"/admin/runs/{begun}")
    assert not reloads(f"/admin/runs/{begun}?reload=no")
    assert not reloads(f"/admin/runs/{lost}")
    assert reloads(edition)
    assert 'href="?reload=no"' in desk.get(edition).text
    job_runs.abort(app.db, begun, now, "stopped")
    with app.db.write() as session:
        session.get_one(Delivery, 7).state = DeliveryState.SENT
    assert not reloads(f"/admin/runs/{begun}")
    assert not reloads(edition)


def test_runs_and_changes_are_listed(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """Failed runs can be found, and their rejected rows read."""
    now = clock.utcnow()
    with job_runs.record(app.db, "refresh", now) as run:
        run.reject([Rejection("a feed", 17, "no title", "<b>")])
        run.fail("a feed", "503 Service Unavailable")
    with job_runs.record(app.db, "prune", now):
        pass
    desk = sign_in()
    assert desk.get("/admin/runs").text.count("/admin/runs/") == 2
    assert desk.get("/admin/runs?failed=yes").text.count("/admin/runs/") == 1
    pruned = desk.get("/admin/runs?job=prune").text
    assert pruned.count("/admin/runs/") == 1
    assert '<option value="">any</option><option selected>prune</option><option>refresh</option>' in pruned
    page = desk.get("/admin/runs/1").text
    for text in ("503 Service Unavailable", "no title", "&lt;b&gt;", ">17<"):
        assert text in page
    assert desk.get("/admin/runs/99").status_code == 404
    assert desk.get("/admin/runs?at=nonsense").status_code == 422
    desk.post("/admin/sending/pause", reason="a reason")
    page = desk.get("/admin/changes?actor=desk+0").text
    assert re.search(r">paused sending</td><td[^>]*>all emails</td>", page)
    assert "sending.pause" not in page
    with app.db.write() as session:
        for action, subject in (
            ("subscriber.change", people[1]),
            ("digest.test", people[0]),
            ("subscriber.erase", 5),
            ("subscriber.import", 6),
            ("paper.hide", 7),
        ):
            audit_log.record(session, "desk 0", action, subject, now)
    page = desk.get("/admin/changes").text
    assert f'<a href="/admin/subscribers/{people[1]}">{BOB}</a>' in page
    assert f'<a href="/admin/subscribers/{people[0]}">{ALICE}</a>' in page
    assert '<a href="/admin/subscribers/5">subscriber 5</a>' in page
    assert '<a href="/admin/papers/7">paper 7</a>' in page
    assert ">6</td>" in page
    assert "paused sending" not in desk.get("/admin/changes?actor=somebody").text
    assert "desk 0" in desk.get("/admin/keys").text


@pytest.mark.parametrize("path", ["/admin/runs?job=prune&failed=yes", "/admin/changes?actor=cli"])
def test_runs_and_changes_can_be_paged_through(
    path: str, app: Application, monkeypatch: pytest.MonkeyPatch, sign_in: Callable[..., Desk]
) -> None:
    """“Older” leads through those that were searched for, and “Newer” back."""
    monkeypatch.setattr(runs, "RUNS_SHOWN", 2)
    monkeypatch.setattr(audit_log_pages, "CHANGES_SHOWN", 2)
    for number in range(5):
        with job_runs.record(app.db, "prune", clock.utcnow()) as run:
            run.fail("the disk", f"number {number} is full")
        with app.db.write() as session:
            audit_log.record(session, "cli", "source.add", f"number {number}", clock.utcnow())
            audit_log.record(session, "grafana", "source.add", "another", clock.utcnow())
    desk = sign_in()

    def follow(rel: str, page: str) -> str:
        link = re.search(rf'<a href="([^"]*)" rel="{rel}"', page)
        return desk.get(path.partition("?")[0] + html.unescape(link[1])).text if link else ""

    newest = desk.get(path).text
    older = follow("next", newest)
    oldest = follow("next", older)
    pages = [newest, older, oldest, follow("prev", oldest), follow("prev", older)]
    assert [re.findall(r"number (\d)", page) for page in pages] == [
        ["4", "3"], ["2", "1"], ["0"], ["2", "1"], ["4", "3"],
    ]  # fmt: skip
    assert (follow("prev", newest), follow("next", oldest)) == ("", "")


def test_keys_are_created_replaced_and_revoked(app: Application, sign_in: Callable[..., Desk]) -> None:
    """A new key is shown once. A key cannot pass on what it may not do itself."""
    desk = sign_in(Scope.READ, Scope.WRITE)
    page = desk.post("/admin/keys", name="Grace", scope="read").text
    (first,) = re.findall(r"<code>(pb_[\w-]+)</code>", page)
    assert first not in desk.get("/admin/keys").text
    assert (
        "name of 1 to 100 characters and at least one scope" in desk.post("/admin/keys", name="Nobody").text
    )
    assert "already exists" in desk.post("/admin/keys", name="Grace", scope="read").text
    refused = desk.post("/admin/keys", name="Mallory", scope="send")
    assert refused.status_code == 422
    assert "cannot create, rotate or revoke a key that has it" in refused.text
    (second,) = re.findall(r"<code>(pb_[\w-]+)</code>", desk.post("/admin/keys/2/rotate").text)
    now = clock.utcnow()
    with app.db.read() as session:
        for key in (first, second):
            identity = api_keys.authenticate(session, key, now)
            assert identity
            assert identity.scopes == {Scope.READ}
        assert api_keys.authenticate(session, first, now + timedelta(days=2)) is None
    desk.post("/admin/keys/3/revoke")
    with app.db.read() as session:
        assert api_keys.authenticate(session, second, now) is None
    assert actions(app)[-3:] == [("desk 0", "key.create"), ("desk 0", "key.rotate"), ("desk 0", "key.revoke")]


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("email", f"{'a' * 400}@example.org", "The address can have at most 320 characters."),
        ("interests", "\n".join(map(str, range(60))), "at most 50 interests"),
        ("interests", "x" * 1001, "at most 1,000 characters each"),
        ("consent", "x" * 501, "in 3 to 500 characters"),
        ("consent", "", "in 3 to 500 characters"),
        ("interests", "", "Enter at least one interest."),
        ("interests", 'robots\n\n"agents', "“&#34;agents”: A quotation mark is not closed."),
    ],
)
def test_refused_subscriber_is_explained(
    sign_in: Callable[..., Desk], field: str, value: str, problem: str
) -> None:
    form = {"email": "ada@example.org", "interests": "robotics", "consent": "by letter"}
    page = sign_in().post("/admin/subscribers", **form | {field: value})
    assert (page.status_code, problem in page.text.partition('role="alert"')[2][:200]) == (422, True)


def test_revoking_a_key_names_all_others_with_its_name(
    app: Application, sign_in: Callable[..., Desk]
) -> None:
    """Otherwise, a key that leaked would stay active."""
    desk = sign_in()
    desk.post("/admin/keys", name="Grace", scope="read")
    desk.post("/admin/keys/2/rotate")
    desk.post("/admin/keys/3/rotate")
    with app.db.write() as session:
        session.get_one(ApiKey, 4).expires_at = None
    page = desk.get("/admin/keys/4/revoke").text
    assert page.count("The older key with this name still works until ") == 2
    assert "If they leaked, revoke them, too." in page
    newest = "The newer key with this name still works and does not expire."
    assert newest in desk.get("/admin/keys/2/revoke").text


def test_revoking_a_replaced_key_names_the_other_one(sign_in: Callable[..., Desk]) -> None:
    """Both have the same name, and the old one works for one more day."""
    desk = sign_in()
    assert "replace it instead" in desk.get("/admin/keys/1/revoke").text
    desk.post("/admin/keys", name="Grace", scope="read")
    desk.post("/admin/keys/2/rotate")
    assert desk.get("/admin/keys").text.count(">replaced, but works until it expires</td>") == 1
    for number, other in ((3, "older"), (2, "newer")):
        page = desk.get(f"/admin/keys/{number}/revoke").text
        assert re.search(rf"The {other} key with this name still works until \d", page)
        assert "<dt>Created</dt>" in page


def test_new_key_is_shown_after_a_double_click(app: Application, sign_in: Callable[..., Desk]) -> None:
    """Browsers show only the last response. Pressing the button of a newer page is another request."""
    desk, at = sign_in(), "/admin/keys/1/rotate"
    (form_id, *_) = re.findall(r'name="form_id" value="([\w-]+)"', desk.get("/admin/keys").text)
    first, second = (desk.post(at, form_id=form_id) for _ in range(2))
    assert first.text == second.text
    (key,) = re.findall(r"<code>(pb_[\w-]+)</code>", first.text)
    with app.db.read() as session:
        assert api_keys.authenticate(session, key, clock.utcnow())
        assert len(api_keys.list_keys(session)) == 2
    assert desk.press("/admin/keys", at).status_code == 409
    assert sign_in().post(at, form_id=form_id).status_code == 409, "another session"


def test_new_key_is_not_shown_again_after_the_operator_was_revoked(sign_in: Callable[..., Desk]) -> None:
    admin, desk, fields = sign_in(), sign_in(), {"name": "Grace", "scope": "read", "form_id": "1"}
    assert "<code>pb_" in desk.post("/admin/keys", **fields).text
    assert admin.post("/admin/keys/2/revoke").status_code == 303
    refused = desk.post("/admin/keys", **fields)
    assert (refused.status_code, "pb_" in refused.text) == (303, False)


def test_last_of_several_forms_is_carried_out(app: Application, sign_in: Callable[..., Desk]) -> None:
    """If the same button is pressed after another one, on a page that the browser kept, it acts again."""
    desk = sign_in()
    for action in ("pause", "resume", "pause"):
        for _ in range(2):
            assert desk.post(f"/admin/sending/{action}", reason="a leak", form_id="1").status_code == 303
    assert [action for _, action in actions(app)] == ["sending.pause", "sending.resume", "sending.pause"]
    with app.db.read() as session:
        assert ledger.is_paused(session)


def test_error_page_has_the_menu(sign_in: Callable[..., Desk]) -> None:
    """An action that is not possible any more is no mistyped address."""
    desk = sign_in(Scope.READ, Scope.SEND)
    for answer, status, text in (
        (desk.post("/admin/sending/resume"), 404, "It has already been done, or something has changed"),
        (desk.get("/admin/sources/99"), 404, "check the address"),
        (desk.post("/admin/keys"), 403, "lacks the “write” scope"),
    ):
        assert (answer.status_code, text in answer.text) == (status, True)
        assert '<a href="/admin/editions"' in answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "same-origin", "“Sign out” sends the Origin"
        assert answer.headers["x-robots-tag"] == "noindex, nofollow"


def test_key_for_a_relay(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The button on the overview leads to a form that creates it, although operators' keys lack its scope."""
    desk = sign_in()
    (path,) = re.findall(r'href="([^"]*)">Create a key for webhooks</a>', desk.get("/admin").text)
    form = desk.get(path).text.partition('<h2 id="new">')[2]
    assert re.findall(r'name="scope" value="(\w+)" checked', form) == ["bounces"]
    page = desk.post("/admin/keys", name="relay", scope="bounces").text
    (secret,) = re.findall(r"<code>(pb_[\w-]+)</code>", page)
    with app.db.read() as session:
        key = api_keys.authenticate(session, secret, clock.utcnow())
    assert key
    assert key.scopes == {Scope.BOUNCES}
    assert ">in use</td>" in desk.get("/admin/keys").text
    assert desk.post("/admin/keys/2/revoke").status_code == 303


@pytest.mark.parametrize(("name", "scopes"), [("cli", ["write", "bounces"]), (" ", ["send"]), ("relay", [])])
def test_refused_key_stays_in_the_form(sign_in: Callable[..., Desk], name: str, scopes: list[str]) -> None:
    """The name and the scopes are kept, and no other scope is selected."""
    page = sign_in().post("/admin/keys", name=name, scope=scopes)
    assert page.status_code == 422
    assert re.findall(r'name="scope" value="(\w+)" checked', page.text) == scopes
    assert f'name="name" value="{name}"' in page.text


@pytest.mark.parametrize("scope", ["", "nonsense", "bounces"])
def test_scope_that_cannot_be_granted_is_not_selected(sign_in: Callable[..., Desk], scope: str) -> None:
    page = sign_in(Scope.READ, Scope.WRITE).get(f"/admin/keys?scope={scope}").text
    assert re.findall(r'name="scope" value="(\w+)" checked', page) == ["read"]


@pytest.mark.parametrize("scopes", [(Scope.READ, Scope.WRITE), (Scope.READ, Scope.SEND)])
def test_key_for_a_relay_needs_write_and_send(
    app: Application, sign_in: Callable[..., Desk], scopes: tuple[Scope, ...]
) -> None:
    """Forged complaints would pause all sending, which a key without `send` may not do."""
    with app.db.write() as session:
        relay = api_keys.create(session, "relay", [Scope.BOUNCES], clock.utcnow())[0].id
    desk = sign_in(*scopes)
    assert 'value="bounces"' not in desk.get("/admin/keys?scope=bounces").text
    refused = 422 if Scope.WRITE in scopes else 403
    assert desk.post("/admin/keys", name="mine", scope="bounces").status_code == refused
    for action in ("rotate", "revoke"):
        assert desk.post(f"/admin/keys/{relay}/{action}").status_code in (403, 409)
    with app.db.read() as session:
        (row,) = (key for key in api_keys.list_keys(session) if Scope.BOUNCES in key.scopes)
    assert row.revoked_at is None


def test_subscriber_is_added(app: Application, sign_in: Callable[..., Desk]) -> None:
    """With the scope `send`, they are active; otherwise they must confirm. An error keeps what was typed."""
    typed = {"email": "ada@example.org", "interests": "language agents\n\nrobots", "consent": "by letter"}
    wrong = sign_in().post("/admin/subscribers", **typed | {"email": "nonsense"})
    assert wrong.status_code == 422
    assert "language agents" in wrong.text
    assert (
        sign_in().post("/admin/subscribers", **typed).headers["location"] == "/admin/subscribers/1?done=added"
    )
    desk = sign_in(Scope.READ, Scope.WRITE)
    invited = desk.post("/admin/subscribers", **typed | {"email": "bob@example.org"}).headers["location"]
    assert "Digests start after that." in desk.get(invited).text
    assert "already registered" in desk.post("/admin/subscribers", **typed).text
    with app.db.read() as session:
        ada, bob = subscribers.get(session, 1), subscribers.get(session, 2)
        interests = [each.text for each in subscribers.preferences_of(session, ada).interests]
    assert (ada.state, bob.state) == (SubscriberState.ACTIVE, SubscriberState.PENDING)
    assert interests == ["language agents", "robots"]


def test_source_is_removed(app: Application, sign_in: Callable[..., Desk]) -> None:
    with app.db.write() as session:
        source = factories.add_source(session, clock.utcnow(), name="The lab")
    desk = sign_in()
    assert desk.post(f"/admin/sources/{source.id}/remove").headers["location"].endswith("done=removed")
    assert "The lab" not in desk.get("/admin/sources").text


def test_operator_changes_an_address(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """A refused address is shown again with the reason."""
    desk, path = sign_in(), f"/admin/subscribers/{people[0]}"
    refused = desk.post(f"{path}/address", email=BOB)
    assert refused.status_code == 422
    assert "is already registered" in refused.text
    assert f'value="{BOB}"' in refused.text
    assert desk.post(f"{path}/address", email="alice@new.example").headers["location"].endswith("=address")
    assert "The change to alice@new.example takes effect once it has been confirmed" in desk.get(path).text
    moved = desk.post(f"{path}/address", email="alice@new.example", confirmed="yes")
    assert moved.headers["location"].endswith("=moved")
    assert "<h1>alice@new.example</h1>" in desk.get(path).text
    assert [action for _, action in actions(app)] == [
        "subscriber.request_address",
        "subscriber.replace_address",
    ]


def test_limited_forms_keep_what_was_typed(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """They say how long to wait, on the page and in a header."""
    factory, path = sign_in(Scope.READ, Scope.WRITE), f"/admin/subscribers/{people[0]}/test"
    new = {"email": "carol@example.org", "interests": "robots", "consent": "by phone"}
    none = app.settings.model_copy(update={"invitations_per_hour": 0})
    factory.browser.app.state.paperboy = replace(app, settings=none)  # type: ignore[attr-defined]
    limited = factory.post("/admin/subscribers", **new)
    unmoved = factory.post(f"/admin/subscribers/{people[0]}/address", email="alice@new.example")
    desk = sign_in()
    desk.browser.app.state.capacity.analyses = WorkSlots(0)  # type: ignore[attr-defined]
    busy = desk.post(path, to="ada@example.org")
    for answer, typed, then in (
        (limited, "carol@example.org", "60 minutes, then add them again"),
        (unmoved, "alice@new.example", "60 minutes, then change the address again"),
        (busy, "ada@example.org", "2 seconds, then send the test again"),
    ):
        assert answer.status_code == 429, answer.text
        assert f"Please wait {then}." in answer.text
        assert f'value="{typed}"' in answer.text
        assert 0 < int(answer.headers["retry-after"]) <= 3600


def test_states_of_an_edition_lead_to_its_readers(
    app: Application, sign_in: Callable[..., Desk], people: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number is a link to the subscribers behind it, in pages, with the reason of each."""
    monkeypatch.setattr(editions, "MAILS_SHOWN", 1)
    now = clock.utcnow()
    with app.db.write() as session:
        why = (Skip("no new <papers>."), Skip("nothing matched."))
        entries = [ledger.Entry(who, "2026-11-20", now, why) for who, why in zip(people, why, strict=True)]
        ledger.add_entries(session, entries, now)
    desk = sign_in()
    links = set[str]()
    for page in ("/admin/editions", "/admin/editions/2026-11-20"):
        links |= set(re.findall(r'href="(/admin/editions/2026-11-20/readers[^"]*)">2<', desk.get(page).text))
    assert links == {"/admin/editions/2026-11-20/readers?state=skipped"}
    first = desk.get(links.pop()).text
    assert (BOB in first, ALICE in first, "nothing matched." in first) == (True, False, True)
    (older,) = re.findall(r'href="([^"]+)" rel="next"', first)
    second = desk.get(f"/admin/editions/2026-11-20/readers{html.unescape(older)}").text
    assert (BOB in second, ALICE in second, "no new &lt;papers&gt;." in second) == (False, True, True)
    assert 'rel="next"' not in second
    for query in ("?state=sent", "?state=pending&state=deferred"):
        assert "None." in desk.get(f"/admin/editions/2026-11-20/readers{query}").text
    with app.db.write() as session:
        subscribers.erase(session, people[0], now)
    assert (
        f'/admin/subscribers/{people[0]}">{people[0]}<'
        in desk.get(f"/admin/editions/2026-11-20/readers{html.unescape(older)}").text
    )


def test_next_digests_of_all_subscribers(
    app: Application, sign_in: Callable[..., Desk], people: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages, newest first, or only of those who are due."""
    monkeypatch.setattr(next_digests, "PREVIEWS_SHOWN", 1)
    with app.db.write() as session:
        alice = subscribers.get(session, people[0])
        alice.next_due_at = clock.utcnow() + timedelta(days=1)
        session.add(alice)
    desk = sign_in()
    first = desk.get("/admin/subscribers/next").text
    assert (BOB in first, ALICE in first, "2 active subscribers" in first) == (True, False, True)
    (older,) = re.findall(r'href="([^"]+)" rel="next"', first)
    second = desk.get(f"/admin/subscribers/next{html.unescape(older)}").text
    assert (BOB in second, ALICE in second, 'rel="next"' in second) == (False, True, False)
    due = desk.get("/admin/subscribers/next?due=yes").text
    assert (BOB in due, "1 due subscriber would" in due, 'rel="next"' in due) == (True, True, False)


def test_page_shows_all_preferences(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    chosen = Preferences(
        cadence=Cadence.WEEKLY, weekday=2, hour=7, zone="UTC", min_papers=2, max_papers=6, max_trending=3,
        when_empty=EmptyDigestPolicy.TRENDING, paper_updates=False,
        interests=(Interest("diffusion models", 2.0, 1), Interest("speech", 1.0, 3), Interest("robotics")),
    )  # fmt: skip
    with app.db.write() as session:
        subscribers.change(session, people[0], chosen, clock.utcnow())
    page = re.sub("</?bdi>", "", sign_in().get(f"/admin/subscribers/{people[0]}").text)
    for fact in (
        "weekly on Wednesday, 07:00 UTC",
        "2 to 6, including at most 3 trending; if none match: trending papers",
        "<dt>Updates</dt><dd>none</dd>",
        "diffusion models (weight 2, at most 1 paper), speech (at most 3 papers), robotics",
    ):
        assert fact in page


def test_paused_sending_says_that_confirmations_wait(
    app: Application, sign_in: Callable[..., Desk], visitor: TestClient
) -> None:
    """On the admin pages, and to those who sign up or request a link."""
    desk = sign_in()
    paused = "paused all email for now"
    form = {"email": "carol@example.org", "cadence": "daily", "hour": "7", "zone": "UTC"}
    hurry = "Nothing after a few minutes?"
    before = visitor.post("/manage", data=form).text
    assert (paused in before, hurry in before) == (False, True)
    desk.post("/admin/sending/pause", reason="the relay moves")
    assert "Confirmations and requested links also wait" in desk.get("/admin/editions").text
    assert "confirmations and requested links also wait" in desk.get("/admin").text
    for path in ("/manage", "/subscribe"):
        page = visitor.post(path, data=form).text
        assert (paused in page, hurry in page) == (True, False)


@pytest.mark.usefixtures("uncertain_mails")
@pytest.mark.parametrize(
    ("path", "page"),
    [("/admin/sending", "/admin/editions"), ("/admin/editions/2026-11-19", "/admin/editions/2026-11-19")],
)
def test_second_pause_adds_its_reason(sign_in: Callable[..., Desk], path: str, page: str) -> None:
    """Whoever knows only the first reason does not resume by mistake."""
    first, second = sign_in(), sign_in()
    first.post(f"{path}/pause", reason="relay maintenance")
    (version,) = re.findall(r'name="pause" value="(\w+)"', first.get(page).text)
    second.post(f"{path}/pause", reason="the DKIM key leaked")
    reasons = "relay maintenance; also: the DKIM key leaked"
    assert reasons in first.get(page).text
    refused = first.post(f"{path}/resume", pause=version)
    assert (refused.status_code, f"It is now: {reasons}. Open the page again" in refused.text) == (409, True)
    assert "something has changed since you opened this page" not in refused.text, "the detail says more"
    assert reasons in first.get(page).text
    assert first.press(page, f"{path}/resume").status_code == 303
    assert reasons not in first.get(page).text


@pytest.mark.usefixtures("uncertain_mails")
@pytest.mark.parametrize("scope", ["sending", "edition", "approval"])
def test_button_of_a_finding_refuses_a_changed_reason(
    app: Application, sign_in: Callable[..., Desk], scope: str
) -> None:
    """The overview showed only the first reason."""
    desk, edition = sign_in(), ledger.ALL_EDITIONS if scope == "sending" else "2026-11-19"
    first = ledger.AWAITS_APPROVAL if scope == "approval" else "relay maintenance"
    with app.db.write() as session:
        ledger.pause(session, first, clock.utcnow(), edition)
    form = re.search(r'action="/admin/remedies/send">(.*?name="pause".*?)</form>', desk.get("/admin").text)
    assert form
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)">', form[1]))
    with app.db.write() as session:
        ledger.pause(session, "the DKIM key leaked", clock.utcnow(), edition)
    refused = desk.post("/admin/remedies/send", **fields)
    assert (refused.status_code, f"It is now: {first}; also: the DKIM key leaked." in refused.text) == (
        409,
        True,
    )
    assert desk.press("/admin", "/admin/remedies/send").status_code == 303
    with app.db.read() as session:
        assert not ledger.is_paused(session, edition)


def test_sending_can_be_paused_from_the_overview(sign_in: Callable[..., Desk]) -> None:
    """It says that sending is not paused, and leads to the form that stops them, which says so, too."""
    desk = sign_in()
    link = '<a href="/admin/editions#sending">Pause all sending …</a>'
    assert link in desk.get("/admin").text
    assert link not in sign_in(Scope.READ).get("/admin").text
    section = desk.get("/admin/editions").text.partition('<h2 id="sending">')[2].partition("</section>")[0]
    assert "Sending is not paused." in section
    assert 'action="/admin/sending/pause"' in section
    desk.post("/admin/sending/pause", reason="the relay moves")
    for path in ("/admin", "/admin/editions"):
        assert "Sending is not paused." not in desk.get(path).text


def test_service_emails_have_names(app: Application, sign_in: Callable[..., Desk], people: list[int]) -> None:
    """An email that is not a digest is named after its purpose, and has no edition."""
    now = clock.utcnow()
    with app.db.write() as session:
        number = ledger.enqueue(
            session, subscriber_id=people[0], kind=MailKind.MANAGE, edition="manage-1", due_at=now, now=now
        )
    desk = sign_in()
    page = desk.get(f"/admin/deliveries/{number}").text
    assert "<h1>Link to the preferences</h1>" in page
    assert "Only digests are stored, so this email cannot be shown." in page
    waiting = desk.get("/admin/editions").text
    assert "Waiting: 1 email of the kind “link to the preferences”. The next is due at" in waiting
    desk.post("/admin/sending/pause", reason="the relay moves")
    assert "preferences”. None is sent while sending is paused." in desk.get("/admin/editions").text
    for text in (page, waiting, desk.get(f"/admin/subscribers/{people[0]}").text):
        assert "manage-1" not in text


def test_states_are_explained_in_lists(
    app: Application, sign_in: Callable[..., Desk], people: list[int]
) -> None:
    """The list of an edition's digests says what the chosen state means, or else those in the list."""
    with app.db.write() as session:
        due = {"edition": "2026-11-20", "due_at": clock.utcnow(), "created_at": clock.utcnow()}
        held = Delivery(subscriber_id=people[0], kind=MailKind.DIGEST, state=DeliveryState.UNCERTAIN, **due)
        session.add(held)
    page = sign_in().get("/admin/editions/2026-11-20/readers?state=deferred").text
    assert re.findall(r"<li><strong>(\w+)</strong>", page) == ["deferred"]
    page = sign_in().get("/admin/editions/2026-11-20/readers").text
    assert re.findall(r"<li><strong>(\w+)</strong>", page) == ["uncertain"]
