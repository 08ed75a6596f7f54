"""The tables of transplanted heads: learning curves of fresh models, and which heads were put into them."""

# R bootstrap replicates, P points of a curve

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from infoflow.foundation import UserError
from infoflow.results import Column, TableSchema, estimate_columns

from ._head_measure import HEAD_KEYS

ARMS = ("none", "specialised", "random", "shuffled")
"""What takes the place of a fresh model's heads: nothing; the donor's specialised heads; as many others of it in the
same layers, drawn at random; the specialised ones with the numbers of each matrix in random order."""

_ARM = Column(
    name="arm",
    dtype="string",
    unit="",
    description="what was put in the place of the fresh model's heads: none; specialised heads of the trained model; "
    "random, as many others of its heads in the same layers; shuffled, the specialised ones with the numbers of each "
    "matrix in random order",
)

TRANSPLANT_CURVES = TableSchema(
    name="transplant_curves",
    version=1,
    description="Learning curves of fresh models into which heads of a trained model were put, each in the layer and "
    "at the number that it had. All curves of a seed begin with the same first weights, of another seed than the "
    "trained model's, and read the same batches in the same order. All points are scored on the same sentences.",
    columns=(
        _ARM,
        Column(
            name="frozen",
            dtype="bool",
            unit="",
            description="whether the weights of these heads stayed as they were put in (none: as initialised)",
        ),
        Column(name="draw", dtype="int64", unit="", description="number of the random draw; 0 for all other arms"),
        Column(name="step", dtype="int64", unit="updates", description="optimiser steps of the fresh model so far"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="source tokens read until then"),
        Column(name="heads", dtype="int64", unit="heads", description="how many heads were put in, or frozen"),
        Column(name="metric", dtype="string", unit="", description="loss, or, at the last step of translation, bleu"),
        *estimate_columns(
            "nats per token (loss), percent (bleu)",
            "score on held-out sentences",
            "score of the trained model that the heads are from",
            "sentences",
        ),
        Column(name="signature", dtype="string", unit="", description="sacreBLEU's signature; empty for the loss"),
    ),
)

TRANSPLANTED_HEADS = TableSchema(
    name="transplanted_heads",
    version=1,
    description="which heads of a trained model were put into fresh ones, by arm: each into the same layer, at the "
    "same number. Shuffled heads are the specialised ones",
    columns=(
        _ARM,
        Column(name="draw", dtype="int64", unit="", description="number of the random draw; 0 for specialised heads"),
        *HEAD_KEYS,
        Column(name="roles", dtype="string", unit="", description="roles that it holds in its model, by commas"),
        Column(
            name="importance",
            dtype="float64",
            unit="",
            description="expected absolute derivative of the loss by a gate on the head, over the norm of its layer's",
        ),
        Column(name="rank", dtype="int64", unit="", description="place in the order of choice, from 0"),
    ),
)


def log_mean(steps: Sequence[int], values_RP: Float[np.ndarray, "row point"]) -> Float[np.ndarray, " row"]:
    r"""Mean of curves over the logarithm of updates: the area under each, over its width.

    $$ \frac{1}{\ln s_P - \ln s_1} \int_{\ln s_1}^{\ln s_P} L \, d\ln s $$

    by the trapezoidal rule between points; in the units of the values. Early updates, where losses fall fast, count as
    much as late ones. Of a single point its value.

    Args:
        steps: Updates of the points, from 1, ascending.
        values_RP: Curves, a row each.

    Raises:
        UserError: Steps are not ascending numbers from 1.

    >>> log_mean([1, 10, 100], np.array([[3.0, 2.0, 1.0]])).tolist()
    [2.0]
    """
    logs_P = np.log(np.maximum(np.asarray(steps, dtype=float), 1e-9))
    if len(steps) == 0 or steps[0] < 1 or (np.diff(logs_P) <= 0).any():
        raise UserError(f"The steps of a curve must be ascending numbers from 1. Got {list(steps)[:10]}.")
    if len(steps) == 1:
        return values_RP[:, 0]
    return np.trapezoid(values_RP, logs_P, axis=1) / (logs_P[-1] - logs_P[0])
