"""Shared rows and sentences of probes: one probe per task, curves with controls, and best layers."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from infoflow.report._curves import COLUMNS, curves, samples_at, samples_by_layer, seed_bands
from infoflow.report._figure import Method
from infoflow.report._in_words import (
    Candidate,
    Estimate,
    Samples,
    chosen,
    clear_cases,
    estimate_text,
    extremes_words,
    inline_text,
    listed,
    number,
    size_text,
)
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series

PROBES = Method(
    id="probes",
    title="Probes",
    text="""
    The model is frozen; a classifier is trained on the vectors of one layer at a time: linear,
    softmax(<i>Wh</i><sub>l</sub> + <i>b</i>), or with a hidden layer, stopped by its loss on other sentences. Words are
    means of their tokens; parts share no sentence. Accuracy is measured on test sentences and averaged over seeds of
    the probe. Its controls are the majority class, which is always the most frequent label; layer 0; the same probe on
    the same architecture with random weights (Zhang and Bowman 2018); and a control task (Hewitt and Liang 2019), which
    gives every type of word one label drawn from those of the task, so that only memorising types solves it.
    Selectivity is accuracy(task) − accuracy(control).
    """,
)

TASKS = {
    "word": "word identity",
    "position": "position",
    "upos": "part of speech",
    "xpos": "part of speech (treebank)",
    "ccg": "CCG supertags",
    "chunks": "chunks",
    "constituents": "constituents",
    "parent": "parent constituent",
    "grandparent": "grandparent constituent",
    "great-grandparent": "great-grandparent constituent",
    "deprel": "relation to the head",
    "arc": "dependency arcs",
    "arc-label": "relations of arcs",
    "ner": "named entities (tags)",
    "ner-spans": "named entities",
    "entity-spans": "mentions by kind",
    "coreference": "coreference",
}
"""Names of tasks, in reading order; other tasks are named by their columns and come last."""
MOST_TASKS = 12
"""Panels per figure; if there are more tasks, those that depend most on depth are shown."""
CONTROL_TASK, SHUFFLED = "control task", "shuffled labels"
_PROBES = ("linear", "mlp")
_SETTINGS = ("probe", "dropout", "weight_decay", "corrupted", "units")


class Best(NamedTuple):
    """The layer that reads a task best in one model."""

    layer: int
    estimate: Estimate  # score on the half of the sentences that did not choose the layer
    alike: tuple[int, ...]  # other layers that do not clearly differ from it
    top: int
    first: float  # score on the half that chose it, used for comparisons with other layers


def task_label(name: str) -> str:
    return TASKS.get(name, name)


def sentence_start(text: str) -> str:
    return text[:1].upper() + text[1:]


def tasks_of(frame: pd.DataFrame) -> list[str]:
    """The tasks of a table, in reading order."""
    found, order = list(dict.fromkeys(frame["task"].astype(str))), list(TASKS)
    return sorted(found, key=lambda name: (order.index(name) if name in TASKS else len(order), found.index(name)))


def any_trained(frame: pd.DataFrame) -> bool:
    """Whether there are rows of trained models."""
    return len(frame) > 0 and bool(frame["trained"].any())


def one_probe(frame: pd.DataFrame) -> pd.DataFrame:
    """One probe and setting per task, trained on all examples; linear if available."""
    if frame.empty:
        return frame
    rank = {name: index for index, name in enumerate(_PROBES)}
    place = frame["probe"].astype(str).map(lambda name: rank.get(name, len(rank)))
    task = frame["task"].astype(str)
    kept = frame[place == place.groupby(task).transform("min")]
    for setting in [name for name in _SETTINGS if name in kept]:
        kept = kept[kept[setting] == kept.groupby(task)[setting].transform("first")]
    return kept


def all_examples(frame: pd.DataFrame) -> pd.DataFrame:
    """For each task and model, the probes trained on the most examples."""
    column = next((name for name in ("share", "training") if name in frame), "")
    if not column or frame.empty:
        return frame
    keys = [frame["model"].astype(str), frame["trained"], frame["task"].astype(str)]
    return frame[frame[column] == frame.groupby(keys)[column].transform("max")]


def probe_label(name: str) -> str:
    """`linear`, or `MLP` with the sizes of its hidden layers."""
    kind, _, sizes = name.partition("-")
    return name if kind != "mlp" else f"MLP ({sizes.replace('-', ', ')})" if sizes else "MLP"


def of(frame: pd.DataFrame, **wanted: str) -> pd.DataFrame:
    """The rows with these values and a defined `value`; columns that the table lacks are ignored."""
    kept = frame["value"].notna()
    for column, value in wanted.items():
        if column in frame:
            kept &= frame[column].astype(str) == value
    return frame[kept]


def control_curve(frame: pd.DataFrame, group: str) -> pd.DataFrame:
    """A control as one line: its mean over trained models at each layer, with its interval over seeds."""
    trained = frame[frame["trained"]]
    table = seed_bands(trained, ["layer"]).sort_values("layer").astype({"layer": int})
    models = table["layer"].map(trained.groupby("layer")["series"].nunique())
    notes = ["" if num == 1 else " (mean of the models)" for num in models]
    shown = [f"{number(value, 3)}{note}" for value, note in zip(table["value"], notes, strict=True)]
    return table.assign(series="", group=group, seeds=0, count=0, shown=shown)[[*COLUMNS, "shown"]]


def curves_with(frame: pd.DataFrame, controls: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """`curves` of the rows, and a line for each control that has rows."""
    further = [control_curve(rows, name) for name, rows in controls.items() if len(rows)]
    return pd.concat([curves(frame), *further], ignore_index=True)


def best_layer(frame: pd.DataFrame, series: str, trained: bool = True) -> Best | None:
    """Where a line is highest, chosen on one half of the sentences; None if it was not measured."""
    at = samples_by_layer(frame, series, trained)
    found = chosen({int(layer): samples for layer, samples in at.items() if samples})
    if found is None:
        return None
    best, at = found.key, found.at
    alike = tuple(layer for layer in at if layer != best and not (at[best] - at[layer]).estimate().sign)
    return Best(layer=best, estimate=found.estimate, alike=alike, top=max(at), first=found.first)


def best_layers(rows: pd.DataFrame, models: ModelSelection) -> dict[Series, Best]:
    """The best layer of every trained model, in reading order."""
    found = {line: best_layer(rows, line.key) for line in models.present(rows[rows["trained"]])}
    return {line: best for line, best in found.items() if best is not None}


def held_out_at(frame: pd.DataFrame, series: str, layer: int, trained: bool = True) -> Samples:
    """One line at one layer, on the half of the sentences that does not choose the best layer."""
    return samples_at(frame, series, layer, trained).halves().second


def most_layered(frame: pd.DataFrame, tasks: Sequence[str], most: int = MOST_TASKS) -> list[str]:
    """The tasks whose scores differ most between layers, at most `most` of them, in reading order."""
    if len(tasks) <= most:
        return list(tasks)
    trained = frame[frame["trained"]]
    means = trained.groupby([trained["task"].astype(str), "series", "layer"])["value"].mean()
    spread = means.groupby(level=[0, 1]).agg(np.ptp).groupby(level=0).max().sort_values(ascending=False)
    kept = set(spread.index[:most])
    return [task for task in tasks if task in kept]


def left_out_note(tasks: Iterable[str], shown: Iterable[str]) -> str:
    """The caption's note about tasks without a panel."""
    others = [task_label(task) for task in tasks if task not in set(shown)]
    if not others:
        return ""
    more = f"{len(others)} further task{'s' if len(others) > 1 else ''}"
    return f" Panels show the tasks that differ most between layers; only in the data: {more} ({listed(others)})."


