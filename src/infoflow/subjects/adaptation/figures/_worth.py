"""How many labelled examples pretraining is worth, and whether a lower loss on domain text means better scores."""

import math
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import listed, number, two_digits
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import BASELINE, amount, bounded, by_key, finished, opacity_if, tips
from infoflow.report.forms._lines import area, control_lines, level, lines, looks_of, names_above
from infoflow.report.forms._marks import draw, span
from infoflow.results import scale_of

from ..measures import DOMAIN_LOSS, TASK_SCORES
from ._rows import (
    FULL,
    MOST_TASKS,
    SCORED,
    SCORES,
    STRATEGIES,
    WORTH,
    averaged,
    bands,
    estimated,
    left_out,
    most_examples,
    names_of,
    of,
    plain,
    tasks_of,
    way_of,
)

_HEIGHT = 230
_FEW = 6  # up to this many lines, overlapping intervals stay distinct
_POINTED = " Hover over a line in the legend to see its intervals; all are in the data."


def worth_figure(scores: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per task tuned on several numbers of examples; None if there is none."""
    own = plain(scores)
    sizes = own[own["trained"]].groupby("task")["examples"].nunique()
    own = own[own["task"].isin(sizes[sizes > 1].index)]
    if own.empty:
        return None
    data = names_of(estimated(averaged(own, SCORED), SCORED, scale_of), models)
    tasks = tasks_of(data)
    return ReportFigure(
        id="tuned-worth",
        question="How many labelled examples is pretraining worth?",
        answer=[text for task in tasks[:MOST_TASKS] for text in _sentences(of(data, task=task), task, models)],
        panels=[Panel(spec=_chart(of(data, task=task), models), title=task) for task in tasks[:MOST_TASKS]],
        caption=f"{bands(data)}{_POINTED if _many(data) else ''} Tuned: {way_of(scores)}; the sets are nested."
        f"{left_out(tasks)}",
        how_to_read=[
            "Across: labelled examples, on a logarithmic scale. Up: the task's main metric on the same test "
            "examples. The dotted line is the best guess without a model.",
            "Dashed grey: the same model from random weights. The vertical gap is the gain from pretraining; the "
            "horizontal one is how many more labelled examples would have the same effect. It would be surprising if "
            "the gap stayed as wide with many examples as with few.",
        ],
        method=WORTH,
        data=data,
        tables=(TASK_SCORES.name,),
        findings=("adaptation:A-6",),
        payload={"apart": True},
    )


def _chart(rows: pd.DataFrame, models: ModelSelection) -> dict[str, Any]:
    series = models.present(rows)
    ends = [0.93 * int(rows["examples"].min()), 1.05 * int(rows["examples"].max())]
    guess = float(rows["baseline"].mean())
    many = _many(rows)
    scores = span(rows[["value"] if many else ["low", "value", "high"]], guess, margin=0.06, flat=0.05)
    sizes = sorted(int(size) for size in rows["examples"].unique())
    x = amount("x", "examples", "labelled examples", ends, type="log", zero=None, format="~s", values=sizes)
    at = {"x": x, "y": amount("y", "value", "score", scores)}
    trained, untrained = (rows[rows["group"] == group] for group in ("trained", "untrained"))
    tooltip = tips("name:N|pretrained for", "examples:Q|examples|,", "shown:N|score")
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "from scratch", "var(--control)")] if len(untrained) else []
    names.append(("⋯", "best guess", "var(--control)"))
    looks = looks_of(series)
    drawn = lines(trained, at, looks, band=0 if many else 0.18, size=34, touch=0, tooltip=tooltip)
    if many:
        pointed = opacity_if("datum.series === highlight", 0.18, 0)
        drawn.insert(0, area(bounded(trained, scores), at, pointed, looks))
    base = level(guess, BASELINE, y=at["y"])
    grey = control_lines(untrained.drop(columns="shown"), at, band=0 if many else 0.10)
    return finished([base, *grey, *drawn, names_above(names)], _HEIGHT)


def worth(trained: pd.DataFrame, untrained: pd.DataFrame) -> tuple[int, float, bool]:
    """What pretraining is worth at the smallest number n of examples.

    Returns:
        n, the factor by which a model from scratch needs more examples for the same score, and whether that factor is
        only a lower bound.
    """
    n = int(trained["examples"].min())
    reached = float(trained.loc[trained["examples"] == n, "value"].iloc[0])
    own = untrained.sort_values("examples")
    sizes, scores = np.log(own["examples"].to_numpy(float)), np.maximum.accumulate(own["value"].to_numpy(float))
    if reached > scores[-1]:
        return n, math.exp(sizes[-1]) / n, True
    after = int(np.argmax(scores >= reached))
    if after == 0:
        return n, math.exp(sizes[0]) / n, False
    share = (reached - scores[after - 1]) / (scores[after] - scores[after - 1])
    return n, math.exp(sizes[after - 1] + share * (sizes[after] - sizes[after - 1])) / n, False


def _sentences(rows: pd.DataFrame, task: str, models: ModelSelection) -> list[str]:
    stated: dict[tuple[str, str], list[str]] = {}
    for one in models.present(rows[rows["trained"]]):
        own = of(rows, series=one.key)
        trained, untrained = own[own["trained"]], own[~own["trained"]]
        if len(trained) < 2 or len(untrained) < 2:
            continue
        n, times, bound = worth(trained, untrained)
        stated.setdefault(_as_many(n, times, bound), []).append(one.label)
    if not stated:
        return []
    n = int(rows["examples"].min())
    parts = [f"{examples} in {listed(names)} ({factor})" for (examples, factor), names in stated.items()]
    return [f"On {task}, {n:,} labelled examples after pretraining match, from scratch, {listed(parts)}."]


def _as_many(n: int, times: float, bound: bool) -> tuple[str, str]:
    """Examples and factor as text; two digits, since they are interpolated and have no interval."""
    if bound:
        return f"more than {number(n * times, 0)}", f"over {two_digits(times)} times as many"
    factor = two_digits(times)
    return two_digits(n * times), "no more" if factor == "1" else f"{factor} times as many"


def _many(rows: pd.DataFrame) -> bool:
    return rows.loc[rows["trained"], "series"].nunique() > _FEW


_DOMAIN_HEIGHT = 230
_BY = ["task", "metric", "strategy"]
_MARKS = {"as-is": ("circle", "●"), "continued": ("square", "■"), "scratch": ("triangle-up", "▲")}


def domain_figure(losses: pd.DataFrame, scores: pd.DataFrame | None, models: ModelSelection) -> ReportFigure | None:
    """One panel per line with a score and a loss under two strategies; None without any."""
    if scores is None:
        return None
    own = most_examples(scores[(scores["control"] == "") & scores["trained"] & (scores["method"] == FULL)])
    ends = estimated(averaged(own, _BY), _BY, scale_of)
    stated = estimated(averaged(losses[losses["text"] == "domain"], ["strategy"]), ["strategy"])
    drawn = stated[["series", "strategy", "value", "low", "high", "shown"]]
    drawn = drawn.rename(columns={name: f"loss_{name}" for name in ("value", "low", "high", "shown")})
    data = ends.merge(drawn, on=["series", "strategy"])
    counts = data.groupby("series")["strategy"].nunique()
    data = data[data["series"].isin(counts[counts > 1].index)]
    if data.empty:
        return None
    series = models.present(data)
    return ReportFigure(
        id="tuned-domain",
        question="Does a lower loss on the domain's text mean better scores on tasks?",
        answer=[text for one in series for text in _domain_sentences(of(data, series=one.key), one.label)],
        panels=[Panel(spec=_domain_chart(of(data, series=one.key), one), title=one.label) for one in series],
        caption=f"{bands(data)} Losses are per word, so that vocabularies can be compared; whiskers: 95% intervals.",
        how_to_read=[
            "Across: pretraining loss on text of the domain, in nats per word; left is better. Up: score of the tuned "
            "model. A line joins the strategies of one task; the mark shows the strategy.",
            "If the loss predicted the scores, all lines would fall from left to right. Where one does not, the loss "
            "is no substitute for tuning and scoring.",
        ],
        method=SCORES,
        data=data,
        tables=(DOMAIN_LOSS.name, TASK_SCORES.name),
        findings=("adaptation:A-5",),
    )


def _domain_chart(rows: pd.DataFrame, series: Series) -> dict[str, Any]:
    rows = rows.assign(named=[STRATEGIES.get(name, name) for name in rows["strategy"].astype(str)])
    at = {
        "x": amount("x", "loss_value", "loss on domain text (nats per word)"),
        "y": amount("y", "value", "score"),
    }
    present = [name for name in _MARKS if name in set(rows["strategy"].astype(str))]
    shape = by_key("shape", "strategy", present, [_MARKS[name][0] for name in present])
    thin = {"detail": "task:N", "order": "loss_value:Q"}
    last = rows.loc[rows.groupby("task")["loss_value"].idxmax()]
    tooltip = tips("task:N", "named:N|pretraining", "loss_shown:N|loss", "shown:N|score")
    drawn = [
        draw("line", rows, at, thin, strokeWidth=1.2, color="var(--soft)", opacity=0.7),
        draw("rule", rows, color=series.color, opacity=0.6, x=at["x"], y="low:Q", y2="high:Q"),
        draw("point", rows, at, filled=True, size=60, opacity=1, color=series.color, shape=shape, tooltip=tooltip),
        draw("text", last, at, align="left", dx=8, fontSize=10.5, color="var(--soft)", limit=110, text="task:N"),
    ]
    names = [(_MARKS[name][1], STRATEGIES[name], series.color) for name in present]
    return finished([*drawn, names_above(names)], _DOMAIN_HEIGHT)


def _domain_sentences(rows: pd.DataFrame, name: str) -> list[str]:
    means = rows.groupby("strategy")[["value", "loss_value"]].mean()
    lowest, best = str(means["loss_value"].idxmin()), str(means["value"].idxmax())
    ordered = [str(task) for task, own in rows.groupby("task", sort=False) if _falls(own)]
    stated = (
        f"In {name}, “{STRATEGIES.get(lowest, lowest)}” has the lowest loss ({number(means['loss_value'].min(), 2)}), "
    )
    stated += (
        "and the best mean score too."
        if lowest == best
        else f"and “{STRATEGIES.get(best, best)}” the best mean score ({number(means['value'].max(), 2)})."
    )
    whole = rows["task"].nunique()
    of_all = f"On {len(ordered)} of {whole} tasks" + (f" ({listed(ordered)})" if 0 < len(ordered) < whole else "")
    return [stated, f"{of_all}, every lower loss goes with a better score."]


def _falls(own: pd.DataFrame) -> bool:
    return bool(own.sort_values("loss_value")["value"].is_monotonic_decreasing)
