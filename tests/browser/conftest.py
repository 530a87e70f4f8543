"""A page in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import running_app

expect.set_options(timeout=15_000)  # on a machine that has other work to do as well


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A real, headless Chromium; where there is none, the test is skipped, or fails if one is required.

    While it runs, Playwright keeps an event loop in this thread: what calls `asyncio.run` goes
    through `running_app.elsewhere`.
    """
    executable = running_app.chromium()
    if executable is None:
        missing = "no Chromium on this machine: install one, or set PAPERBOY_CHROMIUM to where it is"
        if os.environ.get("PAPERBOY_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    with running_app.browsing(executable) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A visitor's page. What it logs as an error, a blocked resource for instance, fails the test."""
    context = browser.new_context(timezone_id="Asia/Tokyo", locale="en-GB")
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield opened
    context.close()
    # A status of 4xx is logged as an error, too; those are looked at by who asked for them.
    assert [said for said in complaints if "Failed to load resource" not in said] == []
