"""Whether objectives spread the work alike: similarity of share profiles, between and within objectives."""

import math
from typing import Any

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import Candidate, extremes_words
from .._numbers import listed, number
from .._samples import Estimate
from .._shown_models import ShownModels
from ..forms._chart import finished, tips
from ..forms._grid import cells, squares
from ._rows import LOSS_CHANGE

_SHOWN = {"normalisation": "share", "metric": "spearman"}


def share_similarity_figure(table: pd.DataFrame, models: ShownModels) -> ReportFigure:
    """Every pair of stacks: mean rank correlation of their share profiles over pairs of seeds."""
    pairs = _both_ways(table, models)
    shown = pairs[(pairs["normalisation"] == _SHOWN["normalisation"]) & (pairs["metric"] == _SHOWN["metric"])]
    means = _means(shown)
    return ReportFigure(
        id="allocation-similarity",
        question="Do objectives spread the work alike?",
        answer=[_within_sentence(shown), _translation_sentence(shown)],
        words=_words(means),
        panels=[Panel(spec=_chart(means))],
        caption="Rank correlation of the shares of all layers × components (self-attention, feed-forward, norms; "
        "embeddings and cross-attention left out): mean, and lowest to highest pair of seeds. Only trainings of "
        "different seeds are compared, so that seeds bear on all pairs alike. Shuffled profiles: 0.",
        how_to_read=[
            "Each square compares two stacks: 1 where the same layers and components did most of the work. On the "
            "diagonal: one objective under two seeds, which is as alike as objectives can be expected to be.",
            "The data has cosines and shares per parameter too; cosines follow the largest groups.",
        ],
        method=LOSS_CHANGE,
        data=_means(pairs, ["normalisation", "metric"]),
        tables=("allocation_similarity",),
        findings=("dynamics:V1", "dynamics:V4"),
    )


def _both_ways(table: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Pairs of different seeds (or all, where there is one seed), with each stack as the first and as the second."""
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
    grouped: Any = pairs.groupby(["first", "second", *(more or [])])["value"]
    return grouped.agg(value="mean", low="min", high="max", pairs="count").reset_index()


def _words(means: pd.DataFrame) -> str:
    """Which two stacks spread the work most alike and which least; brackets are the range over pairs of seeds."""
    found = []
    for row in means.loc[means["first"] <= means["second"]].to_dict("records"):
        first, second, known = row["first"], row["second"], row["high"] > row["low"]
        name = f"within {first}" if first == second else f"between {first} and {second}"
        low, high = (row[end] if known else math.nan for end in ("low", "high"))
        one = Estimate(value=row["value"], low=low, high=high, seeds=int(row["pairs"]), count=0)
        found.append(Candidate(name, one))
    return extremes_words("the rank correlation of the shares", found, end="of shuffled shares it is 0")


def _told(pairs: pd.DataFrame, first: str, second: str) -> str | None:
    """Mean over pairs of seeds, with the lowest and the highest."""
    values = pairs.loc[(pairs["first"] == first) & (pairs["second"] == second), "value"]
    if values.empty:
        return None
    return f"{number(values.mean(), 2)} ({number(values.min(), 2)} to {number(values.max(), 2)})"


def _within_sentence(pairs: pd.DataFrame) -> str:
    names = sorted(set(pairs["first"]))
    known = [(name, told) for name in names if (told := _told(pairs, name, name))]
    if not known:
        return "One seed tells nothing about how alike two trainings of one objective are."
    return f"One objective under two seeds: {listed([f'{name} {told}' for name, told in known])}."


def _translation_sentence(pairs: pd.DataFrame) -> str:
    texts = []
    for stack, other in (
        ("encoder", "masked LM: encoder"),
        ("encoder", "causal LM: decoder"),
        ("decoder", "causal LM: decoder"),
        ("decoder", "masked LM: encoder"),
    ):
        if told := _told(pairs, f"translation: {stack}", other):
            texts.append(f"its {stack} and the {other.split(':')[0]} {told}")
    return f"Translation: {listed(texts)}." if texts else "There is no translation model to compare."


def _chart(means: pd.DataFrame) -> dict[str, Any]:
    names = sorted(set(means["first"]))
    text = [f"{value:.2f}".replace("-", "−") for value in means["value"]]
    x = cells(alt.X, "second", None, names, labelAngle=-30, labelLimit=130)
    y = cells(alt.Y, "first", None, names, labelLimit=130)
    tooltip = tips("first:N", "second:N", "value:Q||.3f", "low:Q||.3f", "high:Q||.3f", "pairs:Q")
    base = alt.Chart(means.assign(text=text, size=means["value"].clip(0, 1)))
    return finished(squares(base, x, y, "size", color="var(--above)", size=11, tooltip=tooltip), 44 * len(names))
