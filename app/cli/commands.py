"""The command line.

Exit codes: 0 success, 1 something failed, 2 wrong usage, 3 `serve` could not start.
With --json, commands print one JSON document to standard output and nothing else. Logs go to standard error.

serve         run the web app, and by default the jobs
worker        run the jobs without the web app
workers       list the processes that run jobs; open procrastinate's shell
migrate       migrate the database
doctor        check this installation
ingest        poll the sources, or read files
sources       sources list, try, add, edit, pause, resume, remove
papers        papers search, show, edit, hide, unhide, pin, unpin, merge, split
model         model train, list
preview       show the digest for some interests
backtest      show which papers interests would have matched over recent days
explain       show why a paper was or was not sent
send          compose and send the digests that are due
sending       sending status, rates, notices, sample, hold, pause, resume, cancel, resend,
              arrived, retry
subscribers   subscribers list, add, show, why, send-test
subscriber_history  subscribers why, and explain without a paper
subscriber_changes  subscribers set, pause, resume, unsubscribe, erase, delete-feedback, new-links
subscriber_files    subscribers import, export
changes       list the changes made by operators
deliveries    list the emails in the ledger
runs          list the job runs
report        show the daily report, or send it to the operators
settings      show the settings in effect, without secrets
backup        backup, restore
move          move to another database
keys          key create, list, rotate, revoke, secret, dkim
webhooks      webhooks list, add, test, messages, rotate, enable, disable, resend, remove
bounces       parse bounce emails
suppressions  suppressions list, add, lift
output        functions that all commands use: options, tables, JSON, errors
demo          demo
sample        the recorded responses that the demo and the doctor read
"""

from __future__ import annotations

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
    cls=output.Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 success, 1 something failed, 2 wrong usage, 3 serve could not start.",
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
        str, typer.Option(metavar="FOLDER", help="Templates of your own, as in PAPERBOY_TEMPLATES_DIR.")
    ] = "",
) -> None:
    """Run the whole service on a sample of real papers, without network access."""
    from app.cli import demo  # other commands do not need its mail server

    raise typer.Exit(demo.run(once=once, live=live, port=port, templates_dir=templates_dir))


def main() -> None:
    """Run the console script."""
    cli()
