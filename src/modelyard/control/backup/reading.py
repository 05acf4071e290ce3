"""Read a backup: nothing leaves here without its hash, and its number of rows, being right."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from modelyard.control.backup.checkpoints import copy_problems
from modelyard.control.backup.cipher import Cipher, Passphrase
from modelyard.control.backup.manifest import Manifest, Part
from modelyard.control.backup.place import Place
from modelyard.errors import InputError
from modelyard.keep.problems import Damaged, NoSuchObject
from modelyard.keep.store import Store

Record = dict[str, object]


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup that can be read."""

    store: Store
    manifest: Manifest
    cipher: Cipher | None

    @classmethod
    def open(cls, place: Place, manifest: Manifest, passphrase: Passphrase | None) -> Self:
        """`InputError` without the key that it needs, `Damaged` with another."""
        cipher = None
        if manifest.encrypted:
            if passphrase is None:
                fix = "name the file with its key: --key-file FILE"
                raise InputError(f"backup {manifest.name} is encrypted", fix=fix)
            cipher = Cipher.of(passphrase, bytes.fromhex(manifest.salt))
            cipher.check(manifest.body(), manifest.tag, name=manifest.name)
        return cls(place.backups, manifest, cipher)

    def rows(self, table: str) -> Iterator[list[Record]]:
        """The rows of a table, part by part; `Damaged` when some are missing."""
        total = 0
        for part in self.manifest.parts:
            if part.table == table:
                found = self.rows_of(part)
                total += len(found)
                yield found
        if total != self.manifest.tables[table]:
            what = f"'{table}' has {total:,} rows instead of {self.manifest.tables[table]:,}"
            raise Damaged(f"backup {self.manifest.name}: {what}", fix=_FIX)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Paths in the yard's folder, and what is in them."""
        for part in self.manifest.parts:
            if part.file:
                yield part.file, self.data(part)

    def rows_of(self, part: Part) -> list[Record]:
        """The rows of one part."""
        try:
            found = [json.loads(line) for line in self.data(part).splitlines()]
        except ValueError as error:
            raise self._damaged(part, "holds no rows") from error
        if len(found) != part.rows:
            raise self._damaged(part, f"has {len(found):,} rows instead of {part.rows:,}")
        return found

    def data(self, part: Part) -> bytes:
        """What one part holds, as it was before it was packed."""
        stored = stored_bytes(self.store, self.manifest.name, part)
        if self.cipher is not None:
            stored = self.cipher.reveal(stored, name=part.name)
        try:
            return gzip.decompress(stored)
        except (OSError, EOFError, zlib.error) as error:
            raise self._damaged(part, "cannot be unpacked") from error

    def _damaged(self, part: Part, what: str) -> Damaged:
        return Damaged(f"backup {self.manifest.name}: '{part.name}' {what}", fix=_FIX)


_FIX = "restore another backup: see 'yard backup --list'"


def stored_bytes(store: Store, name: str, part: Part) -> bytes:
    """A part as it lies there; `Damaged` when that is not what was written."""
    try:
        data = store.get(f"{name}/{part.name}")
    except NoSuchObject as error:
        raise Damaged(f"backup {name}: '{part.name}' is missing", fix=_FIX) from error
    if len(data) != part.size_bytes or hashlib.sha256(data).hexdigest() != part.sha256:
        raise Damaged(f"backup {name}: '{part.name}' has changed", fix=_FIX)
    return data


def backup_problems(place: Place, manifest: Manifest, passphrase: Passphrase | None) -> list[str]:
    """What is wrong with a backup, from reading all of it back; nothing when it is whole.

    Of an encrypted one whose key is not at hand, hashes are checked and rows cannot be counted.
    """
    found = []
    if manifest.encrypted and passphrase is None:
        store = place.backups
        for part in manifest.parts:
            try:
                stored_bytes(store, manifest.name, part)
            except Damaged as error:
                found.append(error.message)
    else:
        found += _read_all(place, manifest, passphrase)
    for copy in manifest.checkpoints:
        found += copy_problems(place, copy)
    return found


def _read_all(place: Place, manifest: Manifest, passphrase: Passphrase | None) -> list[str]:
    found = []
    try:
        backup = Backup.open(place, manifest, passphrase)
    except Damaged as error:
        return [error.message]
    counted: Counter[str] = Counter()
    for part in manifest.parts:
        try:
            if part.table:
                counted[part.table] += len(backup.rows_of(part))
            else:
                backup.data(part)
        except Damaged as error:
            found.append(error.message)
    for table, rows in manifest.tables.items():
        if not found and counted[table] != rows:
            found.append(f"'{table}' has {counted[table]:,} rows instead of {rows:,}")
    return found
