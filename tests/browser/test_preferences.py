"""A reader's own page, from the first change to the last: with a keyboard alone, and without scripts."""

from __future__ import annotations

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
RIS = b"TY  - GEN\nTI  - A Paper Out of Zotero\nER  - \nTY  - GEN\nER  - \n"


@pytest.fixture
def alice(live_server: Live) -> int:
    """A reader of a service that has a paper on agents."""
    now = clock.utcnow()
    with live_server.app.db.write() as session:
        factories.paper(session, factories.source(session, now), "Language Agents", now.date(), now)
        return subscribers.add(session, "alice@example.org", WANTED, now - timedelta(days=2))


@pytest.fixture
def preferences(live_server: Live, alice: int) -> str:
    """Where her preferences are."""
    token = live_server.app.signer.token(Purpose.PREFERENCES, alice, clock.utcnow())
    return f"{live_server.url}/{Purpose.PREFERENCES}/{token}"


def reach(page: Page, wanted: Locator) -> None:
    """Go there as a keyboard does."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"no key leads to {wanted}")


def chosen(live_server: Live, reader: int) -> Preferences:
    with live_server.app.db.read() as session:
        return subscribers.preferences_of(session, subscribers.get(session, reader))


def test_a_keyboard_is_enough(
    mail_server: MailServer, live_server: Live, page: Page, alice: int, preferences: str
) -> None:
    """To change interests with a look ahead, add papers, take a break, and have everything erased."""
    page.goto(preferences)
    reach(page, page.get_by_label("Interest 2", exact=True))
    page.keyboard.type("agents")
    expect(page.get_by_role("region", name="Preview of your digest")).to_contain_text("Language Agents")
    expect(page.get_by_label("Interest 2", exact=True)).to_be_focused()
    assert axe.violations(page) == []
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Saved.")
    assert [wish.text for wish in chosen(live_server, alice).interests] == ["robots", "agents"]

    reach(page, page.get_by_text("Add papers you like"))
    page.keyboard.press("Enter")
    reach(page, page.get_by_label("Papers you like", exact=True))
    page.keyboard.type("A Paper That Was Pasted")
    file = page.get_by_label("Or upload a file")
    reach(page, file)
    file.set_input_files({"name": "big.ris", "mimeType": "text/plain", "buffer": RIS * 20_000})
    expect(page.get_by_text("This file is too large")).to_be_visible()
    file.set_input_files({"name": "mine.ris", "mimeType": "text/plain", "buffer": RIS})
    expect(page.get_by_text("This file is too large")).to_have_count(0)
    reach(page, page.get_by_role("button", name="Add papers"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("2 papers were added.")).to_be_visible()
    expect(page.get_by_text("mine.ris, line 4: a RIS entry without title")).to_be_visible()
    assert axe.violations(page) == []
    reach(page, page.get_by_role("link", name="Back to your preferences"))
    page.keyboard.press("Enter")

    take_a_break(page)
    reach(page, page.get_by_role("button", name="Erase everything"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("We sent you an e-mail")
    page.goto(link_to(mail_server.wait_for(1)[0], "erase"))
    reach(page, page.get_by_role("button", name="Erase everything"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("erased")
    with live_server.app.db.read() as session:
        assert subscribers.get(session, alice).state is SubscriberState.ERASED


def test_a_mistake_in_what_is_wanted_is_told_beside_its_field(page: Page, preferences: str) -> None:
    """By the preview, while typing; and it goes with it, so that the field's own hint is told again."""
    page.goto(preferences)
    muted, least = page.get_by_label("Muted"), page.get_by_label("At least")
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


def take_a_break(page: Page) -> None:
    """Half a day is not taken for none, nor one that is over for one to come."""
    today, until = clock.utcnow().date(), page.get_by_label("Resume on")
    # The browser asks for day and month in the order of its own language.
    back = next(day for n in range(2, 40) if (day := today + timedelta(days=n)).day == day.month)
    reach(page, until)
    for typed in (f"{back:%d}", f"{back:%d%m}2019"):
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        assert until.evaluate("field => document.activeElement === field && !field.validity.valid")
        for _ in range(3):
            page.keyboard.press("Shift+Tab")
        reach(page, until)
    page.keyboard.type(f"{back:%d%m%Y}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Paused.")
    expect(page.get_by_text(f"{back.day}\N{NO-BREAK SPACE}{back:%b %Y}").first).to_be_visible()


def test_it_works_without_scripts(live_server: Live, browser: Browser, alice: int, preferences: str) -> None:
    """To look ahead by a button loses nothing and saves nothing; to save saves it."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(preferences)
    page.get_by_label("Interest 2", exact=True).fill("agents, memory")
    page.get_by_label("Weight of interest 2").select_option("2")
    page.get_by_label("At", exact=True).select_option("5")
    page.get_by_role("button", name=LOOK).click()
    page.get_by_role("button", name="Split them").click()
    expect(page.get_by_role("region", name="Preview of your digest")).to_contain_text("Language Agents")
    expect(page.get_by_label("Interest 3", exact=True)).to_have_value("memory")
    assert chosen(live_server, alice).interests == WANTED.interests
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    saved = chosen(live_server, alice)
    assert [(wish.text, wish.weight) for wish in saved.interests] == [
        ("robots", 1),
        ("agents", 2),
        ("memory", 2),
    ]
    assert saved.hour == 5
    context.close()