def against(difference: Estimate, what: str) -> str:
    """`0.05 (0.04 to 0.06) above layer 0`, or a statement that the two do not clearly differ."""
    if difference.has_interval and not difference.sign:
        return f"not clearly different from {what} ({inline_text(difference)})"
    return f"{size_text(difference)} {'above' if difference.value >= 0 else 'below'} {what}"


def above_controls(
    name: str,
    rows: pd.DataFrame,
    models: ModelSelection,
    controls: Callable[[Series, Best], dict[str, Samples]] = lambda line, best: {},
) -> list[str]:
    """The best layer of all models, and how far it is above each control that was measured.

    For example "Chunks: 0.81 (0.80 to 0.82) in layer 4 of masked LM, 0.12 (0.11 to 0.13) above its embeddings."
    """
    bests = best_layers(rows, models)
    if not bests:
        return []
    line, best = max(bests.items(), key=lambda one: one[1].first)
    here = held_out_at(rows, line.key, best.layer)
    embeddings = {"its embeddings": held_out_at(rows, line.key, 0)} if best.layer else {}
    others = {**embeddings, **controls(line, best), "an untrained model's best layer": untrained_best(rows, line.key)}
    stated = [against((here - other).estimate(), what) for what, other in others.items() if other]
    place = f"{estimate_text(best.estimate)} in layer {best.layer} of {line.label}{alike_text(best)}"
    return [f"{sentence_start(name)}: {', '.join(filter(None, (place, listed(stated))))}."]


