"""Take the screenshots in docs/images/: each page and email on desktop and phone, in light and dark mode.

    .venv/bin/python -m scripts.screenshots [FOLDER]

The script replays the bundled sample, serves it on a free port and opens it in this machine's Chromium.
Install Debian's `fonts-liberation` first, so that the pictures are the same on each machine.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from rich.console import Console

from app import clock, main, subscribers
from app.application import Application
from app.cli import demo
from app.cli.demo import sample_subscribers
from app.cli.demo.smtp_server import DemoMailServer
from app.delivery import ledger
from app.links import Purpose
from app.storage.models import DeliveryState
from app.types import MailKind, MailRequest
from tests.support import running_app

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}
SCHEMES = ("light", "dark")
# Long pages, of which only the first screen is captured.
LONG = {"desktop": ("signup", "preview", "day", "week"), "phone": ("day", "week")}

Look = Callable[[Page], object]  # opens a page for its screenshot


@contextmanager
def serve_replayed_sample() -> Iterator[tuple[Application, str]]:
    """Serve an application that has replayed the ten days of the sample. Yield it and its URL."""
    bound = running_app.bind_free_port()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    unknown, greylisted = [sample_subscribers.UNKNOWN], [sample_subscribers.GREYLISTED]
    with (
        tempfile.TemporaryDirectory() as folder,
        DemoMailServer(unknown=unknown, greylisted=greylisted) as mail_server,
    ):
        app = demo.build(Path(folder) / "demo", mail_server.port, url)
        try:
            moment, _ = demo.replay_sample(app, Console(quiet=True))
            clock.travel(moment)
            with running_app.serve(main.create_app(app), bound):
                yield app, url
        finally:
            app.db.dispose()


def looks(app: Application, url: str, now: datetime) -> dict[str, Look]:
    """Return the functions that open each page, by screenshot name. Store some feedback from Alice first."""
    with app.db.read() as session:
        alice = subscribers.find(session, sample_subscribers.SUBSCRIBERS[0].email)
        digests = [
            row for row in subscribers.history(session, alice.id or 0) if row.state == DeliveryState.SENT
        ]
        stored = ledger.stored_digests(session, [row.id for row in digests])
    papers = {number: ledger.paper_ids(digest) for number, digest in stored.items()}
    richest = max(digests, key=lambda row: _richness(stored[row.id or 0])).id or 0
    with app.db.write() as session:
        for place, paper in enumerate(papers[richest][:4]):
            subscribers.set_feedback(session, alice.id or 0, paper, place < 3, now)

    def path(purpose: Purpose, argument: int = 0) -> str:
        token = app.signer.token(purpose, alice.id or 0, now, epoch=alice.link_epoch, argument=argument)
        return f"/{purpose}/{token}"

    best = papers[richest][0]
    paths = {
        "signup": "/",
        "preferences": path(Purpose.PREFERENCES),
        "subscription": path(Purpose.SUBSCRIPTION),
        "digest": path(Purpose.VIEW, richest),
        "mute": f"{path(Purpose.FEEDBACK)}/mute/{best}",
        "follow": f"{path(Purpose.FEEDBACK)}/follow/{best}",
        "paper": f"/paper/{best}",
        "search": "/search?q=language+agents",
        "day": "/day",
        "week": "/week",
    }
    letter = MailRequest(0, MailKind.CONFIRM, "", alice.id or 0, alice.email, alice.link_epoch, now)
    service = (letter._replace(kind=kind) for kind in MailKind if kind is not MailKind.DIGEST)
    return {
        **{name: partial(Page.goto, url=url + path) for name, path in paths.items()},
        **{
            f"mail-{one.kind}": partial(Page.set_content, html=app.renderer.render(one).html)
            for one in service
        },
        "preview": partial(_type_interests, url=url),
    }


def _richness(stored: Mapping[str, Any]) -> tuple[bool, int]:
    """Return a sort key that prefers digests with papers for exactly two interests, then those with many."""
    matched = [section for section in stored["sections"] if section["interest"]]
    return len(matched) == 2, len(ledger.paper_ids(stored))


def take(browser: Browser, name: str, look: Look, folder: Path) -> None:
    """Take a screenshot of one page in every size and color scheme."""
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                timezone_id="Europe/Berlin",
                reduced_motion="reduce",
            )
            page = context.new_page()
            look(page)
            file = folder / f"{name}-{size}-{scheme}.png"
            # Make the window as high as the page, so that nothing sticks to its edge.
            if name not in LONG[size]:
                whole = page.evaluate("document.documentElement.scrollHeight")
                page.set_viewport_size({"width": width, "height": whole})
            page.screenshot(path=file)
            context.close()


def _type_interests(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_label("Interest 1").fill("agents")
    page.get_by_label("Interest 2").fill("video generation, robotics")
    page.get_by_role("button", name="Split them").wait_for()


def run(folder: Path) -> int:
    executable = running_app.find_chromium()
    if executable is None:
        print("No Chromium was found. Set PAPERBOY_CHROMIUM to its path.", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with serve_replayed_sample() as (app, url), running_app.launch_browser(executable) as browser:
        for name, look in looks(app, url, clock.utcnow()).items():
            take(browser, name, look, folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES))
