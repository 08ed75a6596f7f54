"""What claims read of tables that hold a row per head.

Heads do not correspond between seeds, so they are selected seed by seed: by the estimate, and then followed through the
replicates, since selecting again in each would favour lucky ones. Numbers are of the encoder's self-attention where a
table holds more.
"""

# R bootstrap replicates, N heads or other rows, K numbers

import numpy as np
import pandas as pd

from infoflow.results import Spec

from ._model_group import TRANSLATION, Absent
from ._shapes import spearman
from ._table import Reading, SeedRows, Table, together

POSITIONAL = 0.9  # share of tokens at one offset that makes a head positional
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Shares of the heads removed, at which claims read a curve."""
MATTERS = 0.01
"""Nats per token: a change of the loss by which perplexity moves one per cent."""
_HEAD = ["layer", "head"]


def heads(name: str, objective: Spec, **alternatives: object) -> Table:
    """Self-attention heads; each value may be a tuple of alternatives, of which the first that occurs is read."""
    wide = {key: value if isinstance(value, tuple) else (value,) for key, value in alternatives.items()}
    return Table(name, objective, known=True).where(kind="self", **wide)


def best_heads(*tables: Table, less: str = "") -> Reading:
    """For each table, the largest number over its rows, less a column such as the baseline."""
    return together(_best, *tables, less=less)


def one_head(*tables: Table, less_baseline: tuple[bool, ...], thresholds: tuple[float, ...]) -> Reading:
    """Several numbers of one and the same head of each seed: the head whose weakest number lies highest.

    Each number may be less the baseline, and counts from its threshold.
    """
    return together(_one_head, *tables, less_baseline=less_baseline, thresholds=thresholds)


def layer_means(table: Table, *, ratio: bool = False) -> Reading:
    """The mean over the heads of each layer; with `ratio`, of the values over that of the baselines."""
    return table.reduce(_layer_means, ratio=ratio)


def positional_heads(objective: Spec = TRANSLATION) -> Reading:
    """The largest share at offset −1 or +1, the largest share at any other measured offset (NaN where none was
    measured), and the mean confidence of the heads whose share reaches `POSITIONAL` at some offset (0 where there is
    no such head).
    """
    return together(_positional, heads("head_positional", objective), heads("head_confidence", objective))


def dominant_heads(objective: Spec = TRANSLATION) -> Reading:
    """For each layer the share of its most relevant head times the number of heads; Spearman's correlation of relevance
    and confidence over all heads, without the rare-token head of the first layer where rare-token scores were measured;
    and that head's relevance times the number of heads (NaN where they were not).
    """
    tables = [heads(f"head_{name}", objective) for name in ("relevance", "confidence")]
    return together(_dominant, *tables, heads("head_rare_token", objective, rarest=1), optional=1)


def ablations(stack: str, kind: str, removed: str, objective: Spec = TRANSLATION) -> Table:
    """Change of the loss by each head, ablated alone ("head"), or with all others of its layer ablated ("others")."""
    table = Table("head_ablation", objective, needs=("layer", "head", "value"))
    return table.where(stack=stack, kind=kind, removed=removed, mode="zero", metric="loss")


def mattering_share(table: Table) -> Reading:
    """Share of the ablations that change the loss by more than `MATTERS`, up or down, counted seed by seed; and their
    number."""
    return table.reduce(_mattering)


def best_head_left(stack: str, kind: str) -> Reading:
    """Change of the loss when each layer keeps the one head that does best alone; of the baseline, a random head."""
    return Reading((ablations(stack, kind, "others"),), _best_left, 0)


def removal_curve(order: str, kind: str = "all", objective: Spec = TRANSLATION, **draw: int) -> Reading:
    """The loss with the shares `SHARES` of the heads ablated in one order; of random orders their mean, or one draw."""
    table = Table("head_pruning_curve", objective, needs=("removed", "draw"))
    return table.where(order=order, kind=kind, mode="zero", metric="loss", **draw).reduce(_removal)


def _best(*parts: SeedRows, less: str) -> np.ndarray:
    return _beside([_largest(rows.numbers - (rows.column(less) if less else 0.0)) for rows in parts])


def _one_head(*parts: SeedRows, less_baseline: tuple[bool, ...], thresholds: tuple[float, ...]) -> np.ndarray:
    common = sorted(set.intersection(*(set(rows.frame[_HEAD].itertuples(index=False, name=None)) for rows in parts)))
    if not common:
        raise Absent("no head has all the numbers that the claim needs")
    numbers = []
    for rows, less in zip(parts, less_baseline, strict=True):
        own = SeedRows(rows.frame.set_index(_HEAD).loc[common], rows.number)
        numbers.append(own.numbers - own.column("baseline") if less else own.numbers)
    least = min(map(len, numbers))
    numbers_RNK = np.stack([values[:least] for values in numbers], axis=2)
    return numbers_RNK[:, (numbers_RNK[0] - np.array(thresholds)).min(axis=1).argmax()]


def _layer_means(rows: SeedRows, ratio: bool) -> np.ndarray:
    layers = [own for _, own in rows.groups("layer")]
    means = [own.numbers.mean(axis=1) / (own.frame["baseline"].mean() if ratio else 1.0) for own in layers]
    return _beside(means)


def _positional(shares: SeedRows, confidences: SeedRows) -> np.ndarray:
    share_RN, confidence_RN = shares.numbers, confidences.numbers
    adjacent = shares.frame["offset"].abs().to_numpy() == 1
    positional = pd.MultiIndex.from_frame(shares.frame.loc[share_RN[0] >= POSITIONAL, _HEAD])
    confident = pd.MultiIndex.from_frame(confidences.frame[_HEAD]).isin(positional)
    found = confidence_RN[:, confident].mean(axis=1) if confident.any() else np.full(len(confidence_RN), np.nan)
    return _beside([_largest(share_RN[:, adjacent]), _largest(share_RN[:, ~adjacent]), found])


def _dominant(relevance: SeedRows, confidence: SeedRows, rare: SeedRows | None) -> np.ndarray:
    index = relevance.frame.set_index(_HEAD).index
    both = index.isin(confidence.frame.set_index(_HEAD).index)
    if not both.any():
        raise Absent("head_relevance and head_confidence hold no head in common")
    relevance = relevance.at(both)
    confidence = SeedRows(confidence.frame.set_index(_HEAD).loc[list(index[both])], confidence.number)
    layers = relevance.frame["layer"].to_numpy()
    share_RN, confidence_RN = relevance.numbers, confidence.numbers
    times_heads_RN = share_RN * relevance.frame.groupby("layer")["head"].transform("size").to_numpy()
    pointer = None if rare is None else _rare_head(relevance.frame, rare)
    others = np.arange(len(layers)) != pointer
    least = min(len(share_RN), len(confidence_RN))
    agreement = spearman(share_RN[:least, others], confidence_RN[:least, others])[:, 0]
    exception = np.full(least, np.nan) if pointer is None else times_heads_RN[:, pointer]
    return _beside([*(_largest(times_heads_RN[:, layers == one]) for one in sorted(set(layers))), agreement, exception])


def _rare_head(frame: pd.DataFrame, rare: SeedRows) -> int | None:
    """Place of the first layer's head that points most often to rare tokens."""
    first = rare.frame[rare.frame["layer"] == rare.frame["layer"].min()]
    best = first.loc[first[rare.number].idxmax()]
    places = np.flatnonzero((frame["layer"] == best["layer"]) & (frame["head"] == best["head"]))
    return int(places[0]) if len(places) else None


