"""What is believed about the factors of `terms`: a Gaussian over their logarithms."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from modelyard.errors import InputError
from modelyard.speed.physical.columns import Column
from modelyard.speed.physical.terms import PARAMETERS, PRIOR_MEAN, prior_sigma

#: spread of whole clusters, and of single runs of one, before anything is fitted
USUAL_CLUSTER_SIGMA = 0.06
USUAL_RESIDUAL_SIGMA = 0.08
#: digits that are kept: far finer than what is known
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Means and covariance in the order of `terms.PARAMETERS`; arrays are never written to."""

    mean: Column
    covariance: Column
    #: spread of one run around its prediction, when the factors are exact
    residual_sigma: float
    #: measured rows behind it
    rows: int = 0


def prior(cluster_sigma: float = USUAL_CLUSTER_SIGMA) -> Coefficients:
    """What is believed before any row was seen."""
    return Coefficients(
        mean=PRIOR_MEAN,
        covariance=np.diag(np.square(prior_sigma(cluster_sigma))),
        residual_sigma=USUAL_RESIDUAL_SIGMA,
    )


def to_text(coefficients: Coefficients) -> str:
    """As JSON, the same bytes for the same numbers: the lower triangle, row by row."""
    sigma = np.sqrt(np.diag(coefficients.covariance))
    correlation = coefficients.covariance / np.outer(sigma, sigma)
    rows = [[round(float(value), 3) for value in correlation[at, :at]] for at in range(sigma.size)]
    document = {
        "parameters": list(PARAMETERS),
        "mean": [round(float(value), _DIGITS) for value in coefficients.mean],
        "sigma": [round(float(value), _DIGITS) for value in sigma],
        "residual_sigma": round(coefficients.residual_sigma, _DIGITS),
        "rows": coefficients.rows,
    }
    lines = [f'  "{name}": {json.dumps(value)}' for name, value in document.items()]
    triangle = ",\n".join(f"    {json.dumps(row, separators=(',', ':'))}" for row in rows)
    return "{\n" + ",\n".join(lines) + ',\n  "correlation": [\n' + triangle + "\n  ]\n}\n"


def from_text(text: str, where: str = "") -> Coefficients:
    """The inverse of `to_text`; `InputError` for a document of another version."""
    try:
        document = json.loads(text)
        if tuple(document["parameters"]) != PARAMETERS:
            raise InputError(
                "the coefficients were made for other terms", fix="make them again", where=where
            )
        sigma = np.array(document["sigma"], dtype=np.float64)
        correlation = np.eye(sigma.size)
        for at, row in enumerate(document["correlation"]):
            correlation[at, :at] = row
            correlation[:at, at] = row
        mean = np.array(document["mean"], dtype=np.float64)
        covariance = correlation * np.outer(sigma, sigma)
        if mean.shape != sigma.shape or not (
            np.isfinite(mean).all() and np.isfinite(covariance).all()
        ):
            raise ValueError("numbers are missing or not finite")
        residual, rows = float(document["residual_sigma"]), int(document["rows"])
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, IndexError) as error:
        fix = "use a file that yard calibrate wrote"
        raise InputError(f"not coefficients: {error}", fix=fix, where=where) from error
    return Coefficients(mean=mean, covariance=covariance, residual_sigma=residual, rows=rows)
