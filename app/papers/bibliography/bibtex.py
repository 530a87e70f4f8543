"""PURE. BibTeX and BibLaTeX of any exporter → records. Text between entries is read as plain lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from bibtexparser.model import Block, Entry, ImplicitComment, ParsingFailedBlock, String
from bibtexparser.splitter import Splitter

from app.papers.bibliography import entry, plain_lines
from app.papers.bibliography.entry import SHOWN_CHARS, Item
from app.text import sanitize
from app.types import PaperRecord, Rejection

MACRO_CHARS = 300
MOST_STRINGS = 1_000  # parts of a text that are searched for macros
MOST_ON_LINE = 100  # blocks

_BLOCK = re.compile(r"@\w*[ \t]*(?=[{(])")
_FIRST_ON_LINE = re.compile(rf"^[^\S\n]*+{_BLOCK.pattern}", re.MULTILINE)
_STRING = re.compile(r"@string[ \t]*[{(]", re.IGNORECASE)

_UNBRACED = str.maketrans({"{": None, "}": None, "~": " "})
# Zotero writes these signs as macros, which would be dropped.
_SIGNS = (("{\\textless}", "<"), ("{\\textgreater}", ">"))
_ID_FIELDS = ("url", "journal", "journaltitle", "volume", "number", "howpublished")
_EPRINT_KIND_FIELDS = ("eprinttype", "archiveprefix")
_FIELDS = {
    *("title", "subtitle", "abstract", "author", "doi", "eprint", "note"), *_ID_FIELDS, *_EPRINT_KIND_FIELDS,
}  # fmt: skip
# Better BibTeX writes a name with a particle as: family=Berg, given=Anna, prefix=van der
_NAME_PART = re.compile(r"(?:^|,)\s*(given|prefix|family|suffix)\s*=\s*([^,=]*)")


def parse(text: str) -> Iterator[Item]:
    """Yield the records and rejections of a text in order. Stop iterating to stop parsing."""
    strings = _strings(text)
    for row, piece in _pieces(text):
        if _BLOCK.search(piece):
            yield from _parse_piece(piece, row, strings)
        else:
            yield from plain_lines.parse(piece.splitlines(), row)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text that can be parsed by themselves, each with the number of its first line.

    The parser closes all open blocks at a line that begins with a block, so the text is split there. A part
    with more than MOST_ON_LINE blocks is split before each of them.
    """
    row = 1
    for part in _split(text, _FIRST_ON_LINE):
        many = len(_BLOCK.findall(part)) > MOST_ON_LINE
        for piece in _split(part, _BLOCK) if many else (part,):
            yield row, piece
            row += piece.count("\n")


def _split(text: str, before: re.Pattern[str]) -> Iterator[str]:
    end = 0
    for match in before.finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        end = match.start()
    yield text[end:]


def _strings(text: str) -> dict[str, str]:
    """Return the values of the first MOST_STRINGS macros that a text defines, by name."""
    definitions = (piece for _, piece in _pieces(text) if _STRING.search(piece))
    strings: dict[str, str] = {}
    for piece in itertools.islice(definitions, MOST_STRINGS):
        for block in _blocks(piece) or ():
            if isinstance(block, String):
                # Truncated: otherwise a small text could expand to any size.
                strings.setdefault(block.key.lower(), block.value[:MACRO_CHARS])
    return strings


def _blocks(piece: str) -> list[Block] | None:
    try:
        return list(Splitter(piece).split().blocks)
    except Exception:  # bibtexparser documents that it may fail on unforeseen texts
        return None


def _parse_piece(piece: str, first: int, strings: Mapping[str, str]) -> Iterator[Item]:
    blocks = _blocks(piece)
    if blocks is None:
        yield Rejection("BibTeX that cannot be read", first, sanitize.one_line(piece, SHOWN_CHARS))
        return
    for block in blocks:
        row = first + (block.start_line or 0)
        if isinstance(block, ImplicitComment):
            yield from plain_lines.parse(block.comment.splitlines(), row)
        elif parsed := _entry(block):
            yield _item(parsed, strings, row)
        elif isinstance(block, ParsingFailedBlock) and block.ignore_error_block is None:
            reason = "a BibTeX entry that lacks a brace, quotation mark or comma"
            yield Rejection(reason, row, sanitize.one_line(block.raw, SHOWN_CHARS))


def _entry(block: Block) -> Entry | None:
    """Return the entry in a block, or None. Duplicate keys and fields are accepted."""
    content = block.ignore_error_block if isinstance(block, ParsingFailedBlock) else block
    return content if isinstance(content, Entry) else None


def _item(parsed: Entry, strings: Mapping[str, str], row: int) -> Item:
    used = [field for field in parsed.fields if field.key.lower() in _FIELDS]
    fields = {field.key.lower(): _value(field.value, strings) for field in reversed(used)}
    arxiv_id, doi = entry.find_ids(fields.get("doi", ""), _id_texts(fields))
    titles = (fields.get("title"), fields.get("subtitle"))
    record = PaperRecord(
        title=_prose(": ".join(filter(None, titles)), sanitize.TITLE_CHARS),
        arxiv_id=arxiv_id,
        doi=doi,
        abstract=_prose(fields.get("abstract", ""), entry.ABSTRACT_CHARS),
        authors=_authors(fields.get("author", "")),
    )
    return entry.checked_item(entry.EntryLocation("a BibTeX entry", row, parsed.key), record)


def _value(raw: str, strings: Mapping[str, str]) -> str:
    value = strings.get(raw.lower(), raw)
    return value[1:-1] if value[:1] + value[-1:] in ("{}", '""') else value


def _prose(value: str, limit: int) -> str:
    for macro, sign in _SIGNS:
        value = value.replace(macro, sign)
    return entry.prose(value, limit).translate(_UNBRACED).strip()


def _id_texts(fields: Mapping[str, str]) -> list[str]:
    """Return the texts that may be ids, the likeliest first.

    These are the eprint, a link, Google Scholar's journal, DBLP's volume `abs/…` and Zotero's note.
    """
    values = {name: value.translate(_UNBRACED).strip() for name, value in fields.items()}
    kind = next((values[name] for name in _EPRINT_KIND_FIELDS if name in values), "arxiv")
    eprint = values.get("eprint", "").partition(" ")[0] if kind.lower() == "arxiv" else ""
    others = (values.get(name, "").removeprefix("abs/") for name in _ID_FIELDS)
    return [eprint, *others, entry.arxiv_note(values.get("note", ""))]


def _authors(value: str) -> tuple[str, ...]:
    """Return names with the given name first: “Knuth, Donald E.” becomes Donald E. Knuth."""
    names = split_multiple_persons_names(" ".join(value.split()))[: entry.AUTHORS_READ]
    authors = (_prose(_given_name_first(name[: sanitize.NAME_CHARS]), sanitize.NAME_CHARS) for name in names)
    return tuple(name for name in authors if name and name.lower() != "others")


def _given_name_first(name: str) -> str:
    """Reorder a name. Unlike in `entry.names`, "Jr." comes before the given name, and braces hide commas."""
    parts = dict(_NAME_PART.findall(name))
    if parts:
        return " ".join(filter(None, map(parts.get, ("given", "prefix", "family", "suffix"))))
    return str(parse_single_name_into_parts(name, strict=False).merge_first_name_first)
