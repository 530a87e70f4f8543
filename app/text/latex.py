r"""PURE. LaTeX → Unicode, as far as Unicode goes: `$\pi_0$` is π₀, `O(n^{2})` is O(n²).

Sources send titles and abstracts as authors typed them: with mathematics between dollars, macros of their
own, and braces that lost their backslash on the way. What is no LaTeX stays, markup and prices included.

The library reads an argument that is left open again at each level (`\frac{` sixteen deep takes seconds) and
doubles accents of accents. So each text has a budget of characters that may be read and written for it. A
text that exceeds it, or a limit of length or depth, stays as it came.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from pylatexenc import latex2text, latexwalker
from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, SpecialsTextSpec
from pylatexenc.macrospec import MacroSpec, MacroStandardArgsParser, SpecialsSpec

LONGEST = 8_000  # characters of a text whose LaTeX is read; real abstracts have up to 4,000
DEEPEST = 20  # groups, environments and mathematics within each other; real texts have up to 5
WORK = 6  # characters and pieces read and written for each character of a text; real texts need up to 3
LEAST_WORK = 400  # however short the text is

# A dollar pair is mathematics only when it hugs its content and no digit follows ("$5 to $10" is money).
_MATH = re.compile(r"\$(?=\S)[^$]{1,300}(?<=\S)\$(?!\d)|\$\$[^$]{1,300}\$\$|\$[^$\s\d][^$\s]{0,30}\$")
_BARE_SIGN = re.compile(r"(?<!\\)([%&])")
_BARE_DOLLAR = re.compile(r"(?<!\\)\$")
_SKIPPED = re.compile(
    r"\\mkern-?[\d.]+mu|[ ~]?\\cite[a-z]*(?:\[[^\]]{0,300}\]){0,4}\{[^{}]*\}|~?\\(?:ref|label)\{[^{}]*\}"
    r"|\\xspace\b(?:\{\})?"
)
_TIGHT = re.compile(r"(?<=\S)(\\times|\\cdot)\s+(?=\d|[A-Za-z]\b|[\\{])")
# `x_\mathrm{max}`: a script takes one macro only, without what belongs to it.
_SCRIPTED = re.compile(r"([_^])\s*(\\(?:math|text|oper)[a-z]*(?![a-z])\s*(?:\{[^{}]*\}|\w))")
_UNSLASHED = re.compile(r"\{(times|sim|approx|circ|pm|rightarrow|alpha|beta|pi)\}")
_MENDED = (
    (_BARE_SIGN, r"\\\1"),
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
_RAISED = {"∘": "°", "*": "*", "⋆": "⋆", "†": "†", "′": "′", "⊤": "ᵀ"}  # that stand high by themselves
_SHORT = 3  # characters that are still read easily when they are so small
# Need no brackets, as a script, and above or below a line.
_WORD = re.compile(r"[\w.]+|\W")
_FACTOR = re.compile(r"√?[\w.]+(?:\^[\w.]+)?")
_BEFORE, _AFTER = "\ue000", "\ue001"  # the name of a function: a space, where letters would run together
_GAPS = (
    (re.compile(f"{_AFTER}{_BEFORE}|(?<=[^\\W_]){_BEFORE}|{_AFTER}(?=[^\\W_⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉])"), " "),
    (re.compile(f"[{_BEFORE}{_AFTER}]|(?<= ) +"), ""),
)

_ODD = re.compile(r"[\^_{}~`]|--")
# The label is optional, so that an address without one is passed over as a whole and not tried again inside.
_LABELLED = re.compile(r"(https?://[^\s{}]++)(?:\{[^{}]*\})?")
_ADDRESS = re.compile(r"(https?://[^\s{}]+)")
_TIDIED: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"([\^_])\{([^{}]*)\}"), lambda found: _script(found[1], found[2])),
    (re.compile(r"(?<=[\w)\]|])(\^)([-−+]?\d+|\*)(?![\d*]|\.\d)"), lambda found: _script(found[1], found[2])),
    (
        re.compile(r"(?<![^\W])((?!_)\w)(_)(\d)(?![\w.])"),
        lambda found: found[1] + _script(found[2], found[3]),
    ),
    (re.compile(r"(?<=\d)\{,\}(?=\d)"), ","),
    (re.compile(r"(?<=\w)\{\}"), ""),
    (re.compile(r"\{([A-Z][\w-]*(?: [\w-]+)*)\}|(?<=[a-z])\{([a-z])\}"), r"\1\2"),
    (re.compile(r"(?<=\d)~(?=[A-Za-z])|(?<=\d\))~(?=[A-Z])|(?<=\bTable)~|(?<=\bSection)~"), " "),
    (re.compile(r"(?<!\w)(?:``|'')(?=\w)([^`\"]{1,100}?)(?:''|\")"), r"“\1”"),
    (re.compile(r"(?<!-)---(?!-)"), "—"),
    (re.compile(r"(?<=[\w)%])--(?=[\w(])|(?<=\s)--(?=\s)"), "–"),
)


def latex_to_unicode(text: str) -> str:
    """A text with its LaTeX as Unicode; one that is no LaTeX, or not well-formed, nearly as it came."""
    read = _read(text) if len(text) <= LONGEST and _is_latex(text) else text
    return read if "\\" in read or not _ODD.search(read) else _tidied(read)


def _is_latex(text: str) -> bool:
    return "\\" in text or bool(_MATH.search(text) or _UNSLASHED.search(text))


def _tidied(text: str) -> str:
    """Without what is left of macros whose backslash was lost; addresses stay as they are."""
    parts = _ADDRESS.split(_LABELLED.sub(r"\1", text if "{" in text else text.replace("}", "")))
    for pattern, by in _TIDIED:
        parts[::2] = [pattern.sub(by, part) for part in parts[::2]]
    return "".join(parts)


def _read(text: str) -> str:
    source = text
    for pattern, by in _MENDED:
        source = pattern.sub(by, source)
    if not _MATH.search(text):
        source = _BARE_DOLLAR.sub(r"\\$", source)
    try:
        read = _converted(source)
    except Exception:  # the parser meets text that was never meant for it and fails in many ways
        return text
    for pattern, by in _GAPS:
        read = pattern.sub(by, read)
    return read if len(read) * 2 >= len(_letters(text)) else text


def _letters(text: str) -> str:
    return re.sub(r"\\href\s*\{[^{}]*\}|\\[A-Za-z]+|[^A-Za-z]", "", text)


def _script(sign: str, text: str) -> str:
    """What stands high or low: small where there are such letters and it is short, else after its sign."""
    text, small = text.strip(f" {_BEFORE}{_AFTER}"), _SCRIPTS[sign]
    if sign == "^" and text in _RAISED:
        return _RAISED[text]
    if text and (len(text) <= _SHORT or text.isdecimal()) and all(char in small for char in text):
        return "".join(small[char] for char in text)
    return sign + _bracketed(text, _WORD) if text else ""


def _bracketed(text: str, alone: re.Pattern[str] = _FACTOR) -> str:
    return text if alone.fullmatch(text) else f"({text})"


def _argument(node: Any, place: int, reader: LatexNodes2Text) -> str:
    given = node.nodeargd.argnlist if node.nodeargd else ()  # none as the argument of another macro
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
    return "√" + _bracketed(_last(node, l2tobj))


def _last(node: Any, l2tobj: LatexNodes2Text) -> str:
    return _argument(node, -1, l2tobj)


def _letter(node: Any, l2tobj: LatexNodes2Text) -> str:
    """One letter of another alphabet; more of them are a name, which is read more easily in this one."""
    text = _last(node, l2tobj)
    return (
        str(_PLAIN.latex_to_text(f"\\{node.macroname}{{{text}}}"))
        if text.isalpha() and len(text) == 1
        else text
    )


def _accented(mark: str) -> Callable[..., str]:
    def over(node: Any, l2tobj: LatexNodes2Text) -> str:
        text = unicodedata.normalize("NFKC", _last(node, l2tobj))
        return unicodedata.normalize("NFC", text + mark) if len(text) == 1 else text

    return over


def _character(node: Any, l2tobj: LatexNodes2Text) -> str:
    code = _last(node, l2tobj)
    return chr(int(code[1:], 16)) if re.fullmatch(r"x[0-9A-Fa-f]{2,4}", code) else ""


def _aside(node: Any, l2tobj: LatexNodes2Text) -> str:
    return f" ({_last(node, l2tobj)})"


def _said(text: str) -> Callable[..., str]:
    def word(node: Any) -> str:
        return text + str(node.macro_post_space)

    return word


def _own(node: Any) -> str:
    """A macro of the authors' own is mostly the name of what they made."""
    return str(node.macroname + node.macro_post_space)


