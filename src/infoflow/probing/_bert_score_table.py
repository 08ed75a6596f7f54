"""BERTScore by layer against human scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.foundation import NUM_BLOCKS, UserError, replicate_weights, stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._bert_score import SCORES, BertScores

_SHUFFLES = 100

BERT_SCORE = TableSchema(
    name="bert_score",
    version=2,
    description="Correlation (Pearson) of BERTScore with human scores of the same pairs, layer by layer.",
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
    r"""How well does each layer's BERTScore agree with people?

    $$ r = \frac{\sum_p (s_p - \bar s)(h_p - \bar h)}{\sqrt{\sum_p (s_p - \bar s)^2 \sum_p (h_p - \bar h)^2}} $$

    The interval resamples pairs, the same ones in every layer, so that differences between layers can be tested. NaN
    where a layer gives every pair one score.

    Args:
        scores: Of all layers, from `bert_score`.
        human: A number for each pair; higher means more alike.
        labels: What the rows say of these numbers; "permuted" where they are in random order, as a control.

    Returns:
        The table `bert_score`.

    Raises:
        UserError: There are not as many human scores as pairs, fewer than three, or they are no numbers, or all one.

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
    """Scores of people that a correlation can be taken with; else a UserError."""
    given = np.asarray(human, dtype=np.float64)
    if given.shape != (pairs,) or pairs < 3:
        raise UserError(
            f"A correlation needs one human score for each of three pairs or more. Got {given.size:,} for "
            f"{pairs:,} pairs."
        )
    if not np.isfinite(given).all() or np.ptp(given) == 0:
        raise UserError(
            "Human scores must be numbers that differ between pairs. Got NaN, infinity, or one number only."
        )
    return given


def _correlation(values: np.ndarray, human: np.ndarray, shuffled: np.ndarray, blocks: np.ndarray) -> dict[str, Any]:
    x, y = values - values.mean(), human - human.mean()  # moments of centred numbers do not cancel
    terms = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y])
    sums = np.stack([np.bincount(blocks, weights=term, minlength=NUM_BLOCKS) for term in terms])
    spread = np.sqrt((x * x).sum() * ((shuffled - human.mean()) ** 2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        control = ((shuffled - human.mean()) @ x / spread).mean()
    replicates = _pearson(replicate_weights() @ sums.T)
    return estimate(float(_pearson(sums.sum(axis=1)[None])[0]), replicates, float(control), len(x))


def _pearson(sums: Float[np.ndarray, "draw 6"]) -> Float[np.ndarray, " draw"]:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y))
