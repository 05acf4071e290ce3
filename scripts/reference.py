"""Writes the pages of docs/reference from the code, so that they cannot say anything else.

    python scripts/reference.py            write the pages
    python scripts/reference.py --check    say which are out of date, and exit with 1 if any is

A page is a function here that returns Markdown. What code can say (names, defaults, help texts,
the `#:` comments beside fields) is taken from it; `METRIC_WORDS` holds the rest.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from modelyard.cli.main import EXIT_CODES, VERBS, yard
from modelyard.cli.plan import SUBCOMMANDS, PlanCommand
from modelyard.cli.plan_json import MEANING, SCHEMA_VERSION
from modelyard.control.api.app import described
from modelyard.control.api.page import bodies, calls, type_words
from modelyard.control.forecast import basis as basis_module
from modelyard.control.lifecycle import states as states_module
from modelyard.errors import YardError
from modelyard.schedule import reasons as reasons_module
from modelyard.schedule.placement import Strategy
from modelyard.schedule.registry import OWN_PACKAGE, REQUIRED, PolicyEntry, policies, policy
from modelyard.simulate import result as result_module
from modelyard.simulate.readers import FORMATS, gavel, itp, muri, philly, plain, pollux
from modelyard.spec.adapters import CHOICES
from modelyard.spec.architectures.reading import FAMILIES, OTHER_TYPES
from modelyard.spec.cluster_spec import ClusterSpec, DeviceSpec, LinkSpec, NodeGroup
from modelyard.spec.job import JobSpec
from modelyard.spec.problems import written_fields
from modelyard.spec.shape_limits import LIMITS
from modelyard.spec.tenant import TenantSpec
from modelyard.spec.training import AggregateSpec, CheckpointSpec, OptimizerSpec, TrainSpec
from modelyard.spec.training_course import AdaptiveSpec, BatchScalingSpec, ValidateSpec
from modelyard.spec.training_data import DataSource
from modelyard.spec.zoo import entries, zoo

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "docs" / "reference"
NOTICE = "<!-- Made by scripts/reference.py: change the code, then run it again. -->"

#: Characters per line of the help texts; GitHub shows so many without a scroll bar.
HELP_WIDTH = 88
#: A bar inside a cell of a Markdown table.
BAR = r"\|"

#: Metrics whose field carries no comment in the code because its name says it to a programmer.
METRIC_WORDS: Mapping[str, str] = {
    "jobs": "jobs that finished: all of them, since a run goes on until they have",
    "jct_mean": "mean completion time: from submission to end",
    "jct_median": "the same, median",
    "jct_p95": "the same, 95th percentile",
    "jct_p99": "the same, 99th percentile",
    "queueing_mean": "mean time in the cluster without devices, stops in between included",
    "makespan": "from the first submission to the last end",
    "device_hours": "devices held × hours, restarts included",
    "fairness_mean": "mean [finish-time fairness](../concepts/fairness.md) ρ over all jobs",
    "fairness_worst": "the largest ρ of any job",
    "restarts": "starts of jobs after their first, moves and changes of size included",
    "preemptions": "running jobs that a decision stopped without starting them elsewhere",
    "failures": "running jobs that a failed node stopped",
    "decision_ms_mean": "milliseconds that the policy took to decide, mean",
    "decision_ms_p99": "the same, 99th percentile",
    "decisions": "how often the policy was asked",
}

READERS: Mapping[str, ModuleType] = {
    "philly": philly,
    "itp": itp,
    "pollux": pollux,
    "gavel": gavel,
    "muri": muri,
    "csv": plain,
}


# -- Markdown ----------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; `|` inside a cell is escaped."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    lines += [f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def page(title: str, *parts: str) -> str:
    return "\n\n".join((NOTICE, f"# {title}", *(part for part in parts if part))) + "\n"


def code(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def comments(module: ModuleType, owner: type) -> dict[str, str]:
    """The `#:` comments directly above the fields or members of a class, by name."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    tree = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__
    )
    found: dict[str, str] = {}
    for node in tree.body:
        name = _assigned(node)
        said: list[str] = []
        above = node.lineno - 2
        while lines[above].strip().startswith("#:"):
            said.insert(0, lines[above].strip().removeprefix("#:").strip())
            above -= 1
        if name and said:
            found[name] = " ".join(said)
    return found


