"""The information plane: what layers lose about the input token, and what they gain about the output token."""

from typing import Any

import pandas as pd

from infoflow.representations import USABLE_INFORMATION

from .._curves import change, samples_at
from .._figure import Panel, ReportFigure
from .._in_words import Candidate, Estimate, estimate_text, extreme, listed, sentence
from .._model_selection import ModelSelection
from .._theme import Series
from ..forms._chart import CONTROL, NAME, amount, finished, lit, tips
from ..forms._lines import looks_of, whiskers
from ..forms._marks import draw
from ._convergence import INFORMATION_METHOD
from ._information_rows import LIMITED_BY, input_rows, limited, output_rows


def plane_figure(table: str, main: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """The plane of the rows of an information table; None if no model has both sides."""
    plane = _plane_rows(main)
    return _plane_figure(table, main, plane, models) if len(plane) else None


def _plane_rows(main: pd.DataFrame) -> pd.DataFrame:
    """Both sides of the models that have both in one regime: one row per line and layer."""
    rows = []
    lines: Any = main.groupby(["series", "trained"], sort=False)
    for (key, trained), own in lines:
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


def _plane_figure(table: str, main: pd.DataFrame, plane: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    series, usable = models.present(plane), table == USABLE_INFORMATION.name
    short = not usable and limited(main[main["side"] == "input"])
    source = f"Information in clusters{f'; that about the input is {LIMITED_BY}' if short else ''}"
    return ReportFigure(
        id="mi-plane",
        question="Do they give up the input in exchange for the output?",
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


def _plane_chart(plane: pd.DataFrame, series: Series) -> dict[str, Any]:
    x = amount("x", "input", "about the input token (nats)", padding=18)
    y = amount("y", "output", "about the output token (nats)", padding=18)
    at, look = {"x": x, "y": y}, looks_of([series])
    trained, untrained = (plane[plane["group"] == group] for group in ("trained", "untrained"))
    color, in_order = {"color": look.pop("color")}, {"order": "layer:Q"}
    tooltip = tips("layer:Q", "input:Q||.3f", "output:Q||.3f")
    shape, dash = {"shape": look["shape"]}, {"strokeDash": look["strokeDash"]}
    layers = [
        *whiskers(trained, at, color, {"x": ("input_low", "input_high"), "y": ("output_low", "output_high")}),
        draw("line", trained, at, color, dash, in_order, strokeWidth=2, opacity=lit()),
        draw("point", trained, at, color, shape, filled=True, size=50, opacity=lit(), tooltip=tooltip),
        draw("text", trained, at, dx=10, dy=-8, fontSize=11, color="var(--ink)", text="layer:Q", opacity=lit()),
    ]
    if len(untrained):
        points = {"color": "var(--control)", "size": 16}
        label = untrained[untrained["layer"] == untrained["layer"].max()].assign(text="untrained")
        layers.insert(0, draw("line", untrained, CONTROL, at, in_order, point=points))
        layers.insert(1, draw("text", label, NAME, at, dy=13, color="var(--soft)", text="text:N"))
    return finished(layers, 250)
