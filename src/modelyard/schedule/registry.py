"""Policies by name: those that come with Modelyard and those that other packages add.

`policy("tiresias-las:limits=3250/7200")` makes one. Nothing is imported until it is asked for. A
package adds its own through the entry-point group `modelyard.policies`; one that cannot be loaded
is listed with its error and leaves the others alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from modelyard.errors import InputError, Problem, UnknownName, one_of, suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from modelyard.schedule.view import Policy

ENTRY_POINT_GROUP = "modelyard.policies"
OWN_PACKAGE = "modelyard"

#: Reads the numbers of a file that an option names: this package opens none itself.
ReadNumbers = Callable[[str], Sequence[float]]
Number = int | float
Option = bool | int | float | str | tuple[Number, ...]

_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy that can be asked for by name."""

    name: str
    #: "module:factory", imported when first used
    source: str
    #: options that this name sets; whoever asks may set them otherwise
    preset: Mapping[str, Option] = field(default_factory=dict)
    #: options whose value names a file with numbers
    file_options: tuple[str, ...] = ()
    #: the installed package that brings it
    package: str = OWN_PACKAGE

    def factory(self) -> Callable[..., Policy]:
        """The function that makes the policy; an InputError when it cannot be loaded."""
        from importlib import import_module

        module, _, attribute = self.source.partition(":")
        try:
            found = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        # A plugin is foreign code: whatever its import raises must not reach the other policies.
        except Exception as error:
            raise InputError(
                f"policy '{self.name}' cannot be loaded from {self.source}: "
                f"{type(error).__name__}: {error}",
                fix=f"repair or remove the package '{self.package}'",
            ) from error
        if not callable(found):
            raise InputError(
                f"policy '{self.name}' cannot be loaded: {self.source} is no function",
                fix=f"repair or remove the package '{self.package}'",
            )
        return found

    @property
    def error(self) -> str | None:
        """Why the policy cannot be used, or None when it can; imports its module."""
        try:
            self.factory()
        except InputError as error:
            return error.message
        return None

    def options(self) -> dict[str, object]:
        """Each option with its default (`REQUIRED` when it has none), in order."""
        import inspect

        defaults: dict[str, object] = {}
        for name, parameter in inspect.signature(self.factory()).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            missing = parameter.default is parameter.empty
            defaults[name] = REQUIRED if missing else parameter.default
        return {**defaults, **self.preset}


