"""What representations encode: information about the input and output tokens, and identity among neighbours."""

import math
from dataclasses import replace

import pandas as pd

from infoflow.representations import IDENTITY_NEIGHBOURS, USABLE_INFORMATION
from infoflow.representations import MUTUAL_INFORMATION as MUTUAL_INFORMATION_TABLE

from .._curves import Wording, trend_words
from .._figure import Method, ReportFigure, Section
from .._in_words import listed
from .._layer_figure import HOW_BANDS, LayerFigure, moves
from .._model_tables import ModelTables
from .._shown_models import JOIN, ShownModels
from .._theme import Series, own_style
from ..forms._lines import SHARE
from ._convergence import MUTUAL_INFORMATION, ConvergencePanel, convergence_figure
from ._information_rows import LIMITED_BY, input_rows, limited, output_rows, span
from ._plane import plane_figure
from ._usable import ABOUT, usable_figures

_IDENTITY_METHOD = Method(
    id="identity-neighbours",
    title="Identity among neighbours",
    text="""
    For each occurrence, the share of its <i>k</i> nearest vectors (itself left out) that belong to the same token;
    chance is Σ <i>p</i>² over the pool. After Voita, Sennrich and Titov (2019).
    """,
)


def _ceiling(frame: pd.DataFrame) -> str:
    """What no curve can exceed: the entropy of the labels, and the number of clusters."""
    trained = frame[frame["trained"]]
    most, clusters = math.log(trained["clusters"].median()), int(trained["clusters"].median())
    types = f" of the {int(trained['types'].median()):,} most frequent tokens" if "types" in trained else ""
    ceiling = span(trained["entropy"].clip(upper=most))
    return (
        f"Ceiling: {ceiling} nats, the smaller of the entropy{types}, {span(trained['entropy'])} nats, and ln "
        f"{clusters:,} = {most:.2f} nats for {clusters:,} clusters."
    )


def _shortfall(frame: pd.DataFrame) -> str:
    """What clusters miss of the tokens' entropy at layer 0 where they are limited, else nothing."""
    at_start = frame[frame["trained"] & (frame["layer"] == 0)]
    values = at_start.groupby("series", sort=False)["value"].mean()
    if at_start.empty or not limited(frame):
        return ""
    return (
        f"Limited by its clusters: layer 0 determines its token, but they show {span(values)} of "
        f"{span(at_start['entropy'])} nats there."
    )


def _input_of_clusters(frame: pd.DataFrame) -> str:
    return " ".join(filter(None, (_ceiling(frame), _shortfall(frame))))


_INPUT = LayerFigure(
    id="mi-input",
    question="How much of the input token do clusters of representations show?",
    table=MUTUAL_INFORMATION_TABLE,
    axis={"y_title": "mutual information with the input token (nats)", **ABOUT},
    noun="information about the input token",
    wording=Wording("nats", what="of information about its input token"),
    caption=_input_of_clusters,
    known="entropy",
    known_name="entropy H(T)",
    how_to_read=(
        "Across: layers, from the embeddings (0) to the top. Up: how many nats of the input token's identity can "
        "be read from its vector, after sorting vectors into clusters.",
        HOW_BANDS,
        "The line across is the entropy of the tokens, which layer 0 determines: what a curve misses of it there, too "
        "few clusters or the positions hide, and a rise from there is one of clusters.",
        "“Shuffled labels” is what is left of chance with as many clusters and tokens. It would be surprising if "
        "a causal LM kept its input to the top.",
    ),
    method=MUTUAL_INFORMATION,
    claims=("representations:V-1", "representations:V-2", "representations:V-3"),
)
_INPUT_OF_DECODER = replace(
    _INPUT,
    id="mi-input-decoder",
    question="How much of the decoder's own input token do clusters of its states show?",
    claims=(),
)
_OUTPUT = LayerFigure(
    id="mi-output",
    question="How much do they know of the token they have to produce?",
    table=MUTUAL_INFORMATION_TABLE,
    axis={"y_title": "mutual information with the output token (nats)", **ABOUT},
    noun="information about the output token",
    wording=Wording("nats", what="of information about its output token"),
    caption=_ceiling,
    how_to_read=(
        "Up: how many nats of the token to predict can be read from the vector: the next token for a causal LM, "
        "the hidden one for a masked LM.",
        HOW_BANDS,
        "A rising line is a prediction being built. It would be surprising if it rose in the first layers only.",
    ),
    method=MUTUAL_INFORMATION,
    claims=("representations:V-4",),
)
_HIDDEN = LayerFigure(
    id="mi-training",
    question="What does {label} do with a token that is hidden from it, as in training?",
    table=MUTUAL_INFORMATION_TABLE,
    axis={"y_title": "mutual information (nats)", **ABOUT},
    noun="information",
    wording=Wording("nats", "rises by", "falls by"),
    caption=lambda rows: "Only positions whose input was replaced by another token.",
    how_to_read=(
        "The input token is the wrong one that took the original's place; the output token is the original, which "
        "the model must restore.",
        "Where the lines cross, the vector stops saying what was put in and starts saying what should have been "
        "there. " + HOW_BANDS,
    ),
    method=MUTUAL_INFORMATION,
    claims=("representations:V-4", "representations:V-5"),
)


