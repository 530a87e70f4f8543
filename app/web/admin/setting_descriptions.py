"""Explain the settings to operators, with the comments of `.env.example`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from app.storage.database import ROOT

_HEADING = re.compile(r"# ── (.+?) ─+")


class DescribedSettings(NamedTuple):
    """Settings that one comment explains."""

    description: str
    names: list[str]


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """A group of settings, as in `.env.example`."""

    heading: str
    parts: list[DescribedSettings]


def parse(text: str) -> list[SettingGroup]:
    """PURE. Return the groups of settings in the text of `.env.example`."""
    groups: list[SettingGroup] = []
    comment: list[str] = []
    for line in text.splitlines():
        if heading := _HEADING.fullmatch(line):
            groups.append(SettingGroup(heading[1], []))
            comment = []
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        elif "=" in line and groups:
            if comment:
                groups[-1].parts.append(DescribedSettings(" ".join(comment), []))
                comment = []
            groups[-1].parts[-1].names.append(line.partition("=")[0])
    return groups


@cache
def described_groups() -> list[SettingGroup]:
    """Return the groups of settings. An installation without `.env.example` has none."""
    path = ROOT / ".env.example"
    return parse(path.read_text("utf-8")) if path.is_file() else []
