"""Where control groups can be made: below or beside the group that this process is in."""

from __future__ import annotations

import os

from modelyard.engines.local.keeper.groups import LIMIT_OF, Place

_UNIFIED = "cgroup2"

#: set by systemd on a group that whoever runs in it may divide
_DELEGATED = "user.delegate"


class Mount:
    """A hierarchy: where it is mounted, which of its groups that is, and its controllers."""

    def __init__(self, folder: str, root: str, kind: str, controllers: list[str]) -> None:
        self.folder = folder
        self.root = root
        self.unified = kind == _UNIFIED
        self.controllers = controllers


def places(
    controllers: list[str], *, mounts: bytes, membership: bytes
) -> tuple[dict[str, Place], list[str]]:
    """Where to make groups for each controller, and why there are none for the others.

    `mounts` and `membership` are the texts of /proc/self/mountinfo and /proc/self/cgroup.
    """
    hierarchies = _mounts(mounts)
    own = _membership(membership)
    found: dict[str, Place] = {}
    missing = []
    for controller in controllers:
        try:
            found[controller] = _place(controller, hierarchies, own)
        except OSError as error:
            missing.append(f"{LIMIT_OF[controller]}: {error.strerror}")
    return found, missing


def places_here(controllers: list[str], *, use_groups: bool) -> tuple[dict[str, Place], list[str]]:
    """The same for this process."""
    if not controllers:
        return {}, []
    if not use_groups:
        return {}, [f"{LIMIT_OF[each]}: control groups are switched off" for each in controllers]
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = file.read()
        with open("/proc/self/cgroup", "rb") as file:
            membership = file.read()
    except OSError:
        return {}, [f"{LIMIT_OF[each]}: this system has no control groups" for each in controllers]
    return places(controllers, mounts=mounts, membership=membership)


def _place(controller: str, mounts: list[Mount], own: dict[str, str]) -> Place:
    for mount in mounts:
        if not mount.unified and controller in mount.controllers and controller in own:
            return _writable(_folder(mount, own[controller])), False
    for mount in mounts:
        if mount.unified and "" in own:
            return _unified_place(controller, _folder(mount, own[""])), True
    raise OSError(0, f"no control groups for {controller} are mounted")


def _unified_place(controller: str, own: str) -> str:
    if controller not in _words(own, "cgroup.controllers"):
        raise OSError(0, f"the control group {own} was not given the {controller} controller")
    parent = os.path.dirname(own)
    if _is_delegated(parent) and controller in _words(parent, "cgroup.subtree_control"):
        return _writable(parent)
    if controller not in _words(own, "cgroup.subtree_control"):
        try:
            with open(f"{_writable(own)}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write(f"+{controller}")
        except OSError as error:
            raise OSError(
                error.errno,
                f"the control group {own} holds processes, so it cannot be divided: "
                "run the server in a subgroup of a delegated group",
            ) from error
    return own


def _writable(folder: str) -> str:
    if not os.access(folder, os.W_OK):
        raise OSError(0, f"no permission to make control groups in {folder}")
    return folder


def _is_delegated(folder: str) -> bool:
    try:
        return os.getxattr(folder, _DELEGATED) == b"1"
    except (OSError, AttributeError):
        return False


def _words(folder: str, name: str) -> list[str]:
    with open(f"{folder}/{name}", encoding="ascii") as file:
        return file.read().split()


def _folder(mount: Mount, group: str) -> str:
    """Where a group's folder is, seen through a mount that may show only a part of the groups."""
    inside = os.path.relpath(group, mount.root)
    if inside.startswith(".."):
        raise OSError(0, f"the control group {group} is not mounted here")
    return os.path.normpath(os.path.join(mount.folder, inside))


def _mounts(text: bytes) -> list[Mount]:
    found = []
    for line in text.decode(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields, last = before.split(), after.split()
        if len(fields) >= 5 and len(last) >= 3 and last[0] in ("cgroup", _UNIFIED):
            found.append(Mount(_plain(fields[4]), _plain(fields[3]), last[0], last[2].split(",")))
    return found


def _membership(text: bytes) -> dict[str, str]:
    """The group of this process by controller; under the empty name, that of version 2."""
    own = {}
    for line in text.decode(errors="surrogateescape").splitlines():
        _, controllers, group = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), group))
    return own


def _plain(field: str) -> str:
    r"""The kernel writes blanks and backslashes in paths as octal numbers, such as \040."""
    pieces = field.split("\\")
    return pieces[0] + "".join(chr(int(piece[:3], 8)) + piece[3:] for piece in pieces[1:])
