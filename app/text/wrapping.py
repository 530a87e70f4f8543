"""PURE. Wrap the lines of plain text."""

import itertools
import re
import textwrap
import unicodedata

TEXT_WIDTH = 72  # columns in a line of the text part of an email
_ONE_LINE = re.compile(r"\S+(?: \S+)*+")  # its only white space is single spaces
_WORD = re.compile(r"\S+", re.ASCII)  # may contain no-break spaces
_WIDE = re.compile("[\u1100-\u115f\u2e80-\ud7a3\uf900-\uffe6\U0001f000-\U0003fffd]")  # perhaps two columns
# Chinese and Japanese lines may also break between two characters outside links. Some marks must not begin or
# end a line.
_LETTERS = "\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_OPENING, _CLOSING = "〈《「『【〔（［｛", "〉》」』】〕）］｝、。，．！？：；・…"
_NOT_FIRST = "・ーぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々"
_BETWEEN = f"(?<=[{_LETTERS}{_CLOSING}])(?=[{_LETTERS}{_OPENING}])(?![{_NOT_FIRST}])"
_AFTER_SPACE = r"(?<=\u3000)(?=\S)"
_LINK = r"(?i:https?://|www\.)[^\u3000、。，；]+"
_LINK_OR_BREAK = re.compile(f"{_LINK}|{_BETWEEN}|{_AFTER_SPACE}")


def wrap(text: str, indent: str = "") -> str:
    """Wrap text to TEXT_WIDTH columns a line, without breaking links."""
    if not text.isascii() and _WIDE.search(text):
        return _wrap_wide(text, indent)
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


def _wrap_wide(text: str, indent: str) -> str:
    """Wrap a text in which characters may be two columns wide, and words may be written without spaces."""
    lines, line, columns = list[str](), "", len(indent)
    for word in _WORD.findall(text):
        for number, part in enumerate(_parts(word)):
            space = " " if line and not number else ""
            width = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in part)
            if line and columns + len(space) + width > TEXT_WIDTH:
                lines.append(indent + line)
                line, columns, space = "", len(indent), ""
            line += space + part
            columns += len(space) + width
    return "\n".join([*lines, indent + line])


def _parts(word: str) -> list[str]:
    """Split a word at the places where a line may break."""
    breaks = [match.start() for match in _LINK_OR_BREAK.finditer(word) if not match[0]]
    return [word[start:end] for start, end in itertools.pairwise([0, *breaks, len(word)])]