_FUNCTIONS = (
    "arccos", "arcsin", "arctan", "arg", "cos", "cosh", "cot", "coth", "csc", "deg", "det", "dim", "exp",
    "gcd", "hom", "inf", "ker", "lg", "lim", "liminf", "limsup", "ln", "log", "max", "min", "Pr", "sec",
    "sin", "sinh", "sup", "tan", "tanh",
)  # fmt: skip
_AS_THEY_ARE = (
    "text", "textnormal", "texttt", "textsf", "url", "uline", "mbox", "mathrm", "mathsf", "mathit", "mathbf",
    "mathtt", "mathnormal", "operatorname", "bm", "boldsymbol",
)  # fmt: skip
_UNSEEN = (
    "big", "Big", "bigl", "bigr", "Bigl", "Bigr", "bigg", "Bigg", "left", "right", "limits", "displaystyle",
    "cite", "citep", "citet", "ref", "label",
)  # fmt: skip
_TAKING: dict[str, tuple[str, Callable[..., str]]] = {
    **dict.fromkeys(_AS_THEY_ARE, ("{", _last)),
    **dict.fromkeys(("mathbb", "mathcal", "mathscr"), ("{", _letter)),
    **dict.fromkeys(("frac", "dfrac", "tfrac", "nicefrac"), ("{{", _fraction)),
    **dict.fromkeys(("href", "textcolor"), ("{{", _last)),
    "sqrt": ("[{", _root),
    "footnote": ("{", _aside),
    "unicode": ("{", _character),
    "widetilde": ("{", _accented("\u0303")),
    "widehat": ("{", _accented("\u0302")),
}
_WORDS = {
    **{name: f"{_BEFORE}{name}{_AFTER}" for name in _FUNCTIONS},
    **dict.fromkeys(_UNSEEN, ""),
    "eg": "e.g.",
    "ie": "i.e.",
    "etal": "et al.",
    "etc": "etc.",
    "space": " ",
    "|": "‖",
    "colon": ":",
}


