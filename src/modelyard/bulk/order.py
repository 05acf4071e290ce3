"""One record of a file of requests, and what becomes of it.

A record is flat: a `model`, what else `yard plan` takes (`planner.options.Options`), and an `id`
that comes back with the outcome. There are three outcomes, whatever runs the sweep: a `result`,
`no_solution` with the reason, or `bad` for a record that nobody can plan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from modelyard.errors import InputError, Problem, YardError
from modelyard.plan.answer import Answer, Interval, Refusal, Share
from modelyard.plan.request import Request
from modelyard.planner.asking import Asked
from modelyard.spec.layout import Layout

ID = "id"
#: Longer ones are no names; they would fill every line that mentions them.
MOST_ID_CHARACTERS = 200
#: Integers of more digits stay text, because Python refuses to convert very long ones.
MOST_DIGITS = 60

#: What a value of a record may be after JSON, CSV or an Example was read.
Pairs = Iterable[tuple[str, object]]


class Tag(StrEnum):
    """Where the outcome of a record goes."""

    RESULT = "result"
    NO_SOLUTION = "no_solution"
    #: the record says nothing that could be planned
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record with its place in the file, counted from 1; with problems it cannot be planned."""

    number: int
    id: str
    words: Mapping[str, object] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    #: the file, where there may be several
    file: str = ""

    @property
    def model(self) -> str:
        """What records are grouped by."""
        written = self.words.get("model")
        return written.strip() if isinstance(written, str) else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one record: where it goes, and what is written there."""

    tag: Tag
    number: int
    fields: Mapping[str, object]

    def line(self) -> str:
        """One line of JSON, without characters that UTF-8 cannot carry."""
        return json.dumps(self.fields, ensure_ascii=False, allow_nan=False)


#: The request that words make, or an `InputError` with everything that is wrong with them.
Ask = Callable[[Mapping[str, object]], Asked]
Solve = Callable[[Request], Answer]
Planner = Callable[[Record], Outcome]
#: Makes a planner where it is needed: in each worker process.
PlannerFactory = Callable[[], Planner]


def make_record(number: int, pairs: Pairs) -> Record:
    """A record from its words as they were written, with everything that is wrong with them.

    A word that is written twice, as by two columns of one name, counts once if only one of them
    has a value.
    """
    words: dict[str, object] = {}
    problems: list[Problem] = []
    for written, value in pairs:
        name = written.strip().casefold().replace("-", "_")
        if not name and _empty(value):
            continue
        if _broken(name) or _broken(value):
            what = f"'{clean(written)}' has characters that are not UTF-8 text"
            problems.append(Problem(what, "save the file as UTF-8"))
        elif name not in words or _empty(words[name]):
            words[name] = value
        elif not _empty(value):
            problems.append(Problem(f"'{clean(name)}' is written twice", "write it once"))
    identity, problem = _identity(number, words.pop(ID, None))
    if problem:
        problems.append(problem)
    return Record(number=number, id=identity, words=words, problems=tuple(problems))


def unreadable(number: int, what: str, fix: str) -> Record:
    """A record of which nothing could be read."""
    return Record(number=number, id=_default_id(number), problems=(Problem(clean(what), fix),))


def json_record(number: int, text: str) -> Record:
    """A record from a JSON object."""
    try:
        read = json.loads(text, parse_int=_integer, object_pairs_hook=_Pairs)
    except RecursionError:
        return unreadable(number, "the JSON is nested too deeply", "write one flat object")
    except ValueError as error:
        reason = str(error).removesuffix(".")
        return unreadable(number, f"not JSON: {reason}", 'write {"model": …, "devices": …}')
    if not isinstance(read, _Pairs):
        return unreadable(number, "not a JSON object", 'write {"model": …, "devices": …}')
    return make_record(number, read)


def plan_record(record: Record, ask: Ask, solve: Solve) -> Outcome:
    """What the planner makes of a record; it never raises, whatever the record says."""
    try:
        if record.problems:
            return bad(record, (*record.problems, *_more_problems(record, ask)))
        asked = ask(record.words)
        answer = solve(asked.request)
        answer = replace(answer, notes=(*asked.notes, *answer.notes))
        if answer.refusal is not None or not answer.plans:
            return _no_solution(record, answer)
        return _result(record, answer)
    except InputError as error:
        return bad(record, error.problems)
    except YardError as error:
        return bad(record, (Problem(error.message, error.fix),))
    # A fault of ours in one record must not cost the others theirs.
    except Exception as error:
        what = f"the planner failed with {type(error).__name__}: {error}"
        return bad(record, (Problem(what, "report it, with this record"),))


def bad(record: Record, problems: Iterable[Problem]) -> Outcome:
    """The outcome of a record that cannot be planned."""
    told = [{"what": clean(problem.what), "fix": clean(problem.fix)} for problem in problems]
    return _outcome(Tag.BAD, record, {"problems": told})


def clean(text: str) -> str:
    """The text with a question mark for each character that UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _more_problems(record: Record, ask: Ask) -> tuple[Problem, ...]:
    """What else is wrong with a record that was read with problems; all are told at once."""
    if not record.words:
        return ()
    try:
        ask(record.words)
    except InputError as error:
        return error.problems
    return ()


