"""Test the preview before sign-up: while typing, and by a button without scripts."""

from datetime import timedelta
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect
from sqlmodel import select

from app import clock
from app.storage.models import FormSubmission
from tests.browser import axe
from tests.browser.test_pages import LONG
from tests.support import factories
from tests.support.running_app import Live

pytestmark = [pytest.mark.browser, pytest.mark.once]

AGENTS = "Language Agents that <think> about $\\mathcal{O}(n \\log n)$ " + "and Act " * 15
HEBREW = "סוכני שפה: agents שחושבים"
BUTTON = "Preview today’s digest"


@pytest.fixture
def url(live_server: Live) -> str:
    """Return the URL of a service that has papers on agents."""
    now = clock.utcnow()
    with live_server.app.db.write() as session:
        source = factories.add_source(session, now)
        for title in (AGENTS, HEBREW, f"{LONG} agents", "Video Diffusion"):
            votes = 90 if title == "Video Diffusion" else 10
            factories.add_paper(
                session, source, title, now.date(), now, votes, abstract=title, url="https://example.org"
            )
        day = now - timedelta(days=3)
        factories.add_paper(session, source, "Agents of Old", day.date(), day)
    return live_server.url


def test_preview_while_typing(url: str, page: Page) -> None:
    """Only the interests and the cadence are sent, and the form is unchanged."""
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request) if request.url.endswith("/preview") else None)
    page.goto(url)
    page.get_by_label("Email address").fill("bob@example.org")
    page.get_by_label("Interest 1").press_sequentially("agents")
    preview = page.get_by_role("region", name="Preview of your digest")
    expect(preview.get_by_role("listitem")).to_have_count(5)
    expect(preview.get_by_role("heading", level=3)).to_have_text(["agents", "Trending beyond your interests"])
    expect(preview.get_by_role("mark")).to_have_text(["Agents"] * 4, ignore_case=True)
    expect(page.get_by_role("status")).to_have_text(
        "Today’s digest would have 5 papers (4 matching, 1 trending). See them"
    )
    expect(page.get_by_role("list", name="Papers per interest")).to_contain_text(
        "4 in the 2 days known so far"
    )
    expect(page.get_by_label("Interest 1")).to_be_focused()
    expect(page.get_by_label("Email address")).to_have_value("bob@example.org")
    sent = [parse_qsl(request.post_data or "") for request in requests]
    assert sent == [[("interest", "agents"), ("cadence", "daily")]]
    expect(page).to_have_url(url + "/")


def test_topic_fills_in_an_interest(url: str, page: Page, live_server: Live) -> None:
    """Pressing it again removes it. The headline does not move, and a phone shows titles near the form."""
    with live_server.app.db.write() as session:
        source, now = factories.add_source(session, clock.utcnow(), "another"), clock.utcnow()
        for part in ("One", "Two"):
            factories.add_paper(session, source, f"World Models, Part {part}", now.date(), now)
    page.goto(url)
    headline = page.get_by_role("heading", level=1)
    before = headline.bounding_box()
    topic = page.get_by_role("button", name="World Models")
    topic.click()
    expect(page.get_by_label("Interest 1")).to_have_value("World Models")
    expect(topic).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("region", name="Preview of your digest")).to_be_in_viewport()
    assert headline.bounding_box() == before
    assert axe.violations(page) == []
    page.set_viewport_size({"width": 375, "height": 812})
    expect(page.locator("#glance")).to_contain_text("World Models, Part")
    expect(page.get_by_label("Interest 1")).to_be_in_viewport()
    topic.click()
    expect(page.get_by_label("Interest 1")).to_have_value("")
    expect(topic).to_have_attribute("aria-pressed", "false")


