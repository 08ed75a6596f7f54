"""Training results: task scores, compared with those of a model that ignores context."""

from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from infoflow.results import LEARNING_CURVES, MATCH
from infoflow.results import TASK_SCORES as TASK_SCORES_TABLE

from .._declared import DeclaredFigure, Drawn, names_of
from .._figure import Panel, Section
from .._in_words import Candidate, extreme, sentence
from .._model_tables import ModelTables
from .._numbers import estimate_text, listed, number, two_digits
from .._samples import Estimate, Samples
from .._shown_models import ShownModels
from ..forms._chart import color_of, shape_of, tips
from ..forms._dots import interval_dots
from ..forms._hollow import HOLLOW
from ..forms._lines import POSITIVE, SHARE
from ._learning import LEARNING, TASK_SCORES
from ._match import MATCH_FIGURE


class _Metric(NamedTuple):
    label: str
    unit: str
    lower_is_better: bool
    reference: str  # name of the baseline
    bounds: tuple[float, float] = POSITIVE

    @property
    def title(self) -> str:
        better = "lower" if self.lower_is_better else "higher"
        return f"{self.label}{f' ({self.unit})' if self.unit else ''}: {better} is better"


_COPIED = "a copy of the source (or one sentence for all, where words have no spaces between them)"
# Perplexity is the exponential of the loss: it is in the data, but not in the picture.
_METRICS = {
    "loss": _Metric("loss", "nats per token", True, "unigram frequencies"),
    "accuracy": _Metric("accuracy", "", False, "always the most frequent token", SHARE),
    "bleu": _Metric("BLEU", "", False, _COPIED),
    "rougeL": _Metric("ROUGE-L", "", False, "a copy of what the encoder reads", SHARE),
    "next-sentence accuracy": _Metric("next-sentence accuracy", "", False, "the more frequent answer", SHARE),
    "sentence-order accuracy": _Metric("sentence-order accuracy", "", False, "the more frequent answer", SHARE),
    "replaced-token AUC": _Metric("replaced-token AUC", "", False, "a half, by chance", SHARE),
    "pair AUC": _Metric("AUC of true pairs of words", "", False, "a half, by chance", SHARE),
}


def _scores(scores: pd.DataFrame, models: ShownModels) -> Drawn:
    table = _score_table(scores, models)
    metrics = [metric for metric in _METRICS if metric in set(table["metric"])]
    seeds = int(table["seeds"].max())
    bars = f"means over {seeds} seeds with 95% intervals over seeds and sentences"
    bars = bars if seeds > 1 else f"values with 95% intervals over sentences, {HOLLOW}"
    signatures = sorted({str(s) for s in scores["signature"] if s}) if "signature" in scores else []
    signature = f" sacreBLEU signature: {listed(signatures)}." if signatures else ""
    return Drawn(
        data=table,
        panels=[
            Panel(
                spec=_score_chart(table[table["metric"] == name], models, _METRICS[name].bounds),
                title=_METRICS[name].title,
            )
            for name in metrics
        ],
        answer=[_score_sentence(table[table["metric"] == metric], metric) for metric in metrics],
        words=_score_words(table[table["metric"] == metrics[0]], metrics[0]),
        caption=f"Points are {bars}, on the {scores['split'].iloc[0]} part of the corpus "
        f"({int(table['count'].median()):,} tokens or sentences).{signature}",
        facts={"references": _references(metrics)},
    )


def _references(metrics: list[str]) -> str:
    """The context-free reference of each score."""
    return "; ".join(f"{_METRICS[name].reference} for {_METRICS[name].label}" for name in metrics)