class _Required:
    """The default of an option that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


def _own(
    name: str, source: str, *, files: tuple[str, ...] = (), **preset: Option
) -> tuple[str, PolicyEntry]:
    return name, PolicyEntry(name, f"modelyard.schedule.{source}", preset, files)


_OWN = dict(
    (
        _own("fifo", "fifo:fifo"),
        _own("fifo-backfill", "fifo:fifo_backfill"),
        _own("sjf", "shortest:sjf"),
        _own("srtf", "shortest:srtf"),
        _own("srsf", "shortest:srsf"),
        _own("las", "tiresias:las"),
        _own("tiresias-las", "tiresias:tiresias_las"),
        _own("tiresias-gittins", "tiresias:tiresias_gittins", files=("samples",)),
        _own("borg", "borg:borg"),
        _own("mesos", "mesos:mesos"),
        _own("yarn", "yarn:yarn"),
        _own("gavel", "gavel:gavel"),
        _own("gavel-throughput", "gavel:gavel", objective="throughput"),
        _own("optimus", "optimus:optimus"),
        _own("pollux", "pollux:pollux"),
        _own("sia", "sia:sia"),
        # Its weights are in a file, which this package does not open.
        ("dl2", PolicyEntry("dl2", "modelyard.learn.stored:dl2")),
        _own("yard", "yard.policy:yard"),
    )
)


def policies() -> dict[str, PolicyEntry]:
    """Every policy by name, Modelyard's own first.

    A name that is taken already becomes `package/name`, so that installing a package never
    changes what a name means.
    """
    found = dict(_OWN)
    for point in _entry_points():
        package = point.dist.name if point.dist is not None else "unknown"
        name = f"{package}/{point.name}" if point.name in found else point.name
        found.setdefault(name, PolicyEntry(name, point.value, package=package))
    return found


def policy(text: str, *, read_numbers: ReadNumbers | None = None) -> Policy:
    """The policy that `name` or `name:option=value:option=value` describes.

    A value is a number, `true` or `false`, numbers with `/` between them, or text; one value
    without a name goes to the first option. An option that names a file needs `read_numbers`.
    The policy is called what was asked for, so that two variants can be told apart.
    """
    label = text.strip()
    name, *parts = label.split(":")
    entry = _find(name.strip())
    defaults = entry.options()
    given, problems = _read_options(entry, parts, defaults)
    chosen: dict[str, object] = {}
    for option, written in given.items():
        try:
            chosen[option] = _value(entry, option, written, defaults[option], read_numbers)
        except InputError as error:
            problems += error.problems
    missing = [key for key, value in defaults.items() if value is REQUIRED and key not in given]
    problems += [
        Problem(f"policy '{entry.name}' needs option '{key}'", f"write {entry.name}:{key}=…")
        for key in missing
    ]
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    try:
        made = entry.factory()(**{**entry.preset, **chosen})
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(
            f"policy '{label}' cannot be made: {error}", fix=_usage(entry.name, defaults)
        ) from error
    return _labelled(made, label)


def _find(name: str) -> PolicyEntry:
    # The metadata of all installed packages is read only for a name that is not our own.
    entry = _OWN.get(name) or policies().get(name)
    if entry is not None:
        return entry
    known = tuple(policies())
    error = UnknownName("policy", name, known)
    if error.suggestion is None:
        # With nothing near, the whole list is the way out, however long it is.
        error.problems = (Problem(error.message, fix=f"use {one_of(known)}"),)
    raise error


def _read_options(
    entry: PolicyEntry, parts: Sequence[str], defaults: Mapping[str, object]
) -> tuple[dict[str, str], list[Problem]]:
    """Option → value as written, and everything wrong with the names."""
    given: dict[str, str] = {}
    problems: list[Problem] = []
    for index, part in enumerate(parts):
        key, equals, written = part.partition("=")
        option = key.strip().replace("-", "_")
        if not equals or not option.isidentifier():
            if index > 0 or not defaults or not part.strip():
                problems.append(
                    Problem(
                        f"'{part}' is no option of policy '{entry.name}'",
                        _usage(entry.name, defaults),
                    )
                )
                continue
            option, written = next(iter(defaults)), part
        if option not in defaults:
            problems.append(_unknown_option(entry, key.strip(), defaults))
        elif option in given:
            problems.append(
                Problem(f"option '{option}' of policy '{entry.name}' is set twice", "set it once")
            )
        else:
            given[option] = written.strip()
    return given, problems


def _unknown_option(entry: PolicyEntry, key: str, defaults: Mapping[str, object]) -> Problem:
    usage = _usage(entry.name, defaults)
    nearest = suggest(key, defaults)
    return Problem(
        f"policy '{entry.name}' has no option '{key}'",
        f"did you mean '{nearest}'? {usage}" if nearest else usage,
    )


def _usage(name: str, defaults: Mapping[str, object]) -> str:
    if not defaults:
        return f"write '{name}' alone: it has no options"
    return f"the options of '{name}' are {', '.join(defaults)}"


def _value(
    entry: PolicyEntry,
    option: str,
    written: str,
    default: object,
    read_numbers: ReadNumbers | None,
) -> object:
    """A value as its option's default suggests that it is meant."""
    numbers = _numbers(written)
    if option in entry.file_options:
        return (
            tuple(numbers)
            if numbers and len(numbers) > 1
            else _file(entry, option, written, read_numbers)
        )
    wrong = InputError(
        f"option '{option}' of policy '{entry.name}' cannot be '{written}'",
        fix=_expected(option, default),
    )
    if isinstance(default, bool):
        if written.casefold() not in _TRUTH:
            raise wrong
        return _TRUTH[written.casefold()]
    if isinstance(default, str):
        return written
    if isinstance(default, tuple):
        if numbers is None:
            raise wrong
        return tuple(numbers)
    if isinstance(default, int | float):
        if numbers is None or len(numbers) != 1:
            raise wrong
        if isinstance(default, int) and not isinstance(numbers[0], int):
            raise wrong
        return type(default)(numbers[0])
    return _guess(written, numbers)


def _guess(written: str, numbers: list[Number] | None) -> Option:
    """A value of which no default says what it is."""
    if numbers is not None:
        return numbers[0] if len(numbers) == 1 else tuple(numbers)
    return _TRUTH.get(written.casefold(), written)


def _file(
    entry: PolicyEntry, option: str, path: str, read_numbers: ReadNumbers | None
) -> tuple[float, ...]:
    if read_numbers is None:
        raise InputError(
            f"option '{option}' of policy '{entry.name}' names the file '{path}', and files "
            "cannot be read here",
            fix=f"write the numbers themselves, such as {option}=100/250/4000",
        )
    return tuple(float(number) for number in read_numbers(path))


def _expected(option: str, default: object) -> str:
    if isinstance(default, bool):
        return f"write {option}=true or {option}=false"
    if isinstance(default, tuple):
        return f"write numbers with '/' between them, such as {option}=3250/7200"
    whole = "a whole number" if isinstance(default, int) else "a number"
    return f"write {whole}, such as {option}={default}"


def _numbers(written: str) -> list[Number] | None:
    """The numbers of `3`, `0.5` or `3250/7200`; None when it is anything else."""
    found: list[Number] = []
    for piece in written.split("/"):
        number = _number(piece.strip())
        if number is None:
            return None
        found.append(number)
    return found


def _number(text: str) -> Number | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _labelled(made: Policy, label: str) -> Policy:
    """The policy under the name that was asked for, where it lets itself be renamed."""
    # A Policy may be any class at all; ours are dataclasses, which can be copied with a change.
    name = getattr(made, "__dataclass_fields__", {}).get("name")
    if made.name == label or name is None or not name.init:
        return made
    renamed: Policy = dataclasses.replace(cast(Any, made), name=label)
    return renamed


def _entry_points() -> Iterator[EntryPoint]:
    """Third parties' policies, in an order that does not depend on how they were installed."""
    # Imported here: it costs more than the rest of this module together.
    from importlib.metadata import entry_points

    yield from sorted(
        entry_points(group=ENTRY_POINT_GROUP),
        key=lambda point: (point.dist.name if point.dist is not None else "", point.name),
    )
