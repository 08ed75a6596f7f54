"""Maps of a layer's space: the same occurrences in every layer, a slider between layers, and an overview of all."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from infoflow.representations import TOKEN_MAP

from .._figure import Method, Panel, ReportFigure
from .._in_words import number
from .._model_selection import ModelSelection
from .._theme import FONT, Series
from ..forms._chart import by_key, finished
from ..forms._marks import channel, draw

_CELL, _GAP = 100, 6  # units per layer square in the row, and between squares
_LABEL = 17


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The legend's entry for points of one kind: their label, colour and shape."""

    label: str
    color: str
    shape: str  # circle, square, triangle, diamond, cross


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Space:
    """One model's points in every layer; all lists share the order of the points."""

    key: str
    label: str
    slot: int
    layers: list[int]
    places: np.ndarray  # (layer, point, 2) in 0..1, y downwards
    group: list[int]
    strength: list[float]  # opacity
    hollow: list[bool]
    titles: list[str]

    @property
    def live(self) -> dict[str, Any]:
        """Data for the page's script; positions in thousandths."""
        return {
            "key": self.key,
            "places": [(1000 * layer).round().astype(int).ravel().tolist() for layer in self.places],
            "group": self.group,
            "strength": [round(value, 2) for value in self.strength],
            "hollow": [index for index, hollow in enumerate(self.hollow) if hollow],
            "titles": self.titles,
        }


def strip_svg(space: Space, groups: list[Group]) -> Markup:
    """An SVG of all layers in a row.

    Equal dots form one path of zero-length lines, whose round caps are the dots.
    """
    width = len(space.layers) * (_CELL + _GAP) - _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_CELL + _LABEL}" font-family="{FONT}" '
        f'font-size="15" fill="none" stroke-linecap="round" aria-hidden="true">'
    ]
    for index, layer in enumerate(space.layers):
        left = index * (_CELL + _GAP)
        parts.append(f'<g transform="translate({left},0)" data-layer="{layer}">')
        parts.append(f'<rect width="{_CELL}" height="{_CELL}" rx="4" fill="var(--tint, #f6f7f9)"/>')
        parts += _dots(space, groups, index)
        parts.append(f'<text x="{_CELL / 2}" y="{_CELL + _LABEL - 3}" text-anchor="middle" fill="var(--soft)">')
        parts.append(f"{layer}</text></g>")
    return Markup("".join(parts) + "</svg>")


def _dots(space: Space, groups: list[Group], layer: int) -> list[str]:
    parts = []
    places = (_CELL * space.places[layer]).round().astype(int)
    keys = list(zip(space.group, space.strength, space.hollow, strict=True))
    for key in sorted(set(keys)):
        group, strength, hollow = key
        line = "".join(f"M{x} {y}h0" for (x, y), own in zip(places.tolist(), keys, strict=True) if own == key)
        opacity = "" if strength == 1 else f' opacity="{strength:.2f}"'
        parts.append(f'<path stroke="{groups[group].color}" stroke-width="3.6"{opacity} d="{line}"/>')
        if hollow:
            parts.append(f'<path stroke="var(--paper)" stroke-width="1.6" d="{line}"/>')
    return parts


def legend_mark(group: Group) -> Markup:
    """The group's mark for a legend."""
    return Markup(f'<path d="{MARKS[group.shape]}" fill="{escape(group.color)}"/>')


MARKS = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z",
    "square": "M-4.4-4.4H4.4V4.4H-4.4Z",
    "triangle": "M0-5.4L5.2 4H-5.2Z",
    "diamond": "M0-6L6 0L0 6L-6 0Z",
    "cross": "M-2-5.5H2V-2H5.5V2H2V5.5H-2V2H-5.5V-2H-2Z",
    "triangle-up": "M0-5.4L5.2 4H-5.2Z",
    "triangle-down": "M0 5.4L5.2-4H-5.2Z",
    "triangle-right": "M5.4 0L-4 5.2V-5.2Z",
    "triangle-left": "M-5.4 0L4 5.2V-5.2Z",
}
"""Outlines around the origin, 10 units wide."""

