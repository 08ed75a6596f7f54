"""Lens curves with their centres: where retrieved content enters, and where facts are read from memory."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import amount, color_of, lit, shape_of, tips
from infoflow.report.forms._lines import SHARE, control_lines, named_lines
from infoflow.report.forms._marks import draw
from infoflow.subjects.adaptation.figures._rows import of

from ..measures import KNOWLEDGE_LENS
from ._rows import ENTERS, by_exposure, drawn, ends_of, plain_arms, seeds_note

_HEIGHT = 250
_CONTROL = "withheld"
_PANELS = (
    ("gold", "held out", "evidence: right passage, facts held out"),
    ("retrieved", "held out", "what is found: first passage found, facts held out"),
    ("none", "trained", "memory: no passage, trained facts"),
)
_VERBS = {"evidence": "enters", "what is found": "enters", "memory": "is read"}
_FURTHER = {
    False: "the second has none.",
    True: (
        "the second has the passage that the reader ranks first, which is the right one for some questions; the "
        "third has none. Evidence that the reader finds should enter at the depth of the first panel."
    ),
}
"""Reading guide for the panels after the first: True if readers search."""


def _depth(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    """One panel each for the right passage, for the passage that readers retrieve themselves, and for memory."""
    own = plain_arms(frame)
    own = own[(own["place"] == "mask") & (own["weight"] == -1)]
    lens = _lens_of(own)
    curves = of(own, lens=lens, metric="probability")
    if not bool(curves["trained"].any()):
        return None
    data = drawn(curves, ["document", "facts", "layer"], models, SHARE)
    marks = _marks_of(own[own["lens"] == lens], ["document", "facts"], models)
    panels, stated, ends = [], [], ends_of(data, 0.0)
    for document, facts, title in _PANELS:
        rows, at = (of(each, document=document, facts=facts) for each in (data, marks))
        if len(rows):
            panels.append(Panel(spec=_depth_chart(rows, at, models, ends), title=title))
            stated += _sentences(at, title.split(":")[0])
    if not panels:
        return None
    return Drawn(
        data=data,
        panels=panels,
        answer=stated or ["No line gains enough to determine a depth."],
        caption=f"{seeds_note(data)} {lens.capitalize()} lens at the mask. Large marks: the centre of the gain, at "
        f"half of the height of the last state{_fewer_seeds(marks)}; dashed grey: untrained.",
        facts={"further": _FURTHER["retrieved" in set(data["document"].astype(str))]},
    )


def _memory(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    """One panel per exposure, with withheld facts as the control."""
    own = of(plain_arms(frame), place="mask", document="none")
    lens = _lens_of(own)
    own = by_exposure(own[own["lens"] == lens])
    own = own[own["exposure"] != "held out"]
    marks = _marks_of(own[own["facts"] == "trained"], ["exposure", "place"], models).dropna(subset="centre")
    curves = own[own["metric"] == "probability"]
    if marks.empty or curves.empty:
        return None
    data = drawn(curves, ["exposure", "place", "layer"], models, SHARE).sort_values("place", kind="stable")
    ends = ends_of(data, 0.0)
    return Drawn(
        data=data,
        panels=[
            Panel(
                spec=_depth_chart(rows, of(marks, exposure=exposure), models, ends),
                title="withheld facts (control)" if exposure == _CONTROL else f"trained facts, {exposure}",
            )
            for exposure, rows in data.groupby("exposure", sort=False)
        ],
        answer=[_read(of(marks, series=one.key), one.label) for one in models.present(marks)],
        caption=f"{seeds_note(data)} {lens.capitalize()} lens at the mask, no passage. Large marks: the centre of what "
        f"is gained over a guess, at half of the last state's height{_fewer_seeds(marks)}; dashed grey: untrained.",
    )


def _lens_of(frame: pd.DataFrame) -> str:
    """Name of the lens to show, which is the tuned one if available."""
    return next((name for name in ("tuned", "logit") if name in set(frame["lens"].astype(str))), "")


def _marks_of(own: pd.DataFrame, by: list[str], models: ModelSelection) -> pd.DataFrame:
    """Half and centre of each trained line and value of `by`, with the number of seeds in which they are defined."""
    stated = own[own["metric"].isin(["half", "centre"]) & own["trained"]]
    kept = stated.dropna(subset="value")
    columns = ["series", "name", *by, "half", "centre", "defined", "seeds"]
    if kept.empty:
        return pd.DataFrame(columns=columns)
    line = ["series", *by]
    means = kept.groupby([*line, "metric"], sort=False)["value"].mean().unstack()
    counts = [rows.groupby(line, sort=False)["seed"].nunique() for rows in (kept, stated)]
    table = means.reindex(columns=["half", "centre"])
    table = table.assign(**dict(zip(("defined", "seeds"), counts, strict=True))).reset_index()
    return table.assign(name=table["series"].map({one.key: one.label for one in models.series}))


def _depth_chart(
    rows: pd.DataFrame, marks: pd.DataFrame, models: ModelSelection, ends: tuple[float, float]
) -> dict[str, Any]:
    """Probabilities over states, one line per reader, with a large mark at the line's centre, at half of its height."""
    trained, grey = rows[rows["trained"]], rows[~rows["trained"]].drop(columns="shown")
    series, layers = models.present(trained), sorted({int(layer) for layer in rows["layer"]})
    x = amount("x", "layer", "state (0 = embeddings)", [layers[0] - 0.15, layers[-1] + 0.15], values=layers, format="d")
    at = {"x": x, "y": amount("y", "value", "probability of the answer", ends)}
    large = []
    if len(marks):
        tops = trained.loc[trained.groupby("series")["layer"].idxmax()].set_index("series")["value"]
        halves = [float(tops.get(key, np.nan)) / 2 for key in marks["series"]]
        look = {"size": 190, "filled": False, "strokeWidth": 2.6, "opacity": lit()}
        look |= {"color": color_of(series), "shape": shape_of(series)}
        stated = tips("name:N|trained as", "centre:Q|centre|.2f", "half:Q|half|.2f")
        large = [draw("point", marks.assign(layer=marks["centre"], value=halves), at, look, tooltip=stated)]
    how = {"size": 26, "touch": 0, "tooltip": tips("name:N|trained as", "layer:Q|state", "shown:N|probability")}
    names = [("– –", "untrained", "var(--control)")] if len(grey) else []
    beneath = control_lines(grey, at)
    return named_lines(trained, at, series, _HEIGHT, beneath=beneath, above=large, names=names, **how)


