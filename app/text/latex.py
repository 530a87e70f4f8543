r"""PURE. Convert LaTeX to Unicode where possible: `$\pi_0$` becomes π₀, `O(n^{2})` becomes O(n²).

Sources send titles and abstracts as authors typed them: with mathematics between dollar signs, the authors'
own macros, and macros that lost their backslash, such as "2.5times" for "2.5×". Some contain Markdown, whose
marks are removed. Other text, such as HTML and prices, is left unchanged.

pylatexenc reads an unclosed argument again at each level (`\frac{` nested sixteen deep takes seconds), and
its output doubles for each nested accent. So each text has a budget of characters that may be read and
written. A text that exceeds the budget, or the limits on length and depth, is not converted.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pylatexenc import latex2text, latexwalker
from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, SpecialsTextSpec
from pylatexenc.macrospec import MacroSpec, MacroStandardArgsParser, SpecialsSpec

LONGEST = 8_000  # characters; longer texts are not converted; real abstracts have up to 4,000
DEEPEST = 20  # nested groups, environments and mathematics; real texts have up to 5 levels
WORK = 6  # characters and pieces read and written per character of a text; real texts need up to 3
LEAST_WORK = 400  # added to every budget, for short texts

# A pair of dollar signs marks mathematics only if there is no space just inside them and no digit after them:
# "$5 to $10" is money.
_MATH = re.compile(r"\$(?=\S)[^$]{1,300}(?<=\S)\$(?!\d)|\$\$[^$]{1,300}\$\$|\$[^$\s\d][^$\s]{0,30}\$")
_BARE_SIGN = re.compile(r"(?<!\\)([%&])")
_BARE_DOLLAR = re.compile(r"(?<!\\)\$")
_SKIPPED = re.compile(
    r"\\mkern-?[\d.]+mu|[ ~]?\\cite[a-z]*(?:\[[^\]]{0,300}\]){0,4}\{[^{}]*\}|~?\\(?:ref|label)\{[^{}]*\}"
    r"|\\xspace\b(?:\{\})?"
)
_TIGHT = re.compile(r"(?<=\S)(\\times|\\cdot)\s+(?=\d|[A-Za-z]\b|[\\{])")
# `x_\mathrm{max}`: the parser would use only the macro as the script, without its argument.
_SCRIPTED = re.compile(r"([_^])\s*(\\(?:math|text|oper)[a-z]*(?![a-z])\s*(?:\{[^{}]*\}|\w))")
_NO_LETTERS = re.compile(r"\\href\s*\{[^{}]*\}|\\[A-Za-z]+|[^A-Za-z]")
_UNSLASHED = re.compile(r"\{(times|sim|approx|circ|pm|rightarrow|alpha|beta|pi)\}")
_REPAIRS = (
    (_UNSLASHED, r"{\\\1}"),
    (_SKIPPED, ""),
    (_TIGHT, r"\1{}"),
    (_SCRIPTED, r"\1{\2}"),
)

_UP = dict(zip("0123456789+-−=()", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾", strict=True))
_UP |= dict(zip("abcdefghijklmnoprstuvwxyzT", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ", strict=True))
_DOWN = dict(zip("0123456789+-−=()", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎", strict=True))
_DOWN |= dict(zip("aehijklmnoprstuvx", "ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
_SCRIPTS = {"^": _UP, "_": _DOWN}
# Signs that are clear without being raised or lowered: "M⊙" is the mass of the sun.
_UNMARKED = {
    "^": {"∘": "°", "*": "*", "⋆": "⋆", "†": "†", "'": "′", "′": "′", "⊤": "ᵀ"},
    "_": {"⊙": "⊙", "⊕": "⊕"},
}
_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}
_SHORT = 3  # characters; longer superscripts and subscripts are hard to read
# Texts that don't need brackets: _WORD as a script, _FACTOR above or below a fraction line.
_WORD = re.compile(r"[\w.]+|\W")
_FACTOR = re.compile(r"√?[\w.]+(?:\^[\w.]+)?")
# The parser takes milliseconds for a whole abstract, so it only gets the pieces that contain LaTeX.
_PLAIN_WORDS = re.compile(r"(?:(?:[^\\${}^_~&#%`'!?\- ]++|-(?!-)|'(?!')|[!?](?!`))*+ )++")
_LATEX = re.compile(r"[\\${}^_~&#%]|--|``|''|[!?]`")
# A piece that can be converted by itself. It ends at a space outside groups and mathematics, but not at a
# space after a macro or before an argument or a script.
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"
_PIECE = re.compile(
    r"(?:\\[A-Za-z]++\*? *+|\\\((?:(?!\\\)).)*+\\\)|\\\[(?:(?!\\\]).)*+\\\]|\\[^([]|\$\$[^$]++\$\$|\$[^$]++\$"
    rf"|{_GROUP}|[^\\${{}} ]| ++(?=[{{\[^_]))++(?= |\Z)"
)
# Markers around the name of a function. They become spaces where letters would run together.
_BEFORE, _AFTER = "\ue000", "\ue001"
_GAPS = (
    (re.compile(f"{_AFTER}{_BEFORE}|(?<=[^\\W_]){_BEFORE}|{_AFTER}(?=[^\\W_⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉])"), " "),
    (re.compile(f"[{_BEFORE}{_AFTER}]|(?<= ) +"), ""),
)

# Names of operators that lost their backslash.
_OPERATORS = {"leq": "≤", "geq": "≥", "cdot": "·", "rightarrow": "→"}
_ODD = re.compile(r"[\^_{}~`]|--|''|\*[^\s*]|\]\(|\d(?:times|pm\d)|sim ?\d|approx\d|[lg]eq|cdot|rightarrow")
_SUSPICIOUS = re.compile(rf"[\\$]|{_ODD.pattern}")
# Markdown: [a label](https://example.org), perhaps between stars, or an address as its own label. Images stay
# as they are, and so do numbers of references.
_MARKDOWN_LINK = re.compile(r"(?<![\w!)\]*])(\*{0,2})\[(?!\d+\])([^\[\]]{1,200})\]\((https?://[^\s()]++)\)\1")
# The label is optional, so that a URL without one matches as a whole and is not searched again.
_LABELLED = re.compile(r"(https?://[^\s{}]++)(?:\{[^{}]*\})?")
_ADDRESS = re.compile(r"(https?://[^\s{}]+)")
# For each pattern: a string that occurs in every text that the pattern matches, and the replacement.
_LEFTOVERS: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    ("{", re.compile(r"([\^_])\{([^{}]*)\}"), lambda match: _script(match[1], match[2])),
    ("{", re.compile(r"(?:\{bf (?=[A-Z])|\b(?:text(?:bf|it|tt|sc)|emph)\{)([^{}]*)\}"), r"\1"),
    ("^circ", re.compile(r"\^circ(?:(?=times)|(?![a-z]))"), "°"),
    # Names of signs are converted only where they are not words: not in "14 times", "in sim 10 tasks succeed"
    # and "sim2real". "Sim10k" is a data set.
    (
        "sim",
        re.compile(
            r"(?<![^\W\d])(?<![^\W\d]\d)(?<!-)sim(?!10[kK]\b)(?=\d[\d.,]*(?:\d|%|times|[kKMB]\b))"
            r"|(?<=\d)(?<![^\W\d]\d)sim ?(?=\d)(?!2[A-Za-z])"
        ),
        "∼",
    ),
    ("times", re.compile(r"(?<=[\d°])times(?![a-z])"), "×"),
    ("approx", re.compile(r"(?<![^\W\d])approx(?=\d)"), "≈"),
    ("pm", re.compile(r"(?<=\d)pm(?=\d+\.\d)"), "±"),
    (
        "",
        re.compile(r"(?<![^\W\d])(?:[lg]eq(?= ?\d)|(?:cdot|rightarrow)(?![^\W\d]))"),
        lambda match: _OPERATORS[match[0]],
    ),
    # Markdown: **bold**, the letters of a short form in bold, as in "**C**hinese", and one *word*. Stars
    # around several words may mean something else: "rm *log and tmp*".
    (
        "**",
        re.compile(
            r"(?<![\w)\]*])\*\*(?:(?=[^\s*])((?:[^*.;!?]|[.;!?](?! )){1,100}?)(?<!\s)\*\*(?![\w*])"
            r"|([A-Za-z]+)\*\*(?=[a-z]))"
        ),
        r"\1\2",
    ),
    ("*", re.compile(r"(?<![^\s(“‘\"'\[—–])\*([^\W\d_][\w-]*)\*(?![\w*])"), r"\1"),
    (
        "^",
        re.compile(r"(?<=[\w)\]|])(\^)([-−+]?\d+|\*)(?![\d*]|\.\d)"),
        lambda match: _script(match[1], match[2]),
    ),
    (
        "_",
        re.compile(r"(?<![^\W])((?!_)\w)(_)(\d)(?![\w.])"),
        lambda match: match[1] + _script(match[2], match[3]),
    ),
    ("{", re.compile(r"(?<=\d)\{,\}(?=\d)"), ","),
    ("{", re.compile(r"(?<=\w)\{\}"), ""),
    ("{", re.compile(r"\{([A-Z][\w-]*(?: [\w-]+)*)\}|(?<=[a-z])\{([a-z])\}"), r"\1\2"),
    ("~", re.compile(r"(?<=\d)~(?=[A-Za-z])|(?<=\d\))~(?=[A-Z])|(?<=\bTable)~|(?<=\bSection)~"), " "),
    ("", re.compile(r"(?<!\w)(?:``|'')(?=\w)([^`\"]{1,100}?)(?:''|\")"), r"“\1”"),
    ("--", re.compile(r"(?<!-)---(?!-)"), "—"),
    ("--", re.compile(r"(?<=[\w)%])--(?=[\w(])|(?<=\s)--(?=\s)"), "–"),
)


def latex_to_unicode(text: str) -> str:
    """Convert the LaTeX in a text to Unicode, and remove the marks of Markdown.

    If the LaTeX cannot be parsed, only the remains of macros that lost their backslash are cleaned up.
    """
    if not _SUSPICIOUS.search(text):
        return text
    if len(text) <= LONGEST and ("\\" in text or _MATH.search(text) or _UNSLASHED.search(text)):
        text = _convert_math(text)
    if "\\" in text or not _ODD.search(text):
        return text
    # Clean up the remains of macros that lost their backslash and of Markdown, except in URLs.
    text = _MARKDOWN_LINK.sub(_labelled_address, text)
    parts = _ADDRESS.split(_LABELLED.sub(r"\1", text if "{" in text else text.replace("}", "")))
    for needle, pattern, by in _LEFTOVERS:
        if needle in text:
            parts[::2] = [pattern.sub(by, part) for part in parts[::2]]
    return "".join(parts)


def _labelled_address(link: re.Match[str]) -> str:
    label, address = link[2], link[3]
    return address if label.rstrip("/") == address.rstrip("/") else f"{label} ({address})"


def _convert_math(text: str) -> str:
    source = _BARE_SIGN.sub(r"\\\1", text)
    for pattern, by in _REPAIRS if "\\" in source or "{" in source else ():
        source = pattern.sub(by, source)
    if not _MATH.search(text):
        source = _BARE_DOLLAR.sub(r"\\$", source)
    try:
        converted = _parse_pieces(source)
    except Exception:  # the parser fails in many ways on text that is not LaTeX
        return text
    for pattern, by in _GAPS if _BEFORE in converted or _AFTER in converted or "  " in converted else ():
        converted = pattern.sub(by, converted)
    letters = _NO_LETTERS.sub("", text)
    return converted if len(converted) * 2 >= len(letters) else text


def _parse_pieces(source: str) -> str:
    """Convert the pieces that contain LaTeX. If the text cannot be divided, convert it as a whole."""
    pieces, position = list[str](), 0
    while position < len(source):
        piece = _PLAIN_WORDS.match(source, position) or _PIECE.match(source, position)
        if piece is None or r"\begin" in piece[0]:
            return _parse(source)
        pieces.append(piece[0])
        position = piece.end()
    return "".join(_parse_piece(piece) if _LATEX.search(piece) else piece for piece in pieces)


def _parse(source: str) -> str:
    budget = _Budget(source)
    nodes, _, _ = _Walker(source, budget).get_latex_nodes()
    return str(_Writer(budget).nodelist_to_text(nodes))


_parse_piece = lru_cache(maxsize=10_000)(_parse)  # formulas such as "$n$" occur in many abstracts


def _script(sign: str, text: str) -> str:
    """Return a subscript or superscript in the small characters of Unicode, or else as text after `sign`.

    Small characters are used for short texts and numbers, if Unicode has all of them.
    """
    text, small = text.strip(f" {_BEFORE}{_AFTER}"), _SCRIPTS[sign]
    if text in _UNMARKED[sign]:
        return _UNMARKED[sign][text]
    if text and (len(text) <= _SHORT or text.isdecimal()) and all(char in small for char in text):
        return "".join(small[char] for char in text)
    return sign + _bracketed(text, _WORD) if text else ""


def _bracketed(text: str, alone: re.Pattern[str] = _FACTOR) -> str:
    return text if alone.fullmatch(text) else f"({text})"


def _argument(node: Any, place: int, reader: LatexNodes2Text) -> str:
    given = node.nodeargd.argnlist if node.nodeargd else ()  # () for a macro that is itself an argument
    return str(reader.nodelist_to_text([given[place]])).strip() if given and given[place] else ""


def _scripted(node: Any, l2tobj: LatexNodes2Text) -> str:
    (what,) = node.nodeargd.argnlist
    if not (node.parsing_state.in_math_mode or what.isNodeType(latexwalker.LatexGroupNode)):
        return str(node.latex_verbatim())
    return _script(node.specials_chars, _argument(node, 0, l2tobj)) + getattr(what, "macro_post_space", "")


def _fraction(node: Any, l2tobj: LatexNodes2Text) -> str:
    above, below = (_bracketed(_argument(node, place, l2tobj)) for place in (-2, -1))
    return f"{above}/{below}"


def _root(node: Any, l2tobj: LatexNodes2Text) -> str:
    degree = _argument(node, 0, l2tobj)
    return (_ROOTS.get(degree) or _script("^", degree) + "√") + _bracketed(_last(node, l2tobj))


def _binomial(node: Any, l2tobj: LatexNodes2Text) -> str:
    return f"({_argument(node, 0, l2tobj)} choose {_last(node, l2tobj)})"


def _text_script(sign: str) -> Callable[..., str]:
    def write(node: Any, l2tobj: LatexNodes2Text) -> str:
        return _script(sign, _last(node, l2tobj))

    return write


def _last(node: Any, l2tobj: LatexNodes2Text) -> str:
    return _argument(node, -1, l2tobj)


def _letter(node: Any, l2tobj: LatexNodes2Text) -> str:
    """Return a single letter in the macro's alphabet. Return several letters, which are a name, unchanged."""
    text = _last(node, l2tobj)
    return (
        str(_PLAIN.latex_to_text(f"\\{node.macroname}{{{text}}}"))
        if text.isalpha() and len(text) == 1
        else text
    )


