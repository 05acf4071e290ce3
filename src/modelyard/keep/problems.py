"""What can go wrong with kept things, each with its fix.

    YardError
    ├── StoreError           a place did not do what it was asked
    │   ├── NoSuchObject     there is nothing under that name
    │   └── AlreadyThere     something is, and it was not to be replaced
    └── Damaged              what was read is not what was written

Messages never hold a secret: what a service answers may repeat keys and signatures, so its words
are never passed on, only what they mean.
"""

from __future__ import annotations

from modelyard.errors import YardError


class StoreError(YardError):
    """A folder or bucket did not do what it was asked; the message says why and what helps."""


class NoSuchObject(StoreError):
    """There is nothing under that name."""


class AlreadyThere(StoreError):
    """There is something under that name, and it was not to be replaced."""


class Damaged(YardError):
    """What was read is not what was written: bytes changed, missing, or never complete."""
