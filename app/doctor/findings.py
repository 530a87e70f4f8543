"""What the doctor finds: each thing that was looked at, how it is, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not as well as it should
    ERROR = "error"  # mails are not sent, or not rightly


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. Whatever is not well comes with its remedy."""

    check: str
    level: Level
    said: str
    fix: str = ""


def well(check: str, said: str, advice: str = "") -> Finding:
    return Finding(check, Level.OK, said, advice)


def warning(check: str, said: str, fix: str) -> Finding:
    return Finding(check, Level.WARNING, said, fix)


def error(check: str, said: str, fix: str) -> Finding:
    return Finding(check, Level.ERROR, said, fix)
