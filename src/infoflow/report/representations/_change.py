"""How representations change: from layer to layer, with the frequency of tokens, between objectives and seeds."""

from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from infoflow.representations import CHANGE_BY_FREQUENCY, INFLUENCE_BY_FREQUENCY, LAYER_DISTANCE, MODEL_DISTANCE

from .._curves import curves, interval_note, sample_note
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import Candidate, Samples, by_answer, estimate_text, extreme, extremes_words, number, sentence
from .._model_selection import JOIN, ModelSelection
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._chart import free_scales, scale_note
from ..forms._layer_chart import LayerChart, RankChart, shared_range
from ..forms._lines import SHARE

_INFLUENCE_OF_TOKEN = Method(
    id="influence",
    title="Influence of one token",
    text="""
    PWCCA distance between a layer's normal output at all other tokens and its output there when one token of the
    sentence is hidden, as key and value, from that layer's self-attention. Lower layers are unchanged, and the token's
    own query and vector stay. Each sentence contributes at most one token to a range of ranks, drawn by a hash; special
    tokens are neither hidden nor compared, and sentences of one token are left out. All ranges have the same number of
    occurrences. Baseline: a token drawn from the same sentences whatever its rank. After Voita, Sennrich and Titov
    (2019).
    """,
)

_PWCCA_METHOD = Method(
    id="pwcca",
    title="PWCCA distance",
    text="""
    1 − Σ <i>α</i><sub>i</sub><i>ρ</i><sub>i</sub> / Σ <i>α</i><sub>i</sub>, with canonical correlations <i>ρ</i>
    between two views of the same occurrences and weights <i>α</i> by how much of a view each canonical direction
    carries. It is biased towards 0 when the width is large for the number of occurrences; the baseline
    shuffles the rows of one view. After Morcos, Raghu and Bengio (2018).
    """,
)

_PWCCA = (
    "Distance is 1 − PWCCA: 0 where each space is a linear map of the other, and as high as “shuffled rows” where the "
    "two share nothing."
)


CHANGES = Section(
    id="changes",
    short="Change",
    title="How do representations change?",
    lead="A layer may rewrite a token's vector or pass it on, and two models may end up with the same space or with "
    "different ones. Both are measured as distances between two sets of vectors of the same occurrences.",
    names={
        "layer-change": "representations/layer-distance",
        "change-by-rank": "representations/change-by-frequency",
        "influence-by-rank": "representations/influence-by-frequency",
        "model-distance": "representations/model-distance",
    },
)


def change_section(tables: ModelTables) -> Section | None:
    """The section on how representations change, or None if the run has none of its measures."""
    models = tables.models
    # Without enough tokens for PWCCA there is no value.
    frames = [frame.dropna(subset="value") for frame in tables.some([LAYER_DISTANCE.name]).values()]
    figures = [_layer_figure(rows, models) for frame in frames if len(rows := models.main(frame))]
    figures += _frequency_figures(tables)
    between = [frame.dropna(subset="value") for frame in tables.some([MODEL_DISTANCE.name]).values()]
    figures += [_model_figure(frame, models) for frame in between if len(frame)]
    stated = CHANGES.drawn_with(figures, models, frames)
    return stated if frames or stated is None else replace(stated, keys=list(models.series))


def _layer_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    table, series = curves(frame), models.present(frame)
    chart = LayerChart(
        table=table,
        series=series,
        y_title="distance between consecutive layers (1 − PWCCA)",
        x_title="from layer → to layer (0 = embeddings)",
        baseline_name="shuffled rows",
        bounds=SHARE,
        transitions=True,
    )
    return ReportFigure(
        id="layer-change",
        question="How much does each layer change the representation?",
        words=_step_words(frame, series),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} Width {int(frame['width'].median())}.{sample_note(frame)}",
        how_to_read=[
            "Across: the step from one layer to the next. Up: how far the two layers' spaces lie apart. " + _PWCCA,
            "The dashed grey line is an untrained model of the same shape.",
            "A rise at the last step means that the model rewrites its vectors just before it predicts.",
        ],
        method=_PWCCA_METHOD,
        data=table.rename(columns={"layer": "from_layer"}),
        tables=(LAYER_DISTANCE.name,),
        findings=("representations:V-9",),
    )


