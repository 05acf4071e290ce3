"""A worker that is a script of somebody's own: what `python train.py` does, in a nursery's child.

The script finds in the environment that it is a worker, and its session takes part.
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path

import msgspec
import torch

from modelyard.errors import InputError, Problem, cause_of, problems_in
from modelyard.spec.job import JobSpec, read_job
from modelyard.spec.training import AggregateSpec
from modelyard.train.aggregate.choose import aggregation
from modelyard.train.asynchronous.pace import PACES
from modelyard.train.post import POST_VARIABLE, Post


def work(text: str) -> None:
    """One worker, from its first breath to the end of its script."""
    post = msgspec.json.decode(text, type=Post)
    job = read_job(post.job)
    torch.set_num_threads(post.threads)
    path = script_of(job, post.base)
    os.environ[POST_VARIABLE] = text
    sys.argv = [str(path), *job.args]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


def script_of(job: JobSpec, folder: Path) -> Path:
    """The script of a job; its path is relative to the job's file."""
    assert job.script is not None
    return (folder / job.script).resolve()


def check(job: JobSpec, folder: Path) -> None:
    """Find mistakes here, and not in workers that nobody listens to."""
    problems: list[Problem] = []
    path = script_of(job, folder)
    try:
        ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        problems.append(Problem(f"cannot be read: {cause_of(error)}", "check it", file=str(path)))
    except (SyntaxError, ValueError) as error:
        what = f"this is not Python: {getattr(error, 'msg', error)}"
        line = getattr(error, "lineno", None) or 0
        problems.append(Problem(what, fix="correct it", file=str(path), line=line))
    wanted = job.train.aggregate if job.train is not None else AggregateSpec()
    if wanted.name in PACES:
        what = f"a script keeps step with the others, and '{wanted.name}' does not"
        problems.append(Problem(what, fix="write 'aggregate: {name: all-reduce}'"))
    else:
        problems += problems_in(lambda: aggregation(wanted.name, wanted.options))
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
