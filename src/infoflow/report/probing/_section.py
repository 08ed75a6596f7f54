"""The section on probes, and its overview: every task by layer, for every model."""

from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from infoflow.probing import (
    BERT_SCORE,
    BERT_SCORE_LAYERS,
    FILL_IN,
    MINIMAL_PAIRS,
    PROBE_CODELENGTH,
    PROBE_DEPTH,
    PROBE_EXAMPLES,
    PROBE_MIXING,
    PROBE_SCORES,
    PROBE_TREES,
)

from .._curves import curves
from .._figure import Panel, ReportFigure, Section
from .._in_words import listed, number
from .._model_tables import ModelTables
from .._shown_models import ShownModels
from .._theme import Series
from ..forms._chart import AbstractForm, Frame, color_if, finished, opacity_if, tips
from ..forms._marks import also
from ..forms._rows import cells, frames, squares
from ._codelength import bits_figure, size_figure
from ._depth import depth_figure
from ._examples import examples_figure, solved_figure
from ._methods import GAINS
from ._preferences import bert_score_figure, facts_figure, pairs_figure
from ._rows import (
    all_examples,
    any_trained,
    best_layer,
    cases_of,
    layers_text,
    of,
    one_probe,
    place_words,
    probe_label,
    task_label,
    tasks_of,
)
from ._scores import accuracy_figure, selectivity_figure
from ._trees import trees_figure

# Overview of where information is in the network: every task by layer, for every model.


_COLUMNS = ["series", "task", "label", "layer", "untrained", "value", "low", "high", "baseline", "share", "best"]
_TOLD = 6  # up to this number, sentences give each model's best layers


def overview_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One map per line; None if no task is read better than by its majority class."""
    own = all_examples(one_probe(of(frame, metric="accuracy", labels="task", words="all")))
    if not any_trained(own):
        return None
    table, hopeless = _cells(own, models)
    if table.empty:
        return None
    labels = list(dict.fromkeys(table["label"]))
    series = models.present(table)
    nothing = [f" No model does better than the majority class on {listed(hopeless)}."] if hopeless else []
    return ReportFigure(
        id="where-is-what",
        question="Where in the network is what?",
        answer=[*_where(own, table, series), *_from_the_start(table), *_untrained(table)],
        words=place_words([case for case in cases_of(own, models) if task_label(case.task) in labels]),
        panels=[Panel.of(TaskMap(table=table[table["series"] == one.key], labels=labels), one.label) for one in series],
        caption="Colours, and numbers where there is room: 100 × the share of what any layer of these models gains "
        f"over the majority class; framed: each model's best layer.{_beside(table)}{_seeds(own)}{''.join(nothing)}",
        how_to_read=[
            "A row is a task, a column a layer, 0 = embeddings. The stronger the colour, the more of the task a "
            "linear probe reads from that layer: blank is no more than the majority class, 100 the best of all layers "
            "of all models on this task. The colour grows fastest near 100, so that good layers can be told apart.",
            "Rows whose colour is strong from the left on are tasks that words alone decide; where it grows to the "
            "right, context is needed. Grey, at the right: the best layer of an untrained model on the same scale.",
            "It would be surprising if all tasks were read best from the top layer: what a model is trained for "
            "stands there, at the cost of the rest. The frame marks the highest mean; the sentences say which layers "
            "are not told apart from it.",
        ],
        method=GAINS,
        data=table,
        tables=(PROBE_SCORES.name,),
        payload={"layout": "wide"},
    )


def _cells(own: pd.DataFrame, models: ShownModels) -> tuple[pd.DataFrame, list[str]]:
    """One row per line, task and layer, and per best layer of an untrained model; also the tasks without any gain."""
    rows: list[dict[str, Any]] = []
    hopeless = []
    for task in tasks_of(own):
        rows_of_task = of(own, task=task)
        table = curves(rows_of_task)
        table = table[table["group"] != "baseline"]
        floors = rows_of_task.groupby("series")["baseline"].mean()
        gains = table["value"] - table["series"].map(floors)
        most = float(gains[table["group"] == "trained"].max())
        if most <= 0:
            hopeless.append(task_label(task))
            continue
        table = table.assign(
            task=task, label=task_label(task), share=gains / most, baseline=table["series"].map(floors)
        )
        for series in models.present(table):
            rows += _rows_of(table[table["series"] == series.key])
    return pd.DataFrame(rows, columns=[*_COLUMNS, "shown"]), hopeless


def _rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """All layers of the trained model, and the best layer of the untrained one."""
    trained, untrained = (table[table["group"] == group] for group in ("trained", "untrained"))
    if trained.empty:
        return []
    trained = trained.assign(untrained=False, best=trained["value"] == trained["value"].max())
    untrained = untrained.nlargest(1, "value").assign(untrained=True, best=False)
    return [*trained.to_dict("records"), *untrained.to_dict("records")]  # type: ignore[list-item]


def _where(own: pd.DataFrame, table: pd.DataFrame, series: list[Series]) -> list[str]:
    """Each model's tasks by their best layer, from bottom to top."""
    sentences = [_where_in(own, table, one) for one in series[:_TOLD]]
    left = len(series) - _TOLD
    return [*sentences, *([f"{left} further models: in the picture and the data."] if left > 0 else [])]


