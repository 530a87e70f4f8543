"""Test the pages at any width, in light and dark mode, with a keyboard only, and without scripts."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect
from sqlmodel import select

from app import clock, main, subscribers
from app.delivery import ledger
from app.links import Purpose
from app.papers import paper_views
from app.relevance.archive_search import ArchiveSearch
from app.settings import Settings
from app.storage.models import FormSubmission, Source
from app.subscribers import Preferences
from app.text import sanitize
from app.types import Interest, MailKind, PaperRecord, ParseResult, Skip, SourceKind
from app.web.pages import archive as web_papers
from tests.browser import axe
from tests.support import factories, running_app, sample_digest, stored_records
from tests.support.running_app import Live

pytestmark = pytest.mark.browser

LONG = "Superkalifragilistik-expialigetische-Weltmodellvorhersage" * 2
HARD = (  # 175 characters, as its authors typed it
    r"Solving $\mathcal{O}(n^{2}\log n)$ Retrieval by <think> Tokens: $\pi_{0}$-Policies over "
    r"$\mathbb{R}^{d}$, $\frac{1}{2}$-Approximate Nets, and a <b>Rule</b> of Thumb on Reading"
)
READ = (
    "Solving 𝒪(n² log n) Retrieval by <think> Tokens: π₀-Policies over ℝᵈ, 1/2-Approximate Nets, and a "
    "<b>Rule</b> of Thumb on Reading"
)
RIGHT_TO_LEFT = "نماذج لغوية كبيرة للبحث العلمي: تقييم شامل (2026)"
SIGN_UP = {"email": "dora@example.org", "interest": "agents", "cadence": "daily", "hour": "8", "zone": "UTC"}
PRESSED = ":is(nav, button, input, select, textarea, footer, .button:not(.ways *), .danger):visible"
SCHEMES: dict[int, Literal["light", "dark"]] = {375: "light", 1280: "dark"}  # by width
Forms = dict[str, tuple[str, dict[str, str]]]
# of a <select>: of its longest option, and on the page
NEEDED_AND_GIVEN_WIDTH = """element => {
  const copy = element.cloneNode(true);
  copy.style = "position: absolute; width: max-content";
  document.body.append(copy);
  const needed = copy.offsetWidth;
  copy.remove();
  return [needed, element.offsetWidth];
}"""
NO_PAGE = (Purpose.VIEW, Purpose.FEED)  # an email, identified by its delivery, and a feed
WANTED = Preferences(
    zone="Europe/Berlin", interests=(Interest("world models"), Interest(" ".join(["x" * 95] * 3), 1.7, 3))
)


@pytest.fixture
def paths(live_server: Live, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return a page of every kind, with difficult texts."""
    monkeypatch.setattr(web_papers, "ON_DAY", 4)
    app, now = live_server.app, clock.utcnow()
    papers = [
        PaperRecord(
            title=sanitize.title(title), arxiv_id=f"2611.{n:05}", listed_on=now.date(), upvotes=n,
            tldr="Short. " * 20, authors=(LONG, "Ada Lovelace"), pdf_url="https://example.org/a.pdf",
            keywords=("world models",),
        )
        for n, title in enumerate([LONG, "A Short One", "<script>alert(1)</script>", HARD, RIGHT_TO_LEFT], 1)
    ]  # fmt: skip
    with app.db.write() as session:
        source = Source(name="a source", kind=SourceKind.JSONL, created_at=now)
        session.add(source)
        session.flush()
        stored_records.store(session, source, ParseResult(len(papers), tuple(papers)), now)
        factories.add_picture(session, 1, now)
        factories.add_picture(session, 2, now, "https://cdn.test/social-thumbnails/papers/2.png")
        alice = subscribers.add(session, "alice@example.org", WANTED, now - timedelta(days=1))
        pasted = [*papers[:2], *(PaperRecord(title=f"{n} {LONG}", authors=(LONG,)) for n in range(9))]
        model, base_url = app.models.current(session), app.settings.base_url
        matched = subscribers.match_references(session, pasted, model, base_url)
        subscribers.like(session, alice, matched, now)
        subscribers.set_feedback(session, alice, 3, False, now)
        subscribers.request_change(session, alice, f"{'x' * 60}@{'y' * 60}.example", now)
        for edition, due_at in (("2026-11-19", now - timedelta(days=1)), ("2026-11-20", now)):
            digest_id = ledger.enqueue(
                session, subscriber_id=alice, kind=MailKind.DIGEST, edition=edition, due_at=due_at, now=now,
                digest=sample_digest.digest(edition),
            )  # fmt: skip
        ledger.add_entries(session, [ledger.Entry(alice, "2026-11-18", now, Skip(LONG))], now)

    def path(purpose: Purpose, argument: int = 0) -> str:
        return f"/{purpose}/{app.signer.token(purpose, alice, now, argument=argument)}"

    named = {purpose.value: path(purpose, argument=1) for purpose in Purpose if purpose not in NO_PAGE}
    feedback = named.pop("feedback")
    named |= {action: f"{feedback}/{action}/1" for action in ("like", "mute", "follow")}
    named["view"] = path(Purpose.VIEW, digest_id or 0)
    named["forget"] = path(Purpose.PREFERENCES) + "/forget"
    named["done"] = path(Purpose.PREFERENCES) + "/papers"
    named["look"] = path(Purpose.PREFERENCES) + "/preview"
    open_to_all = {
        "front": "/", "day": f"/day/{now.date()}", "week": "/week", "paper": "/paper/1", "search": "/search",
        "found": "/search?q=short+-script", "not found": "/search?q=qwertz",
        "mistaken": "/search?q=%22&source=x", "manage": "/manage", "error": "/nothing",
        "second": f"/day/{now.date()}?page=2", "reference": "/api/docs",
    }  # fmt: skip
    return open_to_all | named


