"""`yard export`: a trained model as a folder that transformers and other programs load."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modelyard.cli.output import output_option, print_json
from modelyard.cli.run_of_job import run_of_job
from modelyard.cli.train import need_torch
from modelyard.units import format_bytes

if TYPE_CHECKING:
    from modelyard.train.export_checkpoint import Exported


@click.command()
@click.argument("source", metavar="RUN")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder to make; an empty one may be there.",
)
@click.option("--step", type=click.IntRange(0), help="Of which step; the newest by default.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="Type of the weights.",
)
@click.option(
    "--job",
    "job_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The job's file, for checkpoints that do not describe their model.",
)
@output_option
def export(
    source: str,
    folder: Path,
    step: int | None,
    dtype: str,
    job_file: Path | None,
    output: str,
) -> None:
    """Export a trained model: safetensors, config.json and its tokenizer.

    RUN is the folder of a run, a folder of checkpoints, an address such as s3://bucket/folder, or a
    job of this machine's yard: its id, the beginning of one, or its name.
    transformers loads the result and computes the same logits. A model that has no class there
    is written as safetensors under its own names.

    \b
    Examples:
      yard export small-gpt-run --to small-gpt
      yard export small-gpt-run --to small-gpt --step 100 --dtype bfloat16
      yard export 3f9a --to small-gpt
      yard export s3://models/small-gpt --to small-gpt -o json
    """
    need_torch()
    from modelyard.spec.job import read_job
    from modelyard.train.export_checkpoint import export_checkpoint

    job = (read_job(job_file), job_file.parent) if job_file is not None else None
    done = export_checkpoint(run_of_job(source) or source, folder, job=job, step=step, dtype=dtype)
    size = sum(path.stat().st_size for path in folder.iterdir())
    if output == "json":
        print_json(_as_json(done, size))
        return
    click.echo(f"{done.model}, step {done.about.step:,}: {done.parameters:,} numbers, {dtype}")
    click.echo(f"wrote {', '.join(done.files)} ({format_bytes(size)}) to {folder}")
    if done.loadable:
        name = shlex.quote(str(folder))
        click.echo(f"\nTrain it further: write 'from: {name}' in a job, or load it in Python with")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        loads = (config.get("architectures") or ["AutoModel"])[0]
        click.echo(f"transformers.{loads}.from_pretrained({str(folder)!r})")
    else:
        click.echo("\nNo class of transformers computes this model: weights have their own names")


def _as_json(done: Exported, size: int) -> dict[str, object]:
    return {
        "folder": str(done.folder),
        "checkpoint": done.where,
        "job": done.about.job,
        "step": done.about.step,
        "model": done.model,
        "numbers": done.parameters,
        "bytes": size,
        "loadable": done.loadable,
        "files": list(done.files),
    }
