"""Words to a `Request`: the one place that reads what people write about a run.

The options of `yard plan`, the fields of a sweep's records and the arguments from Python are the
same words (`WORDS`): `--max-loss 2.1`, `{"max_loss": 2.1}` and `max_loss=2.1` say one thing.
Values may be text as people write it ("7B", "3d", "$20,000") or numbers; nothing and empty text
mean that a word was not written.

This module reads no files. Whoever calls it hands in `Sources`: how to find a model and what
devices there are, with their prices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.plan.request import Limits, Objective, Pins, Reliability, Request
from modelyard.spec.adapters import full_training, lora
from modelyard.spec.devices import Precision
from modelyard.spec.layout import Recompute, Sharding
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.pool import Pool
from modelyard.spec.tuning import Method, Tuning
from modelyard.speed.physical.families import Style
from modelyard.units import describe, parse_count, parse_duration

#: Every word with what it means, in the order of help texts and of documentation.
WORDS: Mapping[str, str] = {
    "model": "a name of the zoo, or the path of a config.json or of its folder",
    "devices": "what there is to use: 64xH100, or 64xH100+32xA100",
    "tokens": "tokens to train on: 300B",
    "sequence": "tokens of a sequence; what the model is made for, at most 4,096",
    "target": "tokens of the decoder's sequence, for models with an encoder and a decoder",
    "batch": "sequences per step; chosen up to the critical batch size when not written",
    "precision": "in which matrices are multiplied: bf16, fp16, fp8, fp32 …",
    "software": "what trains it: huggingface, megatron, nemo, jax …, or eager, fused, tuned …",
    "method": "what is trained: full, lora or qlora",
    "lora_rank": "inner width of adapters; 16 when only the method is written",
    "lora_targets": "matrices that get adapters, joined by commas",
    "deadline": "the longest the run may take: 3d",
    "budget": "the most it may cost in US dollars: 20000",
    "max_loss": "the loss that it must reach: 2.1",
    "memory_risk": "the largest acceptable probability of running out of memory: 0.1",
    "objective": "what a better plan has less of: time or cost",
    "spot": "whether to use spot instances",
    "mixed": "whether one run may use devices of several kinds at once",
    "tensor": "tensor-parallel devices",
    "pipeline": "pipeline stages",
    "virtual": "model chunks of a pipeline stage",
    "context": "context-parallel devices",
    "expert": "expert-parallel devices",
    "data": "data-parallel replicas",
    "sharding": "what replicas divide: none, zero1, zero2 or zero3",
    "micro_batch": "sequences of a micro-batch",
    "accumulation": "micro-batches of a replica per step",
    "sequence_parallel": "whether norms and dropouts are divided along the sequence",
    "recompute": "activations computed again: none, selective or full",
    "recompute_layers": "blocks of a stage, or of each of its chunks, that are computed again",
    "flash": "whether attention never stores its scores",
    "compiled": "whether kernels are fused by a compiler",
    "servers": "parameter servers beside the workers",
    "mtbf": "mean time between failures of one device: 50000h, or none",
    "checkpoint_time": "what writing a checkpoint costs: 60s",
    "restart_time": "what a restart costs: 5m",
}
REQUIRED = ("model", "devices", "tokens")

#: A longer sequence than this has to be asked for, whatever the model could do.
USUAL_SEQUENCE = 4_096
#: Where a model has no limit of its own.
UNLIMITED_SEQUENCE = 2_048
#: The same with an encoder and a decoder: T5 was trained with so many (Raffel et al., 2020).
TEXT_TO_TEXT_SEQUENCE = 512
USUAL_RANK = 16

#: Far above anything that will be trained; larger numbers are typing mistakes.
MOST_TOKENS = 10**18
MOST_SEQUENCE = 2**27
MOST_BATCH = 2**31
MOST_PARALLEL = 10**6
MOST_RANK = 2**16
#: Longer texts are shown by their beginning.
MOST_SHOWN = 60

_YES = frozenset({"yes", "true", "on", "1", "y"})
_NO = frozenset({"no", "false", "off", "0", "n"})
#: How people write that there is none of something, where that means more than silence.
_NONE = frozenset({"none", "never", "off"})
_MONEY = re.compile(r"\s*(?:usd|us\$|\$)?\s*([^\s$].*?)\s*(?:usd|\$)?\s*", re.IGNORECASE)

_Value = TypeVar("_Value")
_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the things that words name come from."""

    #: the model of a name or of a path
    model: Callable[[str], Model]
    #: the pools of `64xH100+8xA100`, with prices where they are known
    pools: Callable[[str], tuple[Pool, ...]]


