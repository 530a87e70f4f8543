"""PURE. Read the elements of an XML response from arXiv, even if it is truncated or hostile."""

import re
from collections.abc import Collection, Iterator
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from app.errors import UnreadableResponse
from app.papers.sources import json_rows
from app.types import Rejection

MALFORMED = "the feed is not well-formed from here on"
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read(
    data: bytes | str, root_tag: str, tags: Collection[str], expected: str
) -> tuple[Element, list[Element], list[Rejection]]:
    """Return the root, the complete elements with these tags, and a rejection if an XML error follows them.

    Raise UnreadableResponse if the response is not `expected`, such as "an Atom feed", or declares entities.
    """
    text = _CONTROLS.sub("", json_rows.text_of(data))
    json_rows.refuse_markup(text, expected)
    if "<!ENTITY" in text or "<!DOCTYPE" in text[:2_000]:
        raise UnreadableResponse("The response declares XML entities, which arXiv's feeds never do.")
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    root: Element | None = None
    elements: list[Element] = []
    rejections: list[Rejection] = []
    reason = MALFORMED
    parser.feed(text)
    try:
        for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
            root = element if root is None else root
            if event == "end" and element.tag in tags:
                elements.append(element)
        reason = json_rows.CUT_OFF
        parser.close()
    except ParseError as error:
        rejections = [Rejection(reason, None, f"{len(elements)} complete entries were read; {error}")]
    if root is None or root.tag != root_tag:
        raise UnreadableResponse(f"The response is not {expected}.")
    return root, elements, rejections
