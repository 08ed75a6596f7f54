"""Rows of the tables of probes as figures show them: one probe per task, curves with their controls, best layers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._curves import COLUMNS, curves
from .._numbers import estimate_text, listed, number, size_text
from .._samples import Estimate, Samples
from .._shown_models import ShownModels
from ..forms._layer_chart import LayerChart
from ..forms._lines import SHARE

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
"""What tasks are called, in reading order; others have the names of their columns, and come last."""
MOST_TASKS = 12
"""Panels of a figure; of more tasks, those that depth matters for most."""
CONTROL_TASK, SHUFFLED = "control task", "shuffled labels"
_PROBES = ("linear", "mlp")
_SETTINGS = ("probe", "dropout", "weight_decay", "corrupted", "units")


class Best(NamedTuple):
    """The layer that a task is read best from, in one model."""

    series: str
    layer: int
    estimate: Estimate
    alike: tuple[int, ...]
    """Other layers that are not told apart from it."""
    top: int


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
    """Of each task one probe and one setting of it, trained on all examples: the linear one where there is one."""
    if frame.empty:
        return frame
    rank = {name: place for place, name in enumerate(_PROBES)}
    place = frame["probe"].astype(str).map(lambda name: rank.get(name, len(rank)))
    task = frame["task"].astype(str)
    kept = frame[place == place.groupby(task).transform("min")]
    for setting in [name for name in _SETTINGS if name in kept]:
        kept = kept[kept[setting] == kept.groupby(task)[setting].transform("first")]
    return kept


def all_examples(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each task and model the probes that were trained on most examples."""
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
    """The rows with these values, as far as the table has such columns, and a value."""
    kept = frame["value"].notna()
    for column, value in wanted.items():
        if column in frame:
            kept &= frame[column].astype(str) == value
    return frame[kept]


def control_curve(frame: pd.DataFrame, group: str) -> pd.DataFrame:
    """A control as one line: its mean over trained models at each layer, and the lowest and the highest of them."""
    trained = frame[frame["trained"]]
    rows = []
    for layer, at in trained.groupby("layer", sort=True):
        by_model = at.groupby("series")["value"].mean()
        value, low, high = float(by_model.mean()), float(by_model.min()), float(by_model.max())
        rows.append(
            {
                "series": "",
                "group": group,
                "layer": int(str(layer)),
                "value": value,
                "low": low,
                "high": high,
                "seeds": 0,
                "count": 0,
                "shown": number(value, 3) if len(by_model) == 1 else f"{number(value, 3)} (mean of the models)",
            }
        )
    return pd.DataFrame(rows, columns=[*COLUMNS, "shown"])


def curves_with(frame: pd.DataFrame, controls: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """`curves` of the rows, and a line for each control that has rows."""
    further = [control_curve(rows, name) for name, rows in controls.items() if len(rows)]
    return pd.concat([curves(frame), *further], ignore_index=True)


def best_layer(frame: pd.DataFrame, series: str, trained: bool = True) -> Best | None:
    """Where a line is highest; None where it was not measured."""
    own = frame[(frame["series"] == series) & (frame["trained"] == trained)]
    at = {int(str(layer)): Samples.of(rows) for layer, rows in own.groupby("layer", sort=True)}
    at = {layer: samples for layer, samples in at.items() if samples}
    if not at:
        return None
    means = {layer: samples.estimate() for layer, samples in at.items()}
    best = max(means, key=lambda layer: means[layer].value)
    alike = tuple(layer for layer in at if layer != best and not (at[best] - at[layer]).estimate().sign)
    return Best(series=series, layer=best, estimate=means[best], alike=alike, top=max(at))


def most_layered(frame: pd.DataFrame, tasks: Sequence[str], most: int = MOST_TASKS) -> list[str]:
    """Of many tasks those whose scores differ most between layers, in reading order."""
    if len(tasks) <= most:
        return list(tasks)
    trained = frame[frame["trained"]]
    means = trained.groupby([trained["task"].astype(str), "series", "layer"])["value"].mean()
    spread = means.groupby(level=[0, 1]).agg(np.ptp).groupby(level=0).max().sort_values(ascending=False)
    kept = set(spread.index[:most])
    return [task for task in tasks if task in kept]


def left_out_note(tasks: Iterable[str], shown: Iterable[str]) -> str:
    """What a caption says of tasks without a panel."""
    others = [task_label(task) for task in tasks if task not in set(shown)]
    if not others:
        return ""
    more = f"{len(others)} further task{'s' if len(others) > 1 else ''}"
    return f" Panels are of the tasks that differ most between layers; {more} ({listed(others)}): in the data."


def against(difference: Estimate, what: str) -> str:
    """`0.05 (0.04 to 0.06) above layer 0`, or that both are not told apart."""
    if difference.has_interval and not difference.sign:
        return f"not told apart from {what} ({signed(difference)})"
    return f"{size_text(difference)} {'above' if difference.value >= 0 else 'below'} {what}"


def signed(estimate: Estimate) -> str:
    """`−0.02, −0.09 to 0.05`, for use inside brackets."""
    return estimate_text(estimate).replace(" (", ", ").removesuffix(")")


def layers_text(layers: Sequence[int], joined: str = "and") -> str:
    """`2`, `2 and 4`, `2 to 5`: integers in order."""
    if len(layers) > 2 and list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]} to {layers[-1]}"
    return listed([str(layer) for layer in layers]).replace(" and ", f" {joined} ")


def alike_text(best: Best) -> str:
    """What is said, in brackets, of layers that are not told apart from the best; "" where there is none."""
    if not best.alike:
        return ""
    layers = sorted(best.alike)
    return f" ({layers_text(layers)} {'is' if len(layers) == 1 else 'are'} not told apart)"


def ratio(upper: Samples, lower: Samples) -> Estimate:
    """How many times larger one positive quantity is than another, seed by seed: the exponential of a difference."""
    gap = (_logarithms(upper) - _logarithms(lower)).estimate()
    value, low, high = (float(np.exp(end)) for end in (gap.value, gap.low, gap.high))
    return Estimate(value=value, low=low, high=high, seeds=gap.seeds, count=gap.count)


def times(estimate: Estimate, what: str) -> str:
    """`2.1 (1.9 to 2.3) times that of` something."""
    return f"{estimate_text(estimate)} times that of {what}"


def _logarithms(samples: Samples) -> Samples:
    return Samples(
        values={key: float(np.log(value)) for key, value in samples.values.items()},
        replicates={key: np.log(own) for key, own in samples.replicates.items()},
        intervals={},
        count=samples.count,
        units=samples.units,
    )


def span(values: pd.Series) -> float:
    """The highest less the lowest."""
    return float(values.max() - values.min())


def share_chart(table: pd.DataFrame, models: ShownModels, y_title: str, baseline: str) -> LayerChart:
    """Shares over layers, from 0 to 1, a line for each trained model."""
    how = {"y_title": y_title, "baseline_name": baseline, "bounds": SHARE}
    return LayerChart(table=table, series=models.present(table[table["group"] == "trained"]), **how)
