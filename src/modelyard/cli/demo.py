"""`yard demo`: a yard at work, with real jobs and real deaths."""

from __future__ import annotations

from pathlib import Path

import click

from modelyard.cli.output import output_option

DEFAULT_FOLDER = Path("demo-out")


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Folder of what is left at the end: job files, their data, the measured workload.",
)
@click.option("--keep", is_flag=True, help="Leave the yard up at the end, to play with.")
@click.option(
    "--real-fifo",
    is_flag=True,
    help="Run the same jobs under FIFO for real as well; takes as long again.",
)
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Address and port.")
@click.option(
    "--simulate", is_flag=True, help="Instead, compare all policies on a bundled workload."
)
@click.option("--workers", type=click.IntRange(1), help="With --simulate: processes; all cores.")
@click.option("--fresh", is_flag=True, help="With --simulate: play runs again that --out holds.")
@output_option
@click.pass_context
def demo(
    context: click.Context,
    /,
    out: Path,
    keep: bool,
    real_fifo: bool,
    listen: str,
    simulate: bool,
    workers: int | None,
    fresh: bool,
    output: str,
) -> None:
    """Watch a yard work: real jobs, a killed worker, a killed server. About two minutes.

    Two teams share two device slots of this machine. Their language models are placed, resized
    and preempted by the same policy that the simulator plays; a worker and the server are killed
    with SIGKILL. At the end stands how long everybody took, beside FIFO on the same jobs. Ctrl-C at
    any moment leaves nothing behind.

    \b
    Examples:
      yard demo
      yard demo --keep
      yard demo --real-fifo -o json
      yard demo --simulate
    """
    if simulate:
        from modelyard.cli.demo_policies import compare_policies

        context.exit(compare_policies(out=out, workers=workers, fresh=fresh, output=output))
    # Everything heavy is behind these, and `--help` needs none of it.
    from modelyard.cli.demo_stage import check_machine

    check_machine()
    from modelyard.cli.demo_live import Wanted, perform

    wanted = Wanted(out=out, keep=keep, real_fifo=real_fifo, listen=listen, output=output)
    context.exit(perform(wanted))