def _assigned(node: ast.stmt) -> str:
    """The name that a statement of a class body gives a value or a type to; empty for others."""
    targets = node.targets if isinstance(node, ast.Assign) else ()
    target = node.target if isinstance(node, ast.AnnAssign) else next(iter(targets), None)
    return target.id if isinstance(target, ast.Name) else ""


# -- the pages ---------------------------------------------------------------------------


def cli() -> str:
    """Every command with its help text, as `--help` prints it."""
    sections = []
    for name, verb in VERBS.items():
        command = verb.load()
        sections.append(f"## yard {name}\n\n{code(_help(command, name))}")
        sections += [
            f"### yard {name} {below}\n\n{code(_help(one, f'{name} {below}'))}"
            for below, one in _below(command).items()
        ]
    exits = table(
        ("exit code", "meaning"),
        ((str(number), meaning) for number, meaning in EXIT_CODES.items()),
    )
    return page("Command line", code(_help(yard, "yard")), exits, *sections)


def _below(command: click.Command) -> Mapping[str, click.Command]:
    """The commands of a command that has some."""
    if isinstance(command, PlanCommand):
        return {name: verb.load() for name, verb in SUBCOMMANDS.items()}
    return command.commands if isinstance(command, click.Group) else {}


def _help(command: click.Command, name: str) -> str:
    path = "yard" if name == "yard" else f"yard {name}"
    # The verbs inherit these settings when they are called through `yard`.
    settings = {**yard.context_settings, "terminal_width": HELP_WIDTH}
    context = click.Context(command, info_name=path, **settings)
    return command.get_help(context)


def plan_json() -> str:
    """Every key of `yard plan -o json`."""
    rows = [(f"`{key}`", meaning) for key, meaning in MEANING.items()]
    own = [row for row in rows if not row[0].startswith(("`plan.", "`interval."))]
    plan = [row for row in rows if row[0].startswith("`plan.")]
    interval = [row for row in rows if row[0].startswith("`interval.")]
    return page(
        "JSON of a plan",
        "What `yard plan -o json` prints, and `modelyard.cli.plan_json.answer_json` returns. Times "
        "are seconds, memory is bytes, money is US dollars; what is not known is null, and there "
        f"is no NaN. This is version {SCHEMA_VERSION} of the schema: keys are added, and the "
        "version is raised when one changes its meaning or goes away. `[]` stands for the entries "
        "of a list, `*` for any name.",
        table(("key", "meaning"), own),
        "## A plan\n\nEach entry of `plans` and `front`, and every `plan` in the table above. "
        "`step_seconds`, `memory_bytes`, `run_seconds`, `usd` and `loss` are [intervals]"
        "(#an-interval).",
        table(("key", "meaning"), plan),
        "## An interval\n\nThe truth lies between `low` and `high` four times out of five.",
        table(("key", "meaning"), interval),
    )


def policies_page() -> str:
    """Every policy that comes with Modelyard: its traits and options."""
    entries = [entry for entry in policies().values() if entry.package == OWN_PACKAGE]
    traits = {entry.name: policy(entry.name).traits for entry in entries}
    overview = table(
        ("policy", "serves", "sizes", "preempts", "needs an oracle"),
        (
            (
                f"[`{entry.name}`](#{entry.name})",
                traits[entry.name].summary,
                "elastic" if traits[entry.name].elastic else "as asked",
                "yes" if traits[entry.name].preempts else "no",
                "yes" if traits[entry.name].oracle else "no",
            )
            for entry in entries
        ),
    )
    intro = (
        "A policy is named on the command line and in `modelyard.schedule.registry.policy` as "
        "`name` or `name:option=value:option=value`: numbers, `true` or `false`, several numbers "
        "with `/` between them, or text. One value without a name goes to the first option.\n\n"
        "An oracle knows true remaining times, so such a policy is a yardstick for simulations. "
        "How each one decides, and where it departs from its paper: "
        "[concepts/policies](../concepts/policies.md). The values of `strategy`: "
        "[concepts/placement](../concepts/placement.md)."
    )
    strategies = "`strategy` is one of " + ", ".join(f"`{one.value}`" for one in Strategy) + "."
    sections = [_policy_section(entry) for entry in entries]
    return page("Policies", intro, overview, strategies, *sections)


