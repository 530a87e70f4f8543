"""PURE. The headings of a digest's sections: those without an interest, and capitals in the text part."""

import re

BEYOND_INTERESTS = "Trending beyond your interests"
LIKED = "Close to what you liked"
TRENDING = "Trending now"  # if the subscriber has no interests
_GEORGIAN_CAPITALS = re.compile("[\u1c90-\u1cbf]")  # which most fonts lack


def in_capitals(heading: str) -> str:
    """Return a heading in capitals, or unchanged if they would be other letters, as in “Weiß” (“WEISS”)."""
    capitals = heading.upper()
    is_same = capitals.lower() == heading.lower() and not _GEORGIAN_CAPITALS.search(capitals)
    return capitals if is_same else heading
