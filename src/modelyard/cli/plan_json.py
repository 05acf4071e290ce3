"""An answer for programs: `yard plan -o json`, documented in docs/reference/plan-json.md.

Keys are only ever added. Times are seconds, memory is bytes, money is US dollars; what is not known
is null. `MEANING` says what each key is: the page is made of it, and a test holds it to be
complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer, CurvePoint, Interval, Loser, Plan, Refusal, Relaxation
    from modelyard.plan.request import Request
    from modelyard.spec.layout import Layout
    from modelyard.spec.pool import Pool

#: Raised when a key changes its meaning or goes away; never by a new key.
SCHEMA_VERSION = 1

#: What each key means, by its place; `[]` stands for the entries of a list, `*` for any name.
MEANING: Mapping[str, str] = {
    "schema": "version of this schema; a change of meaning raises it, a new key does not",
    "outcome": "`plan`, or `no_plan` when none keeps the limits (exit code 3)",
    "request": "what was asked, with defaults filled in",
    "request.model": "name of the model",
    "request.parameters": "parameters of the model",
    "request.active_parameters": "parameters that one token meets; fewer with routed experts",
    "request.method": "`full`, `lora` or `qlora`",
    "request.rank": "rank of the adapters; 0 for full training",
    "request.trainable_parameters": "parameters that are learnt",
    "request.tokens": "tokens to train on",
    "request.sequence": "tokens of a sequence",
    "request.global_batch": "sequences per step; null: chosen by the planner",
    "request.precision": "in which matrices are multiplied; null: chosen for each kind",
    "request.software": "how the training software works: `eager`, `graph`, `fused`, `tuned`, "
    "`compiled` or `unknown`",
    "request.objective": "`time` or `cost`: what a better plan has less of",
    "request.spot": "whether spot prices and interruptions are assumed",
    "request.mixed": "whether one run may use several kinds",
    "request.pools": "the devices that could be used",
    "request.pools[].kind": "name of the device",
    "request.pools[].fewest": "the fewest that a plan may use",
    "request.pools[].most": "the most that a plan may use",
    "request.pools[].usd_per_hour": "price of one device on demand",
    "request.pools[].spot_usd_per_hour": "price of one device as a spot instance",
    "request.limits": "what a plan must keep; null is no limit",
    "request.limits.deadline_seconds": "the longest run",
    "request.limits.budget_usd": "the dearest run",
    "request.limits.max_loss": "the loss that the run must reach",
    "request.limits.memory_risk": "the largest probability of running out of memory",
    "request.pins": "parts of the layout that were fixed, by name; those that were not are absent",
    "request.pins.*": "the value that was fixed",
    "plans": "ranked plans, best first; `--top` says how many",
    "front": "plans such that none is both cheaper and faster, fastest first",
    "plan.kind": "device kind",
    "plan.devices": "how many devices",
    "plan.layout": "how the run is laid out",
    "plan.layout.tensor": "tensor-parallel degree",
    "plan.layout.pipeline": "pipeline stages",
    "plan.layout.virtual": "model chunks of a stage (interleaved 1F1B); 1 is plain 1F1B",
    "plan.layout.context": "context-parallel degree",
    "plan.layout.expert": "expert-parallel degree",
    "plan.layout.data": "data-parallel replicas",
    "plan.layout.sharding": "`none`, `zero1`, `zero2` or `zero3`",
    "plan.layout.shard_group": "devices over which states are sharded; 0 is all replicas",
    "plan.layout.micro_batch": "sequences of a micro-batch",
    "plan.layout.accumulation": "micro-batches of a step",
    "plan.layout.global_batch": "sequences of a step",
    "plan.layout.sequence_parallel": "whether norms and dropout are divided over the tensor group",
    "plan.layout.recompute": "`none`, `selective` or `full`",
    "plan.layout.recompute_layers": "blocks of a stage or chunk that `full` computes again; 0: all",
    "plan.layout.precision": "in which matrices are multiplied",
    "plan.layout.flash": "whether attention never stores its scores",
    "plan.layout.compiled": "whether kernels are fused by a compiler",
    "plan.layout.servers": "parameter servers; 0 without them",
    "plan.step_seconds": "time of a step",
    "plan.step_parts": "where a step goes: seconds by part, adding up to the step",
    "plan.step_parts.*": "seconds",
    "plan.memory_bytes": "peak memory of the fullest device",
    "plan.memory_parts": "where memory goes: bytes by part, adding up to the peak",
    "plan.memory_parts.*": "bytes",
    "plan.memory_capacity_bytes": "memory of one device",
    "plan.memory_risk": "probability of running out of memory",
    "plan.steps": "steps of the run",
    "plan.tokens": "tokens that are processed, with those that a large batch wastes",
    "plan.goodput": "useful share of the time after failures, restarts and checkpoints",
    "plan.checkpoint_interval_seconds": "how often to write a checkpoint; null without failures",
    "plan.run_seconds": "time of the run",
    "plan.usd": "cost of the run; null without prices",
    "plan.loss": "final loss; null where there is no law of loss",
    "plan.deadline_probability": "of keeping the deadline; null without one",
    "plan.budget_probability": "of keeping the budget; null without one",
    "plan.model_flops_share": "share of the devices' peak that the model's own arithmetic uses",
    "plan.binding": "what keeps the plan from being better",
    "plan.why": "the same in a sentence, with numbers",
    "plan.shares": "who does what where kinds are mixed; empty on one kind. `kind` and `layout` "
    "of the plan are then those of the slowest share",
    "plan.shares[].kind": "device kind",
    "plan.shares[].devices": "how many of them",
    "plan.shares[].layout": "how their part is laid out, as in `plan.layout`",
    "plan.shares[].layers": "blocks of a pipeline stage on these devices",
    "plan.shares[].sequences": "sequences of a step that they see",
    "plan.shares[].memory_bytes": "peak memory of the fullest of them",
    "plan.shares[].memory_risk": "probability that one of them runs out of memory",
    "interval.value": "the estimate",
    "interval.low": "one time in ten the truth is below",
    "interval.high": "one time in ten the truth is above",
    "runner_up": "the best plan of another sort and why it lost; null when there is none",
    "runner_up.plan": "that plan",
    "runner_up.why": "what taking it would cost",
    "refusal": "why there is no plan; null when there is one",
    "refusal.binding": "the limit that no plan keeps",
    "refusal.why": "the same in a sentence, with numbers",
    "refusal.relaxations": "changes of the request that would give a plan, nearest first",
    "refusal.relaxations[].binding": "the limit that is relaxed",
    "refusal.relaxations[].change": "the option to write instead",
    "refusal.relaxations[].effect": "what it would bring",
    "refusal.relaxations[].plan": "the plan that it would give",
    "curve": "speed over device counts, as the scheduler reads it",
    "curve[].kind": "device kind",
    "curve[].devices": "how many devices",
    "curve[].step_seconds": "time of a step with the fastest layout on so many",
    "curve[].tokens_per_second": "tokens processed per second",
    "searched": "what became of the layouts that were looked at",
    "searched.enumerated": "how many there were",
    "searched.fitting": "how many probably fit into memory",
    "searched.kept": "how many keep every limit",
    "notes": "what a careful reader should know",
    "launch": "settings that start the best plan, with `--launch`; null without it",
    "launch.tool": "for which tool",
    "launch.files": "text of each file, by name",
    "launch.files.*": "text",
    "launch.command": "for a shell on every node; null where a file says everything",
    "launch.notes": "what to know about them",
    "what_if": "the answer to each `--what-if`, in the order in which they were written",
    "what_if[].change": "the change",
    "what_if[].outcome": "`plan` or `no_plan`",
    "what_if[].plan": "the best plan with the change; null when there is none",
    "what_if[].why_not": "why there is none; null when there is one",
    "what_if[].difference": "with the change, less without it; null without a plan on both sides",
    "what_if[].difference.run_seconds": "of the time of the run",
    "what_if[].difference.usd": "of its cost; null without prices",
    "what_if[].difference.loss": "of its loss; null where there is no law of loss",
}


def answer_json(
    answer: Answer, *, top: int, what_if: Mapping[str, Answer] | None = None
) -> dict[str, Any]:
    """Everything in an answer, with at most `top` ranked plans, and the answers to changes."""
    return {
        "schema": SCHEMA_VERSION,
        "outcome": "no_plan" if answer.refusal else "plan",
        "request": request_json(answer.request),
        "plans": [plan_json(plan) for plan in answer.plans[:top]],
        "runner_up": _runner_up(answer.runner_up),
        "front": [plan_json(plan) for plan in answer.front],
        "refusal": _refusal(answer.refusal),
        "curve": [_point(point) for point in answer.curve],
        "searched": {
            "enumerated": answer.searched.enumerated,
            "fitting": answer.searched.fitting,
            "kept": answer.searched.kept,
        },
        "notes": list(answer.notes),
        "what_if": [_world(change, answer, other) for change, other in (what_if or {}).items()],
    }


def _world(change: str, answer: Answer, other: Answer) -> dict[str, Any]:
    best = other.plans[0] if other.plans else None
    return {
        "change": change,
        "outcome": "no_plan" if other.refusal else "plan",
        "plan": plan_json(best) if best else None,
        "why_not": other.refusal.why if other.refusal else None,
        "difference": _difference(answer.plans[0], best) if best and answer.plans else None,
    }


def _difference(before: Plan, after: Plan) -> dict[str, Any]:
    def less(one: Interval | None, other: Interval | None) -> float | None:
        return None if one is None or other is None else _number(other.value - one.value)

    return {
        "run_seconds": less(before.run_seconds, after.run_seconds),
        "usd": less(before.usd, after.usd),
        "loss": less(before.loss, after.loss),
    }


def request_json(request: Request) -> dict[str, Any]:
    limits = request.limits
    return {
        "model": request.model.name,
        "parameters": request.model.parameters.total,
        "active_parameters": request.model.active_parameters,
        "method": str(request.tuning.method),
        "rank": request.tuning.rank,
        "trainable_parameters": request.tuning.trainable,
        "tokens": _number(request.tokens),
        "sequence": request.sequence,
        "global_batch": request.global_batch,
        "precision": None if request.precision is None else str(request.precision),
        "software": str(request.style),
        "objective": str(request.objective),
        "spot": request.spot,
        "mixed": request.mixed,
        "pools": [_pool(pool) for pool in request.pools],
        "limits": {
            "deadline_seconds": _number(limits.deadline_seconds),
            "budget_usd": _number(limits.budget_usd),
            "max_loss": _number(limits.most_loss),
            "memory_risk": limits.memory_risk,
        },
        "pins": {
            name: value if isinstance(value, (int, bool)) else str(value)
            for name in request.pins.__dataclass_fields__
            if (value := getattr(request.pins, name)) is not None
        },
    }


def plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "kind": plan.pool.kind,
        "devices": plan.devices,
        "layout": layout_json(plan.layout),
        "step_seconds": _interval(plan.step_seconds),
        "step_parts": {name: _number(part) for name, part in plan.step_parts.items()},
        "memory_bytes": _interval(plan.memory_bytes),
        "memory_parts": {name: _number(part) for name, part in plan.memory_parts.items()},
        "memory_capacity_bytes": plan.pool.platform.device.memory_bytes,
        "memory_risk": _number(plan.memory_risk),
        "steps": _number(plan.steps),
        "tokens": _number(plan.tokens),
        "goodput": _number(plan.goodput),
        "checkpoint_interval_seconds": _number(plan.checkpoint_interval_seconds),
        "run_seconds": _interval(plan.run_seconds),
        "usd": _interval(plan.usd),
        "loss": _interval(plan.loss),
        "deadline_probability": _number(plan.deadline_probability),
        "budget_probability": _number(plan.budget_probability),
        "model_flops_share": _number(plan.model_flops_share),
        "binding": str(plan.binding),
        "why": plan.why,
        "shares": [
            {
                "kind": share.pool.kind,
                "devices": share.devices,
                "layout": layout_json(share.layout),
                "layers": share.layers,
                "sequences": share.sequences,
                "memory_bytes": _number(share.memory_bytes),
                "memory_risk": _number(share.memory_risk),
            }
            for share in plan.shares
        ],
    }


def layout_json(layout: Layout) -> dict[str, Any]:
    return {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "virtual": layout.virtual,
        "context": layout.context,
        "expert": layout.expert,
        "data": layout.data,
        "sharding": str(layout.sharding),
        "shard_group": layout.shard_group,
        "micro_batch": layout.micro_batch,
        "accumulation": layout.accumulation,
        "global_batch": layout.global_batch,
        "sequence_parallel": layout.sequence_parallel,
        "recompute": str(layout.recompute),
        "recompute_layers": layout.recompute_layers,
        "precision": str(layout.precision),
        "flash": layout.flash,
        "compiled": layout.compiled,
        "servers": layout.servers,
    }


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "kind": pool.kind,
        "fewest": pool.fewest,
        "most": pool.most,
        "usd_per_hour": _number(pool.usd_per_hour),
        "spot_usd_per_hour": _number(pool.spot_usd_per_hour),
    }


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {
        "value": _number(interval.value),
        "low": _number(interval.low),
        "high": _number(interval.high),
    }


def _runner_up(loser: Loser | None) -> dict[str, Any] | None:
    return None if loser is None else {"plan": plan_json(loser.plan), "why": loser.why}


def _refusal(refusal: Refusal | None) -> dict[str, Any] | None:
    if refusal is None:
        return None
    return {
        "binding": str(refusal.binding),
        "why": refusal.why,
        "relaxations": [_relaxation(item) for item in refusal.relaxations],
    }


def _relaxation(item: Relaxation) -> dict[str, Any]:
    return {
        "binding": str(item.binding),
        "change": item.change,
        "effect": item.effect,
        "plan": plan_json(item.plan),
    }


def _point(point: CurvePoint) -> dict[str, Any]:
    return {
        "kind": point.kind,
        "devices": point.devices,
        "step_seconds": _number(point.step_seconds),
        "tokens_per_second": _number(point.tokens_per_second),
    }


def _number(value: float | None) -> float | int | None:
    """A number that JSON can carry; what is not finite is not known."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(value)
