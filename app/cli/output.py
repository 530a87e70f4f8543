"""How the command line speaks: one clear line for an error, a table for people, JSON for machines."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sqlalchemy.exc import DBAPIError
from typer.core import TyperGroup

from app import doctor, logs, main, settings
from app.application import Application
from app.errors import InvalidSettings, PaperboyError
from app.papers import queries
from app.settings import Settings
from app.storage import api_keys, database

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]
PIPE_WIDTH = 10_000
ACTOR = "cli"  # the name under which the audit knows us


class Commands(TyperGroup):
    """Says what went wrong in one line on standard error, and exits with 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PaperboyError as error:
            fail(str(error))
        except DBAPIError as error:
            fail(f"the database cannot be used: {str(error.orig).strip().partition(chr(10))[0]}")
        except OSError as error:
            fail(str(error))


def fail(said: str) -> None:
    """End with exit code 1."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"paperboy: {said}", markup=False)
    raise typer.Exit(1)


def out() -> Console:
    """Standard output for people: colours on a terminal only, and no line broken in a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def err() -> Console:
    """Standard error, for what is not the result."""
    return Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    """The one JSON document of a command."""
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2, default=str))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """A table for people. What is foreign in it is shown as it is, not taken for markup."""
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(escaped("" if cell is None else str(cell)) for cell in row))
    out().print(shown)


def escaped(text: str) -> str:
    """Foreign text for a terminal: neither markup nor control characters."""
    return escape(plain(text))


def plain(text: str) -> str:
    """Foreign text without what would steer a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def moment(at: datetime | None) -> str:
    """A moment for people."""
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else "–"


@contextmanager
def open_application(
    *, needs_secret: bool = True, log_level: str | None = "WARNING"
) -> Iterator[Application]:
    """The application on a database that is up to date, made for one command."""
    made = configured(needs_secret=needs_secret)
    logs.configure(made, level=log_level)
    app = main.build(made)
    try:
        current, newest = doctor.schema(app.db)
        if current != newest:
            database.migrate(made.database_url)
        yield app
    finally:
        app.db.dispose()


@contextmanager
def graceful_shutdown(app: Application) -> Iterator[None]:
    """Ctrl-C and SIGTERM let the mails in flight get their answers; the second one does not wait."""

    def ask(number: int, _frame: object) -> None:
        app.stopping.set()
        signal.signal(number, before[number])

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, ask)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def need_papers(app: Application) -> None:
    """End with exit code 1 where there is nothing yet that could be foretold from."""
    with app.db.read() as session:
        if queries.is_empty(session):
            fail("no paper has been ingested yet: run `paperboy ingest` first")


def configured(*, needs_secret: bool = True) -> Settings:
    """The settings. A command that sends no links does without a secret: one for its own time will do."""
    try:
        return settings.load()
    except InvalidSettings:
        if needs_secret:
            raise
        return settings.load(secret_keys=(api_keys.new_secret(),))
