"""Rows of the tables of tuned models: one tuning method, means over tuning seeds and tasks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import Scale
from infoflow.report._numbers import estimate_text
from infoflow.report._samples import Estimate, Samples
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._hollow import HOLLOW

FULL, FROZEN, AS_IS = "full", "frozen", "as-is"
METHODS = {
    "full": "all weights",
    "decay": "all, lower layers slower",
    "top": "upper layers",
    "lora": "low-rank adapters",
    "frozen": "frozen features",
}
"""Names of tuning methods, in reading order."""
STRATEGIES = {
    "as-is": "general",
    "continued": "continued on the domain",
    "task-texts": "continued on the task's texts",
    "scratch": "domain alone",
}
SHUFFLED, FROM_SCRATCH = "shuffled labels", "from scratch"
"""Names of the two controls: tuned on shuffled labels, and tuned from random weights."""
MOST_TASKS = 12
"""Panels per figure; further tasks appear only in its data."""
SCORED = ("task", "metric", "examples")
"""Key columns of score rows; each task has one main metric."""


def tasks_of(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame["task"].astype(str)))


def of(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows with these values."""
    keep = np.ones(len(frame), dtype=bool)
    for column, value in wanted.items():
        keep &= np.asarray(frame[column] == value, dtype=bool)
    return frame[keep]


def plain(frame: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """Models of the general strategy, tuned by one method on true labels.

    Full tuning is preferred; otherwise the first available method of `METHODS`.
    """
    return of(frame, strategy=AS_IS, control="", method=method or main_method(frame))


def tuned(frame: pd.DataFrame) -> pd.DataFrame:
    """The pretrained models of `plain`, tuned on the largest number of labelled examples."""
    own = most_examples(plain(frame))
    return own[own["trained"]]


def way_of(frame: pd.DataFrame) -> str:
    """Name of the tuning method that `plain` selects."""
    return METHODS[main_method(frame)]


def main_method(frame: pd.DataFrame) -> str:
    """The tuning method that `plain` selects."""
    known = set(of(frame, strategy=AS_IS, control="")["method"].astype(str))
    return next((method for method in METHODS if method in known), FULL)


def beside_shuffled(
    data: pd.DataFrame,
    frame: pd.DataFrame,
    by: Sequence[str],
    scale: Scale | Callable[[str], Scale] = "any",
) -> pd.DataFrame:
    """Append the models tuned on shuffled labels to `data` as the `group` "shuffled labels".

    Only tasks of `data`, tuned by the method that `plain` selects.

    Args:
        data: Result of `estimated` for the unchanged models.
        frame: The table from which `data` was computed.
        by: The columns passed to `estimated`.
        scale: As in `estimated`.
    """
    own = most_examples(of(frame, strategy=AS_IS, control="shuffled-labels", method=main_method(frame)))
    own = own[own["task"].isin(data["task"])]
    if own.empty:
        return data
    control = estimated(averaged(own, by), by, scale).assign(group=SHUFFLED)
    return pd.concat([data, control], ignore_index=True)


def most_examples(frame: pd.DataFrame) -> pd.DataFrame:
    """Each task's rows with the largest number of labelled examples."""
    if frame.empty:
        return frame
    return frame[frame["examples"] == frame.groupby("task")["examples"].transform("max")]


def scores_on_test(frame: pd.DataFrame) -> pd.DataFrame:
    """Scores on test examples by each task's main metric."""
    return frame[(frame["part"].astype(str) == "test") & frame["main"].astype(bool)].dropna(subset="value")


def averaged(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One row per line, seed, state and values of `by`: the mean over tuning seeds and all other columns.

    Replicates are averaged too. Without them the interval is the mean of the rows' intervals.
    """
    keys = ["series", "seed", "trained", *by]
    rows: list[dict[str, Any]] = []
    for values, own in frame.groupby(keys, sort=False, dropna=False):
        found = dict(zip(keys, values if isinstance(values, tuple) else (values,), strict=True))
        found |= {name: float(own[name].astype(float).mean()) for name in ("value", "low", "high", "baseline")}
        drawn = [np.asarray(one, dtype=float) for one in own["replicates"]] if "replicates" in own else []
        common = min((len(one) for one in drawn), default=0)
        found["replicates"] = np.mean([one[:common] for one in drawn], axis=0).tolist() if common else []
        rows.append({**found, "count": int(own["count"].median())})
    return pd.DataFrame(rows, columns=[*keys, "value", "low", "high", "baseline", "replicates", "count"])


def estimated(
    frame: pd.DataFrame,
    by: Sequence[str],
    scale: Scale | Callable[[str], Scale] = "any",
) -> pd.DataFrame:
    """Mean over seeds and interval for each line, state and values of `by`; takes the rows of `averaged`.

    `scale`: the range of the values, or a function from each `metric` in `by` to its range.
    """
    keys = ["series", "trained", *by]
    rows: list[dict[str, Any]] = []
    for values, own in frame.groupby(keys, sort=False, dropna=False):
        named = dict(zip(keys, values if isinstance(values, tuple) else (values,), strict=True))
        of_metric = scale(str(named["metric"])) if callable(scale) else scale
        found = Samples.of(own, scale=of_metric).estimate()
        told = {"baseline": float(own["baseline"].mean()), "group": "trained" if named["trained"] else "untrained"}
        rows.append({**named, **columns_of(found), **told})
    names = [*keys, "value", "low", "high", "seeds", "count", "shown", "baseline", "group"]
    return pd.DataFrame(rows, columns=names)


def columns_of(found: Estimate) -> dict[str, Any]:
    """An estimate's numbers and its text, as columns of a figure's data."""
    return {**asdict(found), "shown": estimate_text(found)}


def bands(data: pd.DataFrame, counted: str = "test examples (of tags, words)") -> str:
    """What the intervals cover."""
    seeds = int(data["seeds"].max()) if len(data) else 0
    least, most = (int(end) for end in (data["count"].min(), data["count"].max())) if len(data) else (0, 0)
    behind = f"; {least:,}{f' to {most:,}' if most > least else ''} {counted} for a number" if most else ""
    if seeds > 1:
        covers = f"95% intervals over seeds and examples{behind}"
        return f"Means over {seeds} seeds of pretraining, seeds of tuning averaged; {covers}."
    return f"One seed of pretraining, seeds of tuning averaged; 95% intervals over examples, {HOLLOW}{behind}."


def names_of(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Add the name of each line."""
    return frame.assign(name=frame["series"].map({one.key: one.label for one in models.series}))


def gap_text(found: Estimate) -> str:
    """`0.05 (0.04 to 0.06)`, for use inside brackets and lists."""
    return estimate_text(found).replace(" (", ", ").removesuffix(")")


def more_or_less(gap: Estimate) -> tuple[str, str]:
    """The size of a difference as `gap_text`, and whether it is `more` or `less`."""
    return (gap_text(gap), "more") if gap.value >= 0 else (gap_text(gap.negated()), "less")


def left_out(every: Sequence[object], what: str = "tasks") -> str:
    """The caption's note about tasks (or other items) that have no panel."""
    more = len(every) - MOST_TASKS
    return f" {more} further {what}: in the data." if more > 0 else ""
