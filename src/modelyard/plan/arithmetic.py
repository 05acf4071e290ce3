"""The arithmetic that a model itself needs, whatever the layout."""

from __future__ import annotations

from modelyard.plan.request import Request
from modelyard.spec.model import ModelKind
from modelyard.spec.tuning import Method

#: BERT predicts about every seventh token (Devlin et al., 2019)
_MASKED_SHARE = 0.15


def model_flops(request: Request) -> float:
    """Operations of one sequence, forward and backward, without any recomputation.

    As usual for this share (PaLM, appendix B): two operations per parameter and token in a forward
    pass, full scores, twice as much backward. Frozen weights need no gradient of their own.
    """
    model, counts = request.model, request.model.parameters
    tokens = float(request.sequence)
    target = float(request.target if request.target is not None else request.sequence)
    idle = counts.total - model.active_parameters
    # A repeated block is stored once and multiplied every time.
    blocks = (counts.attention + counts.mlp + counts.experts - idle) * model.repeats
    width = model.heads * (model.head_size + model.value_size)
    output = 2.0 * model.hidden * model.vocab
    if model.kind is ModelKind.ENCODER_DECODER:
        layers = model.all_layers
        forward = 2.0 * blocks * (model.layers * tokens + model.decoder_layers * target) / layers
        scores = model.layers * tokens**2 + model.decoder_layers * (target**2 + target * tokens)
        forward += 2.0 * width * scores + output * target
    else:
        seen = min(tokens, float(model.window or tokens))
        mean_seen = model.windowed_share * seen + (1.0 - model.windowed_share) * tokens
        predicted = _MASKED_SHARE if model.kind is ModelKind.ENCODER else 1.0
        forward = 2.0 * blocks * tokens + 2.0 * width * model.layers * tokens * mean_seen
        forward += output * tokens * predicted
    passes = 3.0 if request.tuning.method is Method.FULL else 2.0
    return passes * forward
