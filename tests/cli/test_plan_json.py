"""The documented shape of `yard plan -o json`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from modelyard.cli.plan_json import MEANING, answer_json
from modelyard.cli.plan_launch import launch_json
from modelyard.plan.answer import Answer, Interval
from modelyard.plan.launch.settings import LaunchSettings

from .answers import answer, mixed, plan, refused

#: Keys under which a plan or an interval stands, whose own keys are documented once.
PLANS = (
    *("plans[]", "front[]", "runner_up.plan", "refusal.relaxations[].plan"),
    "what_if[].plan",
)
INTERVALS = ("step_seconds", "memory_bytes", "run_seconds", "usd", "loss")
ANY_NAME = ("step_parts", "memory_parts", "pins", "files")


def places(value: object, place: str = "") -> Iterator[str]:
    """Where each key of a JSON value stands, as `MEANING` writes it."""
    if place == "plan.shares[].layout":  # as in `plan.layout`
        yield place
        return
    if place in PLANS:
        yield from () if place.endswith("[]") else (place,)
        place = "plan"
    if place.startswith("plan.") and place.removeprefix("plan.") in INTERVALS:
        yield place
        if value is None:
            return
        place = "interval"
    elif place and not place.endswith("[]") and place not in ("plan", "interval"):
        yield place
    if isinstance(value, dict):
        named = place.rpartition(".")[2] in ANY_NAME
        for key, item in value.items():
            yield from places(item, ".".join(filter(None, (place, "*" if named else key))))
    elif isinstance(value, list):
        for item in value:
            yield from places(item, f"{place}[]")


@pytest.mark.parametrize("made", [answer(), refused()], ids=["plan", "no plan"])
def test_every_key_is_documented(made: Answer) -> None:
    assert set(places(answer_json(made, top=5))) <= set(MEANING)


def test_every_documented_key_is_there() -> None:
    changes = {"devices=+8xH100": answer(), "deadline=1d": refused()}
    settings = LaunchSettings(tool="fsdp", files={"a": "b"}, command="c")
    made = {
        *places(answer_json(answer(plans=(plan(), mixed())), top=5, what_if=changes)),
        *places({"launch": launch_json(settings)}),
        *places(answer_json(refused(), top=5)),
    }
    assert set(MEANING) == made


def test_what_is_not_finite_is_null() -> None:
    odd = replace(plan(usd=None), memory_risk=math.nan, loss=Interval(math.inf, 1.0, math.nan))
    made = answer_json(answer(plans=(odd,)), top=5)
    text = json.dumps(made, allow_nan=False)
    assert json.loads(text)["plans"][0]["memory_risk"] is None
    assert made["plans"][0]["loss"] == {"value": None, "low": 1.0, "high": None}
    assert made["plans"][0]["usd"] is None


def test_top_limits_the_plans_and_not_the_front() -> None:
    made = answer_json(answer(), top=1)
    assert len(made["plans"]) == 1
    assert len(made["front"]) == 2


def test_pins_are_those_that_were_fixed() -> None:
    assert answer_json(answer(), top=1)["request"]["pins"] == {"tensor": 2}


def test_no_plan_is_an_outcome() -> None:
    made = answer_json(refused(), top=5)
    assert made["outcome"] == "no_plan"
    assert made["plans"] == []
    assert made["refusal"]["relaxations"][0]["change"] == "--deadline 4d"


def test_a_change_comes_with_its_difference() -> None:
    faster = answer(plans=(plan(2.2, 12_000.0),))
    made = answer_json(answer(), top=1, what_if={"devices=+8xH100": faster, "budget=1": refused()})
    first, second = made["what_if"]
    assert first["difference"]["run_seconds"] == pytest.approx(-86_400.0)
    assert first["difference"]["usd"] == pytest.approx(-400.0)
    assert second["plan"] is None
    assert second["difference"] is None
    assert second["why_not"].startswith("the fastest plan takes 3.2 days")
