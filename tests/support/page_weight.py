"""Measure the size of a page with its resources, and generate texts of realistic size."""

import random
import re
from dataclasses import dataclass
from typing import Any

LIMIT = 60_000  # bytes, before images
_NAMED = re.compile(r'rel="?stylesheet|<script')
_FILES = re.compile(r'<(?:link rel="stylesheet" href|script src)="([^"]+)"')
# Thousands of meaningless words, which compress worse than any language.
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
    """Sizes in bytes."""

    sent: int  # the page with its styles and scripts, compressed as sent
    html: int  # the uncompressed page alone


def weigh(client: Any, path: str, form: dict[str, Any] | None = None) -> Weight:
    """Measure a page on the first visit, loaded by GET or, with `form`, by POST.

    `client` is an httpx client or similar.
    """
    request = {"method": "POST", "data": form} if form else {"method": "GET"}
    page = client.request(url=path, headers={"Accept-Encoding": "gzip"}, **request).raise_for_status()
    urls = _FILES.findall(page.text)
    assert len(urls) == len(_NAMED.findall(page.text)) > 0, "a style or a script is not weighed"
    files = [client.get(url, headers={"Accept-Encoding": "gzip"}) for url in urls]
    return Weight(sum(int(each.headers["content-length"]) for each in (page, *files)), len(page.content))


def generate_text(rng: random.Random, words: int) -> str:
    """Return a text of this many random words, some of them long."""
    generated = ("".join(rng.choices(_SYLLABLES, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(words))
    return " ".join(generated).capitalize()
