"""Why jobs wait: every waiting job has a reason, and every reason is true."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelyard.schedule import causes
from modelyard.schedule.after import view_after
from modelyard.schedule.explain import Explanation, Ordered, explain
from modelyard.schedule.jobs import JobCard
from modelyard.schedule.placement import Strategy, place
from modelyard.schedule.reasons import HOPELESS, Cause, Reason, holds
from modelyard.schedule.registry import policies, policy
from modelyard.schedule.view import Decision, Policy, TenantView, View
from modelyard.simulate.engine import simulate
from modelyard.simulate.scenario import Scenario
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import Cluster, Node, uniform_cluster
from modelyard.speed.fixed import FixedSpeed, FixedWork

from .worlds import card, trace_jobs, view_of, views

NAMES = tuple(name for name, entry in policies().items() if entry.package == "modelyard")
VARIANTS = ("fifo:strategy=strict", "srtf:strategy=strict", "srsf:repack=true")

quick = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
every_policy = pytest.mark.parametrize("name", NAMES + VARIANTS)


# -- properties of every policy -----------------------------------------------------------


def most_of_one_kind(view: View, job: JobCard, per_node: np.ndarray) -> int:
    """Recounted node by node, on purpose not with the code under test."""
    sums: dict[str, int] = {}
    for node, count in zip(view.cluster.nodes, per_node.tolist(), strict=True):
        if not job.kinds or node.kind in job.kinds:
            sums[node.kind] = sums.get(node.kind, 0) + count
    return max(sums.values(), default=0)


@every_policy
@quick
@given(view=views())
def test_every_waiting_job_has_reasons_and_all_are_true(name: str, view: View) -> None:
    chosen = policy(name)
    later = view_after(view, chosen.decide(view))
    found = explain(view, chosen)
    waiting = {job.id for job in later.jobs if not job.running}
    assert set(found) == waiting
    for explanation in found.values():
        assert explanation.causes, f"{explanation.job} waits without a reason"
        for cause in explanation.causes:
            assert cause.job == explanation.job
            assert holds(cause, later), f"{cause!r} is not true"
        start = explanation.predicted_start
        assert start is None or view.now <= start < math.inf
        if HOPELESS.intersection(explanation.reasons):
            assert start is None
        assert explanation.sentence().startswith(f"Job {explanation.job} has waited ")


@every_policy
@quick
@given(view=views())
def test_larger_than_cluster_is_said_exactly_when_it_is_so(name: str, view: View) -> None:
    chosen = policy(name)
    for job, explanation in explain(view, chosen).items():
        at = view.jobs.find(job)
        assert at is not None
        asked = view.jobs.card(at)
        needs = asked.min_devices if chosen.traits.elastic else asked.devices
        largest = most_of_one_kind(view, asked, view.cluster.capacity)
        # With none of its kinds in the cluster, that is what is said.
        expected = needs > largest > 0
        assert (Reason.LARGER_THAN_CLUSTER in explanation.reasons) == expected
        assert (Reason.KIND_ABSENT in explanation.reasons) == (largest == 0)


@every_policy
@settings(quick, max_examples=10)
@given(view=views())
def test_explaining_changes_nothing_and_repeats_itself(name: str, view: View) -> None:
    before = [(job.allocation, job.since, job.service) for job in view.jobs]
    free = view.free.copy()
    assert explain(view, policy(name)) == explain(view, policy(name))
    assert before == [(job.allocation, job.since, job.service) for job in view.jobs]
    assert (view.free == free).all()


@pytest.mark.parametrize("name", NAMES)
@settings(quick, max_examples=15)
@given(view=views())
def test_reasons_agree_with_a_second_count(name: str, view: View) -> None:
    chosen = policy(name)
    later = view_after(view, chosen.decide(view))
    for job, explanation in explain(view, chosen).items():
        at = later.jobs.find(job)
        assert at is not None
        asked = later.jobs.card(at)
        for cause in explanation.causes:
            recount(cause, view, later, asked)


def recount(cause: Cause, before: View, later: View, asked: JobCard) -> None:
    free = most_of_one_kind(later, asked, later.free)
    at = before.jobs.find(asked.id)
    assert at is not None
    match cause:
        case causes.NotEnoughFree() | causes.KindBusy():
            assert free == cause.free < cause.needs
        case causes.Fragmented():
            assert free >= cause.needs
        case causes.TenantAtLimit():
            held = sum(
                job.allocation.devices
                for job in later.jobs
                if job.allocation is not None and job.card.tenant == asked.tenant
            )
            assert held == cause.used
            assert held + cause.needs > cause.limit
        case causes.NodesOut():
            out = later.cluster.capacity - later.available
            assert 0 < cause.out <= out.sum()
        case causes.Preempted():
            assert before.jobs.running[at]
            assert not later.jobs.running[at]
        case causes.Interrupted():
            assert not before.jobs.running[at]
            assert before.jobs.run_seconds[at] == cause.run_seconds
        case causes.HeldInOrder():
            assert place(later.cluster, later.free, cause.needs, kinds=asked.kinds) is not None
        case causes.BehindOthers():
            assert asked.id not in cause.ahead
            assert len(cause.ahead) == cause.jobs
        case _:
            pass


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(policy(name), Ordered)])
@quick
@given(view=views())
def test_those_ahead_are_those_the_policy_serves_first(name: str, view: View) -> None:
    chosen = policy(name)
    assert isinstance(chosen, Ordered)
    order = [view.jobs.card(int(at)).id for at in chosen.order(view)]
    later = view_after(view, chosen.decide(view))
    running = {job.id for job in later.jobs if job.running}
    for explanation in explain(view, chosen).values():
        for cause in explanation.causes:
            if isinstance(cause, causes.BehindOthers):
                first = set(order[: order.index(cause.job)])
                if not chosen.rules.preempt:
                    first |= running
                assert set(cause.ahead) == first


@pytest.mark.parametrize("name", ["fifo", "fifo-backfill", "sjf"])
@settings(quick, max_examples=40)
@given(data=st.data())
def test_without_arrivals_or_preemption_starts_are_predicted_exactly(
    name: str, data: st.DataObject
) -> None:
    """The projection against the simulator, where its assumptions hold."""
    cluster = uniform_cluster(data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 4])))
    drawn = data.draw(trace_jobs(cluster, {}))
    # Distinct lengths: of two jobs that end together, the simulator handles one first.
    jobs = tuple(
        replace(
            job,
            submitted=0.0,
            work=FixedWork(100.0 + 7 * index * index, job.devices),
            min_devices=job.devices,
            max_devices=job.devices,
            kinds=(),
        )
        for index, job in enumerate(drawn)
    )
    scenario = Scenario(Workload("at once", jobs), cluster, restart_seconds=0.0)
    started = {job.id: job.started for job in simulate(scenario, policy(name)).jobs}
    cards = [card(job.id, job.devices, priority=job.priority, tenant=job.tenant) for job in jobs]
    view = view_of(cluster, cards, seconds_of={job.id: _seconds(job) for job in jobs})
    for job, explanation in explain(view, policy(name)).items():
        assert explanation.predicted_start == pytest.approx(started[job], abs=1e-3)


# -- the state after decisions ------------------------------------------------------------


@every_policy
@quick
@given(view=views())
def test_the_view_after_a_decision_adds_up(name: str, view: View) -> None:
    decisions = policy(name).decide(view)
    later = view_after(view, decisions)
    held = np.zeros_like(later.free)
    for job in later.jobs:
        if job.allocation is not None:
            for node, count in job.allocation.parts:
                held[node] += count
    assert (later.free == later.available - held).all()
    chosen = {decision.job: decision.allocation for decision in decisions}
    for before, after in zip(view.jobs, later.jobs, strict=True):
        assert after.id == before.id
        assert after.allocation == chosen.get(before.id, before.allocation)
        assert after.service == pytest.approx(before.service)
        assert after.run_seconds == pytest.approx(before.run_seconds)
        assert after.running <= (after.first_start < math.inf)


def test_a_rider_owns_the_devices_that_its_host_leaves() -> None:
    cluster = uniform_cluster(1, 2)
    view = view_of(cluster, [card("host", 2), card("rider", 2)], running={"host": ((0, 2),)})
    riding = view_after(view, [Decision("rider", Allocation(((0, 2),), host="host"))])
    assert riding.free.tolist() == [0]
    alone = view_after(riding, [Decision("host", None)])
    assert [job.allocation for job in alone.jobs] == [None, Allocation(((0, 2),))]
    assert alone.free.tolist() == [0]


def test_a_start_a_stop_and_a_move_are_dated() -> None:
    cluster = uniform_cluster(3, 2)
    jobs = [card("new", 2, submitted=1.0), card("moved", 2), card("stopped", 2)]
    running = {"moved": ((0, 2),), "stopped": ((1, 2),)}
    view = view_of(cluster, jobs, running=running, now=50.0)
    later = view_after(
        view,
        [
            Decision("new", Allocation(((1, 2),))),
            Decision("moved", Allocation(((2, 2),))),
            Decision("stopped", None),
        ],
    )
    assert later.jobs.since.tolist() == [50.0, 50.0, 50.0]
    assert later.jobs.first_start.tolist() == [50.0, 0.0, 0.0]
    assert later.jobs.restarts.tolist() == [0, 1, 0]
    assert later.jobs.run_seconds.tolist() == [0.0, 50.0, 50.0]


# -- each reason, by hand -----------------------------------------------------------------

FOUR = uniform_cluster(2, 2)
MIXED = Cluster((Node("a", "v100", 2), Node("b", "t4", 4)))


def why(view: View, job: str, name: str = "fifo-backfill") -> Explanation:
    return explain(view, policy(name))[job]


def test_not_enough_free_behind_another() -> None:
    view = view_of(
        FOUR,
        [card("first", 3), card("second", 2, submitted=5.0)],
        running={"first": ((0, 2), (1, 1))},
        now=65.0,
        seconds=1000.0,
    )
    found = why(view, "second")
    assert found.causes[0] == causes.NotEnoughFree("second", needs=2, free=1, more=1)
    assert found.causes[1] == causes.BehindOthers("second", 1, 3, 0, ("first", "second"))
    # The job has run none of its 1000 s as far as its progress knows.
    assert found.predicted_start == 1065.0
    assert found.sentence() == (
        "Job second has waited 1m: it needs 2 devices of one kind, and 1 is free; 1 job (first) "
        "ahead of it, holding 3 devices. To start it: 1 more device must become free. "
        "It should start in about 16m40s, if nothing else changes."
    )


def test_larger_than_the_cluster() -> None:
    found = why(view_of(MIXED, [card("huge", 5)]), "huge")
    # Six devices, but four of one kind: a gang does not mix kinds.
    assert found.causes == (causes.LargerThanCluster("huge", needs=5, largest=4),)
    assert found.predicted_start is None
    assert found.unblocked_by == ("ask for at most 4, or add 1 device",)
    assert found.sentence().endswith("It cannot start until that changes.")


def test_a_kind_that_is_absent_and_one_that_is_busy() -> None:
    jobs = [
        card("user", 2, kinds=("v100",)),
        card("alien", 1, kinds=("h100",)),
        card("picky", 2, kinds=("v100", "h100")),
    ]
    view = view_of(MIXED, jobs, running={"user": ((0, 2),)})
    assert why(view, "alien").causes == (causes.KindAbsent("alien", ("h100",), ("v100", "t4")),)
    busy = why(view, "picky").causes[0]
    assert busy == causes.KindBusy("picky", 2, ("v100",), free=0, idle_kind="t4", idle=4, more=2)
    assert "allow t4, of which 4 are free" in busy.remedy()


def test_a_tenant_at_its_limit_and_one_below_its_job() -> None:
    limits = {"red": TenantView("red", maximum=2)}
    jobs = [card("a", 1, tenant="red"), card("b", 2, tenant="red"), card("c", 3, tenant="red")]
    view = view_of(FOUR, jobs, running={"a": ((0, 1),)}, limits=limits)
    assert why(view, "b").causes[0] == causes.TenantAtLimit("b", "red", 2, used=1, limit=2)
    assert why(view, "b").unblocked_by == ("1 device of tenant red must be given back",)
    assert why(view, "b").predicted_start == 100.0
    assert why(view, "c").causes == (causes.LargerThanLimit("c", "red", 3, limit=2),)


def test_fragmented_and_unplaceable_under_a_strict_placement() -> None:
    jobs = [card("x", 1), card("y", 1), card("pair", 2, submitted=1.0), card("odd", 8)]
    view = view_of(FOUR, jobs[:3], running={"x": ((0, 1),), "y": ((1, 1),)})
    found = why(view, "pair", "fifo-backfill:strategy=strict")
    assert found.causes[0] == causes.Fragmented("pair", 2, 2, Strategy.STRICT)
    uneven = Cluster((Node("a", "v100", 4), Node("b", "v100", 2), Node("c", "v100", 2)))
    found = why(view_of(uneven, jobs[3:]), "odd", "fifo:strategy=strict")
    assert found.causes == (causes.Unplaceable("odd", 8, Strategy.STRICT),)


def test_nodes_out_of_service() -> None:
    view = view_of(FOUR, [card("wide", 3)], out=[1])
    found = why(view, "wide")
    assert found.causes == (
        causes.NotEnoughFree("wide", 3, 2, more=1),
        causes.NodesOut("wide", needs=3, out=2, in_service=2),
    )
    assert found.predicted_start is None
    assert found.sentence().endswith("Nobody can say when that will be.")


def test_held_in_order() -> None:
    jobs = [card("runs", 2), card("wide", 4, submitted=1.0), card("small", 1, submitted=2.0)]
    view = view_of(FOUR, jobs, running={"runs": ((0, 2),)}, now=2.0)
    found = why(view, "small", "fifo")
    assert found.causes[0] == causes.HeldInOrder("small", 1, "wide", Strategy.CONSOLIDATED, 3)
    # 100 s of the one that runs, then 100 s of the one ahead.
    assert why(view, "wide", "fifo").predicted_start == 102.0
    assert found.predicted_start == 202.0
    assert "small" not in explain(view, policy("fifo-backfill"))


def test_preempted_now_and_interrupted_before() -> None:
    jobs = [card("long", 4), card("urgent", 2, submitted=30.0, priority=1)]
    view = view_of(FOUR, jobs, running={"long": ((0, 2), (1, 2))}, now=30.0)
    stopped = why(view, "long", "srtf")
    assert causes.Preempted("long", 30.0, ("urgent",)) in stopped.causes
    assert "it was stopped now, as 1 job (urgent) got devices" in stopped.sentence()
    later = replace(view_after(view, policy("srtf").decide(view)), now=40.0)
    later.jobs.now = 40.0
    again = why(later, "long", "srtf")
    assert causes.Interrupted("long", at=30.0, run_seconds=30.0) in again.causes


class Hoarder:
    """Gives everything to the first job and has no order to tell of."""

    name = "hoarder"
    traits = replace(policy("fifo").traits, elastic=True)

    def decide(self, view: View) -> list[Decision]:
        return [Decision(view.jobs.card(0).id, Allocation(((0, 2), (1, 1))))]

    def next_change(self, view: View) -> float:
        return math.inf


def test_not_chosen_by_a_policy_without_an_order() -> None:
    hoarder: Policy = Hoarder()
    view = view_of(FOUR, [card("a", 1, max_devices=4), card("b", 1)], round_seconds=60.0)
    found = explain(view, hoarder)["b"]
    assert found.causes == (causes.NotChosen("b", needs=1, free=1, above_minimum=2, running=1),)
    assert found.predicted_start == 60.0, "the next round is the first chance"


# -- remedies: whoever does what they say starts the job ----------------------------------


def more_devices(explanation: Explanation) -> int | None:
    """The number that the remedy names; None when it names none."""
    for cause in explanation.causes:
        if isinstance(cause, causes.NotEnoughFree | causes.HeldInOrder):
            return cause.more
    return None


@pytest.mark.parametrize(
    "name", ["fifo", "fifo-backfill", "srtf", "sjf", "srsf", "srsf:repack=true"]
)
@settings(quick, max_examples=40)
@given(data=st.data())
def test_so_many_more_devices_start_the_job(name: str, data: st.DataObject) -> None:
    nodes, size = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 4]))
    cluster, chosen = uniform_cluster(nodes, size), policy(name)
    asked = data.draw(st.lists(st.integers(1, cluster.devices), min_size=1, max_size=8))
    ranks = data.draw(st.lists(st.integers(0, 1), min_size=len(asked), max_size=len(asked)))
    jobs = [
        card(f"j{index}", devices, submitted=float(index), priority=rank)
        for index, (devices, rank) in enumerate(zip(asked, ranks, strict=True))
    ]
    lengths = {job.id: float(data.draw(st.integers(1, 500))) for job in jobs}
    view = view_of(cluster, jobs, seconds_of=lengths, now=10.0)
    later = view_after(view, chosen.decide(view))
    held = {job.id for job in later.jobs if job.running}
    for job, explanation in explain(view, chosen).items():
        more = more_devices(explanation)
        assert more is not None
        assert more > 0
        larger = Cluster((*cluster.nodes, Node("granted", cluster.kinds[0], more)))
        granted = replace(
            later,
            cluster=larger,
            available=np.append(later.available, more),
            free=np.append(later.free, more),
        )
        after = view_after(granted, chosen.decide(granted))
        running = {entry.id for entry in after.jobs if entry.running}
        assert job in running
        for cause in explanation.causes:
            if isinstance(cause, causes.BehindOthers) and cause.first is not None:
                assert set(cause.first.names) <= running - held


@pytest.mark.parametrize("name", ["fifo", "fifo:strategy=strict"])
@quick
@given(view=views(possible=True))
def test_a_number_of_devices_is_never_offered_past_those_who_take_them(
    name: str, view: View
) -> None:
    """With several kinds or limits too, where the sum over all who wait is not known."""
    chosen = policy(name)
    for explanation in explain(view, chosen).values():
        behind = [c for c in explanation.causes if isinstance(c, causes.BehindOthers)]
        if behind and behind[0].asked:
            assert behind[0].first is not None
            assert behind[0].first.devices == behind[0].asked


EIGHTS = uniform_cluster(3, 8)


def test_the_demand_of_those_who_wait_ahead_is_counted() -> None:
    jobs = [
        card("runs", 19),
        card("finetune", 6, submitted=1.0),
        card("own", 8, submitted=2.0),
    ]
    view = view_of(EIGHTS, jobs, running={"runs": ((0, 8), (1, 8), (2, 3))}, now=2.0)
    assert why(view, "finetune", "fifo").unblocked_by == ("1 more device must become free",)
    assert why(view, "own", "fifo").unblocked_by == (
        "9 more devices must become free",
        "job finetune ahead of it takes 6 first",
    )


def test_a_job_that_can_pass_needs_only_its_own_share() -> None:
    jobs = [card("runs", 19), card("wide", 24, submitted=1.0), card("own", 8, submitted=2.0)]
    view = view_of(EIGHTS, jobs, running={"runs": ((0, 8), (1, 8), (2, 3))}, now=2.0)
    assert why(view, "own", "fifo-backfill").unblocked_by == ("3 more devices must become free",)


def test_a_higher_priority_ahead_is_named() -> None:
    jobs = [
        card("runs", 19),
        card("own", 8, submitted=1.0),
        card("urgent", 6, submitted=2.0, priority=1),
    ]
    view = view_of(EIGHTS, jobs, running={"runs": ((0, 8), (1, 8), (2, 3))}, now=2.0)
    found = why(view, "own", "fifo")
    assert "2 jobs (runs, urgent) ahead of it (1 of higher priority), holding" in found.sentence()
    assert found.unblocked_by[1] == "job urgent (higher priority) ahead of it takes 6 first"


def test_a_job_that_never_fits_holds_nobody_up() -> None:
    jobs = [card("runs", 19), card("huge", 99), card("own", 8, submitted=2.0)]
    view = view_of(EIGHTS, jobs, running={"runs": ((0, 8), (1, 8), (2, 3))}, now=2.0)
    assert why(view, "own", "fifo").unblocked_by == ("3 more devices must become free",)


def test_with_several_kinds_those_ahead_are_named_without_a_sum() -> None:
    jobs = [card("runs", 4), card("ahead", 3, submitted=1.0), card("own", 4, submitted=2.0)]
    view = view_of(MIXED, jobs, running={"runs": ((1, 4),)}, now=2.0)
    assert why(view, "own", "fifo").unblocked_by == (
        "4 devices of one kind must be free for it",
        "job ahead ahead of it takes 3 first",
    )
    assert why(view, "own", "srtf").unblocked_by[-1] == "job ahead ahead of it may take 3 first"


def test_nobody_was_chosen_when_nobody_else_wants_devices() -> None:
    jobs = [card("runs", 11), card("own", 16, submitted=1.0)]
    view = view_of(EIGHTS, jobs, running={"runs": ((0, 8), (1, 3))}, now=2.0)
    found = why(view, "own", "yarn")
    assert found.causes == (causes.NotEnoughFree("own", 16, 13, more=3),)
    assert found.unblocked_by == ("3 more devices must become free",)


def test_devices_alone_are_not_said_to_move_a_policy_that_weighs() -> None:
    jobs = [
        card("runs", 19),
        card("finetune", 6, submitted=1.0),
        card("own", 8, submitted=2.0),
    ]
    view = view_of(EIGHTS, jobs, running={"runs": ((0, 8), (1, 8), (2, 3))}, now=2.0)
    found = why(view, "own", "yarn")
    assert found.unblocked_by == (
        "8 devices of one kind must be free for it",
        "the policy must value its start above what others do with the devices "
        "(9 more devices would be enough for all who wait)",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        causes.NotEnoughFree("b", needs=2, free=1),
        causes.NotEnoughFree("b", needs=3, free=0),
        causes.NotEnoughFree("a", needs=4, free=0),
        causes.NotEnoughFree("nobody", needs=2, free=0),
        causes.LargerThanCluster("b", needs=2, largest=1),
        causes.KindAbsent("b", (), ("generic",)),
        causes.LargerThanLimit("b", "default", 2, limit=1),
        causes.TenantAtLimit("b", "default", 2, used=4, limit=5),
        causes.Unplaceable("b", 2, Strategy.STRICT),
        causes.Fragmented("b", 2, 0, Strategy.STRICT),
        causes.KindBusy("b", 2, ("generic",), 0, "t4", 4),
        causes.NodesOut("b", 2, out=1, in_service=4),
        causes.Preempted("b", at=0.0, gainers=("a",)),
        causes.Interrupted("b", at=0.0, run_seconds=1.0),
        causes.HeldInOrder("b", 2, "a", Strategy.CONSOLIDATED),
        causes.BehindOthers("b", 1, 3, 0, ("a", "b")),
        causes.BehindOthers("b", 1, 4, 0, ("gone", "b")),
        causes.BehindOthers("b", 2, 4, 0, ("a", "b")),
        causes.NotChosen("b", 2, free=0, above_minimum=1, running=1),
        causes.NotChosen("b", 2, free=0, above_minimum=0, running=2),
        causes.BehindOthers("b", 1, 4, 0, ("a", "b"), outranking=1),
    ],
    ids=lambda cause: f"{cause.reason.value}:{cause.job}",
)
def test_a_false_cause_does_not_hold(wrong: Cause) -> None:
    view = view_of(FOUR, [card("a", 4), card("b", 2)], running={"a": ((0, 2), (1, 2))})
    assert holds(causes.NotEnoughFree("b", needs=2, free=0), view)
    assert not holds(wrong, view)


def test_every_reason_has_one_cause_and_words() -> None:
    made = {
        member.reason
        for member in vars(causes).values()
        if isinstance(member, type) and hasattr(member, "reason")
    }
    assert made == set(Reason)


def test_many_names_are_cut_short() -> None:
    names = tuple(f"j{index}" for index in range(6))
    text = str(causes.BehindOthers("j5", 5, 2, 4, names))
    assert text == (
        "5 jobs (j0, j1, j2, …) ahead of it, holding 2 devices and waiting for 4 devices"
    )


# -- what nobody knows --------------------------------------------------------------------


def test_unknown_lengths_are_guessed_from_what_has_run() -> None:
    class Unknown:
        fraction = 0.0
        belief = FixedSpeed(4)

        def remaining(self, at: object) -> float:
            return math.nan

    view = view_of(FOUR, [card("a", 4), card("b", 4)], running={"a": ((0, 2), (1, 2))}, now=250.0)
    view = view_after(view, [])
    view.jobs._book.knowledge[:] = [Unknown(), Unknown()]  # type: ignore[list-item]
    assert why(view, "b").predicted_start == 500.0, "as long again as it has run"


def _seconds(job: TraceJob) -> float:
    assert isinstance(job.work, FixedWork)
    return job.work.seconds
