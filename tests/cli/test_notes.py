"""Options that do not do what somebody may have hoped are told as notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelyard.cli.choice import without_option
from modelyard.cli.notes import strategy_note, tenant_notes, unused_files
from modelyard.schedule.view import TenantView
from modelyard.spec.cluster import uniform_cluster


def about(*tenants: TenantView, in_trace: tuple[str, ...]) -> list[str]:
    named = {tenant.name: tenant for tenant in tenants}
    return list(tenant_notes(named, in_trace, uniform_cluster(2, 8)))


def test_guarantees_beyond_the_cluster_are_told_with_numbers() -> None:
    red, blue = TenantView("red", guaranteed=12), TenantView("blue", guaranteed=6)
    (note,) = about(red, blue, in_trace=("red", "blue"))
    assert "18 devices (red 12, blue 6), but 2x8 has 16" in note
    assert about(red, in_trace=("red",)) == []


def test_a_tenant_without_a_job_is_told_with_the_nearest_name() -> None:
    research, interns = TenantView("reserch"), TenantView("interns")
    (note,) = about(research, interns, in_trace=("research", "interns"))
    assert note == "no job of the trace names the tenant 'reserch' (did you mean 'research'?)"


def test_names_that_are_described_are_not_suggested() -> None:
    (note,) = about(TenantView("team-a"), TenantView("team-b"), in_trace=("team-a",))
    assert note == "no job of the trace names the tenant 'team-b'"


def test_a_strategy_is_told_where_it_changes_nothing() -> None:
    without = without_option(("fifo:strategy=spread", "pollux", "no-such-policy"), "strategy")
    assert without == ("pollux",)
    assert "pollux" in strategy_note("spread", without)[0]
    assert strategy_note(None, without) == strategy_note("spread", ()) == ()


@pytest.mark.parametrize(
    ("format", "given", "unused"),
    [
        (None, ["profiles", "tables"], {"profiles", "tables"}),
        ("gavel", ["profiles", "tables"], {"profiles"}),
        ("pollux", ["profiles"], set()),
        ("philly", [], set()),
    ],
)
def test_files_for_another_format_are_told(
    tmp_path: Path, format: str | None, given: list[str], unused: set[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submitted,devices,duration\na,0,1,60\n")
    notes = unused_files(trace, format, given)
    assert set(notes) == unused
    assert all(f"--{option} is not used" in note for option, note in notes.items())
