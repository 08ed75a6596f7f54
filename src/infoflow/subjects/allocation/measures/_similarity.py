"""How similarly two training runs distribute learning, and whether objectives or corpora matter."""

from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.foundation import UserError, symmetric_interval
from infoflow.results import KEYS, Column, TableSchema, estimate, estimate_columns, with_keys

NORMALISATIONS = ("share", "per_parameter")
METRICS = ("spearman", "cosine")
_COMPARED = ("query", "key", "value", "output", "mlp_in", "mlp_out", "norm")
_NAMES = tuple(column.name for column in KEYS if column.name != "trained")
_STACK = Column("stack", "string", "", "encoder or decoder")
_ENDS = tuple(
    column.named(f"{column.name}_{end}")
    for end in "ab"
    for column in (*(each for each in KEYS if each.name != "trained"), _STACK)
)
TrainedStack = namedtuple("TrainedStack", (*_NAMES, "stack"))
"""The subject of a profile: a model, and one of its stacks."""
ALLOCATION_SIMILARITY = TableSchema(
    name="allocation_similarity",
    version=2,
    description="Similarity of the distribution of two training runs' loss changes over layers × components "
    "(self-attention, feed-forward and norms inside the blocks; embeddings, heads and cross-attention are left out), "
    "on the train set.",
    made_by="a plan with [dynamics] on = true makes it",
    columns=(
        *_ENDS,
        Column("normalisation", "string", "", "share, or per_parameter"),
        Column("metric", "string", "", "spearman or cosine; the largest groups dominate the cosine"),
        *estimate_columns(
            "similarity in [-1, 1]",
            "similarity of the two share vectors",
            "expected similarity if the entries of one are shuffled",
            "number of entries in a share vector",
        ),
    ),
)