@pytest.fixture
def forms(paths: dict[str, str]) -> Forms:
    """Return the pages that answer a form, with the data: mistakes first, because others change data."""
    mute, follow, preferences = (paths[name] for name in ("mute", "follow", "preferences"))
    return {
        "nothing muted": (mute, {"other": "the"}),
        "nobody followed": (follow, {}),
        "wrong preferences": (
            preferences,
            {"interest": '"', "muted": "the", "hour": "25", "max_trending": "many"},
        ),
        "muted": (mute, {"word": RIGHT_TO_LEFT[:40], "other": "<think> " + LONG[:80]}),
        "followed": (follow, {"author": LONG}),
        "confirmed": (paths["confirm"], {}),
        "paused": (paths["pause"], {}),
        "subscribed": ("/subscribe", {**SIGN_UP, "liked": f"{HARD}\n{RIGHT_TO_LEFT}\n{'?' * 99}"}),
    }


def go(page: Page, url: str, form: dict[str, str] | None = None) -> None:
    """Open a page, or the response to a form."""

    def send(route: Route) -> None:
        headers = {**route.request.headers, "content-type": "application/x-www-form-urlencoded"}
        route.continue_(method="POST", headers=headers, post_data=urlencode(form or {}))

    if form is not None:
        page.route(url, send)
    page.goto(url)
    page.unroute_all()


