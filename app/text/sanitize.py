"""PURE. Turn untrusted values into clean text, URLs and numbers.

A function with an `object` parameter accepts any value. It returns an empty result, such as "", () or None,
if the value is unusable, so that the row is kept even if one field has the wrong type.
"""

import re
from urllib.parse import urljoin

from app.text import characters, latex
from app.text.characters import fold_accents
from app.text.names import given_name_first

TITLE_CHARS = 1_000
ABSTRACT_CHARS = 20_000  # the longest real abstracts have about 4,000
NAME_CHARS = 200
URL_CHARS = 2_000
AUTHORS_KEPT = 100  # names; the total number is stored as well
WORDS_KEPT = 40  # keywords, categories
LARGEST = 2_000_000_000  # fits an INTEGER column

# Without a user name: https://arxiv.org@evil.example/ looks as if it led to arXiv.
_ABSOLUTE_URL = re.compile(r"https?://[^/?#@]+(?:[/?#]|$)", re.IGNORECASE)
# The part of an address before the @. It may contain an apostrophe, but one at the beginning is a quote.
LOCAL_PART = r"(?:\"[^\"\s]{1,64}\"|[^\s<>()\[\],;:\\\"@|='][^\s<>()\[\],;:\\\"@|=]{0,63})"
EMAIL_ADDRESS = re.compile(LOCAL_PART + r"@[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.){1,9}[A-Za-z0-9-]{1,62}")


def one_line(value: object, limit: int = NAME_CHARS) -> str:
    """Return a text as one line of at most `limit` visible characters, without repeated spaces."""
    if not isinstance(value, str):
        return ""
    # Cut first, so that ten megabytes of spaces are not read to the end. Join accents with their letters,
    # because a separate accent would split a word in searches.
    text = " ".join(value[: limit * 4].split())
    if not (text.isascii() and text.isprintable()):
        text = " ".join(characters.remove_invisible(characters.normalize(text)).split())
    return text[:limit].rstrip()


def clean_text(value: object, limit: int = ABSTRACT_CHARS) -> str:
    """Return a title or abstract as one line, with LaTeX converted to Unicode."""
    return latex_to_text(one_line(value, limit))[:limit]


def title(value: object) -> str:
    """Return a title as one line, with LaTeX converted to Unicode."""
    return clean_text(value, TITLE_CHARS)


def latex_to_text(text: str) -> str:
    """Convert the LaTeX in a line to Unicode. The result has at most 4 × len(text) + 100 characters."""
    converted = latex.latex_to_unicode(text)
    return text if converted == text else one_line(converted, len(text) * 4 + 100)


def names(value: object) -> tuple[str, ...]:
    """Return the non-empty names in a list of strings or of objects with a "name"."""
    if not isinstance(value, list | tuple):
        return ()
    lines = (one_line(item.get("name") if isinstance(item, dict) else item) for item in value[:5_000])
    return tuple(latex_to_text(name) for name in lines if name)


def authors(value: object) -> tuple[str, ...]:
    """Return the non-empty names like `names`, with the given names first."""
    return tuple(filter(None, map(given_name_first, names(value))))


def organization_names(value: object) -> tuple[str, ...]:
    """Return the names of an organization that is given as a name, or as {"fullname": …, "name": …}.

    The full name comes first. The short name is left out if it has the same letters and digits, such as
    "ByteDance-Seed" after "ByteDance Seed".
    """
    listed = [value.get("fullname"), value.get("name")] if isinstance(value, dict) else [value]
    by_letters: dict[str, str] = {}
    for name in names(listed):
        by_letters.setdefault("".join(filter(str.isalnum, fold_accents(name))), name)
    return tuple(name for letters, name in by_letters.items() if letters)


def words(value: object) -> tuple[str, ...]:
    """Return at most WORDS_KEPT keywords or categories, without duplicates."""
    return tuple(dict.fromkeys(names(value)))[:WORDS_KEPT]


def url(value: object, base: str = "") -> str:
    """Return an http(s) URL if it is safe as a link in an email, otherwise "".

    Resolve a relative URL against `base`, if that is given.
    """
    if not isinstance(value, str):
        return ""
    text = value.strip()
    if base and text and not _ABSOLUTE_URL.match(text):
        try:
            text = urljoin(base, text)
        except ValueError:
            return ""
    printable = text.isprintable() and not re.search(r"[\s<>\"\\]", text)
    return text if printable and len(text) <= URL_CHARS and _ABSOLUTE_URL.match(text) else ""


def non_negative_int(value: object) -> int | None:
    """Return a count, such as a number of votes, or None if it is negative, too large or not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= LARGEST else None


def redact_addresses(text: str) -> str:
    """Return a text with each email address replaced by an ellipsis."""
    return EMAIL_ADDRESS.sub("…", text)