def compare_trainings(groups: pd.DataFrame) -> pd.DataFrame:
    """The table `allocation_similarity` for all pairs of stacks in `allocation_groups` of several models.

    Stacks of equal depth are compared, also those of one objective under two seeds, but not the two stacks of a model.
    Signs are kept: a group that raised the loss differs from one that lowered it. Replicates pair the sentences of both
    training runs.
    """
    rows = [
        row
        for (one, first), (other, second) in combinations(profiles_of(groups).items(), 2)
        if one.model != other.model
        for row in similarity_rows(one, first, other, second)
    ]
    return ALLOCATION_SIMILARITY.conform(pd.DataFrame(rows, columns=pd.Index(ALLOCATION_SIMILARITY.column_names)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Profile:
    """The distribution of a training's loss change over the compared layers and components of one stack."""

    entries: tuple[tuple, ...]  # layer, component, kind of each entry
    vectors: dict[str, tuple[np.ndarray, np.ndarray]]  # by normalisation: (entry,) and its replicates (R, entry)


def profiles_of(groups: pd.DataFrame) -> dict[TrainedStack, Profile]:
    """The profile of each stack, keyed by the columns that name its model and by the stack."""
    groups = with_keys(groups)
    inside = (groups["set"] == "train") & (groups["layer"] >= 0) & (groups["kind"] != "cross")
    first_term = groups.groupby("model")["term"].transform("first")  # other terms have their own rows
    compared = groups["component"].isin(_COMPARED) & (groups["term"] == first_term)
    keys = list(TrainedStack._fields)
    stacks = groups.loc[inside & compared].sort_values(["layer", "component", "kind"]).groupby(keys, sort=True)
    return {TrainedStack(*key): _profile(rows) for key, rows in stacks}  # type: ignore[misc]


def similarity(
    first: Float[np.ndarray, "... entry"], second: Float[np.ndarray, "... entry"], metric: str
) -> np.ndarray:
    """Rank correlation (mean ranks for ties) or cosine of vectors along the last axis; NaN for a constant vector."""
    if metric == "spearman":
        from scipy.stats import rankdata  # slow import

        first, second = (rankdata(values, axis=-1) for values in (first, second))
        first, second = (values - values.mean(axis=-1, keepdims=True) for values in (first, second))
    scale = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.asarray((first * second).sum(axis=-1) / np.where(scale == 0, np.nan, scale))


def similarity_rows(one: TrainedStack, first: Profile, other: TrainedStack, second: Profile) -> list[dict[str, Any]]:
    """The pair's row for each normalisation and metric; none for stacks of different shapes."""
    if first.entries != second.entries:
        return []
    keys = {
        f"{name}_{end}": value
        for end, key in zip("ab", (one, other), strict=True)
        for name, value in key._asdict().items()
    }
    rows = []
    for normalisation, metric in product(NORMALISATIONS, METRICS):
        values, replicates = zip(first.vectors[normalisation], second.vectors[normalisation], strict=True)
        drawn = similarity(*replicates, metric) if min(map(len, replicates)) else np.empty(0)
        value, chance = float(similarity(*values, metric)), _by_chance(*values, metric)
        ends = symmetric_interval(value, drawn, "correlation")
        numbers = estimate(value, drawn, chance, len(first.entries), ends=ends)
        rows.append({**keys, "normalisation": normalisation, "metric": metric, **numbers})
    return rows


def _profile(rows: pd.DataFrame) -> Profile:
    """The entries of one stack as shares of their sum, or per parameter."""
    draws = np.stack([np.asarray(row, dtype=float) for row in rows["replicates"]]).T
    sizes = rows["parameters"].to_numpy(dtype=float)
    raw = rows["value"].to_numpy(dtype=float), draws
    # Parts that lowered the loss become positive.
    return Profile(
        entries=tuple(rows[["layer", "component", "kind"]].itertuples(index=False, name=None)),
        vectors={"share": (-_shares(raw[0]), -_shares(raw[1]))}
        | {"per_parameter": (-_shares(raw[0] / sizes), -_shares(raw[1] / sizes))},
    )


def _shares(values: np.ndarray) -> np.ndarray:
    """Shares of the sum; NaN if nothing changed."""
    total = np.abs(values.sum(axis=-1, keepdims=True))
    return values / np.where(total == 0, np.nan, total)


def _by_chance(first: np.ndarray, second: np.ndarray, metric: str) -> float:
    if metric == "spearman":
        return 0.0
    scale = np.linalg.norm(first) * np.linalg.norm(second)
    return float(first.sum() * second.sum() / (len(first) * scale)) if scale else np.nan


# Whether the corpus affects which parts learn: training runs on several corpora, compared pair by pair.


_CORPORA = tuple(Column(f"corpus_{end}", "string", "", f"corpus of training {end}") for end in "ab")
ALLOCATION_CORPORA = TableSchema(
    name="allocation_corpora",
    version=2,
    description="Similarity of the distribution of two training runs' loss changes over layers × components, as in "
    "allocation_similarity, for pairs that differ in the corpus or in the objective and stack, but not in both.",
    made_by="it needs recordings on several corpora, and a study has only one: run a study for each and compare the "
    "folders with infoflow dynamics RUN RUN",
    columns=(*_CORPORA, *ALLOCATION_SIMILARITY.columns),
)


def compare_corpora(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table `allocation_corpora` for recordings on several corpora.

    Pairs share a corpus, or an objective and stack. Pairs within a corpus show the effect of the objective (or the
    seed), pairs within an objective show the effect of the corpus's size, domain or language pair.

    Args:
        groups: `allocation_groups` of each corpus's training runs, by the corpus's name.
    """
    if len(groups) < 2:
        raise UserError(f"A comparison of corpora needs recordings on at least two. Got {len(groups)}.")
    stacks = [(corpus, key, profile) for corpus, frame in groups.items() for key, profile in profiles_of(frame).items()]
    rows = []
    for (corpus, one, first), (other_corpus, other, second) in combinations(stacks, 2):
        same_corpus = corpus == other_corpus
        if (same_corpus and one.model != other.model) or (not same_corpus and _task(one) == _task(other)):
            keys = {"corpus_a": corpus, "corpus_b": other_corpus}
            rows += [keys | row for row in similarity_rows(one, first, other, second)]
    return ALLOCATION_CORPORA.conform(pd.DataFrame(rows, columns=pd.Index(ALLOCATION_CORPORA.column_names)))


def _task(key: TrainedStack) -> TrainedStack:
    """The key without the model's identity, which is the same for all seeds."""
    return key._replace(model="", seed=0)
