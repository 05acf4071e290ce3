"""Folders and buckets behave alike: whole objects, ranges, conditions, errors with a fix."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from modelyard.errors import InputError
from modelyard.keep.folder import Folder
from modelyard.keep.problems import AlreadyThere, NoSuchObject, StoreError
from modelyard.keep.store import Store, StoreOptions, open_store

from .conftest import Server


def test_an_object_comes_back_whole_and_in_parts(store: Store) -> None:
    store.put("runs/one", b"0123456789")
    assert store.get("runs/one") == b"0123456789"
    assert bytes(store.read("runs/one", 2, 5)) == b"234"
    assert bytes(store.read("runs/one", 8, 99)) == b"89"
    assert bytes(store.read("runs/one", 3, 3)) == b""
    assert b"".join(bytes(piece) for piece in store.stream("runs/one")) == b"0123456789"
    store.put("runs/one", b"another")
    assert store.get("runs/one") == b"another"


def test_an_empty_object_is_an_object(store: Store) -> None:
    store.put("empty", b"")
    assert store.get("empty") == b""
    assert [entry.size_bytes for entry in store.entries()] == [0]


def test_a_large_object_is_written_from_pieces(store: Store) -> None:
    piece = os.urandom(1 << 20)
    store.write("large", (memoryview(piece) for _ in range(37)), size_bytes=37 << 20)
    assert bytes(store.read("large", (36 << 20) - 5, (36 << 20) + 5)) == piece[-5:] + piece[:5]
    assert [entry.size_bytes for entry in store.entries()] == [37 << 20]
    assert b"".join(store.stream("large")) == piece * 37


def test_what_is_to_be_new_replaces_nothing(store: Store) -> None:
    store.put("one", b"first", only_if_new=True)
    with pytest.raises(AlreadyThere, match="one"):
        store.put("one", b"second", only_if_new=True)
    assert store.get("one") == b"first"


def test_listings_know_folders(store: Store) -> None:
    for name in ("a/1", "a/2", "a/deep/3", "ab/4", "top"):
        store.put(name, b"x")
    assert sorted(entry.name for entry in store.entries("a")) == ["a/1", "a/2", "a/deep/3"]
    assert store.folders() == ["a", "ab"]
    assert store.folders("a") == ["deep"]
    assert store.folders("nothing") == []
    assert list(store.entries("nothing")) == []


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    store.put("a/1", b"x")
    store.put("a/2", b"x")
    store.delete(["a/1", "a/9", "b/9"])
    assert [entry.name for entry in store.entries()] == ["a/2"]
    store.clear("a")
    store.clear("a")
    assert list(store.entries()) == []


def test_a_missing_object_is_named(store: Store) -> None:
    with pytest.raises(NoSuchObject, match="runs/none"):
        store.get("runs/none")
    with pytest.raises(NoSuchObject, match="runs/none"):
        store.read("runs/none", 0, 4)
    with pytest.raises(NoSuchObject, match="runs/none"):
        list(store.stream("runs/none"))


def test_pieces_that_fail_leave_nothing(store: Store) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(20 << 20)
        raise RuntimeError("the source failed")

    with pytest.raises((RuntimeError, StoreError)):
        store.write("half", pieces(), size_bytes=40 << 20)
    assert list(store.entries()) == []


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a b", "ü"])
def test_names_that_not_every_place_can_hold_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name of an object"):
        Folder(tmp_path).put(name, b"x")


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("", "no place"),
        ("ftp://host/x", "no kind of store"),
        ("s3://", "names no bucket"),
        ("s3://key:secret@bucket/x", "holds a user"),
        ("oss://bucket/x", "region"),
    ],
)
def test_addresses_that_cannot_be_used(
    place: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.delenv("OSS_REGION", raising=False)
    monkeypatch.delenv("OSS_ENDPOINT", raising=False)
    with pytest.raises(InputError, match=complaint) as caught:
        open_store(place)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["not a url", "ftp://x", "http://", "http://a b", "127.0.0.1"])
def test_an_endpoint_is_an_address(endpoint: str) -> None:
    pytest.importorskip("obstore")
    with pytest.raises(InputError, match="endpoint"):
        open_store("s3://bucket", StoreOptions(endpoint=endpoint, access_key="k", secret_key="s"))


def test_other_services_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no real one to ask here: this shows only that their settings are accepted."""
    pytest.importorskip("obstore")
    keys = {"access_key": "k", "secret_key": "c2VjcmV0"}
    assert open_store("oss://b/x", StoreOptions(region="cn-hangzhou", **keys)).place == "oss://b/x"
    azure = StoreOptions(account="someone", **keys)
    assert open_store("az://container/x", azure).place == "az://container/x"
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    assert open_store("gs://b/x").place == "gs://b/x"


