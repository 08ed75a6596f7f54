"""When each layer takes its final form: layers by updates, one measure at a time, from a run's tables."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pandas as pd

from infoflow.report._curves import over_seeds
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, PanelGroup
from infoflow.report._in_words import half_for_good, listed, number
from infoflow.report.forms._chart import color_of
from infoflow.report.forms._over_time import layer_cells, layer_profile
from infoflow.report.representations._distributions import GEOMETRY
from infoflow.report.representations._information import INFORMATION_METHOD
from infoflow.representations import GEOMETRY as GEOMETRY_TABLE
from infoflow.representations import IDENTITY_NEIGHBOURS, LAYER_DISTANCE
from infoflow.representations import MUTUAL_INFORMATION as MUTUAL_INFORMATION_TABLE

from ..measures import BLOCK, EFFECTIVE_RANK, WEIGHT_CHANGE
from ._course import CheckpointTables, checkpoints_note, main_stack, means

MEASURES_TEMPLATE = "measures_over_training.html.jinja"
_LAYER_METHOD = Method(
    id="layers-over-training",
    title="Measures over training",
    text="""
    Each number is what an analysis of the checkpoint alone gives with the same settings: the same sentences and
    occurrences, and clusters fitted anew with the same seed. The settings are lighter than in the other sections
    (fewer occurrences), so values of information and dimension cannot be compared with theirs.
    """,
)
_MOST = 14  # measures to choose from
_WEIGHTS = ("from_initial", "from_previous", "cosine_final", EFFECTIVE_RANK.name)
_GEOMETRY = {
    "average_similarity": "How alike are random occurrences (mean cosine)?",
    "self_similarity": "How alike are the occurrences of one word?",
    "intra_sentence_similarity": "How alike are the words of a sentence?",
    "explainable_variance": "How much of a word's variance lies along one direction?",
    "intrinsic_dimension": "What is the intrinsic dimension of the vectors (two nearest neighbours)?",
    "rogue_dimensions": "What share of the anisotropy do three dimensions carry?",
}


class _Kind(NamedTuple):
    id: str
    label: str
    unit: str
    asks: str
    rows: pd.DataFrame


_Kinds = Callable[[pd.DataFrame], Iterable[_Kind]]


class LayerMeasure(NamedTuple):
    """One of the measures that the figure can show."""

    kind: _Kind
    rows: pd.DataFrame  # series, layer, update, value, low, high, seeds
    method: Method
    table: str  # its name in an analysis

    @property
    def unit(self) -> str:
        return f" {self.kind.unit}" if self.kind.unit else ""


def layer_measures(course: CheckpointTables) -> list[LayerMeasure]:
    """The measures that vary, in reading order."""
    found = []
    for table, method, kinds in _SOURCES:
        frame = course[table]
        if frame.empty:
            continue
        if table == WEIGHT_CHANGE.name:
            frame = frame[frame["part"] == BLOCK]
        for kind in kinds(main_stack(frame)):
            rows = means(kind.rows, ["layer"])
            if len(set(rows["update"])) > 1:
                found.append(LayerMeasure(kind, rows, method, table))
    return found[:_MOST]


def _all(id: str, label: str, unit: str, asks: str) -> _Kinds:
    return lambda frame: [_Kind(id, label, unit, asks, frame)]


def _information(frame: pd.DataFrame) -> Iterator[_Kind]:
    hidden = frame["series"].isin(frame.loc[frame["regime"] == "training", "series"])
    corrupted, of_input = frame["regime"] == "training", frame["side"] == "input"
    for id, label, asks, rows in (
        (
            "information-input",
            "information: input",
            "How much of the input token can be read from its vector?",
            of_input & (frame["regime"] == "clean"),
        ),
        (
            "information-output",
            "information: output",
            "How much of the token to predict can be read from the vector?",
            (frame["side"] == "output") & (corrupted == hidden),
        ),
        (
            "information-hidden",
            "information: input, corrupted",
            "How much of the input token can be read from its vector, if inputs are corrupted as in training?",
            of_input & corrupted,
        ),
    ):
        yield _Kind(id, label, "nats", asks, frame.loc[rows])


def _geometry(frame: pd.DataFrame) -> Iterator[_Kind]:
    if "raw" in set(frame["space"]):
        frame = frame.loc[frame["space"] == "raw"]
    one = "mean" if "mean" in set(frame["words"]) else frame["words"].iloc[0]
    frame = frame.loc[frame["words"].isin([one, "token"])]
    names = [str(name) for name in dict.fromkeys(frame["measure"])]
    shown = [name for name in names if not name.startswith(("shuffled_", "unrelated_"))]
    order = list(_GEOMETRY)
    for measure in sorted(shown, key=lambda name: order.index(name) if name in order else 99):
        words = measure.replace("_", " ")
        unit = "dimensions" if "dimension" in words and "rogue" not in words else ""
        asks = _GEOMETRY.get(measure, f"{words[:1].upper()}{words[1:]} of the layer's states.")
        yield _Kind(measure.replace("_", "-"), words, unit, asks, frame.loc[frame["measure"] == measure])


def _lens(frame: pd.DataFrame) -> Iterator[_Kind]:
    for lens, metric in frame[["lens", "metric"]].drop_duplicates().itertuples(index=False):
        yield _Kind(
            f"lens-{lens}-{metric}".lower().replace(" ", "-").replace("_", "-"),
            f"{lens} lens: {metric}",
            "nats" if "loss" in str(metric) or "kl" in str(metric).lower() else "",
            f"What would the layer predict if it were the last one ({lens} lens, {metric})? An untrained lens "
            "reads low layers poorly early in training.",
            frame.loc[(frame["lens"] == lens) & (frame["metric"] == metric)],
        )


def _weights(frame: pd.DataFrame) -> Iterator[_Kind]:
    for measure in _WEIGHTS:
        rows, words = frame.loc[frame["measure"] == measure], measure.replace("_", " ")
        if len(rows):
            id = f"weights-{words}".replace(" ", "-")
            yield _Kind(id, f"weights: {words}", "", f"Weights of each block: {words}.", rows)


_SOURCES: tuple[tuple[str, Method, _Kinds], ...] = (
    (MUTUAL_INFORMATION_TABLE.name, INFORMATION_METHOD, _information),
    (
        LAYER_DISTANCE.name,
        _LAYER_METHOD,
        _all(
            "change",
            "change to the next layer",
            "1 − PWCCA",
            "How far is each layer from the next one? Layer 0 is the step from the embeddings to layer 1.",
        ),
    ),
    (GEOMETRY_TABLE.name, GEOMETRY, _geometry),
    (
        EFFECTIVE_RANK.name,
        _LAYER_METHOD,
        _all(
            "effective-rank",
            "effective rank",
            "dimensions",
            "Over how many directions do the states spread (entropy of the covariance's eigenvalues)?",
        ),
    ),
    (
        IDENTITY_NEIGHBOURS.name,
        _LAYER_METHOD,
        _all(
            "identity",
            "identity among neighbours",
            "",
            "What share of an occurrence's nearest vectors belong to the same token?",
        ),
    ),
    ("lens", _LAYER_METHOD, _lens),
    (WEIGHT_CHANGE.name, _LAYER_METHOD, _weights),
)


def _layers(course: CheckpointTables) -> Drawn | None:
    measures = layer_measures(course)
    if not measures:
        return None
    data = pd.concat([one.rows.assign(measure=one.kind.label, unit=one.kind.unit) for one in measures])
    groups = [_group(course, measure) for measure in measures]
    return Drawn(
        data=data,
        panels=groups[0].panels,
        answer=[_sentence(course, measures[0])],
        caption=f"{checkpoints_note(course, data)} {over_seeds(int(data['seeds'].max()))}. All "
        "panels and checkpoints of a measure share one scale.",
        payload={"metrics": groups},
        tables=[f"{name}_over_training" for name in dict.fromkeys(measure.table for measure in measures)],
        method=measures[0].method,
    )


def _group(course: CheckpointTables, measure: LayerMeasure) -> PanelGroup:
    rows, kind = measure.rows, measure.kind
    ends = (float(rows["value"].min()), float(rows["value"].max()))
    title = f"{kind.label}{f' ({kind.unit})' if kind.unit else ''}"
    profile = layer_profile(course.axis, rows, ends, title, color_of(course.series(rows)))
    cells = [
        Panel(spec=layer_cells(course.axis, own, ends, kind.unit), title=series.label)
        for series, own in course.each(rows)
    ]
    return PanelGroup(
        id=kind.id,
        label=kind.label,
        note=kind.asks,
        scale=(number(ends[0]), f"{number(ends[1])}{measure.unit}"),
        panels=[*cells, Panel(spec=profile, title="By layer, at the chosen checkpoint")],
    )


def _sentence(course: CheckpointTables, measure: LayerMeasure) -> str:
    """Each model's layer that changes most, and the update by which half of this change is done."""
    parts = []
    for series, own in course.each(measure.rows):
        grid = own.pivot_table(index="layer", columns="update", values="value").dropna(axis=1, how="all")
        layer = int((grid.iloc[:, -1] - grid.iloc[:, 0]).abs().idxmax())
        curve = grid.loc[layer].dropna()
        parts.append(f"in {series.label} layer {layer} (half of it by update {half_for_good(curve):,})")
    name = measure.kind.label
    return f"{name[:1].upper()}{name[1:]} changes most over training {listed(parts)}."


LAYERS = DeclaredFigure(
    name="over-training/layers",
    id="layers-over-training",
    question="When does each layer take its final form?",
    how_to_read=(
        "Layers upwards, training from left to right. Each column is a checkpoint and extends halfway to its "
        "neighbours. The stronger the colour, the higher the value. The first column, left of the break, is the "
        "model before its first update: whatever it shows needs no training.",
        "The frame marks the checkpoint chosen with the slider of this section; the last panel shows its values "
        "by layer, with dotted lines for the finished model.",
        "Early changes are easy to see on the axis of updates; on the axis of the learning rate, a change that "
        "the schedule alone causes is a steady fade.",
    ),
    method=_LAYER_METHOD,
    template=MEASURES_TEMPLATE,
    payload={"key": "layers"},
    draw=_layers,
)
