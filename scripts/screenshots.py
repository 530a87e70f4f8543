"""Take the pictures in docs/images/: each page on a desk and on a phone, by day and by night.

    .venv/bin/python -m scripts.screenshots [FOLDER]

It lives through the bundled sample, serves it on a free port and looks at it with this machine's Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from playwright.sync_api import Browser, Page
from rich.console import Console

from app import clock, deliver, demo, main, subscribers
from app.demo import people
from app.demo.postbox import Postbox
from app.models import DeliveryState
from app.pipeline import App
from app.tokens import Purpose
from tests import live

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}
SCHEMES = ("light", "dark")


@contextmanager
def lived_through() -> Iterator[tuple[App, str]]:
    """A service with ten days behind it, and where it is served."""
    bound = live.free_socket()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    unknown, greylisted = [people.UNKNOWN], [people.GREYLISTED]
    with tempfile.TemporaryDirectory() as folder, Postbox(unknown=unknown, greylisted=greylisted) as postbox:
        app = demo.build(Path(folder) / "demo", postbox.port, url)
        try:
            moment, _ = demo.relive(app, Console(quiet=True))
            clock.travel(moment)
            with live.served(main.create_app(app), bound):
                yield app, url
        finally:
            app.db.dispose()


def pages(app: App, now: datetime) -> dict[str, str]:
    """The name of each picture, and the path of its page; Alice says what she thinks of some papers."""
    with app.db.read() as session:
        alice = subscribers.find(session, people.PEOPLE[0].email)
        digests = [
            row for row in subscribers.history(session, alice.id or 0) if row.state == DeliveryState.SENT
        ]
        kept = deliver.digests(session, [row.id for row in digests])
    papers = {number: deliver.paper_ids(digest) for number, digest in kept.items()}
    richest = max(digests, key=lambda row: len(papers[row.id or 0]))
    with app.db.write() as session:
        for place, paper in enumerate(papers[richest.id or 0][:4]):
            subscribers.say(session, alice.id or 0, paper, place < 3, now)

    def path(purpose: Purpose, argument: int = 0) -> str:
        token = app.signer.token(purpose, alice.id or 0, now, epoch=alice.link_epoch, argument=argument)
        return f"/{purpose}/{token}"

    return {
        "signup": "/",
        "preferences": path(Purpose.PREFERENCES),
        "digest": path(Purpose.VIEW, richest.id or 0),
        "paper": f"/paper/{papers[richest.id or 0][0]}",
        "search": "/search?q=language+agents",
        "preview": "/",
    }


def take(browser: Browser, url: str, name: str, folder: Path) -> None:
    """One page in every size and scheme."""
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                timezone_id="Europe/Berlin",
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.goto(url)
            if name == "preview":
                _type_interests(page)
            whole = size == "phone" or name not in ("signup", "preview")
            page.screenshot(path=folder / f"{name}-{size}-{scheme}.png", full_page=whole)
            context.close()


def _type_interests(page: Page) -> None:
    page.get_by_label("Interest 1").fill("agents")
    page.get_by_label("Interest 2").fill("video generation, robotics")
    page.get_by_role("button", name="Keep them apart").wait_for()


def run(folder: Path) -> int:
    executable = live.chromium()
    if executable is None:
        print("No Chromium was found. Set PAPERBOY_CHROMIUM to where yours is.", file=sys.stderr)  # noqa: T201
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with lived_through() as (app, url), live.browsing(executable) as browser:
        for name, path in pages(app, clock.utcnow()).items():
            take(browser, url + path, name, folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES))
