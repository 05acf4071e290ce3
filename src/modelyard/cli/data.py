"""`yard data`: make text into tokens that jobs read, and look at what was made."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelyard.cli.output import called_as, counted, output_option, print_json, print_table
from modelyard.errors import InputError
from modelyard.units import format_bytes, format_count

if TYPE_CHECKING:
    from modelyard.train.data.prepare import Watch
    from modelyard.train.data.tokens import Header

#: Where neither the command nor the data set says how long a sample is.
USUAL_SEQUENCE = 256
SHOWN_CHARACTERS = 200
SECONDS_BETWEEN_LINES = 10.0
_PHASES = {"tokenizer": "training the tokenizer", "tokens": "writing tokens"}


@click.group()
def data() -> None:
    """Make text into tokens that training jobs read, and look at what was made."""


@data.command()
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to make.")
@click.option(
    "--tokenizer",
    default="bytes",
    show_default=True,
    help="bytes, bpe:SIZE to train one on the input, or the path of a tokenizer.json or .gguf.",
)
@click.option("--end-token", default="", help="What the tokenizer calls the end of a document.")
@click.option(
    "--field", default="text", show_default=True, help="Field of JSONL or column of Parquet."
)
@click.option("--label", default="", help="Field or column with a number for each document.")
@click.option(
    "--validation", default="1%", show_default=True, metavar="SHARE", help="How much to hold out."
)
@click.option("--sequence", type=click.IntRange(1), help="Tokens of a sample, for jobs to follow.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "jsonl", "parquet", "tokens"]),
    help="What files hold, where their names do not say it.",
)
@click.option("--workers", type=click.IntRange(1), help="Processes; as many as cores by default.")
@click.option("--force", is_flag=True, help="Write over a data set of other input.")
@output_option
def prepare(
    inputs: tuple[str, ...],
    out: Path,
    tokenizer: str,
    end_token: str,
    field: str,
    label: str,
    validation: str,
    sequence: int | None,
    kind: str | None,
    workers: int | None,
    force: bool,
    output: str,
) -> None:
    """Make a data set of text, JSONL, Parquet or token files.

    INPUT is a file, a folder or an address such as s3://bucket/folder. Files are read in pieces, on
    all cores. Interrupted, the same command goes on where it was.

    \b
    Examples:
      yard data prepare books/ --out data
      yard data prepare web.jsonl --field content --tokenizer bpe:8192 --out data
      yard data prepare reviews.jsonl --label stars --validation 10% --out reviews
      yard data prepare s3://corpus/part-0.parquet --tokenizer ./tokenizer.json --out data
    """
    # numpy takes longer to import than `--help` to print.
    from modelyard.train.data.crew import cores
    from modelyard.train.data.places import Kind
    from modelyard.train.data.prepare import Settings
    from modelyard.train.data.prepare import prepare as make

    settings = Settings(
        tokenizer=tokenizer,
        end_token=end_token,
        field=field,
        label=label,
        validation=share(validation),
        sequence=sequence or 0,
        kind=Kind(kind) if kind else None,
    )
    try:
        with _progress() as watch:
            header = make(
                inputs, out, settings, workers=workers or cores(), watch=watch, force=force
            )
    except KeyboardInterrupt:
        click.echo("what is done is kept: the same command goes on from here", err=True)
        raise
    if output == "json":
        print_json(_as_json(header, out, header.sequence or USUAL_SEQUENCE))
        return
    _print_summary(header, header.sequence or USUAL_SEQUENCE)
    click.echo(f"\nLook at it: {called_as()} data show {shlex.quote(str(out))}")


@data.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--sequence", type=click.IntRange(1), help="Tokens of a sample.")
@click.option("--samples", type=click.IntRange(0), default=2, show_default=True, help="To decode.")
@click.option("--check", is_flag=True, help="Compare every file with its hash.")
@output_option
def show(folder: Path, sequence: int | None, samples: int, check: bool, output: str) -> None:
    """Show a data set: its samples and tokens, and a few of them as text.

    \b
    Examples:
      yard data show data
      yard data show data --sequence 1024 --samples 5
      yard data show data --check
    """
    from modelyard.train.data.tokens import damaged, read_header

    header = read_header(folder)
    length = sequence or header.sequence or USUAL_SEQUENCE
    if check and (found := list(damaged(folder))):
        what = f"{counted(len(found), 'file')} of this data set cannot be used: {found[0]}"
        raise InputError(what, fix="prepare the data again with --force", where=str(folder))
    texts = _decoded(folder, header, length, samples)
    if output == "json":
        print_json({**_as_json(header, folder, length), "decoded": texts})
        return
    _print_summary(header, length)
    if check:
        click.echo("every file is as it was written")
    for number, text in texts.items():
        short = f"{text[:SHOWN_CHARACTERS]}…" if len(text) > SHOWN_CHARACTERS else text
        click.echo(f"\nsample {number}: {short!r}")


def share(text: str) -> float:
    """`1%` or `0.01` as a number."""
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 0.5:
        fix = "write a share between 0% and 50%, such as --validation 1%"
        raise InputError(f"'{text}' cannot be held out", fix=fix)
    return number


def _samples(header: Header, split: str, sequence: int) -> int:
    return max(header.tokens(split) - 1, 0) // sequence


def _as_json(header: Header, folder: Path, sequence: int) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "tokenizer": header.tokenizer,
        "vocab": header.vocab,
        "sequence": sequence,
        "splits": {
            split: {
                "documents": header.documents(split),
                "tokens": header.tokens(split),
                "samples": _samples(header, split, sequence),
                "shards": len(header.shards[split]),
            }
            for split in header.shards
        },
    }


def _print_summary(header: Header, sequence: int) -> None:
    numbers = ("documents", "tokens", "samples", "shards")
    print_table(
        ("split", *numbers),
        [
            (
                split,
                f"{header.documents(split):,}",
                f"{header.tokens(split):,}",
                f"{_samples(header, split, sequence):,}",
                f"{len(header.shards[split]):,}",
            )
            for split in header.shards
        ],
        numbers=numbers,
    )
    stored = sum(header.tokens(split) for split in header.shards) * header.token_bytes
    click.echo(
        f"tokenizer {header.tokenizer}, {header.vocab:,} tokens; "
        f"samples of {sequence:,}; {format_bytes(stored)} on disk"
    )
    for split in header.shards:
        if header.tokens(split) and not _samples(header, split, sequence):
            click.echo(f"note: {format_count(header.tokens(split))} {split} tokens make no sample")


def _decoded(folder: Path, header: Header, sequence: int, number: int) -> dict[int, str]:
    """Samples spread over the data, by number, as text."""
    import numpy as np

    from modelyard.train.data.tokens import TokenSamples, read_tokenizer

    if not number or not _samples(header, "train", sequence):
        return {}
    chosen = TokenSamples(folder, sequence)
    ids = np.unique(np.linspace(0, chosen.size - 1, min(number, chosen.size)).astype(np.int64))
    tokenizer = read_tokenizer(folder)
    rows = zip(ids.tolist(), chosen.read(ids), strict=True)
    return {each: tokenizer.decode(row) for each, row in rows}


@contextmanager
def _progress() -> Iterator[Watch]:
    """A bar on a terminal, a line now and then elsewhere; always on stderr."""
    if not sys.stderr.isatty():
        yield _lines(time.monotonic)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def watch(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(_PHASES[phase], total=total)
            bars.update(tasks[phase], completed=min(done, total))

        yield watch


def _lines(clock: Callable[[], float]) -> Watch:
    told = clock()

    def watch(phase: str, done: int, total: int) -> None:
        nonlocal told
        if clock() - told >= SECONDS_BETWEEN_LINES:
            told = clock()
            share_done = min(done / max(total, 1), 1.0)
            click.echo(f"{_PHASES[phase]}: {share_done:.0%} of {format_bytes(total)}", err=True)

    return watch
