"""The real application on a free port, and a real browser to look at it with."""

from __future__ import annotations

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
NAMES = ("chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium", "/snap/bin/chromium")
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Live:
    """A running service, and where it is."""

    url: str
    app: Application


def free_socket() -> socket.socket:
    """A socket bound to a free port of this machine: nobody can take the port in between."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


@contextmanager
def served(site: FastAPI, bound: socket.socket, **options: Any) -> Iterator[None]:
    """Serve it in a thread, from the moment that it answers until the end of the block."""
    server = uvicorn.Server(
        # Without a log config of its own: that would outlive the server, and other tests look at logs, too.
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


def elsewhere(work: Callable[[], T]) -> T:
    """Do it in a thread of its own: Playwright keeps an event loop in the one that drives the browser."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(work).result()


def chromium() -> str | None:
    """Where this machine's browser is. None is ever downloaded."""
    wanted = os.environ.get("PAPERBOY_CHROMIUM")
    return wanted or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browsing(executable: str) -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        yield browser
        browser.close()
