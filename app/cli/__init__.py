"""The command line: the same functions as the web, from a shell.

Exit codes: 0 it worked, 1 something failed, 2 the command was used wrongly.
With --json there is one JSON document on standard output and nothing else; logs go to standard error.

service      serve, worker, migrate
doctor       doctor
papers       ingest, preview, send, sources
model        model learn, list
explain      explain, backtest
sending      sending status, pause, resume, cancel, release
subscribers  subscribers add, import, export, show, forget
keys         key create, list, revoke, secret
bounces      bounces, suppressions list, add, lift
output       what all commands use to print
demo         demo
sample       the recorded answers that the demo and the doctor read
"""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli import bounces, doctor, explain, keys, model, output, papers, sending, service, subscribers

cli = typer.Typer(
    name="paperboy",
    help="Trending research papers in your inbox, picked for you.",
    cls=output.Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 it worked, 1 something failed, 2 the command was used wrongly.",
)
for command in (
    service.serve,
    service.worker,
    service.migrate,
    papers.ingest,
    papers.preview,
    papers.send,
    explain.explain,
    explain.backtest,
    bounces.bounces,
):
    cli.command()(command)
cli.command("doctor")(doctor.doctor_command)
cli.add_typer(sending.sending, name="sending")
cli.add_typer(papers.sources, name="sources")
cli.add_typer(subscribers.subscribers, name="subscribers")
cli.add_typer(model.models, name="model")
cli.add_typer(bounces.suppressions, name="suppressions")
cli.add_typer(keys.keys, name="key")


@cli.command("demo")
def demo_command(
    once: Annotated[bool, typer.Option("--once", help="End after the summary, for CI.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Ask the real sources, by network.")] = False,
    port: Annotated[int, typer.Option(help="Where the web app is served, if it is free.")] = 8000,
) -> None:
    """See everything at work on a sample of real papers, without a network."""
    from app.cli import demo  # its own mail server need not be loaded by every command

    raise typer.Exit(demo.run(once=once, live=live, port=port))


def main() -> None:
    """The console script."""
    cli()
