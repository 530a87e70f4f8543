"""Measure what a digest asks of its reader: height on a phone, links, words and bytes.

    python -m benchmarks.digest_size [--days FOLDER] [--json] [--save FOLDER]

Three readers get digests of 3, 10 and 25 papers from the last of the recorded days in FOLDER (responses of
Hugging Face, one file a day; by default the bundled sample, whose summaries are short). The digests depend on
ranking only, so two commits that rank alike can be compared: run this script in a worktree of each. Height is
measured in Chromium, 375 pixels wide. Words and links are those of the HTML part; `text_words` are those of
the text part. `--save` keeps the emails as files.
"""

import argparse
import html
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from app import main, pipeline
from app.cli import sample
from app.settings import Settings
from app.storage import schema
from app.subscribers import Preferences
from app.types import Digest, EmptyDigestPolicy, Interest, RenderedMail
from tests.support import running_app

PHONE = {"width": 375, "height": 812}
READERS = {
    3: ("video generation",),
    10: ("reinforcement learning for LLM reasoning", "video generation"),
    25: ("language agents", "video generation", "robotics", "multimodal reasoning", "diffusion models"),
}
RECORDED_DAYS = 20  # as many of the last days are read


def mails(files: Sequence[Path]) -> Iterator[tuple[int, RenderedMail]]:
    """Yield the number of papers and the email, for each reader, on the day of the last file."""
    with TemporaryDirectory() as folder:
        settings = Settings(
            _env_file=None, database_url=f"sqlite:///{folder}/paperboy.db",
            secret_keys=("0123456789abcdef" * 2,), base_url="https://paperboy.example",
            from_address="digest@paperboy.example", postal_address="1 Example Street, Springfield",
        )  # fmt: skip
        schema.migrate(settings.database_url)
        app = main.build(settings)
        for file in files:
            day = date.fromisoformat(file.stem[:10])
            eight = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=8)
            pipeline.read_files(app, [file], eight - timedelta(hours=3), day=day)
        pipeline.train(app, eight)
        for count, interests in READERS.items():
            preferences = Preferences(
                zone="UTC", interests=tuple(map(Interest, interests)), max_papers=count,
                when_empty=EmptyDigestPolicy.TRENDING, max_trending=count,
            )  # fmt: skip
            digest = pipeline.preview(app, preferences, eight)[0]
            if isinstance(digest, Digest):
                mail = pipeline.render_digest(app, digest, "reader@example.org", eight)
                yield len(digest.picks), mail
        app.db.dispose()


def words_in(markup: str) -> int:
    """Return the number of words that an HTML part shows: those with a letter or a digit."""
    body = re.sub(r"<head.*?</head>|<style.*?</style>|<!--.*?-->", "", markup, flags=re.DOTALL)
    body = re.sub(r'<div style="display:none;.*?</div>', "", body, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<(?:span|b|a|i|/span|/b|/a|/i)\b[^>]*>", "", body))
    return len(re.findall(r"\S*\w\S*", re.sub(r"<[^>]*>", " ", text)))


def measure(rendered: Sequence[tuple[int, RenderedMail]]) -> dict[str, dict[str, int]]:
    """Return the figures of each email, by number of papers."""
    figures = {}
    with running_app.launch_browser(str(running_app.find_chromium())) as browser:
        page = browser.new_page(viewport=PHONE)  # type: ignore[arg-type]
        for count, mail in rendered:
            page.set_content(mail.html)
            figures[f"{count} papers"] = {
                "height": page.evaluate("document.documentElement.scrollHeight"),
                "links": len(re.findall(r"<a\s[^>]*href=", mail.html)),
                "words": words_in(mail.html),
                "html_bytes": len(mail.html.encode()),
                "text_links": len(re.findall(r"https?://", mail.text)),
                "text_words": len(mail.text.split()),
                "text_bytes": len(mail.text.encode()),
            }
    return figures


def run() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=Path, metavar="FOLDER", help="the recorded days")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="where to write the emails")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = parser.parse_args()
    bundled = (each.path for each in sample.sample_files() if each.folder == "huggingface")
    days = sorted(arguments.days.glob("*.json")) if arguments.days else [*bundled]
    rendered = list(mails(days[-RECORDED_DAYS:]))
    if arguments.save:
        arguments.save.mkdir(parents=True, exist_ok=True)
        for count, mail in rendered:
            (arguments.save / f"{count}.html").write_text(mail.html, encoding="utf-8")
            (arguments.save / f"{count}.txt").write_text(mail.text, encoding="utf-8")
    figures = measure(rendered)
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    names = list(next(iter(figures.values())))
    print(f"{'':12}" + "".join(f"{name:>12}" for name in names))
    for kind, values in figures.items():
        print(f"{kind:12}" + "".join(f"{values[name]:12}" for name in names))


if __name__ == "__main__":
    run()
