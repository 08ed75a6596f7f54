"""Where evidence enters, against where memory is read: lens curves with their halves and centres."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import sentence
from .._numbers import number
from .._shown_models import ShownModels
from ..adaptation._rows import of
from ..forms._chart import amount, color_of, finished, lit, shape_of, tips
from ..forms._lines import SHARE, control_lines, lines, looks_of
from ..forms._names import names_above
from ._methods import ENTERS
from ._rows import drawn, plain_arms, seeds_note, span

_PANELS = (
    ("gold", "held out", "evidence: right passage, facts held out"),
    ("none", "trained", "memory: no passage, trained facts"),
)
_HEIGHT = 250
_APART = 0.25  # states between two centres that are told apart in words


def depth_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for evidence and one for memory; None where no lens was read."""
    own = plain_arms(frame)
    own = own[(own["place"] == "mask") & (own["weight"] == -1)]
    lens = next((name for name in ("tuned", "logit") if name in set(own["lens"].astype(str))), "")
    curves = of(own, lens=lens, metric="probability")
    if curves.empty or not bool(curves["trained"].any()):
        return None
    data = drawn(curves, ["document", "facts", "layer"], models, SHARE)
    marks = _marks(own[own["lens"] == lens], models)
    panels, told = [], []
    ends = span(data, 0.0)
    for document, facts, title in _PANELS:
        rows, at = (of(each, document=document, facts=facts) for each in (data, marks))
        if len(rows):
            panels.append(Panel(spec=_chart(rows, at, models, ends), title=title))
            told += _sentences(at, title.split(":")[0], models)
    if not panels:
        return None
    return ReportFigure(
        id="evidence-depth",
        question="Where does evidence enter, and where is memory read?",
        words=_order(marks),
        answer=told or ["No line gains enough for a depth to be told."],
        panels=panels,
        caption=f"{seeds_note(data)} {lens.capitalize()} lens at the mask. Large marks: the centre of the gain, at the "
        f"height of the last state's half{_fewer(marks)}; dashed grey: untrained.",
        how_to_read=[
            "Across: states, 0 the embeddings. Up: the probability of the right object that the lens reads there. The "
            "large mark of a line is its centre: the mean state at which its probability arises.",
            "Facts held out are in no weight, so what rises in the first panel came from the passage; the second has "
            "none. It would be surprising if the closed book rose in the first.",
        ],
        method=ENTERS,
        data=data,
        tables=("knowledge_lens",),
        findings=("retrieval:R-23",),
        payload={"apart": True},
    )


def _marks(own: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Half and centre of each trained line, and over how many seeds they are means: where they are defined."""
    told = own[own["metric"].isin(["half", "centre"]) & own["trained"]]
    kept = told.dropna(subset="value")
    columns = ["series", "name", "document", "facts", "half", "centre", "defined", "seeds"]
    if kept.empty:
        return pd.DataFrame(columns=columns)
    means = kept.groupby(["series", "document", "facts", "metric"], sort=False)["value"].mean().unstack()
    line = ["series", "document", "facts"]
    counts = [rows.groupby(line, sort=False)["seed"].nunique() for rows in (kept, told)]
    table = means.reindex(columns=["half", "centre"])
    table = table.assign(**dict(zip(("defined", "seeds"), counts, strict=True))).reset_index()
    return table.assign(name=table["series"].map({one.key: one.label for one in models.series}))


def _chart(rows: pd.DataFrame, marks: pd.DataFrame, models: ShownModels, ends: list[float]) -> dict[str, Any]:
    trained, grey = rows[rows["trained"]], rows[~rows["trained"]]
    series = models.present(trained)
    layers = sorted({int(layer) for layer in rows["layer"]})
    x = alt.X(
        **amount("layer", "state (0 = embeddings)", [layers[0] - 0.15, layers[-1] + 0.15], values=layers, format="d")
    )
    at = {"x": x, "y": alt.Y(**amount("value", "probability of the answer", ends))}
    tooltip = tips("name:N|trained as", "layer:Q|state", "shown:N|probability")
    found = lines(trained, at, looks_of(series), size=26, touch=0, tooltip=tooltip)
    if len(marks):
        tops = trained.loc[trained.groupby("series")["layer"].idxmax()].set_index("series")["value"]
        placed = marks.assign(
            layer=marks["centre"], value=[float(tops.get(key, np.nan)) / 2 for key in marks["series"]]
        )
        told = tips("name:N|trained as", "centre:Q|centre|.2f", "half:Q|half|.2f")
        found.append(
            alt.Chart(placed).mark_point(size=190, filled=False, strokeWidth=2.6)
            .encode(**at, color=color_of(series), shape=shape_of(series), opacity=lit(), tooltip=told)
        )  # fmt: skip
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "untrained", "var(--control)")] if len(grey) else []
    return finished([*control_lines(grey.drop(columns="shown"), at), *found, names_above(names)], _HEIGHT)


def _order(marks: pd.DataFrame) -> str:
    """In which line evidence enters lowest and highest, and memory is read, by the centres."""
    said = []
    for document, facts, title in _PANELS:
        rows = of(marks, document=document, facts=facts).dropna(subset="centre").sort_values("centre")
        if len(rows) > 1 and rows["centre"].iloc[-1] - rows["centre"].iloc[0] >= _APART:
            verb = "evidence enters" if title.startswith("evidence") else "memory is read"
            said.append(f"{verb} lowest in {rows['name'].iloc[0]} and highest in {rows['name'].iloc[-1]}")
    return sentence("; ".join(said))


def _fewer(marks: pd.DataFrame) -> str:
    """That some marks are means over fewer seeds than there are."""
    fewer = bool((marks["defined"] < marks["seeds"]).any())
    return ", over the seeds in which it is defined (a gain of .05 or more)" if fewer else ""


def _seeds_of(row: dict[str, Any]) -> str:
    defined, seeds = int(row["defined"]), int(row["seeds"])
    return f", in {defined} of {seeds} seeds" if defined < seeds else ""


def _sentences(marks: pd.DataFrame, what: str, models: ShownModels) -> list[str]:
    verb = "enters" if what == "evidence" else "is read"
    return [
        f"In {row['name']} {what} {verb} around state {number(row['centre'], 1)} (half at {number(row['half'], 1)}"
        f"{_seeds_of(row)})."
        for row in marks.to_dict("records")
        if np.isfinite(row["centre"])
    ]
