"""The figure of layers by measures without labels, with the layers that are best for probes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._in_words import listed
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import finished, tips
from infoflow.report.forms._rows import cells, frames, squares
from infoflow.results import PROBE_SCORES, Samples

from .claims import LAYER_CHOICE
from .measures import LAYER_SPECTRUM, QUANTITIES

_ROW = 26
_NUMBERS = 13  # squares side by side that have room for a number
_LABELS = {
    "prompt_entropy": "entropy of a text",
    "dataset_entropy": "entropy of all texts",
    "curvature": "curvature",
    "infonce": "InfoNCE",
    "lidar": "LiDAR",
    "dime": "DiME",
}
_METHOD = Method(
    id="spectra",
    title="Measures of layers without labels",
    text=r"""
    The entropy of a matrix of states is \(S_1 = -\sum_i \lambda_i \log \lambda_i\), where \(\lambda\) are the
    eigenvalues of its Gram matrix, divided by their sum. The states are those of a text's tokens (mean over texts) or
    the mean states of all texts, centred and scaled to length 1. Curvature is the mean angle between successive steps
    from token to token. InfoNCE, LiDAR and DiME ask whether two random corruptions of a text (15% of its tokens
    replaced) are closer to each other than to corruptions of other texts.
    """,
)


def _spectra(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    frame = tables.models.main(frame[frame["trained"]])
    chosen, probed = tables.get(LAYER_CHOICE.name), tables.get(PROBE_SCORES.name)
    panels, answer = [], []
    present = tables.models.present(frame)
    written = len(present) * frame["layer"].nunique() <= _NUMBERS
    for series in present:
        own = frame[frame["series"] == series.key]
        rows = pd.DataFrame([*_rows(own), *_probe_rows(series, probed)])
        panels.append(Panel(spec=_chart(rows, written), title=series.label))
        answer += _answers(series, rows, chosen)
    texts = int(frame["count"].median())
    caption = (
        f"{texts:,} texts. Colours: from the layer where the measure is lowest (pale) to the layer where it is highest "
        "(framed). Means over seeds."
    )
    return Drawn(data=frame.drop(columns="replicates"), panels=panels, answer=answer, caption=caption)


def _rows(own: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for measure in QUANTITIES:
        yield from _scaled(_LABELS[measure], own[own["measure"] == measure])


def _probe_rows(series: Series, probed: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    if probed is None:
        return
    wanted: dict[str, Any] = {"series": series.key, "trained": True, "labels": "task", "probe": "linear"}
    wanted |= {"words": "all", "metric": "accuracy", "share": probed["share"].max()}
    found = probed.loc[np.all([probed[name] == value for name, value in wanted.items()], axis=0)]
    for task, own in found.groupby("task", sort=False):
        yield from _scaled(f"probe: {task}", own)


def _scaled(label: str, own: pd.DataFrame) -> list[dict[str, Any]]:
    """One row per layer, with its value scaled between the lowest and the highest layer."""
    found = [(int(str(layer)), Samples.of(rows).estimate(), rows) for layer, rows in own.groupby("layer")]
    values: list[float] = [float(estimate.value) for _, estimate, _ in found]
    least, most = min(values, default=0.0), max(values, default=0.0)
    span = float(most - least)
    return [
        {
            "measure": label,
            "layer": layer,
            "place": (estimate.value - least) / span if span > 0 else 0.5,
            "text": f"{estimate.value:.3g}",
            "shown": f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})",
            "control": f"{rows['baseline'].mean():.3f}",
            "highest": estimate.value == most,
        }
        for layer, estimate, rows in found
    ]


def _chart(rows: pd.DataFrame, written: bool) -> dict[str, Any]:
    order = list(dict.fromkeys(rows["measure"]))
    x, y = cells("x", "layer", "layer"), cells("y", "measure", None, order, labelLimit=150)
    tooltip = tips("measure:N|measure", "layer:O|layer", "shown:N|value", "control:N|control")
    marks = squares(rows, x, y, "place", text="text:N" if written else None, tooltip=tooltip)
    return finished([*marks, *frames(rows[rows["highest"]], x, y)], _ROW * len(order))


def _answers(series: Series, rows: pd.DataFrame, chosen: pd.DataFrame | None) -> Iterator[str]:
    own = None if chosen is None else chosen.loc[(chosen["series"] == series.key) & chosen["trained"]]
    if own is None or not len(own):
        top = rows[rows["highest"]].groupby("measure", sort=False)["layer"].first()
        yield f"{series.label}: highest at layer {listed([f'{layer} ({name})' for name, layer in top.items()])}."
        return
    for task, of_task in own.groupby("task", sort=False):
        found = {
            str(name): Samples.of(rows, scale="correlation").estimate() for name, rows in of_task.groupby("measure")
        }
        name = max(found, key=lambda one: abs(found[one].value))
        best, seeds = found[name], of_task.drop_duplicates("seed")
        layers = sorted(set(seeds["best"].astype(int)))
        depth, label = seeds["baseline"].mean(), _LABELS.get(name, name.replace("_", " "))
        yield (
            f"{series.label}: the probe of {task} is best at {'layer' if len(layers) == 1 else 'layers'} "
            f"{listed([str(layer) for layer in layers])} ({seeds['at_best'].mean():.1%}; last layer "
            f"{seeds['at_last'].mean():.1%}). Of the measures without labels, {label} "
            f"orders the layers most like the probe: rank correlation {best.value:.2f} ({best.low:.2f} to "
            f"{best.high:.2f}); "
            f"the layer's number alone has {depth:.2f}."
        )


SPECTRA = DeclaredFigure(
    name="spectra/layers",
    id="layer-spectrum",
    question="Do measures without labels find the layer that probes best?",
    how_to_read=(
        "Each row is a measure, each square a layer. A measure that finds the best layer for probes is darkest, or "
        "palest, where the rows of probes are darkest. With few layers, many measures do so by chance, so compare "
        "their rank correlation with that of the layer's number.",
    ),
    method=_METHOD,
    tables=(LAYER_SPECTRUM.name,),
    draw=_spectra,
    findings=tuple(f"probing:S-{number}" for number in range(1, 7)),
)
_SECTION = Section(
    id="spectra",
    title="Which layer is best, without labels?",
    lead="Entropies of spectra, curvature, and how well a layer recognises a corrupted text.",
    names=names_of([SPECTRA]),
)


def spectra_section(tables: ModelTables) -> Section | None:
    """The section, or None if no model's spectra were measured."""
    frame = tables.get(LAYER_SPECTRUM.name)
    if frame is None or not bool(frame["trained"].any()):
        return None
    figure = SPECTRA.of(frame, tables)
    return None if figure is None else replace(_SECTION, figures=[figure], keys=tables.models.present(frame))


SECTIONS = ((112, _SECTION, spectra_section),)
