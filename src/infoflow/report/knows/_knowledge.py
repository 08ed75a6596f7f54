"""What representations encode: information about the input and output tokens, and identity among neighbours."""

from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.representations import IDENTITY_NEIGHBOURS
from infoflow.representations import MUTUAL_INFORMATION as MUTUAL_INFORMATION_TABLE

from .._curves import samples_at
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import Candidate, extreme, sentence
from .._layer_figure import HOW_BANDS, LayerFigure, moves
from .._model_tables import ModelTables
from .._numbers import estimate_text, listed
from .._samples import Estimate
from .._series import Series, own_style
from .._shown_models import JOIN, ShownModels
from .._trends import Wording, change, trend_words
from ..forms._chart import CONTROL, NAME, amount, finished, lit, tips
from ..forms._lines import POSITIVE, SHARE, looks_of, whiskers
from ..forms._marks import draw
from ._convergence import MUTUAL_INFORMATION, ConvergencePanel, convergence_figure

_IDENTITY_METHOD = Method(
    id="identity-neighbours",
    title="Identity among neighbours",
    text="""
    For each occurrence, the share of its <i>k</i> nearest vectors (itself left out) that belong to the same token;
    chance is Σ <i>p</i>² over the pool. After Voita, Sennrich and Titov (2019).
    """,
)

_ABOUT = {"baseline_name": "shuffled labels", "bounds": POSITIVE}


def _ceiling(frame: pd.DataFrame) -> str:
    """The entropy of the labels, which no curve can exceed, and the underlying clustering."""
    trained = frame[frame["trained"]]
    low, high = float(trained["entropy"].min()), float(trained["entropy"].max())
    ceiling = f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
    types = f", the {int(trained['types'].median()):,} most frequent tokens" if "types" in trained else ""
    return f"Ceiling (entropy of the tokens): {ceiling} nats; {int(trained['clusters'].median()):,} clusters{types}."


