"""How many labelled examples pretraining is worth: scores by their number, beside the same model from scratch."""

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from infoflow.results import score_bounds

from .._figure import Panel, ReportFigure
from .._numbers import listed, number, two_digits
from .._shown_models import ShownModels
from ..forms._chart import BASELINE, amount, bounded, finished, opacity_if, tips
from ..forms._lines import area, control_lines, lines, looks_of
from ..forms._names import names_above
from ._methods import WORTH
from ._rows import MOST_TASKS, SCORED, averaged, bands, estimated, left_out, names_of, of, plain, tasks_of, way_of

_HEIGHT = 230
_FEW = 6  # lines whose intervals can be told apart where they lie on each other
_POINTED = " Intervals of a line are drawn while it is pointed at in the legend; all are in the data."


def worth_figure(scores: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each task that models were tuned for on several numbers of examples; None without any."""
    own = plain(scores)
    sizes = own[own["trained"]].groupby("task")["examples"].nunique()
    own = own[own["task"].isin(sizes[sizes > 1].index)]
    if own.empty:
        return None
    data = names_of(estimated(averaged(own, SCORED), SCORED, score_bounds), models)
    tasks = tasks_of(data)
    return ReportFigure(
        id="tuned-worth",
        question="How many labelled examples is pretraining worth?",
        answer=[text for task in tasks[:MOST_TASKS] for text in _sentences(of(data, task=task), task, models)],
        panels=[Panel(spec=_chart(of(data, task=task), models), title=task) for task in tasks[:MOST_TASKS]],
        caption=f"{bands(data)}{_POINTED if _many(data) else ''} Tuned: {way_of(scores)}; the examples are nested."
        f"{left_out(tasks)}",
        how_to_read=[
            "Across: labelled examples, each step the same factor. Up: the task's main metric on the same test "
            "examples. The dotted line is the best guess without a model.",
            "Dashed grey: the same model from random weights. The vertical gap is what pretraining gains; the "
            "horizontal one is how many more labelled examples would do the same. It would be surprising if the gap "
            "stayed as wide with many examples as with few.",
        ],
        method=WORTH,
        data=data,
        tables=("tuned_scores",),
        findings=("adaptation:A-6",),
        payload={"apart": True},
    )


def _chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    series = models.present(rows)
    ends = [0.93 * int(rows["examples"].min()), 1.05 * int(rows["examples"].max())]
    guess = float(rows["baseline"].mean())
    many = _many(rows)
    shown = ["value"] if many else ["low", "value", "high"]
    low, high = min(guess, float(rows[shown].min().min())), float(rows[shown].max().max())
    margin = 0.06 * (high - low) or 0.05
    sizes = sorted(int(size) for size in rows["examples"].unique())
    x = amount("examples", "labelled examples", ends, type="log", zero=alt.Undefined, format="~s", values=sizes)
    at = {"x": alt.X(**x), "y": alt.Y(**amount("value", "score", [low - margin, high + margin]))}
    trained, untrained = (rows[rows["group"] == group] for group in ("trained", "untrained"))
    tooltip = tips("name:N|pretrained for", "examples:Q|examples|,", "shown:N|score")
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "from scratch", "var(--control)")] if len(untrained) else []
    names.append(("⋯", "best guess", "var(--control)"))
    looks = looks_of(series)
    drawn = lines(trained, at, looks, band=0 if many else 0.18, size=34, touch=0, tooltip=tooltip)
    if many:
        pointed = opacity_if("datum.series === highlight", 0.18, 0)
        drawn.insert(0, area(bounded(trained, (low - margin, high + margin)), at, pointed, looks))
    base = alt.Chart(pd.DataFrame([{"value": guess}])).mark_rule(**BASELINE).encode(y=at["y"])
    grey = control_lines(untrained.drop(columns="shown"), at, band=0 if many else 0.10)
    return finished([base, *grey, *drawn, names_above(names)], _HEIGHT)


def worth(trained: pd.DataFrame, untrained: pd.DataFrame) -> tuple[int, float, bool]:
    """Fewest examples, how many times as many do the same from scratch, and whether that is only a lower bound."""
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


def _sentences(rows: pd.DataFrame, task: str, models: ShownModels) -> list[str]:
    told: dict[tuple[str, str], list[str]] = {}
    for one in models.present(rows[rows["trained"]]):
        own = of(rows, series=one.key)
        trained, untrained = own[own["trained"]], own[~own["trained"]]
        if len(trained) < 2 or len(untrained) < 2:
            continue
        n, times, bound = worth(trained, untrained)
        told.setdefault(_as_many(n, times, bound), []).append(one.label)
    if not told:
        return []
    n = int(rows["examples"].min())
    parts = [f"{examples} in {listed(names)} ({factor})" for (examples, factor), names in told.items()]
    return [f"On {task}, {n:,} labelled examples after pretraining do what takes, from scratch, {listed(parts)}."]


def _as_many(n: int, times: float, bound: bool) -> tuple[str, str]:
    """Examples and the factor; two digits of what is read off a line between two sizes, and has no interval."""
    if bound:
        return f"more than {number(n * times, 0)}", f"over {two_digits(times)} times as many"
    factor = two_digits(times)
    return two_digits(n * times), "no more" if factor == "1" else f"{factor} times as many"


def _many(rows: pd.DataFrame) -> bool:
    return rows.loc[rows["trained"], "series"].nunique() > _FEW
