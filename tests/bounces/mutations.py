"""What happens to mails on their way through bad software."""

from __future__ import annotations

import random


def mutated(mail: bytes, other: bytes, dice: random.Random) -> bytes:
    """A mail that was cut, doubled, mixed with another one and sprinkled with random bytes."""
    changed = bytearray(mail)
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
