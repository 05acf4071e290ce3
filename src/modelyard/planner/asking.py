"""Options become a request: files are read, defaults filled in, contradictions found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.planner.knowledge import is_table
from modelyard.planner.options import SHAPE, Options
from modelyard.planner.pools import calibration_of, pools_of
from modelyard.planner.shape import NEEDED, model_of_numbers, words_of
from modelyard.spec.model import Model
from modelyard.units import parse_count

if TYPE_CHECKING:
    from modelyard.plan.request import Request
    from modelyard.plan.wording import Sources
    from modelyard.spec.pool import Pool, Prices

#: Tokens for each parameter where nobody says how many (Hoffmann et al., 2022).
TOKENS_PER_PARAMETER = 20
#: In these matrices are multiplied in training.
TRAINING_PRECISIONS = ("bf16", "fp16", "tf32", "fp32", "fp8")
#: What people call the same thing.
SHARDING_ALIASES = {"0": "none", "1": "zero1", "2": "zero2", "3": "zero3", "fsdp": "zero3"}
#: What a batch is counted in.
_BATCH = re.compile(r"(.*?)\s*(tokens?|sequences?)?", re.IGNORECASE | re.DOTALL)
#: How far a batch that was counted in tokens may be off, as a share, to divide well.
NEAR_BATCH = 0.05
#: Stands for the model in messages when it was given in numbers.
IN_NUMBERS = "these numbers"
#: Stands for the devices of a calibrated machine.
HERE = "this machine"
MOST_SHOWN = 60

_Loaded = TypeVar("_Loaded")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, with what should be said about how it came about."""

    request: Request
    notes: tuple[str, ...] = ()
    #: what any kind of device costs, also those that were not asked for
    prices: Prices = field(default_factory=dict)


def asked_of(model: str | Model, options: Options) -> Asked:
    """The request that these options make; one `InputError` with everything that is wrong."""
    from modelyard.plan.check import check
    from modelyard.plan.wording import read_request

    form = _Form(model, cast(Mapping[str, object], options))
    try:
        request = read_request(form.words, form.sources())
    except InputError as error:
        form.problems += error.problems
        raise form.refusal() from None
    request, notes = form.completed(request)
    try:
        check(request)
    except InputError as error:
        form.problems += error.problems
    if form.problems:
        raise form.refusal()
    return Asked(request, notes, form.prices)


