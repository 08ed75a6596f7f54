"""What the figures of pruning share: their method, axes, the line of the unpruned model."""

import altair as alt
import pandas as pd

from .._figure import Method
from ..forms._chart import BASELINE, amount
from ..forms._grid import cells
from ._rows import PrunableHeads

METHOD = Method(
    id="pruning",
    title="Pruning",
    text="""
    Learned gates: each head's output is multiplied by a Hard Concrete gate <i>g</i> = min(1, max(0, 1.2 σ((ln <i>u</i>
    − ln(1 − <i>u</i>) + log <i>α</i>)/.33) − .1)), whose chance to be open is penalised; training goes on from the
    converged model, from one weight of the penalty to the next. A head is alive where log <i>α</i> &gt; 0; in
    evaluation its gate is min(1, max(0, 1.2 σ(log <i>α</i>) − .1)), undecided where |log <i>α</i>| &lt; 2.4. After
    Voita et al. (2019) and Louizos, Welling and Kingma (2018). Trained on: without gates and penalty, heads that went
    stay away, the rate begins high and falls again (learning-rate rewinding, Renda, Frankle and Carbin 2020). Gates
    for exactly <i>k</i> heads after Li et al. (2021). All other ways rank heads on validation sentences and train
    nothing. Every choice is scored on the same held-out sentences; BLEU is sacreBLEU's. Roles are measured again at
    every point by the thresholds of the head map.
    """,
)

UNPRUNED = BASELINE
UNPRUNED_NAME = ("·····", "unpruned model", "var(--soft)")
RANDOM_NAME = ("– –", "random choice", "var(--soft)")
_GAP = 0.04  # between squares, as a part of their distance


def heads_left(size: int) -> alt.X:
    """The axis: all heads at the left, none at the right."""
    return alt.X(**amount("left", f"heads left of {size}", [0, size], reverse=True, tickMinStep=1, ticks=min(5, size)))


def points_axis(names: dict[int, str], title: str, gap: float = _GAP) -> alt.X:
    """Points of a sweep as columns, named by `names`."""
    label = f"{list(names.values())}[indexof({list(names)}, datum.value)]"
    return cells(alt.X, "point", title, gap=gap, labelExpr=label, labelOverlap=True)


def rows_axis(field: str, order: list, title: str | None = None, gap: float = _GAP) -> alt.Y:
    """Rows in this order, from the top."""
    return cells(alt.Y, field, title, order, gap=gap, labelLimit=130)


def span_of(pool: PrunableHeads, curves: pd.DataFrame) -> list[float]:
    """The panel's own scale of quality: losing all kinds of heads costs many times what losing the encoder's does."""
    drawn = pool.of(curves)[["low", "high", "value", "unpruned"]].stack()
    low, high = float(drawn.min()), float(drawn.max())
    margin = 0.06 * (high - low) or 0.1
    return [max(low - margin, 0.0) if low >= 0 else low - margin, high + margin]