def _policy_section(entry: PolicyEntry) -> str:
    said = _paragraphs(inspect.getdoc(entry.factory()) or "")
    options = entry.options()
    parts = [f"## {entry.name}", said]
    if options:
        rows = [
            (f"`{name}`", "required" if value is REQUIRED else f"`{_written(value)}`")
            for name, value in options.items()
        ]
        parts.append(table(("option", "default"), rows))
    return "\n\n".join(parts)


def _written(value: object) -> str:
    """A default as a person would write it in `name:option=value`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "/".join(_written(item) for item in value) or "(none)"
    return f"{value:g}" if isinstance(value, float) else str(value)


def metrics() -> str:
    """Every figure of a run, and every fact of a job."""
    metric_rows = _field_rows(result_module.Metrics, METRIC_WORDS)
    outcome_words = {
        "id": "as in the workload",
        "tenant": "whose job it is",
        "model": "what it trains; empty when the workload does not say",
        "devices": "what its user asked for",
        "submitted": "when it arrived",
        "started": "when it first got devices",
        "finished": "when its work was done",
        "run_seconds": "time with devices",
        "service": "device-seconds held",
        "restarts": "starts after the first",
    }
    outcome_rows = _field_rows(result_module.JobOutcome, outcome_words)
    outcome_rows += [
        (f"`{name}`", _paragraphs(inspect.getdoc(value) or ""))
        for name, value in vars(result_module.JobOutcome).items()
        if isinstance(value, property)
    ]
    return page(
        "Metrics",
        "What `Result.metrics` and the reports hold. Seconds, unless the name says otherwise.",
        table(("metric", "meaning"), metric_rows),
        "## One job\n\n`Result.jobs` has one `JobOutcome` for each. Times are seconds from the "
        "start of the trace.",
        table(("field", "meaning"), outcome_rows),
    )


def _field_rows(owner: type, words: Mapping[str, str]) -> list[tuple[str, str]]:
    said = comments(result_module, owner)
    names = [field.name for field in dataclasses.fields(owner)]
    missing = [name for name in names if name not in said and name not in words]
    if missing:
        raise YardError(
            f"{owner.__name__} has fields that nobody describes: {', '.join(missing)}",
            fix="write a '#:' comment above each of them",
        )
    return [(f"`{name}`", said.get(name) or words[name]) for name in names]


def reasons() -> str:
    """Every reason for which a job can wait."""
    said = comments(reasons_module, reasons_module.Reason)
    rows = [
        (
            f"`{reason.value}`",
            said[reason.name],
            "no" if reason in reasons_module.HOPELESS else "yes",
        )
        for reason in reasons_module.Reason
    ]
    return page(
        "Reasons for waiting",
        "The closed vocabulary of `yard why` and of `modelyard.schedule.explain`. Each reason "
        "comes with the numbers that make it true, and can be checked against the state it was "
        "given for (`modelyard.schedule.reasons.holds`). A job may have several: the one that "
        "decides comes first.",
        table(("reason", "meaning", "can it start by waiting?"), rows),
    )


def states() -> str:
    """Where a job of the yard can be, and why."""
    state, reason = states_module.State, states_module.Reason
    meaning, why = comments(states_module, state), comments(states_module, reason)
    basis = basis_module.Basis
    rests = comments(basis_module, basis)
    where = [
        (
            f"`{one.value}`",
            meaning[one.name],
            ", ".join(
                f"`{after.value}`" for after in state if after in states_module.TRANSITIONS[one]
            )
            or "nowhere",
        )
        for one in state
    ]
    return page(
        "States of a job",
        "A job of the yard is always in one state, and a reason always says why: `yard ps`, "
        "`yard why`, `yard events`, the API and the pages show both. The two vocabularies are "
        "closed, and every change is checked against this table "
        "([how the yard keeps its promises](../concepts/control.md)).",
        table(("state", "meaning", "and from there to"), where),
        "## Reasons",
        table(("reason", "meaning"), [(f"`{one.value}`", why[one.name]) for one in reason]),
        "## Foreseen ends",
        "On what it rests how long a job takes, the best first; the API has it as `basis`.",
        table(("basis", "meaning"), [(f"`{one.value}`", rests[one.name]) for one in basis]),
    )


def formats() -> str:
    """Every file that Modelyard reads."""
    if tuple(READERS) != FORMATS:
        raise YardError("scripts/reference.py knows other formats than the readers do")
    traces = [
        f"### {name}\n\n{_paragraphs(inspect.getdoc(module) or '')}"
        for name, module in READERS.items()
    ]
    written = (
        ("job", JobSpec, "One training job."),
        ("job: train", TrainSpec, "How a job trains a model by itself."),
        ("job: train: data", DataSource, "One entry of the list `data`."),
        ("job: train: optimizer", OptimizerSpec, "What makes steps of gradients."),
        (
            "job: train: optimizer: adaptive",
            AdaptiveSpec,
            "When the schedule 'adaptive' lowers the rate.",
        ),
        ("job: train: aggregate", AggregateSpec, "How workers train together."),
        (
            "job: train: batch_scaling",
            BatchScalingSpec,
            "The batch when the number of workers changes.",
        ),
        ("job: train: validate", ValidateSpec, "Loss on samples that nobody trains on."),
        ("job: train: checkpoints", CheckpointSpec, "Where and how often it is kept."),
        ("tenants", TenantSpec, "One entry of the list `tenants`."),
        ("cluster", ClusterSpec, "A whole cluster."),
        ("cluster: nodes", NodeGroup, "One entry of the list `nodes`."),
        ("cluster: links", LinkSpec, "Bandwidths."),
        ("cluster: device", DeviceSpec, "A device kind that the catalogue does not know."),
    )
    described = [
        f"### {name}\n\n{words}\n\n{_model_table(model)}" for name, model, words in written
    ]
    return page(
        "File formats",
        "## Workloads\n\nText, gzipped or not, in UTF-8. The format is recognised by the first "
        "line; `--format` names it where that is not enough. A file with mistakes is refused "
        "with all of them, each with its line and its fix. What a reader changed or left out is "
        "said in the workload's notes.",
        *traces,
        "## Files that people write\n\nYAML. `yard schema job`, `yard schema cluster` and "
        "`yard schema tenants` print the JSON Schema for an editor.",
        *described,
    )


def models_page() -> str:
    """Every model of the zoo, every `model_type` that is read, and the ways to name a model."""
    sources = list(dict.fromkeys(entry.source for entry in entries()))
    rows = [
        (
            f"`{model.name}`",
            ", ".join(f"`{alias}`" for alias in entry.aliases),
            f"{model.parameters.total:,}",
            f"{model.active_parameters:,}" if model.experts else "",
            "+".join(str(part) for part in (model.layers, model.decoder_layers) if part),
            f"{model.hidden}",
            "/".join(str(part) for part in dict.fromkeys((model.heads, model.kv_heads))),
            f"{sources.index(entry.source) + 1}",
        )
        for model, entry in zip(zoo(), entries(), strict=True)
    ]
    numbered = "\n".join(f"{number}. {source}" for number, source in enumerate(sources, start=1))
    families = [
        (f"`{name}`", str(family.kind), f"`{family.counted_as}`")
        for name, family in FAMILIES.items()
    ]
    limits = [
        (f"`{name}`", limit.meaning, f"{limit.least:,}", f"{limit.most:,}")
        for name, limit in LIMITS.items()
    ]
    adapters = [(f"`{name}`", words) for name, words in CHOICES.items()]
    return page(
        "Models",
        "A model is named in one of three ways: by a name of the zoo, by the path of a Hugging "
        "Face `config.json` or a folder that has one, or by plain numbers "
        "(`modelyard.spec.model_source.plain_model`). `yard models NAME` shows its shape and its "
        "parameters by part. An existing file or folder wins over a name. In names, case and "
        "punctuation do not matter, nor do the owner before a slash and words such as `instruct`; "
        "only a sign between two digits does.",
        f"## The zoo\n\n{len(rows)} models. Parameters are counted from the shape and agree to the "
        "unit with the class that `transformers` trains, except in T5 v1.1 and relatives, whose "
        "checkpoints have an output matrix that `transformers` 5 ties to the input. *per token*: "
        "without the experts that do not serve a token. *heads*: after the slash those of keys and "
        "values, where they are fewer. *source*: the number in the list below the table.",
        table(
            ("model", "also", "parameters", "per token", "layers", "hidden", "heads", "source"),
            rows,
        ),
        numbered,
        "## Configs\n\nThe `model_type`s that are read, and the class that is counted. "
        "Of models of text and pictures the `text_config` is read. "
        f"{_same_families()}",
        table(("model_type", "kind", "counted as"), families),
        "## Plain numbers\n\nWhat the numbers of a model may be. 0 stands for a part that it does "
        "not have.",
        table(("number", "meaning", "least", "most"), limits),
        "## Adapters\n\nWhat LoRA and QLoRA may stand beside. Matrices can be named as well "
        "(`q,v`), by the names that `yard models NAME` lists or by those that PEFT uses.",
        table(("targets", "meaning"), adapters),
    )


def _same_families() -> str:
    pairs = [f"`{other}` as `{name}`" for other, name in OTHER_TYPES.items()]
    return f"Read alike: {', '.join(pairs)}."


def _model_table(model: type[BaseModel]) -> str:
    rows = [
        (f"`{name}`", _default(info), info.description or "")
        for name, info in written_fields(model).items()
    ]
    return table(("field", "default", "meaning"), rows)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value: Any = info.default
    if value is None or value in ((), {}) or isinstance(value, BaseModel):
        return ""
    if isinstance(info.json_schema_extra, dict) and "default" in info.json_schema_extra:
        value = info.json_schema_extra["default"]
    written = value.value if isinstance(value, enum.Enum) else value
    return f"`{str(written).lower() if isinstance(written, bool) else written}`"


def _paragraphs(text: str) -> str:
    """A docstring as Markdown: indented parts become blocks, `speed/x.py` stays as it is."""
    blocks: list[str] = []
    for part in text.strip().split("\n\n"):
        if part.startswith("    "):
            blocks.append(code(inspect.cleandoc(part)))
        else:
            blocks.append(part)
    return "\n\n".join(blocks)


def api() -> str:
    """Every call of a yard's server and every shape, from the table that answers them."""
    document = described()
    parts = [
        "What a yard's server answers over HTTP. The same for programs is at `/v1/openapi.json` of "
        "every server (OpenAPI 3.1), for people at `/docs`; both need no token.",
        document["info"]["description"],
    ]
    for path, method, operation in calls(document):
        words = [operation["summary"], operation.get("description", "")]
        words += ["Needs no token."] if operation.get("security") == [] else []
        parts.append(f"## {method} {path}\n\n{' '.join(word for word in words if word)}")
        if "parameters" in operation:
            rows = [
                (f"`{one['name']}`", one["in"], _shape(one["schema"]), one["description"])
                for one in operation["parameters"]
            ]
            parts.append(table(("word", "in", "type", "meaning"), rows))
        said = [f"- {what}: {_links(words)}" for what, words in bodies(operation)]
        parts.append("\n".join(said))
    parts.append("## Failures\n\nAll in one shape: [ProblemShape](#problemshape).")
    failures = document["components"]["responses"].items()
    meanings = ((status, one["description"]) for status, one in failures)
    parts.append(table(("status", "meaning"), meanings))
    parts += [
        _shape_section(name, schema) for name, schema in document["components"]["schemas"].items()
    ]
    return page("HTTP API", *parts)


