"""The result of a check: its name, severity, message and fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not as well as it should
    ERROR = "error"  # messages are not sent, or are sent incorrectly


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A warning or error always has a fix.

    With `urgent`, operators get an alert. Errors are urgent.
    """

    check: str
    level: Level
    message: str
    fix: str = ""
    urgent: bool = False


def ok(check: str, message: str, advice: str = "") -> Finding:
    return Finding(check, Level.OK, message, advice)


def warning(check: str, message: str, fix: str, *, urgent: bool = False) -> Finding:
    return Finding(check, Level.WARNING, message, fix, urgent)


def error(check: str, message: str, fix: str) -> Finding:
    return Finding(check, Level.ERROR, message, fix, urgent=True)
