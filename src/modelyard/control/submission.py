"""From what people write to a job of the yard."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

from modelyard.control.estimating import estimate, estimate_text
from modelyard.control.lifecycle.job import Facts, Form, Job
from modelyard.control.store.callers import Caller, Role
from modelyard.errors import InputError
from modelyard.spec.cluster import Cluster
from modelyard.spec.job import JobSpec, parse_job

_ID = re.compile(r"[0-9a-f]{8,16}")


def new_id() -> str:
    """A name that no other job has."""
    return secrets.token_hex(6)


def checked_id(written: str) -> str:
    """An id that a client chose, so that it can ask twice and submit once."""
    if not _ID.fullmatch(written):
        raise InputError(f"'{written[:40]}' is no id of a job", fix="write 8 to 16 hex digits")
    return written


def submission(
    text: str,
    *,
    id: str,
    caller: Caller,
    folder: str,
    cluster: Cluster,
    at: float,
    file: str = "job",
) -> tuple[Job, str]:
    """The job of a YAML text, and what is kept of the text; `InputError` with all its problems."""
    spec = parse_job(text, file)
    tenant = spec.tenant if "tenant" in spec.model_fields_set else caller.tenant
    if not caller.may_change(tenant):
        if caller.role is Role.VIEWER:
            what = f"{caller.user} is a viewer, and may look at jobs, not submit them"
            raise InputError(what, fix="ask an admin for a token of role 'member'")
        what = f"{caller.user} may not submit jobs of tenant '{tenant}'"
        raise InputError(what, fix=f"leave 'tenant' out, or write 'tenant: {caller.tenant}'")
    each = _worker_devices(spec)
    kinds = _usable_kinds(spec, cluster, each)
    if folder and not Path(folder).is_absolute():
        raise InputError(f"'{folder[:200]}' is no absolute folder", fix="send the whole path")
    facts = Facts(
        id=id,
        name=spec.name,
        tenant=tenant,
        owner=caller.user,
        submitted=at,
        form=Form.COMMAND if spec.command is not None else Form.ELASTIC,
        model=spec.model or spec.name,
        kinds=spec.kinds,
        exclusive=spec.exclusive,
        worker_devices=each,
        retries=spec.retries,
    )
    job = Job(
        facts=facts,
        min_devices=spec.devices.min,
        max_devices=spec.devices.max,
        priority=spec.priority,
        since=at,
    )
    written = spec.model_dump(mode="json", exclude_unset=True)
    foreseen = estimate_text(estimate(spec, kinds))
    kept = {"job": written, "text": text, "folder": folder, "estimate": foreseen}
    return job, json.dumps(kept)


def _worker_devices(spec: JobSpec) -> int:
    """Devices of one worker; the sizes that a job allows are multiples of them."""
    if spec.command is not None or spec.train is None:
        return 1
    each, low, high = spec.train.parallel.places, spec.devices.min, spec.devices.max
    if low % each or high % each:
        nearest = max(low // each, 1) * each, max(high // each, 1) * each
        what = f"a worker of the job has {each} devices (pipeline × fsdp × tensor)"
        fix = f"write multiples of {each}, as 'devices: {{min: {nearest[0]}, max: {nearest[1]}}}'"
        raise InputError(what, fix=fix)
    return each


def _usable_kinds(spec: JobSpec, cluster: Cluster, each: int) -> list[str]:
    """Kinds on which the job may run; what could never start, however long, is refused at once."""
    kinds = [kind for kind in cluster.kinds if not spec.kinds or kind in spec.kinds]
    if not kinds:
        have = ", ".join(cluster.kinds)
        raise InputError(f"no node has {' or '.join(spec.kinds)}", fix=f"this yard has {have}")
    most = max(cluster.largest_gang(kind, each) for kind in kinds)
    if spec.devices.min > most:
        groups = f" in groups of {each}, each on one node," if each > 1 else ""
        what = f"the job needs {spec.devices.min} devices of one kind{groups} and the yard has"
        smaller = (
            f"write 'devices: {most}' or fewer" if most else "write a smaller 'train.parallel'"
        )
        raise InputError(f"{what} {most}", fix=smaller)
    return kinds
