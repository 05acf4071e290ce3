"""Records as JSON and back."""

from __future__ import annotations

from pydantic import TypeAdapter

from modelyard.control.lifecycle.job import Job
from modelyard.control.lifecycle.node import NodeRecord

_JOBS: TypeAdapter[Job] = TypeAdapter(Job)
_NODES: TypeAdapter[NodeRecord] = TypeAdapter(NodeRecord)


def job_text(job: Job) -> str:
    return _JOBS.dump_json(job, exclude_defaults=True).decode()


def job_of(text: str) -> Job:
    return _JOBS.validate_json(text)


def node_text(node: NodeRecord) -> str:
    return _NODES.dump_json(node, exclude_defaults=True).decode()


def node_of(text: str) -> NodeRecord:
    return _NODES.validate_json(text)
