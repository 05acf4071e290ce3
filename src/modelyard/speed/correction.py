"""Fitted step times, corrected towards what was measured.

Seven constants cannot describe every network: where a node's links end, or a switch does, measured
steps differ from any fit. The difference is smooth in the logarithms of size and batch, so it is
carried over to sizes and batches nearby and fades out beyond: Gaussian-process regression on the
logarithm of measured over fitted seconds. Far from all measurements the fit alone speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelyard.speed.pollux import FloatArray, PolluxParams, StepSample

#: A difference fades over this ratio of replicas (a doubling) and of local batch (a factor of 4):
#: step times bend with the number of replicas, and are nearly linear in the batch.
REPLICAS_FADE = np.log(2.0)
BATCH_FADE = np.log(4.0)
#: Measured means scatter by some per cent: as a share of the variance of the differences.
MEASUREMENT_NOISE = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedTimes:
    """`params` times what the measurements around say; one instance per set of measurements."""

    params: PolluxParams
    _measured: FloatArray
    _weights: FloatArray

    def step_seconds(
        self,
        nodes: npt.ArrayLike,
        replicas: npt.ArrayLike,
        local_batch: npt.ArrayLike,
        accumulation: npt.ArrayLike = 0,
    ) -> FloatArray:
        """Seconds of a whole step, its accumulation passes included; broadcasts."""
        fitted = self.params.step_seconds(nodes, replicas, local_batch, accumulation)
        asked = _features(
            *(np.broadcast_to(a, fitted.shape) for a in (nodes, replicas, local_batch))
        )
        logs = _similarity(asked.reshape(-1, 3), self._measured) @ self._weights
        return np.asarray(fitted * np.exp(logs).reshape(fitted.shape))


def corrected(params: PolluxParams, samples: Sequence[StepSample]) -> CorrectedTimes:
    """The fit `params` of these samples, with what it misses of them."""
    nodes, replicas, local_batch, step, _ = np.array(samples, dtype=np.float64).T
    missed = np.log(step / params.step_seconds(nodes, replicas, local_batch))
    measured = _features(nodes, replicas, local_batch)
    covariance = _similarity(measured, measured) + MEASUREMENT_NOISE * np.eye(len(samples))
    return CorrectedTimes(params, measured, np.linalg.solve(covariance, missed))


def _features(
    nodes: npt.ArrayLike, replicas: npt.ArrayLike, local_batch: npt.ArrayLike
) -> FloatArray:
    """One row each: which links are in use (none, inside a node, across), size and batch."""
    links = (np.asarray(nodes) > 1) * 1.0 + (np.asarray(replicas) > 1)
    size = np.log(replicas) / REPLICAS_FADE
    batch = np.log(np.maximum(local_batch, 1)) / BATCH_FADE
    return np.stack([links, size, batch], axis=-1)


def _similarity(left: FloatArray, right: FloatArray) -> FloatArray:
    """1 for the same configuration, 0 where other links are in use."""
    apart = left[:, None, 1:] - right[None, :, 1:]
    same_links = left[:, None, 0] == right[None, :, 0]
    return np.asarray(np.exp(-0.5 * (apart**2).sum(axis=-1)) * same_links)
