"""Plans as tables: columns of words, which terminals, reports and pages show as they can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelyard.planner import words as say

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer, Plan


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the ranked table: the higher `expendable`, the sooner it is left out."""

    title: str
    cells: tuple[str, ...]
    expendable: int
    number: bool = True

    @property
    def width(self) -> int:
        """Letters of its longest cell."""
        return max(len(self.title), *map(len, self.cells))


def ranked_columns(plans: Sequence[Plan]) -> list[Column]:
    """Columns of a table of plans; what is the same in all of them has none where it is usual."""
    layouts = [plan.layout for plan in plans]
    columns = [
        Column("#", tuple(str(rank) for rank in range(1, len(plans) + 1)), 0),
        Column("devices", tuple(say.devices(plan) for plan in plans), 0),
        Column("time", tuple(say.time_words(plan.run_seconds.value) for plan in plans), 0),
        Column("cost", tuple(say.money(plan.usd.value) if plan.usd else "?" for plan in plans), 1),
        Column("loss", tuple(f"{plan.loss.value:.3f}" if plan.loss else "" for plan in plans), 11),
        Column("step", tuple(say.time_words(plan.step_seconds.value) for plan in plans), 12),
        Column("memory", tuple(say.memory(plan.memory_bytes.value) for plan in plans), 5),
        Column("risk", tuple(say.risk(plan.memory_risk) for plan in plans), 8),
        Column("of peak", tuple(say.percent(plan.model_flops_share) for plan in plans), 13),
    ]
    for title, field, expendable in (
        ("data", "data", 9),
        ("tensor", "tensor", 2),
        ("pipe", "pipeline", 2),
        ("chunks", "virtual", 10),
        ("context", "context", 3),
        ("expert", "expert", 3),
        ("servers", "servers", 3),
    ):
        degrees = [getattr(found, field) for found in layouts]
        if any(degree > 1 for degree in degrees):
            columns.append(Column(title, tuple(map(str, degrees)), expendable))
    columns += [
        Column("micro × acc", tuple(f"{x.micro_batch} × {x.accumulation}" for x in layouts), 4),
        Column("shard", tuple(str(found.sharding) for found in layouts), 6, number=False),
        Column("recompute", tuple(say.recompute(found) for found in layouts), 7, number=False),
    ]
    if len({found.precision for found in layouts}) > 1:
        kinds = tuple(str(found.precision) for found in layouts)
        columns.append(Column("precision", kinds, 9, number=False))
    # The loss is that of the tokens, so it is mostly the same for all; it stands at the top.
    return [
        column
        for column in columns
        if any(column.cells) and (column.title != "loss" or len(set(column.cells)) > 1)
    ]


def facts(answer: Answer, best: Plan) -> list[tuple[str, str]]:
    """What the headline does not say."""
    capacity = best.pool.platform.device.memory_bytes
    of = f" of {say.memory(capacity)}" if capacity else ""
    return [
        *(("layout", line) for line in say.division(best)),
        ("batch", say.batch(best, answer.request)),
        ("memory", f"{say.memory_interval(best.memory_bytes)}{of}"),
        ("step", say.time_interval(best.step_seconds)),
        ("of the peak rate", say.percent(best.model_flops_share)),
        ("useful time", say.percent(best.goodput)),
        *([("price", price)] if (price := say.price(best, spot=answer.request.spot)) else []),
    ]
