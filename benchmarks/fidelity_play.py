"""What a yard has recorded, played by the simulator, and asked of the policy once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fidelity_live import Costs, Lived
from modelyard.control.forecast.playing import LiveWork
from modelyard.control.knowledge import LiveKnowledge
from modelyard.control.leading import PACE
from modelyard.control.recording import Shown, ShownJob
from modelyard.schedule.view import Decision, Policy, Traits, View
from modelyard.simulate.engine import Engine
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.cluster import Cluster
from modelyard.speed.curve import CurveSpeed

#: Two clocks that are read one after the other differ by less.
UNNOTICED_SECONDS = 1e-3
#: Waiting jobs, and running ones with their devices: what an allocation is decided from.
Situation = tuple[tuple[str, int], ...]
Changes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a policy decided, and in which situation."""

    at: float
    situation: Situation
    changes: Changes
    #: device-seconds that each job had had by then
    served: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Played:
    """What became of the jobs in the simulator."""

    jct: Mapping[str, float]
    choices: Sequence[Choice]


@dataclass
class Overheard:
    """A policy whose decisions are noted."""

    policy: Policy
    choices: list[Choice] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def traits(self) -> Traits:
        return self.policy.traits

    def decide(self, view: View) -> list[Decision]:
        decisions = self.policy.decide(view)
        if decisions:
            self.choices.append(_choice(view, decisions, view.now))
        return decisions

    def next_change(self, view: View) -> float:
        return self.policy.next_change(view)


def played(
    moments: Sequence[Shown],
    lived: Sequence[Lived],
    costs: Costs,
    cluster: Cluster,
    policy: Policy,
) -> Played:
    """The same jobs in the simulator: submitted when they were, known as they were."""
    first: dict[str, ShownJob] = {}
    for moment in moments:
        for job in moment.jobs:
            first.setdefault(job.card.id, job)
    began = min(one.submitted for one in lived)
    jobs = [_trace_job(one, first[one.piece.id], costs, began) for one in lived]
    scenario = Scenario(
        Workload("the same jobs", tuple(sorted(jobs, key=lambda job: job.submitted))),
        cluster,
        {one.name: one for one in moments[-1].tenants},
        round_seconds=moments[-1].round_seconds,
        reaction_seconds=PACE.decide_after_news,
        restart_seconds=moments[-1].restart_seconds,
    )
    overheard = Overheard(policy)
    engine = Engine(scenario, overheard, use_lane=False)
    engine.play()
    ends = {card.id: engine.recorder.end_of(row) for row, card in enumerate(engine.book.cards)}
    submitted = {job.id: job.submitted for job in jobs}
    return Played(
        {name: end - submitted[name] for name, end in ends.items() if end is not None},
        overheard.choices,
    )


def _trace_job(lived: Lived, seen: ShownJob, costs: Costs, began: float) -> TraceJob:
    piece, card = lived.piece, seen.card
    known = LiveKnowledge(seen.known.estimate, seen.known.min_devices)
    if piece.trains:
        speed = CurveSpeed(tuple((n, 1.0 / s) for n, s in sorted(costs.step_seconds.items())))
        ending = costs.training_end / costs.step_seconds[piece.max_devices]
        work = LiveWork(known, piece.steps + ending, speed)
    else:
        work = LiveWork(known, piece.seconds + costs.command_end)
    return TraceJob(
        id=card.id,
        submitted=card.submitted - began,
        devices=card.devices,
        work=work,
        min_devices=card.min_devices,
        max_devices=card.max_devices,
        model=card.model,
        tenant=card.tenant,
        priority=card.priority,
        exclusive=card.exclusive,
        kinds=card.kinds,
        start_seconds=costs.training_start if piece.trains else costs.command_start,
        resize_seconds=max((costs.grow + costs.shrink) / 2, 0.0) if piece.trains else None,
        stop_seconds=costs.training_stop if piece.trains else costs.command_stop,
    )


def asked_again(moments: Sequence[Shown], cluster: Cluster, policy: Policy) -> int:
    """At how many moments a policy decides once more what it decided when it was shown the same."""
    return sum(tuple(policy.decide(moment.view(cluster))) == moment.decisions for moment in moments)


def choices(moments: Sequence[Shown], cluster: Cluster, began: float) -> list[Choice]:
    """The decisions of a yard that changed something, on the clock of the simulator."""
    return [
        _choice(moment.view(cluster), moment.decisions, moment.now - began)
        for moment in moments
        if moment.decisions
    ]


@dataclass(frozen=True, slots=True)
class Compared:
    """Decisions of a yard beside those of the simulator."""

    live: int
    simulated: int
    #: decisions in the same order until they part for the first time
    together: int
    #: situations that both have met, and in how many of them both decided the same
    met: int
    agreed: int
    #: how the situations differed when they parted; nothing where they never did
    parted: str

    @property
    def same_inputs(self) -> bool:
        """Whether they parted although the situation was the same."""
        return self.parted == "nothing"


def compared(live: Sequence[Choice], simulated: Sequence[Choice]) -> Compared:
    together, parted = 0, ""
    for ours, theirs in zip(live, simulated, strict=False):
        if (ours.situation, ours.changes) != (theirs.situation, theirs.changes):
            parted = _difference(ours, theirs)
            break
        together += 1
    theirs_by = {one.situation: one.changes for one in simulated}
    met = [one for one in live if one.situation in theirs_by]
    agreed = sum(theirs_by[one.situation] == one.changes for one in met)
    return Compared(len(live), len(simulated), together, len(met), agreed, parted)


def _difference(live: Choice, simulated: Choice) -> str:
    """What one situation has that the other has not."""
    mine, yours = dict(live.situation), dict(simulated.situation)
    words = [f"job {name} is there for real only" for name in mine.keys() - yours.keys()]
    words += [f"job {name} is there in the simulator only" for name in yours.keys() - mine.keys()]
    words += [
        f"job {name} has {mine[name]} devices for real and {yours[name]} in the simulator"
        for name in mine.keys() & yours.keys()
        if mine[name] != yours[name]
    ]
    if not words:
        words = [
            f"job {name} has had {live.served[name]:.2f} device-seconds for real and "
            f"{simulated.served[name]:.2f} in the simulator"
            for name in mine
            if abs(live.served[name] - simulated.served[name]) > UNNOTICED_SECONDS
        ][:1]
    return "; ".join(sorted(words)) or "nothing"


def _choice(view: View, decisions: Sequence[Decision], at: float) -> Choice:
    jobs = view.jobs
    served = {jobs.card(row).id: float(jobs.service[row]) for row in range(len(jobs))}
    return Choice(at, _situation(view), _changes(decisions), served)


def _situation(view: View) -> Situation:
    jobs = view.jobs
    return tuple(sorted((jobs.card(at).id, int(jobs.held[at])) for at in range(len(jobs))))


def _changes(decisions: Sequence[Decision]) -> Changes:
    given = ((one.job, one.allocation.devices if one.allocation else 0) for one in decisions)
    return tuple(sorted(given))