def read_request(words: Mapping[str, object], sources: Sources) -> Request:
    """The request that these words make; an `InputError` with everything that is wrong with them.

    Words are as in `WORDS`; case does not matter, and `-` is the same as `_`.
    """
    form = _Form(words)
    model = form.read("model", lambda value: sources.model(_text(value)))
    pools = form.read("devices", lambda value: sources.pools(_text(value)))
    tokens = form.read("tokens", _whole(MOST_TOKENS))
    sequence = form.read("sequence", _whole(MOST_SEQUENCE))
    target = form.read("target", _whole(MOST_SEQUENCE))
    batch = form.read("batch", _whole(MOST_BATCH))
    precision = form.read("precision", _one_of(Precision))
    software = form.read("software", _software)
    limits = _limits(form)
    pins = _pins(form)
    reliability = _reliability(form)
    objective = form.read("objective", _one_of(Objective))
    spot = form.read("spot", _flag)
    mixed = form.read("mixed", _flag)
    tuning = _tuning(form, model)
    if target is not None and model is not None and model.kind is not ModelKind.ENCODER_DECODER:
        form.refuse("target", f"'{model.name}' has no decoder beside an encoder", "leave it out")
    form.check_all_there()
    if form.problems or model is None or tuning is None or not pools or tokens is None:
        raise refusal(form.problems)
    return Request(
        model=model,
        tuning=tuning,
        pools=pools,
        tokens=float(tokens),
        sequence=sequence or usual_sequence(model),
        target=target,
        global_batch=batch,
        precision=precision,
        software=software or Style.UNKNOWN,
        limits=limits,
        pins=pins,
        reliability=reliability,
        spot=spot or False,
        objective=objective or Objective.TIME,
        mixed=mixed or False,
    )


def usual_sequence(model: Model) -> int:
    """The sequence to train with when nobody said: what the model is made for, within reason."""
    unlimited = UNLIMITED_SEQUENCE
    if model.kind is ModelKind.ENCODER_DECODER:
        unlimited = TEXT_TO_TEXT_SEQUENCE
    return min(model.longest or unlimited, USUAL_SEQUENCE)


def refusal(problems: Iterable[Problem]) -> InputError:
    """One error that carries all problems of a request."""
    found = tuple(problems)
    return InputError("; ".join(problem.what for problem in found), problems=found)


class _Form:
    """Words on the way to a request, with what turned out to be wrong so far."""

    def __init__(self, words: Mapping[str, object]) -> None:
        self.problems: list[Problem] = []
        self._values: dict[str, object] = {}
        for written, value in words.items():
            name = written.strip().casefold().replace("-", "_")
            if name not in WORDS:
                error = UnknownName("word", _shown(written), WORDS)
                self.problems.append(Problem(error.message, error.fix or "leave it out"))
            elif name in self._values:
                self.problems.append(Problem(f"'{name}' is written twice", "write it once"))
            elif not _absent(value):
                self._values[name] = value

    def has(self, name: str) -> bool:
        return name in self._values

    def read(self, name: str, reader: Callable[[object], _Value]) -> _Value | None:
        """The value of a word; None when it was not written or is wrong."""
        if name not in self._values:
            return None
        try:
            return reader(_printable(self._values[name]))
        except InputError as error:
            self.problems += [
                Problem(f"{name}: {problem.what}", problem.fix) for problem in error.problems
            ]
            return None

    def refuse(self, name: str, what: str, fix: str) -> None:
        self.problems.append(Problem(f"{name}: {what}", fix))

    def check_all_there(self) -> None:
        for name in REQUIRED:
            if name not in self._values:
                self.problems.append(Problem(f"'{name}' is missing", f"write {WORDS[name]}"))


def _limits(form: _Form) -> Limits:
    usual = Limits()
    risk = form.read("memory_risk", _share)
    return Limits(
        deadline_seconds=form.read("deadline", _duration),
        budget_usd=form.read("budget", _money),
        most_loss=form.read("max_loss", _positive),
        memory_risk=usual.memory_risk if risk is None else risk,
    )


def _pins(form: _Form) -> Pins:
    parallel = _whole(MOST_PARALLEL)
    return Pins(
        tensor=form.read("tensor", parallel),
        pipeline=form.read("pipeline", parallel),
        virtual=form.read("virtual", parallel),
        context=form.read("context", parallel),
        expert=form.read("expert", parallel),
        data=form.read("data", parallel),
        sharding=form.read("sharding", _one_of(Sharding)),
        micro_batch=form.read("micro_batch", parallel),
        accumulation=form.read("accumulation", parallel),
        sequence_parallel=form.read("sequence_parallel", _flag),
        recompute=form.read("recompute", _one_of(Recompute)),
        recompute_layers=form.read("recompute_layers", parallel),
        flash=form.read("flash", _flag),
        compiled=form.read("compiled", _flag),
        servers=form.read("servers", _whole(MOST_PARALLEL, least=0)),
    )


def _reliability(form: _Form) -> Reliability:
    usual = Reliability()
    between = form.read("mtbf", _optional_duration)
    checkpoint = form.read("checkpoint_time", _duration)
    restart = form.read("restart_time", _duration)
    if between is None:
        mtbf = usual.device_mtbf_seconds
    else:
        mtbf = between if math.isfinite(between) else None
    return Reliability(
        device_mtbf_seconds=mtbf,
        checkpoint_seconds=usual.checkpoint_seconds if checkpoint is None else checkpoint,
        restart_seconds=usual.restart_seconds if restart is None else restart,
    )


