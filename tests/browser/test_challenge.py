"""Test sign-up past the threshold: the browser solves a challenge, or the visitor waits."""

from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlmodel import select

from app import clock
from app.storage.models import FormSubmission, RateLimit
from tests.support.running_app import Live

pytestmark = pytest.mark.browser


def test_challenge_with_and_without_scripts(
    live_server: Live, page: Page, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways keep the form and send the email, and the content security policy allows the script."""
    app, now = live_server.app, clock.utcnow()
    with app.db.write() as session:
        session.add(RateLimit(name="everybody", hits=10_000, expires_at=now + timedelta(hours=1)))
    page.goto(live_server.url)
    page.get_by_label("Email address").fill("alice@example.org")
    page.get_by_label("Interest 2").fill('"world models" & more')
    page.get_by_role("button", name="Send me the digest").click()
    expect(page.get_by_role("heading", name="Check your mailbox")).to_be_visible()
    check_back_button(page)

    context = browser.new_context(java_script_enabled=False, viewport={"width": 375, "height": 812})
    quiet = context.new_page()
    quiet.goto(live_server.url + "/manage")
    quiet.get_by_label("Email address").fill("bob@example.org")
    quiet.get_by_role("button", name="Send me the link").click()
    expect(quiet.get_by_text("Please wait 60 seconds")).to_be_visible()
    quiet.get_by_role("button", name="Send", exact=True).click()
    expect(quiet.get_by_text("Please wait")).to_be_visible()
    monkeypatch.setattr(clock, "_ahead", timedelta(seconds=61))
    quiet.get_by_role("button", name="Send", exact=True).click()
    expect(quiet.get_by_role("heading", name="Check your mailbox")).to_be_visible()
    context.close()

    with app.db.read() as session:
        stored = session.exec(select(FormSubmission).order_by(FormSubmission.id)).all()  # type: ignore[arg-type]
    assert len(stored) == 3, "two from the first page: the visitor sent it again on purpose"
    assert [interest["text"] for interest in stored[0].preferences["interests"]] == ['"world models" & more']


def check_back_button(page: Page) -> None:
    """Check that going back sends nothing until the visitor presses the button."""
    forms: list[str] = []
    page.on("request", lambda request: forms.append(request.url) if request.method == "POST" else None)
    page.go_back()
    expect(page.get_by_text("The form is sent only if you press the button.")).to_be_visible()
    assert len(forms) <= 1, "the browser repeats the request for the page, and the script sends no other"
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("heading", name="Check your mailbox")).to_be_visible()
