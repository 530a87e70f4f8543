"""Run the real application on a free port, and a real browser to test it with."""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, sync_playwright

from app.application import Application

T = TypeVar("T")
NAMES = (
    "chromium-headless-shell",  # the fastest
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/usr/bin/chromium",
    "/snap/bin/chromium",
)
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Live:
    """A running service: its URL and its application."""

    url: str
    app: Application


def bind_free_port() -> socket.socket:
    """Return a socket bound to a free local port, so that nothing else can take the port."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


@contextmanager
def serve(site: FastAPI, bound: socket.socket, **options: Any) -> Iterator[None]:
    """Serve the application in a thread until the end of the block. Yield once it accepts requests."""
    server = uvicorn.Server(
        # No log config of its own: it would outlive the server and change the logs of other tests.
        uvicorn.Config(site, log_config=None, access_log=False, proxy_headers=False, ws="none", **options)
    )
    ready = threading.Event()
    startup = server.startup

    async def announced(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets)
        ready.set()

    server.startup = announced  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        if not ready.wait(20):
            raise RuntimeError("the web application did not start")
        yield
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def run_in_thread(work: Callable[[], T]) -> T:
    """Call a function in another thread. Playwright keeps an event loop in the thread of the browser."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(work).result()


def find_chromium() -> str | None:
    """Return the path of the installed browser, or None. Never download one."""
    configured = os.environ.get("PAPERBOY_CHROMIUM")
    return configured or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launch_browser(executable: str) -> Iterator[Browser]:
    """Launch a headless browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        yield browser
        browser.close()