def _tuning(form: _Form, model: Model | None) -> Tuning | None:
    """What is trained; a rank or targets alone mean LoRA."""
    method = form.read("method", _one_of(Method))
    rank = form.read("lora_rank", _whole(MOST_RANK))
    targets = form.read("lora_targets", _names)
    adapters = [name for name in ("lora_rank", "lora_targets") if form.has(name)]
    if method is Method.FULL and adapters:
        form.refuse(adapters[0], "full training has no adapters", "write method=lora, or leave out")
    if model is None:
        return None
    if method is Method.FULL or (method is None and not adapters):
        return full_training(model)
    quantised = method is Method.QLORA
    try:
        if targets is None:
            return lora(model, rank=rank or USUAL_RANK, quantised=quantised)
        return lora(model, rank=rank or USUAL_RANK, targets=targets, quantised=quantised)
    except InputError as error:
        form.problems += error.problems
        return None


def _absent(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _printable(value: object) -> object:
    """The value, unless it is a whole number so long that Python refuses to print it."""
    if isinstance(value, int) and abs(value) >= 10**60:
        raise InputError("a number of more than 60 digits", fix="check the number")
    return value


def _shown(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"expected text, found {describe(value)}", fix="write it in quotes")
    return value.strip()


def _amount(value: object) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(f"expected a number, found {describe(value)}", fix="write one number")
    return value


def _whole(most: int, *, least: int = 1) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = parse_count(_amount(value))
        if not least <= number <= most:
            fix = f"write a number from {least:,} to {most:,}"
            raise InputError(f"{number:,} is out of range", fix=fix)
        return number

    return read


def _positive(value: object) -> float:
    written = _amount(value)
    try:
        number = float(written.replace(",", "") if isinstance(written, str) else written)
    except ValueError:
        shown = _shown(str(written))
        raise InputError(f"'{shown}' is not a number", fix="write a number above 0") from None
    if not 0 < number < math.inf:
        raise InputError(f"{number} is out of range", fix="write a number above 0")
    return number


def _share(value: object) -> float:
    text = value.strip() if isinstance(value, str) else value
    percent = isinstance(text, str) and text.endswith("%")
    number = _positive(text.rstrip("%") if isinstance(text, str) else text)
    share = number / 100 if percent else number
    if not share < 1:
        fix = "write a probability between 0 and 1, such as 0.1"
        raise InputError(f"{share:g} is not a probability", fix=fix)
    return share


def _money(value: object) -> float:
    """US dollars from 20000, `$20,000` or `20k`."""
    written = _amount(value)
    match = _MONEY.fullmatch(written) if isinstance(written, str) else None
    text = match.group(1) if match else written
    if isinstance(text, str) and re.fullmatch(r".*\d\s*[kKmMbB]", text):
        return float(parse_count(text))
    return _positive(text)


def _duration(value: object) -> float:
    seconds = parse_duration(_amount(value))
    if seconds <= 0:
        raise InputError("no time at all", fix="write a duration above 0, such as '3d'")
    return seconds


def _optional_duration(value: object) -> float:
    """Seconds, or infinity where people write that it never happens."""
    if isinstance(value, str) and value.strip().casefold() in _NONE:
        return math.inf
    return _duration(value)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().casefold()
    if text in _YES or text in _NO:
        return text in _YES
    raise InputError(f"'{_shown(text)}' is neither yes nor no", fix="write true or false")


def _one_of(choices: type[_Choice]) -> Callable[[object], _Choice]:
    def read(value: object) -> _Choice:
        text = _text(value).casefold()
        try:
            return choices(text)
        except ValueError:
            raise UnknownName("choice", _shown(text), [item.value for item in choices]) from None

    return read


#: Frameworks that people name instead of how they work.
SOFTWARE: Mapping[str, Style] = {
    "huggingface": Style.EAGER,
    "transformers": Style.EAGER,
    "pytorch": Style.EAGER,
    "deepspeed": Style.EAGER,
    "tensorflow": Style.GRAPH,
    "megatron": Style.FUSED,
    "torchtitan": Style.FUSED,
    "llm-foundry": Style.FUSED,
    "nemo": Style.TUNED,
    "maxtext": Style.COMPILED,
    "jax": Style.COMPILED,
    "xla": Style.COMPILED,
}


def _software(value: object) -> Style:
    return software_named(_text(value))


def software_named(text: str) -> Style:
    """How a framework works, by its name or by the word for it."""
    known = {**{style.value: style for style in Style}, **SOFTWARE}
    if text.casefold() not in known:
        raise UnknownName("software", _shown(text), known)
    return known[text.casefold()]


def _names(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InputError(f"expected names, found {describe(value)}", fix="write 'q_proj,v_proj'")
    return tuple(name.strip() for name in names if name.strip())
