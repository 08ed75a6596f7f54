"""BERTScore by layer against human scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.foundation import (
    NUM_BLOCKS,
    UserError,
    at_least_fisher,
    block_effects,
    block_interval,
    replicate_weights,
    stream,
)
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._bert_score import SCORES, BertScores

_SHUFFLES = 100
LEAST_PAIRS = 10
"""Minimum number of pairs for a correlation with human scores."""

BERT_SCORE = TableSchema(
    name="bert_score",
    version=3,
    description="Correlation (Pearson) of BERTScore with human scores of the same pairs, layer by layer.",
    made_by="infoflow bert-score with pairs that people scored makes it",
    columns=(
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        Column(name="score", dtype="string", unit="", description=", ".join(SCORES)),
        Column(
            name="labels", dtype="string", unit="", description="human, or permuted: the same scores in random order"
        ),
        *estimate_columns(
            "correlation", "Pearson's r over pairs", "mean over 100 shuffles of the human scores", "pairs"
        ),
    ),
)


def pearson_by_layer(
    scores: BertScores, human: Sequence[float] | Float[np.ndarray, " pair"], *, labels: str = "human"
) -> pd.DataFrame:
    r"""How well does each layer's BERTScore agree with human scores?

    $$ r = \frac{\sum_p (s_p - \bar s)(h_p - \bar h)}{\sqrt{\sum_p (s_p - \bar s)^2 \sum_p (h_p - \bar h)^2}} $$

    The interval resamples pairs, the same ones in every layer, so that differences between layers can be tested. It
    stays between -1 and 1, and is at least as wide as that of the same number of normal pairs [@fisher1921]. NaN if a
    layer gives every pair the same score.

    Args:
        scores: Scores of all layers, from `bert_score`.
        human: A number for each pair; higher means more similar.
        labels: Value of the column `labels`; "permuted" if the numbers are shuffled, as a control.

    Returns:
        The table `bert_score`.

    Raises:
        UserError: The number of human scores differs from the number of pairs, is below ten, or the scores are not
            finite or all equal.

    Source: [@zhang2020bertscore].
    """
    given = human_scores(human, len(scores.blocks))
    draw = stream("bert-score-shuffles")
    shuffled = np.stack([draw.permutation(given) for _ in range(_SHUFFLES)])
    rows = [
        {
            "layer": layer,
            "score": name,
            "labels": labels,
            **_correlation(getattr(scores, name)[place], given, shuffled, scores.blocks),
        }
        for place, layer in enumerate(scores.layers)
        for name in SCORES
    ]
    return BERT_SCORE.conform(pd.DataFrame(rows))


def human_scores(human: Sequence[float] | Float[np.ndarray, " pair"], pairs: int) -> Float[np.ndarray, " pair"]:
    """Human scores that allow a correlation; else a UserError."""
    given = np.asarray(human, dtype=np.float64)
    if given.shape != (pairs,) or pairs < LEAST_PAIRS:
        raise UserError(
            f"A correlation needs one human score for each of {LEAST_PAIRS} pairs or more: fewer say nothing. Got "
            f"{given.size:,} for {pairs:,} pairs. Give more pairs, or leave the human scores out."
        )
    if not np.isfinite(given).all() or np.ptp(given) == 0:
        raise UserError(
            "Human scores must be numbers that differ between pairs. Got NaN, infinity, or one number only."
        )
    return given


def _correlation(values: np.ndarray, human: np.ndarray, shuffled: np.ndarray, blocks: np.ndarray) -> dict[str, Any]:
    x, y = values - values.mean(), human - human.mean()  # centring avoids cancellation
    terms = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y])
    sums = np.stack([np.bincount(blocks, weights=term, minlength=NUM_BLOCKS) for term in terms])
    spread = np.sqrt((x * x).sum() * ((shuffled - human.mean()) ** 2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        control = ((shuffled - human.mean()) @ x / spread).mean()
    replicates = _pearson(replicate_weights() @ sums.T)
    value = float(_pearson(sums.sum(axis=1)[None])[0])
    ends = block_interval(value, block_effects(value, replicates), scale="correlation", count=len(x))
    return estimate(value, replicates, float(control), len(x), ends=at_least_fisher(ends, value, len(x)))


def _pearson(sums: Float[np.ndarray, "draw 6"]) -> Float[np.ndarray, " draw"]:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y))