def _shape_section(name: str, schema: Mapping[str, Any]) -> str:
    parts = [f"## {name}", schema.get("description", "")]
    if "enum" in schema:
        parts.append(f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.")
    if "properties" in schema:
        required = schema.get("required", ())
        rows = [
            (
                f"`{field}`",
                _shape(one),
                " ".join(
                    filter(
                        None,
                        (
                            one.get("description", ""),
                            "" if field in required else "(may be left out)",
                        ),
                    )
                ),
            )
            for field, one in schema["properties"].items()
        ]
        parts.append(table(("field", "type", "meaning"), rows))
    return "\n\n".join(part for part in parts if part)


def _shape(schema: dict[str, Any]) -> str:
    return _links(type_words(schema))


def _links(words: str) -> str:
    """`[Name]` as a link to its heading on the page."""
    return re.sub(r"\[(\w+)\]", lambda one: f"[{one[1]}](#{one[1].lower()})", words)


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli,
    "policies.md": policies_page,
    "metrics.md": metrics,
    "reasons.md": reasons,
    "states.md": states,
    "formats.md": formats,
    "plan-json.md": plan_json,
    "models.md": models_page,
    "api.md": api,
}


def stale() -> list[str]:
    """Names of pages that are not what the code says."""
    return [
        name
        for name, make in PAGES.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != make()
    ]


def main(arguments: Sequence[str]) -> int:
    if "--check" in arguments:
        names = stale()
        for name in names:
            sys.stderr.write(f"docs/reference/{name} is out of date: run scripts/reference.py\n")
        return 1 if names else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
    sys.stdout.write(f"wrote {', '.join(PAGES)} to docs/reference\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
