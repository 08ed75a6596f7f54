"""Pruning results: quality by heads left, which heads go first, which functions remain, and the role of training."""

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from infoflow.heads import removable
from infoflow.report._figure import Panel, PanelGroup, ReportFigure, Section
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report.forms._chart import BASELINE, amount, finished, lit, tips
from infoflow.report.forms._lines import area, control_lines, folded, level, lines, looks_of, names_above

from ..measures import PRUNED_HEADS, PRUNED_ROLES, PRUNING
from ..measures import PRUNING as PRUNING_TABLE
from ._kinds import gates_figure, kinds_figure
from ._retrained import recovered_figure, scratch_figure
from ._roles import roles_figure
from ._rows import (
    CHEAP,
    LEARNED,
    METHOD,
    METRICS,
    RANDOM,
    RANDOM_NAME,
    RECOVERED,
    RECOVERED_RANDOM,
    SCRATCH,
    SUBSET,
    UNPRUNED_NAME,
    WAYS,
    PrunableHeads,
    heads_left,
    metrics_of,
    of_whole_models,
    pools_of,
    quality_curves,
    scoped,
    several,
    signature,
    span_of,
    with_counts,
)

# Quality by heads left: every pruning method, with random choices and the unpruned model as controls.


_HEIGHT = 240


def quality_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """The curves of each model and prunable set of heads, one metric at a time."""
    trained = [SCRATCH, RECOVERED, RECOVERED_RANDOM]  # they have their own figures
    frame = frame.loc[~frame["way"].isin(trained) & frame["metric"].isin(METRICS)]
    if frame.empty:
        return None
    curves = quality_curves(frame)
    groups = [_group(curves.loc[curves["metric"] == metric], metric, models) for metric in metrics_of(curves)]
    return ReportFigure(
        id="pruning-quality",
        question="How many heads does a model need?",
        words=_words(curves, models),
        panels=groups[0].panels,
        caption=f"{several(frame)}; {int(frame['count'].median()):,} sentences behind each point.{_control(frame)} "
        f"Dotted: the model with all heads.{signature(frame)}",
        how_to_read=[
            "Across: the heads that are left, all of them at the left end. Up: the quality of what is left. Flat, then "
            "steep means that most heads were not needed; the further right the bend, the fewer are needed.",
            "Learned gates and gates for exactly k train the model while heads are removed, with the decoder frozen "
            "where only encoder heads may be removed; other methods train nothing, unless infoflow prune is run with "
            "--recover. So gates may win because they train, not only because they choose well; the next figures "
            "separate the two.",
            "Random choices are the control. It would be surprising if a ranking by importance, confidence or "
            "relevance were no better.",
        ],
        method=METHOD,
        data=curves,
        tables=(PRUNING.name,),
        findings=("heads:V1",),
        template="metrics.html.jinja",
        payload={"metrics": groups},
    )


def _control(frame: pd.DataFrame) -> str:
    """What the random choices are, and in which panels."""
    random = frame.loc[frame["way"] == RANDOM]
    if random.empty:
        return ""
    metrics = metrics_of(random)
    panels = "" if len(metrics) == len(metrics_of(frame)) else f" ({', '.join(METRICS[one][0] for one in metrics)})"
    draws = int(random["draw"].nunique())
    choices = "a random choice" if draws == 1 else f"the mean of {draws} random choices"
    return f" Grey, dashed{panels}: {choices} per seed, with its band."


def _group(curves: pd.DataFrame, metric: str, models: ModelSelection) -> PanelGroup:
    name, unit = METRICS[metric]
    panels = [
        Panel(spec=_chart(pool.of(curves), pool, metric, span_of(pool, curves)), title=pool.title)
        for pool in pools_of(curves, models)
    ]
    note = f"{name}{unit}: {'more' if metric == 'bleu' else 'less'} is better. Each panel has its own scale."
    return PanelGroup(id=metric, label=name, note=note, scale=("", ""), panels=panels)


def _words(curves: pd.DataFrame, models: ModelSelection) -> str:
    """How many heads each set can lose at almost no cost, chosen by its first method and at random."""
    found = {}
    for pool in pools_of(curves, models):
        own = pool.of(curves)
        metric = metrics_of(own)[0]
        own = own.loc[own["metric"] == metric]
        way = next((one for one in WAYS if bool((own["way"] == one.key).any())), None)
        if way is not None:
            chance = own.loc[own["way"] == RANDOM]
            chance = chance.groupby("left", as_index=False)[["value", "unpruned", "size"]].mean()
            random = f"; in random order {_share_gone(chance, metric)}" if len(chance) else ""
            gone = _share_gone(own.loc[own["way"] == way.key], metric)
            worse = f"{METRICS[metric][0]} is {CHEAP[metric]:g}{'' if metric == 'bleu' else ' nats'} worse"
            found[pool] = f"{gone} of {pool.heads} can go before {worse} ({way.label}{random})"
    return " ".join(f"In {pool.series.label}, {said}." for pool, said in found.items())


