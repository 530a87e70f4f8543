"""Rebuild tests/data/caniemail.json: how far the clients in docs/mail.md support HTML and CSS features.

npm pack caniemail && tar xzf caniemail-*.tgz && .venv/bin/python -m scripts.caniemail package
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "tests" / "data" / "caniemail.json"
SOURCE = "caniemail.com"
LICENCE = "MIT, © 2019 HTeuMeuLeu; npm package: MIT, © Avi Goldman, © Andrew Powell"
# The new Outlook for Windows is the web version in its own window.
CLIENTS = {
    "Gmail": ["gmail/desktop-webmail"],
    "Gmail’s apps": ["gmail/ios", "gmail/android"],
    "Outlook (classic)": ["outlook/windows"],
    "Outlook (new, web)": ["outlook/outlook-com"],
    "Apple Mail": ["apple-mail/macos", "apple-mail/ios"],
    "Yahoo": ["yahoo/desktop-webmail"],
    "Yahoo’s apps": ["yahoo/ios", "yahoo/android"],
    "Thunderbird": ["thunderbird/macos", "thunderbird/windows"],
}
LESS = {"n": "no", "a": "partly"}  # worst first: a client has the lowest support of its platforms


def compact(package: Path) -> dict[str, Any]:
    """Return each feature with its title, and the clients that do not fully support it."""
    about = json.loads((package / "package.json").read_text("utf-8"))
    data = json.loads((package / "data" / "caniemail.json").read_text("utf-8"))
    return {
        "source": f"{SOURCE} as of {data['last_update_date'][:10]}, from caniemail {about['version']} (npm)",
        "licence": LICENCE,
        "clients": list(CLIENTS),
        "features": {
            each["slug"]: {"title": each["title"].strip(), "less": dict(less(each["stats"]))}
            for each in data["data"]
            if each["category"] in ("html", "css")
        },
    }


def less(stats: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yield each client that does not fully support a feature, and its support: "no" or "partly"."""
    for client, platforms in CLIENTS.items():
        each = (platform.partition("/")[::2] for platform in platforms)
        levels = {newest(stats.get(family, {}).get(platform, {})) for family, platform in each}
        if worst := next((support for support in LESS if support in levels), ""):
            yield client, LESS[worst]


def newest(versions: Mapping[str, str]) -> str:
    """Return y, a, n or u for the newest version that was tested, or "" if none was."""
    order = sorted(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    return versions[order[-1]][0] if order else ""


def write(package: Path) -> None:
    """Write the data to TARGET with one feature per line, so that versions can be compared."""
    document = compact(package)
    features = document.pop("features")
    lines = [f"{json.dumps(slug)}: {json.dumps(each, ensure_ascii=False)}" for slug, each in features.items()]
    head = json.dumps(document, ensure_ascii=False, indent=1).removesuffix("\n}")
    TARGET.write_text(head + ',\n "features": {\n  ' + ",\n  ".join(lines) + "\n }\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
