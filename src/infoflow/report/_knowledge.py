"""What representations know: information about the input and the output token, and identity among neighbours."""

from dataclasses import replace

import altair as alt
import pandas as pd

from infoflow.results import RunFolder

from ._curves import curves, has_untrained, interval_note, samples_at
from ._figure import Figure, Panel, Section
from ._language import Cast, Series
from ._layer_chart import color_scale, dash_scale, layer_chart, lit, shape_scale
from ._numbers import number
from ._theme import vega_config
from ._trends import order_sentence, trend_sentences

_HOW_BANDS = (
    "A band shows the 95% interval; where two bands are far apart, the difference is not noise. "
    "The dashed grey line is a model of the same shape that was never trained."
)


def knowledge_section(run: RunFolder, cast: Cast) -> Section | None:
    """The section, or None where the run measured nothing that belongs here."""
    figures: list[Figure] = []
    frames = []
    if "mutual_information" in run.tables:
        frame = cast.named(run.tables["mutual_information"])
        frames.append(frame)
        figures += _information_figures(frame, cast)
    if "identity_neighbours" in run.tables:
        frame = cast.named(run.tables["identity_neighbours"])
        frames.append(frame)
        figures.append(_identity_figure(cast.main(frame), cast))
    if not figures:
        return None
    used = {key for frame in frames for key in frame["series"]}
    return Section(
        id="knows",
        title="What do representations know?",
        lead="Every layer rewrites each token's vector. These figures ask what can still be read from it: the token "
        "that went in, and the token the model has to produce.",
        figures=figures,
        keys=[series for series in cast.series if series.key in used],
        untrained=any(has_untrained(frame) for frame in frames),
    )


def _information_figures(frame: pd.DataFrame, cast: Cast) -> list[Figure]:
    main = cast.main(frame)
    clean, training = main[main["regime"] == "clean"], main[main["regime"] == "training"]
    figures = []
    if len(source := clean[clean["side"] == "input"]):
        figures.append(_input_figure(source, cast))
    if len(target := _output_rows(main)):
        figures.append(_output_figure(target, cast))
    for key in dict.fromkeys(training["series"]):
        figures.append(_training_figure(training[training["series"] == key], cast[key]))
    if len(plane := _plane_rows(main)):
        figures.append(_plane_figure(plane, cast))
    others = cast.others(frame)
    if len(decoder := others[(others["side"] == "input") & (others["regime"] == "clean")]):
        figure = _input_figure(decoder, cast)
        question = "How much do decoder states remember of the decoder's own input token?"
        figures.append(replace(figure, id="mi-input-decoder", question=question, findings=()))
    return figures


def _input_figure(frame: pd.DataFrame, cast: Cast) -> Figure:
    table = curves(frame, cast)
    answer = trend_sentences(frame, cast, "nats", ("gains", "loses"), "information about its input token")
    return Figure(
        id="mi-input",
        question="How much do representations remember of their own input token?",
        answer=answer,
        panels=[
            Panel(
                spec=layer_chart(
                    table,
                    _present(frame, cast),
                    y_title="mutual information with the input token (nats)",
                    baseline_name="shuffled labels",
                )
            )
        ],
        caption=f"{interval_note(table)} {_ceiling(frame)}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the top. Up: how many nats of the input token's identity can be "
            "read from the vector, after sorting vectors into clusters.",
            _HOW_BANDS,
            "“Shuffled labels” is what chance alone would give with as many clusters and tokens. It would be surprising "
            "if a causal LM kept its input to the top: it is trained to predict the next token, not to repeat this one.",
        ],
        method="mutual-information",
        data=table,
        tables=("mutual_information",),
        findings=tuple(f"representations:V-{n}" for n in (1, 2, 3)),
    )


def _output_rows(main: pd.DataFrame) -> pd.DataFrame:
    """Output side; a model that hides its input in training counts in that regime, since otherwise output = input."""
    output = main[main["side"] == "output"]
    hidden = set(output.loc[output["regime"] == "training", "series"])
    return output[(output["regime"] == "training") == output["series"].isin(hidden)]