def _result(record: Record, answer: Answer) -> Outcome:
    """The best plan, in the words of `yard plan -o json`, without its breakdowns."""
    plan = answer.plans[0]
    fields: dict[str, object] = {
        "model": answer.request.model.name,
        "kind": plan.pool.kind,
        "devices": plan.devices,
        "batch": plan.global_batch,
        "sequence": answer.request.sequence,
        "layout": _layout(plan.layout),
        "shares": [_share(share) for share in plan.shares],
        "run_seconds": _interval(plan.run_seconds),
        "step_seconds": _interval(plan.step_seconds),
        "steps": _number(plan.steps),
        "usd": _interval(plan.usd),
        "loss": _interval(plan.loss),
        "memory_bytes": _interval(plan.memory_bytes),
        "memory_risk": _number(plan.memory_risk),
        "goodput": _number(plan.goodput),
        "binding": plan.binding.value,
        "why": clean(plan.why),
        "notes": [clean(note) for note in answer.notes],
    }
    return _outcome(Tag.RESULT, record, fields)


def _no_solution(record: Record, answer: Answer) -> Outcome:
    refusal: Refusal | None = answer.refusal
    relaxations = refusal.relaxations if refusal else ()
    fields: dict[str, object] = {
        "model": answer.request.model.name,
        "binding": refusal.binding.value if refusal else None,
        "why": clean(refusal.why) if refusal else "no configuration keeps every limit",
        "relaxations": [
            {
                "binding": relaxation.binding.value,
                "change": clean(relaxation.change),
                "effect": clean(relaxation.effect),
            }
            for relaxation in relaxations
        ],
        "notes": [clean(note) for note in answer.notes],
    }
    return _outcome(Tag.NO_SOLUTION, record, fields)


def _share(share: Share) -> dict[str, object]:
    """One kind's part in a run on several."""
    return {
        "kind": share.pool.kind,
        "devices": share.devices,
        "layers": share.layers,
        "sequences": share.sequences,
        "layout": _layout(share.layout),
    }


def _layout(layout: Layout) -> dict[str, object]:
    return {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "virtual": layout.virtual,
        "context": layout.context,
        "expert": layout.expert,
        "data": layout.data,
        "sharding": layout.sharding.value,
        "shard_group": layout.shard_group,
        "micro_batch": layout.micro_batch,
        "accumulation": layout.accumulation,
        "global_batch": layout.global_batch,
        "sequence_parallel": layout.sequence_parallel,
        "recompute": layout.recompute.value,
        "recompute_layers": layout.recompute_layers,
        "precision": layout.precision.value,
        "flash": layout.flash,
        "compiled": layout.compiled,
        "servers": layout.servers,
    }


def _outcome(tag: Tag, record: Record, fields: Mapping[str, object]) -> Outcome:
    place = {"file": clean(record.file)} if record.file else {}
    known = {"number": record.number, "id": record.id, **place}
    return Outcome(tag, record.number, {**known, **fields})


def _interval(figure: Interval | None) -> dict[str, float | None] | None:
    if figure is None:
        return None
    return {
        "value": _number(figure.value),
        "low": _number(figure.low),
        "high": _number(figure.high),
    }


def _number(value: float) -> float | None:
    """A number that JSON can carry; what is not finite is unknown."""
    return float(value) if math.isfinite(value) else None


def _identity(number: int, value: object) -> tuple[str, Problem | None]:
    fallback = _default_id(number)
    if _empty(value):
        return fallback, None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return fallback, Problem("the id is neither text nor a whole number", "write a name")
    text = str(value).strip()
    if len(text) > MOST_ID_CHARACTERS:
        what = f"the id has {len(text):,} characters"
        return fallback, Problem(what, f"use at most {MOST_ID_CHARACTERS}")
    return text, None


def _default_id(number: int) -> str:
    return f"record-{number}"


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _broken(value: object) -> bool:
    """Whether this is text with halves of characters in it, which no UTF-8 file can hold."""
    return isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value)


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= MOST_DIGITS else digits


class _Pairs(list[tuple[str, object]]):
    """A JSON object as it was written, with keys that come twice; not to be taken for a list."""
