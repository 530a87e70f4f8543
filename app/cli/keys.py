"""key: the keys of the admin API, those that sign mails, and secrets for the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app import clock, settings
from app.cli import output
from app.errors import InvalidInput
from app.mail import dkim
from app.mail.dkim import Algorithm
from app.storage import api_keys as held
from app.storage import audit_log
from app.storage.models import Scope

keys = typer.Typer(no_args_is_help=True, help="Keys of the admin API, keys that sign mails, and secrets.")

Name = Annotated[str, typer.Argument(help="Who or what uses the key.")]


@keys.command()
def create(
    name: Name,
    scope: Annotated[list[Scope], typer.Option(help="What it may do; give it once for each.")],
    expires: Annotated[
        int, typer.Option(metavar="DAYS", help="When it expires; 0: never.", min=0, max=held.MAX_DAYS)
    ] = held.DAYS,
    as_json: output.AsJson = False,
) -> None:
    """Make a key. It is shown once, and only its hash is kept."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        row, key = held.create(session, name, scope, now, expires or None)
        audit_log.record(session, output.ACTOR, "key.create", row.name, now, scopes=" ".join(row.scopes))
    if as_json:
        told = {"name": row.name, "scopes": row.scopes, "key": key, "expires_at": row.expires_at}
        output.print_json(told)
        return
    typer.echo(key)
    until = f"It expires on {row.expires_at:%Y-%m-%d}." if row.expires_at else "It never expires."
    output.err().print(f"Keep it now: it is not shown again. Its scopes: {', '.join(row.scopes)}. {until}")


@keys.command("list")
def list_keys(as_json: output.AsJson = False) -> None:
    """Every key there ever was, without the keys themselves."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = held.list_keys(session)
    if as_json:
        output.print_json([row.model_dump(exclude={"key_hash"}) for row in rows])
        return
    output.table(
        ["name", "scopes", "created", "expires", "last used", "revoked"],
        [
            (
                row.name,
                " ".join(row.scopes),
                output.moment(row.created_at),
                output.moment(row.expires_at),
                output.moment(row.last_used_at),
                output.moment(row.revoked_at),
            )
            for row in rows
        ],
    )


@keys.command()
def revoke(name: Name) -> None:
    """End a key at once."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app, app.db.write() as session:
        held.revoke(session, name, now)
        audit_log.record(session, output.ACTOR, "key.revoke", name, now)
    output.out().print(f"The key “{output.escaped(name)}” is revoked.")


@keys.command()
def secret() -> None:
    """Print a new secret for PAPERBOY_SECRET_KEYS."""
    typer.echo(held.new_secret())


@keys.command("dkim")
def new_dkim_key(
    file: Annotated[Path, typer.Argument(help="Where the private key is to be kept.")],
    algorithm: Annotated[Algorithm, typer.Option(help="RSA is read everywhere.")] = Algorithm.RSA,
    selector: Annotated[str, typer.Option(help="Its name in DNS.", show_default="of the algorithm")] = "",
    as_json: output.AsJson = False,
) -> None:
    """Make a key that signs mails (DKIM), and say what to publish and what to set."""
    path, name = file.absolute(), selector or f"paperboy-{algorithm}"
    others = [
        each
        for each in output.load_settings(needs_secret=False).dkim_keys
        if each.partition(":")[0] != name or Path(each.partition(":")[2]).absolute() != path
    ]  # the settings may name the file that is made here already
    keys = (*others, f"{name}:{path}")
    if any("," in key for key in keys):
        raise InvalidInput("the name of the file must not have a comma in it", "file")
    made = settings.load(
        dkim_keys=keys, secret_keys=(held.new_secret(),)
    )  # refuses a selector that cannot be one
    dkim.create(algorithm, path)
    (key,) = dkim.load(keys[-1:])
    record, text = key.record(made.mail_domain)
    strings, setting = dkim.txt_strings(text), f"PAPERBOY_DKIM_KEYS={','.join(keys)}"
    if as_json:
        output.print_json(
            {
                "file": str(path),
                "algorithm": algorithm,
                "selector": name,
                "record": record,
                "value": text,
                "strings": strings,
                "setting": setting,
            }
        )
        return
    typer.echo(f"{record}. TXT " + " ".join(f'"{part}"' for part in strings))
    typer.echo(setting)
    output.err().print("Publish the first line in DNS, then set the second. Keep the file from others' eyes.")
