"""Test the admin pages at any width, in light and dark mode, and with a keyboard only."""

from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from app import clock, subscribers
from app.delivery import ledger, suppression
from app.digests.operator_changes import Editor
from app.papers import poll_history
from app.storage import api_keys, job_runs, webhook_endpoints
from app.storage.api_keys import Scope
from app.storage.models import Event, Source
from app.subscribers import Preferences
from app.types import IngestSummary, Interest, Rejection, Skip, SourceKind
from tests.browser import axe
from tests.browser.test_pages import LONG, SCHEMES
from tests.support import factories, sample_digest
from tests.support.running_app import Live

LONG_WORD = "x" * 200
LONG_ADDRESS = f"{LONG_WORD[:60]}@{LONG_WORD[:60]}.{LONG_WORD[:60]}.example.org"
CSV_FILE = (
    "email,interests,muted,hour,"
    + "x" * 90
    + f"\n{'alice' * 12}@example.org,{LONG[:200]}; robotics,{LONG_WORD[:60]},7,\nbob,{LONG},,seven,\n"
)

pytestmark = pytest.mark.browser


@pytest.fixture
def key(live_server: Live) -> str:
    """Fill every page with difficult texts, and return a key."""
    app, now = live_server.app, clock.utcnow()
    with app.db.write() as session:
        preferences = Preferences(interests=(Interest(LONG), Interest(LONG_WORD[:60])), muted=("crypto",))
        alice = subscribers.add(session, LONG_ADDRESS, preferences, now - timedelta(days=2))
        ledger.add_entries(session, [ledger.Entry(alice, now.date().isoformat(), now, Skip(LONG * 3))], now)
        ledger.pause(session, LONG, now)
        ledger.pause(session, ledger.IMPORTED, now, ledger.FIRST_DIGESTS)
        digest = sample_digest.digest(now.date().isoformat())
        held = ledger.Entry(alice, "2026-11-01", now, digest, held=True)
        ledger.add_entries(session, [held], now)
        suppression.suppress(session, LONG_ADDRESS, LONG, now)
        webhook_endpoints.add(session, f"https://{'x' * 60}.example.org/", ["sending.paused"], False, now)
        session.add(Event(at=now, kind="complaint", subscriber_id=alice, detail=LONG))
        feed = {"url": f"https://example.org/{LONG_WORD}"}
        source = Source(
            name=LONG_WORD[:90],
            kind=SourceKind.FEED,
            config=feed,
            created_at=now,
            failures=3,
            last_error=LONG,
        )
        session.add(source)
        session.flush()
        summary = IngestSummary(rows=1, rejections=(Rejection(LONG, 1, LONG),))
        poll_history.record(session, source, now, now, summary, LONG)
        papers = [
            factories.add_paper(
                session, source, LONG + name, now.date(), now,
                abstract=LONG, authors=[LONG_WORD[:90]], doi=f"10.1234/{LONG_WORD[:150]}-{name}",
            )
            for name in ("one", "two", "three")
        ]  # fmt: skip
        editor = Editor(session, "desk", now)
        editor.merge(*papers[:2])
        editor.edit(papers[0], {"tldr": LONG, "code_url": f"https://example.org/{LONG.split()[0]}"})
        editor.hide(papers[0])
        api_keys.create(session, LONG_WORD[:100], [*Scope], now)
        created = api_keys.create(session, "desk", [Scope.READ, Scope.WRITE, Scope.SEND], now)[1]
    with job_runs.record(app.db, "refresh", now) as run:
        run.reject([Rejection(LONG, 1, "no title", LONG_WORD)])
        run.fail(LONG, LONG)
    return created


