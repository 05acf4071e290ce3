"""Encryption with a passphrase: AES-256 in GCM, a key by scrypt, both of the package cryptography.

Every part has its name as associated data, so that parts cannot change places; the manifest has a
tag over all of it, so that none can be left out.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from modelyard.errors import InputError, cause_of
from modelyard.keep.problems import Damaged

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: where a passphrase is looked for when no file with one is named
PASSPHRASE_VARIABLE = "YARD_BACKUP_PASSPHRASE"
#: A shorter one is guessed by whoever gets the backup.
LEAST_LETTERS = 12
SALT_BYTES, NONCE_BYTES, KEY_BYTES = 16, 12, 32
#: scrypt's cost as RFC 7914 suggests for files: 64 MiB and about a tenth of a second
COST, BLOCK, LANES = 2**16, 8, 1


@dataclass(frozen=True, slots=True)
class Passphrase:
    """What people know and backups do not hold."""

    text: bytes = field(repr=False)


def passphrase_from(key_file: Path | None) -> Passphrase | None:
    """The passphrase of a file, or of the environment; None where neither has one."""
    if key_file is None:
        said = os.environ.get(PASSPHRASE_VARIABLE, "")
        return _checked(said.encode(), PASSPHRASE_VARIABLE) if said else None
    try:
        if not key_file.is_file():
            raise InputError("no such file with a key", fix="name a file", where=str(key_file))
        return _checked(key_file.read_bytes().strip(), str(key_file))
    except OSError as error:
        what = f"the key cannot be read: {cause_of(error)}"
        raise InputError(what, fix="let this user read it", where=str(key_file)) from error


def _checked(text: bytes, where: str) -> Passphrase:
    if len(text) < LEAST_LETTERS:
        fix = "make one with: openssl rand -hex 32"
        raise InputError(f"a key has {LEAST_LETTERS} letters or more", fix=fix, where=where)
    _need_cryptography()
    return Passphrase(text)


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401 (only whether it is there)
    except ImportError as error:
        fix = "pip install 'modelyard[backup]'"
        raise InputError(
            "encryption needs the package cryptography, which is not installed", fix=fix
        ) from error


@dataclass(frozen=True, slots=True)
class Cipher:
    """The key of one backup."""

    salt: bytes
    _key: AESGCM = field(repr=False)

    @classmethod
    def of(cls, passphrase: Passphrase, salt: bytes | None = None) -> Self:
        """The key that a passphrase and a salt make; of a new salt when there is none."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

        salt = salt if salt is not None else secrets.token_bytes(SALT_BYTES)
        key = Scrypt(salt=salt, length=KEY_BYTES, n=COST, r=BLOCK, p=LANES).derive(passphrase.text)
        return cls(salt, AESGCM(key))

    def hide(self, data: bytes, *, name: str) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._key.encrypt(nonce, data, name.encode())

    def reveal(self, data: bytes, *, name: str) -> bytes:
        """What was hidden under a name; `Damaged` when it is not that, or the key is another."""
        return self._revealed(data, name.encode(), f"'{name}'")

    def tag(self, body: bytes) -> str:
        """Proof that somebody who knows the key wrote `body`."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return (nonce + self._key.encrypt(nonce, b"", body)).hex()

    def check(self, body: bytes, tag: str, *, name: str) -> None:
        """`Damaged` unless `tag` was made of `body` with this key."""
        try:
            data = bytes.fromhex(tag)
        except ValueError:
            data = b""
        self._revealed(data, body, f"backup {name}")

    def _revealed(self, data: bytes, associated: bytes, what: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._key.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], associated)
        except (InvalidTag, ValueError) as error:
            fix = "check the key file; if it is right, restore another backup"
            raise Damaged(f"{what} cannot be read with this key", fix=fix) from error
