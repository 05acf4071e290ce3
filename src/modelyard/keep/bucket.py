"""A bucket as a store, through obstore: S3 and what speaks it, OSS, Google Cloud and Azure.

Failures that pass (a connection lost, a busy server) are tried again with growing pauses by obstore
itself. What a service answers is read for its meaning and then dropped: it may repeat keys.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Self
from urllib.parse import urlsplit

from modelyard.errors import InputError
from modelyard.keep.problems import AlreadyThere, NoSuchObject, StoreError
from modelyard.keep.store import Buffer, Entry, StoreOptions, checked_name

#: Requests of that size keep a fast link busy, and one that failed costs little to repeat.
REQUEST_BYTES = 16 << 20
#: How many of them are on their way at once: this bounds the memory of an upload.
REQUESTS_AT_ONCE = 4

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

_CHECK_KEYS = (
    "check the access key and the secret, and that they belong to this endpoint and region"
)
#: What services answer, and what it means. The first that occurs in an answer counts.
_MEANINGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"),
        "there is no such bucket",
        "create it first, or correct the address",
    ),
    (
        ("InvalidBucketName", "InvalidResourceName"),
        "that cannot be the name of a bucket",
        "use 3 to 63 lower-case letters, digits and '-'",
    ),
    (("SignatureDoesNotMatch", "AuthenticationFailed"), "the secret is wrong", _CHECK_KEYS),
    (
        ("InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "invalid_grant"),
        "the access key is not known there, or no longer valid",
        _CHECK_KEYS,
    ),
    (
        ("RequestTimeTooSkewed",),
        "this machine's clock is wrong",
        "set the clock; signatures are valid for minutes only",
    ),
    (
        ("No space left", "QuotaExceeded", "InsufficientStorage", "EntityTooLarge", "507 "),
        "no space is left",
        "free some, raise the quota, or keep fewer checkpoints",
    ),
    (
        ("403 Forbidden", "AccessDenied", "AuthorizationFailure", "lacked the necessary"),
        "permission is denied",
        "let this key list, read, write and delete there",
    ),
    (
        ("401 Unauthorized", "Missing AccessKeyId", "Missing SecretAccessKey", "169.254.169.254"),
        "no valid keys were given",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what this service's tools read",
    ),
    (
        ("dns error", "failed to lookup"),
        "the name of the service cannot be found",
        "check the endpoint, the region and this machine's network",
    ),
    (
        ("kind: Connect", "error sending request", "operation timed out", "kind: Timeout"),
        "the service cannot be reached",
        "check that it runs, the endpoint and this machine's network",
    ),
    (
        ("500 Internal", "502 Bad", "503 Service", "504 Gateway", "SlowDown", "kind: Body"),
        "the service fails",
        "try again later; what was written before is not harmed",
    ),
)


class Bucket:
    """Objects below a folder of a bucket."""

    def __init__(self, store: object, place: str, *, conditional: bool) -> None:
        # obstore is imported here and not above: folders work without it.
        self._obstore = importlib.import_module("obstore")
        self._store = store
        self.place = place
        self._conditional = conditional

    @classmethod
    def open(cls, scheme: str, bucket: str, prefix: str, options: StoreOptions) -> Self:
        """The bucket at an address; nothing is asked of the service yet."""
        try:
            stores = importlib.import_module("obstore.store")
        except ImportError as error:
            what = f"{scheme}:// needs the package 'obstore', which is not installed"
            raise StoreError(what, fix="pip install obstore") from error
        place = f"{scheme}://{bucket}" + (f"/{prefix}" if prefix else "")
        settings = _settings(scheme, bucket, options)
        retry = {
            "max_retries": 20,
            "retry_timeout": timedelta(seconds=options.retry_seconds),
            "backoff": {"max_backoff": timedelta(seconds=5)},
        }
        endpoint = str(settings.get("endpoint", ""))
        client = {"allow_http": endpoint.startswith("http://"), "connect_timeout": "5s"}
        kind = {"gs": "GCSStore", "az": "AzureStore"}.get(scheme, "S3Store")
        with _translated(place, "used", ""):
            store = getattr(stores, kind)(
                bucket,
                prefix=prefix or None,
                client_options=client,
                retry_config=retry,
                **settings,
            )
        # OSS speaks S3 but not its conditional writes.
        return cls(store, place, conditional=scheme != "oss")

    def put(self, name: str, data: Buffer, *, only_if_new: bool = False) -> None:
        checked_name(name)
        with _translated(self.place, "written", name):
            if not only_if_new:
                self._obstore.put(self._store, name, data, use_multipart=False)
                return
            if self._conditional:
                try:
                    self._obstore.put(self._store, name, data, mode="create")
                    return
                except NotImplementedError:
                    self._conditional = False
            # Without conditional writes there is a moment in which another may get in between.
            try:
                self._obstore.head(self._store, name)
            except FileNotFoundError:
                self._obstore.put(self._store, name, data, use_multipart=False)
                return
            raise FileExistsError

    def write(self, name: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        checked_name(name)
        if size_bytes <= REQUEST_BYTES:
            self.put(name, b"".join(chunks))
            return
        with _translated(self.place, "written", name):
            self._obstore.put(
                self._store,
                name,
                (memoryview(chunk) for chunk in chunks),
                use_multipart=True,
                # Services take at most 10,000 requests for one object.
                chunk_size=max(REQUEST_BYTES, -(-size_bytes // 9_000)),
                max_concurrency=REQUESTS_AT_ONCE,
            )

    def get(self, name: str) -> bytes:
        with _translated(self.place, "read", name):
            return bytes(self._obstore.get(self._store, checked_name(name)).bytes())

    def read(self, name: str, start: int, stop: int) -> memoryview:
        if stop <= start:
            return memoryview(b"")
        with _translated(self.place, "read", name):
            got = self._obstore.get_range(self._store, checked_name(name), start=start, end=stop)
            return memoryview(got)

    def stream(self, name: str) -> Iterator[memoryview]:
        with _translated(self.place, "read", name):
            found = self._obstore.get(self._store, checked_name(name))
            for piece in found.stream(min_chunk_size=REQUEST_BYTES // 2):
                yield memoryview(piece)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        below = f"{checked_name(prefix)}/" if prefix else None
        with _translated(self.place, "listed", prefix):
            for page in self._obstore.list(self._store, below):
                for found in page:
                    at = found["last_modified"].timestamp()
                    yield Entry(str(found["path"]), int(found["size"]), at)

    def folders(self, prefix: str = "") -> list[str]:
        below = f"{checked_name(prefix)}/" if prefix else None
        with _translated(self.place, "listed", prefix):
            found = self._obstore.list_with_delimiter(self._store, below)
            names = [str(name).rstrip("/") for name in found["common_prefixes"]]
            return sorted(name.rpartition("/")[2] for name in names)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                with _translated(self.place, "deleted", name):
                    self._obstore.delete(self._store, checked_name(name))
            except NoSuchObject:
                continue

    def clear(self, prefix: str) -> None:
        names = [entry.name for entry in self.entries(prefix)]
        if not names:
            return
        with _translated(self.place, "deleted", prefix):
            self._obstore.delete(self._store, names)


def _settings(scheme: str, bucket: str, options: StoreOptions) -> dict[str, object]:
    """What obstore wants to know, by service; empty settings are left to the environment."""
    if scheme == "gs":
        settings = {"endpoint": options.endpoint}
    elif scheme == "az":
        settings = {
            "account_name": options.account,
            "account_key": options.secret_key,
            "endpoint": options.endpoint,
        }
    elif scheme == "oss":
        settings = _oss_settings(bucket, options)
    else:
        settings = {
            # As Amazon's own tools read it, which is how other services are named.
            "endpoint": options.endpoint or _first_set(*_ENDPOINTS),
            "region": options.region or _first_set("AWS_REGION", "AWS_DEFAULT_REGION"),
            "access_key_id": options.access_key,
            "secret_access_key": options.secret_key,
        }
        if settings["endpoint"] and not settings["region"]:
            # Services other than Amazon's have no regions, but signatures must name one.
            settings["region"] = "us-east-1"
    _check_endpoint(settings["endpoint"])
    found: dict[str, object] = {key: value for key, value in settings.items() if value}
    if scheme == "oss":
        found["virtual_hosted_style_request"] = True
    return found


def _check_endpoint(endpoint: str) -> None:
    if not endpoint:
        return
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or " " in endpoint:
        fix = "write it as https://host or http://127.0.0.1:8333"
        raise InputError("the endpoint of a store is not an address", fix=fix)
    if parts.username or parts.password:
        fix = "give keys through the environment"
        raise InputError("the endpoint of a store holds a user or password", fix=fix)


def _oss_settings(bucket: str, options: StoreOptions) -> dict[str, str]:
    """OSS answers S3's requests at a name of its own, with the bucket in front of it."""
    region = options.region or _first_set("OSS_REGION")
    endpoint = options.endpoint or _first_set("OSS_ENDPOINT")
    if not region and not endpoint:
        fix = "set OSS_REGION, as in cn-hangzhou, or OSS_ENDPOINT"
        raise InputError("oss:// needs the region of the bucket", fix=fix)
    if not endpoint:
        endpoint = f"https://s3.oss-{region}.aliyuncs.com"
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    host = parts.netloc if parts.netloc.startswith(f"{bucket}.") else f"{bucket}.{parts.netloc}"
    return {
        "endpoint": f"{parts.scheme}://{host}",
        "region": region or "oss",
        "access_key_id": options.access_key or _first_set("OSS_ACCESS_KEY_ID"),
        "secret_access_key": options.secret_key or _first_set("OSS_ACCESS_KEY_SECRET"),
    }


def _first_set(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


@contextmanager
def _translated(place: str, done: str, name: str) -> Iterator[None]:
    """Errors of the service as `StoreError`, without a word of the service's own."""
    shown = f"'{name}' in '{place}'" if name else f"'{place}'"
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("obstore"):
            raise
        # Not even as the cause: tracebacks would show it.
        raise _problem(error, shown, done) from None


def _problem(error: Exception, shown: str, done: str) -> StoreError:
    answer = str(error)
    for marks, cause, fix in _MEANINGS:
        if any(mark in answer for mark in marks):
            return StoreError(f"{shown} cannot be {done}: {cause}", fix=fix)
    if isinstance(error, FileNotFoundError):
        return NoSuchObject(f"there is no {shown}", fix="check the name and the place")
    if isinstance(error, FileExistsError) or type(error).__name__ == "AlreadyExistsError":
        return AlreadyThere(f"there already is {shown}", fix="choose another name")
    cause = f"the service refuses ({type(error).__name__})"
    return StoreError(f"{shown} cannot be {done}: {cause}", fix="check the address and the keys")
