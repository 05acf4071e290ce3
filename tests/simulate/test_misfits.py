"""A job that never fits is told with its reason, and the way out fits the reason."""

from __future__ import annotations

import pytest

from modelyard.errors import CapacityError
from modelyard.schedule.view import TenantView
from modelyard.simulate.misfits import Cause, left_out_note, misfits, way_out
from modelyard.simulate.workload import TraceJob, Workload
from modelyard.spec.shorthand import load_cluster
from modelyard.speed.fixed import FixedWork

FOUR_A100_NODES = load_cluster("4x4xA100")
OLD_KINDS = ("K80", "P100", "V100")


def job(name: str, devices: int, *, tenant: str = "red", kinds: tuple[str, ...] = ()) -> TraceJob:
    work = FixedWork(60.0, devices)
    return TraceJob(name, 0.0, devices, work, tenant=tenant, kinds=kinds)


def refusal(*jobs: TraceJob, limit: int | None = None, strict: bool = False, of: int = 0) -> str:
    tenants = {"red": TenantView("red", maximum=limit)}
    found = misfits(Workload("w", jobs), FOUR_A100_NODES, tenants)
    with pytest.raises(CapacityError) as caught:
        left_out_note(found, of or len(jobs), FOUR_A100_NODES, strict=strict)
    return str(caught.value)


def test_other_kinds_of_devices_are_the_fix_for_kinds() -> None:
    message = refusal(job("a", 1, kinds=OLD_KINDS), job("b", 2, kinds=OLD_KINDS))
    assert "a (needs K80 or P100 or V100)" in message
    assert message.endswith("Fix: use a cluster with K80, P100 or V100")


def test_more_devices_are_the_fix_for_size() -> None:
    message = refusal(job("a", 17), job("b", 32))
    assert message.endswith("Fix: use a cluster with at least 32 devices of one kind")


def test_a_higher_maximum_is_the_fix_for_a_limit() -> None:
    message = refusal(job("a", 6), job("b", 8), limit=4)
    assert "a (6 devices, red may hold 4)" in message
    assert message.endswith("Fix: raise the 'maximum' of red to 8 in the tenants file")


def test_several_causes_have_a_fix_each() -> None:
    jobs = (job("a", 1, kinds=OLD_KINDS), job("b", 99), job("c", 8))
    found = misfits(Workload("w", jobs), FOUR_A100_NODES, {"red": TenantView("red", maximum=4)})
    assert [item.cause for item in found.values()] == [Cause.KIND, Cause.SIZE, Cause.LIMIT]
    assert way_out(found.values()).count(";") == 2


def test_strict_offers_to_skip_the_jobs() -> None:
    message = refusal(job("a", 99), of=2, strict=True)
    assert message.startswith("1 job can never run on")
    assert message.endswith("; or leave out --strict to skip it")


def test_jobs_that_fit_are_no_misfits() -> None:
    jobs = Workload("w", (job("a", 16, kinds=("A100",)), job("b", 1, tenant="blue")))
    found = misfits(jobs, FOUR_A100_NODES, {"red": TenantView("red", maximum=16)})
    assert found == {}
    assert left_out_note(found, 2, FOUR_A100_NODES, strict=True) == ()