def _output_figure(frame: pd.DataFrame, cast: Cast) -> Figure:
    table = curves(frame, cast)
    return Figure(
        id="mi-output",
        question="How much do they know of the token they have to produce?",
        answer=trend_sentences(frame, cast, "nats", ("gains", "loses"), "information about its output token"),
        panels=[
            Panel(
                spec=layer_chart(
                    table,
                    _present(frame, cast),
                    y_title="mutual information with the output token (nats)",
                    baseline_name="shuffled labels",
                )
            )
        ],
        caption=f"{interval_note(table)} {_ceiling(frame)} Masked LM is read in its training regime: hidden positions only.",
        how_to_read=[
            "Up: how many nats of the token to predict can be read from the vector: the next token for causal LM, the "
            "hidden token for masked LM.",
            _HOW_BANDS,
            "A rising line is a prediction being built. It would be surprising if it rose only in the first layers.",
        ],
        method="mutual-information",
        data=table,
        tables=("mutual_information",),
        findings=("representations:V-4",),
    )


def _training_figure(frame: pd.DataFrame, series: Series) -> Figure:
    sides = [side for side in ("input", "output") if (frame["side"] == side).any()]
    lines = [
        Series(key=side, label=f"{side} token", slot=series.slot if side == "input" else (series.slot + 4) % 8)
        for side in sides
    ]
    by_side = frame.assign(series=frame["side"])
    cast = Cast(series=tuple(lines), by="side", main_stacks={})
    table = curves(by_side, cast)
    return Figure(
        id=f"mi-training-{series.slot}",
        question=f"What does {series.label} do with a token that is hidden from it, as in training?",
        answer=trend_sentences(by_side, cast, "nats", ("gains", "loses"), "information")[: len(lines)],
        panels=[
            Panel(spec=layer_chart(table, lines, y_title="mutual information (nats)", baseline_name="shuffled labels"))
        ],
        caption=f"{interval_note(table)} Only positions whose input was replaced; {series.label}.",
        how_to_read=[
            "The input token is the wrong one that replaced the original; the output token is the original, which the "
            "model must restore.",
            "Where the lines cross, the vector stops saying what was put in and starts saying what should have been "
            "there. " + _HOW_BANDS,
        ],
        method="mutual-information",
        data=table,
        tables=("mutual_information",),
        findings=("representations:V-4", "representations:V-5"),
    )


def _plane_rows(main: pd.DataFrame) -> pd.DataFrame:
    """Both sides of the lines that have both in one regime, one row per line and layer."""
    rows = []
    for (series, trained), own in main.groupby(["series", "trained"], sort=False):
        output = _output_rows(own)
        if output.empty:
            continue
        regime = output["regime"].iloc[0]
        source = own[(own["side"] == "input") & (own["regime"] == regime)]
        for layer in sorted(set(output["layer"]) & set(source["layer"])):
            x = samples_at(source, series, layer, trained).estimate()
            y = samples_at(output, series, layer, trained).estimate()
            rows.append(
                {
                    "series": series,
                    "group": "trained" if trained else "untrained",
                    "layer": int(layer),
                    "input": x.value,
                }
                | {"input_low": x.low, "input_high": x.high, "output": y.value, "output_low": y.low}
                | {"output_high": y.high, "regime": regime}
            )
    return pd.DataFrame(rows)


def _plane_figure(plane: pd.DataFrame, cast: Cast) -> Figure:
    series = [s for s in cast.series if s.key in set(plane["series"])]
    sentences = []
    for s in series:
        path = plane[(plane["series"] == s.key) & (plane["group"] == "trained")].sort_values("layer")
        first, last = path.iloc[0], path.iloc[-1]
        sentences.append(
            f"{s.label[:1].upper()}{s.label[1:]} moves from ({number(first['input'], 1)}, {number(first['output'], 1)}) to "
            f"({number(last['input'], 1)}, {number(last['output'], 1)}) nats: "
            f"it gives up {number(first['input'] - last['input'], 1)} about the input "
            f"and gains {number(last['output'] - first['output'], 1)} about the output."
        )
    return Figure(
        id="mi-plane",
        question="Do they give up the input in exchange for the output?",
        answer=sentences,
        panels=[Panel(spec=_plane_chart(plane[plane["series"] == s.key], s), title=s.label) for s in series],
        caption="Each point is a layer, numbered; whiskers are 95% intervals in both directions; each panel has its own scale.",
        how_to_read=[
            "Across: information about the input token. Up: information about the output token. A path that goes left "
            "and up trades one for the other.",
            "The dashed grey path is the untrained model: it has nothing to trade.",
            "Masked LM is shown on hidden positions, as in training.",
        ],
        method="mutual-information",
        data=plane,
        tables=("mutual_information",),
        findings=("representations:V-4", "representations:V-5"),
    )


