"""Functions that all commands use: options, tables, JSON, one-line errors, opening the application."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import structlog
import typer
from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session
from typer.core import TyperGroup

from app import clock, logs, main
from app.application import Application
from app.doctor import Finding, configuration
from app.errors import InvalidSettings, PaperboyError, SchemaError
from app.papers import archive_lists, listing_days, source_registry
from app.relevance.query_language import filter_names
from app.settings import Settings, load
from app.storage import api_keys, audit_log, demo_clock, schema
from app.storage.database import sqlite_file
from app.text import dates
from app.text.in_words import describe_invalid, sentence
from app.types import Cadence, Digest, Skip

_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
_DAYS_AGO = {"today": 0, "yesterday": 1}


def _parse_day(text: str, *, in_default_zone: bool = False) -> date:
    """Parse the value of an option that is a day: a date, “today” or “yesterday”."""
    if text in _DAYS_AGO:
        clock_zone = ZoneInfo(load_settings(needs_secret=False).default_zone) if in_default_zone else UTC
        return clock.utcnow().astimezone(clock_zone).date() - timedelta(days=_DAYS_AGO[text])
    zone = "PAPERBOY_DEFAULT_ZONE" if in_default_zone else "UTC"
    if len(text) == len("2026-11-20") and (day := dates.day(text)):
        return day
    raise typer.BadParameter(
        f"“{text}” is not a day. Write YYYY-MM-DD, such as 2026-11-20, or today or yesterday (in {zone})."
    )


def _parse_weekday(text: str) -> int:
    """Parse the value of an option that is a weekday."""
    if (number := dates.weekday(text)) is None:
        raise typer.BadParameter(
            f"“{text}” is not a weekday. Write Monday, or a number from 0 (Monday) to 6."
        )
    return number


def parse_time(text: str) -> datetime:
    """Parse the value of an option that is a time. Without an offset, it is in UTC."""
    with suppress(ValueError, OverflowError):
        if _TIME.fullmatch(text.strip()):
            moment = datetime.fromisoformat(text.strip())
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise typer.BadParameter(
        f"“{text}” is not a time. Write YYYY-MM-DD or YYYY-MM-DDTHH:MM, such as 2026-11-20T08:00 (in UTC). "
        "Seconds and an offset from UTC may follow: 2026-11-20T08:00:30+01:00."
    )


def day_option(name: str, help_text: str, *, in_default_zone: bool = False) -> Any:
    """Return the declaration of an option whose value is a day, in UTC unless `in_default_zone`."""
    parser = partial(_parse_day, in_default_zone=in_default_zone)
    return typer.Option(name, parser=parser, metavar="YYYY-MM-DD", help=help_text)


Day = Annotated[date | None, day_option("--day", "The day, such as 2026-11-20, today or yesterday.")]
At = Annotated[
    datetime | None,
    typer.Option(
        "--at",
        parser=parse_time,
        metavar="YYYY-MM-DD[THH:MM[:SS]]",
        help="An earlier time. Without an offset such as +01:00, it is in UTC. Default: now.",
    ),
]
MinPapers = Annotated[int, typer.Option(help="The minimum number of papers in a digest.")]
MaxPapers = Annotated[int | None, typer.Option(help="The maximum number of papers in a digest.")]
MaxTrending = Annotated[
    int | None, typer.Option(help="The maximum number of trending papers beyond the interests.")
]
Mute = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Exclude papers with this word, phrase, {filter_names('or')}. Repeat the option for more."
    ),
]
CADENCE = typer.Option(
    metavar="CADENCE", case_sensitive=False, help=f"How often digests are sent: {', '.join(Cadence)}."
)
WEEKDAY = typer.Option(
    parser=_parse_weekday, metavar="DAY", help="The day of a weekly digest, such as Monday. 0 is Monday."
)
HOUR = typer.Option(help="The hour of the digest, in the subscriber's time zone.", min=0, max=23)
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else to standard output.")
]
PIPE_WIDTH = 10_000
MIN_SIMILARITY = 0.75  # of a suggested command, from 0 to 1; between “list” and “split” it is .67
MAX_PIPED_CELL = 300  # characters; --json prints everything
ACTOR = api_keys.COMMANDS  # in the audit log

log = structlog.get_logger(__name__)


@contextmanager
def _file_errors() -> Iterator[None]:
    """Print an error of a file, or of standard output, as one line."""
    try:
        yield
    except BrokenPipeError:  # `paperboy runs | head`: Typer ends the process without a message
        raise
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


class CommandGroup(TyperGroup):
    """A command group that suggests similar commands if a command does not exist.

    Typer's own suggestions are less similar, such as “split” for “list”, and depend on the case.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)):
            similar = _similar_commands(name.lower(), self.commands)
            suggestion = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
            ctx.fail(f"No such command {name!r}.{suggestion}")
        return super().resolve_command(ctx, args)


