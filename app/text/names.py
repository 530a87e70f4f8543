"""PURE. The words of names, by which people and organisations are compared: without accents and signs."""

from __future__ import annotations

from app.text.tokenizer import WORD, fold_accents


def words_of_name(name: str) -> list[str]:
    """Return the words of a person's name, last name last, even if written "García, José"."""
    last, _, first = name.partition(",")
    return WORD.findall(fold_accents(f"{first} {last}"))


def words_of_organization(name: str) -> list[str]:
    """Return the words of an organisation's name."""
    return WORD.findall(fold_accents(name))