def _step_words(frame: pd.DataFrame, series: list[Series]) -> str:
    """The largest step of all lines, and the largest of an untrained model."""
    found = [top for line in series if (top := extreme(_steps(frame, line))) is not None]
    highest = extreme([top.candidate for top in found])
    if highest is None:
        return ""
    own = next(top for top in found if top.candidate is highest.candidate)
    others = "another step" if len(own.alike) == 1 else f"{len(own.alike)} other steps"
    same = f", not clearly larger than {others} of the same model" if own.alike else ""
    said = (
        f"the largest step (1 − PWCCA) is {highest.candidate.name}, {estimate_text(highest.candidate.estimate)}{same}"
    )
    grey = extreme([step for line in series for step in _steps(frame, line, trained=False)])
    compared = f"; the largest step of an untrained model is {number(grey.candidate.estimate.value, 3)}" if grey else ""
    return sentence(f"{said}{compared}")


def _steps(frame: pd.DataFrame, series: Series, trained: bool = True) -> list[Candidate]:
    own = frame[(frame["series"] == series.key) & (frame["trained"] == trained)]
    return [
        Candidate.held_out(f"{int(str(layer))}→{int(str(layer)) + 1} in {series.label}", Samples.of(rows))
        for layer, rows in own.groupby("layer")
    ]


def _model_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    pairs, seeds = _pair_frames(frame, models)
    lines = _pair_series(pairs, models)
    across = "objectives" if models.by == "objective" else "models"
    drawn = [(f"between {across}{', same seed' if len(seeds) else ''}", curves(pairs, by="pair"), lines)] * bool(
        len(pairs)
    )
    drawn += [("between seeds, same objective", curves(seeds, by="pair"), models.present(seeds))] * bool(len(seeds))
    tables = pd.concat([table.assign(panel=title) for title, table, _ in drawn])
    span = shared_range(tables[tables["group"] != "baseline"], SHARE)
    how = {"y_title": "distance (1 − PWCCA)", "baseline_name": "shuffled rows", "y_range": span, "bounds": SHARE}
    return ReportFigure(
        id="model-distance",
        question="Does the objective matter more than the random initialisation?"
        if len(seeds)
        else f"How far apart are the {across}?",
        words=_distance_words(pairs, seeds, lines, across),
        panels=[Panel.of(LayerChart(table=table, series=series, **how), title) for title, table, series in drawn],
        caption=interval_note(tables).replace("seeds", "pairs of models")
        + (" Both panels share one scale." if len(drawn) > 1 else "")
        + sample_note(frame),
        how_to_read=[
            f"The same layer of two models, measured on the same occurrences. A line between two {across} has both "
            "colours. " + _PWCCA,
            "If the objective shapes representations, lines between objectives lie above lines between seeds, more so "
            "at the top.",
            "Distances between untrained models with the same initialisation are near zero by construction.",
        ],
        method=_PWCCA_METHOD,
        data=tables,
        tables=(MODEL_DISTANCE.name,),
        findings=tuple(f"representations:V-{n}" for n in (6, 7, 8)),
    )


