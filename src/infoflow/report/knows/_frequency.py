"""How much frequent and rare tokens change, and how much they influence the tokens around them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pandas as pd

from infoflow.representations import CHANGE_BY_FREQUENCY, INFLUENCE_BY_FREQUENCY

from .._curves import curves, interval_note
from .._figure import Method, Panel, ReportFigure
from .._in_words import Estimate, Samples, chosen, estimate_text, listed, number
from .._model_tables import ModelTables
from .._shown_models import ShownModels
from .._theme import Series
from ..forms._chart import free_scales, scale_note
from ..forms._layer_chart import RankChart

_INFLUENCE_OF_TOKEN = Method(
    id="influence",
    title="Influence of one token",
    text="""
    PWCCA distance between a layer's output as it is and its output when one token of the sentence is hidden as key and
    value from that layer's self-attention, over all other tokens; lower layers are unchanged, and the token's own query
    and vector stay. Each sentence gives a range of ranks at most one token, drawn by a hash; special tokens are neither
    hidden nor compared, and sentences of one token are left out. All ranges have the same number of occurrences.
    Baseline: a token drawn from the same sentences whatever its rank. After Voita, Sennrich and Titov (2019).
    """,
)

PWCCA = Method(
    id="pwcca",
    title="PWCCA distance",
    text="""
    1 − Σ <i>α</i><sub>i</sub><i>ρ</i><sub>i</sub> / Σ <i>α</i><sub>i</sub>, with canonical correlations <i>ρ</i>
    between two views of the same occurrences and weights <i>α</i> by how much of a view each canonical direction
    carries. It is biased towards 0 when occurrences are few for the width; the baseline shuffles the rows of one view.
    After Morcos, Raghu and Bengio (2018).
    """,
)

_RANKS = (
    "Rank 1 is the most frequent token of the training text. Each line is a range of ranks (its end belongs to the "
    "next one): named are the most frequent tokens (pale), the middle range and the rarest (strong); the thin grey "
    "lines are the ranges between them, whose ranks a pointer shows. All ranges have the same number of occurrences, "
    "since this distance depends on it. Ranges with too few occurrences are left out."
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


def _change_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    table, ends = rank_curves(frame, "untrained"), _all_ends(frame, models)
    shuffled = frame["baseline"].mean()
    return ReportFigure(
        id="change-by-rank",
        question="Which tokens does a layer change more: frequent or rare ones?",
        answer=[_contrast(series, ends[series.key], _CHANGE) for series in models.present(frame)],
        words=_words(frame, models, ends, _CHANGE),
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
            "The dashed grey line is the untrained model, its mean over ranks: without training, frequency hardly "
            "matters.",
            "Pale lines on top mean that frequent tokens, which carry little meaning of their own, are rewritten most. "
            "Where a masked LM turns the order round, it is rebuilding the token it has to predict.",
        ],
        method=PWCCA,
        data=table.rename(columns={"layer": "from_layer"}),
        tables=(CHANGE_BY_FREQUENCY.name,),
        findings=("representations:V-10",),
    )


def _influence_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    frame = frame.loc[frame["pool"] == "others"]
    frame = frame.assign(layer=frame["block"] + 1)
    table, ends = rank_curves(frame, "baseline"), _all_ends(frame, models)
    return ReportFigure(
        id="influence-by-rank",
        question="Which tokens influence the others more: frequent or rare ones?",
        answer=[_contrast(series, ends[series.key], _INFLUENCE) for series in models.present(frame)],
        words=_words(frame, models, ends, _INFLUENCE),
        panels=_panels(
            table,
            models,
            y_title="influence (1 − PWCCA)",
            x_title="layer that loses the token",
            control_name="random",
        ),
        caption=f"{_note(table)} One token of each sentence is removed.",
        how_to_read=[
            "One token of a sentence is hidden, as key and value, from the attention of one layer only; the embeddings "
            "would be layer 0. Up: how far that layer's output at the other tokens moves. " + _RANKS,
            "The dashed grey line removes a random token from the same sentences. A line above it belongs to tokens "
            "that others listen to more than to most.",
            "In a causal LM the tokens before the hidden one cannot notice; they count here all the same, so that "
            "models can be compared. The table also holds later tokens alone (pool “after”).",
        ],
        method=_INFLUENCE_OF_TOKEN,
        data=table,
        tables=(INFLUENCE_BY_FREQUENCY.name,),
        findings=("representations:V-11", "representations:V-12"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wording:
    """Wording of a figure for one end of the frequency range exceeding the other."""

    frequent_more: str  # with {frequent} and {rare}: ranges of ranks
    rare_more: str
    neither: str
    transitions: bool
    short: str  # the whole sentence without ranks, with {more}: "frequent" or "rare"
    control: str = ""  # name of the measure's baseline, if a sentence should give its value

    def at(self, layer: int) -> str:
        return f"{layer}→{layer + 1}" if self.transitions else f"layer {layer}"

    def among(self, some: int, all_of_them: int) -> str:
        """`at 3 of 6 steps`, `in every layer`."""
        of, place = ("at", "step") if self.transitions else ("in", "layer")
        return f"{of} every {place}" if some == all_of_them else f"{of} {some} of {all_of_them} {place}s"


_CHANGE = _Wording(
    frequent_more="changes frequent tokens (rank {frequent}) more than rare ones ({rare})",
    rare_more="changes rare tokens (rank {rare}) more than frequent ones ({frequent})",
    neither="changes frequent tokens (rank {frequent}) and rare ones ({rare}) about equally at every step",
    transitions=True,
    short="change {more} tokens more",
)
_INFLUENCE = _Wording(
    frequent_more="listens more to frequent tokens (rank {frequent}) than to rare ones ({rare})",
    rare_more="listens more to rare tokens (rank {rare}) than to frequent ones ({frequent})",
    neither="listens to frequent tokens (rank {frequent}) and rare ones ({rare}) about equally in every layer",
    transitions=False,
    short="listen more to {more} tokens",
    control="a random token",
)


class _Ends(NamedTuple):
    """One line's most frequent and rarest ranges."""

    frequent: pd.DataFrame
    rare: pd.DataFrame
    pairs: dict[int, tuple[Samples, Samples]]  # layer → both values
    gaps: dict[int, Estimate]  # layer → frequent minus rare
    ahead: dict[int, list[int]]  # 1: layers where frequent tokens are clearly higher; −1: rare ones

    @property
    def sign(self) -> int:
        """The end that is ahead in more layers; 0 if neither is ahead in any."""
        more, less = len(self.ahead[1]), len(self.ahead[-1])
        return 0 if not more + less else 1 if more >= less else -1

    @property
    def often(self) -> str:
        """`most`, `some` of the layers; "" for all of them."""
        share = len(self.ahead[self.sign]) / len(self.gaps) if self.sign else 1.0
        return "" if share == 1 else "most" if share > 0.5 else "some"