class _Form:
    """Options on their way to the words of a request, with what is wrong with them so far."""

    def __init__(self, model: str | Model, options: Mapping[str, object]) -> None:
        self.problems: list[Problem] = []
        self.model = model
        self.options = {name: value for name, value in options.items() if value is not None}
        self._refuse_unknown()
        self.batch_tokens = self._batch_in_tokens()
        self.prices = self._read("prices", _prices) or {}
        self.calibration = self._read("calibration", calibration_of)
        self.words = self._words()

    def refusal(self) -> InputError:
        first = self.problems[0]
        return InputError(first.what, fix=first.fix, problems=self.problems)

    def refuse(self, name: str, what: str, fix: str) -> None:
        self.problems.append(Problem(f"{name}: {what}", fix))

    def sources(self) -> Sources:
        from modelyard.plan.wording import Sources

        return Sources(
            model=lambda text: _with_places(lambda: self._load_model(text)),
            pools=lambda text: _with_places(lambda: self._load_pools(text)),
        )

    def completed(self, request: Request) -> tuple[Request, tuple[str, ...]]:
        """The request with what only the model could say, and notes on it."""
        notes: list[str] = []
        if "tokens" not in self.options:
            if request.tuning.rank:
                fix = "write how many tokens the adapters are trained on, such as 100M"
                self.refuse("tokens", "nobody said how many tokens to train on", fix)
            count = TOKENS_PER_PARAMETER * request.model.active_parameters
            request = replace(request, tokens=float(count))
            notes.append(
                f"nobody said how many tokens: {TOKENS_PER_PARAMETER} for each parameter are taken"
            )
        if self.batch_tokens is not None:
            if self.batch_tokens < request.sequence:
                what = f"{self.batch_tokens:,} tokens are less than one sequence of "
                what += f"{request.sequence:,}"
                self.refuse("batch", what, f"write at least '{request.sequence} tokens'")
            sequences = max(round(self.batch_tokens / request.sequence), 1)
            # Nobody means a count of tokens to the last sequence.
            request = replace(request, global_batch=sequences, batch_tolerance=NEAR_BATCH)
        if request.precision is not None and request.precision not in TRAINING_PRECISIONS:
            known = f"{', '.join(TRAINING_PRECISIONS[:-1])} or {TRAINING_PRECISIONS[-1]}"
            what = f"{request.precision} is for serving, not for training"
            self.refuse("precision", what, f"write {known}")
        if 0 < request.model.longest < request.sequence:
            notes.append(
                f"sequences of {request.sequence:,} tokens are longer than the "
                f"{request.model.longest:,} that {request.model.name} is made for"
            )
        return request, tuple(notes)

    def _read(self, name: str, read: Callable[[str | None], _Loaded]) -> _Loaded | None:
        """What the file of an option holds; None with its problems noted when it cannot be read."""
        path = self.options.get(name)
        try:
            return read(None if path is None else str(path))
        except InputError as error:
            self.problems += error.problems
            return None

    def _refuse_unknown(self) -> None:
        known = tuple(Options.__annotations__)
        for name in [name for name in self.options if name not in known]:
            del self.options[name]
            self.problems += UnknownName("option", name[:MOST_SHOWN], known).problems

    def _batch_in_tokens(self) -> int | None:
        """The batch, when it is counted in tokens; sequences are left to the words."""
        value = self.options.get("batch")
        match = _BATCH.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or not match.group(2):
            return None
        if match.group(2).lower().startswith("s"):
            self.options["batch"] = match.group(1)
            return None
        del self.options["batch"]
        try:
            return parse_count(match.group(1))
        except InputError as error:
            self.problems += [Problem(f"batch: {p.what}", p.fix) for p in error.problems]
            return None

    def _words(self) -> dict[str, object]:
        """The options in the words of `modelyard.plan.wording`."""
        own = {"cluster", "prices", "pilots", "calibration", "lora", "qlora", "cheapest", *SHAPE}
        words = {name: value for name, value in self.options.items() if name not in own}
        words["model"] = self._model_word()
        words["devices"] = self._devices_word()
        words.setdefault("tokens", 1)  # until the model is known
        if "sharding" in words:
            written = str(words["sharding"]).strip().casefold()
            words["sharding"] = SHARDING_ALIASES.get(written, written)
        if self.options.get("cheapest"):
            words["objective"] = "cost"
        words |= self._method_words()
        return words

    def _model_word(self) -> str:
        shape = [name for name in SHAPE if name in self.options]
        named = self.model.name if isinstance(self.model, Model) else self.model
        if named and shape:
            what = f"the model is named too, '{named[:MOST_SHOWN]}'"
            self.refuse(shape[0], what, "keep the name or the numbers")
        if not named and not shape:
            fix = "name one of 'yard models', a config.json or its folder, or give "
            self.refuse("model", "there is none", f"{fix}{words_of(NEEDED)}")
        # Something to read has to be there, so that all other words are read too.
        return named or IN_NUMBERS

    def _devices_word(self) -> object:
        if "devices" in self.options and "cluster" in self.options:
            self.refuse("cluster", "devices are given as well", "keep one of them")
        # A calibrated machine is there even when nobody names it.
        nothing = HERE if self._names_calibration() else ""
        return self.options.get("devices", self.options.get("cluster", nothing))

    def _names_calibration(self) -> bool:
        path = self.options.get("calibration")
        return path is not None and not is_table(str(path))

    def _method_words(self) -> dict[str, object]:
        ranks = [name for name in ("lora", "qlora") if name in self.options]
        if len(ranks) == 2:
            self.refuse("qlora", "lora is given as well", "keep one of them")
        if not ranks:
            return {}
        return {"method": ranks[0], "lora_rank": self.options[ranks[0]]}

    def _load_model(self, text: str) -> Model:
        from modelyard.spec.model_source import load_model

        if isinstance(self.model, Model):
            return self.model
        if self.model:
            return load_model(text)
        return self._plain_model()

    def _plain_model(self) -> Model:
        shape = {name: self.options[name] for name in SHAPE if name in self.options}
        return model_of_numbers(shape)

    def _load_pools(self, text: str) -> tuple[Pool, ...]:
        if self._names_calibration() and self.calibration is None:
            # What the devices are nobody knows, and why is said already: any will do until then.
            return pools_of("1xA100", "", self.prices, None)
        return pools_of(
            text if "devices" in self.options else "",
            "" if "devices" in self.options else str(self.options.get("cluster", "")),
            self.prices,
            self.calibration,
        )


def _with_places(load: Callable[[], _Loaded]) -> _Loaded:
    """What `load` returns; its problems say in their words where in a file they are."""
    try:
        return load()
    except InputError as error:
        problems = [Problem(str(replace(one, fix="")), one.fix) for one in error.problems]
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems) from None


def _prices(path: str | None) -> Prices:
    """The user's prices, or those that come with Modelyard."""
    from modelyard.spec.prices import read_prices, shipped_prices

    return shipped_prices() if path is None else read_prices(path)
