"""How representations change: from layer to layer, between objectives, and between seeds."""

import pandas as pd

from infoflow.results import RunFolder

from ._curves import curves, has_untrained, interval_note
from ._figure import Figure, Panel, Section
from ._language import Cast, Series
from ._layer_chart import layer_chart
from ._numbers import estimate_text, listed, number
from ._samples import Samples

_PWCCA = "Distance is 1 − PWCCA: 0 where each space is a linear map of the other, near the grey line where they share nothing."


def change_section(run: RunFolder, cast: Cast) -> Section | None:
    """The section, or None where the run measured nothing that belongs here."""
    figures, keys, untrained = [], [], False
    if "layer_distance" in run.tables:
        frame = cast.named(run.tables["layer_distance"])
        figures.append(_layer_figure(cast.main(frame), cast))
        keys = [series for series in cast.series if series.key in set(frame["series"])]
        untrained = has_untrained(frame)
    if "model_distance" in run.tables and len(run.tables["model_distance"]):
        figures.append(_model_figure(run.tables["model_distance"], cast))
    if not figures:
        return None
    return Section(
        id="changes",
        title="How do representations change?",
        lead="A layer may rewrite a token's vector or pass it on; two models may end up with the same space or with "
        "different ones. Both are distances between views of the same occurrences.",
        figures=figures,
        keys=keys,
        untrained=untrained,
    )


def _layer_figure(frame: pd.DataFrame, cast: Cast) -> Figure:
    table = curves(frame, cast)
    series = [s for s in cast.series if s.key in set(frame["series"])]
    return Figure(
        id="layer-change",
        question="How much does each layer change the representation?",
        answer=[_profile_sentence(frame, s) for s in series] + _untrained_sentence(table),
        panels=[
            Panel(
                spec=layer_chart(
                    table,
                    series,
                    y_title="distance between consecutive layers (1 − PWCCA)",
                    x_title="from layer → to layer (0 = embeddings)",
                    baseline_name="shuffled rows",
                    transitions=True,
                )
            )
        ],
        caption=f"{interval_note(table)} Width {int(frame['width'].median())}.",
        how_to_read=[
            "Across: the step from one layer to the next. Up: how far the two layers' spaces lie apart. " + _PWCCA,
            "“Shuffled rows” is the distance between unrelated vectors: no step should come near it.",
            "A rise at the last step means that the model rewrites its vectors just before it predicts.",
        ],
        method="pwcca",
        data=table.rename(columns={"layer": "from_layer"}),
        tables=("layer_distance",),
        findings=("representations:V-9",),
    )


def _profile_sentence(frame: pd.DataFrame, series: Series) -> str:
    own = frame[(frame["series"] == series.key) & frame["trained"]]
    steps = {int(layer): Samples.of(rows) for layer, rows in own.groupby("layer")}
    means = {layer: samples.estimate().value for layer, samples in steps.items()}
    largest, smallest = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    name = series.label[:1].upper() + series.label[1:]
    text = f"{name} changes most from layer {largest} to {largest + 1}: {estimate_text(steps[largest].estimate())}"
    if largest == smallest:
        return f"{text}."
    clear = (steps[largest] - steps[smallest]).estimate().sign > 0
    least = f"least from {smallest} to {smallest + 1}: {estimate_text(steps[smallest].estimate())}"
    return f"{text}, and {least}." if clear else f"{text}; its steps cannot be told apart."


def _untrained_sentence(table: pd.DataFrame) -> list[str]:
    values = table.loc[table["group"] == "untrained", "value"]
    if values.empty:
        return []
    return [f"An untrained model changes between {number(values.min(), 3)} and {number(values.max(), 3)} per layer."]


