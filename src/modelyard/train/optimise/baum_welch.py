"""Baum–Welch as an optimizer: gradients are expected counts, and a round's counts make the tables.

The gradient of a log-likelihood by the logarithm of a probability is the expected count of what
that probability is of (Fisher's identity; Salakhutdinov, Roweis and Ghahramani, 2003). So expected
counts travel and are summed as gradients are, by whichever way sums over all members. A round is
so many steps that each sample was in exactly one of them; its last step maximises. In between,
counts are part of the optimizer's state, so joiners and checkpoints have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch


class BaumWelch(torch.optim.Optimizer):
    """Tables of log-probabilities whose last dimension sums to one."""

    #: a count that is cut off is another count
    clips = False

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        *,
        steps: int,
        words: int,
        smoothing: float = 0.0,
    ) -> None:
        """`steps` make a round; `words` are those over which a step's loss is the mean."""
        usual = {"lr": 1.0, "steps": steps, "words": words, "smoothing": smoothing}
        super().__init__(params, usual)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Add a step's counts; maximise with the last of a round."""
        assert closure is None, "counts are of one pass"
        with torch.no_grad():
            for group in self.param_groups:
                for table in group["params"]:
                    if table.grad is not None:
                        self._count(table, group["steps"], group["words"], group["smoothing"])
        return None

    def _count(self, table: torch.Tensor, steps: int, words: int, smoothing: float) -> None:
        state = self.state[table]
        if "counts" not in state:
            state["counts"], state["steps"] = torch.zeros_like(table), 0
        # The loss is minus the mean over words.
        state["counts"].add_(table.grad, alpha=-float(words))
        state["steps"] += 1
        if state["steps"] == steps:
            table.copy_(maximised(table, state["counts"], smoothing))
            state["counts"].zero_()
            state["steps"] = 0


def maximised(table: torch.Tensor, counts: torch.Tensor, smoothing: float) -> torch.Tensor:
    """The log-probabilities under which counts are likeliest; what was never seen stays."""
    # Sums over workers may leave a zero a little below it.
    seen = counts.clamp(min=0.0) + smoothing
    total = seen.sum(-1, keepdim=True)
    return torch.where(total > 0, seen.log() - total.log(), table)
