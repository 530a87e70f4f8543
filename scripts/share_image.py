"""Draw app/web/static/share.png, the preview image for links to the site, in the site's own design.

    .venv/bin/python -m scripts.share_image [FILE]

The image does not name a site, so it suits every installation.
"""

import sys
from pathlib import Path

from app.web.templating import STATIC
from tests.support import running_app

WIDTH, HEIGHT = 1200, 630  # the size that sites which show Open Graph previews crop least
STYLE = """
body { width: 1200px; height: 630px; overflow: hidden; display: grid; grid-template-columns: 35.5rem 1fr; }
.said { padding: 0 0 1rem 4.5rem; align-self: center; }
.said svg { width: 4.5rem; display: block; margin-bottom: 2.5rem; }
.said h1 { font-size: 3.6rem; line-height: 1.12; text-wrap: balance; }
.said p { font-size: 1.6rem; line-height: 1.45; margin-top: 1.75rem; color: var(--muted); }
.letter { margin: 4.25rem -3rem -2rem 3.5rem; padding: 2.5rem 6rem 2rem 2.75rem; background: var(--sheet);
  border: 1px solid var(--rule); border-radius: 14px; box-shadow: 0 18px 60px rgb(28 33 39 / 0.13); }
.letter h2 { font-size: 1.3rem; color: var(--muted); font-weight: 600; padding-bottom: 1rem;
  border-bottom: 1px solid var(--rule); white-space: nowrap; }
.letter article { padding: 1.35rem 0 0.4rem; white-space: nowrap; }
.letter .trend { color: var(--accent); font-size: 1.05rem; }
.letter h3 { font-size: 1.6rem; line-height: 1.25; margin: 0.2rem 0 0.65rem; white-space: normal; }
.letter .why { display: inline-block; background: var(--tint); border-radius: 6px; padding: 0.3rem 0.8rem;
  font-size: 1.1rem; }
"""
PAPERS = [
    ("3 → 140 votes since yesterday", "Read or retrieve? When a long context is enough", "“retrieve”"),
    ("58 votes", "Robots that learn by watching each other", "“Robots” and “learn”"),
    ("12 votes", "A small proof of a large conjecture", "“proof”"),
]


def drawing() -> str:
    """Return the image as an HTML page."""
    sheet = (STATIC / "style.css").read_text("utf-8")
    papers = "".join(
        f'<article><div class="trend">▲ {trend}</div><h3>{title}</h3>'
        f'<div class="why"><b>Why:</b> {why} in the title</div></article>'
        for trend, title, why in PAPERS
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><style>{sheet}{STYLE}</style>
<div class="said">{(STATIC / "icon.svg").read_text("utf-8")}
<h1>The new papers you would have wanted to see.</h1>
<p>Picked for you, by email, each with the reason.</p></div>
<div class="letter"><h2>Your digest, Friday 20 November</h2>{papers}</div></html>"""


def run(target: Path) -> int:
    executable = running_app.find_chromium()
    if executable is None:
        print("No Chromium was found. Set PAPERBOY_CHROMIUM to its path.", file=sys.stderr)
        return 1
    with running_app.launch_browser(executable) as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.set_content(drawing())
        page.screenshot(path=target)
    return 0


if __name__ == "__main__":
    raise SystemExit(run(Path(sys.argv[1]) if len(sys.argv) > 1 else STATIC / "share.png"))
