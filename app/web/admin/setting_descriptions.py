"""Explain the settings to operators, with the comments of `.env.example`."""

import re
from collections.abc import Iterable
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
            if comment or not groups[-1].parts:
                groups[-1].parts.append(DescribedSettings(" ".join(comment), []))
                comment = []
            groups[-1].parts[-1].names.append(line.partition("=")[0])
    return groups


@cache
def described_groups() -> list[SettingGroup]:
    """Return the groups of `.env.example`, or none if the installation lacks this file."""
    path = ROOT / ".env.example"
    return parse(path.read_text("utf-8")) if path.is_file() else []


def group(names: Iterable[str]) -> list[SettingGroup]:
    """Return these settings in the groups of `.env.example`. The last group has those that it does not name.

    The file may belong to another release.
    """
    remaining = dict.fromkeys(names)
    groups: list[SettingGroup] = []
    for described in described_groups():
        parts = []
        for part in described.parts:
            existing = [name for name in dict.fromkeys(part.names) if name in remaining]
            remaining = {name: None for name in remaining if name not in existing}
            parts += [DescribedSettings(part.description, existing)] if existing else []
        groups += [SettingGroup(described.heading, parts)] if parts else []
    if remaining:
        heading = "Other settings" if groups else "All settings"
        groups.append(SettingGroup(heading, [DescribedSettings("", [*remaining])]))
    return groups
