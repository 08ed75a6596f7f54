"""How similarly training runs distribute learning over parameters, compared between objectives, corpora and seeds."""

import math
from itertools import combinations
from typing import Any

import pandas as pd

from infoflow.foundation import interval_over_seeds
from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import Candidate, Estimate, extremes_words, listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import by_key, finished, tips
from infoflow.report.forms._marks import Constant, draw
from infoflow.report.forms._rows import cells, interval_dots, squares

from ..measures import ALLOCATION_CORPORA, ALLOCATION_SIMILARITY
from ._components import LOSS_CHANGE

_SHOWN = {"normalisation": "share", "metric": "spearman"}
_ACROSS, _BETWEEN, _SEEDS = "another corpus", "another objective", "another seed only"


def _objectives(table: pd.DataFrame, models: ModelSelection) -> Drawn:
    """Every pair of stacks: mean rank correlation of their share profiles over pairs of seeds."""
    pairs = _mirrored(table, models)
    shown = pairs[(pairs["normalisation"] == _SHOWN["normalisation"]) & (pairs["metric"] == _SHOWN["metric"])]
    means = _means(shown)
    return Drawn(
        data=_means(pairs, ["normalisation", "metric"]),
        panels=[Panel(spec=_chart(means))],
        words=_words(means),
        caption="Rank correlation of the shares of all layers × components (self-attention, feed-forward, norms; "
        f"embeddings and cross-attention left out). {_pairs_compared(table)} Shuffled profiles: 0.",
    )


def _pairs_compared(table: pd.DataFrame) -> str:
    if bool((table["seed_a"] == table["seed_b"]).all()):
        return "One seed, which all training runs share."
    return (
        "Means over pairs of training runs with different seeds, so that seeds affect all pairs alike; the data has "
        "95% intervals over seeds."
    )


