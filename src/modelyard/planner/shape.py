"""A model in plain numbers, as people write them: `layers=24, hidden="2k", heads=16, vocab=50k`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modelyard.errors import InputError, Problem
from modelyard.spec.model import Model
from modelyard.units import describe, parse_count

#: Without these there is no model; the others have usual values.
NEEDED = ("layers", "hidden", "heads", "vocab")
#: No dimension of a model is larger, and no sequence longer.
MOST = 10**12
#: Longer names of a kind are mistakes, and are shown no further.
MOST_KIND = 60
_FLAGS = ("gated", "tied")


def model_of_numbers(shape: Mapping[str, object]) -> Model:
    """The model of this shape; one `InputError` with everything that is wrong with it."""
    # Imported here because it brings the tables of all architectures along.
    from modelyard.spec.model_source import plain_model

    problems: list[Problem] = []
    numbers: dict[str, int] = {}
    flags: dict[str, bool] = {}
    for name in (name for name in shape if name != "kind"):
        try:
            if name in _FLAGS:
                flags[name] = _flag(shape[name])
            else:
                numbers[name] = _number(shape[name])
        except InputError as error:
            problems += [Problem(f"{name}: {each.what}", each.fix) for each in error.problems]
    missing = [name for name in NEEDED if name not in shape]
    if missing:
        what = f"{words_of(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        problems.append(Problem(what, f"a model in numbers needs {words_of(NEEDED)}"))
    if problems:
        raise InputError(problems[0].what, fix=problems[0].fix, problems=problems)
    return plain_model(
        layers=numbers["layers"],
        hidden=numbers["hidden"],
        heads=numbers["heads"],
        vocab=numbers["vocab"],
        kv_heads=numbers.get("kv_heads"),
        head_size=numbers.get("head_size"),
        ffn=numbers.get("ffn"),
        gated=flags.get("gated", False),
        tied=flags.get("tied"),
        longest=numbers.get("longest", 0),
        experts=numbers.get("experts", 0),
        experts_per_token=numbers.get("experts_per_token"),
        expert_ffn=numbers.get("expert_ffn"),
        decoder_layers=numbers.get("decoder_layers", 0),
        kind=str(shape.get("kind", "decoder")).strip().casefold()[:MOST_KIND],
    )


def words_of(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(f"expected a number, found {describe(value)}", fix="write a number")
    if isinstance(value, int) and abs(value) > MOST:
        # Python refuses to print numbers of thousands of digits.
        raise InputError("this number is too large", fix=f"write at most {MOST:,}")
    number = parse_count(value)
    if not 1 <= number <= MOST:
        raise InputError(f"{number:,} is not possible", fix=f"write 1 to {MOST:,}")
    return number


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise InputError(f"expected true or false, found {describe(value)}", fix="write True or False")
