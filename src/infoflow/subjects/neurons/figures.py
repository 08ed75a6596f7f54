"""Figures of feed-forward neurons: kinds by layer and over training, detectors and what they write, profiles."""

from collections.abc import Iterator

import pandas as pd

from infoflow.report._curves import first_seed, over_seeds, seed_bands
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, ReportFigure, Section, names_of
from infoflow.report._in_words import listed
from infoflow.report._layer_figure import HOW_BANDS, LayerFigure, moves
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import HEIGHT, amount, finished, tips
from infoflow.report.forms._lines import SHARE
from infoflow.report.forms._marks import channel, draw
from infoflow.report.forms._over_time import layer_color
from infoflow.report.forms._rows import cells, interval_dots, squares

from .measures import NEURON_EXAMPLES, NEURONS_BY_LAYER
from .measures._tables import DEAD, DETECTOR, DETECTORS, POSITIONAL, SUPPRESSING

_METHOD = Method(
    id="neurons",
    title="Kinds of neurons",
    text="""
    A neuron is a coordinate between the two matrices of a feed-forward layer; it is active where its nonlinearity is
    above 0. Dead: active at no token. Detector: active at 95% or more of the occurrences of at most five tokens (with
    ten occurrences each), which make up 95% or more of its activations. Positional: more than .05 nats of mutual
    information between activity and position, minus the bias of the estimate. Suppressing: the neuron's row of the
    second matrix, times its mean activation and the unembedding, lowers the mean logit of its triggers. Special tokens
    do not count. Intervals leave out one of eight groups of sentences at a time. After Voita et al. (2023).
    """,
)
_TITLES = {
    DEAD: "dead",
    DETECTOR: "detect up to five tokens",
    POSITIONAL: "follow position",
    SUPPRESSING: "detectors that suppress their triggers",
}
_KINDS = LayerFigure(
    id="neuron-kinds",
    question="How many neurons are dead, detect tokens or follow position?",
    table=NEURONS_BY_LAYER,
    axis={"y_title": "share of neurons", "x_title": "layer", "baseline_name": "control", "bounds": SHARE},
    noun="the share of neurons",
    wording=moves("the share"),
    how_to_read=(
        "Across: layers. Up: the share of a layer's feed-forward neurons; in the last panel, of its detectors.",
        f"{HOW_BANDS} Controls (dotted) are the chance that an average neuron never fires; the same activity with "
        "shuffled tokens; the same activity at the positions of other occurrences of the same token; and the share of "
        "all tokens whose logits the detectors lower.",
    ),
    method=_METHOD,
    claims=("neurons:N1", "neurons:N2", "neurons:N3", "neurons:N4"),
    panels="kind",
    titles=_TITLES,
    one_scale=False,
)
_SHOWN = 12
_PROFILES = 12
_ROW = 20


def _course(tables: ModelTables) -> Drawn | None:
    frame = tables.over_training(NEURONS_BY_LAYER.at_checkpoints)
    frame = None if frame is None else frame[frame["kind"] == DEAD]
    if frame is None or frame.empty:
        return None
    drawn = seed_bands(frame, ["series", "stack", "layer", "update"])
    panels, answer = [], []
    for series in tables.models.present(frame):
        for stack, own in drawn[drawn["series"] == series.key].groupby("stack"):
            title = series.label if len(set(drawn["stack"])) == 1 else f"{series.label}, {stack}"
            panels.append(Panel(spec=_over_time(own), title=title))
            answer.append(_death(title, own))
    return Drawn(
        data=drawn,
        panels=panels,
        answer=answer,
        caption=f"{over_seeds(int(drawn['seeds'].max()))}; {frame['update'].nunique()} checkpoints. Pale: the lowest "
        "layer.",
    )


