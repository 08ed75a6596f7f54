"""Whether a model has learned its task: a claim about an objective says nothing about a model that has not.

The rule was fixed before any verdict was seen and looks at task scores only, on the test split where there is one:

- the loss lies at least 10 % below that of a model that knows token frequencies and nothing else (the upper end of the
  loss's interval below 0.9 times the unigram loss): the model uses context, beyond what a few updates teach;
- a translation model's BLEU lies at least 10 points above that of copying the source (lower end of the interval).
  Below about 10 points machine translation is commonly read as useless, and a decoder that ignores the source
  gets there no more than a copy does.
"""

from collections.abc import Iterator

import pandas as pd

from infoflow.results import Spec

from ._model_group import TRANSLATION, Absent, ModelGroup

LOSS_SHARE = 0.9
BLEU_GAIN = 10.0

_COLUMNS = ["seed", "trained", "split", "metric", "value", "low", "high", "baseline"]


def shortfall(models: ModelGroup, objective: Spec, seed: int) -> str | None:
    """Why the model of that objective and seed counts as not having learned its task, or None where it has.

    Where scores are of several corpora (a column `corpus`), there is a model on each, and all must have learned.
    """
    model = f"the model {objective.label}/seed-{seed}"
    try:
        scores = models.rows("task_scores", objective, _COLUMNS)
        for corpus, own in scores.groupby("corpus", sort=False) if "corpus" in scores else [("", scores)]:
            if reason := next(_shortfalls(own[own["seed"] == seed], objective, model), None):
                return f"on {corpus}, {reason}" if corpus else reason
    except Absent as absent:
        return f"whether {model} has learned its task is not known: {absent}"
    return None


def _shortfalls(scores: pd.DataFrame, objective: Spec, model: str) -> Iterator[str]:
    loss = _score(scores, "loss")
    limit = LOSS_SHARE * float(loss["baseline"])
    if not float(loss["high"]) < limit:
        yield f"{model} has not learned its task: {_text(loss)} nats per token of loss, needed < {limit:.3g}"
    if objective.name == TRANSLATION.name:
        bleu = _score(scores, "bleu")
        limit = float(bleu["baseline"]) + BLEU_GAIN
        if not float(bleu["low"]) > limit:
            yield f"{model} has not learned its task: BLEU {_text(bleu)}, needed > {limit:.3g}"


def _score(scores: pd.DataFrame, metric: str) -> pd.Series:
    own = scores[scores["metric"] == metric]
    if own.empty:
        raise Absent(f"task_scores has no {metric}")
    on_test = own[own["split"] == "test"]
    return (own if on_test.empty else on_test).iloc[0]


def _text(score: pd.Series) -> str:
    return f"{score['value']:.3g} ({score['low']:.3g} to {score['high']:.3g})"