@pytest.mark.once
@pytest.mark.timeout(400)
def test_pages_are_accessible(live_server: Live, page: Page, paths: dict[str, str], forms: Forms) -> None:
    """axe-core finds no problem and nothing scrolls sideways, on a light phone and a dark desktop."""
    visits = [(name, path, None) for name, path in paths.items() if name != "view"]  # see test_mails
    page.emulate_media(reduced_motion="reduce")
    for name, path, form in [*visits, *((name, *request) for name, request in forms.items())]:
        go(page, live_server.url + path, form)
        for width in (320, 768, 1920, 375, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            if scheme := SCHEMES.get(width):
                page.emulate_media(color_scheme=scheme)
                assert axe.violations(page) == [], (name, scheme)


@pytest.fixture
def long_names(settings: Settings) -> Iterator[str]:
    """Return the URL of a service whose name and contact address are long words."""
    names = {
        "site_name": "Wissenschaftsnachrichtendienst",
        "contact_address": f"papers@{'computer-science.' * 3}example.ac.uk",
        "postal_address": "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch",
    }
    application = main.build(settings.model_copy(update=names))
    now, bound = clock.utcnow(), running_app.bind_free_port()
    with application.db.write() as session:
        factories.add_paper(
            session, factories.add_source(session, now), "Robots", now.date(), now, arxiv_id="2611.00001",
            pdf_url="https://example.org/a.pdf", code_url="https://github.com/robots/robots",
        )  # fmt: skip
    with running_app.serve(main.create_app(application), bound):
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    application.db.dispose()


@pytest.mark.once
@pytest.mark.parametrize("font_size", ["100%", "200%"])
def test_long_names_and_large_text(long_names: str, page: Page, font_size: str) -> None:
    """They break, so that a phone shows the page without scrolling sideways."""
    for width in (320, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for path in ("/manage", "/day"):
            page.goto(long_names + path)
            page.evaluate("size => { document.documentElement.style.fontSize = size }", font_size)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.once
@pytest.mark.parametrize("width", [320, 360, 430, 600, 1280])
def test_longest_schedule_fits_its_field(
    live_server: Live, page: Page, paths: dict[str, str], width: int
) -> None:
    """“Monday to Friday” is not cut off, with and without the field for the weekday."""
    page.set_viewport_size({"width": width, "height": 800})
    for path in ("/", paths["preferences"]):
        page.goto(live_server.url + path)
        for cadence in ("weekly", "weekdays"):
            page.select_option("#cadence", cadence)
            needed, given = page.locator("#cadence").evaluate(NEEDED_AND_GIVEN_WIDTH)
            assert needed <= given, (path, cadence)


@pytest.mark.once
def test_difficult_titles(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """Test a long title with LaTeX and markup, and a right-to-left one, on a phone."""
    assert len(HARD) == 175
    page.set_viewport_size({"width": 320, "height": 800})
    lists = [paths["day"], paths["week"], "/search?q=retrieval"]
    for path in [
        *lists,
        "/paper/4",
        *(paths[action].removesuffix("1") + "4" for action in ("mute", "follow")),
    ]:
        page.goto(live_server.url + path)
        assert page.get_by_text(READ, exact=True).first.is_visible(), path
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
    for path in [
        *lists[:2],
        "/paper/5",
        *(paths[action].removesuffix("1") + "5" for action in ("mute", "follow")),
    ]:
        page.goto(live_server.url + path)
        title = page.get_by_text(RIGHT_TO_LEFT, exact=True).first
        assert title.evaluate("e => getComputedStyle(e).direction") == "rtl", path
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


LEFT_OF_TEXTS = """elements => elements.map(element => {
    const range = document.createRange()
    range.selectNodeContents(element)
    return range.getBoundingClientRect().left
})"""


@pytest.mark.once
def test_related_papers(live_server: Live, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long words break on a phone. The authors of a right-to-left title begin where it begins."""
    now, (title, name) = clock.utcnow(), ("שיטה חדשה לחיזוי מבנה חלבונים", "נועה כהן")
    with live_server.app.db.write() as session:
        source = factories.add_source(session, now)
        for each in ("W" * 60, title, "Robots"):
            factories.add_paper(session, source, each, now.date(), now, authors=[name] * 9)
    monkeypatch.setattr(  # similarities need hundreds of papers
        ArchiveSearch,
        "related_papers",
        lambda search, session, paper_id, limit: paper_views.in_given_order(session, [1, 2]),
    )
    page.goto(f"{live_server.url}/paper/3")
    for width in (1280, 320):
        page.set_viewport_size({"width": width, "height": 800})
        related = page.get_by_role("listitem").filter(has_text=title)
        left, left_below = related.locator("a, .byline").evaluate_all(LEFT_OF_TEXTS)
        assert abs(left - left_below) < 2
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.once
@pytest.mark.parametrize(("width", "picture_width"), [(375, 104), (1280, 176)])
def test_pictures_are_loaded_lazily(live_server: Live, page: Page, width: int, picture_width: int) -> None:
    """One far below is requested when it comes near. None moves the text or is loaded from elsewhere."""
    now, hosts, paths = clock.utcnow(), set(), set()
    with live_server.app.db.write() as session:
        source = factories.add_source(session, now)
        for number in range(40):
            paper_id = factories.add_paper(session, source, f"Paper {number}", now.date(), now, 40 - number)
            factories.add_picture(session, paper_id, now)

    def note(request: Request) -> None:
        parts = urlsplit(request.url)
        hosts.add(parts.netloc)
        paths.add(parts.path)

    page.on("request", note)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{live_server.url}/day/{now.date()}")
    pictures = page.locator(".picture")
    expect(pictures).to_have_count(40)
    assert pictures.first.evaluate(LOADED_WIDTH) == 480
    assert "/paper/40/picture" not in paths
    pictures.last.scroll_into_view_if_needed()
    assert pictures.last.evaluate(LOADED_WIDTH) == 480
    assert "/paper/40/picture" in paths
    assert hosts == {urlsplit(live_server.url).netloc}
    assert page.evaluate(LAYOUT_SHIFTS) == 0
    assert pictures.last.evaluate("image => image.offsetWidth") == picture_width


LOADED_WIDTH = "image => image.decode().then(() => image.naturalWidth)"
# The sum of all layout shifts since the page was opened.
LAYOUT_SHIFTS = """() => new Promise(resolve => new PerformanceObserver(list =>
    resolve(list.getEntries().reduce((sum, each) => sum + each.value, 0))
).observe({type: "layout-shift", buffered: true}) || setTimeout(() => resolve(0), 300))"""


@pytest.mark.once
def test_title_cards(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """A card that repeats the title is shown on desks and on the paper's page, but not in a phone's list."""
    for width, visible in ((375, False), (1280, True)):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{live_server.url}{paths['week']}")
        expect(page.locator(".title-card")).to_be_visible(visible=visible)
        expect(page.locator(".picture:not(.title-card)")).to_be_visible()
        page.goto(f"{live_server.url}/paper/2")
        expect(page.locator(".title-card")).to_be_visible()


@pytest.mark.once
def test_pages_can_be_printed(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """In dark mode too, prints are black on white, without controls and with the paper's URL."""
    page.emulate_media(color_scheme="dark", media="print")
    for name in ("day", "week", "paper", "found", "preferences"):
        page.goto(live_server.url + paths[name])
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert axe.violations(page) == [], name
        assert not page.locator(PRESSED).count(), name
        if name == "preferences":
            continue
        leading = page.locator(".links a:visible, .ways a:visible").first
        assert leading.evaluate("e => getComputedStyle(e, '::after').content") != "none", name

    page.goto(live_server.url + paths["found"])
    expect(page.get_by_role("heading", level=1)).to_have_text("Papers on short -script")
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    box = page.get_by_role("heading", level=1).bounding_box()
    assert box
    assert box["height"] > 10


# The space above and below the text of an element.
ROOM_IN_BUTTON = """element => {
    const range = document.createRange()
    range.selectNode(element.firstChild)
    const [text, box] = [range, element].map(each => each.getBoundingClientRect())
    return [text.top - box.top, box.bottom - text.bottom]
}"""


@pytest.mark.once
def test_layout(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """One row of navigation, footers at the bottom, aligned fields of the search, text centred in buttons."""
    for width in (375, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        for name in ("front", "day", "error", "manage"):
            page.goto(live_server.url + paths[name])
            tops = {link.bounding_box()["y"] for link in page.locator("nav[aria-label=Site] a:visible").all()}  # type: ignore[index]
            assert len(tops) == 1, name
            bottom = page.evaluate("document.querySelector('.foot').getBoundingClientRect().bottom")
            assert bottom == 900 or page.evaluate("document.documentElement.scrollHeight") > 900, name
        page.goto(live_server.url + paths["search"])
        day, source = page.locator("#day").bounding_box(), page.locator("#source").bounding_box()
        assert day
        assert source
        assert source["x"] - day["x"] - day["width"] >= 8
        tops = [page.locator(f"label[for={name}]").bounding_box() for name in ("day", "source")]
        assert tops[0]["y"] == tops[1]["y"]  # type: ignore[index]
        page.goto(live_server.url + paths["paper"])
        for button in page.locator(".ways .button").all():
            above, below = button.evaluate(ROOM_IN_BUTTON)
            assert abs(above - below) <= 1, (above, below)
    page.goto(live_server.url + paths["day"])
    side = page.locator(".side").bounding_box()
    assert side
    assert side["x"] + side["width"] > 1150


@pytest.mark.once
def test_form_errors_are_visible_and_focused(live_server: Live, page: Page) -> None:
    page.goto(live_server.url)
    page.get_by_label("Email address").fill("nobody")
    page.get_by_label("Interest 1").fill("???")
    page.get_by_role("button", name="Send me the digest").click()
    expect(page.get_by_label("Email address")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Interest 1")).to_have_value("???")
    expect(page.get_by_role("alert")).to_be_focused()
    assert axe.violations(page) == []


@pytest.mark.once
def test_former_name_of_a_time_zone(browser: Browser, live_server: Live) -> None:
    """Chromium calls this zone Asia/Calcutta. The option with the current name is selected."""
    page = browser.new_page(timezone_id="Asia/Kolkata")
    page.goto(live_server.url)
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Kolkata")
    page.close()


@pytest.mark.once
@pytest.mark.parametrize(
    ("zone", "selected"),
    [
        ("'Etc/GMT+3'", "Etc/GMT+3"),
        ("'EST5EDT'", "EST5EDT"),
        ("'Etc/Unknown'", "UTC"),
        ("'Factory'", "UTC"),
        ("'Atlantis/Centre'", "UTC"),
        ("undefined", "UTC"),
        ("(() => { throw new RangeError('Unsupported time zone') })()", "UTC"),
    ],
)
def test_time_zone_that_the_form_does_not_offer(
    live_server: Live, page: Page, zone: str, selected: str
) -> None:
    """A zone that the service does not know is not selected, because the sign-up would be refused."""
    page.add_init_script(  # this browser does not know a zone of the form
        f"""const format = Intl.DateTimeFormat, own = {{ resolvedOptions: () => ({{ timeZone: {zone} }}) }};
        Intl.DateTimeFormat = function (locale, options) {{
          if (options?.timeZone === "America/Coyhaique") throw new RangeError("Invalid time zone");
          return options ? new format(locale, options) : own;
        }};"""
    )
    page.goto(live_server.url)
    expect(page.get_by_label("Time zone")).to_have_value(selected)


@pytest.mark.once
def test_sign_up_form_helps(live_server: Live, page: Page) -> None:
    """The browser's zone is selected, the weekday shown only when needed, and new lines added."""
    page.goto(live_server.url)
    page.set_viewport_size({"width": 375, "height": 667})
    expect(page.get_by_label("Interest 1")).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Tokyo")
    expect(page.get_by_label("On if weekly")).to_be_hidden()
    page.get_by_label("How often").select_option("weekly")
    expect(page.get_by_label("On if weekly")).to_be_visible()
    for number in range(1, 23):
        field = page.get_by_label(f"Interest {number}", exact=True)
        if number > 20:
            expect(field).to_have_count(0)
        else:
            field.fill(f"topic {number}")


@pytest.mark.once
def test_interest_suggestions(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """They come from the archive."""
    page.goto(live_server.url)
    with page.expect_response("**/suggest?q=wor"):
        page.get_by_label("Interest 1").press_sequentially("wor")
    expect(page.locator("#words option")).to_have_count(1)
    expect(page.locator("#words option")).to_have_attribute("value", "world models")


@pytest.mark.once
def test_sign_up_without_scripts(live_server: Live, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live_server.url)
    page.get_by_label("Email address").fill("bob@example.org")
    page.get_by_label("Interest 2").fill("robotics")
    page.get_by_label("Time zone").select_option("America/Sao_Paulo")
    page.get_by_role("button", name="Send me the digest").click()
    expect(page.get_by_role("heading", name="Check your mailbox")).to_be_visible()
    context.close()
    with live_server.app.db.read() as session:
        stored = session.exec(select(FormSubmission.preferences)).one()
    assert stored["zone"] == "America/Sao_Paulo"
    assert [interest["text"] for interest in stored["interests"]] == ["robotics"]


@pytest.mark.once
def test_sign_up_by_keyboard(live_server: Live, page: Page) -> None:
    """Enter moves between interests, from an empty one to the address, and sends the form from there."""
    page.goto(live_server.url)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "interest":
            break
    for number, typed in enumerate(("agents", "robots"), 1):
        expect(page.get_by_label(f"Interest {number}", exact=True)).to_be_focused()
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
    expect(page.get_by_label("Interest 3", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Email address")).to_be_focused()
    page.keyboard.type("bob@example.org")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Check your mailbox")).to_be_visible()


@pytest.mark.once
def test_keyboard_navigation(live_server: Live, page: Page) -> None:
    """The first key skips the header, the focus is visible, and Enter sends."""
    page.goto(live_server.url + "/manage")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Email address")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.type("carol@example.org")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Check your mailbox")).to_be_visible()


@pytest.mark.once
def test_preferences_buttons(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """Save, pause, resume, unsubscribe and resubscribe each show their own message."""
    page.goto(live_server.url + paths["preferences"])
    page.get_by_label("Interest 1", exact=True).fill("")
    page.get_by_label("Interest 3", exact=True).fill("graph learning")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    expect(page.get_by_label("Interest 2", exact=True)).to_have_value("graph learning")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_have_text("Paused.")
    page.get_by_role("button", name="Resume now").click()
    expect(page.get_by_role("status")).to_have_text("Your digests have resumed.")
    page.get_by_role("link", name="Unsubscribe").click()
    page.get_by_role("button", name="Unsubscribe").click()
    expect(page.get_by_role("heading", name="You are unsubscribed")).to_be_visible()
    page.goto(live_server.url + paths["preferences"])
    page.get_by_role("button", name="Subscribe again").click()
    expect(page.get_by_role("status")).to_have_text("Welcome back. You are subscribed again.")


def test_paste_remove_and_delete_papers(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """The list is large enough to touch and accessible."""
    page.set_viewport_size({"width": 320, "height": 800})
    page.goto(live_server.url + paths["preferences"])
    page.get_by_text("Add papers you like").click()
    page.get_by_label("Papers you like").fill(f"A Fresh Title\n2611.99999\n{'?' * 300}")
    page.get_by_role("button", name="Add papers").click()
    expect(page.get_by_text("A Fresh Title")).to_be_visible()
    expect(page.get_by_text("neither a title nor a link or ID")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert axe.violations(page) == []
    page.get_by_role("link", name="Back to your preferences").click()
    page.get_by_role("button", name="Remove A Fresh Title").click()
    expect(page.get_by_role("status")).to_have_text("Removed.")
    expect(page.get_by_role("status")).to_be_in_viewport()
    expect(page.get_by_text("A Fresh Title")).to_have_count(0)
    page.get_by_role("link", name="Delete all feedback").click()
    page.get_by_role("button", name="Delete all feedback").click()
    expect(page.get_by_text("No feedback yet.")).to_be_visible()


@pytest.mark.once
def test_digest_page_has_styles(live_server: Live, page: Page, paths: dict[str, str]) -> None:
    """The sandbox policy allows the styles of the email."""
    page.goto(live_server.url + paths["view"])
    expect(page.get_by_text("Read or Retrieve").first).to_be_visible()
    assert "Georgia" in page.get_by_text("Paperboy").first.evaluate("e => getComputedStyle(e).fontFamily")
