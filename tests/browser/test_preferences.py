"""Test the preferences page with a keyboard only, and without scripts."""

from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app import clock, subscribers
from app.links import Purpose
from app.storage.models import SubscriberState
from app.subscribers import Preferences
from app.types import Interest
from tests.browser import axe
from tests.browser.test_story import link_to
from tests.support import factories
from tests.support.mail_server import MailServer
from tests.support.running_app import Live

pytestmark = pytest.mark.browser

WANTED = Preferences(zone="Asia/Tokyo", interests=(Interest("robots"),))
LOOK = "Preview today’s digest"
RIS = b"TY  - GEN\nTI  - Diffusion Models for Protein Folding\nER  - \nTY  - GEN\nER  - \n"


@pytest.fixture
def alice(live_server: Live) -> int:
    """Add a reader to a service that has a paper on agents."""
    now = clock.utcnow()
    with live_server.app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Language Agents", now.date(), now)
        return subscribers.add(session, "alice@example.org", WANTED, now - timedelta(days=2))


@pytest.fixture
def preferences(live_server: Live, alice: int) -> str:
    """Return the URL of Alice's preferences."""
    token = live_server.app.signer.token(Purpose.PREFERENCES, alice, clock.utcnow())
    return f"{live_server.url}/{Purpose.PREFERENCES}/{token}"


def focus_by_keyboard(page: Page, target: Locator) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"no key leads to {target}")


def preferences_of(live_server: Live, reader: int) -> Preferences:
    with live_server.app.db.read() as session:
        return subscribers.preferences_of(session, subscribers.get(session, reader))


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "invalid", "valid", "button", "focused"),
    [
        ("interest", '"', "agents", "Save", ".notice.bad"),
        ("email", "alice", "alice@new.example.org", "Change address", "#new-address"),
        ("until", "31 May", "", "Pause", "#until"),
    ],
)
def test_mistake_has_the_focus_until_it_is_fixed(
    page: Page, preferences: str, name: str, invalid: str, valid: str, button: str, focused: str
) -> None:
    """The browser scrolls to it. After the next success, the address has no fragment."""
    page.goto(preferences)
    field = page.locator(f"[name={name}]").first
    field.evaluate("element => { element.type = 'text' }")
    field.fill(invalid)
    page.get_by_role("button", name=button, exact=True).last.click()
    expect(page.locator(focused)).to_be_focused()
    expect(page.locator(focused)).to_be_in_viewport()
    field.fill(valid)
    page.get_by_role("button", name=button, exact=True).last.click()
    page.wait_for_url("**?done=*")
    assert "#" not in page.url


