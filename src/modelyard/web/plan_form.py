"""What people write into the form of the planner: the words of `yard plan`, without its files.

A page is asked by somebody elsewhere: what would be a path on a command line is never looked up on
the server.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from urllib.parse import urlencode

from modelyard.errors import InputError, Problem, UnknownName
from modelyard.planner.asking import asked_of
from modelyard.planner.options import Options
from modelyard.spec.cluster import Cluster
from modelyard.spec.devices import catalogue, find_device
from modelyard.spec.model import Model
from modelyard.spec.pool import parse_pools
from modelyard.spec.zoo import entries, find_model, zoo_model
from modelyard.units import parse_count

if TYPE_CHECKING:
    from modelyard.plan.answer import Answer

#: Everything that the form asks for, in the order of the page.
SHAPE = ("layers", "hidden", "heads", "vocab")
AMOUNTS = ("tokens", "steps", "sequence", "batch", "deadline", "budget")
CHOICES = ("precision",)
FLAGS = ("cheapest", "spot", "mixed")
FIELDS = ("model", *SHAPE, "devices", *AMOUNTS, *CHOICES, *FLAGS, "data")
#: these go to the planner as they are
PLAIN = (*SHAPE, "tokens", "sequence", "batch", "deadline", "budget", *CHOICES)
#: while what was written is no model and no devices
STAND_IN_MODEL, STAND_IN_DEVICES = "gpt2", "8xA100"
#: No word of the form is longer.
MOST_LETTERS = 300
#: what a shorthand of devices is written with; nothing of it is a path
_DEVICES = re.compile(r"[\w .+×*-]+")
#: what a batch is counted in
_BATCH = re.compile(r"(.*?)\s*(tokens?|sequences?)?", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"--([a-z-]+)")
_FIELD = re.compile(r"'?(\w+)'?(?::| is missing)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """The fields as they were written, and what is wrong with them."""

    written: Mapping[str, str]
    #: what is wrong with a field, by its name; "" for what is wrong with several
    problems: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Form:
        return cls({name: query.get(name, "").strip()[:MOST_LETTERS] for name in FIELDS})

    @property
    def asked(self) -> bool:
        """Whether anybody has asked for anything."""
        return any(self.written.values())

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The question; where the data lies is none of the planner's business."""
        return tuple((name, text) for name, text in self.written.items() if name != "data")

    def address(self, path: str, /, **changes: object) -> str:
        """The address of a page with the same words, but for some changes."""
        said = {name: text for name, text in {**self.written, **changes}.items() if text != ""}
        return f"{path}?{urlencode(said)}"

    def refused(self, error: InputError) -> Form:
        """The form with what is wrong beside the fields that are meant."""
        found: dict[str, list[Problem]] = {}
        for problem in error.problems:
            name, shown = _place(problem)
            found.setdefault(name, []).append(shown)
        return Form(self.written, {name: tuple(several) for name, several in found.items()})


def question(form: Form) -> tuple[Model | str, Options]:
    """The words of the planner; one `InputError` with everything that can be told without it."""
    written, problems = form.written, []
    options: dict[str, object] = {name: written[name] for name in PLAIN if written[name]}
    options |= {name: True for name in FLAGS if written[name]}
    model: Model | str = ""
    if written["model"]:
        found = find_model(written["model"])
        model = found or ""
        if found is None:
            problems.append(_unknown_model(written["model"]))
    elif not any(written[name] for name in SHAPE):
        fix = "choose one of the list, or write its shape in numbers"
        problems.append(Problem("model: there is none", fix))
    if written["devices"]:
        problems += _wrong_devices(written["devices"])
        options["devices"] = written["devices"]
    problems += _counted_in_steps(written, options)
    if problems:
        problems += _also_wrong(model, options)
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return model, cast("Options", options)


def _also_wrong(model: Model | str, options: Mapping[str, object]) -> list[Problem]:
    """What the planner would say as well, if model and devices were right."""
    rest = {name: value for name, value in options.items() if name not in SHAPE}
    rest["devices"] = STAND_IN_DEVICES
    try:
        asked_of(model or zoo_model(STAND_IN_MODEL), cast("Options", rest))
    except InputError as error:
        return list(error.problems)
    return []


