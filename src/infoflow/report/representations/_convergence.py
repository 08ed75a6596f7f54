"""Whether mutual information has converged: how it depends on the number of tokens, and where it has not."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.representations import MUTUAL_INFORMATION as MUTUAL_INFORMATION_TABLE

from .._figure import Method, Panel, ReportFigure
from .._in_words import Candidate, extreme, number, plain, sentence
from .._model_selection import ModelSelection
from .._theme import Series
from ..forms._chart import amount, color_of, finished, lit, tips
from ..forms._lines import control_lines, lines, looks_of
from ..forms._marks import draw

INFORMATION_METHOD = Method(
    id="mutual-information",
    title="Information about a token",
    text="""
    <p><b>By clusters.</b> Vectors of one layer are sorted into clusters by mini-batch k-means; <i>I</i> = Σ
    <i>p</i>(<i>t</i>,<i>c</i>) ln [<i>p</i>(<i>t</i>,<i>c</i>) / <i>p</i>(<i>t</i>)<i>p</i>(<i>c</i>)] between token
    <i>t</i> and cluster <i>c</i>, in nats, over the most frequent tokens without special ones. Centres are fitted on
    some sentences, then every token of the text is counted. Few tokens bias <i>I</i> upwards, so the estimate is
    <i>Î</i> = 2<i>Î<sub>N</sub></i> − mean of <i>Î<sub>N/2</sub></i> over two halves of the sentences, with entropies
    as in Chao, Wang and Jost (2013). An interval covers the choice of sentences, the spread over clusterings, and the
    bias that may remain: the difference from the estimate on half of the sentences or, if larger, the possible bias
    from unseen cells, estimated from how many were seen once and twice (Good 1953). <i>I</i> cannot exceed the entropy
    of the tokens.
    Compare only layers and models with the same number of clusters. After Voita, Sennrich and Titov (2019).</p>
    <p><b>Usable information</b> is <i>H</i>(<i>T</i>) minus the cross-entropy of a classifier of the token, fitted on
    one half of the sentences and scored on the other, and vice versa. Each token has a Gaussian, with one covariance
    for all; the means of rare tokens are shrunk towards the overall mean (Ioffe 2006), and with many occurrences the
    classifier is linear. Ridge, temperature and the share of token frequencies mixed in are chosen on an eighth of the
    fitted sentences. Usable information is a lower bound of the mutual information (Xu et al. 2020, Pimentel et al.
    2020), needs no clusters, and ignores what is independent of the token, such as the position. Intervals cover
    the choice of sentences and what more sentences would add.</p>
    """,
)

_HEIGHT = 200
_ESTIMATES = {"corrected": "value_by_size", "plug-in": "plug_in_by_size"}


class ConvergencePanel(NamedTuple):
    """Rows of one panel: one regime and side per model."""

    title: str
    rows: pd.DataFrame


def convergence_figure(sides: list[ConvergencePanel], models: ModelSelection) -> ReportFigure | None:
    """Change from the lowest layer to the top by number of tokens; None if no table has it."""
    known = [side for side in sides if len(side.rows) and "value_by_size" in side.rows]
    data = pd.concat([_changes(side) for side in known], ignore_index=True) if known else pd.DataFrame()
    if data.empty:
        return None
    series, most = models.present(data), int(data["tokens"].max())
    return ReportFigure(
        id="mi-convergence",
        question="Would more text change these numbers?",
        words=_words(data, series),
        panels=[Panel(spec=_chart(data[data["side"] == side.title], series), title=side.title) for side in known],
        caption=f"Estimated from a sixteenth, an eighth, a quarter, a half and all of the sentences ({most:,} tokens); "
        "means over parts of the same size and over seeds. Clusters are the same at every size.",
        how_to_read=[
            "Across: the number of tokens counted, doubled at each step. Up: how much more information the top layer "
            "has than the embeddings (below 0: how much less). A line that has become flat would not change with more "
            "text.",
            "Pale dotted lines are the plug-in estimate. It is biased when tokens are few, and more so in upper "
            "layers. Solid lines are corrected for this bias; all other figures and the findings use them. Dashed "
            "grey: untrained models of the same shape, corrected.",
            "In the figures of information by layer, a row of squares along the lower edge shows the same for each "
            "layer: a hollow square marks a value whose bias may exceed 0.03 nats.",
        ],
        method=INFORMATION_METHOD,
        data=data,
        tables=(MUTUAL_INFORMATION_TABLE.name,),
        findings=tuple(f"representations:V-{n}" for n in (1, 2, 3, 4, 5)),
    )


def _changes(side: ConvergencePanel) -> pd.DataFrame:
    """Information at the top minus that at the lowest layer: one row per model, size and estimate."""
    rows = []
    lines: Any = side.rows.groupby(["series", "trained"], sort=False)
    for (key, trained), own in lines:
        group = "trained" if trained else "untrained"
        top, bottom = (own[own["layer"] == layer] for layer in (own["layer"].max(), own["layer"].min()))
        tokens = _mean(top, "tokens_by_size")
        for estimate, column in _ESTIMATES.items():
            change = _mean(top, column) - _mean(bottom, column)
            rows += [
                {"series": key, "group": group, "side": side.title, "estimate": estimate, "tokens": n, "change": c}
                for n, c in zip(tokens.tolist(), change.tolist(), strict=True)
            ]
    return pd.DataFrame(rows)


def _mean(rows: pd.DataFrame, column: str) -> np.ndarray:
    return np.mean([np.asarray(each, dtype=float) for each in rows[column]], axis=0)


def _words(data: pd.DataFrame, series: list[Series]) -> str:
    """The largest change of a corrected difference when the text was last doubled."""
    trained = data[(data["group"] == "trained") & (data["estimate"] == "corrected")]
    moved = []
    for line in series:
        for side, own in trained[trained["series"] == line.key].groupby("side", sort=False):
            steps = np.abs(np.diff(own.sort_values("tokens")["change"].to_numpy()))
            of = f"in {line.label} ({str(side)[:1].lower()}{str(side)[1:]})"
            moved += [Candidate(of, plain(float(steps[-1])))] if len(steps) else []
    top = extreme(moved)
    if top is None:
        return ""
    size = number(top.candidate.estimate.value, 3)
    return sentence(
        f"doubling the text changes the difference between the top and the bottom layer by at most {size} nats, "
        f"{top.candidate.name}"
    )


def _chart(data: pd.DataFrame, series: list[Series]) -> dict[str, Any]:
    x = amount("x", "tokens", "tokens counted", type="log", nice=False, zero=None, ticks=4, format="~s")
    at = {"x": x, "y": amount("y", "change", "top minus bottom layer (nats)")}
    of_group = dict(iter(data.groupby("group")))
    trained, untrained = of_group["trained"], of_group.get("untrained", data.head(0))
    corrected, plug_in = (trained[trained["estimate"] == estimate] for estimate in _ESTIMATES)
    tooltip = tips("estimate:N", "tokens:Q||,.0f", "change:Q|top minus bottom|+.3f")
    return finished(
        [
            *control_lines(untrained[untrained["estimate"] == "corrected"], at, band=0),
            draw("line", plug_in, at, strokeWidth=1.4, strokeDash=[1, 3], color=color_of(series), opacity=lit(0.7)),
            *lines(corrected, at, looks_of(series), band=0, touch=0, tooltip=tooltip),
        ],
        _HEIGHT,
    )
