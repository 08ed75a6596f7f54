"""What representations encode: information about the input and output tokens, and identity among neighbours."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.representations import (
    IDENTITY_NEIGHBOURS,
    MUTUAL_INFORMATION_WITHOUT_POSITION,
    USABLE_INFORMATION,
    USABLE_INFORMATION_MLP,
)
from infoflow.representations import MUTUAL_INFORMATION as MUTUAL_INFORMATION_TABLE

from .._curves import Wording, trend_words
from .._figure import Method, ReportFigure, Section
from .._in_words import listed
from .._layer_figure import HOW_BANDS, LayerFigure, moves
from .._model_selection import JOIN, ModelSelection
from .._model_tables import ModelTables
from .._theme import Series, own_style
from ..forms._lines import POSITIVE, SHARE
from ._information import (
    INFORMATION_METHOD,
    LIMITED_BY,
    convergence_figure,
    input_rows,
    limited,
    output_rows,
    plane_figure,
)

_IDENTITY_METHOD = Method(
    id="identity-neighbours",
    title="Identity among neighbours",
    text="""
    For each occurrence, the share of its <i>k</i> nearest vectors (itself left out) that belong to the same token;
    chance is Σ <i>p</i>² over the pool. After Voita, Sennrich and Titov (2019).
    """,
)


def _by_clusters(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["table"] == MUTUAL_INFORMATION_TABLE.name]


def _ceiling(frame: pd.DataFrame) -> str:
    """The bound on all curves of clusters: the entropy of the labels, and the number of clusters."""
    trained = _by_clusters(frame[frame["trained"]])
    if trained.empty:
        return ""
    most, clusters = math.log(trained["clusters"].median()), int(trained["clusters"].median())
    types = f" of the {int(trained['types'].median()):,} most frequent tokens" if "types" in trained else ""
    ceiling = _span(trained["entropy"].clip(upper=most))
    return (
        f"Ceiling of the cluster estimate: {ceiling} nats, the smaller of the entropy{types} "
        f"({_span(trained['entropy'])} nats) and ln {clusters:,} for {clusters:,} clusters ({most:.2f} nats)."
    )


def _span(values: pd.Series) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def _shortfall(frame: pd.DataFrame) -> str:
    """How far clusters fall short of the tokens' entropy at layer 0; "" if they do not limit the estimate."""
    by_clusters = _by_clusters(frame)
    at_start = by_clusters[by_clusters["trained"] & (by_clusters["layer"] == 0)]
    values = at_start.groupby("series", sort=False)["value"].mean()
    if at_start.empty or not limited(by_clusters):
        return ""
    return (
        "Limited by its clusters: layer 0 determines its token, but the cluster estimate finds only "
        f"{_span(values)} of {_span(at_start['entropy'])} nats there."
    )


def _about_input(frame: pd.DataFrame) -> str:
    further = [note for name, note in _NOTES.items() if name in set(frame["table"])]
    return " ".join(filter(None, (_ceiling(frame), _shortfall(frame), *further)))


