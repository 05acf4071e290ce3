"""The settings of a plan for a tool, by the tool's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from modelyard.errors import UnknownName
from modelyard.plan.answer import CurvePoint, Plan
from modelyard.plan.launch.deepspeed import deepspeed
from modelyard.plan.launch.fsdp import fsdp
from modelyard.plan.launch.megatron import megatron
from modelyard.plan.launch.settings import LaunchSettings, Reason, refuse
from modelyard.plan.launch.speed_files import SPEED_FILE, TRACE_FILE, speed_files
from modelyard.plan.launch.yard_job import yard_job
from modelyard.plan.request import Pins, Request
from modelyard.spec.layout import Sharding
from modelyard.speed.physical.families import Style

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

#: how the software works that a tool starts: scripts of Hugging Face, or Megatron-LM
STYLES: Mapping[str, Style] = {
    "yard": Style.UNKNOWN,
    "fsdp": Style.EAGER,
    "deepspeed": Style.EAGER,
    "megatron": Style.FUSED,
}


def launch(
    plan: Plan, request: Request, tool: str, curve: Sequence[CurvePoint] = ()
) -> LaunchSettings:
    """The settings, or an `InputError` with what the tool cannot express.

    With the curve of its answer, a job of the yard comes with its speed over device counts.
    """
    if tool not in LAUNCHERS:
        raise UnknownName("launcher", tool, LAUNCHERS)
    if plan.shares and tool != "yard":
        kinds = " and ".join(share.pool.kind for share in plan.shares)
        what = f"it gives every device the same work, and {kinds} need different shares"
        raise refuse(tool, [Reason(what, "plan without --mixed")])
    settings = LAUNCHERS[tool](plan, request)
    if tool == "yard" and curve:
        files = {**settings.files, **speed_files(plan, request, curve)}
        note = f"play it with 'yard simulate {TRACE_FILE} --tables {SPEED_FILE}'"
        return replace(settings, files=files, notes=(*settings.notes, note))
    return settings