def _where_in(own: pd.DataFrame, table: pd.DataFrame, series: Series) -> str:
    rows = table[(table["series"] == series.key) & table["best"]].drop_duplicates("task")
    parts = [_place(own, series, row) for row in rows.sort_values("layer", kind="stable").to_dict("records")]
    return f"Best layers in {series.label}: {', '.join(parts)}."


def _place(own: pd.DataFrame, series: Series, row: dict[Any, Any]) -> str:
    """The task with its best layer, and the layers that do not clearly differ from it."""
    found = best_layer(of(own, task=str(row["task"])), series.key)
    alike = [] if found is None else sorted({found.layer, *found.alike} - {int(row["layer"])})
    others = f" (or {layers_text(alike, 'or')})" if alike else ""
    return f"{row['label']} {row['layer']}{others}"


def _from_the_start(table: pd.DataFrame) -> list[str]:
    """The tasks with the largest and smallest share already in the embeddings."""
    first = table[(table["layer"] == 0) & ~table["untrained"]].groupby("label", sort=False)["share"].mean()
    if len(first) < 2:
        return []
    most, least = str(first.idxmax()), str(first.idxmin())
    return [
        f"Of what can be gained on {most}, embeddings already have {_percent(first[most])} on average, of {least} "
        f"{_percent(first[least])}."
    ]


def _untrained(table: pd.DataFrame) -> list[str]:
    """The share of each task that the best layers of untrained models reach, smallest to largest."""
    grey = table[table["untrained"]].groupby("label", sort=False)["share"].mean().sort_values()
    if grey.empty:
        return []
    ends = list(grey.items()) if len(grey) < 3 else [*list(grey.items())[:1], *list(grey.items())[-1:]]
    told = [f"{_percent(float(share))} on {label}" for label, share in ends]
    between = " to ".join(told) if len(grey) > 2 else listed(told)
    return [f"Without any training, the best layer reaches {between}."]


def _percent(share: float) -> str:
    return f"{number(100 * share, 0)}%"


def _beside(table: pd.DataFrame) -> str:
    return " “untr.”, grey: the best layer of an untrained model." if bool(table["untrained"].any()) else ""


def _seeds(own: pd.DataFrame) -> str:
    seeds = int(own["seed"].nunique())
    kinds = listed([probe_label(name) for name in dict.fromkeys(own["probe"].astype(str))])
    return f" Means over {seeds} seeds; {kinds} probes." if seeds > 1 else f" One seed; {kinds} probes."


