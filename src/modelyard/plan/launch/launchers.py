"""The settings of a plan for a tool, by the tool's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from modelyard.errors import UnknownName
from modelyard.plan.answer import Plan
from modelyard.plan.launch.deepspeed import deepspeed
from modelyard.plan.launch.fsdp import fsdp
from modelyard.plan.launch.megatron import megatron
from modelyard.plan.launch.settings import LaunchSettings, refuse
from modelyard.plan.launch.yard_job import yard_job
from modelyard.plan.request import Pins, Request
from modelyard.spec.layout import Sharding

LAUNCHERS: Mapping[str, Callable[[Plan, Request], LaunchSettings]] = {
    "yard": yard_job,
    "fsdp": fsdp,
    "deepspeed": deepspeed,
    "megatron": megatron,
}

_BY_DATA = Pins(tensor=1, pipeline=1, context=1, expert=1)
#: with these pins every plan is one that the tool can run
PINS: Mapping[str, Pins] = {
    "yard": Pins(),
    "fsdp": Pins(tensor=1, pipeline=1, context=1, expert=1, sharding=Sharding.ZERO3),
    "deepspeed": _BY_DATA,
    "megatron": Pins(compiled=False, servers=0),
}


def launch(plan: Plan, request: Request, tool: str) -> LaunchSettings:
    """The settings, or an `InputError` with what the tool cannot express."""
    if tool not in LAUNCHERS:
        raise UnknownName("launcher", tool, LAUNCHERS)
    if plan.shares and tool != "yard":
        kinds = " and ".join(share.pool.kind for share in plan.shares)
        reason = f"it gives every device the same work, and {kinds} need different shares"
        raise refuse(tool, [reason], "plan without --mixed")
    return LAUNCHERS[tool](plan, request)
