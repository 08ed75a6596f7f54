"""What representations know: information about the input and the output token, and identity among neighbours."""

from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from .._curves import curves, interval_note, samples_at
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import Candidate, extreme, sentence
from .._model_tables import ModelTables
from .._numbers import estimate_text, listed
from .._samples import Estimate
from .._series import Series, own_style
from .._shown_models import JOIN, ShownModels
from .._trends import Wording, change, order_sentence, trend_sentences, trend_words
from ..forms._chart import CONTROL, NAME, amount, finished, lit, tips, with_field
from ..forms._layer_chart import LayerChart
from ..forms._lines import POSITIVE, SHARE, looks_of
from ._convergence import MUTUAL_INFORMATION, ConvergencePanel, convergence_figure, with_convergence

_IDENTITY = Method(
    id="identity-neighbours",
    title="Identity among neighbours",
    text="""
    For each occurrence, the share of its <i>k</i> nearest vectors (itself left out) that belong to the same token;
    chance is Σ <i>p</i>² over the pool. After Voita, Sennrich and Titov (2019).
    """,
)

_HOW_BANDS = (
    "A band is a 95% interval: where two bands lie apart, the difference is not noise. "
    "The dashed grey line is a model of the same shape that was never trained."
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
    """The section, or None where the run measured nothing that belongs here."""
    models, frames = tables.models, tables.some(("mutual_information", "identity_neighbours"))
    figures = _information_figures(frames["mutual_information"], models) if "mutual_information" in frames else []
    if "identity_neighbours" in frames:
        figures.append(_identity_figure(models.main(frames["identity_neighbours"]), models))
    return KNOWS.told_by(figures, models, frames.values())


def _information_figures(frame: pd.DataFrame, models: ShownModels) -> list[ReportFigure]:
    main, others = models.main(frame), models.others(frame)
    figures = []
    if len(rows := input_rows(main)):
        figures.append(_input_figure(rows, models))
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
        question = "How much do decoder states remember of the decoder's own input token?"
        figures.append(replace(_input_figure(rows, models), id="mi-input-decoder", question=question, findings=()))
    return figures


def _information_chart(table: pd.DataFrame, lines: list[Series], title: str) -> LayerChart:
    return LayerChart(table=table, series=lines, y_title=title, baseline_name="shuffled labels", bounds=POSITIVE)


def _of(frame: pd.DataFrame, regime: str, side: str) -> pd.DataFrame:
    return frame[(frame["regime"] == regime) & (frame["side"] == side)]


def input_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The input side, of text as it is."""
    return _of(frame, "clean", "input")


def _input_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    table, series = with_convergence(curves(frame), frame), models.present(frame)
    chart = _information_chart(table, series, "mutual information with the input token (nats)")
    return ReportFigure(
        id="mi-input",
        question="How much do representations remember of their own input token?",
        answer=trend_sentences(frame, series, Wording("nats", what="of information about its input token")),
        words=trend_words(frame, series, "information about the input token"),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} {_ceiling(frame)}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the top. Up: how many nats of the input token's identity can "
            "be read from its vector, after sorting vectors into clusters.",
            _HOW_BANDS,
            "“Shuffled labels” is what is left of chance with as many clusters and tokens. It would be surprising if "
            "a causal LM kept its input to the top: it is trained to name the next token, not to repeat this one.",
        ],
        method=MUTUAL_INFORMATION,
        data=table,
        tables=("mutual_information",),
        findings=tuple(f"representations:V-{n}" for n in (1, 2, 3)),
    )


def output_rows(main: pd.DataFrame) -> pd.DataFrame:
    """The output side; a model that hides its input counts in its training regime, since otherwise output = input."""
    output = main[main["side"] == "output"]
    hidden = set(output.loc[output["regime"] == "training", "series"])
    return output[(output["regime"] == "training") == output["series"].isin(hidden)]


def _output_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    table, series = with_convergence(curves(frame), frame), models.present(frame)
    chart = _information_chart(table, series, "mutual information with the output token (nats)")
    hidden = [s.label for s in series if (frame.loc[frame["series"] == s.key, "regime"] == "training").any()]
    regime = f" Hidden positions only for {listed(hidden)}, as in training." if hidden else ""
    return ReportFigure(
        id="mi-output",
        question="How much do they know of the token they have to produce?",
        answer=trend_sentences(frame, series, Wording("nats", what="of information about its output token")),
        words=trend_words(frame, series, "information about the output token"),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} {_ceiling(frame)}{regime}",
        how_to_read=[
            "Up: how many nats of the token to predict can be read from the vector: the next token for a causal LM, "
            "the hidden one for a masked LM.",
            _HOW_BANDS,
            "A rising line is a prediction being built. It would be surprising if it rose in the first layers only.",
        ],
        method=MUTUAL_INFORMATION,
        data=table,
        tables=("mutual_information",),
        findings=("representations:V-4",),
    )


def _training_figure(frame: pd.DataFrame, owner: Series) -> ReportFigure:
    """Both sides of one model, in its colour: the key of a side starts with the model's, so both light up together."""
    sides = [side for side in ("input", "output") if side in set(frame["side"])]
    lines = [
        Series(
            key=f"{owner.key}{JOIN}{side}",
            label=f"{side} token",
            slot=owner.slot,
            style=own_style(owner.slot) + 3 * (side == "output"),
            solid=side == "output",
        )
        for side in sides
    ]
    by_side = frame.assign(series=f"{owner.key}{JOIN}" + frame["side"].astype(str))
    table = with_convergence(curves(by_side), by_side)
    wording = Wording("nats", "rises by", "falls by", subject=lambda s: f"information about the {s.label}")
    return ReportFigure(
        id=f"mi-training-{owner.slot}"
        + ("" if owner.style is None else f"-{owner.style}"),  # a variant shares its slot
        question=f"What does {owner.label} do with a token that is hidden from it, as in training?",
        answer=trend_sentences(by_side, lines, wording) + _crossing(table, lines),
        words=trend_words(by_side, [replace(one, label=f"the {one.label}") for one in lines], "information", "about"),
        panels=[Panel.of(_information_chart(table, lines, "mutual information (nats)"))],
        caption=f"{interval_note(table)} Only positions whose input was replaced by another token.",
        how_to_read=[
            "The input token is the wrong one that took the original's place; the output token is the original, which "
            "the model must restore.",
            "Where the lines cross, the vector stops saying what was put in and starts saying what should have been "
            "there. " + _HOW_BANDS,
        ],
        method=MUTUAL_INFORMATION,
        data=table,
        tables=("mutual_information",),
        findings=("representations:V-4", "representations:V-5"),
    )


def _crossing(table: pd.DataFrame, lines: list[Series]) -> list[str]:
    """The layer from which vectors say more of the token to restore than of the one put in."""
    if len(lines) < 2:
        return []
    trained = table[table["group"] == "trained"].pivot(index="layer", columns="series", values="value")
    ahead = trained[lines[1].key] > trained[lines[0].key]
    if not bool(ahead.iloc[-1]) or bool(ahead.all()):
        return []
    first = int(ahead.index[len(ahead) - ahead[::-1].cummin().sum()])
    return [f"From layer {first} on, vectors say more of the token to restore than of the one put in."]


def _plane_rows(main: pd.DataFrame) -> pd.DataFrame:
    """Both sides of the models that have both in one regime: a row per line and layer."""
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
    """What one line loses about its input, and gains about its output, from bottom to top."""
    own = main[main["series"] == series.key]
    output = output_rows(own)
    lost = change(_of(own, str(output["regime"].iloc[0]), "input"), series.key).negated()
    return lost, change(output, series.key)


def _plane_words(main: pd.DataFrame, series: list[Series]) -> str:
    """Who trades most of its input for its output, and who shows no clear trade."""
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
    """What one line loses about its input and gains about its output, or that neither is clear."""
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
        tables=("mutual_information",),
        findings=("representations:V-4", "representations:V-5"),
    )