def _similar_commands(name: str, commands: Iterable[str]) -> list[str]:
    """Return at most three commands that resemble a name, or that it abbreviates, such as “stat” or “ls”."""
    abbreviated = re.compile(".*".join(map(re.escape, name)))
    close = get_close_matches(name, commands, cutoff=MIN_SIMILARITY)
    return [*dict.fromkeys([*close, *filter(abbreviated.match, commands)])][:3]


def command_group(help_text: str) -> typer.Typer:
    """Return a group of commands, such as `paperboy papers`. Without a command, it prints its help."""
    return typer.Typer(no_args_is_help=True, help=help_text, cls=CommandGroup)


class RootGroup(CommandGroup):
    """The group of all commands. It prints errors as one line to standard error and exits with code 1."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        unwrap_help(self)

    @_file_errors()
    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return super().make_context(*arguments, **options)  # prints --help and --version

    @_file_errors()
    def invoke(self, ctx: Any) -> Any:
        try:
            with suppress(InvalidSettings):  # some commands do not need the settings
                demo_clock.follow(load_settings(needs_secret=False).database_url)
            return super().invoke(ctx)
        except PaperboyError as error:
            fail(str(error))
        except typer.BadParameter as error:  # Typer prints it, with the option's name and the usage
            if isinstance(error.__cause__, ValidationError):
                error.message = describe_invalid(error.__cause__.errors()[0])
            raise
        except DBAPIError as error:
            fail(f"the database cannot be used: {str(error.orig).strip().partition(chr(10))[0]}")
        except OverflowError:  # from SQLite, whose integers have 64 bits
            fail("a number is too large")


def unwrap_help(command: Any) -> None:
    """Join the lines of each paragraph in the help of a command and of all commands below it.

    Typer joins only those of the first paragraph, so the line breaks of docstrings would remain.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for below in getattr(command, "commands", {}).values():
        unwrap_help(below)


def fail(message: str) -> None:
    """Print an error and exit with code 1."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"paperboy: {sentence(message)}", markup=False
    )
    raise typer.Exit(1)


def out() -> Console:
    """Return a console on standard output. It uses colors only on a terminal and does not wrap in a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def err() -> Console:
    """Return a console on standard error, for progress and hints."""
    return Console(stderr=True, highlight=False)


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """Print a command's result as a JSON document. Times have the same format as in the API.

    If standard output is not in UTF-8, escape all characters that are not ASCII, so that none is replaced.
    """
    in_utf8 = "utf" in getattr(sys.stdout, "encoding", "").lower()
    default = partial(to_jsonable_python, fallback=str)
    typer.echo(json.dumps(document, ensure_ascii=not in_utf8, indent=indent, default=default))


