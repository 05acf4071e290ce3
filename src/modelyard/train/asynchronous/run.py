"""The run of a worker that keeps its own pace, with the same loop as `train/run.py`.

    with AsynchronousRun(settings, pace) as run:
        run.train(model, rate=lambda step: 0.1)
        for step in run.steps():
            for chosen in step.microbatches():
                step.backward(loss_of(model, chosen), samples=len(chosen))
            step.commit()

A step is a lease of samples. When the server or the connection is lost, what was not pushed is
forgotten; its samples are leased again, by this worker or another.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import torch

from modelyard.errors import InputError, cause_of
from modelyard.train.asynchronous.memory import Memory, shapes_of
from modelyard.train.asynchronous.pace import Pace
from modelyard.train.asynchronous.wire import Line, reach, receive, receive_counted, send
from modelyard.train.compress.combinations import compressor
from modelyard.train.compress.feedback import Compressor, State
from modelyard.train.data.leases import Lease
from modelyard.train.member import RETRY_SECONDS, NoConductor
from modelyard.train.order import Positions, samples
from modelyard.train.run import RunSettings
from modelyard.train.step import luck_of

#: which rows of which tables some samples use
RowsOf = Callable[[Positions], Mapping[str, torch.Tensor]]


class AsynchronousRun:
    """One worker's part in a job whose workers do not keep step."""

    def __init__(
        self, settings: RunSettings, pace: Pace, *, patience_seconds: float = 60.0
    ) -> None:
        self.settings = settings
        self.pace = pace
        #: leases that were part of the model when this worker last pushed
        self.applied = 0
        self._pushed = 0
        #: both to the server and from it
        self.bytes_sent = self.bytes_received = 0
        self._told_bytes = 0
        self._patience_seconds = patience_seconds
        self._line: Line | None = None
        self._leaving = False
        self._rate: Callable[[int], float] = lambda _: 0.1
        self._clip = 0.0
        self._rows: RowsOf = lambda _: {}
        self._model: torch.nn.Module | None = None
        self._dense: list[torch.nn.Parameter] = []
        self._tables: dict[str, torch.nn.Parameter] = {}
        self._local: Memory | None = None
        self._gathered = _Gathered()
        self._compressor: Compressor | None = compressor(pace.compress) if pace.compress else None
        self._residual: State | None = None
        self._version = 0
        self._since_fetch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._drop()

    def train(
        self,
        model: torch.nn.Module,
        *,
        rate: Callable[[int], float],
        clip: float = 0.0,
        tables: tuple[str, ...] = (),
        rows: RowsOf | None = None,
    ) -> None:
        """What is trained, with the learning rate after so many leases.

        `tables` are the names of parameters of which only rows in use travel: embeddings made with
        `sparse=True`. `rows` says which those are for some samples.
        """
        named = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self._model = model
        self._tables = {name: named[name] for name in tables}
        self._dense = [one for name, one in named.items() if name not in tables]
        self._rate, self._clip = rate, clip
        self._rows = rows or self._rows
        self._local = Memory(
            msgspec.structs.replace(self.pace, shards=1, weigh=False), self._flat(), {}
        )

    def leave(self) -> None:
        """Push what there is after the lease in flight, and take no other."""
        self._leaving = True

    def steps(self) -> Iterator[AsynchronousStep]:
        """A lease after the other, until the job is done."""
        assert self._model is not None, "say what is trained first"
        while True:
            try:
                if self._leaving:
                    self._push()
                    return
                answer = self._ask({"kind": "lease"})
                if answer["lease"] is None:
                    if not answer["flush"]:
                        return
                    self._push()
                    continue
                lease = msgspec.convert(answer["lease"], Lease)
                chosen = self._samples(lease)
                self._fetch(self._rows(chosen), dense=self._since_fetch % self.pace.fetch == 0)
                self._since_fetch += 1
            except (OSError, EOFError):
                self._drop()
                continue
            for parameter in self._model.parameters():
                parameter.grad = None
            yield AsynchronousStep(self, lease, chosen)

    def passed(self, every: int) -> bool:
        """Whether the last push was the one that brought the job past a multiple of `every`."""
        return self.applied // every > (self.applied - self._pushed) // every

    def state(self) -> dict[str, object]:
        """The model as the servers have it, with all rows; their own memory is in their folder."""
        assert self._model is not None
        with contextlib.suppress(OSError, EOFError):
            everything = {name: torch.arange(len(one)) for name, one in self._tables.items()}
            self._fetch(everything, dense=True)
        return {"model": self._model.state_dict(), "optimizer": {}, "lineage": 0}

    # What travels.

    def _samples(self, lease: Lease) -> Positions:
        settings = self.settings
        positions = np.arange(lease.start, lease.stop, dtype=np.int64)
        return samples(positions, settings.data_size, settings.seed)

    def _fetch(self, rows: Mapping[str, torch.Tensor], *, dense: bool) -> None:
        if not dense and not rows:
            return
        wanted = {name: at.unique() for name, at in rows.items()}
        answer = self._ask({"kind": "fetch", "rows": wanted, "dense": dense})
        assert self._local is not None
        with torch.no_grad():
            for name, values in answer["rows"].items():
                self._tables[name][wanted[name]] = values
        if dense:
            self._version = answer["version"]
            self._local.overwrite(answer["dense"], self._version)
            self._fill(answer["dense"])

    def take(self, lease: Lease, about: Mapping[str, object]) -> bool:
        """Gradients of a lease are there; whether they have become part of the model."""
        assert self._local is not None
        gradient = self._gradients()
        norm = float(gradient.norm())
        if self._clip > 0.0 and math.isfinite(norm) and norm > self._clip:
            gradient *= self._clip / norm
        rows = {
            name: (one.grad.coalesce().indices()[0], one.grad.coalesce().values())
            for name, one in self._tables.items()
            if one.grad is not None
        }
        moved = self.bytes_sent + self.bytes_received
        about = {**about, "bytes": moved - self._told_bytes}
        self._told_bytes = moved
        self._gathered.add(lease, about, gradient, rows)
        try:
            if len(self._gathered.leases) >= self.pace.push:
                return self._push()
        except (OSError, EOFError):
            self._drop()
            return False
        if self.pace.fetch > 1:
            # Until the next fetch a replica goes on by its own steps (Dean et al., 2012).
            self._local.push(gradient, {}, rate=self._rate(self.applied), fetched=self._version)
            self._fill(self._local.fetch({})[1])
        return False

    def _push(self) -> bool:
        gathered = self._gathered
        if not gathered.leases:
            return False
        payload: object = gathered.gradient
        after: State | None = None
        if self._compressor is not None:
            state = self._residual or self._compressor.start(gathered.gradient.shape)
            encoded = self._compressor.encode(gathered.gradient, state)
            payload, after = list(encoded.payload), encoded.state
        answer = self._ask(
            {
                "kind": "push",
                "leases": [msgspec.to_builtins(one) for one in gathered.leases],
                "about": gathered.about,
                "gradient": payload,
                "numbers": gathered.gradient.numel(),
                "rows": gathered.rows,
                "rate": self._rate(self.applied),
                "version": self._version,
            }
        )
        self._gathered = _Gathered()
        self.applied, self._pushed = answer["step"], len(gathered.leases)
        if answer["accepted"] and after is not None:
            self._residual = after
        return bool(answer["accepted"])

    def _ask(self, question: object) -> Any:
        line = self._line or self._connect()
        self.bytes_sent += send(line, question)
        answer, size = receive_counted(line)
        self.bytes_received += size
        return answer

    def _connect(self) -> Line:
        pause, longest = RETRY_SECONDS
        until = time.monotonic() + self._patience_seconds
        while True:
            try:
                line = reach(self.settings.address, self.settings.token)
                self._introduce(line)
            except (OSError, EOFError) as error:
                if time.monotonic() > until:
                    host, port = self.settings.address
                    what = f"no server at {host}:{port}: {cause_of(error)}"
                    raise NoConductor(what, fix="start the job again: it goes on") from error
                time.sleep(pause)
                pause = min(2.0 * pause, longest)
            else:
                self._line = line
                return line

    def _introduce(self, line: Line) -> None:
        settings = self.settings
        tables = {name: one.detach() for name, one in self._tables.items()}
        send(
            line,
            {
                "worker": settings.worker,
                "pace": msgspec.to_builtins(self.pace),
                "data_size": settings.data_size,
                "seed": settings.seed,
                "shapes": shapes_of(self._flat(), tables),
            },
        )
        answer = receive(line)
        if answer["refused"]:
            what = f"this worker has {answer['refused']}, as the job began"
            raise InputError(what, fix="begin anew in another folder, or write what it was")
        if answer["begin"]:
            send(line, {"dense": self._flat(), "tables": tables})

    def _drop(self) -> None:
        """The connection is gone, and with it all that was not pushed."""
        if self._line is not None:
            self._line.close()
        self._line, self._gathered, self._since_fetch = None, _Gathered(), 0

    def _flat(self) -> torch.Tensor:
        # A model may be nothing but tables.
        return torch.cat([torch.zeros(0), *(one.detach().reshape(-1) for one in self._dense)])

    def _gradients(self) -> torch.Tensor:
        return torch.cat(
            [
                torch.zeros(0),
                *(
                    (one.grad if one.grad is not None else torch.zeros_like(one)).reshape(-1)
                    for one in self._dense
                ),
            ]
        )

    def _fill(self, flat: torch.Tensor) -> None:
        with torch.no_grad():
            sizes = [one.numel() for one in self._dense]
            for parameter, part in zip(self._dense, flat.split(sizes), strict=True):
                parameter.copy_(part.view_as(parameter))


