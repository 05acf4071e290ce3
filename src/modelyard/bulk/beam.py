"""The same planning as an Apache Beam pipeline, for files that one machine would take too long for.

    read → parse → reshuffle → group by model and batch → plan → result | no_solution | bad → write

Runs wherever Beam runs: on the direct runner here, on Dataflow, Flink or Spark by `--runner`.
Needs the extra `beam`; nothing else of Modelyard imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from modelyard.bulk.order import Outcome, Planner, PlannerFactory, Record, Tag, unreadable
from modelyard.bulk.readers import Format, format_of, read_records
from modelyard.errors import InputError, YardError

#: Records of so many consecutive ones that have the same model are planned together.
BATCH_RECORDS = 64
DIRECT_RUNNER = "DirectRunner"
#: Runners tell their whole history; its beginning names the cause.
MOST_REASON_CHARACTERS = 500

_COUNTERS = "modelyard"

#: The model of a batch, and which batch of the file it is.
_Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """What a pipeline counted; nothing where its runner does not wait for the end."""

    state: str
    counts: dict[Tag, int]


class ReadRequests(beam.PTransform):
    """Patterns of files, of any file system that Beam knows, to the records in them."""

    def __init__(self, kind: Format) -> None:
        super().__init__()
        self._kind = kind

    def expand(self, patterns: Any) -> Any:
        kind = self._kind
        return (
            patterns
            | "find files" >> fileio.MatchAll()
            | "open" >> fileio.ReadMatches()
            | "parse" >> beam.FlatMap(_read_file, kind)
        )


class PlanRequests(beam.PTransform):
    """Records to outcomes, tagged `result`, `no_solution` and `bad`; each is a flat dictionary."""

    def __init__(self, factory: PlannerFactory, *, batch: int = BATCH_RECORDS) -> None:
        super().__init__()
        self._factory = factory
        self._batch = batch

    def expand(self, records: Any) -> Any:
        return (
            records
            # What follows is a thousand times slower than reading: spread it over all workers.
            | "spread" >> beam.Reshuffle()
            # Not GroupIntoBatches: its timers are what runners differ in, and a sweep has an end.
            | "by model and batch" >> beam.Map(_keyed, self._batch)
            | "group" >> beam.GroupByKey()
            | "plan" >> beam.ParDo(_Plan(self._factory)).with_outputs(*(tag.value for tag in Tag))
        )


class _Plan(beam.DoFn):
    """Plans batches of one model; the planner is made once for each worker."""

    def __init__(self, factory: PlannerFactory) -> None:
        super().__init__()
        self._factory = factory
        self._planner: Planner | None = None

    def setup(self) -> None:
        self._planner = self._factory()

    def process(self, batch: tuple[_Key, Iterable[Record]]) -> Iterator[Any]:
        assert self._planner is not None, "Beam calls setup first"
        for record in batch[1]:
            outcome = self._planner(record)
            Metrics.counter(_COUNTERS, outcome.tag.value).inc()
            yield beam.pvalue.TaggedOutput(outcome.tag.value, outcome)


def run_pipeline(
    requests: str,
    out: str,
    factory: PlannerFactory,
    *,
    kind: Format | None = None,
    runner: str = DIRECT_RUNNER,
    options: Sequence[str] = (),
    fresh: bool = False,
) -> PipelineSummary:
    """Plan all requests of the files that match; outcomes go to `out/result-….jsonl` and so on.

    `options` are Beam's own, handed on as they are: a project, a region, a staging place.
    """
    format_ = kind or format_of(requests)
    settings = _options(runner, options)
    _check_place(requests, out, fresh=fresh)
    try:
        done = _pipeline(requests, out, factory, format_, settings).run()
        state = str(done.wait_until_finish())
    # A runner is anybody's code, and may raise anything when it cannot reach its cluster.
    except Exception as error:
        raise _failed(runner, error) from error
    return PipelineSummary(state, _counts(done))


def _pipeline(
    requests: str, out: str, factory: PlannerFactory, kind: Format, settings: PipelineOptions
) -> Any:
    pipeline = beam.Pipeline(options=settings)
    outcomes = (
        pipeline
        | "requests" >> beam.Create([requests])
        | "read" >> ReadRequests(kind)
        | "planning" >> PlanRequests(factory)
    )
    for tag in Tag:
        lines = outcomes[tag.value] | f"{tag.value} lines" >> beam.Map(_line)
        place = FileSystems.join(out, tag.value)
        write = beam.io.WriteToText(place, file_name_suffix=".jsonl")
        _ = lines | f"write {tag.value}" >> write
    return pipeline


def _options(runner: str, options: Sequence[str]) -> PipelineOptions:
    """Beam's options, as its own parser reads them."""
    try:
        settings = PipelineOptions([f"--runner={runner}", *options], save_main_session=False)
        settings.get_all_options()
        create_runner(runner)
    except SystemExit as error:
        what = f"Beam cannot read the options {' '.join(options)}"
        raise InputError(what, fix="see the line above, and Beam's documentation") from error
    except (ValueError, ImportError, AttributeError) as error:
        fix = "write DirectRunner, DataflowRunner, FlinkRunner, SparkRunner or PrismRunner"
        raise InputError(f"Beam has no runner '{runner}' here: {error}", fix=fix) from error
    return settings


def _failed(runner: str, error: Exception) -> YardError:
    reason = " ".join(str(error).split())[:MOST_REASON_CHARACTERS]
    fix = "hand the options that this runner wants to Beam after --"
    return YardError(f"{runner} did not run the pipeline: {reason}", fix=fix)


def _check_place(requests: str, out: str, *, fresh: bool) -> None:
    """Refuse requests that are not there, and results of an earlier pipeline unless `fresh`."""
    try:
        found = FileSystems.match([requests])[0].metadata_list
        old = [
            item.path
            for tag in Tag
            for item in FileSystems.match([FileSystems.join(out, f"{tag.value}-*.jsonl")])[
                0
            ].metadata_list
        ]
        if not found:
            raise InputError(f"no file matches '{requests}'", fix="check the path")
        if old and not fresh:
            what = f"'{out}' holds results of another sweep, such as {os.path.basename(old[0])}"
            fix = "choose another --out, or throw these results away with --fresh"
            raise InputError(what, fix=fix)
        if old:
            FileSystems.delete(old)
        if not FileSystems.exists(out):
            FileSystems.mkdirs(out)
    except (BeamIOError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        what = f"Beam cannot use '{requests}' or '{out}': {error}"
        fix = "check both places, and that the extra for this file system is installed"
        raise InputError(what, fix=fix) from error


def _read_file(file: Any, kind: Format) -> Iterator[Record]:
    """The records of a file; one of which nothing can be read is a bad record, as others go on."""
    name = file.metadata.path
    try:
        with file.open() as stream:
            for record in read_records(stream, kind):
                yield replace(record, file=name)
    except InputError as error:
        yield replace(unreadable(1, error.message, error.fix), file=name)


def _keyed(record: Record, size: int) -> tuple[_Key, Record]:
    return (record.model, (record.number - 1) // size), record


def _line(outcome: Outcome) -> str:
    return outcome.line()


def _counts(done: Any) -> dict[Tag, int]:
    query = MetricsFilter().with_namespace(_COUNTERS)
    counters = done.metrics().query(query)["counters"]
    totals = {counter.key.metric.name: counter.result for counter in counters}
    return {tag: int(totals.get(tag.value, 0)) for tag in Tag}