def _plane_chart(plane: pd.DataFrame, series: Series) -> dict[str, Any]:
    x = alt.X(**amount("input", "about the input token (nats)", padding=18))
    y = alt.Y(**amount("output", "about the output token (nats)", padding=18))
    at, look = {"x": x, "y": y}, looks_of([series])
    trained, untrained = plane[plane["group"] == "trained"], plane[plane["group"] == "untrained"]
    base, ends = alt.Chart(trained), {"color": look["color"], "opacity": lit(0.6)}
    whisker = base.mark_rule(strokeWidth=1.2)
    tooltip = tips("layer:Q", "input:Q||.3f", "output:Q||.3f")
    layers = [
        whisker.encode(x=with_field(x, "input_low"), x2=alt.X2("input_high:Q"), y=y, **ends),
        whisker.encode(x=x, y=with_field(y, "output_low"), y2=alt.Y2("output_high:Q"), **ends),
        base.mark_line(strokeWidth=2).encode(
            **at, color=look["color"], order=alt.Order("layer:Q"), strokeDash=look["strokeDash"], opacity=lit()
        ),
        base.mark_point(filled=True, size=50, opacity=1).encode(
            **at, color=look["color"], shape=look["shape"], opacity=lit(), tooltip=tooltip
        ),
        base.mark_text(dx=10, dy=-8, fontSize=11, color="var(--ink)").encode(
            **at, text=alt.Text("layer:Q"), opacity=lit()
        ),
    ]
    if len(untrained):
        points = alt.OverlayMarkDef(color="var(--control)", size=16)
        label = untrained[untrained["layer"] == untrained["layer"].max()].assign(text="untrained")
        named = alt.Chart(label).mark_text(dy=13, color="var(--soft)", **NAME)
        layers.insert(
            0, alt.Chart(untrained).mark_line(**CONTROL, point=points).encode(**at, order=alt.Order("layer:Q"))
        )
        layers.insert(1, named.encode(**at, text=alt.Text("text:N")))
    return finished(layers, 250)