def _grammar() -> Any:
    """How LaTeX is parsed: scripts, and macros that pylatexenc knows nothing of."""
    known = latexwalker.get_default_latex_context_db()
    known.add_context_category(
        "paperboy",
        macros=[MacroSpec(name, takes) for name, (takes, _) in _TAKING.items()],
        specials=[SpecialsSpec(sign, MacroStandardArgsParser("{")) for sign in _SCRIPTS],
        prepend=True,
    )
    return known


class _Exceeded(Exception):
    """A text costs more than its length explains."""


class _Budget:
    """Counts the characters that are read and written for one text. Raises _Exceeded over the limit."""

    def __init__(self, text: str) -> None:
        self._left = len(text) * WORK + LEAST_WORK

    def spend(self, characters: int) -> None:
        self._left -= characters + 1  # an empty piece costs something, too
        if self._left < 0:
            raise _Exceeded


class _Walker(latexwalker.LatexWalker):  # type: ignore[misc]  # it has no types
    """Parse LaTeX within a budget, and to a depth."""

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
            raise _Exceeded
        try:
            return super().get_latex_nodes(*args, **options)
        finally:
            self._depth -= 1


class _Writer(LatexNodes2Text):  # type: ignore[misc]  # it has no types
    """Write parsed LaTeX as text, within a budget."""

    def __init__(self, budget: _Budget) -> None:
        super().__init__(_WORDING, math_mode="text", keep_comments=True, strict_latex_spaces=False)
        self._budget = budget

    def node_to_text(self, *args: Any, **options: Any) -> str:
        text = str(super().node_to_text(*args, **options))
        self._budget.spend(len(text))
        return text


def _converted(source: str) -> str:
    budget = _Budget(source)
    nodes, _, _ = _Walker(source, budget).get_latex_nodes()
    return str(_Writer(budget).nodelist_to_text(nodes))


def _wording() -> Any:
    """How macros are written as text."""
    words = latex2text.get_default_latex_context_db()
    told = [MacroTextSpec(name, simplify_repl=by) for name, (_, by) in _TAKING.items()]
    words.add_context_category(
        "paperboy",
        macros=[*told, *(MacroTextSpec(name, simplify_repl=_said(text)) for name, text in _WORDS.items())],
        specials=[SpecialsTextSpec(sign, simplify_repl=_scripted) for sign in _SCRIPTS],
        prepend=True,
    )
    words.set_unknown_macro_spec(MacroTextSpec("", simplify_repl=_own))
    return words


_PLAIN = LatexNodes2Text(math_mode="text")
_GRAMMAR, _WORDING = _grammar(), _wording()
