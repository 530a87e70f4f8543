"""Collect all commands in the typer application `cli`."""

import importlib.metadata
from typing import Annotated

import typer

from app.cli import (
    backtest,
    backup,
    bounces,
    changes,
    deliveries,
    doctor,
    explain,
    ingest,
    keys,
    migrate,
    model,
    move,
    output,
    papers,
    preview,
    report,
    runs,
    send,
    sending,
    serve,
    settings,
    sources,
    subscribers,
    suppressions,
    webhooks,
    worker,
    workers,
)

cli = typer.Typer(
    name="paperboy",
    help="Trending research papers in your inbox, picked for you.",
    cls=output.RootGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 success, 1 something failed, 2 wrong usage, 3 serve could not start, 130 Ctrl-C, "
    "141 standard output or standard error was closed (SIGPIPE).",
)
for command in (
    serve.serve,
    worker.worker,
    migrate.migrate,
    ingest.ingest,
    preview.preview,
    send.send,
    explain.explain,
    backtest.backtest,
    deliveries.deliveries,
    report.report,
    settings.settings,
    backup.backup,
    backup.restore,
    move.move,
    runs.runs,
    changes.changes,
    workers.workers,
    workers.jobs,
    bounces.bounces,
):
    cli.command()(command)
cli.command("doctor")(doctor.doctor_command)
cli.add_typer(sending.sending, name="sending")
cli.add_typer(sources.sources, name="sources")
cli.add_typer(papers.papers, name="papers")
cli.add_typer(subscribers.group, name="subscribers")
cli.add_typer(model.models, name="model")
cli.add_typer(suppressions.suppressions, name="suppressions")
cli.add_typer(keys.keys, name="key")
cli.add_typer(webhooks.webhooks, name="webhooks")


def print_version(requested: bool) -> None:
    """Print the installed release and exit if it is requested."""
    if requested:
        typer.echo(f"paperboy {importlib.metadata.version('paperboy')}")
        raise typer.Exit


@cli.callback()
def set_options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=print_version, help="Print the release and exit."),
    ] = False,
) -> None:
    """Declare the options that precede a command."""


@cli.command("demo")
def demo_command(
    once: Annotated[bool, typer.Option("--once", help="Exit after the summary, for CI.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Poll the real sources over the network.")] = False,
    port: Annotated[int, typer.Option(help="The web app's port. If it is in use, another is chosen.")] = 8000,
    templates_dir: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="A folder of your own templates (see PAPERBOY_TEMPLATES_DIR)."),
    ] = "",
) -> None:
    """Run the whole service on a sample of real papers, without network access."""
    from app.cli import demo  # other commands do not need its mail server

    raise typer.Exit(demo.run(once=once, live=live, port=port, templates_dir=templates_dir))
