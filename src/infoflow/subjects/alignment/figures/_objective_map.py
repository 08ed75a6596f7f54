"""The objective map: which objectives are near each other, and whether these are of one family."""

from dataclasses import replace

import numpy as np
import pandas as pd

from infoflow.report._figure import Method, Panel, ReportFigure, Section
from infoflow.report._in_words import decimals, listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables

from ..claims._objective_map import OBJECTIVE_DISTANCES, OBJECTIVE_FAMILIES, OBJECTIVE_MAP
from ._plane import MEAN, PlaneView, map_chart

ALIKE = Section(
    id="objectives",
    title="How alike are the objectives?",
    lead="Each objective asks something different of the same blocks: to predict what comes next, to fill in what is "
    "hidden, to translate, to tell true from false, to restore damaged text. The map shows which of them ended up near "
    "each other, and whether neighbours are objectives of the same kind.",
    names={"objective-map": "objectives/map"},
)
_METHOD = Method(
    id="objective-map",
    title="The map of objectives",
    text="""
    Distances between the models of two objectives from one seed, mean over seeds. Spaces: 1 − PWCCA (Morcos et al.
    2018) and 1 − CKA without its bias (Song et al. 2012), between the same layers of both models, mean over layers
    above the embeddings.
    Heads: the energy distance √(2E|<i>X</i> − <i>Y</i>| − E|<i>X</i> − <i>X</i>′| − E|<i>Y</i> − <i>Y</i>′|) (Székely
    and Rizzo 2013) of two models' heads as points whose coordinates are their scores for the roles; no head
    corresponds to any other. Learning: 1 − rank correlation of the shares of layers × components in the loss change.
    Pictures are metric multidimensional scaling by SMACOF (de Leeuw 1977) with Kruskal's stress
    σ = √(Σ(<i>d</i> − δ)² / Σ<i>d</i>²); pictures of the seeds are turned onto that of the mean (Schönemann 1966).
    The share of nearest neighbours within a family has Wilson's interval for this number of objectives, which treats
    them as independent; chance is the expected share if families are assigned at random.
    """,
)
_LABELS = {"spaces": "spaces", "spaces by CKA": "spaces (CKA)", "heads": "heads", "learning": "learning"}
_NO_BAR = (
    "There is one seed: these pictures have no error bar, and how far another seed would move the points is not known."
)


def alike_section(tables: ModelTables) -> Section | None:
    """The section, or None if fewer than five objectives were compared pairwise."""
    found = [tables.get(schema.name) for schema in (OBJECTIVE_MAP, OBJECTIVE_DISTANCES, OBJECTIVE_FAMILIES)]
    models = tables.models
    if found[0] is None or models.by != "objective":
        return None
    places, distances, shares = (
        pd.DataFrame() if frame is None else frame[frame["architecture"] == models.architecture] for frame in found
    )
    places = places.assign(series=models.line_keys(places))
    places = places[places["series"].isin([series.key for series in models.series])]
    if not any(places["trained"]):
        return None
    figure = _map_figure(places, distances, shares, models)
    return replace(ALIKE, figures=[figure], keys=models.present(places))


def _map_figure(
    places: pd.DataFrame, distances: pd.DataFrame, shares: pd.DataFrame, models: ModelSelection
) -> ReportFigure:
    rows = _with_names(places, models)
    aspects = list(dict.fromkeys(rows.loc[rows["trained"], "aspect"]))
    panels, first_view = [], None
    for aspect in aspects:
        own = rows[(rows["aspect"] == aspect) & rows["trained"]]
        view = PlaneView.around(own)
        first_view = first_view or view
        panels.append(Panel(spec=map_chart(own, models.present(own), view), title=_LABELS.get(aspect, aspect)))
    control = rows[(rows["aspect"] == aspects[0]) & ~rows["trained"]]
    if len(control) and first_view is not None:
        centred = replace(first_view, x=float(control["x"].mean()), y=float(control["y"].mean()))
        spec = map_chart(control, models.present(control), centred, grey=True)
        title = f"{_LABELS.get(aspects[0], aspects[0])} before training, same scale"
        panels.insert(1, Panel(spec=spec, title=title))
    return ReportFigure(
        id="objective-map",
        question="Which objectives end up near each other?",
        answer=[*_map_sentences(rows, distances, aspects, models), *_family_sentences(shares)],
        panels=panels,
        caption=_map_caption(rows, models),
        how_to_read=[
            "Each mark is an objective; marks close together are objectives with similar models. Only distances have "
            "a meaning, not directions; the short line at the bottom left is their scale. Objectives of one family "
            "share a hue and differ in shade and mark. A thin grey line leads from each objective to its true nearest "
            "neighbour.",
            "A plane cannot show all distances exactly. The stress in the caption measures the error of each picture: "
            "0 is exact, .05 good, .2 poor; in brackets, the stress for shuffled distances. Where a grey line does not "
            "lead to the nearest mark, the line is right.",
            "The grey picture is the control: the same models before training, with equal initial weights. Distances "
            "in the other picture of spaces are due to training.",
        ],
        method=_METHOD,
        data=_map_data(rows),
        tables=(OBJECTIVE_MAP.name, OBJECTIVE_DISTANCES.name, *([OBJECTIVE_FAMILIES.name] if len(shares) else [])),
        findings=("dynamics:V1",),
    )