def digest_object(digest: Digest | Skip) -> dict[str, Any]:
    """Return the JSON object for a digest. A skipped digest has a reason and no sections."""
    if isinstance(digest, Skip):
        return {"skipped": digest.reason, **asdict(Digest("", (), considered=digest.considered))}
    return {"skipped": None, **asdict(digest)}


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table. Format times, escape all cells, and cut long cells if the output is not a terminal."""
    printed = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        printed.add_column(column, overflow="fold")
    console = out()
    longest = None if console.is_terminal else MAX_PIPED_CELL
    for row in rows:
        texts = map(_cell_text, row)
        printed.add_row(
            *(escaped(f"{text[:longest]}…" if longest and len(text) > longest else text) for text in texts)
        )
    console.print(printed)
    if not printed.row_count:
        err().print("There is nothing to list.")


def _cell_text(cell: object) -> str:
    if isinstance(cell, datetime):
        return format_time(cell)
    return "" if cell is None else str(cell)


def escaped(text: str) -> str:
    """Escape markup in untrusted text. Replace unprintable characters, which could control the terminal."""
    return escape("".join(char if char.isprintable() else " " for char in text))


def format_time(at: datetime | None) -> str:
    """Format a time that is in UTC. Return “–” for None."""
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else "–"


@contextmanager
def open_application(
    *,
    needs_secret: bool = True,
    log_level: str | None = "WARNING",
    migrate: bool = False,
    database_url: str | None = None,
) -> Iterator[Application]:
    """Build the application for one command. Create its database if there is none.

    `database_url` replaces the setting.

    `migrate` is for commands that start the service: they also upgrade an older database, and announce that
    they use it. Other commands raise SchemaError, because an upgrade would undo a downgrade. They create a
    database only if a setting names another one than the default: in the wrong folder, they would work on a
    new, empty one.
    """
    settings = load_settings(needs_secret=needs_secret)
    if database_url:
        settings = settings.model_copy(update={"database_url": database_url})
    logs.configure(settings, level=log_level)
    if not migrate and settings.database_url == Settings.model_fields["database_url"].default:
        require_database(settings.database_url)
    app = main.build(settings)
    try:
        if fault := schema.revision_fault(app.db):
            current, _ = schema.revisions(app.db)
            if current in schema.known_revisions() and not migrate:
                raise SchemaError(str(fault))
            schema.migrate(settings.database_url)
            with app.db.write() as session:
                source_registry.seed(session, settings.arxiv_categories, clock.utcnow())
        if migrate:
            app.db.presence.announce()  # so that no other process moves or downgrades the database
        yield app
    finally:
        app.db.dispose()


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """A change that an operator makes with a command."""

    app: Application
    session: Session
    now: datetime

    def record(self, action: str, subject: object, **detail: Any) -> None:
        """Store the change in the audit log."""
        audit_log.record(self.session, ACTOR, action, subject, self.now, **detail)


@contextmanager
def change() -> Iterator[OperatorChange]:
    """Open the application and a transaction for one change by an operator."""
    now = clock.utcnow()
    with open_application(needs_secret=False) as app, app.db.write() as session:
        yield OperatorChange(app, session, now)


def require_database(url: str) -> None:
    """Raise InvalidSettings if the file of an SQLite database does not exist or has no bytes."""
    file = sqlite_file(make_url(url))
    if file and not file.exists():
        env_file = Path(".env").absolute()
        settings = "" if env_file.exists() else f", and no {env_file} with settings"
        raise InvalidSettings(
            f"there is no database {file.absolute()}{settings}: run this command in Paperboy's folder, or "
            "name the database in PAPERBOY_DATABASE_URL; `paperboy migrate` creates a new database"
        )
    if file and not file.stat().st_size:  # for example after a restore for which the disk had no space
        raise InvalidSettings(
            f"the database {file.absolute()} is an empty file: restore a backup, or create a new database "
            "with `paperboy migrate`"
        )


def stop_signals() -> list[int]:
    """Return the signals that end a process in order: Ctrl-C, SIGTERM, and SIGHUP if the terminal closes.

    Leave out SIGHUP if it is ignored, as with nohup.
    """
    survives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if survives else [signal.SIGHUP])]


@contextmanager
def graceful_shutdown(app: Application) -> Iterator[None]:
    """On a stop signal, let work in progress finish. A second SIGINT or SIGTERM ends the process at once.

    A second SIGHUP has no effect, because the shell and the kernel each send one if a terminal closes.
    """

    def request_stop(number: int, _frame: object) -> None:
        app.stopping.set()
        if number != signal.SIGHUP:
            signal.signal(number, handlers[number])

    handlers = {number: signal.getsignal(number) for number in stop_signals()}
    try:
        for number in handlers:
            signal.signal(number, request_stop)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def require_papers(app: Application) -> None:
    """Exit with code 1 if there are no papers yet, because a preview would be meaningless."""
    with app.db.read() as session:
        if archive_lists.is_empty(session):
            fail("no paper has been ingested yet: run `paperboy ingest` first")


def suggest_day(app: Application, now: datetime, option: str) -> None:
    """Print the `option` that selects the newest papers, if they are too old for a digest now."""
    with app.db.read() as session:
        newest = next(iter(listing_days.latest(session, limit=1)), None)
    if newest and newest[0] < now.date() - timedelta(days=app.settings.candidate_days):
        day = newest[0] + timedelta(days=1)
        err().print(f"The newest papers are from {newest[0]}. To use them, add {option} {day}.")


def unknown_settings() -> Iterator[Finding]:
    """Yield a warning for each variable that begins with PAPERBOY_ but is not a setting."""
    return configuration.unknown_settings(os.environ, Path(".env"))


def log_unknown_settings() -> None:
    """Log a warning for each unknown setting. Processes of the service call this when they start."""
    for finding in unknown_settings():
        log.warning("unknown setting", problem=f"{finding.check}: {finding.message}", fix=finding.fix)


def load_settings(*, needs_secret: bool = True) -> Settings:
    """Load the settings. If `needs_secret` is false and no secret is set, use a temporary one.

    Commands that send links need the secret, because a temporary secret would make the links invalid.
    """
    settings = load(needs_secret=needs_secret)
    temporary = (api_keys.new_secret(),)
    return settings if settings.secret_keys else settings.model_copy(update={"secret_keys": temporary})
