"""key: manage API keys; create DKIM keys, and secrets for the settings."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from app import settings
from app.cli import output
from app.errors import InvalidInput
from app.mail import dkim
from app.mail.dkim import Algorithm
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.text.in_words import count_of

keys = output.command_group("Manage API keys. Create DKIM keys and secrets.")

HOUR = timedelta(hours=1)
MAX_OVERLAP = 8_760  # hours: a year
Name = Annotated[str, typer.Argument(help="The key's name, for example that of the program that uses it.")]


@keys.command()
def create(
    name: Name,
    scope: Annotated[
        list[Scope],
        typer.Option(
            metavar="SCOPE", help=f"A scope of the key: {', '.join(Scope)}. Repeat the option for more."
        ),
    ],
    expires: Annotated[
        int,
        typer.Option(
            metavar="DAYS",
            help="The number of days until the key expires. 0: never.",
            min=0,
            max=api_keys.MAX_DAYS,
        ),
    ] = api_keys.DAYS,
    as_json: output.AsJson = False,
) -> None:
    """Create an API key. The key is shown once; only its hash is stored."""
    with output.change() as change:
        row, key = api_keys.create(change.session, name, scope, change.now, expires or None)
        change.record("key.create", row.name, scopes=" ".join(row.scopes))
    if as_json:
        document = {"name": row.name, "scopes": row.scopes, "key": key, "expires_at": row.expires_at}
        output.print_json(document)
        return
    typer.echo(key)
    until = f"It expires on {row.expires_at:%Y-%m-%d}." if row.expires_at else "It never expires."
    output.err().print(
        f"Save the key now: it will not be shown again. Scopes: {', '.join(row.scopes)}. {until}"
    )


@keys.command("list")
def list_keys(as_json: output.AsJson = False) -> None:
    """List all API keys, including revoked ones. The keys themselves are not shown."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = api_keys.list_keys(session)
    if as_json:
        output.print_json([row.model_dump(exclude={"key_hash"}) for row in rows])
        return
    cells = []
    for row in rows:
        times = (row.created_at, row.expires_at, row.last_used_at, row.revoked_at)
        cells.append((row.name, " ".join(row.scopes), *map(output.format_time, times)))
    output.table(["name", "scopes", "created", "expires", "last used", "revoked"], cells)


@keys.command()
def revoke(name: Name) -> None:
    """Revoke an API key at once."""
    with output.change() as change:
        api_keys.revoke(change.session, name, change.now)
        change.record("key.revoke", name)
    output.out().print(f"The key “{output.escaped(name)}” is revoked.")


@keys.command()
def rotate(
    name: Name,
    hours: Annotated[
        int,
        typer.Option(help="The number of hours for which the old key still works.", min=0, max=MAX_OVERLAP),
    ] = api_keys.OVERLAP // HOUR,
) -> None:
    """Replace an API key with one that has the same name and scopes. The new key is shown once."""
    with output.change() as change:
        key_id = api_keys.active(change.session, name, change.now).id or 0
        _, key = api_keys.rotate(change.session, key_id, change.now, hours * HOUR)
        change.record("key.rotate", name)
    typer.echo(key)
    period = count_of(hours, "hour")
    output.err().print(f"Save the key now: it will not be shown again. The old key works for {period}.")


@keys.command()
def secret() -> None:
    """Print a new secret for PAPERBOY_SECRET_KEYS."""
    typer.echo(api_keys.new_secret())


@keys.command("dkim")
def new_dkim_key(
    file: Annotated[Path, typer.Argument(help="The file to write the private key to.")],
    algorithm: Annotated[Algorithm, typer.Option(help="All receivers support RSA.")] = Algorithm.RSA,
    selector: Annotated[
        str,
        typer.Option(
            help="The selector, which is part of the DNS record's name.", show_default="by algorithm"
        ),
    ] = "",
    as_json: output.AsJson = False,
) -> None:
    """Create a DKIM key. Print the DNS record to publish and the setting to change."""
    path, name = file.absolute(), selector or f"paperboy-{algorithm}"
    others = [
        key
        for key in output.load_settings(needs_secret=False).dkim_keys
        if key.partition(":")[0] != name or Path(key.partition(":")[2]).absolute() != path
    ]  # the settings may already name this file
    keys = (*others, f"{name}:{path}")
    if any("," in key for key in keys):
        raise InvalidInput(
            "neither the file's path nor the selector may contain a comma, because PAPERBOY_DKIM_KEYS is a "
            "comma-separated list"
        )
    new_settings = settings.load(
        dkim_keys=keys, secret_keys=(api_keys.new_secret(),)
    )  # refuses an invalid selector
    dkim.create(algorithm, path)
    (key,) = dkim.load(keys[-1:])
    record, text = key.record(new_settings.mail_domain)
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
    output.err().print("Publish the first line in DNS, then set the second line. Keep the file private.")
