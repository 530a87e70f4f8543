"""Rebuild tests/data/caniemail.json: the features that the mail programs in docs/mail.md support.

npm pack caniemail && tar xzf caniemail-*.tgz && .venv/bin/python -m scripts.caniemail package
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "tests" / "data" / "caniemail.json"
SOURCE = "caniemail.com"
LICENCE = "MIT, © 2019 HTeuMeuLeu; npm package: MIT, © Avi Goldman, © Andrew Powell"
# Windows' new Outlook is the web's in a window of its own.
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
LESS = {"n": "no", "a": "partly"}  # the worst of a client's platforms counts


def compact(package: Path) -> dict[str, Any]:
    """Each feature with its names, and which clients show less than all of it."""
    about = json.loads((package / "package.json").read_text("utf-8"))
    told = json.loads((package / "data" / "caniemail.json").read_text("utf-8"))
    return {
        "source": f"{SOURCE} as of {told['last_update_date'][:10]}, from caniemail {about['version']} (npm)",
        "licence": LICENCE,
        "clients": list(CLIENTS),
        "features": {
            each["slug"]: {"title": each["title"].strip(), "less": dict(less(each["stats"]))}
            for each in told["data"]
            if each["category"] in ("html", "css")
        },
    }


def less(stats: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[tuple[str, str]]:
    for client, platforms in CLIENTS.items():
        each = (platform.partition("/")[::2] for platform in platforms)
        found = {newest(stats.get(family, {}).get(platform, {})) for family, platform in each}
        if worst := next((support for support in LESS if support in found), ""):
            yield client, LESS[worst]


def newest(versions: Mapping[str, str]) -> str:
    """y, a, n or u of the newest version that was looked at; nothing where none was."""
    order = sorted(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    return versions[order[-1]][0] if order else ""


def write(package: Path) -> None:
    """One feature a line, so that a later state can be compared with this one."""
    made = compact(package)
    features = made.pop("features")
    lines = [f"{json.dumps(slug)}: {json.dumps(each, ensure_ascii=False)}" for slug, each in features.items()]
    head = json.dumps(made, ensure_ascii=False, indent=1).removesuffix("\n}")
    TARGET.write_text(head + ',\n "features": {\n  ' + ",\n  ".join(lines) + "\n }\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