def _of_frequent(frame: pd.DataFrame) -> str:
    """Which tokens are used as queries."""
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
        "For each occurrence of a token, its nearest vectors in other places are looked up. Up: the share of these "
        "that belong to the same token. 1 means that a vector is still, first of all, this token.",
        HOW_BANDS,
        "“Chance” draws neighbours at random from the same pool.",
    ),
    method=_IDENTITY_METHOD,
    claims=("representations:V-13", "representations:V-17", "representations:V-18"),
)

KNOWS = Section(
    id="knows",
    title="What do representations know?",
    lead="Every layer rewrites each token's vector. What can still be read from it: the token that went in, or the "
    "token that has to come out?",
    names={
        "usable-input": "representations/usable-information",
        "mi-input": "representations/mutual-information",
        "mi-output": "representations/next-token-information",
        "mi-training": "representations/hidden-token-information",
        "mi-plane": "representations/information-plane",
        "mi-convergence": "representations/information-convergence",
        "identity": "representations/identity-neighbours",
    },
)


def knowledge_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run has none of its measures."""
    models = tables.models
    frames = tables.some((USABLE_INFORMATION.name, MUTUAL_INFORMATION_TABLE.name, IDENTITY_NEIGHBOURS.name))
    usable, information, identity = (
        frames.get(table.name) for table in (USABLE_INFORMATION, MUTUAL_INFORMATION_TABLE, IDENTITY_NEIGHBOURS)
    )
    figures = [] if usable is None else usable_figures(usable, models)
    plane = None if usable is None else plane_figure(USABLE_INFORMATION, models.main(usable), models)
    if information is not None:
        figures += _information_figures(information, plane, models)
    elif plane is not None:
        figures.append(plane)
    if identity is not None and len(rows := models.main(identity)):
        figures.append(_IDENTITY.drawn(rows, models.present(rows)))
    return KNOWS.told_by(figures, models, frames.values())


def _of_clusters(figure: LayerFigure, rows: pd.DataFrame) -> LayerFigure:
    """The figure, whose sentences say that clusters limit it where they do."""
    if not limited(rows):
        return figure
    what = f"{figure.wording.what}, {LIMITED_BY}"
    return replace(figure, noun=f"{figure.noun}, {LIMITED_BY},", wording=figure.wording._replace(what=what))


def _information_figures(frame: pd.DataFrame, plane: ReportFigure | None, models: ShownModels) -> list[ReportFigure]:
    """Figures of clusters; `plane` is that of usable information, if there is one."""
    main, others = models.main(frame), models.others(frame)
    figures = []
    if len(rows := input_rows(main)):
        figures.append(_of_clusters(_INPUT, rows).drawn(rows, models.present(rows)))
    if len(rows := output_rows(main)):
        figures.append(_output_figure(rows, models))
    training = main[main["regime"] == "training"]
    figures += [_training_figure(training[training["series"] == s.key], s) for s in models.present(training)]
    if (plane := plane or plane_figure(MUTUAL_INFORMATION_TABLE, main, models)) is not None:
        figures.append(plane)
    sides = [ConvergencePanel("About the input token", input_rows(main))]
    sides.append(ConvergencePanel("About the output token", output_rows(main)))
    if convergence := convergence_figure(sides, models):
        figures.append(convergence)
    if len(rows := input_rows(others)):
        figures.append(_of_clusters(_INPUT_OF_DECODER, rows).drawn(rows, models.present(rows)))
    return figures


def _output_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    series = models.present(frame)
    hidden = [s.label for s in series if (frame.loc[frame["series"] == s.key, "regime"] == "training").any()]
    figure = _OUTPUT.drawn(frame, series)
    regime = f" Hidden positions only for {listed(hidden)}, as in training." if hidden else ""
    return replace(figure, caption=figure.caption + regime)


def _training_figure(frame: pd.DataFrame, owner: Series) -> ReportFigure:
    """Both sides of one model, in its colour: both keys start with the model's, so they light up together."""
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
    note = f" ({LIMITED_BY})" if limited(frame[frame["side"] == "input"]) else ""
    named = [replace(one, label=f"the {one.label}{note if one.label == 'input token' else ''}") for one in lines]
    variant = "" if owner.style is None else f"-{owner.style}"  # a variant shares the colour slot of its objective
    labels = {one.key: one.label for one in named}
    wording = _HIDDEN.wording._replace(subject=lambda side: f"information about {labels[side.key]}")
    figure = replace(_HIDDEN, wording=wording).drawn(
        by_side,
        lines,
        id=f"{_HIDDEN.id}-{owner.slot}{variant}",
        question=_HIDDEN.question.format(label=owner.label),
        words=trend_words(by_side, named, _HIDDEN.noun, "about"),
    )
    return replace(figure, answer=[*figure.answer, *_crossing(figure.data, lines)])


def _crossing(table: pd.DataFrame, lines: list[Series]) -> list[str]:
    """The layer from which vectors carry more about the token to restore than about the inserted one."""
    if len(lines) < 2:
        return []
    trained = table[table["group"] == "trained"].pivot(index="layer", columns="series", values="value")
    ahead = trained[lines[1].key] > trained[lines[0].key]
    if not bool(ahead.iloc[-1]) or bool(ahead.all()):
        return []
    first = int(ahead.index[len(ahead) - ahead[::-1].cummin().sum()])
    return [f"From layer {first} on, vectors say more of the token to restore than of the one put in."]