def _accented(mark: str) -> Callable[..., str]:
    def write(node: Any, l2tobj: LatexNodes2Text) -> str:
        text = unicodedata.normalize("NFKC", _last(node, l2tobj))
        return unicodedata.normalize("NFC", text + mark) if len(text) == 1 else text

    return write


def _character(node: Any, l2tobj: LatexNodes2Text) -> str:
    code = _last(node, l2tobj)
    return chr(int(code[1:], 16)) if re.fullmatch(r"x[0-9A-Fa-f]{2,4}", code) else ""


def _footnote(node: Any, l2tobj: LatexNodes2Text) -> str:
    return f" ({_last(node, l2tobj)})"


def _constant(text: str) -> Callable[..., str]:
    def write(node: Any) -> str:
        return text + str(node.macro_post_space)

    return write


def _unknown_macro(node: Any) -> str:
    """Return the name of an unknown macro, which is usually the authors' own macro for a method's name."""
    return str(node.macroname + node.macro_post_space)


_FUNCTIONS = (
    "arccos", "arcsin", "arctan", "arg", "cos", "cosh", "cot", "coth", "csc", "deg", "det", "dim", "exp",
    "gcd", "hom", "inf", "ker", "lg", "lim", "liminf", "limsup", "ln", "log", "max", "min", "Pr", "sec",
    "sin", "sinh", "sup", "tan", "tanh",
)  # fmt: skip
_TRANSPARENT = (
    "text", "textnormal", "texttt", "textsf", "url", "uline", "mbox", "mathrm", "mathsf", "mathit", "mathbf",
    "mathtt", "mathnormal", "bm", "boldsymbol",
)  # fmt: skip
_FONT_SWITCHES = (
    "em", "bf", "it", "rm", "sc", "sf", "sl", "tt", "bfseries", "itshape", "scshape", "slshape", "sffamily",
    "ttfamily", "tiny", "scriptsize", "footnotesize", "small", "normalsize", "large", "Large",
)  # fmt: skip
_DROPPED = (
    "big", "Big", "bigl", "bigr", "Bigl", "Bigr", "bigg", "Bigg", "left", "right", "limits", "displaystyle",
    "cite", "citep", "citet", "ref", "label",
)  # fmt: skip
_WITH_ARGUMENTS: dict[str, tuple[str, Callable[..., str]]] = {
    **dict.fromkeys(_TRANSPARENT, ("{", _last)),
    **dict.fromkeys(("mathbb", "mathcal", "mathscr"), ("{", _letter)),
    **dict.fromkeys(("frac", "dfrac", "tfrac", "nicefrac"), ("{{", _fraction)),
    **dict.fromkeys(("href", "textcolor"), ("{{", _last)),
    "operatorname": ("*{", _last),
    "textsuperscript": ("{", _text_script("^")),
    "textsubscript": ("{", _text_script("_")),
    "binom": ("{{", _binomial),
    "sqrt": ("[{", _root),
    "footnote": ("{", _footnote),
    "unicode": ("{", _character),
    "widetilde": ("{", _accented("\u0303")),
    "widehat": ("{", _accented("\u0302")),
}
_WORDS = {
    **{name: f"{_BEFORE}{name}{_AFTER}" for name in _FUNCTIONS},
    **dict.fromkeys(_DROPPED, ""),
    "eg": "e.g.",
    "ie": "i.e.",
    "etal": "et al.",
    "etc": "etc.",
    "space": " ",
    "|": "‖",
    "colon": ":",
}


