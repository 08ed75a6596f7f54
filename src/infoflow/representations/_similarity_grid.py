"""Every layer of one model against every layer of another: similarities with error bars and a shuffled baseline."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float

from infoflow.flow import TokenSample
from infoflow.foundation import UserError, as_written, current_display, stream
from infoflow.results import estimate

from ._cka import LEAST_ROWS
from ._layer_pair import LayerPair
from ._layer_space import LayerSpace
from ._paired_distance import BlockGroups
from ._ranked_space import ItemPairs, RankedSpace
from ._rsa import centred_ranks
from ._space_metrics import SPACE_METRICS, space_values

METRICS = ("rsa", *SPACE_METRICS)
CANONICAL = ("pwcca", "svcca", "cca")

_DIGITS = 5
"""Of stored replicates."""

Layer = TypeVar("Layer", LayerSpace, RankedSpace)


def check_metrics(metrics: Sequence[str]) -> None:
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown or not metrics or len(set(metrics)) < len(metrics):
        got = as_written(unknown[0] if unknown else list(metrics))
        raise UserError(f"metrics must be different ones of {', '.join(METRICS)}. Got {got}.")


def similarity_grid(
    first: TokenSample, second: TokenSample | None, metrics: Sequence[str], items: int, dissimilarity: str
) -> list[dict[str, Any]]:
    """Rows of layer_a, layer_b, metric and the estimate columns.

    Args:
        first: The one model's states.
        second: The other's, of the same occurrences in the same order; None compares the layers of `first` with those
            above them.
        metrics: Of `METRICS`; rows come in their order.
        items: RSA compares so many occurrences, the sample's first.
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
        rows += _rsa_rows(first.first(items), None if second is None else second.first(items), dissimilarity)
    return sorted(rows, key=lambda row: (metrics.index(row["metric"]), row["layer_a"], row["layer_b"]))


def _estimate_columns(values: Float[np.ndarray, " leave_out"], groups: BlockGroups, baseline: float) -> dict[str, Any]:
    replicates = groups.replicates(values)
    ends = groups.interval(values[0], values)
    columns = estimate(values[0], replicates, baseline, len(groups.order), ends=ends)
    # A study has thousands of these rows. Digits far below the interval's width would be most of its tables' bytes:
    # 14.7 MB for three objectives and seeds of seven layers, 4.7 MB so.
    return {**columns, "replicates": replicates.round(_DIGITS).tolist()}


def _grid(first: list[Layer], second: Iterable[Layer] | None) -> Iterator[tuple[int, Layer, list[Layer]]]:
    """(layer_b, b, the layers a it meets) over the grid; the second model's layers are held one at a time."""
    for layer_b, b in enumerate(first if second is None else second):
        yield layer_b, b, first[:layer_b] if second is None else first


def _space_rows(first: TokenSample, second: TokenSample | None, metrics: list[str]) -> Iterator[dict[str, Any]]:
    groups = BlockGroups.of(first.blocks, max(first.width, (second or first).width))
    order = torch.from_numpy(stream("similarity-baseline").permutation(len(first)))
    others = None if second is None else _spaces(second, groups)
    for layer_b, b, met in _grid(list(_spaces(first, groups)), others):
        for layer_a, a in enumerate(met):
            meeting, shuffled = LayerPair.of(a, b), LayerPair.shuffled(a, b, order)
            for metric in metrics:
                values = space_values(metric, meeting)
                columns = _estimate_columns(values, groups, space_values(metric, shuffled)[0])
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


def _rsa_rows(first: TokenSample, second: TokenSample | None, dissimilarity: str) -> Iterator[dict[str, Any]]:
    pairs = ItemPairs(BlockGroups.of(first.blocks, first.width))
    places = pairs.under(stream("rsa-baseline").permutation(len(first)))
    others = None if second is None else _ranked(second, pairs, dissimilarity)
    for layer_b, b, met in _grid(list(_ranked(first, pairs, dissimilarity)), others):
        shuffled = b.ranks[places]
        for layer_a, a in enumerate(met):
            values = a.values(b)
            columns = _estimate_columns(values, pairs.groups, float(a.ranks @ shuffled))
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
