"""The arithmetic that a model itself needs, whatever the layout."""

from __future__ import annotations

from modelyard.plan.request import Request
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.tuning import Method

#: BERT predicts about every seventh token (Devlin et al., 2019)
_MASKED_SHARE = 0.15


def model_flops(request: Request) -> float:
    """Operations of one sequence, forward and backward, without any recomputation."""
    return sequence_flops(
        request.model,
        sequence=request.sequence,
        target=request.target,
        full=request.tuning.method is Method.FULL,
    )


def sequence_flops(
    model: Model, *, sequence: int, target: int | None = None, full: bool = True
) -> float:
    """Operations of one sequence; `target` is the length of a decoder's own, if it has one.

    As usual for this share (PaLM, appendix B): two operations per parameter and token in a forward
    pass, full scores, twice as much backward. Frozen weights need no gradient of their own.
    """
    counts = model.parameters
    tokens, written = float(sequence), float(target if target is not None else sequence)
    idle = counts.total - model.active_parameters
    # A repeated block is stored once and multiplied every time.
    blocks = (counts.attention + counts.mlp + counts.experts - idle) * model.repeats
    width = model.heads * (model.head_size + model.value_size)
    output = 2.0 * model.hidden * model.vocab
    if model.kind is ModelKind.ENCODER_DECODER:
        layers = model.all_layers
        forward = 2.0 * blocks * (model.layers * tokens + model.decoder_layers * written) / layers
        scores = model.layers * tokens**2 + model.decoder_layers * (written**2 + written * tokens)
        forward += 2.0 * width * scores + output * written
    else:
        seen = min(tokens, float(model.window or tokens))
        mean_seen = model.windowed_share * seen + (1.0 - model.windowed_share) * tokens
        predicted = _MASKED_SHARE if model.kind is ModelKind.ENCODER else 1.0
        forward = 2.0 * blocks * tokens + 2.0 * width * model.layers * tokens * mean_seen
        forward += output * tokens * predicted
    return (3.0 if full else 2.0) * forward
