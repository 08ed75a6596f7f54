"""All heads at a glance: each model's layer × head grid, one statistic at a time, on one scale."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import HEAD_EXAMPLES

from .._embedding import in_steps
from .._figure import Method, Panel, ReportFigure
from .._in_words import Candidate, Samples, estimate_text, extreme, listed, number, sentence
from .._model_selection import ModelSelection
from ..forms._chart import finished
from ..forms._rows import cells, signed_squares, squares
from ._roles import Place, chance_note, examples_by_grid, roles_by_place, trained_roles
from ._statistics import GROUPS, KINDS, Statistic, head_name, head_statistics, kind_label

_HEAD_STATISTICS = Method(
    id="head-statistics",
    title="Head statistics",
    text="""
    Confidence: mean over queries of the strongest attention weight. Entropy: mean of −Σ <i>a</i> ln <i>a</i>, in nats.
    Special tokens count neither as keys nor as queries; remaining weights are not rescaled. Baseline: the value of a
    head that spreads its attention evenly over all keys it may see, special tokens included. Keys that tie for the
    strongest weight share the query. After Voita et al. (2019) and Clark et al. (2019). Relations: the share of edges
    for which the attending word's strongest key is the word at the other end (subwords merged), compared with the
    relation's best fixed offset. Rarest token: by frequency in the training corpus. Patterns: measured on repeated
    random tokens (Olsson et al. 2022). In the example sentences, value-weighted is ‖<i>A</i><sub>ij</sub>
    <i>f</i>(<i>x</i><sub>j</sub>)‖ as a share of its row (Kobayashi et al. 2020).
    """,
)


def head_map_figure(
    frames: dict[str, pd.DataFrame], models: ModelSelection, examples: pd.DataFrame | None = None
) -> ReportFigure | None:
    """The map of all available head tables; `examples` holds sentences to show the first seed's heads on."""
    rows, statistics = head_statistics(frames)
    if not statistics:
        return None
    every_role = trained_roles(frames)
    roles, limits = roles_by_place(every_role), {one.id: _limits(rows, one.id) for one in statistics}
    grids, first = _grids(rows, statistics, limits, roles, models)
    live = {
        "groups": [group for group in GROUPS if any(one.group == group for one in statistics)],
        "statistics": [_statistic_payload(rows, statistic, limits[statistic.id], models) for statistic in statistics],
        "grids": grids,
        "roles": bool(roles),
        "seeds": sorted({grid["seed"] for grid in grids}),
        "untrained": any(not grid["trained"] for grid in grids),
    }
    shown = {} if examples is None else examples_by_grid(examples)
    return ReportFigure(
        id="head-map",
        question="What does each head attend to, and how sharply?",
        answer=[map_sentence(rows, statistics[0], models)],
        words=_sharpest(rows, statistics[0], models),
        panels=heat_panels(rows, statistics[0], models),
        caption=_caption(rows[rows["statistic"] == statistics[0].id]),
        how_to_read=_how_to_read(statistics, chance_note(every_role) if roles else "", bool(shown)),
        method=_HEAD_STATISTICS,
        data=rows.drop(columns=[column for column in ("replicates", "model") if column in rows]),
        tables=(*(name for name in frames), *((HEAD_EXAMPLES.name,) if shown else ())),
        findings=("heads:V8",),
        is_chosen=True,
        template="heads.html.jinja",
        payload={
            "live": {**live, "examples": {grid: tokens for grid, (tokens, _) in shown.items()}},
            "blocks": {grid: block for grid, (_, block) in shown.items()},
            "first": first,
        },
    )


def _how_to_read(statistics: list[Statistic], chance: str, with_sentences: bool) -> list[str]:
    lines = [
        "Each cell is a head: layers from bottom (0) to top, heads from left to right. The stronger the colour, the "
        "higher the value; every grid has the same scale. Blocks count from 0, so layer 0 reads the embeddings.",
        "Choose a statistic above the grids. Click a head, or move with the arrow keys and press Enter, for its "
        "numbers with intervals, compared with the control and all other heads"
        + (", and its attention on sentences." if with_sentences else "."),
        "Heads of different models with the same number do the same job only by chance, unless the models "
        "started from the same initialisation.",
    ]
    if any(one.margin for one in statistics):
        lines.append(
            "For the best relation and the rarest token the colour shows how far a head is above its own control; the "
            "panel has both numbers. The best of many relations is picked for each head, so a small lead does not make "
            "a role."
        )
    if chance:
        lines.append(
            "A head's roles are those whose usual threshold it exceeds: 90% of queries at one offset, ten points above "
            "a relation's best offset, half of the queries on the rarest token, 60% of the attention on the first "
            "token, on [SEP] or on punctuation, 40% on earlier copies or what followed them. A head may have several. "
            + chance
        )
    if with_sentences:
        lines.append(
            "All heads of a model are shown on the same few sentences, chosen from 96 short ones (drawn by hash) so "
            "that most heads are at their most confident on one of them. Each head lists them by its own confidence; "
            "they are illustrations and prove nothing."
        )
    return lines


