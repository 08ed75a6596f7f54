"""How much frequent and rare tokens change, and how much they influence the tokens around them."""

from typing import Any, Literal

import pandas as pd

from infoflow.representations import CHANGE_BY_FREQUENCY, INFLUENCE_BY_FREQUENCY

from .._curves import curves, interval_note
from .._figure import Method, Panel, ReportFigure
from .._in_words import Samples, by_answer
from .._model_selection import ModelSelection
from .._model_tables import ModelTables
from ..forms._chart import free_scales, scale_note
from ..forms._layer_chart import RankChart

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

PWCCA = Method(
    id="pwcca",
    title="PWCCA distance",
    text="""
    1 − Σ <i>α</i><sub>i</sub><i>ρ</i><sub>i</sub> / Σ <i>α</i><sub>i</sub>, with canonical correlations <i>ρ</i>
    between two views of the same occurrences and weights <i>α</i> by how much of a view each canonical direction
    carries. It is biased towards 0 when the width is large for the number of occurrences; the baseline
    shuffles the rows of one view. After Morcos, Raghu and Bengio (2018).
    """,
)

_RANKS = (
    "Rank 1 is the most frequent token of the training text. Each line is a range of ranks, upper end excluded. "
    "Three are labelled: the most frequent tokens (pale), the middle range and the rarest tokens (strong). The thin "
    "grey lines are the ranges between them; point at one to see its ranks. All ranges have the same number of "
    "occurrences, since this distance depends on that number. Ranges with too few occurrences are left out."
)


def frequency_figures(tables: ModelTables) -> list[ReportFigure]:
    """The figures whose tables the run has."""
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
        panels=_panels(
            table,
            models,
            y_title="change (1 − PWCCA)",
            x_title="from layer → to layer",
            control_name="untrained",
            transitions=True,
        ),
        caption=f"{_note(table)} Shuffled rows: {shuffled:.2g}.",
        how_to_read=[
            "Across: the step from one layer to the next. Up: how far the two layers' spaces of these tokens lie "
            "apart. " + _RANKS,
            "The dashed grey line is the untrained model, averaged over ranks: without training, frequency hardly "
            "matters.",
            "Pale lines on top mean that frequent tokens, which carry little meaning of their own, are rewritten most. "
            "Where a masked LM reverses the order, it is rebuilding the token it has to predict.",
        ],
        method=PWCCA,
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
        panels=_panels(
            table,
            models,
            y_title="influence (1 − PWCCA)",
            x_title="layer from which the token is hidden",
            control_name="random",
        ),
        caption=f"{_note(table)} One token of each sentence is hidden.",
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


def _panels(table: pd.DataFrame, models: ModelSelection, **how: Any) -> list[Panel]:
    """One panel per line, all on one scale unless their heights differ greatly."""
    tops = _tops(table)
    free = free_scales(tops.values())
    highest = max(tops.values())
    return [
        Panel.of(
            RankChart(
                table=own,
                top=tops[series.key] if free else highest,
                shared=not free,
                **how,
            ),
            series.label,
        )
        for series, own in models.each(table)
    ]


def _tops(table: pd.DataFrame) -> dict[str, float]:
    """The largest value of each line's panel."""
    return {str(key): float(own[["high", "value"]].max().max()) for key, own in table.groupby("series", sort=False)}


def _note(table: pd.DataFrame) -> str:
    note = interval_note(table.assign(group=table["group"].replace("bin", "trained")))
    tops = _tops(table)
    return f"{note} {scale_note(tops.values(), 'All panels share one scale.' if len(tops) > 1 else '')}".rstrip()


def _ranks(low: int, high: int) -> str:
    """`10–25`, `2.5k–5k`."""
    return "–".join(f"{rank / 1000:g}k" if rank >= 1000 else str(rank) for rank in (low, high))