def sign_in_by_keyboard(page: Page, live_server: Live, key: str) -> None:
    page.goto(f"{live_server.url}/admin")
    page.get_by_label("Key").press_sequentially(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the link or button with this name has the focus, which must be visible."""
    for _ in range(80):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "const at = document.activeElement; [at.textContent.trim(), getComputedStyle(at).outlineStyle]"
        )
        if focused[0] == name:
            assert focused[1] != "none", f"the focus on “{name}” cannot be seen"
            return
    pytest.fail(f"Tab does not lead to “{name}”")


@pytest.mark.once
@pytest.mark.timeout(120)
def test_admin_navigation_by_keyboard(live_server: Live, page: Page, key: str) -> None:
    """Tab leads to every page of the navigation, in its order, and Enter opens it."""
    sign_in_by_keyboard(page, live_server, key)
    names = page.get_by_role("navigation", name="Admin").get_by_role("link").all_inner_texts()
    for name in names:
        tab_to(page, name)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        current = page.get_by_role("navigation", name="Admin").locator("[aria-current=page]")
        expect(current).to_have_text(name)


@pytest.mark.once
@pytest.mark.timeout(120)
def test_link_in_webmail_opens_the_page(live_server: Live, page: Page, key: str) -> None:
    """An operator who is signed in sees it after a click, with the query of its address."""
    sign_in_by_keyboard(page, live_server, key)
    paths = {"Runs": "/admin/runs", "Subscribers": "/admin/subscribers?state=active"}
    links = "".join(f'<a href="{live_server.url}{path}">{name}</a>' for name, path in paths.items())
    page.route("http://mail.test/", lambda route: route.fulfill(body=links, content_type="text/html"))
    for name, path in paths.items():
        page.goto("http://mail.test/")
        page.get_by_role("link", name=name).click()
        page.get_by_role("link", name="Open the page").click()
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
        assert page.url == live_server.url + path


@pytest.mark.once
@pytest.mark.timeout(120)
def test_finding_is_resolved_by_keyboard(live_server: Live, page: Page, key: str) -> None:
    """Its button is reached by Tab, does its work, and the overview says so."""
    sign_in_by_keyboard(page, live_server, key)
    tab_to(page, "Resume all sending: sending")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text(
        "Sending is resumed. Emails that are due will be sent within a minute, and the others when they are "
        "due. Emails that the relay deferred will be sent at their next attempt."
    )
    expect(page.get_by_role("button", name="Resume all sending")).to_have_count(0)


@pytest.mark.once
@pytest.mark.timeout(120)
def test_edition_takes_three_lines_on_a_phone(live_server: Live, page: Page, key: str) -> None:
    """Its counts are side by side, each with its name. On a desk, it is a row of a table."""
    sign_in_by_keyboard(page, live_server, key)
    page.set_viewport_size({"width": 375, "height": 800})
    page.goto(f"{live_server.url}/admin/editions")
    row = page.get_by_role("row").filter(has_text="2026-11-01").last
    line = row.evaluate("row => parseFloat(getComputedStyle(row).lineHeight)")
    assert row.evaluate("row => row.clientHeight") < 5 * line  # with its padding
    labels = row.evaluate("row => [...row.cells].map(cell => getComputedStyle(cell, '::before').content)")
    assert labels[1:3] == ['"Sent"', '"Skipped"']
    page.set_viewport_size({"width": 1280, "height": 800})
    assert row.evaluate("row => getComputedStyle(row).display") == "table-row"


@pytest.mark.once
@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", [360, 1280])
def test_sign_out_is_beside_the_name(live_server: Live, page: Page, key: str, width: int) -> None:
    """The menu is below both, however long the name is."""
    sign_in_by_keyboard(page, live_server, key)
    page.set_viewport_size({"width": width, "height": 800})
    name = page.locator(".masthead .name").bounding_box()
    button = page.get_by_role("button", name="Sign out").bounding_box()
    menu = page.get_by_role("navigation", name="Admin").bounding_box()
    assert name
    assert button
    assert menu
    assert name["y"] <= button["y"] + button["height"] / 2 <= name["y"] + name["height"]
    assert button["y"] + button["height"] <= menu["y"]


@pytest.mark.once
@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", [360, 1280])
def test_kind_of_a_source_is_not_cut(live_server: Live, page: Page, key: str, width: int) -> None:
    """The list is wide enough for the kind that is selected at first."""
    sign_in_by_keyboard(page, live_server, key)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{live_server.url}/admin/sources")
    actual, needed = page.get_by_label("Kind", exact=True).evaluate(
        """list => {
            const actual = list.offsetWidth;
            list.replaceChildren(list.selectedOptions[0]);
            list.style.width = "max-content";
            return [actual, list.offsetWidth];
        }"""
    )
    assert actual >= needed


@pytest.mark.once
@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", [360, 1280])
def test_error_of_a_form_is_in_sight(live_server: Live, page: Page, key: str, width: int) -> None:
    """The browser scrolls to the error, wherever the form is on its page."""
    sign_in_by_keyboard(page, live_server, key)
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(f"{live_server.url}/admin/sources")
    page.get_by_label("Name").fill("Our lab")
    page.get_by_label("Feed URL").fill("www.example.org/papers")
    for button in ("Add", "Try"):
        page.get_by_role("button", name=button, exact=True).press("Enter")
        error = page.get_by_text("A feed needs a URL that begins with")
        expect(error).to_be_in_viewport()
        expect(page.get_by_label("Feed URL")).to_have_accessible_description(str(error.text_content()))
    page.goto(f"{live_server.url}/admin/subscribers/1")
    page.get_by_role("button", name="Erase").press("Enter")
    expect(page.get_by_role("alert")).to_be_in_viewport()


@pytest.mark.once
@pytest.mark.timeout(300)
def test_admin_pages_are_accessible(live_server: Live, page: Page, key: str) -> None:
    """An operator signs in and finds each page by keyboard. axe-core finds no problem."""
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{live_server.url}/admin/runs/1")
    page.get_by_label("Key").press_sequentially(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Run 1: refresh")
    links = page.get_by_role("navigation", name="Admin").get_by_role("link").all()
    paths = [str(link.get_attribute("href")) for link in links]
    assert len(paths) == 11
    today = clock.utcnow().date().isoformat()
    page.goto(f"{live_server.url}/admin/subscribers/import")
    page.get_by_label("CSV file").set_input_files(
        {"name": "readers.csv", "mimeType": "text/csv", "buffer": CSV_FILE.encode()}
    )
    page.get_by_role("button", name="Upload and check").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Check the import")
    uploaded = page.url.rpartition("/")[2]
    deeper = [
        "subscribers/1",
        "subscribers/1?paper=1",
        "subscribers/1/preview",
        "subscribers/1/preferences",
        "subscribers/next",
        "subscribers/import",
        f"subscribers/import/{uploaded}",
        f"editions/{today}",
        f"editions/{today}/readers",
        "deliveries/1",
        "deliveries/2",
        "webhooks/1",
        "runs/1",
        "papers/1",
        "papers/1/merge?other=3",
        "sources/1",
        "sources/1/remove",
        "deliverability?email=a@b.c",
        "suppressions",
    ]
    for path in [*paths, *(f"/admin/{each}" for each in deeper)]:
        page.goto(live_server.url + path)
        for width in (320, 768, 1920, 375, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            if scheme := SCHEMES.get(width):
                page.emulate_media(color_scheme=scheme)
                assert axe.violations(page) == [], (path, scheme)
    page.get_by_role("button", name="Sign out").press("Enter")
    page.goto(f"{live_server.url}/admin")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.set_viewport_size({"width": 320, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert axe.violations(page) == []
