"""The objective map: a map, a tree, and whether neighbours belong to one family."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import Method, Panel, ReportFigure, Section
from infoflow.report._in_words import decimals, listed, number
from infoflow.report._model_tables import ModelTables
from infoflow.report._shown_models import ShownModels
from infoflow.report._theme import Series
from infoflow.report.forms._chart import tips
from infoflow.report.forms._lines import SHARE
from infoflow.report.forms._marks import channel
from infoflow.report.forms._rows import interval_dots

from ..claims._objective_map import OBJECTIVE_DISTANCES, OBJECTIVE_FAMILIES, OBJECTIVE_MAP
from ._plane import MEAN, PlaneView, agreement, joined, map_chart, tree_chart

ALIKE = Section(
    id="objectives",
    title="How alike are the objectives?",
    lead="Each objective asked something else of the same blocks: to predict what comes next, to fill in what is "
    "hidden, to translate, to tell true from false, to put damaged text right. Here is what became of them, all at "
    "once: which ended up near each other, and whether these are the ones that were asked the same kind of thing.",
    names={
        "objective-map": "objectives/map",
        "objective-tree": "objectives/tree",
        "objective-families": "objectives/families",
    },
)
_METHOD = Method(
    id="objective-map",
    title="The map of objectives",
    text="""
    Distances between the models of two objectives from one seed, mean over seeds. Spaces: 1 − PWCCA (Morcos et al.
    2018) and 1 − CKA without its bias (Song et al. 2012), between equal layers, mean over those above the embeddings.
    Heads: the energy distance √(2E|<i>X</i> − <i>Y</i>| − E|<i>X</i> − <i>X</i>′| − E|<i>Y</i> − <i>Y</i>′|) (Székely
    and Rizzo 2013) of two models' heads as points whose coordinates are their scores for the roles; no head
    corresponds to any other. Learning: 1 − rank correlation of the shares of layers × components in the loss change.
    Pictures are metric multidimensional scaling by SMACOF (de Leeuw 1977) with Kruskal's stress
    σ = √(Σ(<i>d</i> − δ)² / Σ<i>d</i>²); pictures of the seeds are turned onto that of the mean (Schönemann 1966).
    Trees join by average distance. The share of nearest neighbours within a family has Wilson's interval for so many
    objectives, which treats them as independent; chance is what dealing the families out at random gives.
    """,
)
_LABELS = {
    "spaces": "spaces",
    "spaces by CKA": "spaces (CKA)",
    "heads": "heads",
    "learning": "learning",
}
_NO_BAR = (
    "There is one seed: these pictures have no error bar, and how far another seed would move the points is not known."
)


def alike_section(tables: ModelTables) -> Section | None:
    """The section, or None if fewer than five objectives were compared pairwise."""
    found = [tables.get(name) for name in (OBJECTIVE_MAP.name, OBJECTIVE_DISTANCES.name, OBJECTIVE_FAMILIES.name)]
    models = tables.models
    if found[0] is None or found[1] is None or models.by != "objective":
        return None
    places, distances, shares = (_of(frame, models) for frame in found)
    places = places.assign(series=models.line_keys(places)) if len(places) else places
    known = {series.key for series in models.series}
    places = places[places["series"].isin(known)] if len(places) else places
    if not len(places[places["trained"]]):
        return None
    figures = [_map_figure(places, distances, models), _tree_figure(places, distances, models)]
    if len(shares):
        figures.append(_family_figure(shares, places, models))
    return replace(ALIKE, figures=figures, keys=models.present(places))


def _of(frame: pd.DataFrame | None, models: ShownModels) -> pd.DataFrame:
    return pd.DataFrame() if frame is None else frame[frame["architecture"] == models.architecture]


def _aspects(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame.loc[frame["trained"], "aspect"]))


# -- the map --------------------------------------------------------------------------------------------------------


def _map_figure(places: pd.DataFrame, distances: pd.DataFrame, models: ShownModels) -> ReportFigure:
    rows = _with_names(places, models)
    aspects = _aspects(rows)
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
        answer=_map_sentences(rows, distances, aspects, models),
        panels=panels,
        caption=_map_caption(rows, models),
        how_to_read=[
            "Each mark is an objective: near marks are objectives whose models are alike. Directions mean nothing, "
            "distances do: the short line at the bottom left says how long a distance is. Families share a colour's "
            "hue, members differ in shade and mark. A thin grey line leads from each to its true nearest neighbour.",
            "A plane cannot show all distances rightly. The stress in the caption says how wrong each picture is: 0 "
            "is exact, .05 good, .2 poor; beside it stands that of the same distances dealt out at random. Where a "
            "grey line does not lead to the nearest mark, believe the line.",
            "The grey picture is the control: the same models before training, which begin from the same weights. All "
            "that lies apart in the other picture of spaces, training has moved apart.",
        ],
        method=_METHOD,
        data=_map_data(rows),
        tables=(OBJECTIVE_MAP.name, OBJECTIVE_DISTANCES.name),
        findings=("dynamics:V1",),
    )


def _with_names(places: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
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
    told = [
        f"{_LABELS.get(row['aspect'], row['aspect'])} {number(row['stress'], 2)} ({number(row['shuffled_stress'], 2)})"
        for row in mean.to_dict("records")
    ]
    return f" Stress of the pictures, and of the same distances dealt out at random: {listed(told)}."


def _map_sentences(rows: pd.DataFrame, distances: pd.DataFrame, aspects: list[str], models: ShownModels) -> list[str]:
    labels = {series.key: series.label for series in models.series}
    first = distances[(distances["aspect"] == aspects[0]) & distances["trained"]]
    pairs = first[first["first"] != first["second"]].sort_values("value")
    ends = [(_pair(row, labels), _with_interval(row)) for row in (pairs.iloc[0], pairs.iloc[-1])]
    found = [f"By their spaces, nearest are {ends[0][0]}, {ends[0][1]}, and farthest {ends[1][0]}, {ends[1][1]}."]
    before = distances[(distances["aspect"] == aspects[0]) & ~distances["trained"]]
    before = before.loc[before["first"] != before["second"], "value"]
    if len(before):
        found[0] += f" Before training no two are farther apart than {number(before.max(), 2)}."
    for aspect in [each for each in aspects if each == aspects[0] or not each.startswith("spaces")]:
        own = rows[(rows["aspect"] == aspect) & rows["trained"] & (rows["seed"] == MEAN)]
        strays = own[own["family"] != own["nearest_family"]]
        told = [f"{row['label']} (to {row['nearest_label']})" for row in strays.to_dict("records")]
        name = _LABELS.get(aspect, aspect)
        if told:
            found.append(f"By their {name}, nearest to an objective of another family: {listed(told)}.")
        else:
            found.append(f"By their {name}, each is nearest to one of its own family.")
    return found


def _pair(row: pd.Series, labels: dict[str, str]) -> str:
    return f"{labels.get(row['first'], row['first'])} and {labels.get(row['second'], row['second'])}"


def _with_interval(row: pd.Series) -> str:
    places = decimals(row["low"], row["high"], row["value"])
    if not np.isfinite(row["low"]):
        return number(row["value"])
    return f"{number(row['value'], places)} ({number(row['low'], places)} to {number(row['high'], places)})"


def _map_caption(rows: pd.DataFrame, models: ShownModels) -> str:
    seeds = int(rows["seeds"].max())
    bars = (
        f"Large marks are means over {seeds} seeds, small ones each seed, turned onto the mean."
        if seeds > 1
        else _NO_BAR
    )
    shown = set(rows.loc[rows["trained"], "series"])
    left = [series.label for series in models.series if series.key not in shown]
    missing = (
        f" Not on the map, since they were not compared with all others (or wrote parts of texts, of which nothing is "
        f"measured): {listed(left)}."
        if left
        else ""
    )
    return bars + _stress(rows) + missing + _elsewhere(models)


def _elsewhere(models: ShownModels) -> str:
    if not models.further:
        return ""
    return (
        f" All of {models.architecture}; the table objective_map has {listed(list(models.further))} too, where enough \
objectives were trained on it."
    )


def _map_data(rows: pd.DataFrame) -> pd.DataFrame:
    names = ["aspect", "trained", "label", "family", "seed", "x", "y", "stress", "shuffled_stress"]
    return rows[[*names, "nearest_label", "nearest_distance", "equally_near"]].reset_index(drop=True)


# -- the tree -------------------------------------------------------------------------------------------------------


def _tree_figure(places: pd.DataFrame, distances: pd.DataFrame, models: ShownModels) -> ReportFigure:
    aspects, panels, told, floors = _aspects(places), [], [], []
    for aspect in aspects:
        own = distances[(distances["aspect"] == aspect) & distances["trained"]]
        keys = [series for series in models.series if series.key in set(own["first"]) | set(own["second"])]
        families = _families(places, keys)
        matrix, floor = _matrix(own, keys), _floor(own)
        floors += [floor] if floor is not None else []
        name = _LABELS.get(aspect, aspect)
        panels.append(Panel(spec=tree_chart(matrix, keys, families, "distance", floor), title=name))
        told.append(_tree_sentence(matrix, keys, name))
    return ReportFigure(
        id="objective-tree",
        question="In which groups do objectives join?",
        answer=told,
        panels=panels,
        caption="Average distances, means over seeds."
        + (
            " Dashed: how far two seeds of one objective are apart, mean over objectives; what joins left of it is no "
            "further apart than that."
            if floors
            else " One seed: what joins at nearly the same distance may join in another order under another seed."
        ),
        how_to_read=[
            "Read from the left: two branches join at the mean distance between the objectives of the one and those of "
            "the other. Branches that join far left are nearly one objective. A branch wears the colour of a family as "
            "long as all below it are of that family, and is grey above.",
            "A tree cannot show all distances either. The cophenetic correlation in the sentences above says how well "
            "it follows them: 1 is exact.",
        ],
        method=_METHOD,
        data=_named_distances(distances, models),
        tables=(OBJECTIVE_DISTANCES.name,),
    )


def _families(places: pd.DataFrame, keys: Iterable[Series]) -> list[str]:
    known = dict(zip(places["series"], places["family"].astype(str), strict=True))
    return [known.get(one.key, "") for one in keys]


def _matrix(distances: pd.DataFrame, keys: list[Series]) -> np.ndarray:
    at = {series.key: place for place, series in enumerate(keys)}
    matrix = np.zeros((len(keys), len(keys)))
    for row in distances.to_dict("records"):
        if row["first"] != row["second"]:
            i, j = at[row["first"]], at[row["second"]]
            matrix[i, j] = matrix[j, i] = row["value"]
    return matrix


def _floor(distances: pd.DataFrame) -> float | None:
    own = distances.loc[distances["first"] == distances["second"], "value"]
    return float(own.mean()) if len(own) else None


def _tree_sentence(matrix: np.ndarray, keys: list[Series], name: str) -> str:
    merges = joined(matrix)
    first = [keys[int(leaf)].label for leaf in merges[0, :2] if leaf < len(keys)]
    last = _last_to_join(merges, len(keys))
    alone = f", and {keys[last].label} joins last" if last is not None else ""
    return (
        f"By {name}, {listed(first)} join first{alone}; the tree follows the distances with a correlation of "
        f"{number(agreement(matrix, merges), 2)}."
    )


def _last_to_join(merges: np.ndarray, num: int) -> int | None:
    """The objective that stays alone until the last merge, if there is one."""
    ends = [int(end) for end in merges[-1, :2] if end < num]
    return ends[0] if len(ends) == 1 else None


def _named_distances(distances: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    labels = {series.key: series.label for series in models.series}
    names: dict[str, Any] = {
        side: distances[side].map(lambda key: labels.get(key, key)) for side in ("first", "second")
    }
    return distances.drop(columns="architecture").assign(**names).reset_index(drop=True)


# -- families -------------------------------------------------------------------------------------------------------


def _family_figure(shares: pd.DataFrame, places: pd.DataFrame, models: ShownModels) -> ReportFigure:
    names = [_LABELS.get(aspect, aspect) for aspect in shares["aspect"]]
    labels = [
        f"{name}{'' if trained else ', untrained'}" for name, trained in zip(names, shares["trained"], strict=True)
    ]
    rows = shares.assign(
        label=labels,
        group=["trained" if trained else "untrained" for trained in shares["trained"]],
        short=shares["value"].map(lambda value: number(value, 2)),
        shown=[
            f"{number(row['value'], 2)} ({number(row['low'], 2)} to {number(row['high'], 2)})"
            for row in shares.to_dict("records")
        ],
    )
    rows = pd.concat([own.sort_values("trained", ascending=False) for _, own in rows.groupby("aspect", sort=False)])
    look = channel(
        "color",
        "group:N",
        scale={"domain": ["trained", "untrained"], "range": ["var(--ink)", "var(--control)"]},
        legend=None,
    )
    chart = interval_dots(
        rows.drop(columns="seeds"),  # marks stand for objectives, not seeds: they are never hollow
        {"color": look},
        bounds=SHARE,
        title="share whose nearest neighbour is of their family",
        tooltip=tips("label:N", "shown:N|share", "baseline:Q|by chance|.2f", "p:Q|p|.4f"),
        domain=(0, 1),
        dim=False,
    )
    return ReportFigure(
        id="objective-families",
        question="Is an objective's nearest neighbour of its own family?",
        answer=_family_sentences(rows),
        panels=[Panel(spec=chart)],
        caption=f"Of the {int(rows['count'].max())} objectives that have a relative among those compared. Intervals: "
        "Wilson's, 95%, for so many objectives, widened to the seeds where there are several. "
        f"Families as the objectives declare them: {_families_told(places, models)}.",
        how_to_read=[
            "At each objective we look for the one that is nearest to it. The mark is the share of objectives for "
            "which that is one that asks the same kind of thing; the dashed grey line is the share when families are "
            "dealt out at random, p how often such a deal reaches the share or more.",
            "The grey marks are the same models before training: some already differ, since a causal mask is part of "
            "the model. What training adds is how far the dark mark lies to the right of the grey one.",
        ],
        method=_METHOD,
        data=rows.drop(columns=["group", "shown", "short", "architecture"]).reset_index(drop=True),
        tables=(OBJECTIVE_FAMILIES.name,),
    )


def _family_sentences(rows: pd.DataFrame) -> list[str]:
    found = []
    for aspect, own in rows.groupby("aspect", sort=False):
        trained = own[own["trained"]]
        if trained.empty:
            continue
        row = trained.iloc[0]
        before = own.loc[~own["trained"], "value"]
        untrained = f", and {number(before.iloc[0], 2)} before training" if len(before) else ""
        clear = "more than" if row["p"] < 0.05 else "not clearly more than"
        found.append(
            f"By their {_LABELS.get(str(aspect), aspect)}, {row['shown']} of {row['count']} objectives are nearest to "
            f"a relative, {clear} chance ({number(row['baseline'], 2)}; p = {number(row['p'])}){untrained}."
        )
    return found


def _families_told(places: pd.DataFrame, models: ShownModels) -> str:
    labels = {series.key: series.label for series in models.series}
    members: dict[str, list[str]] = {}
    for key, family in zip(places["series"], places["family"].astype(str), strict=True):
        if labels[key] not in members.setdefault(family or "none", []):
            members[family or "none"].append(labels[key])
    return "; ".join(f"{family}: {listed(names)}" for family, names in members.items())
