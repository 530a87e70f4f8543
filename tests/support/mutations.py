"""Corrupt text and JSON values as broken software does."""

import random
from typing import Any


def mutate(text: bytes, donor: bytes, rng: random.Random) -> bytes:
    """Return the text truncated, repeated, mixed with another text or sprinkled with random bytes."""
    changed = bytearray(text)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(changed) or 1)
        match rng.randrange(7):
            case 0:
                del changed[at : at + rng.randint(1, 200)]
            case 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 50))
            case 2:
                start = rng.randrange(len(donor))
                changed[at:at] = donor[start : start + rng.randint(1, 500)]
            case 3:
                changed = changed[:at]
            case 4:
                changed[at : at + 1] = rng.randbytes(1)
            case 5:
                changed[at:at] = changed[at : at + rng.randint(1, 300)] * rng.randint(1, 20)
            case _:
                changed = changed.replace(b"\n", rng.choice([b"", b"\r", b"\n\n"]), rng.randint(1, 20))
    return bytes(changed)


def repeat_token(text: bytes, token: bytes, size: int, rng: random.Random) -> bytes:
    """Return about `size` bytes of a repeated token, alone or inside a text, closed as often or left open."""
    many, at = token * (size // len(token)), rng.randrange(len(text) or 1)
    match rng.randrange(4):
        case 0:
            return many
        case 1:
            return text[:at] + many + text[at:]
        case 2:
            half = len(token) * (size // len(token) // 2)
            return many[:half] + b"x" + many[:half][::-1].translate(_CLOSING)
        case _:
            return text[:at] + (token + text[at : at + 40]) * (size // (len(token) + 40))


_CLOSING = bytes.maketrans(b"{}[]()<>", b"}{][)(><")


_ODD: tuple[Any, ...] = (
    None, True, -1, 1e308, float("nan"), 10**400, "", "\ud800", "\u202e", f"&#{'1' * 5_000};", "x" * 5_000,
    [], {}, [[]], [None, 1, {}], {"a": None}, "2026-99-99", "{'a': 1}",
)  # fmt: skip


def distort(value: Any, rng: random.Random) -> Any:
    """Return a JSON value in which some parts have another type, are missing, or are repeated many times."""
    if rng.random() < 0.08:
        return rng.choice(_ODD)
    if isinstance(value, dict):
        return {name: distort(inner, rng) for name, inner in value.items() if rng.random() > 0.04}
    if isinstance(value, list):
        return [distort(inner, rng) for inner in value] * rng.choice((1, 1, 1, 0, 3))
    return value