def _with_names(places: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Add display names and the position of each objective's nearest neighbour."""
    labels = {series.key: series.label for series in models.series}
    at = {
        (row["aspect"], row["trained"], row["seed"], row["series"]): (row["x"], row["y"])
        for row in places.to_dict("records")
    }
    ends = [
        at.get((row["aspect"], row["trained"], row["seed"], row["nearest"]), (row["x"], row["y"]))
        for row in places.to_dict("records")
    ]
    return places.assign(
        label=places["series"].map(labels),
        nearest_label=places["nearest"].map(lambda key: labels.get(key, key)),
        distance=places["nearest_distance"].map(number),
        to_x=[x for x, _ in ends],
        to_y=[y for _, y in ends],
    )


def _stress(rows: pd.DataFrame) -> str:
    """Stress of each picture, with shuffled distances as the control."""
    mean = rows[rows["trained"] & (rows["seed"] == MEAN)].drop_duplicates("aspect")
    stated = [
        f"{_LABELS.get(row['aspect'], row['aspect'])} {number(row['stress'], 2)} ({number(row['shuffled_stress'], 2)})"
        for row in mean.to_dict("records")
    ]
    return f" Stress of the pictures (in brackets, for shuffled distances): {listed(stated)}."


def _map_sentences(
    rows: pd.DataFrame, distances: pd.DataFrame, aspects: list[str], models: ModelSelection
) -> list[str]:
    labels = {series.key: series.label for series in models.series}
    first = distances[(distances["aspect"] == aspects[0]) & distances["trained"]]
    pairs = first[first["first"] != first["second"]].sort_values("value")
    nearest, farthest = (
        f"{' and '.join(labels.get(name, name) for name in row[['first', 'second']])}, {_with_interval(row)}"
        for row in (pairs.iloc[0], pairs.iloc[-1])
    )
    found = [f"By their spaces, the nearest are {nearest}, and the farthest are {farthest}."]
    before = distances[(distances["aspect"] == aspects[0]) & ~distances["trained"]]
    before = before.loc[before["first"] != before["second"], "value"]
    if len(before):
        found[0] += f" Before training no two are farther apart than {number(before.max(), 2)}."
    for aspect in [each for each in aspects if each == aspects[0] or not each.startswith("spaces")]:
        own = rows[(rows["aspect"] == aspect) & rows["trained"] & (rows["seed"] == MEAN)]
        strays = own[own["family"] != own["nearest_family"]]
        stated = [f"{row['label']} (to {row['nearest_label']})" for row in strays.to_dict("records")]
        name = _LABELS.get(aspect, aspect)
        if stated:
            found.append(f"By their {name}, these are nearest to an objective of another family: {listed(stated)}.")
        else:
            found.append(f"By their {name}, each objective is nearest to one of its own family.")
    return found


def _with_interval(row: pd.Series | dict) -> str:
    places = decimals(row["low"], row["high"], row["value"])
    if not np.isfinite(row["low"]):
        return number(row["value"])
    return f"{number(row['value'], places)} ({number(row['low'], places)} to {number(row['high'], places)})"


def _map_caption(rows: pd.DataFrame, models: ModelSelection) -> str:
    seeds = int(rows["seeds"].max())
    bars = (
        f"Large marks are means over {seeds} seeds, small ones each seed, turned onto the mean."
        if seeds > 1
        else _NO_BAR
    )
    shown = set(rows.loc[rows["trained"], "series"])
    left = [series.label for series in models.series if series.key not in shown]
    missing = (
        f" Not on the map, since they were not compared with all others (or generate only parts of texts, which are "
        f"not measured): {listed(left)}."
        if left
        else ""
    )
    return bars + _stress(rows) + missing + _elsewhere(models)


def _elsewhere(models: ModelSelection) -> str:
    if not models.further:
        return ""
    return (
        f" All of {models.architecture}; the table objective_map also has {listed(list(models.further))}, where enough \
objectives were trained on it."
    )


def _map_data(rows: pd.DataFrame) -> pd.DataFrame:
    names = ["aspect", "trained", "label", "family", "seed", "x", "y", "stress", "shuffled_stress"]
    return rows[[*names, "nearest_label", "nearest_distance", "equally_near"]].reset_index(drop=True)


def _family_sentences(shares: pd.DataFrame) -> list[str]:
    """How many objectives are nearest to one of their own family, compared with chance and with untrained models."""
    found = []
    for aspect, own in shares.groupby("aspect", sort=False) if len(shares) else ():
        trained, before = own[own["trained"]], own.loc[~own["trained"], "value"]
        for row in trained.head(1).to_dict("records"):
            untrained = f", and {number(before.iloc[0], 2)} before training" if len(before) else ""
            clear = "more than" if row["p"] < 0.05 else "not clearly more than"
            found.append(
                f"By their {_LABELS.get(str(aspect), aspect)}, a share of {_with_interval(row)} of {row['count']} "
                f"objectives is nearest to a relative, {clear} chance ({number(row['baseline'], 2)}; "
                f"p = {number(row['p'])}){untrained}."
            )
    return found
