"""Figures of patching: the map of heads, exact beside first order; states by position; faithfulness; one example."""

from typing import Any

import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount, color_if, finished, tips
from infoflow.report.forms._lines import LineKind, control_lines, lines, looks_of, names_above
from infoflow.report.forms._marks import span
from infoflow.report.forms._rows import cells, squares

from .measures import PATCHING_AGREEMENT, PATCHING_EFFECT, PATCHING_EXAMPLE, PATCHING_FAITHFULNESS
from .measures._effects import DENOISING, EXACT, GRADIENT, INTEGRATED
from .measures._parts import HEAD, INPUTS, RESIDUAL

_ROW, _LIMIT, _MOST = 20, 1.0, 0.5
_METHOD = Method(
    id="patching",
    title="Patching",
    text="""
    A pair is two inputs of equal length that differ in one thing. The metric <i>m</i> is the logit of the answer to the
    clean input less that of the wrong answer, or the log-probability of the answer if no wrong one is given. An exact
    effect runs the corrupted input with one part's value from the clean input (denoising), or the clean input with a
    value from the corrupted one (noising), and divides the change of <i>m</i> by the difference between the two inputs,
    both summed over pairs. A first-order effect multiplies the difference of the values by the gradient of <i>m</i>: at
    the input that is run, or averaged over points on the way between the embeddings of both inputs. The control takes
    the value from another input of the same length whose <i>m</i> is nearest to that of the input that is run.
    """,
)
_METHODS = (
    LineKind(key=EXACT, label="exact", dash=(1, 0), shape="circle", mark="●"),
    LineKind(key=INTEGRATED, label="integrated gradients", dash=(6, 3), shape="square", mark="■"),
    LineKind(key=GRADIENT, label="gradients", dash=(2, 3), shape="triangle-up", mark="▲"),
)


def _of(frame: pd.DataFrame, series: Series) -> pd.DataFrame:
    own = frame[frame["series"] == series.key]
    return own.reset_index(drop=True)


def _place(row: Any) -> str:
    kind = "cross-attention " if row["kind"] == "cross" else ""
    of_stack = "encoder " if row["stack"] == "encoder" else ""
    return f"{row['part']} {int(row['head'])} of {of_stack}{kind}layer {int(row['layer'])}"


def _interval(row: Any) -> str:
    return f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def _heads(frame: pd.DataFrame, tables: ModelTables) -> Drawn | None:
    frame = frame.loc[frame["part"].isin([HEAD, *INPUTS]) & (frame["direction"] == DENOISING)]
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = _of(frame, series)
        groups: Any = own.groupby(["part", "stack", "kind"], sort=False)
        for (part, stack, kind), part_rows in groups:
            for method in (EXACT, INTEGRATED, GRADIENT):
                name = f"{series.label}, {part}{' ' * (part == HEAD)}{'outputs' * (part == HEAD)}: {method}"
                where = f" ({stack} {kind})" if len(set(own["stack"])) > 1 or kind == "cross" else ""
                chart = _map(part_rows[part_rows["method"] == method], "head", _top(part_rows))
                panels.append(Panel(spec=chart, title=f"{name}{where}"))
        answer += _best(own, tables.get(PATCHING_AGREEMENT.name), series)
    if not panels:
        return None
    count = int(frame["count"].median())
    return Drawn(
        data=frame.drop(columns=["replicates"]),
        panels=panels,
        answer=answer,
        caption=f"{count:,} pairs; denoising. The strongest colour is the largest effect of any method.",
    )


def _top(rows: pd.DataFrame) -> float:
    return max(float(rows["value"].abs().max()), 1e-6)


def _best(own: pd.DataFrame, agreement: pd.DataFrame | None, series: Series) -> list[str]:
    exact = own[(own["method"] == EXACT) & (own["part"] == HEAD)]
    if exact.empty:
        return []
    best = exact.loc[exact["value"].idxmax()]
    said = [
        f"The head that carries most in {series.label} is {_place(best)}: its clean value alone restores "
        f"{_interval(best)} of the difference; with a value of another input of the same metric it is "
        f"{best['baseline']:.2f}."
    ]
    if agreement is not None:
        rows = agreement[(agreement["series"] == series.key) & (agreement["part"] == HEAD)]
        rows = rows[(rows["direction"] == DENOISING) & (rows["statistic"] == "spearman")].set_index("method")
        if {GRADIENT, INTEGRATED} <= {*rows.index}:
            one, other = rows.loc[INTEGRATED], rows.loc[GRADIENT]
            said.append(
                f"The rank correlation with exact effects is {_interval(one)} for integrated gradients and "
                f"{_interval(other)} for gradients."
            )
    return said


def _map(rows: pd.DataFrame, field: str, top: float, order: list | None = None) -> dict[str, Any]:
    layers = sorted((int(layer) for layer in rows["layer"].unique()), reverse=True)
    known = [name for name in ("low", "high", "baseline") if name in rows]
    shown = rows[["layer", field, "value", *known]].round(4).assign(size=rows["value"].abs().round(4))
    tooltip = tips("layer:O", f"{field}:N", *(f"{name}:Q|{name}|.3f" for name in ("value", *known)))
    x, y = cells("x", field, field, order), cells("y", "layer", "layer", layers)
    color = color_if("datum.value < 0", "var(--below)", "var(--above)")
    marks = squares(shown, x, y, "size", ends=(0.0, top), color=color, text=None, tooltip=tooltip)
    return finished(marks, max(_ROW * len(layers), 60))


