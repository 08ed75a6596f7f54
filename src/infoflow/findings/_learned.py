"""Whether a model has learned its task: a claim about an objective says nothing about a model that has not.

The rule was fixed before any verdict was seen and looks at task scores only, on the test split where there is one:

- the loss lies at least 10 % below that of a model that knows token frequencies and nothing else (the upper end of the
  loss's interval below 0.9 times the unigram loss): the model uses context, beyond what a few updates teach;
- a translation model's BLEU lies at least 10 points above that of copying the source (lower end of the interval).
  Below about 10 points machine translation is commonly read as useless, and a decoder that ignores the source
  gets there no more than a copy does.
"""

import pandas as pd

from ._panel import Absent
from ._reading import Tables, rows_of

LOSS_SHARE = 0.9
BLEU_GAIN = 10.0

_COLUMNS = ["objective", "seed", "trained", "split", "metric", "value", "low", "high", "baseline"]


def shortfall(tables: Tables, objective: str, seed: int) -> str | None:
    """Why the model of that objective and seed counts as not having learned its task, or None where it has.

    Where scores are of several corpora (a column `corpus`), there is a model on each, and all must have learned.
    """
    scores = tables.get("task_scores")
    if scores is None or "corpus" not in scores:
        return _shortfall(tables, objective, seed)
    for corpus, own in scores.groupby("corpus", sort=False):
        if reason := _shortfall({"task_scores": own}, objective, seed):
            return f"on {corpus}, {reason}"
    return None


def _shortfall(tables: Tables, objective: str, seed: int) -> str | None:
    model = f"the model {objective}/seed-{seed}"
    try:
        loss = _score(tables, objective, seed, "loss")
        limit = LOSS_SHARE * float(loss["baseline"])
        if not float(loss["high"]) < limit:
            return f"{model} has not learned its task: {_text(loss)} nats per token of loss, needed < {limit:.3g}"
        if objective.partition("+")[0] != "translation":  # variants of translation are judged alike
            return None
        bleu = _score(tables, objective, seed, "bleu")
        limit = float(bleu["baseline"]) + BLEU_GAIN
        if not float(bleu["low"]) > limit:
            return f"{model} has not learned its task: BLEU {_text(bleu)}, needed > {limit:.3g}"
    except Absent as absent:
        return f"whether {model} has learned its task is not known: {absent}"
    return None


def _score(tables: Tables, objective: str, seed: int, metric: str) -> pd.Series:
    frame = rows_of(tables, "task_scores", _COLUMNS)
    frame = frame[(frame["objective"] == objective) & (frame["seed"] == seed) & (frame["metric"] == metric)]
    frame = frame[frame["trained"] == True]  # noqa: E712 (a column)
    if frame.empty:
        raise Absent(f"task_scores has no {metric}")
    on_test = frame[frame["split"] == "test"]
    return (frame if on_test.empty else on_test).iloc[0]


def _text(score: pd.Series) -> str:
    return f"{score['value']:.3g} ({score['low']:.3g} to {score['high']:.3g})"
