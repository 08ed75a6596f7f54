"""What readers know during training, and which metric predicts their later answers."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from infoflow.foundation import UserError, at_least_fisher, stream, symmetric_interval
from infoflow.representations import spearman_rows
from infoflow.results import RETRIEVAL_SCORES, Column, TableSchema, estimate, estimate_columns

RETRIEVAL_COURSE = TableSchema(
    name="retrieval_course",
    description="What a reader knows at the kept updates of its training, with the candidates that it finds at that "
    "update and in wordings that do not occur in training. p1: share of questions answered correctly; log_likelihood: "
    "of the answer, with the passage summed out; utility: the gain of that over reading no passage. Control: a guess "
    "among the relation's objects (p1), a guess among all words (log_likelihood), no passage (utility).",
    columns=(
        Column("update", "int64", "updates", "update after which the weights were kept; 0: before training"),
        Column("facts", "string", "", "trained (including those changed later) or held out"),
        Column("metric", "string", "", "p1, log_likelihood, utility"),
        *estimate_columns("share (p1), nats", "mean over questions", "see the description", "questions"),
    ),
)
PREDICTORS: Mapping[str, str] = {"later_by_utility": "utility", "later_by_likelihood": "log_likelihood"}
"""Metrics that `later_answers` adds to `retrieval_scores`, with the predictor of each."""
_SHUFFLES = 200


class _Points(NamedTuple):
    """Pairs of consecutive kept updates, over all training runs: (1 + R, pair), the estimate and R replicates."""

    before: np.ndarray  # the predictor at the earlier update
    after: np.ndarray  # right answers at the later update
    training: np.ndarray  # int (pair,)


def later_answers(course: pd.DataFrame) -> pd.DataFrame:
    r"""Whether utility or likelihood better predicts a reader's later answers, as rows of `RETRIEVAL_SCORES`.

    $$ \rho_m = \operatorname{Spearman}_{(a, i)}\left(m_{a, u_i},\; \text{P@1}_{a, u_{i+1}}\right) $$

    over training runs a and consecutive kept updates \(u_i\), with m the retrieval utility or the log-likelihood on
    trained facts, and P@1 on held-out facts, which have no training questions. Replicates resample facts. Control: the
    mean over 200 random orders of each run's updates, which keeps the differences between training runs.

    Args:
        course: Rows of `RETRIEVAL_COURSE` of some training runs, identified by the column `model`. Runs without
            utility (readers without passages) are left out.

    Returns:
        Metrics `later_by_utility` and `later_by_likelihood` for the queries `held out`; empty if there are fewer than 3
        pairs, or a predictor is constant.

    Raises:
        UserError: Two rows have the same model, update, kind of facts and metric.

    Source: [@guu2020realm], appendix D.
    """
    keys = ["model", "update", "facts", "metric"]
    if course.duplicated(keys).any():
        raise UserError(
            "later_answers needs one row for each model, update, kind of facts and metric. Got duplicates.\n"
            "Use the training runs of one seed, with different names in the column model."
        )
    found = []
    for name, predictor in PREDICTORS.items():
        points = _points(course, predictor)
        if points.before.shape[1] < 3:
            continue
        values = spearman_rows(points.before, points.after)
        if not np.isfinite(values[0]):
            continue
        row = {"system": "own", "queries": "held out", "metric": name, "k": 0}
        drawn = np.where(np.isfinite(values[1:]), values[1:], values[0])
        pairs = points.before.shape[1]
        ends = at_least_fisher(symmetric_interval(values[0], drawn, "correlation"), values[0], pairs)
        found.append({**row, **estimate(values[0], drawn, _shuffled(points), pairs, ends=ends)})
    return RETRIEVAL_SCORES.conform(pd.DataFrame(found, columns=pd.Index(RETRIEVAL_SCORES.column_names)))


def _points(course: pd.DataFrame, predictor: str) -> _Points:
    before, after, training = [], [], []
    for number, (_, own) in enumerate(course.groupby("model", sort=True)):
        if "utility" not in set(own["metric"]):
            continue
        predictors = own[(own["facts"] == "trained") & (own["metric"] == predictor)].set_index("update")
        right = own[(own["facts"] == "held out") & (own["metric"] == "p1")].set_index("update")
        updates = sorted({*predictors.index} & {*right.index})
        for early, late in pairwise(updates):
            before.append(_draws(predictors.loc[early]))
            after.append(_draws(right.loc[late]))
            training.append(number)
    if not before:
        return _Points(np.empty((1, 0)), np.empty((1, 0)), np.empty(0, dtype=int))
    return _Points(np.stack(before, axis=1), np.stack(after, axis=1), np.array(training))


def _draws(row: pd.Series) -> np.ndarray:
    return np.concatenate([[row["value"]], np.asarray(row["replicates"], dtype=np.float64)])


def _shuffled(points: _Points) -> float:
    """Mean correlation with the updates of each training run in random order."""
    draw = stream("shuffled-updates")
    after = np.repeat(points.after[:1], _SHUFFLES, axis=0)
    for number in np.unique(points.training):
        own = points.training == number
        after[:, own] = draw.permuted(after[:, own], axis=1)
    return float(spearman_rows(np.repeat(points.before[:1], _SHUFFLES, axis=0), after).mean())
