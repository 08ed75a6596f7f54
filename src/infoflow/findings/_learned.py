"""Whether a model has learned its task, since a claim about an objective says nothing about a model that has not.

The rule was fixed before any verdict was seen and uses only task scores, on the test split if there is one. Each
objective declares it (`metrics`); for most:

- the loss lies at least 10 % below that of a model that knows token frequencies and nothing else (the upper end of the
  loss's interval below 0.9 times the unigram loss): the model uses context, beyond what a few updates teach;
- a translation model's BLEU lies at least 10 points above that of copying the source (lower end of the interval).
  Below about 10 points machine translation is commonly read as useless, and a decoder that ignores the source
  gets there no more than a copy does.

Models trained with passages are judged by the share of their own training queries that they answer: the study writes
`learned` (1 or 0) to the table retrieval_scores, and a model without the entry counts as having learned.

For replaced tokens the area under the curve must exceed a half by .1, and for pairs the accuracy must exceed the share
of the more frequent answer by .05; a distilled model is judged by its own loss on masked tokens.
"""

from collections.abc import Iterator

import pandas as pd

from infoflow.objectives import OBJECTIVES, Metric, further_objectives
from infoflow.results import RETRIEVAL_SCORES, Spec

from ._model_group import Absent, Ambiguous, ModelGroup

_COLUMNS = ["seed", "trained", "split", "metric", "value", "low", "high", "baseline"]


def shortfall(models: ModelGroup, objective: Spec, seed: int) -> str | None:
    """Why the model of that objective and seed counts as not having learned its task, or None if it has.

    If the scores cover several corpora (a column `corpus`), there is one model for each, and all must have learned.
    """
    model = f"the model {objective.label}/seed-{seed}"
    if objective.name in further_objectives():
        return _unread(models, objective, seed, model)
    try:
        scores = models.rows("task_scores", objective, _COLUMNS)
        for corpus, own in scores.groupby("corpus", sort=False) if "corpus" in scores else [("", scores)]:
            if reason := next(_shortfalls(own[own["seed"] == seed], objective, model), None):
                return f"on {corpus}, {reason}" if corpus else reason
    except Absent as absent:
        return f"whether {model} has learned its task is not known: {absent}"
    return None


def _unread(models: ModelGroup, objective: Spec, seed: int, model: str) -> str | None:
    """Why a model with passages counts as not having learned to answer."""
    try:
        scores = models.rows(RETRIEVAL_SCORES.name, objective, ["seed", "metric", "value"])
    except Ambiguous as several:
        return f"whether {model} has learned its task is not known: {several}"
    except Absent:
        return None
    told = scores[(scores["seed"] == seed) & (scores["metric"] == "learned")]
    if told.empty or float(told["value"].iloc[0]) > 0.5:  # 1 or 0
        return None
    return f"{model} has not learned its task: it answers its training queries no better than by chance"


def _shortfalls(scores: pd.DataFrame, objective: Spec, model: str) -> Iterator[str]:
    for metric in OBJECTIVES[objective.name].metrics:
        score = _score(scores, metric.name)
        if metric.learned(float(score["low"]), float(score["high"]), float(score["baseline"])):
            continue
        yield f"{model} has not learned its task: {_told(metric, score)}, {metric.needed(float(score['baseline']))}"


def _told(metric: Metric, score: pd.Series) -> str:
    if metric.name.startswith("loss"):
        return f"{_text(score)} nats per token of {metric.name}"
    return f"{metric.label} {_text(score)}"


def _score(scores: pd.DataFrame, metric: str) -> pd.Series:
    own = scores[scores["metric"] == metric]
    if own.empty:
        raise Absent(f"task_scores has no {metric}")
    on_test = own[own["split"] == "test"]
    return (own if on_test.empty else on_test).iloc[0]


def _text(score: pd.Series) -> str:
    return f"{score['value']:.3g} ({score['low']:.3g} to {score['high']:.3g})"