def _model_figure(frame: pd.DataFrame, cast: Cast) -> Figure:
    pairs, seeds = _pair_frames(frame, cast)
    panels, tables = [], []
    for title, rows, series in (
        ("between objectives, same seed", pairs, _pair_series(pairs, cast)),
        ("between seeds, same objective", seeds, [s for s in cast.series if s.key in set(seeds["series"])]),
    ):
        if len(rows):
            tables.append((title, curves(rows, cast, by="pair"), series))
    shared = _shared_range([table for _, table, _ in tables])
    for title, table, series in tables:
        spec = layer_chart(table, series, y_title="distance (1 − PWCCA)", baseline_name="shuffled rows", y_range=shared)
        panels.append(Panel(title=title, spec=spec))
    drawn = pd.concat([table.assign(panel=title) for title, table, _ in tables])
    return Figure(
        id="model-distance",
        question="Does the objective matter more than the random initialisation?",
        answer=_distance_sentences(pairs, seeds, _pair_series(pairs, cast)),
        panels=panels,
        caption=f"{interval_note(drawn).replace('seeds', 'pairs of models')} Both panels share one scale.",
        how_to_read=[
            "Left: the same layer of two models trained on different objectives from the same start. Right: of two models "
            "trained on the same objective from different starts. A line between two objectives wears both colours.",
            _PWCCA,
            "If the objective shapes representations, the left lines lie above the right ones, more so at the top.",
        ],
        method="pwcca",
        data=drawn,
        tables=("model_distance",),
        findings=tuple(f"representations:V-{n}" for n in (6, 7, 8)),
    )


def _pair_frames(frame: pd.DataFrame, cast: Cast) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of pairs across lines and of pairs within a line, each with `series`, `pair` and `trained`."""
    side_a, side_b = f"{cast.by}_a", f"{cast.by}_b"
    rank = {series.key: index for index, series in enumerate(cast.series)}
    keys = [
        " – ".join(sorted((str(a), str(b)), key=lambda key: rank.get(key, 99)))
        for a, b in zip(frame[side_a], frame[side_b], strict=True)
    ]
    frame = frame.assign(
        series=keys,
        pair=frame["model_a"].astype(str) + " | " + frame["model_b"].astype(str),
        trained=frame["trained"].astype(bool) if "trained" in frame else True,
    )
    same = frame[side_a].astype(str) == frame[side_b].astype(str)
    return frame[~same], frame[same].assign(series=frame.loc[same, side_a].astype(str))


def _pair_series(pairs: pd.DataFrame, cast: Cast) -> list[Series]:
    series = []
    for key in dict.fromkeys(pairs["series"]):
        known = [s for s in cast.series if s.key in key.split(" – ")]
        if len(known) == 2:
            label = " – ".join(s.label for s in known)
            series.append(Series(key=key, label=label, slot=known[0].slot, second_slot=known[1].slot))
    return series


def _shared_range(tables: list[pd.DataFrame]) -> tuple[float, float]:
    drawn = pd.concat(tables)
    drawn = drawn[drawn["group"] != "baseline"]
    high = float(max(drawn["high"].max(), drawn["value"].max()))
    return 0.0, 1.06 * high


def _distance_sentences(pairs: pd.DataFrame, seeds: pd.DataFrame, series: list[Series]) -> list[str]:
    sentences = []
    top = {s.label: _at_top(pairs, s.key) for s in series}
    if top:
        ranked = sorted(top, key=lambda label: top[label].estimate().value)
        parts = [f"{label} {estimate_text(top[label].estimate())}" for label in ranked]
        sentences.append(f"At the top layer, from nearest to farthest: {listed(parts)}.")
    if top and len(trained := seeds[seeds["trained"]]):
        last = trained["layer"].max()
        across = pairs[pairs["trained"] & (pairs["layer"] == last)].groupby("series")["value"].mean()
        within = trained[trained["layer"] == last].groupby("series")["value"].mean()
        relation = "farther apart than" if across.min() > within.max() else "not all farther apart than"
        sentences.append(
            f"Models of different objectives are {relation} models of different seeds there: the nearest objectives are "
            f"{number(across.min(), 3)} apart, the farthest seeds {number(within.max(), 3)}."
        )
    elif top:
        sentences.append("With one seed per objective there is no distance between seeds to compare with.")
    return sentences


def _at_top(pairs: pd.DataFrame, key: str) -> Samples:
    own = pairs[(pairs["series"] == key) & pairs["trained"]]
    return Samples.of(own[own["layer"] == own["layer"].max()], "pair")