def _plane_chart(plane: pd.DataFrame, series: Series) -> dict:
    trained, untrained = plane[plane["group"] == "trained"], plane[plane["group"] == "untrained"]
    x = alt.X("input:Q", title="about the input token (nats)", scale=alt.Scale(zero=False, padding=18))
    y = alt.Y("output:Q", title="about the output token (nats)", scale=alt.Scale(zero=False, padding=18))
    color = alt.Color("series:N", scale=color_scale([series]), legend=None)
    base = alt.Chart(trained)
    whiskers = [
        base.mark_rule(strokeWidth=1.2).encode(
            x=alt.X("input_low:Q", title=x["title"]), x2="input_high:Q", y=y, color=color, opacity=lit(0.6)
        ),
        base.mark_rule(strokeWidth=1.2).encode(
            x=x, y=alt.Y("output_low:Q", title=y["title"]), y2="output_high:Q", color=color, opacity=lit(0.6)
        ),
    ]
    path = base.mark_line(strokeWidth=2).encode(
        x=x, y=y, color=color, order="layer:Q",
        strokeDash=alt.StrokeDash("series:N", scale=dash_scale([series]), legend=None), opacity=lit(),
    )  # fmt: skip
    tooltip = ["series:N", "layer:Q", alt.Tooltip("input:Q", format=".3f"), alt.Tooltip("output:Q", format=".3f")]
    points = base.mark_point(filled=True, size=50, opacity=1).encode(
        x=x, y=y, color=color, opacity=lit(), tooltip=tooltip,
        shape=alt.Shape("series:N", scale=shape_scale([series]), legend=None),
    )  # fmt: skip
    numbers = base.mark_text(dx=9, dy=-8, fontSize=11, color="var(--ink)").encode(
        x=x, y=y, text="layer:Q", opacity=lit()
    )
    layers = [*whiskers, path, points, numbers]
    if len(untrained):
        grey = alt.Chart(untrained).mark_line(
            color="var(--control)", strokeDash=[4, 3], point=alt.OverlayMarkDef(color="var(--control)", size=16)
        )
        layers.insert(0, grey.encode(x=x, y=y, order="layer:Q", opacity=lit(1.0, 0.5)))
    chart = alt.layer(*layers).add_params(alt.param(name="highlight", value=""))
    spec = chart.properties(width="container", height=250).to_dict()
    return {**spec, "config": vega_config(), "padding": {"left": 4, "top": 22, "right": 10, "bottom": 4}}


def _identity_figure(frame: pd.DataFrame, cast: Cast) -> Figure:
    table = curves(frame, cast)
    neighbours = int(frame["neighbours"].iloc[0])
    top = order_sentence(frame, cast, "", "At the top layer the share is, in order")
    answer = trend_sentences(frame, cast, "", ("gains", "loses"), "the share of neighbours with the same token")
    return Figure(
        id="identity",
        question="Are a vector's nearest neighbours still the same token?",
        answer=[*([top] if top else []), *answer],
        panels=[
            Panel(
                spec=layer_chart(
                    table,
                    _present(frame, cast),
                    y_title=f"share of the {neighbours} nearest neighbours with the same token",
                    baseline_name="chance",
                )
            )
        ],
        caption=f"{interval_note(table)} {neighbours} neighbours by {frame['metric'].iloc[0]} distance.",
        how_to_read=[
            "For each occurrence of a token, its nearest vectors in other sentences are looked up. Up: the share that "
            "belongs to the same token. 1 means that the vector is still, first of all, this word.",
            _HOW_BANDS,
            "“Chance” draws neighbours at random from the same pool.",
        ],
        method="identity-neighbours",
        data=table,
        tables=("identity_neighbours",),
        findings=("representations:V-13", "representations:V-17", "representations:V-18"),
    )


def _present(frame: pd.DataFrame, cast: Cast) -> list[Series]:
    return [series for series in cast.series if series.key in set(frame["series"])]


def _ceiling(frame: pd.DataFrame) -> str:
    """The entropy of the labels, which no curve can exceed, and the clustering behind it."""
    trained = frame[frame["trained"]]
    low, high = trained["entropy"].min(), trained["entropy"].max()
    ceiling = f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
    return f"Ceiling (entropy of the tokens): {ceiling} nats; {int(trained['clusters'].median()):,} clusters."