def _pair_frames(frame: pd.DataFrame, models: ModelSelection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of pairs across lines and of pairs within a line, each with `series`, `pair` and `trained`."""
    side_a, side_b = frame["series_a"], frame["series_b"]
    rank = {series.key: index for index, series in enumerate(models.series)}
    keys = [
        JOIN.join(sorted(pair, key=lambda key: rank.get(key, len(rank)))) for pair in zip(side_a, side_b, strict=True)
    ]
    frame = frame.assign(series=keys, pair=frame["model_a"].astype(str) + " | " + frame["model_b"].astype(str))
    same = side_a == side_b
    return frame[~same], frame[same].assign(series=side_a[same])


def _pair_series(pairs: pd.DataFrame, models: ModelSelection) -> list[Series]:
    """One line per pair of models, in two colours."""
    present = set(pairs["series"])
    return [
        Series(key=a.key + JOIN + b.key, label=f"{a.label} – {b.label}", slot=a.slot, second_slot=b.slot)
        for index, a in enumerate(models.series)
        for b in models.series[index + 1 :]
        if a.key + JOIN + b.key in present
    ]


def _distance_words(pairs: pd.DataFrame, seeds: pd.DataFrame, lines: list[Series], across: str) -> str:
    """The most distant and the nearest pair at the top layer, and the distance of the most distant seeds."""
    top = [Candidate(f"for {line.label}", _at_top(pairs, line.key).estimate()) for line in lines]
    within = [_at_top(seeds, str(key)).estimate().value for key in dict.fromkeys(seeds["series"])]
    end = "with one seed of each objective there is no distance between seeds" if across == "objectives" else ""
    end = f"two seeds of one objective are at most {number(max(within), 2)} apart" if within else end
    return extremes_words("the distance at the top layer", top, end=end)


def _at_top(frame: pd.DataFrame, key: str) -> Samples:
    own = frame[(frame["series"] == key) & frame["trained"]]
    return Samples.of(own[own["layer"] == own["layer"].max()], "pair")


_RANKS = (
    "Rank 1 is the most frequent token of the training text. Each line is a range of ranks, upper end excluded. "
    "Three are labelled: the most frequent tokens (pale), the middle range and the rarest tokens (strong). The thin "
    "grey lines are the ranges between them; point at one to see its ranks. All ranges have the same number of "
    "occurrences, since this distance depends on that number. Ranges with too few occurrences are left out."
)


def _frequency_figures(tables: ModelTables) -> list[ReportFigure]:
    build = {CHANGE_BY_FREQUENCY.name: _change_figure, INFLUENCE_BY_FREQUENCY.name: _influence_figure}
    frames = {name: tables.models.main(frame) for name, frame in tables.some(build).items()}
    return [build[name](frame, tables.models) for name, frame in frames.items() if bool(frame["trained"].any())]


def rank_curves(frame: pd.DataFrame, control: Literal["untrained", "baseline"]) -> pd.DataFrame:
    """`curves` of each line and bin; `group` "control" holds the mean of the control over each line's bins.

    `frame` needs the columns `series`, `layer`, `rank_low` and `rank_high`.
    """
    parts = []
    for low, high in sorted(set(zip(frame["rank_low"], frame["rank_high"], strict=True))):
        inside = frame[(frame["rank_low"] == low) & (frame["rank_high"] == high)]
        for key in dict.fromkeys(inside["series"]):
            own = curves(inside[inside["series"] == key])
            parts.append(own.assign(series=key, rank_low=low, rank_high=high, ranks=_ranks(low, high)))
    table = pd.concat(parts, ignore_index=True)
    bins = table[table["group"] == "trained"].assign(group="bin")
    means = table[table["group"] == control].groupby(["series", "layer"], as_index=False)["value"].mean()
    names = {"group": "control", "ranks": "all", "seeds": 0, "count": 0}
    shown = [f"{value:.3g}" for value in means["value"]]
    return pd.concat([bins, means.assign(**names, shown=shown)], ignore_index=True)


def _change_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    table = rank_curves(frame, "untrained")
    shuffled = frame["baseline"].mean()
    return ReportFigure(
        id="change-by-rank",
        question="Which tokens does a layer change more: frequent or rare ones?",
        words=_more(frame, models, "change", "step"),
        panels=_rank_panels(
            table,
            models,
            y_title="change (1 − PWCCA)",
            x_title="from layer → to layer",
            control_name="untrained",
            transitions=True,
        ),
        caption=f"{_rank_note(table)} Shuffled rows: {shuffled:.2g}.",
        how_to_read=[
            "Across: the step from one layer to the next. Up: how far the two layers' spaces of these tokens lie "
            "apart. " + _RANKS,
            "The dashed grey line is the untrained model, averaged over ranks: without training, frequency hardly "
            "matters.",
            "Pale lines on top mean that frequent tokens, which carry little meaning of their own, are rewritten most. "
            "Where a masked LM reverses the order, it is rebuilding the token it has to predict.",
        ],
        method=_PWCCA_METHOD,
        data=table.rename(columns={"layer": "from_layer"}),
        tables=(CHANGE_BY_FREQUENCY.name,),
        findings=("representations:V-10",),
    )


def _influence_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    frame = frame.loc[frame["pool"] == "others"]
    frame = frame.assign(layer=frame["block"] + 1)
    table = rank_curves(frame, "baseline")
    return ReportFigure(
        id="influence-by-rank",
        question="Which tokens influence the others more: frequent or rare ones?",
        words=_more(frame, models, "influence others", "layer"),
        panels=_rank_panels(
            table,
            models,
            y_title="influence (1 − PWCCA)",
            x_title="layer from which the token is hidden",
            control_name="random",
        ),
        caption=f"{_rank_note(table)} One token of each sentence is hidden.",
        how_to_read=[
            "One token of a sentence is hidden, as key and value, from the attention of one layer only. Layers count "
            "from 1 here, since 0 is the embeddings. Up: how far that layer's output at the other tokens "
            "moves. " + _RANKS,
            "The dashed grey line removes a random token from the same sentences. A line above it means that these "
            "tokens influence the others more than a random token does.",
            "In a causal LM the tokens before the hidden one cannot be affected; they are counted all the same, so "
            "that models can be compared. The table also has values for later tokens alone (pool “after”).",
        ],
        method=_INFLUENCE_OF_TOKEN,
        data=table,
        tables=(INFLUENCE_BY_FREQUENCY.name,),
        findings=("representations:V-11", "representations:V-12"),
    )


def _more(frame: pd.DataFrame, models: ModelSelection, what: str, place: str) -> str:
    """Whether frequent or rare tokens clearly do more of `what` (a verb), and at how many steps or layers."""
    found = {}
    for series, own in models.each(frame[frame["trained"]]):
        ends = [own[own["rank_low"] == end] for end in (own["rank_low"].min(), own["rank_low"].max())]
        at = [{int(str(layer)): Samples.of(rows) for layer, rows in end.groupby("layer")} for end in ends]
        signs = [(samples - at[1].get(layer, Samples.bare({}))).estimate().sign for layer, samples in at[0].items()]
        count, sign = max((signs.count(1), 1), (signs.count(-1), -1))
        where = f"every {place}" if count == len(signs) else f"{count} of {len(signs)} {place}s"
        said = f"{'frequent' if sign > 0 else 'rare'} tokens {what} more at {where}"
        found[series.label] = said if count else "there is no clear difference"
    return by_answer(found)


def _rank_panels(table: pd.DataFrame, models: ModelSelection, **how: Any) -> list[Panel]:
    """One panel per line, all on one scale unless their heights differ greatly."""
    tops = _tops(table)
    free = free_scales(tops.values())
    highest = max(tops.values())
    return [
        Panel.of(RankChart(table=own, top=tops[series.key] if free else highest, shared=not free, **how), series.label)
        for series, own in models.each(table)
    ]


def _tops(table: pd.DataFrame) -> dict[str, float]:
    return {str(key): float(own[["high", "value"]].max().max()) for key, own in table.groupby("series", sort=False)}


def _rank_note(table: pd.DataFrame) -> str:
    note = interval_note(table.assign(group=table["group"].replace("bin", "trained")))
    tops = _tops(table)
    return f"{note} {scale_note(tops.values(), 'All panels share one scale.' if len(tops) > 1 else '')}".rstrip()


def _ranks(low: int, high: int) -> str:
    """`10–25`, `2.5k–5k`."""
    return "–".join(f"{rank / 1000:g}k" if rank >= 1000 else str(rank) for rank in (low, high))