def _states(frame: pd.DataFrame, tables: ModelTables) -> Drawn | None:
    frame = frame.loc[(frame["part"] == RESIDUAL) & (frame["method"] == EXACT) & (frame["direction"] == DENOISING)]
    if frame.empty:
        return None
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = _of(frame, series)
        for stack, rows in own.groupby("stack", sort=False):
            panels.append(Panel(spec=_by_position(rows, series), title=f"{series.label}, {stack}"))
        answer += _moves(own, series)
    return Drawn(
        data=frame.drop(columns=["replicates"]),
        panels=panels,
        answer=answer,
        caption=f"{int(frame['count'].median()):,} pairs; exact, denoising. Bands: 95% over pairs. Grey, dashed: the "
        "control, mean over positions.",
    )


_POSITION_LINES = tuple(
    LineKind(key=key, label=label, dash=dash, shape=shape, mark=mark)
    for (key, label), dash, shape, mark in zip(
        (("changed", "where the inputs differ"), ("after", "after it"), ("answer", "where the answer is predicted"),
         ("before", "before it")),
        ((1, 0), (2, 3), (6, 3), (9, 3, 2, 3)), ("circle", "triangle-up", "square", "diamond"), "●▲■◆", strict=True,
    )
)  # fmt: skip


def _by_position(rows: pd.DataFrame, series: Series) -> dict[str, Any]:
    rows = rows[["layer", "position", "value", "low", "high", "baseline"]].round(4).assign(seeds=1)
    known = [one for one in _POSITION_LINES if bool((rows["position"] == one.key).any())]
    top = span(rows["value"], [0.0, 1.0], margin=0.06)
    at = {"x": amount("x", "layer", "layer", tickMinStep=1), "y": amount("y", "value", "share of the difference", top)}
    rows = rows.assign(low=rows["low"].clip(*top), high=rows["high"].clip(*top))
    control = rows.groupby("layer", as_index=False)["baseline"].mean().rename(columns={"baseline": "value"})
    look = looks_of(known, "position", series.color)
    tooltip = tips("position:N", "layer:Q", "value:Q|share|.3f", "low:Q|low|.3f", "high:Q|high|.3f")
    layers = [
        *control_lines(control, at, band=0, by=""),
        *lines(rows, at, look, touch=0, size=22, tooltip=tooltip),
        names_above([*((one.mark, one.label, series.color) for one in known), ("┅", "control", "var(--control)")]),
    ]
    return finished(layers, 240)


def _moves(own: pd.DataFrame, series: Series) -> list[str]:
    """The layer at which the answer's position carries more than the changed one."""
    wide = own.pivot_table(index="layer", columns="position", values="value", aggfunc="sum")
    if not {"changed", "answer"} <= {*wide.columns}:
        return []
    crossed = wide.index[wide["answer"] > wide["changed"]]
    if not len(crossed):
        return []
    layer = int(crossed[0])
    rows = own[(own["layer"] == layer) & (own["position"] == "answer")]
    return [
        f"In {series.label}, state {layer} is the first that carries more where the answer is predicted "
        f"({_interval(rows.iloc[0])}) than where the inputs differ ({wide.loc[layer, 'changed']:.2f})."
    ]