def _ends(frame: pd.DataFrame, series: Series) -> _Ends:
    own = frame[(frame["series"] == series.key) & frame["trained"]]
    frequent, rare = (own[own["rank_low"] == end] for end in (own["rank_low"].min(), own["rank_low"].max()))
    pairs = {int(layer): (_at(frequent, layer), _at(rare, layer)) for layer in sorted(set(own["layer"]))}
    gaps = {layer: (a - b).estimate() for layer, (a, b) in pairs.items()}
    ahead = {sign: [layer for layer, gap in gaps.items() if gap.sign == sign] for sign in (1, -1)}
    return _Ends(frequent, rare, pairs, gaps, ahead)


def _all_ends(frame: pd.DataFrame, models: ShownModels) -> dict[str, _Ends]:
    """The ends of each line, by its key, for both the words and the numbers of an answer."""
    return {series.key: _ends(frame, series) for series in models.present(frame)}


def _words(frame: pd.DataFrame, models: ShownModels, every: Mapping[str, _Ends], wording: _Wording) -> str:
    """Which models go in which direction in how many layers, without numbers."""
    ways: dict[tuple[int, str], list[str]] = {}
    for series in models.present(frame[frame["trained"]]):
        ends = every[series.key]
        ways.setdefault((ends.sign, ends.often), []).append(series.label)
    told = []
    for (sign, often), labels in ways.items():
        more = "frequent" if sign > 0 else "rare"
        place = f" {'at' if wording.transitions else 'in'} {often} {'steps' if wording.transitions else 'layers'}"
        told.append(
            f"{listed(labels)} {_verb(wording.short.format(more=more), len(labels))}{place if often else ''}"
            if sign
            else f"in {listed(labels)} there is no clear difference"
        )
    return f"{_upper('; '.join(told))}." if told else ""


