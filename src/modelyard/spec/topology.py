"""A table of hosts and the switches above them → a cluster.

    ip,DSW,PSW,ASW
    0c9d…,G6,P10,S14

The first column names the host, the others are layers of switches from the outermost inwards. The
names of alibaba-lingjun-dataset-2023 are numbers within the switch above: `S14` is there below
`P8`, `P10` and `P12`, with at most eight hosts each. A switch is therefore told by its whole path.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from modelyard.errors import InputError, Problem, cause_of, one_of
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.devices import device
from modelyard.spec.fat_tree import UNKNOWN_LINKS, Links
from modelyard.spec.shorthand import GENERIC, MOST_DEVICES_PER_NODE, MOST_NODES

#: what the first column may be called, so that a table without a header does not lose a host
HOST_COLUMNS = ("ip", "host", "hostname", "node", "name")
#: what a host of a language-model cluster has unless somebody says otherwise
DEVICES_PER_HOST = 8
#: more than a screenful helps nobody: past this the rest is counted
MOST_PROBLEMS_TOLD = 20
#: a host has one row per uplink, and no host has more than eight
MOST_ROWS = 8 * MOST_NODES

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Host:
    name: str
    #: of its first row
    line: int
    #: one per row: a host with several uplinks has several
    paths: tuple[_Path, ...]


def read_topology(
    path: str | os.PathLike[str],
    *,
    devices: int = DEVICES_PER_HOST,
    kind: str = GENERIC,
    links: Links = UNKNOWN_LINKS,
) -> Cluster:
    """The cluster of a CSV file, or one `InputError` with all of its problems.

    A host with several rows (one per uplink, as in networks with a switch per rail) stands below
    all of their switches at once: hosts with the same set of switches are neighbours. Sets that
    overlap in part are no tree and are refused. A switch passes up what its layer's widest switch
    could, since hosts that are missing from a table do not make their rack's uplinks thinner.
    """
    if not 1 <= devices <= MOST_DEVICES_PER_NODE:
        fix = f"use 1 to {MOST_DEVICES_PER_NODE:,} devices per node"
        raise InputError(f"{devices} devices per host", fix=fix)
    kind = device(kind).name
    source = os.fspath(path)
    hosts, problems = _hosts(_lines(source))
    paths = _tree_paths(hosts, problems)
    if problems:
        raise _refused(source, problems)
    nodes = tuple(
        Node(name, kind, devices, path, links.inside_node, links.across_nodes)
        for name, path in paths.items()
    )
    return Cluster(
        nodes,
        name=os.path.basename(source).removesuffix(".csv")
        + (f":{devices}" if devices != DEVICES_PER_HOST else "")
        + links.written(),
        level_bandwidth=links.above(_widths(paths.values())),
    )


def _lines(source: str) -> list[str]:
    try:
        with open(source, encoding="utf-8-sig") as stream:
            lines = stream.read().splitlines()
    except FileNotFoundError as error:
        raise InputError("no such file", fix="check the path", where=source) from error
    except UnicodeDecodeError as error:
        fix = "save the table as UTF-8 text"
        raise InputError("this is not text", fix=fix, where=source) from error
    except OSError as error:
        what = f"the file cannot be read: {cause_of(error)}"
        raise InputError(what, fix="check the path and its permissions", where=source) from error
    if len(lines) > MOST_ROWS:
        what = f"{len(lines):,} lines are more than any network has"
        raise InputError(what, fix="check that this is the table of hosts", where=source)
    return lines


def _hosts(lines: list[str]) -> tuple[list[_Host], list[Problem]]:
    """The hosts in order of their first rows; problems carry their line and no file yet."""
    header = [cell.strip() for cell in _cells(lines[0])] if lines else []
    problems = list(_header_problems(header))
    if problems:
        return [], problems
    first: dict[str, int] = {}
    rows: dict[str, dict[_Path, int]] = {}
    for line, text in enumerate(lines[1:], start=2):
        if not text.strip():
            continue
        cells = [cell.strip() for cell in _cells(text)]
        if len(cells) != len(header):
            what = f"{len(cells)} columns where the header has {len(header)}"
            problems.append(Problem(what, f"write {','.join(header)}", line=line))
            continue
        missing = [name for name, cell in zip(header, cells, strict=True) if not cell]
        if missing:
            what = f"nothing is written for {' and '.join(missing)}"
            problems.append(Problem(what, "fill it in or remove the line", line=line))
            continue
        host, path = cells[0], tuple(cells[1:])
        first.setdefault(host, line)
        before = rows.setdefault(host, {}).setdefault(path, line)
        if before != line:
            problems.append(Problem(f"repeats line {before}", "remove one of the two", line=line))
    if not rows and not problems:
        problems.append(Problem("the table has no hosts", "write one row per host", line=1))
    if len(rows) > MOST_NODES:
        what = f"{len(rows):,} hosts are more than {MOST_NODES:,}"
        problems.append(Problem(what, "check that the first column names hosts", line=1))
    return [_Host(name, first[name], tuple(paths)) for name, paths in rows.items()], problems


def _cells(text: str) -> list[str]:
    """The cells of a line; a line that is no table, such as one of a million letters, has none."""
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return []


def _header_problems(header: list[str]) -> Iterator[Problem]:
    if not header or header[0].lower() not in HOST_COLUMNS:
        found = f"'{header[0]}'" if header and header[0] else "nothing"
        what = f"the header begins with {found}, not with a column of hosts"
        fix = f"begin with {one_of(HOST_COLUMNS)}, then layers of switches, outermost first"
        yield Problem(what, fix, line=1)
        return
    if len(header) < 2:
        yield Problem(
            "the header names no layer of switches", "write for example ip,pod,rack", line=1
        )
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated or not all(header):
        what = f"the header names {one_of(repeated)} twice" if repeated else "a column has no name"
        yield Problem(what, "give every column its own name", line=1)


def _tree_paths(hosts: list[_Host], problems: list[Problem]) -> dict[str, _Path]:
    """The path of each host; a host below several switches of a layer is below `a+b`."""
    paths: dict[str, _Path] = {}
    owners: dict[_Path, tuple[list[_Path], _Host]] = {}
    for host in hosts:
        # The order of whole prefixes keeps S1 of P1 with S2 of P2 apart from S2 with S1.
        layers = [
            sorted({path[:depth] for path in host.paths})
            for depth in range(1, len(host.paths[0]) + 1)
        ]
        paths[host.name] = tuple("+".join(switch[-1] for switch in layer) for layer in layers)
        problems.extend(itertools.islice(_overlaps(host, layers, owners), 1))
    return paths


def _overlaps(
    host: _Host, layers: list[list[_Path]], owners: dict[_Path, tuple[list[_Path], _Host]]
) -> Iterator[Problem]:
    """Switches that the host shares with one that has other switches beside them."""
    for layer in layers:
        for switch in layer:
            others, owner = owners.setdefault(switch, (layer, host))
            if others != layer:
                what = (
                    f"'{host.name}' shares {'/'.join(switch)} with '{owner.name}' (line "
                    f"{owner.line}), but not all switches of that layer: this is no tree"
                )
                fix = "list the same switches for both, or leave out the uplinks that differ"
                yield Problem(what, fix, line=host.line)


def _widths(paths: Iterable[_Path]) -> list[int]:
    """The most links that enter one switch of each layer from below, outermost layer first."""
    listed = list(paths)
    depth = len(listed[0])
    widths = []
    for layer in range(1, depth + 1):
        # Below the innermost layer are hosts, each with a link of its own.
        below = listed if layer == depth else list({path[: layer + 1] for path in listed})
        widths.append(max(Counter(path[:layer] for path in below).values()))
    return widths


def _refused(source: str, problems: list[Problem]) -> InputError:
    ordered = sorted(problems, key=lambda problem: problem.line)
    told = [
        Problem(item.what, item.fix, source, item.line) for item in ordered[:MOST_PROBLEMS_TOLD]
    ]
    if len(ordered) > len(told):
        fix = "correct the ones above and read the file again"
        told.append(Problem(f"and {len(ordered) - len(told):,} more", fix, source))
    what = f"{len(ordered)} problem{'s' if len(ordered) != 1 else ''} in {source}"
    return InputError(what, where=source, problems=told)