def _share_gone(line: pd.DataFrame, metric: str) -> str:
    """The share of heads removed at which the line, interpolated between steps, first exceeds the cheap cost."""
    line = line.loc[line["left"] < line["size"]].sort_values("left", ascending=False)
    sign = -1 if metric == "bleu" else 1
    costs = sign * (line["value"] - line["unpruned"]) / CHEAP[metric]
    (share,) = removable((1 - line["left"] / line["size"]).to_numpy(dtype=float), costs.to_numpy(dtype=float)[None])
    return f"{share:.0%}"


def _chart(own: pd.DataFrame, pool: PrunableHeads, metric: str, span: list[float]) -> dict[str, Any]:
    name, unit = METRICS[metric]
    places = 2 if metric == "bleu" else 3
    own = _from_the_start(own.assign(**own[["left", "value", "low", "high", "unpruned"]].round(places)))
    at = {"x": heads_left(int(own["size"].iloc[0])), "y": amount("y", "value", f"{name}{unit}", span)}
    known = [way for way in WAYS if bool((own["way"] == way.key).any())]
    drawn = own.loc[own["way"].isin([way.key for way in known]), ["way", "left", "value", "low", "high", "seeds"]]
    chance = own.loc[own["way"] == RANDOM, ["left", "value", "low", "high"]]
    look, light = looks_of(known, "way", pool.series.color), partial(lit, of=pool.series)
    learned = drawn.loc[drawn["way"] == (known[0].key if known else "")]
    by_way: Any = partial(folded, by="way")
    tooltip = tips("way:N|chosen by", "left:Q|heads left", f"value:Q|{name}|.3f")
    how = {"light": light, "band": 0, "width": 1.8, "size": 26, "touch": 0}
    names = [UNPRUNED_NAME, *([RANDOM_NAME] if len(chance) else [])]
    names += [(way.mark, way.label, pool.series.color) for way in known]
    layers = [
        *control_lines(chance, at, band=0.15, by=""),
        level(float(own["unpruned"].mean()), BASELINE, y=at["y"]),
        area(learned, at, light(0.15), look, by_way),
        *lines(drawn[["way", "left", "value", "seeds"]], at, look, **how, tooltip=tooltip, on=by_way),
        names_above(names),
    ]
    return finished(layers, _HEIGHT)


def _from_the_start(own: pd.DataFrame) -> pd.DataFrame:
    """Start every line at the unpruned model, even if its first sweep step has fewer heads."""
    size = float(own["size"].iloc[0])
    late = own.loc[own.groupby("way")["left"].transform("max") < size].drop_duplicates("way")
    unpruned = late["unpruned"]
    starts = late.assign(left=size, value=unpruned, low=unpruned, high=unpruned)
    return pd.concat([starts, own]).sort_values(["way", "left"], ascending=False)


# Pruning results: how many heads a model needs, which go first, which functions stay, and the role of training.


SECTION = Section(
    id="pruning",
    title="Which heads can go?",
    lead="Each head gets a gate, and each open gate costs a little. The model decides which heads are worth their "
    "price; as the price rises, fewer stay.",
    names={
        "pruning-quality": "pruning/quality",
        "pruning-kinds": "pruning/kinds",
        "pruning-functions": "pruning/functions",
        "pruning-scratch": "pruning/from-scratch",
        "pruning-recovered": "pruning/trained-on",
        "pruning-gates": "pruning/gates",
    },
)


_TRAINED = (LEARNED, SUBSET, SCRATCH, "straight-through")
_RANKED = (
    "Heads are ranked, and the lowest are removed. A model loses more here than if it could adapt, unless "
    "--recover trained it further."
)


def pruning_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run pruned nothing."""
    models = tables.models
    curves, heads, roles = (_table(tables, name) for name in ("pruning", PRUNED_HEADS.name, PRUNED_ROLES.name))
    curves = curves if curves is None else with_counts(curves)
    figures = [
        None if curves is None else quality_figure(curves, models),
        None if heads is None else kinds_figure(heads, models),
        None if roles is None else roles_figure(roles, models),
        None if curves is None else scratch_figure(curves, models),
        None if curves is None else recovered_figure(curves, of_whole_models(tables[PRUNING_TABLE.name]), models),
        None if curves is None else gates_figure(curves, models),
    ]
    if all(figure is None for figure in figures):
        return None
    trained = curves is not None and bool(curves["way"].isin(_TRAINED).any())
    return replace(
        SECTION,
        lead=SECTION.lead if trained else _RANKED,
        figures=[figure for figure in figures if figure is not None],
        keys=models.present(*(frame for frame in (curves, heads, roles) if frame is not None)),
    )


def _table(tables: ModelTables, name: str) -> pd.DataFrame | None:
    """Rows of trained models; None if there are none."""
    frame = scoped(tables[name]) if name in tables else pd.DataFrame()
    return None if frame.empty else frame
