"""Layers divided over places, and micro-batches that go through them in turn: 1F1B, interleaved.

A place keeps the model with the layers of its stages and forgets the others, so parameters have the
same names as in the whole. A table of tokens that is also the output layer is at both ends of the
pipeline: its two gradients are summed, and both copies make the same steps.

Every micro-batch has the same number of rows, and there are never fewer of them than the schedule
needs: rows that are missing are repeated and count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from modelyard.errors import InputError
from modelyard.train.models.batches import IGNORED, CausalBatch
from modelyard.train.models.gpt import Gpt
from modelyard.train.replica.places import Division, Place

#: the parameter that tied models have at both ends
TIED = "tokens.weight"
#: around forward passes: the arithmetic that a job wants
Narrowed = Callable[[], torch.autocast]


class Stage(nn.Module):
    """Some layers of a model, with its embedding before the first and its head after the last."""

    def __init__(
        self, model: Gpt, layers: range, *, first: bool, last: bool, narrowed: Narrowed
    ) -> None:
        super().__init__()
        # In a tuple: its parameters are those of this module's parts.
        self._model = (model,)
        self._narrowed = narrowed
        self.spec = model.spec
        self.first, self.last = first, last
        self.blocks = nn.ModuleList(model.blocks[layer] for layer in layers)
        if first:
            self.tokens, self.positions = model.tokens, model.positions
        if last:
            self.final_norm, self.output = model.final_norm, model.output
            if tied(model):
                self.tokens = model.tokens

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (model,) = self._model
        with self._narrowed():
            if self.first:
                x = model.embed(x)
            x = model.through_blocks(x, self.blocks)
            return model.head(x) if self.last else x


def tied(model: Gpt) -> bool:
    """Whether the table of tokens is also the output layer."""
    return bool(model.spec.tied)


def check_pipeline(model: nn.Module, division: Division) -> None:
    """`InputError` where a model cannot go through a pipeline."""
    if division.pipeline == 1:
        return
    if not isinstance(model, Gpt):
        raise InputError(
            f"pipelines of a {type(model).__name__} are not supported",
            fix="write 'fsdp' instead of 'pipeline', or train a GPT or Llama",
        )
    if len(model.blocks) < division.stages:
        raise InputError(
            f"{len(model.blocks)} layers do not make {division.stages} stages",
            fix=f"write at most {len(model.blocks)} stages, or a model with more layers",
        )


def stage_layers(layers: int, stages: int) -> list[range]:
    """The layers of each stage, as even as they go; earlier stages have one more.

    The last stage has the output layer besides.
    """
    each, more = divmod(layers, stages)
    starts = [stage * each + min(stage, more) for stage in range(stages + 1)]
    return [range(start, stop) for start, stop in pairwise(starts)]


def stages_of(model: Gpt, place: Place, narrowed: Narrowed) -> list[Stage]:
    """The stages of a place; what belongs to others is taken out of the model."""
    division = place.division
    layers = stage_layers(len(model.blocks), division.stages)
    made = [
        Stage(
            model,
            layers[stage],
            first=stage == 0,
            last=stage == division.stages - 1,
            narrowed=narrowed,
        )
        for stage in place.stages
    ]
    kept = {str(layer): model.blocks[layer] for stage in place.stages for layer in layers[stage]}
    model.blocks = nn.ModuleDict(kept)
    first, last = made[0].first, made[-1].last
    if not first:
        model.positions = None
        if not (last and tied(model)):
            model.tokens = None
    if not last:
        model.final_norm = model.output = None
    return made


def tied_ends(place: Place) -> dist.ProcessGroup | None:
    """The places at both ends of this one's pipeline, when it is one of them; all must call it."""
    division = place.division
    each = division.fsdp * division.tensor
    found = None
    for column in range(each):
        ends = [column, column + (division.pipeline - 1) * each]
        group = dist.new_group(ends)
        if place.index in ends:
            found = group
    return found


class Pipeline:
    """Runs the stages of one place, with as many micro-batches as there are."""

    def __init__(
        self,
        stages: Sequence[Stage],
        place: Place,
        group: dist.ProcessGroup,
        *,
        rows: int,
        length: int,
        hidden: torch.dtype,
    ) -> None:
        """`rows` and `length` are those of a micro-batch, `hidden` what passes between stages."""
        self._stages = stages
        self._place = place
        self._group = group
        self._rows, self._length, self._hidden = rows, length, hidden
        self._schedules: dict[int, Schedule1F1B | ScheduleInterleaved1F1B] = {}
        #: what the loss of a row is multiplied by
        self._weight = 0.0

    def learn(self, batch: CausalBatch, *, passes: int, weight: float) -> float:
        """Make gradients of a batch in at least so many micro-batches; the weighted loss.

        The loss is that of the place which has the last stage, and 0 elsewhere.
        """
        count = self._micro_batches(passes)
        inputs, targets = padded(batch, count * self._rows)
        if count not in self._schedules:
            self._schedules[count] = self._schedule(count)
        self._weight = weight
        losses: list[torch.Tensor] = []
        first, last = self._stages[0].first, self._stages[-1].last
        self._schedules[count].step(
            *((inputs,) if first else ()),
            target=targets if last else None,
            losses=losses if last else None,
            return_outputs=False,
        )
        return sum(float(loss.detach()) for loss in losses)

    def _micro_batches(self, passes: int) -> int:
        """Never fewer than places; when they take turns, as many in every round."""
        places = self._place.division.pipeline
        if self._place.division.interleaved:
            return max(1, -(-passes // places)) * places
        return max(passes, places)

    def _schedule(self, count: int) -> Schedule1F1B | ScheduleInterleaved1F1B:
        division = self._place.division
        stages = [
            PipelineStage(
                stage,
                index,
                division.stages,
                torch.device("cpu"),
                input_args=self._tokens() if stage.first else self._vectors(stage.spec.hidden),
                output_args=self._vectors(stage.spec.vocab if stage.last else stage.spec.hidden),
                group=self._group,
            )
            for index, stage in zip(self._place.stages, self._stages, strict=True)
        ]
        if division.interleaved:
            return ScheduleInterleaved1F1B(stages, count, self._loss, scale_grads=False)
        return Schedule1F1B(stages[0], count, self._loss, scale_grads=False)

    def _tokens(self) -> torch.Tensor:
        return torch.empty(self._rows, self._length, dtype=torch.int64, device="meta")

    def _vectors(self, width: int) -> torch.Tensor:
        shape = (self._rows, self._length, width)
        return torch.empty(shape, dtype=self._hidden, device="meta", requires_grad=True)

    def _loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean over a micro-batch's tokens, weighted by the rows in it that count."""
        counted = int((targets != IGNORED).any(dim=1).sum())
        total = functional.cross_entropy(
            scores.float().flatten(0, 1),
            targets.flatten(),
            ignore_index=IGNORED,
            reduction="mean" if counted else "sum",
        )
        return total * (counted * self._weight)


def padded(batch: CausalBatch, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of so many rows; those added count for nothing."""
    missing = rows - len(batch.inputs)
    inputs = torch.cat([batch.inputs, batch.inputs[:1].expand(missing, -1)])
    return inputs, functional.pad(batch.targets, (0, 0, 0, missing), value=IGNORED)
