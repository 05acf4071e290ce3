"""What people should know of the options they gave, once everything has been read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from modelyard.cli.output import some_of
from modelyard.errors import suggest

if TYPE_CHECKING:
    from modelyard.schedule.view import TenantView
    from modelyard.spec.cluster import Cluster

#: Options that name files for one format of traces only, with that format.
FORMAT_OF_OPTION = {"profiles": "pollux", "tables": "gavel"}


def unused_files(trace: Path, format: str | None, given: Collection[str]) -> dict[str, str]:
    """Those of the given options that the format of the trace has no use for, with a note each."""
    if not given:
        return {}
    from modelyard.simulate.readers.guess import guess_format
    from modelyard.simulate.readers.source import read_source

    found = format or guess_format(read_source(trace))
    return {
        option: f"--{option} is not used: it is for {FORMAT_OF_OPTION[option]} traces, and this "
        f"one is read as {found}"
        for option in given
        if FORMAT_OF_OPTION[option] != found
    }


def tenant_notes(
    tenants: Mapping[str, TenantView], in_trace: Collection[str], cluster: Cluster
) -> Iterator[str]:
    """Guarantees that nobody can keep, and tenants without a job."""
    promised = {name: tenant.guaranteed for name, tenant in tenants.items() if tenant.guaranteed}
    total = sum(promised.values())
    if total > cluster.devices:
        shares = some_of(f"{name} {devices:,}" for name, devices in promised.items())
        yield (
            f"the guarantees of the tenants add up to {total:,} devices ({shares}), but "
            f"{cluster.name} has {cluster.devices:,}: not all of them can be kept"
        )
    absent = [name for name in tenants if name not in in_trace]
    if absent:
        yield f"no job of the trace names {_tenants(absent, set(in_trace) - set(tenants))}"


def strategy_note(strategy: str | None, without: Collection[str]) -> tuple[str, ...]:
    """For policies to which a strategy was given and that have no such option."""
    if strategy is None or not without:
        return ()
    return (f"--strategy {strategy} changes nothing for {some_of(without)}: no such option",)


def _tenants(absent: Collection[str], undescribed: Collection[str]) -> str:
    """Each with the name in the trace that it may have been meant to be."""
    nearest = ((name, suggest(name, sorted(undescribed))) for name in absent)
    named = some_of(
        f"'{name}' (did you mean '{near}'?)" if near else f"'{name}'" for name, near in nearest
    )
    return f"the tenant{'' if len(absent) == 1 else 's'} {named}"
