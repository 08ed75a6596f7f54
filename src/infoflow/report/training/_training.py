"""How training went: scores on the task, beside what a model that ignores context would score."""

from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from .._figure import Panel, ReportFigure, Section
from .._in_words import Candidate, extreme, sentence
from .._model_tables import ModelTables
from .._numbers import estimate_text, listed, number, two_digits
from .._samples import Estimate, Samples
from .._shown_models import ShownModels
from ..forms._chart import color_of, shape_of, tips
from ..forms._dots import interval_dots
from ..forms._hollow import HOLLOW
from ..forms._lines import POSITIVE, SHARE
from ._learning import TASK_SCORES, learning_figure
from ._match import match_figure


class _Metric(NamedTuple):
    label: str
    unit: str
    lower_is_better: bool
    reference: str  # what the baseline is
    bounds: tuple[float, float] = POSITIVE

    @property
    def title(self) -> str:
        better = "lower" if self.lower_is_better else "higher"
        return f"{self.label}{f' ({self.unit})' if self.unit else ''}: {better} is better"


# Perplexity is the loss once more (its exponential): it stays in the data and out of the picture.
_METRICS = {
    "loss": _Metric("loss", "nats per token", True, "unigram frequencies"),
    "accuracy": _Metric("accuracy", "", False, "always the most frequent token", SHARE),
    "bleu": _Metric("BLEU", "", False, "a copy of the source"),
    "rougeL": _Metric("ROUGE-L", "", False, "a copy of what the encoder reads", SHARE),
    "next-sentence accuracy": _Metric("next-sentence accuracy", "", False, "the more frequent answer", SHARE),
    "sentence-order accuracy": _Metric("sentence-order accuracy", "", False, "the more frequent answer", SHARE),
    "replaced-token AUC": _Metric("replaced-token AUC", "", False, "a half, by chance", SHARE),
    "pair AUC": _Metric("AUC of true pairs of words", "", False, "a half, by chance", SHARE),
}


TRAINING = Section(
    id="training",
    title="How did training make it so?",
    lead="What a model's layers hold means little before it has learned its task. These scores say whether it has.",
    names={
        "task-scores": "training/task-scores",
        "learning-curves": "training/learning-curves",
        "match": "training/cost",
    },
)


def training_section(tables: ModelTables) -> Section | None:
    """The section, or None where no task was scored."""
    if "task_scores" not in tables or "corpus" in tables["task_scores"]:  # losses on several corpora have no mean
        return None
    models, scores = tables.models, tables["task_scores"]
    scores = scores[scores["split"] == ("test" if "test" in set(scores["split"]) else scores["split"].iloc[0])]
    if not set(_METRICS) & set(scores["metric"]):
        return None
    learning = tables.some(["learning_curves"]).values()
    figures = [_score_figure(scores, models), *(learning_figure(frame, scores, models) for frame in learning)]
    match = tables.whole("match") if models.by == "objective" else None
    figures += [] if match is None else [match_figure(match, models)]
    return replace(TRAINING, figures=figures, keys=models.present(scores))


def _score_figure(scores: pd.DataFrame, models: ShownModels) -> ReportFigure:
    table = _score_table(scores, models)
    metrics = [metric for metric in _METRICS if metric in set(table["metric"])]
    seeds = int(table["seeds"].max())
    bars = f"means over {seeds} seeds with 95% intervals over seeds and sentences"
    bars = bars if seeds > 1 else f"values with 95% intervals over sentences, {HOLLOW}"
    signatures = sorted({str(s) for s in scores["signature"] if s}) if "signature" in scores else []
    signature = f" sacreBLEU signature: {listed(signatures)}." if signatures else ""
    return ReportFigure(
        id="task-scores",
        question="Did the models learn their tasks?",
        answer=[_score_sentence(table[table["metric"] == metric], metric) for metric in metrics],
        words=_score_words(table[table["metric"] == metrics[0]], metrics[0]),
        panels=[
            Panel(
                spec=_score_chart(table[table["metric"] == name], models, _METRICS[name].bounds),
                title=_METRICS[name].title,
            )
            for name in metrics
        ],
        caption=f"Points are {bars}, on the {scores['split'].iloc[0]} part of the corpus "
        f"({int(table['count'].median()):,} tokens or sentences).{signature}",
        how_to_read=[
            "One panel per score, one line per model. The dashed grey mark is a reference that ignores context: "
            f"{_references(metrics)}.",
            "Losses of different objectives cannot be compared with each other: predicting the next token, a hidden "
            "token and a translation are different tasks. Compare each with its own reference.",
        ],
        method=TASK_SCORES,
        data=table,
        tables=("task_scores",),
    )


def _references(metrics: list[str]) -> str:
    """What stands for each score without context."""
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
    """Who is clearly better than the reference of the first score, by how much at least, and who is not."""
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
