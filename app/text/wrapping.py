"""PURE. Wrap the lines of plain text."""

from __future__ import annotations

import re
import textwrap

TEXT_WIDTH = 72  # characters in a line of the text part of an email
_ONE_LINE = re.compile(r"\S+(?: \S+)*+")  # its only white space is single spaces


def wrap(text: str, indent: str = "") -> str:
    """Wrap text to TEXT_WIDTH characters a line, without breaking links."""
    if _ONE_LINE.fullmatch(text):  # same result as `textwrap`, in a fifth of the time
        lines, line = list[str](), indent
        for word in text.split(" "):
            if len(line) + len(word) >= TEXT_WIDTH and line != indent:
                lines.append(line)
                line = indent
            line += f" {word}" if line != indent else word
        return "\n".join([*lines, line])
    return textwrap.fill(
        text,
        TEXT_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