_VEGA_SHAPES = {"triangle": "triangle-up"}


def map_chart(space: Space, groups: list[Group]) -> dict[str, Any]:
    """All layers of one model side by side, in rows, as a Vega-Lite specification for files."""
    columns = min(len(space.layers), 4)
    rows = -(-len(space.layers) // columns)
    frame = pd.concat([_cell_rows(space, index, columns, rows) for index in range(len(space.layers))])
    labels = pd.DataFrame(
        [{"x": i % columns, "y": rows - i // columns, "text": f"layer {layer}"} for i, layer in enumerate(space.layers)]
    )
    names = [str(index) for index in range(len(groups))]
    shapes, colors = ([_VEGA_SHAPES.get(one.shape, one.shape) for one in groups], [one.color for one in groups])
    x = channel("x", "x:Q", axis=None, scale={"domain": [0, columns], "nice": False})
    y = channel("y", "y:Q", axis=None, scale={"domain": [0, rows], "nice": False})
    look = {"x": x, "y": y, "shape": by_key("shape", "group", names, shapes)}
    fill, stroke = (by_key(name, "group", names, colors) for name in ("fill", "stroke"))
    full, hollow = frame[~frame["hollow"]], frame[frame["hollow"]]
    opacity = channel("opacity", "strength:Q", scale=None)
    layers = [
        draw("point", full, look, filled=True, size=9, opacity=opacity, fill=fill),
        draw("point", hollow, look, filled=False, size=14, strokeWidth=1, stroke=stroke),
        draw("text", labels, align="left", baseline="top", dx=4, color="var(--soft)", x=x, y=y, text="text:N"),
    ]
    return finished(layers, 95 * rows)


def _cell_rows(space: Space, index: int, columns: int, rows: int) -> pd.DataFrame:
    places = space.places[index].round(3)
    return pd.DataFrame(
        {
            "x": index % columns + places[:, 0],
            "y": rows - index // columns - places[:, 1],
            "group": [str(group) for group in space.group],
            "strength": np.round(space.strength, 2),
            "hollow": space.hollow,
        }
    )


_TOKEN_MAP = Method(
    id="token-map",
    title="Maps",
    text="""
    t-SNE with Euclidean distances of at most one occurrence per sentence. Layer 0 starts from two principal components,
    all other layers from the map below; each map is then shifted, scaled and turned or mirrored (Procrustes) onto the
    one below. For the masked LM the first map's sentences are corrupted as in training. After van der Maaten and Hinton
    (2008) and Voita, Sennrich and Titov (2019).
    """,
)

_SHOWN = 200  # points per map, since a study's page has many maps
_NEAR = 10  # neighbours in the map that a sentence counts
_TOKEN_SLOTS = (3, 5, 4, 6)  # colours that no objective uses
_MOST_TAGS = 5
_NO_TAG = "no tag"
_HOW_MAPS = (
    "Each dot is one occurrence, placed by t-SNE so that dots with similar vectors are close together. Drag the slider "
    "to follow the same occurrences through the layers; the row below shows every layer at a glance, and a click there "
    "moves the slider.",
    "Directions, sizes of clusters and distances between clusters mean nothing in such a map. Each layer's map starts "
    "from the one below and is rotated to match it. Tiny differences, such as rounding with another batch size, give "
    "another picture of the same space. One model of each kind is shown (its first seed); the untrained one is the "
    "control.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    id: str
    question: str
    how: str
    said: str  # words for the sentence about its data


_KINDS = {
    "token": _Kind(
        id="map-token",
        question="Which tokens does a layer mix, and which does it keep apart?",
        how="Colour and shape show the token. A ring is an occurrence that was hidden from the masked LM, as in its "
        "training; its colour is the token that it has to restore.",
        said="the same token",
    ),
    "position": _Kind(
        id="map-position",
        question="Does the map of one token follow its position in the sentence?",
        how="The stronger a dot's colour, the later the token stands in its sentence.",
        said="",
    ),
    "tag": _Kind(
        id="map-tag",
        question="Does the map of one token follow its role in the sentence?",
        how="Colour and shape show the tag of the word; the stronger the colour, the later it stands in its sentence.",
        said="the same tag",
    ),
}


def token_map_figures(frame: pd.DataFrame, models: ModelSelection) -> list[ReportFigure]:
    """One figure per kind of map that was computed."""
    present = set(frame["map"])
    return [_figure(_KINDS[kind], frame[frame["map"] == kind], models) for kind in _KINDS if kind in present]


def _figure(kind: _Kind, frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    drawn = _models(frame, models)
    groups = _groups(kind, pd.concat([rows for _, rows in drawn]))
    spaces = [_space(series, _thinned(rows), kind, groups) for series, rows in drawn]
    points = int(np.median([rows["point"].nunique() for _, rows in drawn]))
    shared = "; ".join(f"{series.label}, {_shared(kind, rows)}" for series, rows in drawn)
    names = ", ".join(f"“{token}”" for token in dict.fromkeys(frame["token"]))
    return ReportFigure(
        id=kind.id,
        question=kind.question,
        answer=[f"The {_NEAR} dots nearest to a dot, in the map of the lowest and of the highest layer: {shared}."],
        panels=[Panel(title=space.label, spec=map_chart(space, groups)) for space in spaces],
        caption=f"{points:,} occurrences of {names}, {min(points, _SHOWN)} of them drawn; perplexity "
        f"{number(float(frame['perplexity'].iloc[0]), 0)}. This is one sample, without intervals: the figures above "
        "have intervals.",
        how_to_read=[kind.how, *_HOW_MAPS],
        method=_TOKEN_MAP,
        data=_wide(drawn),
        tables=(TOKEN_MAP.name,),
        template="maps.html.jinja",
        payload={
            "groups": groups,
            "faded": kind.id != "map-token",
            "strips": [strip_svg(space, groups) for space in spaces],
            "spaces": spaces,
            "live": {
                "layers": spaces[0].layers,
                "groups": [{"color": g.color, "shape": g.shape} for g in groups],
                "spaces": [space.live for space in spaces],
            },
        },
    )


def _models(frame: pd.DataFrame, models: ModelSelection) -> list[tuple[Series, pd.DataFrame]]:
    """The first seed of each line, and one untrained control: models of one seed start from the same weights."""
    chosen = []
    for series, own in models.each(frame[frame["trained"]]):
        chosen.append((series, own[own["seed"] == own["seed"].min()]))
    untrained = frame[~frame["trained"]]
    if len(untrained):
        first = untrained[untrained["model"] == untrained["model"].iloc[0]]
        chosen.append((Series(key="", label="untrained control", slot=0), first))
    return chosen


def _groups(kind: _Kind, rows: pd.DataFrame) -> list[Group]:
    if kind.id == "map-position":
        return [Group(label="", color="var(--heat-2)", shape="circle")]
    column = "token" if kind.id == "map-token" else "tag"
    counts = rows[rows["layer"] == rows["layer"].min()][column].replace("", _NO_TAG).value_counts()
    labels = sorted(counts.index) if column == "token" else [str(label) for label in counts.index]
    shown = [label for label in labels if label != _NO_TAG][: len(_TOKEN_SLOTS) if column == "token" else _MOST_TAGS]
    colors = [f"var(--series-{slot})" for slot in (*_TOKEN_SLOTS, 7)]
    shapes = ("circle", "square", "triangle", "diamond", "cross")
    groups = [
        Group(label=label, color=colors[i % len(colors)], shape=shapes[i % len(shapes)])
        for i, label in enumerate(shown)
    ]
    others = len(labels) > len(shown)
    return [*groups, Group(label="others", color="var(--control)", shape="circle")] if others else groups


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """At most `_SHOWN` points, evenly taken from all."""
    points = np.sort(rows["point"].unique())
    kept = points[np.unique(np.linspace(0, len(points) - 1, min(len(points), _SHOWN)).astype(int))]
    return rows[rows["point"].isin(kept)]


def _space(series: Series, rows: pd.DataFrame, kind: _Kind, groups: list[Group]) -> Space:
    rows = rows.sort_values(["layer", "point"])
    layers = sorted(int(layer) for layer in rows["layer"].unique())
    first = rows[rows["layer"] == layers[0]]
    number_of = {group.label: index for index, group in enumerate(groups)}
    labels = first["token" if kind.id == "map-token" else "tag"].replace("", _NO_TAG)
    group = [number_of.get(str(label), len(groups) - 1) if kind.id != "map-position" else 0 for label in labels]
    late = np.asarray(first["position"].rank(pct=True)) if kind.id != "map-token" else np.ones(len(first))
    places = np.stack([rows.loc[rows["layer"] == layer, ["x", "y"]].to_numpy(dtype=float) for layer in layers])
    reach = np.quantile(np.abs(places), 0.999) * 1.06
    scaled = np.clip((places / reach + 1) / 2, 0.02, 0.98)
    scaled[..., 1] = 1 - scaled[..., 1]  # y points up
    return Space(
        key=series.key,
        label=series.label,
        slot=series.slot,
        layers=layers,
        places=scaled,
        group=group,
        strength=[float(value) for value in 0.25 + 0.75 * np.ceil(4 * late) / 4],
        hollow=[bool(masked) for masked in first["masked"]],
        titles=[
            f"{row.token}, position {row.position}{f', {row.tag}' if row.tag else ''}{', hidden' if row.masked else ''}"
            for row in first.itertuples()
        ],
    )


def _shared(kind: _Kind, rows: pd.DataFrame) -> str:
    """A sentence on what neighbouring points share in one model's first and last maps, compared with random pairs."""
    ends = [rows[rows["layer"] == layer].sort_values("point") for layer in (rows["layer"].min(), rows["layer"].max())]
    if kind.id == "map-position":
        (low, any_two), (high, _) = (_compared(end, lambda a, b: np.abs(a - b), "position") for end in ends)
        return f"{number(low, 1)} and {number(high, 1)} tokens away (any two dots: {number(any_two, 1)})"
    column = "token" if kind.id == "map-token" else "tag"
    (low, any_two), (high, _) = (_compared(end, lambda a, b: a == b, column) for end in ends)
    text = f"{low:.0%} and {high:.0%} are {kind.said} (any two dots: {any_two:.0%})"
    hidden = ends[0]["masked"].to_numpy(dtype=bool)
    if hidden.any() and not hidden.all():
        restored = _compared(ends[1], lambda a, b: a == b, column, hidden)[0]
        text += f", {restored:.0%} around hidden ones in the highest layer"
    return text


def _compared(end: pd.DataFrame, compare: Any, column: str, queries: np.ndarray | None = None) -> tuple[float, float]:
    """Mean comparison of a point with its nearest points, and of random pairs."""
    places, values = end[["x", "y"]].to_numpy(dtype=float), end[column].to_numpy()
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(distances, np.inf)
    near = distances.argsort(axis=1, kind="stable")[:, :_NEAR]
    each = compare(values[:, None], values[near]).mean(axis=1)
    pairs = compare(values[:, None], values)[~np.eye(len(values), dtype=bool)]
    return float(each[queries].mean() if queries is not None else each.mean()), float(pairs.mean())


def _wide(models: list[tuple[Series, pd.DataFrame]]) -> pd.DataFrame:
    """One row per drawn point, with its position in every layer."""
    parts = []
    for series, rows in models:
        rows = _thinned(rows)
        places = rows.pivot(index="point", columns="layer", values=["x", "y"]).round(2)
        places.columns = [f"{axis}_{layer}" for axis, layer in places.columns]
        known = rows.drop_duplicates("point").set_index("point")[["token", "sentence", "position", "tag", "masked"]]
        parts.append(known.join(places).reset_index().assign(series=series.key or series.label))
    return pd.concat(parts, ignore_index=True)