_ROW = 26  # pixels per row
_NUMBER = 19  # pixels of a square that fits its number
_GAP, _UNTRAINED = "", "untr."


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TaskMap(AbstractForm):
    """One model's tasks from top to bottom, layers across, and the best layer of an untrained model at the right.

    The table has `label`, `layer`, `share`, `best`, `shown`, and `untrained`; untrained rows hold the best layer.
    """

    table: pd.DataFrame
    labels: list[str]  # from top to bottom, shared by all panels side by side
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        layers = self.table.loc[~self.table["untrained"], "layer"]
        return self.chosen or Frame(int(layers.min()), int(layers.max()), 0.0, 1.0)

    @property
    def compared(self) -> bool:
        return False

    @property
    def spec(self) -> dict[str, Any]:
        frame, beside = self.frame, bool(self.table["untrained"].any())
        layers = [str(layer) for layer in range(frame.first, frame.last + 1)]
        place = self.table["layer"].astype(int).astype(str).where(~self.table["untrained"], _UNTRAINED)
        rows = self.table[["label", "share", "shown", "best", "untrained", "layer"]].assign(
            place=place, text=[f"{100 * share:.0f}" for share in self.table["share"]]
        )
        order = [*layers, *([_GAP, _UNTRAINED] if beside else [])]
        roomy = f"width >= {_NUMBER * len(order)} || isNaN(datum.value)"
        names = f"{roomy} || datum.value % 2 === 0 ? datum.label : ''"
        x = cells("x", "place", "layer (0 = embeddings)", order, labelOverlap=False, labelExpr=names)
        x["scale"] = {"domain": order}
        y = cells("y", "label", None, self.labels, labelLimit=150)
        y["scale"] = {"domain": self.labels}
        marks = squares(
            rows.round({"share": 3}),
            x,
            y,
            "share",
            color=color_if("datum.untrained", "var(--control)", "var(--heat-2)"),
            size=9.5,
            exponent=3,
            tooltip=tips(
                "label:N|task", "layer:O|layer", "shown:N|accuracy", "share:Q|share of what can be gained|.2f"
            ),
        )
        marks[-1] = also(marks[-1], opacity=opacity_if(f"width >= {_NUMBER * len(order)}", 1, 0))
        marks[1:1] = frames(rows[rows["best"]], x, y)
        return finished(marks, _ROW * len(self.labels) + 4)


# The section on probes: what can be read from each layer, and how hard it is to read.


PROBING = Section(
    id="probing",
    title="What can be read from each layer?",
    lead="A probe is a small classifier that sees nothing but a layer's vectors. What it gets right stands in them. "
    "How much is that, in which layer, how hard is it to read, and how much of it would an untrained model show?",
    names={
        "where-is-what": "probing/overview",
        "probe-accuracy": "probing/accuracy",
        "probe-selectivity": "probing/selectivity",
        "probe-examples": "probing/examples",
        "probe-solved": "probing/single-examples",
        "probe-bits": "probing/codelength",
        "probe-size": "probing/probe-size",
        "probe-depth": "probing/depth",
        "probe-trees": "probing/trees",
        "probe-pairs": "probing/minimal-pairs",
        "facts-filled-in": "probing/facts",
        "bert-score": "probing/bert-score",
    },
)
_TABLES = (
    PROBE_SCORES.name,
    PROBE_CODELENGTH.name,
    PROBE_MIXING.name,
    PROBE_DEPTH.name,
    PROBE_TREES.name,
    PROBE_EXAMPLES.name,
    MINIMAL_PAIRS.name,
    FILL_IN.name,
    BERT_SCORE_LAYERS.name,
    BERT_SCORE.name,
)


def probing_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was probed."""
    models, frames = tables.models, tables.some(_TABLES)
    main = {name: models.main(frame) for name, frame in frames.items()}
    figures: list[ReportFigure | None] = []
    if (scores := main.get(PROBE_SCORES.name)) is not None:
        figures += [
            overview_figure(scores, models),
            accuracy_figure(scores, models),
            selectivity_figure(scores, models),
        ]
        figures.append(examples_figure(scores, models))
    if (examples := main.get(PROBE_EXAMPLES.name)) is not None:
        figures.append(solved_figure(examples, main.get(PROBE_SCORES.name), models))
    if (lengths := main.get(PROBE_CODELENGTH.name)) is not None:
        figures += [bits_figure(lengths, models), size_figure(lengths, models)]
    figures.append(depth_figure(main.get(PROBE_MIXING.name), main.get(PROBE_DEPTH.name), models))
    if (trees := main.get(PROBE_TREES.name)) is not None:
        figures.append(trees_figure(trees, models))
    if (pairs := frames.get(MINIMAL_PAIRS.name)) is not None:  # from the one stack with an output head
        figures.append(pairs_figure(pairs, models))
    if (facts := frames.get(FILL_IN.name)) is not None:
        figures.append(facts_figure(facts, models))
    if (means := frames.get(BERT_SCORE_LAYERS.name)) is not None:
        figures.append(bert_score_figure(means, frames.get(BERT_SCORE.name), models))
    return PROBING.told_by(figures, models, main.values())