def test_secrets_stay_out_of_what_is_printed() -> None:
    options = StoreOptions(access_key="the-key", secret_key="the-secret")
    assert "the-key" not in repr(options)
    assert "the-secret" not in repr(options)


@pytest.mark.parametrize(
    ("changes", "bucket", "complaint"),
    [
        ({"secret_key": "wrong-secret-9876543210"}, "kept-things", "secret is wrong"),
        ({"access_key": "unknown-key"}, "kept-things", "access key is not known"),
        ({}, "no-such-bucket", "no such bucket"),
        (
            {"endpoint": "http://127.0.0.1:9", "retry_seconds": 0.2},
            "kept-things",
            "cannot be reached",
        ),
    ],
)
def test_what_a_service_refuses(
    s3: Server, changes: dict[str, object], bucket: str, complaint: str
) -> None:
    store = open_store(f"s3://{bucket}/x", s3.options(**changes))
    for attempt in (lambda: list(store.entries()), lambda: store.folders(), lambda: store.get("a")):
        with pytest.raises(StoreError, match=complaint) as caught:
            attempt()
        shown = "".join(traceback.format_exception(caught.value))
        assert caught.value.fix
        for secret in (s3.secret, "wrong-secret", "Signature"):
            assert secret not in shown


def test_failures_that_pass_are_tried_again(s3: Server) -> None:
    """A service that drops the first connections, as one does that is being restarted."""
    with dropping_connections(s3.endpoint, 3) as (endpoint, dropped):
        store = open_store(
            f"s3://{s3.bucket}/again", s3.options(endpoint=endpoint, retry_seconds=30)
        )
        store.put("one", b"1")
        assert store.get("one") == b"1"
    assert len(dropped) == 3


@contextmanager
def dropping_connections(endpoint: str, count: int) -> Iterator[tuple[str, list[int]]]:
    """A way to a server on which the first connections end at once."""
    target = urlsplit(endpoint)
    assert target.hostname is not None
    assert target.port is not None
    address = (target.hostname, target.port)
    dropped: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def forward(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)

        def serve() -> None:
            with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
                while True:
                    client = opened.enter_context(listening.accept()[0])
                    if len(dropped) < count:
                        dropped.append(len(dropped))
                        client.close()
                        continue
                    server = opened.enter_context(socket.create_connection(address))
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=forward, args=pair, daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", dropped
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_environment_says_where_and_who(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    assert open_store(f"s3://{s3.bucket}").get("hello") == b"hello"


def test_a_key_that_may_only_read(s3: Server) -> None:
    keys = {"access_key": s3.reading_key, "secret_key": s3.reading_secret}
    store = open_store(f"s3://{s3.bucket}", s3.options(**keys))
    assert store.get("hello") == b"hello"
    with pytest.raises(StoreError, match="permission is denied"):
        store.put("mine", b"x")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"a file|file is in the way"):
        Folder(tmp_path / "file").put("one", b"x")


def test_what_a_killed_process_left_is_not_listed(tmp_path: Path) -> None:
    store = Folder(tmp_path)
    store.put("a/1", b"x")
    (tmp_path / "a" / ".writing-1-1-2").write_bytes(b"half")
    assert [entry.name for entry in store.entries()] == ["a/1"]
    store.clear("a")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no small file system: there is no mount command")
    if done.returncode != 0:
        pytest.skip("no small file system: mounting one needs to be root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    store = Folder(small_disk)
    store.put("kept", bytes(1 << 20))
    with pytest.raises(StoreError, match="no space is left") as caught:
        store.put("kept", bytes(4 << 20))
    assert "free some" in caught.value.fix
    assert store.get("kept") == bytes(1 << 20)
    assert [entry.name for entry in store.entries()] == ["kept"]
    store.put("another", bytes(2 << 20))
