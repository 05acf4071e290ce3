"""Policies by name and by the text that describes them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import modelyard
from modelyard.errors import InputError, UnknownName
from modelyard.schedule.explain import Ordered
from modelyard.schedule.placement import Strategy
from modelyard.schedule.registry import REQUIRED, PolicyEntry, policies, policy
from modelyard.schedule.view import View
from modelyard.spec.cluster import uniform_cluster

from .worlds import card, view_of

BUILT_IN = {
    "fifo", "fifo-backfill", "sjf", "srtf", "srsf", "las", "tiresias-las", "tiresias-gittins",
    "borg", "mesos", "yarn", "gavel", "gavel-throughput", "optimus", "pollux", "sia", "yard", "dl2",
}  # fmt: skip


def own() -> dict[str, PolicyEntry]:
    return {name: entry for name, entry in policies().items() if entry.package == "modelyard"}


def test_what_comes_with_the_package() -> None:
    assert set(own()) == BUILT_IN
    assert list(policies())[: len(BUILT_IN)] == list(own()), "our own come first"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_built_in_can_be_made(name: str) -> None:
    entry = policies()[name]
    assert entry.error is None
    made = policy(name)
    assert made.name == name
    assert made.traits.summary
    assert REQUIRED not in entry.options().values(), "a bare name is enough"


def test_importing_the_registry_loads_nothing_heavy() -> None:
    # A fresh interpreter: this one has loaded everything long ago.
    code = (
        "import sys, modelyard.schedule.registry as r; r.policies(); "
        "print([m for m in ('numpy', 'scipy', 'modelyard.schedule.view') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_env()
    )
    assert done.stdout.strip() == "[]"


def _env() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(modelyard.__file__).parents[1])}


# -- options ------------------------------------------------------------------------------


def strategy_of(text: str) -> Strategy:
    made = policy(text)
    assert isinstance(made, Ordered)
    return made.rules.strategy


def test_options_reach_the_factory() -> None:
    assert strategy_of("fifo:strategy=strict") is Strategy.STRICT
    assert strategy_of(" fifo : strategy = spread ") is Strategy.SPREAD
    assert strategy_of("fifo:topology") is Strategy.TOPOLOGY, "a bare value: the first option"
    made = policy("srtf:repack=yes:strategy=roomiest")
    assert isinstance(made, Ordered)
    assert made.rules.repack
    assert made.rules.strategy is Strategy.ROOMIEST


def test_a_variant_is_called_what_was_asked_for() -> None:
    assert policy("tiresias-las:limits=10/20").name == "tiresias-las:limits=10/20"
    assert policy("gavel-throughput").name == "gavel-throughput"


def test_tuples_and_hyphens() -> None:
    view = two_jobs()
    quick = policy("tiresias-las:limits=10/20")
    assert quick.next_change(view) == pytest.approx(view.now + 5.0), "10 of 2 × 5 s attained"
    assert policy("tiresias-las:limits=10").next_change(view) == float("inf")
    by_time = policy("tiresias-las:by-time=true:limits=30/60")
    assert by_time.next_change(view) == pytest.approx(30.0)


def two_jobs() -> View:
    return view_of(
        uniform_cluster(1, 2),
        [card("runs", 2), card("waits", 2)],
        running={"runs": ((0, 2),)},
        now=5.0,
    )


def test_numbers_from_a_file_come_through_the_reader_handed_in() -> None:
    asked: list[str] = []

    def read(path: str) -> list[float]:
        asked.append(path)
        return [float(value) for value in range(1, 41)]

    assert policies()["tiresias-gittins"].file_options == ("samples",)
    policy("tiresias-gittins:samples=/data/a=b.csv", read_numbers=read)
    policy("tiresias-gittins:/data/samples.csv", read_numbers=read)
    assert asked == ["/data/a=b.csv", "/data/samples.csv"]
    policy("tiresias-gittins:samples=100/250/4000")
    with pytest.raises(InputError, match="files cannot be read here"):
        policy("tiresias-gittins:samples=/data/samples.csv")


# -- mistakes -----------------------------------------------------------------------------


def test_an_unknown_policy_gets_the_nearest_name_or_the_list() -> None:
    with pytest.raises(UnknownName, match="did you mean 'tiresias-las'") as near:
        policy("tiresas-las")
    assert set(near.value.options) >= BUILT_IN
    with pytest.raises(UnknownName, match="unknown policy 'xyzzy'") as far:
        policy("xyzzy:limits=3")
    assert all(name in str(far.value) for name in BUILT_IN)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fifo:stratgy=strict", "no option 'stratgy'. Fix: did you mean 'strategy'"),
        ("fifo:speed=3", "the options of 'fifo' are strategy"),
        ("fifo:strategy=strict:strategy=spread", "set twice"),
        ("fifo:strategy=sideways", "'sideways' is not a valid Strategy"),
        ("srtf:repack=perhaps", "write repack=true or repack=false"),
        ("tiresias-las:limits=a/b", "such as limits=3250/7200"),
        ("tiresias-gittins:horizon=1/2", "write a number, such as horizon=3250.0"),
        ("srtf:strategy=strict:loose", "'loose' is no option"),
        ("fifo:", "'' is no option"),
    ],
)
def test_wrong_options_say_what_to_do(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        policy(text)
    assert complaint in str(error.value)


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InputError) as error:
        policy("tiresias-las:limit=3:by_time=maybe:limits=x")
    assert len(error.value.problems) == 3
    assert len(str(error.value).splitlines()) == 3


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        policy(text)


@given(st.sampled_from(sorted(BUILT_IN)), st.text(max_size=30))
def test_no_option_text_raises_anything_but_an_input_error(name: str, options: str) -> None:
    with contextlib.suppress(InputError):
        policy(f"{name}:{options}")


# -- other packages -----------------------------------------------------------------------

MODULE = """
from modelyard.schedule.fifo import fifo