class _Gathered:
    """Gradients of leases that were not pushed yet."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.about: list[Mapping[str, object]] = []
        self.gradient = torch.zeros(0)
        self.rows: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def add(
        self,
        lease: Lease,
        about: Mapping[str, object],
        gradient: torch.Tensor,
        rows: Mapping[str, tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self.leases.append(lease)
        self.about.append(about)
        self.gradient = self.gradient + gradient if self.gradient.numel() else gradient
        for name, (at, values) in rows.items():
            if name in self.rows:
                before, summed = self.rows[name]
                at, where = torch.cat([before, at]).unique(return_inverse=True)
                whole = torch.zeros(len(at), values.shape[1])
                values = whole.index_add_(0, where, torch.cat([summed, values]))
            self.rows[name] = (at, values)


class AsynchronousStep:
    """One lease of one worker."""

    def __init__(self, run: AsynchronousRun, lease: Lease, chosen: Positions) -> None:
        self.run = run
        self.lease = lease
        self.generation = 1
        self.rank = 0
        self._chosen = chosen
        self._loss = 0.0
        self._tokens = 0

    @property
    def stop(self) -> int:
        """Samples that were used when this worker last pushed, about."""
        return self.run.applied * self.run.settings.batch

    def microbatches(self) -> Iterator[Positions]:
        """The samples of the lease, a forward pass at a time."""
        settings = self.run.settings
        size = settings.micro_batch
        for start in range(0, len(self._chosen), size):
            chosen = self._chosen[start : start + size]
            torch.manual_seed(luck_of(settings.seed, self.lease.start, int(chosen[0])))
            yield chosen

    def backward(self, loss: torch.Tensor, *, samples: int, tokens: int = 0) -> None:
        """Add the gradients of some samples, of whose losses `loss` is the mean."""
        (loss * (samples / len(self._chosen))).backward()
        self._loss += loss.item() * samples / len(self._chosen)
        self._tokens += tokens

    def commit(self) -> bool:
        """Gather or push; whether this lease has become part of the model now."""
        loss = self._loss if math.isfinite(self._loss) else None
        return self.run.take(self.lease, {"tokens": self._tokens, "loss": loss})
