"""`yard up` and `yard down`: start and stop the yard of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import counted, output_option, print_json
from modelyard.errors import InputError, YardError

if TYPE_CHECKING:
    from modelyard.control.backup.schedule import BackupPlan
    from modelyard.control.client import Client

#: how long a server may take to answer, and to end
START_SECONDS, END_SECONDS = 30.0, 40.0
LOG_FILE = "server.log"
#: states of jobs that hold devices
ACTIVE = ("starting", "running", "stopping")


@click.command()
@click.option(
    "--cluster",
    "cluster_text",
    help="Nodes and devices: a file, or such as 2x4 for two nodes of four device slots on this "
    "machine. One node with a slot for each core when left out.",
)
@click.option("--policy", "policy_text", default="yard", show_default=True, help="Who runs when.")
@click.option(
    "--tenants",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the teams that share the yard.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the yard keeps its state; YARD_FOLDER, or .yard at home.",
)
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Address and port.")
@click.option(
    "--name",
    default="main",
    show_default=True,
    help="Of this server, where several share a folder.",
)
@click.option("--database", help="postgresql://… where several servers share a yard.")
@click.option("--round", "round_text", default="5s", show_default=True, help="Between decisions.")
@click.option(
    "--probe",
    "probe_text",
    metavar="COMMAND",
    help="What tells whether a suspected device is well, run on that device; a small computation "
    "when left out.",
)
@click.option(
    "--backup", "backup_to", metavar="PLACE", help="A folder or s3://…: back the yard up there."
)
@click.option(
    "--backup-every", default="1h", show_default=True, help="Between backups; drills are daily."
)
@click.option(
    "--backup-keep", type=int, default=24, show_default=True, help="The newest that are kept."
)
@click.option(
    "--backup-days", type=int, default=14, show_default=True, help="Days of which one is kept."
)
@click.option("--backup-checkpoints", is_flag=True, help="Back runs' newest checkpoints up too.")
@click.option(
    "--backup-key-file",
    type=click.Path(path_type=Path),
    help="Encrypt backups with the passphrase in this file, or in YARD_BACKUP_PASSPHRASE.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add each decision to this file, with all that the policy was shown.",
)
@click.option("--foreground", is_flag=True, help="Serve here until Ctrl-C.")
@output_option
def up(foreground: bool, folder: Path | None, output: str, **options: Any) -> None:
    """Start the yard of this machine: a server with a database in a folder, nothing else.

    Jobs are processes of this machine that outlive the server: started again, it finds them.

    \b
    Examples:
      yard up
      yard up --cluster 2x2 --policy fifo
      yard up --probe "dcgmi diag -r 1"
      yard up --foreground --listen 127.0.0.1:7700
    """
    from modelyard.control.client import Client, yard_folder

    place = (folder or yard_folder()).absolute()
    client = Client(folder=place, patience_seconds=0.0)
    if options["name"] == "main" and (status := _status(client)) is not None:
        raise InputError(
            f"a yard is up in {place} ({status['leader']})", fix="stop it with 'yard down' first"
        )
    if foreground:
        _serve(place, **options)
        return
    status = _start(place, client, options)
    if output == "json":
        print_json({"address": status["leader"], "folder": str(place)})
        return
    click.echo(f"The yard is up at {status['leader']}; its state is in {place}.")
    if goes_on := _standing(status["jobs"]):
        click.echo(f"From before, {goes_on}.")
    click.echo("Next: yard web · yard submit job.yaml · yard ps · yard nodes · yard down")


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Of the yard.")
@click.option("--keep-jobs", is_flag=True, help="Let jobs run on; 'yard up' finds them again.")
def down(folder: Path | None, keep_jobs: bool) -> None:
    """Stop the yard of this machine. Jobs that run are stopped, and go on after 'yard up'.

    What somebody paused stays paused.

    \b
    Examples:
      yard down
      yard down --keep-jobs
    """
    from modelyard.control.client import Client, yard_folder

    place = (folder or yard_folder()).absolute()
    client = Client(folder=place, patience_seconds=2.0)
    pids = _server_pids(place)
    if not pids or _status(client) is None:
        fix = "see 'yard up --help'"
        if os.environ.get("YARD_URL"):
            fix = (
                "'yard down' ends a yard of this machine, whatever YARD_URL says: name its --folder"
            )
        raise InputError(f"no yard is up in {place}", fix=fix)
    if not keep_jobs:
        _stop_jobs(client)
    goes_on = "" if keep_jobs else _standing(client.status()["jobs"])
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + END_SECONDS
    while any(_alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    click.echo("The yard is down. 'yard up' starts it again with everything it knew.")
    if goes_on:
        click.echo(f"Then {goes_on}.")


def _start(place: Path, client: Client, options: dict[str, Any]) -> dict[str, Any]:
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    words = ["up", "--foreground", "--folder", str(place)]
    for name, option in (
        ("cluster_text", "--cluster"),
        ("policy_text", "--policy"),
        ("tenants", "--tenants"),
        ("listen", "--listen"),
        ("name", "--name"),
        ("database", "--database"),
        ("round_text", "--round"),
        ("probe_text", "--probe"),
        ("record", "--record"),
        ("backup_to", "--backup"),
        ("backup_every", "--backup-every"),
        ("backup_keep", "--backup-keep"),
        ("backup_days", "--backup-days"),
        ("backup_key_file", "--backup-key-file"),
    ):
        if options[name] is not None:
            words += [option, str(options[name])]
    words += ["--backup-checkpoints"] if options["backup_checkpoints"] else []
    log = place / LOG_FILE
    with log.open("ab") as output:
        start = output.tell()
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "modelyard", *words],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
            # Ctrl-C in this terminal is not meant for it.
            setsid=True,
        )
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if (status := _status(client)) is not None and status["leads"]:
            return status
        if not _alive(pid):
            break
        time.sleep(0.05)
    said = log.read_bytes()[start:].decode(errors="replace").strip()
    raise YardError(f"the yard did not start: {said or 'it said nothing'}", fix=f"see {log}")


def _serve(
    place: Path,
    *,
    cluster_text: str | None,
    policy_text: str,
    tenants: Path | None,
    listen: str,
    name: str,
    database: str | None,
    round_text: str,
    probe_text: str | None,
    record: Path | None,
    **backup_options: Any,
) -> None:
    import faulthandler
    import logging

    from modelyard.cli.scenario import tenant_views
    from modelyard.control.leading import PACE
    from modelyard.control.server import ServerSettings, YardServer
    from modelyard.schedule.registry import policy
    from modelyard.simulate.numbers import read_numbers
    from modelyard.spec.shorthand import load_cluster
    from modelyard.units import parse_duration
    from modelyard.web.app import pages

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    cluster = load_cluster(cluster_text or f"1x{os.cpu_count() or 1}")
    seconds = parse_duration(round_text)
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InputError(f"'{listen}' is no address", fix="write such as 127.0.0.1:7700")
    settings = ServerSettings(
        folder=place,
        cluster=cluster,
        policy=policy(policy_text, read_numbers=read_numbers),
        tenants=tenant_views(tenants, cluster),
        name=name,
        host=host.strip("[]"),
        port=int(port),
        database=database,
        round_seconds=seconds,
        pace=replace(PACE, decide=seconds, decide_after_news=min(PACE.decide_after_news, seconds)),
        probe=_probe(probe_text),
        backup=_backup_plan(**backup_options),
        record=record,
    )
    # `yard bundle` asks so where all threads are; the answer is in the log.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    YardServer(settings, pages).run()


def _probe(text: str | None) -> tuple[str, ...]:
    """The argument list of a probe that somebody wrote as a line."""
    import shlex

    from modelyard.control.recipes import PROBE

    if text is None:
        return PROBE
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"--probe '{text}': {error}", fix="close every quote") from error
    if not words:
        raise InputError("--probe is empty", fix="write a command, or leave it out")
    return words


def _backup_plan(
    *,
    backup_to: str | None,
    backup_every: str,
    backup_keep: int,
    backup_days: int,
    backup_checkpoints: bool,
    backup_key_file: Path | None,
) -> BackupPlan | None:
    from modelyard.control.backup.cipher import passphrase_from
    from modelyard.control.backup.place import Place
    from modelyard.control.backup.retention import Keep
    from modelyard.control.backup.schedule import BackupPlan
    from modelyard.units import parse_duration

    if backup_to is None:
        return None
    return BackupPlan(
        place=Place(backup_to),
        every_seconds=parse_duration(backup_every),
        keep=Keep(last=backup_keep, days=backup_days),
        checkpoints=backup_checkpoints,
        passphrase=passphrase_from(backup_key_file),
    )


def _status(client: Client) -> dict[str, Any] | None:
    try:
        return client.status()
    except YardError:
        return None


def _server_pids(place: Path) -> list[int]:
    """Processes that serve the yard of a folder."""
    import json

    from modelyard.control.server import SERVERS

    found = []
    for path in (place / SERVERS).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            found.append(int(json.loads(path.read_text())["pid"]))
    return found


def _stop_jobs(client: Client) -> None:
    """Stop everything that runs, and wait until it has stopped."""
    counts = client.halt()["jobs"]
    if stopping := sum(counts.get(state, 0) for state in ACTIVE):
        click.echo(f"stopping {counted(stopping, 'job')}", err=True)
    until = time.monotonic() + END_SECONDS
    while any(counts.get(state) for state in ACTIVE):
        if time.monotonic() > until:
            click.echo("some jobs take long to stop; they are ended with the yard up again")
            return
        time.sleep(0.1)
        counts = client.status()["jobs"]


def _standing(counts: Mapping[str, int]) -> str:
    """What of the jobs goes on with the yard, and what waits for a person; empty without any."""
    goes_on = sum(counts.get(state, 0) for state in ("waiting", *ACTIVE))
    said = []
    if goes_on:
        said.append(f"{counted(goes_on, 'job')} {'goes' if goes_on == 1 else 'go'} on")
    if paused := counts.get("paused", 0):
        said.append(f"{counted(paused, 'paused job')} {'stays' if paused == 1 else 'stay'} so")
    return "; ".join(said)


def _alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        # A child of this very process is there until somebody has asked how it ended.
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