def _faithfulness(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = _of(frame, series)
        panels.append(Panel(spec=_curve(own, series), title=series.label))
        reach = [_reached(own[own["ranking"] == one.key], one.label) for one in _METHODS]
        answer.append(f"{series.label}: {'; '.join(said for said in reach if said)}.")
    return Drawn(
        data=frame.drop(columns=["replicates"]),
        panels=panels,
        answer=answer,
        caption=f"Parts were ranked on half of the pairs and scored on the other {int(frame['count'].median()):,}. "
        "Bands: 95% over pairs. Grey, dashed: the mean of ten random orders.",
    )


def _reached(rows: pd.DataFrame, label: str) -> str:
    enough = rows[rows["value"] >= 0.8].sort_values("parts")
    if enough.empty:
        return ""
    first = enough.iloc[0]
    return (
        f"the best {int(first['parts'])} of {int(first['total'])} parts by {label} keep {_interval(first)} of the "
        f"difference, as many random ones {first['baseline']:.2f}"
    )


def _curve(own: pd.DataFrame, series: Series) -> dict[str, Any]:
    columns = ["ranking", "parts", "at", "value", "low", "high", "baseline", "seeds"]
    own = own.assign(seeds=1, at=own["parts"] + 1).loc[:, columns].round(4)
    top = span(own[["value", "baseline"]], [0.0, 1.0], margin=0.06)
    own = own.assign(low=own["low"].clip(*top), high=own["high"].clip(*top))
    known = [one for one in _METHODS if bool((own["ranking"] == one.key).any())]
    ticks = sorted(int(one) for one in own["at"].unique())
    shown = {"type": "log", "values": ticks[:: 1 + len(ticks) // 8], "labelExpr": "datum.value - 1"}
    at = {
        "x": amount("x", "at", "kept parts (log scale)", (1, max(ticks)), **shown),
        "y": amount("y", "value", "share of the difference", top),
    }
    random = own[own["ranking"] == EXACT][["at", "baseline"]].rename(columns={"baseline": "value"})
    tooltip = tips("ranking:N", "parts:Q", "value:Q|share|.3f", "low:Q|low|.3f", "high:Q|high|.3f")
    layers = [
        *control_lines(random, at, band=0, by=""),
        *lines(own, at, looks_of(known, "ranking", series.color), touch=0, size=24, tooltip=tooltip),
        names_above([*((one.mark, one.label, series.color) for one in known),
                     ("┅", "random parts", "var(--control)")]),
    ]  # fmt: skip
    return finished(layers, 240)


def _example(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    panels = []
    for series in tables.models.present(frame):
        own = _of(frame, series)
        for stack, rows in own.groupby("stack", sort=False):
            rows = rows.assign(word=rows.apply(_word, axis=1))
            order = rows.drop_duplicates("position").sort_values("position")["word"].tolist()
            title = series.label + (f", {stack}" if len(set(own["stack"])) > 1 else "")
            panels.append(Panel(spec=_map(rows, "word", _LIMIT, order), title=title))
    return Drawn(
        data=frame,
        panels=panels,
        caption="The pair whose difference is the median. Exact, denoising. Where the inputs differ, both tokens are "
        "shown: clean / corrupted. The strongest colour is the whole difference. A single pair has no interval.",
        words=_path(frame),
    )


def _path(frame: pd.DataFrame) -> str:
    """From which state on the position that predicts carries most of the difference."""
    first = frame.iloc[0]
    own = frame[(frame["series"] == first["series"]) & (frame["stack"] == frame["stack"].iloc[-1])]
    last = own[own["layer"] == own["layer"].max()]
    predicts = own[own["position"] == last.loc[last["value"].idxmax(), "position"]].sort_values("layer")
    weak = predicts[predicts["value"] < _MOST]
    start = int(weak["layer"].max()) + 1 if len(weak) else 0
    wrong = f" rather than “{first['wrong'].strip()}”" if str(first["wrong"]) else ""
    where = f"the position “{_word(predicts.iloc[0])}”"
    return (
        f"From state {start} of {int(own['layer'].max())} on, {where} alone restores more than half of the difference "
        f"that leads to “{first['answer'].strip()}”{wrong}."
    )


def _word(row: Any) -> str:
    token = row["token"] if row["token"] == row["corrupted"] else f"{row['token']} / {row['corrupted']}"
    return f"{int(row['position'])} {token}"


def _figure(id: str, question: str, read: str, draw: Any, *tables: str) -> DeclaredFigure:
    return DeclaredFigure(
        name=f"patching/{id}", id=f"patching-{id}", question=question, how_to_read=(read,), method=_METHOD,
        draw=draw, tables=tables,
    )  # fmt: skip


_FIGURES = (
    _figure(
        "example", "Where does the difference travel in one pair?",
        "Across: tokens. Up: states, from the embeddings to the last block. Blue: the clean value of this state "
        "restores the answer. The blue path leads from the token that differs to the one that predicts.",
        _example, PATCHING_EXAMPLE.name,
    ),
    _figure(
        "states", "Where does the difference lie, by layer?",
        "Each line is a group of positions: the share of the difference that comes back if the states there, in this "
        "layer, are those of the clean input. Where one line falls and another rises, attention moves the information.",
        _states, PATCHING_EFFECT.name,
    ),
    _figure(
        "heads", "Which heads carry the difference?",
        "Each square is a head. Blue: its clean value restores the answer; orange: it works against it. The first map "
        "runs the model once for each head; the others predict this from gradients, for all heads in one or a few "
        "runs. Where they differ, believe the first.",
        _heads, PATCHING_EFFECT.name, PATCHING_AGREEMENT.name,
    ),
    _figure(
        "faithfulness", "How many parts are enough?",
        "Only the best heads and feed-forward parts see the clean input; all others have their values of the corrupted "
        "one. The sooner a curve reaches 1, the better its ranking found the parts that matter.",
        _faithfulness, PATCHING_FAITHFULNESS.name,
    ),
)  # fmt: skip
_SECTION = Section(
    id="patching",
    title="Which parts carry the difference?",
    lead="Two inputs differ in one thing, and so do the answers. Each part of the model in turn gets its value from "
    "the other input.",
    names=names_of(_FIGURES),
)


def patching_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was patched."""
    figures = [figure.of(tables[figure.tables[0]], tables) for figure in _FIGURES if figure.tables[0] in tables]
    frames = [tables[figure.tables[0]] for figure in _FIGURES if figure.tables[0] in tables]
    return _SECTION.drawn_with(figures, tables.models, frames)


SECTIONS = ((120, _SECTION, patching_section),)
