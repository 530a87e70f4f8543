"""PURE. The headings of a digest's sections that do not belong to an interest."""

BEYOND_INTERESTS = "Trending beyond your interests"
LIKED = "Close to what you liked"
TRENDING = "Trending now"  # if the subscriber has no interests
