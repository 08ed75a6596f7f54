"""Readings of tables that have one row per head; heads are selected on one half of the sentences."""

# R bootstrap replicates, N heads or layers
# R bootstrap replicates, N heads or other rows, K numbers

import numpy as np
import pandas as pd

from infoflow.foundation import on_halves, replicate_weights
from infoflow.heads import HEAD_ABLATION, HEAD_CONFIDENCE, HEAD_POSITIONAL, HEAD_PRUNING_CURVE, HEAD_RARE_TOKEN
from infoflow.results import Spec

from ._curves import spearman
from ._model_group import TRANSLATION, Absent
from ._table import Reading, SeedRows, Table, together

# Selection of a head or layer on one half of the sentences, and its number on the other half.
#
# The largest of many numbers is partly due to chance, so it is too large on the sentences that selected it. Heads and
# layers are therefore selected for each seed by the estimate on the first half, and stay the same in all replicates.

CHOSEN = (
    "chosen on one half of the sentences and reported on the other, so that a number truly at the threshold passes in "
    "2.5 % of samples"
)
"""Describes how a statistic selects its heads."""


def held_out(numbers_RN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates on the first half of the sentences, (N,), and on the second half with replicates, (1 + R, N).

    If the replicates are not over blocks of sentences, the halves are unknown, and both results use all sentences.
    """
    value_N, finite_N = numbers_RN[0], np.isfinite(numbers_RN[0])
    halves = on_halves(value_N, list(numbers_RN[1:].T))
    if np.isnan(halves.first[finite_N]).any() or not finite_N.any():
        return value_N, numbers_RN
    moves_RN = (replicate_weights() - 1) @ np.nan_to_num(halves.effects).T
    return halves.first, np.concatenate([halves.second[None], halves.second + moves_RN])


def largest(numbers_RN: np.ndarray) -> np.ndarray:
    """The second-half number of the column that is largest on the first half, (1 + R, 1); NaN without columns."""
    if not np.isfinite(numbers_RN[:1]).any():
        return np.full((len(numbers_RN), 1), np.nan)
    first_N, second_RN = held_out(numbers_RN)
    return second_RN[:, [int(np.nanargmax(first_N))]]


# Readings of tables that have one row per head.
#
# Heads do not correspond between seeds, so they are selected for each seed on one half of the sentences and reported on
# the other. If a table covers several kinds of attention, the numbers describe the encoder's self-attention.

POSITIONAL = 0.9  # least share of tokens with the most attention at one offset that makes a head positional
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Shares of removed heads at which claims read a curve."""
MATTERS = 0.01
"""Nats per token: the loss change that moves perplexity by one per cent."""
_HEAD = ["layer", "head"]


def heads(name: str, objective: Spec, **alternatives: object) -> Table:
    """Rows about self-attention heads; of a tuple of alternatives for a column, the first value that exists is read."""
    wide = {key: value if isinstance(value, tuple) else (value,) for key, value in alternatives.items()}
    return Table(name, objective, known=True).where(kind="self", **wide)


def best_heads(*tables: Table, less: str = "") -> Reading:
    """Largest number over the rows of each table, minus the column `less` (such as the baseline) if it is named."""
    return together(_best, *tables, less=less)


def one_head(*tables: Table, less_baseline: tuple[bool, ...], thresholds: tuple[float, ...]) -> Reading:
    """Several numbers of one head per seed: the head whose smallest margin over the thresholds is largest.

    Where `less_baseline` is true, the larger of a number's controls is subtracted. These are the baseline and, for rare
    tokens, the score with shuffled ranks.
    """
    return together(_one_head, *tables, less_baseline=less_baseline, thresholds=thresholds)


def busiest_layer(*tables: Table, relative: Table) -> Reading:
    """Means over heads in the layer with the first table's largest mean; for `relative`, as a ratio to its baseline."""
    return together(_busiest, *tables, relative)


def positional_heads() -> Reading:
    """Shares and confidence of positional heads.

    The columns are the largest share at offset −1 or +1, the largest share at any other measured offset (NaN if none
    was measured), and the mean confidence of the heads whose share reaches `POSITIONAL` at some offset (NaN if there
    is none).
    """
    return together(_positional, heads(HEAD_POSITIONAL.name, TRANSLATION), heads(HEAD_CONFIDENCE.name, TRANSLATION))


def dominant_heads() -> Reading:
    """Dominance of heads by relevance.

    The columns are, for each layer, the share of its most relevant head times the number of heads; Spearman's
    correlation of relevance and confidence over all heads, without the first layer's rare-token head if rare-token
    scores were measured; and the rare-token head's relevance times the number of heads (NaN without these scores).
    """
    tables = [heads(f"head_{name}", TRANSLATION) for name in ("relevance", "confidence")]
    return together(_dominant, *tables, heads(HEAD_RARE_TOKEN.name, TRANSLATION, rarest=1), optional=1)


def ablations(stack: str, kind: str, removed: str) -> Table:
    """Change of the loss when each head alone is ablated ("head"), or all other heads of its layer ("others")."""
    table = Table(HEAD_ABLATION.name, TRANSLATION, needs=("layer", "head", "value"))
    return table.where(stack=stack, kind=kind, removed=removed, mode="zero", metric="loss")


def mattering_share(table: Table) -> Reading:
    """For each seed, the share of ablations that move the loss by more than `MATTERS`, and the number of ablations."""
    return table.reduce(_mattering)


def best_head_left(stack: str, kind: str) -> Reading:
    """Change of the loss if each layer keeps only its best head; the baseline keeps a random head."""
    return Reading((ablations(stack, kind, "others"),), _best_left, 0)


def removal_curve(order: str, kind: str = "all", **draw: int) -> Reading:
    """The loss with the shares `SHARES` of the heads ablated in one order; for random orders, the mean or one draw."""
    table = Table(HEAD_PRUNING_CURVE.name, TRANSLATION, needs=("removed", "draw"))
    return table.where(order=order, kind=kind, mode="zero", metric="loss", **draw).reduce(_removal)


def _best(*parts: SeedRows, less: str) -> np.ndarray:
    return stacked([largest(rows.numbers - (rows.column(less) if less else 0.0))[:, 0] for rows in parts])


def _one_head(*parts: SeedRows, less_baseline: tuple[bool, ...], thresholds: tuple[float, ...]) -> np.ndarray:
    common = sorted(set.intersection(*(set(rows.frame[_HEAD].itertuples(index=False, name=None)) for rows in parts)))
    if not common:
        raise Absent("no head has all the numbers that the claim needs")
    numbers = []
    for rows, less in zip(parts, less_baseline, strict=True):
        own = SeedRows(rows.frame.set_index(_HEAD).loc[common], rows.number)
        controls = [own.column(name) for name in ("baseline", "shuffled") if name in own.frame]
        numbers.append(own.numbers - np.max(controls, axis=0) if less else own.numbers)
    least = min(map(len, numbers))
    firsts, seconds = zip(*(held_out(values[:least]) for values in numbers), strict=True)
    best = (np.stack(firsts, axis=1) - np.array(thresholds)).min(axis=1).argmax()
    return np.stack([second_RN[:, best] for second_RN in seconds], axis=1)


def _busiest(first: SeedRows, *others: SeedRows) -> np.ndarray:
    means = [{layer: own.numbers.mean(axis=1) for layer, own in rows.groups("layer")} for rows in (first, *others)]
    layers = list(means[0])
    layer = layers[int(held_out(stacked(list(means[0].values())))[0].argmax())]
    if any(layer not in own for own in means):
        raise Absent(f"a table lacks layer {layer}, which attends most to SEP")
    relative = others[-1].frame
    columns = [held_out(own[layer][:, None])[1][:, 0] for own in means]
    columns[-1] = columns[-1] / relative.loc[relative["layer"] == layer, "baseline"].mean()
    return stacked(columns)


def _positional(shares: SeedRows, confidences: SeedRows) -> np.ndarray:
    first_N, share_RN = held_out(shares.numbers)
    confidence_RN = held_out(confidences.numbers)[1]
    adjacent = shares.frame["offset"].abs().to_numpy() == 1
    positional = pd.MultiIndex.from_frame(shares.frame.loc[first_N >= POSITIONAL, _HEAD])
    confident = pd.MultiIndex.from_frame(confidences.frame[_HEAD]).isin(positional)
    found = confidence_RN[:, confident].mean(axis=1) if confident.any() else np.full(len(confidence_RN), np.nan)
    none = np.full(len(share_RN), np.nan)
    best = [share_RN[:, which][:, first_N[which].argmax()] if which.any() else none for which in (adjacent, ~adjacent)]
    return stacked([*best, found])


def _dominant(relevance: SeedRows, confidence: SeedRows, rare: SeedRows | None) -> np.ndarray:
    index = relevance.frame.set_index(_HEAD).index
    both = index.isin(confidence.frame.set_index(_HEAD).index)
    if not both.any():
        raise Absent("head_relevance and head_confidence hold no head in common")
    relevance = relevance.at(both)
    heads_of = relevance.frame.groupby("layer").size()
    if np.min(heads_of) < 2:
        raise Absent(f"too few heads: block {heads_of.idxmin()} has one, which holds all of its relevance")
    confidence = SeedRows(confidence.frame.set_index(_HEAD).loc[list(index[both])], confidence.number)
    layers = relevance.frame["layer"].to_numpy()
    share_RN, confidence_RN = relevance.numbers, confidence.numbers
    times_heads_RN = share_RN * relevance.frame.groupby("layer")["head"].transform("size").to_numpy()
    pointer = None if rare is None else _rare_head(relevance.frame, rare)
    others = np.arange(len(layers)) != pointer
    least = min(len(share_RN), len(confidence_RN))
    agreement = spearman(share_RN[:least, others], confidence_RN[:least, others])[:, 0]
    exception = np.full(least, np.nan) if pointer is None else times_heads_RN[:, pointer]
    best = [largest(times_heads_RN[:, layers == one])[:, 0] for one in sorted(set(layers))]
    return stacked([*best, agreement, exception])


def _rare_head(frame: pd.DataFrame, rare: SeedRows) -> int | None:
    """Index of the first-layer head that attends most often to rare tokens."""
    first = rare.frame[rare.frame["layer"] == rare.frame["layer"].min()]
    best = first.loc[first[rare.number].idxmax()]
    places = np.flatnonzero((frame["layer"] == best["layer"]) & (frame["head"] == best["head"]))
    return int(places[0]) if len(places) else None


def _mattering(rows: SeedRows) -> np.ndarray:
    matter_RN = np.abs(_finite(rows)) > MATTERS
    return np.stack([matter_RN.mean(axis=1), np.full(len(matter_RN), matter_RN.shape[1])], axis=1)


def _best_left(rows: SeedRows) -> np.ndarray:
    losses_N, numbers_RN = held_out(SeedRows(rows.frame).numbers)[0], held_out(_finite(rows))[1]
    best = pd.Series(losses_N).groupby(rows.frame["layer"].to_numpy()).idxmin()
    if list(best.index) != list(range(len(best))):
        raise Absent("head_ablation lacks a layer")
    return numbers_RN[:, best]


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


def stacked(columns: list[np.ndarray]) -> np.ndarray:
    """Stack columns of numbers after truncating them to their common number of replicates."""
    common = min(map(len, columns))
    return np.stack([column[:common] for column in columns], axis=1)
