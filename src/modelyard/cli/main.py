"""`yard`: the table of verbs, how they are loaded, and how a failure reaches the person.

Exit codes: 0 done · 1 a fault of ours or of a policy, or the output was not written (its reader
went away, the disk is full) · 2 a mistake in what was asked, with its fix on stderr · 3 `yard plan`
found no plan that keeps the limits, and says what would help · 4 `yard submit --wait`: the job is
over and did not succeed · 5 `yard doctor` found a problem · 130 interrupted. `yard plan` ends
with the code of its answer also when its reader went away early.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from modelyard import __version__
from modelyard.errors import InputError, YardError, cause_of

# Before numpy is imported: our matrices are so small that several BLAS threads make them ten times
# slower, and policies run on all cores already. Who sets the variable gets what it says.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ERROR = "error: "
EXIT_UNWRITTEN = 1
EXIT_MISTAKE = 2
#: the question was right and the answer is no: `yard plan` says which limit no plan keeps
EXIT_NO_PLAN = 3
#: 128 + SIGINT, as shells report a program that Ctrl-C ended
EXIT_INTERRUPTED = 130
#: `yard doctor` found something that does not work
EXIT_UNWELL = 5

#: For the reference.
EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "a fault of Modelyard or of a policy, or the output could not be written; where a verb "
    "judges (`yard checkpoints`, `yard backup verify`, `yard doctor --strict`), it found fault",
    EXIT_MISTAKE: "a mistake in what was asked; the fix is on stderr",
    EXIT_NO_PLAN: "no plan keeps the limits (`yard plan`); what would help is printed",
    4: "the job is over and did not succeed (`yard submit --wait`)",
    EXIT_UNWELL: "something does not work (`yard doctor`); the fix is printed",
    EXIT_INTERRUPTED: "interrupted",
}


@dataclass(frozen=True, slots=True)
class Verb:
    """A subcommand before it is loaded: where it lives (`module:attribute`), and its one line."""

    target: str
    summary: str

    def load(self) -> click.Command:
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{self.target} is not a click command"
        return command


#: By what people want to do, in the order of `yard --help`.
SECTIONS: Mapping[str, Mapping[str, Verb]] = {
    "Run a yard": {
        "up": Verb("modelyard.cli.up:up", "Start the yard of this machine."),
        "down": Verb("modelyard.cli.up:down", "Stop the yard of this machine."),
        "web": Verb("modelyard.cli.web:web", "Open the yard's pages, logged in."),
        "top": Verb("modelyard.cli.top:top", "Watch the yard on one screen."),
        "nodes": Verb("modelyard.cli.nodes:nodes", "Show nodes; drain and return them."),
        "tenants": Verb("modelyard.cli.tenants:tenants", "Show tenants; change their rights."),
        "tokens": Verb("modelyard.cli.tokens:tokens", "Say who may call the yard."),
        "audit": Verb("modelyard.cli.audit:audit", "Say who did what to the yard."),
        "doctor": Verb("modelyard.cli.doctor:doctor", "Find what is wrong, and how to mend it."),
        "bundle": Verb("modelyard.cli.bundle:bundle", "Gather what a bug report needs."),
        "backup": Verb("modelyard.cli.backup:backup", "Back the yard up; check what there is."),
        "restore": Verb("modelyard.cli.backup:restore", "Make a yard of a backup."),
    },
    "Jobs of a yard": {
        "submit": Verb("modelyard.cli.submit:submit", "Give the yard a job."),
        "ps": Verb("modelyard.cli.ps:ps", "List the yard's jobs."),
        "why": Verb("modelyard.cli.why:why", "Say why a job waits, here or in a simulation."),
        "logs": Verb("modelyard.cli.logs:logs", "Print what a job wrote."),
        "events": Verb("modelyard.cli.logs:events", "Print what happened to jobs."),
        "scale": Verb("modelyard.cli.wishes:scale", "Change a job's devices or priority."),
        "pause": Verb("modelyard.cli.wishes:pause", "Stop jobs for now."),
        "resume": Verb("modelyard.cli.wishes:resume", "Let paused jobs run again."),
        "cancel": Verb("modelyard.cli.wishes:cancel", "End jobs for good."),
        "whatif": Verb(
            "modelyard.cli.whatif:whatif",
            "Replay the yard's history under another policy or cluster.",
        ),
    },
    "Plan": {
        "plan": Verb("modelyard.cli.plan:plan", "Plan a training run: devices, time, cost, loss."),
        "calibrate": Verb(
            "modelyard.cli.calibrate:calibrate",
            "Measure this machine, so that plans for it are right.",
        ),
        "models": Verb("modelyard.cli.models:models", "Show the models that it knows."),
        "devices": Verb("modelyard.cli.devices:devices", "Show the accelerators that it knows."),
    },
    "Train on this machine": {
        "data": Verb("modelyard.cli.data:data", "Make text into tokens that jobs read."),
        "train": Verb("modelyard.cli.train:train", "Train a job on this machine, elastically."),
        "checkpoints": Verb(
            "modelyard.cli.checkpoints:checkpoints", "List and verify what a run has kept."
        ),
        "export": Verb("modelyard.cli.export:export", "Export a trained model for other programs."),
    },
    "Compare policies": {
        "simulate": Verb(
            "modelyard.cli.simulate:simulate", "Play a workload under one or more policies."
        ),
        "sweep": Verb(
            "modelyard.cli.sweep:sweep", "Play a workload over policies, clusters and loads."
        ),
        "policies": Verb("modelyard.cli.policies:policies", "List the scheduling policies."),
        "generate": Verb("modelyard.cli.generate:generate", "Write a synthetic workload."),
        "learn": Verb("modelyard.cli.learn:learn", "Train a policy on the simulator."),
    },
    "More": {
        "demo": Verb("modelyard.cli.demo:demo", "Watch a yard work: real jobs, real deaths."),
        "schema": Verb("modelyard.cli.schema:schema", "Print the JSON Schema of a file you write."),
    },
}


def _all_of(sections: Mapping[str, Mapping[str, Verb]]) -> dict[str, Verb]:
    return {name: verb for section in sections.values() for name, verb in section.items()}


VERBS: Mapping[str, Verb] = _all_of(SECTIONS)


class LazyGroup(click.Group):
    """A group that lists its verbs from a table and imports one only when it is called.

    The commands it holds are placeholders with a name and a summary. They serve help, completion
    and spelling suggestions; `resolve_command` swaps in the real one.
    """

    def __init__(self, *, sections: Mapping[str, Mapping[str, Verb]], **attributes: Any) -> None:
        self.sections = sections
        self.verbs = _all_of(sections)
        placeholders = {
            name: click.Command(name, short_help=verb.summary) for name, verb in self.verbs.items()
        }
        super().__init__(commands=placeholders, **attributes)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The order of the table rather than of the alphabet."""
        return list(self.verbs)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        formatter: click.HelpFormatter,
    ) -> None:
        """Each section by itself, their columns below each other."""
        width = max(map(len, self.verbs))
        for title, verbs in self.sections.items():
            with formatter.section(title):
                rows = [(f"{name:<{width}}", verb.summary) for name, verb in verbs.items()]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        if name is None or placeholder is None:
            return name, placeholder, rest
        return name, self.verbs[name].load(), rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            # What is still buffered meets a closed pipe here, where click keeps that quiet, and
            # not at interpreter exit, where Python would complain.
            sys.stdout.flush()
        except YardError as error:
            for problem in error.problems if isinstance(error, InputError) else (error,):
                # A fix may show how a file looks: its lines stand below each other.
                lines = str(problem).replace("\n", f"\n{' ' * len(ERROR)}")
                click.echo(f"{ERROR}{lines}", err=True)
            ctx.exit(EXIT_MISTAKE)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        return result


@click.command(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Each command explains itself: yard COMMAND --help",
)
@click.version_option(__version__, prog_name="yard", message="%(prog)s %(version)s")
def yard() -> None:
    """Share a cluster for language models: plan runs, schedule everyone's jobs, train them through
    failures, keep what was trained.

    \b
    Examples:
      yard demo                             watch a yard work for two minutes
      yard up                               start one; then: yard submit job.yaml
      yard plan llama2-7b --devices 8xA100  will it fit, how long, at what cost?
    """


def main() -> None:
    """The `yard` program; never returns."""
    _ready_streams()
    try:
        yard(prog_name="yard")
    except OSError as error:
        # A file has a name, and whoever uses it says what is wrong with it; an output has none.
        if error.filename is not None:
            raise
        discard_output()
        click.echo(f"error: the output cannot be written: {cause_of(error)}", err=True)
        sys.exit(EXIT_UNWRITTEN)


def _ready_streams() -> None:
    """Streams that take everything: a closed one swallows it, a poor one shows `?`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def discard_output() -> None:
    """Drop what is buffered: Python would try to write it again at exit, and complain again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
