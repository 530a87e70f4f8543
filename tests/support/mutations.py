"""What happens to text on its way through bad software."""

from __future__ import annotations

import random
from typing import Any


def mutated(text: bytes, other: bytes, dice: random.Random) -> bytes:
    """Return a text that was cut, doubled, mixed with another one and sprinkled with random bytes."""
    changed = bytearray(text)
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(changed) or 1)
        match dice.randrange(7):
            case 0:
                del changed[at : at + dice.randint(1, 200)]
            case 1:
                changed[at:at] = dice.randbytes(dice.randint(1, 50))
            case 2:
                start = dice.randrange(len(other))
                changed[at:at] = other[start : start + dice.randint(1, 500)]
            case 3:
                changed = changed[:at]
            case 4:
                changed[at : at + 1] = dice.randbytes(1)
            case 5:
                changed[at:at] = changed[at : at + dice.randint(1, 300)] * dice.randint(1, 20)
            case _:
                changed = changed.replace(b"\n", dice.choice([b"", b"\r", b"\n\n"]), dice.randint(1, 20))
    return bytes(changed)


def pumped(text: bytes, token: bytes, size: int, dice: random.Random) -> bytes:
    """Return about `size` bytes: a token repeated, alone or within a text, closed as often or left open."""
    many, at = token * (size // len(token)), dice.randrange(len(text) or 1)
    match dice.randrange(4):
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


def distorted(value: Any, dice: random.Random) -> Any:
    """Return a JSON value of which some parts are of another type, missing, or there many times."""
    if dice.random() < 0.08:
        return dice.choice(_ODD)
    if isinstance(value, dict):
        return {name: distorted(inner, dice) for name, inner in value.items() if dice.random() > 0.04}
    if isinstance(value, list):
        return [distorted(inner, dice) for inner in value] * dice.choice((1, 1, 1, 0, 3))
    return value