def _fewer_seeds(marks: pd.DataFrame) -> str:
    """A note for the caption if some marks average over only some of the seeds."""
    fewer = bool((marks["defined"] < marks["seeds"]).any())
    return ", over the seeds in which it is defined (a gain of .05 or more)" if fewer else ""


def _place_text(row: dict[str, Any]) -> str:
    """`around state 2.2 (half at 2.0, in 2 of 3 seeds)` for one of the marks."""
    defined, seeds = int(row["defined"]), int(row["seeds"])
    some = f", in {defined} of {seeds} seeds" if defined < seeds else ""
    return f"around state {number(row['centre'], 1)} (half at {number(row['half'], 1)}{some})"


def _sentences(marks: pd.DataFrame, what: str) -> list[str]:
    return [
        f"In {row['name']}, {what} {_VERBS[what]} {_place_text(row)}."
        for row in marks.to_dict("records")
        if np.isfinite(row["centre"])
    ]


def _read(marks: pd.DataFrame, name: str) -> str:
    said = [
        f"facts asked {row['exposure']} are read {_place_text(row)}"
        for row in marks.sort_values("place").to_dict("records")
        if np.isfinite(row["centre"])
    ]
    return f"In {name}, {listed(said)}."


DEPTH = DeclaredFigure(
    name="retrieval/depth",
    id="evidence-depth",
    question="Where does evidence enter, and where is memory read?",
    how_to_read=(
        "Across: states, where 0 is the embeddings. Up: the probability of the right object that the lens reads "
        "there. The large mark of a line is its centre: the mean state at which the probability arises.",
        "No weights hold held-out facts, so whatever rises in the first panel came from the passage; {further} "
        "It would be surprising if the closed book rose in the first.",
    ),
    method=ENTERS,
    tables=(KNOWLEDGE_LENS.name,),
    findings=("retrieval:R-23",),
    payload={"apart": True},
    draw=_depth,
)
MEMORY = DeclaredFigure(
    name="retrieval/memory",
    id="memory-exposure",
    question="Are frequent facts recalled at a different depth than rare ones?",
    how_to_read=(
        "Across: states, where 0 is the embeddings. Up: the probability of the right object that the lens reads "
        "there, without a passage. One panel per exposure: 1× is the rarest trained facts. The large mark of a "
        "line is the mean state at which the probability arises.",
        "Withheld facts, the control, appear nowhere, so a line that rises for them is not memory. It would be "
        "surprising if rare facts were known better than frequent ones.",
    ),
    method=ENTERS,
    tables=(KNOWLEDGE_LENS.name,),
    findings=("retrieval:R-23",),
    payload={"apart": True},
    draw=_memory,
)
