"""PURE. Compress JSON, mainly digest contents, which are stored for each subscriber and day.

The bytes begin with a mark, so that the plain JSON of earlier releases can be read as well.
"""

import json
import zlib
from typing import Any

import orjson

# Never change these values: stored data would become unreadable. A new dictionary needs a new mark.
_MARK = b"\x01"
_LEVEL, _WINDOW, _MEMORY = 6, -12, 5  # a window of 4 kB without header; a larger one takes longer to prepare
_DICTIONARY = (
    "you asked less ofclose to “” that you liked, through “picked by the editor of this service"
    "more votes than most papers of its daynewly listed, filed under , from , by “” apart in the abstract"
    ', but a similar topic"} in the abstract; “” in the title; no “” or “”, but related words: “”, “'
    ']}]}],"reasons":["“","[[[0, 1], [2, 3]], [[4, 5]], \\"no “","[[], [[","scores":[0.7,0.6,0.5,0.4,0.3]'
    ',"marks":["","","","","","","","","",""],"why":[0,1,2,3,4,5,6,7,8,9],"papers":[],'
    '{"edition":"2026-11-20","note":"","considered":2,"sections":[{"interest":"","heading":"","cards":['
).encode()


def dump(value: Any) -> bytes:
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY)
    return _MARK + deflate.compress(dump_text(value).encode()) + deflate.flush()


def load(stored: bytes) -> Any:
    """Return the value of compressed or plain JSON."""
    return load_text(text_of(stored))


def text_of(stored: bytes) -> bytes:
    """Return the text of compressed or plain JSON."""
    if not stored.startswith(_MARK):
        return stored
    return zlib.decompressobj(_WINDOW, _DICTIONARY).decompress(stored[len(_MARK) :])


def load_text(text: str | bytes) -> Any:
    """Parse JSON with orjson, or with `json` if it contains a lone surrogate, which orjson rejects."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def dump_text(value: Any) -> str:
    """Return compact JSON. Fall back to `json` for values that orjson rejects, such as lone surrogates."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))