def _identity_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    table, series = curves(frame), models.present(frame)
    neighbours = int(frame["neighbours"].iloc[0])
    top = order_sentence(frame, series, "At the top layer this share is, in order")
    wording = Wording("", "rises by", "falls by", subject=lambda s: f"the share in {s.label}")
    title = f"share of the {neighbours} nearest neighbours with the same token"
    chart = LayerChart(table=table, series=series, y_title=title, baseline_name="chance", bounds=SHARE)
    return ReportFigure(
        id="identity",
        question="Are a vector's nearest neighbours still the same token?",
        answer=[*([top] if top else []), *trend_sentences(frame, series, wording)],
        words=trend_words(frame, series, "the share of neighbours that are the same token"),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} {neighbours} neighbours by {frame['metric'].iloc[0]} distance.",
        how_to_read=[
            "For each occurrence of a token, its nearest vectors in other places are looked up. Up: the share of these "
            "that belong to the same token. 1 means that a vector is still, first of all, this token.",
            _HOW_BANDS,
            "“Chance” draws neighbours at random from the same pool.",
        ],
        method=_IDENTITY,
        data=table,
        tables=("identity_neighbours",),
        findings=tuple(f"representations:V-{n}" for n in (13, 17, 18)),
    )


def _ceiling(frame: pd.DataFrame) -> str:
    """The entropy of the labels, which no curve can exceed, and the clustering behind it."""
    trained = frame[frame["trained"]]
    low, high = float(trained["entropy"].min()), float(trained["entropy"].max())
    ceiling = f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
    return f"Ceiling (entropy of the tokens): {ceiling} nats; {int(trained['clusters'].median()):,} clusters."