def test_preview_stays_when_the_next_one_fails(url: str, browser: Browser) -> None:
    """The message is shown near the fields, whether the service, its proxy or the link fails."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url + "/?interest=agents")
    preview = page.get_by_role("region", name="Preview of your digest")
    expect(preview).to_be_visible()
    refusal = '<p id="preview-said" hx-swap-oob="innerHTML">Too many requests.</p>'
    answers = [
        {"status": 429, "body": refusal, "headers": {"HX-Reswap": "none"}},
        None,
        {"status": 502, "body": "<h1>Bad Gateway</h1>"},
        {"status": 410, "body": "<h1>This link has expired</h1>"},
    ]

    def answer(route: Route) -> None:
        response = answers.pop(0)
        route.fulfill(**response) if response else route.abort()  # type: ignore[arg-type]

    page.route("**/preview", answer)
    for typed, said in (
        ("video", "Too many requests."),
        ("robots", "The preview could not be updated."),
        ("honey bees", "The preview could not be updated."),
        ("graphs", "This link no longer works, so your changes can’t be saved."),
    ):
        page.get_by_label("Interest 1").fill(typed)
        expect(page.locator("#preview-said")).to_contain_text(said)
        expect(preview).to_contain_text("Language Agents")
        page.evaluate("document.getElementById('preview-said').textContent = ''")
    context.close()


def test_preview_follows_the_cadence(url: str, page: Page) -> None:
    """Choosing another one updates the preview."""
    page.goto(url)
    page.get_by_label("Interest 1").fill("agents")
    expect(page.get_by_role("region", name="Preview of your digest")).to_be_visible()
    with page.expect_request("**/preview") as request:
        page.get_by_label("How often").select_option("Once a week")
    assert parse_qsl(request.value.post_data or "")[-1] == ("cadence", "weekly")


def test_last_input_is_shown(url: str, page: Page) -> None:
    """Only one request runs at a time, and the preview matches the final text."""
    routes: list[Route] = []
    page.route("**/preview", lambda route: route.continue_() if routes else routes.append(route))
    page.clock.install()
    page.goto(url)
    field = page.get_by_label("Interest 1")
    with page.expect_request("**/preview"):
        field.fill("agents")
    for typed in ("agents and", "video"):
        field.fill(typed)
        page.clock.run_for(500)
    assert len(routes) == 1
    with page.expect_request("**/preview") as last:
        routes[0].continue_()
    assert last.value.post_data == "interest=video&interest=&interest=&cadence=daily"
    preview = page.get_by_role("region", name="Preview of your digest")
    expect(preview.get_by_role("link").first).to_have_text("Video Diffusion")


def test_invalid_interest_is_marked_until_corrected(url: str, page: Page) -> None:
    """Added lines are included, and the other interests are previewed."""
    page.goto(url)
    page.get_by_label("Interest 1").fill("agents")
    page.get_by_label("Interest 3").fill("cooking")
    wrong = page.get_by_label("Interest 4")
    wrong.fill('"video')
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(wrong).to_have_accessible_description("A quotation mark is not closed.")
    expect(page.locator(".line", has=wrong)).to_contain_text("A quotation mark is not closed.")
    expect(page.get_by_role("region", name="Preview of your digest")).to_be_visible()
    assert axe.violations(page) == []
    wrong.fill('"video"')
    expect(page.get_by_text("A quotation mark is not closed.")).to_have_count(0)
    assert wrong.get_attribute("aria-invalid") is None


def test_split_button(url: str, page: Page) -> None:
    """All other fields, such as the time zone, keep their values."""
    page.goto(url)
    page.get_by_label("Email address").fill("bob@example.org")
    page.get_by_label("Time zone").select_option("Africa/Cairo")
    page.get_by_label("Interest 1").fill("agents, video")
    expect(page.get_by_text("This looks like 2 interests.")).to_be_visible()
    expect(page.get_by_label("Interest 1")).to_have_value("agents, video")
    page.get_by_role("button", name="Split them").click()
    expect(page.get_by_label("Interest 1")).to_have_value("agents")
    expect(page.get_by_label("Interest 2")).to_have_value("video")
    expect(page.get_by_label("Email address")).to_have_value("bob@example.org")
    expect(page.get_by_label("Time zone")).to_have_value("Africa/Cairo")
    expect(page.get_by_role("button", name="Split them")).to_have_count(0)


def test_pasted_lines_become_interests(url: str, page: Page) -> None:
    """Browsers join the lines that are pasted in a one-line field."""
    page.goto(url)
    page.get_by_label("Interest 1").fill("agents")
    paste = """(field, text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text", text);
      field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    }"""
    page.get_by_label("Interest 2").evaluate(paste, "• Video generation;\r\n• Robotics\n\n3D\nspeech\n")
    typed = page.locator("input[name=interest]").evaluate_all("fields => fields.map(field => field.value)")
    assert typed[:6] == ["agents", "Video generation", "Robotics", "3D", "speech", ""]
    expect(page.locator("#brought bdi", has_text="Robotics")).to_be_visible()


def test_preview_layout(url: str, page: Page) -> None:
    """Test long texts, both writing directions, and light and dark mode."""
    page.emulate_media(reduced_motion="reduce")
    page.goto(url)
    page.get_by_label("Interest 1").fill("agents")
    page.get_by_label("Interest 2").fill(LONG)
    page.get_by_label("Interest 3").fill("סוכני שפה, video")
    expect(page.get_by_text("This looks like 2 interests.")).to_be_visible()
    expect(page.locator("#preview.htmx-request")).to_have_count(0)
    for scheme, width in (("light", 320), ("dark", 1280)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert axe.violations(page) == []
    bars = page.locator(".brought li", has_text="סוכני שפה").locator(".bars").bounding_box()
    name = page.get_by_role("list", name="Papers per interest").get_by_text("סוכני שפה").bounding_box()
    assert bars
    assert name
    assert name["x"] == bars["x"]


def test_preview_without_scripts(url: str, live_server: Live, browser: Browser) -> None:
    """The form keeps its values. Enter signs up, with the split interests."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url)
    page.get_by_label("Email address").fill("bob@example.org")
    page.get_by_label("Interest 1").fill("agents, video")
    page.get_by_label("Interest 2").fill('"unclosed')
    page.get_by_label("At", exact=True).select_option("5")
    page.get_by_role("button", name=BUTTON).click()
    expect(page.get_by_role("region", name="Preview of your digest")).to_be_visible()
    expect(page.get_by_label("Interest 2")).to_have_accessible_description("A quotation mark is not closed.")
    page.get_by_role("button", name="Split them").click()
    expect(page.get_by_label("Interest 3")).to_have_value('"unclosed')
    page.get_by_label("Interest 3").fill("")
    expect(page.get_by_label("At", exact=True)).to_have_value("5")
    page.get_by_label("Email address").press("Enter")
    expect(page.get_by_role("heading", name="Check your mailbox")).to_be_visible()
    context.close()
    with live_server.app.db.read() as session:
        (choices,) = session.exec(select(FormSubmission.preferences)).all()
    assert choices["hour"] == 5