def _over_time(own: pd.DataFrame) -> dict:
    scale = {"type": "symlog", "constant": max(1.0, float(own.loc[own["update"] > 0, "update"].min()))}
    x = channel("x", "update:Q", title="update", scale=scale, axis={"tickCount": 5, "format": "~s"})
    at = {"x": x, "y": amount("y", "value", "share of dead neurons", [0, max(0.01, 1.05 * own["value"].max())])}
    rows = own[["layer", "update", "value"]].round(5)
    look = {"color": layer_color(sorted(own["layer"].unique()))}
    tooltip = tips("layer:O|layer", "update:Q|update|,", "value:Q|dead|.4f")
    marks = [
        draw("line", rows, at, look, strokeWidth=2),
        draw("point", rows, at, look, filled=True, size=40, tooltip=tooltip),
    ]
    return finished(marks, HEIGHT)


def _death(title: str, own: pd.DataFrame) -> str:
    mean = own.groupby("update")["value"].mean()
    return (
        f"In {title}, {mean.iloc[0]:.1%} of all neurons are dead at update {mean.index[0]:,}, and {mean.iloc[-1]:.1%} "
        f"at update {mean.index[-1]:,}; most at update {mean.idxmax():,} ({mean.max():.1%})."
    )


def _examples(frame: pd.DataFrame, tables: ModelTables) -> Drawn | None:
    frame = first_seed(frame[frame["trained"]])
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = frame[frame["series"] == series.key]
        detects = own["kind"].isin(list(DETECTORS.values()))
        detectors, positional = own[detects], own[~detects]
        if len(detectors):
            panels.append(Panel(spec=_detectors(detectors), title=f"{series.label}: detectors"))
        if len(positional):
            panels.append(Panel(spec=_profiles(positional), title=f"{series.label}: positional neurons"))
        answer += _sentences(series, detectors, positional)
    if not panels:
        return None
    lists = ["replicates", "positions", "profile"]
    return Drawn(
        data=frame.drop(columns=lists),
        panels=panels,
        answer=answer,
        caption=f"{int(frame['count'].median()):,} tokens; one seed. At most {_SHOWN} detectors and {_PROFILES} "
        "positional neurons are drawn; the table has more.",
    )


def _detectors(own: pd.DataFrame) -> dict:
    """The most active detectors, one of each layer first."""
    own = own.sort_values("activity", ascending=False, kind="stable")
    order = own.groupby(["stack", "layer"]).cumcount().sort_values(kind="stable")
    rows = own.loc[order.index[:_SHOWN]].sort_values(["stack", "layer"], kind="stable")
    has_head = bool(rows["effect"].notna().all())
    label = [f"{layer}.{neuron} {named}" for layer, neuron, named in rows[["layer", "neuron", "triggers"]].to_numpy()]
    rows = rows.assign(label=label, value=rows["effect"] if has_head else rows["value"])
    rows = rows.assign(low=rows["value"], high=rows["value"]) if has_head else rows
    title = "logits that it adds to its triggers" if has_head else "share of activations on its triggers"
    tooltip = tips("label:N|neuron", "value:Q||.3f", "promoted:N", "suppressed:N", "sentence:N", "activity:Q||.3f")
    shown = rows[["label", "value", "low", "high", "promoted", "suppressed", "sentence", "activity"]]
    ends = {} if has_head else {"bounds": SHARE, "zero": False}
    return interval_dots(shown, {}, title=title, tooltip=tooltip, step=24, dim=False, **ends)


def _profiles(own: pd.DataFrame) -> dict:
    """A row of cells per neuron, by position."""
    best = own.nlargest(_PROFILES, "value").sort_values(["stack", "layer", "neuron"], kind="stable")
    rows = pd.DataFrame(
        [
            {"neuron": f"{one.layer}.{one.neuron} {one.kind}", "position": int(position), "share": share}
            for one in best.itertuples()
            for position, share in zip(one.positions, one.profile, strict=True)
        ]
    ).round(4)
    names, positions = list(dict.fromkeys(rows["neuron"])), sorted(set(rows["position"]))
    x = cells("x", "position", "position", positions, labelOverlap=True)
    place = {"x": x, "y": cells("y", "neuron", None, names)}
    tooltip = tips("neuron:N", "position:O", "share:Q|active|.3f")
    return finished(squares(rows, strength="share", text=None, tooltip=tooltip, **place), max(_ROW * len(names), 60))


