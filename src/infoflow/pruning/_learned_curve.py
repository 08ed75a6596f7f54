"""The curve of quality against heads kept of learned gates."""

from collections.abc import Iterable

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.heads import SentenceFunction
from infoflow.models import Model

from ._curve import curve_row, frames, head_rows, quality
from ._learn import GatedPoint


def learned_curve(
    model: Model,
    points: Iterable[GatedPoint],
    scored_on: Corpus,
    *,
    full: float,
    metric: str | SentenceFunction = "loss",
    draw: int = 0,
    beams: int = 5,
    options: PassOptions | None = None,
) -> dict[str, pd.DataFrame]:
    """Score each point of a sweep as it comes from `learn_gates`: tables `pruning` and `pruned_heads`.

    Heads that the paper's rule counts as dead are ablated, the others keep their evaluation gates.

    Args:
        model: The model that the sweep trains.
        points: What `learn_gates` yields, taken one by one: the model's weights are those of the point in hand.
        scored_on: Held-out sentences.
        full: The converged model's score on them, before the sweep (`quality(...)["scores"][0]`).
        metric: See `quality`.
        draw: Seed of the sweep, for the table.
    """
    rows, heads = [], []
    for index, point in enumerate(points):
        keys = {"method": point.method, "scope": point.scope, "draw": draw, "point": index}
        found = quality(model, scored_on, point.removed, metric, beams=beams, options=options)
        more = {**keys, "setting": point.setting, "undecided": point.undecided}
        rows.append(curve_row(model, more, point.removed, found, full))
        learned = dict(zip(point.heads, zip(point.gates, point.values, strict=True), strict=True))
        heads += head_rows(model, keys, point.removed, learned)
    return frames(rows, heads)
