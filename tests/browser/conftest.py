"""Fixtures for a real browser and its pages."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import running_app

expect.set_options(timeout=15_000)  # for a busy machine


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Launch a headless Chromium. Without one, skip the test, or fail if a browser is required.

    While it runs, Playwright keeps an event loop in this thread. Code that calls `asyncio.run` must use
    `running_app.run_in_thread`.
    """
    executable = running_app.find_chromium()
    if executable is None:
        missing = "no Chromium on this machine: install one, or set PAPERBOY_CHROMIUM to where it is"
        if os.environ.get("PAPERBOY_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    with running_app.launch_browser(executable) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open a page. The test fails if the page logs an error, such as a blocked resource."""
    context = browser.new_context(timezone_id="Asia/Tokyo", locale="en-GB")
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    # A 4xx status is also logged as an error. Tests that expect one check it themselves.
    assert [message for message in complaints if "Failed to load resource" not in message] == []