def heat_panels(rows: pd.DataFrame, statistic: Statistic, models: ModelSelection) -> list[Panel]:
    """The grids of the first seed as charts, for files and downloads."""
    first = rows[(rows["statistic"] == statistic.id) & rows["trained"]]
    first = first[first["seed"] == first["seed"].min()]
    groups = [(series, stack, kind) for series in models.series for stack, kind in _kinds_of(first, series.key)]
    full = f"full colour: {'±' if statistic.signed else ''}{number(statistic.top, _places(statistic))}"
    panels = []
    for series, stack, kind in groups:
        own = first[(first["series"] == series.key) & (first["stack"] == stack) & (first["kind"] == kind)]
        title = f"{series.label}, {kind_label(stack, kind)}"
        panels.append(Panel(spec=_heat_chart(own, statistic), title=title if panels else f"{title} ({full})"))
    return panels


def _grids(
    rows: pd.DataFrame,
    statistics: list[Statistic],
    limits: Mapping[str, tuple[float, float]],
    roles: dict[Place, dict[tuple[int, int], list[str]]],
    models: ModelSelection,
) -> tuple[list[dict[str, Any]], dict[str, list[float | None]]]:
    """The heads of each model, control and kind of attention; numbers are quantised between the statistic's limits.

    Also return the numbers that are visible without scripts: the first statistic of the first seed, by grid.
    """
    grids, first = [], {}
    for series, own in models.each(rows):
        for stack, kind in _kinds_of(own, series.key):
            of_kind: Any = own[(own["stack"] == stack) & (own["kind"] == kind)].groupby(["seed", "trained"])
            for (seed, trained), grid in of_kind:
                layers, heads = int(grid["layer"].max()) + 1, int(grid["head"].max()) + 1
                parts = _by_statistic(grid, layers, heads)
                held = roles.get((series.key, seed, stack, kind), {}) if trained else {}
                place = {"id": f"{series.key}/{stack}/{kind}", "label": series.label, "series": series.key}
                place |= {"slot": series.slot, "kind": kind_label(stack, kind), "seed": int(seed)}
                numbers = {
                    one.id: _cells(parts[one.id], one, limits[one.id], trained) for one in statistics if one.id in parts
                }
                if trained and seed == rows["seed"].min():
                    part = parts.get(statistics[0].id)
                    values = [math.nan] * (layers * heads) if part is None else part["value"]
                    first[place["id"]] = [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
                grids.append(
                    {
                        **place,
                        "trained": bool(trained),
                        "roles": {layer * heads + head: names for (layer, head), names in held.items()},
                        "layers": layers,
                        "heads": heads,
                        "statistics": numbers,
                    }
                )
    return grids, first


def _by_statistic(grid: pd.DataFrame, layers: int, heads: int) -> dict[str, pd.DataFrame]:
    """Rows of each statistic, one per layer and head; empty rows for heads without a value."""
    index = pd.MultiIndex.from_product([range(layers), range(heads)])
    own: Any = grid.drop_duplicates(["statistic", "layer", "head"]).groupby("statistic")
    return {str(name): part.set_index(["layer", "head"]).reindex(index) for name, part in own}


def _cells(part: pd.DataFrame, statistic: Statistic, limits: tuple[float, float], trained: bool) -> dict[str, Any]:
    """value, low, high, baseline and notes by layer and head; for an untrained model, only what the page shows."""
    columns = ("value", "low", "high", "baseline") if trained else ("value", *(("baseline",) * statistic.margin))
    cells: dict[str, Any] = {column: in_steps(part[column].to_numpy(float), *limits) for column in columns}
    notes = part["note"].fillna("").tolist() if "note" in part else []
    return cells | ({"notes": notes} if trained and any(notes) else {})


def _limits(rows: pd.DataFrame, statistic: str) -> tuple[float, float]:
    own = rows.loc[rows["statistic"] == statistic, ["value", "low", "high", "baseline"]].to_numpy(float)
    known = own[np.isfinite(own)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)


def _kinds_of(rows: pd.DataFrame, series: str) -> list[tuple[str, str]]:
    pairs = set(rows.loc[rows["series"] == series, ["stack", "kind"]].itertuples(index=False, name=None))
    order = list(KINDS)
    return sorted(pairs, key=lambda pair: (order.index(pair) if pair in order else 99, pair))


def _statistic_payload(
    rows: pd.DataFrame, statistic: Statistic, limits: tuple[float, float], models: ModelSelection
) -> dict[str, Any]:
    own = rows[rows["statistic"] == statistic.id]
    keys = ["series", "seed", "stack", "kind", "layer", "head"]
    both = own[own["trained"]].merge(own[~own["trained"]], on=keys, suffixes=("", "_untrained"))
    before, after = (_painted(both, statistic, suffix) for suffix in ("_untrained", ""))
    change = (after - before).abs().max() if len(both) else 0.0
    facts = ("id", "label", "unit", "explanation", "control", "group", "signed", "margin")
    return {
        **{name: getattr(statistic, name) for name in facts},
        "limits": limits,
        "top": float(f"{statistic.top:.3g}"),
        "change": float(f"{change:.3g}") or 1.0,
        "sentence": map_sentence(rows, statistic, models),
    }


def _painted(rows: pd.DataFrame, statistic: Statistic, suffix: str = "") -> pd.Series:
    """The values that the colours show."""
    return rows[f"value{suffix}"] - rows[f"baseline{suffix}"] if statistic.margin else rows[f"value{suffix}"]


def map_sentence(rows: pd.DataFrame, statistic: Statistic, models: ModelSelection) -> str:
    """The mean over each model's self-attention heads in the main stack, its strong heads, and the controls."""
    own = models.main(rows[(rows["statistic"] == statistic.id) & (rows["kind"] == "self")])
    own = own if len(own) else rows[rows["statistic"] == statistic.id]
    parts = []
    for series, heads in models.each(own[own["trained"]]):
        amounts = _painted(heads, statistic)
        text = f"{number(amounts.mean(), _places(statistic))} in {series.label}"
        if statistic.strong is not None:
            strong = int((amounts >= statistic.strong).sum())
            reach = f"lead by {statistic.strong:g}" if statistic.margin else f"reach {statistic.strong:g}"
            text += f" ({strong} of {len(heads)} heads {reach})"
        parts.append(text)
    unit = f", in {statistic.unit}" if statistic.unit else ""
    start = f"Mean {statistic.label} over heads{unit}"
    if "offset" in statistic.id:
        start = f"On average a head's strongest key is the {statistic.label} in this share of cases"
    elif statistic.margin:
        start = f"{statistic.label.capitalize()}, mean lead over {statistic.control}"
    untrained = own[~own["trained"]]
    mean = number(_painted(untrained, statistic).mean(), _places(statistic)) if len(untrained) else ""
    controls = [f"untrained models {mean}"] if mean else []
    if not statistic.margin and statistic.control != "the mean head":
        baseline = number(own.loc[own["trained"], "baseline"].mean(), _places(statistic))
        controls.append(f"{statistic.control} would give {baseline}")
    return f"{start}: {listed(parts)}{'; ' if controls else ''}{', '.join(controls)}."


def _sharpest(rows: pd.DataFrame, statistic: Statistic, models: ModelSelection) -> str:
    """The head with the largest value over all models, and the largest value of untrained heads."""
    own = rows[rows["statistic"] == statistic.id]
    trained, untrained = own[own["trained"]], own[~own["trained"]]
    of_seed = models.by == "objective"
    heads = [
        _head(row, head_name(row, models[row["series"]].label, of_seed), statistic)
        for row in trained.to_dict("records")
    ]
    top = extreme(heads)
    if top is None:
        return ""
    by = f", by {statistic.label} over {statistic.control}" if statistic.margin else f", by {statistic.label}"
    said = f"the strongest head{by}, is {top.candidate.name}: {estimate_text(top.candidate.estimate, statistic.unit)}"
    if top.alike:
        said += f" ({len(top.alike):,} other{'s' * (len(top.alike) > 1)} not clearly weaker)"
    grey = extreme([_head(row, "", statistic) for row in untrained.to_dict("records")])
    most = number(grey.candidate.estimate.value, _places(statistic)) if grey else ""
    compared = f"; an untrained one reaches at most {most}" if grey else ""
    return sentence(f"{said}{compared}")


def _head(row: dict[Hashable, Any], name: str, statistic: Statistic) -> Candidate:
    return Candidate.held_out(name, Samples.of_row(row, row["baseline"] if statistic.margin else 0.0))


def _places(statistic: Statistic) -> int:
    """Decimal places; more if all values are small."""
    return 2 if statistic.top >= 0.5 else min(2 - math.floor(math.log10(statistic.top)), 5)


def _caption(rows: pd.DataFrame) -> str:
    count = int(rows["count"].median())
    seeds = int(rows["seed"].nunique())
    several = f" One of {seeds} seeds is shown at a time." if seeds > 1 else ""
    return f"Intervals in the panel: 95%, bootstrap over sentences; about {count:,} queries per head.{several}"


def _heat_chart(own: pd.DataFrame, statistic: Statistic) -> dict[str, Any]:
    layers = sorted((int(layer) for layer in own["layer"].unique()), reverse=True)
    rows = own[["layer", "head"]].assign(value=_painted(own, statistic))
    x, y = cells("x", "head", "head"), cells("y", "layer", "layer", layers)
    if statistic.signed:
        marks = signed_squares(rows, x, y, "value", (-statistic.top, statistic.top), text=None)
    else:
        marks = squares(rows, x, y, "value", ends=(0.0, statistic.top), text=None)
    return finished(marks, max(20 * len(layers), 60))