def _mattering(rows: SeedRows) -> np.ndarray:
    matter_RN = np.abs(_finite(rows)) > MATTERS
    return np.stack([matter_RN.mean(axis=1), np.full(len(matter_RN), matter_RN.shape[1])], axis=1)


def _best_left(rows: SeedRows) -> np.ndarray:
    best = rows.frame.loc[rows.frame.groupby("layer")["value"].idxmin()]
    if list(best["layer"]) != list(range(len(best))):
        raise Absent("head_ablation lacks a layer")
    return _finite(SeedRows(best, rows.number))


def _removal(rows: SeedRows) -> np.ndarray:
    near = np.isclose(rows.column("removed")[:, None], SHARES, atol=1e-6).any(axis=1)
    curves = [
        _finite(SeedRows(own.frame.sort_values("removed"), own.number)) for _, own in rows.at(near).groups("draw")
    ]
    if not curves or any(curve.shape[1] != len(SHARES) for curve in curves):
        raise Absent(f"head_pruning_curve lacks one of the shares {', '.join(map(str, SHARES))}, or holds one twice")
    return np.mean(curves, axis=0)


def _finite(rows: SeedRows) -> np.ndarray:
    numbers = rows.numbers
    if not np.isfinite(numbers[0]).all():
        raise Absent(f"numbers of ablated heads are lacking ({rows.number})")
    return numbers


def _largest(numbers_RN: np.ndarray) -> np.ndarray:
    """The column that is largest in the first row, (R,); NaN where there is no column."""
    if numbers_RN.shape[1] == 0:
        return np.full(len(numbers_RN), np.nan)
    return numbers_RN[:, numbers_RN[0].argmax()]


def _beside(columns: list[np.ndarray]) -> np.ndarray:
    """Columns of numbers, cut to the common number of replicates."""
    common = min(map(len, columns))
    return np.stack([column[:common] for column in columns], axis=1)
