"""The example files are read by the readers they are examples for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from modelyard.spec.cluster_spec import read_cluster
from modelyard.spec.job import read_job
from modelyard.spec.shorthand import load_cluster, parse_cluster_shorthand
from modelyard.spec.tenant import read_tenants

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("job*.yaml")), ids=lambda path: path.name)
def test_jobs(path: Path) -> None:
    assert read_job(path).devices.min >= 1


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("cluster*.yaml")), ids=lambda path: path.name)
def test_clusters(path: Path) -> None:
    assert read_cluster(path).compile().devices > 0


def test_mixed_cluster_has_racks_datacentres_and_a_kind_of_its_own() -> None:
    cluster = load_cluster(EXAMPLES / "cluster.yaml")
    assert cluster.kinds == ("H100", "A100", "T4", "Prototype-X1")
    assert cluster.devices == 8 * 8 + 4 * 8 + 2 * 4 + 2
    assert {node.path[0] for node in cluster.nodes} == {"north", "south"}
    assert cluster.common_depth([0, 3]) == 2
    assert cluster.common_depth([0, 4]) == 1
    assert cluster.common_depth([0, 12]) == 0


def test_pollux_cluster_is_what_its_shorthand_says() -> None:
    written = load_cluster(EXAMPLES / "cluster-16x4-t4.yaml")
    short = parse_cluster_shorthand("16x4xT4")
    assert [(n.name, n.kind, n.devices) for n in written.nodes] == [
        (n.name, n.kind, n.devices) for n in short.nodes
    ]


def test_tenants() -> None:
    tenants = read_tenants(EXAMPLES / "tenants.yaml")
    assert [tenant.name for tenant in tenants] == ["platform", "research", "interns"]


def test_commands_that_read_no_file_do_not_pay_for_pydantic_or_yaml() -> None:
    # A fresh interpreter is the only honest witness of what an import brings along.
    code = (
        "import sys, modelyard.errors, modelyard.units, modelyard.spec, modelyard.spec.devices;"
        "assert 'numpy' not in sys.modules;"
        "from modelyard.spec.shorthand import load_cluster; load_cluster('16x4xT4');"
        "assert not {'pydantic', 'yaml'} & set(sys.modules), 'a slow import crept in'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
