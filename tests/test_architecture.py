"""The house keeps its shape: imports point one way, pure modules stay pure, the map names every room."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import app

ROOT = Path(app.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")

GROUND = {
    "records", "models", "db", "presence", "interpreter", "counters", "leases", "settings", "clock", "errors",
    "tokens", "logs", "characters", "sandbox",
}  # fmt: skip
STAGES = {
    "bibliography", "sources", "ingest", "dedupe", "merges", "archive", "words", "abbreviations", "space",
    "corpus", "lexicon", "concordance", "interest", "passages", "filters", "trend", "match", "taste",
    "cadence", "summaries", "gist", "ranking", "compose", "render", "message", "fragments", "letters", "dkim",
    "wire", "pace", "conversation", "smtp", "refusals", "deliver", "bounces", "suppression", "subscribers",
    "catalogue", "runs", "keys", "audit", "journal", "duplicates", "votes",
}  # fmt: skip
PIPELINE = {
    "pipeline", "intake", "planning", "desk", "search", "explaining", "hindsight", "posting", "signing",
    "returns", "parts",
}  # fmt: skip
DOORS = {"web", "cli", "jobs", "demo", "main", "doctor"}
# The pipeline passes values from stage to stage; these few build on another one's words instead.
STAGE_USES = {
    ("bibliography", "sources"),
    ("compose", "gist"),
    ("compose", "ranking"),
    ("gist", "words"),
    ("duplicates", "dedupe"),
    ("ingest", "dedupe"),
    ("ingest", "duplicates"),
    ("ingest", "merges"),
    ("ingest", "votes"),
    ("merges", "dedupe"),
    ("abbreviations", "words"),
    ("space", "words"),
    ("corpus", "abbreviations"),
    ("corpus", "space"),
    ("corpus", "words"),
    ("interest", "words"),
    ("passages", "abbreviations"),
    ("passages", "words"),
    ("lexicon", "corpus"),
    ("concordance", "space"),
    ("filters", "abbreviations"),
    ("filters", "concordance"),
    ("filters", "interest"),
    ("filters", "passages"),
    ("filters", "space"),
    ("filters", "words"),
    ("match", "corpus"),
    ("match", "filters"),
    ("match", "interest"),
    ("match", "passages"),
    ("match", "space"),
    ("match", "words"),
    ("taste", "corpus"),
    ("taste", "passages"),
    ("taste", "space"),
    ("taste", "words"),
    ("catalogue", "sources"),
    ("summaries", "sources"),
    ("deliver", "cadence"),
    ("deliver", "journal"),
    ("deliver", "suppression"),
    ("fragments", "message"),
    ("fragments", "render"),
    ("render", "interest"),
    ("letters", "dkim"),
    ("letters", "fragments"),
    ("letters", "message"),
    ("letters", "render"),
    ("deliver", "bounces"),
    ("bounces", "suppression"),
    ("bounces", "refusals"),
    ("conversation", "pace"),
    ("conversation", "refusals"),
    ("conversation", "wire"),
    ("smtp", "conversation"),
    ("smtp", "pace"),
    ("smtp", "wire"),
    ("subscribers", "archive"),
    ("subscribers", "cadence"),
    ("subscribers", "dedupe"),
    ("subscribers", "interest"),
    ("subscribers", "deliver"),
    ("subscribers", "audit"),
    ("subscribers", "suppression"),
    ("subscribers", "words"),
}
PURE = {
    "bibliography.__init__",
    "bibliography.bibtex",
    "bibliography.csl",
    "bibliography.entry",
    "bibliography.lines",
    "bibliography.ris",
    "bibliography.table",
    "characters",
    "records",
    "tokens",
    "dedupe",
    "words",
    "abbreviations",
    "space",
    "corpus",
    "concordance",
    "trend",
    "interest",
    "passages",
    "filters",
    "match",
    "taste",
    "cadence",
    "refusals.meanings",
    "refusals.phrases",
    "refusals.reasons",
    "refusals.statuses",
    "refusals.words",
    "bounces.mime",
    "bounces.notices",
    "bounces.prose",
    "bounces.scores",
    "bounces.shapes",
    "gist",
    "ranking",
    "compose",
    "sources.addresses",
    "sources.coding",
    "sources.latex",
    "sources.quiet",
    "wire",
    "pace",
}
IMPURE = {
    "sqlalchemy", "sqlmodel", "httpx", "aiosmtplib", "socket", "os", "asyncio", "alembic",
    "app.db", "app.models", "app.settings", "app.clock", "fastapi", "random", "time",
}  # fmt: skip


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Dotted names of everything that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return found


def rooms_of(path: Path) -> set[str]:
    """The top-level modules of the house that a module imports."""
    return {name.split(".")[1] for name in imports_of(path) if name.startswith("app.")}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    """Doors call the pipeline, the pipeline calls stages, stages stand on the ground; never back."""
    room = name_of(path).split(".")[0]
    known = rooms_of(path) - {room}
    if room in DOORS:
        return
    assert not known & DOORS, "only a door knows a door"
    if room in GROUND:
        assert not known & (STAGES | PIPELINE), "the ground knows no stage"
    elif room in STAGES:
        assert not known & PIPELINE, "a stage does not know who calls it"
        assert {(room, other) for other in known & STAGES} <= STAGE_USES, "stages do not call each other"


@pytest.mark.parametrize("name", sorted(PURE))
def test_deciding_is_pure(name: str) -> None:
    """No database, network, clock, environment or randomness: the same values give the same answer."""
    found = imports_of(ROOT / f"{name.replace('.', '/')}.py")
    assert not {one for one in found if one in IMPURE or one.split(".")[0] in IMPURE}


def test_every_room_has_its_place() -> None:
    """A new module is put on the ground, among the stages or at a door, and stands on the map."""
    rooms = {name_of(path).split(".")[0] for path in MODULES}
    assert rooms == GROUND | STAGES | PIPELINE | DOORS
    described = {line.split()[0] for line in (app.__doc__ or "").splitlines() if line.startswith("    ")}
    assert rooms - described == set()
    assert described - rooms == set()


def test_the_clock_is_read_in_one_place() -> None:
    """Everything else is told what time it is."""
    readers = {
        name_of(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today")
        and isinstance(node.value, ast.Name) and node.value.id in ("datetime", "date")
    }  # fmt: skip
    assert readers == {"clock"}
