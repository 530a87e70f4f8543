"""Which features of HTML and CSS a mail uses, by the names that caniemail gives them.

It reads what MJML and our templates write: no braces in strings, and rules one level deep in at-rules.
What stands in conditional comments is for Outlook's eyes only, and is not looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data" / "caniemail.json"
# Of these, one feature stands for all that begins so: border-top-color is css-border.
FAMILIES = ("background", "border", "list-style", "margin", "outline", "overflow", "padding")
ELEMENTS = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "h1-h6"),
    **dict.fromkeys(("ul", "ol", "li", "dl", "dt", "dd"), "lists"),
    **dict.fromkeys(("tr", "td", "th", "tbody", "thead"), "table"),
    **dict.fromkeys(("article", "aside", "footer", "header", "main", "nav", "section", "time"), "semantics"),
    "b": "strong",
}
COMBINATORS = {">": "child", "+": "adjacent-sibling", "~": "general-sibling"}
RULE = re.compile(r"([^{}]+)\{((?:[^{}]|\{[^{}]*\})*)\}")


@cache
def known() -> dict[str, dict[str, Any]]:
    """Every feature: its title, and who shows less than all of it."""
    features: dict[str, dict[str, Any]] = json.loads(DATA.read_text("utf-8"))["features"]
    return features


def used(html: str) -> tuple[set[str], set[str]]:
    """The features in a mail, and the names of what caniemail does not tell of."""
    names = set(_Names(html))
    return {found for name in names if (found := _feature(name))}, {n for n in names if not _feature(n)}


def _feature(name: str) -> str | None:
    """A name, as `css border-top` or `html td` → the feature's."""
    kind, _, word = name.partition(" ")
    family = next((family for family in FAMILIES if word.startswith(family + "-")), word)
    tries = (word, ELEMENTS.get(word, word), f"function-{word}", f"unit-{word}")
    if found := next((slug for each in tries if (slug := f"{kind}-{each}") in known()), None):
        return found
    return _by_title().get(name) or (f"{kind}-{family}" if f"{kind}-{family}" in known() else None)


@cache
def _by_title() -> dict[str, str]:
    """`css row-gap` → css-gap: some features are several properties, which only their titles tell."""
    return {
        f"css {word}": slug
        for slug, feature in known().items()
        if slug.startswith("css-") and re.search("[&,]", feature["title"])
        for word in re.findall(r"[a-z]+(?:-[a-z]+)+", feature["title"])
    }


class _Names(HTMLParser):
    """Iterable: the names of all that a document uses."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self._names: set[str] = set()
        self._in_style = False
        self.feed(html)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def handle_decl(self, decl: str) -> None:
        self._names.add("html doctype")

    def handle_comment(self, data: str) -> None:
        self._names.add("html comments")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        self._names.add(f"html {tag}")
        for name, value in attrs:
            self._names.update(_of_attribute(tag, name, value or ""))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._names.update(_of_sheet(data))


def _of_attribute(tag: str, name: str, value: str) -> Iterator[str]:
    if name == "style":
        yield from _of_declarations(value)
    elif (tag, name) == ("meta", "name"):
        yield f"html meta-{value}"
    elif name == "href":
        yield from (f"html {kind}-links" for kind, start in _LINKS.items() if value.startswith(start))
    elif name == "media":
        yield from _of_media(value)
    else:
        yield f"html {name}"


_LINKS = {"mailto": "mailto:", "anchor": "#"}


def _of_sheet(css: str) -> Iterator[str]:
    if "/*" in css:
        yield "css comments"
    for head, body in RULE.findall(re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)):
        if head.strip().startswith("@"):
            yield from _of_media(head)
            yield from _of_sheet(body)
        else:
            yield from _of_selectors(head)
            yield from _of_declarations(body)


def _of_media(query: str) -> Iterator[str]:
    name = re.match(r"\s*@([a-z-]+)", query)
    yield f"css at-{name[1] if name else 'media'}"
    yield from (f"css at-media-{each}" for each in re.findall(r"\(([a-z-]+)", query) if _is_feature(each))


def _is_feature(condition: str) -> bool:
    """Widths are what every media query is about, and are told with it."""
    return not condition.endswith(("width", "height"))


def _of_selectors(head: str) -> Iterator[str]:
    if "," in head:
        yield "css selector-grouping"
    for selector in filter(None, (one.strip() for one in head.split(","))):
        yield from (f"css selector-{name}" for sign, name in COMBINATORS.items() if sign in selector)
        if re.search(r"[\w*\])] +[\w.#:\[*]", selector):
            yield "css selector-descendant"
        yield from (f"css selector-{name}" for name, kind in _SELECTORS.items() if kind.search(selector))
        yield from (f"css pseudo-element-{name}" for name in re.findall(r"::([a-z-]+)", selector))
        yield from (f"css pseudo-class-{name}" for name in re.findall(r"(?<!:):([a-z-]+)", selector))


_SELECTORS = {
    "class": re.compile(r"\."),
    "id": re.compile(r"#"),
    "type": re.compile(r"(?:^|[ >+~])[a-z]"),
    "universal": re.compile(r"\*"),
    "attribute": re.compile(r"\["),
    "chaining": re.compile(r"[\w\])][.#\[]"),
}


def _of_declarations(body: str) -> Iterator[str]:
    for declaration in filter(None, (one.strip() for one in body.split(";"))):
        name, _, value = (part.strip().lower() for part in declaration.partition(":"))
        yield f"css {name}"
        yield from _of_value(name, value)


def _of_value(name: str, value: str) -> Iterable[str]:
    if "!important" in value:
        yield "css important"
    if name == "display" and f"css-display-{value}" in known():
        yield f"css display-{value}"
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"|#[0-9a-f]+", "", value)
    yield from (f"css {function}" for function in re.findall(r"([a-z-]+)\(", unquoted))
    units = set(re.findall(r"\d(%|[a-z]+)", unquoted))
    yield from (f"css {'unit-percent' if unit == '%' else f'unit-{unit}'}" for unit in units)
