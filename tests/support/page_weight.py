"""What a page weighs as a browser first fetches it, and texts that weigh as much as real ones."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

LIMIT = 60_000  # bytes, before images
_NAMED = re.compile(r'rel="?stylesheet|<script')
_FILES = re.compile(r'<(?:link rel="stylesheet" href|script src)="([^"]+)"')
# Thousands of words that say nothing: they compress less well than any language does.
_SYLLABLES = (
    "an",
    "bo",
    "cle",
    "dri",
    "el",
    "fu",
    "gro",
    "ja",
    "ker",
    "lim",
    "mo",
    "pra",
    "qui",
    "sto",
    "wex",
)


@dataclass(frozen=True, slots=True)
class Weight:
    """In bytes."""

    sent: int  # the page with its styles and scripts, compressed as they are sent
    html: int  # the page alone, as it is read


def weigh(client: Any, path: str, form: dict[str, Any] | None = None) -> Weight:
    """A page that is asked for, or a form sent to, for the first time. The client is httpx's, or like it."""
    asked = {"method": "POST", "data": form} if form else {"method": "GET"}
    page = client.request(url=path, headers={"Accept-Encoding": "gzip"}, **asked).raise_for_status()
    urls = _FILES.findall(page.text)
    assert len(urls) == len(_NAMED.findall(page.text)) > 0, "a style or a script is not weighed"
    files = [client.get(url, headers={"Accept-Encoding": "gzip"}) for url in urls]
    return Weight(sum(int(each.headers["content-length"]) for each in (page, *files)), len(page.content))


def prose(dice: random.Random, words: int) -> str:
    """So many words, some of them long."""
    made = ("".join(dice.choices(_SYLLABLES, k=dice.choice((1, 2, 2, 3, 3, 4)))) for _ in range(words))
    return " ".join(made).capitalize()
