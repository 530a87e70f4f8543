"""Measure how readable the code is, and fail if a limit is exceeded.

    python scripts/measure_code.py

This prints each figure with its limit. In six admired projects, 1 to 12 % of the functions are private and
called only once.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent / "app"
QUESTION = re.compile(r"(?:PURE\. )?(?:What|Whose|Whether|How|Who|Where)\b")
RETIRED = {
    "said", "told", "shown", "made", "kept", "found", "wanted", "asked", "known", "theirs", "mine",
    "desk", "shelf", "lexicon", "corpus", "hindsight", "letter", "letters", "wish", "wishes", "taste",
}  # fmt: skip
LONG = 50  # lines

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Measure(NamedTuple):
    """A figure and its upper limit. If the limit is None, the figure is only printed."""

    name: str
    value: float
    limit: float | None

    @property
    def is_exceeded(self) -> bool:
        return self.limit is not None and self.value > self.limit


def measures(root: Path) -> Iterator[Measure]:
    """Yield all figures for the package at `root`."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, Function)]
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    docstrings = list(filter(None, map(ast.get_docstring, [*trees.values(), *functions, *classes])))
    once = sum(map(_private_and_called_once, trees.values()))
    names = Counter(node.name for node in classes)
    yield Measure("modules directly in app/", len([*root.glob("*.py")]), 12)
    yield Measure("private functions that are called once, %", 100 * once / len(functions), 12)
    yield Measure(f"functions over {LONG} lines", sum(_lines(node) > LONG for node in functions), 0)
    asking = sum(bool(QUESTION.match(text)) for text in docstrings)
    yield Measure("docstrings that begin with What, Whether, How …, %", 100 * asking / len(docstrings), 2)
    yield Measure("class names that occur twice", sum(count > 1 for count in names.values()), 0)
    yield Measure("retired names as identifiers", sum(map(_retired, trees.values())), 25)
    yield Measure("lines", sum(source.count("\n") for source in sources.values()), None)


def _lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _private_and_called_once(tree: ast.Module) -> int:
    """Count the private functions in a module that are referred to only once, by a call.

    Functions that are passed as values, such as callbacks, and cached properties are not counted, because
    they cannot be inlined.
    """
    private = {node.name for node in ast.walk(tree) if isinstance(node, Function) and _is_private(node.name)}
    used, called = Counter[str](), set[str]()
    for node in ast.walk(tree):
        if name := _name_of(node):
            used[name] += 1
        if isinstance(node, ast.Call):
            called.add(_name_of(node.func))
    return sum(used[name] == 1 for name in private & called)


def _name_of(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _retired(tree: ast.Module) -> int:
    """Count the places that bind a retired name: definitions, assignments, parameters."""
    count = 0
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                count += name in RETIRED
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                count += name in RETIRED
    return count


def main() -> None:
    """Print all figures. Exit with status 1 if one exceeds its limit."""
    results = list(measures(ROOT))
    for measure in results:
        limit = "" if measure.limit is None else f"  (at most {measure.limit:g})"
        print(f"{measure.value:8.1f}  {measure.name}{limit}{'  EXCEEDED' * measure.is_exceeded}")
    sys.exit(any(measure.is_exceeded for measure in results))


if __name__ == "__main__":
    main()
