"""Does the corpus matter to who does the learning, or only the objective?"""

from itertools import combinations
from typing import Any

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from .._shown_models import ShownModels
from ..forms._chart import tips, values_of
from ..forms._dots import interval_dots
from ._rows import LOSS_CHANGE

_ACROSS, _BETWEEN, _SEEDS = "another corpus", "another objective", "another seed only"


def corpora_figure(table: pd.DataFrame, models: ShownModels) -> ReportFigure:
    """Similarity of share profiles when the corpus changes, when the objective changes, and when only the seed does."""
    pairs = _pairs(table, models)
    rows = _rows(pairs)
    corpora = sorted({*table["corpus_a"], *table["corpus_b"]})
    return ReportFigure(
        id="allocation-corpora",
        question="Does the corpus matter to who does the learning?",
        answer=[_sentence(rows, kind) for kind in (_ACROSS, _BETWEEN, _SEEDS) if kind in set(rows["changed"])],
        panels=[Panel(spec=_chart(rows, pairs))],
        caption=f"Rank correlation of the shares of layers × components in the loss change of the stack that reads the "
        f"text; corpora: {listed([str(name) for name in corpora])}. Large: means; small: each pair of corpora (or each "
        "corpus), mean over pairs of different seeds. Shuffled profiles: 0.",
        how_to_read=[
            "Each line changes one thing between two trainings: the corpus, the objective, or nothing but the seed. "
            "Seeds differ in every pair, so the last group (grey) is as alike as trainings can be expected to be.",
            "If the dynamics depended on the objective alone, changing the corpus would change no more than the seed "
            "does, and changing the objective more.",
        ],
        method=LOSS_CHANGE,
        data=rows,
        tables=("allocation_corpora",),
        findings=("dynamics:V3",),
    )


def _pairs(table: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """What changes between two trainings, pair of corpora by pair of corpora; means over pairs of different seeds."""
    table = table.loc[(table["normalisation"] == "share") & (table["metric"] == "spearman")]
    different = table["seed_a"] != table["seed_b"]
    table = table.loc[different] if bool(different.any()) else table
    found = []
    main = {series.key: _main_stack(table, series.key) for series in models.series}
    for one in models.series:
        own = _of(table, one.key, one.key, main)
        same = own["corpus_a"] == own["corpus_b"]
        found.append(own[~same].assign(changed=_ACROSS, name=one.label))
        found.append(own[same].assign(changed=_SEEDS, name=one.label))
    for one, other in combinations(models.series, 2):
        own = _of(table, one.key, other.key, main)
        found.append(own.assign(changed=_BETWEEN, name=f"{one.label}, {other.label}"))
    rows = pd.concat(found, ignore_index=True)
    grouped: Any = rows.groupby(["changed", "name", "corpus_a", "corpus_b"], sort=False)["value"]
    return grouped.agg(value="mean", pairs="count").reset_index()


def _main_stack(table: pd.DataFrame, objective: str) -> str:
    stacks = {*table.loc[table["series_a"] == objective, "stack_a"], "decoder"}
    return "encoder" if "encoder" in stacks else "decoder"


def _of(table: pd.DataFrame, one: str, other: str, main: dict[str, str]) -> pd.DataFrame:
    """Pairs of the main stacks of two objectives, either way round."""
    ends = ["series_a", "stack_a", "series_b", "stack_b"]
    wanted = {(one, main[one], other, main[other]), (other, main[other], one, main[one])}
    return table.loc[[key in wanted for key in table[ends].itertuples(index=False, name=None)]]


def _rows(pairs: pd.DataFrame) -> pd.DataFrame:
    grouped: Any = pairs.groupby(["changed", "name"], sort=False)["value"]
    rows = grouped.agg(value="mean", low="min", high="max", points="count").reset_index()
    order = {_ACROSS: 0, _BETWEEN: 1, _SEEDS: 2}
    return rows.sort_values("changed", key=lambda column: column.map(order), kind="stable").reset_index(drop=True)


def _sentence(rows: pd.DataFrame, kind: str) -> str:
    own = rows[rows["changed"] == kind]
    values = listed([f"{row['name']} {number(float(row['value']), 2)}" for row in own.to_dict("records")])
    start = {_ACROSS: "One objective on two corpora", _BETWEEN: "Two objectives on one corpus"}
    return f"{start.get(kind, 'One objective on one corpus, two seeds')}: {values}."


def _chart(rows: pd.DataFrame, pairs: pd.DataFrame) -> dict[str, Any]:
    rows = rows.assign(line=rows["changed"] + ": " + rows["name"])
    pairs = pairs.assign(line=pairs["changed"] + ": " + pairs["name"])
    pairs = pairs.assign(
        corpora=[a if a == b else f"{a}, {b}" for a, b in zip(pairs["corpus_a"], pairs["corpus_b"], strict=True)]
    )
    colors = ["var(--above)", "var(--below)", "var(--control)"]
    tooltip = tips("line:N|changed", "corpora:N", "value:Q|rank correlation|.3f", "pairs:Q|pairs of seeds")
    return interval_dots(
        rows,
        {
            "color": alt.Color(**values_of("changed", [_ACROSS, _BETWEEN, _SEEDS], colors)),
            "shape": alt.ShapeValue("diamond"),
        },
        row="line",
        title="rank correlation",
        domain=[min(0.0, float(pairs["value"].min())), 1.0],
        size=90,
        more=[alt.Chart(pairs).mark_point(filled=True, size=28, opacity=0.7).encode(tooltip=tooltip)],
        step=24,
        dim=False,
    )
