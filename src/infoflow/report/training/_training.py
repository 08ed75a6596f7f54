"""Training results: task scores, compared with those of a model without context."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.results import LEARNING_CURVES, MATCH, OBJECTIVE_EXAMPLES
from infoflow.results import TASK_SCORES as TASK_SCORES_TABLE

from .._curves import band_words, estimates, seed_bands
from .._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from .._in_words import (
    Candidate,
    Estimate,
    both_extremes,
    estimate_text,
    extreme,
    listed,
    number,
    plain,
    sentence,
    two_digits,
)
from .._model_selection import ModelSelection
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._chart import (
    CONTROL,
    HEIGHT,
    LABEL_GAP,
    NAME,
    amount,
    color_of,
    finished,
    lit,
    shape_of,
    spread,
    tips,
    with_field,
)
from ..forms._lines import POSITIVE, SHARE, lines, looks_of
from ..forms._marks import HOLLOW, Constant, draw
from ..forms._rows import interval_dots
from ._objectives import EXAMPLES_FIGURE, MATCH_FIGURE

TASK_SCORES = Method(
    id="task-scores",
    title="Task scores",
    text="""
    Loss is the cross-entropy per supervised token in nats; BLEU is sacreBLEU of beam search with the signature in the
    caption.
    """,
)

_POINTS = 80  # points per line
_LABEL_ROOM = 1.6  # factor by which the log axis extends after the last point


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


_COPIED = "a copy of the source (or one fixed sentence for all, in scripts without spaces)"
# Perplexity is the exponential of the loss: it is in the data, but not in the picture.
_METRICS = {
    "loss": _Metric("loss", "nats per token", True, "unigram frequencies"),
    "accuracy": _Metric("accuracy", "", False, "always the most frequent token", SHARE),
    "bleu": _Metric("BLEU", "", False, _COPIED),
    "rougeL": _Metric("ROUGE-L", "", False, "a copy of what the encoder reads", SHARE),
    "next-sentence accuracy": _Metric("next-sentence accuracy", "", False, "the more frequent answer", SHARE),
    "sentence-order accuracy": _Metric("sentence-order accuracy", "", False, "the more frequent answer", SHARE),
    "replaced-token AUC": _Metric("replaced-token AUC", "", False, "chance, one half", SHARE),
    "pair AUC": _Metric("AUC of true pairs of words", "", False, "chance, one half", SHARE),
}


def _scores(scores: pd.DataFrame, models: ModelSelection) -> Drawn:
    table = _score_table(scores, models)
    shown = [(metric, own) for name, metric in _METRICS.items() if len(own := table[table["metric"] == name])]
    seeds = int(table["seeds"].max())
    bars = f"means over {seeds} seeds with 95% intervals over seeds and sentences"
    bars = bars if seeds > 1 else f"values with 95% intervals over sentences, {HOLLOW}"
    signatures = sorted({str(s) for s in scores["signature"] if s}) if "signature" in scores else []
    signature = f" sacreBLEU signature: {listed(signatures)}." if signatures else ""
    counts = [f"{int(own['count'].median()):,} for {one.label}" for one, own in shown]
    return Drawn(
        data=table,
        panels=[Panel(spec=_score_chart(own, models, one.bounds), title=one.title) for one, own in shown],
        answer=[_score_sentence(own, one) for one, own in shown],
        words=_score_words(shown[0][1], shown[0][0]),
        caption=f"Points are {bars}, on the {scores['split'].iloc[0]} part of the corpus "
        f"(tokens or sentences: {listed(counts)}).{signature}",
        facts={"references": "; ".join(f"{one.reference} for {one.label}" for one, _ in shown)},
    )


def _score_table(scores: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    keys = ["series", "metric", "trained"]
    table = estimates(scores, keys).assign(baseline=scores.groupby(keys, sort=False)["baseline"].mean().to_numpy())
    table = table.assign(
        label=table["series"].map({line.key: line.label for line in models.series}),
        group=np.where(table["trained"], "trained", "untrained"),
        short=[shown.split(" (")[0] for shown in table["shown"]],
    )
    ends = ["value", "low", "high", "baseline", "seeds", "count", "shown", "short"]
    order = {series.key: index for index, series in enumerate(models.series)}
    table = table[["series", "label", "metric", "group", *ends]]
    return table.sort_values("series", key=lambda keys: keys.map(order), kind="stable")


def _score_words(table: pd.DataFrame, metric: _Metric) -> str:
    """Which models clearly beat the reference of the first score, by how much at least, and which do not."""
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
    gap = f"{estimate_text(least.candidate.estimate, metric.unit)} of {metric.label}"
    by = f"by at least {gap}" if len(ahead) > 1 else f"by {gap}"
    where = f" (least {least.candidate.name})" if len(ahead) > 1 else ""
    said = f"{names} {verb} better than {metric.reference}, {by}{where}"
    return sentence(f"{said}; {behind}" if unclear else said)


def _score_sentence(table: pd.DataFrame, metric: _Metric) -> str:
    """Each model's score against its reference, then the untrained models'."""
    parts, unclear = [], []
    for row in table[table["group"] == "trained"].to_dict("records"):
        parts.append(f"{row['label']} {row['shown']} against {number(row['baseline'])}")
        better = row["high"] < row["baseline"] if metric.lower_is_better else row["low"] > row["baseline"]
        unclear += [] if better else [row["label"]]
    verdict = "all better than" if len(parts) > 1 else "better than"
    verdict = f"{listed(unclear)} not clearly better than" if unclear else verdict
    head = f"{metric.label[:1].upper()}{metric.label[1:]}{f' in {metric.unit}' if metric.unit else ''}"
    controls = table.loc[table["group"] == "untrained", "value"]
    ends = dict.fromkeys(two_digits(end) for end in (controls.min(), controls.max()))
    untrained = f" Untrained models: {' to '.join(ends)}." if len(controls) else ""
    return f"{head}: {', '.join(parts)}; {verdict} the reference, {metric.reference}.{untrained}"


def _score_chart(table: pd.DataFrame, models: ModelSelection, bounds: tuple[float, float]) -> dict[str, Any]:
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


def _learning(frame: pd.DataFrame, scores: pd.DataFrame, models: ModelSelection) -> Drawn:
    """Training loss by tokens read, with the loss of unigram frequencies as the reference."""
    losses = scores[(scores["metric"] == "loss") & scores["trained"]]
    unigrams = losses.groupby("series", as_index=False)["baseline"].mean()
    table = _seed_means(frame).merge(unigrams, on="series", how="left")
    series = models.present(table)
    seeds = int(table["seeds"].max())
    return Drawn(
        data=table,
        panels=[Panel(spec=_chart(table, series))],
        words=_words(table, series),
        caption=f"Training loss; each point is the mean since the previous one. {band_words(seeds, over='')}. Both "
        "axes are logarithmic.",
    )


LEARNING = DeclaredFigure(
    name="training/learning-curves",
    id="learning-curves",
    question="How did the loss fall?",
    how_to_read=(
        "Across: how many source tokens the model had read. Up: the training loss, with dropout and the "
        "objective's own noise (and label smoothing in translation), so it lies above the loss on unseen text.",
        "The dashed grey lines are the loss of token frequencies alone; a curve near its line has learned no "
        "more than these. A curve that still falls at its end would gain from longer training.",
        "Losses of different objectives cannot be compared with each other.",
    ),
    method=TASK_SCORES,
    tables=(LEARNING_CURVES.name, TASK_SCORES_TABLE.name),
    draw=_learning,
)
TRAINING = Section(
    id="training",
    title="How did training go?",
    lead="A model's layers say little about its objective before it has learned its task. These scores show "
    "whether it has.",
    names=names_of([EXAMPLES_FIGURE, SCORES, LEARNING, MATCH_FIGURE]),
    folded=(LEARNING.id,),
)


def training_section(tables: ModelTables) -> Section | None:
    """The section on how training went, or None if no task was scored."""
    # Losses on several corpora have no mean.
    if TASK_SCORES_TABLE.name not in tables or "corpus" in tables[TASK_SCORES_TABLE.name]:
        return None
    models, scores = tables.models, tables[TASK_SCORES_TABLE.name]
    scores = scores[scores["split"] == ("test" if "test" in set(scores["split"]) else scores["split"].iloc[0])]
    if not set(_METRICS) & set(scores["metric"]):
        return None
    match, examples = (
        tables.whole(table.name) if models.by == "objective" else None for table in (MATCH, OBJECTIVE_EXAMPLES)
    )
    figures = [
        None if examples is None else EXAMPLES_FIGURE.of(examples, models),
        SCORES.of(scores, models),
        *(LEARNING.of(frame, scores, models) for frame in tables.some([LEARNING_CURVES.name]).values()),
        None if match is None else MATCH_FIGURE.of(match, models),
    ]
    return replace(TRAINING, figures=[one for one in figures if one], keys=models.present(scores))


def _seed_means(frame: pd.DataFrame) -> pd.DataFrame:
    frame = _thinned(frame.assign(point=frame.groupby(["series", "seed"]).cumcount()))
    keys = ["series", "point"]
    lines: Any = frame.groupby(keys, sort=False)
    places = lines.agg(source_tokens=("source_tokens", "mean"), update=("step", "mean")).reset_index()
    return places.merge(seed_bands(frame, keys, positive=True), on=keys)


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """At most `_POINTS` points per line, evenly spread over the log axis; each is a mean of those it represents."""
    num = int(frame["point"].max()) + 1
    if num <= _POINTS:
        return frame
    ends = np.unique(np.geomspace(1, num, _POINTS).round().astype(int)) - 1
    cells = frame.assign(point=np.searchsorted(ends, frame["point"]))
    lines: Any = cells.groupby(["series", "seed", "point"], sort=False)
    return lines.agg(
        source_tokens=("source_tokens", "max"), step=("step", "max"), value=("value", "mean")
    ).reset_index()


def _falls(table: pd.DataFrame, series: list[Series]) -> list[tuple[str, float, float, float]]:
    """Each line's name, first and last loss, and the gain from the second half of its tokens."""
    found = []
    for one in series:
        own = table[table["series"] == one.key].sort_values("source_tokens")
        half = max(int((own["source_tokens"] <= own["source_tokens"].max() / 2).sum()) - 1, 0)
        first, last, before = (float(own["value"].iloc[at]) for at in (0, -1, half))
        found.append((one.label, first, last, max(before - last, 0.0)))
    return found


