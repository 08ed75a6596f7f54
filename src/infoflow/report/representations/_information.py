"""Information about input and output tokens: its rows, whether it has converged, and the plane of both."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from infoflow.representations import LIMITED, USABLE_INFORMATION
from infoflow.representations import MUTUAL_INFORMATION as MUTUAL_INFORMATION_TABLE

from .._curves import change, samples_at
from .._figure import Method, Panel, ReportFigure
from .._in_words import Candidate, Estimate, estimate_text, extreme, listed, number, plain, sentence
from .._model_selection import ModelSelection
from .._theme import Series
from ..forms._chart import CONTROL, NAME, amount, color_of, finished, lit, tips
from ..forms._lines import control_lines, lines, looks_of, whiskers
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
LIMITED_BY = "limited by its clusters"


def input_rows(frame: pd.DataFrame, regime: str = "clean") -> pd.DataFrame:
    """The rows about the input token, on uncorrupted text or in another regime."""
    return frame[(frame["regime"] == regime) & (frame["side"] == "input")]


def output_rows(main: pd.DataFrame) -> pd.DataFrame:
    """The rows about the output token; for models that mask input, as in training, since otherwise output = input."""
    output = main[main["side"] == "output"]
    hidden = set(output.loc[output["regime"] == "training", "series"])
    return output[(output["regime"] == "training") == output["series"].isin(hidden)]


def limited(frame: pd.DataFrame) -> bool:
    """Whether an estimate about the input misses the entropy of its tokens at layer 0, or exceeds its own value there.

    Layer 0 determines its token, so a value that is larger elsewhere cannot be the information itself.
    """
    trained = frame[frame["trained"]]
    start = trained[trained["layer"] == 0].groupby("series").agg(value=("value", "mean"), entropy=("entropy", "mean"))
    most = trained.groupby(["series", "layer"])["value"].mean().groupby("series").max()
    short = start["value"] < (1 - LIMITED) * start["entropy"]
    return bool((short | (most.reindex(start.index) > start["value"])).any())


def convergence_figure(sides: Mapping[str, pd.DataFrame], models: ModelSelection) -> ReportFigure | None:
    """Change from the lowest layer to the top by number of tokens; None if no table has it."""
    known = [side for side, rows in sides.items() if len(rows) and "value_by_size" in rows]
    if not known:
        return None
    data = pd.concat([_changes(side, sides[side]) for side in known], ignore_index=True)
    series, most = models.present(data), int(data["tokens"].max())
    return ReportFigure(
        id="mi-convergence",
        question="Would more text change these numbers?",
        words=_convergence_words(data, series),
        panels=[Panel(spec=_convergence_chart(data[data["side"] == side], series), title=side) for side in known],
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


def _changes(side: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Information at the top minus that at the lowest layer: one row per model, size and estimate."""
    found = []
    lines: Any = rows.groupby(["series", "trained"], sort=False)
    for (key, trained), own in lines:
        group = "trained" if trained else "untrained"
        top, bottom = (own[own["layer"] == layer] for layer in (own["layer"].max(), own["layer"].min()))
        tokens = _mean(top, "tokens_by_size")
        for estimate, column in _ESTIMATES.items():
            change = _mean(top, column) - _mean(bottom, column)
            found += [
                {"series": key, "group": group, "side": side, "estimate": estimate, "tokens": n, "change": c}
                for n, c in zip(tokens.tolist(), change.tolist(), strict=True)
            ]
    return pd.DataFrame(found)


def _mean(rows: pd.DataFrame, column: str) -> np.ndarray:
    return np.mean([np.asarray(each, dtype=float) for each in rows[column]], axis=0)


def _convergence_words(data: pd.DataFrame, series: list[Series]) -> str:
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


def _convergence_chart(data: pd.DataFrame, series: list[Series]) -> dict[str, Any]:
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