def _verb(text: str, count: int) -> str:
    """The words with their leading verb, in the singular for one model."""
    verb, _, rest = text.partition(" ")
    return text if count > 1 else f"{verb}s {rest}"


def _contrast(series: Series, ends: _Ends, wording: _Wording) -> str:
    """Compare the most frequent with the rarest range: in how many layers each is clearly ahead, and where most."""
    frequent, rare, pairs, gaps, ahead = ends
    names = {"frequent": _range(frequent), "rare": _range(rare)}
    sign = ends.sign
    if not sign:
        return f"{_upper(series.label)} {wording.neither.format(**names)}."
    claim = (wording.frequent_more if sign == 1 else wording.rare_more).format(**names)
    found = chosen({layer: pairs[layer][0] - pairs[layer][1] for layer in ahead[sign]}, lambda gap: sign * gap)
    assert found is not None  # an interval is clear of 0 there
    most = found.key
    values = [estimate_text(samples.halves().second.estimate()) for samples in pairs[most][::sign]]
    text = f"{_upper(series.label)} {claim} {wording.among(len(ahead[sign]), len(gaps))}"
    text += f", most so at {wording.at(most)}: {values[0]} against {values[1]}"
    if wording.control:
        larger = frequent if sign == 1 else rare
        text += f", with {number(larger.loc[larger['layer'] == most, 'baseline'].mean())} for {wording.control}"
    if ahead[-sign]:
        text += f"; the other way round at {', '.join(wording.at(layer) for layer in ahead[-sign])}"
    return f"{text}."


def _at(rows: pd.DataFrame, layer: int) -> Samples:
    return Samples.of(rows[rows["layer"] == layer])


def _panels(table: pd.DataFrame, models: ShownModels, **how: Any) -> list[Panel]:
    """One panel per line, all on one scale unless their heights differ greatly."""
    tops = _tops(table)
    free = free_scales(tops.values())
    highest = max(tops.values())
    return [
        Panel.of(
            RankChart(
                table=table[table["series"] == series.key],
                top=tops[series.key] if free else highest,
                shared=not free,
                **how,
            ),
            series.label,
        )
        for series in models.present(table)
    ]


def _tops(table: pd.DataFrame) -> dict[str, float]:
    """The largest value of each line's panel."""
    return {str(key): float(own[["high", "value"]].max().max()) for key, own in table.groupby("series", sort=False)}


def _note(table: pd.DataFrame) -> str:
    note = interval_note(table.assign(group=table["group"].replace("bin", "trained")))
    tops = _tops(table)
    return f"{note} {scale_note(tops.values(), 'All panels share one scale.' if len(tops) > 1 else '')}".rstrip()


def _range(rows: pd.DataFrame) -> str:
    return _ranks(int(rows["rank_low"].iloc[0]), int(rows["rank_high"].iloc[0])) if len(rows) else "–"


def _ranks(low: int, high: int) -> str:
    """`10–25`, `2.5k–5k`."""
    return f"{_short(low)}–{_short(high)}"


def _short(rank: int) -> str:
    return f"{rank / 1000:g}k" if rank >= 1000 else str(rank)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