_USABLE = "usable information"
_ESTIMATES = {USABLE_INFORMATION.name: _USABLE, MUTUAL_INFORMATION_TABLE.name: "estimate by clusters"}
"""Tables of information, in the order of their panels."""
_FURTHER = {
    MUTUAL_INFORMATION_WITHOUT_POSITION.name: "estimate by clusters without position",
    USABLE_INFORMATION_MLP.name: "usable by a hidden layer",
}
"""Tables of information about the input token only, in the order of their panels."""
_NOTES = {
    MUTUAL_INFORMATION_WITHOUT_POSITION.name: "Without position: the mean vector at each position is subtracted first.",
    USABLE_INFORMATION_MLP.name: "A hidden layer reads what no linear reader can, but needs more tokens.",
}
_AXIS = {"baseline_name": "shuffled labels", "bounds": POSITIVE}
_HOW_ESTIMATED = (
    "Usable information is what a simple classifier reads from vectors of sentences it was not fitted on. The estimate "
    "by clusters, as published, sorts vectors into clusters and counts tokens in each. “Shuffled labels” shows what "
    "remains by chance."
)
_INPUT = LayerFigure(
    id="mi-input",
    question="How much do representations encode about the input token?",
    table=MUTUAL_INFORMATION_TABLE,
    axis={"y_title": "information about the input token (nats)", **_AXIS},
    noun="information about the input token",
    wording=Wording("nats", "rises by", "falls by"),
    caption=_about_input,
    known="entropy",
    known_name="entropy H(T)",
    how_to_read=(
        "Across: layers, from the embeddings (0) to the top. Up: how much information about the input token can be "
        "read from its vector, in nats. The horizontal line is the entropy of the tokens. Layer 0 has all of it, since "
        "embeddings determine their tokens.",
        HOW_BANDS,
        "A curve that starts below that line at layer 0 misses information, because there are too few clusters or "
        "because clusters separate positions, not tokens; a rise from there is an artefact of the clustering. It would "
        "be surprising if a causal LM kept its input to the top: it is trained to predict the next token.",
        _HOW_ESTIMATED,
    ),
    method=INFORMATION_METHOD,
    panels="estimate",
    one_scale=False,
    claims=("representations:V-1", "representations:V-2", "representations:V-3", "representations:V-18"),
)
_INPUT_OF_DECODER = replace(
    _INPUT,
    id="mi-input-decoder",
    question="How much do decoder states encode about the decoder's own input token?",
    claims=(),
)
_OUTPUT = replace(
    _INPUT,
    id="mi-output",
    question="How much do representations encode about the output token?",
    axis={"y_title": "information about the output token (nats)", **_AXIS},
    noun="information about the output token",
    caption=_ceiling,
    known="",
    how_to_read=(
        "Up: how much information about the token to predict can be read from the vector, in nats: the next token for "
        "a causal LM, the hidden one for a masked LM.",
        HOW_BANDS,
        "A rising line shows a prediction being built. It would be surprising if it rose in the first layers only.",
        _HOW_ESTIMATED,
    ),
    claims=("representations:V-4",),
)
_HIDDEN = replace(
    _OUTPUT,
    id="mi-training",
    question="What does {label} do with a token that is hidden from it, as in training?",
    axis={"y_title": "information (nats)", **_AXIS},
    noun="information",
    caption=lambda rows: "Only positions whose input was replaced by another token.",
    how_to_read=(
        "The input token is the one that replaced the original; the output token is the original, which the model must "
        "restore.",
        "Where the lines cross, the vector begins to say more about the original token than about the one that "
        "replaced it. " + HOW_BANDS,
        _HOW_ESTIMATED,
    ),
    claims=("representations:V-4", "representations:V-5"),
)


def _of_frequent(frame: pd.DataFrame) -> str:
    neighbours, metric = frame[["neighbours", "metric"]].iloc[0]
    required = "few" in frame and set(frame["few"]) == {"require"}
    pools = f", of tokens with more than {neighbours} sampled occurrences" if required else ""
    return f"{neighbours} neighbours by {metric} distance{pools}."


_IDENTITY = LayerFigure(
    id="identity",
    question="Are a vector's nearest neighbours still the same token?",
    table=IDENTITY_NEIGHBOURS,
    axis={
        "y_title": "share of the {neighbours} nearest neighbours with the same token",
        "baseline_name": "chance",
        "bounds": SHARE,
    },
    noun="the share of neighbours that are the same token",
    wording=moves("the share"),
    top="At the top layer this share is, in order",
    caption=_of_frequent,
    how_to_read=(
        "For each occurrence of a token, its nearest vectors among all other occurrences are looked up. Up: the share "
        "of these that belong to the same token. At 1, all nearest vectors belong to the same token.",
        HOW_BANDS,
        "“Chance” draws neighbours at random from the same pool.",
    ),
    method=_IDENTITY_METHOD,
    claims=("representations:V-13", "representations:V-17", "representations:V-18"),
)

KNOWS = Section(
    id="knows",
    claims=("representations",),
    short="Know",
    title="What do representations encode?",
    lead="Every layer rewrites each token's vector. What can still be read from it: the token that went in, or the "
    "token that has to come out?",
    names={
        "mi-input": "representations/mutual-information",
        "mi-output": "representations/next-token-information",
        "mi-training": "representations/hidden-token-information",
        "mi-plane": "representations/information-plane",
        "mi-convergence": "representations/information-convergence",
        "identity": "representations/identity-neighbours",
    },
    folded=("mi-convergence", "mi-input-decoder"),
)


def knowledge_section(tables: ModelTables) -> Section | None:
    """The section on what representations encode, or None if the run has none of its measures."""
    models = tables.models
    frames = tables.some((*_ESTIMATES, *_FURTHER, IDENTITY_NEIGHBOURS.name))
    main = {name: frames[name] for name in _ESTIMATES if name in frames}
    further = {name: frames[name] for name in _FURTHER if name in frames}
    figures = _information_figures(main, further, models)
    identity = frames.get(IDENTITY_NEIGHBOURS.name)
    if identity is not None and len(rows := models.main(identity)):
        figures.append(_IDENTITY.drawn(rows, models.present(rows)))
    figures.sort(key=lambda figure: figure.id in KNOWS.folded)
    return KNOWS.drawn_with(figures, models, frames.values())