def _score_table(scores: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """One row per line, metric and control."""
    rows = []
    lines: Any = scores.groupby(["series", "metric", "trained"], sort=False)
    for (key, metric, trained), own in lines:
        estimate = Samples.of(own).estimate()
        row = {"series": key, "label": models[str(key)].label, "metric": metric}
        row |= {"group": "trained" if trained else "untrained", "value": estimate.value, "low": estimate.low}
        row |= {"high": estimate.high, "baseline": float(own["baseline"].mean())}
        row |= {"seeds": estimate.seeds, "count": estimate.count, "shown": estimate_text(estimate)}
        rows.append(row | {"short": estimate_text(estimate).split(" (")[0]})
    order = {series.key: index for index, series in enumerate(models.series)}
    return pd.DataFrame(rows).sort_values("series", key=lambda keys: keys.map(order), kind="stable")


def _score_words(table: pd.DataFrame, name: str) -> str:
    """Which models clearly beat the reference of the first score, by at least how much, and which do not."""
    metric = _METRICS[name]
    ahead, unclear = [], []
    for row in table[table["group"] == "trained"].to_dict("records"):
        sign = -1 if metric.lower_is_better else 1
        ends = sorted(sign * (row[end] - row["baseline"]) for end in ("low", "high"))
        gap = Estimate(value=sign * (row["value"] - row["baseline"]), low=ends[0], high=ends[1], seeds=1, count=0)
        if gap.sign > 0:
            ahead.append(Candidate(f"in {row['label']}", gap))
        else:
            unclear.append(row["label"])
    least = extreme(ahead, least=True)
    behind = f"{listed(unclear)} {'is' if len(unclear) == 1 else 'are'} not clearly better than {metric.reference}"
    if least is None:
        return sentence(behind) if unclear else ""
    names = listed([one.name.removeprefix("in ") for one in ahead])
    verb = "is" if len(ahead) == 1 else "are all" if not unclear else "are"
    by = f"by {estimate_text(least.candidate.estimate, metric.unit)} of {metric.label}"
    where = f" or more (least {least.candidate.name})" if len(ahead) > 1 else ""
    said = f"{names} {verb} better than {metric.reference}, {by}{where}"
    return sentence(f"{said}; {behind}" if unclear else said)


def _score_sentence(table: pd.DataFrame, name: str) -> str:
    """Each model's score against its reference, then the untrained models'."""
    metric = _METRICS[name]
    parts, unclear = [], []
    for row in table[table["group"] == "trained"].to_dict("records"):
        parts.append(f"{row['label']} {row['shown']} against {number(row['baseline'])}")
        better = row["high"] < row["baseline"] if metric.lower_is_better else row["low"] > row["baseline"]
        unclear += [] if better else [row["label"]]
    verdict = "all better than" if len(parts) > 1 else "better than"
    verdict = f"{listed(unclear)} not clearly better than" if unclear else verdict
    head = f"{metric.label[:1].upper()}{metric.label[1:]}{f' in {metric.unit}' if metric.unit else ''}"
    untrained = _untrained_text(table.loc[table["group"] == "untrained", "value"])
    return f"{head}: {', '.join(parts)}; {verdict} the reference, {metric.reference}.{untrained}"


def _untrained_text(values: pd.Series) -> str:
    if values.empty:
        return ""
    low, high = two_digits(values.min()), two_digits(values.max())
    return f" Untrained models: {low if low == high else f'{low} to {high}'}."


def _score_chart(table: pd.DataFrame, models: ShownModels, bounds: tuple[float, float]) -> dict[str, Any]:
    trained = table[table["group"] == "trained"]
    series = models.present(trained)
    tooltip = tips("label:N", "shown:N|value", "baseline:Q|reference")
    return interval_dots(
        trained, {"color": color_of(series), "shape": shape_of(series)}, bounds=bounds, tooltip=tooltip
    )


SCORES = DeclaredFigure(
    name="training/task-scores",
    id="task-scores",
    question="Did the models learn their tasks?",
    how_to_read=(
        "One panel per score, one line per model. The dashed grey mark is a reference that ignores context: "
        "{references}.",
        "Losses of different objectives cannot be compared with each other: predicting the next token, a hidden "
        "token and a translation are different tasks. Compare each with its own reference.",
    ),
    method=TASK_SCORES,
    tables=(TASK_SCORES_TABLE.name,),
    draw=_scores,
)


TRAINING = Section(
    id="training",
    title="How did training go?",
    lead="A model's layers say little about its objective before it has learned its task. These scores show "
    "whether it has.",
    names=names_of([SCORES, LEARNING, MATCH_FIGURE]),
)


def training_section(tables: ModelTables) -> Section | None:
    """The section, or None if no task was scored."""
    # Losses on several corpora have no mean.
    if TASK_SCORES_TABLE.name not in tables or "corpus" in tables[TASK_SCORES_TABLE.name]:
        return None
    models, scores = tables.models, tables[TASK_SCORES_TABLE.name]
    scores = scores[scores["split"] == ("test" if "test" in set(scores["split"]) else scores["split"].iloc[0])]
    if not set(_METRICS) & set(scores["metric"]):
        return None
    match = tables.whole(MATCH.name) if models.by == "objective" else None
    figures = [
        SCORES.of(scores, models),
        *(LEARNING.of(frame, scores, models) for frame in tables.some([LEARNING_CURVES.name]).values()),
        None if match is None else MATCH_FIGURE.of(match, models),
    ]
    return replace(TRAINING, figures=[one for one in figures if one], keys=models.present(scores))