_INPUT = LayerFigure(
    id="mi-input",
    question="How much do representations remember of their own input token?",
    table=MUTUAL_INFORMATION_TABLE,
    axis={"y_title": "mutual information with the input token (nats)", **_ABOUT},
    noun="information about the input token",
    wording=Wording("nats", what="of information about its input token"),
    caption=_ceiling,
    how_to_read=(
        "Across: layers, from the embeddings (0) to the top. Up: how many nats of the input token's identity can "
        "be read from its vector, after sorting vectors into clusters.",
        HOW_BANDS,
        "“Shuffled labels” is what is left of chance with as many clusters and tokens. It would be surprising if "
        "a causal LM kept its input to the top: it is trained to name the next token, not to repeat this one.",
    ),
    method=MUTUAL_INFORMATION,
    claims=("representations:V-1", "representations:V-2", "representations:V-3"),
)
_INPUT_OF_DECODER = replace(
    _INPUT,
    id="mi-input-decoder",
    question="How much do decoder states remember of the decoder's own input token?",
    claims=(),
)
_OUTPUT = LayerFigure(
    id="mi-output",
    question="How much do they know of the token they have to produce?",
    table=MUTUAL_INFORMATION_TABLE,
    axis={"y_title": "mutual information with the output token (nats)", **_ABOUT},
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
    axis={"y_title": "mutual information (nats)", **_ABOUT},
    noun="information",
    wording=Wording("nats", "rises by", "falls by", subject=lambda side: f"information about the {side.label}"),
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
    frames = tables.some((MUTUAL_INFORMATION_TABLE.name, IDENTITY_NEIGHBOURS.name))
    information, identity = frames.get(MUTUAL_INFORMATION_TABLE.name), frames.get(IDENTITY_NEIGHBOURS.name)
    figures = [] if information is None else _information_figures(information, models)
    if identity is not None and len(rows := models.main(identity)):
        figures.append(_IDENTITY.drawn(rows, models.present(rows)))
    return KNOWS.told_by(figures, models, frames.values())


def _information_figures(frame: pd.DataFrame, models: ShownModels) -> list[ReportFigure]:
    main, others = models.main(frame), models.others(frame)
    figures = []
    if len(rows := input_rows(main)):
        figures.append(_INPUT.drawn(rows, models.present(rows)))
    if len(rows := output_rows(main)):
        figures.append(_output_figure(rows, models))
    training = main[main["regime"] == "training"]
    figures += [_training_figure(training[training["series"] == s.key], s) for s in models.present(training)]
    if len(plane := _plane_rows(main)):
        figures.append(_plane_figure(main, plane, models))
    sides = [ConvergencePanel("About the input token", input_rows(main))]
    sides.append(ConvergencePanel("About the output token", output_rows(main)))
    if convergence := convergence_figure(sides, models):
        figures.append(convergence)
    if len(rows := input_rows(others)):
        figures.append(_INPUT_OF_DECODER.drawn(rows, models.present(rows)))
    return figures


def _of(frame: pd.DataFrame, regime: str, side: str) -> pd.DataFrame:
    return frame[(frame["regime"] == regime) & (frame["side"] == side)]


def input_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The input side, on uncorrupted text."""
    return _of(frame, "clean", "input")


def output_rows(main: pd.DataFrame) -> pd.DataFrame:
    """The output side; models that mask their input use their training regime, since otherwise output = input."""
    output = main[main["side"] == "output"]
    hidden = set(output.loc[output["regime"] == "training", "series"])
    return output[(output["regime"] == "training") == output["series"].isin(hidden)]


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
    variant = "" if owner.style is None else f"-{owner.style}"  # a variant shares the colour slot of its objective
    figure = _HIDDEN.drawn(
        by_side,
        lines,
        id=f"{_HIDDEN.id}-{owner.slot}{variant}",
        question=_HIDDEN.question.format(label=owner.label),
        words=trend_words(by_side, [replace(one, label=f"the {one.label}") for one in lines], _HIDDEN.noun, "about"),
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


def _plane_rows(main: pd.DataFrame) -> pd.DataFrame:
    """Both sides of the models that have both in one regime: one row per line and layer."""
    rows = []
    lines: Any = main.groupby(["series", "trained"], sort=False)
    for (key, trained), own in lines:
        output = output_rows(own)
        source = _of(own, str(output["regime"].iloc[0]), "input") if len(output) else output
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
    lost = change(_of(own, str(output["regime"].iloc[0]), "input"), series.key).negated()
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


def _plane_clause(main: pd.DataFrame, series: Series) -> str:
    """One line's loss about its input and gain about its output, or that neither is clear."""
    lost, gained = _trade(main, series)
    if lost.sign > 0 and gained.sign > 0:
        return (
            f"{series.label} gives up {estimate_text(lost, 'nats')} about its input and gains "
            f"{estimate_text(gained, 'nats')} about its output"
        )
    input_text, output_text = estimate_text(lost.negated(), "nats"), estimate_text(gained, "nats")
    return f"{series.label} shows no clear trade: its input changes by {input_text}, its output by {output_text}"


def _plane_figure(main: pd.DataFrame, plane: pd.DataFrame, models: ShownModels) -> ReportFigure:
    series = models.present(plane)
    return ReportFigure(
        id="mi-plane",
        question="Do they give up the input in exchange for the output?",
        answer=[f"From bottom to top, {'; '.join(_plane_clause(main, s) for s in series)}."],
        words=_plane_words(main, series),
        panels=[Panel(spec=_plane_chart(plane[plane["series"] == s.key], s), title=s.label) for s in series],
        caption=f"Points are layers, numbered; whiskers are 95% intervals in both directions; "
        f"{int(plane['count'].median()):,} occurrences behind each point. Each panel has its own scale.",
        how_to_read=[
            "Across: information about the input token. Up: information about the output token. A path that goes left "
            "and up trades one for the other.",
            "The grey path is the untrained model: it has nothing to trade, so it stays in one place.",
            "A masked LM is shown at hidden positions, as in training.",
        ],
        method=MUTUAL_INFORMATION,
        data=plane,
        tables=(MUTUAL_INFORMATION_TABLE.name,),
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
