"""A Hugging Face config as data: typed fields by name, and every problem found on the way.

Reading a field never raises. What is missing or of the wrong kind is noted, a harmless number is
returned in its place, and whoever asked for the fields reports all problems at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelyard.errors import Problem
from modelyard.spec.shape_limits import limit_of, number_problem
from modelyard.units import describe

#: stands in for a number that is missing, so that the other fields are still looked at
_HARMLESS = 1

#: other names that configs of some age or maker have for a field, in the order of preference
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "n_layer": ("num_hidden_layers", "n_layers"),
    "n_layers": ("num_hidden_layers", "n_layer"),
    "num_layers": ("num_hidden_layers",),
    "hidden_size": ("n_embed", "n_embd", "d_model"),
    "n_embd": ("hidden_size", "n_embed"),
    "d_model": ("hidden_size",),
    "dim": ("hidden_size",),
    "num_attention_heads": ("n_head", "n_heads"),
    "n_head": ("num_attention_heads", "n_heads"),
    "n_heads": ("num_attention_heads", "n_head"),
    "num_heads": ("num_attention_heads",),
    "num_kv_heads": ("n_head_kv",),
    "d_kv": ("head_dim",),
    "max_position_embeddings": ("n_positions",),
    "n_positions": ("max_position_embeddings", "n_ctx"),
    "num_local_experts": ("num_experts",),
    "num_experts": ("num_local_experts",),
    "n_routed_experts": ("num_experts", "num_local_experts"),
    "num_experts_per_tok": ("experts_per_token",),
    "moe_num_experts": ("num_experts",),
    "moe_k": ("num_experts_per_tok",),
}


class ModelConfig:
    """The fields of one config, and the problems found while reading them."""

    def __init__(self, fields: Mapping[str, object], source: str = "") -> None:
        self._fields = fields
        self.source = source
        self.problems: list[Problem] = []

    def has(self, field: str) -> bool:
        """Whether the field is there with a value; null counts as absent."""
        return self._fields.get(field) is not None

    def is_sound(self, *fields: str) -> bool:
        """Whether all of these are there and nothing was wrong with them."""
        names = [self._named(field) for field in fields]
        told = " ".join(problem.what for problem in self.problems)
        return all(self.has(name) and f"'{name}'" not in told for name in names)

    def _named(self, field: str) -> str:
        """The name under which the config has this field; the usual one when it has none."""
        names = (field, *SYNONYMS.get(field, ()))
        return next((name for name in names if self.has(name)), field)

    def number(self, field: str, what: str, default: int | None = None) -> int:
        """A whole number within the limits of `what`; without a default it must be there."""
        field = self._named(field)
        value = self._fields.get(field)
        if value is None:
            if default is not None:
                return default
            limit = limit_of(what)
            self._note(
                f"the field '{field}' is missing",
                f'add "{field}": {limit.example} or what your model has: {limit.meaning}',
            )
            return _HARMLESS
        problem = number_problem(what, value, field=field)
        if problem is not None:
            self._note(problem.what, problem.fix)
            return _HARMLESS
        assert isinstance(value, (int, float))
        return int(value)

    def number_if_sound(self, field: str, what: str) -> int:
        """A whole number within the limits of `what`; 0, and no problem, when it is not one."""
        value = self._fields.get(field)
        sound = value is not None and number_problem(what, value, field=field) is None
        return int(value) if sound and isinstance(value, (int, float)) else 0

    def is_negative(self, field: str) -> bool:
        """Whether the field is a number below zero, which some configs write for none."""
        value = self._fields.get(field)
        return isinstance(value, (int, float)) and value < 0

    def flag(self, field: str, default: bool = False) -> bool:
        """True or false; the default when it is absent."""
        value = self._fields.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._note(f"'{field}' is {describe(value)}", f"write true or false for '{field}'")
            return default
        return value

    def words(self, field: str, default: str = "") -> str:
        """Text; the default when it is absent."""
        value = self._fields.get(field)
        if value is None:
            return default
        if not isinstance(value, str):
            self._note(f"'{field}' is {describe(value)}", f"write text for '{field}'")
            return default
        return value

    def items(self, field: str) -> tuple[object, ...]:
        """The items of a list; none when it is absent."""
        value = self._fields.get(field)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)):
            self._note(f"'{field}' is {describe(value)}", f"write a list for '{field}'")
            return ()
        return tuple(value)

    def part(self, field: str) -> ModelConfig:
        """A config inside this one, which shares its list of problems; empty when absent."""
        value = self._fields.get(field)
        if value is not None and not isinstance(value, dict):
            self._note(f"'{field}' is {describe(value)}", f"write an object for '{field}'")
        inner = ModelConfig(value if isinstance(value, dict) else {}, self.source)
        inner.problems = self.problems
        return inner

    def refuse(self, what: str, fix: str) -> None:
        """Note a problem that the fields have together."""
        self._note(what, fix)

    def names(self) -> Iterator[str]:
        return iter(self._fields)

    def _note(self, what: str, fix: str) -> None:
        problem = Problem(what, fix, self.source)
        if problem not in self.problems:
            self.problems.append(problem)
