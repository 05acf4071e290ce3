"""How faithful the simulator is: the same jobs on a real yard and in the simulator.

    python benchmarks/fidelity.py [--seed 7] [--policies fifo,…] [--write] [--quick]

First a yard is asked what its starts, stops and resizes cost on this machine. Then twenty jobs of
two tenants run for real under each policy: commands that keep their place when they are stopped,
and training jobs with real conductors and workers that are resized while they train. Their devices
are slots that take time and no core. The simulator then plays the same jobs, submitted when they
really were, with the costs that were measured before the run, and nothing else of it.

Decisions are compared in two ways: the policy is shown once more everything that it was shown for
real, and must decide the same; and where the simulator parts from the yard for the first time, the
situation must have been another one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from fidelity_jobs import drawn, write_scripts
from fidelity_live import CLUSTER, Costs, Lived, RealYard
from fidelity_play import Compared, Played, asked_again, choices, compared, played
from modelyard.control.recording import read_recording
from modelyard.schedule.registry import policy
from modelyard.spec.shorthand import load_cluster
from promises import Promise, listed, told
from table import Table, write_section

#: Tiresias' limits in device-seconds, in proportion to jobs of seconds.
POLICIES = ("fifo", "tiresias-las:limits=16/48", "yard")
AIM = 0.10


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy, for real and simulated."""

    policy: str
    lived: list[Lived]
    played: Played
    decisions: int
    again: int
    compared: Compared

    @property
    def real(self) -> float:
        return fmean(one.jct for one in self.lived)

    @property
    def simulated(self) -> float:
        return fmean(self.played.jct[one.piece.id] for one in self.lived)

    @property
    def ratio(self) -> float:
        return self.simulated / self.real

    @property
    def errors(self) -> list[float]:
        """Of each job, as a share of the mean: a short job's second is a second."""
        return [abs(self.played.jct[one.piece.id] - one.jct) / self.real for one in self.lived]


def compare(text: str, folder: Path, costs: Costs, seed: int, *, quick: bool) -> Outcome:
    """Run the jobs under a policy, then play them."""
    pieces = drawn(seed, jobs=5, trained=0) if quick else drawn(seed)
    cluster = load_cluster(CLUSTER)
    with RealYard(folder, text) as yard:
        lived = yard.run(pieces)
        moments = list(read_recording(yard.recording))
    simulated = played(moments, lived, costs, cluster, policy(text))
    live = choices(moments, cluster, min(one.submitted for one in lived))
    return Outcome(
        text,
        lived,
        simulated,
        len(moments),
        asked_again(moments, cluster, policy(text)),
        compared(live, simulated.choices),
    )


def costs_table(costs: Costs) -> Table:
    table = Table(
        "What a yard adds to the work of jobs on this machine",
        {"cost": 58, "seconds": 8},
        words=("cost",),
    )
    table.begin()
    rows = {
        "a submission, until the job is placed": costs.reaction,
        "a command, until it runs": costs.command_start,
        "a command, until its end is noted": costs.command_end,
        "a command that is stopped, until its devices are free": costs.command_stop,
        "a training job, until its first step": costs.training_start,
        "a training job, from its last step to its end": costs.training_end,
        "a training job that is stopped, until its devices are free": costs.training_stop,
        "a training job that grows by a worker": costs.grow,
        "a training job that gives a worker up": costs.shrink,
    }
    rows |= {f"a step with {n} workers": s for n, s in sorted(costs.step_seconds.items())}
    for name, seconds in rows.items():
        table.add(name, f"{seconds:.2f}")
    return table


def jobs_table(outcomes: list[Outcome]) -> Table:
    """Every job: its completion time for real and simulated, under each policy."""
    names = [outcome.policy.partition(":")[0] for outcome in outcomes]
    table = Table(
        "Seconds to completion of each job, real / simulated",
        {"job": 8, "what": 34, **dict.fromkeys(names, 15)},
        words=("job", "what"),
    )
    table.begin()
    for at, one in enumerate(outcomes[0].lived):
        piece = one.piece
        table.add(
            piece.id,
            piece.words,
            *(
                f"{outcome.lived[at].jct:.1f} / {outcome.played.jct[piece.id]:.1f}"
                for outcome in outcomes
            ),
        )
    return table


def promised(outcome: Outcome) -> list[Promise]:
    found = outcome.compared
    parted = f"after {found.together} decisions: {found.parted}" if found.parted else "never"
    return [
        Promise(
            f"{outcome.policy}: mean JCT {outcome.real:.2f} s for real, {outcome.simulated:.2f} s "
            f"simulated ({outcome.ratio - 1.0:+.1%}, aim ±{AIM:.0%})",
            abs(outcome.ratio - 1.0) <= AIM,
        ),
        Promise(
            f"{outcome.policy}: {outcome.again} of {outcome.decisions} decisions the same when it "
            "is shown the same once more",
            outcome.again == outcome.decisions,
        ),
        Promise(
            f"{outcome.policy}: yard and simulator part {parted}",
            not found.same_inputs,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=7, help="of the jobs")
    parser.add_argument("--policies", default=",".join(POLICIES), help="with commas between them")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    parser.add_argument("--quick", action="store_true", help="five commands under one policy")
    chosen = parser.parse_args()
    names = chosen.policies.split(",")[:1] if chosen.quick else chosen.policies.split(",")
    table = Table(
        "The same jobs for real and simulated",
        {
            "policy": 26,
            "JCT real": 9,
            "simulated": 9,
            "ratio": 6,
            "median job off": 8,
            "largest": 8,
            "decisions": 9,
            "together": 8,
            "met": 5,
            "agreed": 6,
        },
        words=("policy",),
    )
    promises: list[Promise] = []
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write_scripts(folder)
        with RealYard(folder, "yard", name="calibrated") as yard:
            costs = yard.calibrate(training=not chosen.quick)
        first = costs_table(costs)
        table.begin()
        for name in names:
            outcome = compare(name, folder, costs, chosen.seed, quick=chosen.quick)
            outcomes.append(outcome)
            table.add(*row(outcome))
            promises += promised(outcome)
    jobs = jobs_table(outcomes)
    kept = told(promises)
    if chosen.write:
        write_section(
            "fidelity", [first.markdown(), table.markdown(), jobs.markdown(), listed(promises)]
        )
    # A quick run is too short for its mean to say anything; that it decides the same, it says.
    sys.exit(not kept and not chosen.quick)


def row(outcome: Outcome) -> tuple[str, ...]:
    found = outcome.compared
    return (
        outcome.policy,
        f"{outcome.real:.2f} s",
        f"{outcome.simulated:.2f} s",
        f"{outcome.ratio:.3f}",
        f"{median(outcome.errors):.1%}",
        f"{max(outcome.errors):.1%}",
        f"{found.live} / {found.simulated}",
        f"{found.together}",
        f"{found.met}",
        f"{found.agreed}",
    )


if __name__ == "__main__":
    main()
