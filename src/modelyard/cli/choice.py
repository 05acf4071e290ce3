"""Which policies to play, as people write them on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from modelyard.errors import UnknownName

EVERY_POLICY = "all"
#: Used where nobody says which.
DEFAULT_POLICY = "yard"


def chosen_policies(
    written: Iterable[str], *, strategy: str | None = None, seed: int = 0
) -> tuple[str, ...]:
    """The policies of `a,b:option=1` and the like, each once; `all` stands for every one.

    A strategy and a seed go to each policy that has such an option and does not set it itself.
    """
    from modelyard.schedule.placement import Strategy
    from modelyard.schedule.registry import policies

    known = policies()
    strategies = [item.value for item in Strategy]
    if strategy is not None and strategy not in strategies:
        raise UnknownName("strategy", strategy, strategies)
    wanted: dict[str, None] = {}
    for text in (piece.strip() for entry in written for piece in entry.split(",")):
        if text == EVERY_POLICY:
            wanted.update(dict.fromkeys(name for name in known if known[name].error is None))
        elif text:
            wanted[text] = None
    settings = {"strategy": strategy, "seed": str(seed) if seed else None}
    return tuple(dict.fromkeys(_with(text, settings) for text in wanted))


def without_option(chosen: Iterable[str], option: str) -> tuple[str, ...]:
    """Those of the policies that have no such option."""
    from modelyard.schedule.registry import policies

    entries = ((text, policies().get(text.split(":")[0].strip())) for text in chosen)
    return tuple(
        text
        for text, entry in entries
        if entry is not None and entry.error is None and option not in entry.options()
    )


def named_files(policy: str) -> tuple[Path, ...]:
    """Files that the options of a policy name: their content decides its runs too."""
    values = (part.partition("=")[2] or part for part in policy.split(":")[1:])
    paths = (Path(value.strip()) for value in values if value.strip())
    return tuple(path for path in paths if path.is_file())


def _with(text: str, settings: dict[str, str | None]) -> str:
    from modelyard.schedule.registry import policies

    name, *parts = text.split(":")
    entry = policies().get(name.strip())
    if entry is None or entry.error is not None:
        return text  # Whoever makes the policy says what is wrong with it.
    options = entry.options()
    given = {part.partition("=")[0].strip().replace("-", "_") for part in parts}
    added = [
        f"{option}={value}"
        for option, value in settings.items()
        if value is not None and option in options and option not in given
    ]
    return ":".join((text, *added))
