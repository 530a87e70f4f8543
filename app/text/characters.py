"""PURE. Normalize the characters of untrusted text, in bounded time."""

import html
import re
import unicodedata

# Characters that no author types.
_CONTROLS = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f"  # control characters, except for tabs and line ends
    "\u202d\u202e"  # direction overrides
    "\ud800-\udfff\ufffe\uffff"  # lone surrogates and noncharacters
)
# Invisible characters and direction marks, which are often copied with a text, for example from a web page or
# a program in Hebrew. A title must not change how the surrounding page is displayed. The joiners U+200C and
# U+200D are not removed, because Persian, Hindi and emoji need them.
_INVISIBLE = (
    "\xad\u034f\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f"
    "\u061c\u200e\u200f\u202a-\u202c\u2066-\u2069"  # direction marks
)
_CONTROL = re.compile(f"[{_CONTROLS}]")
_COPIED_MARKS = re.compile(f"[{_INVISIBLE}]")
_UNWANTED = re.compile(f"[{_CONTROLS}{_INVISIBLE}]")
JOINERS = "\u200c\u200d"  # required within words of Persian and Hindi, and within emoji
HYPHENS = "-\u2010\u2011–−\uff0d"  # hyphens, and signs that authors use for them; the first is ASCII
MAX_MARKS = 30  # combining marks on one letter, as in Unicode's stream-safe format
_MARKS = re.compile(rf"([^\w\s\x00-\x7f]{{{MAX_MARKS}}})[^\w\s\x00-\x7f]+")
# Tags of formatted words, which are removed without leaving a space: “H<sub>2</sub>O” is “H2O”.
INLINE_TAG = re.compile(
    r"</?(?:i|b|em|strong|su[bp]|sc|span)(?:\s[^<>=]{0,80}=[^<>]{0,80}|\s?)>", re.IGNORECASE
)
# ﬀ to ﬆ, and half-width katakana, which write パ as two characters
_COPIED_FORMS = re.compile("[\ufb00-\ufb06]|[\uff66-\uff9f]+")
# Characters that `safe_line` replaces: control characters, marks that change the direction, lone surrogates.
_NOT_ON_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ON_A_LINE = (
    dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")
    | dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "")
    | dict.fromkeys(range(0xD800, 0xE000), "?")
)


def normalize(text: str) -> str:
    """Return the text in normal form C, with at most MAX_MARKS combining marks in a row.

    The limit is needed because Python sorts combining marks in quadratic time. Ligatures such as “ﬁ”, which
    are copied from PDF files, and half-width katakana are replaced, because they would prevent a word from
    being found.
    """
    if text.isascii():
        return text
    text = _COPIED_FORMS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return unicodedata.normalize("NFC", _MARKS.sub(r"\1", text))


def remove_invisible(text: str) -> str:
    """Return the text without control, invisible and direction-changing characters."""
    return _UNWANTED.sub("", text)


def remove_copied_marks(text: str) -> str:
    """Return a typed text without invisible characters and direction marks, but with control characters."""
    return _COPIED_MARKS.sub("", text)


def has_controls(text: str) -> bool:
    """Return True if a text contains characters that no author types.

    These are control characters, direction overrides, lone surrogates and noncharacters.
    """
    return _CONTROL.search(text) is not None


def unescape_html(markup: str) -> str:
    """Return a text with its HTML entities decoded, or unchanged if a numeric entity is too long."""
    try:
        return html.unescape(markup)
    except ValueError:
        return markup


def safe_line(text: str) -> str:
    """Return untrusted text as one line, without control characters or marks that change text direction."""
    if _NOT_ON_A_LINE.search(text):  # rarely true; translating every text would take several times as long
        text = text.translate(_ON_A_LINE)
    return " ".join(text.split())


def is_accent(char: str) -> bool:
    """Return True for a sign that a writer may leave out, or that only changes how a letter is drawn.

    These are joiners, variation selectors, the Arabic tatweel, and marks whose canonical combining class is
    that of an overlay, of the points of Hebrew, Arabic and Syriac, or of a position above or below a letter.
    The other marks are letters, such as the vowel signs of Hindi and Thai, and the voicing mark of Japanese.
    """
    combining_class = unicodedata.combining(char)
    return (
        char in f"{JOINERS}\u0640"
        or combining_class == 1
        or 10 <= combining_class <= 36
        or combining_class >= 200
        or unicodedata.category(char) == "Me"
        or "VARIATION SELECTOR" in unicodedata.name(char, "")
    )


ACCENT = "\u0300"  # in a folded text, in place of each accent that is a character of its own
# Thai, Lao, Burmese, Khmer and Lanna have no spaces between words, so a sentence would be one word. If it is
# split at its marks, at least parts of words are found.
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaa7f]"
)
_MARKS_OF_PLANE_0 = "".join(
    char
    for char in map(chr, range(0x300, 0x10000))
    if char in JOINERS
    or (unicodedata.category(char) in ("Mn", "Mc", "Me") and not _WITHOUT_SPACES.match(char))
)
# A sign that may follow a letter within a word. Of those outside plane 0, only the variation selectors are
# included: `re` tries such ranges one by one, which would slow down the splitting of every text.
MARK = f"[{_MARKS_OF_PLANE_0}\U000e0100-\U000e01ef]"
# Letters that Unicode does not decompose into a letter and an accent.
_BASE_LETTERS = dict(zip("łøđðħŧı", "loddhti", strict=True))


def _base(char: str) -> str:
    """Return a character without accents, and in its usual form if it is full-width, for example.

    The parts of a Korean syllable are letters, and so are the signs that make パ of ハ or ো of ে.
    """
    parts = unicodedata.normalize("NFD", char)[1:]
    base = unicodedata.normalize("NFKD", char)[0]
    return base if all(map(is_accent, parts)) and not unicodedata.category(base).startswith("M") else char


class _FoldTable(dict[int, str]):
    """A translation table from characters to lower case without accents, filled on demand."""

    def __missing__(self, code: int) -> str:
        base = ACCENT if is_accent(chr(code)) else _base(chr(code))
        lower = base.lower() if len(base.lower()) == 1 else base
        self[code] = _BASE_LETTERS.get(lower, lower)
        return self[code]


_FOLD_TABLE = _FoldTable()


def fold_accents(text: str) -> str:
    """Return the text in lower case without accents. Its length does not change.

    Accents that are characters of their own become ACCENT.
    """
    return text.translate(_FOLD_TABLE)


def remove_accents(text: str) -> str:
    """Return the text in lower case without accents. It may become shorter."""
    return fold_accents(text).replace(ACCENT, "")
