"""PURE. Wrap the lines of plain text."""

from __future__ import annotations

import textwrap

TEXT_WIDTH = 72  # of the text part of a mail


def wrap(text: str, indent: str = "") -> str:
    """Wrap text to TEXT_WIDTH characters a line, without breaking links."""
    return textwrap.fill(
        text,
        TEXT_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