# pylatexenc's grammar, extended by our macros and scripts.
_GRAMMAR = latexwalker.get_default_latex_context_db()
_GRAMMAR.add_context_category(
    "paperboy",
    macros=[MacroSpec(name, arguments) for name, (arguments, _) in _WITH_ARGUMENTS.items()],
    specials=[SpecialsSpec(sign, MacroStandardArgsParser("{")) for sign in _SCRIPTS],
    prepend=True,
)
# pylatexenc's rules for writing macros as text, extended by ours.
_WRITER_CONTEXT = latex2text.get_default_latex_context_db()
_WRITER_CONTEXT.add_context_category(
    "paperboy",
    macros=[
        *(MacroTextSpec(name, simplify_repl=write) for name, (_, write) in _WITH_ARGUMENTS.items()),
        *(MacroTextSpec(name, simplify_repl=_constant(text)) for name, text in _WORDS.items()),
        *(MacroTextSpec(name, simplify_repl="") for name in _FONT_SWITCHES),
    ],
    specials=[SpecialsTextSpec(sign, simplify_repl=_scripted) for sign in _SCRIPTS],
    prepend=True,
)
_WRITER_CONTEXT.set_unknown_macro_spec(MacroTextSpec("", simplify_repl=_unknown_macro))
_PLAIN = LatexNodes2Text(math_mode="text")