def _information_figures(
    frames: Mapping[str, pd.DataFrame], further: Mapping[str, pd.DataFrame], models: ModelSelection
) -> list[ReportFigure]:
    main = [models.main(_named(name, frame)) for name, frame in frames.items()]
    of_input = [*main, *(models.main(_named(name, frame)) for name, frame in further.items())]
    others = [models.others(_named(name, frame)) for name, frame in frames.items()]
    figures = _drawn(_INPUT, _joined(input_rows, of_input), models)
    figures += _output_figures(_joined(output_rows, main), models)
    training = _joined(lambda rows: rows[rows["regime"] == "training"], main)
    figures += [_training_figure(rows, line) for line, rows in models.each(training)]
    if main and (plane := plane_figure(next(iter(frames)), main[0], models)):
        figures.append(plane)
    if MUTUAL_INFORMATION_TABLE.name in frames:
        sides = {"About the input token": input_rows(main[-1]), "About the output token": output_rows(main[-1])}
        figures += filter(None, [convergence_figure(sides, models)])
    return figures + _drawn(_INPUT_OF_DECODER, _joined(input_rows, others), models)


def _named(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The table's rows with a column `estimate` that names the estimate, and says whether clusters limit it."""
    short = name == MUTUAL_INFORMATION_TABLE.name and limited(frame[frame["side"] == "input"])
    return frame.assign(table=name, estimate=f"estimate {LIMITED_BY}" if short else (_ESTIMATES | _FURTHER)[name])


def _joined(of: Callable[[pd.DataFrame], pd.DataFrame], frames: list[pd.DataFrame]) -> pd.DataFrame:
    parts = [rows for frame in frames if len(rows := of(frame))]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["series"])


def _drawn(figure: LayerFigure, rows: pd.DataFrame, models: ModelSelection) -> list[ReportFigure]:
    """The figure with a panel for each estimate; nothing without rows."""
    series = models.present(rows)
    return [figure.drawn(rows, series, **_by_estimate(figure.noun, rows, series))] if series else []


def _by_estimate(noun: str, rows: pd.DataFrame, series: list[Series], of: str = "in") -> dict[str, Any]:
    """The sentence and the tables of a figure with a panel for each estimate."""
    parts = rows.groupby("estimate", sort=False)
    words = [
        trend_words(own, series, f"usable {noun}" if name == _USABLE else f"the {name}", of) for name, own in parts
    ]
    return {"words": " ".join(filter(None, words)), "tables": tuple(rows["table"].unique())}


def _output_figures(rows: pd.DataFrame, models: ModelSelection) -> list[ReportFigure]:
    figures = _drawn(_OUTPUT, rows, models)
    hidden = [line.label for line in models.present(*(rows[rows["regime"] == "training"] for _ in figures))]
    regime = f" Measured only at hidden positions, as in training: {listed(hidden)}." if hidden else ""
    return [replace(figure, caption=figure.caption + regime) for figure in figures]


def _training_figure(frame: pd.DataFrame, owner: Series) -> ReportFigure:
    """Both sides of one model, in its colour: both keys start with the model's, so hovering highlights both."""
    lines = [
        Series(
            key=f"{owner.key}{JOIN}{side}",
            label=f"{side} token",
            slot=owner.slot,
            style=own_style(owner.slot) + 3 * (side == "output"),
            solid=side == "output",
        )
        for side in ("input", "output")
        if side in set(frame["side"])
    ]
    by_side = frame.assign(series=f"{owner.key}{JOIN}" + frame["side"].astype(str))
    variant = "" if owner.style is None else f"-{owner.style}"  # a variant shares the colour slot of its objective
    figure = _HIDDEN.drawn(
        by_side,
        lines,
        id=f"{_HIDDEN.id}-{owner.slot}{variant}",
        question=_HIDDEN.question.format(label=owner.label),
        **_by_estimate(_HIDDEN.noun, by_side, [replace(one, label=f"the {one.label}") for one in lines], "for"),
    )
    first = figure.data[figure.data["estimate"] == figure.data["estimate"].iloc[0]]
    return replace(figure, answer=[*figure.answer, *_crossing(first, lines)])


def _crossing(table: pd.DataFrame, lines: list[Series]) -> list[str]:
    """The layer from which vectors carry more about the token to restore than about the inserted one."""
    if len(lines) < 2:
        return []
    trained = table[table["group"] == "trained"].pivot(index="layer", columns="series", values="value")
    ahead = trained[lines[1].key] > trained[lines[0].key]
    if not bool(ahead.iloc[-1]) or bool(ahead.all()):
        return []
    first = int(ahead.index[len(ahead) - ahead[::-1].cummin().sum()])
    return [f"From layer {first} on, vectors say more about the token to restore than about the one that replaced it."]
