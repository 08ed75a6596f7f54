"""What the charts of pruning share: the axis of heads left, the unpruned model's line, names in the empty corner."""

import json
from typing import Any

import altair as alt
import pandas as pd

from .._figure import Method
from .._language import Series
from ..forms._conditional import color_if, opacity_if
from ._rows import Pool

METHOD = Method(
    id="pruning",
    title="Pruning",
    text="""
    Learned gates: each head's output is multiplied by a Hard Concrete gate <i>g</i> = min(1, max(0, 1.2 σ((ln <i>u</i>
    − ln(1 − <i>u</i>) + log <i>α</i>)/.33) − .1)), whose chance to be open is penalised; training goes on from the
    converged model, from one weight of the penalty to the next. A head is alive where log <i>α</i> &gt; 0; in
    evaluation its gate is min(1, max(0, 1.2 σ(log <i>α</i>) − .1)), undecided where |log <i>α</i>| &lt; 2.4. After
    Voita et al. (2019) and Louizos, Welling and Kingma (2018). Gates for exactly <i>k</i> heads after Li et al. (2021).
    All other ways rank heads on validation sentences and train nothing. Every choice is scored on the same held-out
    sentences; BLEU is sacreBLEU's. Roles are measured again at every point by the thresholds of the head map.
    """,
)

UNPRUNED = {"color": "var(--control)", "strokeDash": [1, 3], "strokeWidth": 1.6}
UNPRUNED_NAME = ("·····", "unpruned model", "var(--soft)")
RANDOM_NAME = ("– –", "random choice", "var(--soft)")
SCRATCH_NAME = ("– –", "from scratch", "var(--soft)")
_LINE = 14  # pixels between names
_GAP = 0.04  # between squares, as a part of their distance
_LETTER, _ROOM = 6, 270  # pixels of a letter, and of a narrow picture
_TITLE = 24  # above the picture, for the title of the axis


def heads_left(size: int) -> alt.X:
    """The axis: all heads at the left, none at the right."""
    scale = alt.Scale(domain=[0, size], nice=False, reverse=True)
    return alt.X("left:Q", title=f"heads left of {size}", scale=scale, axis=alt.Axis(tickCount=5, tickMinStep=1))


def points_axis(names: dict[int, str], title: str, gap: float = _GAP) -> alt.X:
    """Points of a sweep as columns, named by `names`, with a gap between squares."""
    label = f"{list(names.values())}[indexof({list(names)}, datum.value)]"
    axis = alt.Axis(labelExpr=label, labelAngle=0, domain=False, ticks=False, labelOverlap=True)
    return alt.X("point:O", title=title, axis=axis, **_between(gap))


def rows_axis(field: str, order: list, title: str | None = None, gap: float = _GAP) -> alt.Y:
    """Rows in this order, from the top, with a gap between squares."""
    axis = alt.Axis(domain=False, ticks=False, labelLimit=130)
    return alt.Y(f"{field}:N", title=title, sort=order, axis=axis, **_between(gap, domain=order))


def _between(gap: float, **more: Any) -> dict[str, alt.Scale]:
    """Only squares have gaps: a scale of points knows none, and says so."""
    settings = {**more, **({"paddingInner": gap} if gap else {})}
    return {"scale": alt.Scale(**settings)} if settings else {}


def folded(rows: pd.DataFrame, by: str | list[str]) -> alt.Chart:
    """A chart of rows that the page holds as one for each value of `by`, in a third of the bytes."""
    columns = [column for column in rows if column not in by]
    return alt.Chart(rows.groupby(by, sort=False)[columns].agg(list).reset_index()).transform_flatten(columns)


def squares(rows: pd.DataFrame, by: str, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Squares of the column `share` (0 to 1) with its `text`: the stronger, the more."""
    base = folded(rows, by)
    # Charts cannot mix CSS variables, so that the colour is one, more or less opaque.
    opacity = alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.03, 1]), legend=None)
    ink = color_if("datum.share > 0.5", "var(--paper)", "var(--ink)")
    return [
        base.mark_rect(color="var(--heat-2)").encode(x=x, y=y, opacity=opacity),
        base.mark_text(fontSize=10).encode(x=x, y=y, text="text:N", color=ink),
    ]


def lit(series: Series, opacity: float = 1.0) -> alt.OpacityValue:
    """Opacity of a mark of a chart that shows one line of models: dimmed while another one is highlighted."""
    test = f"highlight === '' || highlight === {json.dumps(series.key)}"
    return opacity_if(test, opacity, 0.12 * opacity)


def lean(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification without what later layers repeat of the scales and axes that all layers share."""
    seen: dict[tuple[str, str], Any] = {}
    for layer in spec["layer"]:
        for channel, own in layer.get("encoding", {}).items():
            if channel not in ("x", "y") or "field" not in own or own.get("scale", 1) is None:
                continue
            for name in ("scale", "axis", "title"):
                if name in own and (channel, name) in seen and seen[channel, name] == own[name]:
                    del own[name]
                elif name in own:
                    seen[channel, name] = own[name]
    return spec


def span_of(pool: Pool, curves: pd.DataFrame) -> list[float]:
    """The panel's own scale of quality: losing all kinds of heads costs many times what losing the encoder's does."""
    drawn = pool.of(curves)[["low", "high", "value", "unpruned"]].stack()
    low, high = float(drawn.min()), float(drawn.max())
    margin = 0.06 * (high - low) or 0.1
    return [max(low - margin, 0.0) if low >= 0 else low - margin, high + margin]


def names_above(found: list[tuple[str, str, str]]) -> alt.Chart:
    """(mark, name, colour) above the picture, since in it any corner may hold a line; in two columns where they fit."""
    texts = [f"{mark} {name}" for mark, name, _ in found]
    half = -(-len(texts) // 2)
    first, second = (max((_LETTER * len(text) for text in part), default=0) for part in (texts[:half], texts[half:]))
    rows = half if first + second < _ROOM else len(texts)
    table = pd.DataFrame(
        {
            "text": texts,
            "color": [color for _, _, color in found],
            "across": [(first + 12) * (index // rows) for index in range(len(texts))],
            "at": [_LINE * (index % rows - rows) - _TITLE for index in range(len(texts))],
        }
    )
    return (
        alt.Chart(table)
        .mark_text(align="left", baseline="top", fontSize=11, fontWeight="bold")
        .encode(
            x=alt.X("across:Q", scale=None, axis=None),  # in pixels, as the other one
            y=alt.Y("at:Q", scale=None, axis=None),
            text="text:N",
            color=alt.Color("color:N", scale=None),
        )
    )