def _mirrored(table: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Pairs of different seeds (all pairs if there is one seed), with each stack as the first and as the second."""
    pairs = table[table["seed_a"] != table["seed_b"]]
    pairs = table if pairs.empty else pairs
    label = {
        end: [
            f"{models[key].label}: {stack}"
            for key, stack in zip(pairs[f"series_{end}"], pairs[f"stack_{end}"], strict=True)
        ]
        for end in "ab"
    }
    one = pairs.assign(first=label["a"], second=label["b"])
    other = one.rename(columns={"first": "second", "second": "first", "seed_a": "seed_b", "seed_b": "seed_a"})
    return pd.concat([one, other], ignore_index=True)


def _means(pairs: pd.DataFrame, more: list[str] | None = None) -> pd.DataFrame:
    by = ["first", "second", *(more or [])]
    grouped: Any = pairs.groupby(by)
    ends = [dict(zip(by, key, strict=True)) | _with_interval(own) for key, own in grouped]
    return pd.DataFrame(ends, columns=[*by, "value", "low", "high", "pairs"])


def _with_interval(pairs: pd.DataFrame) -> dict[str, float]:
    """Mean over pairs of models with its interval over seeds; the ends are NaN with two seeds or fewer."""
    values, units = pairs["value"].to_numpy(float), [*zip(pairs["seed_a"], pairs["seed_b"], strict=True)]
    ends = interval_over_seeds([tuple(sorted({int(a), int(b)})) for a, b in units], values, scale="correlation")
    return {"value": float(values.mean()), "low": ends.low, "high": ends.high, "pairs": len(values)}


def _words(means: pd.DataFrame) -> str:
    """The pairs of stacks with the most and the least similar distributions, with 95% intervals over seeds."""
    found = []
    for row in means.loc[means["first"] <= means["second"]].to_dict("records"):
        first, second, known = row["first"], row["second"], row["high"] > row["low"]
        name = f"within {first}" if first == second else f"between {first} and {second}"
        low, high = (row[end] if known else math.nan for end in ("low", "high"))
        one = Estimate(value=row["value"], low=low, high=high, seeds=int(row["pairs"]), count=0)
        found.append(Candidate(name, one))
    return extremes_words("the rank correlation of the shares", found, end="for shuffled shares it is 0")


def _chart(means: pd.DataFrame) -> dict[str, Any]:
    names = sorted(set(means["first"]))
    text = [f"{value:.2f}".replace("-", "−") for value in means["value"]]
    x = cells("x", "second", None, names, labelAngle=-30, labelLimit=130)
    y = cells("y", "first", None, names, labelLimit=130)
    tooltip = tips("first:N", "second:N", "value:Q||.3f", "low:Q||.3f", "high:Q||.3f", "pairs:Q")
    base = means.assign(text=text, size=means["value"].clip(0, 1))
    return finished(squares(base, x, y, "size", color="var(--above)", size=11, tooltip=tooltip), 44 * len(names))


def _corpora(table: pd.DataFrame, models: ModelSelection) -> Drawn:
    """Similarity of share profiles when the corpus, the objective, or only the seed changes."""
    trainings = _trainings(table, models)
    pairs = _pairs_of_corpora(trainings)
    rows = _by_change(trainings)
    corpora = sorted({*table["corpus_a"], *table["corpus_b"]})
    return Drawn(
        data=rows,
        panels=[Panel(spec=_corpora_chart(rows, pairs))],
        answer=[_change_sentence(rows, kind) for kind in (_ACROSS, _BETWEEN, _SEEDS) if kind in set(rows["changed"])],
        caption=f"Rank correlation of the shares of layers × components in the loss change of the stack that reads the "
        f"text; corpora: {listed([str(name) for name in corpora])}. Large: means, with 95% intervals over seeds; "
        "small: each pair of corpora (or each corpus), mean over pairs of different seeds. Shuffled profiles: 0.",
    )


def _trainings(table: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """What differs between two training runs of different seeds."""
    table = table.loc[(table["normalisation"] == "share") & (table["metric"] == "spearman")]
    different = table["seed_a"] != table["seed_b"]
    table = table.loc[different] if bool(different.any()) else table
    found = []
    main = {series.key: _main_stack(table, series.key) for series in models.series}
    for one in models.series:
        own = _either_way(table, one.key, one.key, main)
        same = own["corpus_a"] == own["corpus_b"]
        found.append(own[~same].assign(changed=_ACROSS, name=one.label))
        found.append(own[same].assign(changed=_SEEDS, name=one.label))
    for one, other in combinations(models.series, 2):
        own = _either_way(table, one.key, other.key, main)
        found.append(own.assign(changed=_BETWEEN, name=f"{one.label}, {other.label}"))
    return pd.concat(found, ignore_index=True)


def _pairs_of_corpora(trainings: pd.DataFrame) -> pd.DataFrame:
    """Means over pairs of seeds, for each pair of corpora."""
    grouped: Any = trainings.groupby(["changed", "name", "corpus_a", "corpus_b"], sort=False)["value"]
    return grouped.agg(value="mean", pairs="count").reset_index()


def _main_stack(table: pd.DataFrame, objective: str) -> str:
    stacks = {*table.loc[table["series_a"] == objective, "stack_a"], "decoder"}
    return "encoder" if "encoder" in stacks else "decoder"


def _either_way(table: pd.DataFrame, one: str, other: str, main: dict[str, str]) -> pd.DataFrame:
    """Pairs of the main stacks of two objectives, in either order."""
    ends = ["series_a", "stack_a", "series_b", "stack_b"]
    wanted = {(one, main[one], other, main[other]), (other, main[other], one, main[one])}
    return table.loc[[key in wanted for key in table[ends].itertuples(index=False, name=None)]]


def _by_change(trainings: pd.DataFrame) -> pd.DataFrame:
    """Means over corpora and pairs of seeds; with fewer than two seeds the interval is unknown."""
    found, groups = [], trainings.groupby(["changed", "name"], sort=False)
    for (changed, name), own in groups:  # type: ignore[misc]
        of_seeds = own.groupby(["seed_a", "seed_b"])["value"].mean()
        ends = interval_over_seeds(of_seeds.index.tolist(), of_seeds.to_numpy(), scale="correlation")
        points = len(own[["corpus_a", "corpus_b"]].drop_duplicates())
        mean = {"value": float(of_seeds.mean()), "low": ends.low, "high": ends.high, "points": points}
        found.append({"changed": changed, "name": name, **mean})
    rows = pd.DataFrame(found)
    order = {_ACROSS: 0, _BETWEEN: 1, _SEEDS: 2}
    return rows.sort_values("changed", key=lambda column: column.map(order), kind="stable").reset_index(drop=True)


def _change_sentence(rows: pd.DataFrame, kind: str) -> str:
    own = rows[rows["changed"] == kind]
    values = listed([f"{row['name']} {number(float(row['value']), 2)}" for row in own.to_dict("records")])
    start = {_ACROSS: "One objective on two corpora", _BETWEEN: "Two objectives on one corpus"}
    return f"{start.get(kind, 'One objective on one corpus, two seeds')}: {values}."


def _corpora_chart(rows: pd.DataFrame, pairs: pd.DataFrame) -> dict[str, Any]:
    rows = rows.assign(line=rows["changed"] + ": " + rows["name"])
    pairs = pairs.assign(line=pairs["changed"] + ": " + pairs["name"])
    pairs = pairs.assign(
        corpora=[a if a == b else f"{a}, {b}" for a, b in zip(pairs["corpus_a"], pairs["corpus_b"], strict=True)]
    )
    colors = ["var(--above)", "var(--below)", "var(--control)"]
    tooltip = tips("line:N|changed", "corpora:N", "value:Q|rank correlation|.3f", "pairs:Q|pairs of seeds")
    return interval_dots(
        rows,
        {"color": by_key("color", "changed", [_ACROSS, _BETWEEN, _SEEDS], colors), "shape": Constant("diamond")},
        row="line",
        title="rank correlation",
        domain=[min(0.0, float(pairs["value"].min())), 1.0],
        size=90,
        more=[draw("point", pairs, filled=True, size=28, opacity=0.7, tooltip=tooltip)],
        step=24,
        dim=False,
    )


OBJECTIVES = DeclaredFigure(
    name="dynamics/objectives",
    id="allocation-similarity",
    question="Do objectives distribute the work in the same way?",
    how_to_read=(
        "Each square compares two stacks; 1 means that the same layers and components did most of the work. The "
        "diagonal compares one objective under two seeds: two objectives can hardly be more alike than that.",
        "The data also contain cosines and shares per parameter; cosines are dominated by the largest groups.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_SIMILARITY.name,),
    findings=("dynamics:V1", "dynamics:V4"),
    draw=_objectives,
)
CORPORA = DeclaredFigure(
    name="dynamics/corpora",
    id="allocation-corpora",
    question="Does the corpus affect which parts do the learning?",
    how_to_read=(
        "Each line changes one thing between two training runs: the corpus, the objective, or only the seed. Seeds "
        "differ in every pair, so the last group (grey) shows how similar training runs can be.",
        "If the dynamics depended on the objective alone, a change of corpus would matter no more than a change of "
        "seed, and a change of objective would matter more.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_CORPORA.name,),
    findings=("dynamics:V3",),
    draw=_corpora,
)
