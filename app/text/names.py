"""PURE. Put given names first, and normalise names of people and organisations for comparison."""

from __future__ import annotations

from functools import lru_cache

from app.text.characters import fold_accents
from app.text.tokenizer import WORD


@lru_cache(maxsize=100_000)
def normalized_name(author: str) -> str:
    """Return a name in normalised form: "Jané Q. Doe" and "Doe, Jane" → "jane doe", "J. Doe" → "j doe"."""
    last, comma, first = fold_accents(author).partition(",")
    words = WORD.findall(f"{first} {last}" if comma else last)
    return " ".join([*words[:1], *(word for word in words[1:-1] if len(word) > 1), *words[1:][-1:]])


def given_name_first(name: str) -> str:
    """Return a name with the given name first: “Knuth, Donald E.” becomes “Donald E. Knuth”."""
    last, *given = (part.strip() for part in name.split(","))
    return " ".join(filter(None, [*given[:1], last, *given[1:]]))


def words_of_name(name: str) -> list[str]:
    """Return the lower-case words of a person's name without accents: "García, José" → ["jose", "garcia"]."""
    last, _, first = name.partition(",")
    return WORD.findall(fold_accents(f"{first} {last}"))


def words_of_organization(name: str) -> list[str]:
    """Return the lower-case words of an organisation's name without accents."""
    return WORD.findall(fold_accents(name))