def plain(*, strategy="consolidated"):
    return fifo(strategy=strategy)

def picky(weight):
    return fifo()

number = 3
"""
POINTS = """
[modelyard.policies]
mine = my_policies:plain
picky = my_policies:picky
fifo = my_policies:plain
absent = no_such_module_anywhere:policy
no-function = my_policies:number
no-name = my_policies:missing
broken = my_broken_policies:policy
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package, as importlib.metadata sees one."""
    info = tmp_path / "my_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "my_policies.py").write_text(MODULE)
    (tmp_path / "my_broken_policies.py").write_text("raise RuntimeError('half installed')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)


@pytest.mark.usefixtures("plugin")
def test_a_package_adds_policies() -> None:
    assert policies()["mine"].package == "my-policies"
    assert policy("mine:strategy=strict").name == "mine:strategy=strict"
    assert policy("my-policies/fifo").name == "my-policies/fifo"
    assert policies()["fifo"].package == "modelyard", "a package cannot change what a name means"


@pytest.mark.usefixtures("plugin")
def test_a_required_option_is_asked_for() -> None:
    assert policies()["picky"].options() == {"weight": REQUIRED}
    with pytest.raises(InputError, match=r"needs option 'weight'\. Fix: write picky:weight=…"):
        policy("picky")
    assert policy("picky:3").name == "picky:3"


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("absent", "No module named 'no_such_module_anywhere'"),
        ("broken", "half installed"),
        ("no-function", "is no function"),
        ("no-name", "missing"),
    ],
)
def test_a_broken_package_is_listed_with_its_error(name: str, complaint: str) -> None:
    error = policies()[name].error
    assert error is not None
    assert complaint in error
    with pytest.raises(InputError, match="repair or remove the package 'my-policies'"):
        policy(name)
    assert policy("mine").name == "mine", "the others work"
