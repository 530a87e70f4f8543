"""List the HTML and CSS features that an email uses, by their names in caniemail.

The parser handles the output of MJML and of our templates: no braces in strings, and at most one level of
nesting in at-rules. Conditional comments are ignored, because only Outlook reads them.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data" / "caniemail.json"
# One feature stands for all properties with this prefix: border-top-color is css-border.
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
def load_features() -> dict[str, dict[str, Any]]:
    """Return every feature of caniemail with its title and support data."""
    features: dict[str, dict[str, Any]] = json.loads(DATA.read_text("utf-8"))["features"]
    return features


def used_features(html: str) -> tuple[set[str], set[str]]:
    """Return the features that an email uses, and the names that caniemail does not list."""
    names = set(_UsedNames(html))
    return {feature for name in names if (feature := _find_feature(name))}, {
        n for n in names if not _find_feature(n)
    }


def _find_feature(name: str) -> str | None:
    """Return the feature for a name such as `css border-top` or `html td`."""
    kind, _, word = name.partition(" ")
    family = next((family for family in FAMILIES if word.startswith(family + "-")), word)
    candidates = (word, ELEMENTS.get(word, word), f"function-{word}", f"unit-{word}")
    if feature := next((slug for each in candidates if (slug := f"{kind}-{each}") in load_features()), None):
        return feature
    return _features_by_title().get(name) or (
        f"{kind}-{family}" if f"{kind}-{family}" in load_features() else None
    )


@cache
def _features_by_title() -> dict[str, str]:
    """Map names such as `css row-gap` to features that cover several properties, using their titles."""
    return {
        f"css {word}": slug
        for slug, feature in load_features().items()
        if slug.startswith("css-") and re.search("[&,]", feature["title"])
        for word in re.findall(r"[a-z]+(?:-[a-z]+)+", feature["title"])
    }


class _UsedNames(HTMLParser):
    """Iterate over the names of all elements, attributes and properties in a document."""

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
            self._names.update(_names_in_attribute(tag, name, value or ""))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._names.update(_names_in_style_sheet(data))


def _names_in_attribute(tag: str, name: str, value: str) -> Iterator[str]:
    if name == "style":
        yield from _names_in_declarations(value)
    elif (tag, name) == ("meta", "name"):
        yield f"html meta-{value}"
    elif name == "href":
        yield from (f"html {kind}-links" for kind, start in _LINKS.items() if value.startswith(start))
    elif name == "media":
        yield from _names_in_media_query(value)
    else:
        yield f"html {name}"


_LINKS = {"mailto": "mailto:", "anchor": "#"}


def _names_in_style_sheet(css: str) -> Iterator[str]:
    if "/*" in css:
        yield "css comments"
    for head, body in RULE.findall(re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)):
        if head.strip().startswith("@"):
            yield from _names_in_media_query(head)
            yield from _names_in_style_sheet(body)
        else:
            yield from _names_in_selectors(head)
            yield from _names_in_declarations(body)


def _names_in_media_query(query: str) -> Iterator[str]:
    name = re.match(r"\s*@([a-z-]+)", query)
    yield f"css at-{name[1] if name else 'media'}"
    yield from (
        f"css at-media-{each}" for each in re.findall(r"\(([a-z-]+)", query) if _is_media_feature(each)
    )


def _is_media_feature(condition: str) -> bool:
    """Return False for widths and heights, which the feature for media queries covers."""
    return not condition.endswith(("width", "height"))


def _names_in_selectors(head: str) -> Iterator[str]:
    if "," in head:
        yield "css selector-grouping"
    for selector in filter(None, (part.strip() for part in head.split(","))):
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


def _names_in_declarations(body: str) -> Iterator[str]:
    for declaration in filter(None, (entry.strip() for entry in body.split(";"))):
        name, _, value = (part.strip().lower() for part in declaration.partition(":"))
        yield f"css {name}"
        yield from _names_in_value(name, value)


def _names_in_value(name: str, value: str) -> Iterable[str]:
    if "!important" in value:
        yield "css important"
    if name == "display" and f"css-display-{value}" in load_features():
        yield f"css display-{value}"
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"|#[0-9a-f]+", "", value)
    yield from (f"css {function}" for function in re.findall(r"([a-z-]+)\(", unquoted))
    units = set(re.findall(r"\d(%|[a-z]+)", unquoted))
    yield from (f"css {'unit-percent' if unit == '%' else f'unit-{unit}'}" for unit in units)
