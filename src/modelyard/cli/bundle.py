"""`yard bundle`: everything that a bug report needs, in one file, without secrets."""

from __future__ import annotations

import io
import tarfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import output_option, print_json
from modelyard.errors import InputError, cause_of
from modelyard.units import format_bytes

if TYPE_CHECKING:
    from modelyard.control.bundle.collecting import Part


@click.command()
@click.option("--job", help="Also everything about one job: its id, the beginning of one, a name.")
@click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A new .tar.gz or .zip; named after the time when left out.",
)
@output_option
def bundle(job: str | None, target: Path | None, output: str) -> None:
    """Gather versions, findings, status, jobs, events and logs into one file for a bug report.

    Tokens, passwords, keys and whatever looks like one are removed. Look into it before you send
    it: names of jobs, users and nodes, and what jobs wrote, are in it. What is missing is noted.

    \b
    Examples:
      yard bundle
      yard bundle --job 3f9a --to report.zip
    """
    from modelyard.control.bundle.collecting import parts
    from modelyard.control.client import Client, yard_folder

    path = target or Path(time.strftime("yard-bundle-%Y%m%d-%H%M%S.tar.gz"))
    if not path.name.endswith((".tar.gz", ".tgz", ".zip")):
        raise InputError(f"'{path}' is no .tar.gz or .zip", fix="end its name with one of them")
    if path.exists():
        raise InputError(f"{path} is there already", fix="choose another name with --to")
    found = list(parts(Client(patience_seconds=2.0), yard_folder(), job=job))
    _write(path, found)
    if output == "json":
        names = [{"name": one.name, "bytes": len(one.data)} for one in found]
        print_json({"file": str(path), "parts": names})
        return
    for one in found:
        click.echo(f"{format_bytes(len(one.data)):>10}  {one.name}")
    click.echo(f"wrote {path}; look into it before you send it")


def _write(path: Path, found: list[Part]) -> None:
    top = path.name.partition(".")[0]
    try:
        # Never over another file, also when one came meanwhile.
        with path.open("xb") as file:
            path.chmod(0o600)
            if path.suffix == ".zip":
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                    for one in found:
                        archive.writestr(f"{top}/{one.name}", one.data)
                return
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                for one in found:
                    entry = tarfile.TarInfo(f"{top}/{one.name}")
                    entry.size, entry.mtime = len(one.data), int(time.time())
                    archive.addfile(entry, io.BytesIO(one.data))
    except OSError as error:
        what = f"{path} cannot be written: {cause_of(error)}"
        raise InputError(what, fix="choose another place with --to") from error
