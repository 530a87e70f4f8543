"""Check the architecture: pure modules, one clock, and packages that list their modules.

import-linter checks the direction of dependencies: see `[tool.importlinter]` in pyproject.toml.
"""

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import app
from app.mail import composer

ROOT = Path(app.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
PACKAGES = sorted(path.parent for path in ROOT.rglob("__init__.py"))

# Whole packages, and single modules.
PURE = (
    "bounces.automatic_replies",
    "bounces.free_text_notices",
    "bounces.mime_parser",
    "bounces.notices",
    "bounces.unsubscribe_mails",
    "bounces.soft_bounce_score",
    "bounces.webhook_signatures",
    "bounces.webhook_formats",
    "delivery.receivers",
    "delivery.send_result",
    "delivery.smtp.fair_queue",
    "delivery.smtp.protocol",
    "delivery.smtp.responses",
    "delivery.warm_up",
    "digests.compose",
    "digests.ranking",
    "digests.selection",
    "digests.notes",
    "digests.skip_reasons",
    "digests.too_few_papers",
    "links",
    "mail.card_facts",
    "mail.marked_words",
    "mail.section_headings",
    "mail.subject_and_preview",
    "mail.text_limits",
    "papers.bibliography",
    "papers.dedupe",
    "papers.title_differences",
    "papers.title_normalization",
    "papers.bylines",
    "papers.field_precedence",
    "papers.picture_encoding",
    "papers.record_days",
    "papers.sources.allowed_addresses",
    "papers.sources.arxiv_dump",
    "papers.sources.calendar",
    "papers.sources.content_decoding",
    "papers.sources.json_rows",
    "papers.sources.xml_elements",
    "papers.sources.jsonl",
    "papers.sources.huggingface_pages",
    "papers.sources.state",
    "papers.sources.withdrawal_phrases",
    "relevance.cut_offs",
    "relevance.filters",
    "relevance.highlights",
    "relevance.matching",
    "relevance.model",
    "relevance.mute_suggestions",
    "relevance.muted_texts",
    "relevance.typed_organizations",
    "relevance.phrase_index",
    "relevance.pseudo_relevance_feedback",
    "relevance.query_language",
    "relevance.query_rewriting",
    "relevance.query_words",
    "relevance.search_index_records",
    "relevance.search_offers",
    "relevance.reasons",
    "relevance.scoring",
    "relevance.misspellings",
    "relevance.suggestions",
    "relevance.arxiv_categories",
    "relevance.translations",
    "relevance.trend_notes",
    "relevance.trending",
    "relevance.user_profile",
    "relevance.bm25",
    "relevance.vector_space",
    "relevance.vocabulary",
    "relevance.word_runs",
    "storage.compressed_json",
    "storage.growing_delays",
    "subscribers.address",
    "subscribers.event_labels",
    "subscribers.csv_opt_outs",
    "subscribers.schedule",
    "text",
    "types",
    "web.form_versions",
    "web.vote_chart",
)
IMPURE = {
    "sqlalchemy", "sqlmodel", "httpx", "aiosmtplib", "socket", "os", "asyncio", "alembic",
    "app.storage", "app.settings", "app.clock", "fastapi", "random", "time",
}  # fmt: skip


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Return the dotted names of everything that a module imports, at any level."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return imported


def is_or_is_in(name: str, parents: tuple[str, ...] | set[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


@pytest.mark.parametrize("path", [path for path in MODULES if is_or_is_in(name_of(path), PURE)], ids=name_of)
def test_pure_modules_import_no_io(path: Path) -> None:
    """Pure modules use no database, network, clock, environment or randomness."""
    assert not {name for name in imports_of(path) if is_or_is_in(name, IMPURE)}


def test_pure_modules_exist() -> None:
    """A renamed module must not drop out of the test above."""
    names = {name_of(path) for path in MODULES}
    assert set(PURE) <= names


def test_modules_marked_pure_are_listed() -> None:
    """Every module whose docstring begins with PURE is listed."""
    claimed = {
        name_of(path)
        for path in MODULES
        if (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").startswith("PURE")
    }
    assert {name for name in claimed if not is_or_is_in(name, PURE)} == set()


def listed_modules(docstring: str) -> set[str]:
    """Return the names in a package's lists: the first word of each line, or “The resources: a, b.”"""
    names: set[str] = set()
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if re.match(r" *\w+  +\S", paragraph):  # an entry is a name, spaces and a description
            names.update(line.split()[0] for line in textwrap.dedent(paragraph).split("\n") if line[0] != " ")
        elif resources := re.fullmatch(r"The resources: ([\w,\s]+)\.", paragraph):
            names.update(re.split(r",\s", resources[1]))
    return names


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_package_docstrings_list_their_modules(package: Path) -> None:
    """The docstring of a package's `__init__.py` has a line for each of its modules and packages."""
    dotted = ".".join(("app", *package.relative_to(ROOT).parts))
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert listed_modules(importlib.import_module(dotted).__doc__ or "") == modules - {"__init__"}


def test_signatures_depend_on_all_code_that_composing_imports() -> None:
    """A release that changes a module missing in SIGNED_CODE would send digests with invalid signatures."""
    unsigned = {"errors", "settings"}  # they don't change the contents of a message
    signed = {name_of(path) for path in composer.SIGNED_CODE}
    imported = {name for path in composer.SIGNED_CODE for name in imports_of(path)}
    modules = {name_of(path) for path in MODULES if path.name != "__init__.py"}
    assert {name for name in modules if f"app.{name}" in imported} - signed == unsigned


def test_the_templates_are_listed() -> None:
    """templates/README.md names every template."""
    folder = ROOT.parent / "templates"
    described = set(re.findall(r"[a-z_]+", (folder / "README.md").read_text(encoding="utf-8")))
    templates = {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md"}
    assert {path.stem for path in templates} | {path.parent.name for path in templates} <= described


def test_only_clock_reads_the_time() -> None:
    readers = {
        name_of(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today")
        and isinstance(node.value, ast.Name) and node.value.id in ("datetime", "date")
    }  # fmt: skip
    assert readers == {"clock"}


@pytest.mark.parametrize(
    ("library", "module"), [("apscheduler", "jobs.scheduler"), ("procrastinate", "jobs.worker")], ids=str
)
def test_only_one_module_imports_an_engine(library: str, module: str) -> None:
    importing = [path for path in MODULES if any(is_or_is_in(name, {library}) for name in imports_of(path))]
    assert [name_of(path) for path in importing] == [module]
