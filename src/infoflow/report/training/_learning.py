"""Loss over training: one line per objective, by tokens read."""

import math
from typing import Any

import numpy as np
import pandas as pd

from infoflow.results import LEARNING_CURVES
from infoflow.results import TASK_SCORES as TASK_SCORES_TABLE

from .._bands import band_words, seed_bands
from .._declared import DeclaredFigure, Drawn
from .._figure import Method, Panel
from .._in_words import Candidate, both_extremes, extreme, plain, sentence
from .._numbers import listed, number
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import CONTROL, HEIGHT, LABEL_GAP, NAME, amount, finished, lit, spread, tips, with_field
from ..forms._lines import lines, looks_of
from ..forms._marks import Constant, draw

TASK_SCORES = Method(
    id="task-scores",
    title="Task scores",
    text="""
    Loss is the cross-entropy per supervised token in nats; BLEU is sacreBLEU of beam search with the signature in the
    caption.
    """,
)

_POINTS = 80  # points per line
_LABEL_ROOM = 1.6  # factor by which the log axis extends after the last point


def _learning(frame: pd.DataFrame, scores: pd.DataFrame, models: ShownModels) -> Drawn:
    """Training loss by tokens read, with the loss of unigram frequencies as the reference."""
    table = _seed_means(frame)
    table = table.merge(_unigram(scores), on="series", how="left")
    series = models.present(table)
    seeds = int(table["seeds"].max())
    return Drawn(
        data=table,
        panels=[Panel(spec=_chart(table, series))],
        answer=[_sentence(table, series)],
        words=_words(table, series),
        caption=f"Training loss; each point is the mean since the previous one. {band_words(seeds, over='')}. Both "
        "axes are logarithmic.",
    )


def _seed_means(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds and its interval at each point of a line."""
    frame = _thinned(frame.assign(point=frame.groupby(["series", "seed"]).cumcount()))
    keys = ["series", "point"]
    lines: Any = frame.groupby(keys, sort=False)
    places = lines.agg(source_tokens=("source_tokens", "mean"), update=("step", "mean")).reset_index()
    return places.merge(seed_bands(frame, keys, positive=True), on=keys)


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """At most `_POINTS` points per line, evenly spread over the log axis; each is a mean of those it represents."""
    num = int(frame["point"].max()) + 1
    if num <= _POINTS:
        return frame
    ends = np.unique(np.geomspace(1, num, _POINTS).round().astype(int)) - 1
    cells = frame.assign(point=np.searchsorted(ends, frame["point"]))
    lines: Any = cells.groupby(["series", "seed", "point"], sort=False)
    return lines.agg(
        source_tokens=("source_tokens", "max"), step=("step", "max"), value=("value", "mean")
    ).reset_index()


def _unigram(scores: pd.DataFrame) -> pd.DataFrame:
    losses = scores[(scores["metric"] == "loss") & scores["trained"]]
    return losses.groupby("series", as_index=False)["baseline"].mean()


def _falls(table: pd.DataFrame, series: list[Series]) -> list[tuple[str, float, float, float]]:
    """Each line's name, first and last loss, and the gain from the second half of its tokens."""
    found = []
    for one in series:
        own = table[table["series"] == one.key].sort_values("source_tokens")
        first, last, before = (float(own["value"].iloc[at]) for at in (0, -1, _half(own)))
        found.append((one.label, first, last, max(before - last, 0.0)))
    return found


def _sentence(table: pd.DataFrame, series: list[Series]) -> str:
    parts = [
        f"{label} from {number(first)} to {number(last)} nats per token ({number(late)} of it in the last half of "
        "the tokens)"
        for label, first, last, late in _falls(table, series)
    ]
    return f"Training loss fell: {listed(parts)}."


def _words(table: pd.DataFrame, series: list[Series]) -> str:
    """Which loss fell by the largest share, and which was still falling most at the end."""
    found = _falls(table, series)
    falls = [Candidate(f"in {label}", plain(first - last)) for label, first, last, _ in found]
    shares = [(label, 100 * late / (first - last)) for label, first, last, late in found if first > last]
    fall = both_extremes(falls, "nats per token")
    end = extreme([Candidate(f"in {label}", plain(round(share))) for label, share in shares])
    if not fall:
        return ""
    much = f"{number(end.candidate.estimate.value, 0)}%, {end.candidate.name}" if end else ""
    late = f"; the last half of the tokens brought at most {much}" if end else ""
    return sentence(f"the fall of the training loss is {fall}{late}")


def _half(own: pd.DataFrame) -> int:
    """Position of the last point in the first half of the tokens."""
    return max(int((own["source_tokens"] <= own["source_tokens"].max() / 2).sum()) - 1, 0)


def _chart(table: pd.DataFrame, series: list[Series]) -> dict[str, Any]:
    table = table.assign(name=table["series"].map({one.key: one.label for one in series}))
    low, high = float(table["source_tokens"].min()), float(table["source_tokens"].max())
    span = _span(table)
    log = {"type": "log", "zero": None, "ticks": 6}
    reach = [low, high * _LABEL_ROOM]
    at = {
        "x": amount("x", "source_tokens", "source tokens read", reach, format="~s", **log),
        "y": amount("y", "value", "training loss (nats per token)", span, **log),
    }
    look = looks_of(series)
    tooltip = tips("name:N|model", "update:Q|updates|,.0f", "source_tokens:Q|source tokens|,.0f", "value:Q|loss|.3f")
    ends = _apart(table.loc[table.groupby("series")["source_tokens"].idxmax()], span)
    references = ends.dropna(subset=["baseline"]).sort_values("baseline", ascending=False)
    baseline = with_field(at["y"], "baseline")
    note = {"align": "left", "baseline": "bottom", "dy": -3, "color": "var(--soft)", "fontSize": 10.5}
    note |= {"fontStyle": "italic", "x": Constant(4), "text": Constant("unigram frequencies")}
    name = {"align": "left", "dx": 6, "limit": 110, "text": "name:N", "opacity": lit(1.0, 0.25)}
    layers = [
        draw("rule", references, CONTROL, y=baseline, opacity=lit()),
        *lines(table, at, look, size=0, touch=300, tooltip=tooltip),
        draw("text", ends, NAME, name, x=at["x"], y=with_field(at["y"], "at"), color=look["color"]),
        draw("text", references.head(1), note, y=baseline),
    ]
    return finished(layers, HEIGHT)


def _apart(ends: pd.DataFrame, span: list[float]) -> pd.DataFrame:
    """The ends of the lines with the height `at` of their names, moved apart where they would overlap."""
    low, high = (math.log(value) for value in span)
    gap = LABEL_GAP / HEIGHT * (high - low)
    return ends.assign(at=[math.exp(at) for at in spread([math.log(value) for value in ends["value"]], gap, high)])


def _span(table: pd.DataFrame) -> list[float]:
    values = table[["low", "high", "baseline"]].stack()
    return [0.95 * float(values.min()), 1.05 * float(values.max())]


LEARNING = DeclaredFigure(
    name="training/learning-curves",
    id="learning-curves",
    question="How did the loss fall?",
    how_to_read=(
        "Across: how many source tokens the model had read. Up: the training loss, with dropout and the "
        "objective's own noise (and label smoothing in translation), so it lies above the loss on unseen text.",
        "The dashed grey lines are the loss of token frequencies alone; a curve near its line has learned no "
        "more than these. A curve that still falls at its end would gain from longer training.",
        "Losses of different objectives cannot be compared with each other.",
    ),
    method=TASK_SCORES,
    tables=(LEARNING_CURVES.name, TASK_SCORES_TABLE.name),
    draw=_learning,
)
