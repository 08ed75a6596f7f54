"""Figures of patching: one example, effects of states by position and of heads, and faithfulness."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, ReportFigure, Section, names_of
from infoflow.report._in_words import estimate_text
from infoflow.report._layer_figure import LayerFigure, moves
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount, finished, tips
from infoflow.report.forms._lines import ANY, LineKind, control_lines, lines, looks_of, names_above
from infoflow.report.forms._marks import span
from infoflow.report.forms._rows import cells, signed_squares
from infoflow.results import Samples

from .measures import PATCHING_AGREEMENT, PATCHING_EFFECT, PATCHING_EXAMPLE, PATCHING_FAITHFULNESS
from .measures._effects import DENOISING, EXACT, GRADIENT, INTEGRATED
from .measures._parts import HEAD, INPUTS, RESIDUAL

_ROW = 20
_METHOD = Method(
    id="patching",
    title="Patching",
    text="""
    A pair is two inputs of equal length that differ in one thing. The metric <i>m</i> is the logit of the answer to the
    clean input minus that of the wrong answer, or the log-probability of the answer if no wrong one is given. An exact
    effect runs the corrupted input with one part's value from the clean input (denoising), or the clean input with a
    value from the corrupted one (noising), and divides the change of <i>m</i> by the difference between the two inputs,
    both summed over pairs. A first-order effect multiplies the difference of the values by the gradient of <i>m</i>: at
    the input that is run, or averaged over points between the embeddings of both inputs. The control takes the value
    from another input of the same length whose <i>m</i> is nearest to that of the input that is run.
    """,
)
_METHODS = (
    LineKind(key=EXACT, label="exact", dash=(1, 0), shape="circle", mark="●"),
    LineKind(key=INTEGRATED, label="integrated gradients", dash=(6, 3), shape="square", mark="■"),
    LineKind(key=GRADIENT, label="gradients", dash=(2, 3), shape="triangle-up", mark="▲"),
)
_STATES = LayerFigure(
    id="patching-states",
    question="Where does the difference lie, by layer?",
    table=PATCHING_EFFECT,
    axis={"y_title": "share of the difference", "x_title": "layer", "baseline_name": "control", "bounds": ANY},
    noun="the share",
    wording=moves("the share of the difference"),
    how_to_read=(
        "Across: layers. Up: the share of the difference that comes back if the states at these positions, in this "
        "layer, are those of the clean input. Where one line falls and another rises, attention moves the information.",
        "Bands: 95% intervals over pairs. Dotted: states of another input with the same metric.",
    ),
    method=_METHOD,
    caption=lambda rows: f"{int(rows['count'].median()):,} pairs; exact, denoising.",
    panels="position",
    titles={
        "changed": "tokens that differ", "after": "tokens after them", "answer": "predicting token",
        "before": "tokens before them",
    },
)  # fmt: skip


def _each(frame: pd.DataFrame, tables: ModelTables) -> Iterator[tuple[Series, pd.DataFrame]]:
    for series in tables.models.present(frame):
        yield series, frame.loc[frame["series"] == series.key]


def _groups(frame: pd.DataFrame, *columns: str) -> Any:
    return frame.groupby(list(columns), sort=False)


def _interval(row: Any) -> str:
    return estimate_text(Samples.of_row(dict(row)).estimate())


def _heads(frame: pd.DataFrame, tables: ModelTables) -> Drawn | None:
    frame = frame.loc[frame["part"].isin([HEAD, *INPUTS]) & (frame["direction"] == DENOISING)]
    panels, answer = [], []
    for series, own in _each(frame, tables):
        for (part, stack, kind), rows in _groups(own, "part", "stack", "kind"):
            where = f" of {stack} {kind}" if len(set(own["stack"])) > 1 or kind == "cross" else ""
            top = max(float(rows["value"].abs().max()), 1e-6)
            for method in _METHODS:
                chart = _map(rows.loc[rows["method"] == method.key], "head", top)
                panels.append(Panel(spec=chart, title=f"{series.label}, {part}{where}: {method.label}"))
        answer += _best(series, own, tables.get(PATCHING_AGREEMENT.name))
    if not panels:
        return None
    caption = (
        f"{int(frame['count'].median()):,} pairs; denoising. The strongest colour is the largest effect of any method."
    )
    return Drawn(frame.drop(columns=["replicates"]), panels, caption, answer)


def _best(series: Series, own: pd.DataFrame, agreement: pd.DataFrame | None) -> Iterator[str]:
    exact = own.loc[(own["method"] == EXACT) & (own["part"] == HEAD)]
    if exact.empty:
        return
    best: Any = exact.loc[exact["value"].idxmax()]
    stack = f"{best['stack']} " * (best["stack"] == "encoder") + "cross-attention " * (best["kind"] == "cross")
    yield (
        f"The head that carries most in {series.label} is head {best['head']} of {stack}layer {best['layer']}: its "
        f"clean value alone restores {_interval(best)} of the difference; a value from another input of the same "
        f"metric restores {best['baseline']:.2f}."
    )
    if agreement is None:
        return
    chosen = {"series": series.key, "part": HEAD, "direction": DENOISING, "statistic": "spearman"}
    known = (agreement[list(chosen)] == pd.Series(chosen)).all(axis=1)
    if rows := {row["method"]: row for row in agreement[known].to_dict("records")}:
        yield (
            f"The rank correlation with exact effects is {_interval(rows[INTEGRATED])} for integrated gradients and "
            f"{_interval(rows[GRADIENT])} for gradients."
        )


def _map(rows: pd.DataFrame, field: str, top: float, order: list | None = None) -> dict[str, Any]:
    layers = sorted({int(layer) for layer in rows["layer"]}, reverse=True)
    known = [name for name in ("low", "high", "baseline") if name in rows]
    shown = rows[["layer", field, "value", *known]].round(4)
    tooltip = tips("layer:O", f"{field}:N", *(f"{name}:Q|{name}|.3f" for name in ("value", *known)))
    x, y = cells("x", field, field, order, labelOverlap=order is None), cells("y", "layer", "layer", layers)
    marks = signed_squares(shown, x, y, "value", (-top, top), text=None, tooltip=tooltip)
    return finished(marks, max(_ROW * len(layers), 60))


def _faithfulness(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    panels, answer = [], []
    for series, own in _each(frame, tables):
        own = own[own["ranking"].isin([one.key for one in _METHODS])]
        panels.append(Panel(spec=_curve(own, series), title=series.label))
        reach = [_reached(own[own["ranking"] == one.key], one.label) for one in _METHODS]
        answer.append(f"{series.label}: {'; '.join(filter(None, reach)) or 'no number of parts keeps 0.8'}.")
    caption = (
        f"Parts were ranked on half of the pairs and scored on the other {int(frame['count'].median()):,}. Bands: 95% "
        "intervals over pairs. Grey, dashed: the mean of ten random orders."
    )
    return Drawn(frame.drop(columns=["replicates"]), panels, caption, answer)


def _reached(rows: pd.DataFrame, label: str) -> str:
    """The fewest parts that keep four fifths of the difference."""
    enough = rows[rows["value"] >= 0.8].sort_values("parts").to_dict("records")
    if not enough:
        return ""
    return (
        f"the best {enough[0]['parts']} of {enough[0]['total']} parts by {label} keep {_interval(enough[0])} of the "
        f"difference, while as many random parts keep {enough[0]['baseline']:.2f}"
    )


def _curve(own: pd.DataFrame, series: Series) -> dict[str, Any]:
    top = span(own[["value", "baseline"]], [0.0, 1.0], margin=0.06)
    own = own.assign(seeds=1, at=own["parts"] + 1, low=own["low"].clip(*top), high=own["high"].clip(*top))
    own = own.loc[:, ["ranking", "parts", "at", "value", "low", "high", "baseline", "seeds"]].round(4)
    ticks = sorted({int(one) for one in own["at"]})
    shown = {"type": "log", "values": ticks[:: 1 + len(ticks) // 8], "labelExpr": "datum.value - 1"}
    x = amount("x", "at", "kept parts (log scale)", (1, max(ticks)), **shown)
    at = {"x": x, "y": amount("y", "value", "share of the difference", top)}
    random = own.loc[own["ranking"] == EXACT, ["at", "baseline"]].rename(columns={"baseline": "value"})
    tooltip = tips("ranking:N", "parts:Q", "value:Q|share|.3f", "low:Q|low|.3f", "high:Q|high|.3f")
    names = [*((one.mark, one.label, series.color) for one in _METHODS), ("┅", "random parts", "var(--control)")]
    drawn = lines(own, at, looks_of(_METHODS, "ranking", series.color), touch=0, size=24, tooltip=tooltip)
    return finished([*control_lines(random, at, band=0, by=""), *drawn, names_above(names)], 240)


def _example(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    panels, words = [], []
    for series, own in _each(frame.assign(word=frame.apply(_word, axis=1)), tables):
        for stack, rows in own.groupby("stack", sort=False):
            order = rows.drop_duplicates("position").sort_values("position")["word"].tolist()
            title = series.label + (f", {stack}" if len(set(own["stack"])) > 1 else "")
            panels.append(Panel(spec=_map(rows, "word", 1.0, order), title=title))
        words.append(_path(own))
    caption = (
        "The pair whose difference is the median. Exact, denoising. Where the inputs differ, both tokens are shown: "
        "clean / corrupted. The strongest colour is the whole difference. A single pair has no interval."
    )
    return Drawn(frame, panels, caption, words=words[0])


def _path(own: pd.DataFrame) -> str:
    """The first state from which the predicting position carries most of the difference."""
    own = own.loc[own["stack"] == own["stack"].iloc[-1]]
    last: Any = own.loc[own.loc[own["layer"] == own["layer"].max(), "value"].idxmax()]
    weak = own.loc[(own["position"] == last["position"]) & (own["value"] < 0.5), "layer"]
    start = max((int(layer) + 1 for layer in weak), default=0)
    wrong = f" rather than “{last['wrong'].strip()}”" if str(last["wrong"]) else ""
    return (
        f"From state {start} of {last['layer']} on, the position “{last['word']}” alone restores more than half of the "
        f"difference that leads to “{last['answer'].strip()}”{wrong}."
    )


def _word(row: Any) -> str:
    return f"{row['position']} {row['token']}" + f" / {row['corrupted']}" * (row["token"] != row["corrupted"])


def _figure(id: str, question: str, read: str, draw: Any, *tables: str, claims: tuple[str, ...] = ()) -> DeclaredFigure:
    return DeclaredFigure(
        name=f"patching/{id}", id=f"patching-{id}", question=question, how_to_read=(read,), method=_METHOD,
        draw=draw, tables=tables, findings=claims,
    )  # fmt: skip


_FIGURES = (
    _figure(
        "example", "Where does the difference travel in one pair?",
        "Across: tokens. Up: states, from the embeddings to the last block. Blue: the clean value of this state "
        "restores the answer. The blue path leads from the token that differs to the token that predicts.",
        _example, PATCHING_EXAMPLE.name,
    ),
    _figure(
        "heads", "Which heads carry the difference?",
        "Each square is a head. Blue: its clean value restores the answer; orange: it works against it. The first map "
        "runs the model once for each head; the others predict this from gradients, for all heads in one or a few "
        "runs. Where they differ, believe the first.",
        _heads, PATCHING_EFFECT.name, PATCHING_AGREEMENT.name, claims=("patching:P1",),
    ),
    _figure(
        "faithfulness", "How many parts are enough?",
        "Only the best heads and feed-forward parts see the clean input; all others keep their values from the "
        "corrupted input. The sooner a curve reaches 1, the better its ranking found the parts that matter.",
        _faithfulness, PATCHING_FAITHFULNESS.name, claims=("patching:P2", "patching:P3"),
    ),
)  # fmt: skip
_SECTION = Section(
    id="patching",
    title="Which parts carry the difference?",
    lead="Two inputs differ in one thing, and so do the answers. Each part of the model in turn gets its value from "
    "the other input.",
    names=names_of(_FIGURES) | {_STATES.id: "patching/states"},
)


def _states(frame: pd.DataFrame, tables: ModelTables) -> Iterator[ReportFigure]:
    rows = frame[(frame["part"] == RESIDUAL) & (frame["method"] == EXACT) & (frame["direction"] == DENOISING)]
    for stack, own in rows.groupby("stack", sort=False):
        other = {"id": f"{_STATES.id}-{stack}", "question": f"{_STATES.question.removesuffix('?')}, in the {stack}?"}
        how = other if len(set(rows["stack"])) > 1 else {}
        moved = own[own.groupby("position")["value"].transform(lambda values: values.abs().max()) > 1e-3]
        if len(moved):
            said = [text for series, of_model in _each(own, tables) if (text := _moves(series, of_model))]
            yield _STATES.drawn(moved, tables.models.present(own), **how, answer=said, words="")


def _moves(series: Series, own: pd.DataFrame) -> str:
    """The first state whose effect is larger at the predicting position than where the inputs differ."""
    changed, answer = (own[own["position"] == one].set_index("layer") for one in ("changed", "answer"))
    more = [layer for layer in answer.index.intersection(changed.index)
            if answer.loc[layer, "value"] > changed.loc[layer, "value"]]  # fmt: skip
    if not more:
        return ""
    return (
        f"In {series.label}, state {more[0]} is the first in which the predicting token carries more "
        f"({_interval(answer.loc[more[0]])}) than the tokens that differ ({_interval(changed.loc[more[0]])})."
    )


def patching_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was patched."""
    frames = tables.some(figure.tables[0] for figure in _FIGURES)
    figures = [figure.of(frames[figure.tables[0]], tables) for figure in _FIGURES if figure.tables[0] in frames]
    states = _states(frames[PATCHING_EFFECT.name], tables) if PATCHING_EFFECT.name in frames else ()
    return _SECTION.drawn_with([*figures[:1], *states, *figures[1:]], tables.models, frames.values())


SECTIONS = ((120, _SECTION, patching_section),)