def _sentences(series: Series, detectors: pd.DataFrame, positional: pd.DataFrame) -> Iterator[str]:
    if len(detectors):
        one = detectors.loc[detectors["activity"].idxmax()]
        yield (
            f"The most active detector of {series.label} is neuron {one['neuron']} of layer {one['layer']}: "
            f"{one['value']:.1%} ({one['low']:.1%} to {one['high']:.1%}) of its activations are on {one['triggers']}."
        )
        known = detectors.dropna(subset="effect")
        if len(known):
            away = int((known["effect"] < 0).sum())
            yield f"{away} of {len(known)} listed detectors lower the logits of their own triggers."
    if len(positional):
        one = positional.loc[positional["value"].idxmax()]
        kinds = [f"{number} {kind}" for kind, number in positional["kind"].value_counts().items()]
        yield (
            f"Neuron {one['neuron']} of layer {one['layer']} follows position most ({one['kind']}, {one['value']:.2f} "
            f"nats, {one['low']:.2f} to {one['high']:.2f}; {one['baseline']:.2f} through the token alone). Shapes of "
            f"the listed neurons: {listed(kinds)}."
        )


COURSE = DeclaredFigure(
    name="neurons/over-training",
    id="neurons-over-training",
    question="When do neurons die?",
    how_to_read=(
        "Across: updates. Up: the share of neurons that are active at no token of the corpus; one line per layer.",
        "A dead neuron can come back to life: its row in the first matrix stops changing, but its input still changes.",
    ),
    method=_METHOD,
    tables=(NEURONS_BY_LAYER.at_checkpoints,),
    draw=_course,
    findings=("neurons:N1",),
)
EXAMPLES = DeclaredFigure(
    name="neurons/examples",
    id="neuron-examples",
    question="What do single neurons detect, and what do they write?",
    how_to_read=(
        "Detectors: each row is a neuron (layer.neuron) with its triggers. Left of 0, it lowers the logits of the "
        "tokens that activate it. Its details list the tokens whose logits it raises and lowers most.",
        "Positional neurons: each row is a neuron. A cell is dark where the neuron is active at all tokens of a "
        "position. If a row has only the palest and the darkest cells, position alone decides whether it is active.",
    ),
    method=_METHOD,
    tables=(NEURON_EXAMPLES.name,),
    draw=_examples,
    findings=("neurons:N2", "neurons:N3"),
)
_SECTION = Section(
    id="neurons",
    title="What do single neurons do?",
    lead="Between two attention layers, each token passes through thousands of feed-forward neurons. Some never "
    "fire, some fire for one word, some for one range of positions.",
    names=names_of([COURSE, EXAMPLES]) | {_KINDS.id: "neurons/kinds"},
)


def neurons_section(tables: ModelTables) -> Section | None:
    """The section, or None if no neurons were measured."""
    models, figures = tables.models, list[ReportFigure | None]()
    frames = tables.some([NEURONS_BY_LAYER.name, NEURON_EXAMPLES.name])
    if (frame := frames.get(NEURONS_BY_LAYER.name)) is not None:
        shown = frame[frame["kind"].isin(list(_TITLES))]
        main, others = models.main(shown), models.others(shown)
        figures += [_KINDS.drawn(main, models.present(main))] if len(main) else []
        figures += [_KINDS.drawn(others, models.present(others)).of_decoder()] if len(others) else []
    figures.append(COURSE.of(tables))
    if (frame := frames.get(NEURON_EXAMPLES.name)) is not None:
        figures.append(EXAMPLES.of(frame, tables))
    return _SECTION.drawn_with(figures, models, frames.values())


SECTIONS = ((116, _SECTION, neurons_section),)
