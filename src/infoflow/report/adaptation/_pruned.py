"""How many heads a tuned model can do without."""

from typing import Any

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import number
from .._samples import Samples
from .._shown_models import ShownModels
from ..forms._chart import CONTROL, amount, finished, tips
from ..forms._lines import control_lines, lines, looks_of
from ..forms._names import names_above
from ._methods import HEADS
from ._rows import MOST_TASKS, averaged, bands, estimated, left_out, most_examples, names_of, of, plain, tasks_of

_HEIGHT = 220


def pruned_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each task; None where no heads were taken away."""
    own = most_examples(plain(frame))
    own = own[own["trained"]]
    own = own.assign(removed=own["removed"] / own["heads"].where(own["heads"] > 0))
    means = averaged(own, ["task", "order", "removed"])
    if means.empty:
        return None
    data = names_of(estimated(means, ["task", "order", "removed"]), models)
    tasks = tasks_of(data)
    return ReportFigure(
        id="tuned-pruning",
        question="How many heads can a tuned model do without?",
        answer=[text for task in tasks[:MOST_TASKS] for text in _sentences(of(means, task=task), task, models)],
        panels=[Panel(spec=_chart(of(data, task=task), models), title=task) for task in tasks[:MOST_TASKS]],
        caption=f"{bands(data)} Nothing is tuned again.{left_out(tasks)}",
        how_to_read=[
            "Across: the share of the heads that is taken away, least important first. Up: what is left of the score. "
            "Dashed grey: heads taken away at random.",
            "A curve that stays flat says that those heads did nothing for this task. It would be surprising if random "
            "orders did as well.",
        ],
        method=HEADS,
        data=data,
        tables=("task_pruning",),
    )


def _chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    series = models.present(rows)
    low, high = float(rows[["low", "value"]].min().min()), float(rows[["high", "value"]].max().max())
    margin = 0.06 * (high - low) or 0.05
    x = alt.X(
        **amount(
            "removed", "heads taken away", [-0.02, 1.02 * float(rows["removed"].max())], format="%", zero=alt.Undefined
        )
    )
    at = {"x": x, "y": alt.Y(**amount("value", "score", [low - margin, high + margin]))}
    ordered, random = (of(rows, order=order) for order in ("importance", "random"))
    tooltip = tips("name:N|model", "removed:Q|taken away|.0%", "shown:N|score")
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "at random", "var(--control)")] if len(random) else []
    grey = control_lines(random.drop(columns="shown"), at, CONTROL)
    drawn = lines(ordered, at, looks_of(series), size=34, touch=0, tooltip=tooltip)
    return finished([*grey, *drawn, names_above(names)], _HEIGHT)


def _sentences(means: pd.DataFrame, task: str, models: ShownModels) -> list[str]:
    """The largest share that can go, by importance and at random, without a clear loss."""
    told = []
    for one in models.present(means):
        shares = [_free(of(means, series=one.key, order=order)) for order in ("importance", "random")]
        if shares[0] is not None:
            beside = "" if shares[1] is None else f" (at random {number(100 * shares[1], 0)}%)"
            told.append(f"{number(100 * shares[0], 0)}% in {one.label}{beside}")
    return [f"On {task} the score is not clearly lower without the least important {', '.join(told)}."] if told else []


def _free(rows: pd.DataFrame) -> float | None:
    by_share = {float(str(share)): Samples.of(own) for share, own in rows.groupby("removed", sort=True)}
    if 0.0 not in by_share:
        return None
    free = 0.0
    for share, samples in by_share.items():
        if share and (samples - by_share[0.0]).estimate().sign < 0:
            break
        free = share
    return free