class _BudgetExceeded(Exception):
    """Converting a text exceeds its budget or the limit on depth."""


class _Budget:
    """The number of characters that may still be read and written.

    `spend` raises _BudgetExceeded when the budget is used up.
    """

    def __init__(self, text: str) -> None:
        self._left = len(text) * WORK + LEAST_WORK

    def spend(self, characters: int) -> None:
        self._left -= characters + 1  # an empty piece must not be free
        if self._left < 0:
            raise _BudgetExceeded


class _Walker(latexwalker.LatexWalker):  # type: ignore[misc]  # pylatexenc has no types
    """A LaTeX parser with a budget and a limit on depth."""

    def __init__(self, text: str, budget: _Budget) -> None:
        super().__init__(text, latex_context=_GRAMMAR)
        self._budget, self._depth = budget, 0

    def get_token(self, *args: Any, **options: Any) -> Any:
        token = super().get_token(*args, **options)
        self._budget.spend(token.len + len(token.pre_space))
        return token

    def get_latex_nodes(self, *args: Any, **options: Any) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            raise _BudgetExceeded
        try:
            return super().get_latex_nodes(*args, **options)
        finally:
            self._depth -= 1


class _Writer(LatexNodes2Text):  # type: ignore[misc]  # pylatexenc has no types
    """A converter from parsed LaTeX to text, with a budget."""

    def __init__(self, budget: _Budget) -> None:
        super().__init__(_WRITER_CONTEXT, math_mode="text", keep_comments=True, strict_latex_spaces=False)
        self._budget = budget

    def node_to_text(self, *args: Any, **options: Any) -> str:
        text = str(super().node_to_text(*args, **options))
        self._budget.spend(len(text))
        return text
