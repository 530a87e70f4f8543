"""PURE. The headings of a digest's sections that do not belong to an interest."""

from __future__ import annotations

LIKED = "Close to what you liked"
TRENDING = "Trending now"  # if the subscriber has no interests; see also types.BEYOND_INTERESTS_HEADING