def own_devices(cluster: Cluster) -> str:
    """The devices of the yard of which the planner knows enough, as people write them."""
    parts = []
    for kind in cluster.kinds:
        if not plannable(kind):
            continue
        nodes = [node for node in cluster.nodes if node.kind == kind]
        widths = {node.devices for node in nodes}
        count = (
            f"{len(nodes)}x{widths.pop()}" if len(widths) == 1 else sum(n.devices for n in nodes)
        )
        parts.append(f"{count}x{kind}")
    return "+".join(parts)


def plannable(kind: str) -> bool:
    """Whether enough is known of a kind to plan with it."""
    found = find_device(kind)
    return bool(found and found.peak_flops and found.memory_bytes and found.memory_bandwidth)


def model_names() -> list[str]:
    return [entry.name for entry in entries()]


def device_names() -> list[str]:
    return [device.name for device in catalogue() if plannable(device.name)]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would give a plan, and the page with it."""

    change: str
    effect: str
    #: "" where the form has no field for it
    address: str


def remedies(answer: Answer, form: Form) -> list[Remedy]:
    """The nearest changes that would help."""
    if answer.refusal is None:
        return []
    return [
        Remedy(one.change.replace("--", ""), one.effect, _changed(one.change, form))
        for one in answer.refusal.relaxations
    ]


def _changed(change: str, form: Form) -> str:
    """The page with a change as the planner writes it: `--deadline 3d`, `leave --budget out`, …"""
    left_out, _, written = (
        change.partition(" out") if change.startswith("leave ") else ("", "", change)
    )
    changes = dict.fromkeys(_OPTION.findall(left_out), "")
    words = shlex.split(written.partition("--")[1] + written.partition("--")[2])
    if len(words) > 2 or ", " in written.removeprefix(", "):
        return ""
    if words:
        changes[words[0].removeprefix("--")] = words[1] if len(words) == 2 else "1"
    if not changes or not set(changes) <= set(FIELDS) or "all pins" in change:
        return ""
    # Steps are another way to write tokens: only one of them can be kept.
    return form.address("/plan", **changes, **({"steps": ""} if "tokens" in changes else {}))


def _unknown_model(name: str) -> Problem:
    error = UnknownName("model", name[:60], model_names())
    fix = f"did you mean '{error.suggestion}'?" if error.suggestion else "choose one of the list."
    return Problem(f"model: {error.message}", f"{fix} Or write its shape in numbers")


def _wrong_devices(text: str) -> list[Problem]:
    if not _DEVICES.fullmatch(text):
        fix = "write so many of a kind, as in '64xH100' or '8xA100+16xV100'"
        return [Problem("devices: these are no devices", fix)]
    try:
        parse_pools(text)
    except InputError as error:
        return [Problem(f"devices: {problem.what}", problem.fix) for problem in error.problems]
    return []


def _counted_in_steps(written: Mapping[str, str], options: dict[str, object]) -> list[Problem]:
    """Steps become tokens where the size of a step is written."""
    if not written["steps"]:
        return []
    if written["tokens"]:
        return [Problem("steps: tokens are written as well", "keep one of them")]
    if not written["batch"] or not written["sequence"]:
        return [Problem("steps: nobody said how large one is", "write 'batch' and 'sequence' too")]
    try:
        steps = parse_count(written["steps"])
    except InputError as error:
        return [Problem(f"steps: {problem.what}", problem.fix) for problem in error.problems]
    batch = _BATCH.fullmatch(written["batch"])
    assert batch is not None
    in_tokens = (batch.group(2) or "").lower().startswith("t")
    try:
        size = parse_count(batch.group(1))
        options["tokens"] = steps * size * (1 if in_tokens else parse_count(written["sequence"]))
    except InputError:
        # The planner says what is wrong with them.
        options["tokens"] = steps
    return []


def _place(problem: Problem) -> tuple[str, Problem]:
    """The field that a problem is about, and the problem without its name."""
    match = _FIELD.fullmatch(problem.what)
    if match is None or match.group(1) not in FIELDS:
        return "", problem
    what = match.group(2) or "it is missing"
    return match.group(1), Problem(what, problem.fix.replace("--", ""))
