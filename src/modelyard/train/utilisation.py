"""How well a machine is used: the arithmetic that a sample needs, and what the machine can do.

Model FLOPs utilisation (Chowdhery et al., 2022, appendix B) is the share of the peak that the
passes of the model need; what is recomputed or sent does not count. The operations are those with
which plans are made. The peak is what the same machine reaches in a large product of matrices, in
the arithmetic of the job.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from modelyard.plan.arithmetic import sequence_flops
from modelyard.spec.job import JobSpec
from modelyard.spec.model import ModelKind
from modelyard.spec.training import Arithmetic
from modelyard.train.materials import batch_for, model_of, prepared
from modelyard.train.models.batches import PairBatch
from modelyard.train.models.registry import shape_of

#: Large enough that it counts and not the calls; small enough for a processor to do in no time.
PRODUCT_WIDTH = 1_024
#: How long products are repeated; the fastest of them counts.
MEASURED_SECONDS = 0.3

_DTYPES = {
    Arithmetic.FP32: torch.float32,
    Arithmetic.BF16: torch.bfloat16,
    Arithmetic.FP16: torch.float16,
}


def sample_flops(job: JobSpec, folder: Path) -> float | None:
    """Operations of the passes of one sample; None for models whose shape nobody has told."""
    if job.train is None or job.script is not None:
        return None
    _, data = prepared(job, folder)
    # Of weights that it begins with only the form is read.
    with torch.device("meta"):
        model = model_of(job, data, folder)
    shape = shape_of(model)
    if shape is None:
        return None
    target = None
    if shape.kind is ModelKind.ENCODER_DECODER:
        batch = batch_for(model, data, np.arange(1, dtype=np.int64))
        target = batch.targets.shape[1] if isinstance(batch, PairBatch) else None
    return sequence_flops(shape, sequence=data.sequence, target=target)


def measured_peak(threads: int, precision: Arithmetic = Arithmetic.FP32) -> float:
    """Operations a second of the fastest of many large products on this machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        factor = torch.randn(PRODUCT_WIDTH, PRODUCT_WIDTH).to(_DTYPES[precision])
        # The first one allocates and starts threads.
        out = factor @ factor
        fastest, until = float("inf"), time.perf_counter() + MEASURED_SECONDS
        while time.perf_counter() < until:
            began = time.perf_counter()
            torch.mm(factor, factor, out=out)
            fastest = min(fastest, time.perf_counter() - began)
    finally:
        torch.set_num_threads(before)
    return 2.0 * PRODUCT_WIDTH**3 / fastest if fastest < float("inf") else 0.0