def untrained_best(rows: pd.DataFrame, series: str) -> Samples | None:
    """The best layer of an untrained model; None without one."""
    best = best_layer(rows, series, trained=False)
    return None if best is None else held_out_at(rows, series, best.layer, trained=False)


def alike_text(best: Best) -> str:
    """Bracketed note on layers that do not clearly differ from the best; "" if there are none."""
    if not best.alike:
        return ""
    layers = sorted(best.alike)
    whole = len(layers) > 2 and layers == list(range(layers[0], layers[-1] + 1))
    stated = f"{layers[0]} to {layers[-1]}" if whole else listed([str(layer) for layer in layers])
    return f" ({stated} {'does' if len(layers) == 1 else 'do'} not clearly differ)"


def ratio(upper: Samples, lower: Samples) -> Estimate:
    """Ratio of two positive quantities, paired by seed, as the exponential of a difference of logarithms."""
    gap = (upper.applied(np.log) - lower.applied(np.log)).estimate()
    value, low, high = (float(np.exp(end)) for end in (gap.value, gap.low, gap.high))
    return Estimate(value=value, low=low, high=high, seeds=gap.seeds, count=gap.count)


class Case(NamedTuple):
    """A task in a model, and the layer that reads it best."""

    rows: pd.DataFrame  # the task's rows, for all models
    task: str
    series: Series
    best: Best

    @property
    def name(self) -> str:
        """The name as it follows a number, in parentheses."""
        return case_name(self.task, self.series.label)

    @property
    def samples(self) -> Samples:
        """Samples of the best layer."""
        return held_out_at(self.rows, self.series.key, self.best.layer)

    @property
    def over_untrained(self) -> Estimate | None:
        """The best layer's margin over the best layer of an untrained model; None without one."""
        other = untrained_best(self.rows, self.series.key)
        return None if other is None else (self.samples - other).estimate()


def case_name(task: str, label: str) -> str:
    """`for chunks in masked LM`."""
    return f"for {task_label(task)} in {label}"


def cases_of(own: pd.DataFrame, models: ModelSelection) -> list[Case]:
    """Every task in every trained model, in reading order."""
    found = []
    for task in tasks_of(own):
        rows = of(own, task=task)
        found += [Case(rows, task, series, best) for series, best in best_layers(rows, models).items()]
    return found


def case_words(
    what: str, cases: Sequence[Case], number: Callable[[Case], Estimate | None], above: float | None = None
) -> str:
    """The cases with the highest and lowest number, and how many are clearly `above` the null value."""
    stated = [Candidate(case.name, estimate) for case in cases if (estimate := number(case)) is not None]
    return extremes_words(what, stated, end="" if above is None else clear_cases(stated, above))


def gain_words(score: str, cases: Sequence[Case]) -> str:
    """The best layers' margin over those of untrained models; without any, over the majority class."""
    if any(case.over_untrained is not None for case in cases):
        return case_words(
            f"the gain in {score} over an untrained model's best layer", cases, lambda case: case.over_untrained, 0.0
        )
    return case_words(f"the gain in {score} over the majority class", cases, _over_baseline, 0.0)


def _over_baseline(case: Case) -> Estimate:
    own = case.rows
    floor = float(own.loc[(own["series"] == case.series.key) & own["trained"], "baseline"].mean())
    best = case.best.estimate
    return Estimate(
        value=best.value - floor, low=best.low - floor, high=best.high - floor, seeds=best.seeds, count=best.count
    )