@pytest.mark.once
def test_preferences_by_keyboard(
    mail_server: MailServer, live_server: Live, page: Page, alice: int, preferences: str
) -> None:
    """Change interests with a preview, add papers, pause, and erase everything."""
    page.goto(preferences)
    focus_by_keyboard(page, page.get_by_label("Interest 2", exact=True))
    page.keyboard.type("agents")
    expect(page.get_by_role("region", name="Preview of your digest")).to_contain_text("Language Agents")
    expect(page.get_by_label("Interest 2", exact=True)).to_be_focused()
    assert axe.violations(page) == []
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Saved.")
    assert [interest.text for interest in preferences_of(live_server, alice).interests] == [
        "robots",
        "agents",
    ]

    focus_by_keyboard(page, page.get_by_text("Add papers you like"))
    page.keyboard.press("Enter")
    focus_by_keyboard(page, page.get_by_label("Papers you like", exact=True))
    page.keyboard.type("A Paper That Was Pasted")
    file = page.get_by_label("Or upload a file")
    focus_by_keyboard(page, file)
    file.set_input_files({"name": "big.ris", "mimeType": "text/plain", "buffer": RIS * 20_000})
    expect(page.get_by_text("This file is too large")).to_be_visible()
    file.set_input_files({"name": "mine.ris", "mimeType": "text/plain", "buffer": RIS})
    expect(page.get_by_text("This file is too large")).to_have_count(0)
    focus_by_keyboard(page, page.get_by_role("button", name="Add papers"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("2 papers were added.")).to_be_visible()
    expect(page.get_by_text("mine.ris, line 4: a RIS entry without title")).to_be_visible()
    assert axe.violations(page) == []
    focus_by_keyboard(page, page.get_by_role("link", name="Back to your preferences"))
    page.keyboard.press("Enter")

    check_pause(page)
    focus_by_keyboard(page, page.get_by_role("button", name="Erase everything"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("We sent you an email")
    page.goto(link_to(mail_server.wait_for(1)[0], "erase"))
    focus_by_keyboard(page, page.get_by_role("button", name="Erase everything"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("erased")
    with live_server.app.db.read() as session:
        assert subscribers.get(session, alice).state is SubscriberState.ERASED


@pytest.mark.once
def test_invalid_preference_is_marked_until_corrected(page: Page, preferences: str) -> None:
    """The preview marks it while typing, and restores the field's hint."""
    page.goto(preferences)
    expect(page.get_by_role("button", name="Save")).to_be_in_viewport()
    page.get_by_text("More options").click()
    muted, least = page.get_by_label("Muted"), page.get_by_label("Minimum papers")
    hint = page.locator("#muted-hint").inner_text()
    muted.fill("the")
    least.fill("99")
    expect(muted).to_have_accessible_description("“the” cannot be muted. Choose a more specific word.")
    expect(least).to_have_accessible_description("Choose a number from 1 to 30.")
    expect(page.locator(".problem")).to_have_count(2)
    assert axe.violations(page) == []
    muted.fill("chess")
    expect(muted).to_have_accessible_description(hint)
    expect(least).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".problem")).to_have_count(1)


@pytest.mark.once
def test_fields_beside_each_other_are_aligned(page: Page, preferences: str) -> None:
    """One of their labels needs two lines."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(preferences)
    page.get_by_text("More options").click()
    labels, fields = (
        [page.locator(selector.format(name)).bounding_box() for name in ("min_papers", "max_papers")]
        for selector in ("label[for={}]", "#{}")
    )
    assert labels[0]["height"] > labels[1]["height"]  # type: ignore[index]
    assert fields[0]["y"] == fields[1]["y"]  # type: ignore[index]


def check_pause(page: Page) -> None:
    """Check that an incomplete date and a past date are refused."""
    today, until = clock.utcnow().date(), page.get_by_label("Resume on")
    # The order of day and month depends on the browser's language.
    back = next(day for n in range(2, 40) if (day := today + timedelta(days=n)).day == day.month)
    focus_by_keyboard(page, until)
    for typed in (f"{back:%d}", f"{back:%d%m}2019"):
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        assert until.evaluate("field => document.activeElement === field && !field.validity.valid")
        for _ in range(3):
            page.keyboard.press("Shift+Tab")
        focus_by_keyboard(page, until)
    page.keyboard.type(f"{back:%d%m%Y}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Paused.")
    expect(page.get_by_text(f"{back.day}\N{NO-BREAK SPACE}{back:%b %Y}").first).to_be_visible()


@pytest.mark.once
def test_preferences_without_scripts(
    live_server: Live, browser: Browser, alice: int, preferences: str
) -> None:
    """The preview keeps the form and saves nothing; the save button saves."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(preferences)
    page.get_by_label("Interest 2", exact=True).fill("agents, memory")
    page.get_by_label("Papers for interest 2", exact=True).select_option("2")
    page.get_by_label("At", exact=True).select_option("5")
    page.get_by_role("button", name=LOOK).click()
    page.get_by_role("button", name="Split them").click()
    expect(page.get_by_role("region", name="Preview of your digest")).to_contain_text("Language Agents")
    expect(page.get_by_label("Interest 3", exact=True)).to_have_value("memory")
    assert preferences_of(live_server, alice).interests == WANTED.interests
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    saved = preferences_of(live_server, alice)
    assert [(interest.text, interest.weight) for interest in saved.interests] == [
        ("robots", 1),
        ("agents", 2),
        ("memory", 2),
    ]
    assert saved.hour == 5
    context.close()
