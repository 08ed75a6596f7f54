"""Quality by heads left: every pruning method, with random choices and the unpruned model as controls."""

from functools import partial
from typing import Any

import pandas as pd

from infoflow.heads import removable
from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._figure import Panel, PanelGroup
from infoflow.report._in_words import by_answer
from infoflow.report._numbers import number
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import BASELINE, amount, finished, lit, tips
from infoflow.report.forms._lines import LineKind, area, control_lines, folded, level, lines, looks_of
from infoflow.report.forms._names import names_above

from ..measures import PRUNING
from ._rows import (
    CHEAP,
    METHOD,
    METRICS,
    RANDOM,
    RANDOM_NAME,
    RECOVERED,
    RECOVERED_RANDOM,
    SCRATCH,
    UNPRUNED_NAME,
    WAYS,
    PrunableHeads,
    heads_left,
    metrics_of,
    pools_of,
    quality_curves,
    several,
    signature,
    span_of,
    swept,
    widest_of,
)

_HEIGHT = 240


def _draw_quality(frame: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """The curves of each model and prunable set of heads, one metric at a time."""
    trained = [SCRATCH, RECOVERED, RECOVERED_RANDOM]  # they have their own figures
    frame = swept(frame)
    frame = frame.loc[~frame["way"].isin(trained) & frame["metric"].isin(METRICS)]
    if frame.empty:
        return None
    curves = quality_curves(frame)
    groups = [_group(curves.loc[curves["metric"] == metric], metric, models) for metric in metrics_of(curves)]
    draws = int(frame.loc[frame["way"] == RANDOM, "draw"].nunique())
    grey = f" Grey, dashed: the mean of {draws} random choices per seed, with its band." if draws else ""
    return Drawn(
        data=curves,
        panels=groups[0].panels,
        answer=_sentences(curves, models),
        words=_words(curves, models),
        caption=f"{several(frame)}; {int(frame['count'].median()):,} sentences behind each point.{grey} Dotted: the "
        f"model before any head went.{signature(frame)}",
        payload={"metrics": groups},
    )


QUALITY = DeclaredFigure(
    name="pruning/quality",
    id="pruning-quality",
    question="How many heads does a model need?",
    how_to_read=(
        "Across: the heads that are left, all of them at the left end. Up: the quality of what is left. Flat, then "
        "steep means that most heads were not needed; the further right the bend, the fewer are.",
        "Learned gates and gates for exactly k train the model on while its heads go, with the decoder frozen "
        "where only encoder heads may go; all other ways train nothing. So gates may win by training as well as by "
        "their choice: the next figures tell which heads they chose.",
        "Below all others stand random choices, the control. It would be surprising if a ranking by importance, "
        "confidence or relevance did no better than they.",
    ),
    method=METHOD,
    tables=(PRUNING.name,),
    findings=("heads:V1",),
    template="metrics.html.jinja",
    draw=_draw_quality,
)


def _ways(own: pd.DataFrame) -> list[LineKind]:
    return [way for way in WAYS if bool((own["way"] == way.key).any())]


def _group(curves: pd.DataFrame, metric: str, models: ShownModels) -> PanelGroup:
    name, unit = METRICS[metric]
    panels = [
        Panel(spec=_chart(pool.of(curves), pool, metric, span_of(pool, curves)), title=pool.title)
        for pool in pools_of(curves, models)
    ]
    note = f"{name}{unit}: {'more' if metric == 'bleu' else 'less'} is better. Each panel has its own scale."
    return PanelGroup(id=metric, label=name, note=note, panels=panels)


def _sentences(curves: pd.DataFrame, models: ShownModels) -> list[str]:
    """One sentence per pool, in its first metric."""
    told = []
    for pool in pools_of(curves, models):
        own = pool.of(curves)
        metric = metrics_of(own)[0]
        told.append(_sentence(own.loc[own["metric"] == metric], pool, metric))
    return told


def _words(curves: pd.DataFrame, models: ShownModels) -> str:
    """How many heads each model's widest pool can lose at almost no cost, by its first method and at random."""
    found = {}
    for pool in widest_of(curves, models):
        own = pool.of(curves)
        metric = metrics_of(own)[0]
        own = own.loc[own["metric"] == metric]
        if ways := _ways(own):
            chance = own.loc[own["way"] == RANDOM]
            chance = chance.groupby("left", as_index=False)[["value", "unpruned", "size"]].mean()
            random = f", in random order {_share_gone(chance, metric)}" if len(chance) else ""
            gone = _share_gone(own.loc[own["way"] == ways[0].key], metric)
            worse = "BLEU is {:g} worse" if metric == "bleu" else "the loss is {:g} nats worse"
            found[pool.series.label] = (
                f"{gone} of {pool.heads} can go before {worse.format(CHEAP[metric])} ({ways[0].label}{random})"
            )
    return by_answer(found)


def _share_gone(line: pd.DataFrame, metric: str) -> str:
    """Where the line, interpolated between sweep steps and the unpruned model, first exceeds the cheap cost."""
    line = line.loc[line["left"] < line["size"]].sort_values("left", ascending=False)
    sign = -1 if metric == "bleu" else 1
    costs = sign * (line["value"] - line["unpruned"]) / CHEAP[metric]
    (share,) = removable((1 - line["left"] / line["size"]).to_numpy(dtype=float), costs.to_numpy(dtype=float)[None])
    return f"{share:.0%}"


def _sentence(own: pd.DataFrame, pool: PrunableHeads, metric: str) -> str:
    """The fewest heads whose quality counts as cheap, compared with the same number of random heads."""
    size, full, name = int(own["size"].iloc[0]), float(own["unpruned"].iloc[0]), METRICS[metric][0]
    if not (ways := _ways(own)):
        return f"{pool.subject}: only random choices were made."
    way = ways[0]
    point = _cheapest(own.loc[own["way"] == way.key], metric)
    limit = f"{CHEAP[metric]:g} {'BLEU' if metric == 'bleu' else 'nats'}"
    if point is None:
        return (
            f"{pool.subject}: no point of the sweep ({way.label}) stays within {limit} of the model's {number(full)}."
        )
    chance = own.loc[own["way"] == RANDOM].groupby("left")["value"].mean()
    random = f"; as many random ones give {_value(_at(chance, point['left']), metric)}" if len(chance) else ""
    return (
        f"{pool.subject}: with {number(point['left'], 0)} of {size} left ({way.label}) {name} is "
        f"{_value(point['value'], metric)}, the last point within {limit} of the unpruned model's "
        f"{_value(full, metric)}{random}."
    )


def _cheapest(line: pd.DataFrame, metric: str) -> pd.Series | None:
    """The sweep step with the fewest heads up to which all steps are cheap."""
    line = line.sort_values("left", ascending=False)
    sign = -1 if metric == "bleu" else 1
    dear = (sign * (line["value"] - line["unpruned"]) > CHEAP[metric]).cummax()
    kept = line.loc[~dear]
    return kept.iloc[-1] if len(kept) else None


def _at(chance: pd.Series, left: float) -> float:
    """The random curve, interpolated between its sweep steps."""
    places = chance.index.union([left])
    return float(chance.reindex(places).interpolate("index", limit_direction="both")[left])


def _value(value: float, metric: str) -> str:
    return number(value, 1 if metric == "bleu" else 2)


def _chart(own: pd.DataFrame, pool: PrunableHeads, metric: str, span: list[float]) -> dict[str, Any]:
    name, unit = METRICS[metric]
    own = _from_the_start(own.assign(**own[["left", "value", "low", "high", "unpruned"]].round(_places(metric))))
    at = {
        "x": heads_left(int(own["size"].iloc[0])),
        "y": amount("y", "value", f"{name}{unit}", span),
    }
    known = _ways(own)
    drawn = own.loc[own["way"].isin([way.key for way in known]), ["way", "left", "value", "low", "high", "seeds"]]
    chance = own.loc[own["way"] == RANDOM, ["left", "value", "low", "high"]]
    look, light = looks_of(known, "way", pool.series.color), partial(lit, of=pool.series)
    learned = drawn.loc[drawn["way"] == (known[0].key if known else "")]
    by_way: Any = partial(folded, by="way")
    tooltip = tips("way:N|chosen by", "left:Q|heads left", f"value:Q|{name}|.3f")
    names = [UNPRUNED_NAME] + [RANDOM_NAME] * bool(len(chance))
    names += [(way.mark, way.label, pool.series.color) for way in known]
    how = {"light": light, "band": 0, "width": 1.8, "size": 26, "touch": 0}
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


def _places(metric: str) -> int:
    return 2 if metric == "bleu" else 3
