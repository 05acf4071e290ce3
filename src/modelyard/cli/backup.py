"""`yard backup` and `yard restore`: copies of the yard elsewhere, checked, and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from modelyard.cli.output import counted, output_option, print_json, print_table
from modelyard.errors import InputError
from modelyard.units import format_bytes, format_duration

if TYPE_CHECKING:
    from modelyard.control.backup.manifest import Manifest
    from modelyard.control.backup.place import Place

_Callback = TypeVar("_Callback", bound=Callable[..., Any])

#: where backups go when nobody says
PLACE_VARIABLE = "YARD_BACKUP"


def _key_option(command: _Callback) -> _Callback:
    return click.option(
        "--key-file",
        type=click.Path(path_type=Path),
        help="File with the passphrase of encrypted backups; YARD_BACKUP_PASSPHRASE otherwise.",
    )(command)


def _to_option(command: _Callback) -> _Callback:
    return click.option(
        "--to",
        "address",
        envvar=PLACE_VARIABLE,
        metavar="PLACE",
        help=f"A folder or s3://bucket/folder that holds backups; {PLACE_VARIABLE} otherwise.",
    )(command)


@click.group(invoke_without_command=True)
@_to_option
@_key_option
@click.option("--list", "listing", is_flag=True, help="Show the backups that there are.")
@click.option("--checkpoints", is_flag=True, help="Also the newest checkpoint of every run.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Of the yard.")
@click.option("--database", help="postgresql://… when the yard has its state there.")
@output_option
@click.pass_context
def backup(
    context: click.Context,
    address: str | None,
    key_file: Path | None,
    listing: bool,
    checkpoints: bool,
    folder: Path | None,
    database: str | None,
    output: str,
) -> None:
    """Back the yard up to PLACE: jobs, nodes, the log, tokens' hashes, who called what.

    The yard may be up meanwhile. With a key everything is encrypted; only then are the yard's own
    secret and the admin's token in the backup.

    \b
    Examples:
      yard backup --to s3://backups/yard
      yard backup --to /mnt/backups --checkpoints
      yard backup --to /mnt/backups --list
      yard backup verify --to s3://backups/yard
      yard backup drill --to s3://backups/yard
    """
    if context.invoked_subcommand is not None:
        context.obj = address
        return
    place = _place(address)
    if listing:
        _list(place, output)
        return
    from modelyard.control.backup.cipher import passphrase_from
    from modelyard.control.backup.restoring import DATABASE_FILE
    from modelyard.control.backup.writing import What, back_up
    from modelyard.control.client import yard_folder
    from modelyard.control.store.connection import open_database, sqlite_url

    home = (folder or yard_folder()).absolute()
    if database is None and not (home / DATABASE_FILE).is_file():
        raise InputError("there is no yard here", fix="name its --folder", where=str(home))
    engine = open_database(database or sqlite_url(home / DATABASE_FILE))
    what = What(
        database=engine,
        folder=home,
        checkpoints=checkpoints,
        passphrase=passphrase_from(key_file),
    )
    begun = time.monotonic()
    made = back_up(what, place, at=time.time(), warn=_warn)
    engine.dispose()
    if output == "json":
        print_json(_shape(place, made))
        return
    rows = counted(sum(made.tables.values()), "row")
    took = format_duration(time.monotonic() - begun)
    click.echo(f"Backup {made.name}: {rows}, {format_bytes(made.size_bytes)}, in {took}.")
    if made.checkpoints:
        size = format_bytes(sum(copy.size_bytes for copy in made.checkpoints))
        click.echo(f"{counted(len(made.checkpoints), 'checkpoint')} beside it, {size}.")
    if not made.encrypted:
        click.echo("It is not encrypted, so the yard's secret and admin token are not in it.")
    click.echo(f"Next: yard backup drill --to {place.address}")


@backup.command()
@_to_option
@_key_option
@click.argument("name", default="")
@output_option
@click.pass_context
def verify(
    context: click.Context, address: str | None, key_file: Path | None, name: str, output: str
) -> None:
    """Read backups back and compare every byte with its hash, every table with its rows.

    NAME is a backup or the beginning of its name; all without. Ends with 1 when one is damaged.

    \b
    Examples:
      yard backup verify --to /mnt/backups
      yard backup verify --to /mnt/backups 20261118
    """
    from modelyard.control.backup.cipher import passphrase_from
    from modelyard.control.backup.place import chosen, complete
    from modelyard.control.backup.reading import backup_problems

    place, key = _place(address or context.obj), passphrase_from(key_file)
    damaged: list[str] = []
    newest = chosen(place.backups, name, damaged.append)
    found = [newest] if name else complete(place.backups, lambda _: None)
    results = {one.name: backup_problems(place, one, key) for one in found}
    bad = bool(damaged) or any(results.values())
    if output == "json":
        print_json({"place": place.address, "backups": results, "unreadable": damaged})
    else:
        for one in found:
            seen = results[one.name]
            blind = one.encrypted and key is None
            good = "hashes fit (rows need the key)" if blind else "whole"
            click.echo(f"{one.name}: {'damaged' if seen else good}")
            for problem in seen:
                click.echo(f"  {problem}")
        for problem in damaged:
            click.echo(problem)
    context.exit(1 if bad else 0)


@backup.command()
@_to_option
@_key_option
@click.argument("name", default="")
@output_option
@click.pass_context
def drill(
    context: click.Context, address: str | None, key_file: Path | None, name: str, output: str
) -> None:
    """Restore the newest backup, or NAME, into a temporary folder, and judge what came.

    Ends with 1 when the restore would not have worked.

    \b
    Examples:
      yard backup drill --to s3://backups/yard
    """
    from modelyard.control.backup.cipher import passphrase_from
    from modelyard.control.backup.drill import rehearse
    from modelyard.control.backup.place import chosen

    place = _place(address or context.obj)
    manifest = chosen(place.backups, name, _warn)
    result = rehearse(place, manifest, passphrase_from(key_file), at=time.time())
    if output == "json":
        print_json({"backup": result.backup, "ok": result.ok, "problems": list(result.problems)})
    else:
        took = format_duration(result.seconds)
        click.echo(f"{result.backup}: {'restores' if result.ok else 'does not restore'}, {took}")
        for problem in result.problems:
            click.echo(f"  {problem}")
    context.exit(0 if result.ok else 1)


@backup.command()
@output_option
@click.pass_context
def status(context: click.Context, output: str) -> None:
    """Say how the backups of the yard that is up are doing; ends with 1 when the last try failed.

    \b
    Examples:
      yard backup status
    """
    from modelyard.control.client import Client

    found = Client().status()["backup"]
    if output == "json":
        print_json(found)
    elif found is None:
        click.echo("This server makes no backups. Start the yard with --backup PLACE.")
    else:
        _print_status(found)
    context.exit(1 if found and (found["problem"] or found["drill_ok"] is False) else 0)


def _print_status(found: dict[str, Any]) -> None:
    def ago(at: float | None) -> str:
        return f"{format_duration(max(time.time() - at, 0.0))} ago" if at else "never"

    tried = {None: "", True: ": it restores", False: ": it FAILED"}[found["drill_ok"]]
    click.echo(f"place   {found['place']}")
    click.echo(f"backup  {found['last'] or 'none seen yet'}, {ago(found['last_at'])}")
    click.echo(f"drill   {ago(found['drill_at'])}{tried}")
    if found["problem"]:
        click.echo(f"problem {found['problem']}")


@click.command()
@click.option(
    "--from", "address", envvar=PLACE_VARIABLE, metavar="PLACE", help="Where backups are."
)
@_key_option
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Of the new yard: not there yet, or empty. YARD_FOLDER, or .yard at home.",
)
@click.option("--database", help="postgresql://… that is empty; SQLite in the folder otherwise.")
@click.argument("name", default="")
@output_option
def restore(
    address: str | None,
    key_file: Path | None,
    folder: Path | None,
    database: str | None,
    name: str,
    output: str,
) -> None:
    """Make a yard of the newest backup in PLACE, or of NAME; it never replaces one.

    Jobs that were running wait, and start again when the yard is up. Stop the old yard first, if
    it lives: two that both believe to be it would both run the jobs.

    \b
    Examples:
      yard restore --from s3://backups/yard
      yard restore --from /mnt/backups --folder new --database postgresql://yard@db/yard
    """
    from dataclasses import asdict

    from modelyard.control.backup.cipher import passphrase_from
    from modelyard.control.backup.place import chosen
    from modelyard.control.backup.reading import Backup
    from modelyard.control.backup.restoring import restore as restored
    from modelyard.control.client import yard_folder

    place, home = _place(address), (folder or yard_folder()).absolute()
    manifest = chosen(place.backups, name, _warn)
    source = Backup.open(place, manifest, passphrase_from(key_file))
    result = restored(source, place, home, database_url=database, at=time.time())
    if output == "json":
        print_json({"backup": manifest.name, "folder": str(home), **asdict(result)})
        return
    age = format_duration(max(time.time() - manifest.made_at, 0.0))
    jobs = counted(result.unfinished, "unfinished job")
    click.echo(f"Restored {manifest.name}, {age} old, into {home}: {jobs}.")
    if result.stopped:
        click.echo(
            f"{counted(result.stopped, 'job')} had processes elsewhere and will start again."
        )
    given = f" --folder {folder}" if folder else ""
    click.echo(f"Next: yard up{given}{' --database …' if database else ''}")


def _list(place: Place, output: str) -> None:
    from modelyard.control.backup.drill import drill_of
    from modelyard.control.backup.place import complete

    found = complete(place.backups, _warn)
    if output == "json":
        print_json({"place": place.address, "backups": [_shape(place, one) for one in found]})
        return
    if not found:
        click.echo("There is no backup here. Make one: yard backup --to PLACE")
        return
    rows = []
    for one in found:
        tried = drill_of(place, one.name)
        rows.append(
            (
                one.name,
                format_duration(max(time.time() - one.made_at, 0.0)),
                f"{one.tables.get('jobs', 0):,}",
                f"{sum(one.tables.values()):,}",
                format_bytes(one.size_bytes),
                f"{len(one.checkpoints):,}",
                "yes" if one.encrypted else "no",
                "" if tried is None else "restored" if tried.ok else "FAILED",
            )
        )
    numbers = ("age", "jobs", "rows", "size", "checkpoints")
    print_table(("backup", *numbers, "encrypted", "drill"), rows, numbers=numbers)


def _shape(place: Place, one: Manifest) -> dict[str, object]:
    from modelyard.control.backup.drill import drill_of

    tried = drill_of(place, one.name)
    return {
        "name": one.name,
        "made_at": one.made_at,
        "tables": one.tables,
        "bytes": one.size_bytes,
        "checkpoints": len(one.checkpoints),
        "encrypted": one.encrypted,
        "drill": None if tried is None else {"ok": tried.ok, "at": tried.at},
    }


def _place(address: str | None) -> Place:
    from modelyard.control.backup.place import Place

    if not address:
        fix = f"write --to with a folder or s3://bucket/folder, or set {PLACE_VARIABLE}"
        raise InputError("no place for backups was named", fix=fix)
    return Place(address)


def _warn(what: str) -> None:
    click.echo(f"warning: {what}", err=True)