def _words(table: pd.DataFrame, series: list[Series]) -> str:
    """Which loss fell by the largest share, and which loss was falling fastest at the end."""
    found = _falls(table, series)
    falls = [Candidate(f"in {label}", plain(first - last)) for label, first, last, _ in found]
    shares = [(label, 100 * late / (first - last)) for label, first, last, late in found if first > last]
    fall = both_extremes(falls, "nats per token", "largest", "smallest")
    end = extreme([Candidate(f"in {label}", plain(round(share))) for label, share in shares])
    if not fall:
        return ""
    much = f"{number(end.candidate.estimate.value, 0)}% of it, {end.candidate.name}" if end else ""
    late = f"; the second half of the tokens contributed at most {much}" if end else ""
    return sentence(f"the fall of the training loss is {fall}{late}")


def _chart(table: pd.DataFrame, series: list[Series]) -> dict[str, Any]:
    table = table.assign(name=table["series"].map({one.key: one.label for one in series}))
    low, high = float(table["source_tokens"].min()), float(table["source_tokens"].max())
    values = table[["low", "high", "baseline"]].stack()
    span = [0.95 * float(values.min()), 1.05 * float(values.max())]
    log = {"type": "log", "zero": None, "ticks": 6}
    reach = [low, high * _LABEL_ROOM]
    at = {
        "x": amount("x", "source_tokens", "source tokens read", reach, format="~s", **log),
        "y": amount("y", "value", "training loss (nats per token)", span, **log),
    }
    look = looks_of(series)
    tooltip = tips("name:N|model", "update:Q|updates|,.0f", "source_tokens:Q|source tokens|,.0f", "value:Q|loss|.3f")
    ends = _apart(table.loc[table.groupby("series")["source_tokens"].idxmax()], span)
    references = ends.dropna(subset=["baseline"]).sort_values("baseline", ascending=False)
    baseline = with_field(at["y"], "baseline")
    note = {"align": "left", "baseline": "bottom", "dy": -3, "color": "var(--soft)", "fontSize": 10.5}
    note |= {"fontStyle": "italic", "x": Constant(4), "text": Constant("unigram frequencies")}
    name = {"align": "left", "dx": 6, "limit": 110, "text": "name:N", "opacity": lit(1.0, 0.25)}
    layers = [
        draw("rule", references, CONTROL, y=baseline, opacity=lit()),
        *lines(table, at, look, size=0, touch=300, tooltip=tooltip),
        draw("text", ends, NAME, name, x=at["x"], y=with_field(at["y"], "at"), color=look["color"]),
        draw("text", references.head(1), note, y=baseline),
    ]
    return finished(layers, HEIGHT)


def _apart(ends: pd.DataFrame, span: list[float]) -> pd.DataFrame:
    """The ends of the lines with the height `at` of their names, moved apart where they would overlap."""
    low, high = (math.log(value) for value in span)
    gap = LABEL_GAP / HEIGHT * (high - low)
    return ends.assign(at=[math.exp(at) for at in spread([math.log(value) for value in ends["value"]], gap, high)])