def plane_figure(table: str, main: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """The information plane drawn from an information table; None if no model has both sides."""
    plane = _plane_rows(main)
    if plane.empty:
        return None
    series, usable = models.present(plane), table == USABLE_INFORMATION.name
    short = not usable and limited(main[main["side"] == "input"])
    source = f"Information in clusters{f'; that about the input is {LIMITED_BY}' if short else ''}"
    return ReportFigure(
        id="mi-plane",
        question="Do models give up the input in exchange for the output?",
        words=_plane_words(main, series),
        panels=[Panel(spec=_plane_chart(plane[plane["series"] == s.key], s), title=s.label) for s in series],
        caption=f"{'Usable information' if usable else source}. Points are layers, numbered; "
        "whiskers are 95% intervals in both directions; "
        f"{int(plane['count'].median()):,} occurrences behind each point. Each panel has its own scale.",
        how_to_read=[
            "Across: information about the input token. Up: information about the output token. A path that goes left "
            "and up trades one for the other.",
            "The grey path is the untrained model: it has nothing to trade, so it stays in one place.",
            "A masked LM is shown at hidden positions, as in training.",
        ],
        method=INFORMATION_METHOD,
        data=plane,
        tables=(table,),
        findings=("representations:V-4", "representations:V-5"),
    )


def _plane_rows(main: pd.DataFrame) -> pd.DataFrame:
    """Both sides of the models that have both in one regime: one row per line and layer."""
    rows = []
    found: Any = main.groupby(["series", "trained"], sort=False)
    for (key, trained), own in found:
        output = output_rows(own)
        source = input_rows(own, str(output["regime"].iloc[0])) if len(output) else output
        for layer in sorted(set(output["layer"]) & set(source["layer"])):
            x = samples_at(source, key, layer, trained).estimate()
            y = samples_at(output, key, layer, trained).estimate()
            row: dict[str, Any] = {"series": key, "group": "trained" if trained else "untrained", "layer": int(layer)}
            row |= {"input": x.value, "input_low": x.low, "input_high": x.high}
            row |= {"output": y.value, "output_low": y.low, "output_high": y.high, "count": y.count}
            rows.append(row)
    return pd.DataFrame(rows)


def _trade(main: pd.DataFrame, series: Series) -> tuple[Estimate, Estimate]:
    """One line's loss of information about its input, and gain about its output, from bottom to top."""
    own = main[main["series"] == series.key]
    output = output_rows(own)
    lost = change(input_rows(own, str(output["regime"].iloc[0])), series.key).negated()
    return lost, change(output, series.key)


def _plane_words(main: pd.DataFrame, series: list[Series]) -> str:
    """The models with the largest trade of input for output, and those without a clear trade."""
    trades = {line.label: _trade(main, line) for line in series}
    clear = {label: both for label, both in trades.items() if both[0].sign > 0 and both[1].sign > 0}
    unclear = [label for label in trades if label not in clear]
    if not clear:
        return sentence(f"no clear trade of input for output is seen in {listed(unclear)}") if unclear else ""
    top = extreme([Candidate(f"in {label}", lost) for label, (lost, _) in clear.items()])
    assert top is not None
    gained = clear[top.candidate.name.removeprefix("in ")][1]
    said = (
        f"{estimate_text(top.candidate.estimate, 'nats')} about the input are given up for "
        f"{estimate_text(gained, 'nats')} about the output {top.candidate.name}"
    )
    if top.alike:
        said += f", and not clearly less {listed(list(top.alike))}"
    elif len(clear) > 1:
        said += ", more than elsewhere"
    return sentence(said + (f"; no clear trade is seen in {listed(unclear)}" if unclear else ""))


def _plane_chart(plane: pd.DataFrame, series: Series) -> dict[str, Any]:
    x = amount("x", "input", "about the input token (nats)", padding=18)
    y = amount("y", "output", "about the output token (nats)", padding=18)
    at, look = {"x": x, "y": y}, looks_of([series])
    trained, untrained = (plane[plane["group"] == group] for group in ("trained", "untrained"))
    color, in_order = {"color": look.pop("color")}, {"order": "layer:Q"}
    tooltip = tips("layer:Q", "input:Q||.3f", "output:Q||.3f")
    shape, dash = {"shape": look["shape"]}, {"strokeDash": look["strokeDash"]}
    label = untrained[untrained["layer"] == untrained["layer"].max()].assign(text="untrained")
    layers = [
        draw("line", untrained, CONTROL, at, in_order, point={"color": "var(--control)", "size": 16}),
        draw("text", label, NAME, at, dy=13, color="var(--soft)", text="text:N"),
        *whiskers(trained, at, color, {"x": ("input_low", "input_high"), "y": ("output_low", "output_high")}),
        draw("line", trained, at, color, dash, in_order, strokeWidth=2, opacity=lit()),
        draw("point", trained, at, color, shape, filled=True, size=50, opacity=lit(), tooltip=tooltip),
        draw("text", trained, at, dx=10, dy=-8, fontSize=11, color="var(--ink)", text="layer:Q", opacity=lit()),
    ]
    return finished(layers, 250)
