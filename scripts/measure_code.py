"""Measure how readable the code is, and fail if a limit is exceeded.

    python scripts/measure_code.py

This prints each figure with its limit, and the places that count if the limit is exceeded. In six admired
projects, 1 to 12 % of the functions are private and called only once.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent / "app"
QUESTION = re.compile(r"(?:PURE\. )?(?:What|Whose|Whether|How|Who|Where)\b")
# Names that do not say what they hold, and the earlier names of renamed concepts.
RETIRED = {
    "said", "told", "shown", "made", "kept", "found", "wanted", "asked", "known", "theirs", "mine",
    "desk", "shelf", "lexicon", "corpus", "hindsight", "wish", "wishes", "taste",
}  # fmt: skip
LONG = 50  # lines

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


class Place(NamedTuple):
    """A line of a module, and the name that it defines or binds."""

    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT.parent)}:{self.line} {self.name}"


class Measure(NamedTuple):
    """A figure, its upper limit and the places that count. If the limit is None, it is only printed."""

    name: str
    value: float
    limit: float | None
    places: list[Place]

    @property
    def is_exceeded(self) -> bool:
        return self.limit is not None and self.value > self.limit


def measures(root: Path) -> Iterator[Measure]:
    """Yield all figures for the package at `root`."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    functions = [(path, node) for path, node in nodes if isinstance(node, Function)]
    classes = [(path, node) for path, node in nodes if isinstance(node, ast.ClassDef)]
    documented = [
        (path, node) for path, node in nodes if isinstance(node, Documented) and ast.get_docstring(node)
    ]
    class_names = Counter(node.name for _, node in classes)

    modules = [Place(path, 1, path.stem) for path in root.glob("*.py")]
    yield Measure("modules directly in app/", len(modules), 12, modules)
    once = [place for path, tree in trees.items() for place in _private_and_called_once(path, tree)]
    share = 100 * len(once) / len(functions)
    yield Measure("private functions that are called once, %", share, 12, once)
    long = [_place(path, node) for path, node in functions if _lines(node) > LONG]
    yield Measure(f"functions over {LONG} lines", len(long), 0, long)
    asking = [
        _place(path, node) for path, node in documented if QUESTION.match(ast.get_docstring(node) or "")
    ]
    share = 100 * len(asking) / len(documented)
    yield Measure("docstrings that begin with What, Whether, How …, %", share, 2, asking)
    repeated = [_place(path, node) for path, node in classes if class_names[node.name] > 1]
    yield Measure("classes whose name occurs twice", len(repeated), 0, repeated)
    retired = [
        Place(path, line, name)
        for path, node in nodes
        for line, name in _bound_names(node)
        if name in RETIRED
    ]
    yield Measure("retired names as identifiers", len(retired), 0, retired)
    yield Measure("lines", sum(source.count("\n") for source in sources.values()), None, [])


def _place(path: Path, node: Documented) -> Place:
    return Place(path, 1, path.stem) if isinstance(node, ast.Module) else Place(path, node.lineno, node.name)


def _lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _private_and_called_once(path: Path, tree: ast.Module) -> Iterator[Place]:
    """Yield the private functions of a module that are referred to only once, by a call.

    Functions that are passed as values, such as callbacks, and cached properties are not counted, because
    they cannot be inlined.
    """
    used, called = Counter[str](), set[str]()
    for node in ast.walk(tree):
        if name := _name_of(node):
            used[name] += 1
        if isinstance(node, ast.Call):
            called.add(_name_of(node.func))
    private = {
        node.name: _place(path, node)
        for node in ast.walk(tree)
        if isinstance(node, Function) and _is_private(node.name)
    }
    yield from (place for name, place in private.items() if name in called and used[name] == 1)


def _name_of(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _bound_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name if a node binds one: a definition, an assignment or a parameter."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield node.lineno, name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield node.lineno, name


def main() -> None:
    """Print all figures. Exit with status 1 if one exceeds its limit."""
    results = list(measures(ROOT))
    for measure in results:
        limit = "" if measure.limit is None else f"  (at most {measure.limit:g})"
        print(f"{measure.value:8.1f}  {measure.name}{limit}{'  EXCEEDED' * measure.is_exceeded}")
        if measure.is_exceeded:
            print(*(f"{'':10}{place}" for place in measure.places), sep="\n")
    sys.exit(any(measure.is_exceeded for measure in results))


if __name__ == "__main__":
    main()
