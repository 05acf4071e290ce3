"""Words for what a training job does, on a screen and in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelyard.cli.output import counted, some_of
from modelyard.cli.train_view import View
from modelyard.train.happenings import counted_members
from modelyard.units import format_duration

if TYPE_CHECKING:
    from modelyard.train.conductor.journal import Line
    from modelyard.train.happenings import Happening


def loss_words(view: View) -> str:
    """`2.4312`, with that of the newest validation."""
    if not view.step:
        return "–"
    words = "not a number" if view.loss is None else f"{view.loss:.4f}"
    found = view.validation
    if found is not None and found.loss is not None:
        words += f"  validation {found.loss:.4f} after step {found.step:,}"
    return words


def speed_words(view: View) -> str:
    """Tokens a second where there are tokens, seconds of a step, and the share of the peak."""
    if view.step_seconds is None:
        return "–"
    parts = []
    if view.tokens_per_second is not None:
        parts.append(f"{view.tokens_per_second:,.0f} tokens/s")
    parts.append(f"{format_duration(view.step_seconds)} a step")
    share = "n/a" if view.utilisation is None else f"{view.utilisation:.0%}"
    return " · ".join([*parts, f"MFU {share}"])


def left_words(view: View) -> str:
    if view.step >= view.steps:
        return "all steps done"
    return "" if view.left_seconds is None else f"{format_duration(view.left_seconds)} left"


def checkpoint_words(view: View, now: float) -> str:
    """The newest one, and how old what it holds is."""
    if view.kept_step is None:
        return "none yet"
    if view.kept_at is None:
        return f"step {view.kept_step:,}"
    age = format_duration(max(round(now - view.kept_at), 0))
    return f"step {view.kept_step:,}, {age} old"


def summary_words(view: View) -> str:
    """Everything in one line."""
    if not view.step:
        return "no step yet"
    loss = loss_words(view)
    parts = [f"step {view.step:,} of {view.steps:,}", f"loss {loss}"]
    if view.step_seconds is not None:
        parts.append(speed_words(view))
    parts.append(counted_members(len(view.members), "worker", view.processes))
    if view.slow:
        parts.append(f"{some_of(name for name, _ in view.members if name in view.slow)} slow")
    if left := left_words(view):
        parts.append(left)
    return " · ".join(parts)


def happening_words(happening: Happening) -> str:
    return f"{happening.worker} {happening.what}".strip()


def line_words(line: Line, *, processes: int = 1) -> str:
    """What a line of the journal is worth to people; empty for the many that are not news."""
    from modelyard.train.conductor.journal import (
        BackLine,
        GenerationLine,
        NoteLine,
        ValidationLine,
    )

    if isinstance(line, GenerationLine):
        return f"{counted_members(len(line.members), 'member', processes)} from now on: {line.why}"
    if isinstance(line, BackLine):
        return f"back to step {line.step:,}: nobody is left who knows later ones"
    if isinstance(line, ValidationLine):
        loss = "not a number" if line.loss is None else f"{line.loss:.4f}"
        over = counted(line.samples, "held-out sample")
        return f"after step {line.step:,}: loss {loss} on {over}"
    if isinstance(line, NoteLine):
        return f"{line.worker}: {line.text}"
    return ""
