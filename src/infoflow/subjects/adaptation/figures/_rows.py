"""Rows of the tables of tuned models, square charts of them, and methods paragraphs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import Scale
from infoflow.report._figure import Method, Panel
from infoflow.report._in_words import Samples, estimate_text
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import color_if, one_at_a_time, opacity_if, tips
from infoflow.report.forms._marks import HOLLOW, also
from infoflow.report.forms._rows import cells, signed_squares, squares

FULL, FROZEN, AS_IS = "full", "frozen", "as-is"
METHODS = {
    "full": "all weights",
    "decay": "all, lower layers slower",
    "top": "upper layers",
    "lora": "low-rank adapters",
    "frozen": "frozen features",
    "mix": "mix of frozen layers",
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
AVERAGE = "average"  # what the mean over tasks is called in the column of tasks
MOST_TASKS = 12  # panels per figure; further tasks appear only in its data
SCORED = ("task", "metric", "examples")  # key columns of score rows; each task has one main metric


def tasks_of(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame["task"].astype(str)))


def of(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows with these values."""
    keep = np.ones(len(frame), dtype=bool)
    for column, value in wanted.items():
        keep &= np.asarray(frame[column] == value, dtype=bool)
    return frame[keep]


def plain(frame: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """Models without further pretraining, tuned on true labels by the given method or by `main_method`."""
    return of(frame, strategy=AS_IS, control="", method=method or main_method(frame))


def way_of(frame: pd.DataFrame) -> str:
    """Name of the tuning method that `plain` selects."""
    return METHODS[main_method(frame)]


def main_method(frame: pd.DataFrame) -> str:
    """The tuning method that `plain` selects by default: the first of `METHODS` in the table."""
    known = set(of(frame, strategy=AS_IS, control="")["method"].astype(str))
    return next((method for method in METHODS if method in known), FULL)


def against_shuffled(
    data: pd.DataFrame,
    frame: pd.DataFrame,
    by: Sequence[str],
    scale: Scale | Callable[[str], Scale] = "any",
) -> pd.DataFrame:
    """Append rows for models tuned on shuffled labels for the same tasks, with the `group` "shuffled labels".

    `data` comes from `estimated`.
    """
    own = most_examples(of(frame, strategy=AS_IS, control="shuffled-labels", method=main_method(frame)))
    own = own[own["task"].isin(data["task"])]
    if own.empty:
        return data
    means = averaged(own, by)
    means = with_average(means) if AVERAGE in set(data["task"]) else means
    control = estimated(means, by, scale).assign(group=SHUFFLED)
    return pd.concat([data, control], ignore_index=True)


def most_examples(frame: pd.DataFrame) -> pd.DataFrame:
    """Each task's rows with the largest number of labelled examples."""
    if frame.empty:
        return frame
    return frame[frame["examples"] == frame.groupby("task")["examples"].transform("max")]


def pretrained(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `plain` about pretrained models, tuned on the most labelled examples."""
    own = most_examples(plain(frame))
    return own[own["trained"]]


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
        found: dict[str, Any] = dict(zip(keys, values, strict=True))
        found |= {name: float(own[name].astype(float).mean()) for name in ("value", "low", "high", "baseline")}
        drawn = [np.asarray(one, dtype=float) for one in own["replicates"]] if "replicates" in own else []
        common = min((len(one) for one in drawn), default=0)
        found["replicates"] = np.mean([one[:common] for one in drawn], axis=0).tolist() if common else []
        rows.append({**found, "count": int(own["count"].median())})
    return pd.DataFrame(rows, columns=[*keys, "value", "low", "high", "baseline", "replicates", "count"])


def with_average(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the mean over tasks to rows of `averaged`, as another task, for models that were tuned for all tasks."""
    every = len(tasks_of(rows))
    whole = rows.groupby(["series", "seed", "trained"])["task"].transform("nunique") == every
    if every < 2 or not bool(whole.any()):
        return rows
    means = averaged(rows[whole], []).assign(task=AVERAGE, metric="", examples=int(rows["examples"].max()))
    return pd.concat([rows, means], ignore_index=True)


def estimated(
    frame: pd.DataFrame,
    by: Sequence[str],
    scale: Scale | Callable[[str], Scale] = "any",
) -> pd.DataFrame:
    """Mean over seeds, with its interval, for each line, state and values of `by`, from the rows of `averaged`.

    `scale`: the range of the values, or a function from each `metric` in `by` to its range.
    """
    keys = ["series", "trained", *by]
    rows: list[dict[str, Any]] = []
    for values, own in frame.groupby(keys, sort=False, dropna=False):
        named = dict(zip(keys, values, strict=True))
        of_metric = scale(str(named["metric"])) if callable(scale) else scale
        found = Samples.of(own, scale=of_metric).estimate()
        stated = {"shown": estimate_text(found), "baseline": float(own["baseline"].mean())}
        rows.append({**named, **asdict(found), **stated, "group": "trained" if named["trained"] else "untrained"})
    names = [*keys, "value", "low", "high", "seeds", "count", "shown", "baseline", "group"]
    return pd.DataFrame(rows, columns=names)


def bands(data: pd.DataFrame, counted: str = "test examples (of tags, words)") -> str:
    """A note on what the intervals cover."""
    seeds = int(data["seeds"].max()) if len(data) else 0
    least, most = (int(end) for end in (data["count"].min(), data["count"].max())) if len(data) else (0, 0)
    behind = f"; {least:,}{f' to {most:,}' if most > least else ''} {counted} per number" if most else ""
    if seeds > 1:
        covers = f"95% intervals over seeds and examples{behind}"
        return f"Means over {seeds} seeds of pretraining, seeds of tuning averaged; {covers}."
    return f"One seed of pretraining, seeds of tuning averaged; 95% intervals over examples, {HOLLOW}{behind}."


def names_of(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Add the name of each line."""
    return frame.assign(name=frame["series"].map({one.key: one.label for one in models.series}))


def left_out(every: Sequence[object], what: str = "tasks") -> str:
    """The caption's note about tasks (or `what`) that have no panel."""
    more = len(every) - MOST_TASKS
    return f" {more} further {what}: in the data." if more > 0 else ""


# Methods paragraphs for the figures of tuned models.

SCORES = Method(
    id="tuned-scores",
    title="Scores of tuned models",
    text="""
    A task head is put on a pretrained model, and all weights, or those that the method names, are trained on labelled
    examples; the peak learning rate is the one of a small grid that does best on development examples. The score is
    the task's main metric on test examples: accuracy, F1, Matthews' or another correlation, where 1 is best. The same
    is done with the untrained model (from scratch), with frozen features (only <i>W</i>·<i>h</i> is trained), and, as
    a control, with shuffled labels. A guess needs no model: it gives the answer that is right most often in training
    or, if a text or an answer from a passage is wanted, the first sentence, whichever does better in training. Several
    seeds of tuning are averaged; means over tasks weight all tasks equally.
    """,
)
WORTH = Method(
    id="tuned-worth",
    title="What pretraining is worth in labelled examples",
    text="""
    Let <i>p</i>(<i>n</i>) and <i>s</i>(<i>n</i>) be the scores of the pretrained and the untrained model tuned on
    <i>n</i> examples, interpolated linearly in log <i>n</i> between the sizes. If <i>s</i>(<i>m</i>) =
    <i>p</i>(<i>n</i>), pretraining is worth <i>m</i> / <i>n</i> times the examples at <i>n</i>. If the untrained model
    does not reach <i>p</i>(<i>n</i>) even with the largest size, only a lower bound is given.
    """,
)
INSIDE = Method(
    id="tuned-inside",
    title="Before and after tuning",
    text="""
    Distance of a layer's space: 1 − similarity of its states on the task's test texts before and after tuning, by
    PWCCA (Morcos et al. 2018), linear CKA (Kornblith et al. 2019) or RSA (Spearman's correlation of the similarities
    of pairs of words). Distance of weights: ‖<i>W</i><sub>after</sub> − <i>W</i><sub>before</sub>‖ /
    ‖<i>W</i><sub>before</sub>‖. Attention: Jensen–Shannon divergence of a head's attention before and after. Labels and
    properties of words are read by linear probes from frozen states, as elsewhere on this page.
    """,
)
SWAPS = Method(
    id="tuned-swaps",
    title="Layers reset",
    text="""
    The lower <i>b</i> blocks (with the embeddings), the upper <i>b</i> blocks or a single block of the tuned model are
    reset to their weights before tuning; the others stay tuned. The score of the task is then measured with the tuned
    head, and the pretraining loss with the pretrained head, in nats per predicted token. Nothing is trained again. The
    fall of the loss shows what those blocks had forgotten.
    """,
)
ALLOCATION = Method(
    id="tuned-allocation",
    title="Which parts learned the task",
    text="""
    Loss change allocation (Lan et al. 2019): each step of tuning changes the loss by ∇<i>L</i>·Δθ, which is a sum over
    weights, so every weight has a share, Σ<sub>t</sub> ∂<i>L</i>/∂θ<sub>i</sub> Δθ<sub>i</sub>, integrated along the
    step. A negative value means that it helped. Percentages are relative to the sum over all weights.
    """,
)
HEADS = Method(
    id="tuned-heads",
    title="Heads before and after tuning",
    text="""
    Confidence: mean over queries of the strongest attention weight. Importance before tuning is the rise of the
    pretraining loss without the head; after tuning, the rise of the task's loss. Both are in nats, but of different
    losses, so they are compared by rank: important is the quarter of the heads that costs most. Kept: in both quarters;
    gained: only after; lost: only before. Two random quarters share a sixteenth of all heads.
    """,
)


# Square charts in rows and columns; the page shows one set at a time.

_DRAWN = ("label", "place", "value", "text", "shown", "set", "grey")
_ROW = 24  # pixels per row
_ROOM = 26  # pixels of a square that fits its number


def square_chart(
    rows: pd.DataFrame,
    *,
    across: str,
    labels: Sequence[str],
    title: str,
    quantity: str,
    strongest: float,
    signed: bool = False,
) -> dict[str, Any]:
    """Draw rows with `label`, the column `across`, `value`, `text`, `shown`, `set` and, for controls, `grey`.

    `labels` are the row labels from top to bottom; `quantity` names the value in the tooltip. The value `strongest` has
    the strongest colour; with `signed`, negative values have another colour.
    """
    columns = list(dict.fromkeys(rows[across].astype(str)))
    rows, top = rows.assign(place=rows[across].astype(str)), strongest or 1.0
    place = {
        "x": cells("x", "place", title, columns, whole=True, **_slanted(columns)),
        "y": cells("y", "label", None, list(labels), whole=True, labelLimit=120),
    }
    kept = rows[[name for name in _DRAWN if name in rows]]
    look = {"size": 9.5, "tooltip": tips("label:N|row", f"place:N|{across}", f"shown:N|{quantity}")}
    if signed:
        marks = signed_squares(kept, field="value", ends=(-top, top), **place, **look)
    else:
        color = color_if("datum.grey", "var(--control)", "var(--heat-2)") if "grey" in rows else "var(--heat-2)"
        marks = squares(kept, strength="value", ends=(0.0, top), color=color, **place, **look)
    marks[-1] = also(marks[-1], opacity=opacity_if(f"width >= {_ROOM * len(columns)}", 1, 0))
    return one_at_a_time(marks, _ROW * len(labels) + 4)


def square_panels(rows: pd.DataFrame, series: Sequence[Series], **how: Any) -> list[Panel]:
    """One chart per line, all with one scale of colours (see `square_chart`), by default up to the largest value."""
    how = {"strongest": float((rows["value"].abs() if how.get("signed") else rows["value"]).max()), **how}
    return [Panel(spec=square_chart(of(rows, series=one.key), **how), title=one.label) for one in series]


def chosen_of(sets: Sequence[str]) -> dict[str, Any]:
    """Data for a figure that lets the user choose one of these sets."""
    return {"template": "evaluated.html.jinja", "payload": {"sets": list(sets), "layout": "wide", "apart": True}}


def _slanted(columns: Sequence[str]) -> dict[str, Any]:
    """Slant words so that they do not overlap; numbers stay level."""
    return (
        {} if all(name.isdigit() for name in columns) else {"labelAngle": -40, "labelLimit": 90, "labelAlign": "right"}
    )
