"""The number of directions over which the states of a layer spread."""

# n token, D width, B bootstrap block

from functools import cache
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from infoflow.flow import SAMPLE_COLUMNS, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, NUM_REPLICATES, UserError, current_display, stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

_LEAST = 2
_EQUAL = 1e-6  # float32 states of equal inputs differ by less, relative to their length

EFFECTIVE_RANK = TableSchema(
    name="effective_rank",
    version=2,
    description="Number of directions over which a layer's states spread: exp of the entropy of the normalised "
    "eigenvalues of their covariance.",
    light=True,
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state, 0 = embeddings"),
        *estimate_columns(
            "dimensions",
            "effective rank, from 1 to the width; NaN where states do not differ",
            "that of as many isotropic Gaussian states",
            "tokens",
        ),
        *SAMPLE_COLUMNS,
    ),
)


class EffectiveRank(SampleMeasure):
    r"""\(\exp H(p)\) of the eigenvalues λ of the covariance of each layer's states.

    $$ \exp\Big(-\sum_i p_i \ln p_i\Big), \qquad p_i = \frac{λ_i}{\sum_j λ_j} $$

    1 if all states are on a line, the width if all directions have the same variance. Error bars resample sentences to
    first order (`linear_replicates`): without a block's tokens, the eigenvalues are approximated by the variances along
    the eigenvectors of all tokens.

    Args:
        occurrences: At most this many sampled tokens.

    Source: [@roy2007], for singular values; for the covariance [@razzhigaev2024].
    """

    table: ClassVar[TableSchema] = EFFECTIVE_RANK

    def __init__(self, occurrences: int = 10_000) -> None:
        if occurrences < _LEAST:
            raise UserError(f"occurrences must be at least {_LEAST}: one state has no spread. Got {occurrences}.")
        self.occurrences = occurrences
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        if len(sample) < _LEAST:
            current_display().note(f"effective_rank of {sample.facts.model} is skipped: the sample has no two tokens.")
            return pd.DataFrame(columns=self.table.column_names)
        rows = [
            {"layer": layer, **_of_layer(sample.states(layer), sample.blocks)} for layer in range(sample.num_states)
        ]
        return pd.DataFrame(rows).assign(stack=sample.facts.stack, **sample.sizes(self.request))


def _of_layer(states: Float[np.ndarray, "n D"], blocks: Int[np.ndarray, " n"]) -> dict[str, Any]:
    centred = states.astype(np.float64)
    length = np.square(centred).sum()
    centred -= centred.mean(axis=0)
    if not np.square(centred).sum() > _EQUAL**2 * length:
        nothing = np.full(NUM_REPLICATES, np.nan)
        return estimate(float("nan"), nothing, isotropic_rank(*states.shape), len(states), scale="positive")
    _, axes = np.linalg.eigh(centred.T @ centred)
    along = centred @ axes
    counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(np.float64)
    sums, squares = np.zeros((2, NUM_BLOCKS, along.shape[1]))
    np.add.at(sums, blocks, along)
    np.add.at(squares, blocks, along**2)
    value = float(_rank(_variances(sums.sum(axis=0), squares.sum(axis=0), counts.sum())))
    left = counts.sum() - counts
    without = _rank(_variances(sums.sum(axis=0) - sums, squares.sum(axis=0) - squares, left[:, None]))
    replicates = linear_replicates(value, without)
    return estimate(value, replicates, isotropic_rank(*states.shape), len(states), scale="positive")


def _variances(sums: np.ndarray, squares: np.ndarray, counts: np.ndarray | float) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.maximum(squares / counts - (sums / counts) ** 2, 0)


def _rank(variances: Float[np.ndarray, "*rest D"]) -> np.ndarray | np.floating:
    """Effective rank; NaN if nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = variances / variances.sum(axis=-1, keepdims=True)
        logs = np.where(shares > 0, np.log(shares), 0)
        return np.exp(-(shares * logs).sum(axis=-1))


@cache
def isotropic_rank(num: int, width: int) -> float:
    """The effective rank of `num` draws from an isotropic Gaussian."""
    states = stream("isotropic-effective-rank").standard_normal((num, width))
    states -= states.mean(axis=0)
    return float(_rank(np.clip(np.linalg.eigvalsh(states.T @ states), 0, None)))
