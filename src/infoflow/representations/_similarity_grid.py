"""Every layer of one model against every layer of another: similarities with error bars and a shuffled baseline."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from infoflow.flow import TokenSample
from infoflow.foundation import UserError, as_written, current_display, stream
from infoflow.results import estimate, scale_of

from ._cka import LEAST_ROWS
from ._layer_pair import LayerPair
from ._layer_space import LayerSpace
from ._paired_distance import BlockGroups, undefined_columns
from ._pwcca import too_few_rows
from ._ranked_space import ItemPairs, RankedSpace
from ._rsa import centred_ranks
from ._space_metrics import SPACE_METRICS, space_values

METRICS = ("rsa", *SPACE_METRICS)
CANONICAL = ("pwcca", "svcca", "cca")

_DIGITS = 5
"""Significant digits of stored replicates."""


def check_metrics(metrics: Sequence[str]) -> None:
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown or not metrics or len(set(metrics)) < len(metrics):
        got = as_written(unknown[0] if unknown else list(metrics))
        raise UserError(f"metrics must be different ones of {', '.join(METRICS)}. Got {got}.")


def similarity_grid(
    first: TokenSample, second: TokenSample, metrics: Sequence[str], items: int, dissimilarity: str
) -> list[dict[str, Any]]:
    """Rows of layer_a, layer_b, metric and the estimate columns.

    Args:
        first: States of the first model.
        second: States of the second model, for the same occurrences in the same order.
        metrics: Subset of `METRICS`; rows come in their order.
        items: RSA compares this many occurrences, the sample's first.
        dissimilarity: RSA's distance between two occurrences.

    Raises:
        UserError: Fewer than 4 occurrences.
    """
    if len(first) < LEAST_ROWS:
        raise UserError(
            f"Similarity of spaces needs at least {LEAST_ROWS} words. The sample of {first.facts.model} has "
            f"{len(first)}: use a larger corpus."
        )
    rows = [] if metrics == ("rsa",) else list(_space_rows(first, second, [m for m in metrics if m != "rsa"]))
    if "rsa" in metrics:
        rows += _rsa_rows(first.first(items), second.first(items), dissimilarity)
    return sorted(rows, key=lambda row: (metrics.index(row["metric"]), row["layer_a"], row["layer_b"]))


def _estimate_columns(
    metric: str, values: Float[np.ndarray, " leave_out"], groups: BlockGroups, baseline: float
) -> dict[str, Any]:
    replicates = groups.replicates(values)
    ends = groups.interval(values[0], values, scale_of(metric))
    columns = estimate(values[0], replicates, baseline, len(groups.order), ends=ends)
    # A study has thousands of these rows. Digits far below the interval's width would dominate the size of its tables:
    # 14.7 MB for three objectives and seeds of seven layers, 4.7 MB without them.
    return {**columns, "replicates": replicates.round(_DIGITS).tolist()}


def _space_rows(first: TokenSample, second: TokenSample, metrics: list[str]) -> Iterator[dict[str, Any]]:
    width = max(first.width, second.width)
    few, groups = too_few_rows(len(first), width), BlockGroups.of(first.blocks, width)
    order = torch.from_numpy(stream("similarity-baseline").permutation(len(first)))
    layers = list(_spaces(first, groups))
    for layer_b, b in enumerate(_spaces(second, groups)):  # one at a time in memory
        for layer_a, a in enumerate(layers):
            meeting, shuffled = LayerPair.of(a, b), LayerPair.shuffled(a, b, order)
            for metric in metrics:
                if few and metric in CANONICAL:
                    columns = undefined_columns(len(first))
                else:
                    values = space_values(metric, meeting)
                    columns = _estimate_columns(metric, values, groups, space_values(metric, shuffled)[0])
                yield {"layer_a": layer_a, "layer_b": layer_b, "metric": metric, **columns}


def _spaces(sample: TokenSample, groups: BlockGroups) -> Iterator[LayerSpace]:
    for layer in range(sample.num_states):
        space = LayerSpace(sample.states(layer), groups)
        if not space.varies:
            current_display().warn(
                f"Layer {layer} of {sample.facts.model} is the same for all {len(sample):,} sampled tokens, so it has "
                "no similarity to any other: its rows are NaN."
            )
        yield space


def _rsa_rows(first: TokenSample, second: TokenSample, dissimilarity: str) -> Iterator[dict[str, Any]]:
    pairs = ItemPairs(BlockGroups.of(first.blocks, first.width))
    places = pairs.under(stream("rsa-baseline").permutation(len(first)))
    layers = list(_ranked(first, pairs, dissimilarity))
    for layer_b, b in enumerate(_ranked(second, pairs, dissimilarity)):
        shuffled = b.ranks[places]
        for layer_a, a in enumerate(layers):
            values = a.values(b)
            columns = _estimate_columns("rsa", values, pairs.groups, float(a.ranks @ shuffled))
            yield {"layer_a": layer_a, "layer_b": layer_b, "metric": "rsa", **columns}


def _ranked(sample: TokenSample, pairs: ItemPairs, dissimilarity: str) -> Iterator[RankedSpace]:
    order = pairs.groups.order.numpy()
    for layer in range(sample.num_states):
        try:
            ranks = centred_ranks(sample.states(layer)[order], dissimilarity)
        except UserError as error:  # a single zero vector must not cost a study all its comparisons
            current_display().warn(f"Layer {layer} of {sample.facts.model} has no RSA: {error}")
            ranks = np.zeros(len(pairs))
        yield RankedSpace(ranks, pairs)
